"""What variants of a kernel are predicted to take for a call that none of them was planned for.

A class of calls is wide: of the plans that there are, the one for the nearest class may be several times slower than
another. The model that planned them says which, and whether a plan of the call's own would be worth its compilation.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from treadle.base.errors import TreadleError
from treadle.driver.candidates import candidates, families, plan_facts
from treadle.driver.facts import CallFacts
from treadle.driver.record import Record
from treadle.driver.variants import Variant
from treadle.ir.core import Program
from treadle.plan.plan import Plan

NEAR = 1.1
"""A plan predicted to take so many times the best one's time is not worth another."""


def predicted(record: Record, program: Program, facts: CallFacts, target: str) -> float:
    """Seconds of a call by a record's plan; infinite where its family cannot say. `program` is the expanded one."""
    try:
        plan = Plan.from_json(str(record.meta["decisions"]))
        family = next(f for f in families(target) if f.name == plan.family)
        planned = plan_facts(program, target, facts)
        return inf if family.admits(program, planned) else family.cost(program, planned, plan.point).total
    except (TreadleError, LookupError, StopIteration, ValueError, TypeError, ArithmeticError):
        return inf


def fastest(variants: Sequence[Variant], program: Program, facts: CallFacts, target: str) -> Variant:
    """The variant that is predicted to take least, the first of equals. *Requires*: at least one."""
    return min(variants, key=lambda v: predicted(v.record, program, facts, target))


def good_enough(variants: Sequence[Variant], program: Program, facts: CallFacts, target: str) -> Variant | None:
    """The fastest variant, where no plan is predicted to be worth a compilation beside it."""
    if not variants:
        return None
    one = fastest(variants, program, facts, target)
    best = next(iter(candidates(program, target, facts, (), [])), None)
    if best is None or best.plan.cost is None:
        return None
    return one if predicted(one.record, program, facts, target) <= NEAR * best.plan.cost.total else None
