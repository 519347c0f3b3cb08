"""Reductions of whole arrays and along rows: sums, means, variances, norms, extrema and where they are.

`rows_*` take a matrix [M, N] and give one number a row; `columns_sum` one a column; those of one number take any
matrix. A vector `x` is passed as `x[None]`. `order=` of a sum is a fold order: `td.unordered` (default), `td.ordered`,
`td.fold_left`, `td.fold_right`.
"""

from __future__ import annotations

import treadle as td
from treadle import i64
from treadle.lib.precision import computing, wide

M, N = td.dims("M N")


@td.kernel
def rows_sum(X: td.Tensor[M, N], Y: td.Out[M] = None, *, order=td.unordered):
    """`Y[m] = sum of X[m, :]`: f16 and bf16 in f32, bool and short integers in i32 or u32. *Shapes*: X [M, N], Y
    [M].
    """
    for m in td.parallel(M):
        Y[m] = X[m, N].sum(N, order=order)


@td.kernel
def rows_prod(X: td.Tensor[M, N], Y: td.Out[M] = None, *, order=td.unordered):
    """`Y[m] = product of X[m, :]`, 1 of no element. *Shapes*: X [M, N], Y [M]."""
    for m in td.parallel(M):
        Y[m] = X[m, N].prod(N, order=order)


@td.kernel
def columns_sum(X: td.Tensor[M, N], Y: td.Out[N] = None):
    """`Y[n] = sum of X[:, n]`, rows in a fold. *Shapes*: X [M, N], Y [N]."""
    total = td.zeros(N, dtype=computing(X.dtype))
    for m in td.reduce(M):
        total = total + wide(X[m, N]).sum(m)
    Y[N] = total


@td.kernel
def total(X: td.Tensor[M, N], Y: td.Out[()] = None, *, order=td.unordered):
    """The sum of all elements, in f32 (f64 of f64); `order=td.ordered` gives the same bits on any machine that keeps
    it.

    *Shapes*: X [M, N], Y a scalar.
    """
    s = td.full(value=0, dtype=computing(X.dtype))
    for m in td.reduce(M, order=order):
        s = s + wide(X[m, N]).sum(N, order=order).sum(m, order=order)
    Y[()] = s


@td.kernel
def rows_mean(X: td.Tensor[M, N], Y: td.Out[M] = None):
    """The mean of each row, NaN of no element. *Shapes*: X [M, N], Y [M]."""
    for m in td.parallel(M):
        Y[m] = X[m, N].mean(N)


@td.kernel
def rows_var(X: td.Tensor[M, N], Y: td.Out[M] = None, *, ddof=0):
    """The variance of each row, squared deviations over `N - ddof`, in two passes. *Shapes*: X [M, N], Y [M]."""
    for m in td.parallel(M):
        Y[m] = X[m, N].var(N, ddof=ddof)


@td.kernel
def rows_norm(X: td.Tensor[M, N], Y: td.Out[M] = None, *, p=2):
    """The p-norm of each row: `p` 1, 2, inf (the largest magnitude) or another positive number. *Shapes*: X [M, N], Y
    [M].
    """
    for m in td.parallel(M):
        a = td.abs(wide(X[m, N]))
        if p == float("inf"):
            Y[m] = td.maximum(a.max(N), 0.0)
        elif p == 1:
            Y[m] = a.sum(N)
        elif p == 2:
            Y[m] = td.sqrt((a * a).sum(N))
        else:
            Y[m] = td.pow(td.pow(a, p).sum(N), 1.0 / p)


@td.kernel
def rows_max(X: td.Tensor[M, N], Y: td.Out[M] = None, at: td.Out[M, i64] = None, *, nan="propagate"):
    """The maximum of each row and the column of the first one. With `nan="ignore"` NaN counts as absent. Gives (Y, at).

    *Shapes*: X [M, N], Y, at [M]. *Requires*: N >= 1, or the values mean nothing.
    """
    for m in td.parallel(M):
        x = X[m, N]
        Y[m] = x.max(N, nan=nan)
        at[m] = x.argmax(N, nan=nan)


@td.kernel
def rows_min(X: td.Tensor[M, N], Y: td.Out[M] = None, at: td.Out[M, i64] = None, *, nan="propagate"):
    """The minimum of each row and the column of the first one, as `rows_max`. Gives (Y, at). *Shapes*: X [M, N], Y, at
    [M].
    """
    for m in td.parallel(M):
        x = X[m, N]
        Y[m] = x.min(N, nan=nan)
        at[m] = x.argmin(N, nan=nan)


@td.kernel
def rows_any(X: td.Tensor[M, N], Y: td.Out[M] = None):
    """Whether an element of the row is not zero; False of none. *Shapes*: X [M, N], Y [M]."""
    for m in td.parallel(M):
        Y[m] = X[m, N].any(N)


@td.kernel
def rows_all(X: td.Tensor[M, N], Y: td.Out[M] = None):
    """Whether every element of the row is not zero; True of none. *Shapes*: X [M, N], Y [M]."""
    for m in td.parallel(M):
        Y[m] = X[m, N].all(N)


@td.kernel
def rows_logsumexp(X: td.Tensor[M, N], Y: td.Out[M] = None):
    """`Y[m] = log(sum(exp(X[m, :])))`, without overflow; -inf of no element and of nothing but -inf. *Shapes*: X [M,
    N], Y [M].
    """
    for m in td.parallel(M):
        x = wide(X[m, N])
        top = x.max(N)
        safe = td.where(td.isinf(top), 0.0, top)
        Y[m] = td.where(top == float("inf"), top, safe + td.log(td.exp(x - safe).sum(N)))
