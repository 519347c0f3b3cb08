"""Turns of two consumers: one computes while the other contracts. Order for speed alone, by barriers tagged `turn`.

Each waits at its own barrier and hands over by an arrival at the other's. The second hands over before its first task,
so that the first begins; the first takes the turn that is left at the end.
"""

from __future__ import annotations

from treadle.algebra.expr import Constraint, Expr, const, sym
from treadle.machine import form
from treadle.machine.form import Sync

FIRST = 3
"""The first consumer's barrier; 0 joins all threads, 1 and 2 those of a consumer."""


def turn(kind: str, number: Expr) -> Sync:
    """One side of a hand-over between the two consumers: who waits, who goes on."""
    return Sync(kind=kind, args=(("id", number), ("threads", const(256))), tags=("turn",))


def own(me: str) -> Expr:
    """The barrier at which a consumer waits for its turn."""
    return sym(me) + FIRST


def others(me: str) -> Expr:
    """The barrier at which the other one waits."""
    return FIRST + 1 - sym(me)


def first_turn(me: str) -> form.If:
    """The second consumer lets the first begin."""
    return form.If(conds=(Constraint(sym(me) - 1),), scope="agent", then=[turn("barrier.arrive", const(FIRST))])


def last_turn(me: str) -> form.If:
    """The first consumer takes the last hand-over."""
    return form.If(conds=(Constraint(-sym(me)),), scope="agent", then=[turn("barrier.sync", const(FIRST))])
