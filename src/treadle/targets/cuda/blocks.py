"""Contractions by multiply-add out of shared memory: any strides, any formats that widen exactly, any target."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf, prod

from treadle.analysis.uses import flat_subs
from treadle.ir.core import Program, Sub, Tensor
from treadle.ir.guard import Divisible, Fact, Guard, Unit
from treadle.ir.ops.access import Load, Store
from treadle.ir.ops.elementwise import Cast, Elementwise
from treadle.ir.ops.fold import Reduce
from treadle.machine.form import MachineProgram
from treadle.plan.cost import CostVector
from treadle.plan.facts import CallFacts
from treadle.plan.family import Axis, Point
from treadle.plan.pins import Pin
from treadle.realise.blocked import THREADS, BlockedLowering, blocked, lying
from treadle.realise.choices import Choices, NotLowered
from treadle.realise.finding import find_stream
from treadle.realise.pipelined import PipelinedLowering
from treadle.realise.ring import Stream
from treadle.realise.universal import base_facts
from treadle.targets.cuda.ledger import functions_by_hardware
from treadle.targets.cuda.pins import pins_refused
from treadle.targets.cuda.rates import rates
from treadle.targets.cuda.shape import OfShapes, Shape, common_reasons, shape_of
from treadle.targets.cuda.stream_facts import engine_facts, holds
from treadle.targets.cuda.thread_fed import cuts_of, feeding_of, tasks_of

EFFICIENCY = {
    (128, 256): (0.76, 0.88),
    (128, 128): (0.72, 0.76),
    (128, 64): (0.55, 0.6),
    (64, 128): (0.55, 0.63),
    (64, 64): (0.5, 0.55),
}
"""Hand term: of the rate of multiply-adds, by block, with one slot and with two (measured on products of 4096 and 1024
cubed, benchmarks/results/2026-12-01-exact-batched-decode.json: larger blocks read less of shared memory a product, and
of rows that lie along the depth every element is stored by itself)."""
BESIDE = 0.87
"""The same of blocks of 128 x 128 by 128 threads, two workgroups a multiprocessor, with two slots (what one loses
where it meets, the other has; 4096 cubed takes 2 % longer than by blocks of 128 x 256, as this says:
benchmarks/results/2026-11-30-chain-points-again.json)."""
MEETING = 90.0
"""Hand term: cycles of a meeting of the workgroup."""
FULL = 192
"""Registers of a thread for results, blocks read beside them, and elements on their way; the rest is addresses and
what is multiplied."""
CHUNKS = 0.25
"""Issue slots of an element that is loaded with its neighbours."""
LONELY = 0.75
"""Hand term: a small block's share of its rate where no other workgroup is on the multiprocessor."""


class Blocks:
    """Axes: block sizes along rows, columns and depth, slots (with two, the next block is fetched while one is
    contracted), the order of tasks, and threads of a workgroup: of half as many two workgroups share a
    multiprocessor."""

    name = "blocks"

    def stream(self, shape: Shape) -> Stream | str:
        """The form that this family realises, or why the program does not have it."""
        return _streams.get(shape, lambda: find_stream(shape.program, shape.uses, computed=True))

    def admits(self, program: Program, facts: CallFacts) -> Sequence[str]:
        shape = shape_of(program, facts)
        reasons = common_reasons(shape)
        if reasons:
            return reasons
        stream = self.stream(shape)
        if isinstance(stream, str):
            return [stream]
        try:
            self.build(program, facts, {"rows": 64, "columns": 64, "step": 16, "versions": 1, "raster": "row"}, Guard())
        except NotLowered as why:
            return [why.found]
        return []

    def axes(self, program: Program, facts: CallFacts) -> Sequence[Axis]:
        stream = self.stream(shape_of(program, facts))
        assert isinstance(stream, Stream)
        wide = (256, 128, 64) if stream.columns is not None else (0,)
        return [
            Axis("rows", (128, 64)),
            Axis("columns", wide),
            Axis("step", (16, 32)),
            Axis("versions", (2, 1)),
            Axis("raster", ("panels", "row")),
            Axis("threads", (THREADS, THREADS // 2)),
        ]

    def refuses(self, program: Program, facts: CallFacts, point: Point, pins: Sequence[Pin]) -> Sequence[str]:
        shape = shape_of(program, facts)
        stream = self.stream(shape)
        assert isinstance(stream, Stream)
        return pins_refused(shape, cuts_of(shape, stream, point), "fma", {}, pins)

    def guard(self, program: Program, facts: CallFacts, point: Point) -> Guard:
        shape = shape_of(program, facts)
        used = set(shape.uses.loaded) | set(shape.uses.stored)
        units = [Unit(name, axis) for name, axis in sorted(facts.unit) if name in used]
        stream = self.stream(shape)
        assert isinstance(stream, Stream)
        wide: list[Fact] = []
        loaded = [lies for tile in stream.tiles if (lies := lying(shape.uses, tile)) is not None]
        for tensor, axis in (*loaded, *self.leaving(stream)):
            whole = self.chunks(tensor, axis)
            wide += whole if all(holds(f, shape) for f in whole) else []
        found: list[Fact] = [*base_facts(program, shape.uses, disjoint=True), *units, *wide]
        return Guard(tuple(dict.fromkeys(found)))

    def read_beside(self, stream: Stream) -> int:
        """How many blocks of rows and columns are read beside the results."""
        if stream.columns is None:
            return 0
        both = {stream.rows.part, stream.columns.part}
        loads = (op for op in stream.region.body.ops if isinstance(op, Load))
        return sum(both <= {s.part for s in flat_subs(op.subs)} for op in loads)

    def leaving(self, stream: Stream) -> list[tuple[Tensor, int]]:
        """The tensors that results are stored to whose rows lie along the columns, of which a thread has fours of
        neighbours, and that axis."""
        if stream.columns is None:
            return []
        stores = [op for op in stream.region.body.ops if isinstance(op, Store) and op.subs]
        return [
            (op.tensor, len(op.tensor.dims) - 1)
            for op in stores
            if isinstance(op.subs[-1], Sub)
            and op.subs[-1].part == stream.columns.part
            and op.tensor.dtype.bits % 8 == 0
        ]

    def chunks(self, tensor: Tensor, axis: int) -> list[Fact]:
        """What loads of 16 bytes need of a tensor: contiguous rows of whole chunks that begin at them."""
        return [*engine_facts(tensor, axis), Divisible(tensor.dims[axis].extent, 128 // tensor.dtype.bits)]

    def cost(self, program: Program, facts: CallFacts, point: Point) -> CostVector:
        shape = shape_of(program, facts)
        stream = self.stream(shape)
        assert isinstance(stream, Stream)
        rate = rates(facts)
        rows, columns, step = int(point["rows"]), int(point["columns"]), int(point["step"])
        versions, threads = int(point["versions"]), int(point.get("threads", THREADS))
        held = 0.0
        tasks = tasks_of(shape, stream, rows, columns)
        depth = max(1, facts.value(stream.step.dim.extent))
        cycles = 0.0
        for one in stream.contractions:
            width = (
                columns if stream.columns is not None and one.cols == stream.columns.part else one.cols.extent.constant
            )
            if width is None or width % 64 or width > 256:
                return CostVector(compute=inf)
            # Two registers an element of 64 bits, and half as many products a cycle (or fewer, of integers).
            double = 2 if one.op.result.type.dtype.bits == 64 else 1
            held += rows * width / threads * double
            efficiency = EFFICIENCY.get((rows, width), (0.4, 0.45))[versions - 1]
            if threads < THREADS:
                if (rows, width, step, versions) != (128, 128, 16, 2) or double > 1:
                    return CostVector(compute=inf)  # more takes too many registers, or leaves threads without work
                efficiency = BESIDE
            cycles += rows * width * depth / rate.lanes / efficiency * double
        # A product that is rounded by itself needs a register of its own, and an instruction.
        apart = program.numerics.get("contract", True) is False
        wide = any(c.op.result.type.dtype.bits == 64 for c in stream.contractions)
        # Blocks that are read beside the results stay in registers with them, and so does what is on its way.
        beside = rows * columns / threads * self.read_beside(stream)
        flying = (rows + columns) * step / threads if versions > 1 else 0.0
        if held > (64 if apart or wide else 136) or (beside and held + beside + flying > FULL):
            return CostVector(compute=inf)
        cycles *= 2.0 if apart else 1.0
        cycles += ceil(depth / step) * (MEETING if versions > 1 else 2 * MEETING)
        after = self.simple(shape, stream, {"rows": rows, "columns": columns, "step": step}) / rate.lanes
        rounds = ceil(tasks / rate.processors)
        if held <= 32 and tasks < 2 * rate.processors:
            cycles /= LONELY  # nobody else's work in between
        total = rounds * (cycles + after + 800) * (1.0 if point["raster"] == "panels" else 1.02)
        return CostVector(compute=total / rate.clock, memory=shape.bytes() / rate.memory, launch=rate.launch)

    def simple(self, shape: Shape, stream: Stream, sizes: dict[str, int]) -> float:
        """Issue slots of a task beside its products: elements of its blocks, those of operands in each iteration."""
        known = {stream.rows.part: sizes["rows"]}
        if stream.columns is not None:
            known[stream.columns.part] = sizes["columns"]
        depth = max(1, shape.facts.value(stream.step.dim.extent))
        inside = {id(op) for op in (() if stream.loop is None else stream.loop.body.walk())}
        total = 0.0
        for op in stream.region.body.walk():
            if not isinstance(op, Elementwise | Cast | Reduce | Load | Store) or not (
                op.results or isinstance(op, Store)
            ):
                continue
            value = op.value if isinstance(op, Store) else op.source if isinstance(op, Reduce) else op.results[0]
            parts = [p for p in value.type.axes if p != stream.step]
            count = prod(known.get(p, shape.extent(p)) for p in parts) * (
                depth if stream.step in value.type.axes else 1
            )
            if id(op) in inside and stream.step not in value.type.axes:
                count *= ceil(depth / sizes["step"])
            total += count * (CHUNKS if isinstance(op, Load) else shape.weight(op))
        return total

    def build(self, program: Program, facts: CallFacts, point: Point, guard: Guard) -> MachineProgram:
        shape = shape_of(program, facts)
        stream = self.stream(shape)
        assert isinstance(stream, Stream)
        threads = int(point.get("threads", THREADS))
        feeding = feeding_of(stream, point, 2 * rates(facts).processors, THREADS // threads, threads)
        choices = Choices(cuts=cuts_of(shape, stream, point), numerics=functions_by_hardware(program, facts.target))
        engine = PipelinedLowering if feeding.versions > 1 else BlockedLowering
        return blocked(program, choices, guard, facts.target, stream, feeding, engine)


_streams = OfShapes[Stream | str](kept=8)
