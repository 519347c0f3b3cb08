"""Plans that the judge or realisation refuses: the next points of the family stand for it, and everyone can see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.driver import kernels as k

import treadle as td
from treadle.checker.verdict import Verdict
from treadle.driver import build
from treadle.driver.candidates import AGAIN, Candidate
from treadle.ir.expand import expand
from treadle.ir.guard import Disjoint, Guard
from treadle.machine.form import MachineProgram
from treadle.plan.plan import Plan
from treadle.realise.choices import LoweringBroken
from treadle.rules.derivation import Derivation

M = td.dims("M")
ARGS = [td.like(td.f32, 96, 128), td.like(td.f32, 128, 80)]


@td.kernel
def total(X: td.Tensor[M], S: td.Out[()] = None):
    s = td.zeros()
    for m in td.reduce(M):
        s = s + X[m].sum(m)
    S[()] = s


def judge_by(patch: pytest.MonkeyPatch, refusal: Callable[[Plan, int], Verdict | None]) -> list[Plan]:
    """Plans as they come to the judge, which `refusal` may refuse: it is given how many of the family came before."""
    seen: list[Plan] = []
    true = build.judged

    def judged(program: Any, candidate: Candidate, machine: MachineProgram) -> Verdict:
        before = sum(p.family == candidate.plan.family for p in seen)
        seen.append(candidate.plan)
        return refusal(candidate.plan, before) or true(program, candidate, machine)

    patch.setattr(build, "judged", judged)
    return seen


def unknown(reason: str) -> Verdict:
    return Verdict("unknown", "J1", reason=reason, missing="a fact")


def test_the_next_point_of_the_family_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    best = k.linear_gelu.plan(*ARGS, target="cpu:avx2").decisions
    seen = judge_by(monkeypatch, lambda plan, before: unknown("no rule") if plan.point == best.point else None)
    plan = k.linear_gelu.plan(*ARGS, target="cpu:avx2")
    assert [p.family for p in seen] == [best.family] * 2
    assert seen[0].point == best.point != seen[1].point == plan.decisions.point
    text = plan.explain()
    assert text.startswith(f"{plan.decisions.line()}\n")
    assert f"tried and not taken: {best.line()}" in text and "unknown: J1: no rule" in text
    assert build.make(plan.program.program, "cpu:avx2", facts_of(plan)).meta["unverified"] == 1


def facts_of(plan: Any) -> Any:
    """The facts of the call that a plan was made for."""
    special, call = k.linear_gelu.prepare(tuple(ARGS), {}, allocate=False)
    assert special.program.name == plan.program.program.name
    return special.facts(call)


def test_a_family_has_few_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Points are tried in order of predicted time; refused for one reason twice, or as often as allowed, the family is
    left; the universal plan is always reached."""
    for say, most in ((lambda n: "the same", 2), (lambda n: f"reason {n}", 1 + AGAIN)):
        with monkeypatch.context() as patch:
            seen = judge_by(patch, lambda plan, n, say=say: None if plan.family == "universal" else unknown(say(n)))
            plan = k.linear_gelu.plan(*ARGS, target="cpu:avx2")
        assert plan.decisions.family == "universal"
        turns = [p.family for p in seen[:-1]]
        assert turns and {turns.count(f) for f in turns} == {most}
        times = [p.cost.total for p in seen[:-1] if p.cost is not None]
        assert times == sorted(times) and len(times) == len(turns)
        assert len({p.line() for p in seen}) == len(seen)


def derived() -> tuple[Any, Candidate, MachineProgram]:
    """The captured program of a plan whose family rewrites it first, the candidate and its machine program."""
    plan = total.plan(td.like(td.f32, 1 << 20), target="cpu:avx2")
    built = plan._built
    assert built.candidate.derive() is not None
    return built.captured, built.candidate, built.machine


class NeedsApart(Derivation):
    """Steps that are right only where X and S share no element."""

    @property
    def disjoint(self) -> tuple[tuple[str, str], ...]:
        return (("X", "S"),)


def ways() -> list[tuple[str, Callable[[Any, Candidate, MachineProgram], tuple[Candidate, MachineProgram]]]]:
    def elsewhere(program: Any, candidate: Candidate, machine: MachineProgram) -> Any:
        other = expand(k.double.plan(td.like(td.f32, 8), target="cpu:avx2")._built.captured)
        return replace(candidate, derive=lambda: Derivation(other)), machine

    def astray(program: Any, candidate: Candidate, machine: MachineProgram) -> Any:
        return replace(candidate, derive=lambda: Derivation(expand(program))), machine

    def together(program: Any, candidate: Candidate, machine: MachineProgram) -> Any:
        way = candidate.derive()
        assert way is not None
        machine.guard = Guard(tuple(f for f in machine.guard.facts if not isinstance(f, Disjoint)))
        return replace(candidate, derive=lambda: NeedsApart(way.start, way.taken)), machine

    return [
        ("steps that begin at another program than the captured one, expanded", elsewhere),
        ("a machine program of another program than the steps lead to", astray),
        ("steps that need arrays apart of which the guard says nothing", together),
    ]


@pytest.mark.parametrize(("found", "change"), ways(), ids=["begin", "end", "guard"])
def test_steps_that_do_not_lead_to_the_machine_program(found: str, change: Any) -> None:
    program, candidate, machine = derived()
    assert build.judged(program, candidate, machine).status == "verified"
    with pytest.raises(LoweringBroken) as caught:
        build.judged(program, *change(program, candidate, machine))
    assert caught.value.code == "realise/broken" and caught.value.found == found


def test_a_broken_derivation_is_noted_and_other_plans_run(monkeypatch: pytest.MonkeyPatch) -> None:
    way = total.plan(td.like(td.f32, 1 << 20), target="cpu:avx2").decisions.family
    true = build.judged

    def judged(program: Any, candidate: Candidate, machine: MachineProgram) -> Verdict:
        if candidate.plan.family == way:
            raise LoweringBroken(
                doing="realising", found="steps astray", expected="others", pass_name="realise", before=""
            )
        return true(program, candidate, machine)

    monkeypatch.setattr(build, "judged", judged)
    plan = total.plan(td.like(td.f32, 1 << 20), target="cpu:avx2")
    assert plan.decisions.family != way and plan.check().status == "verified"
    assert "realise/broken: steps astray" in plan.explain()
