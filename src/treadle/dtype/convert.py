"""Conversion between dtypes on NumPy arrays: the one statement of the rounding rules.

Float to float rounds to nearest even, once, subnormals included; what overflows becomes what the format has for it:
infinity, else NaN, else the largest number. With `saturate` it becomes the largest finite number, infinities too.
Float to integer truncates and saturates, NaN becomes 0. Integer to integer wraps, or clamps with `saturate`.
Bool is `x != 0`.

Formats that lack a special value take the nearest stand-in. f8e8m0 has neither sign nor zero: negative numbers, zero
and what overflows become NaN, positive numbers below the smallest become the smallest. f4e2m1 has no NaN: NaN becomes
its largest number, as the GPU instruction does (ml_dtypes makes it -0).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.dtype.formats import DType, bf16, f16, f32, f64

Array = NDArray[Any]


def convert(array: Array, src: DType, dst: DType, saturate: bool = False) -> Array:
    """`array` of `src` as `dst`, by the rules above. Requires: `array.dtype == src.numpy`.

    Ensures: a value that `dst` holds is unchanged, the sign of zero included.
    """
    array = np.asarray(array)
    assert array.dtype == src.numpy, f"an array of {array.dtype} given as {src}"
    if src == dst:
        return array.copy()
    with np.errstate(all="ignore"):
        if dst.is_bool:
            return as_computable(array, src) != 0
        if src.is_float:
            return _float_to_float(array, src, dst, saturate) if dst.is_float else _float_to_int(array, src, dst)
        whole = as_computable(array, src)
        return _int_to_float(whole, dst, saturate) if dst.is_float else _int_to_int(whole, dst, saturate)


def as_computable(array: Array, src: DType) -> Array:
    """The values exactly, in a NumPy dtype proper: f32 for small floats, i64 for integers that fit, u64 for u64."""
    if src.is_float:
        return array if src in (f32, f64) else array.astype(np.float32)
    return array if src.name == "u64" else array.astype(np.int64)


def bitcast(array: Array, src: DType, dst: DType) -> Array:
    """The same bits read as `dst`. Requires: `src` and `dst` have equally many bits."""
    assert src.bits == dst.bits and array.dtype == src.numpy, f"{src} to {dst} keeps no bits"
    if not src.packed:
        return np.ascontiguousarray(array).view(dst.numpy).reshape(array.shape)
    return from_code(to_code(array, src), dst)


def to_code(array: Array, src: DType) -> NDArray[np.uint8]:
    """The encoding of each element of a format of at most 8 bits, in the low bits of a byte."""
    assert src.bits <= 8
    raw = np.ascontiguousarray(array).view(np.uint8).reshape(array.shape)
    return raw & np.uint8((1 << src.bits) - 1)


def from_code(code: NDArray[np.uint8], dst: DType) -> Array:
    """Inverse of `to_code`."""
    assert dst.bits <= 8
    code = np.ascontiguousarray(code)
    if dst.kind == "int" and dst.bits < 8:
        # The NumPy representation keeps a negative number sign-extended in its byte.
        sign = np.uint8(1 << (dst.bits - 1))
        code = ((code ^ sign) - sign).astype(np.uint8)
    return code.view(dst.numpy).reshape(code.shape)


def round_to(values: NDArray[np.float64], dst: DType, saturate: bool = False) -> NDArray[np.float64]:
    """f64 values rounded to numbers of `dst`, still as f64. Requires: `dst` is a float of at most 32 bits.

    Ensures: one rounding, to nearest; a tie goes to the even mantissa (without mantissa bits, to the larger number).
    """
    with np.errstate(all="ignore"):
        magnitude = np.abs(values)
        finite = np.isfinite(values)
        _, exponent = np.frexp(np.where(finite, magnitude, 1.0))
        # frexp's fraction is in [1/2, 1): the leading bit stands one below. Below the normals the step stays.
        step = np.maximum(exponent.astype(np.int64) - 1, dst.min_exponent) - dst.mantissa
        # In two halves: 2 ** step alone, or its inverse, may be beyond f64 for the smallest inputs.
        half = step // 2
        scaled = np.ldexp(np.ldexp(magnitude, -half), -(step - half))
        rounded = np.ldexp(np.ldexp(np.rint(scaled), half), step - half)
        top = float(dst.finite_max)
        beyond = finite & (rounded > top)
        rounded = np.where(beyond, top if saturate or not (dst.has_inf or dst.has_nan) else np.inf, rounded)
        rounded = np.where(np.isinf(values), top if saturate or not (dst.has_inf or dst.has_nan) else np.inf, rounded)
        if not dst.has_inf:
            rounded = np.where(np.isinf(rounded), np.nan, rounded)
        if not dst.has_zero:
            rounded = np.where((rounded == 0) & (magnitude > 0), dst.smallest, rounded)
            rounded = np.where((magnitude == 0) | (values < 0), np.nan, rounded)
        result = np.copysign(rounded, values) if dst.signed else rounded
        return np.where(np.isnan(values), np.nan if dst.has_nan else top, result)


def _float_to_float(array: Array, src: DType, dst: DType, saturate: bool) -> Array:
    if dst in (f16, f32, f64) and not saturate:
        return as_computable(array, src).astype(dst.numpy)
    if dst == f64:
        return np.clip(as_computable(array, src).astype(np.float64), -f64.finite_max, f64.finite_max)
    if dst == bf16 and src != f64 and not saturate:
        # From f32 the library rounds once; from f64 it would round twice, through f32.
        return as_computable(array, src).astype(dst.numpy)
    return _exactly(round_to(as_computable(array, src).astype(np.float64), dst, saturate), dst)


def _float_to_int(array: Array, src: DType, dst: DType) -> Array:
    values = as_computable(array, src).astype(np.float64)
    low, high = int(dst.finite_min), int(dst.finite_max)
    whole = np.trunc(values)
    # Both limits are exact in f64: a power of two or zero. The largest i64 itself would not be.
    above, below = whole >= float(high + 1), whole < float(low)
    inside = np.where(above | below | np.isnan(values), 0.0, whole)
    wide = np.uint64 if dst.name == "u64" else np.int64
    result = inside.astype(wide)
    result[...] = np.where(above, wide(high), np.where(below, wide(low), result))
    return result.astype(dst.numpy)


def _int_to_int(whole: Array, dst: DType, saturate: bool) -> Array:
    if saturate:
        whole = _clamped(whole, int(dst.finite_min), int(dst.finite_max))
    if dst.packed:
        return from_code((whole & whole.dtype.type((1 << dst.bits) - 1)).astype(np.uint8), dst)
    return whole.astype(dst.numpy)


def _clamped(whole: Array, low: int, high: int) -> Array:
    limits = np.iinfo(whole.dtype)
    return np.clip(whole, whole.dtype.type(max(low, limits.min)), whole.dtype.type(min(high, limits.max)))


def _int_to_float(whole: Array, dst: DType, saturate: bool) -> Array:
    if dst in (f32, f64):
        return whole.astype(dst.numpy)  # the hardware's conversion: rounded once
    return _exactly(round_to(_to_odd(whole), dst, saturate), dst)


def _to_odd(whole: Array) -> NDArray[np.float64]:
    """Integers as f64, cut off with the last bit set where something was cut (round to odd).

    A later rounding to at most 51 bits then gives the same as rounding the integer at once.
    """
    of = whole.dtype.type
    # An arithmetic shift floors; setting the last bit of an even floor moves to the odd neighbour above.
    head = (whole >> of(11)) | ((whole & of(0x7FF)) != 0).astype(whole.dtype)
    exact = np.abs(whole.astype(np.float64)) < 2.0**53
    return np.where(exact, whole.astype(np.float64), head.astype(np.float64) * 2048.0)


def _exactly(values: NDArray[np.float64], dst: DType) -> Array:
    """Numbers of `dst` held in f64, as `dst`: no rounding is left to do."""
    return values.astype(np.float32).astype(dst.numpy)
