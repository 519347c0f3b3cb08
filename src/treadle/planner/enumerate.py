"""Enumeration: the cheapest point over all families that admit a program, and why the others lost.

The planner knows families by their protocol only. It looks at every point (they are few: milliseconds), drops those
that the pins refuse, and keeps the best of each family for `explain`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from treadle.ir.core import Program
from treadle.plan.cost import CostVector
from treadle.plan.facts import CallFacts
from treadle.plan.family import Family, Point, Setting
from treadle.plan.pins import NoPlan, Pin, PinRefused, in_short
from treadle.plan.plan import Plan
from treadle.planner.ablation import staged_points, stages, worth


@dataclass(frozen=True)
class Candidate:
    """The best point of one family."""

    plan: Plan
    cost: CostVector
    searched: int


@dataclass(frozen=True)
class Rejected:
    """A family, and the conditions that failed."""

    family: str
    reasons: tuple[str, ...]


@dataclass
class Choice:
    """The outcome of planning: the plan, the best of the other families, and the families that were rejected."""

    best: Candidate
    others: list[Candidate] = field(default_factory=list[Candidate])
    rejected: list[Rejected] = field(default_factory=list[Rejected])

    @property
    def plan(self) -> Plan:
        """The plan itself."""
        return self.best.plan

    def explain(self, taken: Plan | None = None, tried: Sequence[str] = ()) -> str:
        """Why this plan: its cost and bottleneck, alternatives, rejected families.

        `taken` is the plan that runs, when it is not the cheapest: one of another family, since those cheaper were
        tried and not taken. `tried` has the line of such a plan and, behind a colon, why.
        """
        known = [self.best, *self.others]
        one = next((c for c in known if taken is not None and c.plan.family == taken.family), self.best)
        why = {c.plan.family: note[len(c.plan.line()) + 2 :] for c in known for note in tried if _about(note, c.plan)}
        cost = one.cost
        lines = [one.plan.line(), f"  predicted {cost}; bound by {cost.bottleneck}; {one.searched} points"]
        for other in known:
            if other is one:
                continue
            if other.plan.family in why:
                lines.append(f"  tried and not taken: {other.plan.line()}")
                reason = why[other.plan.family].split("\n")
                lines += [f"    predicted {other.cost}", *(f"    {line.strip()}" for line in reason)]
            else:
                lines.append(f"  instead of {other.plan.family}: {other.cost}")
        for gone in self.rejected:
            lines.append(f"  not {gone.family}: {'; '.join(gone.reasons)}")
        lines += [f"  {note}" for note in tried if not any(_about(note, c.plan) for c in known)]
        return "\n".join(lines)


def _about(note: str, plan: Plan) -> bool:
    return note.startswith(f"{plan.line()}: ")


def choose(
    program: Program,
    facts: CallFacts,
    families: Sequence[Family[Any]],
    pins: Sequence[Pin] = (),
    *,
    ablate: str | None = None,
) -> Choice:
    """The best point under the cost model; with `ablate`, of a search that decides some axes too early.

    *Errors*: `plan/pin-refused` when a family admits the program but no point meets the pins, with the fact that
    refuses; `plan/none` when no family admits it.
    """
    found: list[Candidate] = []
    rejected: list[Rejected] = []
    refused: dict[str, list[str]] = {}
    for family in families:
        reasons = family.admits(program, facts)
        if reasons:
            rejected.append(Rejected(family.name, tuple(reasons)))
            continue
        best, why = _best(program, facts, family, pins, ablate)
        if best is None:
            refused[family.name] = why
            rejected.append(Rejected(family.name, tuple(why)))
        else:
            found.append(best)
    if not found:
        raise _nothing(program, rejected, refused, pins)
    found.sort(key=lambda c: c.cost.total)
    return Choice(found[0], found[1:], rejected)


def _best(
    program: Program, facts: CallFacts, family: Family[Any], pins: Sequence[Pin], ablate: str | None
) -> tuple[Candidate | None, list[str]]:
    """The cheapest point of one family that meets the pins."""
    axes = family.axes(program, facts)
    known: dict[str, Setting] = {}
    best: tuple[CostVector, Point] | None = None
    why: list[str] = []
    searched = 0
    for stage in stages(axes, ablate):
        best = None
        least = math.inf
        for point in staged_points(axes, stage, known):
            searched += 1
            refusing = family.refuses(program, facts, point, pins) if pins else ()
            if refusing:
                why += [r for r in refusing if r not in why]
                continue
            cost = family.cost(program, facts, point)
            if (value := worth(cost, stage)) < least:
                best, least = (cost, point), value
        if best is not None:
            known |= {a.name: best[1][a.name] for a in stage.axes}
    if best is None:
        return None, why or ["every point exceeds a resource of the target"]
    cost, chosen = best
    plan = Plan(
        program=program.name,
        target=facts.target,
        family=family.name,
        point=dict(chosen),
        guard=family.guard(program, facts, chosen),
        workers=facts.workers,
        features=facts.features,
        cost=cost,
    )
    return Candidate(plan, cost, searched), why


def _nothing(
    program: Program, rejected: list[Rejected], refused: dict[str, list[str]], pins: Sequence[Pin]
) -> PinRefused | NoPlan:
    # First the families that would run the program but for the pins: one of their sizes is what to ask for.
    order = sorted(rejected, key=lambda r: r.family not in refused)
    text = "\n".join(f"{r.family}: {'; '.join(in_short(r.reasons))}" for r in order) or "no family of this target"
    if refused and pins:
        return PinRefused(
            doing=f"planning {program.name}",
            found=text,
            expected=f"a point that meets {', '.join(map(str, pins))}",
            hint="drop or change the constraint that is refused",
        )
    return NoPlan(
        doing=f"planning {program.name}",
        found=text,
        expected="a family that admits the program",
        hint="the universal plan runs every program",
    )


def realised(plan: Plan, program: Program, facts: CallFacts, families: Sequence[Family[Any]]) -> Any:
    """The machine program of a plan.

    *Errors*: `plan/none` when no family has the plan's name.
    """
    for family in families:
        if family.name == plan.family:
            return family.build(program, facts, plan.point, plan.guard)
    raise NoPlan(
        doing=f"realising a plan of {program.name}",
        found=f"the family {plan.family}",
        expected=f"one of {', '.join(f.name for f in families)}",
        hint="plan the kernel again for this target",
    )
