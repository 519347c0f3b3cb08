"""Captured kernels compute what the same Python computes: each has a twin in NumPy and plain loops."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import treadle.lang.api as td
from treadle.dtype.formats import i32, i64
from treadle.evaluate.cuts import Even
from treadle.evaluate.interpreter import evaluate

M, N, K, T = td.dims("M N K T")
M2 = M.alias("M2")
A, B = td.dims("A B")
AB = td.product(A, B)
CASES = []


def case(twin, *sizes, staged=None, scalars=None):
    """A kernel whose outputs are those of `twin` of all its arguments, at these extents of M, N, K, T, A, B."""

    def keep(f):
        definition = td.kernel(f)
        CASES.append((definition, twin, sizes, staged or {}, scalars or {}))
        return definition

    return keep


def run(definition, sizes, staged, scalars, cut, seed=0):
    """Inputs of small integers, outputs filled by the interpreter with blocks of `cut`."""
    rng = np.random.default_rng(seed)
    program = definition.capture({}, staged)
    extents = dict(zip(("M", "N", "K", "T", "A", "B"), sizes))
    arrays = {}
    for t in program.tensors:
        shape = tuple(int(d.extent.evaluate(extents)) for d in t.dims)
        arrays[t.name] = rng.integers(-4, 5, shape).astype(t.dtype.numpy)
    inputs = {n: a.copy() for n, a in arrays.items()}
    evaluate(program, arrays, scalars, extents=extents, cuts=Even(cut))
    return inputs, {t.name: arrays[t.name] for t in program.tensors if t.out}


@case(lambda X, Y: {"Y": _swap(X)}, 5, 3)
def swaps(X: td.Tensor[M, N], Y: td.Out[N] = None):
    a, b, c = td.zeros(N), td.full(N, value=1.0), 2
    for m in td.serial(M.each):
        a, b, c = b, a + X[m, N] * c, c + 1
    Y[N] = a * 100 + b


def _swap(x):
    a, b, c = np.zeros(x.shape[1]), np.ones(x.shape[1]), 2
    for row in x:
        a, b, c = b, a + row * c, c + 1
    return a * 100 + b


@dataclasses.dataclass
class Pair:
    """A mutable state."""

    total: td.Tile
    seen: list


def push(pair, row):
    pair.total = pair.total + row
    pair.seen[0], pair.seen[1] = pair.seen[1], row


@case(lambda X, Y: {"Y": _objects(X)}, 4, 3)
def objects(X: td.Tensor[M, N], Y: td.Out[N] = None):
    pair = Pair(td.zeros(N), [td.zeros(N), 0.0])
    other = pair
    before = pair.total
    for m in td.serial(M.each.reversed):
        push(pair, X[m, N])
    Y[N] = other.total + 10 * other.seen[0] + 100 * other.seen[1] + 1000 * before


def _objects(x):
    padded = np.concatenate([np.zeros((2, x.shape[1])), x[::-1]])
    return x.sum(0) + 10 * padded[-2] + 100 * padded[-1]


class Scaled:
    """Called with its own number."""

    def __init__(self, by):
        self.by = by

    def __call__(self, x):
        return x * self.by


class Raised:
    """Called without itself."""

    @staticmethod
    def __call__(x, by=1):
        return x + by


class Named:
    """Called with its class."""

    by = 7

    @classmethod
    def __call__(cls, x):
        return x - cls.by


OBJECTS = Scaled(3), Raised(), Named()


@case(lambda X, Y: {"Y": (X * 3 + 1) - 7 + (X + 5)}, 4, 3)
def called_objects(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    scaled, raised, named = OBJECTS
    for m in td.parallel(M):
        Y[m, N] = named(raised(scaled(X[m, N]))) + raised(X[m, N], by=5)


@case(lambda X, Y: {"Y": _nested(X)}, 6, 4)
def nested(X: td.Tensor[M, N], Y: td.Out[M] = None):
    for m in td.parallel(M.each):
        best, at, steps = -100.0, 0, 0
        for n in td.serial(N.each):
            v = X[m, n]
            if v > best:
                best = v
                at = n + 0
                if v == 4:
                    steps = steps + 10
                else:
                    steps += 1
            elif not (v < 0 or n == 2):
                steps -= 1
        Y[m] = best + 10 * at + 100 * steps


def _nested(x):
    out = []
    for row in x:
        best, at, steps = -100.0, 0, 0
        for n, v in enumerate(row):
            if v > best:
                best, at = v, n
                steps = steps + 10 if v == 4 else steps + 1
            elif not (v < 0 or n == 2):
                steps -= 1
        out.append(best + 10 * at + 100 * steps)
    return np.array(out)


@case(lambda X, Y, n: {"Y": np.where(np.arange(7) < 3, X[:, 3], -X[:, 0])}, 7, 5, scalars={"n": 3})
def guarded(X: td.Tensor[M, N], n: td.Scalar[i64], Y: td.Out[M] = None):
    td.require(N.extent >= 1)
    for m in td.parallel(M.each):
        y = X[m, n] if 0 <= n < N.extent and m < n else -X[m, 0]
        Y[m] = y


@case(lambda X, Y, Z: {"Y": X @ X.T, "Z": (X * 2).sum(1)}, 6, 4)
def steps(X: td.Tensor[M, N], Y: td.Out[M, M2] = None, Z: td.Out[M] = None):
    gram = td.empty(M, M2)
    double = td.zeros(M, N)
    for m, m2 in td.parallel(M, M2):
        gram[m, m2] = X[m, N] @ X[m2, N]
    for m in td.parallel(M):
        for n in td.parallel(N):
            double[m, n] += X[m, n]
            double[m, n] = double[m, n] * 2
    for m in td.parallel(M):
        Z[m] = double[m, N].sum(N)
    Y[M, M2] = gram


@case(lambda X, Y: {"Y": _window(X, 2)}, 9, 2, staged={"radius": 2})
def window(X: td.Tensor[M, N], Y: td.Out[M, N] = None, *, radius):
    for m in td.parallel(M):
        for n in td.parallel(N):
            acc = td.zeros(m, n)
            for k in td.reduce(M2[m.start - radius : m.stop + radius]):
                near = (k - m <= radius) & (m - k <= radius)
                acc = acc + td.where(near, X[k, n], 0.0).sum(k)
            Y[m, n] = acc


def _window(x, r):
    rows = range(len(x))
    return np.array([x[max(0, i - r) : i + r + 1].sum(0) for i in rows])


@case(lambda X, W, Y: {"Y": np.maximum(X @ W, 0) * 2 + 1}, 5, 4, 3)
def composed(X: td.Tensor[M, K], W: td.Tensor[K, N], Y: td.Out[M, N] = None):
    def finish(x, times=2, *, plus=1):
        return td.relu(x) * times + plus

    for m, n in td.parallel(M, N):
        Y[m, n] = finish(product(X, W, m, n))


def product(X, W, m, n):
    acc = td.zeros(m, n)
    for k in td.reduce(K):
        acc = td.mma(X[m, k], W[k, n], acc)
    return acc


@case(lambda X, Y, Z: {"Y": _rotated(X), "Z": X.reshape(3, 4).sum(0)}, 1, 1, 1, 1, 3, 4)
def factors(X: td.Tensor[AB], Y: td.Out[AB] = None, Z: td.Out[B] = None):
    for a in td.parallel(A.each):
        Y[a, B] = X[a, B] - X[(a, B)].max()
    Z[B] = X[A, B].sum(A)


def _rotated(x):
    rows = x.reshape(3, 4)
    return (rows - rows.max(1, keepdims=True)).reshape(-1)


@case(lambda X, Y, Z: _folds(X), 6, 5)
def folds(X: td.Tensor[M, N], Y: td.Out[M] = None, Z: td.Out[()] = None):
    low, bits, any_big = td.full(value=100.0), td.zeros(dtype=i32), False
    for m in td.reduce(M):
        x = X[m, N]
        Y[m] = x.mean(N) + x.var(N) + x.argmax(N) * 10
        low = td.minimum(x.min(), low)
        bits = bits ^ x.to(i32).sum()
        any_big = any_big | (x > 3).any()
    Z[()] = low + td.where(any_big, 1000, 0) + (bits & 0)


def _folds(x):
    y = x.mean(1) + x.var(1) + x.argmax(1) * 10
    return {"Y": y, "Z": x.min() + (1000 if (x > 3).any() else 0)}


@case(lambda X, Y: {"Y": _integers(X)}, 5, 4)
def integers(X: td.Tensor[M, N, i32], Y: td.Out[M, N, i64] = None):
    for m, n in td.parallel(M, N):
        x = X[m, n]
        Y[m, n] = (x // 3) * 100 + x % 3 + (m * 7 - n) // 2 % 5 - (-x >> 1) + (x != 2) * 1000


def _integers(x):
    x = x.astype(np.int64)
    m, n = np.indices(x.shape)
    return x // 3 * 100 + x % 3 + (m * 7 - n) // 2 % 5 - (-x >> 1) + (x != 2) * 1000


def _tails(x):
    first = np.arange(8)[:, None] // 3 * 3
    return x + first + np.minimum(3, 8 - first)


@case(lambda X, Y: {"Y": _tails(X)}, 8, 3)
def tails(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    for m in td.parallel(M.by(3)):
        Y[m, N] = X[m, N] + m.index * 3 + m.extent


@pytest.mark.parametrize("cut", [1, 3, 100])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0].name)
def test_meaning(case, cut):
    definition, twin, sizes, staged, scalars = case
    inputs, outputs = run(definition, sizes, staged, scalars, cut)
    wanted = twin(**inputs, **scalars)
    assert outputs.keys() == wanted.keys()
    for name, array in outputs.items():
        np.testing.assert_allclose(np.asarray(array, np.float64), wanted[name], rtol=1e-5, atol=1e-5)
