"""Copies that change the order or the type of elements: transposes, permutations, concatenation, padding, triangles."""

from __future__ import annotations

import treadle as td
from treadle import i32

A, B, C, D = td.dims("A B C D")
M, N, N2 = td.dims("M N N2")
P, Q = td.dims("P Q")
PQ = td.product(P, Q)


@td.kernel
def transpose(X: td.Tensor[M, N], Y: td.Out[N, M] = None):
    """`Y[n, m] = X[m, n]`, contiguous. *Shapes*: X [M, N], Y [N, M]."""
    for m, n in td.parallel(M, N):
        Y[n, m] = X[m, n]


@td.kernel
def copy(X: td.Tensor[A, B, C, D], Y: td.Out[A, B, C, D] = None, *, dtype=None):
    """`Y = X`, contiguous and in `dtype` when it is left out: of any view, `copy(x.transpose(0, 2, 1, 3))`.

    *Shapes*: X, Y [A, B, C, D]; fewer axes are passed with axes of 1.
    """
    for a, b, c, d in td.parallel(A.each, B.each, C, D):
        Y[a, b, c, d] = X[a, b, c, d] if dtype is None else X[a, b, c, d].to(dtype)


@td.kernel
def concatenate(X: td.Tensor[M, P], Z: td.Tensor[M, Q], Y: td.Out[M, N] = None):
    """The columns of X, then those of Z. *Shapes*: X [M, P], Z [M, Q], Y [M, P + Q]."""
    td.let(N, P.extent + Q.extent)
    for m in td.parallel(M):
        Y[m, td.in_range(P.coords, N)] = X[m, P]
        Y[m, td.in_range(Q + P.extent, N)] = Z[m, Q].to(X.dtype)


@td.kernel
def pad(X: td.Tensor[M, N], Y: td.Out[P, Q] = None, *, before, after, value=0):
    """X with `before` and `after` (rows, columns) elements of `value` around it; negative numbers cut.

    *Shapes*: X [M, N], Y [M + rows, N + columns].
    """
    td.let(P, M.extent + before[0] + after[0])
    td.let(Q, N.extent + before[1] + after[1])
    for p, q in td.parallel(P, Q):
        Y[p, q] = X.at(p - before[0], q - before[1], fill=value)


@td.kernel
def triangle(X: td.Tensor[M, N], Y: td.Out[M, N] = None, *, lower=True, diagonal=0):
    """X on and below (above, with `lower=False`) the diagonal `n - m == diagonal`, 0 elsewhere. *Shapes*: X, Y [M,
    N].
    """
    for m, n in td.parallel(M, N):
        keep = n - m <= diagonal if lower else n - m >= diagonal
        Y[m, n] = td.where(keep, X[m, n], 0)


@td.kernel
def split_heads(X: td.Tensor[A, B, PQ], Y: td.Out[A, P, B, Q] = None, *, heads):
    """`Y[a, p, b, q] = X[a, b, p Q + q]`: [batch, tokens, heads width] to [batch, heads, tokens, width].

    *Shapes*: X [A, B, heads Q], Y [A, heads, B, Q].
    """
    td.let(P, heads)
    for a, p, b in td.parallel(A.each, P.each, B):
        Y[a, p, b, Q] = X[a, b, p, Q]


@td.kernel
def one_hot(index: td.Tensor[M, i32], Y: td.Out[M, N]):
    """`Y[m, n] = 1 where index[m] == n else 0`; Y is passed. *Shapes*: index [M], Y [M, N]."""
    for m, n in td.parallel(M, N):
        Y[m, n] = td.where(index[m] == n, 1, 0)
