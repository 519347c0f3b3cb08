"""The protocol of a realisation family: finite axes, admission, cost, construction.

A family names no operator: it looks at regions, folds, contractions and strides. Its points are the only plans that
exist, so a decision that no family has an axis for cannot be written in a plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Protocol, TypeVar, runtime_checkable

from treadle.ir.core import Program
from treadle.ir.guard import Guard
from treadle.plan.cost import CostVector
from treadle.plan.facts import CallFacts
from treadle.plan.grain import Grain
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


@dataclass(frozen=True)
class Scope:
    """A part of a program that ends before the next one begins, and the axes that decide it.

    `own`: axes that concern no other scope; `seen`: axes of other scopes too, the interface at which scopes meet
    (participants, what lies along their lanes).
    """

    name: str
    own: tuple[str, ...]
    seen: tuple[str, ...]


@dataclass(frozen=True)
class Share:
    """What one scope adds to a point: its time, and what it holds until the program ends, by name (bytes, say)."""

    cost: CostVector
    holds: Mapping[str, float] = field(default_factory=dict[str, float])


@runtime_checkable
class Composed(Protocol):
    """A family that decides the scopes of a program apart, where only `seen` axes tie them together.

    *Ensures*: the cost of a point is that of its scopes, one `then` the other, in order; it is infinite where what they
    hold together exceeds a limit.
    """

    def scopes(self, program: Program, facts: CallFacts) -> Sequence[Scope]:
        """The scopes in order. Each axis of the family is in one `own`, or in some `seen`."""
        ...

    def share(self, program: Program, facts: CallFacts, scope: Scope, point: Point) -> Share:
        """What a scope adds; `point` has the axes of this scope at least."""
        ...

    def limits(self, program: Program, facts: CallFacts) -> Mapping[str, float]:
        """How much may be held together, by name."""
        ...


@dataclass(frozen=True)
class Need:
    """What a point takes of a resource: `parts` by name, in `unit`; `limit` is all there is of it."""

    resource: str
    unit: str
    limit: int
    parts: Sequence[tuple[str, int]]

    @property
    def total(self) -> int:
        """All parts together."""
        return sum(n for _, n in self.parts)

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {n:,}" for name, n in self.parts)
        return f"{self.total:,}{self.unit} of {self.resource}, there are {self.limit:,}: {parts}"


@runtime_checkable
class Accounted(Protocol):
    """A family that tells what its points take of the target's resources.

    *Ensures*: a point of which a need exceeds its limit has an infinite cost.
    """

    def needs(self, program: Program, facts: CallFacts, point: Point, pins: Sequence[Pin]) -> Sequence[Need]:
        """The needs of a point, with as many versions of a block as `pins` ask for."""
        ...


@runtime_checkable
class Bounded(Protocol):
    """A family that knows what none of its points can undercut."""

    def least(self, program: Program, facts: CallFacts) -> float:
        """Seconds. *Ensures*: no point has a smaller total."""
        ...


@runtime_checkable
class Grained(Protocol):
    """A family that tells in numbers how a plan cuts the extents of a call."""

    def grain(self, program: Program, facts: CallFacts, point: Point) -> Grain:
        """The sizes that a plan fills up, and those that workers share."""
        ...


def points(axes: Sequence[Axis]) -> Iterator[Point]:
    """All points of a product of axes, preferred values first."""
    names = [a.name for a in axes]
    for values in product(*(a.values for a in axes)):
        yield dict(zip(names, values, strict=True))
