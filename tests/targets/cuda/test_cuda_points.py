"""A seeded sample of random points over random region graphs (`benchmarks/device/points.py` draws hundreds)."""

from __future__ import annotations

from random import Random

import pytest
from tests.targets.cuda.cuda_kit import clean, tried
from tests.targets.cuda.graphs import draw

from treadle.checker import check
from treadle.targets.cuda.families import families

FAMILIES = {f.name: f for f in families()}


@pytest.mark.parametrize(
    ("family", "seed"),
    [
        *(("streams", seed) for seed in (1, 5, 101, 715, 719)),
        *(("blocks", 110), ("rows", 4), ("rows", 12), ("rows", 37), ("universal", 2)),
        *(("rows", 242), ("warps", 131)),  # spill where the assembler makes room for company that nobody asks for
    ],
)
def test_points_are_built_verified_simulated_equal_and_assembled(family: str, seed: int) -> None:
    one = FAMILIES[family]
    drawn, facts, point = draw(one, Random(seed))
    machine = one.build(drawn.program, facts, point, one.guard(drawn.program, facts, point))
    assert check(machine).status == "verified", drawn.text
    tried(machine, drawn.program, drawn.sizes)
    clean(machine)
