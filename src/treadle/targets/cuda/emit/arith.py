"""Elementwise operations on scalars of the kernel's text, with exactly the meaning of the language.

Arithmetic of f16 and bf16 is done in f32 and rounded once; integers wrap; integer division by zero gives 0; shifts by
the width or more give 0, or the sign. Nothing is contracted; only `fma` is fused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from treadle.dtype.formats import DType, bool_, f32, f64
from treadle.math.table import BY_WIDE
from treadle.targets.cuda.emit.casts import cast
from treadle.targets.cuda.emit.errors import ill_formed, unsupported
from treadle.targets.cuda.emit.functions import APPROXIMATE, function, near_function, wide_function
from treadle.targets.cuda.emit.prelude import Prelude
from treadle.targets.cuda.emit.values import HALVES, Val, as_float, bits, ctype, number, rounded, unsigned

_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^"}
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_ROUNDINGS = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "rint", "sqrt": "sqrt"}
_FOLDS = {"add": "add", "mul": "mul", "max": "maximum", "min": "minimum", "and": "and", "or": "or", "xor": "xor"}


def _power(text: str) -> int:
    """Which power of two the text of a number is; 0 for none, and for 1."""
    found = re.fullmatch(r"\(?\(\w+\)(?:0x([0-9a-f]+)|(\d+))u?l*\)?", text)
    value = 0 if found is None else int(found[1], 16) if found[1] else int(found[2])
    return value.bit_length() - 1 if value & (value - 1) == 0 and value else 0


class Arith:
    """Elementwise operations. `accuracy` is the class of functions; `approximate` names those that the program allows
    the hardware to approximate, `near` those that stand around its instructions on `arch`, within the class."""

    def __init__(
        self,
        prelude: Prelude,
        accuracy: str,
        approximate: frozenset[str] = frozenset(),
        near: frozenset[str] = frozenset(),
        arch: str = "",
    ) -> None:
        self.prelude = prelude
        self.accuracy = accuracy
        self.approximate = approximate
        self.near = near
        self.arch = arch

    def apply(self, name: str, args: Sequence[Val], approximate: bool = False) -> Val:
        """`name(args)`; the arguments have one dtype (not the first of `where`)."""
        if name == "copy":
            return args[0]
        if name == "where":
            return self._where(*args)
        dtype = args[0].dtype
        if any(a.dtype != dtype for a in args):
            raise ill_formed(f"{name} of {', '.join(str(a.dtype) for a in args)}", "one dtype")
        if dtype in HALVES:
            return self._half(name, args, dtype, approximate)
        return self._float(name, args, approximate) if dtype.is_float else self._integer(name, args)

    def fold(self, monoid: str, a: Val, b: Val, nan: str = "propagate") -> Val:
        """`a (+) b` of a built-in monoid."""
        name = _FOLDS.get(monoid)
        if name is None:
            raise unsupported(f"a fold with {monoid}", f"one of {', '.join(_FOLDS)}")
        if nan == "ignore" and monoid in ("max", "min") and a.dtype.is_float:
            x, y = (as_float(v, self.prelude) if v.dtype in HALVES else v.text for v in (a, b))
            text = f"f{monoid}{'' if a.dtype == f64 else 'f'}({x}, {y})"
            return rounded(text, a.dtype) if a.dtype in HALVES else Val(text, a.dtype)
        return self.apply(name, [a, b])

    # ---- parts

    def _where(self, mask: Val, a: Val, b: Val) -> Val:
        if a.dtype in HALVES:
            return Val(f"({mask.text} ? {bits(a, self.prelude)} : {bits(b, self.prelude)})", a.dtype)
        return Val(f"({mask.text} ? {a.text} : {b.text})", a.dtype)

    def _half(self, name: str, args: Sequence[Val], dtype: DType, approximate: bool) -> Val:
        if name in ("neg", "abs"):  # bits only: no rounding, a NaN keeps what it has
            own = bits(args[0], self.prelude)
            return Val(f"(u16)({own} {'^ 0x8000u' if name == 'neg' else '& 0x7fffu'})", dtype)
        if name in ("fma", "fms"):
            # The product of two 11-bit significands is exact in f64; the sum there is rounded to odd before the last.
            raise unsupported(f"fma of {dtype}", "f32, f64 or integers", "fuse in f32 and cast")
        result = self.apply(name, [Val(as_float(a, self.prelude), f32) for a in args], approximate)
        return rounded(result.text, dtype) if result.dtype == f32 else result

    def _float(self, name: str, args: Sequence[Val], approximate: bool) -> Val:
        a, dtype = args[0], args[0].dtype
        suffix = "" if dtype == f64 else "f"
        if name in ("add", "sub", "mul", "div"):
            return Val(f"({a.text} {_SIGNS[name]} {args[1].text})", dtype)
        if name in _COMPARE:
            return Val(f"({a.text} {_COMPARE[name]} {args[1].text})", bool_)
        if name in _ROUNDINGS:
            return Val(f"{_ROUNDINGS[name]}{suffix}({a.text})", dtype)
        match name:
            case "maximum" | "minimum":
                return Val(f"{self.prelude.use(f'{name[:3]}_{dtype.name}')}({a.text}, {args[1].text})", dtype)
            case "neg" | "abs":
                return self._sign(name, a)
            case "fma":
                return Val(f"fma{suffix}({', '.join(v.text for v in args)})", dtype)
            case "fms":
                first, second, third = (v.text for v in args)
                return Val(f"fma{suffix}({first}, {second}, -({third}))", dtype)
            case "isnan":
                return Val(f"isnan({a.text})", bool_)
            case "isinf":
                return Val(f"({self._sign('abs', a).text} == {number(float('inf'), dtype).text})", bool_)
            case "floordiv" | "mod":
                self.prelude.use("float_mod")
                return Val(f"float_{name}({a.text}, {args[1].text})", dtype)
            case _:
                return self._function(name, args, approximate)

    def _sign(self, name: str, a: Val) -> Val:
        if a.dtype == f32:
            how = "^ 0x80000000u" if name == "neg" else "& 0x7fffffffu"
            return Val(f"__uint_as_float(__float_as_uint({a.text}) {how})", f32)
        how = "^ 0x8000000000000000ull" if name == "neg" else "& 0x7fffffffffffffffull"
        return Val(f"__longlong_as_double((i64)((u64)__double_as_longlong({a.text}) {how}))", f64)

    def approximated(self, name: str, told: bool) -> bool:
        """Whether a function of f32 is the hardware's approximation; `told`: its statement says so."""
        return name in APPROXIMATE and (told or name in self.approximate)

    def _function(self, name: str, args: Sequence[Val], approximate: bool) -> Val:
        texts = ", ".join(a.text for a in args)
        dtype = args[0].dtype
        if dtype == f32 and self.approximated(name, approximate):
            return Val(f"{self.prelude.use(APPROXIMATE[name])}({texts})", f32)
        if dtype == f32 and name in self.near:
            return Val(f"{near_function(name, self.arch, self.prelude)}({texts})", f32)
        if dtype == f64:
            return Val(f"{wide_function(name, self.prelude)}({texts})", f64)
        if self.accuracy in BY_WIDE:
            wide = ", ".join(f"(double)({a.text})" for a in args)
            return Val(f"(float)({wide_function(name, self.prelude)}({wide}))", f32)
        return Val(f"{function(name, self.accuracy, self.prelude)}({texts})", f32)

    def _integer(self, name: str, args: Sequence[Val]) -> Val:
        a, dtype = args[0], args[0].dtype
        if dtype.is_bool:
            return self._bool(name, args)
        own, bare = ctype(dtype), unsigned(dtype)
        if name in ("add", "sub", "mul"):
            wide = "u32" if dtype.bits < 32 else bare
            return Val(f"({own})(({wide})({a.text}) {_SIGNS[name]} ({wide})({args[1].text}))", dtype)
        if name in ("and", "or", "xor"):
            return Val(f"({own})({a.text} {_SIGNS[name]} {args[1].text})", dtype)
        if name in _COMPARE:
            return Val(f"({a.text} {_COMPARE[name]} {args[1].text})", bool_)
        match name:
            case "maximum" | "minimum":
                verb = self.prelude.use("most" if name == "maximum" else "least")
                return Val(f"{verb}<{own}>({a.text}, {args[1].text})", dtype)
            case "neg":
                return Val(f"({own})(0u - ({bare})({a.text}))", dtype)
            case "not":
                return Val(f"({own})(~({a.text}))", dtype)
            case "abs":
                zero = number(0, dtype).text
                negative = f"({own})(0u - ({bare})({a.text}))"
                return Val(f"({a.text} < {zero} ? {negative} : {a.text})" if dtype.kind == "int" else a.text, dtype)
            case "fma":
                return self.apply("add", [args[2], self.apply("mul", args[:2])])
            case "fms":
                return self.apply("sub", [self.apply("mul", args[:2]), args[2]])
            case "shl" | "shr":
                self.prelude.use("shifts")
                verb = "shift_left" if name == "shl" else "shift_right"
                return Val(f"{verb}<{own}, {bare}>({a.text}, {args[1].text})", dtype)
            case "floordiv" | "mod":
                bits = _power(args[1].text)
                if 0 < bits < dtype.bits - 1:
                    # Of either sign: rounded down, what is left is not negative. Neighbours have one quotient then,
                    # as the assembler sees.
                    cut = f">> {bits}" if name == "floordiv" else f"& ({own}){(1 << bits) - 1}"
                    return Val(f"({own})({a.text} {cut})", dtype)
                self.prelude.use("int_floordiv")
                return Val(f"int_{name}<{own}>({a.text}, {args[1].text})", dtype)
            case _:
                raise unsupported(f"{name} of {dtype}", "an elementwise operation that has this dtype")

    def _bool(self, name: str, args: Sequence[Val]) -> Val:
        name = {"maximum": "or", "minimum": "and", "add": "or", "mul": "and"}.get(name, name)
        if name == "not":
            return Val(f"(!{args[0].text})", bool_)
        sign = {"and": "&&", "or": "||", "xor": "!="}.get(name) or _COMPARE.get(name)
        if sign is None:
            raise unsupported(f"{name} of bool", "a logical operation or a comparison")
        return Val(f"({args[0].text} {sign} {args[1].text})", bool_)

    # ---- contraction

    def multiply_add(self, a: Val, b: Val, acc: Val, fused: bool = True) -> Val:
        """`acc + a * b` by one fused operation, or rounded twice; operands are converted exactly to the accumulator's
        dtype."""
        wide = [cast(v, acc.dtype, self.prelude) for v in (a, b)]
        if acc.dtype not in (f32, f64) and not acc.dtype.is_int:
            raise unsupported(f"a contraction in {acc.dtype}", "an accumulator of f32, f64 or an integer")
        return self.apply("fma", [*wide, acc]) if fused else self.apply("add", [acc, self.apply("mul", wide)])
