"""Contractions fed by engines: a producer copies blocks into rings, consumers contract them on the tensor cores.

One family for a contraction with an epilogue, for several contractions of the same rows, and for contractions chained
through registers: what differs is in the program, not here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, inf, prod

from treadle.algebra.dims import Part
from treadle.algebra.expr import Constraint, Expr
from treadle.hardware.atoms import Atom, find_atom, warpgroup_atom
from treadle.ir.core import Block, Program, Sub, Tensor
from treadle.ir.guard import Aligned, Bound, Divisible, Fact, Guard, Pitch, Unit
from treadle.ir.ops.access import Load, Store
from treadle.ir.ops.elementwise import Cast, Elementwise
from treadle.ir.ops.fold import Reduce
from treadle.machine.form import MachineProgram
from treadle.plan.cost import CostVector
from treadle.plan.facts import CallFacts
from treadle.plan.family import Axis, Point
from treadle.plan.pins import Pin
from treadle.realise.choices import Choices
from treadle.realise.feeding import Feeding
from treadle.realise.ring import Contraction, Stream, Tile, closing, depth_of_atom, find_stream, row_of
from treadle.realise.roles import fed
from treadle.realise.staged import StagedLowering
from treadle.realise.universal import base_facts
from treadle.targets.cuda.ledger import functions_by_hardware
from treadle.targets.cuda.pins import pins_refused
from treadle.targets.cuda.rates import rates, target
from treadle.targets.cuda.shape import Shape, common_reasons, shape_of

RASTERS: dict[str, tuple[str | int, ...]] = {
    "panels": ("group", 16),
    "row": ("row",),
    "heavy first": ("row", "reverse", "snake"),
}
"""Orders of tasks: panels of 16 blocks of rows; as written; the last first, every second round dealt in reverse."""

SLACK = 1024
"""Bytes lost to rounding the base of shared memory up."""

TURNS = 168
"""Registers for accumulators and operands of a thread that takes turns: its computation is scheduled in one piece,
which needs more for itself."""


class Streams:
    """Axes: consumers of 64 rows, blocks along columns and depth, ring versions, batches in flight, how results leave,
    the order of tasks."""

    name = "streams"

    def stream(self, shape: Shape) -> Stream | str:
        """The form that this family realises, or why the program does not have it."""
        for known, found in _found:
            if known is shape:
                return found
        found = find_stream(shape.program, shape.uses, units=shape.facts.unit)
        _found.append((shape, found))
        del _found[:-8]
        return found

    def admits(self, program: Program, facts: CallFacts) -> Sequence[str]:
        shape = shape_of(program, facts)
        reasons = common_reasons(shape)
        if reasons:
            return reasons
        if find_atom(facts.target, "wgmma.m64n64k16.bf16") is None:
            return [f"{facts.target} has no asynchronous contraction of warpgroups"]
        stream = self.stream(shape)
        if isinstance(stream, str):
            return [stream]
        reasons = [str(f) for f in self.tile_facts(stream) if not holds(f, shape)]
        if reasons:
            return [f"an engine needs {f}" for f in reasons]
        for axis, size in self.fixed(stream).items():
            if size % 64:
                reasons.append(f"an extent of {size} along {axis} is no multiple of 64")
        tried = [closing(stream, 128, s) for s in self.steps(stream)]
        if not any(not isinstance(t, str) and all(holds(f, shape) for f in t) for t in tried):
            why = (
                tried[-1] if isinstance(tried[-1], str) else ", ".join(str(f) for f in tried[-1] if not holds(f, shape))
            )
            reasons.append(f"zeros beyond the end of blocks need {why}")
        return reasons

    def fixed(self, stream: Stream) -> dict[str, int]:
        """Whole dimensions among the axes of tiles."""
        found: dict[str, int] = {}
        open_parts = [stream.step, *(a.part for a in stream.region.args if a.kind == "block")]
        for tile in stream.tiles:
            for part in (tile.outer, tile.inner):
                if part not in open_parts:
                    found[str(part)] = part.extent.constant or 1
        return found

    def steps(self, stream: Stream) -> tuple[int, ...]:
        """Block sizes of the ordered region: a swizzled row where it is only the depth, wide where it is columns
        too."""
        rows = {row_of(t.value.type.dtype) for t in stream.tiles}
        return (128, 176, 160, 64) if any(c.cols == stream.step for c in stream.contractions) else (max(rows),)

    def tile_facts(self, stream: Stream) -> list[Fact]:
        """What an engine needs of the tensors that it copies from."""
        found: list[Fact] = []
        for tile in stream.tiles:
            found += engine_facts(tile.source.tensor, tile.axes[1])
            found += [Bound(Constraint(d.extent - 1)) for d in tile.source.tensor.dims if d.extent.constant is None]
        return list(dict.fromkeys(found))

    def axes(self, program: Program, facts: CallFacts) -> Sequence[Axis]:
        stream = self.stream(shape_of(program, facts))
        assert isinstance(stream, Stream)
        wide = (256, 128, 64) if stream.columns is not None else (0,)
        varying = self.varying(stream)
        return [
            Axis("consumers", (2, 3, 1) if chained(stream) else (2, 1)),
            Axis("columns", wide),
            Axis("step", self.steps(stream)),
            Axis("versions", (4, 3, 2)),
            Axis("flight", (0,) if chained(stream) else (0, 1)),
            Axis("turns", (False, True) if chained(stream) else (False,)),
            Axis("staged", (True, False)),
            Axis("raster", ("heavy first", "row") if varying else ("panels", "row")),
        ]

    def varying(self, stream: Stream) -> bool:
        """Whether tasks have different numbers of iterations."""
        if stream.loop is None:
            return False
        domain = stream.loop.args[0].domain
        names = {f"{a.name}.{b}" for a in stream.region.args for b in ("start", "stop")}
        return bool((domain.lo.symbols | domain.hi.symbols) & (names | {a.name for a in stream.region.args}))

    def refuses(self, program: Program, facts: CallFacts, point: Point, pins: Sequence[Pin]) -> Sequence[str]:
        shape = shape_of(program, facts)
        stream = self.stream(shape)
        assert isinstance(stream, Stream)
        versions = {t.tensor: int(point["versions"]) if t.streamed else 1 for t in stream.tiles}
        return pins_refused(shape, self.cuts(shape, stream, point), "wgmma", versions, pins)

    def cuts(self, shape: Shape, stream: Stream, point: Point) -> dict[str, int]:
        """Block sizes of all open arguments."""
        region = shape.names[id(stream.region)]
        found = {f"{region}.{stream.rows.name}": 64 * int(point["consumers"])}
        if stream.columns is not None:
            found[f"{region}.{stream.columns.name}"] = int(point["columns"])
        if stream.loop is not None:
            found[f"{shape.names[id(stream.loop)]}.{stream.loop.args[0].name}"] = int(point["step"])
        return found

    def guard(self, program: Program, facts: CallFacts, point: Point) -> Guard:
        shape = shape_of(program, facts)
        stream = self.stream(shape)
        assert isinstance(stream, Stream)
        found = base_facts(program, shape.uses, disjoint=True) + self.tile_facts(stream)
        ends = closing(stream, 64 * int(point["consumers"]), int(point["step"]))
        assert not isinstance(ends, str)
        found += ends
        if int(point["flight"]):
            found.append(Bound(Constraint(depth_of(stream) - 1)))
        if point["staged"]:
            for op in stored(stream, 16):
                found += store_facts(op)
                found += [Bound(Constraint(d.extent - 1)) for d in op.tensor.dims if d.extent.constant is None]
        for op in stored(stream, 0):
            found.append(Unit(op.tensor.name, len(op.tensor.dims) - 1))
        found += self.wide_access(shape, stream)
        return Guard(tuple(strongest(f for f in found if holds(f, shape) or not isinstance(f, Unit))))

    def wide_access(self, shape: Shape, stream: Stream) -> list[Fact]:
        """Facts under which pairs of columns are read and written at once in the epilogue."""
        found: list[Fact] = []
        tensors: dict[str, Tensor] = {}
        for op in stream.region.body.ops:
            if isinstance(op, Load | Store) and not any(t.load is op for t in stream.tiles):
                tensors[op.tensor.name] = op.tensor
        for tensor in tensors.values():
            if not tensor.dims:
                continue
            size = max(1, tensor.dtype.bits // 8)
            extent = tensor.dims[-1].extent
            facts: list[Fact] = [Unit(tensor.name, len(tensor.dims) - 1), Aligned(tensor.name, 2 * size)]
            facts += [Pitch(tensor.name, a, 2) for a in range(len(tensor.dims) - 1)]
            if extent.constant is None:
                facts.append(Divisible(extent, 2))
            if all(holds(f, shape) for f in facts) and shape.facts.value(extent) % 2 == 0:
                found += facts
        return found

    # ---- cost

    def cost(self, program: Program, facts: CallFacts, point: Point) -> CostVector:
        shape = shape_of(program, facts)
        stream = self.stream(shape)
        assert isinstance(stream, Stream)
        rate = rates(facts)
        if self.exceeds(shape, stream, point):
            return CostVector(compute=inf)
        rows, step, columns = 64 * int(point["consumers"]), int(point["step"]), int(point["columns"])
        sizes = {stream.rows.part: rows, stream.step: step}
        if stream.columns is not None:
            sizes[stream.columns.part] = columns
        tasks = 1
        for arg in stream.region.args:
            extent = max(1, facts.value(arg.domain.dim.extent))
            tasks *= ceil(extent / sizes[arg.part]) if arg.kind == "block" else extent
        depth = facts.value(stream.step.dim.extent)
        iterations = max(1, ceil(depth / step)) * (0.5 if self.varying(stream) else 1.0)
        cycles = 0.0
        for one in stream.contractions:
            width, deep = (sizes.get(p, p.extent.constant or 64) for p in (one.cols, one.deep))
            full = 1.25 if point["consumers"] == 1 else 1.0
            cycles += full * rows * width * deep / rate.products * one.right.type.dtype.bits / 16
        if stream.loop is not None:
            # Consumers that contract at the same time compute at the same time too: without turns little hides.
            simple = self.simple(shape, stream.loop.body, sizes) / rate.lanes
            shown = 0.8 if point["turns"] else {1: 1.0, 2: 1.0, 3: 0.78}[int(point["consumers"])]
            cycles = max(cycles, simple) + shown * min(cycles, simple) + (150.0 if chained(stream) else 0.0)
        # Turns leave a ring of two full most of the time; more of them only take longer to come round (measured: 2 %).
        versions = int(point["versions"])
        hidden = 1.02 - 0.01 * versions if point["turns"] else min(1.0, 0.55 + 0.15 * versions)
        after = self.simple(shape, stream.region.body, sizes) / rate.lanes
        outputs = rows * (columns or 128)
        after += outputs / (64.0 if point["staged"] else 24.0)
        rounds = ceil(tasks / rate.processors)
        total = rounds * (iterations * (cycles / hidden + 60) + after + 600)
        if point["raster"] == "row" and tasks > 2 * rate.processors:
            total *= 1.03
        if int(point["flight"]):
            total *= 1.002
        again = tasks * iterations * sum(self.tile_bytes(t, sizes) for t in stream.tiles if t.streamed)
        return CostVector(
            compute=total / rate.clock,
            memory=max(shape.bytes() / rate.memory, again / rate.cache / 1.6),
            launch=rate.launch,
        )

    def simple(self, shape: Shape, block: Block, sizes: Mapping[Part, int]) -> float:
        """Simple instructions of a task or iteration, each element weighted."""
        total = 0.0
        for op in block.ops:
            if isinstance(op, Elementwise | Cast | Reduce):
                value = op.source if isinstance(op, Reduce) else op.result
                count = prod(sizes.get(p, shape.extent(p)) for p in value.type.axes)
                total += count * shape.weight(op)
        return total

    def tile_bytes(self, tile: Tile, sizes: Mapping[Part, int]) -> int:
        """Bytes of a slot."""
        parts = (tile.outer, tile.inner)
        return tile.value.type.dtype.bits * prod(sizes.get(p, p.extent.constant or 64) for p in parts) // 8

    def exceeds(self, shape: Shape, stream: Stream, point: Point) -> bool:
        """Whether a point needs more than the target has, or asks for what the form cannot do."""
        consumers, step, columns = (int(point[n]) for n in ("consumers", "step", "columns"))
        sizes = {stream.rows.part: 64 * consumers, stream.step: step}
        if stream.columns is not None:
            sizes[stream.columns.part] = columns
        ends = closing(stream, 64 * consumers, step)
        if isinstance(ends, str) or not all(holds(f, shape) for f in ends):
            return True
        if point["turns"] and (consumers != 2 or len(stream.batches) != 2):
            return True
        if int(point["flight"]) and (not holds(Bound(Constraint(depth_of(stream) - 1)), shape) or not in_place(stream)):
            return True
        if point["staged"] and not all(holds(f, shape) for op in stored(stream, 16) for f in store_facts(op)):
            return True
        if point["staged"] and not stored(stream, 16):
            return True
        shared = SLACK + (16384 * consumers if point["staged"] else 0) + 512
        for tile in stream.tiles:
            shared += self.tile_bytes(tile, sizes) * (int(point["versions"]) if tile.streamed else 1)
            outer, inner = (sizes.get(p, p.extent.constant or 64) for p in (tile.outer, tile.inner))
            if outer > 256 or inner % row_of(tile.value.type.dtype):
                return True
        if shared > target(shape.facts).shared_bytes:
            return True
        held = 0
        for one in stream.contractions:
            width = sizes.get(one.cols, one.cols.extent.constant or 64)
            if width % 8 or width > 256 or atom_of(one, width) is None:
                return True
            held += width // 2
            if one.left_tile is None:
                held += sizes.get(one.deep, 128) // 4
        return held > (TURNS if point["turns"] else {1: 200, 2: 200, 3: 128}[consumers])

    # ---- construction

    def build(self, program: Program, facts: CallFacts, point: Point, guard: Guard) -> MachineProgram:
        shape = shape_of(program, facts)
        stream = self.stream(shape)
        assert isinstance(stream, Stream)
        consumers = int(point["consumers"])
        budget = {1: None, 2: (24, 240) if chained(stream) else (40, 232), 3: (24, 160)}
        feeding = Feeding(
            consumers=consumers,
            columns=int(point["columns"]),
            step=int(point["step"]),
            versions=int(point["versions"]),
            flight=int(point["flight"]),
            registers=budget[consumers],
            staged=bool(point["staged"]),
            raster=raster(str(point["raster"]), len(stream.region.args)),
            workgroups=rates(facts).processors,
            turns=bool(point["turns"]),
        )
        choices = Choices(
            cuts=self.cuts(shape, stream, point), numerics=ledger(stream) + functions_by_hardware(program, facts.target)
        )
        return fed(program, choices, guard, facts.target, stream, feeding, StagedLowering)


_found: list[tuple[Shape, Stream | str]] = []


def raster(name: str, variables: int) -> tuple[str | int, ...]:
    """The words of an order; panels are of two task variables."""
    return RASTERS["row"] if name == "panels" and variables != 2 else RASTERS[name]


def chained(stream: Stream) -> bool:
    """Whether a contraction's operand is computed in registers."""
    return any(c.left_tile is None for c in stream.contractions)


def ledger(stream: Stream) -> tuple[str, ...]:
    """Permissions that the contraction spends."""
    floats = [c for c in stream.contractions if c.op.result.type.dtype.is_float]
    if not floats:
        return ()
    dims = ", ".join(dict.fromkeys(str(c.deep.dim) for c in floats))
    each = depth_of_atom(floats[0].right.type.dtype)
    lines = [f"regroup: {dims} in blocks of {each} inside an atom, atoms in order"]
    atoms = (atom_of(c, 64) for c in floats)
    spent = dict.fromkeys(a.spends for a in atoms if a is not None and a.spends)
    return (*lines, *(f"{name}: {MEANING[name]}" for name in spent))


MEANING = {
    "tf32": "operands of f32 without their 13 lowest bits",
    "fp8_accumulate": "products of fp8 summed as the tensor cores do",
}
"""What a permission of the ledger is spent on."""


def atom_of(one: Contraction, columns: int) -> Atom | None:
    """The contract of a contraction's instruction."""
    return warpgroup_atom(one.left.type.dtype.name, one.right.type.dtype.name, columns)


def depth_of(stream: Stream) -> Expr:
    """The number of coordinates of the ordered region."""
    part = stream.step if stream.loop is None else stream.loop.args[0].domain
    return part.hi - part.lo


def in_place(stream: Stream) -> bool:
    """Whether every contraction adds to a carried value (or the whole of a dimension is contracted here)."""
    if stream.loop is None:
        return True
    names = {v.name for v in stream.loop.carried}
    return len(stream.batches) == 1 and all(c.op.acc.name in names for c in stream.contractions)


def stored(stream: Stream, bits: int) -> list[Store]:
    """Stores of the region; of elements of `bits` bits only, unless 0."""
    return [
        op
        for op in stream.region.body.ops
        if isinstance(op, Store)
        and (not bits or op.tensor.dtype.bits == bits)
        and isinstance(op.subs[-1], Sub)
        and op.subs[-1].part is not None
    ]


def strongest(facts: Iterable[Fact]) -> list[Fact]:
    """The facts without those that another of them implies."""
    found = list(dict.fromkeys(facts))

    def implied(fact: Fact) -> bool:
        match fact:
            case Aligned(tensor, size):
                return any(isinstance(f, Aligned) and f.tensor == tensor and f.bytes > size for f in found)
            case Pitch(tensor, axis, by):
                same = (f for f in found if isinstance(f, Pitch) and (f.tensor, f.axis) == (tensor, axis))
                return any(f.by > by and f.by % by == 0 for f in same)
            case _:
                return False

    return [f for f in found if not implied(f)]


def engine_facts(tensor: Tensor, unit: int = -1) -> list[Fact]:
    """What a tensor map needs of a tensor that is contiguous along the axis `unit`."""
    rank = len(tensor.dims)
    unit %= rank
    chunk = 128 // tensor.dtype.bits
    pitches: list[Fact] = [Pitch(tensor.name, axis, chunk) for axis in range(rank) if axis != unit]
    return [Unit(tensor.name, unit), *pitches, Aligned(tensor.name, 16)]


def store_facts(op: Store) -> list[Fact]:
    """What an engine needs of a tensor of 16-bit elements that it stores to: it writes whole chunks of 16 bytes."""
    extent = op.tensor.dims[-1].extent
    whole: list[Fact] = [] if extent.constant is not None and extent.constant % 8 == 0 else [Divisible(extent, 8)]
    return [*engine_facts(op.tensor), *whole]


def holds(fact: Fact, shape: Shape) -> bool:
    """Whether a call is known to satisfy a fact."""
    facts = shape.facts
    match fact:
        case Unit(tensor, axis):
            return (tensor, axis) in facts.unit
        case Aligned(tensor, size):
            return facts.aligned.get(tensor, 0) >= size
        case Pitch(tensor, _, by):
            return 8 * facts.aligned.get(tensor, 0) >= by * shape.program.tensor(tensor).dtype.bits
        case Bound(constraint):
            if not constraint.symbols <= facts.extents.keys():
                return True
            return bool(constraint.holds(dict(facts.extents)))
        case Divisible(expr, by):
            if not expr.symbols <= facts.extents.keys() or expr.functions:
                return True
            return int(expr.evaluate(dict(facts.extents))) % by == 0
        case _:
            return True
