"""Factorisations and solves of small dense matrices: Cholesky, LU, triangular systems, QR.

Each is a `serial` region over columns that carries what is left of the matrix, as it is written on the blackboard. f32
(f64 of f64).
"""

from __future__ import annotations

import treadle as td
from treadle import i32
from treadle.lib.precision import wide

I, N, M = td.dims("I N M")  # noqa: E741 (I is a dimension)
J = I.alias("J")
N2 = N.alias("N2")


@td.kernel
def cholesky(A: td.Tensor[I, J], L: td.Out[I, J] = None):
    """The lower triangle L with `A = L L^T`, zeros above; NaN from the first column on where A is not positive
    definite.

    Only the lower triangle of A counts. *Shapes*: A, L [I, I].
    *Source*: Golub and Van Loan, "Matrix Computations", 4th edition, section 4.2.5 (outer products).
    """
    a = wide(A[I, J])
    for k in td.serial(I.each):
        root = td.sqrt(a[k, k])
        column = td.where(I > k, a[I, k] / root, td.where(I == k, root, 0.0))
        L[I, k] = column
        a = a - column * column[J]


@td.kernel
def triangular_solve(L: td.Tensor[I, J], B: td.Tensor[I, M], X: td.Out[I, M] = None, *, lower=True, unit=False):
    """The X with `L X = B`: forward from the first row, or backward of an upper triangle with `lower=False`.

    With `unit` the diagonal is taken as 1. Only that triangle of L counts. *Shapes*: L [I, I], B, X [I, M].
    *Source*: Golub and Van Loan, section 3.1.4 (column-oriented).
    """
    b = wide(B[I, M])
    for k in td.serial(I.each if lower else I.reversed.each):
        x = b[k, M] if unit else b[k, M] / wide(L[k, k])
        X[k, M] = x
        b = b - wide(L[I, k]) * x


@td.kernel
def lu(A: td.Tensor[I, J], F: td.Out[I, J] = None, order: td.Out[I, i32] = None):
    """`A[order] = L U` with partial pivoting: F holds U, and below its diagonal L, whose diagonal is 1. Gives (F,
    order).

    *Shapes*: A, F [I, I], order [I]. *Source*: Golub and Van Loan, section 3.4.1; the first of equal pivots.
    """
    a, rows = wide(A[I, J]), I.coords
    for k in td.serial(I.each):
        size = td.where(I >= k, td.abs(a[I, k]), -1.0)
        best = td.in_range(size.argmax(I), I)
        swapped = td.in_range(td.where(I == k, best, td.where(I == best, k, I)), I)
        rows = rows[swapped]
        a = a[swapped, J]
        factor = td.where(I > k, a[I, k] / a[k, k], 0.0)
        a = td.where((J == k) & (I > k), factor, a - factor * td.where(J >= k, a[k, J], 0.0))
    F[I, J] = a
    order[I] = rows.to(i32)


@td.kernel
def qr(A: td.Tensor[M, N], Q: td.Out[M, N] = None, R: td.Out[N, N2] = None):
    """`A = Q R`, the columns of Q orthonormal, R upper with a positive diagonal. A has full rank, M >= N. Gives (Q, R).

    *Shapes*: A, Q [M, N], R [N, N]. *Source*: modified Gram-Schmidt; Golub and Van Loan, section 5.2.8.
    """
    a = wide(A[M, N])
    for k in td.serial(N.each):
        column = a[M, k]
        length = td.sqrt((column * column).sum(M))
        q = column / length
        Q[M, k] = q
        along = (q * a).sum(M)
        R[k, N2] = td.where(N2 > k, along[N2], td.where(N2 == k, length, 0.0))
        a = a - q * td.where(N > k, along, 0.0)
