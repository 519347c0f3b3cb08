"""What findings call a value: the user's variable that it is, or that it comes from.

A value without a variable of its own is an intermediate result: an updated tile is called by the tile, a computed one
by the operands whose elements matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.ir.core import If, Op, Program, Region, Value
from treadle.ir.ops.access import Extract, Insert

if TYPE_CHECKING:
    from treadle.evaluate.machine import Machine

NAMELESS = "an intermediate result"


def variable_of(program: Program, value: Value) -> str:
    """The variable that holds a value, or the tile that it is a state or a part of."""
    while value.hint is None:
        before = _before(program, value)
        if before is None:
            return NAMELESS
        value = before
    return value.hint


def unwritten_variable(machine: Machine, value: Value) -> str:
    """The variable through which elements that nothing wrote came into a value."""
    seen: set[str] = set()
    while value.hint is None and value.name not in seen:
        seen.add(value.name)
        op = _definer(machine.program, value)
        if op is None:
            return NAMELESS
        before = _before(machine.program, value)
        sources = op.operands if before is None else (before,)
        holes = [v for v in sources if v.name in machine.values and _holes(machine, v)]
        if not holes:
            return NAMELESS
        value = holes[0]
    return value.hint or NAMELESS


def _holes(machine: Machine, value: Value) -> bool:
    known = machine.values[value.name].known
    return known is not None and not known.all()


def _before(program: Program, value: Value) -> Value | None:
    """The value that this one is a later state, or a part, of."""
    op = _definer(program, value)
    match op:
        case Insert() | Extract():
            return op.source
        case Region():
            states = op.results if value in op.results else op.carried
            return op.inits[states.index(value)] if value in states else None
        case If():
            return op.then.yields[op.results.index(value)]
        case _:
            return None


def _definer(program: Program, value: Value) -> Op | None:
    """The operation that defines a value, as a result or for its blocks."""
    for op in program.body.walk():
        if value in op.results or value in op.parameters:
            return op
    return None
