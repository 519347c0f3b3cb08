"""A kernel on arguments whose plans can be timed one by one: what calibration and regret measure."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from treadle.base.errors import TreadleError
from treadle.driver.build import assemble, restore
from treadle.driver.candidates import families, plan_facts
from treadle.driver.record import Record, fetch, fingerprint, keep
from treadle.driver.targets import place_of
from treadle.driver.tuning_space import distance, space
from treadle.driver.variants import load
from treadle.plan.cost import CostVector
from treadle.plan.facts import CallFacts
from treadle.plan.plan import Plan
from treadle.runtime.cache import content_key
from treadle.runtime.launch import Block, CpuLaunch

Run = Callable[[], Any]


@dataclass(frozen=True)
class Made:
    """A plan that runs. `digest`: the same for plans that are the same code."""

    run: Run
    digest: str


@dataclass(frozen=True)
class Refused:
    """Why a plan cannot be timed."""

    reason: str


class Subject:
    """A kernel on arguments. The arguments are those of every run: outputs are overwritten."""

    def __init__(self, kernel: Any, args: Sequence[Any], staged: Mapping[str, Any] | None = None) -> None:
        self.special, self.call = kernel.prepare(tuple(args), dict(staged or {}))
        self.target = place_of(self.call.device).target
        self.facts: CallFacts = plan_facts(self.special.expanded, self.target, self.special.facts(self.call))
        self.block = self.packed()
        self.families = {f.name: f for f in families(self.target)}

    def plans(self) -> tuple[Plan, ...]:
        """The declared space but for the universal plan, in order of predicted times."""
        return space(self.special.expanded, self.facts, list(self.families.values())).plans

    def cost(self, plan: Plan, seconds: Mapping[str, float] | None = None) -> CostVector:
        """What a plan is predicted to take, under other coefficients if these are given."""
        facts = self.facts if seconds is None else replace(self.facts, coefficients=seconds)
        return self.families[plan.family].cost(self.special.expanded, facts, plan.point)

    def make(self, plan: Plan) -> Made | Refused:
        """The plan, realised, judged, compiled and loaded. What was compiled before comes from the cache."""
        key = content_key("subject", fingerprint(), self.special.text, plan.to_json())
        try:
            record = fetch(key) or self._made(plan, key)
        except TreadleError as error:
            return Refused(f"{error.code}: {' '.join(error.found.split())}")
        if isinstance(record, Refused):
            return record
        kernel = load(record, self.special.signature).kernel
        # Made ready once: the host's part of a call, room for its buffers included, is no part of a plan.
        if self.target.startswith("cuda"):
            return Made(kernel.ready(self.block), record.digest)
        return Made(CpuLaunch(kernel, self.packed(), None), record.digest)

    def packed(self) -> Block:
        """The arguments as a kernel reads them."""
        return self.special.packer.pack(self.special.arguments(self.call))

    def _made(self, plan: Plan, key: str) -> Record | Refused:
        record = assemble(restore(plan, self.special.program))
        if record.meta["late"]:
            return Refused("; ".join(record.meta["late"]))
        keep(key, record)
        return record


def sample(plans: Sequence[Plan], most: int, seed: int = 0) -> list[Plan]:
    """The plans to measure: all when they are few; else the cheapest by prediction, those that differ from the cheapest
    in one decision, the cheapest of each family, and others by lot, in that order of right."""
    if len(plans) <= most:
        return list(plans)
    first = plans[0]
    near = [p for p in plans if distance(first, p) == 1]
    heads = list({p.family: p for p in reversed(plans)}.values())
    rest = list(plans)
    random.Random(seed).shuffle(rest)
    quota = [first, *heads, *plans[1 : most // 4], *near[: most // 2], *rest]
    found: dict[str, Plan] = {}
    for plan in quota:
        if len(found) == most:
            break
        found.setdefault(plan.line(), plan)
    return sorted(found.values(), key=lambda p: p.cost.total if p.cost is not None else 0.0)
