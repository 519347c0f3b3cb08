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


def machine(case: Case, passed: dict[str, Any], family: str | None) -> MachineProgram:
    special, call = case.kernel.prepare((), {**passed, **case.staged})
    return choose(special.program, host_target(), special.facts(call), family=family).machine


def trial(case: Case, sizes: Sizes, family: str | None, seeds: range) -> None:
    passed, _ = arguments(case, sizes, cycle(0), 5)
    wants = case.wants(passed)
    program = machine(case, passed, family)
    for seed in seeds:
        run = simulate(program, passed, seed=seed, schedule="random" if seed else "program")
        assert run.clean, f"{case} {family} at {sizes}, seed {seed}: {run.findings[0]}"
        for name, (want, bound) in wants.items():
            got = run.outputs.get(name, np.zeros(0))
            assert off(got, want, bound) == "", f"{case} {family} at {sizes}, seed {seed}: {name}"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_best_plan(case: Case) -> None:
    for sizes in case.tiny:
        trial(case, sizes, None, range(2))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_universal_plan(case: Case) -> None:
    for sizes in case.tiny[:2]:
        trial(case, sizes, UNIVERSAL, range(2))
