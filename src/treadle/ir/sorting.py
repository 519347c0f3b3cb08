"""A stable merge sort written in operations of the IR: every element of every pass is found by itself.

Pass p merges neighbouring runs of `w = 2^p` elements. The element at place k of a merged pair takes its value from one
of the two runs; how many of the k elements before it came from the left run is found by binary search along the
diagonal of the merge. Elements of a pass read only the pass before: nothing is scattered, so that no promise is needed.

Source: S. Odeh, O. Green, Z. Mwassi, O. Shmueli, Y. Birk, "Merge Path - Parallel Merging Made Simple", 2012, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from treadle.algebra.dims import Dim, Part
from treadle.algebra.expr import Expr, const, maximum
from treadle.dtype.formats import bf16, bool_, f16, f32, i64
from treadle.ir.builder import Builder
from treadle.ir.core import Op, Region, RegionArg, Sub, TileType, Value
from treadle.ir.ops.fold import Sort

BITS = 48
"""No tile has more than 2^48 elements along an axis."""


class Writer(Protocol):
    """What a rule needs of the expansion."""

    b: Builder

    def each(self, part: Part, *, backward: bool = False, name: str = "") -> RegionArg: ...

    def count(self, name: str, extent: Expr) -> Dim: ...

    def conform(self, value: Value, type: TileType) -> Value: ...

    def carry(
        self, op: Op, args: Sequence[RegionArg], inits: Sequence[Value], body: Callable[[list[Value]], list[Value]]
    ) -> Region: ...


def sort(writer: Writer, op: Sort) -> Region:
    """The region whose results are the sorted elements and their coordinates, over the axes of the source."""
    b, axes = writer.b, op.source.type.axes
    coordinates = writer.conform(b.coords(op.part), TileType(i64, axes))
    passes = _passes(writer, op.part.extent)
    steps = writer.count("sort_step", passes + 1)
    arg = writer.each(writer.count("sort_pass", passes).whole(), name="sort_pass")

    def body(carried: list[Value]) -> list[Value]:
        merging = _Pass(writer, op, arg, steps, carried[0])
        source = merging.source()
        return [merging.pick(tile, source) for tile in carried]

    return writer.carry(op, [arg], [op.source, coordinates], body)


def _passes(writer: Writer, extent: Expr) -> Expr:
    """How often runs are merged: the least p with 2^p >= extent."""
    number = extent.constant
    if number is not None:
        return const(max(0, number - 1).bit_length())
    b = writer.b
    bits = writer.count("sort_bit", const(BITS))
    power = b.elementwise("shl", b.full(1, i64), b.coords(bits.whole()))
    less = b.elementwise("lt", power, b.index(extent))
    ones = b.elementwise("where", less, b.full(1, i64), b.full(0, i64))
    return maximum(0, b.reduce(ones, (bits,), "add").at())


@dataclass
class _Pass:
    """One pass; offsets count from the first coordinate of the sorted part, all tiles are i64."""

    writer: Writer
    op: Sort
    arg: RegionArg
    steps: Dim
    keys: Value

    def __post_init__(self) -> None:
        self.b = self.writer.b
        self.zero, self.one, self.two = (self.b.full(n, i64) for n in (0, 1, 2))
        at = self.calc("sub", self.b.coords(self.op.part), self.b.index(self.op.part.lo))
        self.width = self.calc("shl", self.one, self.b.index(self.arg.index))
        pair = self.calc("mul", self.width, self.two)
        self.base = self.calc("mul", self.calc("floordiv", at, pair), pair)
        self.place = self.calc("sub", at, self.base)
        left = self.calc("sub", self.b.index(self.op.part.extent), self.base)
        self.lefts = self.calc("minimum", self.width, left)
        rest = self.calc("maximum", self.calc("sub", left, self.width), self.zero)
        self.rights = self.calc("minimum", self.width, rest)

    def calc(self, fn: str, *args: Value) -> Value:
        return self.b.elementwise(fn, *args)

    def source(self) -> Value:
        """For each element its offset in the pass before."""
        axes = TileType(i64, self.keys.type.axes)
        low = self.calc("maximum", self.zero, self.calc("sub", self.place, self.rights))
        high = self.calc("minimum", self.place, self.lefts)
        whole = self.steps.whole()
        arg = self.writer.each(Part(self.steps, whole.lo, self.arg.index + 1), name="sort_step")
        region = self.writer.carry(self.op, [arg], [self.writer.conform(v, axes) for v in (low, high)], self.halve)
        taken = region.results[0]
        left, right = self.left(taken), self.right(taken)
        over = self.calc("ge", self.calc("sub", self.place, taken), self.rights)
        first = self.calc("or", over, self.before(self.key(left), self.key(right)))
        from_left = self.calc("and", self.calc("lt", taken, self.lefts), first)
        return self.calc("where", from_left, left, right)

    def halve(self, carried: list[Value]) -> list[Value]:
        """A step of the search for how many elements come from the left run."""
        low, high = carried
        middle = self.calc("floordiv", self.calc("add", low, high), self.two)
        behind = self.calc("sub", self.right(middle), self.one)
        more = self.before(self.key(self.left(middle)), self.key(behind))
        open_ = self.calc("lt", low, high)
        up = self.calc("and", open_, more)
        down = self.calc("and", open_, self.calc("not", more))
        return [
            self.calc("where", up, self.calc("add", middle, self.one), low),
            self.calc("where", down, middle, high),
        ]

    def left(self, taken: Value) -> Value:
        return self.calc("add", self.base, taken)

    def right(self, taken: Value) -> Value:
        return self.calc("sub", self.calc("add", self.calc("add", self.base, self.width), self.place), taken)

    def key(self, offset: Value) -> Value:
        return self.pick(self.keys, offset)

    def pick(self, tile: Value, offset: Value) -> Value:
        """The elements of a tile at offsets; outside it a zero that nothing looks at."""
        place = self.calc("add", offset, self.b.index(self.op.part.lo))
        subs = [Sub(tile=place) if a.dim is self.op.dim else Sub(part=a) for a in tile.type.axes]
        return self.b.extract(tile, subs, self.b.full(False if tile.type.dtype == bool_ else 0, tile.type.dtype))

    def before(self, a: Value, b: Value) -> Value:
        """Whether `a`, of the left run, comes first: ties do, and NaN comes last."""
        if a.type.dtype in (f16, bf16):
            a, b = self.b.cast(a, f32), self.b.cast(b, f32)
        first = self.calc("ge" if self.op.descending else "le", a, b)
        return self.calc("or", first, self.calc("isnan", b)) if a.type.dtype.is_float else first
