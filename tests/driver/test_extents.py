"""Extents of a call: agreement, products, lets, what nothing tells."""

from __future__ import annotations

import numpy as np
import pytest
from tests.driver import kernels as k

import treadle as td
from treadle.base.errors import TreadleError
from treadle.driver.extents import shape_of, solve
from treadle.ir.core import Program
from treadle.ir.parser import parse_program
from treadle.simulate.run import simulate

M, N = td.dims("M N")

PRODUCT = """
program p
  dim H
  dim C
  dim HC = H*C
  tensor X: f32[HC]
  tensor Y: f32[H, C] out
  body
    %x: f32[HC] = load X[HC]
"""


@pytest.fixture(scope="module")
def program() -> Program:
    return k.unflatten.program(np.zeros(12, np.float32), heads=3)


def test_axes_tell_their_dimensions() -> None:
    program = k.linear_gelu.program(np.zeros((2, 3), np.float32), np.zeros((3, 5), np.float32))
    assert solve(program, {"X": (2, 3), "W": (3, 5)}) == {"M": 2, "K": 3, "N": 5}


def test_a_product_axis_gives_the_last_factor(program: Program) -> None:
    assert solve(program, {"X": (12,)}) == {"H": 3, "C": 4}
    assert solve(program, {"X": (0,)}) == {"H": 3, "C": 0}


def test_a_product_axis_that_its_factors_do_not_divide(program: Program) -> None:
    with pytest.raises(TreadleError) as caught:
        solve(program, {"X": (13,)})
    assert caught.value.code == "call/extent-unknown"


def test_a_product_axis_is_compared_with_known_factors(program: Program) -> None:
    with pytest.raises(TreadleError) as caught:
        solve(program, {"X": (12,), "Y": (3, 5)})
    assert caught.value.code == "call/extent-conflict"
    assert "H*C" in str(caught.value) or "C*H" in str(caught.value)


def test_a_let_gives_an_extent_and_checks_one() -> None:
    program = k.windows.program(np.zeros(9, np.float32))
    assert solve(program, {"X": (9,)}) == {"M": 9, "L": 7}
    with pytest.raises(TreadleError) as caught:
        solve(program, {"X": (9,), "Y": (8,)})
    assert caught.value.code == "call/extent-conflict" and "td.let" in str(caught.value)


def test_the_shape_of_an_output_left_out() -> None:
    program = k.windows.program(np.zeros(9, np.float32))
    (y,) = [t for t in program.tensors if t.out]
    assert shape_of(program, y, {"M": 9, "L": 7}) == (7,)
    with pytest.raises(TreadleError) as caught:
        shape_of(program, y, {"M": 9})
    assert caught.value.code == "call/extent-unknown"


@pytest.mark.parametrize(
    "shapes, code",
    [
        ({"X": (4, 5), "W": (6, 2)}, "call/extent-conflict"),
        ({"X": (4, 5), "W": (5, 2), "bias": (3,)}, "call/extent-conflict"),
        ({"X": (4, 5), "W": (5, 2), "Y": (4, 3)}, "call/extent-conflict"),
        ({"X": (4, 5, 1), "W": (5, 2)}, "call/rank"),
        ({"X": (), "W": (5, 2)}, "call/rank"),
    ],
)
def test_shapes_that_do_not_fit(shapes: dict[str, tuple[int, ...]], code: str) -> None:
    x, w, b = (np.zeros(s, np.float32) for s in ((4, 5), (5, 2), (2,)))
    program = k.linear_gelu.program(x, w, b)
    with pytest.raises(TreadleError) as caught:
        solve(program, shapes)
    assert caught.value.code == code


def test_a_requirement() -> None:
    program = k.even.program(np.zeros(4, np.float32))
    assert solve(program, {"X": (4,)}) == {"M": 4}
    with pytest.raises(TreadleError) as caught:
        solve(program, {"X": (5,)})
    assert caught.value.code == "call/require" and "M = 5" in str(caught.value)


@pytest.mark.parametrize("heads, width", [(3, 4), (4, 1), (1, 5), (2, 0)])
def test_a_factor_that_only_products_tell_on_every_way(heads: int, width: int) -> None:
    x = np.arange(7.0 * heads * width, dtype=np.float32).reshape(7, heads * width) - 30
    off = np.array([0, 3, 3, 7], np.int32)
    want = np.stack([x[a:b].sum(0) for a, b in zip(off, off[1:])])
    assert (k.head_sums.reference(x, off, heads=heads) == want).all()
    assert (k.head_sums(x, off, heads=heads) == want).all()
    plan = k.head_sums.plan(x, off, heads=heads)
    assert plan.check().status == "verified"
    run = simulate(plan.program, {"X": x, "off": off, "Y": np.empty_like(want)}, seed=3)
    assert run.clean and (run.outputs["Y"] == want).all()


def test_a_let_is_compared_with_what_a_product_tells() -> None:
    text = PRODUCT.strip("\n").replace("  tensor Y", "  dim D\n  tensor Z: f32[D]\n  tensor Y")
    program = parse_program(text.replace("  body", "  let C = D + 1\n  body"))
    assert solve(program, {"X": (12,), "Y": (3, 4), "Z": (3,)}) == {"H": 3, "C": 4, "D": 3}
    with pytest.raises(TreadleError) as caught:
        solve(program, {"X": (12,), "Y": (3, 4), "Z": (5,)})
    assert caught.value.code == "call/extent-conflict" and "td.let(C, D + 1)" in str(caught.value)


def test_several_factors_are_never_guessed() -> None:
    with pytest.raises(TreadleError) as caught:
        solve(parse_program(PRODUCT.strip("\n")), {"X": (12,)})
    assert caught.value.code == "call/extent-unknown"


def test_a_position_among_no_elements_is_refused() -> None:
    for run in (k.position, k.position.reference, k.position.bind, k.position.sanitize):
        for _ in range(2):
            with pytest.raises(TreadleError, match="position of the maximum over N, which has no element") as caught:
                run(np.zeros((3, 0), np.float32))
            assert caught.value.code == "reduce/empty"
    assert k.position(np.zeros((0, 3), np.float32)).shape == (0,)


def test_a_position_that_is_never_asked_for_is_not_refused() -> None:
    """In a region without instances, or in a branch, `argmax` over no element is not executed."""

    @td.kernel
    def best_of_rows(X: td.Tensor[M, N], go: td.Scalar[td.i32], Y: td.Out[M, td.i64], Z: td.Out[(), td.i64]):
        for m in td.parallel(M.each):
            Y[m] = X[m, N].argmax()
        if go > 0:
            Z[()] = X[M, N].sum(M).argmax()

    for rows, columns, fits in ((0, 0, True), (0, 3, True), (2, 3, True), (2, 0, False)):
        x, y, z = np.zeros((rows, columns), np.float32), np.ones(rows, np.int64), np.ones((), np.int64)
        for run in (best_of_rows, best_of_rows.reference):
            if fits:
                run(x, 0, y, z)
                assert y.tolist() == [0] * rows and z == 1
            else:
                with pytest.raises(TreadleError) as caught:
                    run(x, 0, y, z)
                assert caught.value.code == "reduce/empty"
