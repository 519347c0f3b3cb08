"""How the depth of tiles is shared out to tasks: in stretches of one length, for all tiles or for the last ones only.

Tiles that fill every workgroup as often as the others need no sharing; those left over for the last round do. A tile
is told by its coordinates among the tasks. What a stretch has is right whatever tiles are cut: the last stretch of a
tile goes on to the end of the depth, so that one stretch has all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from treadle.algebra.expr import Constraint, Expr, ceildiv, const, maximum, minimum

MOST = 1 << 30
"""The longest depth."""

STRETCHES = 1 << 12
"""The most stretches of a tile where some tiles have one only."""

ALONG = 1 << 16
"""More tiles than there are along one variable of the tasks, where tiles are counted."""


@dataclass(frozen=True)
class Portions:
    """`depth` in stretches of `size`. `first`: the first tile that is cut, in the order of the tasks; (): all are."""

    depth: Expr
    size: int
    first: tuple[Expr, ...] = ()

    @property
    def most(self) -> Expr:
        """Stretches of a tile that is cut."""
        return ceildiv(self.depth, self.size)

    def number(self, tile: Sequence[Expr]) -> Expr:
        """Stretches of a tile. *Ensures*: between 1 and `most`."""
        if not self.first:
            return self.most
        behind: Expr = const(0)
        for at, first in zip(tile, self.first, strict=True):
            behind = behind * ALONG + at - first
        return maximum(1, minimum(self.most, self.most + STRETCHES * behind))

    def begin(self, at: Expr) -> Expr:
        """Where a stretch begins."""
        return self.size * at

    def end(self, at: Expr, number: Expr) -> Expr:
        """Where it ends, of a tile that has so many; beyond the depth, of the last one."""
        return self.begin(at) + self.size + (MOST * maximum(0, at + 2 - number) if self.first else 0)

    def before(self, at: Expr, number: Expr) -> Expr:
        """Where those before a stretch end."""
        return self.begin(at) + (MOST * maximum(0, at + 1 - number) if self.first else 0)

    def facts(self, counts: Sequence[Expr]) -> list[Constraint]:
        """What the host has to know of the depth and of the tasks."""
        if not self.first:
            return [Constraint(MOST - self.depth)]
        longest = Constraint(min(MOST, STRETCHES * self.size) - self.depth)
        return [longest, *(Constraint(ALONG - n) for n in counts[1:])]


def left_over(counts: Sequence[Expr], workgroups: int) -> tuple[Expr, ...]:
    """The first tile of the last round of so many workgroups, where that is not full; behind all where it is."""
    rest = prod(counts, start=const(1)) // workgroups * workgroups
    found: list[Expr] = []
    for n in reversed(counts[1:]):
        found.append(maximum(0, rest % n))
        rest = rest // n
    return (rest, *reversed(found))
