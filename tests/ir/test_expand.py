"""Programs expanded into regions and plain operations: they verify, print, and mean what they meant."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from treadle.evaluate.cuts import Cuts, Even, Random
from treadle.evaluate.interpreter import evaluate
from treadle.ir.clone import clone_program
from treadle.ir.core import Program, Region
from treadle.ir.expand import expand
from treadle.ir.ops.debug import Check
from treadle.ir.ops.fold import ArgReduce, Fold, Reduce, Scan, Sort
from treadle.ir.parser import parse_program
from treadle.ir.printer import print_program
from treadle.ir.verifier import verify

Array = NDArray[Any]

HEAD = """\
program p
  dim M
  dim N
  dim T = 3
  tensor X: {dtype}[M, N]
  tensor Y: {dtype}[M, N] out
  tensor S: {dtype}[M] out
  tensor C: i64[M, N] out
  tensor V: {dtype}[M, T] out
  tensor P: i64[M] out
  body
    %x: {dtype}[M, N] = load X[M, N]
"""

# Composition of affine maps c -> a*c + b: associative, not commutative.
AFFINE = """\
identity
  %i: i64[] = full 1
  %j: i64[M] = full 0
  %k: i64[M] = where %true, %i, %i
  yield %k, %j
with (%a: i64[M], %b: i64[M]) (%c: i64[M], %d: i64[M])
  %e: i64[M] = mul %a, %c
  %f: i64[M] = mul %b, %c
  %g: i64[M] = add %f, %d
  yield %e, %g
"""


def program(body: str, dtype: str = "i64") -> Program:
    made = parse_program(HEAD.format(dtype=dtype) + "".join(f"    {line}\n" for line in body.splitlines()))
    verify(made)
    assert print_program(parse_program(print_program(made))) == print_program(made)
    return made


def indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.splitlines())


def run(p: Program, x: Array, cuts: Cuts | None = None, **more: Array) -> dict[str, Array]:
    m, n = x.shape
    given = {"Y": x.dtype, "S": x.dtype, "C": np.int64, "V": x.dtype, "P": np.int64}
    shapes = {"Y": (m, n), "S": (m,), "C": (m, n), "V": (m, 3), "P": (m,)}
    arrays: dict[str, Array] = {"X": x.copy()} | {k: np.zeros(shapes[k], d) for k, d in given.items()} | more
    hidden = {h.tensor.name: np.zeros(len(h.messages), np.int32) for h in p.hidden}
    arrays |= hidden
    evaluate(p, arrays, extents={"M": m, "N": n}, cuts=cuts)
    return arrays


def agree(p: Program, x: Array) -> dict[str, Array]:
    """The expanded program verifies, has no form that `expand` removes, and gives the same; so do regroupings."""
    expanded = expand(p)
    verify(expanded)
    assert print_program(parse_program(print_program(expanded))) == print_program(expanded)
    assert not any(isinstance(op, Fold | Scan | Sort | ArgReduce | Check) for op in expanded.body.walk())
    assert print_program(expand(p)) == print_program(expanded)
    assert expand(expanded) is expanded
    wanted = run(p, x)
    for q, cuts in ((expanded, None), (p, Even(1)), (p, Random(3)), (expanded, Random(4))):
        got = run(q, x, cuts)
        for name in wanted:
            np.testing.assert_array_equal(got[name], wanted[name], err_msg=name)
    return wanted


SHAPES = [(1, 1), (2, 7), (3, 0), (0, 4), (4, 33)]


def ints(shape: tuple[int, int], low: int = -5, high: int = 5) -> Array:
    return np.random.default_rng(shape[1]).integers(low, high, shape)


def affine(pairs: list[tuple[int, int]]) -> tuple[int, int]:
    a, b = 1, 0
    for c, d in pairs:
        a, b = a * c, b * c + d
    return a, b


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("order", ["ordered", "fold_left", "fold_right"])
def test_fold_of_maps(shape: tuple[int, int], order: str) -> None:
    text = (
        "%true: bool[M] = full true\n%n: i64[N] = coords N\n"
        f"%s: i64[M], %t: i64[M] = fold %x, %n over N merge affine order {order}\n"
        + indented(AFFINE)
        + "store S[M] = %s\nstore P[M] = %t\n"
    )
    x = ints(shape, -2, 3)
    got = agree(program(text), x)
    for m in range(shape[0]):
        assert (got["S"][m], got["P"][m]) == affine([(int(x[m, n]), n) for n in range(shape[1])])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("flags", ["", "exclusive", "reverse", "exclusive reverse", "order fold_left"])
def test_scan_of_maps(shape: tuple[int, int], flags: str) -> None:
    text = (
        "%true: bool[M] = full true\n%n: i64[N] = coords N\n"
        f"%s: i64[M, N], %t: i64[M, N] = scan %x, %n over N merge affine {flags}\n"
        + indented(AFFINE)
        + "store Y[M, N] = %s\nstore C[M, N] = %t\n"
    )
    x = ints(shape, -2, 3)
    got = agree(program(text), x)
    for m, n in np.ndindex(*shape):
        visited = range(shape[1]) if "reverse" not in flags else range(shape[1] - 1, -1, -1)
        upto = list(visited)[: list(visited).index(n) + ("exclusive" not in flags)]
        assert (got["Y"][m, n], got["C"][m, n]) == affine([(int(x[m, i]), i) for i in upto])


@pytest.mark.parametrize("monoid", ["add", "mul", "max", "min", "and", "or", "xor"])
@pytest.mark.parametrize("flags", ["", "exclusive", "reverse", "exclusive reverse"])
def test_builtin_scan(monoid: str, flags: str) -> None:
    x = ints((3, 9))
    got = agree(program(f"%y: i64[M, N] = scan %x over N {monoid} {flags}\nstore Y[M, N] = %y"), x)
    fn = dict(add=np.add, mul=np.multiply, max=np.maximum, min=np.minimum)
    fn |= {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
    seen = x[:, ::-1] if "reverse" in flags else x
    want = fn[monoid].accumulate(seen, axis=1)
    if "exclusive" in flags:
        assert (want[:, :-1] == (got["Y"][:, ::-1] if "reverse" in flags else got["Y"])[:, 1:]).all()
    else:
        np.testing.assert_array_equal(got["Y"], want[:, ::-1] if "reverse" in flags else want)


@pytest.mark.parametrize("shape", [*SHAPES, (2, 64), (1, 65)])
@pytest.mark.parametrize("descending", [False, True])
def test_sort_is_stable(shape: tuple[int, int], descending: bool) -> None:
    word = " descending" if descending else ""
    text = f"%y: i64[M, N], %c: i64[M, N] = sort %x over N{word}\nstore Y[M, N] = %y\nstore C[M, N] = %c"
    x = ints(shape)
    got = agree(program(text), x)
    want = np.argsort(-x if descending else x, axis=1, kind="stable")
    np.testing.assert_array_equal(got["C"], want)
    np.testing.assert_array_equal(got["Y"], np.take_along_axis(x, want, 1))


@pytest.mark.parametrize("descending", [False, True])
def test_sort_puts_nan_last(descending: bool) -> None:
    x = np.array([[3.0, np.nan, -np.inf, np.inf, np.nan, 3.0, -0.0, 0.0, 1.0]], np.float32)
    word = " descending" if descending else ""
    text = f"%y: f32[M, N], %c: i64[M, N] = sort %x over N{word}\nstore C[M, N] = %c"
    got = agree(program(text, "f32"), x)
    want = [3, 0, 5, 8, 6, 7, 2, 1, 4] if descending else [2, 6, 7, 8, 0, 5, 3, 1, 4]
    assert got["C"][0].tolist() == want


def test_what_is_sorted_twice_the_same_way_is_sorted_once() -> None:
    both = "%y: i64[M, N], %a: i64[M, N] = sort %x over N\n%b: i64[M, N], %c: i64[M, N] = sort %x over N{word}\n"
    both += "store Y[M, N] = %y\nstore C[M, N] = %c"
    x = ints((3, 9))
    for word, loops in (("", 2), (" descending", 4)):  # a loop of passes, and one in it
        shared = program(both.format(word=word))
        assert str(print_program(expand(shared))).count("serial") == loops
        got = agree(shared, x)
        order = np.argsort(-x if word else x, axis=1, kind="stable")
        np.testing.assert_array_equal(got["C"], order)
        np.testing.assert_array_equal(got["Y"], np.sort(x, axis=1))


@pytest.mark.parametrize("columns", [3, 4, 9, 40])
@pytest.mark.parametrize("word", ["", " descending"])
def test_the_first_few_are_a_list_and_not_a_sort(columns: int, word: str) -> None:
    text = f"%v: f32[M, T], %c: i64[M, T] = sort %x over N to T{word}\nstore V[M, T] = %v\n"
    made = program(text + "%first: i64[M] = extract %c[M, 0]\nstore P[M] = %first", "f32")
    assert "sort_pass" not in print_program(expand(made))
    rng = np.random.default_rng(columns)
    x = rng.integers(-3, 4, (6, columns)).astype(np.float32)
    x[1, ::2], x[2], x[3, 1:] = np.nan, np.nan, -np.inf
    x[4] = np.sort(x[4])  # every element goes to the front, or none after the first
    got = agree(made, x)
    order = np.argsort(-x if word else x, axis=1, kind="stable")[:, :3]
    np.testing.assert_array_equal(got["V"], np.take_along_axis(x, order, 1))
    np.testing.assert_array_equal(got["P"], order[:, 0])


def test_the_first_of_a_part() -> None:
    text = (
        "%part: i64[M, N[2 : 7]] = extract %x[M, N[2 : 7]]\n"
        "%v: i64[M, T], %c: i64[M, T] = sort %part over N to T descending\n"
        "store V[M, T] = %v\n%first: i64[M] = extract %c[M, 0]\nstore P[M] = %first"
    )
    x = ints((3, 8))
    got = agree(program(text), x)
    order = np.argsort(-x[:, 2:7], axis=1, kind="stable")[:, :3]
    np.testing.assert_array_equal(got["V"], np.take_along_axis(x[:, 2:7], order, 1))
    np.testing.assert_array_equal(got["P"], order[:, 0] + 2)


@pytest.mark.parametrize("monoid", ["max", "min"])
@pytest.mark.parametrize("nan", ["propagate", "ignore"])
def test_first_extremum(monoid: str, nan: str) -> None:
    inf = np.inf
    rows = [
        [1, 3, 3, 2],
        [np.nan, 6, 8, 8],
        [inf, np.nan, 1, 0],
        [np.nan] * 4,
        [-inf] * 4,
        [inf] * 4,
        [0.0, -0.0, 1, 1],
    ]
    x = np.array(rows, np.float32)
    word = " nan ignore" if nan == "ignore" else ""
    text = f"%p: i64[M] = argreduce {monoid} %x over N{word}\nstore P[M] = %p"
    got = agree(program(text, "f32"), x)
    pick = (np.argmax if monoid == "max" else np.argmin) if nan == "propagate" else None
    for row, found in zip(x, got["P"], strict=True):
        if pick is not None:
            assert found == pick(row)
        else:
            clean = np.where(np.isnan(row), -inf if monoid == "max" else inf, row)
            assert found == (np.argmax if monoid == "max" else np.argmin)(clean)


def test_the_extremum_of_an_equal_fold_is_found_once() -> None:
    best = "%b: i64[M] = reduce max %x over N\nstore P[M] = %b\n"
    at = "%p: i64[M] = argreduce max %x over N\nstore P[M] = %p"
    for text, folds in ((best + at, 1), (at + "\n" + at.replace("%p", "%q"), 1), (best.replace("max", "min") + at, 2)):
        p = program(text)
        made = [op for op in expand(p).body.walk() if isinstance(op, Reduce) and op.source.name == "%x"]
        assert len(made) == folds, text
        x = ints((5, 7))
        assert (agree(p, x)["P"] == np.argmax(x, 1)).all()


def test_position_among_nothing_is_the_first_coordinate() -> None:
    part = "%part: i64[M, N[N : N]] = extract %x[M, N[N : N]]\n"
    got = agree(program(part + "%p: i64[M] = argreduce min %part over N\nstore P[M] = %p"), ints((2, 4)))
    assert got["P"].tolist() == [4, 4]
    several = agree(program("%p: i64[] = argreduce max %x over M, N\nstore P[M] = %p"), ints((3, 0)))
    assert several["P"].tolist() == [0, 0, 0]


def test_position_of_several_dimensions() -> None:
    text = (
        "%part: i64[M[1 : M], N] = extract %x[M[1 : M], N]\n%p: i64[] = argreduce max %part over M, N\nstore P[M] = %p"
    )
    x = ints((4, 6))
    got = agree(program(text), x)
    assert (got["P"] == np.argmax(x[1:])).all()


def test_checks_become_flags() -> None:
    p = program(
        '%zero: i64[] = full 0\n%ok: bool[M, N] = ge %x, %zero\ncheck %ok "first"\n'
        '%b: bool[M, N] = lt %x, %x\ncheck %b "second"'
    )
    expanded = expand(p)
    verify(expanded)
    (hidden,) = expanded.hidden
    assert hidden.kind == "check" and hidden.messages == ("first", "second") and hidden.tensor.hidden
    assert p.hidden == [] and " hidden" in print_program(expanded)
    assert print_program(parse_program(print_program(expanded))) == print_program(expanded)
    flags = run(expanded, np.ones((2, 2), np.int64))[hidden.tensor.name]
    assert flags.tolist() == [0, 1]
    assert run(expanded, np.ones((0, 2), np.int64))[hidden.tensor.name].tolist() == [0, 0]


REGION = """\
%e: i64[M] = full 1
%z: i64[M] = full 0
region R0 reduce (n in N each) order {order} carry (%s: i64[M] = %e, %t: i64[M] = %z) -> (%s.1, %t.1)
  merge affine states 0, 1
    identity
      %i: i64[M] = full 1
      %j: i64[M] = full 0
      yield %i, %j
    with (%a: i64[M], %b: i64[M]) (%c: i64[M], %d: i64[M])
      %e.1: i64[M] = mul %a, %c
      %f: i64[M] = mul %b, %c
      %g: i64[M] = add %f, %d
      yield %e.1, %g
  %new: i64[M] = extract %x[M, n]
  %k: i64[] = index n
  %a1: i64[M] = mul %s, %new
  %b1: i64[M] = mul %t, %new
  %b2: i64[M] = add %b1, %k
  yield %a1, %b2
store S[M] = %s.1
store P[M] = %t.1
"""


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("order", ["ordered", "fold_left"])
def test_states_of_a_region(shape: tuple[int, int], order: str) -> None:
    p = program(REGION.format(order=order))
    x = ints(shape, -2, 3)
    got = agree(p, x)
    for m in range(shape[0]):
        assert (got["S"][m], got["P"][m]) == affine([(int(x[m, n]), n) for n in range(shape[1])])
    assert all(r.kind == "pipeline" and not r.merges for r in expand(p).body.walk() if isinstance(r, Region))


def test_fills_that_are_computed() -> None:
    text = (
        "%far: i64[] = index 3*M + N\n%n: i64[N] = coords N\n%k: i64[] = index 2\n%at: i64[N] = sub %n, %k\n"
        "%y: i64[M, N] = load X[M, %at] fill %far\nstore Y[M, N] = %y\n"
        "%c: i64[M, N] = extract %x[M, %at] fill %far\nstore C[M, N] = %c\n"
        "%s: i64[M] = extract %x[M, 9] fill %far\nstore S[M] = %s\n"
    )
    x = ints((3, 5))
    got = agree(program(text), x)
    want = np.concatenate([np.full((3, 2), 14), x[:, :3]], 1)
    np.testing.assert_array_equal(got["Y"], want)
    np.testing.assert_array_equal(got["C"], want)
    assert got["S"].tolist() == [14, 14, 14]


def test_nothing_to_expand() -> None:
    p = program("store Y[M, N] = %x")
    assert expand(p) is p
    copy = clone_program(p)
    assert print_program(copy) == print_program(p) and copy.body is not p.body
