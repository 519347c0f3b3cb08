"""The first few of a sort, without the sort: a short list in order, into which an element goes that belongs there.

The elements come one after the other. Most of them do not come before the last of the list and cost one comparison; one
that does is put in its place, and the rest of the list moves on by one. n elements of random order put about
k ln(n / k) into a list of k, whose places are handled together.
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.algebra.dims import Part
from treadle.algebra.expr import const, maximum, minimum
from treadle.dtype.formats import bool_, i64
from treadle.ir.builder import Builder
from treadle.ir.core import Region, RegionArg, Sub, Value
from treadle.ir.ops.fold import Sort
from treadle.ir.sorting import Writer, before

FEW = 64
"""The longest such list: a sorted input puts every element into it."""


def select(writer: Writer, op: Sort, to: Part) -> Region:
    """The region whose results are the first elements of the sort, and their coordinates, over `to`."""
    b = writer.b
    rest = [a for a in op.source.type.axes if a.dim is not op.dim]
    axes = [to if a.dim is op.dim else a for a in op.source.type.axes]
    tiles = [b.full(None, d, axes) for d in (op.source.type.dtype, i64)]
    others = [writer.each(a) for a in rest]
    if not others:
        return _scan(writer, op, to, [], tiles)

    def row(carried: list[Value]) -> list[Value]:
        lists = [b.full(None, t.type.dtype, [to]) for t in tiles]
        found = _scan(writer, op, to, others, lists).results
        subs = {a.domain.dim: Sub(index=a.index) for a in others}
        return [b.insert(t, [subs.get(a.dim) or Sub(part=a) for a in axes], v) for t, v in zip(carried, found)]

    return writer.instances(op, others, tiles, row)


def _scan(writer: Writer, op: Sort, to: Part, others: Sequence[RegionArg], lists: list[Value]) -> Region:
    """The list after all elements of one row."""
    b = writer.b
    arg = writer.each(op.part, name="sort_at")
    rest = {a.domain.dim: a.index for a in others}
    puts = writer.count("sort_put", const(1))

    def calc(fn: str, *args: Value) -> Value:
        return b.elementwise(fn, *args)

    def step(carried: list[Value]) -> list[Value]:
        best, places = carried
        subs = [Sub(index=arg.index if a.dim is op.dim else rest[a.dim]) for a in op.source.type.axes]
        x = b.extract(op.source, subs)
        at = b.index(arg.index - op.part.lo)
        last = b.extract(best, [Sub(index=to.hi - 1)])
        short = calc("lt", at, b.index(to.extent))
        belongs = calc("or", short, calc("not", before(b, op, last, x)))
        # A region of no instance leaves the list where it is; the two ways of an `if` would both write it.
        times = calc("where", belongs, b.full(1, i64), b.full(0, i64))
        once = Part(puts, const(0), minimum(1, maximum(0, times.at())))
        where = b.index(arg.index)

        def put(lists: list[Value]) -> list[Value]:
            return _put(b, op, to, lists, x, at, where)

        return writer.carry(op, [writer.each(once, name="sort_put")], [best, places], put).results

    return writer.carry(op, [arg], lists, step)


def _put(b: Builder, op: Sort, to: Part, lists: Sequence[Value], x: Value, at: Value, place: Value) -> list[Value]:
    """The list with an element at its place. Places from `at` on are empty."""

    def calc(fn: str, *args: Value) -> Value:
        return b.elementwise(fn, *args)

    best = lists[0]
    j = calc("sub", b.coords(to), b.index(to.lo))
    one, lo = b.full(1, i64), b.index(to.lo)
    left = calc("sub", j, one)
    ahead = calc("or", calc("ge", j, at), calc("not", before(b, op, best, x)))

    def moved(tile: Value) -> Value:
        zero = b.full(False if tile.type.dtype == bool_ else 0, tile.type.dtype)
        return b.extract(tile, [Sub(tile=calc("add", left, lo))], zero)

    first = moved(best)
    behind = calc(
        "and", calc("ge", left, b.full(0, i64)), calc("or", calc("ge", left, at), calc("not", before(b, op, first, x)))
    )
    made = [calc("where", behind, first, x), calc("where", behind, moved(lists[1]), place)]
    return [calc("where", ahead, new, old) for new, old in zip(made, lists)]
