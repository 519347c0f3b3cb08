"""Normalisation: of rows, groups and batches, with a residual added before, and the gradients behind each.

A backward kernel takes the input of its forward kernel and computes the statistics again: the input is read anyway.
Gradients of scale and shift are sums over the rows, taken while the rows pass.
"""

from __future__ import annotations

import treadle as td
from treadle.lib.precision import computing, wide

M, N = td.dims("M N")
B, S, G, Q = td.dims("B S G Q")
C = td.product(G, Q)


def scaled(x, scale, shift, *at):
    """`x scale[at] + shift[at]`, each where it is given."""
    if scale is not None:
        x = x * wide(scale[at])
    return x if shift is None else x + wide(shift[at])


def standardised(x, eps, *over):
    """`x` with mean 0 and variance 1 over the dimensions, and one over the deviation: `(x - mean) r`, `r`."""
    d = x - x.mean(*over)
    r = td.rsqrt((d * d).mean(*over) + eps)
    return d * r, r


@td.kernel
def layernorm(
    X: td.Tensor[M, N],
    scale: td.Tensor[N] = None,
    shift: td.Tensor[N] = None,
    Y: td.Out[M, N] = None,
    *,
    eps=1e-5,
):
    """`Y = (X - mean) / sqrt(var + eps) scale + shift`, mean and variance of each row (divided by N).

    *Shapes*: X, Y [M, N]; scale, shift [N] or None. *Source*: Ba et al., "Layer Normalization", 2016, section 3.
    """
    for m in td.parallel(M):
        x, _ = standardised(wide(X[m, N]), eps, N)
        Y[m, N] = scaled(x, scale, shift, N)


@td.kernel
def add_layernorm(
    X: td.Tensor[M, N],
    R: td.Tensor[M, N],
    scale: td.Tensor[N] = None,
    shift: td.Tensor[N] = None,
    Y: td.Out[M, N] = None,
    Z: td.Out[M, N] = None,
    *,
    eps=1e-5,
):
    """`Z = X + R` and `Y = layernorm(Z)` of it before it is rounded: a residual and the norm behind it, in one pass.

    *Shapes*: X, R, Y, Z [M, N]; scale, shift [N] or None. Gives (Y, Z).
    """
    for m in td.parallel(M):
        z = wide(X[m, N]) + wide(R[m, N])
        Z[m, N] = z
        x, _ = standardised(z, eps, N)
        Y[m, N] = scaled(x, scale, shift, N)


@td.kernel
def layernorm_backward(
    X: td.Tensor[M, N],
    dY: td.Tensor[M, N],
    scale: td.Tensor[N] = None,
    dX: td.Out[M, N] = None,
    dscale: td.Out[N] = None,
    dshift: td.Out[N] = None,
    *,
    eps=1e-5,
):
    """The gradients behind `layernorm`: with `h` the standardised row and `g = dY scale`,
    `dX = r (g - mean(g) - h mean(g h))`, `dscale = sum dY h`, `dshift = sum dY` over the rows.

    *Shapes*: X, dY, dX [M, N]; scale [N] or None; dscale, dshift [N]. Gives (dX, dscale, dshift).
    """
    ds, db = td.zeros(N, dtype=computing(X.dtype, dY.dtype)), td.zeros(N, dtype=computing(X.dtype, dY.dtype))
    for m in td.reduce(M):
        h, r = standardised(wide(X[m, N]), eps, N)
        d = wide(dY[m, N])
        g = scaled(d, scale, None, N)
        dX[m, N] = (g - g.mean(N) - h * (g * h).mean(N)) * r
        ds = ds + (d * h).sum(m)
        db = db + d.sum(m)
    dscale[N] = ds
    dshift[N] = db


@td.kernel
def rmsnorm(X: td.Tensor[M, N], scale: td.Tensor[N] = None, Y: td.Out[M, N] = None, *, eps=1e-6, offset=0.0):
    """`Y = X / sqrt(mean(X^2) + eps) (scale + offset)` of each row.

    *Shapes*: X, Y [M, N]; scale [N] or None. *Source*: Zhang and Sennrich, "Root Mean Square Layer Normalization",
    2019, section 4.
    """
    for m in td.parallel(M):
        x = wide(X[m, N])
        y = x * td.rsqrt((x * x).mean(N) + eps)
        Y[m, N] = y if scale is None else y * (wide(scale[N]) + offset)


@td.kernel
def add_rmsnorm(
    X: td.Tensor[M, N],
    R: td.Tensor[M, N],
    scale: td.Tensor[N] = None,
    Y: td.Out[M, N] = None,
    Z: td.Out[M, N] = None,
    *,
    eps=1e-6,
):
    """`Z = X + R` and `Y = rmsnorm(Z)` of it before it is rounded, in one pass.

    *Shapes*: X, R, Y, Z [M, N]; scale [N] or None. Gives (Y, Z).
    """
    for m in td.parallel(M):
        z = wide(X[m, N]) + wide(R[m, N])
        Z[m, N] = z
        Y[m, N] = scaled(z * td.rsqrt((z * z).mean(N) + eps), scale, None, N)


@td.kernel
def rmsnorm_backward(
    X: td.Tensor[M, N],
    dY: td.Tensor[M, N],
    scale: td.Tensor[N] = None,
    dX: td.Out[M, N] = None,
    dscale: td.Out[N] = None,
    *,
    eps=1e-6,
):
    """The gradients behind `rmsnorm` (with offset 0): `dX = r (g - h mean(g h))` with `h = X r` and `g = dY scale`.

    *Shapes*: X, dY, dX [M, N]; scale [N] or None; dscale [N]. Gives (dX, dscale).
    """
    ds = td.zeros(N, dtype=computing(X.dtype, dY.dtype))
    for m in td.reduce(M):
        x, d = wide(X[m, N]), wide(dY[m, N])
        r = td.rsqrt((x * x).mean(N) + eps)
        h, g = x * r, scaled(d, scale, None, N)
        dX[m, N] = (g - h * (g * h).mean(N)) * r
        ds = ds + (d * h).sum(m)
    dscale[N] = ds


@td.kernel
def l2norm(X: td.Tensor[M, N], Y: td.Out[M, N] = None, *, eps=1e-12):
    """`Y = X / max(|X|, eps)`, |X| the Euclidean length of each row. *Shapes*: X, Y [M, N]."""
    for m in td.parallel(M):
        x = wide(X[m, N])
        Y[m, N] = x / td.maximum(td.sqrt((x * x).sum(N)), eps)


@td.kernel
def l2norm_backward(X: td.Tensor[M, N], dY: td.Tensor[M, N], dX: td.Out[M, N] = None, *, eps=1e-12):
    """The gradient behind `l2norm`: `(dY - y sum(dY y)) / |X|` of rows longer than eps, else `dY / eps`.

    *Shapes*: X, dY, dX [M, N].
    """
    for m in td.parallel(M):
        x, d = wide(X[m, N]), wide(dY[m, N])
        length = td.sqrt((x * x).sum(N))
        y = x / td.maximum(length, eps)
        dX[m, N] = (d - y * td.where(length > eps, (d * y).sum(N), 0.0)) / td.maximum(length, eps)


@td.kernel
def groupnorm(
    X: td.Tensor[B, C, S],
    scale: td.Tensor[C] = None,
    shift: td.Tensor[C] = None,
    Y: td.Out[B, C, S] = None,
    *,
    groups,
    eps=1e-5,
):
    """Each of `groups` stretches of channels of an image with mean 0 and variance 1, scaled and shifted by channel.

    `groups=1` normalises over all channels; as many groups as channels is instance normalisation.
    *Shapes*: X, Y [B, C, S], C a multiple of groups, S all places of the image; scale, shift [C] or None.
    *Errors*: `array/extent` where groups does not divide C. *Source*: Wu and He, "Group Normalization", 2018, section
    3.1.
    """
    td.let(G, groups)
    for b, g in td.parallel(B.each, G.each):
        x, _ = standardised(wide(X[b, g, Q, S]), eps, Q, S)
        Y[b, g, Q, S] = scaled(x, scale, shift, g, Q)


@td.kernel
def groupnorm_backward(
    X: td.Tensor[B, C, S],
    dY: td.Tensor[B, C, S],
    scale: td.Tensor[C] = None,
    dX: td.Out[B, C, S] = None,
    dscale: td.Out[C] = None,
    dshift: td.Out[C] = None,
    *,
    groups,
    eps=1e-5,
):
    """The gradients behind `groupnorm`. *Shapes*: X, dY, dX [B, C, S]; scale [C] or None; dscale, dshift [C]."""
    td.let(G, groups)
    for g in td.parallel(G.each):
        ds, db = td.zeros(Q, dtype=computing(X.dtype, dY.dtype)), td.zeros(Q, dtype=computing(X.dtype, dY.dtype))
        for b in td.reduce(B.each):
            h, r = standardised(wide(X[b, g, Q, S]), eps, Q, S)
            d = wide(dY[b, g, Q, S])
            s = scaled(d, scale, None, g, Q)
            dX[b, g, Q, S] = (s - s.mean(Q, S) - h * (s * h).mean(Q, S)) * r
            ds = ds + (d * h).sum(S)
            db = db + d.sum(S)
        dscale[g, Q] = ds
        dshift[g, Q] = db


@td.kernel
def batchnorm(
    X: td.Tensor[B, N, S],
    mean: td.Tensor[N],
    var: td.Tensor[N],
    scale: td.Tensor[N] = None,
    shift: td.Tensor[N] = None,
    Y: td.Out[B, N, S] = None,
    *,
    eps=1e-5,
):
    """`Y = (X - mean) / sqrt(var + eps) scale + shift`, all by channel: batch normalisation with statistics that are
    given.

    *Shapes*: X, Y [B, N, S]; mean, var [N]; scale, shift [N] or None. *Source*: Ioffe and Szegedy, 2015, algorithm 2.
    """
    for b, n in td.parallel(B.each, N):
        y = (wide(X[b, n, S]) - wide(mean[n])) * td.rsqrt(wide(var[n]) + eps)
        Y[b, n, S] = scaled(y, scale, shift, n)


@td.kernel
def batch_statistics(X: td.Tensor[B, N, S], mean: td.Out[N] = None, var: td.Out[N] = None):
    """Mean and variance of each channel over the batch and all places, divided by their number. Gives (mean, var).

    *Shapes*: X [B, N, S]; mean, var [N]. *Source*: Ioffe and Szegedy, 2015, algorithm 1; two passes.
    """
    for n in td.parallel(N):
        x = wide(X[B, n, S])
        average = x.mean(B, S)
        d = x - average
        mean[n] = average
        var[n] = (d * d).mean(B, S)
