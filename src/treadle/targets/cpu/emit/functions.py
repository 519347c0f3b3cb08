"""exp, log, tanh and their kin: the expansions of `treadle.math` on LLVM vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from treadle.dtype.formats import DType, bool_, f32, f64, i32, i64
from treadle.math.table import BY_WIDE, expansion, wide_expansion
from treadle.targets.cpu.emit.casts import Casts
from treadle.targets.cpu.emit.errors import unsupported
from treadle.targets.cpu.emit.lanes import Lanes, Vec, chunks, constant, lane_type, number_text, vector
from treadle.targets.cpu.emit.text import Function

TABLE = 4
"""f32 lanes of a register from which aarch64 looks numbers up, whatever the level."""


class VectorOps:
    """The primitives of `treadle.math.ops.Ops` as instructions on vectors of `lanes` lanes (None: scalars)."""

    real: DType = f32
    whole: DType = i32

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
        text = self.fn.call(args[0].type, f"llvm.{name}.{self._name(self.real.name)}", [a.typed for a in args])
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

    def _turned(self, verb: str, a: Vec, to: DType) -> Vec:
        kind = vector(lane_type(to), self.count)
        return Vec(self.fn.value(f"{verb} {a.type} {a.text} to {kind}"), to, self.count)

    def float_to_int(self, a: Vec) -> Vec:
        # Frozen: what is out of range may be any integer, but the same at every use.
        whole = self._turned("fptosi", a, self.whole)
        return replace(whole, text=self.fn.value(f"freeze {whole.type} {whole.text}"))

    def int_to_float(self, a: Vec) -> Vec:
        return self._turned("sitofp", a, self.real)

    def as_int(self, a: Vec) -> Vec:
        return self._turned("bitcast", a, self.whole)

    def as_float(self, a: Vec) -> Vec:
        return self._turned("bitcast", a, self.real)

    # ---- integers

    def iadd(self, a: Vec, b: Vec) -> Vec:
        return self._two("add", a, b)

    def isub(self, a: Vec, b: Vec) -> Vec:
        return self._two("sub", a, b)

    def imul(self, a: Vec, b: Vec) -> Vec:
        return self._two("mul", a, b)

    def umulhi(self, a: Vec, b: Vec) -> Vec:
        bits = self.whole.bits
        narrow, wide = vector(f"i{bits}", self.count), vector(f"i{2 * bits}", self.count)
        x, y = (self.fn.value(f"zext {narrow} {v.text} to {wide}") for v in (a, b))
        shift = str(bits) if self.count is None else f"splat (i{2 * bits} {bits})"
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

    def pick(self, index: Vec, values: tuple[float, ...]) -> Vec:
        """A permutation of registers that hold the values: it reads the low bits of an index, and nothing else."""
        width = TABLE if self.fn.module.arm else self.fn.module.width
        if self.count is None:
            kind = vector(lane_type(index.dtype), width)
            one = self.fn.value(f"insertelement {kind} poison, {index.type} {index.text}, i64 0")
            return self.lanes.element(self._picked(Vec(one, index.dtype, width), values), 0)
        found: list[tuple[Vec, int]] = []
        for at, lanes in chunks(self.count, width):
            places = [at + i if i < lanes else -1 for i in range(width)]
            part = self._picked(self.lanes.shuffle(index, None, places), values)
            found += [(part, i) for i in range(lanes)]
        return found[0][0] if len(found) == width else self.lanes.assemble(found)

    def _picked(self, index: Vec, values: tuple[float, ...]) -> Vec:
        if self.fn.module.arm:
            return self._from_table(index, values)
        width = index.lanes or 1
        kind = vector(lane_type(self.real), width)
        name = "llvm.x86.avx512.permvar.sf.512" if width == 16 else "llvm.x86.avx2.permps"
        parts: list[Vec] = []
        for at, _ in chunks(len(values), width):
            listed = ", ".join(f"{lane_type(self.real)} {number_text(self.real, v)}" for v in values[at : at + width])
            text = self.fn.call(kind, name, [(kind, f"<{listed}>"), index.typed])
            parts.append(Vec(text, self.real, width))
        if len(parts) == 1:
            return parts[0]
        low, high = parts
        eighth = self.fn.value(f"and {index.type} {index.text}, splat ({lane_type(index.dtype)} {width})")
        upper = self.fn.value(f"icmp ne {index.type} {eighth}, zeroinitializer")
        return replace(low, text=self.fn.value(f"select <{width} x i1> {upper}, {kind} {high.text}, {kind} {low.text}"))

    def _from_table(self, index: Vec, values: tuple[float, ...]) -> Vec:
        """Of at most sixteen values, bytes of a table in up to four registers: lane i takes bytes 4 i .. 4 i + 3."""
        count = len(values) // TABLE
        if self.real != f32 or count not in (1, 2, 4):
            raise unsupported(f"a table of {len(values)} numbers of {self.real}", "4, 8 or 16 of f32")
        low = self.fn.value(f"and <{TABLE} x i32> {index.text}, splat (i32 {len(values) - 1})")
        four = self.fn.value(f"mul <{TABLE} x i32> {low}, splat (i32 {0x04040404})")
        places = self.fn.value(f"add <{TABLE} x i32> {four}, splat (i32 {0x03020100})")
        picks = self.fn.value(f"bitcast <{TABLE} x i32> {places} to <16 x i8>")
        rows: list[tuple[str, str]] = []
        for at in range(0, len(values), TABLE):
            listed = ", ".join(f"float {number_text(f32, v)}" for v in values[at : at + TABLE])
            rows.append(("<16 x i8>", self.fn.value(f"bitcast <{TABLE} x float> <{listed}> to <16 x i8>")))
        name = f"llvm.aarch64.neon.tbl{count}.v16i8"
        found = self.fn.call("<16 x i8>", name, [*rows, ("<16 x i8>", picks)])
        return Vec(self.fn.value(f"bitcast <16 x i8> {found} to <{TABLE} x float>"), f32, TABLE)

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


class WideVectorOps(VectorOps):
    """The primitives of `treadle.math.wide_ops.WideOps`."""

    real = f64
    whole = i64

    def const_f64(self, value: float) -> Vec:
        return constant(f64, value, self.count)

    def const_i64(self, value: int) -> Vec:
        return constant(i64, value, self.count)


def expanded(fn: Function, lanes: Lanes, name: str, accuracy: str, args: Sequence[Vec]) -> Vec:
    """The function of f32 or f64 operands of equally many lanes. Errors: math/no-expansion."""
    count = args[0].lanes
    if args[0].dtype == f64:
        return wide_expansion(name).expand(WideVectorOps(fn, lanes, count), *args)
    if accuracy in BY_WIDE:
        casts = Casts(fn, lanes)
        return casts.cast(expanded(fn, lanes, name, accuracy, [casts.cast(a, f64) for a in args]), f32)
    return expansion(name, accuracy, "cpu").expand(VectorOps(fn, lanes, count), *args)
