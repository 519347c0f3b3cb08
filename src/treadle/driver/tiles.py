"""Dimensions that a target with tiles in hardware wants as numbers.

A contraction that takes a dimension whole has it as the side of a tile; a plan with such tiles is for one extent. A
dimension that is cut into blocks somewhere stays symbolic: its extent is the guard's matter. Few single coordinates at
which an operand is read, the taps of a window, are factors of places in memory: as numbers these places are linear.
"""

from __future__ import annotations

from collections.abc import Mapping

from treadle.analysis.uses import flat_subs
from treadle.ir.core import Program, Region
from treadle.ir.ops.access import Load
from treadle.ir.ops.elementwise import Cast, Elementwise, Index
from treadle.ir.ops.fold import Mma


def is_side(extent: int) -> bool:
    """Whether an extent may be the side of a tile."""
    return extent % 16 == 0 and 16 <= extent <= 256


def is_factor(extent: int) -> bool:
    """Whether an extent may be that of a factor which blocks of tiles end with."""
    return extent % 16 == 0 and 16 <= extent <= 4096


TAPS = 16
"""The most single coordinates of a window along an axis that are wanted as a number."""


def wanted_dims(program: Program, extents: Mapping[str, int]) -> list[str]:
    """Names of dimensions that are wanted as numbers, of these extents."""
    sides = [n for n in whole_dims(program) if is_side(extents.get(n, 0))]
    factors = [n for n in factor_dims(program) if is_factor(extents.get(n, 0))]
    taps = [n for n in tap_dims(program) if 1 <= extents.get(n, 0) <= TAPS]
    return list(dict.fromkeys([*sides, *factors, *taps]))


def factor_dims(program: Program) -> list[str]:
    """Names of dimensions without a constant extent that are the last factor of an operand's axis: behind coordinates
    of the others, blocks of it end where it does, not where the tensor ends."""
    operands = {v.name for op in program.body.walk() if isinstance(op, Mma) for v in (op.a, op.b)}
    found: dict[str, None] = {}
    for op in program.body.walk():
        if isinstance(op, Load) and op.result.name in operands:
            for sub in op.subs:
                part = sub[-1].part if isinstance(sub, tuple) else None
                if part is not None and part.dim.extent.constant is None:
                    found[part.dim.name] = None
    return list(found)


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


def tap_dims(program: Program) -> list[str]:
    """Names of dimensions without a constant extent whose single coordinates an ordered region goes through, or are
    added to others around it, where what it contracts is made of what is loaded at computed places."""
    found: dict[str, None] = {}
    for outer in program.body.walk():
        if not isinstance(outer, Region):
            continue
        for region in [outer, *(op for op in outer.body.walk() if isinstance(op, Region))]:
            loads, added = ([], set[str]()) if region.kind == "parallel" else operand_loads(region)
            taps = [a for a in outer.args if a.kind == "each" and (outer is region or a.name in added)]
            if any(s.tile is not None for op in loads for s in flat_subs(op.subs)):
                found |= {a.domain.dim.name: None for a in taps if a.domain.dim.extent.constant is None}
    return list(found)


def operand_loads(region: Region) -> tuple[list[Load], set[str]]:
    """The loads in a region of which operands of its contractions are made, element by element; the symbols that they
    add to others, or to coordinates."""
    needed = {v.name for op in region.body.ops if isinstance(op, Mma) for v in (op.a, op.b)}
    loads: list[Load] = []
    added: set[str] = set()
    for op in reversed(region.body.ops):
        if not isinstance(op, Load | Elementwise | Cast | Index) or op.result.name not in needed:
            continue
        needed |= {v.name for v in op.operands}
        if isinstance(op, Index):
            added |= op.expr.symbols
        elif isinstance(op, Load):
            loads.append(op)
            indices = [s.index for s in flat_subs(op.subs) if s.index is not None]
            added |= {n for index in indices if len(index.symbols) > 1 for n in index.symbols}
    return loads, added
