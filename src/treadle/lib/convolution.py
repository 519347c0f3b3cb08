"""Convolution in one, two and three dimensions: strided, dilated, padded, grouped, depthwise and transposed.

As in neural networks a convolution is a correlation: `Y[o] = sum_r X[o stride + r dilation - pad] W[r]`, and elements
outside the image are 0. Every kernel is a sum of products over taps and channels; windows are read with
`.at(..., fill=0)`. `pad`, `stride` and `dilation` are one number or one for each axis.
"""

from __future__ import annotations

import treadle as td
from treadle.lib.precision import state, wide

B, H, V, G, P, Q, Ho, Vo, KH, KV = td.dims("B H V G P Q Ho Vo KH KV")
L, Lo, KL, D, Do, KD = td.dims("L Lo KL D Do KD")
CI = td.product(G, P)  # channels in: P of each group
CO = td.product(G, Q)  # channels out: Q of each group
C, N = td.dims("C N")


def pair(x, count=2):
    """`x` for each of `count` axes."""
    return tuple(x) if isinstance(x, (tuple, list)) else (x,) * count


def windows(size, taps, stride, pad, dilation):
    """How many places a window of `taps` has along an axis of `size`."""
    return (size + 2 * pad - dilation * (taps - 1) - 1) // stride + 1


@td.kernel
def conv1d(
    X: td.Tensor[B, CI, L],
    W: td.Tensor[CO, P, KL],
    bias: td.Tensor[CO] = None,
    Y: td.Out[B, CO, Lo] = None,
    *,
    stride=1,
    pad=0,
    dilation=1,
    groups=1,
):
    """Convolution along one axis. *Shapes*: X [B, channels in, L]; W [channels out, channels in / groups, taps]; bias
    [channels out] or None; Y [B, channels out, Lo], `Lo = (L + 2 pad - dilation (taps - 1) - 1) // stride + 1`.
    """
    td.let(G, groups)
    td.let(Lo, windows(L.extent, KL.extent, stride, pad, dilation))
    for b, g, q, x in td.parallel(B.each, G.each, Q, Lo):
        acc = td.zeros(q, x, dtype=state(X.dtype, W.dtype))
        for r in td.reduce(KL.each):
            acc = td.mma(W[g, q, P, r], X.at(b, g, P, x * stride + r * dilation - pad, fill=0), acc)
        Y[b, g, q, x] = acc if bias is None else acc + wide(bias[g, q])


@td.kernel
def conv2d(
    X: td.Tensor[B, CI, H, V],
    W: td.Tensor[CO, P, KH, KV],
    bias: td.Tensor[CO] = None,
    Y: td.Out[B, CO, Ho, Vo] = None,
    *,
    stride=1,
    pad=0,
    dilation=1,
    groups=1,
):
    """Convolution of images, channels first (NCHW). *Shapes*: X [B, channels in, H, V]; W [channels out, channels in /
    groups, taps, taps]; bias [channels out] or None; Y [B, channels out, Ho, Vo], extents as `conv1d`. *Source*:
    Dumoulin and Visin, "A guide to convolution arithmetic for deep learning", 2016, relationship 6 and section 5.1
    (dilation).
    """
    (sy, sx), (py, px), (dy, dx) = pair(stride), pair(pad), pair(dilation)
    td.let(G, groups)
    td.let(Ho, windows(H.extent, KH.extent, sy, py, dy))
    td.let(Vo, windows(V.extent, KV.extent, sx, px, dx))
    for b, g, y, q, x in td.parallel(B.each, G.each, Ho.each, Q, Vo):
        acc = td.zeros(q, x, dtype=state(X.dtype, W.dtype))
        for r, s in td.reduce(KH.each, KV.each):
            window = X.at(b, g, P, y * sy + r * dy - py, x * sx + s * dx - px, fill=0)
            acc = td.mma(W[g, q, P, r, s], window, acc)
        Y[b, g, q, y, x] = acc if bias is None else acc + wide(bias[g, q])


@td.kernel
def conv2d_nhwc(
    X: td.Tensor[B, H, V, CI],
    W: td.Tensor[KH, KV, P, CO],
    bias: td.Tensor[CO] = None,
    Y: td.Out[B, Ho, Vo, CO] = None,
    *,
    stride=1,
    pad=0,
    dilation=1,
    groups=1,
):
    """`conv2d` with channels last. *Shapes*: X [B, H, V, channels in]; W [taps, taps, channels in / groups, channels
    out]; bias [channels out] or None; Y [B, Ho, Vo, channels out].
    """
    (sy, sx), (py, px), (dy, dx) = pair(stride), pair(pad), pair(dilation)
    td.let(G, groups)
    td.let(Ho, windows(H.extent, KH.extent, sy, py, dy))
    td.let(Vo, windows(V.extent, KV.extent, sx, px, dx))
    for b, y, g, x, q in td.parallel(B, Ho, G.each, Vo, Q):
        acc = td.zeros(b, y, x, q, dtype=state(X.dtype, W.dtype))
        for r, s in td.reduce(KH.each, KV.each):
            window = X.at(b, y * sy + r * dy - py, x * sx + s * dx - px, g, P, fill=0)
            acc = td.mma(window, W[r, s, P, g, q], acc)
        Y[b, y, x, g, q] = acc if bias is None else acc + wide(bias[g, q])


@td.kernel
def depthwise_conv2d(
    X: td.Tensor[B, C, H, V],
    W: td.Tensor[C, KH, KV],
    bias: td.Tensor[C] = None,
    Y: td.Out[B, C, Ho, Vo] = None,
    *,
    stride=1,
    pad=0,
    dilation=1,
):
    """Each channel with its own taps: `conv2d` of as many groups as channels. *Shapes*: X [B, C, H, V]; W [C, taps,
    taps]; bias [C] or None; Y [B, C, Ho, Vo]. *Source*: Chollet, "Xception", 2016, section 2.
    """
    (sy, sx), (py, px), (dy, dx) = pair(stride), pair(pad), pair(dilation)
    td.let(Ho, windows(H.extent, KH.extent, sy, py, dy))
    td.let(Vo, windows(V.extent, KV.extent, sx, px, dx))
    for b, c, y, x in td.parallel(B.each, C.each, Ho, Vo):
        acc = td.zeros(y, x, dtype=state(X.dtype, W.dtype))
        for r, s in td.reduce(KH.each, KV.each):
            window = X.at(b, c, y * sy + r * dy - py, x * sx + s * dx - px, fill=0)
            acc = acc + window.to(acc.dtype) * W[c, r, s].to(acc.dtype)
        Y[b, c, y, x] = acc if bias is None else acc + wide(bias[c])


@td.kernel
def conv_transposed2d(
    X: td.Tensor[B, CI, H, V],
    W: td.Tensor[CI, Q, KH, KV],
    bias: td.Tensor[CO] = None,
    Y: td.Out[B, CO, Ho, Vo] = None,
    *,
    stride=1,
    pad=0,
    dilation=1,
    groups=1,
    extra=0,
):
    """The transposed map of `conv2d`, which is also its gradient with respect to the image: X[i] W[r] is added to
    `Y[i stride + r dilation - pad]`.

    An element of Y gathers from the places whose distance is a multiple of the stride. `extra` adds to the extent of
    Y. *Shapes*: X [B, channels in, H, V]; W [channels in, channels out / groups, taps, taps]; bias [channels out] or
    None; Y [B, channels out, Ho, Vo], `Ho = (H - 1) stride - 2 pad + dilation (taps - 1) + extra + 1`. *Source*:
    Dumoulin and Visin, 2016, section 4.
    """
    (sy, sx), (py, px), (dy, dx), (ey, ex) = pair(stride), pair(pad), pair(dilation), pair(extra)
    td.let(G, groups)
    td.let(Ho, (H.extent - 1) * sy - 2 * py + dy * (KH.extent - 1) + ey + 1)
    td.let(Vo, (V.extent - 1) * sx - 2 * px + dx * (KV.extent - 1) + ex + 1)
    for b, g, y, q, x in td.parallel(B.each, G.each, Ho.each, Q, Vo):
        acc = td.zeros(q, x, dtype=state(X.dtype, W.dtype))
        for r, s in td.reduce(KH.each, KV.each):
            i, j = y + py - r * dy, x + px - s * dx
            window = X.at(b, g, P, i // sy, j // sx, fill=0)
            if sy != 1 or sx != 1:
                window = td.where((i % sy == 0) & (j % sx == 0), window, 0)
            acc = td.mma(W[g, P, q, r, s], window, acc)
        Y[b, g, q, y, x] = acc if bias is None else acc + wide(bias[g, q])


@td.kernel
def conv2d_weights(
    X: td.Tensor[B, CI, H, V],
    dY: td.Tensor[B, CO, Ho, Vo],
    dW: td.Out[CO, P, KH, KV],
    *,
    stride=1,
    pad=0,
    dilation=1,
    groups=1,
):
    """The gradient behind `conv2d` with respect to W:
    `dW[o, p, r, s] = sum dY[b, o, y, x] X[b, p, y stride + r dilation - pad, ...]`.

    *Shapes*: X [B, channels in, H, V]; dY [B, channels out, Ho, Vo]; dW [channels out, channels in / groups, taps,
    taps], which is passed.
    """
    (sy, sx), (py, px), (dy, dx) = pair(stride), pair(pad), pair(dilation)
    td.let(G, groups)
    for g, r, s, q in td.parallel(G.each, KH.each, KV.each, Q):
        acc = td.zeros(q, P, dtype=state(X.dtype, dY.dtype))
        for b, y in td.reduce(B.each, Ho.each):
            window = X.at(b, g, P, y * sy + r * dy - py, Vo * sx + s * dx - px, fill=0)
            acc = td.mma(dY[b, g, q, y, Vo], window, acc)
        dW[g, q, P, r, s] = acc


@td.kernel
def conv3d(
    X: td.Tensor[B, C, D, H, V],
    W: td.Tensor[N, C, KD, KH, KV],
    bias: td.Tensor[N] = None,
    Y: td.Out[B, N, Do, Ho, Vo] = None,
    *,
    stride=1,
    pad=0,
    dilation=1,
):
    """Convolution of volumes, channels first. *Shapes*: X [B, channels in, D, H, V]; W [channels out, channels in,
    taps, taps, taps]; bias [channels out] or None; Y [B, channels out, Do, Ho, Vo], extents as `conv1d`.
    """
    (sz, sy, sx), (pz, py, px), (dz, dy, dx) = pair(stride, 3), pair(pad, 3), pair(dilation, 3)
    td.let(Do, windows(D.extent, KD.extent, sz, pz, dz))
    td.let(Ho, windows(H.extent, KH.extent, sy, py, dy))
    td.let(Vo, windows(V.extent, KV.extent, sx, px, dx))
    for b, z, y, n, x in td.parallel(B.each, Do.each, Ho.each, N, Vo):
        acc = td.zeros(n, x, dtype=state(X.dtype, W.dtype))
        for q, r, s in td.reduce(KD.each, KH.each, KV.each):
            window = X.at(b, C, z * sz + q * dz - pz, y * sy + r * dy - py, x * sx + s * dx - px, fill=0)
            acc = td.mma(W[n, C, q, r, s], window, acc)
        Y[b, n, z, y, x] = acc if bias is None else acc + wide(bias[n])
