"""Facts of a call, and whether a guard holds for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from treadle.ir.guard import Absent, Aligned, Bound, Disjoint, Divisible, Fact, Guard, Injective, Pitch, Same, Unit


@dataclass(frozen=True)
class ArrayFacts:
    """What a guard may ask about one array argument. Units: `strides` in elements, `address` in bytes."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    injective: bool = True

    @property
    def empty(self) -> bool:
        """Whether it has no element: then every fact about its memory holds."""
        return 0 in self.shape


@dataclass(frozen=True)
class CallFacts:
    """Facts of a call: extents by symbol, arrays by name, and which pairs of arrays share no byte.

    `same`: pairs that are one view, where a plan is wanted that runs in place. `loose`: pairs that may overlap in any
    way, where a plan is wanted that keeps the order of the source.
    """

    extents: Mapping[str, int]
    arrays: Mapping[str, ArrayFacts]
    apart: Callable[[str, str], bool] = field(repr=False)
    same: frozenset[frozenset[str]] = frozenset()
    loose: frozenset[frozenset[str]] = frozenset()

    def one_view(self, first: str, second: str) -> bool:
        """Whether two arrays have one address, and along every axis one extent and one stride in elements."""
        a, b = self.arrays.get(first), self.arrays.get(second)
        return a is not None and b is not None and _one_view(a, b)


def holds(guard: Guard, facts: CallFacts) -> bool:
    """Whether all facts of the guard hold for a call."""
    return first_broken(guard, facts) is None


def first_broken(guard: Guard, facts: CallFacts) -> Fact | None:
    """The first fact of a guard that a call does not meet."""
    for fact in guard.facts:
        if not _fact_holds(fact, facts):
            return fact
    return None


def _fact_holds(fact: Fact, facts: CallFacts) -> bool:
    match fact:
        case Divisible(expr, by):
            return int(expr.evaluate(facts.extents)) % by == 0
        case Bound(constraint):
            return bool(constraint.holds(facts.extents))
        case Absent(tensor):
            return tensor not in facts.arrays
        case Disjoint(first, second):
            present = first in facts.arrays and second in facts.arrays
            return not present or facts.apart(first, second)
        case Same(first, second):
            return facts.one_view(first, second)
        case Aligned(tensor) | Pitch(tensor) | Unit(tensor) | Injective(tensor):
            array = facts.arrays.get(tensor)
            return array is None or array.empty or _array_fact(fact, array)


def _one_view(a: ArrayFacts, b: ArrayFacts) -> bool:
    if a.shape != b.shape or (a.address != b.address and not a.empty):
        return False
    return all(x == y for x, y, n in zip(a.strides, b.strides, a.shape, strict=True) if n > 1)


def _array_fact(fact: Aligned | Pitch | Unit | Injective, array: ArrayFacts) -> bool:
    match fact:
        case Aligned(_, size):
            return array.address % size == 0
        case Pitch(_, axis, by):
            step = array.strides[axis]
            return array.shape[axis] <= 1 or (step >= 0 and step % by == 0)
        case Unit(_, axis):
            return array.shape[axis] <= 1 or array.strides[axis] == 1
        case Injective():
            return array.injective
