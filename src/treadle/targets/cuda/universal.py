"""The universal plan on CUDA: each task is one thread's; what stands between task regions is a kernel of one thread."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.ir.core import Program, Region
from treadle.ir.guard import Guard
from treadle.machine.form import MachineProgram
from treadle.plan.cost import CostVector
from treadle.plan.facts import CallFacts
from treadle.plan.family import Axis, Point
from treadle.plan.pins import Pin
from treadle.realise.choices import Choices
from treadle.realise.threads import one_thread_each
from treadle.realise.universal import base_facts, keeps_order
from treadle.targets.cuda.rates import rates
from treadle.targets.cuda.shape import shape_of

WORKGROUPS = 8
"""Workgroups a multiprocessor at most."""


def launched(program: Program) -> frozenset[str]:
    """Parallel regions whose instances can be tasks of a launch: those below an ordered region or a condition would be
    launched again and again from inside a kernel, so a thread walks them. Those that must keep colliding stores in
    order are walked too."""
    numbers = {id(op): i for i, op in enumerate(o for o in program.body.walk() if isinstance(o, Region))}
    top = (op for op in program.body.ops if isinstance(op, Region) and op.kind == "parallel")
    return frozenset(op.name or f"R{numbers[id(op)]}" for op in top if not keeps_order(op))


class Universal:
    """One point, admitted by every program, dearer than any other."""

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
        # What stands in no parallel region one thread does, which has one lane of all.
        work = shape.work() * (1.0 if launched(program) else rate.processors * rate.lanes)
        # A thread walks its rows alone: accesses of neighbours do not join, so every element costs a sector.
        moved = 8.0 * work * 4 / rate.cache
        return CostVector(compute=work / (rate.lanes * rate.processors * rate.clock), cache=moved, launch=1e-5)

    def build(self, program: Program, facts: CallFacts, point: Point, guard: Guard) -> MachineProgram:
        choices = Choices(tasks=launched(program), snapshots=not facts.disjoint)
        return one_thread_each(program, choices, guard, facts.target, WORKGROUPS * rates(facts).processors)
