"""Programs of many kinds run as judged native code, never in the interpreter, and give what a plain loop gives.

Inputs are small integers wherever sums are folded, so that one lost, doubled or misplaced contribution shows.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import treadle as td
from treadle import f32, i32, i64

M, N, T, V, D, H, W, HO, WO = td.dims("M N T V D H W HO WO")
M2 = M.alias("M2")
TOP = td.dims("TOP")
Array = NDArray[Any]
SIZES = [(1, 1), (3, 0), (2, 17), (5, 64), (7, 131)]


@pytest.fixture(autouse=True)
def native() -> Iterator[None]:
    """No call may fall back to the reference interpreter."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def whole(rng: np.random.Generator, *shape: int) -> Array:
    return rng.integers(-9, 10, shape).astype(np.float32)


# ---- prefixes


@td.kernel
def prefixes(X: td.Tensor[M, N], Up: td.Out[M, N], Down: td.Out[M, N], Before: td.Out[M, N], Top: td.Out[M, N]):
    for m in td.parallel(M):
        x = X[m, N]
        Up[m, N] = td.scan(x, N, td.Add)
        Down[m, N] = td.scan(x, N, td.Add, reverse=True)
        Before[m, N] = td.scan(x, N, td.Add, exclusive=True)
        Top[m, N] = td.scan(x, N, td.Max)


def _step(a: Any, b: Any) -> Any:
    return a[0] * b[0], a[1] * b[0] + b[1]


LINEAR = td.Monoid((1.0, 0.0), _step)


@td.kernel
def recurrence(A: td.Tensor[M, N], B: td.Tensor[M, N], Y: td.Out[M, N]):
    for m in td.parallel(M):
        _, h = td.scan((A[m, N], B[m, N]), N, LINEAR)
        Y[m, N] = h


def _restart(a: Any, b: Any) -> Any:
    return a[0] | b[0], td.where(b[0], b[1], a[1] + b[1])


RESTARTED = td.Monoid((False, 0.0), _restart)


@td.kernel
def segments(X: td.Tensor[N], F: td.Tensor[N, td.bool_], Y: td.Out[N]):
    _, s = td.scan((F[N], X[N]), N, RESTARTED)
    Y[N] = s


@pytest.mark.parametrize("size", SIZES)
def test_prefixes(rng: np.random.Generator, size: tuple[int, int]) -> None:
    x = whole(rng, *size)
    up, down, before, top = prefixes(x)
    sums = x.cumsum(1)
    assert (up == sums).all() and (before == sums - x).all() and (top == np.maximum.accumulate(x, 1)).all()
    assert (down == x[:, ::-1].cumsum(1)[:, ::-1]).all()
    a, b = rng.integers(-1, 2, size).astype(np.float32), x
    want, state = np.empty(size, np.float32), np.zeros(size[0], np.float32)
    for n in range(size[1]):
        state = state * a[:, n] + b[:, n]
        want[:, n] = state
    assert (recurrence(a, b) == want).all()
    starts = rng.random(size[1]) < 0.3
    want, total = np.empty(size[1], np.float32), np.float32(0)
    for n in range(size[1]):
        total = x[0, n] if starts[n] else total + x[0, n]
        want[n] = total
    assert (segments(x[0], starts) == want).all()


# ---- orders


@td.kernel
def ranked(X: td.Tensor[M, N], Y: td.Out[M, N], P: td.Out[M, N, i64]):
    for m in td.parallel(M):
        Y[m, N] = td.sort(X[m, N], N)
        P[m, N] = td.argsort(X[m, N], N)


@td.kernel
def best(X: td.Tensor[M, N], Y: td.Out[M, TOP], P: td.Out[M, TOP, i64], *, top: int):
    td.let(TOP, top)
    for m in td.parallel(M):
        v, i = td.topk(X[m, N], N, to=TOP)
        Y[m, TOP] = v
        P[m, TOP] = i


@td.kernel
def pooled(X: td.Tensor[D, H, W], Y: td.Out[D, HO, WO], P: td.Out[D, HO, WO, i64], *, size=2):
    KY, KX = td.dims("KY", size), td.dims("KX", size)
    td.let(HO, H.extent // size)
    td.let(WO, W.extent // size)
    for d, y, x in td.parallel(D, HO, WO):
        window = X[d, td.in_range(y * size + KY, H), td.in_range(x * size + KX, W)]
        Y[d, y, x] = window.max(KY, KX)
        P[d, y, x] = window.argmax(KY, KX)


@pytest.mark.parametrize("size", SIZES)
def test_orders(rng: np.random.Generator, size: tuple[int, int]) -> None:
    x = whole(rng, *size)
    y, p = ranked(x)
    assert (y == np.sort(x, 1)).all() and (p == np.argsort(x, 1, kind="stable")).all()
    if size[1] >= 3:
        v, i = best(x, top=3)
        assert (i == np.argsort(-x, 1, kind="stable")[:, :3]).all() and (v == np.take_along_axis(x, i, 1)).all()


def test_positions_in_windows(rng: np.random.Generator) -> None:
    x = whole(rng, 3, 6, 9)
    y, p = pooled(x)
    windows = x[:, :6, :8].reshape(3, 3, 2, 4, 2).transpose(0, 1, 3, 2, 4).reshape(3, 3, 4, 4)
    assert (y == windows.max(-1)).all() and (p == windows.argmax(-1)).all()


@td.kernel
def nearest(X: td.Tensor[T, D], C: td.Tensor[V, D], Best: td.Out[T, i64], Least: td.Out[T], Total: td.Out[V]):
    for t in td.parallel(T):
        # A fold whose result is folded again, several times, along an axis of its own.
        far = ((X[t, D] - C[V, D]) * (X[t, D] - C[V, D])).sum(D)
        Best[t] = far.argmin(V)
        Least[t] = far.min(V)
    for v in td.parallel(V):
        Total[v] = td.where(Best[T] == v, 1.0, 0.0).sum(T)


@pytest.mark.parametrize("size", [(1, 1, 1), (40, 3, 4), (131, 17, 5)])
def test_folds_of_folds(rng: np.random.Generator, size: tuple[int, int, int]) -> None:
    x, c = whole(rng, size[0], size[1]), whole(rng, size[2], size[1])
    far = ((x[:, None] - c[None]) ** 2).sum(-1)
    at, least, total = nearest(x, c)
    assert (at == far.argmin(1)).all() and (least == far.min(1)).all()
    assert (total == np.bincount(far.argmin(1), minlength=size[2])).all()
    assert not any("broken" in note for v in nearest.variants for note in v.record.meta["notes"])


# ---- tiles that are carried and replaced in part


@td.kernel
def factored(A: td.Tensor[M, M2], L: td.Out[M, M2]):
    a = td.empty(M, M2)
    a[M, M2] = A[M, M2]
    for k in td.serial(M.extent):
        i, j = M[k + 1 :], M2[k + 1 :]
        a[i, k] = a[i, k] / a[k, k]
        a[i, j] = a[i, j] - a[i, k] * a[k, j]
    L[M, M2] = a


@td.kernel
def distance(A: td.Tensor[M], B: td.Tensor[N], Y: td.Out[M, N]):
    h = td.zeros(M, N)
    for d in td.serial(M.extent + N.extent - 1):
        i = M[d - N.extent + 1 : d + 1]
        cost = td.where(A[i] == B[td.in_range(d - i, N)], 0.0, 1.0)
        up, left = h.at(i - 1, d - i, fill=100.0), h.at(i, d - i - 1, fill=100.0)
        h[i, td.in_range(d - i, N)] = td.minimum(td.minimum(up, left) + 1.0, h.at(i - 1, d - i - 1, fill=0.0) + cost)
    Y[M, N] = h


@td.kernel
def shifted(X: td.Tensor[N], Y: td.Out[N], *, steps=3):
    t = td.zeros(N)
    t[N] = X[N]
    for _ in td.serial(steps):
        t[N[1:]] = t.at(N[1:] - 1, fill=0.0)  # what is read here is replaced by the same insert
    Y[N] = t


@td.kernel
def rows_in_order(X: td.Tensor[M, N], Y: td.Out[M, N]):
    t = td.empty(M, N)
    for m in td.parallel(M.each):
        s = td.zeros()
        for n in td.serial(N.each):
            s = s * 2.0 + X[m, n]
            t[m, n] = s
    Y[M, N] = t


@td.kernel
def gathers(X: td.Tensor[N], Y: td.Out[N], *, steps=9):
    t = X[N].to(f32)
    for _ in range(steps):
        i, j = (N.coords * 7 + 3) % N.extent, (N.coords * 5 + 1) % N.extent
        t = t[td.in_range(i, N)] + t[td.in_range(j, N)]
    Y[N] = t


@td.kernel
def exchanged(X: td.Tensor[N], Y: td.Out[N], *, rounds=3):
    x = X[N].to(f32)
    for k in range(1, rounds + 1):
        for j in range(k - 1, -1, -1):
            other = x[td.in_range(N.coords ^ (1 << j), N)]
            upward, lower = ((N.coords >> k) & 1) == 0, (N.coords & (1 << j)) == 0
            x = td.where(upward == lower, td.minimum(x, other), td.maximum(x, other))
    Y[N] = x


@pytest.mark.parametrize("size", [1, 2, 13])
def test_tiles_replaced_in_part(rng: np.random.Generator, size: int) -> None:
    # Integers over a unit triangle: every quotient and difference is exact.
    lower, upper = np.tril(whole(rng, size, size), -1) + np.eye(size), np.triu(whole(rng, size, size), 1) + np.eye(size)
    a = (lower @ upper).astype(np.float32)
    assert (factored(a) == np.tril(lower, -1) + upper).all()
    x, y = rng.integers(0, 3, size + 4).astype(np.float32), rng.integers(0, 3, size).astype(np.float32)
    want = np.zeros((len(x), len(y)), np.float32)
    for i, j in np.ndindex(*want.shape):
        up, left = (want[i - 1, j] if i else 100), (want[i, j - 1] if j else 100)
        want[i, j] = min(min(up, left) + 1, (want[i - 1, j - 1] if i and j else 0) + (x[i] != y[j]))
    assert (distance(x, y) == want).all()
    moved = x.copy()
    for _ in range(3):
        moved[1:] = moved[:-1].copy()
    assert (shifted(x) == moved).all()


@pytest.mark.parametrize("size", SIZES)
def test_tiles_that_instances_fill_in_order(rng: np.random.Generator, size: tuple[int, int]) -> None:
    x = rng.integers(-1, 2, size)[:, :20].astype(np.float32)
    want, state = np.empty_like(x), np.zeros(len(x), np.float32)
    for n in range(x.shape[1]):
        state = state * 2 + x[:, n]
        want[:, n] = state
    assert (rows_in_order(x) == want).all()


@td.kernel
def placed(X: td.Tensor[N], P: td.Tensor[N, i64], Y: td.Out[N], Z: td.Out[N]):
    t = td.empty(N)
    for n in td.parallel(N):
        t[td.in_range(P[n], N)] = X[n]
    Y[N] = t
    u = td.empty(N)
    u[td.in_range(P[N], N)] = X[N] * 2
    Z[N] = u


@pytest.mark.parametrize("size", [0, 1, 50, 777])
def test_elements_placed_by_an_integer_tile(rng: np.random.Generator, size: int) -> None:
    x, places = whole(rng, size), rng.permutation(size)
    y, z = placed(x, places)
    assert (y[places] == x).all() and (z[places] == 2 * x).all()


def test_gathers_of_gathers_do_not_multiply(rng: np.random.Generator) -> None:
    x = whole(rng, 11)
    want, n = x.copy(), np.arange(11)
    for _ in range(9):
        want = want[(n * 7 + 3) % 11] + want[(n * 5 + 1) % 11]
    assert (gathers(x) == want).all()
    (variant,) = gathers.variants
    assert len(variant.record.source) < 60_000
    x = whole(rng, 32)
    assert (exchanged(x, rounds=5) == np.sort(x)).all()
    (variant,) = exchanged.variants
    assert len(variant.record.source) < 120_000


# ---- collisions


@td.kernel
def buckets(X: td.Tensor[N, i32], C: td.Out[V, i32], P: td.Out[N, i32]):
    C[V] = 0
    for n in td.parallel(N):
        P[n] = C.add_at(td.in_range(X[n], V), 1)


@td.kernel
def kept(X: td.Tensor[N], C: td.Out[i32], Y: td.Out[N]):
    C[()] = 0
    for n in td.parallel(N.each):
        place = C.add_at(1, where=X[n] > 0)
        Y.set_at(td.in_range(place, N), X[n], where=X[n] > 0)


@td.kernel
def record(X: td.Tensor[N], S: td.Out[()], Old: td.Out[N]):
    S[()] = -100.0
    for n in td.serial(N.each):
        Old[n] = S.max_at(X[n])


@td.kernel
def in_order(G: td.Tensor[T, D], ids: td.Tensor[T, i32], Y: td.Out[V, D]):
    Y[V, D] = 0.0
    for t, d in td.parallel(T, D):
        Y.add_at(td.in_range(ids[t], V), d, G[t, d], order=td.ordered)


@pytest.mark.parametrize("size", [0, 1, 50, 1001])
def test_old_values(rng: np.random.Generator, size: int) -> None:
    keys = rng.integers(0, 5, size).astype(np.int32)
    counts, places = np.full(5, 9, np.int32), np.zeros(size, np.int32)
    buckets(keys, counts, places)
    assert (counts == np.bincount(keys, minlength=5)).all()
    assert all(sorted(places[keys == v]) == list(range(counts[v])) for v in range(5))
    x, y, count = whole(rng, size), np.zeros(size, np.float32), np.array(9, np.int32)
    kept(x, count, y)
    assert (
        count == (x > 0).sum()
        and (np.sort(y[: int(count)]) == np.sort(x[x > 0])).all()
        and (y[int(count) :] == 0).all()
    )
    most, old = np.zeros((), np.float32), np.zeros(size, np.float32)
    record(x, most, old)
    seen = np.maximum.accumulate(np.concatenate([[-100.0], x]))
    assert most == seen[-1] and (old == seen[:-1]).all()


def test_contributions_in_order(rng: np.random.Generator) -> None:
    g, ids = rng.standard_normal((200, 6)).astype(np.float32), rng.integers(0, 4, 200).astype(np.int32)
    y, want = np.zeros((4, 6), np.float32), np.zeros((4, 6), np.float32)
    for t in range(200):
        want[ids[t]] += g[t]
    in_order(g, ids, y)
    assert (y == want).all()


@td.kernel
def both_ways(X: td.Tensor[M, N], L: td.Out[M], R: td.Out[M], All: td.Out[()]):
    for m in td.parallel(M):
        L[m] = X[m, N].sum(N, order=td.fold_left)
        R[m] = X[m, N].sum(N, order=td.fold_right)
    All[()] = X[M, N].sum(M, N, order=td.fold_right)


@pytest.mark.parametrize("size", SIZES)
def test_exact_chains(rng: np.random.Generator, size: tuple[int, int]) -> None:
    x = rng.standard_normal(size).astype(np.float32)
    left, right, total = np.zeros(size[0], np.float32), np.zeros(size[0], np.float32), np.float32(0)
    for n in range(size[1]):
        left = left + x[:, n]
        right = x[:, size[1] - 1 - n] + right
    for value in x.ravel()[::-1]:
        total = value + total
    a, b, c = both_ways(x)
    assert (a == left).all() and (b == right).all() and c == total


# ---- the same numbers as the interpreter


@td.kernel
def noise(X: td.Tensor[M, N], seed: td.Scalar[i64], Y: td.Out[M, N], B: td.Out[M, N, td.u32]):
    for m, n in td.parallel(M, N):
        Y[m, n] = td.where(td.uniform(seed, m, n) < 0.5, X[m, n], 0.0)
        B[m, n] = td.bits(seed, m, n)


def test_random_numbers_are_the_interpreters(rng: np.random.Generator) -> None:
    for size in SIZES:
        for seed in (0, 1 << 40):
            for got, want in zip(noise(whole(rng, *size), seed), noise.reference(whole(rng, *size) * 0, seed)):
                if got.dtype == np.uint32:
                    assert (got == want).all()
    x = np.ones((40, 50), np.float32)
    y, _ = noise(x, 3)
    assert (y == noise.reference(x, 3)[0]).all() and 0.4 < y.mean() < 0.6
