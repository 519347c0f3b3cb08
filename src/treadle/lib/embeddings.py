"""Tables and rows by index: embedding and its gradient, bags, gathers and scatters.

Indices are promised to be in range (`sanitize` tests it); a row of index `skip` is 0 and takes no gradient.
"""

from __future__ import annotations

import treadle as td
from treadle import f32, i32
from treadle.lib.precision import wide

T, V, D, B1, B = td.dims("T V D B1 B")
M, N, L = td.dims("M N L")


@td.kernel
def embedding(index: td.Tensor[T, i32], table: td.Tensor[V, D], Y: td.Out[T, D] = None, *, skip=None):
    """`Y[t] = table[index[t]]`, 0 where `index[t] == skip`. *Shapes*: index [T], table [V, D], Y [T, D].

    *Requires*: `0 <= index[t] < V`, but for `skip`, which may be any number.
    """
    for t, d in td.parallel(T, D):
        at = index[t]
        if skip is None:
            Y[t, d] = table[td.in_range(at, V), d]
        else:
            Y[t, d] = td.where(at == skip, 0, table.at(at, d, fill=0))


@td.kernel
def embedding_backward(
    index: td.Tensor[T, i32], dY: td.Tensor[T, D], dtable: td.Out[V, D, f32], *, skip=None, order=td.unordered
):
    """`dtable[v] = sum of dY[t] where index[t] = v`, added by atomics; `order=td.ordered` fixes the bits.

    *Shapes*: index [T], dY [T, D], dtable [V, D], which is passed and overwritten. *Requires*: `0 <= index[t] < V`,
    but for `skip`.
    """
    dtable[V, D] = 0.0
    for t, d in td.parallel(T, D):
        at = index[t]
        keep = None
        if skip is not None:
            keep = at != skip
            at = td.where(keep, at, 0)
        dtable.add_at(td.in_range(at, V), d, dY[t, d].to(f32), where=keep, order=order)


@td.kernel
def embedding_bag(
    index: td.Tensor[T, i32], start: td.Tensor[B1, i32], table: td.Tensor[V, D], Y: td.Out[B, D] = None, *, mean=False
):
    """`Y[b]`: the sum (or mean) of the rows `index[start[b]] .. index[start[b + 1] - 1]`; 0 of an empty bag.

    *Shapes*: index [T], start [B + 1] ascending, table [V, D], Y [B, D].
    """
    td.let(B, B1.extent - 1)
    for b, d in td.parallel(B.each, D):
        lo, hi = start[b], start[b + 1]
        total = td.zeros(d)
        for t in td.reduce(T[lo:hi]):
            total = total + table[td.in_range(index[t], V), d].to(f32).sum(t)
        Y[b, d] = total / td.maximum(hi - lo, 1).to(f32) if mean else total


@td.kernel
def gather_rows(X: td.Tensor[M, D], index: td.Tensor[T, i32], Y: td.Out[T, D] = None):
    """`Y[t] = X[index[t]]`. *Shapes*: X [M, D], index [T] in 0 .. M - 1, Y [T, D]."""
    for t, d in td.parallel(T, D):
        Y[t, d] = X[td.in_range(index[t], M), d]


@td.kernel
def gather_elements(X: td.Tensor[M, N], index: td.Tensor[M, L, i32], Y: td.Out[M, L] = None):
    """`Y[m, l] = X[m, index[m, l]]`. *Shapes*: X [M, N], index [M, L] in 0 .. N - 1, Y [M, L]."""
    for m, i in td.parallel(M, L):
        Y[m, i] = X[m, td.in_range(index[m, i], N)]


@td.kernel
def scatter_rows(X: td.Tensor[T, D], index: td.Tensor[T, i32], Y: td.Out[M, D]):
    """`Y[index[t]] = X[t]`, the indices different from one another; other rows stay as they are.

    *Shapes*: X [T, D], index [T] in 0 .. M - 1, Y [M, D], which is passed.
    """
    for t, d in td.parallel(T, D):
        Y[td.in_range(index[t], M), d] = X[t, d]


@td.kernel
def scatter_add_rows(X: td.Tensor[T, D], index: td.Tensor[T, i32], Y: td.Out[M, D], *, order=td.unordered):
    """`Y[index[t]] += X[t]`, indices may repeat. *Shapes*: X [T, D], index [T] in 0 .. M - 1, Y [M, D], which is
    passed.
    """
    for t, d in td.parallel(T, D):
        Y.add_at(td.in_range(index[t], M), d, wide(X[t, d]), order=order)
