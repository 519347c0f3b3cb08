"""Task mappings: which worker does which points of a grid, in which order; and placements of tile elements.

A task mapping gives each of its workers an ordered list of points. `spatial(d)` has a worker a point, `repeat(d)` one
worker that does all points in order; their product nests the second inside the first. A placement says where the
elements of a tile are, over named axes (lane, warp, register ...): a shard of digits, replicas, an offset; its inverse
is set-valued.

*Source*: task mappings as in Hidet (arXiv 2210.09603); placements as in Axe (arXiv 2601.19092). `proof/Tasks.v` proves
that the product is associative and that products of exact covers are exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod

from treadle.algebra.layouts import LayoutUndefined

Point = tuple[int, ...]
Place = tuple[tuple[str, int], ...]  # (axis, coordinate), sorted by axis


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


@dataclass(frozen=True)
class Placement:
    """Where the elements of a tile are: L(x) = {shard(x) + r + offset : r in the span of the replicas}.

    `shard`: digits of the row-major index, most significant first, as (extent, stride, axis); `replicas`: (extent,
    stride, axis); `offset` by axis."""

    shard: tuple[tuple[int, int, str], ...]
    replicas: tuple[tuple[int, int, str], ...] = ()
    offset: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def size(self) -> int:
        """Elements of the tile."""
        return prod(extent for extent, _, _ in self.shard)

    def places(self, index: int) -> frozenset[Place]:
        """All places of the element with that row-major index. *Errors*: `layout/undefined` outside the tile."""
        if not 0 <= index < self.size:
            raise _undefined("placing an element", f"element {index}", f"0 .. {self.size - 1}")
        at = dict.fromkeys(self.axes, 0) | dict(self.offset)
        for extent, stride, axis in reversed(self.shard):
            at[axis] += index % extent * stride
            index //= extent
        found: set[Place] = set()
        for copy in product(*(range(extent) for extent, _, _ in self.replicas)):
            here = dict(at)
            for n, (_, stride, axis) in zip(copy, self.replicas, strict=True):
                here[axis] += n * stride
            found.add(tuple(sorted(here.items())))
        return frozenset(found)

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes that it mentions, in order of first mention."""
        names = [axis for _, _, axis in self.shard + self.replicas] + list(self.offset)
        return tuple(dict.fromkeys(names))

    def holders(self) -> dict[Place, frozenset[int]]:
        """The inverse: the elements at each place. *Ensures*: p in places(x) exactly when x in holders()[p]."""
        found: dict[Place, set[int]] = {}
        for x in range(self.size):
            for place in self.places(x):
                found.setdefault(place, set()).add(x)
        return {place: frozenset(xs) for place, xs in found.items()}

    def canonical(self) -> Placement:
        """The same map without digits of extent 1 and with neighbouring digits of one run joined.

        *Ensures*: `canonical().places(x) == places(x)`; canonical forms of canonical forms are themselves."""
        kept: list[tuple[int, int, str]] = []
        for extent, stride, axis in self.shard:
            if extent == 1:
                continue
            if kept and kept[-1][2] == axis and kept[-1][1] == extent * stride:
                kept[-1] = (kept[-1][0] * extent, stride, axis)
            else:
                kept.append((extent, stride, axis))
        copies = tuple(sorted(r for r in self.replicas if r[0] > 1 and r[1] != 0))
        return Placement(tuple(kept), copies, {a: n for a, n in sorted(self.offset.items()) if n})

    def tiled(self, inner: Placement) -> Placement:
        """Each element of `self` becomes a tile placed as `inner`: strides of `self` grow by the span of `inner`.

        *Ensures*: the places of element `i * inner.size + j` are sums of a place of i, scaled axis by axis by the span
        of `inner`, and a place of j."""
        offset = {a: n * inner.span(a) for a, n in self.offset.items()}
        for axis, n in inner.offset.items():
            offset[axis] = offset.get(axis, 0) + n
        shard = tuple((extent, stride * inner.span(a), a) for extent, stride, a in self.shard)
        replicas = tuple((extent, stride * inner.span(a), a) for extent, stride, a in self.replicas)
        return Placement(shard + inner.shard, replicas + inner.replicas, offset)

    def span(self, axis: str) -> int:
        """How many coordinates of an axis the placement stretches over, its offset aside."""
        return 1 + sum((extent - 1) * abs(stride) for extent, stride, a in self.shard + self.replicas if a == axis)


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
