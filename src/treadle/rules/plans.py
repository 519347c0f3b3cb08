"""Steps on plans: decisions that the program has no place for, changed one by one.

Where instances run, where values lie, how many versions are in flight and which instruction contracts are decisions of
a plan: numbers on the axes of its family. A step changes some of one kind; the plan is realised and judged again, which
is its validation.
"""

from __future__ import annotations

from dataclasses import replace

from treadle.algebra.expr_text import parse_constraint
from treadle.base.errors import UserError
from treadle.ir.guard import Bound
from treadle.plan.family import Setting
from treadle.plan.plan import Plan
from treadle.plan.steps import PLAN_KINDS, Step, decided_by


class AxisUnknown(UserError):
    """A plan has no such decision, or the step is of another kind."""

    code = "rules/axis"


def replan(plan: Plan, kind: str, **settings: Setting) -> tuple[Plan, Step]:
    """The plan with other settings on axes of one kind: "bind", "distribute", "retime" or "refine".

    *Errors*: `rules/axis` for an axis that the plan does not have or that another kind decides.
    """
    step = Step(kind, dict(settings))
    mine = [name for name in plan.point if decided_by(name) == kind]
    wrong = next((name for name in settings if name not in mine), None)
    if wrong is not None or kind not in PLAN_KINDS or not settings:
        raise AxisUnknown(
            doing=f"applying {step} to {plan.line()}",
            found=f"the axis {wrong}" if wrong is not None else "no axis",
            expected=f"one of {', '.join(mine) or 'none'}, which {kind} decides in the family {plan.family}",
            hint="print the plan's line: only what a family has an axis for can be decided",
        )
    workers = settings.get("workers", plan.workers)
    return replace(plan, point={**plan.point, **settings}, workers=int(workers), cost=None), step


def narrow(plan: Plan, *facts: str) -> tuple[Plan, Step]:
    """The plan under a stronger guard: it holds for fewer calls, and still does for them."""
    bounds = tuple(Bound(parse_constraint(text)) for text in facts)
    guard = replace(plan.guard, facts=(*plan.guard.facts, *bounds))
    return replace(plan, guard=guard), Step("guard", {"facts": list(facts)})
