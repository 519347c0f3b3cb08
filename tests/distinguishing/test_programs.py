"""The distinguishing programs: values, plans on two targets, wrong twins, refusals, ablations."""

from __future__ import annotations

from dataclasses import replace

import pytest
from examples.distinguishing import evidence, folds, gather, one_nest, owners, ring, siblings

from treadle.checker import check
from treadle.driver.rewriting import derive
from treadle.machine.parse import parse_machine

PROGRAMS = {m.__name__.rpartition(".")[2]: m.PROGRAM for m in (one_nest, owners, siblings, folds, ring, gather)}
CASES = [(name, case.label) for name, program in PROGRAMS.items() for case in program.cases]
ASSEMBLED = {"hopper", "amx", "zipped, hopper", "kept, avx512"}
"""Cases whose object is made here too; the others are assembled by the commands of docs/claims."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_the_oracle_s(name: str) -> None:
    PROGRAMS[name].right()


@pytest.mark.parametrize("name, label", CASES)
def test_plans_are_judged_and_simulated(name: str, label: str) -> None:
    program = PROGRAMS[name]
    case = replace(program.case(label), schedules=1)
    plan = case.plan()
    assert evidence.judged(plan) == "verified"
    assert evidence.simulated(case, plan)
    for wrong in program.wrong.get(label, ()):
        verdict = check(parse_machine(wrong.text(plan.machine()), "a wrong twin"))
        assert verdict.status != "verified", wrong.label
    if label in ASSEMBLED:
        assert evidence.assembled(plan).endswith(("bytes", "here"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_must_be_refused_is(name: str) -> None:
    program = PROGRAMS[name]
    assert program.refused
    assert {k: evidence.refusal(what) for k, (_, what) in program.refused.items()} == {
        k: code for k, (code, _) in program.refused.items()
    }


def test_planning_too_early_costs() -> None:
    case = one_nest.PROGRAM.case("amx")
    assert case.seconds("place-early") > 1.05 * case.seconds()
    assert case.seconds("greedy-atoms") >= case.seconds()


def test_scopes_by_themselves_cost() -> None:
    for target in ("avx512", "hopper"):
        apart = siblings.PROGRAM.case(f"apart, {target}").seconds("no-interface")
        assert apart > 1.2 * siblings.PROGRAM.case(f"zipped, {target}").seconds()
    assert ring.PROGRAM.case("hopper").seconds() < ring.PROGRAM.case("apart, hopper").seconds("no-interface")


def test_forgeries_are_rejected() -> None:
    assert owners.forged().startswith("rejected: i = q depends on q")
    assert siblings.forged().startswith("rejected: insert in R0 and extract in R1 touch one element of %T")


def test_derivations_are_validated() -> None:
    assert len(derive(ring.captured(ring.f32), ring.together).steps) == 7


def test_groups_that_overlap_are_found() -> None:
    assert "parallel/interference" in gather.shows()[-1]
