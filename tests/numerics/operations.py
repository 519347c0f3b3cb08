"""Kernels that hold every elementwise operation, the operands they are tried on, and what NumPy makes of them.

Operands are all pairs of the special numbers of a dtype and some at random. NumPy's result is taken in the dtype in
which the language computes: f32 for f16 and bf16, rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import treadle as td
from treadle.dtype.convert import convert
from treadle.dtype.formats import DType, f16, f32, f64

Array = NDArray[Any]
M = td.dims("M")


@td.kernel
def number_ops(
    X: td.Tensor[M],
    Y: td.Tensor[M],
    ADD: td.Out[M] = None,
    SUB: td.Out[M] = None,
    MUL: td.Out[M] = None,
    FLOORDIV: td.Out[M] = None,
    MOD: td.Out[M] = None,
    MAXIMUM: td.Out[M] = None,
    MINIMUM: td.Out[M] = None,
    NEG: td.Out[M] = None,
    ABS: td.Out[M] = None,
    EQ: td.Out[M] = None,
    NE: td.Out[M] = None,
    LT: td.Out[M] = None,
    LE: td.Out[M] = None,
    GT: td.Out[M] = None,
    GE: td.Out[M] = None,
    WHERE: td.Out[M] = None,
):
    for m in td.parallel(M):
        x, y = X[m], Y[m]
        ADD[m] = x + y
        SUB[m] = x - y
        MUL[m] = x * y
        FLOORDIV[m] = x // y
        MOD[m] = x % y
        MAXIMUM[m] = td.maximum(x, y)
        MINIMUM[m] = td.minimum(x, y)
        NEG[m] = -x
        ABS[m] = abs(x)
        EQ[m] = x == y
        NE[m] = x != y
        LT[m] = x < y
        LE[m] = x <= y
        GT[m] = x > y
        GE[m] = x >= y
        WHERE[m] = td.where(x < y, x, y)


@td.kernel
def float_ops(
    X: td.Tensor[M],
    Y: td.Tensor[M],
    DIV: td.Out[M] = None,
    SQRT: td.Out[M] = None,
    RSQRT: td.Out[M] = None,
    FLOOR: td.Out[M] = None,
    CEIL: td.Out[M] = None,
    ROUND: td.Out[M] = None,
    TRUNC: td.Out[M] = None,
    ISNAN: td.Out[M] = None,
    ISINF: td.Out[M] = None,
):
    for m in td.parallel(M):
        x = X[m]
        DIV[m] = x / Y[m]
        SQRT[m] = td.sqrt(x)
        RSQRT[m] = td.rsqrt(x)
        FLOOR[m] = td.floor(x)
        CEIL[m] = td.ceil(x)
        ROUND[m] = td.round(x)
        TRUNC[m] = td.trunc(x)
        ISNAN[m] = td.isnan(x)
        ISINF[m] = td.isinf(x)


@td.kernel
def integer_ops(
    X: td.Tensor[M],
    Y: td.Tensor[M],
    AND: td.Out[M] = None,
    OR: td.Out[M] = None,
    XOR: td.Out[M] = None,
    NOT: td.Out[M] = None,
    SHL: td.Out[M] = None,
    SHR: td.Out[M] = None,
    DIV: td.Out[M] = None,
):
    for m in td.parallel(M):
        x, y = X[m], Y[m]
        AND[m] = x & y
        OR[m] = x | y
        XOR[m] = x ^ y
        NOT[m] = ~x
        SHL[m] = x << y
        SHR[m] = x >> y
        DIV[m] = x / y


@td.kernel
def bool_ops(
    X: td.Tensor[M],
    Y: td.Tensor[M],
    ADD: td.Out[M] = None,
    MUL: td.Out[M] = None,
    MAXIMUM: td.Out[M] = None,
    MINIMUM: td.Out[M] = None,
    AND: td.Out[M] = None,
    OR: td.Out[M] = None,
    XOR: td.Out[M] = None,
    NOT: td.Out[M] = None,
    EQ: td.Out[M] = None,
    NE: td.Out[M] = None,
    LT: td.Out[M] = None,
    LE: td.Out[M] = None,
    GT: td.Out[M] = None,
    GE: td.Out[M] = None,
    WHERE: td.Out[M] = None,
    DIV: td.Out[M] = None,
):
    for m in td.parallel(M):
        x, y = X[m], Y[m]
        ADD[m] = x + y
        MUL[m] = x * y
        MAXIMUM[m] = td.maximum(x, y)
        MINIMUM[m] = td.minimum(x, y)
        AND[m] = x & y
        OR[m] = x | y
        XOR[m] = x ^ y
        NOT[m] = ~x
        EQ[m] = x == y
        NE[m] = x != y
        LT[m] = x < y
        LE[m] = x <= y
        GT[m] = x > y
        GE[m] = x >= y
        WHERE[m] = td.where(x < y, x, y)
        DIV[m] = x / y


@td.kernel
def weak_ops(
    X: td.Tensor[M],
    ADD: td.Out[M] = None,
    RSUB: td.Out[M] = None,
    MUL: td.Out[M] = None,
    FLOORDIV: td.Out[M] = None,
    MOD: td.Out[M] = None,
    POW: td.Out[M] = None,
    HALF: td.Out[M] = None,
):
    """Python numbers beside tiles."""
    for m in td.parallel(M):
        x = X[m]
        ADD[m] = x + 3
        RSUB[m] = 3 - x
        MUL[m] = 2 * x
        FLOORDIV[m] = x // 3
        MOD[m] = x % 3
        POW[m] = x**3
        HALF[m] = x + 0.5


NUMPY: dict[str, Callable[..., Array]] = {
    "ADD": np.add,
    "SUB": np.subtract,
    "MUL": np.multiply,
    "DIV": np.divide,
    "FLOORDIV": np.floor_divide,
    "MOD": np.mod,
    "MAXIMUM": np.maximum,
    "MINIMUM": np.minimum,
    "NEG": lambda x, y: np.negative(x),
    "ABS": lambda x, y: np.abs(x),
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
    "WHERE": lambda x, y: np.where(x < y, x, y),
    "SQRT": lambda x, y: np.sqrt(x),
    "RSQRT": lambda x, y: (1 / np.sqrt(x.astype(np.float64))).astype(x.dtype),
    "FLOOR": lambda x, y: np.floor(x),
    "CEIL": lambda x, y: np.ceil(x),
    "ROUND": lambda x, y: np.rint(x),
    "TRUNC": lambda x, y: np.trunc(x),
    "ISNAN": lambda x, y: np.isnan(x),
    "ISINF": lambda x, y: np.isinf(x),
    "AND": np.bitwise_and,
    "OR": np.bitwise_or,
    "XOR": np.bitwise_xor,
    "NOT": lambda x, y: np.invert(x),
    "SHL": np.left_shift,
    "SHR": np.right_shift,
}
"""By the name of the output. Deviations of the language from NumPy stand in `wanted`."""
TWO_ULP = ("RSQRT",)


def wanted(name: str, d: DType, x: Array, y: Array) -> tuple[Array, DType]:
    """What the output must be, and its dtype."""
    with np.errstate(all="ignore"):
        if name == "DIV" and not d.is_float:  # NumPy: f64; here f32
            return convert(x, d, f32) / convert(y, d, f32), f32
        inner = f32 if d.is_float and d.bits < 32 else d
        out = np.asarray(NUMPY[name](convert(x, d, inner), convert(y, d, inner)))
    if out.dtype == np.bool_:
        return out, td.bool_
    return convert(out, inner, d), d


def specials(d: DType) -> Array:
    """The numbers where rules change."""
    if d.is_bool:
        return np.array([False, True])
    if d.is_int:
        low, high = int(d.finite_min), int(d.finite_max)
        found = [0, 1, 2, 3, 7, d.bits - 1, d.bits, d.bits + 1, 100, high, high - 1, high // 2, low, low + 1, low // 2]
        found += [] if low == 0 else [-1, -2, -3, -7, -d.bits, -100]
        return np.array(sorted({v for v in found if low <= v <= high}), d.numpy)
    top, least, normal = float(d.finite_max), d.smallest, 2.0**d.min_exponent
    found = [0.0, 0.5, 1.0, 1.5, 2.5, 3.0, 7.0, 1 / 3, 1 + 2.0**-d.mantissa, normal, normal / 2, least, 3 * least, top]
    found += [top / 2, np.inf, float(1 << d.mantissa) - 0.5, float(2 << d.mantissa), np.pi]
    return np.array([*found, *(-v for v in found), np.nan], d.numpy)


def operands(d: DType, extra: int = 211) -> tuple[Array, Array]:
    """All pairs of specials, and random pairs of like and unlike size."""
    s = specials(d)
    x, y = (v.ravel() for v in np.meshgrid(s, s))
    rng = np.random.default_rng(1)
    if d.is_bool:
        return np.tile(x, 9), np.tile(y, 9)
    if d.is_int:
        more = [rng.integers(int(d.finite_min), int(d.finite_max), (2, extra), dtype=d.numpy, endpoint=True)]
        small = rng.integers(0, 2 * d.bits, (1, extra)).astype(d.numpy)
        more.append(np.concatenate([more[0][:1], small]))
    else:
        near = rng.normal(size=(2, extra))
        wide = near * np.exp2(rng.uniform(d.min_exponent / 2, -d.min_exponent / 2, (2, extra)))
        more = [near.astype(d.numpy), wide.astype(d.numpy)]
    return np.concatenate([x, *(m[0] for m in more)]), np.concatenate([y, *(m[1] for m in more)])


def kernels(d: DType) -> list[Any]:
    """The kernels that a dtype has."""
    if d.is_bool:
        return [bool_ops]
    return [number_ops, float_ops if d.is_float else integer_ops]


def outputs(kernel: Any) -> list[str]:
    """Its Outs' names in order."""
    return [n for n in kernel.definition.parameters if n not in ("X", "Y")]


def faults(kernel: Any, d: DType, x: Array, y: Array, got: Any) -> list[str]:
    """What differs from NumPy, a line each with the operands. Zeros of a maximum may have either sign."""
    lines: list[str] = []
    for name, out in zip(outputs(kernel), got, strict=True):
        want, dtype = wanted(name, d, x, y)
        if out.dtype != dtype.numpy:
            lines.append(f"{name} of {d}: {out.dtype} where {dtype} is due")
            continue
        with np.errstate(all="ignore"):
            a, b = out.astype(np.float64), want.astype(np.float64)
            right = (out == want) | (np.isnan(a) & np.isnan(b))
            if name in TWO_ULP and d in (f32, f64):
                right |= np.abs(a - b) <= 2 * np.spacing(np.abs(want)).astype(np.float64)
            if name not in ("MAXIMUM", "MINIMUM"):
                right &= (a != 0) | (np.signbit(a) == np.signbit(b))
        for i in np.flatnonzero(~right)[:4]:
            lines.append(f"{name} of {d} on {x[i]!r}, {y[i]!r}: {out[i]!r}, not {want[i]!r}")
    return lines


__all__ = ["bool_ops", "f16", "faults", "float_ops", "integer_ops", "kernels", "number_ops", "operands", "weak_ops"]
