"""The distinguishing programs: values, plans on two targets, wrong twins, refusals, ablations."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest
from examples.distinguishing import evidence, folds, gather, one_nest, owners, ring, siblings
from tests.marks import assembler

from treadle.checker import check
from treadle.driver.plan import Plan
from treadle.driver.rewriting import derive
from treadle.machine.parse import parse_machine

PROGRAMS = {m.__name__.rpartition(".")[2]: m.PROGRAM for m in (one_nest, owners, siblings, folds, ring, gather)}
CASES = [(name, case.label) for name, program in PROGRAMS.items() for case in program.cases]

LOSES = {
    ("one_nest", "amx", "greedy-atoms"): 1.8,
    ("one_nest", "hopper", "place-early"): 1.02,
    ("owners", "unowned, avx512", "no-interface"): 1.3,
    ("owners", "unowned, hopper", "no-interface"): 1.3,
    ("siblings", "apart, avx512", "no-interface"): 1.2,
    ("siblings", "apart, hopper", "no-interface"): 1.2,
    ("folds", "sum, avx512", "no-permission"): 20.0,
    ("folds", "sum, hopper", "no-permission"): 4.0,
    ("folds", "chunks, avx512", "no-permission"): 20.0,
    ("folds", "prefixes, hopper", "no-permission"): 3.0,
    ("ring", "apart, hopper", "no-interface"): 1.2,
    ("gather", "gathered first, avx512", "no-interface"): 1.005,
    ("gather", "gathered first, hopper", "no-interface"): 1.02,
}
"""How many times as long the ablated plan is predicted to take, at least."""
LOSES_NOTHING = {
    ("one_nest", "amx", "place-early"),
    ("one_nest", "avx512", "place-early"),
    ("one_nest", "avx512", "greedy-atoms"),
    ("one_nest", "hopper", "greedy-atoms"),
    ("folds", "chunks, hopper", "no-permission"),
    ("folds", "prefixes, avx512", "no-permission"),
    ("ring", "apart, avx512", "no-interface"),
}
"""Ablations without a loss: negative results, which the pages state."""


@functools.cache
def planned(name: str, label: str) -> Plan:
    """The plan of a case, made once for all tests."""
    return PROGRAMS[name].case(label).plan()


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_the_oracle_s(name: str) -> None:
    PROGRAMS[name].right()


@pytest.mark.parametrize("name, label", CASES)
def test_plans_are_judged_and_simulated(name: str, label: str) -> None:
    program, plan = PROGRAMS[name], planned(name, label)
    assert evidence.judged(plan) == "verified"
    assert evidence.simulated(replace(program.case(label), schedules=1), plan)
    for wrong in program.wrong.get(label, ()):
        verdict = check(parse_machine(wrong.text(plan.machine()), "a wrong twin"))
        assert verdict.status != "verified", wrong.label
        assert wrong.reason in verdict.reason


@pytest.mark.parametrize("name, label", CASES)
def test_plans_are_assembled(name: str, label: str) -> None:
    plan = planned(name, label)
    if plan.decisions.target.startswith("cuda"):
        assembler()
    assert evidence.assembled(plan).endswith("bytes")


def test_every_program_has_wrong_twins_on_both_targets() -> None:
    for name, program in PROGRAMS.items():
        refused = {program.case(label).target.partition(":")[0] for label, twins in program.wrong.items() if twins}
        assert refused == {"cpu", "cuda"}, name


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_must_be_refused_is(name: str) -> None:
    program = PROGRAMS[name]
    assert program.refused
    assert {k: evidence.refusal(what) for k, (_, what) in program.refused.items()} == {
        k: code for k, (code, _) in program.refused.items()
    }


def test_every_program_has_an_ablation_and_each_says_what_it_loses() -> None:
    told = {(name, label, a) for name, p in PROGRAMS.items() for label, names in p.ablations.items() for a in names}
    assert told == LOSES.keys() | LOSES_NOTHING
    assert {name for name, _, _ in LOSES} == PROGRAMS.keys()


@pytest.mark.parametrize("name, label, ablation", sorted(LOSES.keys() | LOSES_NOTHING))
def test_what_ablations_lose(name: str, label: str, ablation: str) -> None:
    program = PROGRAMS[name]
    cost = planned(name, program.whole.get(label, label)).decisions.cost
    assert cost is not None
    whole, less = cost.total, program.case(label).seconds(ablation)
    if (name, label, ablation) in LOSES:
        assert less > LOSES[name, label, ablation] * whole
    else:
        assert 0.9 * whole < less <= 1.001 * whole


def test_forgeries_are_rejected() -> None:
    assert owners.forged().startswith("rejected: i = q depends on q")
    assert siblings.forged().startswith("rejected: insert in R0 and extract in R1 touch one element of %T")


def test_derivations_are_validated() -> None:
    assert len(derive(ring.captured(ring.f32), ring.together).steps) == 7


def test_groups_that_overlap_are_found() -> None:
    assert "parallel/interference" in gather.shows()[-1]
