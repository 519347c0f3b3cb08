"""Convolutions and pooling against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from tests.lang.kinds import convolutions as k
from tests.lang.kinds.ways import UNIT, Array, agrees, framed, ints


def conv(x: Array, w: Array, stride: int, dilation: int, pad: int) -> Array:
    b, h, wd, _ = x.shape
    r, s, _, o = w.shape
    padded = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    ho = (h + 2 * pad - dilation * (r - 1) - 1) // stride + 1
    wo = (wd + 2 * pad - dilation * (s - 1) - 1) // stride + 1
    y = np.zeros((b, ho, wo, o), np.float32)
    for i, j in np.ndindex(ho, wo):
        rows = slice(i * stride, i * stride + dilation * (r - 1) + 1, dilation)
        columns = slice(j * stride, j * stride + dilation * (s - 1) + 1, dilation)
        y[:, i, j] = np.einsum("brsc,rsco->bo", padded[:, rows, columns], w)
    return y


@pytest.mark.parametrize(
    ("shape", "stride", "dilation", "pad"),
    [((1, 5, 6, 2), 1, 1, 0), ((2, 7, 8, 3), 2, 1, 1), ((1, 9, 7, 1), 1, 2, 2), ((2, 8, 8, 2), 3, 2, 1)],
)
def test_conv2d(shape: tuple[int, ...], stride: int, dilation: int, pad: int) -> None:
    x, w = ints(*shape), ints(3, 2, shape[-1], 4)
    called = stride == 2
    options = {"stride": stride, "dilation": dilation, "pad": pad}
    agrees(k.conv2d, framed(x), w, None, wants=conv(x, w, stride, dilation, pad), called=called, **options)


def test_conv2d_with_a_bias() -> None:
    x, w, bias = ints(1, 4, 4, 2), ints(2, 2, 2, 3), ints(3)
    agrees(k.conv2d, x, w, bias, wants=conv(x, w, 1, 1, 0) + bias, called=False)


@pytest.mark.parametrize("stride", [1, 2])
def test_grouped(stride: int) -> None:
    groups, each, out = 2, 3, 2
    x, w = ints(2, groups * each, 9), ints(groups * out, each, 3)
    width = (9 - 3) // stride + 1
    want = np.zeros((2, groups * out, width), np.float32)
    for o, i in np.ndindex(groups * out, width):
        g = o // out
        part = x[:, g * each : (g + 1) * each, i * stride : i * stride + 3]
        want[:, o, i] = (part * w[o]).sum((1, 2))
    agrees(k.grouped, framed(x), w, wants=want, stride=stride, called=False)


def test_depthwise() -> None:
    x, w = ints(2, 3, 5, 6), ints(3, 2, 3)
    want = np.zeros((2, 3, 4, 4), np.float32)
    for i, j in np.ndindex(4, 4):
        want[:, :, i, j] = (x[:, :, i : i + 2, j : j + 3] * w).sum((2, 3))
    agrees(k.depthwise, framed(x), w, wants=want)


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_transposed(stride: int) -> None:
    x, w = ints(2, 5, 3), ints(4, 3, 2)
    want = np.zeros((2, 4 * stride + 4, 2), np.float32)
    for i, s in np.ndindex(5, 4):
        want[:, i * stride + s] += x[:, i] @ w[s]
    agrees(k.transposed, framed(x), w, wants=want, stride=stride, called=stride == 2)
    agrees(k.scattered, framed(x), w, wants=want, stride=stride, called=False)


def test_weight_gradient() -> None:
    x, dy = ints(2, 7, 3), ints(2, 5, 2)
    want = np.stack([np.einsum("bxc,bxo->co", x[:, s : s + 5], dy) for s in range(3)])
    out = np.full((3, 3, 2), np.nan, np.float32)
    agrees(k.weight_gradient, wants=want, copied=lambda: (framed(x), framed(dy), out.copy()), called=False)


@pytest.mark.parametrize(("size", "stride", "pad"), [(2, 2, 0), (3, 1, 1), (3, 2, 1)])
def test_max_pool(size: int, stride: int, pad: int) -> None:
    x = ints(2, 7, 6)
    padded = np.pad(x, ((0, 0), (pad, pad), (pad, pad)), constant_values=-np.inf)
    ho, wo = ((n + 2 * pad - size) // stride + 1 for n in (7, 6))
    y, at = np.zeros((2, ho, wo), np.float32), np.zeros((2, ho, wo), np.int64)
    for b, i, j in np.ndindex(2, ho, wo):
        window = padded[b, i * stride : i * stride + size, j * stride : j * stride + size]
        r, c = np.unravel_index(np.argmax(window), window.shape)
        y[b, i, j], at[b, i, j] = window[r, c], (i * stride + r - pad) * 6 + j * stride + c - pad
    agrees(k.max_pool, framed(x), wants=(y, at), size=size, stride=stride, pad=pad, called=size == 2)


def test_average_and_unpool() -> None:
    x = ints(3, 11)
    parts = x[:, :9].reshape(3, 3, 3).astype(np.float64)
    # The sum of at most nine numbers, and a quotient: nine units of the sizes' mean.
    agrees(k.average_pool, framed(x), wants=parts.mean(2), bound=9 * UNIT * np.abs(parts).mean(2), called=False)
    v, at = ints(2, 4), np.array([[0, 3, 3, 8], [1, 1, 1, 1]])
    want = np.zeros((2, 9), np.float32)
    for b, i in np.ndindex(2, 4):
        want[b, at[b, i]] += v[b, i]
    agrees(k.unpool, wants=want, copied=lambda: (v, at, np.full((2, 9), np.nan, np.float32)), called=False)
