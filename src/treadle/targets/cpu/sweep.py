"""The family `vector sweep`: rows of elementwise work and folds, lanes along a contiguous dimension.

Each task has a number of rows; in a row the operations run as fused passes over fragments of a few vectors, folds keep
one accumulator a lane, values that a later pass reads again are kept in a row of scratch when that is cheaper than
computing them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from treadle.base.memo import memoised
from treadle.ir.core import Program, Value
from treadle.ir.guard import Guard
from treadle.ir.ops.access import Extract, Load
from treadle.ir.ops.elementwise import Coords, Elementwise
from treadle.ir.ops.fold import Reduce
from treadle.machine.form import MachineProgram
from treadle.plan.cost import CostVector
from treadle.plan.facts import CallFacts, streams
from treadle.plan.family import Axis, Point
from treadle.plan.grain import Grain
from treadle.plan.pins import Pin
from treadle.realise.ahead import read_ahead
from treadle.realise.blocks import realise
from treadle.realise.choices import Choices
from treadle.realise.items import region_axes, runs_apart
from treadle.targets.cpu.admission import (
    NO_REGION,
    call_guard,
    common_reasons,
    grain_of,
    handed_out,
    pins_refused,
    worker_counts,
)
from treadle.targets.cpu.rates import HAND, rates, traffic
from treadle.targets.cpu.shape import Shape, shape_of
from treadle.targets.cpu.windows import again, band_bytes, tile_bytes, window_work

ROWS = (16, 4, 1, 64, 256)
BAND = 32
"""Rows of a band, too: few enough for the second cache, and for what is made twice not to matter."""


class VectorSweep:
    """Parallel regions without contractions."""

    name = "vector sweep"

    def admits(self, program: Program, facts: CallFacts) -> Sequence[str]:
        shape = shape_of(program, facts)
        reasons = [r for r in common_reasons(shape) if r != NO_REGION or not shape.statements]
        if shape.contractions:
            reasons.append("it has a contraction")
        if not shape.contiguous:
            reasons.append("no access is contiguous along a dimension")
        return reasons

    def axes(self, program: Program, facts: CallFacts) -> Sequence[Axis]:
        shape = shape_of(program, facts)
        lanes = rates(facts).lanes
        ranked = shape.swept
        has_rows = any(arg.domain.dim.name not in ranked[:1] for _, arg, _ in shape.arguments())
        has_rows = has_rows or any(d.name not in ranked[:1] for s in shape.statements for d in s.value.type.dims)
        return [
            Axis("lanes", tuple(ranked[:2])),
            *([Axis("bands", (True, False))] if shape.bands else []),
            *([Axis("beside", (2, 1))] if shape.windows and has_rows else []),
            Axis("vector", tuple(lanes * n for n in self.fragments(shape, ranked[:2]))),
            Axis("rows", (*ROWS, *((BAND,) if shape.bands else ())) if has_rows else (1,)),
            Axis("columns", (4096, 1024)),
            Axis("stream", (streams(shape.stored_bytes, shape.bytes),)),
            Axis("ahead", (self.far(shape, ranked[0]),)),
            Axis("held", (bool(self.wrapped(shape)),)),
            Axis("across", (bool(self.abreast(shape)), False) if self.abreast(shape) else (False,)),
            Axis("workers", worker_counts(facts)),
        ]

    def fragments(self, shape: Shape, ranked: Sequence[str]) -> tuple[int, ...]:
        """Vectors of a fragment: three where a row fills just as many, of which four would leave a quarter empty."""
        if self.windowed(shape):
            return (1, 2, 4)
        lanes = rates(shape.facts).lanes
        extents = [shape.extent(d) for d in shape.program.dims if d.name in ranked]
        return (4, 3, 2, 1) if any(2 * lanes < n <= 3 * lanes for n in extents) else (4, 2, 1)

    def wrapped(self, shape: Shape) -> frozenset[str]:
        """Ordered regions whose carried values share axes: each element of those runs through all iterations by itself,
        and its values stay in registers."""
        return _wrapped(shape)

    def abreast(self, shape: Shape) -> tuple[str, ...]:
        """Dimensions along which such regions run apart, none of them one with vectors: instances of several rows can
        lie along the lanes instead, and their chains of iterations overlap."""
        return _abreast(shape)

    def brought(self, shape: Shape) -> frozenset[str]:
        """Loaded values of which such regions take elements one after the other: kept with the rows along the lanes."""
        found: set[str] = set()
        for name in self.wrapped(shape):
            for op in shape.named(name).body.walk():
                made = shape.uses.definition.get(op.source.name) if isinstance(op, Extract) else None
                if isinstance(op, Extract) and isinstance(made, Load):
                    found.add(op.source.name)
        return frozenset(found)

    def far(self, shape: Shape, lane: str) -> bool:
        """Whether rows come from beyond the second cache, and the next one has room in it beside this one."""
        rate = rates(shape.facts)
        row = sum(
            shape.extent(dim) * max(1, t.dtype.bits // 8)
            for t in shape.program.tensors
            for dim in t.dims[-1:]
            if dim.name == lane
        )
        return shape.bytes > rate.l2 and row <= rate.l2 // HAND.room and not self.searches(shape)

    def searches(self, shape: Shape) -> bool:
        """Whether a row is searched for places: a pass that finds nothing does so little that memory is never idle, and
        requests only disturb what the processor reads ahead by itself (rows of 4096: 2.5 ms without, 3.8 with)."""
        return any(isinstance(op, Reduce) and self._place(shape, op.source) for op in shape.program.body.walk())

    def _place(self, shape: Shape, value: Value) -> bool:
        """Whether a value is a selection of coordinates."""
        made = shape.uses.definition.get(value.name)
        if not isinstance(made, Elementwise) or made.fn != "where":
            return False
        taken = [shape.uses.definition.get(v.name) for v in made.operands[1:]]
        return any(isinstance(op, Coords) for op in taken) or any(self._place(shape, v) for v in made.operands[1:])

    def refuses(self, program: Program, facts: CallFacts, point: Point, pins: Sequence[Pin]) -> Sequence[str]:
        shape = shape_of(program, facts)
        return pins_refused(shape, self.choices(shape, point), pins)

    def guard(self, program: Program, facts: CallFacts, point: Point) -> Guard:
        return call_guard(shape_of(program, facts))

    def choices(self, shape: Shape, point: Point) -> Choices:
        """The point as decisions of the lowering engine."""
        lane, width, rows = str(point["lanes"]), int(point["vector"]), int(point["rows"])
        vector = (*(n for n in shape.swept if n != lane), lane)
        cuts: dict[str, int] = {}
        left = rows
        for _, arg, key in reversed(list(shape.arguments())):
            name = arg.domain.dim.name
            if name in shape.swept:
                cuts[key] = int(point["columns"])
            else:
                # Rows are shared out from the innermost argument outwards.
                cuts[key] = max(1, min(left, shape.extent(arg.domain.dim) or 1))
                left = max(1, left // cuts[key])
        sweep, slots, keep = dict.fromkeys(shape.swept, width), 2 * width, frozenset[str]()
        beside = int(point.get("beside", 1))
        if beside > 1:
            sweep, slots = sweep | dict.fromkeys(shape.windows, beside), width * beside
        if point["across"]:
            # Squares, turned on the way in and on the way out.
            lanes, rows_along = rates(shape.facts).lanes, self.abreast(shape)
            sweep, slots = dict.fromkeys((*shape.swept, *rows_along), lanes), lanes * lanes
            vector, keep = (*vector, *rows_along), self.brought(shape)
        return Choices(
            cuts=cuts,
            tasks=handed_out(shape, point),
            sweep=sweep,
            vector=vector,
            slots=slots,
            keep=keep,
            fuse=True,
            wrap=self.wrapped(shape) if point["held"] else frozenset(),
            store_tags=("stream",) if point["stream"] else (),
            share=(rows, int(point["columns"])) if int(point["workers"]) == shape.facts.workers else None,
            bands=shape.bands if point.get("bands") else (),
        )

    def grain(self, program: Program, facts: CallFacts, point: Point) -> Grain:
        shape = shape_of(program, facts)
        return grain_of(shape, self.choices(shape, point), {str(point["lanes"]): int(point["vector"])})

    def cost(self, program: Program, facts: CallFacts, point: Point) -> CostVector:
        shape = shape_of(program, facts)
        rate, workers = rates(facts), int(point["workers"])
        lane, width, rows = str(point["lanes"]), int(point["vector"]), int(point["rows"])
        beside = int(point.get("beside", 1))
        if rows % beside:
            return CostVector(compute=inf)
        extent = max(1, shape.extent(next(d for d in program.dims if d.name == lane)))
        padded = -(-extent // width) * width / extent
        scattered = sum(elements for name, elements in shape.along.items() if name != lane)
        share = 1.0 + 4.0 * scattered / max(1, sum(shape.along.values()))
        work = shape.pointwise_work
        if shape.windows or shape.bands:
            work = window_work(shape, self.choices(shape, point).cuts if point.get("bands") else None, beside)
        compute = work / rate.lanes / rate.simple * padded * share * self.latency(shape, width // rate.lanes, beside)
        if self.abreast(shape):
            if point["across"] and (rows % rate.lanes or width != rate.lanes):
                return CostVector(compute=inf)
            compute += self.chains(shape, bool(point["across"]), rows)
        tasks = self.task_count(shape, point)
        waves = -(-tasks // workers)
        even = tasks / (waves * workers) if tasks else 1.0
        near, far = self.made_between(shape, point)
        compute += near
        moving = (traffic(rate, shape.bytes, workers) + far) * share
        # Part of the last task of a worker, be it arithmetic or memory that it waits for.
        last = HAND.wait / max(tasks, 1) if workers > 1 else 0.0
        return CostVector(
            compute=compute / (workers * even) + last * compute,
            memory=moving / even + last * workers * moving,
            launch=(rate.fork if workers > 1 else 0.0) + (waves + HAND.late * rows) * rate.task,
        )

    def latency(self, shape: Shape, vectors: int, beside: int) -> float:
        """Fewer vectors in a fragment leave latencies of folds uncovered; windows of many leave no registers."""
        if self.windowed(shape):
            return 1.0 + HAND.window * (vectors * beside - 1)
        return {4: 1.0, 3: 1.05, 2: 1.1, 1: 1.4}.get(vectors, 1.0)

    def windowed(self, shape: Shape) -> bool:
        """Whether windows of several rows are all that keeps registers."""
        return bool(shape.windows) and not shape.folding

    def made_between(self, shape: Shape, point: Point) -> tuple[float, float]:
        """Seconds of one worker for bands that are stored and read in a cache of its own, and seconds of all to move
        what is made in one region and read in a later one through memory."""
        rate, workers = rates(shape.facts), int(point["workers"])
        if not shape.bands:
            return 0.0, 0.0
        if not point.get("bands"):
            size = shape.bytes + 2 * sum(tile_bytes(shape, band) for band in shape.bands)
            return 0.0, traffic(rate, size, workers) - traffic(rate, shape.bytes, workers)
        cuts = self.choices(shape, point).cuts
        moved = sum(2 * tile_bytes(shape, band) * again(shape, band, cuts) for band in shape.bands)
        held = sum(band_bytes(shape, band, cuts) for band in shape.bands)
        return moved / (rate.l2_rate if held <= rate.l2 / HAND.room else rate.l3_rate), 0.0

    def chains(self, shape: Shape, across: bool, rows: int) -> float:
        """Seconds that iterations wait for one another, and that turning rows takes where chains of several overlap."""
        rate, total = rates(shape.facts), 0.0
        for name in self.wrapped(shape):
            region = shape.named(name)
            elements = shape.instances(region.body.ops[0]) if region.body.ops else 0
            wait = HAND.chain * elements / rate.simple
            if not across:
                total += wait
                continue
            total += wait / rate.lanes + HAND.turned * elements / rate.simple
            held = 8.0 * rows * elements / max(1, shape.instances(region))
            total += 8.0 * elements / (rate.l2_rate if held <= rate.l2 else rate.l3_rate)
        return total

    def task_count(self, shape: Shape, point: Point) -> int:
        """How many tasks the first parallel region has, or the largest statement where there is none."""
        cuts = self.choices(shape, point).cuts
        total = 1
        made = {b.region for b in shape.bands} if point.get("bands") else set[str]()
        for name in [n for n in shape.tasks if n not in made][:1]:
            region = shape.named(name)
            for arg in region.args:
                fixed = 1 if arg.size is None else arg.size.constant or 1
                cut = cuts.get(f"{name}.{arg.name}", fixed)
                total *= -(-shape.facts.value(arg.domain.extent) // cut)
        if not shape.tasks and shape.statements:
            outermost = max(shape.statements, key=lambda s: shape.size(s.value.type.dims)).value.type.dims[0]
            along = int(point["columns"] if outermost.name == point["lanes"] else point["rows"])
            total = -(-shape.extent(outermost) // along)
        return total

    def build(self, program: Program, facts: CallFacts, point: Point, guard: Guard) -> MachineProgram:
        shape = shape_of(program, facts)
        made = realise(program, self.choices(shape, point), guard, facts.target, shape.uses)
        return read_ahead(made) if point["ahead"] else made


@memoised
def _wrapped(shape: Shape) -> frozenset[str]:
    return frozenset(shape.names[id(r)] for r in shape.regions if r.kind != "parallel" and runs_apart(r))


@memoised
def _abreast(shape: Shape) -> tuple[str, ...]:
    dims = [a.dim for n in sorted(_wrapped(shape)) for a in region_axes(shape.named(n))]
    names = tuple(dict.fromkeys(d.name for d in dims))
    few = any(shape.extent(d) < rates(shape.facts).lanes for d in dims)
    return () if few or set(names) & set(shape.swept) else names[-1:]
