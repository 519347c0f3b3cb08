"""What statements compute: elementwise functions, folds in slot order, contractions as the atoms do them.

Exact arithmetic is `evaluate.scalar`'s; the functions of room `math` are its own expansions on NumPy arrays, the same
primitives in the same order as emitted code, so that simulated bits equal the machine's.

Sums of a contraction, by the first part of the atom's name:

- `fma`: `acc = fma(a_k, b_k, acc)` for ascending contracted coordinates, in the accumulator's dtype;
- `amx`: products exact; even and odd contracted coordinates are summed apart, each as an fma chain from 0, the two sums
  are added, then added to the accumulator;
- `mma`, `wgmma`: the manuals fix no order. Products are exact, their sum is taken in f64 and rounded once, then added
to
  the accumulator. Tests of these atoms use data for which every order is exact.

Integers wrap and have no order to choose.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.dtype.convert import convert
from treadle.dtype.formats import DType, f32, f64
from treadle.evaluate import scalar
from treadle.ir.ops.elementwise import ELEMENTWISE
from treadle.math.numpy_ops import NumpyOps
from treadle.math.numpy_ops import apply as apply_expansion
from treadle.math.table import FUNCTIONS

Array = NDArray[Any]


def elementwise(fn: str, dtype: DType, arrays: list[Array], accuracy: str = "2ulp") -> Array:
    """`fn` of arrays of `dtype` (for `where`, of the last two)."""
    if fn == "fma":
        return fused(dtype, *arrays)
    function = FUNCTIONS.get(fn)
    if function is None or not dtype.is_float or dtype == f64:
        return np.asarray(scalar.apply(fn, dtype, *arrays))
    # "exact" and "storage" concern other formats: the expansion of f32 is the precise one.
    chosen = function.classes.get(accuracy, function.classes["2ulp"])
    wide = [a if dtype == f32 else convert(a, dtype, f32) for a in arrays]
    result = apply_expansion(chosen.expand, *wide)
    return result if dtype == f32 else convert(result, f32, dtype)


def is_function(fn: str) -> bool:
    """Whether `elementwise` has a meaning for the name."""
    return fn == "fma" or fn in ELEMENTWISE or fn in FUNCTIONS


def fused(dtype: DType, a: Array, b: Array, c: Array) -> Array:
    """`a * b + c` rounded once to `dtype`."""
    with np.errstate(all="ignore"):
        if not dtype.is_float:
            return np.asarray(a * b + c).astype(dtype.numpy)
        if dtype == f64:
            return _fused_f64(a, b, c)
        if dtype == f32:
            return np.asarray(NumpyOps().fma(a, b, c))
        wide = [convert(v, dtype, f64) for v in (a, b, c)]
        # Products and sums of 11-bit significands: f64 holds the product, and the sum is rounded to odd before the
        # last.
        return convert(_odd_sum(wide[0] * wide[1], wide[2]), f64, dtype)


def _odd_sum(x: Array, y: Array) -> Array:
    total = x + y
    part = total - x
    lost = (x - (total - part)) + (y - part)
    even = (np.asarray(total).view(np.int64) & 1) == 0
    cut = np.isfinite(total) & (lost != 0) & even
    return np.where(cut, np.nextafter(total, np.where(lost > 0, np.inf, -np.inf)), total)


def _split(x: Array) -> tuple[Array, Array]:
    scaled = x * 134217729.0  # 2^27 + 1
    high = scaled - (scaled - x)
    return high, x - high


def _fused_f64(a: Array, b: Array, c: Array) -> Array:
    """By Boldo and Melquiond: the exact product and sum as pairs, the low parts added with rounding to odd."""
    product = a * b
    (ah, al), (bh, bl) = _split(a), _split(b)
    tail = al * bl - (((product - ah * bh) - al * bh) - ah * bl)
    s = c + tail
    part = s - c
    s_lost = (c - (s - part)) + (tail - part)
    total = product + s
    part = total - product
    t_lost = (product - (total - part)) + (s - part)
    result = total + _odd_sum(t_lost, s_lost)
    # Where a part overflowed, the plain operation is what is left: infinities and NaN come out right.
    return np.where(np.isfinite(result), result, product + c)


def fold(monoid: str, dtype: DType, values: Array, nan: str) -> Array:
    """The fold of the last axis, strictly in order from the left."""
    total = values[..., 0]
    for i in range(1, values.shape[-1]):
        total = merge(monoid, dtype, total, values[..., i], nan)
    return np.asarray(total)


def merge(monoid: str, dtype: DType, a: Array, b: Array, nan: str) -> Array:
    """`a (+) b`."""
    with np.errstate(all="ignore"):
        if monoid == "xor":
            return np.asarray(scalar.apply("xor", dtype, a, b))
        return np.asarray(scalar.merge(monoid, dtype, a, b, nan))


def contract(atom: str, dtype: DType, acc: Array, a: Array, b: Array) -> Array:
    """`acc[i] + sum over k of a[i, k] * b[i, k]`, operands already of the accumulator's dtype (exactly converted)."""
    with np.errstate(all="ignore"):
        family = atom.split(".")[0]
        if not dtype.is_float:
            return (acc + np.sum(a * b, axis=-1, dtype=dtype.numpy)).astype(dtype.numpy)
        if family == "fma":
            return _chain(dtype, acc, a, b)
        if family == "amx":
            zero = np.zeros(acc.shape, dtype.numpy)
            parts = _chain(dtype, zero, a[:, 0::2], b[:, 0::2]) + _chain(dtype, zero, a[:, 1::2], b[:, 1::2])
            return acc + parts
        exact = np.sum(a.astype(np.float64) * b.astype(np.float64), axis=-1)
        return acc + exact.astype(dtype.numpy)


def _chain(dtype: DType, acc: Array, a: Array, b: Array) -> Array:
    for k in range(a.shape[-1]):
        acc = fused(dtype, a[:, k], b[:, k], acc)
    return acc
