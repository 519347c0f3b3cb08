"""Random numbers: the published known answers, the same bits however a kernel is cut, distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
from treadle import f64, i32, i64, u32, u64
from treadle.lang.context import Context
from treadle.lang.random import philox

M, N, K = td.dims("M N K")

# Random123 1.14, kat_vectors, philox4x32 10: counter, key, result.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN)
def test_known_answers(counter: Any, key: Any, result: Any) -> None:
    assert philox(Context("answers", {}), counter, key) == result


@td.kernel
def drawn(seed: td.Scalar[u64], at: td.Tensor[N, u64], before: td.Tensor[N, u64], Y: td.Out[N, u32] = None):
    Y[N] = td.bits(seed, before[N].to(i64), at[N].to(i64))


def test_known_answers_in_a_kernel() -> None:
    for counter, key, result in KNOWN:
        at, before = counter[0] | counter[1] << 32, counter[2] | counter[3] << 32
        arrays = [np.array([v], np.uint64) for v in (at, before)]
        got = drawn.reference(key[0] | key[1] << 32, *arrays)
        assert got.tolist() == [result[0]]


@td.kernel
def every_kind(
    seed: td.Scalar[i64],
    U: td.Out[M, N, u32] = None,
    F: td.Out[M, N] = None,
    W: td.Out[M, N, f64] = None,
    Z: td.Out[M, N] = None,
):
    for m, n in td.parallel(M, N):
        U[m, n], F[m, n] = td.bits(seed, m, n), td.uniform(seed, m, n)
        W[m, n], Z[m, n] = td.uniform(seed, m, n, dtype=f64), td.normal(seed, m, n)


def filled(seed: int, shape: tuple[int, int], run: Any = None) -> list[np.ndarray]:
    arrays = [np.zeros(shape, d) for d in (np.uint32, np.float32, np.float64, np.float32)]
    (run or every_kind.reference)(seed, *arrays)
    return arrays


def test_numbers_depend_on_seed_and_coordinates_alone() -> None:
    small, large = filled(5, (3, 4)), filled(5, (20, 30))
    for a, b in zip(small, large, strict=True):
        np.testing.assert_array_equal(a, b[:3, :4])
    other = filled(6, (20, 30))
    assert (large[0] == other[0]).mean() < 0.01
    assert not every_kind.sanitize(5, *small)
    called = filled(5, (3, 4), every_kind)
    for a, b in zip(small[:3], called[:3], strict=True):
        np.testing.assert_array_equal(a, b)
    # sqrt(-2 log u) cos(2 pi v), the root at most 5.8: log within 2 ulp (one after the root), the angle within
    # 2 roundings of 2 pi, cos within 2 ulp, and three roundings, on either side.
    np.testing.assert_allclose(small[3], called[3], rtol=0, atol=2 * 5.8 * (2 + 4 * np.pi + 4 + 3) * 2.0**-24)


def test_distributions() -> None:
    bits, uniform, wide, normal = filled(-1, (200, 250))
    count = bits.size
    ones = np.unpackbits(bits.view(np.uint8)).mean()
    assert abs(ones - 0.5) < 4 * 0.5 / np.sqrt(count * 32)
    for u in (uniform, wide):
        assert u.min() >= 0 and u.max() < 1 and abs(u.mean() - 0.5) < 4 / np.sqrt(12 * count)
        assert np.abs(np.histogram(u, 16, (0, 1))[0] - count / 16).max() < 5 * np.sqrt(count / 16)
    assert np.isfinite(normal).all() and abs(normal.mean()) < 4 / np.sqrt(count) and abs(normal.std() - 1) < 0.02
    assert abs(np.corrcoef(uniform[:-1].ravel(), uniform[1:].ravel())[0, 1]) < 0.02


def test_any_number_of_coordinates() -> None:
    @td.kernel
    def four(seed: td.Scalar[i32], A: td.Out[M, N, u32], B: td.Out[M, N, u32], C: td.Out[M, N, u32], D: td.Out[N, u32]):
        for m, n in td.parallel(M, N):
            A[m, n], B[m, n], C[m, n] = td.bits(seed, 1, m, n), td.bits(seed, 2, 3, m, n), td.bits(seed, m, 11, n)
        D[N] = td.bits(3) + td.bits(3, N) - td.bits(3, 0, N)

    a, b, c = (np.zeros((9, 9), np.uint32) for _ in range(3))
    row = np.zeros(9, np.uint32)
    four.reference(1, a, b, c, row)
    every = np.concatenate([a.ravel(), b.ravel(), c.ravel()])
    assert len(np.unique(every)) == len(every)
    assert (row == KNOWN_OF_3).all(), "leading zeros change nothing"


KNOWN_OF_3 = philox(Context("answers", {}), (0, 0, 0, 0), (3, 0))[0]
