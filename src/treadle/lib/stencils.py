"""Stencils on images and grids: separable blur, gradients and corners, relaxation in time, and life."""

from __future__ import annotations

import treadle as td
from treadle.lib.precision import computing, wide

H, V, R, S, T = td.dims("H V R S T")


@td.kernel
def filter2d(X: td.Tensor[H, V], W: td.Tensor[R, S], Y: td.Out[H, V] = None):
    """`Y[y, x] = sum W[r, s] X[y + r - R // 2, x + s - S // 2]`, zeros outside. *Shapes*: X, Y [H, V], W [R, S]."""
    for y, x in td.parallel(H, V):
        total = td.zeros(y, x, dtype=computing(X.dtype))
        for r, s in td.reduce(R.each, S.each):
            total = total + wide(X.at(y + r - R.extent // 2, x + s - S.extent // 2, fill=0)) * wide(W[r, s])
        Y[y, x] = total


@td.kernel
def blur(X: td.Tensor[H, V], taps: td.Tensor[R], Y: td.Out[H, V] = None):
    """Rows, then columns filtered with the same taps: `filter2d` with their outer product, for far fewer products.

    *Shapes*: X, Y [H, V], taps [R]. The rows in between are f32 (f64 of f64).
    """
    across = td.empty(H, V, dtype=computing(X.dtype))
    for y, x in td.parallel(H, V):
        total = td.zeros(y, x, dtype=computing(X.dtype))
        for r in td.reduce(R.each):
            total = total + wide(X.at(y, x + r - R.extent // 2, fill=0)) * wide(taps[r])
        across[y, x] = total
    for y, x in td.parallel(H, V):
        total = td.zeros(y, x, dtype=computing(X.dtype))
        for r in td.reduce(R.each):
            total = total + across.at(y + r - R.extent // 2, x, fill=0) * wide(taps[r])
        Y[y, x] = total


def slopes(X, y, x):
    """The derivatives at (y, x) by the 3 x 3 Sobel masks over 8, zeros outside."""

    def at(i, j):
        return wide(X.at(y + i, x + j, fill=0))

    right, left = at(-1, 1) + 2 * at(0, 1) + at(1, 1), at(-1, -1) + 2 * at(0, -1) + at(1, -1)
    below, above = at(1, -1) + 2 * at(1, 0) + at(1, 1), at(-1, -1) + 2 * at(-1, 0) + at(-1, 1)
    return (right - left) * 0.125, (below - above) * 0.125


@td.kernel
def sobel(X: td.Tensor[H, V], dx: td.Out[H, V] = None, dy: td.Out[H, V] = None):
    """Derivatives by the 3 x 3 Sobel masks over 8, zeros outside. Gives (dx, dy). *Shapes*: X, dx, dy [H, V]."""
    for y, x in td.parallel(H, V):
        dx[y, x], dy[y, x] = slopes(X, y, x)


@td.kernel
def harris(X: td.Tensor[H, V], Y: td.Out[H, V] = None, *, k=0.04):
    """The corner response `det A - k trace(A)^2`, A the products of Sobel derivatives summed over 3 x 3; zeros outside.

    *Shapes*: X, Y [H, V]. *Source*: Harris and Stephens, "A combined corner and edge detector", 1988, section 3.
    """
    dtype = computing(X.dtype)
    xx, xy, yy = td.empty(H, V, dtype=dtype), td.empty(H, V, dtype=dtype), td.empty(H, V, dtype=dtype)
    for y, x in td.parallel(H, V):
        dx, dy = slopes(X, y, x)
        xx[y, x], xy[y, x], yy[y, x] = dx * dx, dx * dy, dy * dy
    for y, x in td.parallel(H, V):

        def box(t):
            return sum(t.at(y + i, x + j, fill=0) for i in (-1, 0, 1) for j in (-1, 0, 1))

        a, b, c = box(xx), box(xy), box(yy)
        trace = a + c
        Y[y, x] = a * c - b * b - k * trace * trace


@td.kernel
def jacobi(X: td.Tensor[H, V], Y: td.Out[H, V] = None, *, steps=1):
    """`steps` times each inner element becomes the mean of its four neighbours; the border stays.

    *Shapes*: X, Y [H, V]. *Source*: relaxation of Laplace's equation; Varga, "Matrix Iterative Analysis", 1962,
    chapter 3.
    """
    u = wide(X[H, V])
    for _ in td.serial(steps):
        old = u
        for y, x in td.parallel(H, V):
            inner = (y > 0) & (y < H.extent - 1) & (x > 0) & (x < V.extent - 1)
            beside = old.at(y - 1, x, fill=0) + old.at(y + 1, x, fill=0)
            beside = beside + (old.at(y, x - 1, fill=0) + old.at(y, x + 1, fill=0))
            u[y, x] = td.where(inner, 0.25 * beside, old[y, x])
    Y[H, V] = u


@td.kernel
def life(X: td.Tensor[H, V, td.u8], Y: td.Out[H, V, td.u8] = None, *, steps=1):
    """`steps` generations of Conway's game of life on a torus: 1 is alive. *Shapes*: X, Y [H, V], not empty.

    *Source*: Gardner, Scientific American 223, 1970.
    """
    u = X[H, V]
    for _ in td.serial(steps):
        old = u
        for y, x in td.parallel(H, V):
            around = td.zeros(y, x, dtype=td.i32)
            for i in (-1, 0, 1):
                for j in (-1, 0, 1):
                    if i or j:
                        row = td.in_range((y + i + H.extent) % H.extent, H)
                        column = td.in_range((x + j + V.extent) % V.extent, V)
                        around = around + old[row, column].to(td.i32)
            alive = (around == 3) | ((around == 2) & (old[y, x] == 1))
            u[y, x] = td.where(alive, 1, 0).to(td.u8)
    Y[H, V] = u
