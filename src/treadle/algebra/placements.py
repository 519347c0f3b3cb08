"""Placements: where the elements of a tile are, over named axes (lane, warp, register ...).

A placement is a shard of digits, replicas and an offset; its inverse is set-valued. Two placements that say the same
have one canonical form, which is read off the map: the digits are those of the places of elements 0, 1, ..., the
replicas are sought in the set of places of element 0. Axes along which everything is at 0 are not told from axes that
are not there.

*Source*: Axe (arXiv 2601.19092): canonical forms, groups, tiles, direct sums, slices, is-tile-of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod

from treadle.algebra.layouts import LayoutUndefined

Place = tuple[tuple[str, int], ...]  # (axis, coordinate), sorted by axis
Digit = tuple[int, int, str]  # extent, stride, axis
NOWHERE = ""
"""The axis of digits of stride 0 where a placement has no other axis."""
TRIES = 20_000
"""How many steps a search for replicas takes before it refuses."""


@dataclass(frozen=True)
class Placement:
    """Where the elements of a tile are: L(x) = {shard(x) + r + offset : r in the span of the replicas}.

    `shard`: digits of the row-major index, most significant first, as (extent, stride, axis); `replicas`: (extent,
    stride, axis); `offset` by axis. *Errors*: `layout/undefined` for extents below 1."""

    shard: tuple[Digit, ...]
    replicas: tuple[Digit, ...] = ()
    offset: Mapping[str, int] = field(default_factory=dict[str, int])

    def __post_init__(self) -> None:
        if any(extent < 1 for extent, _, _ in self.shard + self.replicas):
            raise _undefined("making a placement", f"{self.shard} and {self.replicas}", "extents of at least 1")

    @property
    def size(self) -> int:
        """Elements of the tile."""
        return prod(extent for extent, _, _ in self.shard)

    def places(self, index: int) -> frozenset[Place]:
        """All places of the element with that row-major index. *Errors*: `layout/undefined` outside the tile."""
        if not 0 <= index < self.size:
            raise _undefined("placing an element", f"element {index}", f"0 .. {self.size - 1}")
        at = dict.fromkeys(self.axes, 0) | dict(self.offset)
        for axis, n in self._sharded(index).items():
            at[axis] += n
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
        """The one form of all placements of this map: digits as long as can be and not of extent 1, replicas that count
        up.

        *Ensures*: `canonical().places(x) == places(x)`, axes at 0 aside; `p.canonical() == q.canonical()` exactly when
        p and q have one size and the same places. *Errors*: `layout/undefined` where overlapping replicas take more
        than `TRIES` steps to sort out."""
        kept: list[Digit] = []
        for extent, stride, axis in self.shard:
            if extent == 1:
                continue
            run = kept and kept[-1][1] == extent * stride and (stride == 0 or kept[-1][2] == axis)
            if run:
                kept[-1] = (kept[-1][0] * extent, stride, axis)
            else:
                kept.append((extent, stride, axis))
        replicas: list[Digit] = []
        offset: dict[str, int] = {}
        for axis in sorted(self.axes):
            copies = self._copies(axis)
            least = min(copies)
            replicas += [(e, d, axis) for e, d in _progressions(frozenset(n - least for n in copies))]
            if least:
                offset[axis] = least
        named = [axis for _, stride, axis in kept if stride] + [axis for _, _, axis in replicas] + list(offset)
        still = min(named, default=NOWHERE)
        return Placement(tuple((e, d, a if d else still) for e, d, a in kept), tuple(replicas), offset)

    def same(self, other: Placement) -> bool:
        """Whether both have one size and put each element at the same places. *Errors*: as `canonical`."""
        return self.canonical() == other.canonical()

    def direct_sum(
        self, inner: Placement, extents: Sequence[int] | None = None, sizes: Sequence[int] | None = None
    ) -> Placement:
        """Each element of `self` becomes a tile placed as `inner`, strides as they are. `extents`: the grid that `self`
        is read as, `sizes`: the grid of a tile, of as many dimensions; without them both are one row.

        *Ensures*: the places of the element at point p of the grid of `extents[i] * sizes[i]`, row-major, are the sums
        of a place of the element of `self` at p // sizes and a place of that of `inner` at p % sizes. *Errors*:
        `layout/undefined` for grids of other sizes, and where a dimension ends inside of a digit (as `group`)."""
        offset = dict(self.offset)
        for axis, n in inner.offset.items():
            offset[axis] = offset.get(axis, 0) + n
        shard = self._interleaved(inner, extents, sizes)
        return Placement(shard, self.replicas + inner.replicas, offset)

    def tiled(
        self, inner: Placement, extents: Sequence[int] | None = None, sizes: Sequence[int] | None = None
    ) -> Placement:
        """Each element of `self` becomes a tile placed as `inner`: strides of `self` grow by the span of `inner`. Grids
        as in `direct_sum`.

        *Ensures*: the places of the element at point p of the grid of `extents[i] * sizes[i]` are sums of a place of
        the element of `self` at p // sizes, scaled axis by axis by the span of `inner`, and a place of that of `inner`
        at p % sizes. *Errors*: as `direct_sum`."""
        shard, replicas = (
            tuple((extent, stride * inner.span(a), a) for extent, stride, a in digits)
            for digits in (self.shard, self.replicas)
        )
        scaled = Placement(shard, replicas, {a: n * inner.span(a) for a, n in self.offset.items()})
        return scaled.direct_sum(inner, extents, sizes)

    def _interleaved(
        self, inner: Placement, extents: Sequence[int] | None, sizes: Sequence[int] | None
    ) -> tuple[Digit, ...]:
        """Digits of the grid whose dimensions have those of `self` before those of `inner`."""
        if extents is None and sizes is None:
            return self.shard + inner.shard
        extents, sizes = self._grids(inner, extents, sizes)
        pairs = zip(self.group(extents), inner.group(sizes), strict=True)
        return tuple(digit for outer, low in pairs for digit in outer + low)

    def _grids(
        self, inner: Placement, extents: Sequence[int] | None, sizes: Sequence[int] | None
    ) -> tuple[Sequence[int], Sequence[int]]:
        extents, sizes = extents or (self.size,), sizes or (inner.size,)
        if len(extents) != len(sizes):
            raise _undefined("tiling", f"grids of {len(extents)} and {len(sizes)} dimensions", "as many of both")
        return extents, sizes

    def span(self, axis: str) -> int:
        """How many coordinates of an axis the placement stretches over, its offset aside."""
        return 1 + sum((extent - 1) * abs(stride) for extent, stride, a in self.shard + self.replicas if a == axis)

    def group(self, extents: Sequence[int]) -> tuple[tuple[Digit, ...], ...]:
        """The digits of the shard, split so that each dimension of a grid has its own.

        *Ensures*: group i multiplies to `extents[i]`; with the groups one after the other as its shard the placement is
        the same. *Errors*: `layout/undefined` where a dimension ends inside of a digit: no groups have these extents;
        where the extents do not multiply to the size."""
        doing = f"grouping {self.shard} by {tuple(extents)}"
        if prod(extents) != self.size or any(n < 1 for n in extents):
            raise _undefined(doing, f"{prod(extents)} points", f"{self.size} elements")
        digits = list(self.canonical().shard)
        groups: list[tuple[Digit, ...]] = []
        for wanted in reversed(extents):
            group: list[Digit] = []
            while wanted > 1:
                extent, stride, axis = digits.pop()
                taken = min(extent, wanted)
                if extent % taken or wanted % taken:
                    raise _undefined(
                        doing, f"{wanted} points in a digit of {extent}", "dimensions that end with digits"
                    )
                group.insert(0, (taken, stride, axis))
                if taken < extent:
                    digits.append((extent // taken, stride * taken, axis))
                wanted //= taken
            groups.insert(0, tuple(group))
        return tuple(groups)

    def slice(self, extents: Sequence[int], start: Sequence[int], sizes: Sequence[int]) -> Placement:
        """The part of the tile, read as a grid of `extents`, that begins at `start` and has `sizes`.

        *Ensures*: its element at a point p of `sizes` has the places of the element of `self` at `start + p`. *Errors*:
        `layout/undefined` where the part leaves the grid, and where no digits say it."""
        doing = f"slicing {tuple(sizes)} at {tuple(start)} of {tuple(extents)}"
        inside = len(extents) == len(start) == len(sizes) and all(
            0 <= a and n > 0 and a + n <= e for e, a, n in zip(extents, start, sizes, strict=True)
        )
        if prod(extents) != self.size or not inside:
            raise _undefined(doing, f"a tile of {self.size}", "a part of a grid of as many points")
        moves: list[dict[str, int]] = []
        for point in product(*map(range, sizes)):
            index = 0
            for extent, first, n in zip(extents, start, point, strict=True):
                index = index * extent + first + n
            moves.append(self._sharded(index))
        first = moves[0]
        shard = _digits([{a: n - first[a] for a, n in move.items() if n != first[a]} for move in moves])
        if shard is None:
            raise _undefined(doing, "places that no digits count", "a part that begins and ends with digits")
        offset = {a: self.offset.get(a, 0) + first.get(a, 0) for a in dict.fromkeys([*self.offset, *first])}
        return Placement(shard, self.replicas, offset).canonical()

    def quotient(
        self, inner: Placement, extents: Sequence[int] | None = None, sizes: Sequence[int] | None = None
    ) -> Placement:
        """The placement Q with `Q.tiled(inner)` the same as `self`; with grids, `extents` that of `self` and `sizes`
        that of a tile, Q with `Q.tiled(inner, tiles, sizes)` the same, `tiles[i] == extents[i] // sizes[i]`. *Errors*:
        `layout/undefined` when there is none."""
        doing = f"dividing {self} by {inner}"
        extents, sizes = self._grids(inner, extents, sizes)
        if any(e % n for e, n in zip(extents, sizes, strict=True)) or prod(sizes) != inner.size:
            raise _undefined(doing, f"{tuple(extents)} elements", f"multiples of {tuple(sizes)}")
        groups = self.group([n for e, s in zip(extents, sizes, strict=True) for n in (e // s, s)])
        outer, low = (tuple(d for group in groups[k::2] for d in group) for k in (0, 1))
        if not Placement(low).same(Placement(inner.shard)):
            raise _undefined(doing, f"tiles of {low}", f"tiles of {inner.shard}")
        if any(stride % inner.span(axis) for _, stride, axis in outer):
            raise _undefined(doing, f"tiles at {outer}", "steps of whole tiles")
        replicas: list[Digit] = []
        offset: dict[str, int] = {}
        for axis in dict.fromkeys(self.axes + inner.axes):
            whole, part, span = self._copies(axis), inner._copies(axis), inner.span(axis)
            tiles = {(n - min(part)) // span for n in whole}
            if whole != {t * span + n for t in tiles for n in part}:
                raise _undefined(doing, f"copies at {sorted(whole)} of {axis}", "whole tiles of copies")
            offset[axis] = min(tiles)
            replicas += [(e, d, axis) for e, d in _progressions(frozenset(t - min(tiles) for t in tiles))]
        shard = tuple((extent, stride // inner.span(axis), axis) for extent, stride, axis in outer)
        return Placement(shard, tuple(replicas), offset).canonical()

    def is_tile_of(
        self, whole: Placement, extents: Sequence[int] | None = None, sizes: Sequence[int] | None = None
    ) -> bool:
        """Whether `whole`, read as the grid `extents`, is some placement tiled by `self`, read as the grid `sizes`.

        *Ensures*: true exactly when `whole.quotient(self, extents, sizes)` is."""
        try:
            whole.quotient(self, extents, sizes)
        except LayoutUndefined:
            return False
        return True

    def _sharded(self, index: int) -> dict[str, int]:
        """By axis: how far the shard moves an element."""
        at = {axis: 0 for _, _, axis in self.shard}
        for extent, stride, axis in reversed(self.shard):
            at[axis] += index % extent * stride
            index //= extent
        return at

    def _copies(self, axis: str) -> set[int]:
        """The coordinates of element 0 along an axis."""
        found = {self.offset.get(axis, 0)}
        for extent, stride, a in self.replicas:
            if a == axis:
                found = {n + k * stride for n in found for k in range(extent)}
        return found


def _digits(moves: Sequence[Mapping[str, int]]) -> tuple[Digit, ...] | None:
    """The digits, as long as can be, whose sums are these moves of 0, 1, ..., or None. Each digit ends where going on
    with its step would be wrong, so that there is one answer at most."""
    found: list[Digit] = []
    while len(moves) > 1:
        step = moves[1]
        if len(step) > 1:
            return None
        axis, stride = next(iter(step.items()), (NOWHERE, 0))
        run = next((k for k, m in enumerate(moves) if m != ({axis: k * stride} if k * stride else {})), len(moves))
        if len(moves) % run:
            return None
        for k, move in enumerate(moves):
            base, more = moves[k - k % run], k % run * stride
            total = {a: n for a, n in {**base, axis: base.get(axis, 0) + more}.items() if n}
            if total != move:
                return None
        found.insert(0, (run, stride, axis))
        moves = moves[::run]
    return tuple(found)


def _progressions(numbers: frozenset[int]) -> tuple[tuple[int, int], ...]:
    """Progressions (extent, stride), strides going up, whose sums are these numbers, the least of which is 0.

    They hang on the set only: strides are tried from the first number that is missing down, extents from the longest.
    Progressions of one stride are one, so that strides may be taken to grow. *Errors*: `layout/undefined` where there
    are none, and after `TRIES` steps."""
    tries = iter(range(TRIES))
    found = _extended(numbers, frozenset({0}), 0, tries)
    if found is None:
        raise _undefined("sorting out replicas", f"{len(numbers)} coordinates", "sums of progressions")
    return found


def _extended(
    numbers: frozenset[int], reached: frozenset[int], last: int, tries: Iterator[int]
) -> tuple[tuple[int, int], ...] | None:
    if reached == numbers:
        return ()
    missing = min(numbers - reached)
    for stride in sorted((n for n in numbers if last < n <= missing), reverse=True):
        if next(tries, None) is None:
            raise _undefined("sorting out replicas", f"{len(numbers)} coordinates", f"at most {TRIES} steps")
        longer = [reached]
        while (more := longer[-1] | {n + len(longer) * stride for n in reached}) <= numbers:
            longer.append(more)
        for extent in range(len(longer), 1, -1):
            rest = _extended(numbers, longer[extent - 1], stride, tries)
            if rest is not None:
                return ((extent, stride), *rest)
    return None


def _undefined(doing: str, found: str, expected: str) -> LayoutUndefined:
    return LayoutUndefined(doing=doing, found=found, expected=expected, hint="give grids and indices that agree")
