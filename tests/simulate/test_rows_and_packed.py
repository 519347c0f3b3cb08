"""CPU programs by hand: right on every shape and view, and what is wrong in them is found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.machine.programs import PACKED, ROWS_SCALAR, ROWS_VECTOR, edited, packed, rows_scalar, rows_vector

from treadle.machine.parse import parse_machine
from treadle.math.numpy_ops import apply
from treadle.math.table import expansion
from treadle.simulate.findings import WrongArguments
from treadle.simulate.run import run_schedules, simulate

Array = np.ndarray[Any, np.dtype[Any]]


def softmax(x: Array) -> Array:
    """Bit for bit: the maximum, the expansion of exp, an ordered f32 sum, one division."""
    e = apply(expansion("exp").expand, x - x.max(axis=1, keepdims=True))
    total = np.full(len(x), -0.0, np.float32)
    for column in e.T:
        total = total + column
    return e / total[:, None]


@pytest.mark.parametrize("shape", [(1, 1), (3, 16), (5, 17), (9, 31)])
@pytest.mark.parametrize("seed", [0, 1])
def test_scalar_rows_have_the_bits_of_the_expansion(shape: tuple[int, int], seed: int) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    run = simulate(rows_scalar(), {"X": x, "Y": np.empty_like(x)}, seed=seed)
    assert run.findings == []
    assert np.array_equal(run.outputs["Y"], softmax(x))


@pytest.mark.parametrize("shape", [(1, 1), (2, 15), (4, 16), (7, 33)])
def test_vector_rows(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    run = simulate(rows_vector(), {"X": x, "Y": np.empty_like(x)}, seed=3)
    assert run.findings == []
    assert np.allclose(run.outputs["Y"], softmax(x), rtol=1e-6, atol=0)


def product_arguments(m: int, n: int, k: int) -> tuple[dict[str, Any], dict[str, Array]]:
    rng = np.random.default_rng(m + n + k)
    x, w = (rng.integers(-8, 9, shape).astype(np.float32) for shape in ((m, k), (k, n)))
    return {"X": x, "W": w, "Y": np.zeros((m, n), np.float32)}, {"Y": x @ w}


@pytest.mark.parametrize("shape", [(1, 1, 1), (8, 16, 32), (9, 17, 33), (5, 40, 0)])
def test_packed_is_exact_under_several_schedules(shape: tuple[int, int, int]) -> None:
    args, expected = product_arguments(*shape)
    trials = run_schedules(packed(), args, 3, expected=expected)
    assert trials.right and trials.runs == 3, trials.failures


def test_any_strided_view_is_an_argument() -> None:
    args, expected = product_arguments(9, 17, 12)
    wide = np.full((18, 40), np.nan, np.float32)
    x = wide[::2, 35:-41:-3][:, :12]
    x[...] = args["X"]
    w = np.asfortranarray(args["W"])[:, ::-1]
    y = np.zeros((17, 9), np.float32).T[::-1]
    run = simulate(packed(), {"X": x, "W": w, "Y": y})
    assert run.findings == []
    assert np.array_equal(run.outputs["Y"], expected["Y"][:, ::-1])
    assert not y.any()


def test_a_broadcast_input() -> None:
    row = np.arange(12, dtype=np.float32)[None]
    args, _ = product_arguments(6, 5, 12)
    x = np.broadcast_to(row, (6, 12))
    run = simulate(packed(), {**args, "X": x})
    assert run.clean and np.array_equal(run.outputs["Y"], x @ args["W"])


def test_outputs_start_poisoned() -> None:
    args, _ = product_arguments(9, 17, 12)
    program = edited(
        PACKED, "where 8*tm + $0 < M, 16*tn + $1 < N ; store", "where 8*tm + $0 + 1 < M, 16*tn + $1 < N ; store"
    )
    run = simulate(program, args)
    assert np.isnan(run.outputs["Y"][8]).all() and not np.isnan(run.outputs["Y"][:8]).any()


FAULTS = {
    "bounds": (ROWS_VECTOR, "x = load X[m, i + $0] where i + $0 < N fill -inf", "x = load X[m, i + $0]", "bounds"),
    "undefined": (ROWS_VECTOR, "e = exp d where j + $0 < N fill -0.0", "e = exp d where j + $0 < N", "undefined"),
    "unwritten": (ROWS_VECTOR, "          store row[j + $0] = e where j + $0 < N\n", "", "unwritten"),
    "never set": (ROWS_VECTOR, "        p = copy -0.0\n", "", "unwritten"),
    "race": (PACKED, "store Y[8*tm + $0, 16*tn + $1] = acc", "store Y[8*tm + $0, 16*tn + $1 - tn] = acc", "race"),
    "race of tasks": (ROWS_VECTOR, "min(4*t0 + 4, M)", "min(4*t0 + 5, M)", "race"),
    "short workspace": (PACKED, "buffer P f32[NT, K, 16]", "buffer P f32[NT, K - 1, 16]", "bounds"),
    "missing packing": (PACKED, "tasks (jp < NT)", "tasks (jp < NT - 1)", "unwritten"),
    "form": (PACKED, "launch main", "launch other", "form"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_found_with_their_line(name: str) -> None:
    text, old, new, code = FAULTS[name]
    args: dict[str, Any]
    if text is PACKED:
        args, _ = product_arguments(9, 40, 33)
    else:
        x = np.ones((9, 37), np.float32)
        args = {"X": x, "Y": np.empty_like(x)}
    run = simulate(edited(text, old, new), args, seed=2)
    assert code in {f.code for f in run.findings}, run.findings
    assert all(f.line > 0 for f in run.findings)


def test_a_bug_that_shows_in_some_orders_only_is_found_in_all() -> None:
    # Packing and use in one fork: a race whatever the order, a wrong result only in some.
    body = PACKED.replace("tasks (jp < NT) over workers {", "loop jp = 0 .. NT step 1 {")
    inner = body[body.index("    loop jp") : body.index("    tasks (tm")]
    text = body.replace(inner, "").replace(
        "      acc = copy 0.0 ;",
        "".join("  " + line + "\n" for line in inner.splitlines()) + "      acc = copy 0.0 ;",
    )
    args, expected = product_arguments(17, 18, 5)
    for seed in range(4):
        run = simulate(parse_machine(text), args, seed=seed)
        assert "race" in {f.code for f in run.findings}
    assert expected["Y"].shape == (17, 18)


def test_arguments_outside_the_guard() -> None:
    x = np.ones((4, 4), np.float32)
    with pytest.raises(WrongArguments):
        simulate(rows_scalar(), {"X": x, "Y": x})
    with pytest.raises(WrongArguments):
        simulate(rows_vector(), {"X": np.ones((4, 8), np.float32)[:, ::2], "Y": x})
    with pytest.raises(WrongArguments):
        simulate(rows_scalar(), {"X": np.ones((4, 0), np.float32), "Y": np.ones((4, 0), np.float32)})


def test_an_endless_loop_ends() -> None:
    x = np.ones((2, 50), np.float32)
    run = simulate(parse_machine(ROWS_SCALAR), {"X": x, "Y": x * 0}, max_steps=60)
    assert [f.code for f in run.findings] == ["endless"]


SCALED = """\
tdm 1
target cpu:avx2
program {
  program scaled
    dim M
    tensor X: f32[M]
    tensor Y: f32[M] out
    scalar c: f32 = %c
    scalar n: i64 = %n
    body
      region R0 parallel (m in M)
        %x: f32[m] = load X[m]
        %y: f32[m] = mul %x, %c
        store Y[m] = %y
}
guard {
  disjoint(X, Y)
}
host {
  launch main grid 1 threads 1
}
kernel main {
  frag x f32[5]
  frag y f32[5]
  frag s f32[]
  role worker agents 1 threads 1 {
    tasks (t < (M + 4) // 5) over workers enters R0(m = 5*t .. min(5*t + 5, M)) {
      x = load X[5*t + $0] where 5*t + $0 < min(M, n, %n()) fill 0.0
      y = mul x, %c
      sync prefetch X[5*t + 500]
      store Y[5*t + $0] = y where 5*t + $0 < M
    }
  }
}
"""


def test_scalar_arguments_and_halving() -> None:
    x = np.arange(1, 13, dtype=np.float32)
    args = {"X": x, "Y": np.zeros(12, np.float32), "c": 0.5, "n": 9}
    result = simulate(parse_machine(SCALED), args)
    assert result.findings == []
    assert np.array_equal(result.outputs["Y"], np.where(np.arange(12) < 9, x / 2, 0))


def test_a_fold_of_five_goes_by_halving() -> None:
    text = SCALED.replace("y = mul x, %c", "s = fold add x axes (0)\n      y = copy s")
    x = (np.float32(1) / np.arange(1, 6)).astype(np.float32)
    result = simulate(parse_machine(text), {"X": x, "Y": np.zeros(5, np.float32), "c": 0.5, "n": 9})
    assert result.findings == []
    # Five: 4 is the half, then 2, then 1.
    a, b, c, d, e = x
    assert (result.outputs["Y"] == ((a + e) + c) + (b + d)).all()
