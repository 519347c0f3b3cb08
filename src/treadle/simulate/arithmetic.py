"""What statements compute: elementwise functions, folds in slot order, contractions as the atoms do them.

Exact arithmetic is `evaluate.scalar`'s; the functions of room `math` are its own expansions on NumPy arrays, the same
primitives in the same order as emitted code, so that simulated bits equal the machine's.

Sums of a contraction, by the first part of the atom's name:

- `fma`, `ffma`: `acc = fma(a_k, b_k, acc)` for ascending contracted coordinates, in the accumulator's dtype;
- `muladd`: `acc = acc + a_k * b_k`, rounded twice, in the same order;
- `dpbf16`: the same chain, in each pair the odd coordinate first; subnormals are flushed;
- `amx`: products exact; even and odd contracted coordinates are summed apart, each as an fma chain from 0, the two sums
  are added, then added to the accumulator; subnormals are flushed;
- `mma`, `wgmma`: the manuals fix no order. Products are exact (of `tf32` operands without their 13 lowest bits), their
  sum is taken in f64 and rounded once, then added to the accumulator. Tests of these atoms use data for which every
  order is exact.

Integers wrap and have no order to choose.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.algebra.monoids import MONOIDS
from treadle.dtype.convert import as_computable, convert
from treadle.dtype.formats import DType, f32, f64
from treadle.evaluate import scalar
from treadle.ir.ops.elementwise import ELEMENTWISE
from treadle.math.numpy_ops import NumpyOps
from treadle.math.numpy_ops import apply as apply_expansion
from treadle.math.numpy_wide import apply_wide
from treadle.math.table import BY_WIDE, FUNCTIONS, expansion, wide_expansion

Array = NDArray[Any]


def elementwise(fn: str, dtype: DType, arrays: list[Array], accuracy: str = "2ulp", target: str = "") -> Array:
    """`fn` of arrays of `dtype` (for `where`, of the last two), as the target computes it."""
    if fn == "fma":
        return fused(dtype, *arrays)
    if fn == "fms":
        a, b, c = arrays
        return fused(dtype, a, b, np.asarray(scalar.apply("neg", dtype, c)))
    if fn in ("maximum", "minimum"):
        return merge(fn[:3], dtype, *arrays, nan="propagate")
    if fn not in FUNCTIONS or not dtype.is_float:
        return np.asarray(scalar.apply(fn, dtype, *arrays))
    if dtype == f64 or accuracy in BY_WIDE:
        result = apply_wide(wide_expansion(fn).expand, *(convert(a, dtype, f64) for a in arrays))
        return result if dtype == f64 else convert(convert(result, f64, f32), f32, dtype)
    chosen = expansion(fn, accuracy, target)
    wide = [a if dtype == f32 else convert(a, dtype, f32) for a in arrays]
    result = apply_expansion(chosen.expand, *wide)
    return result if dtype == f32 else convert(result, f32, dtype)


def is_function(fn: str) -> bool:
    """Whether `elementwise` has a meaning for the name."""
    return fn in ("fma", "fms") or fn in ELEMENTWISE or fn in FUNCTIONS


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


def fold(monoid: str, dtype: DType, values: Array, orders: Sequence[Array], nan: str) -> Array:
    """The fold of the trailing axes, one after another, the outer first, each in its `order` (see `fragments.order`).

    An order's last axis are a thread's own slots, folded by halving; the axes before it are bits of the lane, the
    largest stride first: the lane without the bit is the left operand."""
    for order in orders:
        bits = order.ndim - 1
        # The axis behind the destination goes last and is laid out by its order.
        part = np.moveaxis(values, 1, -1)[..., order]
        while part.shape[-1] > 1:
            half = 1 << ((part.shape[-1] - 1).bit_length() - 1)
            over = part.shape[-1] - half
            joined = merge(monoid, dtype, part[..., :over], part[..., half:], nan)
            part = np.concatenate([joined, part[..., over:half]], axis=-1)
        part = part[..., 0]
        for bit in range(bits, 0, -1):
            part = merge(monoid, dtype, np.take(part, 0, axis=-bit), np.take(part, 1, axis=-bit), nan)
        values = part
    return values


def scan(
    monoid: str,
    dtype: DType,
    values: Array,
    digits: Sequence[tuple[str, int]],
    nan: str,
    how: tuple[bool, bool],
) -> Array:
    """All prefixes along the last axis, `how`: without the element itself, from the last one down.

    Digit by digit, the smallest stride first: what comes before a block in its group is merged in front of all prefixes
    in the block. A thread's own blocks are taken one after the other; those of lanes by doubling: each takes what the
    lane 1, 2, 4, ... before it has so far."""
    exclusive, reverse = how
    part = np.ascontiguousarray(values[:, ::-1] if reverse else values)
    rows, extent = part.shape
    identity = np.asarray(MONOIDS[monoid].identity(dtype), dtype.numpy)
    total = part
    prefixes = np.full_like(part, identity) if exclusive else part
    block = 1
    for who, size in digits:
        groups = total.reshape(rows, -1, size)
        upto = [groups[:, :, 0]]
        if who == "lane":
            running = groups.copy()
            step = 1
            while step < size:
                joined = merge(monoid, dtype, running[:, :, :-step], running[:, :, step:], nan)
                running = np.concatenate([running[:, :, :step], joined], axis=-1)
                step *= 2
            upto = [running[:, :, i] for i in range(size)]
        else:
            for i in range(1, size):
                upto.append(merge(monoid, dtype, upto[-1], groups[:, :, i], nan))
        inside = prefixes.reshape(rows, -1, size, block)
        before = [np.full_like(upto[0], identity), *upto[:-1]]
        merged = [
            inside[:, :, i] if i == 0 else merge(monoid, dtype, before[i][..., None], inside[:, :, i], nan)
            for i in range(size)
        ]
        prefixes = np.stack(merged, axis=2).reshape(rows, extent)
        total = upto[-1].reshape(rows, -1)
        block *= size
    return prefixes[:, ::-1] if reverse else prefixes


def merge(monoid: str, dtype: DType, a: Array, b: Array, nan: str) -> Array:
    """`a (+) b`. A maximum is `b` where `b > a` or `b` is NaN, else `a`; one that ignores NaN, `b` where `b > a` or `a`
    is NaN."""
    with np.errstate(all="ignore"):
        if monoid in ("max", "min") and not dtype.is_bool:
            return _extremum(monoid, dtype, a, b, nan)
        if monoid == "xor":
            return np.asarray(scalar.apply("xor", dtype, a, b))
        return np.asarray(scalar.merge(monoid, dtype, a, b, nan))


def _extremum(monoid: str, dtype: DType, a: Array, b: Array, nan: str) -> Array:
    left, right = as_computable(a, dtype), as_computable(b, dtype)
    take = right > left if monoid == "max" else right < left
    if dtype.is_float:
        take = take | np.isnan(left if nan == "ignore" else right)
    return np.where(take, b, a)


def contract(atom: str, dtype: DType, acc: Array, a: Array, b: Array) -> Array:
    """`acc[i] + sum over k of a[i, k] * b[i, k]`, operands already of the accumulator's dtype (exactly converted)."""
    with np.errstate(all="ignore"):
        family = atom.split(".")[0]
        if not dtype.is_float:
            return (acc + np.sum(a * b, axis=-1, dtype=dtype.numpy)).astype(dtype.numpy)
        if family in ("fma", "ffma"):
            return _chain(dtype, acc, a, b)
        if family == "muladd":
            for k in range(a.shape[-1]):
                acc = acc + a[:, k] * b[:, k]
            return acc
        if family == "amx":
            a, b = _flushed(a), _flushed(b)
            zero = np.zeros(acc.shape, dtype.numpy)
            even = _chain(dtype, zero, a[:, 0::2], b[:, 0::2], flush=True)
            odd = _chain(dtype, zero, a[:, 1::2], b[:, 1::2], flush=True)
            return _flushed(_flushed(acc) + _flushed(even + odd))
        if family == "dpbf16":
            # The odd member of each pair, then the even one.
            swapped = [k ^ 1 for k in range(a.shape[-1])]
            return _chain(dtype, _flushed(acc), _flushed(a)[:, swapped], _flushed(b)[:, swapped], flush=True)
        if atom.endswith(".tf32"):
            a, b = (np.ascontiguousarray(x).view(np.uint32) & np.uint32(0xFFFFE000) for x in (a, b))
            a, b = a.view(np.float32), b.view(np.float32)
        exact = np.sum(a.astype(np.float64) * b.astype(np.float64), axis=-1)
        return acc + exact.astype(dtype.numpy)


def _chain(dtype: DType, acc: Array, a: Array, b: Array, *, flush: bool = False) -> Array:
    for k in range(a.shape[-1]):
        acc = fused(dtype, a[:, k], b[:, k], acc)
        acc = _flushed(acc) if flush else acc
    return acc


def _flushed(values: Array) -> Array:
    """Subnormal f32 numbers as zeros of their sign."""
    tiny = np.abs(values) < np.finfo(np.float32).tiny
    return np.where(tiny, np.copysign(np.float32(0), values), values)
