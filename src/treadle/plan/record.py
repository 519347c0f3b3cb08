"""How a plan came about, as saved: read without the rooms that make plans, so that it can be checked without them.

Three forms: steps on a program (`plan.steps.read_record`); steps on a plan, with the machine text of each plan where it
was realised; and both, the steps of a schedule on the captured program, those of the family on the expanded one, then
the steps on plans.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from treadle.ir.core import Program
from treadle.plan.plan import Plan
from treadle.plan.steps import Step, loaded, of_this_version, reading, record_of, unreadable


@dataclass(frozen=True)
class PlanRecord:
    """Plans, one more than steps, and the machine text of each (or none at all)."""

    plans: tuple[Plan, ...]
    steps: tuple[Step, ...]
    texts: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProgramRecord:
    """Programs, one more than steps."""

    programs: tuple[Program, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class History:
    """All of a plan's way. `schedule` begins with the captured program; `family` is None where that is realised."""

    schedule: ProgramRecord
    family: ProgramRecord | None
    decisions: PlanRecord


def form_of(text: str) -> str:
    """Which form a text has: "program", "plans" or "history". *Errors*: `rules/unreadable`."""
    data = loaded(text)
    return "history" if "decisions" in data else "plans" if "plan" in data else "program"


def read_plans(text: str) -> PlanRecord:
    """The steps on a plan that were saved; nothing is replayed. *Errors*: `rules/unreadable`."""
    return _plans(loaded(text))


def read_history(text: str) -> History:
    """The whole way of a plan that was saved; nothing is replayed. *Errors*: `rules/unreadable`."""
    data = loaded(text)
    if "decisions" not in data:
        raise unreadable("no decisions")
    family = data.get("family")
    return History(
        _programs(data.get("schedule")), None if family is None else _programs(family), _plans(data["decisions"])
    )


def _plans(data: Any) -> PlanRecord:
    with reading():
        told = of_this_version(data)
        steps = tuple(Step.of(s) for s in told["steps"])
        whole = [told, *told["steps"]]
        plans = tuple(Plan.from_json(json.dumps(one["plan"])) for one in whole)
        texts = tuple(str(one["machine"]) for one in whole if "machine" in one)
        if texts and len(texts) != len(plans):
            raise unreadable(f"{len(texts)} machine texts for {len(plans)} plans")
        return PlanRecord(plans, steps, texts)


def _programs(data: Any) -> ProgramRecord:
    programs, steps = record_of(data)
    return ProgramRecord(tuple(programs), tuple(steps))
