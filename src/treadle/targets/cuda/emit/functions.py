"""exp, log, tanh and their kin: the expansions of `treadle.math` as device functions, bit for bit the simulator's.

Those around the hardware's own instructions are the exception; a program that allows them says so in its ledger.

Each is straight-line text. The compiler must not contract what it says (`--fmad=false`); division and square root are
IEEE's, which is the default.

Rounding to an integer and its conversion go to a slow unit of the hardware. Where the argument's interval is known to
lie within 2^21, adding and taking away 1.5 * 2^23 rounds just so, and the sum's low bits are the integer. (Only the
sign of a zero may differ, and no expansion looks at that; `tests` and the device check compare bits.)
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isfinite

from treadle.dtype.formats import f32, f64
from treadle.math.table import FUNCTIONS, Expand, by_hardware, expansion, wide_expansion
from treadle.targets.cuda.emit.prelude import Prelude
from treadle.targets.cuda.emit.values import number

APPROXIMATE: dict[str, str] = {
    "exp": "exp_approx",
    "exp2": "exp2_approx",
    "log2": "log2_approx",
    "rsqrt": "rsqrt_approx",
    "reciprocal": "reciprocal_approx",
    "tanh": "tanh_approx",
    "sin": "sin_approx",
    "cos": "cos_approx",
}
"""Functions for which the hardware has an instruction, taken where the statement says so."""


_NEAR = 2.0**21
_SHIFT, _SHIFT_BITS = "12582912.0f", "0x4b400000"


class TextOps:
    """`treadle.math.ops.Ops` as lines of C++; a value is the name of a variable, or a number."""

    def __init__(self, indent: str = "  ") -> None:
        self.lines: list[str] = []
        self.count = [0]
        self.indent = indent
        self.bounds: dict[str, tuple[float, float]] = {}
        self.shifted: dict[str, str] = {}
        self.numbers: dict[str, float] = {}

    def _new(self, kind: str, text: str) -> str:
        name = f"v{self.count[0]}"
        self.count[0] += 1
        self.lines.append(f"{self.indent}const {kind} {name} = {text};")
        return name

    def _float(self, text: str) -> str:
        return self._new("float", text)

    def _int(self, text: str) -> str:
        return self._new("int", text)

    def _mask(self, text: str) -> str:
        return self._new("bool", text)

    def const_f32(self, value: float) -> str:
        text = number(value, f32).text
        if isfinite(value):
            self.numbers[text] = value
        return text

    def const_i32(self, value: int) -> str:
        return f"(int)0x{value & 0xFFFFFFFF:x}u"

    def add(self, a: str, b: str) -> str:
        x, y = self._interval(a), self._interval(b)
        return self._bound(self._float(f"{a} + {b}"), [p + q for p, q in zip(x, y)])

    def sub(self, a: str, b: str) -> str:
        return self._float(f"{a} - {b}")

    def mul(self, a: str, b: str) -> str:
        x, y = self._interval(a), self._interval(b)
        return self._bound(self._float(f"{a} * {b}"), [p * q for p in x for q in y])

    def div(self, a: str, b: str) -> str:
        return self._float(f"{a} / {b}")

    def sqrt(self, a: str) -> str:
        return self._float(f"sqrtf({a})")

    def fma(self, a: str, b: str, c: str) -> str:
        return self._float(f"fmaf({a}, {b}, {c})")

    def neg(self, a: str) -> str:
        return self._float(f"__uint_as_float(__float_as_uint({a}) ^ 0x80000000u)")

    def abs(self, a: str) -> str:
        name = self._float(f"__uint_as_float(__float_as_uint({a}) & 0x7fffffffu)")
        self.bounds[name] = (0.0, inf)
        return name

    def copysign(self, a: str, sign: str) -> str:
        size, top = f"(__float_as_uint({a}) & 0x7fffffffu)", f"(__float_as_uint({sign}) & 0x80000000u)"
        return self._float(f"__uint_as_float({size} | {top})")

    def max(self, a: str, b: str) -> str:
        (low, high), (other, top) = self._interval(a), self._interval(b)
        name = self._float(f"fmaxf({a}, {b})")
        # Only a value without an upper bound can be NaN; then the other operand comes.
        self.bounds[name] = (max(low, other) if max(high, top) < inf else min(low, other), max(high, top))
        return name

    def min(self, a: str, b: str) -> str:
        (low, high), (other, top) = self._interval(a), self._interval(b)
        name = self._float(f"fminf({a}, {b})")
        self.bounds[name] = (min(low, other), min(high, top))
        return name

    def round_even(self, a: str) -> str:
        low, high = self._interval(a)
        if not (-_NEAR <= low and high <= _NEAR):
            return self._float(f"rintf({a})")
        moved = self._float(f"{a} + {_SHIFT}")
        name = self._float(f"{moved} - {_SHIFT}")
        self.shifted[name] = moved
        return self._bound(name, [low - 0.5, high + 0.5])

    def float_to_int(self, a: str) -> str:
        moved = self.shifted.get(a)
        if moved is not None:
            return self._int(f"__float_as_int({moved}) - {_SHIFT_BITS}")
        return self._int(f"__float2int_rz({a})")

    def _interval(self, a: str) -> tuple[float, float]:
        """Where a float lies. Ensures: a finite interval is one of numbers, a value that may be NaN has no upper
        bound."""
        known = self.bounds.get(a)
        if known is not None:
            return known
        value = self.numbers.get(a)
        return (-inf, inf) if value is None else (value, value)

    def _bound(self, name: str, corners: list[float]) -> str:
        if all(isfinite(c) for c in corners):
            self.bounds[name] = (min(corners), max(corners))
        return name

    def exp2_near(self, a: str) -> str:
        return self._float(f"exp2_approx({a})")

    def reciprocal_near(self, a: str) -> str:
        return self._float(f"reciprocal_approx({a})")

    def fma_unit(self, a: str, b: str, c: str) -> str:
        name = self._float(f"fma_unit({a}, {b}, {c})")
        self.bounds[name] = (0.0, 1.0)
        return name

    def int_to_float(self, a: str) -> str:
        return self._float(f"__int2float_rn({a})")

    def as_int(self, a: str) -> str:
        return self._int(f"__float_as_int({a})")

    def as_float(self, a: str) -> str:
        return self._float(f"__int_as_float({a})")

    def _wrap(self, a: str, sign: str, b: str) -> str:
        return self._int(f"(int)((u32){a} {sign} (u32){b})")

    def iadd(self, a: str, b: str) -> str:
        return self._wrap(a, "+", b)

    def isub(self, a: str, b: str) -> str:
        return self._wrap(a, "-", b)

    def imul(self, a: str, b: str) -> str:
        return self._wrap(a, "*", b)

    def umulhi(self, a: str, b: str) -> str:
        return self._int(f"(int)__umulhi((u32){a}, (u32){b})")

    def and_(self, a: str, b: str) -> str:
        return self._int(f"{a} & {b}")

    def or_(self, a: str, b: str) -> str:
        return self._int(f"{a} | {b}")

    def xor(self, a: str, b: str) -> str:
        return self._int(f"{a} ^ {b}")

    def shl(self, a: str, count: str) -> str:
        return self._wrap(a, "<<", count)

    def lshr(self, a: str, count: str) -> str:
        return self._wrap(a, ">>", count)

    def ashr(self, a: str, count: str) -> str:
        return self._int(f"{a} >> {count}")

    def lt(self, a: str, b: str) -> str:
        return self._mask(f"{a} < {b}")

    def le(self, a: str, b: str) -> str:
        return self._mask(f"{a} <= {b}")

    def gt(self, a: str, b: str) -> str:
        return self._mask(f"{a} > {b}")

    def ge(self, a: str, b: str) -> str:
        return self._mask(f"{a} >= {b}")

    def eq(self, a: str, b: str) -> str:
        return self._mask(f"{a} == {b}")

    def ne(self, a: str, b: str) -> str:
        return self._mask(f"{a} != {b}")

    def is_nan(self, a: str) -> str:
        return self._mask(f"{a} != {a}")

    def ieq(self, a: str, b: str) -> str:
        return self._mask(f"{a} == {b}")

    def ilt(self, a: str, b: str) -> str:
        return self._mask(f"{a} < {b}")

    def select(self, mask: str, a: str, b: str) -> str:
        return self._new("auto", f"{mask} ? {a} : {b}")

    def rare(self, mask: str, slow: Callable[[], str], fast: str) -> str:
        name = f"v{self.count[0]}"
        self.count[0] += 1
        self.lines.append(f"{self.indent}auto {name} = {fast};")
        self.lines.append(f"{self.indent}if ({mask}) {{")
        outer, self.indent = self.indent, self.indent + "  "
        result = slow()
        self.lines.append(f"{self.indent}{name} = {result};")
        self.indent = outer
        self.lines.append(f"{self.indent}}}")
        return name


class WideTextOps(TextOps):
    """`treadle.math.wide_ops.WideOps` as lines of C++: doubles, and integers of 64 bits. Intervals are not followed."""

    def _float(self, text: str) -> str:
        return self._new("double", text)

    def _int(self, text: str) -> str:
        return self._new("i64", text)

    def const_f64(self, value: float) -> str:
        return number(value, f64).text

    def const_i64(self, value: int) -> str:
        return f"(i64)0x{value & 0xFFFFFFFFFFFFFFFF:x}ull"

    def add(self, a: str, b: str) -> str:
        return self._float(f"{a} + {b}")

    def mul(self, a: str, b: str) -> str:
        return self._float(f"{a} * {b}")

    def sqrt(self, a: str) -> str:
        return self._float(f"sqrt({a})")

    def fma(self, a: str, b: str, c: str) -> str:
        return self._float(f"fma({a}, {b}, {c})")

    def neg(self, a: str) -> str:
        return self._float(f"__longlong_as_double(__double_as_longlong({a}) ^ (i64)0x8000000000000000ull)")

    def abs(self, a: str) -> str:
        return self._float(f"__longlong_as_double(__double_as_longlong({a}) & 0x7fffffffffffffffll)")

    def copysign(self, a: str, sign: str) -> str:
        size = f"(__double_as_longlong({a}) & 0x7fffffffffffffffll)"
        top = f"(__double_as_longlong({sign}) & (i64)0x8000000000000000ull)"
        return self._float(f"__longlong_as_double({size} | {top})")

    def max(self, a: str, b: str) -> str:
        return self._float(f"fmax({a}, {b})")

    def min(self, a: str, b: str) -> str:
        return self._float(f"fmin({a}, {b})")

    def round_even(self, a: str) -> str:
        return self._float(f"rint({a})")

    def float_to_int(self, a: str) -> str:
        return self._int(f"__double2ll_rz({a})")

    def int_to_float(self, a: str) -> str:
        return self._float(f"__ll2double_rn({a})")

    def as_int(self, a: str) -> str:
        return self._int(f"__double_as_longlong({a})")

    def as_float(self, a: str) -> str:
        return self._float(f"__longlong_as_double({a})")

    def _wrap(self, a: str, sign: str, b: str) -> str:
        return self._int(f"(i64)((u64){a} {sign} (u64){b})")

    def umulhi(self, a: str, b: str) -> str:
        return self._int(f"(i64)__umul64hi((u64){a}, (u64){b})")


def function(name: str, accuracy: str, prelude: Prelude) -> str:
    """The device function of an f32 function in class `2ulp` or `fast`. Errors: math/no-expansion."""
    return define(f"{name}_{accuracy}", expansion(name, accuracy).expand, FUNCTIONS[name].arity, prelude)


def wide_function(name: str, prelude: Prelude) -> str:
    """The device function of an f64 function. Errors: math/no-expansion."""
    expand = wide_expansion(name).expand
    return define(f"{name}_wide", expand, FUNCTIONS[name].arity, prelude, WideTextOps(), "double")


def near_function(name: str, arch: str, prelude: Prelude) -> str:
    """The device function that stands around the hardware's instructions. Errors: math/no-expansion."""
    return define(f"{name}_near", by_hardware(name, arch).expand, FUNCTIONS[name].arity, prelude)


def define(
    called: str, expand: Expand, arity: int, prelude: Prelude, ops: TextOps | None = None, kind: str = "float"
) -> str:
    """Has an expansion in the text as a device function; returns its name."""
    if called not in prelude.own:
        ops = ops or TextOps()
        arguments = [f"x{i}" for i in range(arity)]
        result = expand(ops, *arguments)
        lines = "\n".join([*ops.lines, f"  return {result};"])
        for part in ("exp2_approx", "reciprocal_approx", "fma_unit"):
            if f"{part}(" in lines:
                prelude.use(part)
        parameters = ", ".join(f"{kind} {a}" for a in arguments)
        prelude.define(called, f"DEVICE {kind} {called}({parameters}) {{\n{lines}\n}}\n")
    return called
