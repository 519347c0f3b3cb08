"""Sorting along rows, the greatest elements, ranks, medians, searching, and keeping what a mask marks.

Sorts are stable with NaN last; of equal elements the one with the lowest column comes first, also in descending order.
"""

from __future__ import annotations

import treadle as td
from treadle import i32, i64

M, N, L, Q = td.dims("M N L Q")


@td.kernel
def sort(X: td.Tensor[M, N], Y: td.Out[M, N] = None, at: td.Out[M, N, i64] = None, *, descending=False):
    """Each row in order and the columns its elements come from: `Y[m, n] = X[m, at[m, n]]`. Gives (Y, at).

    *Shapes*: X, Y, at [M, N].
    """
    for m in td.parallel(M):
        x = X[m, N]
        Y[m, N] = td.sort(x, N, descending=descending)
        at[m, N] = td.argsort(x, N, descending=descending)


@td.kernel
def argsort(X: td.Tensor[M, N], at: td.Out[M, N, i64] = None, *, descending=False):
    """The columns of each row in the order of its elements. *Shapes*: X, at [M, N]."""
    for m in td.parallel(M):
        at[m, N] = td.argsort(X[m, N], N, descending=descending)


@td.kernel
def topk(X: td.Tensor[M, N], Y: td.Out[M, L] = None, at: td.Out[M, L, i64] = None, *, k):
    """The `k` greatest elements of each row, the greatest first, and their columns. Gives (Y, at).

    *Shapes*: X [M, N], Y, at [M, k]. *Requires*: k <= N.
    """
    td.let(L, k)
    for m in td.parallel(M):
        Y[m, L], at[m, L] = td.topk(X[m, N], N, to=L)


@td.kernel
def rows_median(X: td.Tensor[M, N], Y: td.Out[M] = None):
    """The median of each row: the mean of the two in the middle where N is even. *Shapes*: X [M, N], N >= 1, Y [M]."""
    for m in td.parallel(M):
        x = td.sort(X[m, N], N)
        low = x[m, td.in_range((N.extent - 1) // 2, N)]
        high = x[m, td.in_range(N.extent // 2, N)]
        Y[m] = (low + high) * 0.5


@td.kernel
def ranks(X: td.Tensor[M, N], Y: td.Out[M, N, i64] = None):
    """`Y[m, n]` = the place of X[m, n] in its sorted row: the inverse of `argsort`. *Shapes*: X, Y [M, N]."""
    for m in td.parallel(M.each):
        order = td.argsort(X[m, N], N)
        Y[m, td.in_range(order, N)] = N.coords


@td.kernel
def searchsorted(X: td.Tensor[N], V: td.Tensor[Q], at: td.Out[Q, i64] = None, *, right=False):
    """Where each V would stand in the ascending X: before its equals, or behind them with `right=True`.

    *Shapes*: X [N], V, at [Q]. Binary search: 32 steps do for N below 2^32.
    """
    for q in td.parallel(Q):
        v = V[q]
        low, high = td.zeros(q, dtype=i64), td.full(q, value=N.extent, dtype=i64)
        for _ in td.serial(32):
            middle = (low + high) // 2
            x = X.at(middle, fill=0)
            below = (low < high) & (x <= v if right else x < v)
            high = td.where((low < high) & ~below, middle, high)
            low = td.where(below, middle + 1, low)
        at[q] = low


@td.kernel
def compact(X: td.Tensor[N], keep: td.Tensor[N, td.bool_], Y: td.Out[N] = None, count: td.Out[i32] = None):
    """The elements that `keep` marks, in order, then zeros; and how many they are. Gives (Y, count).

    *Shapes*: X, keep, Y [N]; count is a scalar.
    """
    Y[N] = 0
    kept = keep[N]
    place = td.scan(kept.to(i32), N, td.Add, exclusive=True)
    for n in td.parallel(N):
        Y.set_at(td.in_range(place[n], N), X[n], where=kept[n])
    count[()] = kept.sum(N)


@td.kernel
def unique_sorted(X: td.Tensor[N], Y: td.Out[N] = None, count: td.Out[i32] = None):
    """The different elements of an ascending X, once each, then zeros; and how many they are. Gives (Y, count).

    *Shapes*: X, Y [N]; count is a scalar.
    """
    Y[N] = 0
    x = X[N]
    new = (N.coords == 0) | (x != X.at(N.coords - 1, fill=0))
    place = td.scan(new.to(i32), N, td.Add, exclusive=True)
    for n in td.parallel(N):
        Y.set_at(td.in_range(place[n], N), x[n], where=new[n])
    count[()] = new.sum(N)
