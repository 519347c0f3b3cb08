"""The universal plan on CUDA: one thread a task, one launch a stretch, right on every schedule tried."""

from __future__ import annotations

import pytest
from tests.realise.texts import TEXTS, program
from tests.targets.cuda.cuda_kit import tried

import treadle as td
from treadle.checker import check
from treadle.lib.stencils import jacobi
from treadle.machine.form import Tasks
from treadle.plan.facts import contiguous
from treadle.targets.cuda.universal import Universal

EXTENTS = {"M": 5, "N": 7, "K": 6, "B": 2, "H": 2, "Q": 3, "S": 4, "T": 5, "V": 4, "W": 6, "A": 3, "C": 4, "D": 3}
NAMES = ("softmax", "layernorm", "linear_bf16", "attention", "swiglu", "two_phases", "recurrence", "stencil", "batched")


@pytest.mark.parametrize("name", NAMES)
def test_simulated_equals_interpreted(name: str) -> None:
    source = program(name)
    sizes = {d.name: d.extent.constant or EXTENTS[d.name] for d in source.dims}
    family, facts = Universal(), contiguous(source, "cuda:sm_90a", sizes)
    machine = family.build(source, facts, {}, family.guard(source, facts, {}))
    tried(machine, source, sizes, tolerance=1e-2)
    assert check(machine).status == "verified"


def test_each_task_region_is_a_launch() -> None:
    source = program("two_phases")
    facts = contiguous(source, "cuda:sm_90a", {"M": 5, "N": 7})
    family = Universal()
    machine = family.build(source, facts, {}, family.guard(source, facts, {}))
    assert [x.kernel for x in machine.host.launches] == ["part0", "part1"]
    nests = [s for s in machine.statements() if isinstance(s, Tasks)]
    assert [t.over for t in nests] == ["threads", "threads"]
    assert {b.name for b in machine.host.workspace} == {"b_t"}


def test_what_stands_outside_regions_is_one_thread() -> None:
    source = program("swap")
    facts = contiguous(source, "cuda:sm_90a", {"T": 5})
    family = Universal()
    machine = family.build(source, facts, {}, family.guard(source, facts, {}))
    assert [x.threads for x in machine.host.launches] == [1]
    assert "swap" in TEXTS


def test_parallel_regions_below_ordered_ones_are_walked_by_a_thread() -> None:
    """A launch cannot be repeated from inside a kernel: these run in one thread, and are verified."""
    given = td.like(td.f32, 6, 7), td.like(td.f32, 6, 7)
    plan = jacobi.plan(*given, steps=2, target="cuda:sm_90a")
    assert plan.check().status == "verified"
    assert plan.decisions.family == "universal"
