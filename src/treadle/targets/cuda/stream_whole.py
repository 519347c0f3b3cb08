"""Chains whose blocks are never cut short: a guard that says so spares their iterations the masks for it.

A mask between two computations parts the text, and the assembler orders instructions only inside a part. Consumers that
take turns have the issue slots almost for themselves, so exponentials that hide nothing show: one piece is faster there
(measured on full and causal chains of 64 and 128 columns: 2 to 7 %). Three consumers that do not take turns are slower
with it (7 %): what one leaves idle the others use, when they do not all do the same.
"""

from __future__ import annotations

from collections.abc import Callable

from treadle.ir.core import RegionArg
from treadle.ir.guard import Fact
from treadle.plan.family import Point
from treadle.realise.closing import never_cut
from treadle.realise.ring import Stream
from treadle.targets.cuda.stream_clusters import cluster_of
from treadle.targets.cuda.stream_facts import chained


def uncut(stream: Stream, point: Point, has: Callable[[Fact], bool]) -> tuple[frozenset[str], list[Fact]]:
    """The arguments of a chain of which no block is cut short under facts that are had, and those facts."""
    sizes: dict[str, int] = {}
    found: list[Fact] = []
    rows, block = stream.rows, stream.block
    if not point["turns"] or not chained(stream) or block is None or not isinstance(rows, RegionArg):
        return frozenset(), found
    if stream.more_rows or stream.told or stream.walked or cluster_of(point).size > 1:
        return frozenset(), found
    for arg, size in ((rows, 64 * int(point["consumers"])), (block, int(point["step"]))):
        facts = never_cut(stream, arg, size, sizes)
        if facts is not None and all(has(f) for f in facts):
            sizes[arg.name] = size
            found += facts
    return frozenset(sizes), found
