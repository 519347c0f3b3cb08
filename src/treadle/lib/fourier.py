"""The fast Fourier transform along rows, real and imaginary parts as two matrices, and the fast Walsh-Hadamard
transform.
"""

from __future__ import annotations

import treadle as td
from treadle.lib.precision import wide

M = td.dims("M")
N = td.dims("N", static=True)
TURN = 6.283185307179586


def stages(count):
    """The stages of a transform of `count` elements. *Requires*: a power of two."""
    number = int(count)
    if number < 1 or number & (number - 1):
        raise ValueError(f"a transform of {number} elements: the number must be a power of two")
    return number.bit_length() - 1


@td.kernel
def fft(
    X: td.Tensor[M, N], Y: td.Tensor[M, N] = None, re: td.Out[M, N] = None, im: td.Out[M, N] = None, *, inverse=False
):
    """`sum over j of (X + i Y)[m, j] exp(-2 pi i j n / N)`; `inverse` turns the other way and divides by N. Gives (re,
    im).

    *Shapes*: X, Y (None: real input), re, im [M, N], N a power of two, for which the kernel is specialised.
    *Source*: Cooley and Tukey, 1965, in place after a permutation by reversed bits.
    """
    n = N.coords
    steps = stages(N.extent)
    reversed_bits = n * 0
    for bit in range(steps):
        reversed_bits = reversed_bits + ((n >> bit) & 1) * 2 ** (steps - 1 - bit)
    source = td.in_range(reversed_bits, N)
    for m in td.parallel(M):
        a = wide(X[m, source])
        b = a * 0.0 if Y is None else wide(Y[m, source])
        for s in range(steps):
            half = 2**s
            low = td.in_range(n - (n & half), N)
            high = td.in_range(n - (n & half) + half, N)
            angle = (n & (half - 1)).to(td.f32) * ((TURN if inverse else -TURN) / (2 * half))
            c, d = td.cos(angle), td.sin(angle)
            sign = td.where((n & half) == 0, 1.0, -1.0)
            p, q = a[m, high], b[m, high]
            a, b = a[m, low] + sign * (c * p - d * q), b[m, low] + sign * (c * q + d * p)
        re[m, N] = a * (1.0 / int(N.extent)) if inverse else a
        im[m, N] = b * (1.0 / int(N.extent)) if inverse else b


@td.kernel
def hadamard(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    """`Y[m, n] = sum over j of (-1)^(ones of j & n) X[m, j]`: the Walsh-Hadamard transform, not scaled.

    *Shapes*: X, Y [M, N], N a power of two, for which the kernel is specialised. *Source*: Fino and Algazi, 1976.
    """
    n = N.coords
    for m in td.parallel(M):
        x = wide(X[m, N])
        for s in range(stages(N.extent)):
            half = 2**s
            low = td.in_range(n - (n & half), N)
            high = td.in_range(n - (n & half) + half, N)
            x = x[m, low] + td.where((n & half) == 0, 1.0, -1.0) * x[m, high]
        Y[m, N] = x
