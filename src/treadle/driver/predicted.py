"""What variants of a kernel are predicted to take for a call that none of them is known to be good for.

The model that planned them says which, whether a plan of the call's own would be worth its compilation, and, where a
kernel has all the variants that it may have, whether such a plan is missed more than one that is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf, log, prod
from typing import Any

from treadle.base.errors import LimitError, TreadleError
from treadle.driver.candidates import UNIVERSAL, families, plan_facts, saved_facts
from treadle.driver.facts import CallFacts
from treadle.driver.record import Record
from treadle.driver.variants import Variant
from treadle.ir.core import Program
from treadle.plan.facts import CallFacts as PlanFacts
from treadle.plan.family import Family, Grained
from treadle.plan.grain import NEAR, Grain
from treadle.plan.plan import Plan
from treadle.planner.enumerate import Choice, choose

KEPT = 32
"""So many calls are remembered to weigh plans by."""
NEVER = 50.0
"""What it counts for that a plan does not run a call at all: so many times the best one's time."""


@dataclass
class Met:
    """A call that was predicted: what the planner knew of it, the best plan's seconds, and those of plans by digest.
    `facts`: None for the call that a plan of the cache was made for."""

    facts: CallFacts | None
    planned: PlanFacts
    best: float
    seconds: dict[str, float] = field(default_factory=dict[str, float])


@dataclass
class Settled:
    """What a call gets: a variant that is there, or a plan to be made (`choice`), in the place of `spare` if any."""

    variant: Variant | None = None
    choice: Choice | None = None
    spare: Variant | None = None


class Ledger:
    """The last calls of a kernel that were predicted. `program` is the expanded one."""

    def __init__(self, program: Program, target: str) -> None:
        self.program = program
        self.target = target
        self.met: list[Met] = []
        self._plans: dict[str, Plan | None] = {}

    def settle(self, known: Sequence[Variant], facts: CallFacts, cap: int) -> Settled:
        """A variant that is as good as any plan, else a plan to be made while there are fewer than `cap` variants, or
        in the place of the one that is missed least; else the fastest."""
        planned = plan_facts(self.program, self.target, facts)
        try:
            choice = choose(self.program, planned, families(self.target))
        except (LimitError, RecursionError):  # the universal plan says what there is to say
            return Settled()
        self._recall(known)
        best = choice.plan.cost.total if choice.plan.cost is not None else inf
        call = next((m for m in self.met if m.planned == planned), None) or Met(facts, planned, best)
        self.met = [*(m for m in self.met if m is not call), call][-KEPT:]
        one = min(known, key=lambda v: self.seconds(call, v), default=None)
        least = inf if one is None else self.seconds(call, one)
        if least < inf and least <= NEAR * best:
            return Settled(one)
        # The universal plan stays: it runs what the others do not.
        if sum(not _universal(v) for v in known) < cap:
            return Settled(choice=choice)
        spare = self._spare(known, replace(choice.plan, unit=planned.unit, extents=planned.extents))
        if spare is not None:
            return Settled(choice=choice, spare=spare)
        return Settled(one if least < inf else None)

    def seconds(self, call: Met, variant: Variant) -> float:
        """Predicted seconds of a call by a variant; infinite where it does not run it, or its family cannot say."""
        digest = variant.record.digest
        if digest not in call.seconds:
            runs = call.facts is None or variant.admits(call.facts)
            call.seconds[digest] = self._priced(self._plan(variant, digest), call.planned) if runs else inf
        return call.seconds[digest]

    def _plan(self, variant: Variant, digest: str) -> Plan | None:
        if digest not in self._plans:
            self._plans[digest] = _plan(variant.record)
        return self._plans[digest]

    def _priced(self, plan: Plan | None, planned: PlanFacts) -> float:
        """Seconds of a plan as it was made: where arrays are contiguous along more axes now, it does not know."""
        if plan is None or not plan.unit <= planned.unit:
            return inf
        under = planned if plan.unit == planned.unit else replace(planned, unit=plan.unit)
        try:
            family = next(f for f in families(self.target) if f.name == plan.family)
            if family.admits(self.program, under):
                return inf
            # Of a way that a family does not try here, its cost does not know what is wrong with it; of sizes it does.
            axes = {a.name: a.values for a in family.axes(self.program, under)}
            ways = {name: value for name, value in plan.point.items() if isinstance(value, bool | str)}
            if axes.keys() != plan.point.keys() or any(value not in axes[name] for name, value in ways.items()):
                return inf
            return max(family.cost(self.program, under, plan.point).total, self._as_made(family, plan, under))
        except (TreadleError, LookupError, StopIteration, ValueError, TypeError, ArithmeticError):
            return inf

    def _as_made(self, family: Family[Any], plan: Plan, under: PlanFacts) -> float:
        """Seconds of the blocks that a plan has, where its family would cut this call by others at the same point (a
        register block of as many rows as a call has, be it one): what they took per element that they fill."""
        made = saved_facts(plan)
        if not made.extents or not isinstance(family, Grained):
            return 0.0
        has = family.grain(self.program, made, plan.point)
        if has.tiles == family.grain(self.program, under, plan.point).tiles:
            return 0.0
        return family.cost(self.program, made, plan.point).total * _filled(has, under) / _filled(has, made)

    def _recall(self, known: Sequence[Variant]) -> None:
        """Notes the calls that plans were made for, of those that came without a prediction."""
        for variant in known:
            digest = variant.record.digest
            plan = self._plan(variant, digest)
            if plan is None or any(digest in m.seconds for m in self.met):
                continue
            planned = saved_facts(plan)
            seconds = self._priced(plan, planned)
            if seconds < inf:
                self.met.append(Met(None, planned, seconds, {digest: seconds}))

    def _spare(self, known: Sequence[Variant], plan: Plan) -> Variant | None:
        """The variant that the calls so far miss least, where they miss `plan` more; None where they do not."""
        ours = [[_ratio(m, self.seconds(m, v)) for v in known] for m in self.met]
        new = [_ratio(m, self._priced(plan, m.planned)) for m in self.met]
        total = sum(log(min(row)) for row in ours)
        without = [
            sum(log(min([mine, *row[:i], *row[i + 1 :]])) for row, mine in zip(ours, new, strict=True))
            for i in range(len(known))
        ]
        least = min((i for i, v in enumerate(known) if not _universal(v)), key=without.__getitem__)
        return known[least] if without[least] < total - log(NEAR) else None


def _universal(variant: Variant) -> bool:
    return variant.record.meta["family"] == UNIVERSAL


def _filled(grain: Grain, facts: PlanFacts) -> float:
    """The points that the extents of a call span, filled up."""
    return grain.loss(facts.extents, 1) * prod(max(1, n) for n in facts.extents.values())


def _ratio(call: Met, seconds: float) -> float:
    return max(1.0, min(NEVER, seconds / call.best)) if call.best > 0 else 1.0


def _plan(record: Record) -> Plan | None:
    try:
        return Plan.from_json(str(record.meta["decisions"]))
    except (TreadleError, LookupError):
        return None


def grain(record: Record, program: Program, facts: CallFacts, target: str) -> list[Any] | None:
    """How a record's plan cuts extents, as JSON data; None where its family does not say."""
    plan = _plan(record)
    family = next((f for f in families(target) if plan is not None and f.name == plan.family), None)
    if plan is None or not isinstance(family, Grained):
        return None
    return family.grain(program, plan_facts(program, target, facts), plan.point).out()
