"""Rotary position embedding, with the pairs as halves or side by side, and the way back.

A pair `(a, b)` of channels at a token is turned by an angle: `(a cos - b sin, a sin + b cos)`. Angles come as tables
of cosines and sines, `[T, D / 2]`, which `rotary_tables` makes. Turning back is turning by the negative angle:
`rope(..., inverse=True)` is the gradient.
"""

from __future__ import annotations

import treadle as td
from treadle import f32, i32
from treadle.lib.precision import wide

T, H, C = td.dims("T H C")
PAIR = td.dims("PAIR", 2)
HALVES = td.product(PAIR, C)
PAIRS = td.product(C, PAIR)


@td.kernel
def rotary_tables(
    position: td.Tensor[T, i32],
    frequency: td.Tensor[C],
    cosine: td.Out[T, C, f32] = None,
    sine: td.Out[T, C, f32] = None,
):
    """Cosine and sine of `position[t] frequency[c]`; the usual frequencies are `base^(-2c / D)`. Gives both.

    The angle is rounded to f32 before it is reduced: at position p it is off by up to `p frequency 2^-24`.
    *Shapes*: position [T], frequency [C], cosine, sine [T, C].
    """
    for t, c in td.parallel(T, C):
        angle = position[t].to(f32) * frequency[c].to(f32)
        cosine[t, c] = td.cos(angle)
        sine[t, c] = td.sin(angle)


def turned(a, b, cosine, sine):
    """The pair `(a, b)` turned by the angle."""
    return a * cosine - b * sine, a * sine + b * cosine


@td.kernel
def rope(
    X: td.Tensor[T, H, HALVES],
    cosine: td.Tensor[T, C],
    sine: td.Tensor[T, C],
    Y: td.Out[T, H, HALVES] = None,
    *,
    inverse=False,
):
    """Pairs `(X[c], X[c + D/2])` of each head turned; `inverse` turns back, which is the gradient.

    *Shapes*: X, Y [T, H, D], D even, Y may be X itself; cosine, sine [T, D / 2].
    *Source*: Su et al., "RoFormer", 2021, section 3.4.2, in the layout of GPT-NeoX and Llama.
    """
    for t, h in td.parallel(T, H):
        a, b = wide(X[t, h, 0, C]), wide(X[t, h, 1, C])
        s = wide(sine[t, C])
        u, v = turned(a, b, wide(cosine[t, C]), -s if inverse else s)
        Y[t, h, 0, C] = u
        Y[t, h, 1, C] = v


@td.kernel
def rope_interleaved(
    X: td.Tensor[T, H, PAIRS],
    cosine: td.Tensor[T, C],
    sine: td.Tensor[T, C],
    Y: td.Out[T, H, PAIRS] = None,
    *,
    inverse=False,
):
    """As `rope`, of pairs side by side: `(X[2c], X[2c + 1])`.

    *Shapes*: X, Y [T, H, D], D even, Y may be X itself; cosine, sine [T, D / 2].
    *Source*: Su et al., "RoFormer", 2021, section 3.4.2, in the layout of the paper and GPT-J.
    """
    for t, h in td.parallel(T, H):
        a, b = wide(X[t, h, C, 0]), wide(X[t, h, C, 1])
        s = wide(sine[t, C])
        u, v = turned(a, b, wide(cosine[t, C]), -s if inverse else s)
        Y[t, h, C, 0] = u
        Y[t, h, C, 1] = v
