"""Statements that read what they assign: all of it is read before any of it is assigned (`dst[$] = ...` at once)."""

from __future__ import annotations

from collections.abc import Iterable

from treadle.algebra.expr import Expr, Fn, sym
from treadle.machine.form import Compute, Fold, Load, Mma, Stmt, Store


def moves_itself(stmt: Stmt, evaluated: Iterable[Expr], rank: int) -> str:
    """The fragment that a statement assigns, where one of the index expressions that it `evaluated` reads another slot
    of it than the slot at hand; "": none does. `rank`: axes of that fragment.

    An emitter that assigns slot by slot would find new elements there."""
    own = stmt.dst if isinstance(stmt, Load | Compute | Fold | Mma) else stmt.old if isinstance(stmt, Store) else None
    here = tuple(sym(f"${i}") for i in range(rank))
    for e in evaluated:
        if own in e.functions and any(isinstance(a, Fn) and a.name == own and a.args != here for a in e.atoms()):
            return own or ""
    return ""
