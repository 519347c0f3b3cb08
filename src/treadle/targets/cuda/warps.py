"""Contractions by the warps of a workgroup, out of a ring that its threads copy into ahead: any GPU since sm_80.

The tensor cores as every warp reaches them (`mma.sync`), fed by asynchronous copies of threads instead of engines:
what `streams` is where there are neither copy engines nor contractions of warpgroups.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf

from treadle.hardware.atoms import find_atom
from treadle.ir.core import Program
from treadle.ir.guard import Fact, Guard, Unit
from treadle.ir.ops.access import Store
from treadle.machine.form import MachineProgram
from treadle.plan.cost import CostVector
from treadle.plan.facts import CallFacts
from treadle.plan.family import Axis, Point
from treadle.plan.pins import Pin
from treadle.realise.blocked import THREADS
from treadle.realise.choices import Choices, NotLowered
from treadle.realise.feeding import Feeding
from treadle.realise.finding import find_stream
from treadle.realise.ring import Stream
from treadle.realise.universal import base_facts
from treadle.realise.warped import CHUNK, atom_for, warped
from treadle.targets.cuda.ledger import functions_by_hardware
from treadle.targets.cuda.pins import pins_refused
from treadle.targets.cuda.rates import rates, target
from treadle.targets.cuda.shape import Shape, common_reasons, shape_of
from treadle.targets.cuda.stream_facts import engine_facts, holds, strongest

EFFICIENCY = {(128, 128): 0.6, (128, 64): 0.5, (64, 128): 0.5, (64, 64): 0.4}
"""Hand term: of the tensor cores' rate, by block: fewer rows and columns read more of shared memory a product."""
DOUBLE = 1.0 / 16
"""Hand term: products of f64 in the time of one of 16 bits (the published rates)."""
ROUND = 160.0
"""Hand term: cycles of a meeting and of the first loads behind it, each iteration."""


class Warps:
    """Axes: block sizes along rows, columns and depth, slots of the ring, the order of tasks."""

    name = "warps"

    def stream(self, shape: Shape) -> Stream | str:
        """The form that this family realises, or why the program does not have it."""
        for known, found in _found:
            if known is shape:
                return found
        found = find_stream(shape.program, shape.uses, units=shape.facts.unit, wide=True)
        _found.append((shape, found))
        del _found[:-8]
        return found

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
        wide = (128, 64) if stream.columns is not None else (0,)
        return [
            Axis("rows", (128, 64)),
            Axis("columns", wide),
            Axis("step", (32, 64)),
            Axis("versions", (3, 4, 2)),
            Axis("raster", ("panels", "row")),
        ]

    def cuts(self, shape: Shape, stream: Stream, point: Point) -> dict[str, int]:
        """Block sizes of all open arguments."""
        region = shape.names[id(stream.region)]
        found = {f"{region}.{stream.rows.name}": int(point["rows"])}
        if stream.columns is not None:
            found[f"{region}.{stream.columns.name}"] = int(point["columns"])
        if stream.loop is not None and stream.block is not None:
            found[f"{shape.names[id(stream.loop)]}.{stream.block.name}"] = int(point["step"])
        return found

    def refuses(self, program: Program, facts: CallFacts, point: Point, pins: Sequence[Pin]) -> Sequence[str]:
        shape = shape_of(program, facts)
        stream = self.stream(shape)
        assert isinstance(stream, Stream)
        versions = {t.tensor: int(point["versions"]) for t in stream.tiles}
        return pins_refused(shape, self.cuts(shape, stream, point), "mma", versions, pins)

    def guard(self, program: Program, facts: CallFacts, point: Point) -> Guard:
        shape = shape_of(program, facts)
        stream = self.stream(shape)
        assert isinstance(stream, Stream)
        found = base_facts(program, shape.uses, disjoint=True) + self.tile_facts(stream)
        for op in stream.region.body.ops:
            if isinstance(op, Store) and op.tensor.dims:
                found.append(Unit(op.tensor.name, len(op.tensor.dims) - 1))
        return Guard(tuple(strongest(f for f in found if holds(f, shape) or not isinstance(f, Unit))))

    def cost(self, program: Program, facts: CallFacts, point: Point) -> CostVector:
        shape = shape_of(program, facts)
        stream = self.stream(shape)
        assert isinstance(stream, Stream)
        rate = rates(facts)
        rows, columns, step = int(point["rows"]), int(point["columns"]), int(point["step"])
        versions = int(point["versions"])
        tasks = 1.0
        for arg in stream.region.args:
            extent = max(1, facts.value(arg.domain.dim.extent))
            size = rows if arg is stream.rows else columns if arg is stream.columns else 1
            tasks *= ceil(extent / size)
        depth = max(1, facts.value(stream.step.dim.extent))
        cycles, held, room = 0.0, 0.0, 0.0
        for one in stream.contractions:
            across = stream.columns is not None and one.cols == stream.columns.part
            width = columns if across else one.cols.extent.constant
            if width is None or width % 32 or width > 256:
                return CostVector(compute=inf)
            double = one.left.type.dtype.bits == 64
            held += rows * width / THREADS * (2 if double else 1)
            slow = DOUBLE if double else 16.0 / one.left.type.dtype.bits
            efficiency = EFFICIENCY.get((rows, width), 0.4)
            cycles += rows * width * depth / (rate.products * slow * efficiency)
        for tile in stream.tiles:
            kept = columns if stream.columns is not None and stream.columns.part in (tile.outer, tile.inner) else rows
            size = tile.value.type.dtype.bits / 8
            inner = step if tile.inner == stream.step else kept
            room += versions * (kept * step // inner) * (inner * size + CHUNK)
        if held > 96 or room > target(facts).shared_bytes:
            return CostVector(compute=inf)
        together = 2 if held <= 64 and 2 * room <= target(facts).shared_bytes else 1
        cycles += ceil(depth / step) * ROUND / together / (1.0 if versions > 2 else 0.6)
        after = shape.work(contractions=False) / tasks / rate.lanes
        rounds = ceil(tasks / (rate.processors * together)) * together
        total = rounds * (cycles + after + 900) * (1.0 if point["raster"] == "panels" else 1.02)
        return CostVector(compute=total / rate.clock, memory=shape.bytes() / rate.memory, launch=rate.launch)

    def build(self, program: Program, facts: CallFacts, point: Point, guard: Guard) -> MachineProgram:
        shape = shape_of(program, facts)
        stream = self.stream(shape)
        assert isinstance(stream, Stream)
        panels = point["raster"] == "panels" and len(stream.region.args) == 2
        feeding = Feeding(
            consumers=int(point["rows"]) // 64,
            columns=int(point["columns"]),
            step=int(point["step"]),
            versions=int(point["versions"]),
            flight=0,
            registers=None,
            staged=False,
            raster=("group", 8) if panels else ("row",),
            workgroups=2 * rates(facts).processors,
        )
        choices = Choices(
            cuts=self.cuts(shape, stream, point), numerics=ledger(stream) + functions_by_hardware(program, facts.target)
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


_found: list[tuple[Shape, Stream | str]] = []
