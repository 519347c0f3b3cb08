"""A stable merge sort written in operations of the IR.

Pass p merges neighbouring runs of `w = 2^p` elements into runs of `2 w`, coordinate by coordinate: an element of a
merged pair is the first that is left of one of two runs, and how many were taken from the left run is carried from each
coordinate to the next. Elements of a pass read only the pass before: nothing is scattered, so that no promise is
needed. n elements take n ceil(log2 n) such steps.

A tile with one axis has no rows that workers could share: there the coordinates of a pass go in blocks, and how many
elements the first coordinate of a block finds taken from the left run is searched: of the elements merged before it,
the left ones are those that come before the right one that would be in their place.

*Source* of the search: Odeh, Green, Mwassi, Shmueli, Birk, "Merge path", IPDPS workshops 2012, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from treadle.algebra.dims import Dim, Part
from treadle.algebra.expr import Expr, const, maximum, sym
from treadle.dtype.formats import bf16, bool_, f16, f32, f64, i32, i64
from treadle.ir.builder import Builder
from treadle.ir.core import Op, Region, RegionArg, Sub, TileType, Value
from treadle.ir.ops.fold import Sort

BITS = 48
"""No tile has more than 2^48 elements along an axis."""


BLOCK = 2048
"""Coordinates of a pass in a row: merging them takes much longer than finding where they begin."""


class Writer(Protocol):
    """What a rule needs of the expansion."""

    b: Builder

    def each(self, part: Part, *, backward: bool = False, name: str = "") -> RegionArg: ...

    def blocks(self, part: Part, size: Expr, *, name: str = "") -> RegionArg: ...

    def count(self, name: str, extent: Expr) -> Dim: ...

    def conform(self, value: Value, type: TileType) -> Value: ...

    def put(self, tile: Value, arg: RegionArg, value: Value) -> Value: ...

    def instances(
        self, op: Op, args: Sequence[RegionArg], inits: Sequence[Value], body: Callable[[list[Value]], list[Value]]
    ) -> Region: ...

    def carry(
        self, op: Op, args: Sequence[RegionArg], inits: Sequence[Value], body: Callable[[list[Value]], list[Value]]
    ) -> Region: ...


def sort(writer: Writer, op: Sort) -> tuple[Value | None, Value]:
    """The sorted elements and their coordinates, over the axes of the source; no elements where only the coordinates
    were sorted, beside numbers in the order of the elements."""
    b, axes = writer.b, op.source.type.axes
    coordinates = writer.conform(b.coords(op.part), TileType(i64, axes))
    passes = _passes(writer, op.part.extent)
    arg = writer.each(writer.count("sort_pass", passes).whole(), name="sort_pass")
    ranked = op.source.type.dtype.is_float
    keys = _ranks(b, op.source, op.descending) if ranked else op.source

    def body(carried: list[Value]) -> list[Value]:
        return _Pass(writer, op, arg, carried[0], carried[1]).merged()

    elements, places = writer.carry(op, [arg], [keys, coordinates], body).results
    return None if ranked else elements, places


def _ranks(b: Builder, source: Value, descending: bool) -> Value:
    """Integers in the order in which floats are to come: comparing them takes one instruction of a chain of few.

    The bits of a float from 0 up are in its order, and those of a negative one against it; -0 is 0, NaN comes last.
    """
    x = source if source.type.dtype is f64 else b.cast(source, f32)
    whole = i64 if x.type.dtype is f64 else i32
    zero = b.full(0, whole)
    bits = b.bitcast(x, whole)
    turned = b.elementwise("xor", bits, b.full(whole.finite_max, whole))
    rank = b.elementwise("where", b.elementwise("lt", bits, zero), turned, bits)
    rank = b.elementwise("where", b.elementwise("eq", x, b.full(0.0, x.type.dtype)), zero, rank)
    if descending:
        rank = b.elementwise("sub", zero, rank)
    return b.elementwise("where", b.elementwise("isnan", x), b.full(whole.finite_max, whole), rank)


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
    keys: Value
    places: Value

    def __post_init__(self) -> None:
        self.b = self.writer.b
        self.zero, self.one, self.two = (self.b.full(n, i64) for n in (0, 1, 2))
        self.width = self.calc("shl", self.one, self.b.index(self.arg.index))
        self.pair = self.calc("mul", self.width, self.two)

    def calc(self, fn: str, *args: Value) -> Value:
        return self.b.elementwise(fn, *args)

    def merged(self) -> list[Value]:
        """Elements and coordinates with runs twice as long."""
        rest = tuple(a for a in self.keys.type.axes if a.dim is not self.op.dim)
        self.counts = TileType(i64, rest)
        tiles = [self.b.full(None, t.type.dtype, t.type.axes) for t in (self.keys, self.places)]
        if not rest:
            block = self.writer.blocks(self.op.part, const(BLOCK), name="sort_block")

            def body(parts: list[Value]) -> list[Value]:
                self.at = self.writer.each(block.part, name="sort_at")
                first = self.taken(self.b.index(sym(f"{block.name}.start") - self.op.part.lo))
                return self.writer.carry(self.op, [self.at], [first, *parts], self.step).results[1:]

            return self.writer.instances(self.op, [block], tiles, body).results
        self.at = self.writer.each(self.op.part, name="sort_at")
        none = self.b.full(0, i64, rest)
        return self.writer.carry(self.op, [self.at], [none, *tiles], self.step).results[1:]

    def runs(self, at: Value) -> tuple[Value, Value, Value, Value]:
        """Of an offset: its place in a pair of runs, where the pair begins, and how long both runs are (the right one
        not above 0 where there is none)."""
        place = self.calc("and", at, self.calc("sub", self.pair, self.one))
        base = self.calc("sub", at, place)
        behind = self.calc("sub", self.b.index(self.op.part.extent), base)
        lefts = self.calc("minimum", self.width, behind)
        return place, base, lefts, self.calc("minimum", self.width, self.calc("sub", behind, self.width))

    def taken(self, at: Value) -> Value:
        """How many of the elements merged before an offset, in its pair of runs, are of the left run."""
        place, base, lefts, rights = self.runs(at)
        least = self.calc("maximum", self.zero, self.calc("sub", place, self.calc("maximum", rights, self.zero)))
        most = self.calc("minimum", place, lefts)
        bits = self.writer.count("sort_bit", const(BITS))
        step = self.writer.each(Part(bits, const(0), self.arg.index + 1), name="sort_bit")

        def halved(carried: list[Value]) -> list[Value]:
            low, high = carried
            middle = self.calc("shr", self.calc("add", low, high), self.one)
            right = self.calc("sub", self.calc("add", self.calc("add", base, self.width), place), middle)
            a = self.pick(self.keys, self.calc("add", base, middle))
            more = self.before(a, self.pick(self.keys, self.calc("sub", right, self.one)))
            open_still = self.calc("lt", low, high)
            up = self.calc("and", open_still, more)
            down = self.calc("and", open_still, self.b.elementwise("not", more))
            return [
                self.calc("where", up, self.calc("add", middle, self.one), low),
                self.calc("where", down, middle, high),
            ]

        return self.writer.carry(self.op, [step], [least, most], halved).results[0]

    def step(self, carried: list[Value]) -> list[Value]:
        """The element at one coordinate; carried are how many were taken from the left run, and the tiles."""
        at = self.b.index(self.at.index - self.op.part.lo)
        place, base, lefts, rights = self.runs(at)
        begins = self.calc("eq", place, self.zero)
        taken = self.calc("where", begins, self.zero, carried[0])
        left = self.calc("add", base, taken)
        others = self.calc("sub", place, taken)
        right = self.calc("add", self.calc("add", base, self.width), others)
        a, b = self.pick(self.keys, left), self.pick(self.keys, right)
        over = self.calc("ge", others, rights)
        first = self.calc("and", self.calc("lt", taken, lefts), self.calc("or", over, self.before(a, b)))
        more = self.calc("add", taken, self.calc("where", first, self.one, self.zero))
        chosen = [self.calc("where", first, a, b)]
        # Both, not the one at a chosen offset: which run is next cannot be foretold, and a branch on it is.
        chosen.append(self.calc("where", first, self.pick(self.places, left), self.pick(self.places, right)))
        kept = [self.writer.put(tile, self.at, v) for tile, v in zip(carried[1:], chosen)]
        return [self.writer.conform(more, self.counts), *kept]

    def pick(self, tile: Value, offset: Value) -> Value:
        """The elements of a tile at offsets; outside it a zero that nothing looks at."""
        place = self.calc("add", offset, self.b.index(self.op.part.lo))
        subs = [Sub(tile=place) if a.dim is self.op.dim else Sub(part=a) for a in tile.type.axes]
        return self.b.extract(tile, subs, self.b.full(False if tile.type.dtype == bool_ else 0, tile.type.dtype))

    def before(self, a: Value, b: Value) -> Value:
        """Whether `a`, of the left run, comes first: ties do. Ranks of floats are in order already."""
        turned = self.op.descending and not self.op.source.type.dtype.is_float
        return self.calc("ge" if turned else "le", a, b)


def before(b: Builder, op: Sort, first: Value, second: Value) -> Value:
    """Whether `first`, which is the earlier one, comes first: ties do, and NaN comes last."""
    if first.type.dtype in (f16, bf16):
        first, second = b.cast(first, f32), b.cast(second, f32)
    kept = b.elementwise("ge" if op.descending else "le", first, second)
    return b.elementwise("or", kept, b.elementwise("isnan", second)) if first.type.dtype.is_float else kept
