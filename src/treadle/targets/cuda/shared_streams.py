"""The streams family with work dealt in units of iterations: stretches of tiles, which the last to arrive folds.

Where few tiles of a result fill a machine, or the last round of tiles leaves most of it idle, the depth is shared out
in one launch (`realise/shares.py`): of all tiles, or of those of the last round only. Beside contractions in parts that
a second launch folds it saves that launch; a tile's stretches are folded by one workgroup then, so there may not be
many of them.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from math import ceil, inf, isinf, prod
from typing import NamedTuple

from treadle.algebra.expr import Constraint
from treadle.ir.core import Program
from treadle.ir.guard import Bound, Fact, Guard
from treadle.machine.form import MachineProgram
from treadle.plan.cost import CostVector
from treadle.plan.facts import CallFacts
from treadle.plan.family import Axis, Need, Point
from treadle.plan.pins import Pin
from treadle.realise.choices import NotLowered
from treadle.realise.joint import APART, in_clusters
from treadle.realise.portions import Portions
from treadle.realise.ring import row_of
from treadle.realise.shares import in_shares, shareable, starting_apart
from treadle.rules.derivation import Derivation
from treadle.targets.cuda.parted import DEEP, PartedStreams
from treadle.targets.cuda.rates import rates
from treadle.targets.cuda.shape import OfShapes, Shape, shape_of
from treadle.targets.cuda.stream_before import beside
from treadle.targets.cuda.stream_cost import StreamCost, total
from treadle.targets.cuda.stream_facts import chained, copied
from treadle.targets.cuda.stream_room import Span, sizes_of

EACH, LEFT, TOGETHER = "shared", "of those left", "together"
"""Settings of `parts` are a number and one of these: all tiles are shared out, those of the last round only, or all to
clusters of so many workgroups, which fold a tile together."""

FOLDED = 44.0
"""Bytes a cycle that a workgroup of two consumers folds (2048x2304x16384, 8 and 4 of those left: predicted 243 and 260,
measured 245 and 250 us; 8192 deep, and whole: 142, 147, 143 and 150, 148, 151;
benchmarks/results/2026-11-30-shares.json, -shares-last.json)."""

LOADED = 1800.0
"""Cycles of loads that are under way together, of one consumer (measured in the same place: 128 KB in 8 of them)."""

ARRIVED = 2500.0
"""Cycles from the last product of a tile to the first stretch in registers: stores of a stretch are known, the counter
answers, loads begin (not measured)."""

MET = 2500.0
"""Cycles in which a cluster meets twice and its first loads from one another arrive (not measured)."""

LEAVING, FAR = 64.0, 3.0
"""Bytes a cycle that a workgroup puts into its shared memory (not measured), and has from that of others, in pairs of
numbers, rows of a warp apart (measured in the same place: 64 KB in 14 us)."""

UNTIMED = 1.5
"""How much slower shares of all tiles are held to be than the model says: what was measured of them was two times what
it said, before loads of more stretches were under way together."""

SLICE = 32
"""Columns that the last one folds at a time: a thread has 16 numbers of a slice, and room for some stretches of it."""

FEWEST = 2
"""Stretches of the smallest tiles for each workgroup at which sharing begins."""

LONGEST = 16
"""Stretches that one workgroup folds."""

WASTED = 1.15
"""How many times the rounds of whole tiles take what full rounds would, where sharing the last one is looked at."""

NOTHING = CostVector(compute=inf)


class Sharing(NamedTuple):
    """How a point shares tiles out: into how many stretches, and which or how."""

    number: int
    how: str

    @property
    def left(self) -> bool:
        """Whether only those left over are."""
        return self.how == LEFT

    @property
    def together(self) -> bool:
        """Whether a cluster has the stretches of a tile."""
        return self.how == TOGETHER


def sharing(point: Point) -> Sharing | None:
    """What the setting of `parts` says; None where tasks are whole tiles, or parts that a launch folds."""
    setting = point.get("parts", 1)
    if not isinstance(setting, str):
        return None
    number, _, how = setting.partition(" ")
    return Sharing(int(number), how)


class SharedStreams(PartedStreams):
    """`streams` in parts, of which those of one launch too."""

    def own_axes(self, shape: Shape) -> Sequence[Axis]:
        return _axes.get(shape, lambda: self.with_portions(shape, super(SharedStreams, self).own_axes(shape)))

    def with_portions(self, shape: Shape, axes: Sequence[Axis]) -> Sequence[Axis]:
        """The axes, with the settings of `parts` that share tiles out."""
        return [Axis(a.name, (*a.values, *self.portions(shape))) if a.name == "parts" else a for a in axes]

    def shares_out(self, shape: Shape) -> bool:
        """Whether the depth of a program's tiles can be shared out in one launch."""
        stream = self.form(shape)
        if isinstance(stream, str) or shareable(stream) or chained(stream) or stream.around or stream.more_rows:
            return False
        if self.derived(shape) or beside(shape, stream.nest[0]):
            return False
        return not copied(stream, shape) and not stream.all_rows

    def portions(self, shape: Shape) -> tuple[str, ...]:
        """How tiles may be shared out."""
        stream = self.form(shape)
        if isinstance(stream, str) or not self.shares_out(shape):
            return ()
        row = max(row_of(t.value.type.dtype) for t in stream.tiles)
        most = shape.facts.value(stream.step.dim.extent.substitute(dict(stream.program.lets))) // (DEEP * row)
        processors = rates(shape.facts).processors
        small, wide = self.tiles(shape, 64, 64), self.tiles(shape, 128, 256)
        if 2 * small <= processors * FEWEST:
            full = min(FEWEST * processors // small, LONGEST, most)
            found = [f"{n} {EACH}" for n in (full, full // 2, full // 4) if n > 1]
            return (*found, *(f"{n} {TOGETHER}" for n in (8, 4, 2) if n <= most and shape.facts.target.endswith("90a")))
        rounds = wide / processors
        if 1 < rounds < 8 and ceil(rounds) / rounds > WASTED:
            return tuple(f"{n} {LEFT}" for n in (8, 4) if n <= most)
        return ()

    def derived(self, shape: Shape) -> bool:
        """Whether a shape is of a program that steps have led to."""
        return shape is not shape_of(shape.program, shape.facts) or len(self.ways(shape)) > 1

    def tiles(self, shape: Shape, rows: int, columns: int) -> int:
        """How many tiles of about this size there are."""
        stream = self.form(shape)
        assert not isinstance(stream, str)
        count = 1
        for arg in stream.region.args:
            extent = max(1, shape.facts.value(arg.domain.extent))
            block = rows if arg is stream.rows else columns
            count *= ceil(extent / block) if arg.kind == "block" else extent
        return count

    def stretch(self, shape: Shape, number: int) -> int:
        """The length of about so many stretches."""
        stream = self.form(shape)
        assert not isinstance(stream, str)
        row = max(row_of(t.value.type.dtype) for t in stream.tiles)
        depth = shape.facts.value(stream.step.dim.extent.substitute(dict(stream.program.lets)))
        step = row * (4 if depth >= 8 * row * number else 2)
        return max(1, ceil(depth / (number * step))) * step

    # ---- the family

    def refuses(self, program: Program, facts: CallFacts, point: Point, pins: Sequence[Pin]) -> Sequence[str]:
        return super().refuses(program, facts, whole(point), pins)

    def derivation(self, program: Program, facts: CallFacts, point: Point) -> Derivation | None:
        if sharing(point) is None:
            return super().derivation(program, facts, point)
        return self.apart(self.at(program, facts, whole(point)), point)

    def apart(self, shape: Shape, point: Point) -> Derivation:
        """The steps to contractions that start from nothing, remembered: a program has one way."""
        stream = self.chosen(shape, point)
        return _apart.get(shape, lambda: starting_apart(shape.program, stream))

    def guard(self, program: Program, facts: CallFacts, point: Point) -> Guard:
        found = super().guard(program, facts, whole(point))
        how = sharing(point)
        if how is None:
            return found
        shape = self.at(program, facts, whole(point))
        stream = self.chosen(shape, point)
        if how.together:
            longest = Bound(Constraint(self.stretch(shape, how.number) * how.number - stream.step.dim.extent))
            return Guard((*found.facts, *([longest] if stream.step.dim.extent.constant is None else [])))
        cuts = self.cuts(shape, stream, point)
        name = shape.names[id(stream.region)]
        counts = [-(-a.domain.extent // cuts.get(f"{name}.{a.name}", 1)) for a in stream.region.args]
        depth = stream.step.dim.extent
        portions = Portions(depth, self.stretch(shape, how.number), (depth,) * how.left)
        more: list[Fact] = [Bound(c) for c in portions.facts(counts) if c.expr.constant is None]
        return Guard((*found.facts, *more))

    def cost(self, program: Program, facts: CallFacts, point: Point) -> CostVector:
        if not isinstance(point.get("parts", 1), str):
            return super().cost(program, facts, point)
        if point["staged"] or point["raster"] != "row" or point.get("cluster", "alone") != "alone":
            return NOTHING
        shape = self.way(shape_of(program, facts), point)
        if not any(a.name == "parts" and point["parts"] in a.values for a in self.own_axes(shape)):
            return NOTHING
        how = sharing(point)
        assert how is not None
        return self.shared_cost(shape, point, how)

    def needs(self, program: Program, facts: CallFacts, point: Point, pins: Sequence[Pin]) -> Sequence[Need]:
        return super().needs(program, facts, whole(point), pins)

    def build(self, program: Program, facts: CallFacts, point: Point, guard: Guard) -> MachineProgram:
        how, plain = sharing(point), whole(point)
        if how is None:
            return super().build(program, facts, point, guard)
        columns, at_once = folds(point, how)
        plain = {**plain, "slice": columns}
        made = super().build(program, facts, plain, guard)
        shape = self.at(program, facts, whole(point))
        size = self.stretch(shape, how.number)
        if size % int(point["step"]):
            raise NotLowered(
                doing=f"realising {program.name} in shares of its depth",
                found=f"iterations of {point['step']} in stretches of {size}",
                expected="whole iterations",
                hint="plan it again",
            )
        way, processors = self.apart(shape, point), rates(facts).processors
        stream = self.chosen(shape, point)
        if how.together:
            return in_clusters(made, way, stream, size, how.number, processors)
        return in_shares(made, way, stream, size, processors, left=how.left, at_once=at_once)

    # ---- cost

    def shared_cost(self, shape: Shape, point: Point, how: Sharing) -> CostVector:
        """What the tasks take, one after the other in a workgroup, and the folds of a tile's stretches."""
        size = self.stretch(shape, how.number)
        if size % int(point["step"]):
            return NOTHING
        known, rate = self.costs(shape, point), rates(shape.facts)
        if known.exceeds(point) or (how.together and not self.joins(known, point, how.number)):
            return NOTHING
        sizes = sizes_of(point)
        tiles = prod(
            ceil(extent / sizes[str(span)]) if kind == "block" else extent for span, extent, kind in known.args
        )
        stretches = ceil(known.depth / size)
        if how.together:
            return self.joint_cost(known, point, how.number, tiles, size)
        rounds, rest = divmod(tiles, rate.processors) if how.left else (0, tiles)
        if how.left and not (rounds and rest):
            return NOTHING  # all are left over, or none
        one = self.tasks_cost(known, rest * stretches, size).cost(point)
        cut = self.fold(known, point, stretches)
        if not how.left:
            width, at_once = folds(point, how)
            loads = ceil((sizes["columns"] or 128) / width) * ceil(stretches / at_once)
            cut = max(cut, ARRIVED + loads * LOADED)
        cut *= ceil(rest / rate.processors)
        if how.left:
            before = self.tasks_cost(known, rounds * rate.processors, known.depth).cost(point)
            one = before.then(CostVector(compute=one.compute, memory=one.memory))
            cut += rounds * self.fold(known, point, 1)
        if isinf(one.total):
            return NOTHING
        one = one.then(CostVector(cache=cut / rate.clock))
        doubt = 1.0 if how.left else UNTIMED
        return CostVector(*(doubt * seconds for seconds in one.parts.values()))

    def joins(self, known: StreamCost, point: Point, number: int) -> bool:
        """Whether a workgroup has room for its sum, and a slice of its columns for each of the cluster."""
        columns, sizes = int(point["columns"]), sizes_of(point)
        if (
            number > known.rate.processors
            or int(point["consumers"]) != 1
            or columns % (8 * number)
            or len(known.products) != 1
        ):
            return False
        held = sum(n for _, n in known.shared_parts(point, sizes))
        return held + 4 * 64 * (columns + APART) <= known.shared

    def joint_cost(self, known: StreamCost, point: Point, number: int, tiles: int, size: int) -> CostVector:
        """What clusters take that fold a tile together."""
        rate, sizes = known.rate, sizes_of(point)
        rounds = ceil(tiles / (rate.processors // number))
        tasks = tiles * number if rounds == 1 else rounds * rate.processors
        one = self.tasks_cost(known, tasks, size).cost(point)
        elements = sizes["rows"] * sizes["columns"]
        after = total(known.after, sizes) / rate.lanes + elements * known.leaving(point)
        fold = MET + 4.0 * elements * (1 / LEAVING + 1 / FAR) + after / number
        one = one.then(CostVector(cache=rounds * fold / rate.clock))
        return CostVector(*(UNTIMED * seconds for seconds in one.parts.values()))

    def tasks_cost(self, known: StreamCost, tasks: int, depth: int) -> StreamCost:
        """The costs of so many tasks of this depth, that leave what they come to in the workspace."""
        found = copy.copy(known)
        alike: list[tuple[Span, int, str]] = [("rows", tasks, "each")]
        found.args, found.depth = alike, depth
        found.after, found.narrow_results = [], False
        return found

    def fold(self, known: StreamCost, point: Point, stretches: int) -> float:
        """Cycles in which the last one folds a tile and does what follows."""
        sizes = sizes_of(point)
        elements = sizes["rows"] * (sizes["columns"] or 128) * len(known.products)
        after = total(known.after, sizes) / known.rate.lanes + elements * known.leaving(point)
        return ARRIVED + 4.0 * elements * stretches / FOLDED + after


def folds(point: Point, how: Sharing) -> tuple[int, int]:
    """Columns that are folded at a time, and stretches of them whose loads are under way together: as the registers of
    a thread have room."""
    if how.together:
        return int(point["columns"]) // how.number, how.number
    if int(point["consumers"]) > 1:
        return SLICE, 2
    return (2 * SLICE, how.number) if how.number <= 4 else (SLICE, min(8, how.number))


def whole(point: Point) -> Point:
    """A point with a task a tile, where it shares tiles out; else itself."""
    return point if sharing(point) is None else {**point, "parts": 1}


_axes = OfShapes[Sequence[Axis]](kept=16)
_apart = OfShapes[Derivation](kept=16)
