"""Elementwise operations on vectors, with exactly the meaning of the language.

Arithmetic of f16 and bf16 is computed in f32 and rounded once. Integers wrap; division by zero gives 0 and never
traps; shifts by the width or more give 0, or -1 for negative numbers shifted right. `maximum` and `minimum` give a NaN
operand, the second one of two. No operation carries a fast-math flag, and only `fma` is fused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from treadle.dtype.formats import DType, bool_, f32, f64
from treadle.ir.ops.intrinsic import Meaning
from treadle.targets.cpu.emit.casts import Casts
from treadle.targets.cpu.emit.errors import ill_formed, unsupported
from treadle.targets.cpu.emit.functions import expanded
from treadle.targets.cpu.emit.lanes import Lanes, Vec, constant, lane_type, vector
from treadle.targets.cpu.emit.remainder import float_divmod
from treadle.targets.cpu.emit.text import Function

_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INT = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_FLOAT_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_ROUNDINGS = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "roundeven", "sqrt": "sqrt", "abs": "fabs"}
_FOLDS = {"add": "add", "mul": "mul", "max": "maximum", "min": "minimum", "and": "and", "or": "or", "xor": "xor"}


class Arith:
    """Elementwise operations in one function. `accuracy` is the class of functions such as exp; `features` are those of
    the processor."""

    def __init__(self, fn: Function, lanes: Lanes, accuracy: str, features: frozenset[str]) -> None:
        self.fn = fn
        self.lanes = lanes
        self.casts = Casts(fn, lanes)
        self.accuracy = accuracy
        self.features = features

    # ---- entry points

    def apply(self, name: str, args: Sequence[Vec]) -> Vec:
        """`name(args)`; scalars stand for all lanes. Arguments have one dtype (not the first of `where`)."""
        n = next((a.lanes for a in args if a.lanes is not None), None)
        args = [self.lanes.splat(a, n) for a in args]
        if name == "where":
            return self.select(args[0].text, args[1], args[2])
        if name in ("copy", "pick"):
            return args[0]
        dtype = args[0].dtype
        if any(a.dtype != dtype for a in args):
            raise ill_formed(f"{name} of {', '.join(str(a.dtype) for a in args)}", "one dtype")
        if dtype.is_float and dtype not in (f32, f64):
            if not dtype.has_arithmetic:
                raise ill_formed(f"{name} of {dtype}", "a dtype with arithmetic")
            return self._in_f32(name, args, dtype)
        return self._float(name, args) if dtype.is_float else self._integer(name, args)

    def own(self, meaning: Meaning, args: Sequence[Vec]) -> Vec:
        """A function of the user's own, called for each lane."""
        n = next((a.lanes for a in args if a.lanes is not None), None)
        kind = lane_type(meaning.result)

        def called(lane: int | None) -> str:
            texts = [f"{lane_type(a.dtype)} {self._lane(a, lane)}" for a in args]
            return self.fn.value(f"call {kind} @{meaning.symbol}({', '.join(texts)})")

        if n is None:
            return Vec(called(None), meaning.result)
        text = "poison"
        for lane in range(n):
            text = self.fn.value(f"insertelement {vector(kind, n)} {text}, {kind} {called(lane)}, i64 {lane}")
        return Vec(text, meaning.result, n)

    def _lane(self, value: Vec, lane: int | None) -> str:
        """One lane's element; of a scalar, itself."""
        if value.lanes is None:
            return value.text
        return self.fn.value(f"extractelement {value.type} {value.text}, i64 {lane}")

    def _in_f32(self, name: str, args: Sequence[Vec], dtype: DType) -> Vec:
        if name in ("neg", "abs"):  # bits only: no rounding, a NaN keeps what it has
            sign = 1 << (dtype.bits - 1)
            how, number = ("xor", sign) if name == "neg" else ("and", sign - 1)
            return replace(args[0], text=self._two(how, args[0], self._bits(args[0], number)))
        result = self.apply(name, [self.casts.cast(a, f32) for a in args])
        return self.casts.cast(result, dtype) if result.dtype == f32 else result

    def fold(self, monoid: str, a: Vec, b: Vec, nan: str) -> Vec:
        """`a (+) b` of a built-in monoid."""
        name = _FOLDS.get(monoid)
        if name is None:
            raise unsupported(f"a fold with {monoid}", f"one of {', '.join(_FOLDS)}")
        if nan == "ignore" and monoid in ("max", "min") and a.dtype.is_float:
            both = self.apply(name, [a, b])
            kept = self.apply("where", [self.apply("isnan", [a]), b, both])
            return self.apply("where", [self.apply("isnan", [b]), a, kept])
        return self.apply(name, [a, b])

    def select(self, mask: str, a: Vec, b: Vec) -> Vec:
        """Lanes of `a` where the mask holds, else of `b`."""
        n = a.lanes if a.lanes is not None else b.lanes
        a, b = self.lanes.splat(a, n), self.lanes.splat(b, n)
        return replace(a, text=self.fn.value(f"select {vector('i1', n)} {mask}, {a.type} {a.text}, {b.type} {b.text}"))

    def fma(self, a: Vec, b: Vec, c: Vec) -> Vec:
        """a * b + c: fused for f32 and f64, wrapping for integers."""
        n = next((v.lanes for v in (a, b, c) if v.lanes is not None), None)
        a, b, c = (self.lanes.splat(v, n) for v in (a, b, c))
        if c.dtype in (f32, f64):
            return replace(c, text=self._intrinsic("fma", [a, b, c]))
        if c.dtype.is_int:
            return self.apply("add", [c, self.apply("mul", [a, b])])
        raise unsupported(f"fma in {c.dtype}", "an accumulator of f32, f64 or an integer")

    # ---- parts

    def _two(self, verb: str, a: Vec, b: Vec) -> str:
        return self.fn.value(f"{verb} {a.type} {a.text}, {b.text}")

    def _bits(self, like: Vec, number: int) -> Vec:
        bits = like.dtype.bits
        signed = number - (1 << bits) if number >> (bits - 1) else number
        text = str(signed) if like.lanes is None else f"splat (i{bits} {signed})"
        return replace(like, text=text)

    def _intrinsic(self, name: str, args: Sequence[Vec]) -> str:
        kind = args[0].type
        return self.fn.call(kind, f"llvm.{name}.{mangled(args[0])}", [a.typed for a in args])

    def _compare(self, verb: str, predicate: str, a: Vec, b: Vec) -> Vec:
        return Vec(self._two(f"{verb} {predicate}", a, b), bool_, a.lanes)

    def _float(self, name: str, args: Sequence[Vec]) -> Vec:
        a = args[0]
        if name in _FLOAT:
            return replace(a, text=self._two(_FLOAT[name], a, args[1]))
        if name in _FLOAT_COMPARE:
            return self._compare("fcmp", _FLOAT_COMPARE[name], a, args[1])
        if name in _ROUNDINGS:
            return replace(a, text=self._intrinsic(_ROUNDINGS[name], [a]))
        match name:
            case "maximum" | "minimum":
                return self._extremum(name, a, args[1])
            case "neg":
                return replace(a, text=self.fn.value(f"fneg {a.type} {a.text}"))
            case "fma":
                return self.fma(a, args[1], args[2])
            case "isnan":
                return self._compare("fcmp", "uno", a, a)
            case "isinf":
                size = replace(a, text=self._intrinsic("fabs", [a]))
                return self._compare("fcmp", "oeq", size, constant(a.dtype, float("inf"), a.lanes))
            case "floordiv" | "mod":
                return float_divmod(self, name, a, args[1])
            case _:
                return self._function(name, args)

    def _function(self, name: str, args: Sequence[Vec]) -> Vec:
        return expanded(self.fn, self.lanes, name, self.accuracy, args)

    def _extremum(self, name: str, a: Vec, b: Vec) -> Vec:
        # x86's max gives its second operand when the comparison fails: a where a is NaN; only a NaN in b is left to do.
        known = _EXTREMA.get(b.type)
        if known is None or known[2] not in self.features:
            better = self._compare("fcmp", "ogt" if name == "maximum" else "olt", b, a)
            kept = self.select(better.text, b, a)
        else:
            # By its name: LLVM would join both selections into one under two conditions, which is an instruction more.
            verb, more = known[0].format(name[:3]), known[1]
            kept = replace(a, text=self.fn.call(a.type, f"llvm.x86.{verb}", [b.typed, a.typed, *more]))
        return self.select(self._compare("fcmp", "uno", b, b).text, b, kept)

    def _integer(self, name: str, args: Sequence[Vec]) -> Vec:
        a = args[0]
        signed = a.dtype.kind == "int"
        if a.dtype.is_bool:
            name = {"maximum": "or", "minimum": "and", "add": "or", "mul": "and"}.get(name, name)
        if name in _INT:
            return replace(a, text=self._two(_INT[name], a, args[1]))
        if name in _FLOAT_COMPARE:
            predicate = name if name in ("eq", "ne") else ("s" if signed else "u") + name
            return self._compare("icmp", predicate, a, args[1])
        match name:
            case "maximum" | "minimum":
                return replace(a, text=self._intrinsic(("s" if signed else "u") + name[:3], [a, args[1]]))
            case "neg":
                return replace(a, text=self._two("sub", self._bits(a, 0), a))
            case "not":
                return replace(a, text=self._two("xor", a, constant(a.dtype, True if a.dtype.is_bool else -1, a.lanes)))
            case "abs":
                return self._absolute(a) if signed else a
            case "fma":
                return self.fma(a, args[1], args[2])
            case "shl" | "shr":
                return self._shift(name, a, args[1])
            case "floordiv" | "mod":
                return self._divide(name, a, args[1])
            case _:
                raise unsupported(f"{name} of {a.dtype}", "an elementwise operation that has this dtype")

    def _absolute(self, a: Vec) -> Vec:
        kind = a.type
        return replace(a, text=self.fn.call(kind, f"llvm.abs.{mangled(a)}", [a.typed, ("i1", "false")]))

    def _shift(self, name: str, a: Vec, count: Vec) -> Vec:
        bits = a.dtype.bits
        inside = self._compare("icmp", "ult", count, self._bits(count, bits)).text
        arithmetic = name == "shr" and a.dtype.kind == "int"
        safe = self.select(inside, count, self._bits(count, bits - 1 if arithmetic else 0))
        verb = "shl" if name == "shl" else "ashr" if arithmetic else "lshr"
        shifted = replace(a, text=self._two(verb, a, safe))
        return shifted if arithmetic else self.select(inside, shifted, self._bits(a, 0))

    def _divide(self, name: str, a: Vec, b: Vec) -> Vec:
        """Floor division or its remainder. The hardware traps on a divisor of 0 and on the least number by -1."""
        signed = a.dtype.kind == "int"
        zero, one = self._bits(a, 0), self._bits(a, 1)
        by_zero = self._compare("icmp", "eq", b, zero).text
        safe = self.select(by_zero, one, b)
        if not signed:
            result = replace(a, text=self._two("udiv" if name == "floordiv" else "urem", a, safe))
            return self.select(by_zero, zero, result)
        by_minus = self._compare("icmp", "eq", b, self._bits(b, (1 << b.dtype.bits) - 1)).text
        safe = self.select(by_minus, one, safe)
        rest = replace(a, text=self._two("srem", a, safe))
        differ = self._compare("icmp", "slt", replace(a, text=self._two("xor", rest, safe)), zero)
        inexact = self._compare("icmp", "ne", rest, zero)
        fix = self.apply("and", [differ, inexact]).text
        if name == "mod":
            result = self.select(fix, replace(a, text=self._two("add", rest, safe)), rest)
            return self.select(by_zero, zero, result)
        quotient = replace(a, text=self._two("sdiv", a, safe))
        result = self.select(fix, replace(a, text=self._two("sub", quotient, one)), quotient)
        result = self.select(by_minus, replace(a, text=self._two("sub", zero, a)), result)
        return self.select(by_zero, zero, result)


_NOW = (("i32", "4"),)
_EXTREMA: dict[str, tuple[str, tuple[tuple[str, str], ...], str]] = {
    "<4 x float>": ("sse.{}.ps", (), "avx"),
    "<8 x float>": ("avx.{}.ps.256", (), "avx"),
    "<16 x float>": ("avx512.{}.ps.512", _NOW, "avx512f"),
    "<2 x double>": ("sse2.{}.pd", (), "avx"),
    "<4 x double>": ("avx.{}.pd.256", (), "avx"),
    "<8 x double>": ("avx512.{}.pd.512", _NOW, "avx512f"),
}
"""Vector -> the name of its instruction, what it is told besides (to round as the processor is set), and the feature
that has it: a vector may be longer than a register, which LLVM parts for all instructions but those named."""


def mangled(value: Vec) -> str:
    """The type's name inside an intrinsic's."""
    kind = {"float": "f32", "double": "f64"}.get(lane := replace(value, lanes=None).type, lane)
    return kind if value.lanes is None else f"v{value.lanes}{kind}"
