"""exp, log, tanh and their kin: the expansions of `treadle.math` on LLVM vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from treadle.dtype.formats import bool_, f32, i32
from treadle.math.table import expansion
from treadle.targets.cpu.emit.lanes import Lanes, Vec, constant, vector
from treadle.targets.cpu.emit.text import Function


class VectorOps:
    """The primitives of `treadle.math.ops.Ops` as instructions on vectors of `lanes` lanes (None: scalars)."""

    def __init__(self, fn: Function, lanes: Lanes, count: int | None) -> None:
        self.fn = fn
        self.lanes = lanes
        self.count = count

    # ---- parts

    def _two(self, verb: str, a: Vec, b: Vec) -> Vec:
        return replace(a, text=self.fn.value(f"{verb} {a.type} {a.text}, {b.text}"))

    def _test(self, verb: str, a: Vec, b: Vec) -> Vec:
        return Vec(self.fn.value(f"{verb} {a.type} {a.text}, {b.text}"), bool_, self.count)

    def _name(self, kind: str) -> str:
        return kind if self.count is None else f"v{self.count}{kind}"

    def _intrinsic(self, name: str, *args: Vec) -> Vec:
        text = self.fn.call(args[0].type, f"llvm.{name}.{self._name('f32')}", [a.typed for a in args])
        return replace(args[0], text=text)

    # ---- constants

    def const_f32(self, value: float) -> Vec:
        return constant(f32, value, self.count)

    def const_i32(self, value: int) -> Vec:
        return constant(i32, value, self.count)

    # ---- floats

    def add(self, a: Vec, b: Vec) -> Vec:
        return self._two("fadd", a, b)

    def sub(self, a: Vec, b: Vec) -> Vec:
        return self._two("fsub", a, b)

    def mul(self, a: Vec, b: Vec) -> Vec:
        return self._two("fmul", a, b)

    def div(self, a: Vec, b: Vec) -> Vec:
        return self._two("fdiv", a, b)

    def sqrt(self, a: Vec) -> Vec:
        return self._intrinsic("sqrt", a)

    def fma(self, a: Vec, b: Vec, c: Vec) -> Vec:
        return self._intrinsic("fma", a, b, c)

    def neg(self, a: Vec) -> Vec:
        return replace(a, text=self.fn.value(f"fneg {a.type} {a.text}"))

    def abs(self, a: Vec) -> Vec:
        return self._intrinsic("fabs", a)

    def copysign(self, a: Vec, sign: Vec) -> Vec:
        return self._intrinsic("copysign", a, sign)

    def max(self, a: Vec, b: Vec) -> Vec:
        return self.select(self.gt(a, b), a, b)

    def min(self, a: Vec, b: Vec) -> Vec:
        return self.select(self.lt(a, b), a, b)

    def round_even(self, a: Vec) -> Vec:
        return self._intrinsic("roundeven", a)

    def float_to_int(self, a: Vec) -> Vec:
        kind = vector("i32", self.count)
        # Frozen: what is out of range may be any integer, but the same at every use.
        return Vec(
            self.fn.value(f"freeze {kind} {self.fn.value(f'fptosi {a.type} {a.text} to {kind}')}"), i32, self.count
        )

    def int_to_float(self, a: Vec) -> Vec:
        return Vec(self.fn.value(f"sitofp {a.type} {a.text} to {vector('float', self.count)}"), f32, self.count)

    def as_int(self, a: Vec) -> Vec:
        return Vec(self.fn.value(f"bitcast {a.type} {a.text} to {vector('i32', self.count)}"), i32, self.count)

    def as_float(self, a: Vec) -> Vec:
        return Vec(self.fn.value(f"bitcast {a.type} {a.text} to {vector('float', self.count)}"), f32, self.count)

    # ---- integers

    def iadd(self, a: Vec, b: Vec) -> Vec:
        return self._two("add", a, b)

    def isub(self, a: Vec, b: Vec) -> Vec:
        return self._two("sub", a, b)

    def imul(self, a: Vec, b: Vec) -> Vec:
        return self._two("mul", a, b)

    def umulhi(self, a: Vec, b: Vec) -> Vec:
        narrow, wide = vector("i32", self.count), vector("i64", self.count)
        x, y = (self.fn.value(f"zext {narrow} {v.text} to {wide}") for v in (a, b))
        shift = "32" if self.count is None else "splat (i64 32)"
        high = self.fn.value(f"lshr {wide} {self.fn.value(f'mul {wide} {x}, {y}')}, {shift}")
        return replace(a, text=self.fn.value(f"trunc {wide} {high} to {narrow}"))

    def and_(self, a: Vec, b: Vec) -> Vec:
        return self._two("and", a, b)

    def or_(self, a: Vec, b: Vec) -> Vec:
        return self._two("or", a, b)

    def xor(self, a: Vec, b: Vec) -> Vec:
        return self._two("xor", a, b)

    def shl(self, a: Vec, count: Vec) -> Vec:
        return self._two("shl", a, count)

    def lshr(self, a: Vec, count: Vec) -> Vec:
        return self._two("lshr", a, count)

    def ashr(self, a: Vec, count: Vec) -> Vec:
        return self._two("ashr", a, count)

    # ---- masks

    def lt(self, a: Vec, b: Vec) -> Vec:
        return self._test("fcmp olt", a, b)

    def le(self, a: Vec, b: Vec) -> Vec:
        return self._test("fcmp ole", a, b)

    def gt(self, a: Vec, b: Vec) -> Vec:
        return self._test("fcmp ogt", a, b)

    def ge(self, a: Vec, b: Vec) -> Vec:
        return self._test("fcmp oge", a, b)

    def eq(self, a: Vec, b: Vec) -> Vec:
        return self._test("fcmp oeq", a, b)

    def ne(self, a: Vec, b: Vec) -> Vec:
        return self._test("fcmp une", a, b)

    def is_nan(self, a: Vec) -> Vec:
        return self._test("fcmp uno", a, a)

    def ieq(self, a: Vec, b: Vec) -> Vec:
        return self._test("icmp eq", a, b)

    def ilt(self, a: Vec, b: Vec) -> Vec:
        return self._test("icmp slt", a, b)

    def select(self, mask: Vec, a: Vec, b: Vec) -> Vec:
        return replace(a, text=self.fn.value(f"select {mask.type} {mask.text}, {a.type} {a.text}, {b.type} {b.text}"))

    def rare(self, mask: Vec, slow: Callable[[], Vec], fast: Vec) -> Vec:
        """The slow way is skipped where no lane needs it."""
        some = mask.text
        if self.count is not None:
            bits = self.fn.value(f"bitcast {mask.type} {mask.text} to i{self.count}")
            some = self.fn.value(f"icmp ne i{self.count} {bits}, 0")
        before, yes, done = self.fn.block, self.fn.label("rare"), self.fn.label("common")
        self.fn.branch(some, yes, done)
        self.fn.start(yes)
        chosen = self.select(mask, slow(), fast)
        last = self.fn.block
        self.fn.jump(done)
        self.fn.start(done)
        text = self.fn.value(f"phi {fast.type} [ {chosen.text}, %{last} ], [ {fast.text}, %{before} ]")
        return replace(fast, text=text)


def expanded(fn: Function, lanes: Lanes, name: str, accuracy: str, args: Sequence[Vec]) -> Vec:
    """The function of f32 operands of equally many lanes. Errors: math/no-expansion."""
    # The expansions are f32; "storage" is met by rounding the precise one once.
    found = expansion(name, "2ulp" if accuracy == "storage" else accuracy)
    return found.expand(VectorOps(fn, lanes, args[0].lanes), *args)
