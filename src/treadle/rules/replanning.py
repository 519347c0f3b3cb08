"""A derivation of plans: a plan, the steps taken from it, and the plan after each.

It prints, is saved as JSON with the same bytes every time, and replays, as a derivation of programs does. Whether its
plans are right is not its own affair: each is realised, and the checker validates the step and judges the machine
program.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, cast

from treadle.base.errors import UserError
from treadle.plan.plan import Plan
from treadle.plan.record import read_plans
from treadle.plan.steps import FORMAT, Saved, Step, StepUnreadable
from treadle.rules.plans import AxisUnknown, narrow, replan
from treadle.rules.refusals import ReplayDiffers


def apply_to(plan: Plan, step: Step) -> tuple[Plan, Step]:
    """A recorded step on a plan done again. *Errors*: `rules/axis`; `rules/unreadable` for arguments that are none."""
    facts = step.args.get("facts")
    try:
        if step.kind != "guard":
            return replan(plan, step.kind, **cast("dict[str, Any]", dict(step.args)))
        if isinstance(facts, list) and set(step.args) == {"facts"}:
            return narrow(plan, *map(str, facts))
        found = "no list of facts"
    except AxisUnknown:
        raise
    except (TypeError, ValueError, UserError) as error:
        found = str(error).splitlines()[0]
    raise StepUnreadable(
        doing=f"applying {step}",
        found=found,
        expected="settings of the plan's axes, or a list of facts for a guard",
        hint="look at the step",
    )


@dataclass(frozen=True)
class Replanning(Saved):
    """`start`, and the steps from it with the plan after each. Immutable: `then` gives a longer one.

    `texts`: the machine text of each plan where all were realised, else none. They are what `treadle check` judges.
    """

    start: Plan
    taken: tuple[tuple[Step, Plan], ...] = ()
    texts: tuple[str, ...] = ()

    @property
    def plan(self) -> Plan:
        """The last plan."""
        return self.taken[-1][1] if self.taken else self.start

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plans: one more than steps."""
        return (self.start, *(plan for _, plan in self.taken))

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps alone."""
        return tuple(step for step, _ in self.taken)

    def then(self, step: Step, text: str = "") -> Replanning:
        """The derivation with one step more, whose plan has a machine text. *Errors*: those of `apply_to`; this one
        stays as it is."""
        plan, done = apply_to(self.plan, step)
        texts = (*self.texts, text) if self.texts and text else ()
        return replace(self, taken=(*self.taken, (done, plan)), texts=texts)

    def to_json(self) -> str:
        """The saved form: the first plan, and each step with the plan after it; with their machine texts.

        *Ensures*: `Replanning.from_json(r.to_json()) == r`, and equal ones have equal text.
        """
        told = [{"plan": json.loads(p.to_json())} for p in self.plans]
        told = [{**p, "machine": text} for p, text in zip(told, self.texts, strict=True)] if self.texts else told
        steps = [{**step.data(), **after} for step, after in zip(self.steps, told[1:], strict=True)]
        return json.dumps({"format": list(FORMAT), **told[0], "steps": steps}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Replanning:
        """The derivation that was saved; nothing is replayed. *Errors*: `rules/unreadable`."""
        found = read_plans(text)
        return cls(found.plans[0], tuple(zip(found.steps, found.plans[1:], strict=True)), found.texts)

    def replay(self) -> Replanning:
        """Every step done again. *Ensures*: the same plans. *Errors*: `rules/replay` at the first that differs."""
        again = Replanning(self.start)
        for number, (step, plan) in enumerate(self.taken, 1):
            again = again.then(step)
            if again.steps[-1] != step or again.plan != plan:
                raise ReplayDiffers(
                    doing=f"replaying step {number}, {step}, of {self.start.line()}",
                    found="another plan than the recorded one",
                    expected="the same decisions",
                    hint="it was recorded by another version, or edited",
                )
        return again

    def __str__(self) -> str:
        lines = [f"{self.start.line()}, {len(self.taken)} steps"]
        lines += [f"  {i}. {step}" for i, step in enumerate(self.steps, 1)]
        return "\n".join(lines)
