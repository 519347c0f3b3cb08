"""The primitives in f64 on NumPy arrays, bit for bit what an IEEE machine does: for the simulator and the tests.

The fused multiply-add is put together from exact products and sums (Boldo and Melquiond, "Emulation of FMA and
correctly rounded sums: proved algorithms using rounding to odd"); where a part of the product would be subnormal or
overflow, seldom, it is computed with fractions.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.math.numpy_ops import NumpyOps

Array = NDArray[Any]


class NumpyWideOps(NumpyOps):
    """Values are arrays (or scalars) of f64, i64 or bool; what does not depend on the width is inherited."""

    def const_f64(self, value: float) -> Array:
        return np.asarray(value, np.float64)

    def const_i64(self, value: int) -> Array:
        return np.asarray(value & 0xFFFFFFFFFFFFFFFF, np.uint64).view(np.int64)

    def fma(self, a: Array, b: Array, c: Array) -> Array:
        product = a * b
        (ah, al), (bh, bl) = _split(a), _split(b)
        tail = al * bl - (((product - ah * bh) - al * bh) - ah * bl)
        low, low_lost = _sum(c, tail)
        high, high_lost = _sum(product, low)
        result = high + _odd_sum(high_lost, low_lost)
        size = np.abs(product)
        ends = (size < _LEAST) & (a != 0) & (b != 0) | (size > _MOST) | (np.abs(a) > _MOST) | (np.abs(b) > _MOST)
        ends |= np.abs(c) > _MOST
        result = np.where(result == 0, product + c, result)  # for the sign of an exact zero
        return np.where(ends, _by_fractions(ends, a, b, c), result)

    def float_to_int(self, a: Array) -> Array:
        inside = np.where(np.abs(a) < 2.0**63, a, -(2.0**63))
        return inside.astype(np.int64)

    def int_to_float(self, a: Array) -> Array:
        return np.asarray(a).astype(np.float64)

    def as_int(self, a: Array) -> Array:
        return np.asarray(a, np.float64).view(np.int64)

    def as_float(self, a: Array) -> Array:
        return np.asarray(a, np.int64).view(np.float64)

    def umulhi(self, a: Array, b: Array) -> Array:
        x, y = (np.asarray(v, np.int64).view(np.uint64) for v in (a, b))
        half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
        xl, xh, yl, yh = x & mask, x >> half, y & mask, y >> half
        middle = xh * yl + ((xl * yl) >> half)
        carried = (middle & mask) + xl * yh
        return np.asarray(xh * yh + (middle >> half) + (carried >> half)).view(np.int64)

    def shl(self, a: Array, count: Array) -> Array:
        return np.asarray(_unsigned(a) << _unsigned(count)).view(np.int64)

    def lshr(self, a: Array, count: Array) -> Array:
        return np.asarray(_unsigned(a) >> _unsigned(count)).view(np.int64)


def apply_wide(expansion: Callable[..., Array], *arrays: Array) -> Array:
    """The expansion evaluated on f64 arrays; the result has their broadcast shape."""
    with np.errstate(all="ignore"):
        return np.asarray(expansion(NumpyWideOps(), *(np.asarray(a, np.float64) for a in arrays)), np.float64)


_LEAST, _MOST = 2.0**-900, 2.0**900


def _by_fractions(where: Array, a: Array, b: Array, c: Array) -> Array:
    """a * b + c rounded once, where it is asked for; by plain arithmetic where that is exact in its own way."""
    plain = np.asarray(a * b + c)
    out, *parts = np.broadcast_arrays(plain, a, b, c)
    out = out.copy()
    asked = np.broadcast_to(where, out.shape) & np.isfinite(parts[0]) & np.isfinite(parts[1]) & np.isfinite(parts[2])
    for i in zip(*np.nonzero(asked), strict=True) if out.ndim else [()] * bool(asked):
        x, y, z = (Fraction(float(p[i])) for p in parts)
        exact = x * y + z
        try:
            out[i] = float(exact) if exact else plain[i] if plain.ndim else plain
        except OverflowError:
            out[i] = np.copysign(np.inf, float(np.sign(exact.numerator)))
    return out


def _unsigned(a: Array) -> NDArray[np.uint64]:
    return np.asarray(a, np.int64).view(np.uint64)


def _split(x: Array) -> tuple[Array, Array]:
    """Two halves of 26 bits each."""
    scaled = x * 134217729.0  # 2^27 + 1
    high = scaled - (scaled - x)
    return high, x - high


def _sum(x: Array, y: Array) -> tuple[Array, Array]:
    """The sum and what its rounding lost, exactly."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def _odd_sum(x: Array, y: Array) -> Array:
    """The sum rounded to odd."""
    total, lost = _sum(x, y)
    even = (np.asarray(total).view(np.int64) & 1) == 0
    cut = np.isfinite(total) & (lost != 0) & even
    return np.where(cut, np.nextafter(total, np.where(lost > 0, np.inf, -np.inf)), total)
