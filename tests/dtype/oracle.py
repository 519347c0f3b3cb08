"""An independent statement of rounding: a search in the table of all numbers of a format, with exact midpoints.

It shares no arithmetic with `treadle.dtype.convert`, which scales, rounds to an integer and scales back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.dtype.convert import from_code
from treadle.dtype.formats import DType

Array = NDArray[Any]


def every_value(d: DType) -> Array:
    """All values of a format of at most 16 bits, by code."""
    if d.is_bool:
        return np.array([False, True])
    if d.bits <= 8:
        return from_code(np.arange(1 << d.bits, dtype=np.uint8), d)
    return np.arange(1 << 16, dtype=np.uint16).view(d.numpy)


def exact(values: Array) -> NDArray[np.float64]:
    """The values in f64. Requires: they fit (all formats but the 64-bit integers)."""
    with np.errstate(invalid="ignore"):  # ml_dtypes says so of NaN
        return values.astype(np.float64)


def table(d: DType) -> NDArray[np.float64]:
    """The non-negative finite numbers in ascending order: the index of a number is its code, the sign apart."""
    found = exact(every_value(d))
    half = found[: len(found) // 2] if d.signed else found
    numbers = half[np.isfinite(half)]
    assert (np.diff(numbers) > 0).all()
    return numbers


def rounded(values: NDArray[np.float64], d: DType, saturate: bool) -> NDArray[np.float64]:
    """f64 values to a float format of at most 16 bits: nearest, a tie to the even code; overflow as the format says."""
    numbers = table(d)
    # A number above the table decides what overflows; f8e8m0 goes up by factors, all others by the last step.
    beyond = numbers[-1] * 2 if not d.has_zero else 2 * numbers[-1] - numbers[-2]
    wide = np.append(numbers, beyond)
    middle = wide[:-1] + np.diff(wide) / 2  # exact: formats have far fewer bits than f64
    size = np.abs(values)
    below = np.searchsorted(middle, size, side="left")
    tied = (below < len(middle)) & (middle[np.minimum(below, len(middle) - 1)] == size)
    # The mantissa of a tie's lower neighbour is odd: up. f8e8m0 has no mantissa bits, its hidden one is odd: up.
    odd = (below % 2 == 1) if d.mantissa else np.ones(below.shape, bool)
    index = np.minimum(below + (tied & odd), len(numbers))
    top = numbers[-1]
    over = top if saturate else np.inf if d.has_inf else np.nan if d.has_nan else top
    out = np.where(index == len(numbers), over, wide[index])
    out = np.where(np.isnan(values), np.nan if d.has_nan else top, out)
    if not d.signed:
        return np.where((values < 0) | (values == 0), np.nan, out)
    return np.copysign(out, np.where(np.isnan(values), 1.0, values))


def clamped(values: NDArray[np.float64], d: DType) -> list[int]:
    """f64 values to an integer format, as Python integers: truncated, saturated, NaN to 0."""
    low, high = int(d.finite_min), int(d.finite_max)
    out: list[int] = []
    for v in values.tolist():
        if v != v:
            out.append(0)
        elif v in (np.inf, -np.inf):
            out.append(high if v > 0 else low)
        else:
            out.append(min(max(int(v), low), high))
    return out


def same(a: Array, b: Array) -> bool:
    """Equal values, NaN with NaN, the sign of zero included."""
    a, b = exact(a), exact(b)
    zeros = (a == 0) & (b == 0)
    return bool(np.all(((a == b) & (~zeros | (np.signbit(a) == np.signbit(b)))) | (np.isnan(a) & np.isnan(b))))
