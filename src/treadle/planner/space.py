"""One family's points as a space to search: axes, prices, what was looked at, what was found.

Every search asks the same `Space` for prices, so that all of them see the same points and the same objective, and what
was searched is counted once. The objective is the predicted time; among equals, the point whose settings come first on
their axes.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from treadle.ir.core import Program
from treadle.plan.cost import CostVector
from treadle.plan.facts import CallFacts
from treadle.plan.family import Axis, Bounded, Composed, Family, Point, Scope
from treadle.plan.pins import Pin
from treadle.planner.certificate import Certificate, nothing

Index = tuple[int, ...]
"""A point: the place of its setting on each axis."""

NEXT = 3
"""How many runners-up a search tells of."""


class Clock:
    """Seconds that a search may take; None: as many as it needs. `now` is for tests."""

    def __init__(self, seconds: float | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self.until = None if seconds is None else now() + seconds

    def over(self) -> bool:
        """Whether they are spent."""
        return self.until is not None and self.now() >= self.until

    def left(self) -> float | None:
        """Seconds that are left."""
        return None if self.until is None else max(0.0, self.until - self.now())


@dataclass(frozen=True)
class Found:
    """A point, and its predicted time."""

    index: Index
    point: Point
    cost: CostVector


class Space:
    """The points of one family for a program under facts and pins. *Requires*: the family admits the program."""

    def __init__(
        self,
        program: Program,
        facts: CallFacts,
        family: Family[Any],
        pins: Sequence[Pin] = (),
        clock: Clock | None = None,
    ) -> None:
        self.program, self.facts, self.family, self.pins = program, facts, family, pins
        self.clock = clock or Clock()
        self.axes: tuple[Axis, ...] = tuple(family.axes(program, facts))
        self.size = math.prod(len(a.values) for a in self.axes)
        self._settings = [(a.name, a.values) for a in self.axes]
        self.refused: list[str] = []
        """Why pins refuse points."""
        self.asked = 0
        """How many costs were asked of the family: of whole points, and of scopes."""
        self._whole = False
        self.bound = self._least()
        self._known: dict[Index, CostVector | None] = {}

    def _least(self) -> float:
        family = self.family
        return max(0.0, family.least(self.program, self.facts)) if isinstance(family, Bounded) else 0.0

    def over(self) -> bool:
        """Whether the time for this search is spent: never for a single point, which every program has."""
        return self.size > 1 and self.clock.over()

    # ---- points

    def indices(self) -> Iterator[Index]:
        """All points, preferred settings first."""
        yield from product(*(range(len(a.values)) for a in self.axes))

    def point(self, index: Index) -> Point:
        """The settings of a point."""
        return {name: values[i] for (name, values), i in zip(self._settings, index, strict=True)}

    def index(self, point: Point) -> Index:
        """The place of a point. *Ensures*: `point(index(p)) == p`."""
        return tuple(a.values.index(point[a.name]) for a in self.axes)

    def price(self, index: Index) -> float:
        """The predicted seconds of a point; infinite where pins or resources refuse it."""
        if index not in self._known:
            self._known[index] = self._asked(index)
            self.asked += 1
        cost = self._known[index]
        return math.inf if cost is None else cost.total

    def _asked(self, index: Index) -> CostVector | None:
        point = self.point(index)
        refusing = self.family.refuses(self.program, self.facts, point, self.pins) if self.pins else ()
        if refusing:
            self.refused += [r for r in refusing if r not in self.refused]
            return None
        return self.family.cost(self.program, self.facts, point)

    def known(self, index: Index) -> bool:
        """Whether a point was priced."""
        return index in self._known

    def prices(self) -> Iterator[tuple[Index, float]]:
        """Every point that was priced, with its price."""
        return ((i, math.inf if c is None else c.total) for i, c in self._known.items())

    # ---- scopes

    def scopes(self) -> Sequence[Scope]:
        """The parts of the program that the family decides apart, where it says so and no pin asks for whole points."""
        if self.pins or not isinstance(self.family, Composed):
            return ()
        found = self.family.scopes(self.program, self.facts)
        return found if len(found) > 1 else ()

    # ---- results

    @property
    def covered(self) -> int:
        """How many points are priced, or proved to be no better than one that was."""
        return self.size if self._whole else len(self._known)

    def whole(self) -> None:
        """Notes that something is proved of every point."""
        self._whole = True

    def best(self) -> Found | None:
        """The cheapest point of those that were priced."""
        return next(iter(self.ranking()), None)

    def ranking(self, count: int = 1 + NEXT) -> list[Found]:
        """The cheapest points that were priced, in order; none that cannot run."""
        finite = ((c.total, i) for i, c in self._known.items() if c is not None and not math.isinf(c.total))
        cheapest = heapq.nsmallest(count, finite)
        return [Found(i, self.point(i), cost) for _, i in cheapest if (cost := self._known[i]) is not None]

    def certificate(self, search: str, bound: float = 0.0) -> Certificate:
        """What is proved, with a bound that the search itself has proved, if any."""
        best = self.best()
        bound = max(bound, self.bound)
        if best is None:
            return nothing(self.size, self.asked, self.covered, bound, search)
        cost = best.cost.total
        least = cost if self.covered == self.size else min(bound, cost)
        return Certificate(cost, least, self.size, self.asked, self.covered, search)
