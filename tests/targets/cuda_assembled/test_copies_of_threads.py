"""Copies by threads, their groups, and arrivals at named barriers assemble for both architectures."""

from __future__ import annotations

import pytest
from tests.checker.random_handovers import RIGHT
from tests.checker.random_handovers import text as handed_over
from tests.checker.test_reuse import ring
from tests.targets.cuda_emit.kit import built

from treadle.machine.parse import parse_machine

TARGETS = ("cuda:sm_80", "cuda:sm_90a")


@pytest.mark.parametrize("target", TARGETS)
def test_copies_and_their_groups_are_in_the_binary(target: str) -> None:
    made = built(parse_machine(ring(3).replace("cuda:sm_80", target)))
    assert made.count("LDGSTS") >= 2 and made.count("LDGDEPBAR") >= 2 and made.count("DEPBAR") >= 2
    assert [(k.spill_stores, k.spill_loads) for k in made.cubin.kernels] == [(0, 0)]


@pytest.mark.parametrize("target", TARGETS)
def test_arrivals_and_waits_are_in_the_binary(target: str) -> None:
    text = handed_over(**RIGHT["waits at once"]).replace("cuda:sm_80", target)
    made = built(parse_machine(text))
    assert made.count("BAR") >= 4
