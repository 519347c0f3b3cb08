"""The streams family for programs of several launches: its contraction in parts that are folded afterwards.

Where few tiles of a result fill a machine, the depth of the contraction is cut too: the program is rewritten (`factor`,
then `materialise`: the parts are a tile in the workspace, filled by a region of its own), each part is a task of the
stream, and a second launch folds the parts in order and does what follows. Each step is validated as any other.

Operands that are computed may be made in registers on the way, again by every block of the result that needs them, or
once by a launch before (`materialise`), and lie in the workspace then. Regions beside the one that contracts are rows
over lanes, each a launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf, isinf, prod

from treadle.algebra.dims import Dim
from treadle.analysis.uses import PURE, Uses, flat_subs
from treadle.base.errors import LimitError, UserError
from treadle.ir.core import Program, Region, Value
from treadle.ir.guard import Divisible, Fact, Guard
from treadle.ir.ops.access import Extract, Insert, Load
from treadle.ir.ops.fold import Mma, Reduce
from treadle.machine.form import MachineProgram
from treadle.plan.cost import CostVector
from treadle.plan.facts import CallFacts
from treadle.plan.family import Axis, Need, Point, Setting
from treadle.plan.pins import Pin
from treadle.realise.choices import Choices, NotLowered
from treadle.realise.pieces import between_launches, one_after_another
from treadle.realise.ring import Stream, row_of
from treadle.realise.rows import Stripe, over_lanes
from treadle.rules.copies import dematerialise, recompute
from treadle.rules.derivation import Derivation
from treadle.rules.folds import factor
from treadle.rules.nests import fuse
from treadle.rules.tiles import materialise
from treadle.targets.cuda.ledger import functions_by_hardware
from treadle.targets.cuda.rates import FOLLOWS, rates
from treadle.targets.cuda.row_lanes import Along, along
from treadle.targets.cuda.shape import OfShapes, Shape, remembered, shape_of
from treadle.targets.cuda.stream_before import (
    across,
    beside,
    contracting,
    copied_as_is,
    innermost,
    kept_first,
    laid_first,
    layout_of,
    small,
)
from treadle.targets.cuda.stream_cost import strided, taken_apart
from treadle.targets.cuda.stream_facts import chained, copied, depth_of, fetched, holds, strongest
from treadle.targets.cuda.streams import Streams

DEEP = 4
"""The fewest swizzled rows of the depth that are a part."""

WARPS = 4
"""Of a workgroup that folds."""

AT_ONCE = 8
"""Parts that a thread asks for before it adds the first: one after the other each would take its latency."""

IN_REGISTERS, BEFORE, LAID, TURNED = "in registers", "before", "copied before", "before, columns turned"
"""Where computed operands are made; numbers of columns that lie across memory may be turned by a launch before, too."""

BURST = 64
"""Bytes that memory is written at a time, two sectors: a thread that keeps neighbours keeps so many."""

EACH = 0.2e-6
"""Seconds that a part more takes, whatever its size (measured: 0.35 us where parts are read one after the other)."""


@dataclass
class Parts:
    """A program whose contraction is in parts: the steps to it, and its shape."""

    derivation: Derivation
    shape: Shape


class PartedStreams(Streams):
    """`streams`, with an axis more: into how many parts the depth of a contraction is cut."""

    # ---- several regions

    def only(self, shape: Shape) -> str:
        return contracting(shape)

    def elsewhere(self, shape: Shape, stream: Stream) -> frozenset[str]:
        return frozenset(shape.names[id(r)] for r in beside(shape, stream.nest[0]))

    def first(self, program: Program, facts: CallFacts) -> Shape:
        """The shape of the program that is planned: with computed operands made first, if there is no other way."""
        shape = shape_of(program, facts)
        return self.ways(shape)[0][1]

    def ways(self, shape: Shape) -> list[tuple[str, Shape]]:
        """How computed operands may be made, and the shape of the program then; the program itself without any."""
        return _ways.get(shape, lambda: self.found_ways(shape))

    def found_ways(self, shape: Shape) -> list[tuple[str, Shape]]:
        """The same, looked for."""
        form = self.form(shape)
        computed = [v for v in self.computed(shape) if isinstance(form, str) or not copied_as_is(form, v)]
        sets = [tuple(computed)]
        if len(computed) > 1:
            # One of them may be made before, the others in registers.
            sets += [(v,) for v in computed[:2]]
        found: list[tuple[str, Shape]] = []
        made: list[tuple[str, Shape]] = []
        for chosen in sets:
            one = self.tried_first(shape, chosen)
            if one is not None:
                name = BEFORE if len(chosen) == len(computed) else f"{chosen[0].name.lstrip('%')} {BEFORE}"
                made.append((name, one.shape))
        one = self.tried_first(shape, computed, laid=True) if any(layout_of(v, shape) for v in computed) else None
        if one is not None:
            made.append((LAID, one.shape))
        numbers = self.beside_columns(made[0][1] if made else shape)
        one = self.tried_first(shape, [*computed, *numbers]) if numbers else None
        if one is not None:
            made.append((TURNED, one.shape))
        if not made or not (isinstance(form, str) or fetched(form, shape.uses)):
            found.append((IN_REGISTERS, shape))
        found += made
        del _prepared[:-48]
        return found

    def tried_first(self, shape: Shape, values: Sequence[Value], laid: bool = False) -> Parts | None:
        """The program with these values made first, remembered; None where it cannot be."""
        try:
            found = self.made_first(shape, values, laid)
        except (UserError, LimitError):
            return None
        if found is not None:
            _prepared.append((remembered(found.shape), found))
        return found

    def way(self, shape: Shape, point: Point) -> Shape:
        """The shape of the way that a point has chosen."""
        ways = self.ways(shape)
        return next((s for name, s in ways if name == point.get("operands")), ways[0][1])

    def computed(self, shape: Shape) -> list[Value]:
        """Operands of contractions that are no plain elements of tensors, or lie across memory."""
        operands = [v for op in shape.program.body.walk() if isinstance(op, Mma) for v in (op.a, op.b)]
        found: list[Value] = []
        for value in dict.fromkeys(operands):
            op = shape.uses.definition.get(value.name)
            at_places = isinstance(op, Load) and any(s.tile is not None for s in flat_subs(op.subs))
            if at_places or not isinstance(op, Load | Extract) or (isinstance(op, Load) and across(op, shape)):
                found.append(value)
        return found

    def beside_columns(self, shape: Shape) -> list[Value]:
        """Numbers of columns that an iteration reads across memory, a sector each."""
        form = self.stream(shape)
        if isinstance(form, str) or form.loop is None:
            return []
        return [op.result for op in form.loop.body.ops if isinstance(op, Load) and strided(shape, form, op)]

    def made_first(self, shape: Shape, operands: Sequence[Value], laid: bool = False) -> Parts | None:
        """The program with these operands made by launches of their own, where the contraction is a stream then; None
        without any. `laid`: those that a copy of their tensor has as boxes are read from one. *Errors*: those of the
        rules."""
        way = Derivation(shape.program)
        for value in operands:
            way = laid_first(way, value, shape) if laid else kept_first(way, value)
        if not way.steps:
            return None
        found = Shape(way.program, shape.facts, Uses(way.program))
        if not isinstance(self.form(found), str):
            return None if self.reasons(found) else Parts(way, found)
        for outer in [op for op in way.program.body.ops if isinstance(op, Region)]:
            inner = [op for op in outer.body.ops if not isinstance(op, PURE)]
            if len(inner) == 1 and isinstance(inner[0], Region) and inner[0].kind == "parallel":
                for op in reversed(outer.body.ops):
                    if isinstance(op, PURE):
                        way = way.then(recompute, op.result.name, inner[0].name)
                way = way.then(fuse, outer.name)
        found = Shape(way.program, shape.facts, Uses(way.program))
        return None if isinstance(self.form(found), str) or self.reasons(found) else Parts(way, found)

    def admits(self, program: Program, facts: CallFacts) -> Sequence[str]:
        return self.reasons(self.first(program, facts))

    def reasons(self, shape: Shape) -> Sequence[str]:
        """Why the program of a shape, as it is, is no stream with rows beside it."""
        reasons = super().admits(remembered(shape).program, shape.facts)
        if reasons:
            return reasons
        stream = self.form(shape)
        assert isinstance(stream, Stream)
        return self.lane_reasons(shape, stream)

    def lane_reasons(self, shape: Shape, stream: Stream) -> Sequence[str]:
        """Why regions beside the contraction are no rows over lanes."""
        others = beside(shape, stream.nest[0])
        known = along(shape) if others else {}
        singles = {a.name for a in stream.region.args if a.kind == "each"}
        if others and depth_of(stream).symbols & singles:
            return ["its depth is in parts of no fixed size"]
        for region in others:
            name = shape.names[id(region)]
            if any(isinstance(op, Mma) for op in region.body.walk()):
                return [f"{name} contracts too"]
            if name not in known:
                return [f"nothing in {name} is contiguous along a dimension"]
        if others:
            try:
                self.folded(shape, stream, Guard())
            except NotLowered as why:
                return [why.found]
        return []

    # ---- parts

    def parts(self, shape: Shape, asked: int) -> Parts | str:
        """The program in about so many parts, or why it has none."""
        for known, number, found in _parts:
            if known is shape and number == asked:
                return found
        try:
            found = self.cut(shape, asked)
        except (UserError, LimitError) as refused:
            found = refused.found
        _parts.append((shape, asked, found))
        del _parts[:-24]
        return found

    def cut(self, shape: Shape, asked: int) -> Parts | str:
        """The same, made. *Errors*: those of the rules."""
        stream = self.form(shape)
        if isinstance(stream, str):
            return stream
        loop, block = stream.loop, stream.block
        if loop is None or block is None or loop.kind != "reduce" or len(loop.results) != 1 or loop.merges:
            return "its contraction is no fold over blocks of one state"
        if chained(stream) or beside(shape, stream.nest[0]):
            return "its contraction is one of several steps"
        row = max(row_of(t.value.type.dtype) for t in stream.tiles)
        depth = shape.facts.value(block.domain.extent)
        # Parts of whole steps: of the longest ones where a part has several of them.
        step = row * (4 if depth >= 8 * row * asked else 2)
        size = max(1, ceil(depth / (asked * step))) * step
        made = Derivation(shape.program).then(factor, shape.names[id(loop)], block.name, size)
        inner = next(op for op in made.program.body.walk() if isinstance(op, Region) and op.name == loop.name)
        outer = next(op for op in made.program.body.walk() if isinstance(op, Region) and inner in op.body.ops)
        made = made.then(materialise, inner.results[0].name).then(dematerialise, outer.results[0].name)
        found = Shape(made.program, shape.facts, Uses(made.program))
        own = self.form(found)
        if isinstance(own, str):
            return own
        if copied(own, found):
            return "an operand is copied for the engines, whole"
        why = self.lane_reasons(found, own)
        return why[0] if why else Parts(made, found)

    def counts(self, shape: Shape) -> tuple[int, ...]:
        """Into how many parts the contraction may be cut: 1, and as many as would fill the machine, half, a quarter."""
        stream = self.form(shape)
        if isinstance(stream, str) or stream.block is None or stream.around or beside(shape, stream.nest[0]):
            return (1,)
        tiles = 1
        for arg in stream.region.args:
            extent = max(1, shape.facts.value(arg.domain.extent))
            tiles *= ceil(extent / 128) if arg.kind == "block" else extent
        row = max(row_of(t.value.type.dtype) for t in stream.tiles)
        most = shape.facts.value(stream.block.domain.extent) // (DEEP * row)
        full = min(rates(shape.facts).processors // tiles, most)
        wanted = [n for n in (full, full // 2, full // 4) if n > 1]
        if not wanted or isinstance(self.parts(shape, wanted[0]), str):
            return (1,)
        return (1, *wanted)

    def at(self, program: Program, facts: CallFacts, point: Point) -> Shape:
        """The shape of the program that a point realises."""
        shape = self.way(shape_of(program, facts), point)
        asked = int(point.get("parts", 1))
        if asked == 1:
            return remembered(shape)
        found = self.parts(shape, asked)
        if isinstance(found, str):
            raise NotLowered(
                doing=f"realising {program.name} in {asked} parts",
                found=found,
                expected="one contraction, a fold over blocks",
                hint="plan it again",
            )
        return remembered(found.shape)

    def derivation(self, program: Program, facts: CallFacts, point: Point) -> Derivation | None:
        """The steps to the program that a point realises; None where that is the program itself."""
        asked, shape = int(point.get("parts", 1)), self.way(shape_of(program, facts), point)
        if asked == 1:
            return next((p.derivation for known, p in _prepared if known is shape), None)
        found = self.parts(shape, asked)
        return found.derivation if isinstance(found, Parts) else None

    # ---- the family

    def axes(self, program: Program, facts: CallFacts) -> Sequence[Axis]:
        ways = self.ways(shape_of(program, facts))
        found: dict[str, tuple[Setting, ...]] = {}
        for _, shape in ways:
            for axis in self.own_axes(shape):
                known = found.get(axis.name, ())
                found[axis.name] = (*known, *(v for v in axis.values if v not in known))
        if len(ways) > 1:
            found["operands"] = tuple(name for name, _ in ways)
        return [Axis(name, values) for name, values in found.items()]

    def own_axes(self, shape: Shape) -> Sequence[Axis]:
        """The axes of the points of one way."""
        return _axes.get(
            shape,
            lambda: [*super(PartedStreams, self).axes(remembered(shape).program, shape.facts), self.shares(shape)],
        )

    def shares(self, shape: Shape) -> Axis:
        """Into how many parts the depth is cut."""
        return Axis("parts", self.counts(shape))

    def among(self, way: Shape, point: Point) -> bool:
        """Whether a point is one of a way's."""
        own = _settings.get(way, lambda: {a.name: frozenset(a.values) for a in self.own_axes(way)})
        for name, settings in own.items():
            if name in point and point[name] not in settings:
                return False
        return True

    def refuses(self, program: Program, facts: CallFacts, point: Point, pins: Sequence[Pin]) -> Sequence[str]:
        return super().refuses(self.at(program, facts, point).program, facts, point, pins)

    def guard(self, program: Program, facts: CallFacts, point: Point) -> Guard:
        shape = self.at(program, facts, point)
        guard = super().guard(shape.program, facts, point)
        stream = self.chosen(shape, point)
        found: list[Fact] = [*guard.facts]
        for region in beside(shape, stream.nest[0]):
            found += self.stripe(shape, region)[1].facts
        found += small(shape) if beside(shape, stream.nest[0]) else []
        for op in stream.region.body.ops:
            if isinstance(op, Insert):
                extent = op.source.type.axes[-1].dim.extent
                pairs = Divisible(extent, 2)
                if extent.constant is None and holds(pairs, shape):
                    found.append(pairs)
        return Guard(tuple(strongest(found)))

    def cost(self, program: Program, facts: CallFacts, point: Point) -> CostVector:
        asked = int(point.get("parts", 1))
        if asked > 1 and (point["staged"] or point["raster"] != "row" or point.get("cluster", "alone") != "alone"):
            return CostVector(compute=inf)
        way = self.way(shape_of(program, facts), point)
        if not self.among(way, point):
            return CostVector(compute=inf)
        shape = self.at(program, facts, point)
        one = self.costs(shape, point).cost(point)
        if isinf(one.total):
            return one
        after = self.lane_costs(shape, self.chosen(shape, point))
        return one if after is None else one.then(after)

    def needs(self, program: Program, facts: CallFacts, point: Point, pins: Sequence[Pin]) -> Sequence[Need]:
        way = self.way(shape_of(program, facts), point)
        if not self.among(way, point):
            return []
        return self.costs(self.at(program, facts, point), point).needs(point, pins)

    def lane_costs(self, shape: Shape, stream: Stream) -> CostVector | None:
        """What the launches beside the contraction take, which no point changes; None where there are none."""
        return _costed.get(shape, lambda: self.summed(shape, beside(shape, stream.nest[0])))

    def summed(self, shape: Shape, regions: Sequence[Region]) -> CostVector | None:
        """What launches take, one after another."""
        found = None
        for region in regions:
            one = self.lane_cost(shape, region)
            found = one if found is None else found.then(one)
        return found

    def lane_cost(self, shape: Shape, region: Region) -> CostVector:
        """What a launch of rows takes: it folds what is in the second cache, or fills a tile from memory."""
        rate = rates(shape.facts)
        moved, parts, memory, work = 0.0, 0, 0.0, 0.0
        lanes = along(shape)[shape.names[id(region)]].dim
        for op in region.body.walk():
            if isinstance(op, Reduce):
                parts += prod(max(1, shape.facts.value(d.extent)) for d in op.dims if d is not lanes)
                moved += shape.elements(op, op.source.type.axes) * op.source.type.dtype.bits / 8
            elif isinstance(op, Load):
                read = shape.elements(op, op.result.type.axes) * op.tensor.dtype.bits / 8
                memory += min(read, shape.bytes_of(op.tensor))
            elif isinstance(op, Insert):
                memory += shape.elements(op, op.value.type.axes) * op.value.type.dtype.bits / 8
        for op in region.body.ops:
            if len(op.results) == 1:
                work += shape.elements(op, op.result.type.axes) * (2.0 + taken_apart(op)) / 3
        simple = work / (rate.lanes * rate.processors * rate.clock)
        cache = 2 * moved / rate.cache + simple + EACH * parts
        return CostVector(memory=memory / rate.memory, cache=cache, launch=FOLLOWS)

    def build(self, program: Program, facts: CallFacts, point: Point, guard: Guard) -> MachineProgram:
        shape = self.at(program, facts, point)
        made = super().build(shape.program, facts, point, guard)
        stream = self.chosen(shape, point)
        others = beside(shape, stream.nest[0])
        if not others:
            return made
        order = [op for op in shape.program.body.ops if isinstance(op, Region)]
        pieces = {id(stream.nest[0]): made}
        for region in others:
            pieces[id(region)] = self.lanes(shape, region, guard)
        return one_after_another([pieces[id(r)] for r in order])

    # ---- rows over lanes

    def folded(self, shape: Shape, stream: Stream, guard: Guard) -> None:
        """Tries to build the regions beside the contraction. *Errors*: `realise/unsupported`."""
        for region in beside(shape, stream.nest[0]):
            self.lanes(shape, region, guard)

    def stripe(self, shape: Shape, region: Region) -> tuple[Stripe, Along]:
        """How a region's contiguous dimension lies along the lanes of a warp: wide where that leaves enough warps."""
        one = along(shape)[shape.names[id(region)]]
        # A store of a thread is one of 16 bytes at most, or parts of sectors are written.
        wide = [op.value.type.dtype.bits for op in region.body.walk() if isinstance(op, Insert)]
        vector = min([one.vector, *(128 // bits for bits in wide)])
        while vector > 1 and 32 * vector > shape.facts.value(one.dim.extent):
            vector //= 2
        while vector > 1 and self.warps_of(shape, region, Stripe(vector, 1)) < 8 * rates(shape.facts).processors:
            vector //= 2
        return Stripe(vector, 1), one

    def warps_of(self, shape: Shape, region: Region, stripe: Stripe) -> float:
        """How many warps there is work for."""
        one = along(shape)[shape.names[id(region)]]
        return prod(
            ceil(extent / stripe.width(1)) if a.domain.dim is one.dim else extent
            for a in region.args
            for extent in (max(1, shape.facts.value(a.domain.extent)),)
        )

    def lanes(self, shape: Shape, region: Region, guard: Guard) -> MachineProgram:
        """The launch of one region."""
        name = shape.names[id(region)]
        stripe, one = self.stripe(shape, region)
        cuts = {
            f"{name}.{a.name}": stripe.width(1)
            for a in region.args
            if a.kind == "block" and a.domain.dim is one.dim and a.size is None
        }
        target = shape.facts.target
        # Parts side by side in registers: read one after the other, each would take its latency.
        folded = [d.name for op in region.body.walk() if isinstance(op, Reduce) for d in op.dims if d is not one.dim]
        # Where neighbours of what is kept lie in one thread it stores all that memory takes at a time.
        turned = across_lanes(region, one.dim)
        choices = Choices(
            cuts=cuts,
            tasks=frozenset({name}),
            numerics=functions_by_hardware(shape.program, target),
            sweep=dict.fromkeys(folded, AT_ONCE) | turned,
            slots=max(AT_ONCE, *turned.values(), 0) * stripe.width(1),
        )
        return over_lanes(
            shape.program,
            choices,
            guard,
            target,
            {name: {one.dim.name: stripe}},
            warps=1,
            agents=WARPS,
            workgroups=16 * rates(shape.facts).processors,
            elsewhere=frozenset(n for r in shape.regions if (n := shape.names[id(r)]) != name),
        )


def across_lanes(region: Region, dim: Dim) -> dict[str, int]:
    """The dimension along which a tile that a region fills is contiguous, and elements of a burst along it, where the
    lanes go along another one."""
    found: dict[str, int] = {}
    for op in region.body.walk():
        if isinstance(op, Insert):
            axes = list(op.result.type.axes)
            last = innermost(op.subs[axes.index(between_launches(axes)[-1])])
            own = [a.domain.dim for a in region.args]
            if last is not None and last.dim is not dim and last.dim not in own:
                found[last.dim.name] = max(1, BURST * 8 // op.result.type.dtype.bits)
    return found


_parts: list[tuple[Shape, int, Parts | str]] = []
_prepared: list[tuple[Shape, Parts]] = []
_ways = OfShapes[list[tuple[str, Shape]]](kept=16)
_axes = OfShapes[list[Axis]](kept=16)
_settings = OfShapes[dict[str, frozenset[Setting]]](kept=16)
"""The settings of `_axes`, by axis."""
_costed = OfShapes[CostVector | None](kept=24)
