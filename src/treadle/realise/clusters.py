"""Streams in clusters: neighbouring workgroups that share a block of one operand and fetch it once.

A task is then a block of the whole cluster. It is cut along rows or along columns of the results, one part a workgroup;
operands without that axis are the same in all of them. Each workgroup fetches a slice of such an operand and sends it
to all; a slot is filled again when the consumers of all workgroups have given it back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from treadle.algebra.expr import ZERO, Expr, const, minimum, sym
from treadle.machine.form import Body, Sync
from treadle.machine.vocabulary import RANK


@dataclass(frozen=True)
class Cluster:
    """`size` workgroups, each with a part of the task `along` "rows" or "columns"; 1: workgroups are alone."""

    size: int = 1
    along: str = ""

    def offset(self, width: int) -> Expr:
        """Where the parts of `width` of a workgroup begin in the task's block."""
        return sym(RANK) * width if self.size > 1 else ZERO

    def part(self, lo: Expr, width: int, ends: Sequence[Expr]) -> tuple[Expr, Expr]:
        """The bounds of a workgroup's part of a block that begins at `lo`, where the block's ends are `ends`."""
        mine = lo + self.offset(width)
        return mine, minimum(mine + width, *(e for e in ends if e != lo + width * self.size))

    def everyone(self) -> int:
        """All workgroups, a bit each, as boxes are told where to go; 0 if there is one."""
        return (1 << self.size) - 1 if self.size > 1 else 0

    def meeting(self, threads: int) -> list[Sync]:
        """All threads that begin together: of the cluster, or of the one workgroup."""
        if self.size > 1:
            return self.farewell()
        return [Sync(kind="barrier.sync", args=(("id", const(0)), ("threads", const(threads))))]

    def farewell(self) -> list[Sync]:
        """The cluster's barrier: nobody ends while others may reach its memory."""
        return [Sync(kind="cluster.arrive"), Sync(kind="cluster.wait")] if self.size > 1 else []

    def ended(self, body: Body) -> Body:
        """A role's body with that barrier behind it."""
        return [*body, *self.farewell()]


ALONE = Cluster()
