"""Order policies: monoids that do not commute, integer-exact, at random cuts and regroupings.

Every contribution is an affine map modulo a prime: one lost, doubled or permuted contribution changes the composition.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import treadle as td
from treadle import i64
from treadle.evaluate.cuts import Cuts, Even, Random
from treadle.evaluate.interpreter import evaluate

M, N, K = td.dims("M N K")
P = 10007


@dataclasses.dataclass
class Map:
    """x -> a * x + b modulo P."""

    a: Any
    b: Any


def then(f, g):
    return Map(f.a * g.a % P, (f.b * g.a + g.b) % P)


MAPS = td.Monoid(lambda: Map(1, 0), then, lift=lambda v: Map(v[0], v[1]))
COUNTS = td.Monoid((0, 0), lambda s, t: (s[0] + t[0], s[1] ^ t[1]), lift=lambda v: (1, v), commutative=True)


def composed(start: tuple[int, int], maps: list[tuple[int, int]]) -> tuple[int, int]:
    a, b = start
    for c, d in maps:
        a, b = a * c % P, (b * c + d) % P
    return a, b


@td.kernel
def by_element(A: td.Tensor[M, N, i64], B: td.Tensor[M, N, i64], Y: td.Out[M, i64], Z: td.Out[M, i64], *, order, start):
    """A state over a block, with a value before the region, updated an element at a time."""
    for m in td.parallel(M):
        s = Map(td.full(m, value=start[0], dtype=i64), td.full(m, value=start[1], dtype=i64))
        for n in td.reduce(N.each, order=order):
            s = MAPS(s, (A[m, n], B[m, n]))
        Y[m], Z[m] = s.a, s.b


@td.kernel
def by_block(A: td.Tensor[M, N, i64], B: td.Tensor[M, N, i64], Y: td.Out[M, i64], Z: td.Out[M, i64], *, order, start):
    """Blocks are folded by td.fold, their states merged."""
    for m in td.parallel(M):
        s = Map(*start)
        for n in td.reduce(N, order=order):
            s = MAPS.merge(s, td.fold((A[m, n], B[m, n]), N, MAPS, order=order))
        Y[m], Z[m] = s.a + 0 * A[m, N].sum(N), s.b + 0 * A[m, N].sum(N)


@td.kernel
def by_row(A: td.Tensor[M, N, i64], B: td.Tensor[M, N, i64], Y: td.Out[M, i64], Z: td.Out[M, i64], *, order, start):
    """A state over whole rows, updated in part, in a region inside a region."""
    s = Map(td.full(M, value=start[0], dtype=i64), td.full(M, value=start[1], dtype=i64))
    for n in td.reduce(N, order=order):
        for e in td.reduce(n.each, order=order):
            new = MAPS(Map(s.a[M], s.b[M]), (A[M, e], B[M, e]))
            s.a[M], s.b[M] = new.a, new.b
    Y[M], Z[M] = s.a, s.b


def run(kernel: Any, arrays: dict[str, Any], staged: dict[str, Any], cuts: Cuts) -> None:
    program = kernel.definition.capture({n: i64 for n in ("A", "B")}, staged)
    evaluate(program, arrays, extents={"M": arrays["A"].shape[0], "N": arrays["A"].shape[1]}, cuts=cuts)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([by_element, by_block, by_row]),
    st.sampled_from([td.ordered, td.fold_left, td.fold_right]),
    st.integers(0, 9),
    st.integers(0, 10**6),
)
def test_no_contribution_is_lost_doubled_or_moved(kernel: Any, order: str, length: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.integers(1, P, (2, length)), rng.integers(0, P, (2, length))
    start = (3, 5) if order != td.fold_right else (1, 0)  # a chain from the right ends with the incoming state
    for cuts in (Even(1 << 40), Even(1), Random(seed), Random(seed + 1)):
        y, z = np.zeros(2, np.int64), np.zeros(2, np.int64)
        run(kernel, {"A": a, "B": b, "Y": y, "Z": z}, {"order": order, "start": start}, cuts)
        for m in range(2):
            assert (y[m], z[m]) == composed(start, list(zip(a[m].tolist(), b[m].tolist(), strict=True)))


def test_the_incoming_state_of_a_chain_from_the_right_comes_last() -> None:
    a, b = np.array([[2, 3]]), np.array([[1, 1]])
    y, z = np.zeros(1, np.int64), np.zeros(1, np.int64)
    run(by_element, {"A": a, "B": b, "Y": y, "Z": z}, {"order": td.fold_right, "start": (5, 7)}, Even(1))
    assert (y[0], z[0]) == composed((1, 0), [(2, 1), (3, 1), (5, 7)])


@td.kernel
def counted(X: td.Tensor[M, N, i64], Y: td.Out[i64], Z: td.Out[i64], *, start):
    """Unordered: contributions of two dimensions in any order, to two leaves."""
    s = start
    for m, n in td.reduce(M, N):
        s = COUNTS.merge(s, td.fold(X[m, n], (M, N), COUNTS))
    Y[()], Z[()] = s


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 4), st.integers(0, 7), st.integers(0, 10**6))
def test_every_contribution_is_folded_once(rows: int, columns: int, seed: int) -> None:
    x = np.random.default_rng(seed).integers(0, 1 << 40, (rows, columns))
    program = counted.definition.capture({"X": i64}, {"start": (100, 3)})
    for cuts in (Even(1 << 40), Even(1), Random(seed)):
        y, z = np.zeros((), np.int64), np.zeros((), np.int64)
        evaluate(program, {"X": x, "Y": y, "Z": z}, extents={"M": rows, "N": columns}, cuts=cuts)
        assert int(y) == 100 + x.size and int(z) == 3 ^ int(np.bitwise_xor.reduce(x, axis=None) if x.size else 0)


@pytest.mark.parametrize("order", [td.unordered, td.ordered, td.fold_left, td.fold_right])
@pytest.mark.parametrize("monoid", ["Add", "Mul", "Max", "Min", "And", "Or", "Xor"])
def test_built_in_monoids_fold_in_every_order(monoid: str, order: str) -> None:
    known = getattr(td, monoid)

    @td.kernel
    def folded(X: td.Tensor[N, i64], Y: td.Out[i64], Z: td.Out[i64]):
        Y[()] = td.fold(X[N], N, known, order=order)
        s = td.fold(X[N], N, known)
        for n in td.reduce(N.each, order=order):
            s = known(s, X[n])
        Z[()] = s

    x = np.random.default_rng(1).integers(-9, 9, 6)
    names = {"Add": np.add, "Mul": np.multiply, "Max": np.maximum, "Min": np.minimum}
    names |= {"And": np.bitwise_and, "Or": np.bitwise_or, "Xor": np.bitwise_xor}
    want = names[monoid].reduce(x)
    for cuts in (Even(1 << 40), Random(2)):
        y, z = np.zeros((), np.int64), np.zeros((), np.int64)
        evaluate(folded.definition.capture(), {"X": x, "Y": y, "Z": z}, extents={"N": 6}, cuts=cuts)
        assert int(y) == want and int(z) == names[monoid](want, want)
