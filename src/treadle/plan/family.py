"""The protocol of a realisation family: finite axes, admission, cost, construction.

A family names no operator: it looks at regions, folds, contractions and strides. Its points are the only plans that
exist, so a decision that no family has an axis for cannot be written in a plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Protocol, TypeVar, runtime_checkable

from treadle.ir.core import Program
from treadle.ir.guard import Guard
from treadle.plan.cost import CostVector
from treadle.plan.facts import CallFacts
from treadle.plan.pins import Pin

Setting = int | str | bool
Point = Mapping[str, Setting]
Machine_co = TypeVar("Machine_co", covariant=True)


@dataclass(frozen=True)
class Axis:
    """A parameter of a family and its finite values, the preferred first."""

    name: str
    values: tuple[Setting, ...]


@runtime_checkable
class Family(Protocol[Machine_co]):
    """A composition of components of `realise` for one kind of target."""

    name: str

    def axes(self, program: Program, facts: CallFacts) -> Sequence[Axis]:
        """The parameter axes for this program. *Requires*: `admits` gave no reason."""
        ...

    def admits(self, program: Program, facts: CallFacts) -> Sequence[str]:
        """Why the family cannot realise this program under these facts; empty when it can."""
        ...

    def refuses(self, program: Program, facts: CallFacts, point: Point, pins: Sequence[Pin]) -> Sequence[str]:
        """Which facts refuse the pins at this point; empty when it meets them all."""
        ...

    def guard(self, program: Program, facts: CallFacts, point: Point) -> Guard:
        """The facts under which the point is right."""
        ...

    def cost(self, program: Program, facts: CallFacts, point: Point) -> CostVector:
        """What a call with these facts is predicted to take; infinite for a point that exceeds a resource."""
        ...

    def build(self, program: Program, facts: CallFacts, point: Point, guard: Guard) -> Machine_co:
        """The machine program of the point, with its witness."""
        ...


def points(axes: Sequence[Axis]) -> Iterator[Point]:
    """All points of a product of axes, preferred values first."""
    names = [a.name for a in axes]
    for values in product(*(a.values for a in axes)):
        yield dict(zip(names, values, strict=True))
