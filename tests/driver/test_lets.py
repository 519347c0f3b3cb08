"""Extents by `td.let`: numbers that are none, and what no call tells when its outputs are made."""

from __future__ import annotations

import numpy as np
import pytest

import treadle as td
from treadle.base.errors import TreadleError
from treadle.dtype.formats import i32

M, T = td.dims("M T")


@td.kernel
def rest(X: td.Tensor[M], Y: td.Out[T] = None):
    td.let(T, 5 - M.extent)
    for t in td.parallel(T):
        Y[t] = 1.0


@td.kernel
def rest_or_none(X: td.Tensor[M], Y: td.Out[T] = None):
    td.let(T, td.maximum(5 - M.extent, 0))
    for t in td.parallel(T):
        Y[t] = 1.0


@td.kernel
def by_a_scalar(X: td.Tensor[M], n: td.Scalar[i32], Y: td.Out[T] = None):
    td.let(T, n)
    for t in td.parallel(T):
        Y[t] = 1.0


@td.kernel
def by_a_difference(X: td.Tensor[M], Y: td.Out[M] = None):
    td.let(T, M.extent // (M.extent - 7))
    for m in td.parallel(M):
        Y[m] = X[m]


@pytest.mark.parametrize("run", [rest, rest.reference], ids=["native", "reference"])
def test_an_extent_is_not_negative(run) -> None:
    """A shape that was seen before does not let another one pass."""
    for m in (3, 5, 4):
        assert run(np.zeros(m, np.float32)).tolist() == [1.0] * (5 - m)
    with pytest.raises(TreadleError) as caught:
        run(np.zeros(7, np.float32))
    assert caught.value.code == "call/require" and "T, -M + 5) = -2 where M = 7" in str(caught.value)
    assert run(np.zeros(3, np.float32)).tolist() == [1.0, 1.0]


def test_what_the_hint_says_is_right() -> None:
    for m in (3, 5, 7):
        assert rest_or_none(np.zeros(m, np.float32)).tolist() == [1.0] * max(0, 5 - m)


@pytest.mark.parametrize("kernel, more", [(by_a_scalar, (4,)), (by_a_difference, ())], ids=["scalar", "difference"])
def test_extents_are_told_by_extents(kernel, more: tuple[int, ...]) -> None:
    for run in (kernel, kernel.reference):
        with pytest.raises(TreadleError) as caught:
            run(np.zeros(10, np.float32), *more)
        assert caught.value.code == "capture/argument" and "td.let" in str(caught.value)
