"""Stencils on integers, exactly; steps in time; an image of one element."""

from __future__ import annotations

import numpy as np
from tests.lib import rounding as r
from tests.lib.ways import F64, clean, random, run, whole

from treadle.lib import stencils as lib


def shifted(x: np.ndarray, i: int, j: int) -> np.ndarray:
    """`x[y + i, x + j]`, zeros outside."""
    wide = np.pad(x.astype(float), 4)
    return wide[4 + i : 4 + i + x.shape[0], 4 + j : 4 + j + x.shape[1]]


def filtered(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    r0, s0 = w.shape[0] // 2, w.shape[1] // 2
    return sum(w[a, b] * shifted(x, a - r0, b - s0) for a in range(w.shape[0]) for b in range(w.shape[1]))


def test_filters() -> None:
    g = random()
    x, w, taps = whole(g, 9, 11), whole(g, 3, 5), np.array([1, 2, 1], np.float32)
    run(lib.filter2d, x, w, want=filtered(x, w))
    run(lib.blur, x, taps, want=filtered(x, np.outer(taps, taps)))
    run(lib.blur, x[:1, :1], taps, want=4 * x[:1, :1])
    clean(lib.blur, x[:4, :5], taps)


def test_corners() -> None:
    x = whole(random(1), 9, 11)
    mask = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]]) / 8
    dx, dy = filtered(x, mask), filtered(x, mask.T)
    run(lib.sobel, x, want=(dx, dy), compiled=False)
    a, b, c = (filtered(t, np.ones((3, 3))) for t in (dx * dx, dx * dy, dy * dy))  # sums of 64ths, exact
    trace = r.num(a) + c
    run(lib.harris, x, want=r.num(a) * c - r.num(b) * b - r.inexact(0.04) * trace * trace)


def test_relaxation() -> None:
    x = whole(random(2), 6, 7, dtype=F64)
    want = x.copy()
    for steps in range(4):
        run(lib.jacobi, x, steps=steps, want=want)
        inner = (want[:-2, 1:-1] + want[2:, 1:-1] + want[1:-1, :-2] + want[1:-1, 2:]) / 4
        want[1:-1, 1:-1] = inner
    clean(lib.jacobi, x, steps=2)


def test_life() -> None:
    x = (random(3).random((5, 8)) < 0.4).astype(np.uint8)
    want = x.astype(int)
    for _ in range(3):
        around = sum(np.roll(want, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)) - want
        want = ((around == 3) | ((around == 2) & (want == 1))).astype(int)
    run(lib.life, x, steps=3, want=want)
