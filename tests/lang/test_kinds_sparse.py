"""Ragged and sparse kernels against NumPy: at zero, one and many elements, with adversarial contents."""

from __future__ import annotations

import numpy as np
import pytest
from tests.lang.kinds import sparse as k
from tests.lang.kinds.ways import RNG, agrees, framed, ints


@pytest.mark.parametrize("count", [0, 1, 50])
def test_histograms(count: int) -> None:
    x = ints(count, low=0, high=7, dtype=np.int32)
    want = np.bincount(x, minlength=9).astype(np.int32)
    empty = np.zeros(9, np.int32)
    agrees(k.histogram, wants=want, copied=lambda: (framed(x), empty.copy()), called=count == 50)
    many = empty.astype(np.int64)
    agrees(k.histogram_by_comparing, wants=want.astype(np.int64), copied=lambda: (framed(x), many.copy()), called=False)


def test_histogram_of_floats() -> None:
    x = np.array([0.0, 0.1, 0.99, 1.0, -5.0, 7.0, np.nan, np.inf, -np.inf, 0.5], np.float32)
    clean = np.clip(x[~np.isnan(x)], 0.0, 1.0 - 1e-6)
    want = np.bincount((clean * 4).astype(int), minlength=4).astype(np.int32)
    agrees(k.histogram_of_floats, wants=want, copied=lambda: (x, np.zeros(4, np.int32)), called=False)


OFFSETS = [[0, 0], [0, 5], [0, 0, 3, 3, 9, 9], [2, 2, 7], [0, 1, 2, 3]]


@pytest.mark.parametrize("off", OFFSETS)
def test_segment_sums(off: list[int]) -> None:
    x = ints(10, 3)
    inside = x.copy()
    x[: off[0]], x[off[-1] :] = np.nan, np.nan
    want = np.stack([inside[a:b].sum(0) for a, b in zip(off, off[1:], strict=False)])
    agrees(k.segment_sums, framed(x), np.array(off, np.int32), wants=want, called=len(off) == 6)


def test_segment_max_by_id() -> None:
    x, ids = ints(12), ints(12, low=0, high=4, dtype=np.int32)
    want = np.array([x[ids == s].max(initial=-np.inf) for s in range(6)], np.float32)
    agrees(k.segment_max_by_id, wants=want, copied=lambda: (x, ids, np.zeros(6, np.float32)))


@pytest.mark.parametrize("off", OFFSETS)
def test_csr(off: list[int]) -> None:
    val, col = ints(10), ints(10, low=0, high=6, dtype=np.int32)
    x, dense = ints(6), ints(6, 4)
    matrix = np.zeros((len(off) - 1, 6), np.float32)
    for row, (a, b) in enumerate(zip(off, off[1:], strict=False)):
        np.add.at(matrix[row], col[a:b], val[a:b])
    hidden = val.copy()
    hidden[: off[0]], hidden[off[-1] :] = np.nan, np.nan
    offsets, called = np.array(off, np.int32), len(off) == 6
    agrees(k.csr_vector, framed(hidden), col, offsets, framed(x), wants=matrix @ x, called=called)
    agrees(k.csr_matrix, hidden, framed(col), offsets, framed(dense), wants=matrix @ dense, called=False)


def test_coo() -> None:
    val, row, col = ints(15), ints(15, low=0, high=4, dtype=np.int32), ints(15, low=0, high=6, dtype=np.int32)
    x = ints(6)
    want = np.zeros(4, np.float32)
    np.add.at(want, row, val * x[col])
    agrees(k.coo_matrix, wants=want, copied=lambda: (val, row, col, x, np.full(4, np.nan, np.float32)), called=False)


@pytest.mark.parametrize("count", [0, 1, 20])
def test_tickets(count: int) -> None:
    x = ints(count)
    y, n = np.full(count, 99, np.float32), np.zeros(1, np.int32)
    k.compact.reference(x, y, n)
    assert sorted(y[: n[0]]) == sorted(x[x > 0]) and (y[n[0] :] == 99).all()
    assert not k.compact.sanitize(x, y, n)
    z, n = np.full(count, 99, np.float32), np.zeros(1, np.int32)
    k.compact(x, z, n)
    assert sorted(z[: n[0]]) == sorted(x[x > 0]) and (z[n[0] :] == 99).all()


def test_compact_in_order() -> None:
    x = ints(17)
    kept = x[x > 0]
    want = np.full(17, 99, np.float32)
    want[: len(kept)] = kept
    agrees(k.compact_in_order, wants=(want, len(kept)), copied=lambda: (x, np.full(17, 99, np.float32)))


def test_paged() -> None:
    pool, table = ints(5, 3, 2), ints(4, 3, low=0, high=5, dtype=np.int32)
    lens = np.array([0, 9, 4, 1], np.int32)
    rows = [pool[table[s]].reshape(9, 2)[:n].sum(0) for s, n in enumerate(lens)]
    used = -(-lens // 3)
    for s in range(4):
        table[s, used[s] :] = 1 << 30
    agrees(k.paged, framed(pool), table, lens, wants=np.stack(rows))


def test_permuted() -> None:
    x, order = ints(9, 3), RNG.permutation(9)
    want = np.zeros_like(x)
    want[order] = x
    agrees(k.permuted, framed(x), order, wants=want)
