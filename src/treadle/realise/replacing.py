"""Statements with other expressions or other names in them, however deep: what goes on elsewhere a second time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import TypeVar, cast

from treadle.algebra.expr import Atom, Constraint, Expr, Fn, of
from treadle.machine.form import Compute, Fold, FragRef, If, Invariant, Load, Mma, Stmt, Store

Thing = TypeVar("Thing")

NAMED: dict[str, tuple[type[FragRef | Invariant | Stmt | If], ...]] = {
    "name": (FragRef,),
    "holder": (Invariant,),
    "dst": (Load, Compute, Fold, Mma),
    "old": (Store,),
    "cond": (If,),
}
"""Fields that are the name of a fragment."""


def replaced(thing: Thing, env: Mapping[str, Expr]) -> Thing:
    """A statement, or a part of one, with symbols replaced in all its expressions."""

    def changed(part: object) -> object:
        return part.substitute(env) if isinstance(part, Expr | Constraint) else _rebuilt(part, changed)

    return cast("Thing", changed(thing))


def renamed(thing: Thing, names: Mapping[str, str]) -> Thing:
    """A statement, or a part of one, with other names for fragments, where it reads them, makes them or says what they
    hold."""

    def called(atom: Atom) -> Expr | None:
        if not isinstance(atom, Fn) or atom.name not in names:
            return None
        return of(Fn(names[atom.name], tuple(e.rewrite(called) for e in atom.args)))

    def changed(part: object) -> object:
        if isinstance(part, Expr):
            return part.rewrite(called) if part.functions & names.keys() else part
        found = _rebuilt(part, changed)
        for field, kinds in NAMED.items():
            if isinstance(part, kinds):
                found = replace(cast("Stmt", found), **{field: names.get(getattr(part, field), getattr(part, field))})
        return found

    return cast("Thing", changed(thing))


def _rebuilt(thing: object, change: Callable[[object], object]) -> object:
    """The same of changed fields or items."""
    if isinstance(thing, list):
        return [change(x) for x in cast("list[object]", thing)]
    if isinstance(thing, tuple):
        return tuple(change(x) for x in cast("tuple[object, ...]", thing))
    if is_dataclass(thing) and not isinstance(thing, type):
        return replace(thing, **{f.name: change(getattr(thing, f.name)) for f in fields(thing) if f.init})
    return thing
