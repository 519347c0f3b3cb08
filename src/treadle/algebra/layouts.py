"""Integer layouts: hierarchical shapes with strides, and what can be built from them.

A layout maps a coordinate to an integer: the inner product of its natural coordinate with its strides. A coordinate may
be given at any level of the hierarchy; an integer is spread over a shape with the leftmost mode fastest. Every
operation states its result by a pointwise equation (*Ensures*), and refuses (`layout/undefined`) where no layout of
that form satisfies it: an undefined case is never answered.

*Source*: the algebra of layouts as CuTe documents it (CUTLASS; arXiv 2603.02298); the conditions here are stricter,
because the documented ones admit compositions that are wrong at some points.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from treadle.base.errors import UserError

IntTuple: TypeAlias = "int | tuple[IntTuple, ...]"


class LayoutUndefined(UserError):
    """An operation on layouts has no result of the required form."""

    code = "layout/undefined"


@dataclass(frozen=True)
class Layout:
    """`shape : stride`, congruent nested tuples of integers; extents are positive, strides may be 0.

    *Errors*: `layout/undefined` for tuples that are not congruent and for extents below 1.
    """

    shape: IntTuple
    stride: IntTuple

    def __post_init__(self) -> None:
        if not _congruent(self.shape, self.stride):
            raise _undefined("making a layout", f"{self.shape} with strides {self.stride}", "one stride an extent")
        if any(s < 1 for s in leaves(self.shape)):
            raise _undefined("making a layout", f"the shape {self.shape}", "extents of at least 1")

    @property
    def size(self) -> int:
        """How many coordinates it has."""
        return prod(leaves(self.shape))

    @property
    def cosize(self) -> int:
        """One more than the largest value (strides are taken as not negative)."""
        return 1 + sum((s - 1) * d for s, d in self.modes)

    @property
    def modes(self) -> tuple[tuple[int, int], ...]:
        """All (extent, stride) pairs, leftmost first."""
        return tuple(zip(leaves(self.shape), leaves(self.stride), strict=True))

    @property
    def rank(self) -> int:
        """The number of top-level modes."""
        return len(self.shape) if isinstance(self.shape, tuple) else 1

    def __getitem__(self, mode: int) -> Layout:
        """A top-level mode."""
        if not isinstance(self.shape, tuple) or not isinstance(self.stride, tuple):
            return Layout((self.shape,), (self.stride,))[mode]
        return Layout(self.shape[mode], self.stride[mode])

    def __call__(self, coordinate: IntTuple) -> int:
        """The value at a coordinate: an integer, or a tuple down to any level of the shape.

        *Ensures*: `L(i) == L(natural coordinate of i)`."""
        return _value(self.shape, self.stride, coordinate)

    def values(self) -> Iterator[int]:
        """The values at 0, 1, ..., size - 1."""
        return (self(i) for i in range(self.size))

    def __str__(self) -> str:
        return f"{_text(self.shape)}:{_text(self.stride)}"


def row_major(*shape: int) -> Layout:
    """The layout of an array of that shape, last mode fastest."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.insert(0, step)
        step *= extent
    return Layout(tuple(shape), tuple(strides))


def leaves(t: IntTuple) -> tuple[int, ...]:
    """The integers of a nested tuple, left to right."""
    return tuple(x for part in t for x in leaves(part)) if isinstance(t, tuple) else (t,)


def coalesce(layout: Layout) -> Layout:
    """The same function of integers with as few modes as possible.

    *Ensures*: `coalesce(L)(i) == L(i)` for 0 <= i < size; no two neighbouring modes can be merged."""
    kept: list[tuple[int, int]] = []
    for extent, stride in layout.modes:
        if extent == 1:
            continue
        if kept and stride == kept[-1][0] * kept[-1][1]:
            kept[-1] = (kept[-1][0] * extent, kept[-1][1])
        else:
            kept.append((extent, stride))
    return _from_modes(kept)


def compose(outer: Layout, inner: Layout) -> Layout:
    """`outer` after `inner`, with the shape of `inner` refined where one of its modes crosses modes of `outer`.

    *Ensures*: `compose(A, B)(i) == A(B(i))` for 0 <= i < size(B).
    *Errors*: `layout/undefined` when a mode of `inner` enters a mode of `outer` off its divisions, when modes of
    `inner` carry into one another in `outer`'s digits, or when `inner` leaves the domain of `outer`, below 0 too."""
    digits = coalesce(outer).modes
    used = [0] * len(digits)
    doing = f"composing {outer} with {inner}"
    _counting_up(inner, doing)
    if inner.cosize > outer.size:
        raise _undefined(doing, f"values up to {inner.cosize - 1}", f"coordinates below {outer.size}")

    def mode(extent: int, stride: int) -> list[tuple[int, int]]:
        return _through(digits, used, extent, stride, doing)

    def rebuild(shape: IntTuple, stride: IntTuple) -> tuple[IntTuple, IntTuple]:
        if isinstance(shape, tuple) and isinstance(stride, tuple):
            parts = [rebuild(s, d) for s, d in zip(shape, stride, strict=True)]
            return tuple(p[0] for p in parts), tuple(p[1] for p in parts)
        assert isinstance(shape, int) and isinstance(stride, int)
        pieces = mode(shape, stride)
        if len(pieces) == 1:
            return pieces[0]
        return tuple(p[0] for p in pieces), tuple(p[1] for p in pieces)

    shape, stride = rebuild(inner.shape, inner.stride)
    for (extent, _), most in zip(digits, used, strict=True):
        if most >= extent:
            raise _undefined(doing, f"modes that add up to {most} in a digit below {extent}", "no carries")
    return Layout(shape, stride)


def _through(
    digits: Sequence[tuple[int, int]], used: list[int], extent: int, stride: int, doing: str
) -> list[tuple[int, int]]:
    """Modes of `c -> A(stride * c)`, c < extent; `used` gathers the largest digits that it makes."""
    if extent == 1 or stride == 0:
        return [(extent, 0)]
    pieces: list[tuple[int, int]] = []
    step, left = stride, extent
    for position, (size, outer_stride) in enumerate(digits):
        if step >= size:
            if step % size:
                raise _undefined(doing, f"steps of {step} across a mode of {size}", "steps that the mode divides")
            step //= size
            continue
        if step * (left - 1) < size:  # stays inside this digit
            used[position] += step * (left - 1)
            return [*pieces, (left, step * outer_stride)]
        if size % step or left % (size // step):
            raise _undefined(doing, f"{left} steps of {step} in a mode of {size}", "a whole number of rounds")
        count = size // step
        used[position] += step * (count - 1)
        pieces.append((count, step * outer_stride))
        left //= count
        step = 1
        if left == 1:
            return pieces
    raise _undefined(doing, f"{left} steps beyond the last mode", "an image inside the domain")


def complement(layout: Layout, total: int) -> Layout:
    """What is missing to `total`: an ordered layout whose image meets that of `layout` in 0 only.

    *Ensures*: the sums `L(i) + C(j)` are distinct for distinct (image of L, j), and reach at least all of
    0 .. total - 1. *Errors*: `layout/undefined` when the modes of `layout` overlap, or one of them counts down."""
    _counting_up(layout, f"completing {layout} to {total}")
    modes = sorted((d, s) for s, d in layout.modes if s > 1 and d > 0)
    found: list[tuple[int, int]] = []
    reached = 1
    for stride, extent in modes:
        if stride % reached:
            raise _undefined(
                f"completing {layout} to {total}", f"the stride {stride} above a block of {reached}", "nested modes"
            )
        if stride > reached:
            found.append((stride // reached, reached))
        reached = stride * extent
    if total > reached:
        found.append((-(-total // reached), reached))
    return _from_modes(found)


def divide(layout: Layout, tiler: Layout) -> Layout:
    """(tile, rest): the first mode runs inside tiles that `tiler` describes, the second over the tiles.

    *Ensures*: `divide(A, B)((i, j)) == A(B(i) + complement(B, size(A))(j))`."""
    rest = complement(tiler, layout.size)
    return compose(layout, Layout((tiler.shape, rest.shape), (tiler.stride, rest.stride)))


def multiply(block: Layout, tiler: Layout) -> Layout:
    """(block, copies): `block` repeated as `tiler` says, without overlap.

    *Ensures*: the copies' images are disjoint translates of the block's image."""
    rest = compose(complement(block, block.size * tiler.cosize), tiler)
    return Layout((block.shape, rest.shape), (block.stride, rest.stride))


def blocked(block: Layout, tiler: Layout) -> Layout:
    """`multiply`, mode by mode: inside the block fastest.

    *Ensures*: mode i at `b_i + t_i * size(block[i])`, for all i, is `block(b) + C(tiler(t))` with `C =
    complement(block, size(block) * cosize(tiler))`. *Errors*: `layout/undefined` for unlike ranks and as `multiply`."""
    return _zipped(block, tiler, inner_first=True)


def raked(block: Layout, tiler: Layout) -> Layout:
    """`multiply`, mode by mode: the copies fastest.

    *Ensures*: as `blocked`, with mode i at `t_i + b_i * size(tiler[i])`. *Errors*: as `blocked`."""
    return _zipped(block, tiler, inner_first=False)


def _zipped(block: Layout, tiler: Layout, inner_first: bool) -> Layout:
    if block.rank != tiler.rank:
        raise _undefined(f"repeating {block} by {tiler}", f"{block.rank} and {tiler.rank} modes", "equal ranks")
    # One mode may come out as several: inside a tuple they stay one mode.
    block, tiler = (x if isinstance(x.shape, tuple) else Layout((x.shape,), (x.stride,)) for x in (block, tiler))
    whole = multiply(block, tiler)
    pairs = [(whole[0][i], whole[1][i]) for i in range(block.rank)]
    ordered = pairs if inner_first else [(b, a) for a, b in pairs]
    return Layout(tuple((a.shape, b.shape) for a, b in ordered), tuple((a.stride, b.stride) for a, b in ordered))


def right_inverse(layout: Layout) -> Layout:
    """The longest R with `L(R(i)) == i` for 0 <= i < size(R) whose modes each count along a mode of L, from its start;
    not to its end where another mode goes on."""
    place = 1
    by_stride: dict[int, tuple[int, int]] = {}
    for extent, stride in layout.modes:
        if extent > by_stride.get(stride, (1, 0))[0]:
            by_stride[stride] = (extent, place)
        place *= extent
    # From the largest stride down: how far a count gets that goes on with this stride, and by which one then.
    ways: dict[int, tuple[int, int]] = {}
    for stride in sorted((d for d in by_stride if d > 0), reverse=True):
        extent = by_stride[stride][0]
        after = [(reach, d) for d, (reach, _) in ways.items() if d % stride == 0 and d <= stride * extent]
        ways[stride] = max([(stride * extent, 0), *after])
    found: list[tuple[int, int]] = []
    stride = 1 if 1 in ways else 0
    while stride:
        extent, place = by_stride[stride]
        after = ways[stride][1]
        found.append((after // stride if after else extent, place))
        stride = after
    return coalesce(_from_modes(found))


def left_inverse(layout: Layout) -> Layout:
    """R with `R(L(i)) == i` for 0 <= i < size(L). *Errors*: `layout/undefined` where L repeats a value or a mode of it
    counts down."""
    if len(set(layout.values())) != layout.size:
        raise _undefined(f"inverting {layout}", "a repeated value", "a one-to-one layout")
    rest = complement(layout, layout.cosize)
    return right_inverse(Layout((layout.shape, rest.shape), (layout.stride, rest.stride)))


def common_vector(a: Layout, b: Layout) -> int:
    """The largest v such that a and b both have 0 .. v - 1, each at the same coordinate.

    *Ensures*: for i < v there is a coordinate c(i) with a(c(i)) == b(c(i)) == i, and for i = v there is none."""
    same = {x for x, y in zip(a.values(), b.values(), strict=False) if x == y}
    return next(v for v in range(len(same) + 1) if v not in same)


@dataclass(frozen=True)
class Swizzle:
    """`x ^ ((x & mask) >> shift)`, mask = `bits` ones from position `base + max(shift, 0)`; negative `shift` goes up.

    *Ensures*: bit p of the result is bit p of x, xor bit `p + shift` where `0 <= p - base - max(-shift, 0) < bits`; a
    bijection of every block of 2^(base + bits + |shift|), its own inverse. *Errors*: `layout/undefined` unless
    |shift| >= bits."""

    bits: int
    base: int
    shift: int

    def __post_init__(self) -> None:
        if self.bits < 0 or self.base < 0 or abs(self.shift) < self.bits:
            raise _undefined(
                "making a swizzle", f"{self.bits} bits shifted by {self.shift}", "bits that move past themselves"
            )

    def __call__(self, x: int) -> int:
        mask = ((1 << self.bits) - 1) << (self.base + max(self.shift, 0))
        moved = (x & mask) >> self.shift if self.shift >= 0 else (x & mask) << -self.shift
        return x ^ moved


def _counting_up(layout: Layout, doing: str) -> None:
    if any(d < 0 for s, d in layout.modes if s > 1):
        raise _undefined(doing, f"a mode of {layout} that counts down", "strides of at least 0")


def _congruent(a: IntTuple, b: IntTuple) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(_congruent(x, y) for x, y in zip(a, b, strict=True))
    return isinstance(a, int) and isinstance(b, int)


def _value(shape: IntTuple, stride: IntTuple, at: IntTuple) -> int:
    if isinstance(at, tuple):
        if not isinstance(shape, tuple) or not isinstance(stride, tuple) or len(shape) != len(at):
            raise _undefined("reading a layout", f"the coordinate {at}", f"a coordinate of the shape {shape}")
        return sum(_value(s, d, c) for s, d, c in zip(shape, stride, at, strict=True))
    total, rest = 0, at
    extents, strides = leaves(shape), leaves(stride)
    if not 0 <= at < prod(extents):
        raise _undefined("reading a layout", f"the coordinate {at}", f"0 .. {prod(extents) - 1}")
    for extent, step in zip(extents, strides, strict=True):
        total += rest % extent * step
        rest //= extent
    return total


def _from_modes(modes: Sequence[tuple[int, int]]) -> Layout:
    if not modes:
        return Layout(1, 0)
    if len(modes) == 1:
        return Layout(*modes[0])
    return Layout(tuple(s for s, _ in modes), tuple(d for _, d in modes))


def _text(t: IntTuple) -> str:
    return "(" + ",".join(map(_text, t)) + ")" if isinstance(t, tuple) else str(t)


def _undefined(doing: str, found: str, expected: str) -> LayoutUndefined:
    return LayoutUndefined(
        doing=doing,
        found=found,
        expected=expected,
        hint="split or reorder modes until the operation is defined; it is never answered approximately",
    )
