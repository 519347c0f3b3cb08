"""Convolutions on integers, exactly: strides, padding, dilation, groups, both layouts, and the two gradients as
adjoints.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.lib.ways import BF16, clean, random, run, whole

from treadle.lib import convolution as lib

Array = np.ndarray


def conv(x: Array, w: Array, stride: Any = 1, pad: Any = 0, dilation: Any = 1, groups: int = 1) -> Array:
    """Over any number of axes, channels first, by taps."""
    axes = x.ndim - 2
    stride, pad, dilation = (lib.pair(v, axes) for v in (stride, pad, dilation))
    x = np.pad(x.astype(float), ((0, 0), (0, 0), *((p, p) for p in pad)))
    taps = w.shape[2:]
    outs = [(n - d * (k - 1) - 1) // s + 1 for n, d, k, s in zip(x.shape[2:], dilation, taps, stride)]
    y = np.zeros((x.shape[0], w.shape[0], *outs))
    for tap in np.ndindex(*taps):
        cut = [slice(t * d, t * d + s * (o - 1) + 1, s) for t, d, s, o in zip(tap, dilation, stride, outs)]
        seen = x[(slice(None), slice(None), *cut)]
        for g, (left, right) in enumerate(zip(np.split(seen, groups, 1), np.split(w, groups, 0))):
            n = right.shape[0]
            y[:, g * n : (g + 1) * n] += np.einsum("bp...,qp->bq...", left, right[(..., *tap)].astype(float))
    return y


CASES = [
    {},
    {"stride": 2, "pad": 1},
    {"stride": (2, 1), "pad": (1, 0), "dilation": (1, 2), "groups": 2},
    {"pad": 2, "dilation": 2, "groups": 3},
]


@pytest.mark.parametrize("kw", CASES, ids=str)
def test_conv2d(kw: dict[str, Any]) -> None:
    g = random()
    groups = kw.get("groups", 1)
    x, w, bias = whole(g, 2, 6, 9, 10), whole(g, 6, 6 // groups, 3, 2), whole(g, 6)
    want = conv(x, w, **kw)
    once = groups == 2
    run(lib.conv2d, x, w, bias, want=want + bias[:, None, None], compiled=once, **kw)
    last = x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0)
    run(lib.conv2d_nhwc, *last, want=want.transpose(0, 2, 3, 1), compiled=once, **kw)
    d = whole(g, *want.shape)
    dw = np.full(w.shape, np.nan, np.float32)
    lib.conv2d_weights.reference(x, d, dw, **kw)
    assert (dw * w).sum() == (want * d).sum()
    dx = lib.conv_transposed2d.reference(d, w, extra=fitting(x, d, w, kw), **kw)
    assert dx.shape == x.shape and (dx * x).sum() == (want * d).sum()


def fitting(x: Array, d: Array, w: Array, kw: dict[str, Any]) -> tuple[int, ...]:
    """What the transposed map's extents lack of the image's: the elements that no window reached."""
    sizes = zip(x.shape[2:], d.shape[2:], w.shape[2:], *(lib.pair(kw.get(k, n)) for k, n in DEFAULTS.items()))
    return tuple(n - ((o - 1) * s - 2 * p + e * (k - 1) + 1) for n, o, k, s, p, e in sizes)


DEFAULTS = {"stride": 1, "pad": 0, "dilation": 1}


def test_gradients_compiled() -> None:
    g, kw = random(1), {"stride": 2, "pad": 1}
    x, w, d = whole(g, 1, 2, 5, 6), whole(g, 4, 2, 3, 3), whole(g, 1, 4, 3, 3)
    dw = np.zeros(w.shape, np.float32)
    run(lib.conv2d_weights, x, d, dw, want=lib.conv2d_weights.reference(x, d, dw.copy(), **kw), **kw)
    want = lib.conv_transposed2d.reference(d, w, extra=(0, 1), **kw)
    run(lib.conv_transposed2d, d, w, extra=(0, 1), want=want, **kw)


def test_other_ranks() -> None:
    g = random(2)
    x, w = whole(g, 2, 6, 17), whole(g, 4, 3, 3)
    run(lib.conv1d, x, w, stride=2, pad=1, groups=2, want=conv(x, w, 2, 1, 1, 2))
    x, w, bias = whole(g, 1, 3, 4, 5, 6), whole(g, 2, 3, 2, 2, 2), whole(g, 2)
    want = conv(x, w, (1, 2, 1), 1) + bias[:, None, None, None]
    run(lib.conv3d, x, w, bias, stride=(1, 2, 1), pad=1, want=want)


def test_depthwise_and_bf16() -> None:
    g = random(3)
    x, w = whole(g, 2, 5, 9, 10, dtype=BF16), whole(g, 5, 3, 3, dtype=BF16)
    run(lib.depthwise_conv2d, x, w, stride=2, pad=1, want=conv(x, w[:, None], 2, 1, 1, 5))
    clean(lib.depthwise_conv2d, x[:1, :1], w[:1], pad=1)


def test_no_window_fits() -> None:
    x, w = whole(random(4), 1, 2, 2, 5), whole(random(5), 3, 2, 3, 1)
    assert lib.conv2d.reference(x, w).shape == (1, 3, 0, 5)
    assert lib.conv2d(x[:0], w, pad=1).shape == (0, 3, 2, 7)
