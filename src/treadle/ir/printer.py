"""Programs as text. The text is self-contained: `parser.parse` gives back a program that prints the same.

    program linear
      dim M
      dim K
      tensor X: f32[M, K]
      tensor Y: f32[M] out
      body
        region R0 parallel (m in M)
          %x: f32[m, K] = load X[m, K]
          %0: f32[m] = reduce add %x over K
          store Y[m] = %0

A monoid of the user is written below the operation that it folds with:

          %m: f32[m], %s: f32[m] = fold %x, %one over K merge lse commutative
            identity
              %1: f32[m] = full -inf
              %2: f32[m] = full 0.0
              yield %1, %2
            with (%a: f32[m], %b: f32[m]) (%c: f32[m], %d: f32[m])
              ...
              yield %e, %f

A part is written by name where it is a whole dimension (`M`) or the block of a region argument in scope (`m`), else as
`M[lo : hi]`. An index that could be read as such a name stands in parentheses.
"""

from __future__ import annotations

import math

from treadle.algebra.dims import Dim, Part
from treadle.algebra.expr import Expr
from treadle.base.text import Writer, quoted
from treadle.ir.core import AxisSub, Block, If, Merge, Op, Program, Region, RegionArg, Sub, TileType, Value
from treadle.ir.ops.access import Extract, Insert, Load, Store
from treadle.ir.ops.debug import Check, Print
from treadle.ir.ops.elementwise import Bitcast, Cast, Coords, Elementwise, Full, Index
from treadle.ir.ops.fold import ArgReduce, Fold, Mma, Reduce, Scan, Sort
from treadle.ir.ops.intrinsic import Meaning


def print_program(program: Program) -> str:
    """The text of `program`. *Ensures*: `print_program(parse(print_program(p))) == print_program(p)`."""
    printer = _Printer(program)
    printer.program()
    return str(printer.out)


Program.printer = print_program


def number_text(number: float | int | bool | None) -> str:
    """A constant: `uninitialised`, `true`, `-inf`, `nan`, or digits that read back exactly."""
    if number is None:
        return "uninitialised"
    if isinstance(number, bool):
        return "true" if number else "false"
    if isinstance(number, float) and math.isnan(number):
        return "nan"
    return repr(number)


def setting_text(value: str | bool | None) -> str:
    """A value of `numerics`: a quoted string, `true`, `false` or `none`."""
    if value is None:
        return "none"
    return ("true" if value else "false") if isinstance(value, bool) else quoted(value)


def dim_text(dim: Dim) -> str:
    """The declaration of a dimension."""
    text = f"dim {dim.name}"
    if dim.alias_of is not None:
        text += f" alias {dim.alias_of.name}"
    elif dim.factors:
        text += f" product {', '.join(f.name for f in dim.factors)}"
    if str(dim.extent) != _implied(dim):
        text += f" = {dim.extent}"
    return text + (" static" if dim.static else "")


def _implied(dim: Dim) -> str:
    if dim.alias_of is not None:
        return str(dim.alias_of.extent)
    if dim.factors:
        product: Expr | int = 1
        for factor in dim.factors:
            product = factor.extent * product
        return str(product)
    return dim.name


class _Printer:
    """Writes a program; `scope` holds the region arguments around the current line."""

    def __init__(self, program: Program) -> None:
        self.p = program
        self.out = Writer()
        self.scope: list[RegionArg] = []
        self.dim_names = {d.name for d in program.dims}

    def program(self) -> None:
        p = self.p
        with self.out.indent(f"program {p.name}"):
            for key, value in p.numerics.items():
                self.out.line(f"numerics {key} = {setting_text(value)}")
            for key, text in p.staged.items():
                self.out.line(f"staged {key} = {quoted(text)}")
            for dim in p.dims:
                self.out.line(dim_text(dim))
            for name, expr in p.lets.items():
                self.out.line(f"let {name} = {expr}")
            for fact in p.requires:
                self.out.line(f"require {fact}")
            for t in p.tensors:
                flags = (" out" if t.out else "") + (" optional" if t.optional else "")
                flags += (" hidden" if t.hidden else "") + (" devices" if t.devices else "")
                flags += "" if t.part is None else f" part {t.part[0]} {t.part[1]}"
                self.out.line(f"tensor {t.name}: {t.dtype}[{', '.join(map(str, t.dims))}]{flags}")
            for s in p.scalars:
                self.out.line(f"scalar {s.name}: {s.value.type.dtype} = {s.value}")
            for meaning in p.intrinsics:
                self.meaning(meaning)
            with self.out.indent("body"):
                self.block(p.body)

    def meaning(self, meaning: Meaning) -> None:
        """An operation of the user's own."""
        params = ", ".join(map(self.typed, meaning.params))
        texts = "".join(f" emit {quoted(target)} {quoted(text)}" for target, text in meaning.emit.items())
        head = f"intrinsic {meaning.name} {quoted(meaning.symbol)} ({params}) numerics {quoted(meaning.numerics)}"
        with self.out.indent(head + texts):
            self.block(meaning.body)

    def block(self, block: Block, stages: list[tuple[str, int]] | None = None) -> None:
        starts = stages or []
        for i, op in enumerate(block.ops):
            for name, start in starts:
                if start == i:
                    self.out.line(f"stage {quoted(name)}")
            self.op(op)
        for name, start in starts:
            if start >= len(block.ops):
                self.out.line(f"stage {quoted(name)}")
        if block.yields:
            self.out.line(f"yield {', '.join(map(str, block.yields))}")

    def op(self, op: Op) -> None:
        if isinstance(op, Region):
            self.region(op)
        elif isinstance(op, If):
            self.conditional(op)
        else:
            head = f"{', '.join(map(self.typed, op.results))} = " if op.results else ""
            self.out.line(head + self.simple(op))
            if isinstance(op, Fold | Scan) and isinstance(op.merge, Merge):
                with self.out.indent():
                    self.merge(op.merge)

    def merge(self, merge: Merge) -> None:
        """The blocks of a monoid."""
        with self.out.indent("identity"):
            self.block(merge.identity)
        left, right = (", ".join(map(self.typed, side)) for side in (merge.left, merge.right))
        with self.out.indent(f"with ({left}) ({right})"):
            self.block(merge.body)

    def region(self, op: Region) -> None:
        text = f"region {op.name} {op.kind} ({', '.join(map(self.arg, op.args))})"
        if op.order != "unordered":
            text += f" order {op.order}"
        if op.scope is not None:
            text += f" scope {quoted(op.scope)}"
        if op.versions is not None:
            text += f" versions {op.versions}"
        if op.inits:
            # A result has the type of its initial value, so only the carried name is typed.
            pairs = ", ".join(f"{self.typed(c)} = {i}" for c, i in zip(op.carried, op.inits))
            text += f" carry ({pairs}) -> ({', '.join(map(str, op.results))})"
        self.out.line(text)
        self.scope.extend(op.args)
        with self.out.indent():
            for merge in op.merges:
                with self.out.indent(f"merge {merge_text(merge)} states {', '.join(map(str, merge.states))}"):
                    self.merge(merge)
            self.block(op.body, op.stages)
        del self.scope[len(self.scope) - len(op.args) :]

    def arg(self, arg: RegionArg) -> str:
        text = f"{arg.name} in {self.part(arg.domain)}"
        if arg.kind == "each":
            text += " each"
        if arg.size is not None:
            text += f" by {arg.size}"
        return text + (" reversed" if arg.reversed else "")

    def conditional(self, op: If) -> None:
        results = f" -> ({', '.join(map(self.typed, op.results))})" if op.results else ""
        with self.out.indent(f"if {op.cond}{results}"):
            self.block(op.then)
        if op.orelse.ops or op.orelse.yields:
            with self.out.indent("else"):
                self.block(op.orelse)

    def simple(self, op: Op) -> str:
        match op:
            case Full():
                wishes = "".join(f" {k} {quoted(v)}" for k, v in (("place", op.place), ("layout", op.layout)) if v)
                return f"full {number_text(op.number)}{wishes}"
            case Coords():
                return f"coords {self.part(op.part)}"
            case Index():
                return f"index {op.expr}"
            case Elementwise():
                return f"{op.fn} {', '.join(map(str, op.args))}"
            case Cast():
                return f"cast {op.source}" + (" saturate" if op.saturate else "")
            case Bitcast():
                return f"bitcast {op.source}"
            case Load():
                return f"load {op.tensor.name}{self.subs(op.subs)}" + _tail("fill", op.fill)
            case Extract():
                return f"extract {op.source}{self.subs(op.subs)}" + _tail("fill", op.fill)
            case Insert():
                return f"insert {op.source}{self.subs(op.subs)} = {op.value}"
            case Store():
                sign = "=" if op.effect == "set" else op.effect
                order = f" order {op.order}" if op.order != "unordered" else ""
                return f"store {op.tensor.name}{self.subs(op.subs)} {sign} {op.value}{_tail('where', op.where)}{order}"
            case Reduce() | ArgReduce():
                order = f" order {op.order}" if isinstance(op, Reduce) and op.order != "unordered" else ""
                nan = f" nan {op.nan}" if op.nan != "propagate" else ""
                return f"{op.keyword} {op.monoid} {op.source} over {', '.join(map(str, op.dims))}{order}{nan}"
            case Fold():
                sources, dims = ", ".join(map(str, op.sources)), ", ".join(map(str, op.dims))
                return f"fold {sources} over {dims} merge {merge_text(op.merge)}{_order(op.order, 'unordered')}"
            case Scan():
                sources = ", ".join(map(str, op.sources))
                how = op.merge if isinstance(op.merge, str) else f"merge {merge_text(op.merge)}"
                flags = (" exclusive" if op.exclusive else "") + (" reverse" if op.reverse else "")
                flags += " whole" if op.whole else ""
                return f"scan {sources} over {op.dim} {how}{flags}{_order(op.order, 'ordered')}"
            case Sort():
                to = "" if op.to is None else f" to {self.part(op.to)}"
                return f"sort {op.source} over {op.dim}{to}{' descending' if op.descending else ''}"
            case Mma():
                return f"mma {op.a}, {op.b}, {op.acc}"
            case Print():
                return f"print {quoted(op.label)} {op.value}" + _tail("where", op.where)
            case Check():
                return f"check {op.cond} {quoted(op.message)}"
            case _:
                raise AssertionError(op)

    # ---- types, parts, subscripts

    def typed(self, value: Value) -> str:
        return f"{value}: {self.type(value.type)}"

    def type(self, type: TileType) -> str:
        return f"{type.dtype}[{', '.join(map(self.part, type.axes))}]"

    def part(self, part: Part) -> str:
        for arg in reversed(self.scope):
            if arg.kind == "block" and arg.part == part:
                return arg.name
        if part == part.dim.whole():
            return part.dim.name
        return f"{part.dim.name}[{part.lo} : {part.hi}]"

    def subs(self, subs: tuple[AxisSub, ...]) -> str:
        texts = [
            "{" + ", ".join(map(self.sub, axis)) + "}" if isinstance(axis, tuple) else self.sub(axis) for axis in subs
        ]
        return f"[{', '.join(texts)}]"

    def sub(self, sub: Sub) -> str:
        if sub.part is not None:
            text = self.part(sub.part)
        elif sub.tile is not None:
            text = str(sub.tile)
        else:
            assert sub.index is not None
            text = str(sub.index)
            if text in self.dim_names or any(text == a.name and a.kind == "block" for a in self.scope):
                text = f"({text})"
        return f"in_range({text})" if sub.promised else text


def merge_text(merge: Merge) -> str:
    """The head of a monoid: its name and laws."""
    laws = "" if merge.laws == "declared" else f" laws {quoted(merge.laws)}"
    return merge.name + (" commutative" if merge.commutative else "") + laws


def _order(order: str, usual: str) -> str:
    return "" if order == usual else f" order {order}"


def _tail(word: str, value: Value | None) -> str:
    return "" if value is None else f" {word} {value}"
