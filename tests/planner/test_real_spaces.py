"""The searches on whole spaces of real families, and scopes of real families put together with and without pruning."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.planner.test_counts import CASES, facts_of

from treadle.ir.core import Program
from treadle.plan.cost import CostVector
from treadle.plan.facts import CallFacts
from treadle.plan.family import Axis, Point, Scope, Share, points
from treadle.planner.ablation import separate
from treadle.planner.enumerate import SEARCHES
from treadle.planner.space import Space
from treadle.targets.cpu.families import families
from treadle.targets.cpu.sweep import VectorSweep


@pytest.mark.parametrize("name", ["contract", "softmax", "harris", "attention"])
def test_every_search_runs_on_every_family(name: str) -> None:
    program, facts = CASES[name], facts_of(CASES[name], 200)
    seen = 0
    for family in families():
        if family.admits(program, facts):
            continue
        least = min(family.cost(program, facts, p).total for p in points(family.axes(program, facts)))
        for search, run in SEARCHES.items():
            space = Space(program, facts, family)
            certificate = space.certificate(search, run(space))
            best = space.best()
            assert best is not None and best.cost.total >= least * (1 - 1e-9)
            assert certificate.bound <= least + 1e-12, (family.name, search)
            if certificate.kind == "optimum":
                assert math.isclose(best.cost.total, least, rel_tol=1e-9, abs_tol=2e-12), (family.name, search)
            else:
                assert search in ("beam", "anneal") and certificate.covered < certificate.declared
        seen += 1
    assert seen > 1


class InTurn:
    """Programs of one scope each, one after the other, as one family: `vector sweep` decides each of them, and all have
    the same lanes and workers."""

    name = "sweeps in turn"
    shared = ("lanes", "workers")

    def __init__(self, parts: Sequence[Program], facts: Sequence[CallFacts]) -> None:
        self.sweep = VectorSweep()
        self.parts = [(p, f, self.sweep.axes(p, f)) for p, f in zip(parts, facts, strict=True)]

    def axes(self, program: Program, facts: CallFacts) -> Sequence[Axis]:
        mine = [Axis(f"{n}.{a.name}", a.values) for n, (_, _, x) in enumerate(self.parts) for a in x if self.own(a)]
        return [*(a for a in self.parts[0][2] if not self.own(a)), *mine]

    def own(self, axis: Axis) -> bool:
        return axis.name not in self.shared

    def scopes(self, program: Program, facts: CallFacts) -> Sequence[Scope]:
        return [
            Scope(str(n), tuple(f"{n}.{a.name}" for a in axes if self.own(a)), self.shared)
            for n, (_, _, axes) in enumerate(self.parts)
        ]

    def share(self, program: Program, facts: CallFacts, scope: Scope, point: Point) -> Share:
        part, under, axes = self.parts[int(scope.name)]
        mine = {a.name: point[f"{scope.name}.{a.name}" if self.own(a) else a.name] for a in axes}
        return Share(self.sweep.cost(part, under, mine), {})

    def limits(self, program: Program, facts: CallFacts) -> Mapping[str, float]:
        return {}

    def cost(self, program: Program, facts: CallFacts, point: Point) -> CostVector:
        total = CostVector()
        for scope in self.scopes(program, facts):
            total = total.then(self.share(program, facts, scope, point).cost)
        return total


def test_pruning_between_equal_interfaces_leaves_the_winner() -> None:
    program, facts = CASES["siblings"], facts_of(CASES["siblings"], 300)
    parts = separate(program)
    family: Any = InTurn(parts, [facts_of(p, 300) for p in parts])
    pruned = Space(program, facts, family)
    SEARCHES["enumerate"](pruned)
    best = pruned.best()
    least = min(family.cost(program, facts, p).total for p in points(family.axes(program, facts)))
    assert best is not None and math.isclose(best.cost.total, least, rel_tol=1e-9)
    assert pruned.certificate("enumerate").kind == "optimum" and pruned.asked < pruned.size / 4
