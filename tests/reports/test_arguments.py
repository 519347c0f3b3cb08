"""Arguments: far offsets, negative and odd strides, empty axes, shifted views."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.reports.ways import everywhere

import treadle as td

M, N, K = td.dims("M N K")


@td.kernel
def doubled(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    for m, n in td.parallel(M, N):
        Y[m, n] = X[m, n] * 2


@td.kernel
def doubled_row(X: td.Tensor[N], Y: td.Out[N] = None):
    for n in td.parallel(N):
        Y[n] = X[n] * 2


@td.kernel
def product(A: td.Tensor[M, K], B: td.Tensor[K, N], Y: td.Out[M, N] = None):
    for m, n in td.parallel(M, N):
        Y[m, n] = td.dot(A[m, K], B[K, n], over=K)


# U40: offsets of more than 31 bits.


def test_u40_rows_that_lie_far_apart() -> None:
    far = (1 << 30) + 64
    # Memory that is never touched costs nothing: only the pages of three rows are.
    held = np.zeros(2 * far + 4096, np.int8)
    rows = np.lib.stride_tricks.as_strided(held, (3, 40), (far, 1))
    rows[...] = np.arange(120).reshape(3, 40)
    assert np.array_equal(doubled.reference(rows), rows * 2)
    assert np.array_equal(doubled(rows), rows * 2)
    backwards = rows[::-1]
    assert np.array_equal(doubled(backwards), backwards * 2)
    out = np.lib.stride_tricks.as_strided(np.zeros(2 * far + 4096, np.int8), (3, 40), (far, 1))
    doubled(rows, out)
    assert np.array_equal(out, rows * 2)


def test_u40_more_elements_than_memory_are_refused_before_anything_runs() -> None:
    many = np.broadcast_to(np.float32(1), (1 << 22, 1 << 22))
    with pytest.raises(td.TreadleError) as caught:
        doubled(many)
    assert caught.value.code == "runtime/out-of-memory"


# U42 and U46: views as they come.

VIEWS = {
    "backwards": lambda x: x[::-1],
    "backwards by three": lambda x: x[::-3, ::-1],
    "shifted by one": lambda x: x[1:, 1:],
    "an odd corner": lambda x: x[3:8, 5:12],
    "transposed": lambda x: x.T,
    "one column": lambda x: x[:, 4:5],
    "broadcast": lambda x: np.broadcast_to(x[0], (7, x.shape[1])),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("columns", [37])
def test_u42_u46_every_view_is_an_argument(view: str, columns: int) -> None:
    x = VIEWS[view](np.arange(19 * columns, dtype=np.float32).reshape(19, columns))
    assert np.array_equal(everywhere(doubled, x), x * 2)


def test_u42_a_row_backwards() -> None:
    x = np.arange(5, dtype=np.float32)[::-1]
    assert everywhere(doubled_row, x).tolist() == [8, 6, 4, 2, 0]


@pytest.mark.parametrize("shift", [1, 2, 3, 5])
def test_u46_outputs_at_odd_addresses(shift: int) -> None:
    held = np.full(300, np.nan, np.float32)
    x = np.arange(237, dtype=np.float32)
    doubled_row(x, held[shift : shift + 237])
    assert np.array_equal(held[shift : shift + 237], 2 * x)
    assert np.isnan(held[:shift]).all() and np.isnan(held[shift + 237 :]).all()


# U12: every element in its place.


@td.kernel
def turned(X: td.Tensor[M, N, td.i32], Y: td.Out[N, M] = None, Z: td.Out[M, N] = None):
    for m, n in td.parallel(M, N):
        x = X[m, n]
        Y[n, m] = x
        Z[m, n] = x * 2 - x


@pytest.mark.parametrize("shape", [(32, 32), (1, 33), (37, 5)])
def test_u12_elements_stay_in_their_places(shape: tuple[int, int]) -> None:
    x = np.arange(shape[0] * shape[1], dtype=np.int32).reshape(shape)
    turned_x, same_x = everywhere(turned, x)
    assert np.array_equal(turned_x, x.T) and np.array_equal(same_x, x)


# U44: nothing to fold, nothing to store.


@pytest.mark.parametrize("m, k, n", [(5, 0, 7), (0, 4, 7), (5, 4, 0), (0, 0, 0)])
def test_u44_empty_axes(m: int, k: int, n: int) -> None:
    a, b = np.ones((m, k), np.float32), np.ones((k, n), np.float32)
    y = everywhere(product, a, b)
    assert y.shape == (m, n) and (y == k).all()


def strided(x: Any, *strides: int) -> Any:
    return np.lib.stride_tricks.as_strided(x, x.shape, strides)


def test_u44_strides_of_axes_without_a_second_element_mean_nothing() -> None:
    x = np.arange(6, dtype=np.float32).reshape(1, 6)
    for stride in (0, 4, 24, 1 << 40):
        odd = strided(x, stride, 4)
        assert np.array_equal(doubled(odd), x * 2)
        out = np.zeros((1, 6), np.float32)
        doubled(x, strided(out, stride, 4))
        assert np.array_equal(out, x * 2)
    empty = strided(np.zeros((0, 6), np.float32), 12, 20)
    assert doubled(empty).shape == (0, 6)
