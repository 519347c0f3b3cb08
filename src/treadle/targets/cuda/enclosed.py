"""Rows over lanes of programs that no region is around: their statements in one, a fold that all wait for in parts.

Tasks are instances of parallel regions. `enclose` puts the statements of a program into one, over blocks of what
nothing meets along; a fold in it, of which few tasks would be made, is cut (`factor`) into parts that are tasks of a
launch before (`materialise`), and what they come to is folded in the order of the parts.
"""

from __future__ import annotations

from math import ceil, isqrt, prod

from treadle.algebra.dims import Dim
from treadle.analysis.uses import Uses
from treadle.base.errors import LimitError, UserError
from treadle.ir.core import Program, Region, Sub
from treadle.ir.ops.access import Store
from treadle.ir.ops.fold import Reduce
from treadle.plan.facts import CallFacts
from treadle.rules.copies import dematerialise
from treadle.rules.derivation import Derivation
from treadle.rules.enclosing import enclose
from treadle.rules.folds import factor
from treadle.rules.tiles import materialise
from treadle.targets.cuda.rates import rates
from treadle.targets.cuda.shape import Shape

TASK = 128
"""Neighbours that a task has at least of a dimension along its lanes."""

A_PROCESSOR = 16
"""Parts of a fold for each multiprocessor, where it is long enough."""

SHORTEST = 4
"""Coordinates of a part at least."""

MOST_PARTS = 1024
"""Of a fold: those behind fold what all of them have come to."""


def enclosed(program: Program, facts: CallFacts) -> Derivation | None:
    """The steps to a program all of whose statements are in parallel regions; None of a program that has such a region
    or nothing to run.

    *Errors*: those of `enclose`.
    """
    regions = [op for op in program.body.ops if isinstance(op, Region)]
    if not program.body.ops or any(op.kind == "parallel" for op in regions):
        return None
    made = along_stores(Derivation(program), program)
    shape = Shape(made.program, facts, Uses(made.program))
    fold = fold_of(made.program)
    if fold is None:
        return made
    try:
        size, row = size_of(shape, fold), row_of(fold)
        if row is not None and shape.extent(fold.args[0].domain) < 2 * rates(facts).processors:
            return made.then(materialise, row.result.name)
        return made if size is None else in_parts(made, fold.name, fold.args[0].name, size)
    except (UserError, LimitError):
        return made


def along_stores(start: Derivation, program: Program) -> Derivation:
    """The statements in one region: over blocks of all dimensions that every store has and nothing meets along but
    the last one, along which lanes lie; of that one alone, if there is no other; else over a single instance."""
    stores = [op for op in program.body.walk() if isinstance(op, Store)]
    subs = [s for op in stores for s in op.subs if isinstance(s, Sub) and s.part is not None]
    tried: list[Dim] = list(dict.fromkeys(s.part.dim for s in subs if s.part is not None))
    kept = [dim.name for dim in tried if _apart(start, dim)]
    return start.then(enclose, kept[:-1] or kept)


def _apart(start: Derivation, dim: Dim) -> bool:
    """Whether the statements may be enclosed along a dimension."""
    try:
        start.then(enclose, [dim.name])
    except (UserError, LimitError):
        return False
    return True


def fold_of(program: Program) -> Region | None:
    """The only region in the one around, if it folds one state by a built-in monoid."""
    (region,) = (op for op in program.body.ops if isinstance(op, Region))
    folds = [op for op in region.body.ops if isinstance(op, Region)]
    if len(folds) != 1 or folds[0].kind != "reduce" or len(folds[0].results) != 1 or folds[0].merges:
        return None
    return folds[0]


def row_of(fold: Region) -> Reduce | None:
    """What each coordinate of a fold comes to by itself, where that is a fold of its own."""
    part = fold.args[0].part
    rows = [op for op in fold.body.ops if isinstance(op, Reduce) and op.result.type.axes == (part,)]
    return rows[0] if len(rows) == 1 and len(fold.args) == 1 else None


def size_of(shape: Shape, fold: Region) -> int | None:
    """How many coordinates a part of a fold is to have; None where there are tasks enough, or nothing to cut."""
    region = shape.around[id(fold)][-1]
    tasks = prod(ceil(shape.extent(a.domain) / (TASK if a is region.args[-1] else 1)) for a in region.args)
    processors = rates(shape.facts).processors
    length = shape.extent(fold.args[0].domain)
    parts = min(MOST_PARTS, ceil(A_PROCESSOR * processors / tasks), length // SHORTEST)
    if fold.results[0].type.axes:  # what parts come to lies along the lanes: they are folded one after the other
        parts = min(parts, isqrt(length))
    if tasks >= processors or parts < 2:
        return None
    return max(SHORTEST, 1 << (length // parts).bit_length() - 1)


def in_parts(made: Derivation, fold: str, arg: str, size: int) -> Derivation:
    """The fold in parts of so many coordinates, each a task of a region in front. *Errors*: those of the rules."""
    made = made.then(factor, fold, arg, size)
    regions = [op for op in made.program.body.walk() if isinstance(op, Region)]
    inner = next(op for op in regions if op.name == fold)
    outer = next(op for op in regions if inner in op.body.ops)
    return made.then(materialise, inner.results[0].name).then(dematerialise, outer.results[0].name)
