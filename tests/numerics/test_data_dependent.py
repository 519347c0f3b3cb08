"""Ranges and indices that come out of tensors: ragged groups, paged tables, gathers, masked and colliding stores.

Each kernel runs in the interpreter and as compiled code, at zero, one and many elements, on contents that look for
trouble: empty and overlapping groups, bounds beyond the data, all indices alike, all different, at the ends. Integers
are compared exactly, so that one lost, doubled or misplaced contribution shows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import treadle as td
from treadle import f32, i32, i64, u8
from treadle.base.errors import TreadleError

Array = NDArray[Any]
G, T, V, D, P, S, B = td.dims("G T V D P S B")


def both(kernel: Any, *args: Any, out: Array | None = None) -> Iterator[Any]:
    """The results of the interpreter and of a call, each on its own copy of what is written."""
    for run in (kernel.reference, kernel):
        given = [a.copy() if out is not None and a is out else a for a in args]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # where a form has no machine program yet
            yield run(*given)


def numbers(*shape: int, seed: int = 0) -> Array:
    """Small integers in f32: their sums are exact."""
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(np.float32)


# ---- ragged groups


@td.kernel
def group_sums(LO: td.Tensor[G, i32], HI: td.Tensor[G, i32], X: td.Tensor[T, D], Y: td.Out[G, D, f32] = None):
    for g in td.parallel(G.each):
        s = td.zeros(D, dtype=f32)
        for t in td.reduce(T[LO[g] : HI[g]]):
            s = s + X[t, D].sum(t)
        Y[g, D] = s


@td.kernel
def group_tops(LO: td.Tensor[G, i32], HI: td.Tensor[G, i32], X: td.Tensor[T, D], Y: td.Out[G, D, f32] = None):
    for g in td.parallel(G.each):
        s = td.full(D, value=-99.0, dtype=f32)
        for t in td.serial(T[LO[g] : HI[g]].each):
            s = td.maximum(s, X[t, D])
        Y[g, D] = s


RAGGED = {
    "none": [],
    "one empty": [(0, 0)],
    "one whole": [(0, 40)],
    "one element": [(7, 8)],
    "the last": [(39, 40)],
    "many": [(0, 3), (3, 3), (3, 40), (5, 6), (0, 40), (40, 40)],
    "overlapping": [(0, 20), (10, 30), (0, 40), (19, 21)],
    "backwards": [(20, 10), (1, 0), (40, 0)],
    "beyond the data": [(-5, 5), (38, 60), (-(2**31), 2**31 - 1), (50, 60), (-9, -1)],
    "a thousand": [(i % 41, (i * 7) % 41) for i in range(1000)],
}


@pytest.mark.parametrize(
    ("case", "rows", "width"),
    [*((case, 40, 5) for case in RAGGED), ("many", 1, 5), ("many", 0, 5), ("beyond the data", 40, 1), ("many", 0, 0)],
)
def test_ragged_groups(case: str, rows: int, width: int) -> None:
    """Bounds are coordinates, clamped to the part; what is not below its end is empty."""
    pairs = np.array(RAGGED[case], np.int32).reshape(-1, 2)
    lo, hi = np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])
    x = numbers(rows, width)
    parts = [x[max(0, int(a)) : max(0, int(b))] for a, b in pairs]
    sums = np.array([p.sum(0) for p in parts], np.float32).reshape(len(parts), width)
    for got in both(group_sums, lo, hi, x):
        assert np.array_equal(got, sums)
    tops = np.array([np.vstack([np.full((1, width), -99.0), p]).max(0) for p in parts], np.float32).reshape(
        len(parts), width
    )
    for got in both(group_tops, lo, hi, x):
        assert np.array_equal(got, tops)


@td.kernel
def grouped_product(
    LO: td.Tensor[G, i32], HI: td.Tensor[G, i32], X: td.Tensor[T, D], W: td.Tensor[G, D, V], Y: td.Out[T, V, f32]
):
    """Each row belongs to at most one group; rows of none keep what they had."""
    for g in td.parallel(G.each):
        for t in td.serial(T[LO[g] : HI[g]]):
            Y[t, V] = td.dot(X[t, D], W[g, D, V], over=D)


@pytest.mark.parametrize("bounds", [[0, 0, 13, 13, 40], [0, 40], [3, 4, 9], [0], [0, 1, 2, 3, 4, 5]])
def test_grouped_products_store_only_their_rows(bounds: list[int]) -> None:
    lo, hi = np.array(bounds[:-1], np.int32), np.array(bounds[1:], np.int32)
    x, w = numbers(40, 6), numbers(len(lo), 6, 7, seed=1)
    y = np.full((40, 7), 77, np.float32)
    want = y.copy()
    for g, (a, b) in enumerate(zip(lo, hi, strict=True)):
        want[a:b] = x[a:b] @ w[g]
    for got in both(grouped_product, lo, hi, x, w, y, out=y):
        assert np.array_equal(got, want)


# ---- paged tables


@td.kernel
def paged_sums(
    TABLE: td.Tensor[B, P, i32], LENGTH: td.Tensor[B, i32], POOL: td.Tensor[G, S, D], Y: td.Out[B, D, f32] = None
):
    """The sum of the first LENGTH[b] rows that row b of the table pages in; the rest of the table is never read."""
    for b in td.parallel(B.each):
        s = td.zeros(D, dtype=f32)
        for p in td.reduce(P.each):
            page = td.in_range(td.minimum(td.maximum(TABLE[b, p], 0), G.extent - 1), G)
            inside = p * S.extent + S.coords < LENGTH[b]
            s = s + td.where(inside, POOL[page, S, D], 0.0).sum(S)
        Y[b, D] = s


@pytest.mark.parametrize("lengths", [[0], [1], [12], [0, 1, 3, 4, 5, 11, 12, 99], [], [2**31 - 1]])
def test_paged_tables(lengths: list[int]) -> None:
    """Pages shared, repeated and in any order; unused entries of the table are poison."""
    rng = np.random.default_rng(3)
    pages, size, width = 5, 4, 6
    pool = numbers(pages, size, width)
    table = rng.integers(0, pages, (len(lengths), 3)).astype(np.int32)
    length = np.array(lengths, np.int32)
    for b, n in enumerate(lengths):
        table[b, -(-min(n, 12) // size) :] = rng.choice([-1, 2**31 - 1, -(2**31)])
    want = np.zeros((len(lengths), width), np.float32)
    for b, n in enumerate(lengths):
        for i in range(min(n, 3 * size)):
            want[b] += pool[table[b, i // size], i % size]
    for got in both(paged_sums, table, length, pool):
        assert np.array_equal(got, want)


# ---- gathers


@td.kernel
def gathered(L: td.Tensor[T], X: td.Tensor[V, D], Y: td.Out[T, D] = None):
    for t in td.parallel(T):
        Y[t, D] = X[td.in_range(L[t], V), D]


@td.kernel
def filled(L: td.Tensor[T], X: td.Tensor[V], Y: td.Out[T] = None):
    for t in td.parallel(T):
        Y[t] = X.at(L[t], fill=-1.0)


@td.kernel
def twice(L: td.Tensor[T], J: td.Tensor[V], X: td.Tensor[V], Y: td.Out[T] = None):
    for t in td.parallel(T):
        Y[t] = X[td.in_range(J[td.in_range(L[t], V)], V)]


INDICES: dict[str, Callable[[int, int], Array]] = {
    "alike": lambda n, v: np.full(n, v - 1),
    "rising": lambda n, v: np.arange(n) % v,
    "falling": lambda n, v: np.arange(n)[::-1] % v,
    "random": lambda n, v: np.random.default_rng(n).integers(0, v, n),
    "ends": lambda n, v: np.where(np.arange(n) % 2, 0, v - 1),
}


@pytest.mark.parametrize("kind", INDICES)
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
def test_gathers(kind: str, dtype: Any) -> None:
    for count, rows in ((0, 3), (1, 1), (200, 100)):
        index = INDICES[kind](count, rows).astype(dtype)
        x = numbers(rows, 5)
        for got in both(gathered, index, x):
            assert np.array_equal(got, x[index])
    flat, chain = numbers(100), np.random.default_rng(9).permutation(100).astype(np.int32)
    index = INDICES[kind](50, 100).astype(dtype)
    for got in both(twice, index, chain, flat):
        assert np.array_equal(got, flat[chain[index]])


def test_indices_out_of_range_take_the_fill() -> None:
    """Every index that is none: negative ones do not count from the end, and nothing wraps in 32 bits."""
    x = numbers(10)
    wild = [0, 9, 10, -1, -10, 2**31 - 1, -(2**31), 5]
    want = [float(x[i]) if 0 <= i < 10 else -1.0 for i in wild]
    for got in both(filled, np.array(wild, np.int32), x):
        assert got.tolist() == want
    far = [*wild, 2**63 - 1, -(2**63), 2**32, 2**32 + 5, -(2**32)]
    for got in both(filled, np.array(far, np.int64), x):
        assert got.tolist() == [float(x[i]) if 0 <= i < 10 else -1.0 for i in far]
    for got in both(filled, np.array([3], np.int32), numbers(0)):
        assert got.tolist() == [-1.0]


def test_sanitize_finds_a_broken_promise() -> None:
    findings = gathered.sanitize(np.array([0, 3], np.int32), numbers(3, 2))
    assert [f.code for f in findings] == ["sanitize/in-range"] or "range" in str(findings[0])


# ---- masked and colliding stores


@td.kernel
def masked(L: td.Tensor[T, i32], X: td.Tensor[T], C: td.Tensor[T, td.bool_], Y: td.Out[V]):
    for t in td.parallel(T):
        Y.set_at(td.in_range(L[t], V), X[t], where=C[t])


@pytest.mark.parametrize("count", [0, 1, 64, 1000])
def test_masked_stores_touch_nothing_else(count: int) -> None:
    rng = np.random.default_rng(count)
    places = rng.permutation(2 * count + 1)[:count].astype(np.int32)
    for chosen in (np.zeros(count, bool), np.ones(count, bool), rng.integers(0, 2, count).astype(bool)):
        y = np.full(2 * count + 1, 77, np.float32)
        x, want = numbers(count), y.copy()
        want[places[chosen]] = x[chosen]
        for got in both(masked, places, x, chosen, y, out=y):
            assert np.array_equal(got, want)


@td.kernel
def histogram(L: td.Tensor[T, i32], X: td.Tensor[T], C: td.Tensor[T, td.bool_], H: td.Out[V]):
    for t in td.parallel(T):
        H.add_at(td.in_range(L[t], V), X[t], where=C[t])


@td.kernel
def extremes(L: td.Tensor[T, i32], X: td.Tensor[T], A: td.Out[V], Z: td.Out[V]):
    for t in td.parallel(T):
        A.max_at(td.in_range(L[t], V), X[t])
        Z.min_at(td.in_range(L[t], V), X[t])


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.float32, np.float64])
@pytest.mark.parametrize(("count", "bins"), [(0, 1), (1000, 1), (1000, 7)])
def test_colliding_stores(count: int, bins: int, dtype: Any) -> None:
    rng = np.random.default_rng(count + bins)
    index, chosen = rng.integers(0, bins, count).astype(np.int32), rng.integers(0, 2, count).astype(bool)
    x = rng.integers(0, 100, count).astype(dtype)
    start = rng.integers(0, 5, bins).astype(dtype)
    want = start.copy()
    np.add.at(want, index[chosen], x[chosen])
    for got in both(histogram, index, x, chosen, start, out=start):
        assert np.array_equal(got, want)
    top, low = start.copy(), start.copy()
    np.maximum.at(top, index, x)
    np.minimum.at(low, index, x)
    for run in (extremes.reference, extremes):
        a, z = run(index, x, start.copy(), start.copy())
        assert np.array_equal(a, top) and np.array_equal(z, low)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32])
def test_colliding_sums_wrap(dtype: Any) -> None:
    top = np.iinfo(dtype).max
    index, x = np.zeros(3, np.int32), np.array([top, top, 5], dtype)
    h = np.zeros(1, dtype)
    with np.errstate(over="ignore"):
        want = x.sum(dtype=dtype)
    for got in both(histogram, index, x, np.ones(3, bool), h, out=h):
        assert got[0] == want


def test_extremes_of_nan_and_zeros() -> None:
    """NaN stays, as `maximum` has it."""
    index = np.array([0, 0, 1, 1, 2], np.int32)
    x = np.array([1, np.nan, -np.inf, 3, 5], np.float32)
    start = np.array([2, 2, np.nan, 7], np.float32)
    for run in (extremes.reference, extremes):
        a, z = run(index, x, start.copy(), start.copy())
        assert np.array_equal(a, np.array([np.nan, 3, np.nan, 7], np.float32), equal_nan=True), run
        assert np.array_equal(z, np.array([np.nan, -np.inf, np.nan, 7], np.float32), equal_nan=True), run


@td.kernel
def tickets(K: td.Tensor[T, i32], NEXT: td.Out[V, i32], Y: td.Out[T, i32] = None):
    for t in td.parallel(T):
        Y[t] = NEXT.add_at(td.in_range(K[t], V), 1)


@pytest.mark.parametrize(("count", "bins"), [(0, 3), (1, 1), (500, 1), (500, 6)])
def test_old_values_are_each_given_once(count: int, bins: int) -> None:
    """Tickets: in any order, but a number for each, and none twice."""
    keys = np.random.default_rng(1).integers(0, bins, count).astype(np.int32)
    for run in (tickets.reference, tickets):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            counts, drawn = run(keys, np.zeros(bins, np.int32))
        assert counts.tolist() == np.bincount(keys, minlength=bins).tolist()
        for b in range(bins):
            assert sorted(drawn[keys == b].tolist()) == list(range(int(counts[b])))


def test_two_plain_stores_to_one_element_are_found() -> None:
    y = np.zeros(4, np.float32)
    findings = masked.sanitize(np.array([1, 1], np.int32), numbers(2), np.ones(2, bool), y)
    assert findings != []


# ---- early ends and conditions from data


@td.kernel
def first_above(X: td.Tensor[B, T], L: td.Tensor[B], Y: td.Out[B, i64] = None):
    """The first place whose element is above the limit, else -1: the loop ends by a carried flag."""
    for b in td.parallel(B.each):
        found = td.full(value=-1, dtype=i64)
        done = td.full(value=False, dtype=td.bool_)
        for t in td.serial(T.each):
            if not done:
                if X[b, t] > L[b]:
                    found = found * 0 + t
                    done = done | True
        Y[b] = found


@pytest.mark.parametrize("columns", [0, 1, 33])
def test_loops_that_end_early(columns: int) -> None:
    x = numbers(6, columns)
    limits = np.array([-99, 99, 0, 7, 8, np.nan], np.float32)
    want = [int(np.argmax(row > lim)) if (row > lim).any() else -1 for row, lim in zip(x, limits, strict=True)]
    for got in both(first_above, x, limits):
        assert got.tolist() == want


def test_a_missing_promise_is_a_mistake_at_its_line() -> None:
    @td.kernel
    def careless(L: td.Tensor[T, i32], X: td.Tensor[V], Y: td.Out[T] = None):
        for t in td.parallel(T):
            Y[t] = X[L[t]]

    with pytest.raises(TreadleError) as caught:
        careless.reference(np.zeros(2, np.int32), numbers(3))
    assert caught.value.code == "bounds/unproved"


def test_u8_counts_are_data_like_any_other() -> None:
    @td.kernel
    def heads(N_: td.Tensor[B, u8], X: td.Tensor[B, T], Y: td.Out[B, f32] = None):
        for b in td.parallel(B.each):
            s = td.zeros(dtype=f32)
            for t in td.reduce(T[0 : N_[b].to(i64)]):
                s = s + X[b, t].sum(t)
            Y[b] = s

    x, n = numbers(4, 200), np.array([0, 1, 200, 255], np.uint8)
    for got in both(heads, n, x):
        assert got.tolist() == [x[b, : n[b]].sum() for b in range(4)]
