"""The family of a rewritten program: another family, of the program that recorded steps lead to.

A family that realises one form only is asked about each program in that form. Each step is validated as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from treadle.base.errors import LimitError, UserError
from treadle.ir.core import Program
from treadle.ir.guard import Guard
from treadle.plan.cost import CostVector
from treadle.plan.facts import CallFacts
from treadle.plan.family import Axis, Family, Grained, Point
from treadle.plan.grain import Grain
from treadle.plan.pins import Pin
from treadle.rules.derivation import Derivation

Machine = TypeVar("Machine")


class OfRewritten(Generic[Machine]):
    """`family`, of the program that `steps` gives for a call; of the program itself where there are none (None).

    A program that a rule refuses to rewrite is not admitted, for the reason that the rule gives.
    """

    def __init__(self, family: Family[Machine], steps: Callable[[Program, CallFacts], Derivation | None]) -> None:
        self.family, self.steps = family, steps
        self.name = family.name

    def derivation(self, program: Program, facts: CallFacts, point: Point) -> Derivation | None:
        """The steps to the program that is realised. *Errors*: those of the rules."""
        del point
        return self.steps(program, facts)

    def realised(self, program: Program, facts: CallFacts) -> Program:
        """The program that is realised."""
        found = self.steps(program, facts)
        return program if found is None else found.program

    def admits(self, program: Program, facts: CallFacts) -> Sequence[str]:
        try:
            return self.family.admits(self.realised(program, facts), facts)
        except (UserError, LimitError) as refused:
            return [refused.found]

    def axes(self, program: Program, facts: CallFacts) -> Sequence[Axis]:
        return self.family.axes(self.realised(program, facts), facts)

    def refuses(self, program: Program, facts: CallFacts, point: Point, pins: Sequence[Pin]) -> Sequence[str]:
        return self.family.refuses(self.realised(program, facts), facts, point, pins)

    def guard(self, program: Program, facts: CallFacts, point: Point) -> Guard:
        return self.family.guard(self.realised(program, facts), facts, point)

    def cost(self, program: Program, facts: CallFacts, point: Point) -> CostVector:
        return self.family.cost(self.realised(program, facts), facts, point)

    def grain(self, program: Program, facts: CallFacts, point: Point) -> Grain:
        if not isinstance(self.family, Grained):
            return Grain()  # it tells nothing
        return self.family.grain(self.realised(program, facts), facts, point)

    def build(self, program: Program, facts: CallFacts, point: Point, guard: Guard) -> Machine:
        return self.family.build(self.realised(program, facts), facts, point, guard)
