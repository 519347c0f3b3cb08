"""Plans in a user's hands: what they say, saving and loading, running under a guard."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from tests.driver import kernels as k

import treadle as td
from treadle.base.errors import TreadleError
from treadle.driver.targets import host_target, resolve
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine

A = np.arange(20 * 30, dtype=np.float32).reshape(20, 30) % 7
B = np.arange(30 * 40, dtype=np.float32).reshape(30, 40) % 5


@pytest.fixture(scope="module")
def plan() -> td.Plan:
    return k.linear_gelu.plan(A, B)


def test_what_a_plan_says(plan: td.Plan) -> None:
    text = plan.explain()
    assert "linear_gelu" in text and "judged: verified" in text and "holds when:" in text and "took: " in text
    assert str(plan.guard) and all(line.strip() in text for line in str(plan.guard).splitlines())
    assert plan.check().status == "verified"
    machine = plan.machine()
    assert print_machine(parse_machine(machine)) == machine
    assert "define" in plan.source() and plan.source() == plan.record.source
    assert plan.source_program().startswith("program linear_gelu")
    assert repr(plan).endswith(": verified>")


def test_a_plan_runs(plan: td.Plan) -> None:
    assert (plan(A, B) == A @ B).all()
    y = np.empty((20, 40), np.float32)
    assert plan(A, B, None, y) is y and (y == A @ B).all()
    other = np.ones((3, 2), np.float32), np.ones((2, 5), np.float32)  # other extents, the same guard
    assert (plan(*other) == 2).all()


def test_a_guard_that_does_not_hold(plan: td.Plan) -> None:
    with pytest.raises(TreadleError) as caught:
        plan(A, np.asfortranarray(B))
    assert caught.value.code == "plan/guard" and "unit(W, 1)" in str(caught.value)
    y = np.zeros((20, 40), np.float32)
    with pytest.raises(TreadleError) as caught:
        plan(y[:, :30], B, None, y)
    assert caught.value.code == "plan/guard" and "disjoint" in str(caught.value)
    with pytest.raises(TreadleError) as caught:
        plan(A.astype(np.float16), B.astype(np.float16))
    assert caught.value.code == "plan/guard" and (y == 0).all()


def without_lines(machine: str) -> str:
    """The text without the source lines that statements came from: a loaded plan's source is the saved program."""
    return re.sub(r" origin \d+", "", machine)


def test_saving_and_loading(plan: td.Plan, tmp_path: Path) -> None:
    first, second = tmp_path / "a.plan", tmp_path / "b.plan"
    plan.save(first)
    loaded = td.load(first, k.linear_gelu)
    loaded.save(second)
    assert first.read_bytes() == second.read_bytes()
    assert without_lines(loaded.machine()) == without_lines(plan.machine()) and loaded.decisions == plan.decisions
    assert (loaded(A, B) == A @ B).all()
    assert td.load(first).check().status == "verified"
    assert "judged: verified" in td.load(first).explain()


@pytest.mark.parametrize(
    "edit, code",
    [
        (lambda t: "", "plan/unreadable"),
        (lambda t: "{}", "plan/unreadable"),
        (lambda t: "\0\1\2", "plan/unreadable"),
        (lambda t: t.partition("\n--- program")[0], "plan/unreadable"),
        (lambda t: t.replace(" 1,\n  1\n", " 2,\n  1\n", 1), "plan/unreadable"),
        (lambda t: t.replace('"family": "', '"family": "no ', 1), "plan/none"),
        (lambda t: t.replace("program linear_gelu", "programme", 1), "text/syntax"),
    ],
    ids=["empty", "no fields", "bytes", "no program", "version", "family", "program"],
)
def test_files_that_do_not_load(plan: td.Plan, tmp_path: Path, edit: object, code: str) -> None:
    path = tmp_path / "a.plan"
    plan.save(path)
    text = path.read_text()
    changed = edit(text)
    assert changed != text
    path.write_text(changed)
    with pytest.raises(TreadleError) as caught:
        td.load(path)
    assert caught.value.code == code


def test_every_edit_of_the_point_is_judged_or_refused(plan: td.Plan, tmp_path: Path) -> None:
    """A number of the decisions changed at a time: what loads is verified, the rest has a code."""
    path = tmp_path / "a.plan"
    plan.save(path)
    head, mark, program = path.read_text().partition('"workers"')
    outcomes: set[str] = set()
    for name, value in plan.decisions.point.items():
        if isinstance(value, bool) or not isinstance(value, int):
            continue
        for new in (0, -1, value + 1, "x"):
            path.write_text(head.replace(f'"{name}": {value}', f'"{name}": {new!r}'.replace("'", '"')) + mark + program)
            try:
                loaded = td.load(path, k.linear_gelu)
            except TreadleError as error:
                outcomes.add(error.code)
                continue
            assert loaded.check().status == "verified"
            outcomes.add("verified")
    assert outcomes <= {"verified", "plan/unreadable", "plan/unverified", "realise/unsupported", "plan/none"}


@pytest.mark.parametrize(("m", "n", "k_"), [(40, 24, 8), (700, 1000, 300), (2048, 512, 4099)])
@pytest.mark.parametrize("target", ["cpu:avx512", "cuda:sm_90a"])
def test_a_loaded_plan_is_the_plan_that_was_saved(m: int, n: int, k_: int, target: str, tmp_path: Path) -> None:
    made = [
        k.linear_gelu.plan(td.like(td.bf16, m, k_), td.like(td.bf16, k_, n), target=target),
        k.double.plan(td.like(td.f32, m * n), target=target),
    ]
    for i, plan in enumerate(made):
        plan.save(tmp_path / f"{i}.plan")
        again = td.load(tmp_path / f"{i}.plan")
        assert again.decisions == plan.decisions
        lines = [re.sub(r" origin \d+", "", p.machine()) for p in (again, plan)]  # of this file, and of the saved text
        assert lines[0] == lines[1]
        again.save(tmp_path / "again.plan")
        assert (tmp_path / "again.plan").read_bytes() == (tmp_path / f"{i}.plan").read_bytes()


def test_a_loaded_plan_without_its_kernel(plan: td.Plan, tmp_path: Path) -> None:
    plan.save(tmp_path / "a.plan")
    with pytest.raises(TreadleError) as caught:
        td.load(tmp_path / "a.plan")(A, B)
    assert caught.value.code == "plan/target-absent"


def test_planning_needs_no_arrays() -> None:
    x, w = td.like(td.bf16, 64, 64), td.like(td.bf16, 64, 64, strides=(1, 64), align=64)
    plan = k.linear_gelu.plan(x, w, target="cpu:avx2")
    assert plan.decisions.target == "cpu:avx2" and plan.check().status == "verified"
    y = td.like(td.f32, 64, 64)
    assert k.linear_gelu.plan(x, w, None, y).check().status == "verified"
    assert "bf16" in str(plan.source_program())


def test_pins() -> None:
    plan = k.linear_gelu.plan(A, B, where=[td.atom("acc", "fma")], target="cpu:avx2")
    assert plan.decisions.point["atom"] == "fma"
    alone = k.linear_gelu.plan(A, B, where=td.atom("acc", "fma"), target="cpu:avx2")
    assert alone.decisions.to_json() == plan.decisions.to_json()
    for pin in (td.atom("acc", "wgmma"), td.place("acc", "shared"), td.versions("X", 9), td.tile(zz=3)):
        with pytest.raises(TreadleError) as caught:
            k.linear_gelu.plan(A, B, where=[pin], target="cpu:avx2")
        assert caught.value.code == ("plan/pin-name" if pin == td.tile(zz=3) else "plan/pin-refused")


def test_targets() -> None:
    assert resolve("cpu") == host_target() and resolve("cuda") == "cuda:sm_90a"
    assert resolve("cpu:avx2") == "cpu:avx2"
    for name in ("", "cpu:sse", "gpu", "cuda:sm_10", "cpu:avx2:x"):
        with pytest.raises(TreadleError) as caught:
            k.double.plan(A[0], target=name)
        assert caught.value.code == "plan/target"


def test_a_plan_for_a_better_machine_does_not_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = k.double.plan(A[0], target="cpu:avx512")
    monkeypatch.setattr("treadle.driver.plan.host_target", lambda: "cpu:avx2")
    with pytest.raises(TreadleError) as caught:
        plan(A[0])
    assert caught.value.code == "plan/target-absent"
