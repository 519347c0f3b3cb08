"""Contractions by the warps of a workgroup, out of a ring that its threads copy into ahead: any GPU since sm_80.

The tensor cores as every warp reaches them (`mma.sync`), fed by asynchronous copies of threads instead of engines:
what `streams` is where there are neither copy engines nor contractions of warpgroups.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf

from treadle.algebra.expr import Constraint
from treadle.hardware.atoms import find_atom
from treadle.ir.core import Program
from treadle.ir.guard import Bound, Divisible, Fact, Guard, Unit
from treadle.ir.ops.access import Load, Store
from treadle.ir.ops.elementwise import Cast, Elementwise
from treadle.ir.ops.fold import Reduce
from treadle.machine.form import MachineProgram
from treadle.plan.cost import CostVector
from treadle.plan.facts import CallFacts
from treadle.plan.family import Axis, Need, Point
from treadle.plan.pins import Pin
from treadle.realise.blocked import THREADS
from treadle.realise.choices import Choices, NotLowered
from treadle.realise.finding import find_stream
from treadle.realise.ring import Stream, Tile
from treadle.realise.universal import base_facts
from treadle.realise.warped import CHUNK, atom_for, warped
from treadle.targets.cuda.ledger import functions_by_hardware
from treadle.targets.cuda.pins import asked_for, pins_refused
from treadle.targets.cuda.rates import rates, target
from treadle.targets.cuda.shape import OfShapes, Shape, common_reasons, shape_of
from treadle.targets.cuda.stream_facts import engine_facts, holds, strongest, wide_access
from treadle.targets.cuda.stream_rates import RESERVED
from treadle.targets.cuda.thread_fed import cuts_of, feeding_of, tasks_of

REACHED = 0.5
"""Of the tensor cores' rate, what the contractions of warps reach where those of warpgroups reach all of it (measured,
with `ROUND`, on products of 1000, 2048 and 4096 cubed)."""
DOUBLE = 1.0 / 16
"""Hand term: products of f64 in the time of one of 16 bits (the published rates)."""
BANKS = 128
"""Bytes of shared memory that a multiprocessor reads or writes a cycle."""
ROUND = 600.0
"""Cycles of a meeting and of the first loads behind it, each iteration of a workgroup that is alone."""
CHUNKS = 6.0
"""Issue slots of a warp for a copy of a chunk by each of its threads."""
APART = 90.0
"""The same of an iteration, whatever its size."""
LEAVING = 1.0 / 2.3
"""Cycles of an element of 16 bits or fewer on its way from registers to memory, half a sector at a time: nothing else
leaves the multiprocessor meanwhile (measured on streams' results, and on 32 products of 512 x 512 x 64)."""
OWN = 40
"""Registers of a thread beside accumulators and operands."""

WIDE, LONG = 64, 4
"""More of them where results of 256 columns pass through functions, and where two workgroups share the registers and
blocks are 64 deep (assembled: 16 and 8 bytes spilled without them)."""

MOST = 1 << 30
"""Extents up to here are told to the emitter, where a call has no larger ones."""


class Warps:
    """Axes: block sizes along rows, columns and depth, slots of the ring, the order of tasks, workgroups that share a
    multiprocessor."""

    name = "warps"

    def stream(self, shape: Shape) -> Stream | str:
        """The form that this family realises, or why the program does not have it."""
        return _streams.get(shape, lambda: find_stream(shape.program, shape.uses, units=shape.facts.unit, wide=True))

    def admits(self, program: Program, facts: CallFacts) -> Sequence[str]:
        shape = shape_of(program, facts)
        reasons = common_reasons(shape)
        if reasons:
            return reasons
        stream = self.stream(shape)
        if isinstance(stream, str):
            return [stream]
        for one in stream.contractions:
            atom = atom_for(one)
            row = None if atom is None else find_atom(facts.target, atom)
            if row is None:
                return [f"warps have no contraction of {one.left.type.dtype} and {one.right.type.dtype}"]
            if row.spends and not program.numerics.get(row.spends):
                return [f"the program does not grant {row.spends}"]
        reasons = [f"a copy of 16 bytes needs {f}" for f in self.tile_facts(stream) if not holds(f, shape)]
        if reasons:
            return reasons
        try:
            point: Point = {"rows": 64, "columns": 64, "step": 32, "versions": 3, "raster": "row"}
            self.build(program, facts, point, Guard())
        except NotLowered as why:
            return [why.found]
        return []

    def tile_facts(self, stream: Stream) -> list[Fact]:
        """What copies of 16 bytes need of the tensors: contiguous rows that begin at 16 bytes."""
        found: list[Fact] = []
        for tile in stream.tiles:
            found += engine_facts(tile.source.tensor, tile.axes[1])
        return list(dict.fromkeys(found))

    def axes(self, program: Program, facts: CallFacts) -> Sequence[Axis]:
        stream = self.stream(shape_of(program, facts))
        assert isinstance(stream, Stream)
        wide = (128, 256, 64) if stream.columns is not None else (0,)
        return [
            Axis("rows", (128, 64)),
            Axis("columns", wide),
            Axis("step", (32, 64)),
            Axis("versions", (3, 4, 2)),
            Axis("raster", ("panels", "row")),
            Axis("resident", (1, 2)),
        ]

    def refuses(self, program: Program, facts: CallFacts, point: Point, pins: Sequence[Pin]) -> Sequence[str]:
        shape = shape_of(program, facts)
        stream = self.stream(shape)
        assert isinstance(stream, Stream)
        versions = {t.tensor: int(point["versions"]) for t in stream.tiles}
        return pins_refused(shape, cuts_of(shape, stream, point), "mma", versions, pins)

    def guard(self, program: Program, facts: CallFacts, point: Point) -> Guard:
        shape = shape_of(program, facts)
        stream = self.stream(shape)
        assert isinstance(stream, Stream)
        found = base_facts(program, shape.uses, disjoint=True) + self.tile_facts(stream)
        for op in stream.region.body.ops:
            if isinstance(op, Store) and op.tensor.dims:
                found.append(Unit(op.tensor.name, len(op.tensor.dims) - 1))
        found += wide_access(shape, stream)
        for tile in stream.tiles:
            # A chunk is there or not: it is not cut. Coordinates of 32 bits are enough.
            inner = tile.source.tensor.dims[tile.axes[1]].extent
            whole = Divisible(inner, 128 // tile.value.type.dtype.bits)
            found += [whole] if inner.constant is None and holds(whole, shape) else []
        for dim in program.dims:
            small = Bound(Constraint(MOST - dim.extent))
            found += [small] if dim.extent.constant is None and holds(small, shape) else []
        return Guard(tuple(strongest(f for f in found if holds(f, shape) or not isinstance(f, Unit))))

    def cost(self, program: Program, facts: CallFacts, point: Point) -> CostVector:
        shape = shape_of(program, facts)
        stream = self.stream(shape)
        assert isinstance(stream, Stream)
        rate = rates(facts)
        rows, columns, step = int(point["rows"]), int(point["columns"]), int(point["step"])
        versions = int(point["versions"])
        tasks = tasks_of(shape, stream, rows, columns)
        depth = max(1, facts.value(stream.step.dim.extent))
        resident = int(point.get("resident", 1))
        tensor, held, read, filled, loads = 0.0, 0.0, 0.0, 0.0, 0.0
        for one in stream.contractions:
            across = stream.columns is not None and one.cols == stream.columns.part
            width = columns if across else one.cols.extent.constant
            if width is None or width % 32 or width > 256:
                return CostVector(compute=inf)
            bits = one.left.type.dtype.bits
            # A thread has two rows of eight by four lanes, and a quarter of the columns.
            held += rows * width / THREADS * (2 if bits == 64 else 1) + (rows / 8 + width / 16) * max(1, bits // 32)
            slow = DOUBLE if bits == 64 else 16.0 / bits
            tensor += rows * width * step / (rate.products * slow * (REACHED if rate.engines else 1.0))
            fragments = (4 * rows + 2 * width) * step * bits / 8
            read += fragments
            loads += rows * width * step / 2048 + fragments / 512
        for tile in stream.tiles:
            filled += self.kept(stream, tile, point) * step * tile.value.type.dtype.bits / 8
        room = sum(n for _, n in self.room(stream, point))
        shared = target(facts).shared_bytes
        held += WIDE if columns > 128 and self.functions(shape) else 0
        held += LONG if resident > 1 and step > 32 else 0
        if held + OWN > (248 if resident == 1 else 128) or resident * (room + RESERVED) > shared + RESERVED:
            return CostVector(compute=inf)
        issue = (loads + CHUNKS * filled / 512 + 8 * APART) / 4
        cycles = resident * max(tensor, (read + filled) / BANKS, issue)
        cycles += (ROUND if resident == 1 else ROUND / 4) * (1.0 if versions > 2 else 4.0)
        after = resident * self.work(shape, stream) / tasks / rate.lanes
        after += resident * self.leaving(shape, stream, rows, columns)
        rounds = ceil(tasks / (rate.processors * resident))
        total = rounds * (ceil(depth / step) * cycles + after + 900) * (1.0 if point["raster"] == "panels" else 1.02)
        again = tasks * ceil(depth / step) * filled
        memory = max(shape.bytes() / rate.memory, again / rate.cache / 1.6)
        return CostVector(compute=total / rate.clock, memory=memory, launch=rate.launch)

    def leaving(self, shape: Shape, stream: Stream, rows: int, columns: int) -> float:
        """Cycles in which a task's results of few bits leave."""
        stores = [op for op in stream.region.body.ops if isinstance(op, Store) and op.tensor.dtype.bits < 32]
        return sum(LEAVING * rows * (columns if stream.columns is not None else 128) for op in stores if op.subs)

    def functions(self, shape: Shape) -> bool:
        """Whether results pass through functions of many instructions."""
        return any(isinstance(op, Elementwise) and shape.weight(op) >= 8 for op in shape.program.body.walk())

    def kept(self, stream: Stream, tile: Tile, point: Point) -> int:
        """Rows or columns of a block of an operand."""
        across = stream.columns is not None and stream.columns.part in (tile.outer, tile.inner)
        return int(point["columns"] if across else point["rows"])

    def room(self, stream: Stream, point: Point, pins: Sequence[Pin] = ()) -> list[tuple[str, int]]:
        """Bytes of shared memory of a point, by the tensor whose blocks they hold."""
        found = [("alignment", CHUNK)]
        for tile in stream.tiles:
            kept, step = self.kept(stream, tile, point), int(point["step"])
            inner = step if tile.inner == stream.step else kept
            row = inner * tile.value.type.dtype.bits // 8 + CHUNK
            copies = asked_for(int(point["versions"]), tile.tensor, pins)
            found.append((tile.tensor, copies * (kept * step // inner) * row))
        return found

    def needs(self, program: Program, facts: CallFacts, point: Point, pins: Sequence[Pin]) -> Sequence[Need]:
        stream = self.stream(shape_of(program, facts))
        assert isinstance(stream, Stream)
        limit = (target(facts).shared_bytes + RESERVED) // int(point.get("resident", 1)) - RESERVED
        return [Need("shared memory", " bytes", limit, self.room(stream, point, pins))]

    def work(self, shape: Shape, stream: Stream) -> float:
        """Simple instructions in all, without what copies bring and contractions do."""
        total = 0.0
        brought = {id(t.load) for t in stream.tiles}
        for op in shape.program.body.walk():
            if isinstance(op, Elementwise | Cast | Reduce | Load | Store) and id(op) not in brought:
                value = op.value if isinstance(op, Store) else op.source if isinstance(op, Reduce) else op.result
                total += shape.weight(op) * shape.elements(op, value.type.axes)
        return total

    def build(self, program: Program, facts: CallFacts, point: Point, guard: Guard) -> MachineProgram:
        shape = shape_of(program, facts)
        stream = self.stream(shape)
        assert isinstance(stream, Stream)
        resident = int(point.get("resident", 1))
        feeding = feeding_of(stream, point, resident * rates(facts).processors, resident)
        choices = Choices(
            cuts=cuts_of(shape, stream, point), numerics=ledger(stream) + functions_by_hardware(program, facts.target)
        )
        return warped(program, choices, guard, facts.target, stream, feeding)


def ledger(stream: Stream) -> tuple[str, ...]:
    """Permissions that the contractions spend."""
    dims = ", ".join(dict.fromkeys(str(c.deep.dim) for c in stream.contractions))
    atoms = dict.fromkeys(a for c in stream.contractions if (a := atom_for(c)) is not None)
    lines = [f"regroup: {dims} inside an atom, atoms in order"]
    if any(a.endswith("tf32") for a in atoms):
        lines.append("tf32: operands of f32 without their 13 lowest bits")
    return tuple(lines)


_streams = OfShapes[Stream | str](kept=8)
