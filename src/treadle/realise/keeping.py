"""Which values must be stored once although their elements could be computed again at every use."""

from __future__ import annotations

from collections.abc import Collection

from treadle.algebra.expr import Expr
from treadle.analysis.uses import PURE, Uses
from treadle.ir.core import AxisSub, Program, Sub, Value
from treadle.ir.ops.access import Extract, Insert, Load
from treadle.ir.ops.elementwise import Full


def gathered(program: Program, uses: Uses, kept: Collection[str]) -> set[str]:
    """Values that an extract takes elements of, that have another use beside it, and that are computed from extracts
    themselves.

    Computing them again at each place doubles the work, and the code, with every step of a chain of such values.
    """
    found: set[str] = set()
    depth: dict[str, int] = {}

    def steps(value: Value) -> int:
        """How many extracts lie between a value and what is stored or loaded."""
        if value.name not in depth:
            op = uses.definition.get(value.name)
            if value.name in kept or value.name in found or not isinstance(op, PURE):
                depth[value.name] = 0
            elif isinstance(op, Extract) and uses.forwarded(op) is None:
                depth[value.name] = steps(op.source) + 1
            else:
                depth[value.name] = max(map(steps, op.operands), default=0)
        return depth[value.name]

    for op in program.body.walk():
        if not isinstance(op, PURE) or not op.results or isinstance(op, Load | Full):
            continue
        users = uses.users.get(op.result.name, [])
        if len(users) > 1 and any(isinstance(u, Extract) for u in users) and steps(op.result):
            found.add(op.result.name)
            depth[op.result.name] = 0
    return found


def clashes(op: Insert, uses: Uses, kept: Collection[str]) -> bool:
    """Whether new elements of a tile are computed, where they are stored, from old ones that may be overwritten then.

    An element may be read where it is replaced itself, or where no element of the insert is.
    """
    todo, seen = [op.value], {op.value.name}
    while todo:
        value = todo.pop()
        made = uses.definition.get(value.name)
        if value is op.source:
            if not _in_place(op):
                return True
            continue
        if not isinstance(made, PURE) or value.name in kept:
            continue
        stored = uses.forwarded(made) if isinstance(made, Extract) else None
        if stored is not None:
            todo.append(stored)
            continue
        if isinstance(made, Extract) and made.source is op.source:
            if made.subs != op.subs and not any(map(_apart, made.subs, op.subs)):
                return True
            continue
        for used in uses.direct(made):
            if used.name not in seen:
                seen.add(used.name)
                todo.append(used)
    return False


def _in_place(op: Insert) -> bool:
    """Whether the element at a coordinate of the tile is replaced by the value at the same coordinate."""
    return all(
        isinstance(s, Sub) and s.part is not None and s.part.dim is axis.dim
        for s, axis in zip(op.subs, op.source.type.axes, strict=True)
    )


def _apart(a: AxisSub, b: AxisSub) -> bool:
    """Whether two subscripts of an axis surely have no coordinate in common."""
    first, second = _range(a), _range(b)
    if first is None or second is None:
        return False
    gaps = ((first[0] - second[1]).constant, (second[0] - first[1]).constant)
    return any(g is not None and g >= 0 for g in gaps)


def _range(sub: AxisSub) -> tuple[Expr, Expr] | None:
    if not isinstance(sub, Sub):
        return None
    if sub.index is not None:
        return sub.index, sub.index + 1
    return None if sub.part is None else (sub.part.lo, sub.part.hi)
