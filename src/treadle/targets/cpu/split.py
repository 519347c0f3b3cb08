"""A fold that the whole program waits for, in parts for the workers, which are folded then: the family `vector sweep`
for programs that have no parallel region.

It rewrites such a program by the rule `factor`, whose step is validated as any other, and sweeps the result.
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.base.errors import LimitError, UserError
from treadle.ir.core import Program, Region
from treadle.ir.guard import Guard
from treadle.machine.form import MachineProgram
from treadle.plan.cost import CostVector
from treadle.plan.facts import CallFacts
from treadle.plan.family import Axis, Point
from treadle.plan.pins import Pin
from treadle.realise.universal import task_regions
from treadle.rules.derivation import Derivation
from treadle.rules.folds import factor
from treadle.targets.cpu.shape import Shape, shape_of
from treadle.targets.cpu.sweep import VectorSweep

PARTS = 64
"""Parts of a fold: enough for the last ones not to matter, few enough for folding them not to either."""


class SplitSweep(VectorSweep):
    """`vector sweep`, of programs that are one fold by built-in monoids too."""

    def admits(self, program: Program, facts: CallFacts) -> Sequence[str]:
        try:
            return super().admits(self.swept(program, facts), facts)
        except (UserError, LimitError) as refused:
            return [refused.found]

    def derivation(self, program: Program, facts: CallFacts, point: Point) -> Derivation | None:
        """The fold in parts: blocks of a power of two, about `PARTS` of them at the extents of the call; None of a
        program that is no such fold.

        *Errors*: those of `factor`.
        """
        shape = shape_of(program, facts)
        folds = [op for op in program.body.ops if isinstance(op, Region)]
        if task_regions(program) or len(folds) != 1 or folds[0].kind != "reduce" or folds[0].merges:
            return None
        known = shape.known.get(PARTS)
        return known if isinstance(known, Derivation) else self.split(shape, folds[0])

    def split(self, shape: Shape, fold: Region) -> Derivation:
        """The step, remembered for the other points."""
        arg = fold.args[0]
        size = 1 << max(0, (shape.facts.value(arg.domain.extent) // PARTS).bit_length() - 1)
        made = Derivation(shape.program).then(factor, shape.names[id(fold)], arg.name, size)
        shape.known[PARTS] = made
        return made

    def swept(self, program: Program, facts: CallFacts) -> Program:
        """The program that is swept."""
        found = self.derivation(program, facts, {})
        return program if found is None else found.program

    def axes(self, program: Program, facts: CallFacts) -> Sequence[Axis]:
        return super().axes(self.swept(program, facts), facts)

    def refuses(self, program: Program, facts: CallFacts, point: Point, pins: Sequence[Pin]) -> Sequence[str]:
        return super().refuses(self.swept(program, facts), facts, point, pins)

    def guard(self, program: Program, facts: CallFacts, point: Point) -> Guard:
        return super().guard(self.swept(program, facts), facts, point)

    def cost(self, program: Program, facts: CallFacts, point: Point) -> CostVector:
        return super().cost(self.swept(program, facts), facts, point)

    def build(self, program: Program, facts: CallFacts, point: Point, guard: Guard) -> MachineProgram:
        return super().build(self.swept(program, facts), facts, point, guard)
