"""Linear layers: plain, and gated with two weights."""

from __future__ import annotations

import treadle as td
from treadle import f32

M, N, K = td.dims("M N K")


@td.kernel
def linear(
    X: td.Tensor[M, K],
    W: td.Tensor[K, N],
    bias: td.Tensor[N] = None,
    Y: td.Out[M, N] = None,
    *,
    act=None,
):
    """`Y = act(X W + bias)` with f32 state; `act` is a function such as `td.gelu`, or None.

    *Shapes*: X [M, K], W [K, N] in any storage order, bias [N] or None, Y [M, N].
    """
    for m, n in td.parallel(M, N):
        acc = td.zeros(m, n, dtype=f32)
        for k in td.reduce(K):
            acc = td.mma(X[m, k], W[k, n], acc)
        if bias is not None:
            acc = acc + bias[n]
        Y[m, n] = acc if act is None else act(acc)


@td.kernel
def gated_linear(
    X: td.Tensor[M, K],
    gate: td.Tensor[K, N],
    up: td.Tensor[K, N],
    Y: td.Out[M, N] = None,
    *,
    act=td.silu,
):
    """`Y = act(X gate) * (X up)` with f32 state: one pass over X for both products.

    *Shapes*: X [M, K], gate and up [K, N], Y [M, N]. *Source*: gated linear units (Shazeer, 2020).
    """
    for m, n in td.parallel(M, N):
        g, u = td.zeros(m, n, dtype=f32), td.zeros(m, n, dtype=f32)
        for k in td.reduce(K):
            x = X[m, k]
            g = td.mma(x, gate[k, n], g)
            u = td.mma(x, up[k, n], u)
        Y[m, n] = act(g) * u
