"""Programs for several devices written out: one tensor for each device, regions over devices as sequences.

A tensor `X: f32[R, M] devices` is one array for each coordinate of its first axis, whose extent is a number. Here each
becomes a tensor of its own, so that whoever plans, judges and emits a program meets ordinary tensors only:

| form | becomes |
|---|---|
| a region whose coordinate picks devices | its instances one after another, the coordinate a number |
| an access at a number | an access to that device's tensor |
| a load elsewhere | loads of all devices, and a selection |
| a store elsewhere | a store to each device, where the index is that device's |

Instances of a `parallel` region may run in any order, and those of other regions run in order: a sequence is what both
allow. Exact chains (`fold_left`, `fold_right`) stay regions, for what stands outside one may be contracted.
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.algebra.dims import Dim, Part
from treadle.algebra.expr import const
from treadle.base.names import Names
from treadle.dtype.formats import bool_, i64
from treadle.ir.builder import Builder
from treadle.ir.clone import Cloner, clone_program
from treadle.ir.core import AxisSub, Block, If, Op, Program, Region, RegionArg, Sub, Tensor, Value
from treadle.ir.infer import flat_subs
from treadle.ir.ops.access import Load, Store
from treadle.ir.rewrite import operand_names

COPIES = 64
"""The most instances of a region that are written out; a longer one selects among the devices each time."""


def part_names(name: str, count: int, taken: Sequence[str]) -> list[str]:
    """The names of one tensor for each device: `X_0`, `X_1`; `X__0` where the program has such a name already.

    `taken`: the names of all tensor and scalar parameters.
    """
    bar = "_"
    while any(f"{name}{bar}{k}" in taken for k in range(count)):
        bar += "_"
    return [f"{name}{bar}{k}" for k in range(count)]


def device_count(tensor: Tensor) -> int:
    """How many arrays a tensor of several devices is. *Requires*: its extent is specialised."""
    number = tensor.dims[0].extent.constant
    assert tensor.devices and number is not None, f"{tensor} without a number of devices"
    return number


def split_devices(program: Program) -> Program:
    """The program with one tensor for each device; `program` itself where it is for one device.

    *Ensures*: `evaluate` of both stores the same, a tensor `X` being the stack of its parts; `part` of a new tensor
    says which tensor and device it was.
    """
    if not any(t.devices for t in program.tensors):
        return program
    copy = clone_program(program)
    return _Splitter(copy).run()


class _Splitter(Cloner):
    """Copies a program's body, with regions over devices written out."""

    def __init__(self, program: Program) -> None:
        super().__init__(self._named, Names(d.name for d in program.dims))
        self.program = program
        taken = [t.name for t in program.tensors] + [s.name for s in program.scalars]
        self.parts: dict[Tensor, list[Tensor]] = {}
        for tensor in program.tensors:
            if tensor.devices:
                names = part_names(tensor.name, device_count(tensor), taken)
                self.parts[tensor] = [self._tensor(tensor, name, k) for k, name in enumerate(names)]
        values = [v for op in program.body.walk() for v in (*op.results, *op.parameters)]
        numbers = [int(v.name[1:]) for v in values if v.name[1:].isdigit()]
        self.b = Builder(first=max(numbers, default=-1) + 1)
        self.seen: set[str] = set()
        self.regions = Names()
        self.used = {n for op in program.body.walk() for n in operand_names(op)}
        self.used |= {v.name for op in program.body.walk() for inner in op.blocks for v in inner.yields}
        self.starts: list[int] = []

    def run(self) -> Program:
        """The program rewritten."""
        program = self.program
        for parameter in program.scalars:
            self.values[parameter.value.name] = parameter.value
        program.body = self.block(program.body)
        program.tensors = [p for t in program.tensors for p in self.parts.get(t, [t])]
        return program

    def _tensor(self, tensor: Tensor, name: str, number: int) -> Tensor:
        part = (tensor.name, number)
        return Tensor(name, tensor.dims[1:], tensor.dtype, tensor.out, tensor.optional, span=tensor.span, part=part)

    def _named(self, value: Value) -> Value:
        """A value of the same name where it is the first, else a numbered one."""
        if value.name not in self.seen:
            self.seen.add(value.name)
            return Value(value.name, value.type, value.hint)
        return self.b.value(value.type, value.hint)

    # ---- walking

    def block(self, block: Block) -> Block:
        made = Block()
        starts: list[int] = []
        with self.b.inside(made):
            for op in block.ops:
                starts.append(len(made.ops))
                self.emit(op)
        self.starts = [*starts, len(made.ops)]
        made.yields = [self.value(v) for v in block.yields]
        return made

    def emit(self, op: Op) -> None:
        """Appends what stands for an operation."""
        self.b.span = op.span
        if isinstance(op, Region) and any(self.written_out(op, a) for a in op.args):
            state = self.nest(op, op.args, [self.value(v) for v in op.inits])
            self.values |= {old.name: new for old, new in zip(op.results, state)}
        elif isinstance(op, Load) and op.tensor in self.parts:
            self.load(op)
        elif isinstance(op, Store) and op.tensor in self.parts:
            self.store(op)
        else:
            self.b.block.ops.append(self.op(op))

    def region(self, made: Region, op: Region) -> None:
        super().region(made, op)
        made.name = self.regions.fresh(op.name)
        made.stages = [(name, self.starts[at]) for name, at in op.stages]

    # ---- regions over devices

    def written_out(self, op: Region, arg: RegionArg) -> bool:
        """Whether an argument's instances become a sequence: they are few numbers, and pick devices."""
        if op.merges or op.order in ("fold_left", "fold_right"):
            return False
        instances = self.instances(arg)
        if instances is None or len(instances) > COPIES:
            return False
        symbols = {arg.name, f"{arg.name}.start", f"{arg.name}.stop"}
        return any(symbols & self.picked(inner) for inner in op.body.walk())

    def picked(self, op: Op) -> frozenset[str]:
        """Symbols of the subscript that picks the device, if the operation has one."""
        if not isinstance(op, Load | Store) or op.tensor not in self.parts:
            return frozenset()
        (sub,) = flat_subs(op.subs[:1])
        exprs = [sub.index] if sub.index is not None else [sub.part.lo, sub.part.hi] if sub.part is not None else []
        return frozenset(s for e in exprs for s in e.symbols)

    def instances(self, arg: RegionArg) -> list[tuple[int, int]] | None:
        """The ranges of an argument, one device at a time where the size is open; `None` where they are no numbers."""
        domain = self.part(arg.domain)
        size = const(1) if arg.size is None else self.expr(arg.size)
        lo, hi, step = domain.lo.constant, domain.hi.constant, size.constant
        if lo is None or hi is None or step is None:
            return None
        found = [(at, min(at + step, hi)) for at in range(lo, hi, step)]
        return found[::-1] if arg.reversed else found

    def nest(self, op: Region, args: Sequence[RegionArg], state: list[Value]) -> list[Value]:
        """Appends the region for the rest of its arguments; gives what it carries out."""
        at = next((i for i, a in enumerate(args) if self.written_out(op, a)), len(args))
        if at:
            return self.kept(op, args[:at], args[at:], state)
        if not args:
            self.values |= {old.name: new for old, new in zip(op.carried, state)}
            for inner in op.body.ops:
                self.emit(inner)
            return [self.value(v) for v in op.body.yields]
        arg = args[0]
        for start, stop in self.instances(arg) or []:
            self.symbols[arg.name] = const(start)
            self.symbols |= {f"{arg.name}.start": const(start), f"{arg.name}.stop": const(stop)}
            state = self.nest(op, args[1:], state)
        return state

    def kept(self, op: Region, args: Sequence[RegionArg], rest: Sequence[RegionArg], state: list[Value]) -> list[Value]:
        """A region of the arguments that stay; the rest is inside."""
        made = [self.arg(a) for a in args]
        name = self.regions.fresh(op.name)
        with self.b.region(op.kind, made, state, order=op.order, name=name, versions=op.versions) as region:
            region.span = op.span
            region.body.yields = self.nest(op, rest, list(region.carried))
        return list(region.results)

    # ---- accesses

    def load(self, op: Load) -> None:
        sub, rest = self.picks(op)
        parts, fill = self.parts[op.tensor], None if op.fill is None else self.value(op.fill)
        number = None if sub.index is None else sub.index.constant
        if number is not None and (0 <= number < len(parts) or fill is None):
            found = self.b.load(parts[min(max(number, 0), len(parts) - 1)], rest, fill)
        else:
            last = len(parts) - 1
            found = self.b.load(parts[last], rest) if fill is None else fill
            place = self.place(sub)
            for k in range(last if fill is None else last + 1):
                hit = self.b.elementwise("eq", place, self.b.full(k, i64))
                found = self.b.elementwise("where", hit, self.b.load(parts[k], rest, fill), found)
        type = self.type(op.result.type)
        if found.type.axes != type.axes:
            found = self.b.elementwise("where", self.b.full(True, bool_, type.axes), found, found)
        found.hint = op.result.hint
        self.values[op.result.name] = found

    def store(self, op: Store) -> None:
        sub, rest = self.picks(op)
        value, where = self.value(op.value), None if op.where is None else self.value(op.where)
        results = [r for r in op.results if r.name in self.used]
        if sub.part is not None:
            self.store_part(op, sub.part, rest, value, where, results)
            return
        assert sub.index is not None, "a store to devices that a tile picks"  # capture and verifier refuse it
        number = sub.index.constant
        if number is not None:
            if 0 <= number < len(self.parts[op.tensor]):
                self.give(results, self.put(op, number, rest, value, where))
            return
        place = self.place(sub)
        if not results:
            for k in range(len(self.parts[op.tensor])):
                then = Block()
                hit = self.b.elementwise("eq", place, self.b.full(k, i64))
                with self.b.inside(then):
                    self.put(op, k, rest, value, where)
                self.b.block.ops.append(If(cond=hit, then=then, span=self.b.span))
            return
        self.give(results, self.chosen(op, place, 0, rest, value, where))

    def put(self, op: Store, k: int, rest: Sequence[AxisSub], value: Value, where: Value | None) -> Value | None:
        """The store to device `k`; the old values of an atomic one."""
        tensor = self.parts[op.tensor][k]
        return self.b.store(tensor, rest, value, where=where, effect=op.effect, order=op.order)

    def give(self, results: Sequence[Value], old: Value | None) -> None:
        if results and old is not None:
            old.hint = results[0].hint
            self.values[results[0].name] = old

    def chosen(
        self, op: Store, place: Value, k: int, rest: Sequence[AxisSub], value: Value, where: Value | None
    ) -> Value:
        """The old values of an atomic store to the device that `place` says, one of those from `k`."""
        if k + 1 == len(self.parts[op.tensor]):
            old = self.put(op, k, rest, value, where)
            assert old is not None
            return old
        hit = self.b.elementwise("eq", place, self.b.full(k, i64))
        then, orelse = Block(), Block()
        with self.b.inside(then):
            old = self.put(op, k, rest, value, where)
            assert old is not None
            then.yields = [old]
        with self.b.inside(orelse):
            orelse.yields = [self.chosen(op, place, k + 1, rest, value, where)]
        return self.b.conditional(hit, then, orelse)[0]

    def store_part(
        self,
        op: Store,
        part: Part,
        rest: Sequence[AxisSub],
        value: Value,
        where: Value | None,
        results: Sequence[Value],
    ) -> None:
        """A store to a part of the devices: to each the slice that is its own."""
        joined: Value | None = None
        if results:
            type = self.type(results[0].type)
            joined = self.b.full(0 if not type.dtype.is_float else 0.0, type.dtype, type.axes)
        lo, hi = part.lo.constant, part.hi.constant
        for k in range(len(self.parts[op.tensor])):
            if lo is not None and hi is not None and not lo <= k < hi:
                continue
            inside = lo is not None and hi is not None
            sliced = [self.slice_sub(s, part.dim, k, inside) for s in rest]
            mine = self.slice(value, part.dim, k, inside)
            mask = None if where is None else self.slice(where, part.dim, k, inside)
            if not inside:
                at = self.b.index(const(k))
                within = self.b.elementwise(
                    "and",
                    self.b.elementwise("ge", at, self.b.index(part.lo)),
                    self.b.elementwise("lt", at, self.b.index(part.hi)),
                )
                mask = within if mask is None else self.b.elementwise("and", mask, within)
            old = self.put(op, k, sliced, mine, mask)
            if joined is not None and old is not None:
                subs = [Sub(index=const(k)) if a.dim is part.dim else Sub(part=a) for a in joined.type.axes]
                joined = self.b.insert(joined, subs, old)
        self.give(results, joined)

    def slice(self, value: Value, dim: Dim, k: int, inside: bool) -> Value:
        """The elements of a value at coordinate `k`; all where it has no such axis."""
        if value.type.axis(dim) is None:
            return value
        subs = [Sub(index=const(k)) if a.dim is dim else Sub(part=a) for a in value.type.axes]
        dtype = value.type.dtype
        fill = None if inside else self.b.full(False if dtype.is_bool else 0.0 if dtype.is_float else 0, dtype)
        return self.b.extract(value, subs, fill)

    def slice_sub(self, axis: AxisSub, dim: Dim, k: int, inside: bool) -> AxisSub:
        """A further subscript at coordinate `k`."""
        if isinstance(axis, tuple):
            return tuple(s for one in axis for s in flat_subs([self.slice_sub(one, dim, k, inside)]))
        if axis.tile is None or axis.tile.type.axis(dim) is None:
            return axis
        tile = self.slice(axis.tile, dim, k, inside)
        return (
            Sub(tile=tile, promised=axis.promised) if tile.type.axes else Sub(index=tile.at(), promised=axis.promised)
        )

    # ---- subscripts

    def picks(self, op: Load | Store) -> tuple[Sub, tuple[AxisSub, ...]]:
        """The subscript that picks the device, and the rest."""
        first, *rest = [self.item(s) for s in op.subs]
        (sub,) = flat_subs([first])
        return sub, tuple(rest)

    def place(self, sub: Sub) -> Value:
        """The device's number as a value."""
        if sub.part is not None:
            return self.b.coords(sub.part)
        if sub.tile is not None:
            return sub.tile if sub.tile.type.dtype == i64 else self.b.cast(sub.tile, i64)
        assert sub.index is not None
        return self.b.index(sub.index)
