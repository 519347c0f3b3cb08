"""What `td.in_range(i, V)` tells of an index that a statement computes: where the source evaluates it, it holds.

A promise belongs to a subscript of an operation. It speaks of the elements of the subscript's value in every active
instance of the operation, whatever else a machine statement uses the same element for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from treadle.algebra.expr import Constraint, Expr, Fn, ge, lt
from treadle.algebra.sets import Facts
from treadle.checker.compare import split
from treadle.checker.scopes import argument_symbols
from treadle.checker.source import Source
from treadle.checker.state import Place
from treadle.checker.terms import Elem
from treadle.ir.core import AxisSub, If, Op, Sub
from treadle.ir.ops.access import Extract, Insert, Load, Store


@dataclass(frozen=True)
class Promise:
    """The elements of `value` are in `lo .. hi - 1` wherever `op` is executed."""

    op: Op
    value: str
    lo: Expr
    hi: Expr


def promises(source: Source) -> dict[str, list[Promise]]:
    """All promises of the program, by the value that they speak of."""
    found: dict[str, list[Promise]] = {}
    for op in source.ops:
        for sub, lo, hi in _subscripts(op):
            name = _value(sub)
            if sub.promised and name is not None:
                found.setdefault(name, []).append(Promise(op, name, lo, hi))
    return found


def _value(sub: Sub) -> str | None:
    if sub.tile is not None:
        return sub.tile.name
    if sub.index is None or len(sub.index.terms) != 1:
        return None
    (monomial, k) = sub.index.terms[0]
    atom = monomial[0] if len(monomial) == 1 else None
    return atom.name if k == 1 and isinstance(atom, Fn) and not atom.args else None


def _subscripts(op: Op) -> Iterator[tuple[Sub, Expr, Expr]]:
    """Subscripts with the bounds of what they select from; none where an access skips elements that do not fit."""
    zero = Expr(())
    match op:
        case Load() if op.fill is None:
            axes: list[tuple[AxisSub, tuple[Expr, Expr]]] = [
                (s, (zero, d.extent)) for s, d in zip(op.subs, op.tensor.dims)
            ]
        case Store() if op.where is None:
            axes = [(s, (zero, d.extent)) for s, d in zip(op.subs, op.tensor.dims)]
        case Extract() if op.fill is None:
            axes = [(s, (a.lo, a.hi)) for s, a in zip(op.subs, op.source.type.axes)]
        case Insert():
            axes = [(s, (a.lo, a.hi)) for s, a in zip(op.subs, op.source.type.axes)]
        case _:
            return
    for sub, (lo, hi) in axes:
        if not isinstance(sub, tuple):
            yield sub, lo, hi


def told(found: dict[str, list[Promise]], place: Place, index: Expr, facts: Facts) -> tuple[Constraint, ...]:
    """What promises tell of an index expression of a statement that is an element of a fragment."""
    if len(index.terms) != 1 or not found:
        return ()
    (monomial, k) = index.terms[0]
    atom = monomial[0] if len(monomial) == 1 else None
    if k != 1 or not isinstance(atom, Fn) or atom.name not in place.frags:
        return ()
    args = tuple(place.expr(a, facts) for a in atom.args)
    cases = [term for _, term in split(facts, place.held(atom.name, args, facts))]
    if len(cases) != 1 or not isinstance(cases[0], Elem):
        return ()
    term = cases[0]
    out: list[Constraint] = []
    for promise in found.get(term.value, []):
        if _active(promise, place, term, facts):
            i = place.source.index_of(term, place.view)
            lo, hi = (place.source.expr_at(e, place.view.bindings) for e in (promise.lo, promise.hi))
            out += [ge(i, lo), lt(i, hi)]
    return tuple(out)


def _active(promise: Promise, place: Place, term: Elem, facts: Facts) -> bool:
    """Whether the operation is executed in the instance in force, for this element."""
    source, bindings = place.source, place.view.bindings
    for scope, branch in source.scopes[id(promise.op)]:
        if isinstance(scope, If):
            if any(s not in bindings for s in source.deps[scope.cond.name]):
                return False
            if place.view.branches.get(source.element(scope.cond, {}, bindings)) != branch:
                return False
        elif any(s not in bindings for arg in scope.args for s in argument_symbols(arg)):
            return False
    if any(bindings.get(s) != e for s, e in term.inst):
        return False
    axes = source.values[term.value].type.axes
    bounds = [(source.expr_at(a.lo, bindings), source.expr_at(a.hi, bindings)) for a in axes]
    return all(facts.implies(ge(c, lo)) and facts.implies(lt(c, hi)) for c, (lo, hi) in zip(term.coords, bounds))
