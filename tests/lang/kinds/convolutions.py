"""Convolutions and pooling: strided, dilated, padded, grouped, transposed; the position of a maximum."""

from __future__ import annotations

import treadle as td
from treadle import i64

B, Ci, Co, G, Hi, Wi, Ho, Wo, R, S, Cg, Og = td.dims("B Ci Co G Hi Wi Ho Wo R S Cg Og")
CI, CO = td.product(G, Cg), td.product(G, Og)
inf = float("inf")


@td.kernel
def conv2d(
    X: td.Tensor[B, Hi, Wi, Ci],
    W: td.Tensor[R, S, Ci, Co],
    bias: td.Tensor[Co] = None,
    Y: td.Out[B, Ho, Wo, Co] = None,
    *,
    stride=1,
    dilation=1,
    pad=0,
):
    td.let(Ho, (Hi.extent + 2 * pad - dilation * (R.extent - 1) - 1) // stride + 1)
    td.let(Wo, (Wi.extent + 2 * pad - dilation * (S.extent - 1) - 1) // stride + 1)
    for b, y, x, o in td.parallel(B.each, Ho, Wo, Co):
        acc = td.zeros(y, x, o)
        for r, s in td.reduce(R.each, S.each):
            window = X.at(b, y * stride + r * dilation - pad, x * stride + s * dilation - pad, Ci, fill=0)
            acc = td.mma(window, W[r, s, Ci, o], acc)
        if bias is not None:
            acc = acc + bias[o]
        Y[b, y, x, o] = acc


@td.kernel
def grouped(X: td.Tensor[B, CI, Wi], W: td.Tensor[CO, Cg, S], Y: td.Out[B, CO, Wo] = None, *, stride=1):
    td.let(Wo, (Wi.extent - S.extent) // stride + 1)
    for b, g, o, x in td.parallel(B.each, G.each, Og, Wo):
        acc = td.zeros(o, x)
        for s in td.reduce(S.each):
            part = X.at(b, (g, Cg), x * stride + s, fill=0)
            acc = td.mma(W[(g, o), Cg, s], part, acc)
        Y[b, g, o, x] = acc


@td.kernel
def depthwise(X: td.Tensor[B, Ci, Hi, Wi], W: td.Tensor[Ci, R, S], Y: td.Out[B, Ci, Ho, Wo] = None):
    td.let(Ho, Hi.extent - R.extent + 1)
    td.let(Wo, Wi.extent - S.extent + 1)
    for b, c, y, x in td.parallel(B.each, Ci, Ho, Wo):
        Y[b, c, y, x] = (X.at(b, c, y + R, x + S, fill=0) * W[c, R, S]).sum(R, S)


@td.kernel
def transposed(X: td.Tensor[B, Wi, Ci], W: td.Tensor[S, Ci, Co], Y: td.Out[B, Wo, Co] = None, *, stride=2):
    """Every output gathers the inputs that reach it: x * stride + s = w."""
    td.let(Wo, (Wi.extent - 1) * stride + S.extent)
    for b, w, o in td.parallel(B.each, Wo, Co):
        acc = td.zeros(w, o)
        for s in td.reduce(S.each):
            at = w - s
            hit = (at % stride == 0) & (at >= 0)
            x = td.where(hit, X.at(b, at // stride, Ci, fill=0), 0)
            acc = td.mma(x, W[s, Ci, o], acc)
        Y[b, w, o] = acc


@td.kernel
def scattered(X: td.Tensor[B, Wi, Ci], W: td.Tensor[S, Ci, Co], Y: td.Out[B, Wo, Co] = None, *, stride=2):
    """The same by colliding additions."""
    td.let(Wo, (Wi.extent - 1) * stride + S.extent)
    Y[B, Wo, Co] = 0.0
    for b, x in td.parallel(B.each, Wi):
        Y.add_at(b, td.in_range(x * stride + S, Wo), Co, td.dot(X[b, x, Ci], W[S, Ci, Co], over=Ci))


@td.kernel
def weight_gradient(X: td.Tensor[B, Wi, Ci], dY: td.Tensor[B, Wo, Co], dW: td.Out[S, Ci, Co] = None):
    td.require(Wi.extent == Wo.extent + S.extent - 1)
    for s in td.parallel(S.each):
        acc = td.zeros(Ci, Co)
        for b, x in td.reduce(B.each, Wo):
            acc = td.mma(X.at(b, x + s, Ci, fill=0), dY[b, x, Co], acc)
        dW[s, Ci, Co] = acc


@td.kernel
def max_pool(
    X: td.Tensor[B, Hi, Wi], Y: td.Out[B, Ho, Wo] = None, At: td.Out[B, Ho, Wo, i64] = None, *, size=2, stride=2, pad=0
):
    P, Q = td.dims("P", size), td.dims("Q", size)
    td.let(Ho, (Hi.extent + 2 * pad - size) // stride + 1)
    td.let(Wo, (Wi.extent + 2 * pad - size) // stride + 1)
    for b, y, x in td.parallel(B, Ho, Wo):
        rows, columns = y * stride + P - pad, x * stride + Q - pad
        window = X.at(b, rows, columns, fill=-inf)
        best = window.argmax(P, Q)
        Y[b, y, x] = window.max(P, Q)
        At[b, y, x] = (y * stride + best // size - pad) * Wi.extent + x * stride + best % size - pad


@td.kernel
def average_pool(X: td.Tensor[B, Wi], Y: td.Out[B, Wo] = None, *, size=3):
    P = td.dims("P", size)
    td.let(Wo, Wi.extent // size)
    for b, x in td.parallel(B, Wo):
        Y[b, x] = X.at(b, x * size + P, fill=0).mean(P)


@td.kernel
def unpool(V: td.Tensor[B, Wo], At: td.Tensor[B, Wo, i64], Y: td.Out[B, Wi] = None):
    Y[B, Wi] = 0.0
    for b, x in td.parallel(B, Wo):
        Y.add_at(b, td.in_range(At[b, x], Wi), V[b, x])
