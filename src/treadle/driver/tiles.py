"""Dimensions that a target with tiles in hardware wants as numbers.

A contraction that takes a dimension whole has it as the side of a tile; a plan with such tiles is for one extent. A
dimension that is cut into blocks somewhere stays symbolic: its extent is the guard's matter.
"""

from __future__ import annotations

from treadle.ir.core import Program, Region
from treadle.ir.ops.fold import Mma


def is_side(extent: int) -> bool:
    """Whether an extent may be the side of a tile."""
    return extent % 16 == 0 and 16 <= extent <= 256


def whole_dims(program: Program) -> list[str]:
    """Names of dimensions without a constant extent that contractions take whole and that no region cuts."""
    cut: set[str] = set()
    whole: dict[str, None] = {}
    for op in program.body.walk():
        if isinstance(op, Region):
            cut |= {a.domain.dim.name for a in op.args}
        elif isinstance(op, Mma):
            for part in (*op.a.type.axes, *op.b.type.axes):
                if part == part.dim.whole() and part.dim.extent.constant is None:
                    whole[part.dim.name] = None
    return [n for n in whole if n not in cut]
