"""The machine programs, the planned one and the universal one, under adversarial schedules, against the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.differential.cases import CASES, Case, Sizes, off
from tests.differential.test_calls import arguments, cycle

from treadle.driver.build import choose
from treadle.driver.specialisation import UNIVERSAL
from treadle.driver.targets import host_target
from treadle.machine.form import MachineProgram
from treadle.simulate.run import simulate

HOST = host_target()
GPU = "cuda:sm_90a"


def machine(case: Case, passed: dict[str, Any], target: str, family: str | None) -> MachineProgram:
    special, call = case.kernel.prepare((), {**passed, **case.staged}, kind=target.partition(":")[0])
    return choose(special.program, target, special.facts(call), family=family).machine


def trial(case: Case, sizes: Sizes, target: str, family: str | None, seeds: range) -> None:
    passed, _ = arguments(case, sizes, cycle(0), 5)
    wants = case.wants(passed)
    program = machine(case, passed, target, family)
    for seed in seeds:
        what = f"{case} on {target}, {family or 'best'} plan, at {sizes}, seed {seed}"
        schedule = "random" if seed else "program"
        run = simulate(program, passed, seed=seed, schedule=schedule, symbols={"processors": 2})
        assert run.clean, f"{what}: {run.findings[0]}"
        for name, (want, bound) in wants.items():
            got = run.outputs.get(name, np.zeros(0))
            assert off(got, want, bound) == "", f"{what}: {name}"


EVERYWHERE = [pytest.param(c, t, id=f"{c}-{t}") for c in CASES for t in (HOST, GPU)]


@pytest.mark.parametrize("case, target", EVERYWHERE)
def test_the_best_plan(case: Case, target: str) -> None:
    for sizes in case.tiny:
        trial(case, sizes, target, None, range(2))


@pytest.mark.parametrize("case, target", EVERYWHERE)
def test_the_universal_plan(case: Case, target: str) -> None:
    for sizes in case.tiny[:2]:
        trial(case, sizes, target, UNIVERSAL, range(1, 2))
