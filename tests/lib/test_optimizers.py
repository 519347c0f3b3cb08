"""Steps of optimisers against float64, in place."""

from __future__ import annotations

import numpy as np
import pytest
from tests.lib import rounding as r
from tests.lib.ways import BF16, clean, compare, random, reals, run, whole

from treadle.lib import optimizers as lib

RATE = np.float32(0.01)


def state() -> tuple[np.ndarray, ...]:
    g = random()
    return tuple(reals(g, 3, 13) for _ in range(3)) + (np.abs(reals(g, 3, 13)),)


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd(nesterov: bool) -> None:
    w, g, v, _ = state()
    step = r.num(g) + r.inexact(0.1) * w
    velocity = r.inexact(0.9) * v + step
    used = step + r.inexact(0.9) * velocity if nesterov else velocity
    want = r.num(w) - r.num(RATE) * used
    lib.sgd(w, g, v, RATE, decay=0.1, nesterov=nesterov)
    compare(v, velocity)
    compare(w, want)


def test_adamw() -> None:
    w, g, a, b = state()
    first = r.inexact(0.9) * a + r.inexact(1 - 0.9) * g
    second = r.inexact(0.999) * b + r.inexact(1 - 0.999) * g * g
    c, d = np.float32(1 - 0.9**3), np.float32(1 - 0.999**3)
    step = r.num(RATE) * (first / c) / (r.sqrt(second / d) + r.inexact(1e-8))
    want = r.num(w) - r.num(RATE) * r.inexact(0.01) * w - step
    lib.adamw(w, g, a, b, RATE, c, d)
    for got, wanted in ((a, first), (b, second), (w, want)):
        compare(got, wanted)
    clean(lib.adamw, w, g, a, b, RATE, c, d)


def test_lion() -> None:
    w, g, a, _ = state()
    g[0, 0], a[0, 0] = 0, 0
    sign = np.sign(r.up(np.float32(0.9)) * a + r.up(np.float32(0.1)) * g)
    want, first = r.num(w) - r.num(RATE) * sign, r.inexact(0.99) * a + r.inexact(1 - 0.99) * g
    lib.lion(w, g, a, RATE)
    compare(a, first)
    compare(w, want)


def test_squared_length() -> None:
    x = whole(random(1), 9, 31, dtype=BF16)
    run(lib.squared_length, x, want=np.square(x.astype(float)).sum())
