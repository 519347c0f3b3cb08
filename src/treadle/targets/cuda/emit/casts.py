"""Conversions between dtypes, with the results of `treadle.dtype.convert`."""

from __future__ import annotations

from treadle.dtype.formats import DType, f8e8m0, f32, f64
from treadle.targets.cuda.emit.errors import ill_formed
from treadle.targets.cuda.emit.prelude import Prelude
from treadle.targets.cuda.emit.small import decoded, encoded, is_small
from treadle.targets.cuda.emit.values import HALVES, Val, as_float, bits, ctype, number, rounded, unsigned


def cast(value: Val, to: DType, prelude: Prelude, saturate: bool = False) -> Val:
    """The value converted: floats once to nearest even; floats to integers truncated and clamped, NaN to 0; integers
    wrap, or are clamped with `saturate`; bool is `x != 0`."""
    if value.dtype == to:
        return value
    ctype(to)
    if is_small(value.dtype):
        value = Val(decoded(value.text, value.dtype, prelude), f32)
        if to == f32 and not saturate:
            return value
    if to.is_bool:
        zero = number(0, f32 if value.dtype in HALVES else value.dtype).text
        return Val(f"({as_float(value, prelude) if value.dtype in HALVES else value.text} != {zero})", to)
    if value.dtype.is_float:
        return _from_float(value, to, prelude, saturate)
    if to.is_float:
        return _int_to_float(value, to, prelude, saturate)
    return _int_to_int(value, to, prelude, saturate)


def bitcast(value: Val, to: DType, prelude: Prelude) -> Val:
    """The same bits as `to`."""
    if value.dtype.bits != to.bits or value.dtype.is_bool or to.is_bool:
        raise ill_formed(f"a bitcast of {value.dtype} to {to}", "two dtypes of one width, bool not among them")
    if to.packed:
        return _four_bits(value.text, to)
    text = bits(value, prelude) if value.dtype in HALVES else value.text
    if value.dtype == f32:
        text = f"__float_as_uint({text})"
    elif value.dtype == f64:
        text = f"(u64)__double_as_longlong({text})"
    if to == f32:
        return Val(f"__uint_as_float({text})", to)
    if to == f64:
        return Val(f"__longlong_as_double((i64)({text}))", to)
    return Val(f"({ctype(to)})({text})", to)


def _from_float(value: Val, to: DType, prelude: Prelude, saturate: bool) -> Val:
    source = value.dtype
    text = as_float(value, prelude) if source in HALVES else value.text
    inner = f32 if source in HALVES else source
    if not to.is_float:
        return _float_to_int(text, inner, to, prelude)
    if saturate and to.bits < 64:
        low, high = (number(sign * float(to.finite_max), inner).text for sign in (-1, 1))
        text = f"{prelude.use('within')}({text}, {low}, {high})"
    if to == f64:
        if saturate:
            low, high = (number(sign * float(f64.finite_max), f64).text for sign in (-1, 1))
            return Val(f"{prelude.use('within')}<double>((double)({text}), {low}, {high})", f64)
        return Val(f"(double)({text})", f64)
    if to == f32:
        return Val(text if inner == f32 else f"(float)({text})", f32)
    if is_small(to):
        return _to_small(text, inner, to, prelude)
    return rounded(text if inner == f32 else f"{prelude.use('odd_float')}({text})", to)


def _float_to_int(text: str, source: DType, to: DType, prelude: Prelude) -> Val:
    wide = ("i" if to.kind == "int" else "u") + ("64" if to.bits == 64 else "32")
    whole = f"{prelude.use(f'{wide}_of_{source.name}')}({text})"
    if to.bits < 32:
        # Clamped in 32 bits first: the conversion saturates there.
        kind = "int" if to.kind == "int" else "u32"
        whole = f"{prelude.use('within')}<{kind}>({whole}, {int(to.finite_min)}, {int(to.finite_max)})"
    return Val(f"({ctype(to)})({whole})", to)


def _int_to_float(value: Val, to: DType, prelude: Prelude, saturate: bool) -> Val:
    signed = value.dtype.kind == "int"
    text = value.text
    if to in (f32, f64):
        return Val(f"({ctype(to)})({text})", to)
    small = value.dtype.bits <= 16 or value.dtype.is_bool
    if small:
        wide = f"(float)({text})"
    else:
        wide = f"{prelude.use('odd_signed' if signed else 'odd_unsigned')}({text})"
    if saturate:
        low, high = (number(sign * float(to.finite_max), f32).text for sign in (-1, 1))
        wide = f"{prelude.use('within')}({wide}, {low}, {high})"
    return _to_small(wide, f32, to, prelude) if is_small(to) else rounded(wide, to)


def _to_small(text: str, source: DType, to: DType, prelude: Prelude) -> Val:
    """An f32 or f64 as the code of a small format, rounded once."""
    if to == f8e8m0:
        return Val(encoded(text if source == f64 else f"(double)({text})", to, prelude), to)
    return Val(encoded(text if source == f32 else f"{prelude.use('odd_float')}({text})", to, prelude), to)


def _four_bits(text: str, to: DType) -> Val:
    """The low four bits as an element: a negative i4 is sign-extended in its byte."""
    if to.kind == "int":
        return Val(f"(i8)((i8)(u8)((u32)({text}) << 4) >> 4)", to)
    return Val(f"(u8)((u32)({text}) & 15u)", to)


def _int_to_int(value: Val, to: DType, prelude: Prelude, saturate: bool) -> Val:
    text = value.text
    if saturate and not value.dtype.is_bool:
        low = max(int(to.finite_min), int(value.dtype.finite_min))
        high = min(int(to.finite_max), int(value.dtype.finite_max))
        kind = ctype(value.dtype)
        bounds = f"{number(low, value.dtype).text}, {number(high, value.dtype).text}"
        text = f"{prelude.use('within')}<{kind}>({text}, {bounds})"
    if value.dtype.is_bool:
        return Val(f"({ctype(to)})({text})", to)
    if to.packed:
        return Val(f"({ctype(to)})({text})", to) if saturate else _four_bits(text, to)
    return Val(f"({ctype(to)})({unsigned(to)})({text})", to)
