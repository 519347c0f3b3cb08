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
from treadle.ir.core import If, Op, Sub
from treadle.ir.ops.access import Extract, Insert, Load, Store


@dataclass(frozen=True)
class Promise:
    """A subscript of `op`: the elements of `value`, or the index expression `expr`, are in `lo .. hi - 1`."""

    op: Op
    value: str | None
    expr: Expr | None
    lo: Expr
    hi: Expr


def promises(source: Source) -> list[Promise]:
    """All promises of the program."""
    found: list[Promise] = []
    for op in source.ops:
        for sub, lo, hi in _subscripts(op):
            if sub.promised:
                value = sub.tile.name if sub.tile is not None else _scalar(sub.index)
                found.append(Promise(op, value, sub.index if value is None else None, lo, hi))
    return found


def _scalar(index: Expr | None) -> str | None:
    """The value without axes that an index expression is."""
    if index is None or len(index.terms) != 1:
        return None
    (monomial, k) = index.terms[0]
    atom = monomial[0] if len(monomial) == 1 else None
    return atom.name if k == 1 and isinstance(atom, Fn) and not atom.args else None


def _subscripts(op: Op) -> Iterator[tuple[Sub, Expr, Expr]]:
    """Subscripts with the bounds of what they select from; none where an access skips elements that do not fit."""
    zero = Expr(())
    match op:
        case Load() if op.fill is None:
            axes = [(s, d, (zero, d.extent)) for s, d in zip(op.subs, op.tensor.dims)]
        case Store() if op.where is None:
            axes = [(s, d, (zero, d.extent)) for s, d in zip(op.subs, op.tensor.dims)]
        case Extract() if op.fill is None:
            axes = [(s, a.dim, (a.lo, a.hi)) for s, a in zip(op.subs, op.source.type.axes)]
        case Insert():
            axes = [(s, a.dim, (a.lo, a.hi)) for s, a in zip(op.subs, op.source.type.axes)]
        case _:
            return
    for sub, dim, (lo, hi) in axes:
        if isinstance(sub, tuple):
            yield from ((factor, zero, f.extent) for factor, f in zip(sub, dim.factors, strict=True))
        else:
            yield sub, lo, hi


def told(found: list[Promise], place: Place, facts: Facts, index: tuple[Expr, ...] = ()) -> tuple[Constraint, ...]:
    """What promises tell in the instance in force: of index expressions, of elements that scalar fragments hold, and
    of those that fragments hold at the slots at which `index` asks for fragments.

    What one promise tells may be what another one needs, so that its element exists: hence the rounds.
    """
    out: list[Constraint] = []
    active = [p for p in found if _in_force(p.op, place)]
    for promise in active:
        if promise.expr is not None:
            out += _inside(promise, place, place.source.expr_at(promise.expr, place.view.bindings))
    named = {p.value for p in active if p.value is not None}
    held_at = [(n, None) for n in _scalars(place)] + _beside(place, index)
    terms = [t for n, at in held_at if (t := _held(place, facts, n, at)) is not None]
    held = [one for t in terms for value in sorted(named) if (one := _as(place, t, value)) is not None]
    for _ in range(32):
        known = facts.also(*out)
        rest = [t for t in held if not _active(place, t, known)]
        new = [t for t in held if t not in rest]
        if not new:
            break
        for term in new:
            i = place.source.index_of(term, place.view)
            out += [c for p in active if p.value == term.value for c in _inside(p, place, i)]
        held = rest
    return tuple(out)


def _scalars(place: Place) -> list[str]:
    return [n for n in place.holds if n in place.frags and not place.frags[n].shape and place.frags[n].dtype.is_int]


def _beside(place: Place, index: tuple[Expr, ...]) -> list[tuple[str, tuple[Expr, ...] | None]]:
    """Integer fragments of the shape of one that an index asks, with the slots at which it does."""
    asked = {a for e in index for a in e.atoms() if isinstance(a, Fn) and a.name in place.frags and a.args}
    found = sorted({(place.frags[a.name].shape, a.args) for a in asked}, key=str)
    return [
        (n, args)
        for shape, args in found
        for n in place.holds
        if n in place.frags and place.frags[n].shape == shape and place.frags[n].dtype.is_int
    ]


def _held(place: Place, facts: Facts, name: str, at: tuple[Expr, ...] | None) -> Elem | None:
    """The element that a fragment holds at these slots, if one case decides."""
    if at is not None and any(a.functions for a in at):
        return None
    slots = None if at is None else tuple(place.expr(a, facts) for a in at)
    cases = [term for _, term in split(facts, place.held(name, slots, facts))]
    return cases[0] if len(cases) == 1 and isinstance(cases[0], Elem) else None


def _as(place: Place, term: Elem, value: str) -> Elem | None:
    """The element of a value that an element is too, by what both mean: its own, or one read from it (`t[i]`)."""
    if term.value == value:
        return term
    source = place.source
    at = source.coords(term)
    axes = source.values[value].type.axes
    bound = source.deps[value] <= place.view.bindings.keys()
    if not bound or not all(a.dim in at for a in axes) or not source.values[value].type.dtype.is_int:
        return None
    one = source.element(value, {a.dim: at[a.dim] for a in axes}, place.view.bindings)
    return one if source.index_of(one, place.view) == source.index_of(term, place.view) else None


def _inside(promise: Promise, place: Place, i: Expr) -> tuple[Constraint, Constraint]:
    lo, hi = (place.source.expr_at(e, place.view.bindings) for e in (promise.lo, promise.hi))
    return ge(i, lo), lt(i, hi)


def _in_force(op: Op, place: Place) -> bool:
    """Whether the operation is executed in the instance in force."""
    source, bindings = place.source, place.view.bindings
    for scope, branch in source.scopes[id(op)]:
        if isinstance(scope, If):
            if any(s not in bindings for s in source.deps[scope.cond.name]):
                return False
            if place.view.branches.get(source.element(scope.cond, {}, bindings)) != branch:
                return False
        elif any(s not in bindings for arg in scope.args for s in argument_symbols(arg)):
            return False
    return True


def _active(place: Place, term: Elem, facts: Facts) -> bool:
    """Whether the element is one of the instance in force."""
    source, bindings = place.source, place.view.bindings
    if any(bindings.get(s) != e for s, e in term.inst):
        return False
    axes = source.values[term.value].type.axes
    if any(s not in bindings for a in axes for e in (a.lo, a.hi) for s in source.depends(e)):
        return False
    bounds = [(source.expr_at(a.lo, bindings), source.expr_at(a.hi, bindings)) for a in axes]
    return all(facts.implies(ge(c, lo)) and facts.implies(lt(c, hi)) for c, (lo, hi) in zip(term.coords, bounds))
