"""Offsets beyond 2^31 elements: sparse files and repeated axes, of which a call touches few pages."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import treadle as td
from treadle import i8, i64

M, N, K, T, V = td.dims("M N K T V")
FAR = (1 << 31) + 12345
"""Elements between rows."""

Array = NDArray[Any]


@td.kernel
def doubled(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m, n in td.parallel(M, N):
        Y[m, n] = X[m, n] * 2


@td.kernel
def product(X: td.Tensor[M, K], W: td.Tensor[K, N], Y: td.Out[M, N]):
    for m, n in td.parallel(M, N):
        acc = td.zeros(m, n)
        for k in td.reduce(K):
            acc = td.mma(X[m, k], W[k, n], acc)
        Y[m, n] = acc


@td.kernel
def taken(X: td.Tensor[V, i8], ids: td.Tensor[T, i64], Y: td.Out[T, i8]):
    for t in td.parallel(T):
        Y[t] = X[td.in_range(ids[t], V)]


@td.kernel
def counted(ids: td.Tensor[T, i64], Y: td.Out[V, i8]):
    for t in td.parallel(T):
        Y.add_at(td.in_range(ids[t], V), 1)


@td.kernel
def row_sums(X: td.Tensor[M, N], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m, N].sum(N)


@td.kernel
def shape_of(X: td.Tensor[M, N, i8], Y: td.Out[T, i64]):
    for t in td.parallel(T):
        Y[t] = M.extent * N.extent + t


@pytest.fixture
def sparse(tmp_path: Path) -> Iterator[Callable[[int], Array]]:
    """Makes arrays of bytes in files without contents: pages that nobody touches do not exist."""
    made: list[Array] = []

    def make(size: int) -> Array:
        path = tmp_path / f"{len(made)}.bin"
        with path.open("wb") as file:
            file.truncate(size)
        made.append(np.memmap(path, np.uint8, "r+"))
        return made[-1]

    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield make


def spread(base: Array, dtype: Any, shape: tuple[int, int], step: int = 1) -> Array:
    """A matrix over the file whose rows lie `FAR` elements apart."""
    size = np.dtype(dtype).itemsize
    return np.ndarray(shape, dtype, base, 0, (FAR * size, step * size))


@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_rows_far_apart(sparse: Callable[[int], Array], dtype: Any) -> None:
    size = np.dtype(dtype).itemsize * (2 * FAR + 4096)
    x, y = spread(sparse(size), dtype, (3, 37)), spread(sparse(size), dtype, (3, 37))
    x[...] = np.arange(111).reshape(3, 37) % 50
    doubled(x, y)
    assert (y == x * 2).all()
    back = np.zeros((3, 37), dtype)
    doubled(x[::-1, ::-1], back)
    assert (back == x[::-1, ::-1] * 2).all()


def test_steps_along_a_row(sparse: Callable[[int], Array]) -> None:
    base = sparse(4 * (3 * (1 << 30) + 8))
    x = np.ndarray((2, 4), np.float32, base, 0, (4, 4 * (1 << 30)))
    x[...] = np.arange(8).reshape(2, 4)
    assert (row_sums(x) == x.sum(1)).all()
    y = np.zeros((2, 4), np.float32)
    doubled(x[:, ::-1], y)
    assert (y == 2 * x[:, ::-1]).all()


def test_a_contraction(sparse: Callable[[int], Array]) -> None:
    x = spread(sparse(4 * (2 * FAR + 4096)), np.float32, (3, 5))
    w = spread(sparse(4 * (4 * FAR + 4096)), np.float32, (5, 33))
    random = np.random.default_rng(0)
    x[...], w[...] = random.integers(-4, 5, x.shape), random.integers(-4, 5, w.shape)
    assert (product(x, w) == np.array(x) @ np.array(w)).all()
    assert (product(x, np.array(w)) == np.array(x) @ np.array(w)).all()


def test_elements_far_inside_an_array(sparse: Callable[[int], Array]) -> None:
    x = sparse(5 * (1 << 30)).view(np.int8)
    ids = np.array([0, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, (1 << 32) + 3, x.size - 1])
    x[ids] = np.arange(1, 7)
    assert (taken(x, ids) == np.arange(1, 7)).all()
    counted(np.repeat(ids, 3), x)
    assert (x[ids] == np.arange(4, 10)).all()


def test_repeated_rows_of_more_elements_than_32_bits_count() -> None:
    x = np.broadcast_to(np.zeros(1, np.int8), (1 << 20, 1 << 14))
    y = np.zeros(4, np.int64)
    assert (shape_of(x, y) == (1 << 34) + np.arange(4)).all()
    rows = np.broadcast_to(np.arange(8, dtype=np.float32), (1 << 29, 8))[:: 1 << 27]
    assert (row_sums(rows) == 28).all()


def test_empty_views_of_far_memory(sparse: Callable[[int], Array]) -> None:
    x = spread(sparse(4 * (2 * FAR + 4096)), np.float32, (3, 37))
    assert row_sums(x[:, :0]).tolist() == [0, 0, 0]
    assert row_sums(x[:0]).shape == (0,)
    assert product(x[:, :0], x[:0, :5]).tolist() == [[0] * 5] * 3
