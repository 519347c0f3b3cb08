"""How a plan cuts the extents of a call, as a few numbers: what they say of other extents needs no planner.

A plan is made for the extents of one call and runs for others. What it loses there beside a plan of their own is mostly
what its blocks leave over: vectors that are half empty, tasks that do not share out evenly. `Grain` has the sizes, so
that a process which only loads plans can tell where one of them reaches its end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, inf, prod
from typing import Any

from treadle.algebra.expr import Expr

MANY = 32
"""From so many tasks a worker on, the last ones hardly matter."""
NEAR = 1.1
"""A plan that takes so many times the best one's time is not worth another."""
WIDE = 1.5
"""A plan that is good for some amount of work is so for as many times as much or little of it."""


@dataclass(frozen=True)
class Grain:
    """Sizes that a plan fills up or shares out. An extent is the name of a symbol, or a number as text.

    `tiles`: (extent, multiple that it is filled up to); `tasks`: (extent, block of it that a task has), where workers
    share tasks.
    """

    tiles: tuple[tuple[str, int], ...] = ()
    tasks: tuple[tuple[str, int], ...] = ()

    def loss(self, extents: Mapping[str, int], workers: int) -> float:
        """How many times the work of these extents a plan does or waits for: 1 where nothing is left over.

        *Ensures*: the product of `filled / extent` over tiles, times `workers / evenness(tasks)`.
        """
        total = 1.0
        for name, size in self.tiles:
            extent = _value(name, extents)
            total *= ceil(extent / size) * size / extent if extent else 1.0
        sizes = [blocks(_value(name, extents), size) for name, size in self.tasks]
        if not sizes or not all(sizes) or workers == 1:
            return total
        return total * workers / evenness(sizes, workers)

    def out(self) -> list[list[list[str | int]]]:
        """As JSON data."""
        return [[[n, s] for n, s in part] for part in (self.tiles, self.tasks)]

    @classmethod
    def read(cls, data: Any) -> Grain:
        """*Ensures*: `Grain.read(grain.out()) == grain`."""
        return cls(*(tuple((str(n), int(s)) for n, s in part) for part in data))


@dataclass(frozen=True)
class Reach:
    """Where a plan is known to be good in a cell. `loss`: what its blocks leave over (`Grain.loss`), at most; `least`
    and `most` points that a call had. `rank`: under which number the cell keeps the plan on disk, if at all."""

    loss: float
    least: float
    most: float
    rank: int | None = None

    def covers(self, loss: float, volume: float) -> bool:
        """Whether a call is within it."""
        return loss <= NEAR * self.loss and self.least <= WIDE * volume and volume <= WIDE * self.most

    def out(self) -> list[float]:
        """As JSON data; what has no end is negative."""
        return [-1.0 if n == inf else n for n in (self.loss, self.least, self.most)]


EVERYWHERE = Reach(inf, 0.0, inf, 0)
"""That of a plan which was measured to be the best of its cell."""


def named(extent: Expr) -> str | None:
    """An extent as a `Grain` says it; None for what is neither a symbol nor a number."""
    if extent.constant is not None:
        return str(int(extent.constant))
    symbols = list(extent.symbols)
    return symbols[0] if len(symbols) == 1 and str(extent) == symbols[0] else None


def _value(name: str, extents: Mapping[str, int]) -> int:
    return int(name) if name.isdigit() else extents.get(name, 1)


def blocks(extent: int, size: int) -> list[int]:
    """The sizes of an extent's blocks in order: the last is what is left."""
    return [size] * (extent // size) + ([extent % size] if extent % size else [])


def evenness(sizes: Sequence[Sequence[int]], workers: int) -> float:
    """How many workers' time tasks take up, handed out in order to whoever is free: `workers` when none waits."""
    count = prod(map(len, sizes))
    if workers == 1 or count == 0:
        return 1.0
    if count > MANY * workers:
        return float(workers)
    busy = [0.0] * workers
    for task in product(*sizes):
        busy[busy.index(min(busy))] += prod(task)
    return sum(busy) / max(busy)
