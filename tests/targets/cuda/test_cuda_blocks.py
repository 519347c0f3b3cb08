"""Contractions by multiply-add out of shared memory."""

from __future__ import annotations

import pytest
from tests.realise.texts import program
from tests.targets.cuda.cuda_kit import tried

from treadle.checker import check
from treadle.plan.facts import contiguous
from treadle.targets.cuda.blocks import Blocks


@pytest.mark.parametrize("name", ["linear", "linear_t", "linear_bf16", "swiglu", "batched"])
def test_any_format_and_storage_order(name: str) -> None:
    source = program(name)
    sizes = {"M": 70, "N": 75, "K": 21, "B": 2}
    family, facts = Blocks(), contiguous(source, "cuda:sm_80", sizes)
    assert family.admits(source, facts) == []
    point = {"rows": 64, "columns": 64, "step": 16, "raster": "row"}
    machine = family.build(source, facts, point, family.guard(source, facts, point))
    tried(machine, source, sizes, tolerance=1e-4)
    assert check(machine).status == "verified"


def test_a_chain_is_refused() -> None:
    source = program("attention")
    facts = contiguous(source, "cuda:sm_90a", {"B": 1, "H": 1, "Q": 64, "S": 64})
    (reason,) = Blocks().admits(source, facts)
    assert "chain of contractions" in reason
