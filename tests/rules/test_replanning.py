"""Derivations of plans: printed, saved, loaded and replayed; edited ones are found out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import treadle as td
from treadle.checker.derivation_plans import validate_plan
from treadle.driver.build import restore
from treadle.driver.plan import Plan
from treadle.plan.steps import Step, StepUnreadable
from treadle.rules import Replanning
from treadle.rules.plans import AxisUnknown
from treadle.rules.refusals import ReplayDiffers

from . import kernels

STEPS = (
    Step("retime", {"versions": 3}),
    Step("bind", {"consumers": 1, "raster": "row"}),
    Step("distribute", {"columns": 128}),
    Step("guard", {"facts": ["M >= 8", "K >= 64"]}),
)


def derived() -> tuple[Plan, Replanning]:
    x, w = td.like(td.bf16, 4096, 4096, align=256), td.like(td.bf16, 4096, 4096, align=256)
    plan = kernels.contract.plan(x, w, target="cuda:sm_90a")
    found = Replanning(plan.decisions)
    for step in STEPS:
        found = found.then(step)
    return plan, found


def test_they_print_are_saved_and_replay(tmp_path: Path) -> None:
    plan, found = derived()
    assert found.steps == STEPS and len(found.plans) == 5
    assert str(found).splitlines()[1:] == [
        "  1. retime(versions=3)",
        "  2. bind(consumers=1, raster=row)",
        "  3. distribute(columns=128)",
        "  4. guard(facts=[M >= 8, K >= 64])",
    ]
    found.save(tmp_path / "steps.json")
    again = Replanning.load(tmp_path / "steps.json")
    assert again == found and again.to_json() == found.to_json()
    assert again.replay() == found
    machines = [restore(decisions, plan.captured).machine for decisions in again.plans]
    for before, step, after in zip(machines, again.steps, machines[1:]):
        assert validate_plan(before, step, after).status == "verified"


def test_edited_and_broken_ones(tmp_path: Path) -> None:
    _, found = derived()
    data = json.loads(found.to_json())
    data["steps"][0]["plan"]["point"]["versions"] = 2
    with pytest.raises(ReplayDiffers) as differs:
        Replanning.from_json(json.dumps(data)).replay()
    assert "step 1, retime(versions=3)" in differs.value.doing
    data["steps"][0]["kind"] = "bind"
    with pytest.raises(AxisUnknown):
        Replanning.from_json(json.dumps(data)).replay()
    for text in (
        "[]",
        "{",
        '{"format": [9, 0]}',
        json.dumps({**data, "plan": {}}),
        json.dumps({**data, "steps": [{}]}),
    ):
        with pytest.raises(StepUnreadable):
            Replanning.from_json(text)
    with pytest.raises(StepUnreadable):
        Replanning.load(tmp_path / "nothing.json")
    with pytest.raises(StepUnreadable):
        found.then(Step("guard", {"facts": "M >= 8"}))
    with pytest.raises(StepUnreadable):
        found.then(Step("guard", {"facts": ["M >"]}))
    with pytest.raises(AxisUnknown):
        found.then(Step("split", {"columns": 64}))
