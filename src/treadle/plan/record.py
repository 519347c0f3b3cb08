"""How a plan came about, as saved: read without the rooms that make plans, so that it can be checked without them.

Three forms: steps on a program (`plan.steps.read_record`); steps on a plan, with the machine text of each plan where it
was realised; and both, the steps of a schedule on the captured program, those of the family on the expanded one, then
the steps on plans.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from treadle.base.errors import TreadleError
from treadle.ir.core import Program
from treadle.plan.plan import Plan
from treadle.plan.steps import FORMAT, Step, StepUnreadable, read_record, unreadable


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
    data = _loaded(text)
    return "history" if "decisions" in data else "plans" if "plan" in data else "program"


def read_plans(text: str) -> PlanRecord:
    """The steps on a plan that were saved; nothing is replayed. *Errors*: `rules/unreadable`."""
    data = _loaded(text)
    try:
        steps = tuple(Step.of(s) for s in data["steps"])
        whole = [data, *data["steps"]]
        plans = tuple(_plan(one["plan"]) for one in whole)
        texts = tuple(str(one["machine"]) for one in whole if "machine" in one)
        if texts and len(texts) != len(plans):
            raise unreadable(f"{len(texts)} machine texts for {len(plans)} plans")
        return PlanRecord(plans, steps, texts)
    except StepUnreadable:
        raise
    except (AttributeError, LookupError, ValueError, TypeError, RecursionError, TreadleError) as error:
        raise unreadable(str(error).splitlines()[0]) from error


def read_history(text: str) -> History:
    """The whole way of a plan that was saved; nothing is replayed. *Errors*: `rules/unreadable`."""
    data = _loaded(text)
    if "decisions" not in data:
        raise unreadable("no decisions")
    family = data.get("family")
    return History(
        _programs(data.get("schedule")),
        None if family is None else _programs(family),
        read_plans(json.dumps(data["decisions"])),
    )


def _programs(data: object) -> ProgramRecord:
    programs, steps = read_record(json.dumps(data))
    return ProgramRecord(tuple(programs), tuple(steps))


def _loaded(text: str) -> dict[str, Any]:
    try:
        data = cast("dict[str, Any]", json.loads(text))
        if data["format"][0] != FORMAT[0]:
            raise unreadable(f"format {'.'.join(map(str, data['format']))}")
        return data
    except StepUnreadable:
        raise
    except (LookupError, ValueError, TypeError, RecursionError) as error:
        raise unreadable(str(error).splitlines()[0]) from error


def _plan(data: Mapping[str, Any]) -> Plan:
    return Plan.from_json(json.dumps(data))
