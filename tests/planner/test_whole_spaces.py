"""On spaces small enough: every combination of settings is built and judged, and no search finds another optimum.

The spaces are those of real families on real programs, with at most two settings left on each axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
from tests.planner.test_counts import CASES, FLAGS

from treadle.base.errors import LimitError
from treadle.checker import check
from treadle.ir.core import Program
from treadle.plan.facts import CallFacts, contiguous
from treadle.plan.family import Axis, Family
from treadle.planner.enumerate import SEARCHES, choose
from treadle.targets.cpu.families import families as cpu
from treadle.targets.cuda.families import families as cuda


class Narrow:
    """A family of which each axis has its preferred settings only: two, or one where those would be too many points."""

    def __init__(self, family: Family[Any], most: int) -> None:
        self.family, self.most = family, most

    def __getattr__(self, name: str) -> Any:
        return getattr(self.family, name)

    def axes(self, program: Program, facts: CallFacts) -> Sequence[Axis]:
        kept: list[Axis] = []
        left = self.most
        for axis in self.family.axes(program, facts):
            count = 2 if left >= 2 and len(axis.values) > 1 else 1
            left //= count
            # The last settings too, not only those that the family prefers.
            kept.append(Axis(axis.name, (axis.values[0], axis.values[-1])[:count]))
        return kept


@pytest.mark.parametrize(
    ("name", "target", "most"),
    [
        ("siblings", "cpu:avx512", 64),
        ("contract", "cpu:avx512", 32),
        ("harris", "cpu:avx512", 8),
        ("contract", "cuda:sm_90a", 32),
        ("softmax", "cuda:sm_90a", 16),
        ("linear bf16", "cuda:sm_90a", 8),
    ],
)
def test_enumeration_is_brute_force(name: str, target: str, most: int) -> None:
    program = CASES[name]
    extents = dict.fromkeys({s for d in program.dims for s in d.extent.symbols}, 96)
    features = FLAGS if target.startswith("cpu") else frozenset({"processors=132"})
    facts = contiguous(program, target, extents, workers=2 if target.startswith("cpu") else 1, features=features)
    known = [Narrow(f, most) for f in (cpu() if target.startswith("cpu") else cuda())]
    least, built = math.inf, 0
    for family in known:
        if family.admits(program, facts):
            continue
        axes = family.axes(program, facts)
        for values in product(*(a.values for a in axes)):
            point = dict(zip((a.name for a in axes), values, strict=True))
            cost = family.cost(program, facts, point).total
            if math.isinf(cost):
                continue
            try:
                machine = family.build(program, facts, point, family.guard(program, facts, point))
            except LimitError:
                pytest.fail(f"{family.name} {point} has a cost and cannot be built")
            assert check(machine).status == "verified", (family.name, point)
            built += 1
            least = min(least, cost)
    assert built > 4
    for search in SEARCHES:
        chosen = choose(program, facts, known, search=search)
        assert math.isclose(chosen.best.cost.total, least, rel_tol=1e-9, abs_tol=2e-12), search
        assert chosen.certificate is not None and chosen.certificate.kind == "optimum"
