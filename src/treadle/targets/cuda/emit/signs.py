"""Which fragments hold no number below zero: one test less where they are divided."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.machine.form import Compute, Control, FragRef, Stmt

_NEVER_BELOW = ("exp", "exp2", "sigmoid", "normal_cdf", "abs")
_KEEPING = ("copy", "maximum", "add", "mul", "div")


def not_negative(stmts: Sequence[Stmt | Control]) -> frozenset[str]:
    """Fragments that every statement gives zeros (of either sign), NaN and numbers above zero only."""
    writes: dict[str, list[Compute | None]] = {}
    for stmt in stmts:
        name = getattr(stmt, "dst", None)
        if isinstance(name, str):
            writes.setdefault(name, []).append(stmt if isinstance(stmt, Compute) else None)
    held = {
        n for n, found in writes.items() if all(s is not None and s.fn in (*_NEVER_BELOW, *_KEEPING) for s in found)
    }
    while True:
        kept = {n for n in held if all(s is not None and _keeps(s, held) for s in writes[n])}
        if kept == held:
            return frozenset(held)
        held = kept


def _keeps(stmt: Compute, held: set[str]) -> bool:
    fill = stmt.fill == "undef" or stmt.fill >= 0
    return fill and (
        stmt.fn in _NEVER_BELOW or all(a.name in held if isinstance(a, FragRef) else _at_least_0(a) for a in stmt.args)
    )


def _at_least_0(operand: object) -> bool:
    return isinstance(operand, int | float) and operand >= 0
