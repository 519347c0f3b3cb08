"""The primitives on NumPy arrays, bit for bit what an IEEE machine does: the backend of the simulator and of the tests.

NumPy has no fused multiply-add. The product of two f32 is exact in f64; the sum with the third is rounded to odd in
f64 (the last bit says that something was cut off), and 53 bits are enough more than 24 that the rounding to f32
is then the rounding of the exact value, subnormal results included.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class NumpyOps:
    """Values are arrays (or scalars) of f32, i32 or bool. Use inside `np.errstate(all="ignore")`, as `apply` does."""

    def const_f32(self, value: float) -> Array:
        result = np.float32(value)
        assert float(result) == value or value != value, f"{value!r} is no f32"
        return np.asarray(result)

    def const_i32(self, value: int) -> Array:
        return np.asarray(value & 0xFFFFFFFF, np.uint32).view(np.int32)

    def add(self, a: Array, b: Array) -> Array:
        return a + b

    def sub(self, a: Array, b: Array) -> Array:
        return a - b

    def mul(self, a: Array, b: Array) -> Array:
        return a * b

    def div(self, a: Array, b: Array) -> Array:
        return a / b

    def sqrt(self, a: Array) -> Array:
        return np.sqrt(a)

    def fma(self, a: Array, b: Array, c: Array) -> Array:
        product = a.astype(np.float64) * b.astype(np.float64)
        addend = c.astype(np.float64)
        total = np.asarray(product + addend)
        # Knuth's two-sum: what the addition lost, exactly.
        part = total - product
        lost = (product - (total - part)) + (addend - part)
        even = (total.view(np.int64) & 1) == 0
        odd = np.nextafter(total, np.where(lost > 0, np.inf, -np.inf))
        cut = np.isfinite(total) & (lost != 0) & even
        return np.where(cut, odd, total).astype(np.float32)

    def neg(self, a: Array) -> Array:
        return np.negative(a)

    def abs(self, a: Array) -> Array:
        return np.abs(a)

    def copysign(self, a: Array, sign: Array) -> Array:
        return np.copysign(a, sign)

    def max(self, a: Array, b: Array) -> Array:
        return np.where(a > b, a, b)

    def min(self, a: Array, b: Array) -> Array:
        return np.where(a < b, a, b)

    def round_even(self, a: Array) -> Array:
        return np.rint(a)

    def float_to_int(self, a: Array) -> Array:
        wide = np.where(np.abs(a) < 2.0**31, a, np.float32(-(2.0**31)))
        return wide.astype(np.int32)

    def int_to_float(self, a: Array) -> Array:
        return a.astype(np.float32)

    def as_int(self, a: Array) -> Array:
        return np.asarray(a, np.float32).view(np.int32)

    def as_float(self, a: Array) -> Array:
        return np.asarray(a, np.int32).view(np.float32)

    def iadd(self, a: Array, b: Array) -> Array:
        return a + b

    def isub(self, a: Array, b: Array) -> Array:
        return a - b

    def imul(self, a: Array, b: Array) -> Array:
        return a * b

    def umulhi(self, a: Array, b: Array) -> Array:
        wide = _unsigned(a).astype(np.uint64) * _unsigned(b).astype(np.uint64)
        return np.asarray(wide >> np.uint64(32)).astype(np.uint32).view(np.int32)

    def and_(self, a: Array, b: Array) -> Array:
        return a & b

    def or_(self, a: Array, b: Array) -> Array:
        return a | b

    def xor(self, a: Array, b: Array) -> Array:
        return a ^ b

    def shl(self, a: Array, count: Array) -> Array:
        return np.asarray(_unsigned(a) << _unsigned(count)).view(np.int32)

    def lshr(self, a: Array, count: Array) -> Array:
        return np.asarray(_unsigned(a) >> _unsigned(count)).view(np.int32)

    def ashr(self, a: Array, count: Array) -> Array:
        return a >> count

    def lt(self, a: Array, b: Array) -> Array:
        return a < b

    def le(self, a: Array, b: Array) -> Array:
        return a <= b

    def gt(self, a: Array, b: Array) -> Array:
        return a > b

    def ge(self, a: Array, b: Array) -> Array:
        return a >= b

    def eq(self, a: Array, b: Array) -> Array:
        return a == b

    def ne(self, a: Array, b: Array) -> Array:
        return a != b

    def is_nan(self, a: Array) -> Array:
        return np.isnan(a)

    def ieq(self, a: Array, b: Array) -> Array:
        return a == b

    def ilt(self, a: Array, b: Array) -> Array:
        return a < b

    def select(self, mask: Array, a: Array, b: Array) -> Array:
        return np.where(mask, a, b)

    def pick(self, index: Array, values: tuple[float, ...]) -> Array:
        return np.stack([self.const_f32(v) for v in values])[index & 15]

    def rare(self, mask: Array, slow: Callable[[], Array], fast: Array) -> Array:
        return np.where(mask, slow(), fast) if np.any(mask) else fast


def apply(expansion: Callable[..., Array], *arrays: Array) -> Array:
    """The expansion evaluated on f32 arrays; the result has their broadcast shape."""
    with np.errstate(all="ignore"):
        return np.asarray(expansion(NumpyOps(), *(np.asarray(a, np.float32) for a in arrays)), np.float32)


def _unsigned(a: Array) -> NDArray[np.uint32]:
    return np.asarray(a, np.int32).view(np.uint32)
