"""Kernels that the driver's tests call."""

from __future__ import annotations

import treadle as td
from treadle import f32, i32

M, N, K, H, C, L, B, B1 = td.dims("M N K H C L B B1")
HC = td.product(H, C)
D = td.dims("D", static=True)


@td.kernel
def double(X: td.Tensor[M], Y: td.Out[M] = None):
    for m in td.parallel(M):
        Y[m] = X[m] + X[m]


@td.kernel
def scale(X: td.Tensor[M], s: td.Scalar[f32], Y: td.Out[M] = None):
    for m in td.parallel(M):
        Y[m] = X[m] * s


@td.kernel
def linear_gelu(X: td.Tensor[M, K], W: td.Tensor[K, N], bias: td.Tensor[N] = None, Y: td.Out[M, N] = None, *, act=None):
    for m, n in td.parallel(M, N):
        acc = td.zeros(m, n, dtype=f32)
        for k in td.reduce(K):
            acc = td.mma(X[m, k], W[k, n], acc)
        if bias is not None:
            acc = acc + bias[n]
        if act is not None:
            acc = act(acc)
        Y[m, n] = acc


@td.kernel
def pairs(X: td.Tensor[M], Y: td.Out[M] = None, Z: td.Out[M] = None):
    for m in td.parallel(M):
        Y[m] = X[m] + 1
        Z[m] = X[m] - 1


@td.kernel
def total(X: td.Tensor[M], S: td.Out[()] = None):
    acc = td.full(value=0.0)
    for m in td.reduce(M):
        acc = acc + X[m].sum(m)
    S[()] = acc


@td.kernel
def unflatten(X: td.Tensor[HC], Y: td.Out[H, C] = None, *, heads):
    td.let(H, heads)
    for h, c in td.parallel(H.each, C):
        Y[h, c] = X[(h, c)]


@td.kernel
def head_sums(X: td.Tensor[M, HC], off: td.Tensor[B1, i32], Y: td.Out[B, HC] = None, *, heads):
    """Sums over ranges of rows; nothing but the products `H*C` says what C is."""
    td.let(H, heads)
    td.let(B, B1.extent - 1)
    for b, h in td.parallel(B.each, H.each):
        s = td.zeros(C)
        for m in td.reduce(M[off[b] : off[b + 1]]):
            s = s + X[m, h, C].sum(m)
        Y[b, (h, C)] = s


@td.kernel
def even(X: td.Tensor[M], Y: td.Out[M] = None):
    td.require(M.extent % 2 == 0)
    for m in td.parallel(M):
        Y[m] = X[m]


@td.kernel
def windows(X: td.Tensor[M], Y: td.Out[L] = None, *, width=3):
    td.let(L, M.extent - width + 1)
    for i in td.parallel(L):
        Y[i] = X.at(i + width - 1, fill=0.0)


@td.kernel
def spread(X: td.Tensor[M], Y: td.Out[M, N] = None):
    for m, n in td.parallel(M, N):
        Y[m, n] = X[m]


@td.kernel
def declared(X: td.Tensor[M, td.bf16], Y: td.Out[M, f32] = None):
    for m in td.parallel(M):
        Y[m] = X[m].to(f32)


@td.kernel
def unrolled(X: td.Tensor[M, N], Y: td.Out[M] = None):
    for m in td.parallel(M):
        s = td.zeros(m)
        for i in range(N.extent):
            s = s + X[m, i] * (i + 1)
        Y[m] = s


@td.kernel
def static(X: td.Tensor[M, D], Y: td.Out[M] = None):
    for m in td.parallel(M):
        Y[m] = X[m, D].sum(D)


@td.kernel
def staged(X: td.Tensor[M], Y: td.Out[M] = None, *, f=None, by=1):
    for m in td.parallel(M):
        x = X[m] * by
        if f is not None:
            x = f(x)
        Y[m] = x


@td.kernel
def listed(X: td.Tensor[M], Y: td.Out[M] = None, *, by):
    for m in td.parallel(M):
        Y[m] = X[m] * by[0]


@td.kernel
def checked(X: td.Tensor[M], Y: td.Out[M] = None):
    for m in td.parallel(M.each):
        td.check(X[m] >= 0, "no negative numbers")
        Y[m] = X[m]


@td.kernel
def checked_twice(X: td.Tensor[M], Y: td.Out[M] = None):
    for m in td.parallel(M):
        td.check(X[m] >= 0, "no negative numbers")
        Y[m] = X[m]
    td.check(X[M].max(M) < 100, "no large numbers")


@td.kernel
def twice_over(X: td.Tensor[M], Y: td.Out[M] = None):
    for m in td.parallel(M):
        Y[m] = 2 * X[m]
    for m in td.parallel(M):
        Y[m] = td.maximum(Y[m], 2 * X[m])


@td.kernel
def two_in_place(X: td.Tensor[M], W: td.Tensor[M], Y: td.Out[M], Z: td.Out[M]):
    for m in td.parallel(M):
        w = W[m]
        Z[m] = w * 2
        Y[m] = X[m] + w


@td.kernel
def running(X: td.Tensor[M], Y: td.Out[M] = None):
    s = td.zeros()
    for m in td.serial(M.each):
        s = s + X[m]
        Y[m] = s


@td.kernel
def printed(X: td.Tensor[M], Y: td.Out[M] = None):
    for m in td.parallel(M.each):
        td.print("x", X[m])
        Y[m] = X[m] + 1


@td.kernel
def printed_cut(X: td.Tensor[M], Y: td.Out[M] = None):
    for m in td.parallel(M):
        td.print("start", m.start)
        Y[m] = X[m] + 1


@td.kernel
def printed_loaded(X: td.Tensor[M], C: td.Tensor[M, td.i32], Y: td.Out[M] = None):
    for m in td.parallel(M.each):
        for i in td.serial(C[m]):
            td.print("i", i.to(td.i32))
        Y[m] = X[m] + 1


@td.kernel
def printed_few(X: td.Tensor[M], Y: td.Out[M] = None):
    td.print("x", X[M], where=X[M] > 2)
    Y[M] = 1.0


@td.kernel
def printed_checked(X: td.Tensor[M], Y: td.Out[M] = None):
    for m in td.parallel(M):
        td.print("x", X[m])
        td.check(X[m] > 0, "all are positive")
        Y[m] = X[m]


@td.kernel
def printed_rows(X: td.Tensor[M, N], Y: td.Out[M] = None):
    td.print("columns", N.extent.to(td.i32))
    for m in td.parallel(M.each):
        s = td.zeros()
        for n in td.serial(N.each.reversed):
            s = s + X[m, n]
            td.print("s", s, where=s > 0)
        if s > 1:
            td.print("big", s)
            td.print("row", X[m, N])
        Y[m] = s
    for t in td.serial(2):
        for m in td.parallel(M):
            for i in td.serial(m.each):
                td.print("sum", X[i, N].sum() * t)


@td.kernel
def printed_product(A: td.Tensor[M, K], B: td.Tensor[K, N], Y: td.Out[M, N] = None):
    for m, n in td.parallel(M, N):
        acc = td.zeros(m, n)
        for k in td.reduce(K):
            acc = td.mma(A[m, k], B[k, n], acc)
        td.print("acc", acc, where=acc > 3)
        Y[m, n] = acc


@td.kernel
def position(X: td.Tensor[M, N], Y: td.Out[M] = None):
    for m in td.parallel(M):
        Y[m] = X[m, N].argmax(N)


@td.kernel
def scaled(X: td.Tensor[M], W: td.Tensor[M], Y: td.Out[M] = None):
    for m in td.parallel(M):
        Y[m] = X[m] * W[m]


@td.kernel
def turned_over(X: td.Tensor[M], Y: td.Out[M] = None):
    for m in td.parallel(M):
        Y[m] = X[M.extent - 1 - m.coords]
