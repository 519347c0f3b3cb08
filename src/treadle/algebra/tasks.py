"""Task mappings: which worker does which points of a grid, in which order.

A task mapping gives each of its workers an ordered list of points. `spatial(d)` has a worker a point, `repeat(d)` one
worker that does all points in order; their product nests the second inside the first.

*Source*: task mappings as in Hidet (arXiv 2210.09603). `proof/Tasks.v` proves that the product is associative and that
products of exact covers are exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

from treadle.algebra.layouts import LayoutUndefined

Point = tuple[int, ...]


@dataclass(frozen=True)
class TaskMapping:
    """A product of `spatial` and `repeat` factors over one grid. `factors`: (kind, extents), outermost first."""

    factors: tuple[tuple[str, Point], ...]

    @property
    def rank(self) -> int:
        """The dimensions of the grid."""
        return len(self.factors[0][1])

    @property
    def workers(self) -> int:
        """How many workers it is for."""
        return prod(prod(d) for kind, d in self.factors if kind == "spatial")

    @property
    def extents(self) -> Point:
        """The grid."""
        return tuple(prod(d[i] for _, d in self.factors) for i in range(self.rank))

    def __mul__(self, inner: TaskMapping) -> TaskMapping:
        """`inner` inside every task of `self`, whose loop is the outer one.

        *Ensures*: `(f * g)(w) == [t * g.extents + u for t in f(w // g.workers) for u in g(w % g.workers)]`.
        *Errors*: `layout/undefined` for grids of unlike rank."""
        if inner.rank != self.rank:
            raise _undefined("nesting task mappings", f"grids of rank {self.rank} and {inner.rank}", "equal ranks")
        return TaskMapping(self.factors + inner.factors)

    def __call__(self, worker: int) -> list[Point]:
        """The points of a worker, in order. *Errors*: `layout/undefined` for a worker that is not there."""
        if not 0 <= worker < self.workers:
            raise _undefined("asking for tasks", f"worker {worker}", f"0 .. {self.workers - 1}")
        points: list[Point] = [(0,) * self.rank]
        left = self.workers
        for kind, extents in self.factors:
            if kind == "spatial":
                left //= prod(extents)
                mine = [_unravel(worker // left, extents)]
                worker %= left
            else:
                mine = [_unravel(k, extents) for k in range(prod(extents))]
            points = [tuple(p * d + m for p, d, m in zip(q, extents, t, strict=True)) for q in points for t in mine]
        return points


def spatial(*extents: int) -> TaskMapping:
    """A worker for each point. *Ensures*: worker w does the w-th point, last dimension fastest."""
    return _factor("spatial", extents)


def repeat(*extents: int) -> TaskMapping:
    """One worker for all points, last dimension fastest."""
    return _factor("repeat", extents)


def points(extents: Point) -> Iterator[Point]:
    """All points of a grid, last dimension fastest."""
    return product(*map(range, extents))


def _factor(kind: str, extents: Point) -> TaskMapping:
    if not extents or any(n < 1 for n in extents):
        raise _undefined("making a task mapping", f"the grid {extents}", "extents of at least 1")
    return TaskMapping(((kind, extents),))


def _unravel(k: int, extents: Point) -> Point:
    found: list[int] = []
    for extent in reversed(extents):
        found.insert(0, k % extent)
        k //= extent
    return tuple(found)


def _undefined(doing: str, found: str, expected: str) -> LayoutUndefined:
    return LayoutUndefined(doing=doing, found=found, expected=expected, hint="give grids and indices that agree")
