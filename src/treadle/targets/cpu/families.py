"""The families of the CPU, in the order in which `explain` lists them."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.ir.core import Program
from treadle.ir.guard import Guard
from treadle.machine.form import MachineProgram
from treadle.plan.cost import CostVector
from treadle.plan.facts import CallFacts
from treadle.plan.family import Axis, Family, Point
from treadle.plan.pins import Pin
from treadle.realise.universal import base_facts, universal
from treadle.targets.cpu.along import SumsInLanes
from treadle.targets.cpu.contraction import TiledContraction, TiledRegions
from treadle.targets.cpu.folded import FoldedProducts
from treadle.targets.cpu.rates import rates
from treadle.targets.cpu.shape import shape_of
from treadle.targets.cpu.split import split_sweep


class Universal:
    """The universal plan as a family: one point, admitted by every program, dearer than any other."""

    name = "universal"

    def admits(self, program: Program, facts: CallFacts) -> Sequence[str]:
        return []

    def axes(self, program: Program, facts: CallFacts) -> Sequence[Axis]:
        return []

    def refuses(self, program: Program, facts: CallFacts, point: Point, pins: Sequence[Pin]) -> Sequence[str]:
        return [f"the universal plan decides nothing that {pin} could fix" for pin in pins]

    def guard(self, program: Program, facts: CallFacts, point: Point) -> Guard:
        return Guard(tuple(base_facts(program, shape_of(program, facts).uses, disjoint=facts.disjoint)))

    def cost(self, program: Program, facts: CallFacts, point: Point) -> CostVector:
        shape = shape_of(program, facts)
        rate = rates(facts)
        work = shape.pointwise_work + sum(shape.products(c) for c in shape.contractions)
        return CostVector(compute=20.0 * work / rate.simple, launch=rate.fork)

    def build(self, program: Program, facts: CallFacts, point: Point, guard: Guard) -> MachineProgram:
        return universal(program, facts.target, disjoint=facts.disjoint)


def families() -> list[Family[MachineProgram]]:
    """All families of the CPU target."""
    return [split_sweep(), TiledContraction(), TiledRegions(), FoldedProducts(), SumsInLanes(), Universal()]
