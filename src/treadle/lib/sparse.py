"""Segments and compressed rows (CSR): sums and maxima over ranges that a tensor holds, products with sparse matrices,
histograms.

Segment b owns the rows `start[b] <= t < start[b + 1]`; segments of any length, none too. A CSR matrix is
`start [M + 1]`, `column [Z]`, `value [Z]`.
"""

from __future__ import annotations

import treadle as td
from treadle import i32
from treadle.lib.precision import computing, state, wide

T, D, B, B1 = td.dims("T D B B1")
M, N, K, Z = td.dims("M N K Z")
V = td.dims("V")


@td.kernel
def segment_sum(X: td.Tensor[T, D], start: td.Tensor[B1, i32], Y: td.Out[B, D] = None, *, mean=False):
    """`Y[b] = sum of X[start[b] : start[b + 1]]`, or the mean; 0 of no row. *Shapes*: X [T, D], start [B + 1], Y [B,
    D].
    """
    td.let(B, B1.extent - 1)
    for b, d in td.parallel(B.each, D):
        lo, hi = start[b], start[b + 1]
        total = td.zeros(d, dtype=computing(X.dtype))
        for t in td.reduce(T[lo:hi]):
            total = total + wide(X[t, d]).sum(t)
        Y[b, d] = total / td.maximum(hi - lo, 1).to(total.dtype) if mean else total


@td.kernel
def segment_max(X: td.Tensor[T, D], start: td.Tensor[B1, i32], Y: td.Out[B, D] = None):
    """`Y[b] = max of X[start[b] : start[b + 1]]`, the lowest value of no row. *Shapes*: X [T, D], start [B + 1], Y [B,
    D].
    """
    td.let(B, B1.extent - 1)
    for b, d in td.parallel(B.each, D):
        top = td.full(d, value=-float("inf"), dtype=X.dtype)
        for t in td.reduce(T[start[b] : start[b + 1]]):
            top = td.maximum(top, X[t, d].max(t))
        Y[b, d] = top


@td.kernel
def segment_softmax(X: td.Tensor[T, D], start: td.Tensor[B1, i32], Y: td.Out[T, D] = None):
    """Softmax over the rows of each segment, column by column; rows of no segment are not written.

    *Shapes*: X, Y [T, D], start [segments + 1].
    """
    for b, d in td.parallel(B1[: B1.extent - 1].each, D):
        lo, hi = start[b], start[b + 1]
        top, total = td.full(d, value=-float("inf")), td.zeros(d)
        for t in td.pipeline(T[lo:hi]):
            x = X[t, d].to(td.f32)
            new = td.maximum(top, x.max(t))
            total = total * td.exp(top - new) + td.exp(x - new).sum(t)
            top = new
        for t in td.parallel(T[lo:hi]):
            Y[t, d] = td.exp(X[t, d].to(td.f32) - top) / total


@td.kernel
def csr_matvec(
    start: td.Tensor[B1, i32],
    column: td.Tensor[Z, i32],
    value: td.Tensor[Z],
    x: td.Tensor[N],
    y: td.Out[B] = None,
):
    """`y = A x`. *Shapes*: start [M + 1], column, value [Z], x [N], y [M]. *Requires*: `0 <= column < N`.

    *Source*: Tinney and Walker, "Direct solutions of sparse network equations", 1967, the row-wise form.
    """
    td.let(B, B1.extent - 1)
    for b in td.parallel(B.each):
        total = td.full(value=0, dtype=state(value.dtype, x.dtype))
        for z in td.reduce(Z[start[b] : start[b + 1]]):
            total = total + (value[z].to(total.dtype) * x[td.in_range(column[z], N)].to(total.dtype)).sum(z)
        y[b] = total


@td.kernel
def csr_matmul(
    start: td.Tensor[B1, i32],
    column: td.Tensor[Z, i32],
    value: td.Tensor[Z],
    X: td.Tensor[N, D],
    Y: td.Out[B, D] = None,
):
    """`Y = A X` with a dense X. *Shapes*: start [M + 1], column, value [Z], X [N, D], Y [M, D]. *Requires*:
    `0 <= column < N`.
    """
    td.let(B, B1.extent - 1)
    for b, d in td.parallel(B.each, D):
        total = td.zeros(d, dtype=state(value.dtype, X.dtype))
        for z in td.reduce(Z[start[b] : start[b + 1]].each):
            row = X[td.in_range(column[z], N), d]
            total = total + value[z].to(total.dtype) * row.to(total.dtype)
        Y[b, d] = total


@td.kernel
def csr_scores(
    start: td.Tensor[B1, i32],
    column: td.Tensor[Z, i32],
    A: td.Tensor[B, K],
    X: td.Tensor[N, K],
    value: td.Out[Z] = None,
):
    """`value[z] = A[row of z] . X[column[z]]`: a dense product sampled where a CSR matrix has elements (SDDMM).

    *Shapes*: start [M + 1], column, value [Z], A [M, K], X [N, K]. *Requires*: `0 <= column < N`; start covers 0 .. Z.
    """
    td.require(B1.extent == B.extent + 1)
    for b in td.parallel(B.each):
        for z in td.parallel(Z[start[b] : start[b + 1]]):
            x = X[td.in_range(column[z], N), K]
            value[z] = td.dot(A[b, K], x, over=K, dtype=state(A.dtype, X.dtype))


@td.kernel
def bincount(index: td.Tensor[T, i32], Y: td.Out[V, i32]):
    """`Y[v]` = how many `index[t]` are v; indices outside 0 .. V - 1 count nowhere. Y is passed and overwritten.

    *Shapes*: index [T], Y [V].
    """
    Y[V] = 0
    for t in td.parallel(T):
        at = index[t]
        inside = (at >= 0) & (at < V.extent)
        Y.add_at(td.in_range(td.where(inside, at, 0), V), 1, where=inside)


@td.kernel
def histogram(X: td.Tensor[T], Y: td.Out[V, i32], *, low, high):
    """Counts of X in V bins of equal width from `low` to `high`, the last one closed; NaN and values outside count
    nowhere.

    *Shapes*: X [T], Y [V], which is passed and overwritten. A value within rounding of an edge may fall on either side
    of it.
    """
    Y[V] = 0
    for t in td.parallel(T):
        x = wide(X[t])
        bin = td.floor((x - low) * (V.extent / (high - low)))
        inside = (x >= low) & (x <= high)
        at = td.minimum(td.where(inside, bin, 0.0).to(i32), (V.extent - 1).to(i32))
        Y.add_at(td.in_range(td.maximum(at, 0), V), 1, where=inside)
