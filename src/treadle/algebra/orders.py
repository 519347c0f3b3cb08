"""Orders: bijections between the points of a grid and positions 0 .. size - 1, applied and inverted from one text.

`Permuted` renumbers the dimensions of a grid, `General` takes a function and its inverse from the user and believes
neither: every order is checked at all of its points when it is made (`LIMIT` of them at most). Orders chain and nest.

*Source*: RegP, GenP, OrderBy and GroupBy of LEGO (arXiv 2505.08091).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod

from treadle.algebra.layouts import LayoutUndefined
from treadle.algebra.tasks import Point, points

LIMIT = 1 << 16
"""The most points at which a user's bijection is checked; a larger one is refused."""


def flatten(point: Point, extents: Point) -> int:
    """The row-major position of a point."""
    at = 0
    for coordinate, extent in zip(point, extents, strict=True):
        at = at * extent + coordinate
    return at


def unflatten(at: int, extents: Point) -> Point:
    """The point of a row-major position. *Ensures*: `flatten(unflatten(x, d), d) == x`."""
    found: list[int] = []
    for extent in reversed(extents):
        found.insert(0, at % extent)
        at //= extent
    return tuple(found)


class Order(ABC):
    """A bijection from the points of `extents` to 0 .. size - 1."""

    extents: Point

    @property
    def size(self) -> int:
        """How many points."""
        return prod(self.extents)

    @abstractmethod
    def apply(self, point: Point) -> int:
        """The position of a point."""

    @abstractmethod
    def inverse(self, at: int) -> Point:
        """The point at a position. *Ensures*: `inverse(apply(p)) == p` and `apply(inverse(x)) == x`."""


@dataclass(frozen=True)
class Permuted(Order):
    """Row-major over the dimensions in another order, the last of `order` fastest."""

    extents: Point
    order: tuple[int, ...]

    def __post_init__(self) -> None:
        if sorted(self.order) != list(range(len(self.extents))):
            raise _undefined(f"ordering {self.extents}", f"the dimensions {self.order}", "each dimension once")

    def apply(self, point: Point) -> int:
        return flatten(tuple(point[i] for i in self.order), tuple(self.extents[i] for i in self.order))

    def inverse(self, at: int) -> Point:
        turned = unflatten(at, tuple(self.extents[i] for i in self.order))
        return tuple(turned[self.order.index(i)] for i in range(len(self.extents)))


@dataclass(frozen=True)
class General(Order):
    """A user's bijection and its inverse. *Errors*: `layout/undefined` where one does not undo the other at some point,
    with the point; where there are too many points to look."""

    extents: Point
    forwards: Callable[[Point], int]
    backwards: Callable[[int], Point]

    def __post_init__(self) -> None:
        if self.size > LIMIT:
            raise _undefined("taking a bijection", f"{self.size} points", f"at most {LIMIT}, which are looked at")
        seen: dict[int, Point] = {}
        for point in points(self.extents):
            at = self.forwards(point)
            if not 0 <= at < self.size or at in seen:
                twin = f", as {seen[at]} does" if at in seen else ""
                raise _undefined(
                    "taking a bijection", f"{point} goes to {at}{twin}", f"0 .. {self.size - 1}, each once"
                )
            if tuple(self.backwards(at)) != point:
                raise _undefined("taking a bijection", f"{at} goes back to {self.backwards(at)}", f"{point}")
            seen[at] = point

    def apply(self, point: Point) -> int:
        return self.forwards(point)

    def inverse(self, at: int) -> Point:
        return tuple(self.backwards(at))


@dataclass(frozen=True)
class Nested(Order):
    """Orders of consecutive groups of dimensions, the first outermost: `y = 0; for each part: y = y * |part| +
    part.apply(its coordinates)`."""

    parts: tuple[Order, ...]
    extents: Point = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "extents", tuple(e for p in self.parts for e in p.extents))

    def apply(self, point: Point) -> int:
        at, rest = 0, point
        for part in self.parts:
            n = len(part.extents)
            at, rest = at * part.size + part.apply(rest[:n]), rest[n:]
        return at

    def inverse(self, at: int) -> Point:
        found: Point = ()
        for part in reversed(self.parts):
            found = part.inverse(at % part.size) + found
            at //= part.size
        return found


@dataclass(frozen=True)
class Grouped(Order):
    """The points of `extents`, counted row-major, through a chain of orders of as many points, the last one first."""

    extents: Point
    chain: tuple[Order, ...]

    def __post_init__(self) -> None:
        other = next((o for o in self.chain if o.size != self.size), None)
        if other is not None:
            raise _undefined(f"grouping {self.extents}", f"an order of {other.size} points", f"{self.size} points")

    def apply(self, point: Point) -> int:
        at = flatten(point, self.extents)
        for order in reversed(self.chain):
            at = order.apply(unflatten(at, order.extents))
        return at

    def inverse(self, at: int) -> Point:
        for order in self.chain:
            at = flatten(order.inverse(at), order.extents)
        return unflatten(at, self.extents)


def tiled(levels: Sequence[Point], order: tuple[int, ...] | None = None) -> Grouped:
    """A grid of tiles of tiles: `levels` are the extents of each level, outermost first; positions count tile by tile.

    `order` permutes the levels' dimensions as `Permuted` does (default: level after level).
    *Ensures*: the point of the whole grid is read through its coordinates in each level."""
    rank = len(levels[0])
    if any(len(level) != rank for level in levels):
        raise _undefined("tiling", f"levels {levels}", "levels of one rank")
    whole = tuple(prod(level[i] for level in levels) for i in range(rank))
    # dimension by dimension (all levels of the first, ...) is how a point of the grid splits into digits
    digits = tuple(level[i] for i in range(rank) for level in levels)
    turned = tuple(i * len(levels) + k for k in range(len(levels)) for i in range(rank))
    if order is not None:
        if sorted(order) != list(range(len(turned))):
            raise _undefined("tiling", f"the order {order}", "each dimension of each level once")
        turned = tuple(turned[i] for i in order)
    return Grouped(whole, (Permuted(digits, turned),))


def antidiagonal(rows: int, columns: int) -> General:
    """The order by anti-diagonals, from the top of each down."""

    def first(d: int) -> int:
        """How many points lie on the diagonals before d."""
        return sum(_length(k, rows, columns) for k in range(d))

    starts = [first(d) for d in range(rows + columns)]

    def forwards(point: Point) -> int:
        i, j = point
        return starts[i + j] + i - max(0, i + j - columns + 1)

    def backwards(at: int) -> Point:
        d = next(d for d in range(rows + columns - 1) if at < starts[d + 1])
        i = at - starts[d] + max(0, d - columns + 1)
        return i, d - i

    return General((rows, columns), forwards, backwards)


def _length(d: int, rows: int, columns: int) -> int:
    return max(0, min(d, rows - 1) - max(0, d - columns + 1) + 1)


def _undefined(doing: str, found: str, expected: str) -> LayoutUndefined:
    return LayoutUndefined(doing=doing, found=found, expected=expected, hint="give a bijection and its inverse")
