"""Enumeration over families that are made for the purpose: what is searched, chosen, rejected, refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

import pytest
from syrupy.assertion import SnapshotAssertion
from tests.realise.texts import program

from treadle.ir.core import Program
from treadle.ir.guard import Guard, Unit
from treadle.plan.cost import CostVector
from treadle.plan.facts import CallFacts
from treadle.plan.family import Axis, Need, Point
from treadle.plan.pins import NoPlan, Pin, PinRefused, SharedExceeded, tile
from treadle.planner.enumerate import choose, realised

FACTS = CallFacts("cpu:avx2")


@dataclass
class Made:
    """A family with one axis, whose points cost what the table says."""

    name: str
    costs: dict[int, float]
    reasons: list[str] = field(default_factory=list[str])

    def admits(self, program: Program, facts: CallFacts) -> Sequence[str]:
        return self.reasons

    def axes(self, program: Program, facts: CallFacts) -> Sequence[Axis]:
        return [Axis("size", tuple(self.costs))]

    def refuses(self, program: Program, facts: CallFacts, point: Point, pins: Sequence[Pin]) -> Sequence[str]:
        return [f"m is cut by {point['size']}, not {p.sizes['m']}" for p in pins if p.sizes["m"] != point["size"]]

    def guard(self, program: Program, facts: CallFacts, point: Point) -> Guard:
        return Guard((Unit("X", int(point["size"])),))

    def cost(self, program: Program, facts: CallFacts, point: Point) -> CostVector:
        return CostVector(compute=self.costs[int(point["size"])])

    def build(self, program: Program, facts: CallFacts, point: Point, guard: Guard) -> str:
        return f"{self.name} {point['size']} {guard}"


NEAR, FAR = Made("near", {1: 3.0, 2: 1.0, 4: 2.0}), Made("far", {1: 5.0, 8: 1.5})
CLOSED = Made("closed", {1: 0.0}, ["it has no contraction"])
FULL = Made("full", {1: inf, 2: inf})


def test_the_cheapest_point_of_all_families_wins() -> None:
    choice = choose(program("swap"), FACTS, [FAR, NEAR, CLOSED, FULL])
    assert (choice.plan.family, choice.plan.point, choice.best.searched) == ("near", {"size": 2}, 3)
    assert [(c.plan.family, c.plan.point) for c in choice.others] == [("far", {"size": 8})]
    assert {r.family: r.reasons for r in choice.rejected} == {
        "closed": ("it has no contraction",),
        "full": ("every point exceeds a resource of the target",),
    }


def test_the_guard_is_that_of_the_point() -> None:
    plan = choose(program("swap"), FACTS, [NEAR]).plan
    assert plan.guard == Guard((Unit("X", 2),))
    assert realised(plan, program("swap"), FACTS, [FAR, NEAR]) == "near 2 unit(X, 2)"


def test_equal_costs_keep_the_preferred_value() -> None:
    assert choose(program("swap"), FACTS, [Made("f", {7: 1.0, 3: 1.0})]).plan.point == {"size": 7}


def test_pins_leave_only_points_that_meet_them() -> None:
    choice = choose(program("swap"), FACTS, [FAR, NEAR], [tile(m=1)])
    assert (choice.plan.family, choice.plan.point) == ("near", {"size": 1})
    assert choose(program("swap"), FACTS, [FAR, NEAR], [tile(m=8)]).plan.family == "far"


def test_explain_names_what_lost(snapshot: SnapshotAssertion) -> None:
    assert choose(program("swap"), FACTS, [FAR, NEAR, CLOSED]).explain() == snapshot


def test_a_pin_that_nothing_meets(snapshot: SnapshotAssertion) -> None:
    with pytest.raises(PinRefused) as caught:
        choose(program("swap"), FACTS, [NEAR, CLOSED], [tile(m=3)])
    assert str(caught.value) == snapshot


@dataclass
class Accounting(Made):
    """One whose points take as many bytes as their size says, of 6."""

    def needs(self, program: Program, facts: CallFacts, point: Point, pins: Sequence[Pin]) -> Sequence[Need]:
        size = int(point["size"])
        return [Need("shared memory", " bytes", 6, [("A", 3 * size), ("B", size)]), Need("names", "", 9, [("m", size)])]


def test_what_does_not_fit_is_listed_part_by_part(snapshot: SnapshotAssertion) -> None:
    large = Accounting("large", {4: inf, 2: inf, 8: inf})
    choice = choose(program("swap"), FACTS, [NEAR, large])
    (why,) = choice.rejected[0].reasons
    assert why.endswith("size=2 takes 8 bytes of shared memory, there are 6: A 6, B 2")
    with pytest.raises(SharedExceeded) as caught:
        choose(program("swap"), FACTS, [CLOSED, large], [tile(m=4)])
    assert str(caught.value) == snapshot
    with pytest.raises(PinRefused):  # a pin that leaves no point is no lack of memory
        choose(program("swap"), FACTS, [NEAR, large], [tile(m=3)])


def test_nothing_admits(snapshot: SnapshotAssertion) -> None:
    with pytest.raises(NoPlan) as caught:
        choose(program("swap"), FACTS, [CLOSED])
    assert str(caught.value) == snapshot


def test_a_plan_of_a_family_that_is_gone() -> None:
    plan = choose(program("swap"), FACTS, [NEAR]).plan
    with pytest.raises(NoPlan):
        realised(plan, program("swap"), FACTS, [FAR])
