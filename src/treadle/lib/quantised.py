"""Products of quantised matrices: int8, int4 with group scales, fp8 with tensor, row and block scales, and quantising.

A product is taken in the quantised numbers (exactly in i32, or in f32) and scaled where a scale ends: at the end for
scales of rows and columns, once a group for scales along K. Packed 4-bit weights are passed as bytes, low bits first.
"""

from __future__ import annotations

import treadle as td
from treadle import bf16, f4e2m1, f8e4m3, f8e8m0, f32, i4, i8, i32
from treadle.lib.precision import state

M, N, K = td.dims("M N K")
G, R = td.dims("G R")
NG, NR = td.dims("NG NR")
GR = td.product(G, R)
NGR = td.product(NG, NR)
LARGEST_E4M3 = 448.0


@td.kernel
def quantise_int8(X: td.Tensor[M, K], Q: td.Out[M, K, i8] = None, scale: td.Out[M, f32] = None):
    """`Q = round(X / scale)` with `scale[m] = max|X[m, :]| / 127`: symmetric, ties to even; a row of zeros has scale 0.

    *Shapes*: X, Q [M, K]; scale [M]. Gives (Q, scale). *Ensures*: `|X - Q scale| <= scale / 2`, roundings aside.
    """
    for m in td.parallel(M):
        x = X[m, K].to(f32)
        top = td.abs(x).max(K)
        inverse = td.where(top > 0, 127.0 / top, 0.0)
        Q[m, K] = td.minimum(td.maximum(td.round(x * inverse), -127.0), 127.0).to(i8)
        scale[m] = td.maximum(top, 0.0) * (1 / 127)


@td.kernel
def quantise_fp8(X: td.Tensor[M, K], Q: td.Out[M, K, f8e4m3] = None, scale: td.Out[M, f32] = None):
    """`Q = X / scale` in e4m3, `scale[m] = max|X[m, :]| / 448`. *Shapes*: X, Q [M, K]; scale [M]. Gives (Q, scale)."""
    for m in td.parallel(M):
        x = X[m, K].to(f32)
        top = td.maximum(td.abs(x).max(K), 0.0)
        inverse = td.where(top > 0, LARGEST_E4M3 / top, 0.0)
        Q[m, K] = (x * inverse).to(f8e4m3, saturate=True)
        scale[m] = top * (1 / LARGEST_E4M3)


@td.kernel
def int8_matmul(
    X: td.Tensor[M, K, i8],
    W: td.Tensor[K, N, i8],
    x_scale: td.Tensor[M],
    w_scale: td.Tensor[N],
    bias: td.Tensor[N] = None,
    Y: td.Out[M, N] = None,
):
    """`Y = (X W) x_scale w_scale + bias`, the product exact in i32 for K up to 2^17, one scale a row and a column.

    *Shapes*: X [M, K], W [K, N], x_scale [M], w_scale, bias [N], Y [M, N].
    *Source*: Dettmers et al., "LLM.int8()", 2022, section 3 (vector-wise quantisation).
    """
    for m, n in td.parallel(M, N):
        acc = td.zeros(m, n, dtype=i32)
        for k in td.reduce(K):
            acc = td.mma(X[m, k], W[k, n], acc)
        y = acc.to(f32) * (x_scale[m].to(f32) * w_scale[n].to(f32))
        Y[m, n] = y if bias is None else y + bias[n].to(f32)


@td.kernel
def int4_matmul(
    X: td.Tensor[M, GR],
    W: td.Tensor[N, GR, i4],
    scale: td.Tensor[N, G],
    zero: td.Tensor[N, G] = None,
    Y: td.Out[M, N] = None,
    *,
    group=128,
):
    """`Y[m, n] = sum_k X[m, k] (W[n, k] - zero[n, g]) scale[n, g]`, g = k // group: weights of 4 bits, two a byte.

    *Shapes*: X [M, K], W [N, K] as u8 [N, K / 2], scale, zero [N, K / group], Y [M, N]; group divides K.
    *Source*: Frantar et al., "GPTQ", 2022, section 4 (grouping).
    """
    td.let(R, group)
    for m, n in td.parallel(M, N):
        acc = td.zeros(m, n, dtype=f32)
        for g in td.reduce(G.each):
            x, w = X[m, g, R], W[n, g, R].to(X.dtype)
            part = td.dot(x, w, over=R, dtype=f32)
            if zero is not None:
                part = part - x.to(f32).sum(R) * zero[n, g].to(f32)
            acc = acc + part * scale[n, g].to(f32)
        Y[m, n] = acc


@td.kernel
def fp8_matmul(
    X: td.Tensor[M, K],
    W: td.Tensor[K, N],
    x_scale: td.Tensor[M],
    w_scale: td.Tensor[N],
    Y: td.Out[M, N] = None,
):
    """`Y = (X W) x_scale w_scale` of 8-bit floats in f32. A scale for the whole tensor is passed with stride 0.

    *Shapes*: X [M, K], W [K, N] e4m3 or e5m2, x_scale [M], w_scale [N], Y [M, N].
    *Source*: Micikevicius et al., "FP8 Formats for Deep Learning", 2022.
    """
    for m, n in td.parallel(M, N):
        acc = td.zeros(m, n, dtype=state(X.dtype, W.dtype))
        for k in td.reduce(K):
            acc = td.mma(X[m, k], W[k, n], acc)
        Y[m, n] = acc * (x_scale[m].to(f32) * w_scale[n].to(f32))


@td.kernel
def fp8_block_matmul(
    X: td.Tensor[M, GR],
    W: td.Tensor[NGR, GR],
    x_scale: td.Tensor[M, G],
    w_scale: td.Tensor[NG, G],
    Y: td.Out[M, NGR] = None,
    *,
    block=128,
):
    """`Y = sum_g (X_g W_g^T) x_scale[:, g] w_scale[:, g]`: a scale for each stretch of X and each square block of W.

    *Shapes*: X [M, K], W [N, K], x_scale [M, K / block], w_scale [N / block, K / block], Y [M, N].
    *Source*: DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 3.3.2 (fine-grained quantisation).
    """
    td.let(R, block)
    td.let(NR, block)
    for m, b in td.parallel(M, NG.each):
        acc = td.zeros(m, NR, dtype=f32)
        for g in td.reduce(G.each):
            part = td.dot(X[m, g, R], W[b, NR, g, R], over=R, dtype=f32)
            acc = acc + part * (x_scale[m, g].to(f32) * w_scale[b, g].to(f32))
        Y[m, b, NR] = acc


def microscaled(m, n, X, W, x_scale, w_scale, block):
    """`sum_k (X[m, k] x_scale[m, k // block]) (W[n, k] w_scale[n, k // block])` in f32."""
    acc = td.zeros(m, n, dtype=f32)
    for k in td.reduce(GR):
        at = td.in_range(k.coords // block, G)
        x = (X[m, k].to(f32) * x_scale[m, at].to(f32)).to(bf16)
        w = (W[n, k].to(f32) * w_scale[n, at].to(f32)).to(bf16)
        acc = td.mma(x, w, acc)
    return acc


@td.kernel
def mxfp8_matmul(
    X: td.Tensor[M, GR],
    W: td.Tensor[N, GR],
    x_scale: td.Tensor[M, G, f8e8m0],
    w_scale: td.Tensor[N, G, f8e8m0],
    Y: td.Out[M, N] = None,
    *,
    block=32,
):
    """`Y = X W^T` of microscaled 8-bit floats: a power of two for each `block` of elements along K.

    Scaled elements are contracted in bf16, which has them exactly for scales from 2^-110 to 2^111.
    *Shapes*: X [M, K], W [N, K] e4m3 or e5m2, scales [M, K / block] and [N, K / block], Y [M, N].
    *Source*: Open Compute Project, "OCP Microscaling Formats (MX) Specification", version 1.0, section 6.
    """
    td.let(R, block)
    for m, n in td.parallel(M, N):
        Y[m, n] = microscaled(m, n, X, W, x_scale, w_scale, block)


@td.kernel
def mxfp4_matmul(
    X: td.Tensor[M, GR, f4e2m1],
    W: td.Tensor[N, GR, f4e2m1],
    x_scale: td.Tensor[M, G, f8e8m0],
    w_scale: td.Tensor[N, G, f8e8m0],
    Y: td.Out[M, N] = None,
    *,
    block=32,
):
    """`Y = X W^T` of microscaled e2m1 numbers, two a byte: a power of two for each `block` of elements along K.

    Scaled elements are contracted in bf16, which has them exactly for scales from 2^-125 to 2^125.
    *Shapes*: X [M, K] and W [N, K] as u8 [M, K / 2] and [N, K / 2], scales [M, K / block] and [N, K / block], Y [M, N].
    *Source*: Open Compute Project, "OCP Microscaling Formats (MX) Specification", version 1.0, section 6.
    """
    td.let(R, block)
    for m, n in td.parallel(M, N):
        Y[m, n] = microscaled(m, n, X, W, x_scale, w_scale, block)
