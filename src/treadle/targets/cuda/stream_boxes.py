"""Rows that are boxes of several dimensions: how many coordinates of each a block has."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, prod

from treadle.plan.family import Point
from treadle.realise.ring import Stream
from treadle.targets.cuda.shape import Shape

FASTEST = 4
"""The fewest coordinates of the fastest dimension, which the engine moves one after the other."""

KEPT = 3
"""Boxes of each number of rows that are looked at: those that cover the extents with the fewest rows of nobody."""


def boxes(shape: Shape, stream: Stream) -> tuple[str, ...]:
    """The values of the axis: sizes along the dimensions of rows, the slowest first, for one and two consumers."""
    extents = [shape.extent(part) for part in stream.row_parts]
    found: list[str] = []
    for rows in (128, 64):
        ways = sorted(
            factored(rows, len(extents)), key=lambda way: (_covered(way, extents), [-n for n in reversed(way)])
        )
        found += ["x".join(map(str, way)) for way in ways[:KEPT]]
    return tuple(found)


def _covered(way: tuple[int, ...], extents: list[int]) -> int:
    return prod(ceil(extent / size) * size for size, extent in zip(way, extents, strict=True))


def factored(rows: int, dims: int) -> Iterator[tuple[int, ...]]:
    """Powers of two, one a dimension, whose product is `rows`, the last at least `FASTEST` and at most 64."""
    if dims == 1:
        if FASTEST <= rows <= 64:
            yield (rows,)
        return
    size = 1
    while size <= rows:
        yield from ((size, *rest) for rest in factored(rows // size, dims - 1))
        size *= 2


def box_of(point: Point) -> tuple[int, ...]:
    """The sizes of a point's box; none where rows are of one dimension."""
    text = str(point.get("box", ""))
    return tuple(map(int, text.split("x"))) if text else ()
