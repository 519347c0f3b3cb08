"""Pooling of images: maxima with their places, averages, and the gradients behind them; resizing."""

from __future__ import annotations

import treadle as td
from treadle import i32
from treadle.lib.convolution import pair, windows
from treadle.lib.precision import computing, wide

B, C, H, V, Ho, Vo = td.dims("B C H V Ho Vo")


@td.kernel
def max_pool2d(
    X: td.Tensor[B, C, H, V],
    Y: td.Out[B, C, Ho, Vo] = None,
    at: td.Out[B, C, Ho, Vo, i32] = None,
    *,
    window,
    stride=None,
    pad=0,
):
    """The maximum of each window and its place `y V + x` in the image, the first of equal ones; NaN counts as the
    largest.

    *Shapes*: X [B, C, H, V]; Y, at [B, C, Ho, Vo], `Ho = (H + 2 pad - window) // stride + 1`; stride defaults to
    window. Gives (Y, at). *Requires*: every window holds an element: 2 pad <= window.
    """
    (ky, kx), (py, px) = pair(window), pair(pad)
    sy, sx = (ky, kx) if stride is None else pair(stride)
    td.let(Ho, windows(H.extent, ky, sy, py, 1))
    td.let(Vo, windows(V.extent, kx, sx, px, 1))
    for b, c, y, x in td.parallel(B.each, C.each, Ho, Vo):
        best, place = td.full(y, x, value=-float("inf"), dtype=X.dtype), td.full(y, x, value=-1, dtype=i32)
        for r in range(ky):
            for s in range(kx):
                i, j = y * sy + r - py, x * sx + s - px
                inside = (i >= 0) & (i < H.extent) & (j >= 0) & (j < V.extent)
                v = X.at(b, c, i, j, fill=0)
                better = inside & ((place < 0) | (v > best) | (td.isnan(v) & ~td.isnan(best)))
                best = td.where(better, v, best)
                place = td.where(better, (i * V.extent + j).to(i32), place)
        Y[b, c, y, x] = best
        at[b, c, y, x] = place


@td.kernel
def max_pool2d_backward(
    at: td.Tensor[B, C, Ho, Vo, i32], dY: td.Tensor[B, C, Ho, Vo], dX: td.Out[B, C, H, V], *, order=td.unordered
):
    """Adds each dY to the place that was the maximum: dX is passed and overwritten. Windows may overlap.

    *Shapes*: at, dY [B, C, Ho, Vo] of `max_pool2d`; dX [B, C, H, V].
    """
    dX[B, C, H, V] = 0
    for b, c, y, x in td.parallel(B.each, C.each, Ho, Vo):
        place = at[b, c, y, x]
        i, j = td.in_range(place // V.extent, H), td.in_range(place % V.extent, V)
        dX.add_at(b, c, i, j, dY[b, c, y, x].to(dX.dtype), order=order)


@td.kernel
def avg_pool2d(
    X: td.Tensor[B, C, H, V],
    Y: td.Out[B, C, Ho, Vo] = None,
    *,
    window,
    stride=None,
    pad=0,
    count_padding=True,
):
    """The average of each window; padding counts as zeros, or not at all with `count_padding=False`.

    *Shapes*: X [B, C, H, V]; Y [B, C, Ho, Vo], as `max_pool2d`.
    """
    (ky, kx), (py, px) = pair(window), pair(pad)
    sy, sx = (ky, kx) if stride is None else pair(stride)
    td.let(Ho, windows(H.extent, ky, sy, py, 1))
    td.let(Vo, windows(V.extent, kx, sx, px, 1))
    for b, c, y, x in td.parallel(B.each, C.each, Ho, Vo):
        total = td.zeros(y, x, dtype=computing(X.dtype))
        for r in range(ky):
            for s in range(kx):
                total = total + wide(X.at(b, c, y * sy + r - py, x * sx + s - px, fill=0))
        if count_padding:
            Y[b, c, y, x] = total / (ky * kx)
        else:
            rows = td.minimum(y * sy - py + ky, H.extent) - td.maximum(y * sy - py, 0)
            columns = td.minimum(x * sx - px + kx, V.extent) - td.maximum(x * sx - px, 0)
            Y[b, c, y, x] = total / (rows * columns).to(total.dtype)


@td.kernel
def global_avg_pool(X: td.Tensor[B, C, H, V], Y: td.Out[B, C] = None):
    """The mean of each channel of each image. *Shapes*: X [B, C, H, V], Y [B, C]."""
    for b, c in td.parallel(B.each, C):
        Y[b, c] = wide(X[b, c, H, V]).mean(H, V)


@td.kernel
def resize_nearest(X: td.Tensor[B, C, H, V], Y: td.Out[B, C, Ho, Vo]):
    """`Y[y, x] = X[floor(y H / Ho), floor(x V / Vo)]`. *Shapes*: X [B, C, H, V]; Y [B, C, Ho, Vo], which is passed."""
    for b, c, y, x in td.parallel(B.each, C.each, Ho, Vo):
        i, j = y * H.extent // Ho.extent, x * V.extent // Vo.extent
        Y[b, c, y, x] = X[b, c, td.in_range(i, H), td.in_range(j, V)]


@td.kernel
def resize_bilinear(X: td.Tensor[B, C, H, V], Y: td.Out[B, C, Ho, Vo]):
    """Linear in both axes between the centres of elements (corners not aligned), clamped at the border.

    *Shapes*: X [B, C, H, V], not empty; Y [B, C, Ho, Vo], which is passed.
    """
    for b, c, y, x in td.parallel(B.each, C.each, Ho, Vo):
        i, fy = between(y, Ho, H)
        j, fx = between(x, Vo, V)
        i1, j1 = td.minimum(i + 1, H.extent - 1), td.minimum(j + 1, V.extent - 1)
        i, j = td.in_range(i, H), td.in_range(j, V)
        i1, j1 = td.in_range(i1, H), td.in_range(j1, V)
        above = wide(X[b, c, i, j]) * (1 - fx) + wide(X[b, c, i, j1]) * fx
        below = wide(X[b, c, i1, j]) * (1 - fx) + wide(X[b, c, i1, j1]) * fx
        Y[b, c, y, x] = above * (1 - fy) + below * fy


def between(y, new, old):
    """The element before the centre of element `y` of an axis resized from `old` to `new`, and how far behind it lies.

    In integers: the centre is `((2 y + 1) old - new) / (2 new)`.
    """
    twice = 2 * new.extent
    centre = td.maximum((2 * y + 1) * old.extent - new.extent, 0)
    whole = td.minimum(centre // twice, old.extent - 1)
    return whole, (centre - whole * twice).to(td.f32) / twice
