"""Quantised products: exact where the scales are powers of two, every code of the small formats, bounds of
quantising.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.lib.ways import BF16, clean, random, reals, run, whole

from treadle.lib import quantised as lib

E4M3, E5M2, E8M0 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e8m0fnu
F4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def powers(g: np.random.Generator, *shape: int) -> np.ndarray:
    return (2.0 ** g.integers(-3, 4, shape)).astype(np.float32)


def halves(packed: np.ndarray) -> np.ndarray:
    """The codes of the two elements in each byte, low bits first."""
    return np.stack([packed & 15, packed >> 4], -1).reshape(*packed.shape[:-1], -1)


def test_quantise_int8() -> None:
    x = reals(random(), 6, 37, scale=5)
    x[2] = 0
    q, scale = lib.quantise_int8(x)
    assert q.dtype == np.int8 and (np.abs(q).max(1)[scale > 0] == 127).all() and scale[2] == 0 and (q[2] == 0).all()
    assert (np.abs(x - q * scale[:, None]) <= scale[:, None] * (0.5 + 127 * 2.0**-22)).all()
    other = lib.quantise_int8.reference(x)
    np.testing.assert_array_equal(q, other[0])
    clean(lib.quantise_int8, x)


def test_quantise_fp8() -> None:
    x = reals(random(1), 6, 37, scale=5)
    x[2] = 0
    q, scale = lib.quantise_fp8(x)
    back = q.astype(np.float64) * scale[:, None]
    assert q.dtype == E4M3 and (np.abs(q.astype(float)).max(1)[scale > 0] == 448).all() and scale[2] == 0
    # Three stored bits: half an ulp is 2^-4 of the value, and of the least normal 2^-6 where it is smaller.
    assert (np.abs(x - back) <= 1.01 * np.maximum(2.0**-4 * np.abs(x), 2.0**-10 * scale[:, None])).all()
    np.testing.assert_array_equal(q, lib.quantise_fp8.reference(x)[0])


def test_int8_matmul() -> None:
    g = random(2)
    x, w = whole(g, 9, 70, most=127, dtype=np.int8), whole(g, 70, 17, most=127, dtype=np.int8)
    a, b, bias = powers(g, 9), powers(g, 17), whole(g, 17)
    exact = (x.astype(np.int64) @ w.astype(np.int64)).astype(np.float32).astype(float) * (a[:, None] * b)
    run(lib.int8_matmul, x, w, a, b, want=exact)
    run(lib.int8_matmul, x, w, a, b, bias, want=(exact + bias).astype(np.float32))


@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_int4_matmul(dtype: object) -> None:
    g = random(3)
    packed = g.integers(0, 256, (10, 32)).astype(np.uint8)
    codes = halves(packed).astype(float)
    w = np.where(codes > 7, codes - 16, codes)
    x, scale, zero = whole(g, 5, 64, dtype=dtype), powers(g, 10, 4), whole(g, 10, 4)
    wide = np.repeat(scale, 16, 1)
    run(lib.int4_matmul, x, packed, scale, group=16, want=x.astype(float) @ (w * wide).T)
    shifted = (w - np.repeat(zero, 16, 1)) * wide
    run(lib.int4_matmul, x, packed, scale, zero, group=16, want=x.astype(float) @ shifted.T)


def test_fp8_matmul() -> None:
    g = random(4)
    x, w = whole(g, 9, 40, dtype=E4M3), whole(g, 40, 17, dtype=E5M2)
    a, b = powers(g, 9), powers(g, 1)
    want = (x.astype(float) @ w.astype(float)) * a[:, None] * b
    run(lib.fp8_matmul, x, w, a, np.broadcast_to(b, 17), want=want)


def test_fp8_blocks() -> None:
    g = random(5)
    x, w = whole(g, 5, 24, dtype=E4M3), whole(g, 16, 24, dtype=E4M3)
    a, b = powers(g, 5, 3), powers(g, 2, 3)
    want = (x.astype(float) * np.repeat(a, 8, 1)) @ (w.astype(float) * np.repeat(np.repeat(b, 8, 0), 8, 1)).T
    run(lib.fp8_block_matmul, x, w, a, b, block=8, want=want)
    clean(lib.fp8_block_matmul, x, w, a, b, block=8)


def test_microscaled() -> None:
    g = random(6)
    x, w = whole(g, 3, 64, dtype=E4M3), whole(g, 5, 64, dtype=E4M3)
    a, b = powers(g, 3, 2), powers(g, 5, 2)
    long = [np.repeat(s, 32, 1) for s in (a, b)]
    want = (x.astype(float) * long[0]) @ (w.astype(float) * long[1]).T
    run(lib.mxfp8_matmul, x, w, a.astype(E8M0), b.astype(E8M0), want=want)
    p, q = g.integers(0, 256, (3, 32)).astype(np.uint8), g.integers(0, 256, (5, 32)).astype(np.uint8)
    want = (F4[halves(p)] * long[0]) @ (F4[halves(q)] * long[1]).T
    run(lib.mxfp4_matmul, p, q, a.astype(E8M0), b.astype(E8M0), want=want, compiled=False)
