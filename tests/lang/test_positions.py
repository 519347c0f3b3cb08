"""Positions that argmax, argsort and topk find are coordinates of their dimension: subscripts without a promise."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import treadle as td
from treadle.base.errors import TreadleError

M, N, K = td.dims("M N K")
X = np.random.default_rng(5).random((6, 9), dtype=np.float32)
W = np.arange(9, dtype=np.float32) * 3


@td.kernel
def at_the_greatest(X: td.Tensor[M, N], W: td.Tensor[N], Y: td.Out[M] = None):
    for m in td.parallel(M):
        i = X[m, N].argmax(N)
        Y[m] = W[i] + X[m, i]


@td.kernel
def in_order(X: td.Tensor[N], W: td.Tensor[N], Y: td.Out[N] = None):
    Y[N] = W[td.argsort(X[N], N)]


@td.kernel
def at_the_best(X: td.Tensor[M, N], W: td.Tensor[N], Y: td.Out[M, K] = None):
    td.let(K, 2)
    for m in td.parallel(M):
        best, at = td.topk(X[m, N], N, to=K)
        Y[m, K] = W[at] + best


def called(kernel: Any, *args: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        got = kernel(*args)
    assert kernel.variants[-1].verdict["status"] == "verified" and kernel.sanitize(*args) == []
    np.testing.assert_array_equal(got, kernel.reference(*args))
    return got


def test_they_are_in_range() -> None:
    np.testing.assert_array_equal(called(at_the_greatest, X, W), W[X.argmax(1)] + X.max(1))
    np.testing.assert_array_equal(called(in_order, X[0], W), W[np.argsort(X[0])])
    order = np.argsort(-X, 1)[:, :2]
    np.testing.assert_array_equal(called(at_the_best, X, W), W[order] + np.take_along_axis(X, order, 1))


def test_where_there_is_none_to_find_the_call_is_refused() -> None:
    for kernel in (at_the_greatest, at_the_best):
        with pytest.raises(TreadleError):
            kernel(X[:, :0], W[:0])
    assert in_order(X[0, :0], W[:0]).shape == (0,) and at_the_greatest(X[:0], W).shape == (0,)


def test_they_are_coordinates_of_their_own_dimension_only() -> None:
    @td.kernel
    def elsewhere(X: td.Tensor[M, N], V: td.Tensor[K], Y: td.Out[M] = None):
        for m in td.parallel(M):
            Y[m] = V[X[m, N].argmax(N)]

    with pytest.raises(TreadleError) as caught:
        elsewhere(X, W)
    assert caught.value.code == "bounds/unproved"
