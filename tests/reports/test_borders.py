"""Neighbours at the border: subscripts clamped to an axis, by hand or promised; recurrences that begin somewhere;
parts of tiles."""

from __future__ import annotations

import numpy as np
import pytest
from tests.reports.ways import everywhere

import treadle as td

M, N, A, B = td.dims("M N A B")
AB = td.product(A, B)


@td.kernel
def by_element(X: td.Tensor[M], Y: td.Out[M] = None):
    for m in td.parallel(M.each):
        Y[m] = X[td.maximum(m - 2, 0)] + 2 * X[td.minimum(m + 2, M.extent - 1)]


@td.kernel
def by_block(X: td.Tensor[M], Y: td.Out[M] = None):
    for m in td.parallel(M):
        low, high = td.maximum(m - 2, 0), td.minimum(m + 2, M.extent - 1)
        Y[m] = X[low] + 2 * X[high] + 4 * X[td.minimum(low, M.extent - 1)] + 8 * X[td.maximum(high, 0)]


@td.kernel
def promised(X: td.Tensor[M], Y: td.Out[M] = None):
    for m in td.parallel(M):
        low, high = td.maximum(m - 2, 0), td.minimum(m + 2, M.extent - 1)
        a, b = td.in_range(low, M), td.in_range(high, M)
        Y[m] = X[a] + 2 * X[b] + 4 * X[a] + 8 * X[b]


@td.kernel
def two_axes(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    for m, n in td.parallel(M, N):
        Y[m, n] = X[td.maximum(m - 1, 0), td.minimum(n + 1, N.extent - 1)] + X[td.minimum(m + 1, M.extent - 1), n]


@td.kernel
def of_what_is_loaded(X: td.Tensor[N], L: td.Tensor[M, td.i32], Y: td.Out[M] = None):
    td.require(N.extent > 0)
    for m in td.parallel(M):
        Y[m] = X[td.in_range(td.minimum(td.maximum(L[m], 0), N.extent - 1), N)]


@pytest.mark.parametrize("size", [1, 3, 70])
def test_clamped_subscripts_are_native_in_every_plan(size: int) -> None:
    x = np.arange(size, dtype=np.float32) + 1
    at = np.arange(size)
    low, high = x[np.maximum(at - 2, 0)], x[np.minimum(at + 2, size - 1)]
    assert np.array_equal(everywhere(by_element, x), low + 2 * high)
    assert np.array_equal(everywhere(by_block, x), 5 * low + 10 * high)
    assert np.array_equal(everywhere(promised, x), 5 * low + 10 * high)


@pytest.mark.parametrize("shape", [(1, 1), (5, 33)])
def test_clamped_subscripts_of_two_axes(shape: tuple[int, int]) -> None:
    x = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
    m, n = np.ogrid[: shape[0], : shape[1]]
    expected = x[np.maximum(m - 1, 0), np.minimum(n + 1, shape[1] - 1)] + x[np.minimum(m + 1, shape[0] - 1), n]
    assert np.array_equal(everywhere(two_axes, x), expected)


def test_loaded_coordinates_are_clamped_whatever_they_are() -> None:
    x = np.arange(9, dtype=np.float32)
    at = np.array([-(2**31), -1, 0, 4, 8, 9, 2**31 - 1], dtype=np.int32)
    assert np.array_equal(everywhere(of_what_is_loaded, x, at), x[np.clip(at, 0, 8)])


@td.kernel
def begun(X: td.Tensor[N], Y: td.Out[N] = None):
    td.require(N.extent > 1)
    r = td.empty(N)
    r[0] = X[0]
    r[1] = X[1]
    for j in td.serial(N[2 : N.extent].each):
        r[j] = r[j - 1] * 0.5 + r[j - 2] + X[j]
    Y[N] = r


@td.kernel
def begun_in_every_row(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    td.require(N.extent > 0)
    for m in td.parallel(M.each):
        r = td.empty(N)
        r[0] = X[m, 0]
        for j in td.serial(N[1 : N.extent].each):
            r[j] = r[j - 1] * 0.5 + X[m, j]
        Y[m, N] = r


def test_a_recurrence_over_an_empty_tile_begins_with_its_first_elements() -> None:
    x = np.arange(11, dtype=np.float32)
    expected = x.copy()
    for j in range(2, 11):
        expected[j] = expected[j - 1] * 0.5 + expected[j - 2] + x[j]
    assert np.array_equal(everywhere(begun, x), expected)
    assert np.array_equal(everywhere(begun, x[:2]), x[:2])


def test_such_recurrences_in_every_row() -> None:
    x = np.arange(21, dtype=np.float32).reshape(3, 7)
    expected = x.copy()
    for j in range(1, 7):
        expected[:, j] = expected[:, j - 1] * 0.5 + x[:, j]
    assert np.array_equal(everywhere(begun_in_every_row, x), expected)
    assert np.array_equal(everywhere(begun_in_every_row, x[:, :1]), x[:, :1])


@td.kernel
def by_factors(X: td.Tensor[A, B], Y: td.Out[AB] = None):
    f = td.empty(AB)
    f[A, B] = X[A, B] * 2
    Y[AB] = f[AB] + 1


@td.kernel
def by_factors_apart(X: td.Tensor[A, B], Y: td.Out[AB] = None):
    f = td.empty(AB)
    for a, b in td.parallel(A.each, B.each):
        f[a, b] = X[a, b] * 2
    Y[AB] = f[AB] + 1


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (0, 4), (4, 0)])
def test_a_tile_along_a_product_is_filled_through_its_factors(shape: tuple[int, int]) -> None:
    x = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
    assert np.array_equal(everywhere(by_factors, x), x.reshape(-1) * 2 + 1)
    assert np.array_equal(everywhere(by_factors_apart, x), x.reshape(-1) * 2 + 1)


@td.kernel
def left_alone(X: td.Tensor[M], Y: td.Out[M] = None, Z: td.Out[M] = None):
    t = td.zeros(M)
    for m in td.parallel(M[:48]):
        t[m] = X[m] * 2
    for m in td.parallel(M.each):
        Y[m] = t.at(m + 1, fill=0) + t[m]
        Z[m] = t[(m + 1) % M.extent]


@pytest.mark.parametrize("size", [48, 49, 60])
def test_what_a_partial_region_leaves_alone_is_what_it_was(size: int) -> None:
    x = np.arange(size, dtype=np.float32)
    t = np.where(np.arange(size) < 48, 2 * x, 0)
    y, z = everywhere(left_alone, x)
    assert np.array_equal(y, np.append(t[1:], 0) + t) and np.array_equal(z, np.roll(t, -1))
