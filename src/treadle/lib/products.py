"""Matrix products: plain, batched, grouped by experts, split along the contraction, of vectors.

A transposed operand is a view, `matmul(a.T, b)`: any strides do, and the plan packs or reads them as they lie. The
gradients behind `Y = A B` are products too: `dA = matmul(dY, B.T)`, `dB = matmul(A.T, dY)`. Sums are in f32; f64 with
f64; i32 of integers, exactly.
"""

from __future__ import annotations

import treadle as td
from treadle import i32
from treadle.lib.precision import state, wide

M, N, K = td.dims("M N K")
B, T, E, E1, S = td.dims("B T E E1 S")
M2 = M.alias("M2")


@td.kernel
def matmul(
    A: td.Tensor[M, K],
    B: td.Tensor[K, N],
    C: td.Tensor[M, N] = None,
    Y: td.Out[M, N] = None,
    *,
    alpha=1,
    beta=1,
):
    """`Y = alpha A B + beta C`. *Shapes*: A [M, K], B [K, N], C [M, N] or None, Y [M, N]; Y may be C itself."""
    for m, n in td.parallel(M, N):
        acc = td.zeros(m, n, dtype=state(A.dtype, B.dtype))
        for k in td.reduce(K):
            acc = td.mma(A[m, k], B[k, n], acc)
        if alpha != 1:
            acc = acc * alpha
        if C is not None:
            c = C[m, n].to(acc.dtype)
            acc = acc + (c if beta == 1 else c * beta)
        Y[m, n] = acc


@td.kernel
def batched_matmul(X: td.Tensor[B, M, K], W: td.Tensor[B, K, N], Y: td.Out[B, M, N] = None):
    """`Y[b] = X[b] W[b]`. A matrix that all share is passed with stride 0: `np.broadcast_to(w, (b, k, n))`.

    *Shapes*: X [B, M, K], W [B, K, N], Y [B, M, N].
    """
    for b, m, n in td.parallel(B.each, M, N):
        acc = td.zeros(m, n, dtype=state(X.dtype, W.dtype))
        for k in td.reduce(K):
            acc = td.mma(X[b, m, k], W[b, k, n], acc)
        Y[b, m, n] = acc


@td.kernel
def matvec(A: td.Tensor[M, K], x: td.Tensor[K], y: td.Out[M] = None):
    """`y = A x`. *Shapes*: A [M, K], x [K], y [M]; `matvec(a.T, x)` is x A."""
    for m in td.parallel(M):
        acc = td.zeros(m, dtype=state(A.dtype, x.dtype))
        for k in td.reduce(K):
            acc = td.mma(A[m, k], x[k], acc)
        y[m] = acc


@td.kernel
def outer(x: td.Tensor[M], y: td.Tensor[N], Y: td.Out[M, N] = None):
    """`Y[m, n] = x[m] y[n]`. *Shapes*: x [M], y [N], Y [M, N]."""
    for m, n in td.parallel(M, N):
        Y[m, n] = wide(x[m]) * wide(y[n])


@td.kernel
def gram(A: td.Tensor[M, K], Y: td.Out[M, M2] = None):
    """`Y = A A^T`: the inner products of all pairs of rows. *Shapes*: A [M, K], Y [M, M]."""
    for i, j in td.parallel(M, M2):
        acc = td.zeros(i, j, dtype=state(A.dtype))
        for k in td.reduce(K):
            acc = td.mma(A[i, k], A[j, k], acc)
        Y[i, j] = acc


@td.kernel
def grouped_matmul(X: td.Tensor[T, K], W: td.Tensor[E, K, N], start: td.Tensor[E1, i32], Y: td.Out[T, N] = None):
    """`Y[t] = X[t] W[e]` for the rows `start[e] <= t < start[e + 1]` of each group e; groups of any size, none too.

    Rows outside `start[0] .. start[E]` are not written. *Shapes*: X [T, K], W [E, K, N], start [E + 1] ascending, Y
    [T, N]. *Source*: Gale et al., "MegaBlocks", 2022, section 4: products of ragged groups without padding.
    """
    td.require(E1.extent == E.extent + 1)
    for e in td.parallel(E.each):
        for t, n in td.parallel(T[start[e] : start[e + 1]], N):
            acc = td.zeros(t, n, dtype=state(X.dtype, W.dtype))
            for k in td.reduce(K):
                acc = td.mma(X[t, k], W[e, k, n], acc)
            Y[t, n] = acc


@td.kernel
def split_matmul(A: td.Tensor[M, K], B: td.Tensor[K, N], Y: td.Out[M, N] = None, *, splits=4):
    """`Y = A B`, K cut by hand into `splits` stretches whose products are added up afterwards: for few rows and a long
    K.

    *Shapes*: A [M, K], B [K, N], Y [M, N]. *Requires*: splits >= 1.
    """
    td.let(S, splits)
    length = (K.extent + splits - 1) // splits
    parts = td.empty(S, M, N, dtype=state(A.dtype, B.dtype))
    for s, m, n in td.parallel(S.each, M, N):
        acc = td.zeros(m, n, dtype=state(A.dtype, B.dtype))
        for k in td.reduce(K[s * length : (s + 1) * length]):
            acc = td.mma(A[m, k], B[k, n], acc)
        parts[s, m, n] = acc
    for m, n in td.parallel(M, N):
        Y[m, n] = parts[S, m, n].sum(S)
