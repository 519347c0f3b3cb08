"""An access of no element picks none, whatever scalar stands beside the empty axis: the reference and a plan agree."""

from __future__ import annotations

import numpy as np
import pytest

import treadle as td

M, N = td.dims("M N")


@td.kernel
def row_of_tensor(X: td.Tensor[M, N], i: td.Scalar[td.i64], Y: td.Out[N] = None):
    Y[N] = X.at(i, N, fill=0)


@td.kernel
def row_of_tile(X: td.Tensor[M, N], i: td.Scalar[td.i64], Y: td.Out[N] = None):
    x = X[M, N] * 2.0
    Y[N] = x.at(i, N, fill=0)


@td.kernel
def promised_row(X: td.Tensor[M, N], i: td.Scalar[td.i64], Y: td.Out[N] = None):
    Y[N] = X[td.in_range(i, M), N]


@pytest.mark.parametrize("kernel", [row_of_tensor, row_of_tile, promised_row])
@pytest.mark.parametrize("index", [-1, 0, 2, 3, 2**40])
def test_nothing_is_picked_and_nothing_is_wrong(kernel, index):
    x = np.zeros((3, 0), np.float32)
    assert kernel(x, index).shape == (0,) and kernel.reference(x, index).shape == (0,)
    assert kernel.sanitize(x, index) == []
