"""Scans on integers, exactly: exclusive, reversed, segmented; recurrences with start and gradient; chunks of a state
space.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.lib import rounding as r
from tests.lib.rounding import Num
from tests.lib.ways import BF16, clean, random, reals, run, whole

from treadle.lib import scans as lib


def running(x: np.ndarray, exclusive: bool, reverse: bool) -> np.ndarray:
    y = x[:, ::-1] if reverse else x
    sums = np.cumsum(y.astype(float), 1)
    sums = sums - y if exclusive else sums
    return sums[:, ::-1] if reverse else sums


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_sums(exclusive: bool, reverse: bool) -> None:
    x = whole(random(), 5, 37)
    kw = {"exclusive": exclusive, "reverse": reverse}
    run(lib.cumsum, x, want=running(x, **kw), compiled=True, **kw)
    few = whole(random(1), 4, 300, most=100, dtype=np.int8)
    y = run(lib.cumsum, few, want=running(few, **kw), **kw)
    assert y.dtype == np.int32


def test_products_and_extrema() -> None:
    x = whole(random(2), 3, 13, most=2)
    run(lib.cumprod, x, want=np.cumprod(x, 1))
    x[1, 4] = np.nan
    run(lib.cummax, x[:, ::-1], want=np.maximum.accumulate(x[:, ::-1], 1))
    run(lib.cummin, x, reverse=True, want=np.minimum.accumulate(x[:, ::-1], 1)[:, ::-1])
    run(lib.cummax, x[:, :0], want=x[:, :0])
    clean(lib.cumprod, x)


def test_logarithms_of_sums() -> None:
    """n merges, each with a factor off by 4 u that rounds, and a logarithm."""
    x = reals(random(3), 4, 29, scale=20, dtype=BF16)
    want = np.logaddexp.accumulate(r.up(x), 1)
    run(lib.logcumsumexp, x, want=Num(want, 29 * 8 * r.U * (1 + np.abs(want) / 29)))


def test_segments_begin_anew() -> None:
    g = random(4)
    x, first = whole(g, 5, 23), g.random((5, 23)) < 0.2
    want = np.zeros((5, 23))
    for t in range(23):
        want[:, t] = x[:, t] + (np.where(first[:, t], 0, want[:, t - 1]) if t else 0)
    run(lib.segmented_cumsum, x, first, want=want)


def test_linear_recurrence() -> None:
    g = random(5)
    a, x, start = whole(g, 2, 9, 5, most=1), whole(g, 2, 9, 5), whole(g, 2, 5)
    want = np.zeros((2, 9, 5))
    h = start
    for t in range(9):
        h = want[:, t] = a[:, t] * h + x[:, t]
    run(lib.linear_recurrence, a, x, start, want=want)
    run(lib.linear_recurrence, a[:, :1], x[:, :1], want=x[:, :1])
    d = whole(g, 2, 9, 5)
    da, dx, grad = np.zeros_like(want), np.zeros_like(want), np.zeros((2, 5))
    before = np.concatenate([start[:, None], want[:, :-1]], 1)
    for t in reversed(range(9)):
        grad = dx[:, t] = (a[:, t + 1] * grad if t < 8 else 0) + d[:, t]
        da[:, t] = grad * before[:, t]
    run(lib.linear_recurrence_backward, a, want.astype("f"), d, start, want=(da, dx))


@pytest.mark.parametrize("chunk", [1, 4, 64])
def test_state_space(chunk: int) -> None:
    """Decays of whole powers of e^-1/8: bounded by the sums of magnitudes of all that is added, times 16 n u."""
    g = random(6)
    x, read, write = whole(g, 2, 11, 3, 4), whole(g, 2, 11, 5), whole(g, 2, 11, 5)
    decay = -(g.integers(0, 8, (2, 11, 3)) / 8).astype(np.float32)
    value, size = (np.zeros((2, 11, 3, 4)) for _ in range(2))
    for b, h in np.ndindex(2, 3):
        state, most = np.zeros((5, 4)), np.zeros((5, 4))
        for t in range(11):
            factor, new = np.exp(float(decay[b, t, h])), np.outer(write[b, t], x[b, t, h])
            state, most = factor * state + new, factor * most + np.abs(new)
            value[b, t, h], size[b, t, h] = read[b, t] @ state, np.abs(read[b, t]) @ most
    want = Num(value, 16 * (11 + 8) * r.U * size)
    run(lib.state_space, x, decay, write, read, chunk=chunk, want=want, compiled=chunk == 4)
