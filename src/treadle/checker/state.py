"""The judge's state at a point of a role's body: what every fragment and buffer holds, which facts hold, where we are.

It also gives meaning to index expressions of statements (`Place.expr`) and to claims (`Place.claimed`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from treadle.algebra.expr import Atom, Constraint, Expr, Fn, Sym, of, sym
from treadle.algebra.maps import box
from treadle.algebra.sets import Facts
from treadle.checker.compare import Compare, split
from treadle.checker.cuts import Range
from treadle.checker.source import Source, View, converted
from treadle.checker.storage import Contents
from treadle.checker.terms import Elem, Part, Pieces, Term, Undef, keeps_values, substituted
from treadle.checker.verdict import Refused, Unsure
from treadle.dtype.formats import DType
from treadle.hardware.targets import Target
from treadle.ir.ops.fold import Mma, Reduce
from treadle.machine.form import Buffer, Claim, Control, Frag, Kernel, Stmt

_EXISTENTIAL = re.compile(r"e\d+$")


@dataclass(frozen=True)
class Frame:
    """One enclosing control: a loop or task nest with the ranges of its variables, or one way through an `if`."""

    control: Control
    ranges: tuple[Range, ...] = ()
    entering: frozenset[str] = frozenset()  # variables that enumerate blocks of a region
    binds: frozenset[str] = frozenset()  # argument symbols bound here
    branch: bool | None = None
    alternatives: tuple[tuple[Constraint, ...], ...] = ((),)
    source_if: int | None = None
    position: int = 0  # index of the control in its body


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

    def inner(self, **changes: object) -> Place:
        """A copy with its own tables, changed."""
        copied = replace(self, lets=dict(self.lets), holds=dict(self.holds), contents=dict(self.contents))
        return replace(copied, **changes)  # type: ignore[arg-type]

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
        declared = self.frags.get(name)
        if declared is None and name in self.source.values and not self.source.values[name].type.axes:
            return (((), Elem(name, (), self.source.instance(name, self.view.bindings))),)
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

    def expr(self, e: Expr, facts: Facts | None = None) -> Expr:
        """An index expression of a statement: lets replaced, elements of integer fragments by what they hold."""
        if self.lets and e.symbols & self.lets.keys():
            e = e.substitute(self.lets)
        if not e.functions:
            return e
        known = self.facts if facts is None else facts

        def change(atom: Atom) -> Expr | None:
            if not isinstance(atom, Fn):
                return None
            args = tuple(self.expr(a, known) for a in atom.args)
            return self._element(atom.name, args, known)

        return e.rewrite(change)

    def _element(self, name: str, args: tuple[Expr, ...], facts: Facts) -> Expr:
        if name in self.source.values:
            return self.source.index_of(Elem(name, args, self.source.instance(name, self.view.bindings)), self.view)
        if name not in self.frags:
            return of(Fn(name, args))
        open_cases = [term for _, term in split(facts, self.held(name, args, facts))]
        if len(open_cases) == 1 and not isinstance(open_cases[0], Undef):
            return self.source.index_of(open_cases[0], self.view)
        return of(Fn(f"{name}@", args))  # some integer: equal arguments, equal value

    def constraint(self, c: Constraint, facts: Facts | None = None) -> Constraint:
        """A condition of a statement."""
        return Constraint(self.expr(c.expr, facts), c.equality)

    def constraints(self, cs: Sequence[Constraint], facts: Facts | None = None) -> tuple[Constraint, ...]:
        """Conditions of a statement."""
        return tuple(self.constraint(c, facts) for c in cs)

    # ---- claims

    def instance(self, overrides: tuple[tuple[str, Expr], ...], facts: Facts) -> dict[str, Expr]:
        """The bindings in force, with single arguments overridden."""
        found = dict(self.view.bindings)
        for symbol, e in overrides:
            if symbol not in self.source.by_argument:
                raise Refused("J1", f"the claim overrides {symbol}, which is no region argument", {})
            found[symbol] = self.expr(e, facts)
        return found

    def claimed(self, claim: Claim, facts: Facts, dtype: DType | None = None) -> tuple[tuple[Constraint, ...], Term]:
        """What a claim says: where, and which element (converted exactly, if the holder is of a wider dtype).

        *Errors*: refused where the claim names nothing, unsure where the instance is not determined.
        """
        value = self.source.values.get(claim.value)
        if value is None:
            raise Refused("J1", f"the claim names {claim.value}, which is no value of the source", {})
        if len(claim.coords) != len(value.type.axes):
            raise Refused("J1", f"{value.name} has {len(value.type.axes)} axes, the claim {len(claim.coords)} coordinates", {})
        inst = self.source.instance(value.name, self.instance(claim.instance, facts))
        where = self.constraints(claim.where, facts)
        inside = facts.also(*where)
        coords = tuple(self.expr(c, inside) for c in claim.coords)
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
        if not isinstance(op, Reduce | Mma):
            raise Refused("J1", f"{name} is no fold or contraction: it has no unfinished states", {})
        folded = op.contracted if isinstance(op, Mma) else op.dims
        if len(claim.bound) != len(folded):
            raise Refused("J1", f"{name} folds {len(folded)} axes, the claim binds {len(claim.bound)} symbols", {})
        env: dict[str, Expr] = {b: sym(f"?{i}") for i, b in enumerate(claim.bound)}
        extra = sorted({s for c in claim.over or () for s in c.symbols if _EXISTENTIAL.match(s) and s not in env})
        env |= {s: sym(f"!{i}") for i, s in enumerate(extra)}
        over: list[Constraint] = []
        for c in claim.over or ():
            free = {k: v for k, v in self.lets.items() if k not in env}
            e = c.expr.substitute(free)
            e = e.rewrite(lambda a: env.get(a.name) if isinstance(a, Sym) else None)
            over.append(Constraint(replace(self, lets={}).expr(e, facts) if e.functions else e, c.equality))
        return Part(name, coords, inst, tuple(over), tuple(f"!{i}" for i in range(len(extra))))


def require_all(place: Place, stmt: Stmt) -> None:
    """CPU statements are executed by their whole agent."""
    if stmt.by:
        raise Unsure("J5", f"a statement by {stmt.by!r}", missing="a rule for part of an agent")
