"""Offsets and coordinates beyond 2^31 elements: views with huge strides, with stride 0, and parts of huge arrays.

The memory is virtual: pages that nobody touches do not exist.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import treadle as td
from treadle import i64, u8

Array = NDArray[Any]
M, N, T = td.dims("M N T")
FAR = (3 << 30) + 11
"""Elements of the huge array: its last index does not fit 32 bits, signed or not, in bytes of f32."""


@pytest.fixture(scope="module")
def huge() -> Array:
    """3 GiB of zeros that take no memory."""
    return np.zeros(FAR, np.uint8)


def both(kernel: Any, *args: Any) -> Iterator[Any]:
    """By the interpreter and by compiled code, which must not give way."""
    yield kernel.reference(*args)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield kernel(*args)


@td.kernel
def doubled(X: td.Tensor[M, N, u8], Y: td.Out[M, N, u8] = None):
    for m in td.parallel(M):
        Y[m, N] = X[m, N] + X[m, N]


@pytest.mark.parametrize("step", [1 << 28, -(1 << 28)])
def test_huge_strides(huge: Array, step: int) -> None:
    """Ten rows, 256 MiB from one to the next, forwards and backwards, read and written."""
    base = huge[: 10 * (1 << 28)].reshape(10, 1 << 28)
    rows = base[:, 5:42] if step > 0 else base[::-1, 5:42]
    for i in range(10):
        rows[i] = np.arange(37) + i
    for got in both(doubled, rows):
        assert np.array_equal(got, 2 * (np.arange(37) + np.arange(10)[:, None]))
    out = base[:, 100:137] if step > 0 else base[::-1, 100:137]
    for run in (doubled.reference, doubled):
        out[...] = 0
        run(rows, out)
        assert np.array_equal(out, 2 * (np.arange(37) + np.arange(10)[:, None]))
        assert huge[100:137].tolist() == out[0 if step > 0 else 9].tolist()
    rows[...] = 0
    out[...] = 0


@td.kernel
def gathered(L: td.Tensor[T, i64], X: td.Tensor[M, u8], Y: td.Out[T, u8] = None):
    for t in td.parallel(T):
        Y[t] = X[td.in_range(L[t], M)]


@td.kernel
def scattered(L: td.Tensor[T, i64], V: td.Tensor[T, u8], X: td.Out[M, u8]):
    for t in td.parallel(T):
        X[td.in_range(L[t], M)] = V[t]


def test_indices_beyond_32_bits(huge: Array) -> None:
    places = np.array([0, (1 << 31) - 1, 1 << 31, (1 << 31) + 1, 5, FAR - 1], np.int64)
    values = np.array([1, 2, 3, 4, 5, 6], np.uint8)
    for write in (scattered.reference, scattered):
        write(places, values, huge)
        assert huge[places].tolist() == values.tolist() and int(huge[(1 << 31) + 5]) == 0
        for got in both(gathered, places, huge):
            assert got.tolist() == values.tolist()
        huge[places] = 0


@td.kernel
def part_of(X: td.Tensor[M, u8], LO: td.Tensor[T, i64], HI: td.Tensor[T, i64], S: td.Out[T, i64], A: td.Out[T, i64]):
    """Of each range: the sum of its elements, and of the coordinates where they are set."""
    for t in td.parallel(T.each):
        s, a = td.zeros(dtype=i64), td.zeros(dtype=i64)
        for m in td.reduce(M[LO[t] : HI[t]]):
            x = X[m].to(i64)
            s = s + x.sum(m)
            a = a + td.where(x != 0, m.coords, 0).sum(m)
        S[t] = s
        A[t] = a


def test_ranges_and_coordinates_beyond_32_bits(huge: Array) -> None:
    at = (1 << 31) + 12345
    huge[at], huge[at + 700] = 9, 4
    lo = np.array([at - 100, at, at + 1, (1 << 31) - 50, FAR - 5], np.int64)
    hi = np.array([at + 900, at + 1, at + 701, (1 << 31) + 50, 1 << 40], np.int64)
    for run in (part_of.reference, part_of):
        s, a = run(huge, lo, hi, np.zeros(5, np.int64), np.zeros(5, np.int64))
        assert s.tolist() == [13, 9, 4, 0, 0]
        assert a.tolist() == [2 * at + 700, at, at + 700, 0, 0]
    huge[[at, at + 700]] = 0


def test_stride_zero() -> None:
    """2^33 elements that are one: only coordinates tell them apart."""
    one = np.broadcast_to(np.array([3], np.uint8), (1 << 33,))
    lo = np.array([(1 << 32) - 2, 0, (1 << 33) - 1], np.int64)
    hi = np.array([(1 << 32) + 2, 1, 1 << 34], np.int64)
    for run in (part_of.reference, part_of):
        s, a = run(one, lo, hi, np.zeros(3, np.int64), np.zeros(3, np.int64))
        assert s.tolist() == [12, 3, 3]
        assert a.tolist() == [4 * (1 << 32) - 2, 0, (1 << 33) - 1]


def test_two_huge_axes(huge: Array) -> None:
    """A matrix of 2^16 columns: the offset of a late row needs 32 bits and more."""

    @td.kernel
    def row_of(X: td.Tensor[M, N, u8], L: td.Tensor[T, i64], Y: td.Out[T, N, u8] = None):
        for t in td.parallel(T.each):
            Y[t, N] = X[td.in_range(L[t], M), N]

    matrix = huge[: 49000 * 65536].reshape(49000, 65536)
    matrix[48999, ::4096] = 7
    matrix[40000, 65535] = 8
    for got in both(row_of, matrix, np.array([48999, 40000, 0], np.int64)):
        assert got[0, ::4096].tolist() == [7] * 16 and got[1, 65535] == 8 and not got[2].any()
    matrix[48999] = 0
    matrix[40000] = 0
