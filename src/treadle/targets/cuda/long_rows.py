"""Rows over lanes, few long ones in stretches: where rows alone leave most of the machine idle, many workgroups share
one, a launch a fold (`realise/long_rows.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, inf, isinf

from treadle.algebra.expr import Constraint
from treadle.ir.core import Program, Region
from treadle.ir.guard import Bound, Guard
from treadle.machine.form import MachineProgram
from treadle.plan.cost import CostVector
from treadle.plan.facts import CallFacts
from treadle.plan.family import Axis, Point
from treadle.realise.choices import NotLowered
from treadle.realise.long_rows import in_long_rows
from treadle.realise.pieces import one_after_another
from treadle.targets.cuda.rates import FOLLOWS, rates
from treadle.targets.cuda.row_lanes import along, dependent_folds, long_region, scans, sweeps_out
from treadle.targets.cuda.row_shares import instances, resident_of, stretched, stripes_of
from treadle.targets.cuda.rows import MOST_STRETCHES, MOST_WORKGROUPS, SHORTEST, Rows
from treadle.targets.cuda.shape import Shape, shape_of

SWEPT = 0.85e-6
"""Seconds of a tile of a row that is swept over: the loads of one are known before those of the next begin (measured on
rows of 1M by one workgroup of 32 warps, benchmarks/results/2026-11-30-long-rows.json: 0.7 to 1.1)."""

ARRIVED = 4e-6
"""Seconds from the last stretch to the row's result where one launch does all (measured in the same place)."""


class LongRows(Rows):
    """`rows`, whose rows may be in stretches where they are folded, too."""

    def axes(self, program: Program, facts: CallFacts) -> Sequence[Axis]:
        found = [*super().axes(program, facts)]
        shape = shape_of(program, facts)
        if scans(shape):
            return found
        counts = self.shares(shape)
        return [*found, Axis("stretches", counts)] if len(counts) > 1 else found

    def shares(self, shape: Shape) -> tuple[int, ...]:
        """Into how many stretches a row may be cut: 1, and as many as would give each multiprocessor some."""
        for known, found in _counts:
            if known is shape:
                return found
        found = self.wanted(shape)
        if len(found) > 1 and not self.cuttable(shape, found[1]):
            found = (1,)
        _counts.append((shape, found))
        del _counts[:-16]
        return found

    def wanted(self, shape: Shape) -> tuple[int, ...]:
        """The same, were every program one whose rows can be cut."""
        found, name = along(shape), long_region(shape)
        processors = rates(shape.facts).processors
        if not name or not dependent_folds(shape, name) or (len(found) > 1 and scans(shape)):
            return (1,)
        rows = instances(shape, found, stripes_of(shape, {"warps": 1, "held": False}), 1, name)
        longest = shape.facts.value(found[name].dim.extent)
        if rows >= processors:
            return (1,)
        most = min(MOST_STRETCHES, longest // SHORTEST)
        return (1, *sorted({n for k in (2, 8) if (n := min(most, ceil(k * processors / rows))) > 1}))

    def cuttable(self, shape: Shape, stretches: int) -> bool:
        """Whether a row's task is folds that follow one another."""
        point = {"warps": 4, "held": False, "exact": False, "stretches": stretches}
        try:
            self.build(shape.program, shape.facts, point, Guard())
        except NotLowered:
            return False
        return True

    def guard(self, program: Program, facts: CallFacts, point: Point) -> Guard:
        found, shape = super().guard(program, facts, point), shape_of(program, facts)
        if int(point.get("stretches", 1)) == 1 or scans(shape):
            return found
        one = along(shape)[long_region(shape)]
        some = [Bound(Constraint(one.dim.extent - 1))] if one.dim.extent.constant is None else []
        return Guard((*found.facts, *some))

    def cost(self, program: Program, facts: CallFacts, point: Point) -> CostVector:
        found, shape = super().cost(program, facts, point), shape_of(program, facts)
        if isinf(found.total) or scans(shape) or point["held"]:
            return found
        parts = int(point.get("stretches", 1))
        if parts > 1:
            if point["warps"] == 1:
                return CostVector(compute=inf)  # the tasks of a workgroup's warps meet nowhere
            more = (dependent_folds(shape, long_region(shape)) - 1) * FOLLOWS + (
                0.0 if sweeps_out(shape) else ARRIVED - FOLLOWS
            )
            found = replace(found, launch=found.launch + more)
        return replace(found, memory=max(found.memory, self.swept(shape, point)))

    def swept(self, shape: Shape, point: Point) -> float:
        """Seconds of an executor that sweeps over its rows, tile after tile."""
        warps, parts = int(point["warps"]), int(point.get("stretches", 1))
        stripes, most = stripes_of(shape, point), 0.0
        executors = rates(shape.facts).processors * max(1, resident_of(shape, point))
        for name, one in along(shape).items():
            if one.whole:
                waves = ceil(instances(shape, along(shape), stripes, warps, name) * parts / executors)
                tiles = ceil(shape.facts.value(one.dim.extent) / stripes[name].width(warps) / parts)
                most = max(most, tiles * (dependent_folds(shape, name) + sweeps_out(shape)) * waves * SWEPT)
        return most

    def build(self, program: Program, facts: CallFacts, point: Point, guard: Guard) -> MachineProgram:
        shape = shape_of(program, facts)
        stretches = None if scans(shape) else stretched(shape, point)
        if stretches is None:
            return super().build(program, facts, point, guard)
        order = [shape.names[id(op)] for op in program.body.ops if isinstance(op, Region)]
        swept = {**point, "stretches": 1}
        if len(order) == 1:
            return in_long_rows(super().build(program, facts, swept, guard), *stretches, MOST_WORKGROUPS)
        long, pieces = long_region(shape), list[MachineProgram]()
        for name in order:
            piece = self.lanes(shape, swept, guard, frozenset(order) - {name})
            pieces.append(in_long_rows(piece, *stretches, MOST_WORKGROUPS) if name == long else piece)
        return one_after_another(pieces)


_counts: list[tuple[Shape, tuple[int, ...]]] = []
