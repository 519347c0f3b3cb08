"""The judge's state at a point of a role's body: what every fragment and buffer holds, which facts hold, where we are.

It also gives meaning to index expressions of statements (`Place.expr`) and to claims (`Place.claimed`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from treadle.algebra.expr import Atom, Constraint, Expr, Fn, Sym, of, sym
from treadle.algebra.maps import box
from treadle.algebra.sets import Facts
from treadle.checker.compare import Compare, split
from treadle.checker.cuts import Range
from treadle.checker.scopes import View, folded_dims
from treadle.checker.source import Source
from treadle.checker.storage import Contents, assigned
from treadle.checker.terms import Elem, Part, Pieces, Term, Undef, converted, keeps_values, substituted
from treadle.checker.verdict import Refused, Unsure
from treadle.dtype.formats import DType
from treadle.hardware.targets import Target
from treadle.ir.ops.fold import Mma, Reduce, Scan
from treadle.machine.form import Buffer, Claim, Control, Frag, Kernel, Loop, Tasks

_EXISTENTIAL = re.compile(r"e\d+$")


@dataclass(frozen=True)
class Frame:
    """One enclosing control: a loop or task nest with the ranges of its variables, or one way through an `if`."""

    control: Control
    ranges: tuple[Range, ...] = ()
    bound: tuple[tuple[str, str], ...] = ()  # (argument symbol, variable that enumerates its blocks)
    branch: bool | None = None
    alternatives: tuple[tuple[Constraint, ...], ...] = ((),)
    source_if: int | None = None  # identity of the source's `if` that it realises
    position: int = 0  # index of the control in its body
    agents: int = 0  # of a role, whose agents all execute what is inside

    @property
    def binds(self) -> frozenset[str]:
        """Argument symbols that are bound here."""
        return frozenset(s for s, _ in self.bound)

    def entering(self, symbols: frozenset[str] | set[str]) -> frozenset[str]:
        """The variables that enumerate blocks of these arguments only."""
        return frozenset(v for _, v in self.bound if all(t in symbols for t, w in self.bound if w == v))


@dataclass
class Place:
    """A point of a role's body."""

    source: Source
    compare: Compare
    target: Target
    kernel: Kernel
    facts: Facts
    frags: dict[str, Frag]
    buffers: dict[str, Buffer]
    frames: tuple[Frame, ...] = ()
    view: View = field(default_factory=View)
    lets: dict[str, Expr] = field(default_factory=dict[str, Expr])
    holds: dict[str, Pieces] = field(default_factory=dict[str, Pieces])
    contents: dict[str, Contents] = field(default_factory=dict[str, Contents])
    filled: dict[str, Pieces] = field(default_factory=dict[str, Pieces])  # ring slots as their producer filled them
    configured: bool = False  # whether the thread's tiles are configured
    known: frozenset[str] | None = None  # symbols in scope; None: any

    def knowing(self, names: Sequence[str]) -> frozenset[str] | None:
        """The symbols in scope and these."""
        return None if self.known is None else self.known | frozenset(names)

    def inner(self, **changes: Any) -> Place:
        """A copy with its own tables, changed."""
        copied = replace(self, lets=dict(self.lets), holds=dict(self.holds), contents=dict(self.contents))
        copied.filled = dict(self.filled)
        return replace(copied, **changes)

    # ---- storage

    def frag(self, name: str) -> Frag:
        """The declaration of a fragment. *Errors*: refused if there is none."""
        found = self.frags.get(name)
        if found is None:
            raise Refused("J1", f"{name} is no fragment", {})
        return found

    def slots(self, shape: Sequence[int]) -> Facts:
        """The facts and the ranges of slot coordinates."""
        return self.facts.also(*box([f"${i}" for i in range(len(shape))], list(shape)))

    def held(self, name: str, coords: tuple[Expr, ...] | None, facts: Facts) -> Pieces:
        """What a fragment holds at coordinates (identity: None). *Errors*: refused outside the fragment."""
        scalar = self.source.scalars.get(name)
        if scalar is not None and name not in self.frags:
            return (((), Elem(scalar.name, ())),)
        frag = self.frag(name)
        pieces = self.holds.get(name, (((), Undef(f"{name} was not assigned here")),))
        if coords is None:
            return pieces
        if len(coords) != len(frag.shape):
            raise Refused("J1", f"{name} has {len(frag.shape)} coordinates, not {len(coords)}", {})
        for c, extent in zip(coords, frag.shape):
            for fact in box(["c"], [extent]):
                wanted = fact.substitute({"c": c})
                if not facts.implies(wanted):
                    case = facts.against(wanted)
                    raise Refused("J4", f"{name} is read outside its shape {frag.shape}", case or {})
        return substituted(pieces, {f"${i}": c for i, c in enumerate(coords)})

    # ---- expressions

    def expr(self, e: Expr, facts: Facts | None = None, ghost: bool = False) -> Expr:
        """An index expression of a statement: lets replaced, elements of integer fragments by what they hold. In a
        claim
        (`ghost`) it may mention elements of source values too.

        *Errors*: refused for a symbol that is not in scope.
        """
        if self.known is not None and not e.symbols <= self.known:
            for name in e.symbols - self.known - self.lets.keys():
                if name[0] not in "$#?!":
                    raise Refused("J1", f"the symbol {name} is not in scope", {})
        if not e.functions:
            return e.substitute(self.lets)
        known = self.facts if facts is None else facts

        def change(atom: Atom) -> Expr | None:
            if not isinstance(atom, Fn):
                return None
            args = tuple(self.expr(a, known, ghost) for a in atom.args)
            return self._element(atom.name, args, known, ghost)

        return e.rewrite(change).substitute(self.lets)

    def _element(self, name: str, args: tuple[Expr, ...], facts: Facts, ghost: bool) -> Expr:
        scalar = self.source.scalars.get(name)
        if scalar is not None:
            return self.source.index_of(Elem(scalar.name, ()), self.view)
        if ghost and name in self.source.values:
            return self.source.index_of(Elem(name, args, self.source.instance(name, self.view.bindings)), self.view)
        if name not in self.frags:
            raise Refused("J1", f"{name} is no fragment", {})
        pieces = self.held(name, args, facts)
        open_cases = [term for _, term in split(facts, pieces)]
        nothing = next((t for t in open_cases if isinstance(t, Undef)), None)
        if nothing is not None:
            raise Unsure("J1", f"{name} decides here and holds {nothing}", missing=f"a value of {name}")
        if len(open_cases) == 1:
            return self.source.index_of(self._finished(open_cases[0], facts), self.view)
        # Some integer: equal arguments, equal value, as long as the fragment is not assigned again. It is assigned
        # anew by every agent and in every iteration of the loops around its assignment.
        anew = [
            sym(r.var)
            for f in self.frames
            if f.agents or (isinstance(f.control, Loop | Tasks) and name in assigned(f.control.body))
            for r in f.ranges
        ]
        return of(Fn(f"{name}@{self.compare.number(self.holds.get(name))}", (*args, *anew)))

    def _finished(self, term: Term, facts: Facts) -> Term:
        """A state of a fold as its value, if all contributions are in it."""
        if isinstance(term, Part):
            whole = Elem(term.value, term.coords, term.inst)
            return whole if self.compare.same(facts, term, whole, self.view) is None else term
        return term

    def constraints(
        self, cs: Sequence[Constraint], facts: Facts | None = None, ghost: bool = False
    ) -> tuple[Constraint, ...]:
        """Conditions of a statement (of a claim: `ghost`): all must hold, so those that elements of fragments decide
        matter only where the others do; some value they must have everywhere, though.

        *Errors*: those of `expr`.
        """
        known = self.facts if facts is None else facts
        plain = [c for c in cs if not c.expr.functions]
        inner = known.also(*(Constraint(self.expr(c.expr, known, ghost), c.equality) for c in plain))
        if inner is not known and not ghost:
            for c in cs:
                if c.expr.functions:
                    self.expr(c.expr, known, ghost)
        return tuple(Constraint(self.expr(c.expr, inner, ghost), c.equality) for c in cs)

    # ---- claims

    def instance(self, overrides: tuple[tuple[str, Expr], ...], facts: Facts) -> dict[str, Expr]:
        """The bindings in force, with single arguments overridden."""
        found = dict(self.view.bindings)
        for symbol, e in overrides:
            if symbol not in self.source.by_argument:
                raise Refused("J1", f"the claim overrides {symbol}, which is no region argument", {})
            found[symbol] = self.expr(e, facts, ghost=True)
        return found

    def claimed(self, claim: Claim, facts: Facts, dtype: DType | None = None) -> tuple[tuple[Constraint, ...], Term]:
        """What a claim says: where, and which element (converted exactly, if the holder is of a wider dtype).

        *Errors*: refused where the claim names nothing, unsure where the instance is not determined.
        """
        value = self.source.values.get(claim.value)
        if value is None:
            raise Refused("J1", f"the claim names {claim.value}, which is no value of the source", {})
        if len(claim.coords) != len(value.type.axes):
            raise Refused(
                "J1", f"{value.name} has {len(value.type.axes)} axes, the claim {len(claim.coords)} coordinates", {}
            )
        inst = self.source.instance(value.name, self.instance(claim.instance, facts))
        where = self.constraints(claim.where, facts, ghost=True)
        inside = facts.also(*where)
        coords = tuple(self.expr(c, inside, ghost=True) for c in claim.coords)
        term: Term
        if claim.over is None:
            term = Elem(value.name, coords, inst)
        else:
            term = self._partial(claim, value.name, coords, inst, inside)
        if dtype is not None and value.type.dtype != dtype:
            if not keeps_values(value.type.dtype, dtype) or isinstance(term, Part):
                raise Refused("J1", f"{value.name} is {value.type.dtype}, the holder {dtype}", {})
            term = converted(term, value.type.dtype, dtype, False)
        return where, term

    def _partial(
        self, claim: Claim, name: str, coords: tuple[Expr, ...], inst: tuple[tuple[str, Expr], ...], facts: Facts
    ) -> Part:
        op = self.source.defs.get(name)
        if not isinstance(op, Reduce | Mma | Scan):
            raise Refused("J1", f"{name} is no fold or contraction: it has no unfinished states", {})
        folded = folded_dims(op)
        if len(claim.bound) != len(folded):
            raise Refused("J1", f"{name} folds {len(folded)} axes, the claim binds {len(claim.bound)} symbols", {})
        env: dict[str, Expr] = {b: sym(f"?{i}") for i, b in enumerate(claim.bound)}
        extra = sorted({s for c in claim.over or () for s in c.symbols if _EXISTENTIAL.match(s) and s not in env})
        env |= {s: sym(f"!{i}") for i, s in enumerate(extra)}
        over: list[Constraint] = []
        for c in claim.over or ():
            e = c.expr.rewrite(lambda a: env.get(a.name) if isinstance(a, Sym) else None)
            over.append(Constraint(self.expr(e, facts, ghost=True), c.equality))
        return Part(name, coords, inst, tuple(over), tuple(f"!{i}" for i in range(len(extra))))
