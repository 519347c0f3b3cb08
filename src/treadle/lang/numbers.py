"""The functions of the language on Python numbers, at capture: what they give on tiles, in f64.

NaN, infinities and values out of a function's domain follow NumPy there too: `td.exp(1000.0)` is infinity and
`td.log(-1.0)` is NaN, where Python's `math` raises. Python's own operators on numbers stay Python's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Number = bool | int | float


def as_float(x: Number) -> float:
    """The nearest f64; infinity for integers beyond it."""
    try:
        return float(x)
    except OverflowError:
        return math.inf if x > 0 else -math.inf


def _numpy(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function of NumPy on Python numbers."""

    def of(*args: Number) -> float:
        with np.errstate(all="ignore"):
            return float(fn(*(np.float64(as_float(x)) for x in args)))

    return of


def _rsqrt(x: Any) -> Any:
    return 1 / np.sqrt(x)


def _whole(fn: Callable[[Any], Any], otherwise: Callable[[Any], Any]) -> Callable[[Number], Any]:
    """A rounding function: whole numbers as Python's integers, infinities and NaN as they are."""
    return lambda x: fn(x) if isinstance(x, int) or math.isfinite(x) else float(otherwise(x))


def _extremum(better: Callable[[Any, Any], Any]) -> Callable[[Number, Number], Number]:
    """`max` or `min`, but NaN where either is."""

    def of(x: Number, y: Number) -> Number:
        return x if x != x else y if y != y else better(x, y)

    return of


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exp": _numpy(np.exp),
    "exp2": _numpy(np.exp2),
    "expm1": _numpy(np.expm1),
    "log": _numpy(np.log),
    "log2": _numpy(np.log2),
    "log1p": _numpy(np.log1p),
    "sqrt": _numpy(np.sqrt),
    "rsqrt": _numpy(_rsqrt),
    "sin": _numpy(np.sin),
    "cos": _numpy(np.cos),
    "tanh": _numpy(np.tanh),
    "erf": lambda x: math.erf(as_float(x)),
    "floor": _whole(math.floor, np.floor),
    "ceil": _whole(math.ceil, np.ceil),
    "trunc": _whole(math.trunc, np.trunc),
    "round": _whole(round, np.rint),
    "isnan": lambda x: math.isnan(as_float(x)),
    "isinf": lambda x: not isinstance(x, int) and math.isinf(x),
    "abs": abs,
}
"""Elementwise functions of one number."""

maximum = _extremum(max)
minimum = _extremum(min)


def power(x: Number, y: Number) -> Number:
    """`x` to the power of `y`: an integer for integers with `y >= 0` (of a size that some dtype holds), else f64."""
    if isinstance(x, int) and isinstance(y, int) and y >= 0 and int(x).bit_length() * y <= 4096:
        return x**y
    return _numpy(np.power)(x, y)
