"""Forms of the language from end to end: the call, the reference interpreter and NumPy agree."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
from treadle import f32, i32

M, N, K, L = td.dims("M N K L")
I2 = M.alias("I2")
RNG = np.random.default_rng(7)
X = RNG.integers(-5, 6, (13, 19)).astype(np.float32)
V = RNG.integers(-5, 6, 19).astype(np.float32)
Check = Callable[[], tuple[Any, Any]]
CASES: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = {}


def case(wants: Any, *args: Any, **staged: Any) -> Callable[[Any], Any]:
    """A kernel with its arguments and what it must give."""

    def add(kernel: Any) -> Any:
        name = kernel.definition.name
        while name in CASES:
            name += "'"
        CASES[name] = (kernel, args, staged, wants)
        return kernel

    return add


@case(X.sum(1) + X.max(1) * X.min(1), X)
@td.kernel
def several_folds(X: td.Tensor[M, N], Y: td.Out[M] = None):
    for m in td.parallel(M):
        x = X[m, N]
        Y[m] = x.sum(N) + x.max(N) * x.min(N)


@case(X @ X.T, X)
@td.kernel
def alias_of_rows(X: td.Tensor[M, N], Y: td.Out[M, I2] = None):
    for i, j in td.parallel(M, I2):
        Y[i, j] = td.dot(X[i, N], X[j, N], over=N, dtype=f32)


@case(np.where(X > 0, X, -2 * X), X)
@td.kernel
def elementwise_where(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    for m, n in td.parallel(M, N):
        Y[m, n] = td.where(X[m, n] > 0, X[m, n], -2 * X[m, n])


@case(np.tril(X[:13, :13]), X[:13, :13])
@td.kernel
def coordinates(X: td.Tensor[M, I2], Y: td.Out[M, I2] = None):
    for i, j in td.parallel(M, I2):
        Y[i, j] = td.where(i >= j, X[i, j], 0.0)


@case(X[:, ::-1], X)
@td.kernel
def backwards(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    for m, n in td.parallel(M, N):
        Y[m, n] = X[m, td.in_range(N.extent - 1 - n.coords, N)]


@case(np.stack([X[:, 3], X[:, 0], X[:, 3]], 1), X, np.array([3, 0, 3], np.int32))
@td.kernel
def gather_columns(X: td.Tensor[M, N], at: td.Tensor[K, i32], Y: td.Out[M, K] = None):
    for m, k in td.parallel(M, K):
        Y[m, k] = X[m, td.in_range(at[k], N)]


@case(X[2:9].sum(0), X)
@td.kernel
def a_slice_of_a_dimension(X: td.Tensor[M, N], Y: td.Out[N] = None):
    td.require(M.extent >= 9)
    for n in td.parallel(N):
        s = td.zeros(n)
        for m in td.reduce(M[2:9]):
            s = s + X[m, n].sum(m)
        Y[n] = s


@case(np.cumsum(V), V)
@td.kernel
def running_sum(X: td.Tensor[N], Y: td.Out[N] = None):
    s = td.full(value=0.0)
    for n in td.serial(N.each):
        s = s + X[n]
        Y[n] = s


def _fibonacci(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    a, b, out = 0.0, 1.0, []
    for v in x:
        a, b = b, a + v
        out.append(a)
    return np.array(out, np.float32)


@case(_fibonacci(V), V)
@td.kernel
def names_swap(X: td.Tensor[N], Y: td.Out[N] = None):
    a, b = 0.0, 1.0
    for n in td.serial(N.each):
        a, b = b, a + X[n]
        Y[n] = a


@dataclasses.dataclass
class Pair:
    """Two states in one name."""

    low: Any
    high: Any


@case((X.min(1), X.max(1)), X)
@td.kernel
def states_in_a_dataclass(X: td.Tensor[M, N], Y: td.Out[M] = None, Z: td.Out[M] = None):
    for m in td.parallel(M):
        p = Pair(td.full(m, value=float("inf")), td.full(m, value=-float("inf")))
        for n in td.reduce(N):
            x = X[m, n]
            p.low = td.minimum(p.low, x.min(n))
            p.high = td.maximum(p.high, x.max(n))
        Y[m] = p.low
        Z[m] = p.high


def twice(x: Any) -> Any:
    """Inlined, with a region of its own values."""
    y = x + x
    return y


@case(2 * X + 1, X)
@td.kernel
def a_called_function(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    for m, n in td.parallel(M, N):
        Y[m, n] = twice(X[m, n]) + 1


@td.kernel
def row_sum(X: td.Tensor[N], S: td.Out[()] = None):
    S[()] = X[N].sum(N)


@case(X - X.sum(1, keepdims=True), X)
@td.kernel
def a_called_kernel(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    for m in td.parallel(M.each):
        Y[m, N] = X[m, N] - row_sum(X[m, N])


@case(np.where(V > 0, V * 3, np.where(V < -2, 0, -V)), V)
@td.kernel
def traced_conditions(X: td.Tensor[N], Y: td.Out[N] = None):
    for n in td.parallel(N.each):
        x = X[n]
        if x > 0:
            r = x * 3
        elif x < -2:
            r = x * 0
        else:
            r = -x
        Y[n] = r


@case(np.where((V > 0) & (V != 3), V, -V), V)
@td.kernel
def conditional_expression(X: td.Tensor[N], Y: td.Out[N] = None):
    for n in td.parallel(N.each):
        x = X[n]
        Y[n] = x if x > 0 and not x == 3 else -x


@case(X.astype(np.int32).astype(np.float32) * 0.5, X.astype(np.int32))
@td.kernel
def casts(X: td.Tensor[M, N, i32], Y: td.Out[M, N, f32] = None):
    for m, n in td.parallel(M, N):
        Y[m, n] = X[m, n].to(f32) * 0.5


@case((X > 0).sum(1).astype(np.int32), X)
@td.kernel
def counts(X: td.Tensor[M, N], Y: td.Out[M] = None):
    for m in td.parallel(M):
        Y[m] = (X[m, N] > 0).sum(N)


@case(X[:, 0] * 0 + 19, X)
@td.kernel
def an_extent_as_a_number(X: td.Tensor[M, N], Y: td.Out[M, f32] = None):
    td.require(N.extent >= 1)
    for m in td.parallel(M):
        Y[m] = X[m, 0] * 0 + N.extent


@case(X.T.copy(), X)
@td.kernel
def fixed_blocks(X: td.Tensor[M, N], Y: td.Out[N, M] = None):
    for m, n in td.parallel(M.by(4), N.by(8)):
        Y[n, m] = X[m, n]


@case(X.sum(1), X)
@td.kernel
def nested_blocks(X: td.Tensor[M, N], Y: td.Out[M] = None):
    for m in td.parallel(M):
        for mm in td.parallel(m):
            Y[mm] = X[mm, N].sum(N)


@case(np.where(np.arange(19) % 2 == 0, V, 7), V, np.full(19, 7, np.float32))
@td.kernel
def stores_that_skip(X: td.Tensor[N], Y: td.Out[N] = None):
    for n in td.parallel(N):
        Y.set_at(n, X[n], where=n % 2 == 0)


@case(np.array([np.sum(V > t) for t in range(4)], np.int32), V)
@td.kernel
def unrolled_python(X: td.Tensor[N], Y: td.Out[L] = None):
    td.let(L, 4)
    for t in range(4):
        Y[t] = (X[N] > t).sum(N)


@pytest.mark.parametrize("name", CASES)
def test_kernel(name: str) -> None:
    kernel, args, staged, wants = CASES[name]
    wanted = wants if isinstance(wants, tuple) else (wants,)
    for run in (kernel.reference, kernel, kernel):
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # no kernel of this file needs the interpreter
            got = run(*(a.copy() if isinstance(a, np.ndarray) else a for a in args), **staged)
        for mine, want in zip(got if isinstance(got, tuple) else (got,), wanted, strict=True):
            assert mine.shape == np.shape(want) and np.array_equal(mine, want), f"{name} by {run}"


@pytest.mark.parametrize("name", CASES)
def test_no_promise_is_broken(name: str) -> None:
    kernel, args, staged, _ = CASES[name]
    assert kernel.sanitize(*args, **staged) == []


@td.kernel
def extrema(ids: td.Tensor[M, i32], X: td.Tensor[M], High: td.Out[N], Low: td.Out[N]):
    for m in td.parallel(M):
        at = td.in_range(ids[m], N)
        High.max_at(at, X[m], where=X[m] != 0)
        Low.min_at(at, X[m])


def test_collisions_of_extrema() -> None:
    """Several elements at one place: the largest and the smallest stay, with what stood there before."""
    ids = RNG.integers(0, 5, 40).astype(np.int32)
    x = RNG.integers(-9, 10, 40).astype(np.float32)
    start = np.array([100, -100, 0, 3, -3, 7], np.float32)
    high, low = start.copy(), start.copy()
    np.maximum.at(high, ids[x != 0], x[x != 0])
    np.minimum.at(low, ids, x)
    for run in (extrema.reference, extrema):
        got = start.copy(), start.copy()
        run(ids, x, *got)
        assert (got[0] == high).all() and (got[1] == low).all()
