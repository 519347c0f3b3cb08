"""Ragged and sparse: histograms, segments, CSR, tickets, gathers and scatters."""

from __future__ import annotations

import treadle as td
from treadle import f32, i32, i64

M, N, K, T, S, S1, E, D, NB = td.dims("M N K T S S1 E D NB")
ONE = td.dims("ONE", 1)


@td.kernel
def histogram(X: td.Tensor[T, i32], H: td.Out[NB, i32] = None):
    H[NB] = 0
    for t in td.parallel(T):
        x = X[t]
        H.add_at(td.in_range(x, NB), 1)


@td.kernel
def histogram_of_floats(X: td.Tensor[T], H: td.Out[NB, i32] = None, *, low=0.0, high=1.0):
    """Values outside are counted at the ends, NaN nowhere."""
    H[NB] = 0
    for t in td.parallel(T):
        at = ((X[t] - low) / (high - low) * NB.extent.to(f32)).to(i64)
        at = td.minimum(td.maximum(at, 0), NB.extent - 1)
        H.add_at(td.in_range(at, NB), 1, where=~td.isnan(X[t]))


@td.kernel
def histogram_by_comparing(X: td.Tensor[T, i32], H: td.Out[NB, i64] = None):
    for b in td.parallel(NB):
        n = td.zeros(b, dtype=i64)
        for t in td.reduce(T):
            n = n + (X[t] == b).sum(t)
        H[b] = n


@td.kernel
def segment_sums(X: td.Tensor[T, D], off: td.Tensor[S1, i32], Y: td.Out[S, D] = None):
    td.let(S1, S.extent + 1)
    for s, d in td.parallel(S.each, D):
        acc = td.zeros(d)
        for t in td.reduce(T[off[s] : off[s + 1]]):
            acc = acc + X[t, d].sum(t)
        Y[s, d] = acc


@td.kernel
def segment_max_by_id(X: td.Tensor[T], ids: td.Tensor[T, i32], Y: td.Out[S] = None):
    Y[S] = -float("inf")
    for t in td.parallel(T):
        Y.max_at(td.in_range(ids[t], S), X[t])


@td.kernel
def csr_vector(
    val: td.Tensor[E], col: td.Tensor[E, i32], off: td.Tensor[S1, i32], x: td.Tensor[N], y: td.Out[S] = None
):
    td.let(S1, S.extent + 1)
    for s in td.parallel(S.each):
        acc = td.zeros()
        for e in td.reduce(E[off[s] : off[s + 1]]):
            acc = acc + (val[e] * x[td.in_range(col[e], N)]).sum(e)
        y[s] = acc


@td.kernel
def csr_matrix(
    val: td.Tensor[E], col: td.Tensor[E, i32], off: td.Tensor[S1, i32], X: td.Tensor[N, D], Y: td.Out[S, D] = None
):
    td.let(S1, S.extent + 1)
    for s in td.parallel(S.each):
        acc = td.zeros(D)
        for e in td.reduce(E[off[s] : off[s + 1]]):
            acc = td.mma(val[e], X[td.in_range(col[e], N), D], acc)
        Y[s, D] = acc


@td.kernel
def coo_matrix(val: td.Tensor[E], row: td.Tensor[E, i32], col: td.Tensor[E, i32], x: td.Tensor[N], y: td.Out[S] = None):
    y[S] = 0.0
    for e in td.parallel(E):
        y.add_at(td.in_range(row[e], S), val[e] * x[td.in_range(col[e], N)])


@td.kernel
def compact(X: td.Tensor[T], Y: td.Out[T], count: td.Out[ONE, i32]):
    """Positive elements in any order: each takes a ticket."""
    count[0] = 0
    for t in td.parallel(T.each):
        if X[t] > 0:
            at = count.add_at(0, 1)
            Y[td.in_range(at, T)] = X[t]


@td.kernel
def compact_in_order(X: td.Tensor[T], Y: td.Out[T], count: td.Out[(), i64] = None):
    """The same in order: places by an exclusive scan."""
    keep = X[T] > 0
    at = td.scan(keep.to(i64), T, td.Add, exclusive=True)
    Y.set_at(td.in_range(at, T), X[T], where=keep)
    count[()] = keep.to(i64).sum(T)


@td.kernel
def paged(pool: td.Tensor[M, K, D], table: td.Tensor[S, N, i32], lens: td.Tensor[S, i32], Y: td.Out[S, D] = None):
    """Sums over the used slots of pages that a table names."""
    POS = td.product(N, K)
    for s in td.parallel(S.each):
        acc = td.zeros(D)
        for p in td.reduce(POS[: lens[s]]):
            page = td.in_range(table[s, p // K.extent], M)
            acc = acc + pool[page, p % K.extent, D].sum(p)
        Y[s, D] = acc


@td.kernel
def permuted(X: td.Tensor[M, D], order: td.Tensor[M, i64], Y: td.Out[M, D] = None):
    for m, d in td.parallel(M, D):
        Y[td.in_range(order[m], M), d] = X[m, d]
