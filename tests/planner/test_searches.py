"""Four searches over the same points: they agree where they are complete, and say what they proved where not.

Families here are made of random numbers: whatever a real one says, the searches must not depend on it.
"""

from __future__ import annotations

import itertools
import math
import random
import sys
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion
from tests.realise.texts import program

from treadle.ir.core import Program
from treadle.ir.guard import Guard
from treadle.plan.cost import CostVector
from treadle.plan.facts import CallFacts
from treadle.plan.family import Axis, Point, Scope, Share, points
from treadle.plan.pins import Pin, tile
from treadle.planner.certificate import Certificate, together
from treadle.planner.enumerate import SEARCHES, SearchUnknown, Unfinished, choose
from treadle.planner.solve import SolverAbsent
from treadle.planner.space import Clock, Space

FACTS = CallFacts("cpu:avx2")
SWAP = program("swap")
ROOM = {"bytes": 2.0}


class Dice:
    """A family whose points cost what a seed says; some of them are infeasible."""

    name = "dice"

    def __init__(self, seed: int, sizes: Sequence[int], infeasible: float = 0.2, least: float = 0.0) -> None:
        self.seed, self.sizes, self.infeasible, self.bound = seed, sizes, infeasible, least

    def admits(self, program: Program, facts: CallFacts) -> Sequence[str]:
        return []

    def axes(self, program: Program, facts: CallFacts) -> Sequence[Axis]:
        return [Axis(f"a{i}", tuple(range(n))) for i, n in enumerate(self.sizes)]

    def refuses(self, program: Program, facts: CallFacts, point: Point, pins: Sequence[Pin]) -> Sequence[str]:
        return ["odd"] if pins and int(point["a0"]) % 2 else []

    def guard(self, program: Program, facts: CallFacts, point: Point) -> Guard:
        return Guard(())

    def cost(self, program: Program, facts: CallFacts, point: Point) -> CostVector:
        chance = random.Random(f"{self.seed} {sorted(point.items())}")
        if chance.random() < self.infeasible:
            return CostVector(compute=math.inf)
        return CostVector(self.bound + chance.random(), chance.random(), chance.random(), chance.random())

    def build(self, program: Program, facts: CallFacts, point: Point, guard: Guard) -> str:
        return str(point)


class Bounded(Dice):
    """Dice that know a bound."""

    def least(self, program: Program, facts: CallFacts) -> float:
        return self.bound


class Scoped(Dice):
    """Scopes with axes of their own that meet in shared ones and share a room."""

    def __init__(self, seed: int, sizes: Sequence[int], scopes: int) -> None:
        super().__init__(seed, sizes)
        self.count = scopes

    def axes(self, program: Program, facts: CallFacts) -> Sequence[Axis]:
        shared = [Axis(f"s{i}", tuple(range(n))) for i, n in enumerate(self.sizes)]
        return [*shared, *(Axis(f"own{i}", (0, 1, 2)) for i in range(self.count))]

    def scopes(self, program: Program, facts: CallFacts) -> Sequence[Scope]:
        names = [f"s{i}" for i in range(len(self.sizes))]
        chance = random.Random(self.seed)
        seen = [[n for n in names if chance.random() < 0.7] for _ in range(self.count)]
        seen[0] += [n for n in names if not any(n in s for s in seen)]
        return [Scope(f"scope{i}", (f"own{i}",), tuple(s)) for i, s in enumerate(seen)]

    def share(self, program: Program, facts: CallFacts, scope: Scope, point: Point) -> Share:
        mine = {n: v for n, v in point.items() if n in scope.own or n in scope.seen}
        chance = random.Random(f"{scope.name} {sorted(mine.items())}")
        return Share(super().cost(program, facts, {**mine, "in": scope.name}), {"bytes": chance.random()})

    def limits(self, program: Program, facts: CallFacts) -> Mapping[str, float]:
        return ROOM

    def cost(self, program: Program, facts: CallFacts, point: Point) -> CostVector:
        total, held = CostVector(), 0.0
        for scope in self.scopes(program, facts):
            share = self.share(program, facts, scope, point)
            total, held = total.then(share.cost), held + share.holds["bytes"]
        return total if held <= ROOM["bytes"] else CostVector(compute=math.inf)


class Pinned(Scoped):
    """Scopes of which a pin fixes the last one's axis."""

    def refuses(self, program: Program, facts: CallFacts, point: Point, pins: Sequence[Pin]) -> Sequence[str]:
        return ["no"] if point["own1"] != 2 else []


def brute(family: Dice) -> float:
    return min(family.cost(SWAP, FACTS, p).total for p in points(family.axes(SWAP, FACTS)))


def by(family: Dice, search: str, clock: Clock | None = None) -> tuple[float, Certificate]:
    space = Space(SWAP, FACTS, family, (), clock)
    bound = SEARCHES[search](space)
    return min((f.cost.total for f in space.ranking()), default=math.inf), space.certificate(search, bound)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.integers(1, 4), min_size=0, max_size=3))
def test_all_searches_find_what_brute_force_finds(seed: int, sizes: list[int]) -> None:
    family = Dice(seed, sizes)
    want = brute(family)
    for search in SEARCHES:
        cost, certificate = by(family, search)
        assert cost == want or abs(cost - want) <= 1e-12, search
        assert certificate.kind == "optimum" and certificate.declared == certificate.covered == math.prod(sizes)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.integers(1, 3), min_size=1, max_size=2), st.integers(2, 3))
def test_scopes_apart_are_the_whole(seed: int, sizes: list[int], scopes: int) -> None:
    family = Scoped(seed, sizes, scopes)
    want = brute(family)
    for search in ("enumerate", "solve"):
        cost, certificate = by(family, search)
        assert math.isclose(cost, want, rel_tol=1e-9, abs_tol=4e-12) or cost == want, search
        assert certificate.kind == "optimum"


def test_composing_looks_at_less_than_the_product() -> None:
    family = Scoped(3, [2], 7)
    space = Space(SWAP, FACTS, family)
    SEARCHES["enumerate"](space)
    # Seven tables, and the points that what is held leaves undecided; not 2 * 3**7.
    assert space.size == 4374 and space.asked < 400 and space.certificate("enumerate").kind == "optimum"


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["beam", "anneal"]), st.booleans())
def test_what_is_not_searched_is_not_claimed(seed: int, search: str, bounded: bool) -> None:
    sizes = (7, 6, 6, 5)
    family = (Bounded if bounded else Dice)(seed, sizes, 0.1, 0.5)
    cost, certificate = by(family, search)
    assert certificate.kind == ("bound" if bounded else "incumbent")
    assert cost >= brute(family) >= certificate.bound and certificate.covered < certificate.declared == 1260
    assert cost * (1 - certificate.gap) <= brute(family) * (1 + 1e-12)


def ticking(ticks: int) -> Clock:
    """A clock that is over after so many looks at it."""
    counter = itertools.count()
    return Clock(ticks, now=lambda: next(counter))


@pytest.mark.parametrize("search", SEARCHES)
def test_a_clock_that_ends_proves_nothing(search: str) -> None:
    cost, certificate = by(Dice(1, (9, 9, 9)), search, ticking(30))
    assert math.isfinite(cost) and certificate.kind == "incumbent" and certificate.priced < 729


@pytest.mark.parametrize("search", SEARCHES)
def test_nothing_found_in_time_is_unknown_not_infeasible(search: str, snapshot: SnapshotAssertion) -> None:
    none = Dice(1, (4, 4), infeasible=1.0)
    with pytest.raises(Unfinished) as caught:
        choose(SWAP, FACTS, [none], search=search, clock=ticking(5))
    with pytest.raises(Exception, match="every point exceeds a resource") as proved:
        choose(SWAP, FACTS, [none], search=search)
    assert type(proved.value).__name__ == "NoPlan"
    if search == "enumerate":
        assert str(caught.value) == snapshot


def test_pins_leave_the_same_points_to_all() -> None:
    family = Dice(5, (4, 3))
    found = {choose(SWAP, FACTS, [family], [tile(m=1)], search=s).best.cost.total for s in SEARCHES}
    assert len(found) == 1
    scoped = Pinned(5, [3], 2)
    chosen = choose(SWAP, FACTS, [scoped], [tile(m=1)])
    assert chosen.plan.point["own1"] == 2
    allowed = [p for p in points(scoped.axes(SWAP, FACTS)) if p["own1"] == 2]
    assert chosen.best.cost.total == min(scoped.cost(SWAP, FACTS, p).total for p in allowed)


def test_two_families_together() -> None:
    whole = Certificate(2.0, 2.0, 4, 4, 4)
    assert together([whole, Certificate(3.0, 0.0, 9, 1, 1)]).kind == "incumbent"
    assert together([whole, Certificate(3.0, 1.0, 9, 1, 1)]).bound == 1.0
    assert together([whole, Certificate(3.0, 2.5, 9, 1, 1)]).kind == "optimum"
    assert together([whole, Certificate(math.inf, math.inf, 5, 5, 5)]).kind == "optimum"


def test_explain_says_what_is_proved() -> None:
    text = choose(SWAP, FACTS, [Bounded(2, (9, 9, 9, 9), 0.1, 0.5)], search="beam").explain()
    assert "above the optimum of 6,561 declared points (beam, " in text and text.count("\n  next ") == 3


def test_without_the_solver(monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion) -> None:
    monkeypatch.setitem(sys.modules, "ortools.sat.python.cp_model", None)
    with pytest.raises(SolverAbsent) as caught:
        choose(SWAP, FACTS, [Dice(1, (3,))], search="solve")
    assert str(caught.value).replace(str(caught.value.found), "WHY") == snapshot
    assert choose(SWAP, FACTS, [Dice(1, (3,))]).certificate is not None


def test_a_search_that_there_is_not(snapshot: SnapshotAssertion) -> None:
    with pytest.raises(SearchUnknown) as caught:
        choose(SWAP, FACTS, [Dice(1, (3,))], search="luck")
    assert str(caught.value) == snapshot
