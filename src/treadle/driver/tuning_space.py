"""What a tuner may try: every point of every family that admits the program, in the order of predicted times."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from treadle.driver.candidates import UNIVERSAL
from treadle.ir.core import Program
from treadle.plan.facts import CallFacts
from treadle.plan.family import Family, points
from treadle.plan.plan import Plan


@dataclass(frozen=True)
class Space:
    """Plans in order of predicted time. `refused`: families that do not admit the program."""

    plans: tuple[Plan, ...]
    refused: tuple[str, ...]


def space(program: Program, facts: CallFacts, families: Sequence[Family[Any]]) -> Space:
    """All plans that the cost model has a finite time for. The universal plan is among them only if there is no other.

    *Requires*: `program` is expanded.
    """
    found: list[Plan] = []
    refused: list[str] = []
    for family in families:
        if family.admits(program, facts):
            refused.append(family.name)
            continue
        for point in points(family.axes(program, facts)):
            cost = family.cost(program, facts, point)
            if not math.isinf(cost.total):
                guard = family.guard(program, facts, point)
                found.append(
                    Plan(
                        program=program.name,
                        target=facts.target,
                        family=family.name,
                        point=dict(point),
                        guard=guard,
                        workers=facts.workers,
                        features=facts.features,
                        extents=facts.extents,
                        unit=facts.unit,
                        aligned=facts.aligned,
                        cost=cost,
                    )
                )
    chosen = [p for p in found if p.family != UNIVERSAL] or found
    return Space(tuple(sorted(chosen, key=predicted)), tuple(refused))


def predicted(plan: Plan) -> float:
    """Predicted seconds of a plan."""
    return math.inf if plan.cost is None else plan.cost.total


def distance(a: Plan, b: Plan) -> int:
    """In how many decisions two plans differ; plans of different families are far from one another."""
    if a.family != b.family:
        return 1000
    return sum(a.point.get(name) != b.point.get(name) for name in a.point.keys() | b.point.keys())


def _nearness(best: Plan, plan: Plan) -> tuple[int, float]:
    return distance(best, plan), predicted(plan)


def proposals(plans: Sequence[Plan], best: Callable[[], Plan | None]) -> Iterator[Plan]:
    """Every plan once: in turn one near the best so far (fewest differences, then predicted time), and the next in
    predicted time, so that a search neither trusts the cost model nor only its first success."""
    left = list(plans)
    near = False
    while left:
        incumbent = best()
        plan = left[0]
        if near and incumbent is not None:
            plan = min(left, key=partial(_nearness, incumbent))
        near = not near
        left.remove(plan)
        yield plan
