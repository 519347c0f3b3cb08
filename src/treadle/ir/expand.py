"""Forms without a machine form written out in regions and plain operations.

`expand` is part of the meaning of programs: the driver plans the expanded program, the judge expands the program that a
machine text embeds by itself. The captured program stays what users and files see.

| form | becomes |
|---|---|
| `Fold` | a `serial` region over the coordinates, that carries the state |
| `Scan` | the same, and an outer tile that gets the state at each coordinate (`whole` ones stay) |
| `Sort` | passes of a merge sort (`ir.sorting`), once for all that sort so; its first few: a list (`ir.selecting`) |
| `ArgReduce` | the extremum (that of an equal fold before it), then the least position of an element that equals it |
| a region's `merges` | nothing: the region is the exact chain, a `pipeline` |
| `order fold_right` of a region | a `pipeline` from the last instance to the first |
| a load or extract whose `fill` is computed | the same filled with zeros, and a selection of the fill outside |
| `Check` | an atomic maximum into an element of a hidden i32 tensor, where the condition is false |
| `Print` | stores into hidden tensors (`ir.prints`), where extents tell how many; else nothing |
| a parallel region that is all another one does | one region with the arguments of both (`ir.nesting`) |
| tensors of several devices | one tensor for each device (`ir.devices`), before anything else |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from treadle.algebra.dims import Dim, Part, dim
from treadle.algebra.expr import Expr, const
from treadle.algebra.monoids import MONOIDS
from treadle.base.names import Names
from treadle.dtype.formats import bool_, i32, i64
from treadle.ir.builder import Builder
from treadle.ir.clone import Cloner, clone_program
from treadle.ir.core import (
    AxisSub,
    Block,
    Hidden,
    If,
    Merge,
    Op,
    Program,
    Region,
    RegionArg,
    Sub,
    Tensor,
    TileType,
    Value,
)
from treadle.ir.devices import split_devices
from treadle.ir.nesting import join_nests, nested
from treadle.ir.ops.access import Extract, Load
from treadle.ir.ops.debug import Check, Print
from treadle.ir.ops.elementwise import Elementwise, Full
from treadle.ir.ops.fold import ArgReduce, Fold, Reduce, Scan, Sort
from treadle.ir.prints import record, recordable
from treadle.ir.selecting import FEW, select
from treadle.ir.sorting import sort

FORMS = (Fold, Scan, Sort, ArgReduce, Check)


def expand(program: Program) -> Program:
    """The program without the forms of the table above; `program` itself where it has none of them.

    *Ensures*: `evaluate(expand(p))` equals `evaluate(p)`, up to regrouping that an order permits; names that `p` has
    stay, new ones depend on `p` alone; the result is well formed.
    """
    program = split_devices(program)
    constants = _constants(program)
    shown = any(isinstance(op, Print) for op in program.body.walk()) and recordable(program)
    if shown or any(_form(op) or _rewritten(op, constants) for op in program.body.walk()):
        expander = Expander(clone_program(program), prints=shown)
        expander.run()
        program = expander.program
        join_nests(program)
    elif nested(program):
        program = clone_program(program)
        join_nests(program)
    return program


def _form(op: Op) -> bool:
    """Whether an operation has no machine form as it stands."""
    return isinstance(op, FORMS) and not (isinstance(op, Scan) and op.whole)


def _rewritten(op: Op, constants: set[str]) -> bool:
    if isinstance(op, Load | Extract):
        return op.fill is not None and op.fill.name not in constants
    return isinstance(op, Region) and (bool(op.merges) or (op.kind == "reduce" and op.order == "fold_right"))


def _constants(program: Program) -> set[str]:
    """Names of the values that are numbers."""
    return {op.result.name for op in program.body.walk() if isinstance(op, Full) and op.number is not None}


class Expander:
    """Rewrites a program of its own; `b` appends to the block that is being rewritten."""

    def __init__(self, program: Program, *, prints: bool) -> None:
        self.program = program
        self.prints = prints
        self.around: list[RegionArg] = []
        # Of this block and those around it: what was sorted how -> the sorted elements and their coordinates.
        self.sorted: list[dict[tuple[str, Dim, str, bool], tuple[Value | None, Value]]] = [{}]
        # Of the same blocks: what was folded how -> the fold.
        self.folded: list[dict[tuple[str, tuple[Dim, ...], str, str], Value]] = [{}]
        taken = [d.name for d in program.dims] + [t.name for t in program.tensors]
        for op in program.body.walk():
            if isinstance(op, Region):
                taken += [op.name, *(a.name for a in op.args)]
        self.names = Names(taken)
        values = [v for op in program.body.walk() for v in (*op.results, *op.parameters)]
        numbers = [int(v.name[1:]) for v in values if v.name[1:].isdigit()]
        self.b = Builder(first=max(numbers, default=-1) + 1)
        self.constants = _constants(program)
        self.checks: list[Check] = []
        count = sum(isinstance(op, Check) for op in program.body.walk())
        self.flags = self.flag_tensor(count) if count else None

    def run(self) -> None:
        self.program.body = self.block(self.program.body)
        for op in self.program.body.walk():
            if isinstance(op, Region) and not op.name:
                op.name = self.names.fresh("R_expanded")
        if self.flags is not None:
            messages, spans = tuple(c.message for c in self.checks), tuple(c.span for c in self.checks)
            self.program.hidden.append(Hidden(self.flags, "check", messages, spans))

    # ---- walking

    def block(self, block: Block) -> Block:
        """The block with its operations rewritten; stages of the region around it are moved by `region`."""
        made = Block()
        self.sorted.append({})
        self.folded.append({})
        with self.b.inside(made):
            for op in block.ops:
                self.op(op)
        self.sorted.pop()
        self.folded.pop()
        made.yields = block.yields
        return made

    def op(self, op: Op) -> None:
        self.b.span = op.span
        if isinstance(op, Print) and self.prints:
            record(self, op, self.around)
            return
        rule = _RULES.get(type(op))
        if rule is not None and _form(op):
            rule(self, op)
            return
        if isinstance(op, Full):
            self.constants.add(op.result.name)
        elif isinstance(op, Load | Extract) and _rewritten(op, self.constants):
            self.filled(op)
            return
        elif isinstance(op, Reduce):
            self.folded[-1].setdefault((op.source.name, op.dims, op.monoid, op.nan), op.result)
        if isinstance(op, Region):
            self.region(op)
        elif isinstance(op, If):
            op.then, op.orelse = self.block(op.then), self.block(op.orelse)
        self.b.block.ops.append(op)

    def region(self, op: Region) -> None:
        starts: list[int] = []
        made = Block()
        self.around.extend(op.args)
        self.sorted.append({})
        self.folded.append({})
        with self.b.inside(made):
            for inner in op.body.ops:
                starts.append(len(made.ops))
                self.op(inner)
        del self.around[len(self.around) - len(op.args) :]
        self.sorted.pop()
        self.folded.pop()
        starts.append(len(made.ops))
        made.yields = op.body.yields
        op.stages = [(name, starts[at]) for name, at in op.stages]
        op.body = made
        if op.kind != "reduce":
            return
        if op.order == "fold_right":
            for arg in op.args:
                arg.reversed = not arg.reversed
        if op.order == "fold_right" or op.merges:
            op.kind, op.order, op.merges = "pipeline", "unordered", []

    # ---- what rules are made of

    def each(self, part: Part, *, backward: bool = False, name: str = "") -> RegionArg:
        """A region argument for the coordinates of a part."""
        return RegionArg(self.names.fresh(name or part.dim.name.lower()), part, "each", None, backward, part.dim.name)

    def blocks(self, part: Part, size: Expr, *, name: str = "") -> RegionArg:
        """An argument for blocks of a part, of a fixed size."""
        return RegionArg(self.names.fresh(name or f"{part.dim.name.lower()}_b"), part, "block", size)

    def count(self, name: str, extent: Expr) -> Dim:
        """A fresh dimension for a region over a number of steps."""
        made = dim(self.names.fresh(name), extent)
        self.program.dims.append(made)
        return made

    def element(self, value: Value, args: Sequence[RegionArg]) -> Value:
        """The elements of a value at the coordinates of some of its axes."""
        at = {a.domain.dim: a.index for a in args}
        if not any(a.dim in at for a in value.type.axes):
            return value
        return self.b.extract(value, [Sub(index=at[a.dim]) if a.dim in at else Sub(part=a) for a in value.type.axes])

    def conform(self, value: Value, type: TileType) -> Value:
        """The value with exactly the axes of `type`."""
        if value.type.axes == type.axes:
            return value
        true = self.b.full(True, bool_, type.axes)
        return self.b.elementwise("where", true, value, value)

    def inline(self, merge: Merge, left: Sequence[Value], right: Sequence[Value]) -> list[Value]:
        """The merged state."""
        cloner = self.cloner()
        for parameter, value in zip(merge.parameters, (*left, *right)):
            cloner.values[parameter.name] = value
        return self.inlined(cloner, merge.body)

    def identity(self, merge: Merge) -> list[Value]:
        """The state that changes nothing."""
        return self.inlined(self.cloner(), merge.identity)

    def cloner(self) -> Cloner:
        return Cloner(lambda v: self.b.value(v.type, v.hint), self.names)

    def inlined(self, cloner: Cloner, block: Block) -> list[Value]:
        made = cloner.block(block)
        for op in made.ops:
            self.op(op)
        return made.yields

    def carry(
        self, op: Op, args: Sequence[RegionArg], inits: Sequence[Value], body: Callable[[list[Value]], list[Value]]
    ) -> Region:
        """A serial region; `body` makes what is carried on from what is carried."""
        with self.b.region("serial", args, inits, name=self.names.fresh(f"{op.keyword}_loop")) as region:
            region.body.yields = body(region.carried)
        return region

    def instances(
        self, op: Op, args: Sequence[RegionArg], inits: Sequence[Value], body: Callable[[list[Value]], list[Value]]
    ) -> Region:
        """A parallel region whose instances put their own parts into what is carried."""
        with self.b.region("parallel", args, inits, name=self.names.fresh(f"{op.keyword}_rows")) as region:
            region.body.yields = body(region.carried)
        return region

    # ---- the rules

    def fold(self, op: Fold) -> None:
        parts = [next(a for v in op.sources for a in v.type.axes if a.dim is d) for d in op.dims]
        right = op.order == "fold_right"
        args = [self.each(p, backward=right) for p in parts]

        def body(state: list[Value]) -> list[Value]:
            new = [self.conform(self.element(v, args), t) for v, t in zip(op.sources, op.merge.types)]
            return self.inline(op.merge, new, state) if right else self.inline(op.merge, state, new)

        self.carry(op, args, self.identity(op.merge), body).results = op.results

    def scan(self, op: Scan) -> None:
        arg = self.each(op.part, backward=op.reverse)
        merge = op.merge
        tiles = [self.b.full(None, r.type.dtype, r.type.axes) for r in op.results]
        start = self.identity(merge) if isinstance(merge, Merge) else [self.start(op, merge)]
        count = len(start)

        def body(carried: list[Value]) -> list[Value]:
            state, kept = carried[:count], carried[count:]
            new = [self.conform(self.element(v, [arg]), s.type) for v, s in zip(op.sources, state)]
            if isinstance(merge, Merge):
                after = self.inline(merge, state, new)
            else:
                after = [self.b.elementwise(MONOIDS[merge].merge, state[0], new[0])]
            shown = state if op.exclusive else after
            return [*after, *(self.put(t, arg, s) for t, s in zip(kept, shown))]

        region = self.carry(op, [arg], [*start, *tiles], body)
        region.results[count:] = op.results
        # What it carries may be regrouped where the scan may be: a step that makes it one again needs to know.
        region.order = "ordered" if op.order in ("unordered", "ordered") else "unordered"

    def start(self, op: Scan, monoid: str) -> Value:
        """The identity of a built-in monoid; of a float sum 0.0, which an exclusive scan shows."""
        type = op.results[0].type
        number = 0.0 if monoid == "add" and type.dtype.is_float else MONOIDS[monoid].identity(type.dtype)
        if monoid == "add" and type.dtype.is_float and not op.exclusive:
            number = -0.0
        return self.b.full(number, type.dtype, [a for a in type.axes if a.dim is not op.dim])

    def put(self, tile: Value, arg: RegionArg, value: Value) -> Value:
        """The tile with the elements at one coordinate replaced."""
        return self.b.insert(
            tile, [Sub(index=arg.index) if a.dim is arg.domain.dim else Sub(part=a) for a in tile.type.axes], value
        )

    def sort(self, op: Sort) -> None:
        key = (op.source.name, op.dim, str(op.part), op.descending)
        whole = next((known[key] for known in reversed(self.sorted) if key in known), None)
        if whole is None and op.to is not None and self.least(op.to.extent) <= FEW:
            select(self, op, op.to).results = op.results
            return
        if whole is None:
            whole = self.sorted[-1][key] = sort(self, op)
        elements, places = whole
        to = op.part if op.to is None else op.to
        place = self.b.elementwise("add", self.b.coords(to), self.b.index(op.part.lo - to.lo))
        for source, by, result in ((elements, place, op.results[0]), (places, place, op.results[1])):
            if source is None:
                # Elements that were not moved themselves are brought from where the coordinates say.
                source, by = op.source, self.at(places, op.dim, place)
            subs = [Sub(tile=by) if a.dim is op.dim else Sub(part=a) for a in source.type.axes]
            fill = self.b.full(False if source.type.dtype == bool_ else 0, source.type.dtype)
            self.b.block.ops.append(Extract(source=source, subs=tuple(subs), fill=fill, results=[result]))

    def at(self, tile: Value, along: Dim, place: Value) -> Value:
        """The elements of a tile at places along an axis, 0 outside it."""
        subs = [Sub(tile=place) if a.dim is along else Sub(part=a) for a in tile.type.axes]
        return self.b.extract(tile, subs, self.b.full(0, tile.type.dtype))

    def least(self, extent: Expr) -> float:
        """The number that an extent is, if it is told; else infinity."""
        number = extent.substitute(self.program.lets).constant
        return math.inf if number is None else number

    def argreduce(self, op: ArgReduce) -> None:
        x = op.source
        folded = [a for d in op.dims for a in x.type.axes if a.dim is d]
        key = (x.name, op.dims, op.monoid, op.nan)
        best = next((known[key] for known in reversed(self.folded) if key in known), None)
        if best is None:
            best = self.folded[-1][key] = self.b.reduce(x, op.dims, op.monoid, nan=op.nan)
        hit = self.b.elementwise("eq", x, best)
        if x.type.dtype.is_float and op.nan == "propagate":
            both = self.b.elementwise("and", self.b.elementwise("isnan", x), self.b.elementwise("isnan", best))
            hit = self.b.elementwise("or", hit, both)
        none = self.b.full(i64.finite_max, i64)
        position = self.conform(self.position(folded), TileType(i64, x.type.axes))
        places = self.b.elementwise("where", hit, position, none)
        least = self.b.reduce(places, op.dims, "min")
        found = self.b.elementwise("eq", least, none)
        first = self.b.index(folded[0].lo if len(folded) == 1 else const(0))
        self.b.block.ops.append(
            Elementwise(fn="where", args=(found, first, least), results=op.results, span=self.b.span)
        )

    def position(self, axes: Sequence[Part]) -> Value:
        """The coordinate along one axis; the row-major position among several."""
        if len(axes) == 1:
            return self.b.coords(axes[0])
        total: Value | None = None
        for axis in axes:
            own = self.b.elementwise("sub", self.b.coords(axis), self.b.index(axis.lo))
            if total is not None:
                total = self.b.elementwise("mul", total, self.b.index(axis.extent))
                own = self.b.elementwise("add", total, own)
            total = own
        assert total is not None
        return total

    # ---- fills that are computed

    def filled(self, op: Load | Extract) -> None:
        assert op.fill is not None
        type = op.result.type
        axes = [d.whole() for d in op.tensor.dims] if isinstance(op, Load) else op.source.type.axes
        inside: Value | None = None
        for axis, sub in zip(axes, op.subs):
            for test in self.tests(axis, sub):
                inside = test if inside is None else self.b.elementwise("and", inside, test)
        zero = self.b.full(False if type.dtype.is_bool else 0, type.dtype)
        if isinstance(op, Load):
            found = self.b.load(op.tensor, op.subs, zero)
        else:
            found = self.b.extract(op.source, op.subs, zero)
        if inside is None:
            inside = self.b.full(True, bool_)
        args = (self.conform(inside, TileType(bool_, type.axes)), found, op.fill)
        self.b.block.ops.append(Elementwise(fn="where", args=args, results=op.results, span=op.span))

    def tests(self, axis: Part, sub: AxisSub) -> list[Value]:
        """Whether the index along an axis is a coordinate of it; nothing where a part is the axis itself."""
        if isinstance(sub, Sub) and sub.part == axis:
            return []
        index = self.index(axis, sub)
        return [
            self.b.elementwise("ge", index, self.b.index(axis.lo)),
            self.b.elementwise("lt", index, self.b.index(axis.hi)),
        ]

    def index(self, axis: Part, sub: AxisSub) -> Value:
        """The i64 index that a subscript gives; of a product axis, the row-major position."""
        if isinstance(sub, tuple):
            total = self.index(axis, sub[0])
            for one, factor in zip(sub[1:], axis.dim.factors[1:]):
                total = self.b.elementwise("mul", total, self.b.index(factor.extent))
                total = self.b.elementwise("add", total, self.index(axis, one))
            return total
        if sub.part is not None:
            return self.b.coords(sub.part)
        if sub.tile is not None:
            return sub.tile if sub.tile.type.dtype == i64 else self.b.cast(sub.tile, i64)
        assert sub.index is not None
        return self.b.index(sub.index)

    # ---- checks

    def flag_tensor(self, count: int) -> Tensor:
        """The hidden tensor: one element a check, in the order of the program."""
        index = dim(self.names.fresh("check"), const(count))
        made = Tensor(self.names.fresh("checks"), (index,), i32, out=True, hidden=True)
        self.program.dims.append(index)
        self.program.tensors.append(made)
        return made

    def check(self, op: Check) -> None:
        assert self.flags is not None
        ok = op.cond
        if ok.type.axes:
            ok = self.b.reduce(ok, ok.type.dims, "and")
        failed = self.b.elementwise("not", ok)
        at = Sub(index=const(len(self.checks)))
        self.b.store(self.flags, [at], self.b.full(1, i32), where=failed, effect="max")
        self.checks.append(op)


_RULES: dict[type[Op], Callable[[Expander, Any], None]] = {
    Fold: Expander.fold,
    Scan: Expander.scan,
    Sort: Expander.sort,
    ArgReduce: Expander.argreduce,
    Check: Expander.check,
}
