"""What each elementwise function and each monoid does to arrays of one dtype.

f16 and bf16 operations are computed in f32 and rounded once; transcendental functions are computed in f64 and rounded
once, so that the reference is within half an ulp of the true value (up to double rounding). Integer arithmetic wraps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.dtype.convert import as_computable, convert
from treadle.dtype.formats import DType, f32, f64
from treadle.dtype.promote import computing

Array = NDArray[Any]

_erf_each: Callable[[Array], Array] = np.vectorize(math.erf, otypes=[np.float64])


def _erf(x: Array) -> Array:
    return _erf_each(x) if x.size else x


def _rsqrt(x: Array) -> Array:
    return 1.0 / np.sqrt(x)


def _maximum(a: Array, b: Array) -> Array:
    """The second where it is greater or NaN, else the first: of two zeros the first. NumPy takes either."""
    return np.where((b > a) | np.isnan(b), b, a)


def _minimum(a: Array, b: Array) -> Array:
    return np.where((b < a) | np.isnan(b), b, a)


# Computed in the operation's own arithmetic (f32 for f16 and bf16).
_DIRECT: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "floordiv": np.floor_divide,
    "mod": np.mod,
    "maximum": _maximum,
    "minimum": _minimum,
    "neg": np.negative,
    "abs": np.abs,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "sqrt": np.sqrt,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
}
# Computed in f64 and rounded once.
_WIDE: dict[str, Callable[..., Array]] = {
    "pow": np.power,
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "rsqrt": _rsqrt,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "erf": _erf,
}
_COMPARE: dict[str, Callable[..., Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "isnan": np.isnan,
    "isinf": np.isinf,
}
_BITS: dict[str, tuple[Callable[..., Array], Callable[..., Array]]] = {
    "and": (np.logical_and, np.bitwise_and),
    "or": (np.logical_or, np.bitwise_or),
    "xor": (np.logical_xor, np.bitwise_xor),
    "not": (np.logical_not, np.invert),
}


def apply(fn: str, dtype: DType, *arrays: Array) -> Array:
    """Elementwise `fn` of arrays whose dtype is `dtype` (for `where`: of the last two), broadcast together."""
    with np.errstate(all="ignore"):
        if fn == "where":
            condition, a, b = arrays
            return np.where(condition, a, b)
        if fn in _BITS:
            logical, bitwise = _BITS[fn]
            return (logical if dtype.is_bool else bitwise)(*arrays)
        if fn in _COMPARE:
            return _COMPARE[fn](*(as_computable(a, dtype) if dtype.is_float else a for a in arrays))
        if dtype.is_bool:
            return {"maximum": np.logical_or, "minimum": np.logical_and}[fn](*arrays)
        if not dtype.is_float:
            return np.asarray(_DIRECT[fn](*arrays)).astype(dtype.numpy)
        if fn in _DIRECT:
            inner = computing(dtype)
            out = _DIRECT[fn](*(a if inner == dtype else convert(a, dtype, inner) for a in arrays))
            return np.asarray(out) if inner == dtype else convert(np.asarray(out), inner, dtype)
        out = np.asarray(_WIDE[fn](*(convert(a, dtype, f64) for a in arrays)))
        return convert(out, f64, dtype)


def identity(monoid: str, dtype: DType) -> Any:
    """The identity of a built-in monoid over a dtype, as a NumPy scalar of it. The float sum's is seen as 0.0."""
    if monoid == "add":
        return dtype.numpy.type(0)
    if monoid == "mul":
        return dtype.numpy.type(1)
    if monoid in ("and", "min"):
        top = True if dtype.is_bool else np.inf if dtype.has_inf else dtype.finite_max
        return -1 if monoid == "and" and not dtype.is_bool else dtype.numpy.type(top)
    low = False if dtype.is_bool else -np.inf if dtype.has_inf else dtype.finite_min
    return dtype.numpy.type(0 if monoid == "or" else low)


_MERGE = {"add": "add", "mul": "mul", "max": "maximum", "min": "minimum", "and": "and", "or": "or", "xor": "xor"}


def merge(monoid: str, dtype: DType, a: Array, b: Array, nan: str = "propagate") -> Array:
    """`a (+) b` of a built-in monoid; `nan="ignore"` makes max and min prefer a number."""
    if nan == "ignore" and monoid in ("max", "min") and dtype.is_float:
        return (np.fmax if monoid == "max" else np.fmin)(a, b)
    return apply(_MERGE[monoid], dtype, a, b)


def fold(monoid: str, dtype: DType, array: Array, axes: tuple[int, ...], *, exact: bool, nan: str) -> Array:
    """The fold over `axes`; `exact` takes the elements strictly in order, from the left."""
    kept = tuple(i for i in range(array.ndim) if i not in axes)
    shape = tuple(array.shape[i] for i in kept)
    # The folded axes' size is stated: -1 has no answer where a kept axis is empty.
    flat = array.transpose(kept + axes).reshape(*shape, math.prod(array.shape[i] for i in axes))
    if flat.shape[-1] == 0:
        return np.full(shape, identity(monoid, dtype), dtype.numpy)
    if not exact and not (nan == "ignore" and dtype.is_float):
        fast = _fast(monoid, dtype, flat)
        if fast is not None:
            return fast
    total = flat[..., 0]
    for i in range(1, flat.shape[-1]):
        total = merge(monoid, dtype, total, flat[..., i], nan)
    return np.asarray(total)


def _fast(monoid: str, dtype: DType, flat: Array) -> Array | None:
    """A regrouped fold by one NumPy call, where the call does what `merge` does."""
    with np.errstate(all="ignore"):
        if monoid in ("max", "min"):
            wide = as_computable(flat, dtype) if dtype.is_float else flat
            out = (np.max if monoid == "max" else np.min)(wide, axis=-1)
            return np.asarray(out).astype(dtype.numpy)
        if monoid == "add" and dtype in (f32, f64):
            return np.asarray(np.sum(flat, axis=-1, dtype=dtype.numpy))
        if monoid in ("add", "mul") and dtype.is_int:
            return np.asarray((np.sum if monoid == "add" else np.prod)(flat, axis=-1, dtype=dtype.numpy))
    return None
