"""Pooling on integers, exactly: overlapping windows, padding, ties, NaN, the gradient, and resizing."""

from __future__ import annotations

import numpy as np
import pytest
from tests.lib.rounding import Num, U
from tests.lib.ways import clean, random, reals, run, whole

from treadle.lib import pooling as lib


def windows(x: np.ndarray, window: int, stride: int, pad: int, fill: float) -> np.ndarray:
    """[B, C, Ho, Vo, window, window]."""
    x = np.pad(x.astype(float), ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=fill)
    view = np.lib.stride_tricks.sliding_window_view(x, (window, window), (2, 3))
    return view[:, :, ::stride, ::stride]


@pytest.mark.parametrize(("window", "stride", "pad"), [(2, 2, 0), (3, 2, 1), (3, 1, 1)])
def test_max(window: int, stride: int, pad: int) -> None:
    x = whole(random(), 2, 3, 7, 9)
    x[0, 0, 2, 3] = np.nan
    seen = windows(x, window, stride, pad, -np.inf)
    place = windows(np.broadcast_to(np.arange(63.0).reshape(7, 9), x.shape), window, stride, pad, -1)
    flat = (*seen.shape[:4], window * window)
    first = np.where(np.isnan(seen), np.inf, seen).reshape(flat).argmax(-1)
    at = np.take_along_axis(place.reshape(flat), first[..., None], -1)[..., 0]
    top = np.take_along_axis(seen.reshape(flat), first[..., None], -1)[..., 0]
    once = (window, stride) == (3, 2)
    run(lib.max_pool2d, x, window=window, stride=stride, pad=pad, want=(top, at), compiled=once)
    d = whole(random(1), *top.shape)
    want = np.zeros((6, 63))
    for i, (places, values) in enumerate(zip(at.reshape(6, -1).astype(int), d.reshape(6, -1))):
        np.add.at(want[i], places, values)
    run(lib.max_pool2d_backward, at.astype(np.int32), d, np.ones_like(x), want=want.reshape(x.shape), compiled=once)


@pytest.mark.parametrize("count_padding", [True, False])
def test_average(count_padding: bool) -> None:
    x = whole(random(2), 2, 3, 7, 9)
    seen = windows(x, 3, 2, 1, np.nan)
    sums = np.nansum(seen, (4, 5))
    want = sums / (9 if count_padding else (~np.isnan(seen)).sum((4, 5)))
    kw = {"window": 3, "stride": 2, "pad": 1, "count_padding": count_padding}
    run(lib.avg_pool2d, x, want=Num(want, U * np.abs(want)), **kw)


def test_global_average() -> None:
    x = whole(random(3), 2, 5, 4, 8)
    run(lib.global_avg_pool, x, want=x.mean((2, 3)))
    clean(lib.global_avg_pool, x)


def test_resize() -> None:
    x = reals(random(4), 1, 2, 5, 7)
    for shape in ((3, 14), (5, 7), (1, 1), (12, 3)):
        y = np.zeros((1, 2, *shape), np.float32)
        i, j = (np.arange(n) * m // n for n, m in zip(shape, (5, 7)))
        run(lib.resize_nearest, x, y, want=x[:, :, i][:, :, :, j])
        run(lib.resize_bilinear, x, y, want=bilinear(x, shape))


def bilinear(x: np.ndarray, shape: tuple[int, ...]) -> Num:
    """Weights off by u each, four products and three sums: within 12 u of the magnitudes."""
    y = x.astype(float)
    for axis, new in zip((2, 3), shape):
        old = y.shape[axis]
        centre = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, None)
        low = np.minimum(centre.astype(int), old - 1)
        f = (centre - low).reshape((-1, 1) if axis == 2 else (-1,))
        y = np.take(y, low, axis) * (1 - f) + np.take(y, np.minimum(low + 1, old - 1), axis) * f
    return Num(y, np.full(y.shape, 12 * U * np.abs(x).max()))
