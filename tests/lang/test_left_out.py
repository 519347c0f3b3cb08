"""Outputs that the caller leaves out and the kernel stores in part: `sanitize` tells, as long as nothing was passed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td

M, N = td.dims("M N")


@td.kernel
def where_large(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m, n in td.parallel(M, N):
        Y.set_at(m, n, X[m, n], where=X[m, n] > 0.5)


@td.kernel
def without_the_first(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m in td.parallel(M[1 : M.extent]):
        Y[m, N] = X[m, N]


@td.kernel
def in_two_parts(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m in td.parallel(M[1 : M.extent]):
        Y[m, N] = X[m, N]
    for m in td.parallel(M[:1]):
        Y[m, N] = X[m, N] * 2.0


HALF = np.array([[0.0, 1.0, 0.2], [1.0, 1.0, 1.0]], np.float32)


@pytest.mark.parametrize(("kernel", "first", "left"), [(where_large, "Y[0, 0]", 2), (without_the_first, "Y[0, 0]", 3)])
def test_elements_without_a_store(kernel: Any, first: str, left: int) -> None:
    found = kernel.sanitize(HALF)
    assert [f.code for f in found] == ["store/incomplete"]
    more = "" if left == 1 else f" and {left - 1} more"
    assert found[0].message.startswith(f"no store wrote {first}{more}") and found[0].span.file == __file__
    assert kernel.sanitize(HALF, np.zeros_like(HALF)) == []  # an output that is passed keeps what it held


def test_elements_that_all_have_a_store() -> None:
    assert in_two_parts.sanitize(HALF) == []
    assert where_large.sanitize(np.ones((2, 3), np.float32)) == []  # on these values every element is stored
    assert without_the_first.sanitize(np.ones((0, 3), np.float32)) == []
