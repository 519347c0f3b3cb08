"""By which steps a plan came about: kept by the plan, printed, shown, saved, replayed, and judged from the file."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.test_check_derivation import ALONE

from treadle.cli.check import run
from treadle.driver.check_steps import judge_derivation
from treadle.driver.plan import Plan
from treadle.driver.rewriting import redecide, redone, replayed, rewrite
from treadle.ir.paths import op_at, paths
from treadle.plan.steps import Step, StepUnreadable
from treadle.rules import History, Replanning, inline, split_k
from treadle.rules.refusals import OperationGone, ReplayDiffers

from . import kernels
from .test_rewriting import total

HERE = "tests/rules/kernels.py:contract"


def chunked() -> Plan:
    """A plan of a kernel under a schedule, two steps after it was planned."""
    x, w = np.ones((33, 40), np.float32), np.ones((40, 50), np.float32)
    kernel = rewrite(kernels.contract, lambda d: split_k(d, "R1", "k", 8))
    plan, step = redecide(kernel.plan(x, w, target="cpu:avx2"), "bind", workers=1)
    assert step == plan.steps[-1] and np.array_equal(plan(x, w), x @ w)
    return redone(plan, Step("guard", {"facts": ["M >= 8"]}))


@pytest.fixture(scope="module")
def plan() -> Plan:
    return chunked()


@pytest.fixture(scope="module")
def parted() -> Plan:
    """A plan whose family rewrites the program first: a sum in parts."""
    found = total.plan(np.ones(1 << 17, np.float32), target="cpu:avx2")
    assert found.derivation.family is not None
    return found


def test_a_plan_says_its_steps(plan: Plan) -> None:
    assert str(plan.derivation).splitlines() == [
        "1. factor(at=R1, arg=k, size=8) (by the schedule)",
        "2. bind(workers=1) (on the plan)",
        "3. guard(facts=[M >= 8]) (on the plan)",
    ]
    assert [step.kind for step in plan.steps] == ["factor", "bind", "guard"]
    assert "  steps:\n    1. factor(at=R1" in plan.explain()
    assert "guard(facts=[M &gt;= 8])" in plan.page() and "Steps by which it came about" in plan.page()
    alone = kernels.contract.plan(np.ones((3, 4), np.float32), np.ones((4, 5), np.float32))
    assert alone.steps == () and "steps:" not in alone.explain()


def test_it_is_saved_and_replays(plan: Plan, tmp_path: Path) -> None:
    history = plan.derivation
    history.save(tmp_path / "steps.json")
    again = History.load(tmp_path / "steps.json")
    assert again.to_json() == history.to_json() and again.steps == plan.steps
    assert again.replay() is again
    assert replayed(plan).machine() == plan.machine()
    assert replayed(plan).derivation.to_json() == history.to_json()
    way = history.decisions
    assert way.then(Step("bind", {"workers": 2})).texts == ()  # the text of that plan is not known
    edited = Plan(plan._built, plan._kernel, None, replace(way, texts=(*way.texts[:2], "")))
    with pytest.raises(ReplayDiffers, match="replaying step 2, guard"):
        replayed(edited)
    for text in ("{", "[]", '{"format": [1, 0]}', '{"format": [9, 0], "decisions": 1}'):
        with pytest.raises(StepUnreadable):
            History.from_json(text)
    data = json.loads(history.to_json())
    for part in ("schedule", "decisions"):
        with pytest.raises(StepUnreadable, match="format 9"):
            History.from_json(json.dumps({**data, part: {**data[part], "format": [9, 0]}}))
    (tmp_path / "bytes.json").write_bytes(b"\xff")
    for name, found in (("nothing.json", "No such file"), ("bytes.json", "no text")):
        with pytest.raises(StepUnreadable, match=found):
            History.load(tmp_path / name)


def test_references_go_through_all_steps(plan: Plan, parted: Plan) -> None:
    for one in (plan, parted):
        history, last = one.derivation, one.program.program
        followed = {op.keyword: (history.forward(path), op) for path, op in paths(history.schedule.start)}
        assert {"store", "load"} <= followed.keys()
        for now, op in followed.values():
            found = None if now is None else op_at(last, now)
            assert type(found) is type(op)
    family = parted.derivation.family
    unlike = History(plan.derivation.schedule, family, parted.derivation.decisions)
    assert unlike.forward("0") is None  # the family's steps are of another program
    again = rewrite(kernels.tiles, lambda d: inline(d, "%T.2")).plan(np.ones((3, 4), np.float32), target="cpu:avx2")
    way = again.derivation
    (insert,) = [path for path, op in paths(way.schedule.start) if op.keyword == "insert"]
    assert way.forward(insert) is None
    with pytest.raises(OperationGone, match="step 1, recompute"):  # the tile is no more, nor what filled it
        way.schedule.at(insert)


def test_a_saved_history_is_judged(
    plan: Plan, parted: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps, machine = tmp_path / "steps.json", tmp_path / "plan.tdm"
    plan.derivation.save(steps)
    assert run([str(steps), "--source", HERE]) == 0
    told = capsys.readouterr().out.splitlines()
    heads = [line.partition(": verified")[0] for line in told]
    assert heads == [
        "step 1, factor(at=R1, arg=k, size=8)",
        "the first plan",
        "step 2, bind(workers=1)",
        "step 3, guard(facts=[M >= 8])",
    ]
    machine.write_text(plan.machine())
    assert run([str(machine), "--derivation", str(steps), "--source", HERE]) == 0
    done = subprocess.run([sys.executable, "-c", ALONE, str(steps)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.count("verified") == 4
    parted.derivation.save(steps)
    assert run([str(steps)]) == 0
    assert "factor(at=R0, arg=t" in capsys.readouterr().out


def test_steps_without_texts_are_unknown(plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = tmp_path / "steps.json"
    way = plan.derivation.decisions
    Replanning(way.start, way.taken).save(steps)
    assert run([str(steps)]) == 2
    assert "missing: machine texts of plans" in capsys.readouterr().out
    way.save(steps)
    assert run([str(steps)]) == 0
    forged = json.loads(Replanning(way.start, way.taken).to_json())
    forged["steps"][0]["plan"]["workers"] = 7
    steps.write_text(json.dumps(forged))
    assert run([str(steps)]) == 2  # the first plan; the step is rejected all the same
    assert "the workers after bind(workers=1) is 7, not 1" in capsys.readouterr().out


def _set(data: dict[str, Any], *path: str | int, value: object) -> None:
    for key in path[:-1]:
        data = data[key]
    data[path[-1]] = value


def _columns(point: dict[str, Any]) -> None:
    point["columns"] = next(n for n in (8, 16) if n != point["columns"])


def _in_text(data: dict[str, Any], old: str, new: str) -> None:
    for one in (data["decisions"], *data["decisions"]["steps"]):
        assert old in one["machine"]
        one["machine"] = one["machine"].replace(old, new)


FORGED: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "a decision that no step made": (
        lambda d: _columns(d["decisions"]["steps"][1]["plan"]["point"]),
        "the point after guard(facts=[M >= 8]) is",
    ),
    "a step that says another value": (
        lambda d: _set(d, "decisions", "steps", 0, "args", "workers", value=2),
        "the point after bind(workers=2) is",
    ),
    "an axis that the plan does not have": (
        lambda d: _set(d, "decisions", "steps", 0, "args", value={"warps": 4}),
        "the plan has no axis warps",
    ),
    "a fact that no step named": (
        lambda d: _set(d, "decisions", "steps", 1, "args", "facts", value=["M >= 9"]),
        "the guard after guard(facts=[M >= 9]) is",
    ),
    "a text with another guard": (
        lambda d: _set(d, "decisions", "steps", 1, "machine", value=d["decisions"]["machine"]),
        "the text's guard lacks M - 8 >= 0",
    ),
    "a text for another target": (lambda d: _in_text(d, "target cpu:avx2", "target cpu:avx512"), "the text is of"),
    "a text that is none": (lambda d: _in_text(d, "kernel main", "kernel"), "a machine text that is none"),
    "a text of a wrong program": (lambda d: _in_text(d, "full -0.0", "full 1.0"), "rejected: J1"),
    "texts of another program than the schedule's last": (
        lambda d: _set(d, "schedule", "steps", value=[]),
        "the machine text is not of the program that the schedule ends with",
    ),
    "a step on the program that keeps nothing": (
        lambda d: _set(d, "schedule", "steps", 0, "kind", value="fuse"),
        "step 1, fuse(at=R1, arg=k, size=8): rejected",
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_histories(name: str, plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit, reason = FORGED[name]
    data = json.loads(plan.derivation.to_json())
    edit(data)
    (tmp_path / "steps.json").write_text(json.dumps(data))
    assert run([str(tmp_path / "steps.json")]) == 1
    assert reason in capsys.readouterr().out


def test_a_family_that_begins_elsewhere(plan: Plan, parted: Plan) -> None:
    """Each part is right by itself, and together they lead nowhere."""
    right = parted.derivation
    assert judge_derivation(right.to_json()).worst is None
    worst = judge_derivation(replace(right, schedule=plan.derivation.schedule).to_json()).worst
    assert worst is not None and "the family's steps do not begin with" in (worst.reason or "")
    worst = judge_derivation(replace(plan.derivation, family=right.family).to_json()).worst
    assert worst is not None and "not of the program that the family's steps end with" in (worst.reason or "")
