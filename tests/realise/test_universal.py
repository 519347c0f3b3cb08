"""The universal plan: every sample program, judged, printed and parsed, and simulated against the interpreter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.realise.oracle import EXTENTS, Arrays, agrees
from tests.realise.texts import TEXTS, program

from treadle.checker import check
from treadle.ir.guard import Disjoint
from treadle.machine.form import Tasks
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.realise.universal import task_regions, universal
from treadle.simulate.run import simulate

NAMES = sorted(TEXTS)
# Simulating a step costs microseconds: the larger programs are run natively by the tests of the CPU target.
SIMULATED = [
    n for n in NAMES if not n.startswith(("attention", "linear_", "batched", "swiglu", "conv", "mlp", "norm_"))
]


@pytest.mark.parametrize("name", NAMES)
def test_it_is_verified_for_all_sizes(name: str) -> None:
    verdict = check(universal(program(name), "cpu:avx2"))
    assert verdict.status == "verified", str(verdict)


@pytest.mark.parametrize("name", NAMES)
def test_its_text_reads_back(name: str) -> None:
    text = print_machine(universal(program(name), "cpu:avx2"))
    assert print_machine(parse_machine(text)) == text


@pytest.mark.parametrize("disjoint", [True, False])
@pytest.mark.parametrize("name", SIMULATED)
def test_it_gives_what_the_program_means(name: str, disjoint: bool) -> None:
    source = program(name)
    machine = universal(source, "cpu:avx2", disjoint=disjoint)

    def run(arrays: Arrays) -> Mapping[str, Any]:
        done = simulate(machine, arrays, seed=3)
        assert done.clean, done.findings
        return done.outputs

    for extents in EXTENTS[name]:
        agrees(name, source, run, extents)


def test_overlapping_arguments_need_no_promise() -> None:
    apart = universal(program("softmax"), "cpu:avx2")
    together = universal(program("softmax"), "cpu:avx2", disjoint=False)
    assert any(isinstance(f, Disjoint) for f in apart.guard.facts)
    assert not any(isinstance(f, Disjoint) for f in together.guard.facts)
    # The row is copied before anything is stored.
    assert len(together.kernels[0].buffers) > len(apart.kernels[0].buffers)


def test_the_outermost_parallel_regions_are_tasks() -> None:
    assert task_regions(program("two_phases")) == ["R0", "R1"]
    assert task_regions(program("swap")) == []
    machine = universal(program("two_phases"), "cpu:avx2")
    assert sum(isinstance(s, Tasks) for s in machine.statements()) == 2
