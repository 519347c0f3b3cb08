"""Which dtype an operation has.

Python numbers are weak: they take the dtype of the other operand, and a float beside integers makes f32. Integers among
themselves follow NumPy, but u64 with a signed integer, for which NumPy gives f64, is an error. An integer with a float
is the float; f16 with bf16 is f32. fp8 and 4-bit formats have no arithmetic.
"""

from __future__ import annotations

import numpy as np

from treadle.base.errors import UserError
from treadle.base.source import Span
from treadle.dtype.formats import DType, bf16, bool_, f16, f32, f64, from_numpy, i32, i64, u32

Weak = bool | int | float


class NoCommonDType(UserError):
    """Two operands whose dtypes have no common one."""

    code = "dtype/no-common"


class NoArithmetic(UserError):
    """Arithmetic on a format that has none."""

    code = "dtype/no-arithmetic"


class WeakOutOfRange(UserError):
    """A Python number that the other operand's dtype cannot hold."""

    code = "dtype/number-out-of-range"


def promote(a: DType, b: DType, *, doing: str = "combining two values", span: Span | None = None) -> DType:
    """The dtype of arithmetic on `a` and `b`. Commutative. Errors: `dtype/no-common`, `dtype/no-arithmetic`."""
    require_arithmetic(a, doing=doing, span=span)
    require_arithmetic(b, doing=doing, span=span)
    if a == b:
        return a
    if a.is_float and b.is_float:
        if a.bits == b.bits:
            return f32  # f16 with bf16: neither holds the other
        return a if a.bits > b.bits else b
    if a.is_float or b.is_float:
        return a if a.is_float else b
    common = np.promote_types(a.numpy, b.numpy)
    if common == np.float64:
        raise NoCommonDType(
            doing=doing,
            found=f"{a} with {b}",
            expected="two dtypes of which an integer dtype holds all values",
            hint="convert one operand: .to(i64) or .to(u64)",
            span=span,
        )
    return from_numpy(common)


def promote_weak(a: DType, value: Weak, *, doing: str = "combining two values", span: Span | None = None) -> DType:
    """The dtype of arithmetic on `a` and a Python number. Errors: as `promote`, `dtype/number-out-of-range`."""
    require_arithmetic(a, doing=doing, span=span)
    if isinstance(value, bool):
        return a
    if isinstance(value, float):
        return a if a.is_float else f32
    result = i64 if a.is_bool else a
    if result.is_int and not result.finite_min <= value <= result.finite_max:
        raise WeakOutOfRange(
            doing=doing,
            found=f"the number {value}",
            expected=f"a number from {result.finite_min} to {result.finite_max}, as {result} holds",
            hint="convert the other operand to a wider dtype",
            span=span,
        )
    if result.is_float and abs(value) > f64.finite_max:
        raise WeakOutOfRange(
            doing=doing,
            found=f"an integer of {value.bit_length()} bits beside {result}",
            expected="a number that f64 holds, at most 1.8e308 in size",
            hint="write float('inf') where infinity is meant",
            span=span,
        )
    return result


def weak_alone(value: Weak) -> DType:
    """The dtype of a Python number that no dtype stands beside: bool, i64 or f32."""
    if isinstance(value, bool):
        return bool_
    return i64 if isinstance(value, int) else f32


def division(a: DType) -> DType:
    """The dtype of `/` on operands promoted to `a`: f32 of integers and bool."""
    return a if a.is_float else f32


def function(a: DType) -> DType:
    """The dtype of exp, sqrt and their kin: the float itself, f32 of integers and bool."""
    return a if a.is_float else f32


def total(a: DType) -> DType:
    """The dtype of a sum or product: f32 of f16 and bf16, i32 of bool and short integers, u32 of short unsigned."""
    if a in (f16, bf16):
        return f32
    if a.is_bool or (a.kind == "int" and a.bits < 32):
        return i32
    return u32 if a.kind == "uint" and a.bits < 32 else a


def average(a: DType) -> DType:
    """The dtype of a mean or variance: f64 of f64, else f32."""
    return f64 if a == f64 else f32


def computing(a: DType) -> DType:
    """The dtype in which an elementwise operation on `a` is computed before it is rounded once."""
    return f32 if a in (f16, bf16) else a


def require_arithmetic(a: DType, *, doing: str = "computing", span: Span | None = None) -> None:
    """Errors: `dtype/no-arithmetic` where `a` has none."""
    if a.has_arithmetic:
        return
    raise NoArithmetic(
        doing=doing,
        found=f"an operand of {a}",
        expected="a dtype with arithmetic: bool, i8 to i64, u8 to u64, f16, bf16, f32, f64",
        hint="convert it first, for example .to(f32); mma takes it as it is",
        span=span,
    )
