"""Choosing: the cheapest point over all families that admit a program, why the others lost, and what was proved.

The planner knows families by their protocol only. Enumeration, the default, looks at every point (they are few:
milliseconds) or composes the scopes that a family decides apart, drops what the pins refuse, and keeps the best of each
family for `explain`. The other searches look at the same points for the same objective.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from treadle.base.errors import LimitError, UserError
from treadle.ir.core import Program
from treadle.plan.cost import CostVector
from treadle.plan.facts import CallFacts
from treadle.plan.family import Family, Point, Setting
from treadle.plan.pins import NoPlan, Pin, PinRefused, SharedExceeded, in_short
from treadle.plan.plan import Plan
from treadle.planner.ablation import staged_points, stages, worth
from treadle.planner.certificate import Certificate, together
from treadle.planner.compose import compose
from treadle.planner.shortage import Shortage, shortage
from treadle.planner.solve import solve
from treadle.planner.space import Clock, Found, Space
from treadle.planner.walk import anneal, beam, walk_all


class SearchUnknown(UserError):
    """A search that there is not."""

    code = "plan/search"


class Unfinished(LimitError):
    """The time for a search ended before it found a point: whether there is one is not known."""

    code = "plan/unfinished"


def enumerate_all(space: Space) -> float:
    """Prices every point; of scopes that the family decides apart, what they make together."""
    scopes = space.scopes()
    if scopes:
        compose(space, scopes)
    else:
        walk_all(space)
    return 0.0


def _beam(space: Space) -> float:
    beam(space)
    return 0.0


def _anneal(space: Space) -> float:
    anneal(space)
    return 0.0


SEARCHES: Mapping[str, Callable[[Space], float]] = {
    "enumerate": enumerate_all,
    "solve": solve,
    "beam": _beam,
    "anneal": _anneal,
}
"""By the names that `search=` takes; each returns a bound that it has proved, in seconds, or 0."""


@dataclass(frozen=True)
class Candidate:
    """The best point of one family. `next`: the cheapest of its other points, as plans, with `certificate`'s proof."""

    plan: Plan
    cost: CostVector
    searched: int
    certificate: Certificate | None = None
    next: tuple[Plan, ...] = ()


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
    certificate: Certificate | None = None
    """What is proved of `best`; None for a search that was made to know less."""

    @property
    def plan(self) -> Plan:
        """The plan itself."""
        return self.best.plan

    def explain(self, taken: Plan | None = None, tried: Sequence[str] = ()) -> str:
        """Why this plan: its cost and bottleneck, alternatives, rejected families.

        `taken` is the plan that runs, when it is not the cheapest: another point, or one of another family, since those
        cheaper were tried and not taken. `tried` has the line of such a plan and, behind a colon, why.
        """
        known = [self.best, *self.others]
        one = next((c for c in known if taken is not None and c.plan.family == taken.family), self.best)
        why = {c.plan.family: note[len(c.plan.line()) + 2 :] for c in known for note in tried if _about(note, c.plan)}
        own = taken is None or taken.family != one.plan.family or taken.point == one.plan.point
        runs, cost = (one.plan, one.cost) if own or taken is None else (taken, taken.cost or one.cost)
        lines = [runs.line(), f"  predicted {cost}; bound by {cost.bottleneck}; {one.searched} points"]
        if self.certificate is not None:
            lines.append(f"  {self.certificate}")
        for plan in one.next:
            differing = [f"{n}={v}" for n, v in plan.point.items() if v != runs.point.get(n)]
            if differing:
                lines.append(f"  next {' '.join(differing)}: {plan.cost}")
        for other in known:
            if other is one and own:
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
    search: str = "enumerate",
    clock: Clock | None = None,
) -> Choice:
    """The best point under the cost model; with `ablate`, of a search that decides some axes too early.

    `search` is one of `SEARCHES`; with a `clock` it ends when that does, with what it has found.
    *Errors*: `plan/pin-refused` when a family admits the program but no point meets the pins, with the fact that
    refuses; `plan/shared-exceeded` when points that would meet them take more shared memory than there is, with the
    bytes of each buffer; `plan/none` when no family admits it; `plan/unfinished` when the clock ended before either was
    known;
    `plan/search`, `plan/no-solver`.
    """
    if search not in SEARCHES:
        raise SearchUnknown(
            doing=f"planning {program.name}",
            found=f"search={search!r}",
            expected="one of " + ", ".join(SEARCHES),
            hint="leave search= out: enumeration proves its optimum",
        )
    found: list[Candidate] = []
    rejected: list[Rejected] = []
    refused: dict[str, list[str]] = {}
    certificates: list[Certificate] = []
    exceeded = False
    clock = clock or Clock()
    for family in families:
        reasons = family.admits(program, facts)
        if reasons:
            rejected.append(Rejected(family.name, tuple(reasons)))
            continue
        if ablate is not None:
            best, why = _ablated(program, facts, family, pins, ablate)
        else:
            space = Space(program, facts, family, pins, clock)
            best = _searched(space, search, certificates)
            short = shortage(space) if best is None and space.covered == space.size else None
            why = _why_none(space, short) if best is None else []
            exceeded = exceeded or (short is not None and short.shared)
        if best is None:
            refused[family.name] = why
            rejected.append(Rejected(family.name, tuple(why)))
        else:
            found.append(best)
    if not found:
        raise _nothing(program, rejected, refused, pins, certificates, exceeded)
    found.sort(key=lambda c: c.cost.total)
    return Choice(found[0], found[1:], rejected, together(certificates) if certificates else None)


def _searched(space: Space, search: str, certificates: list[Certificate]) -> Candidate | None:
    """The best point of a space; notes its certificate."""
    bound = SEARCHES[search](space)
    certificate = space.certificate(search, bound)
    certificates.append(certificate)
    ranking = space.ranking()
    if not ranking:
        return None
    first, *others = (_plan(space, one) for one in ranking)
    return Candidate(first, ranking[0].cost, space.asked, certificate, tuple(others))


def _why_none(space: Space, short: Shortage | None) -> list[str]:
    if space.covered < space.size:
        return [*space.refused, f"the time for searching ended after {space.asked} of {space.size} points"]
    if short is not None:
        return [*space.refused, f"every point exceeds a resource of the target: {short}"]
    return space.refused or ["every point exceeds a resource of the target"]


def _plan(space: Space, found: Found) -> Plan:
    facts = space.facts
    return Plan(
        program=space.program.name,
        target=facts.target,
        family=space.family.name,
        point=dict(found.point),
        guard=space.family.guard(space.program, facts, found.point),
        workers=facts.workers,
        features=facts.features,
        cost=found.cost,
    )


def _ablated(
    program: Program, facts: CallFacts, family: Family[Any], pins: Sequence[Pin], ablate: str
) -> tuple[Candidate | None, list[str]]:
    """The point that a family ends with when it decides its axes in stages."""
    space = Space(program, facts, family, pins)
    known: dict[str, Setting] = {}
    best: tuple[CostVector, Point] | None = None
    searched = 0
    for stage in stages(space.axes, ablate):
        best, least = None, math.inf
        for point in staged_points(space.axes, stage, known):
            searched += 1
            if math.isinf(space.price(space.index(point))):
                continue
            cost = family.cost(program, facts, point)
            if (value := worth(cost, stage)) < least:
                best, least = (cost, point), value
        if best is not None:
            known |= {a.name: best[1][a.name] for a in stage.axes}
    if best is None:
        return None, space.refused or ["every point exceeds a resource of the target"]
    return Candidate(_plan(space, Found(space.index(best[1]), best[1], best[0])), best[0], searched), []


def _nothing(
    program: Program,
    rejected: list[Rejected],
    refused: dict[str, list[str]],
    pins: Sequence[Pin],
    certificates: Sequence[Certificate],
    exceeded: bool,
) -> PinRefused | SharedExceeded | NoPlan | Unfinished:
    # First the families that would run the program but for the pins: one of their sizes is what to ask for.
    order = sorted(rejected, key=lambda r: r.family not in refused)
    text = "\n".join(f"{r.family}: {'; '.join(in_short(r.reasons))}" for r in order) or "no family of this target"
    if any(c.covered < c.declared for c in certificates):
        return Unfinished(
            doing=f"planning {program.name}",
            found=text,
            expected="a point, or a proof that there is none",
            hint="give the search more seconds, or leave budget= out",
            span=program.span,
        )
    if exceeded:
        return SharedExceeded(
            doing=f"planning {program.name}",
            found=text,
            expected="buffers that shared memory has room for" + (f" and {', '.join(map(str, pins))}" if pins else ""),
            hint="ask for smaller blocks or fewer versions" if pins else "the universal plan runs every program",
            span=program.span,
        )
    if refused and pins:
        return PinRefused(
            doing=f"planning {program.name}",
            found=text,
            expected=f"a point that meets {', '.join(map(str, pins))}",
            hint="drop or change the constraint that is refused",
            span=program.span,
        )
    return NoPlan(
        doing=f"planning {program.name}",
        found=text,
        expected="a family that admits the program",
        hint="the universal plan runs every program",
        span=program.span,
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
