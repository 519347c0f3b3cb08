"""What `td.in_range(i, V)` tells of an index that a statement computes: where the source evaluates it, it holds.

A promise belongs to a subscript of an operation. It speaks of the elements of the subscript's value in every active
instance of the operation, whatever else a machine statement uses the same element for.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import cached_property

from treadle.algebra.dims import Dim
from treadle.algebra.expr import Constraint, Expr, Fn, ge, lt, sym
from treadle.algebra.sets import Facts
from treadle.checker.scopes import argument_symbols
from treadle.checker.source import Source
from treadle.checker.state import Place
from treadle.checker.terms import Elem
from treadle.ir.core import If, Op, Sub
from treadle.ir.infer import sub_axes
from treadle.ir.ops.access import Extract, Insert, Load, Store


@dataclass(frozen=True)
class Promise:
    """A subscript of `op`: the elements of `value`, or the index expression `expr`, are in `lo .. hi - 1`."""

    op: Load | Store | Extract | Insert
    value: str | None
    expr: Expr | None
    lo: Expr
    hi: Expr


def promises(source: Source) -> list[Promise]:
    """All promises of the program."""
    found: list[Promise] = []
    for op in source.ops:
        for sub, lo, hi in _subscripts(op):
            if sub.promised and isinstance(op, Load | Store | Extract | Insert):
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


Held = tuple[str, tuple[Expr, ...]]
"""A fragment of integers, and slots of it (none of a scalar)."""


class Promised:
    """The promises of a program."""

    def __init__(self, source: Source) -> None:
        self.found = promises(source)
        self.looked = 0
        """How many elements of fragments were taken for promised ones, or compared with one, so far."""

    def at(self, place: Place, facts: Facts, index: tuple[Expr, ...]) -> Told:
        """What promises tell at an access."""
        return Told(self, place, facts, index)


class Told:
    """What promises tell at one access: of index expressions; of elements that the fragments hold for which the index
    asks, and of those that are coordinates of these; if that is not enough, of all elements that scalar fragments hold,
    and that others hold at the slots for which the index asks.

    Every promise in force speaks of every element of its value that there is in the instance in force: which elements
    are looked at is a matter of work only.
    """

    def __init__(self, promised: Promised, place: Place, facts: Facts, index: tuple[Expr, ...]) -> None:
        self.promised, self.place, self.facts, self.index = promised, place, facts, index
        self.by_value: dict[str, list[Promise]] = {}
        self.told: list[Constraint] = []
        self.noted: dict[Elem, bool] = {}
        """Elements of promised values: whether what is promised of them was told."""

    def imply(self, goal: Constraint) -> bool:
        """Whether a constraint follows from the facts and what promises tell."""
        return self._near.implies(goal) or self._all.implies(goal)

    @cached_property
    def _near(self) -> Facts:
        """Facts, with what is told of elements for which the index asks, and of their coordinates."""
        place = self.place
        for promise in self.promised.found:
            if not _in_force(promise.op, place) or not _evaluated(promise, place, self.facts):
                continue
            if promise.value is not None:
                self.by_value.setdefault(promise.value, []).append(promise)
            elif promise.expr is not None:
                self.told += _inside(promise, place, place.source.expr_at(promise.expr, place.view.bindings))
        if not self.by_value:
            return self.facts.also(*self.told)
        for name, slots in self._asked:
            for term in self._held(name, slots):
                if term.value in self.by_value:
                    self.noted.setdefault(term, False)
                else:
                    self._compare(term)
        while True:
            known = self._known()
            wanted = {c for t, told in self.noted.items() if not told for c in t.coords}
            more = [e for c in wanted for e in self._named.get(c, []) if e not in self.noted] if wanted else []
            if not more:
                return known
            self.noted |= dict.fromkeys(more, False)

    @cached_property
    def _all(self) -> Facts:
        """Facts, with what is told of all elements in reach."""
        for name, slots in self._beside if self.by_value else ():
            for term in self._held(name, slots):
                if term.value in self.by_value:
                    self.noted.setdefault(term, False)
                self._compare(term)
        return self._known()

    def _known(self) -> Facts:
        """The facts with all that is told of the elements noted.

        What one promise tells may be what another one needs, so that its element exists: hence the rounds.
        """
        known = self.facts.also(*self.told)
        while new := [t for t, told in self.noted.items() if not told and _active(self.place, t, known)]:
            for term in new:
                self.noted[term] = True
                i = self.place.source.index_of(term, self.place.view)
                self.told += [c for p in self.by_value[term.value] for c in _inside(p, self.place, i)]
            known = self.facts.also(*self.told)
        return known

    def _compare(self, term: Elem) -> None:
        """Notes the elements of promised values that a term is too, by what both mean."""
        self.promised.looked += len(self.by_value)
        for one in (_as(self.place, term, value) for value in self.by_value):
            if one is not None:
                self.noted.setdefault(one, False)

    # ---- what fragments hold

    @cached_property
    def _asked(self) -> list[Held]:
        """The fragments for which the index asks, and the slots where no other fragment says which."""
        frags = self.place.frags
        asked = {a: None for e in self.index for a in e.atoms() if isinstance(a, Fn) and a.name in frags}
        return [
            (a.name, tuple(self.place.expr(e, self.facts) for e in a.args))
            for a in asked
            if not any(e.functions for e in a.args)
        ]

    @cached_property
    def _beside(self) -> list[Held]:
        """Scalar fragments, and those of the shape of one for which the index asks, at its slots."""
        frags = self.place.frags
        at: dict[tuple[int, ...], list[tuple[Expr, ...]]] = {(): [()]}
        for name, slots in self._asked:
            there = at.setdefault(frags[name].shape, [])
            if slots not in there:
                there.append(slots)
        ints = [n for n in self.place.holds if n in frags and frags[n].dtype.is_int]
        return [(n, slots) for n in ints for slots in at.get(frags[n].shape, ())]

    @cached_property
    def _named(self) -> dict[Expr, list[Elem]]:
        """The elements of promised values that these hold, by their index expressions."""
        found: dict[Expr, list[Elem]] = {}
        for name, slots in self._beside:
            for term in self._held(name, slots, self.by_value):
                self.promised.looked += 1
                found.setdefault(self.place.source.index_of(term, self.place.view), []).append(term)
        return found

    def _held(self, name: str, slots: tuple[Expr, ...], values: Container[str] | None = None) -> Iterator[Elem]:
        """The elements (of some values) that a fragment holds at these slots, in some case or other."""
        for _, term in self.place.holds.get(name, ()):
            if isinstance(term, Elem) and (values is None or term.value in values):
                yield _at(term, slots)


def _at(term: Elem, slots: tuple[Expr, ...]) -> Elem:
    """The element that is held at these slots."""
    env = {f"${i}": e for i, e in enumerate(slots) if e != sym(f"${i}")}
    return term.map(lambda e: e.substitute(env)) if env else term


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


def _evaluated(promise: Promise, place: Place, facts: Facts) -> bool:
    """Whether the operation has an element for each of the subscript's: along an axis that the subscript has not, there
    must be one."""
    source, bindings = place.source, place.view.bindings
    own = {a.dim for a in source.values[promise.value].type.axes} if promise.value is not None else set[Dim]()
    others = [a for a in sub_axes(promise.op.subs) if a.dim not in own]
    if any(s not in bindings for a in others for e in (a.lo, a.hi) for s in source.depends(e)):
        return False
    return all(facts.implies(lt(source.expr_at(a.lo, bindings), source.expr_at(a.hi, bindings))) for a in others)


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
