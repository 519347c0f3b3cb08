"""Outputs that the caller leaves out and the kernel stores in part: what is stored is right, and the rest no fault."""

from __future__ import annotations

import numpy as np

import treadle as td

M, N, G = td.dims("M N G")


@td.kernel
def where_large(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m, n in td.parallel(M, N):
        Y.set_at(m, n, X[m, n], where=X[m, n] > 0.5)


@td.kernel
def rows_of_segments(X: td.Tensor[M, N], first: td.Tensor[G, td.i32], last: td.Tensor[G, td.i32], Y: td.Out[M, N]):
    for g in td.parallel(G.each):
        for m in td.parallel(M[first[g] : last[g]]):
            Y[m, N] = X[m, N] * 2.0


HALF = np.array([[0.0, 1.0, 0.2], [1.0, 1.0, 1.0]], np.float32)


def test_where() -> None:
    assert where_large.sanitize(HALF) == []
    for call in (where_large, where_large.reference):
        assert (call(HALF)[HALF > 0.5] == 1).all()
        kept = np.full_like(HALF, 7)
        call(HALF, kept)
        assert (kept == np.where(HALF > 0.5, HALF, 7)).all()  # an output that is passed keeps what it held


def test_rows_of_no_segment() -> None:
    x = np.arange(18, dtype=np.float32).reshape(6, 3)
    first, last = np.array([1, 3], np.int32), np.array([2, 5], np.int32)
    assert rows_of_segments.sanitize(x, first, last) == []
    for call in (rows_of_segments, rows_of_segments.reference):
        assert (call(x, first, last)[[1, 3, 4]] == 2 * x[[1, 3, 4]]).all()


@td.kernel
def with_sums(X: td.Tensor[M, N], Y: td.Out[M, N] = None, S: td.Out[M] = None, *, sums=False):
    Y[M, N] = X[M, N] * 2.0
    if sums:
        S[M] = X[M, N].sum(N)


def test_stored_where_a_staged_flag_says() -> None:
    """Without the flag nothing is stored there: what was passed keeps what it held."""
    for call in (with_sums, with_sums.reference):
        assert np.array_equal(call(HALF, sums=True)[1], HALF.sum(1))
        kept = np.full(2, 7, np.float32)
        assert np.array_equal(call(HALF, S=kept)[0], 2 * HALF)
        assert (kept == 7).all()
