"""By which extents a program divides: plans hold for calls in which none of them is 0, and no others are planned.

`X[m % N.extent]` is inside X wherever N has an element. A call without one has a plan only if it never divides, which
nobody can know beforehand: the interpreter runs it, and finds the mistake where there is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from treadle.algebra.expr import Expr, Floor
from treadle.ir.core import Op, Program, Value
from treadle.ir.ops.access import Extract, Insert, Load, Store
from treadle.ir.ops.elementwise import Cast, Elementwise, Index
from treadle.ir.rewrite import expressions

_DIVISIONS = frozenset({"floordiv", "mod"})


def divisors(program: Program) -> tuple[Expr, ...]:
    """Expressions of extents by which the program's index expressions divide, or elements that are subscripts, where
    the program does not require that they are at least 1."""
    extents = {s for d in program.dims for s in d.extent.symbols} | program.lets.keys()
    found: dict[Expr, None] = {}
    for e in (*_of_expressions(program), *_of_subscripts(program)):
        if e.constant is None and not e.functions and e.symbols <= extents and not _required(program, e):
            found.setdefault(e)
    return tuple(found)


def zero_divisor(program: Program, extents: Mapping[str, int]) -> str | None:
    """Why a call with these extents has no plan: a divisor that is not positive; None where all are."""
    for e in divisors(program):
        if e.symbols <= extents.keys() and e.evaluate(extents) < 1:
            return f"it divides by {e}, which is {e.evaluate(extents)} in this call"
    return None


def _of_expressions(program: Program) -> Iterator[Expr]:
    """Divisors of expressions, and of the extents that a let tells, which the host of a plan computes."""
    inside = (e for op in program.body.walk() for e in expressions(op))
    for e in (*program.lets.values(), *inside):
        for atom in e.atoms():
            if isinstance(atom, Floor):
                yield atom.den


def _of_subscripts(program: Program) -> Iterator[Expr]:
    """Divisors of the elements that tiles of subscripts are computed from."""
    defined: dict[str, Op] = {v.name: op for op in program.body.walk() for v in op.results}
    todo = [t for op in program.body.walk() for t in _tiles(op)]
    seen: set[str] = set()
    while todo:
        value = todo.pop()
        op = defined.get(value.name)
        if op is None or value.name in seen:
            continue
        seen.add(value.name)
        if isinstance(op, Elementwise) and op.fn in _DIVISIONS:
            by = defined.get(op.args[1].name)
            if isinstance(by, Index):
                yield by.expr
        if isinstance(op, Elementwise | Cast):
            todo += op.operands


def _tiles(op: Op) -> Iterator[Value]:
    if isinstance(op, Load | Store | Extract | Insert):
        for axis in op.subs:
            for sub in axis if isinstance(axis, tuple) else (axis,):
                if sub.tile is not None:
                    yield sub.tile


def _required(program: Program, e: Expr) -> bool:
    """Whether a requirement of the program says by itself that the expression is at least 1."""
    return any((rest := (c.expr - e).constant) is not None and rest <= -1 for c in program.requires)
