"""Universal and row plans of the sample programs assemble clean, for Hopper and for what came before."""

from __future__ import annotations

import pytest
from tests.realise.texts import TEXTS, program
from tests.targets.cuda_emit.kit import built, cubin

from treadle.analysis.uses import Uses
from treadle.ir.guard import Guard
from treadle.machine.form import MachineProgram
from treadle.plan.facts import contiguous
from treadle.realise.choices import Choices
from treadle.realise.threads import one_thread_each
from treadle.realise.universal import base_facts, task_regions
from treadle.targets.cuda.rows import Rows


def universal(name: str, target: str) -> MachineProgram:
    source = program(name)
    guard = Guard(tuple(base_facts(source, Uses(source), disjoint=True)))
    return one_thread_each(source, Choices(tasks=frozenset(task_regions(source))), guard, target, 1056)


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_universal_plans_assemble_clean(name: str) -> None:
    made = cubin(universal(name, "cuda:sm_90a"), name)
    assert made.messages == ()
    assert all(k.spill_stores == 0 for k in made.kernels)


@pytest.mark.parametrize("name", ["softmax_bf16", "ragged", "attention"])
def test_they_need_nothing_of_hopper(name: str) -> None:
    assert cubin(universal(name, "cuda:sm_80"), name).messages == ()


@pytest.mark.parametrize("warps", [1, 8])
def test_rows_move_sixteen_bytes_at_a_time(warps: int) -> None:
    source = program("softmax_bf16")
    facts = contiguous(source, "cuda:sm_90a", {"M": 4096, "N": 1024 * warps})
    point = {"warps": warps, "held": True}
    family = Rows()
    made = built(family.build(source, facts, point, family.guard(source, facts, point)))
    assert made.cubin.messages == ()
    assert made.count("LDG.E.128") == made.count("LDG") == 4
    assert made.count("STG.E.128") == made.count("STG") == 4
    # A fold across lanes costs one exchange a bit: five for the maximum, five for the sum; a warp a row has two rows.
    assert made.count("SHFL") in (10, 20)
    assert made.count("LDL") == made.count("STL") == 0
