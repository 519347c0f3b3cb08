"""Rows over lanes for programs with scans, which `expand` has written out as chains: the family `rows` of the program
with those chains gathered again.

The step is validated as any other; what it makes are scans as they stand, for which lanes have statements.
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
from treadle.rules.derivation import Derivation
from treadle.rules.scans import gather
from treadle.targets.cuda.rows import Rows


class ScannedRows(Rows):
    """`rows`, of programs with scans too."""

    def derivation(self, program: Program, facts: CallFacts, point: Point) -> Derivation | None:
        """The steps to a program whose scans stand as they are; None of a program without any.

        *Errors*: those of `gather`.
        """
        del facts, point
        known = next((found for one, found in _known if one is program), None)
        if known is None:
            known = Derivation(program)
            for op in list(program.body.walk()):
                if isinstance(op, Region) and op.kind == "serial" and op.order == "ordered":
                    known = known.then(gather, op.name)
            _known.append((program, known))
            del _known[:-8]
        return known if known.steps else None

    def swept(self, program: Program, facts: CallFacts) -> Program:
        """The program that is realised."""
        found = self.derivation(program, facts, {})
        return program if found is None else found.program

    def admits(self, program: Program, facts: CallFacts) -> Sequence[str]:
        try:
            return super().admits(self.swept(program, facts), facts)
        except (UserError, LimitError) as refused:
            return [refused.found]

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


_known: list[tuple[Program, Derivation]] = []
