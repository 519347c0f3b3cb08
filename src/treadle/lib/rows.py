"""Softmax and its kin on the rows of matrices, and the gradients behind them."""

from __future__ import annotations

import treadle as td
from treadle import f32
from treadle.lib.precision import wide

M, N = td.dims("M N")


@td.kernel
def softmax(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    """`Y[m, :] = exp(X[m, :] - max) / sum`, computed in f32, stored in the dtype of `Y` (of f32 when left out).

    *Shapes*: X, Y [M, N]; rows of any length, none too. *Source*: the three-pass form with the maximum subtracted.
    """
    for m in td.parallel(M):
        x = X[m, N].to(f32)
        e = td.exp(x - x.max(N))
        Y[m, N] = e / e.sum(N)


@td.kernel
def masked_softmax(X: td.Tensor[M, N], keep: td.Tensor[M, N, td.bool_], Y: td.Out[M, N] = None):
    """softmax over the elements of each row that `keep` marks, 0 at the others; a row that keeps none is all 0.

    *Shapes*: X, keep, Y [M, N]. What X holds where keep is False does not matter, NaN too.
    """
    for m in td.parallel(M):
        seen = keep[m, N]
        x = td.where(seen, wide(X[m, N]), -float("inf"))
        top = x.max(N)
        e = td.where(seen, td.exp(x - top), 0.0)
        Y[m, N] = td.where(seen, e / e.sum(N), 0.0)


@td.kernel
def softmax_backward(Y: td.Tensor[M, N], dY: td.Tensor[M, N], dX: td.Out[M, N] = None):
    """`dX = Y (dY - sum(Y dY))`, with the Y that `softmax` gave. *Shapes*: Y, dY, dX [M, N]."""
    for m in td.parallel(M):
        y, d = wide(Y[m, N]), wide(dY[m, N])
        dX[m, N] = y * (d - (y * d).sum(N))


@td.kernel
def log_softmax(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    """`Y[m, :] = x - log(sum(exp(x)))` with `x = X[m, :] - max`. *Shapes*: X, Y [M, N]."""
    for m in td.parallel(M):
        x = wide(X[m, N])
        x = x - x.max(N)
        Y[m, N] = x - td.log(td.exp(x).sum(N))


@td.kernel
def log_softmax_backward(Y: td.Tensor[M, N], dY: td.Tensor[M, N], dX: td.Out[M, N] = None):
    """`dX = dY - exp(Y) sum(dY)`, with the Y that `log_softmax` gave. *Shapes*: Y, dY, dX [M, N]."""
    for m in td.parallel(M):
        d = wide(dY[m, N])
        dX[m, N] = d - td.exp(wide(Y[m, N])) * d.sum(N)
