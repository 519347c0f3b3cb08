"""Guards: conjunctions of facts about a call under which a plan holds.

A guard is written one fact a line: `M % 128 == 0`, `1 <= K`, `align(X) >= 16`, `pitch(X, 0) % 8 == 0`, `unit(X, 1)`,
`disjoint(X, Y)`, `same(X, Y)`. `evaluate` decides it for a call; the checker takes it as given.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from treadle.algebra.expr import Constraint, Expr, eq


@dataclass(frozen=True)
class Divisible:
    """`expr % by == 0`."""

    expr: Expr
    by: int

    def __str__(self) -> str:
        return f"{self.expr} % {self.by} == 0"

    def constraint(self) -> Constraint:
        """As an equation of index expressions."""
        return eq(self.expr % self.by, 0)


@dataclass(frozen=True)
class Bound:
    """An inequality or equation of extents and scalars."""

    constraint: Constraint

    def __str__(self) -> str:
        return str(self.constraint)


@dataclass(frozen=True)
class Aligned:
    """The tensor's base address is a multiple of `bytes`."""

    tensor: str
    bytes: int

    def __str__(self) -> str:
        return f"align({self.tensor}) >= {self.bytes}"


@dataclass(frozen=True)
class Pitch:
    """The stride of `axis`, in elements, is a multiple of `by` and not negative: engines count pitches from 0 up."""

    tensor: str
    axis: int
    by: int

    def __str__(self) -> str:
        return f"pitch({self.tensor}, {self.axis}) % {self.by} == 0"


@dataclass(frozen=True)
class Unit:
    """The stride of `axis` is one element (or the extent is at most one)."""

    tensor: str
    axis: int

    def __str__(self) -> str:
        return f"unit({self.tensor}, {self.axis})"


@dataclass(frozen=True)
class Disjoint:
    """The two tensors share no byte."""

    first: str
    second: str

    def __str__(self) -> str:
        return f"disjoint({self.first}, {self.second})"


@dataclass(frozen=True)
class Same:
    """The two tensors are one view: one address, and for every axis one extent and one stride."""

    first: str
    second: str

    def __str__(self) -> str:
        return f"same({self.first}, {self.second})"


@dataclass(frozen=True)
class Injective:
    """Distinct index tuples of the tensor are distinct elements (no stride-0 or folded axis)."""

    tensor: str

    def __str__(self) -> str:
        return f"injective({self.tensor})"


@dataclass(frozen=True)
class Absent:
    """An optional parameter was not passed (`Present` otherwise; staged, so part of the program)."""

    tensor: str

    def __str__(self) -> str:
        return f"absent({self.tensor})"


Fact = Divisible | Bound | Aligned | Pitch | Unit | Disjoint | Same | Injective | Absent


@dataclass(frozen=True)
class Guard:
    """A conjunction of facts."""

    facts: tuple[Fact, ...] = field(default=())

    def constraints(self) -> Iterator[Constraint]:
        """The facts about integers, for set reasoning."""
        for fact in self.facts:
            if isinstance(fact, Divisible):
                yield fact.constraint()
            elif isinstance(fact, Bound):
                yield fact.constraint

    def __str__(self) -> str:
        return "\n".join(map(str, self.facts))
