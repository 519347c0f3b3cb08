"""Scalars of the kernel's text: their C++ types, numbers, and small floats kept as bits.

Floats of 8 and 4 bits are their codes in a byte, 4-bit integers the number in a byte. A 16-bit float is a `u16`. The
result of arithmetic on such floats is an f32 still to be rounded (`wide`), so that a pair of them becomes one packed
conversion.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treadle.dtype.convert import convert, to_code
from treadle.dtype.formats import DType, bf16, f16, f32, f64
from treadle.machine.form import Number
from treadle.targets.cuda.emit.errors import unsupported
from treadle.targets.cuda.emit.prelude import Prelude

_TYPES = {
    "bool": "bool",
    "i8": "i8",
    "u8": "u8",
    "i16": "i16",
    "u16": "u16",
    "i32": "int",
    "u32": "u32",
    "i64": "i64",
    "u64": "u64",
    "f16": "u16",
    "bf16": "u16",
    "f32": "float",
    "f64": "double",
    "i4": "i8",
    "u4": "u8",
    **dict.fromkeys(("f8e4m3", "f8e5m2", "f8e8m0", "f4e2m1"), "u8"),
}
HALVES = (f16, bf16)


@dataclass(frozen=True)
class Val:
    """The text of a value of `dtype`; for floats below f32 its bits. `wide`: an f32 whose rounding it is, instead."""

    text: str
    dtype: DType
    wide: str | None = None


def ctype(dtype: DType) -> str:
    """The C++ type that holds an element."""
    found = _TYPES.get(dtype.name)
    if found is None:
        raise unsupported(f"an element of {dtype}", f"one of {', '.join(_TYPES)}")
    return found


def unsigned(dtype: DType) -> str:
    """The unsigned C++ type of as many bits."""
    return f"u{dtype.bits}"


def number(value: Number, dtype: DType) -> Val:
    """A number as an element of `dtype`, rounded once."""
    if dtype.is_float:
        held = convert(np.asarray(float(value), np.float64), f64, dtype) if dtype != f64 else np.asarray(float(value))
        return Val(_float(held, dtype), dtype)
    if dtype.is_bool:
        return Val("true" if value else "false", dtype)
    whole = int(value) & ((1 << dtype.bits) - 1)
    if dtype.kind == "int":
        whole -= (whole >> (dtype.bits - 1)) << dtype.bits
        if dtype.bits == 64:
            return Val(f"(i64)0x{whole & ((1 << 64) - 1):x}ull", dtype)
        return Val(f"({ctype(dtype)})({whole})" if whole != -(1 << 31) else "(int)0x80000000u", dtype)
    return Val(f"({ctype(dtype)}){whole}{'ull' if dtype.bits == 64 else 'u'}", dtype)


def _float(held: np.ndarray, dtype: DType) -> str:
    if dtype in HALVES:
        return f"(u16)0x{int(held.view(np.uint16)):04x}"
    if dtype.bits <= 8:
        return f"(u8){int(to_code(held, dtype))}"
    value = float(held)
    if dtype == f32:
        if not np.isfinite(value):
            return f"__uint_as_float(0x{int(held.view(np.uint32)):08x}u)"
        return _hex(value, "f")
    if not np.isfinite(value):
        return f"__longlong_as_double(0x{int(held.view(np.uint64)):016x}ll)"
    return _hex(value, "")


def _hex(value: float, suffix: str) -> str:
    if value == int(value) and abs(value) < 1 << 20:
        text = f"{value:.1f}"
    else:
        mantissa, exponent = value.hex().split("p")
        text = f"{mantissa.rstrip('0').rstrip('.')}p{exponent}"
    return f"({text}{suffix})" if text.startswith("-") else f"{text}{suffix}"


def bits(value: Val, prelude: Prelude) -> str:
    """The bits of a 16-bit float."""
    if value.wide is None:
        return value.text
    return f"{prelude.use(f'to_{value.dtype.name}')}({value.wide})"


def as_float(value: Val, prelude: Prelude) -> str:
    """A 16-bit float as f32, exactly; f32 as it is."""
    if value.dtype == f32:
        return value.text
    return f"{prelude.use(f'from_{value.dtype.name}')}({bits(value, prelude)})"


def rounded(text: str, dtype: DType) -> Val:
    """An f32 to be rounded to a 16-bit float."""
    return Val("", dtype, text)


def packed(low: Val, high: Val, prelude: Prelude) -> str:
    """Two 16-bit elements in a word."""
    if low.wide is not None and high.wide is not None:
        return f"{prelude.use(f'pack_{low.dtype.name}')}({low.wide}, {high.wide})"
    return f"{prelude.use('pair')}({bits(low, prelude)}, {bits(high, prelude)})"
