"""Operators on the rows of matrices: softmax."""

from __future__ import annotations

import treadle as td
from treadle import f32

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
