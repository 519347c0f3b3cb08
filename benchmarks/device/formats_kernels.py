"""Kernels of `formats.py`."""

from __future__ import annotations

from typing import Any

import treadle as td
from treadle import f32, i32, u4

M, N, K, P, T, D, V = td.dims("M N K P T D V")


@td.kernel
def product(X: td.Tensor[M, K], W: td.Tensor[N, K], Y: td.Out[M, N] = None, *, acc=f32):
    for m, n in td.parallel(M, N):
        s = td.zeros(m, n, dtype=acc)
        for k in td.reduce(K):
            s = td.mma(X[m, k], W[n, k], s)
        Y[m, n] = s.to(Y.dtype)


@td.kernel
def across(X: td.Tensor[M, K], W: td.Tensor[K, N], Y: td.Out[M, N] = None, *, acc=f32):
    """The second operand lies across the depth."""
    for m, n in td.parallel(M, N):
        s = td.zeros(m, n, dtype=acc)
        for k in td.reduce(K):
            s = td.mma(X[m, k], W[k, n], s)
        Y[m, n] = s.to(Y.dtype)


@td.kernel
def rectified(X: td.Tensor[M, K], W: td.Tensor[K, N], Y: td.Out[M, N] = None):
    for m, n in td.parallel(M, N):
        s = td.zeros(m, n, dtype=f32)
        for k in td.reduce(K):
            s = td.mma(td.maximum(X[m, k], 0.0).to(X.dtype), W[k, n], s)
        Y[m, n] = s.to(Y.dtype)


@td.kernel
def scaled_weights(X: td.Tensor[M, K], W: td.Tensor[N, K], scale: td.Tensor[N], Y: td.Out[M, N] = None):
    """Weights of any format, a scale a row of them, before they are contracted."""
    for m, n in td.parallel(M, N):
        s = td.zeros(m, n, dtype=f32)
        for k in td.reduce(K):
            s = td.mma(X[m, k], (W[n, k].to(f32) * scale[n]).to(X.dtype), s)
        Y[m, n] = s.to(Y.dtype)


@td.kernel(numerics=td.Numerics(contract=False))
def rounded(X: td.Tensor[M, K], W: td.Tensor[K, N], Y: td.Out[M, N] = None):
    for m, n in td.parallel(M, N):
        s = td.zeros(m, n)
        for k in td.reduce(K):
            s = td.mma(X[m, k], W[k, n], s)
        Y[m, n] = s


@td.kernel
def narrowed(X: td.Tensor[M, K, f32], Y: td.Out[M, K, u4] = None):
    for m, k in td.parallel(M, K):
        Y[m, k] = X[m, k].to(u4)


@td.kernel
def flipped(X: td.Tensor[M, u4], Y: td.Out[M, u4] = None):
    for m in td.parallel(M):
        Y[m] = (15 - X[m].to(i32)).to(u4)


@td.kernel
def shifted(X: td.Tensor[N], Y: td.Out[N], *, steps=3):
    t = td.zeros(N)
    t[N] = X[N]
    for _ in td.serial(steps):
        t[N[1:]] = t.at(N[1:] - 1, fill=0.0)
    Y[N] = t


@td.kernel
def in_order(G: td.Tensor[T, D], ids: td.Tensor[T, i32], Y: td.Out[V, D]):
    Y[V, D] = 0.0
    for t, d in td.parallel(T, D):
        Y.add_at(td.in_range(ids[t], V), d, G[t, d], order=td.ordered)


@td.kernel
def changed(X: td.Tensor[M, P], at: td.Scalar[i32], Y: td.Out[M] = None, Z: td.Out[M] = None):
    td.require(P.extent == 6)
    td.require(at >= 0)
    td.require(at < 6)
    for m in td.parallel(M.each):
        cell = X[m, P]
        for _ in td.serial(7):
            cell[3] = cell[3] - 2
        Y[m] = cell[3]
        Z[m] = cell[at]


@td.kernel
def counted(X: td.Tensor[M, N, td.bool_], Y: td.Out[M, i32] = None, Some: td.Out[M, td.bool_] = None):
    for m in td.parallel(M.each):
        Y[m] = X[m, N].to(i32).sum(N)
        Some[m] = X[m, N].max(N)


@td.kernel
def through(X: td.Tensor[N], Y: td.Out[N] = None, Z: td.Out[N] = None, Back: td.Out[N] = None, *, to: Any = td.f8e5m2):
    for n in td.parallel(N):
        Y[n] = X[n].to(to)
        Z[n] = X[n].to(to, saturate=True)
        Back[n] = X[n].to(to).to(f32)
