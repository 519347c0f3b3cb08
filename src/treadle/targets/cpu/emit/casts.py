"""Conversions between dtypes, bit for bit as `treadle.dtype.convert`.

Rounding to bf16 is written in integers: the hardware's instruction for it flushes subnormals. Rounding to f16 is the
hardware's, from f32, which rounds once. What has more bits than f32 is first rounded to the target's precision in f64
itself, so that nothing is rounded twice. fp8 and f4e2m1 go through f32 (`small.py`); i4 and u4 stand in registers as
the i8 and u8 of the same value.
"""

from __future__ import annotations

from dataclasses import replace

from treadle.dtype.formats import DType, bf16, bool_, f8e8m0, f16, f32, f64, i8, u8
from treadle.targets.cpu.emit.errors import ill_formed
from treadle.targets.cpu.emit.lanes import Lanes, Vec, constant, lane_type, number_text, vector
from treadle.targets.cpu.emit.small import decoded, encoded, encoded_power
from treadle.targets.cpu.emit.text import Function

_TABLE_LEVEL = 16
_TABLES = (16, 32)
"""Vectors of words from which an instruction of AVX-512 picks by the low bits of others, at its level's width."""


class Casts:
    """Conversions in one function."""

    def __init__(self, fn: Function, lanes: Lanes) -> None:
        self.fn = fn
        self.lanes = lanes

    def cast(self, a: Vec, to: DType, saturate: bool = False) -> Vec:
        """The value converted."""
        if a.dtype == to:
            return a
        if a.dtype.is_float and a.dtype.bits <= 8:
            a = decoded(self, a)
        elif a.dtype.packed:
            if to == bf16 and a.lanes in _TABLES and self.fn.module.width == _TABLE_LEVEL:
                return self._looked_up(a)
            a = replace(a, dtype=_in_a_byte(a.dtype))
        if a.dtype == to and not (saturate and to.is_float):
            return a
        if to.is_bool:
            return self._nonzero(a)
        if to.is_int and to.packed:
            return self._packed_integer(a, to, saturate)
        if a.dtype.is_float:
            return self._between_floats(a, to, saturate) if to.is_float else self._to_integer(a, to)
        return self._from_integer(a, to, saturate) if to.is_float else self._between_integers(a, to, saturate)

    def bitcast(self, a: Vec, to: DType) -> Vec:
        """The same bits."""
        if a.dtype.bits != to.bits or a.dtype.is_bool or to.is_bool:
            raise ill_formed(f"a bitcast of {a.dtype} to {to}", "two dtypes of one width, bool not among them")
        result = Vec("", to, a.lanes)
        if to.packed:
            return replace(result, text=self._four_bits(a.text, to, a.lanes))
        if a.type == result.type:
            return replace(result, text=a.text)
        return replace(result, text=self.fn.value(f"bitcast {a.type} {a.text} to {result.type}"))

    # ---- parts

    def _conv(self, verb: str, a: Vec, to: DType) -> Vec:
        result = Vec("", to, a.lanes)
        return replace(result, text=self.fn.value(f"{verb} {a.type} {a.text} to {result.type}"))

    def raw(self, verb: str, text: str, source: str, to: str, lanes: int | None) -> str:
        return self.fn.value(f"{verb} {vector(source, lanes)} {text} to {vector(to, lanes)}")

    def op(self, verb: str, kind: str, a: str, b: str, lanes: int | None) -> str:
        return self.fn.value(f"{verb} {vector(kind, lanes)} {a}, {b}")

    def number(self, kind: str, number: int | str, lanes: int | None) -> str:
        return str(number) if lanes is None else f"splat ({kind} {number})"

    def choose(self, condition: str, kind: str, a: str, b: str, lanes: int | None) -> str:
        v = vector(kind, lanes)
        return self.fn.value(f"select {vector('i1', lanes)} {condition}, {v} {a}, {v} {b}")

    def _nonzero(self, a: Vec) -> Vec:
        if a.dtype.is_float:
            wide = self.to_f32(a) if a.dtype in (f16, bf16) else a
            text = self.fn.value(f"fcmp une {wide.type} {wide.text}, {constant(wide.dtype, 0.0, a.lanes).text}")
        else:
            text = self.fn.value(f"icmp ne {a.type} {a.text}, {self.number(lane_type(a.dtype), 0, a.lanes)}")
        return Vec(text, bool_, a.lanes)

    # ---- floats

    def to_f32(self, a: Vec) -> Vec:
        """f16 and bf16 widened, exactly."""
        if a.dtype == bf16:
            wide = self.raw("zext", a.text, "i16", "i32", a.lanes)
            high = self.op("shl", "i32", wide, self.number("i32", 16, a.lanes), a.lanes)
            return Vec(self.raw("bitcast", high, "i32", "float", a.lanes), f32, a.lanes)
        half = self.raw("bitcast", a.text, "i16", "half", a.lanes)
        return Vec(self.raw("fpext", half, "half", "float", a.lanes), f32, a.lanes)

    def _between_floats(self, a: Vec, to: DType, saturate: bool) -> Vec:
        if a.dtype in (f16, bf16):
            a = self.to_f32(a)
        if saturate and to.bits < 64:
            a = self._clamped(a, to)
        if to == a.dtype:
            return a
        if a.dtype == f32 and to == f64:
            wide = self._conv("fpext", a, f64)
            return self._clamped(wide, f64) if saturate else wide
        if a.dtype == f64:
            if to == f32:
                return self._conv("fptrunc", a, f32)
            if to == f8e8m0:
                return encoded_power(self, a)
            a = self._conv("fptrunc", self._rounded_f64(a, to), f32)
        return self._narrow(a, to)

    def _narrow(self, a: Vec, to: DType) -> Vec:
        """f32 to a format of fewer bits."""
        n = a.lanes
        if to.bits <= 8:
            return encoded(self, a, to)
        if to == f16:
            half = self.raw("fptrunc", a.text, "float", "half", n)
            return Vec(self.raw("bitcast", half, "half", "i16", n), f16, n)
        bits = self.raw("bitcast", a.text, "float", "i32", n)
        upper = self.op("lshr", "i32", bits, self.number("i32", 16, n), n)
        odd = self.op("and", "i32", upper, self.number("i32", 1, n), n)
        carry = self.op("add", "i32", odd, self.number("i32", 0x7FFF, n), n)
        rounded = self.op("lshr", "i32", self.op("add", "i32", bits, carry, n), self.number("i32", 16, n), n)
        sign = self.op("and", "i32", upper, self.number("i32", 0x8000, n), n)
        quiet = self.op("or", "i32", sign, self.number("i32", 0x7FC0, n), n)
        nan = self.fn.value(f"fcmp uno {a.type} {a.text}, {a.text}")
        chosen = self.choose(nan, "i32", quiet, rounded, n)
        return Vec(self.raw("trunc", chosen, "i32", "i16", n), bf16, n)

    def _clamped(self, a: Vec, to: DType) -> Vec:
        """Within the finite range of `to`; NaN stays."""
        for predicate, limit in (("ogt", float(to.finite_max)), ("olt", -float(to.finite_max))):
            bound = constant(a.dtype, limit, a.lanes)
            beyond = self.fn.value(f"fcmp {predicate} {a.type} {a.text}, {bound.text}")
            a = replace(a, text=self.choose(beyond, lane_type(a.dtype), bound.text, a.text, a.lanes))
        return a

    def _rounded_f64(self, a: Vec, to: DType) -> Vec:
        """f64 rounded to the precision of `to`, subnormals too, kept in f64. Infinities and NaN stay what they are."""
        n = a.lanes
        cut = 52 - to.mantissa
        bits = self.raw("bitcast", a.text, "double", "i64", n)
        lowest = self.op("lshr", "i64", bits, self.number("i64", cut, n), n)
        odd = self.op("and", "i64", lowest, self.number("i64", 1, n), n)
        carry = self.op("add", "i64", odd, self.number("i64", (1 << (cut - 1)) - 1, n), n)
        kept = self.op("and", "i64", self.op("add", "i64", bits, carry, n), self.number("i64", -(1 << cut), n), n)
        normal = self.raw("bitcast", kept, "i64", "double", n)
        # Adding and taking away 1.5 * 2^52 units of the smallest subnormal rounds to a multiple of it.
        magic = constant(f64, 1.5 * 2.0**52 * to.smallest, n).text
        size = self.fn.call(a.type, f"llvm.fabs.{_mangled('f64', n)}", [a.typed])
        moved = self.op("fsub", "double", self.op("fadd", "double", size, magic, n), magic, n)
        signed = self.fn.call(a.type, f"llvm.copysign.{_mangled('f64', n)}", [(a.type, moved), a.typed])
        least = constant(f64, 2.0**to.min_exponent, n).text
        small = self.fn.value(f"fcmp olt {a.type} {size}, {least}")
        text = self.choose(small, "double", signed, normal, n)
        special = self.fn.value(f"fcmp uge {a.type} {size}, {constant(f64, float('inf'), n).text}")
        return replace(a, text=self.choose(special, "double", a.text, text, n))

    # ---- integers

    def _to_integer(self, a: Vec, to: DType) -> Vec:
        if a.dtype in (f16, bf16):
            a = self.to_f32(a)
        verb = "fptosi" if to.kind == "int" else "fptoui"
        result = Vec("", to, a.lanes)
        name = f"llvm.{verb}.sat.{_mangled(f'i{to.bits}', a.lanes)}.{_mangled(f'f{a.dtype.bits}', a.lanes)}"
        return replace(result, text=self.fn.call(result.type, name, [a.typed]))

    def _from_integer(self, a: Vec, to: DType, saturate: bool) -> Vec:
        verb = "sitofp" if a.dtype.kind == "int" else "uitofp"
        if to in (f32, f64):
            return self._conv(verb, a, to)
        if a.dtype.bits <= 16:  # exact in f32, and of 8 bits in bf16 too
            exact = self._conv(verb, a, f32)
            return self._upper(exact) if to == bf16 and a.dtype.bits <= 8 else self._between_floats(exact, to, saturate)
        wide = self._to_odd(a) if a.dtype.bits == 64 else self._conv(verb, a, f64)
        return self._between_floats(wide, to, saturate)

    def _upper(self, a: Vec) -> Vec:
        """f32 that bf16 has, as bf16."""
        bits = self.raw("bitcast", a.text, "float", "i32", a.lanes)
        high = self.op("lshr", "i32", bits, self.number("i32", 16, a.lanes), a.lanes)
        return Vec(self.raw("trunc", high, "i32", "i16", a.lanes), bf16, a.lanes)

    def _looked_up(self, a: Vec) -> Vec:
        """Four bits as bf16, out of a vector that has all sixteen."""
        n = a.lanes or 1
        values = [i - 16 if a.dtype.kind == "int" and i > 7 else i for i in range(16)]
        table = ", ".join(f"i16 {number_text(bf16, float(values[i % 16]))}" for i in range(n))
        code = self.op("and", "i8", a.text, self.number("i8", 15, n), n)
        kind = vector("i16", n)
        index = self.raw("zext", code, "i8", "i16", n)
        name = f"llvm.x86.avx512.permvar.hi.{16 * n}"
        return Vec(self.fn.call(kind, name, [(kind, f"<{table}>"), (kind, index)]), bf16, n)

    def _to_odd(self, a: Vec) -> Vec:
        """A 64-bit integer in f64, exact or cut off with the last bit set: a later rounding is then the only one."""
        n = a.lanes
        signed = a.dtype.kind == "int"
        head = self.op("ashr" if signed else "lshr", "i64", a.text, self.number("i64", 11, n), n)
        low = self.op("and", "i64", a.text, self.number("i64", 0x7FF, n), n)
        some = self.fn.value(f"icmp ne {a.type} {low}, {self.number('i64', 0, n)}")
        bit = self.raw("zext", some, "i1", "i64", n)
        verb = "sitofp" if signed else "uitofp"
        cut = self._conv(verb, replace(a, text=self.op("or", "i64", head, bit, n)), f64)
        scaled = self.op("fmul", "double", cut.text, constant(f64, 2048.0, n).text, n)
        exact = self._conv(verb, a, f64)
        size = self.fn.call(exact.type, f"llvm.fabs.{_mangled('f64', n)}", [exact.typed])
        fits = self.fn.value(f"fcmp olt {exact.type} {size}, {constant(f64, 2.0**53, n).text}")
        return replace(exact, text=self.choose(fits, "double", exact.text, scaled, n))

    def _between_integers(self, a: Vec, to: DType, saturate: bool) -> Vec:
        if a.dtype.is_bool:
            return self._conv("zext", a, to)
        if saturate:
            a = self._clamped_integer(a, to)
        if a.dtype.bits == to.bits:
            return replace(a, dtype=to)
        if a.dtype.bits > to.bits:
            return self._conv("trunc", a, to)
        return self._conv("sext" if a.dtype.kind == "int" else "zext", a, to)

    def _packed_integer(self, a: Vec, to: DType, saturate: bool) -> Vec:
        """To i4 or u4: floats saturate, integers wrap or are clamped."""
        if a.dtype.is_float:
            a, saturate = self._to_integer(a, _in_a_byte(to)), True
        if saturate:
            a = self._clamped_integer(a, to)
        whole = self._between_integers(a, _in_a_byte(to), False)
        return Vec(self._four_bits(whole.text, to, a.lanes), to, a.lanes)

    def _four_bits(self, text: str, to: DType, n: int | None) -> str:
        """The low four bits as a register has them: of i4 with the sign above, else zero."""
        if to.kind != "int":
            return self.op("and", "i8", text, self.number("i8", 15, n), n)
        return self.op("ashr", "i8", self.op("shl", "i8", text, self.number("i8", 4, n), n), self.number("i8", 4, n), n)

    def _clamped_integer(self, a: Vec, to: DType) -> Vec:
        low, high = int(a.dtype.finite_min), int(a.dtype.finite_max)
        sign = "s" if a.dtype.kind == "int" else "u"
        name = _mangled(f"i{a.dtype.bits}", a.lanes)
        for how, limit in (("max", int(to.finite_min)), ("min", int(to.finite_max))):
            if low < limit < high:
                bound = constant(a.dtype, limit, a.lanes)
                a = replace(a, text=self.fn.call(a.type, f"llvm.{sign}{how}.{name}", [a.typed, bound.typed]))
        return a


def _in_a_byte(dtype: DType) -> DType:
    """The integer dtype that a 4-bit one's register is."""
    return i8 if dtype.kind == "int" else u8


def _mangled(kind: str, lanes: int | None) -> str:
    return kind if lanes is None else f"v{lanes}{kind}"
