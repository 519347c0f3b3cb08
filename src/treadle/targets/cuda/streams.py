"""Contractions fed by engines: a producer copies blocks into rings, consumers contract them on the tensor cores.

One family for a contraction with an epilogue, for several contractions of the same rows, and for contractions chained
through registers: what differs is in the program, not here.
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.algebra.dims import Part
from treadle.algebra.expr import Constraint
from treadle.hardware.atoms import find_atom
from treadle.ir.core import Program
from treadle.ir.guard import Bound, Divisible, Fact, Guard, Unit
from treadle.machine.form import MachineProgram
from treadle.plan.cost import CostVector
from treadle.plan.facts import CallFacts
from treadle.plan.family import Axis, Need, Point
from treadle.plan.pins import Pin
from treadle.realise.choices import Choices
from treadle.realise.closing import closing
from treadle.realise.feeding import Feeding
from treadle.realise.finding import find_stream
from treadle.realise.relayed import RelayedLowering
from treadle.realise.repack import repacked
from treadle.realise.ring import Stream, Tile, row_of
from treadle.realise.roles import fed
from treadle.realise.universal import base_facts
from treadle.targets.cuda.ledger import functions_by_hardware
from treadle.targets.cuda.pins import pins_refused
from treadle.targets.cuda.rates import rates
from treadle.targets.cuda.shape import OfShapes, Shape, common_reasons, shape_of
from treadle.targets.cuda.stream_boxes import box_of, boxes
from treadle.targets.cuda.stream_clusters import cluster_of, clusters
from treadle.targets.cuda.stream_cost import StreamCost
from treadle.targets.cuda.stream_deals import RASTERS as UNEVEN
from treadle.targets.cuda.stream_deals import drawn
from treadle.targets.cuda.stream_facts import (
    chained,
    copied,
    copied_under,
    depth_of,
    engine_facts,
    forward,
    holds,
    ledger,
    loaded,
    store_facts,
    stored,
    strongest,
    varying,
    whole_extent,
    wide_access,
)
from treadle.targets.cuda.stream_groups import shares
from treadle.targets.cuda.stream_whole import uncut

RASTERS: dict[str, tuple[str | int, ...]] = {
    "panels": ("group", 16),
    "row": ("row",),
    **UNEVEN,
}
"""Orders of tasks: panels of 16 blocks of rows; as written; those of tasks that take longer and longer."""


class Streams:
    """Axes: consumers of 64 rows, blocks along columns and depth, ring versions, batches in flight, how results leave,
    the order of tasks, which of two dimensions lies along the rows (few of one waste less as columns), pairs of
    workgroups that fetch what both need once, workgroups that share a multiprocessor."""

    name = "streams"

    def stream(self, shape: Shape, turned: bool = False) -> Stream | str:
        """The form that this family realises, or why the program does not have it."""
        return _streams.get(shape, lambda: self.found(shape, turned), turned)

    def found(self, shape: Shape, turned: bool) -> Stream | str:
        """The same, looked for."""
        program, units = shape.program, shape.facts.unit
        return find_stream(program, shape.uses, units=units, turned=turned, whole=True, only=self.only(shape))

    def only(self, shape: Shape) -> str:
        """The region that contracts, where the program has others; "": the program is one region."""
        return ""

    def elsewhere(self, shape: Shape, stream: Stream) -> frozenset[str]:
        """The names of the others."""
        return frozenset()

    def form(self, shape: Shape) -> Stream | str:
        """The form as the program has its results, or with columns for rows, where an operand is made in registers."""
        plain = self.stream(shape)
        if isinstance(plain, Stream):
            return plain
        other = self.stream(shape, turned=True)
        return other if isinstance(other, Stream) and turnable(other) else plain

    def chosen(self, shape: Shape, point: Point) -> Stream:
        """The form of a point."""
        stream = self.stream(shape, bool(point.get("turned", False)))
        assert isinstance(stream, Stream)
        return stream

    def admits(self, program: Program, facts: CallFacts) -> Sequence[str]:
        shape = shape_of(program, facts)
        reasons = common_reasons(shape)
        if reasons:
            return reasons
        if find_atom(facts.target, "wgmma.m64n64k16.bf16") is None:
            return [f"{facts.target} has no asynchronous contraction of warpgroups"]
        stream = self.form(shape)
        if isinstance(stream, str):
            return [stream]
        reasons = [str(f) for f in self.tile_facts(stream, copied(stream, shape)) if not holds(f, shape)]
        if reasons:
            return [f"an engine needs {f}" for f in reasons]
        for part in self.fixed(stream):
            size = whole_extent(part, program)
            if size is None:
                reasons.append(self.taken_whole(shape, stream, part))
            elif size % 64:
                reasons.append(f"an extent of {size} along {part} is no multiple of 64")
        tried = [closing(stream, rows, s) for rows in (64, 128) for s in self.steps(stream)]
        if stream.all_rows and not holds(self.fit(stream, 1), shape):
            reasons.append(f"{stream.rows.name} has more than 64 rows")
        if not any(not isinstance(t, str) and all(holds(f, shape) for f in t) for t in tried):
            why = (
                tried[-1] if isinstance(tried[-1], str) else ", ".join(str(f) for f in tried[-1] if not holds(f, shape))
            )
            reasons.append(f"zeros beyond the end of blocks need {why}")
        return reasons

    def fit(self, stream: Stream, consumers: int) -> Fact:
        """That all rows are rows of the consumers."""
        return Bound(Constraint(64 * consumers - stream.rows.part.extent))

    def taken_whole(self, shape: Shape, stream: Stream, part: Part) -> str:
        """Why a dimension whose extent is no number cannot be the side of a tile, and what tiles of it would take."""
        least = {"consumers": 1, "columns": 64, "step": 64, "versions": 2, "turns": False, "staged": False}
        needs = StreamCost(shape, stream).needs(least, ())
        exceeded = [str(n) for n in needs if n.total > n.limit]
        takes = f"; rows of 64 take {'; '.join(exceeded)}" if exceeded else ""
        return f"{part} is taken whole and its extent ({shape.extent(part)}) is no number of the program{takes}"

    def fixed(self, stream: Stream) -> list[Part]:
        """Whole dimensions among the axes of tiles."""
        found: list[Part] = []
        open_parts = [stream.step, stream.rows.part, *(a.part for a in stream.region.args if a.kind == "block")]
        for tile in stream.tiles:
            for part in (tile.outer, tile.inner):
                if part not in open_parts and part not in found:
                    found.append(part)
        return found

    def steps(self, stream: Stream) -> tuple[int, ...]:
        """Block sizes of the ordered region: swizzled rows where it is only the depth, wide where it is columns too."""
        made = {id(t) for c in stream.contractions for t in c.raw}
        row = max(row_of(t.value.type.dtype) for t in stream.tiles if id(t) not in made)
        if stream.loop is not None and stream.block is None and not stream.walked:
            return (whole_extent(stream.step, stream.program) or 0,)
        wide = any(c.cols == stream.step for c in stream.contractions)
        return (128, 176, 160, 64) if wide else (row, 2 * row, 4 * row)

    def tile_facts(self, stream: Stream, without: Sequence[Tile] = ()) -> list[Fact]:
        """What an engine needs of the tensors that it copies from, those that are copied first left out."""
        found: list[Fact] = []
        for tile in stream.tiles:
            if tile.keeper is not None:  # rows of the workspace begin one behind the other
                inner, chunk = tile.source.tensor.dims[-1].extent, 128 // tile.value.type.dtype.bits
                found += [Divisible(inner, chunk)] if inner.constant is None or inner.constant % chunk else []
            elif tile not in without:
                found += engine_facts(tile.source.tensor, tile.axes[1])
            found += [Bound(Constraint(d.extent - 1)) for d in tile.source.tensor.dims if d.extent.constant is None]
        return list(dict.fromkeys(found))

    def axes(self, program: Program, facts: CallFacts) -> Sequence[Axis]:
        shape = shape_of(program, facts)
        stream, plain = self.form(shape), self.stream(shape)
        assert isinstance(stream, Stream)
        other = self.stream(shape, turned=True)
        both = isinstance(other, Stream) and turnable(other) and turnable(stream)
        ways = (False,) if not both else (False, True) if isinstance(plain, Stream) else (True,)
        wide = (256, 128, 64) if stream.columns is not None else (0,)
        uneven = varying(stream)
        orders = ("row", "drawn") if stream.told else ("panels", "row", *(("drawn",) if loaded(stream) else ()))
        return [
            Axis("consumers", (1,) if stream.all_rows else (2, 3, 1) if chained(stream) else (2, 1)),
            Axis("columns", (*wide, 32, 16, 8) if both else wide),
            Axis("step", self.steps(stream)),
            Axis("versions", (4, 3, 2) if chained(stream) else (4, 3, 2, 6, 8)),
            Axis("flight", (0,) if chained(stream) else (0, 1)),
            Axis("turns", (False, True) if chained(stream) else (False,)),
            Axis("staged", (True, False)),
            Axis("raster", (*UNEVEN, "row") if uneven and not stream.told else orders),
            Axis("turned", ways),
            Axis("cluster", clusters(stream)),
            *([Axis("box", boxes(shape_of(program, facts), stream))] if stream.more_rows else []),
            Axis("resident", (1, 2) if chained(stream) else (1,)),
            Axis("held", (1, 2) if any(not t.streamed for t in stream.tiles) else (1,)),
            *([Axis("shares", shares(shape, stream))] if stream.told else []),
            *([Axis("ahead", (False, True))] if forward(stream) else []),
        ]

    def refuses(self, program: Program, facts: CallFacts, point: Point, pins: Sequence[Pin]) -> Sequence[str]:
        shape = shape_of(program, facts)
        stream = self.chosen(shape, point)
        versions = {t.tensor: int(point["versions"]) if t.streamed else 1 for t in stream.tiles}
        return pins_refused(shape, self.cuts(shape, stream, point), "wgmma", versions, pins)

    def cuts(self, shape: Shape, stream: Stream, point: Point) -> dict[str, int]:
        """Block sizes of all open arguments."""
        region = shape.names[id(stream.region)]
        found = {} if stream.all_rows else {f"{region}.{stream.rows.name}": 64 * int(point["consumers"])}
        for arg, size in zip((*stream.more_rows, stream.rows), box_of(point), strict=False):
            found[f"{region}.{arg.name}"] = size
        if stream.columns is not None:
            found[f"{region}.{stream.columns.name}"] = int(point["columns"])
        cluster = cluster_of(point)
        if cluster.size > 1:
            arg = stream.rows if cluster.along == "rows" else stream.columns
            assert arg is not None and not stream.all_rows
            found[f"{region}.{arg.name}"] *= cluster.size
        if stream.loop is not None and stream.block is not None:
            found[f"{shape.names[id(stream.loop)]}.{stream.block.name}"] = int(point["step"])
        return found

    def guard(self, program: Program, facts: CallFacts, point: Point) -> Guard:
        shape = shape_of(program, facts)
        stream = self.chosen(shape, point)
        found = base_facts(program, shape.uses, disjoint=True) + self.tile_facts(stream, copied(stream, shape))
        ends = closing(stream, 64 * int(point["consumers"]), int(point["step"]))
        assert not isinstance(ends, str)
        found += ends
        found += uncut(stream, point, lambda fact: holds(fact, shape))[1]
        if stream.all_rows:
            found.append(self.fit(stream, int(point["consumers"])))
        if int(point["flight"]):
            found.append(Bound(Constraint(depth_of(stream) - 1)))
        if point["staged"]:
            for op in stored(stream, 16):
                found += store_facts(op)
                found += [Bound(Constraint(d.extent - 1)) for d in op.tensor.dims if d.extent.constant is None]
        for tile in copied(stream, shape):
            found += [Unit(tile.tensor, axis) for axis in tile.axes if (tile.tensor, axis) in facts.unit]
        for op in stored(stream, 0):
            found.append(Unit(op.tensor.name, len(op.tensor.dims) - 1))
        found += wide_access(shape, stream)
        return Guard(tuple(strongest(f for f in found if holds(f, shape) or not isinstance(f, Unit))))

    # ---- cost

    def cost(self, program: Program, facts: CallFacts, point: Point) -> CostVector:
        return self.costs(shape_of(program, facts), point).cost(point)

    def needs(self, program: Program, facts: CallFacts, point: Point, pins: Sequence[Pin]) -> Sequence[Need]:
        return self.costs(shape_of(program, facts), point).needs(point, pins)

    def costs(self, shape: Shape, point: Point) -> StreamCost:
        """The costs of the points of one form."""
        stream = self.chosen(shape, point)
        for known in _costs:
            if known.stream is stream:
                return known
        _costs.append(StreamCost(shape, stream))
        del _costs[:-24]
        return _costs[-1]

    # ---- construction

    def build(self, program: Program, facts: CallFacts, point: Point, guard: Guard) -> MachineProgram:
        shape = shape_of(program, facts)
        stream = self.chosen(shape, point)
        consumers, resident = int(point["consumers"]), int(point.get("resident", 1))
        budget = {1: None if resident == 1 else (24, 232), 2: (24, 240) if chained(stream) else (40, 232), 3: (24, 160)}
        feeding = Feeding(
            consumers=consumers,
            columns=int(point["columns"]),
            step=int(point["step"]),
            versions=int(point["versions"]),
            flight=int(point["flight"]),
            registers=budget[consumers],
            staged=bool(point["staged"]),
            raster=raster(str(point["raster"]), sum(len(r.args) for r in stream.nest)),
            workgroups=resident * rates(facts).processors,
            turns=bool(point["turns"]),
            cluster=cluster_of(point),
            tickets=drawn(str(point["raster"])),
            resident=resident,
            held=int(point.get("held", 1)),
            box=box_of(point),
            shares=int(point.get("shares", 1)),
            ahead=bool(point.get("ahead", False)),
            slice=int(point.get("slice", 0)),
            whole=uncut(stream, point, lambda fact: fact in guard.facts)[0],
        )
        choices = Choices(
            cuts=self.cuts(shape, stream, point), numerics=ledger(stream) + functions_by_hardware(program, facts.target)
        )
        most = 8 * rates(facts).processors
        before = repacked(program, copied_under(stream, guard), guard, facts.target, workgroups=most)
        others = self.elsewhere(shape, stream)
        return fed(program, choices, guard, facts.target, stream, feeding, RelayedLowering, before, others)


_streams = OfShapes[Stream | str](kept=48)
_costs: list[StreamCost] = []


def turnable(stream: Stream) -> bool:
    """Whether its columns may lie along the rows of the tensor cores."""
    return not chained(stream) and stream.columns is not None


def raster(name: str, variables: int) -> tuple[str | int, ...]:
    """The words of an order; panels are of two task variables."""
    return RASTERS["row"] if name == "panels" and variables != 2 else RASTERS[name]
