"""Which dimension of a contraction lies along the vector registers, which is the row of its register block, and what it
sums over, under a choice of lanes."""

from __future__ import annotations

from dataclasses import dataclass

from treadle.algebra.dims import Dim
from treadle.base.memo import memoised
from treadle.ir.core import Value
from treadle.targets.cpu.shape import Contraction, Shape


@dataclass(frozen=True)
class Roles:
    """The dimensions of one contraction under a choice of lanes."""

    found: Contraction
    lane: Dim
    lane_operand: Value
    row_operand: Value
    row: Dim | None


def lanes_of(shape: Shape) -> list[str]:
    """Candidates for the lane: dimensions of accumulators, those contiguous in memory first."""
    counts: dict[str, int] = {}
    for found in shape.contractions:
        for dim in (*found.only_a, *found.only_b):
            counts[dim.name] = counts.get(dim.name, 0) + 1
    # A lane shared by all accumulators keeps values in one orientation from contraction to contraction.
    return sorted(counts, key=lambda n: (-counts[n], -shape.contiguous.get(n, 0)))


@memoised
def roles(shape: Shape, found: Contraction, lane: str) -> Roles | None:
    """Who is what in a contraction; None when it has no lane at all."""
    only = (*found.only_a, *found.only_b)
    if not only:
        return None
    dim = next((d for d in only if d.name == lane), None)
    if dim is None:
        rows = rows_beside(shape, lane)
        dim = max(only, key=lambda d: (d not in rows, shape.contiguous.get(d.name, 0)))
    in_a = dim in found.only_a
    others = found.only_b if in_a else found.only_a
    mine = found.only_a if in_a else found.only_b
    row = max(others or tuple(d for d in mine if d is not dim), key=shape.extent, default=None)
    a, b = found.op.a, found.op.b
    return Roles(found, dim, a if in_a else b, b if in_a else a, row if row in others else None)


def folded(shape: Shape, found: Contraction) -> tuple[Dim, ...]:
    """Every dimension that a contraction sums over, in its statement or by iterations."""
    # What a statement contracts of a fold's block is that fold's dimension: it counts once.
    return tuple(dict.fromkeys((*found.contracted, *shape.contracted_by_region(found))))


@memoised
def rows_beside(shape: Shape, lane: str) -> frozenset[Dim]:
    """Rows of contractions that have the lane: as the lanes of another one they would make register blocks as tall as
    they are wide."""
    having = [c for c in shape.contractions if any(d.name == lane for d in (*c.only_a, *c.only_b))]
    found = [r.row for c in having if (r := roles(shape, c, lane)) is not None]
    return frozenset(d for d in found if d is not None)
