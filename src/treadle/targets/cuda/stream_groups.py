"""Groups of rows whose number an instance tells: among how many tasks the blocks of a group are dealt, and how many
blocks there are."""

from __future__ import annotations

from math import ceil, prod

from treadle.realise.ring import Stream
from treadle.targets.cuda.shape import Shape

FOUND = 700.0
"""Cycles in which a task finds out that there is no block for it: it loads the range."""


def groups(shape: Shape, stream: Stream) -> int:
    """How many groups there are."""
    return prod(max(1, shape.facts.value(a.domain.extent)) for r in stream.around for a in r.args)


def length(shape: Shape, stream: Stream) -> float:
    """How many rows a group has on average, where each row is in one."""
    return prod(shape.extent(a.part) for a in stream.told) / groups(shape, stream)


def shares(shape: Shape, stream: Stream) -> tuple[int, ...]:
    """The values of the axis: as many tasks a group as it has blocks on average, twice, half as many, and one."""
    most = max(1, ceil(length(shape, stream) / 128))
    return tuple(dict.fromkeys(min(64, max(1, n)) for n in (most, 2 * most, most // 2, 1)))


def blocks(shape: Shape, stream: Stream, rows: int) -> float:
    """Blocks of all groups together: the last one of each is half full on average."""
    number, mean = groups(shape, stream), length(shape, stream)
    return number * (mean / rows + 0.5 * min(1.0, mean))
