"""Loops by their invariants: on entry, for one iteration from a state of which only they are known, and afterwards; and
what loops and tasks do to storage.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace

from treadle.algebra.expr import Constraint, Expr, ge, lt, sym
from treadle.algebra.maps import box
from treadle.algebra.sets import Facts, complements
from treadle.checker.cuts import Range
from treadle.checker.gangs import POOL as GANGS
from treadle.checker.gpu import BY_WORKGROUPS
from treadle.checker.scopes import View, argument_symbols
from treadle.checker.state import Place
from treadle.checker.statements import Statements
from treadle.checker.storage import Collector, Layer, assigned, buffers_opened, read, slots
from treadle.checker.terms import Elem, Num, Pieces, Term, Undef, only, undefined
from treadle.checker.verdict import Finding, Refused, Unsure
from treadle.ir.core import Region
from treadle.machine.form import (
    Body,
    Claim,
    Control,
    Invariant,
    Loop,
    Stmt,
    Tasks,
)


@dataclass
class Kept:
    """An invariant, resolved: what its holder holds at the head for a value of the loop variable, and afterwards."""

    holder: str
    where: tuple[Constraint, ...]
    head: Term
    entry: Term
    next: Term
    exit: Term
    fill: Pieces
    within: tuple[Constraint, ...] = ()


class Invariants:
    """What the walk needs to know of loops. `statements` proves, `at` is the statement in question."""

    def __init__(self) -> None:
        self.at: Stmt | Control | None = None
        self.statements: Statements

    def exit(self, place: Place, r: Range) -> Expr:
        if r.step == 1 and place.facts.implies(ge(r.hi, r.lo)):
            return r.hi
        return r.exit

    def resolve(self, place: Place, inner: Place, invariant: Invariant, stmt: Loop, r: Range) -> Kept:
        claim, holder = invariant.claim, invariant.holder
        if holder in place.frags:
            frag = place.frags[holder]
            names, shape, dtype = slots(len(frag.shape)), list(map(number, frag.shape)), frag.dtype
        elif holder in place.buffers:
            buffer = place.buffers[holder]
            names, dtype = slots(len(buffer.shape)), buffer.dtype
            shape = [place.expr(e) for e in buffer.shape]
        else:
            raise Refused("J1", f"the invariant's holder {holder} is no fragment or buffer", {})
        ranges = box(names, shape)
        value = invariant.fill
        fill = (
            undefined("outside the invariant") if value is None or isinstance(value, str) else only(Num(value, dtype))
        )
        within = inner.constraints(invariant.within, inner.facts.also(*ranges), ghost=True)
        carried = self._carried(place, claim, stmt)
        if carried is not None and within:
            raise Refused("J1", "a carried value is claimed whole, for this iteration", {})
        if carried is None:
            where, head = inner.claimed(claim, inner.facts.also(*ranges, *within), dtype)
            env_next, env_exit = {r.var: sym(r.var) + r.step}, {r.var: self.exit(place, r)}
            return Kept(
                holder,
                where,
                head,
                head.substitute({r.var: r.lo}),
                head.substitute(env_next),
                head.substitute(env_exit),
                fill,
                within,
            )
        return self._chain(place, inner, invariant, r, names, shape, fill, *carried)

    def _chain(
        self,
        place: Place,
        inner: Place,
        invariant: Invariant,
        r: Range,
        names: tuple[str, ...],
        shape: list[Expr],
        fill: Pieces,
        region: Region,
        i: int,
    ) -> Kept:
        """A carried value. A loop over one of several arguments carries the state before the iterations of its
        value; the
        innermost loop's body advances it, an inner loop leaves the state before the outer one's next value."""
        claim, source = invariant.claim, place.source
        if claim.over is not None or claim.instance:
            raise Refused("J1", "a carried value is claimed whole, for this iteration", {})
        carried = region.carried[i]
        holder = place.frags.get(invariant.holder) or place.buffers[invariant.holder]
        if carried.type.dtype != holder.dtype or len(claim.coords) != len(carried.type.axes):
            raise Refused("J1", f"{carried.name} is {carried.type}, {invariant.holder} holds {holder.dtype}", {})
        facts = inner.facts.also(*box(names, shape))
        where = inner.constraints(claim.where, facts, ghost=True)
        coords = tuple(inner.expr(c, facts, ghost=True) for c in claim.coords)
        outer, mine = dict(place.view.bindings), dict(inner.view.bindings)
        order = [argument_symbols(a) for a in region.args]
        bound = [s in outer for s, *_ in order]
        k = sum(bound)

        def element(value: str, inst: dict[str, Expr], at: Expr) -> Term:
            inside = {s: e for s, e in inst.items() if s in source.deps[value]}
            missing = source.deps[value] - inside.keys() - {s for a in order for s in a}
            if missing:
                source.instance(value, inst)  # says which binding is missing
            return Elem(value, tuple(c.substitute({r.var: at}) for c in coords), tuple(sorted(inside.items())))

        following = {s: e.substitute({r.var: sym(r.var) + r.step}) for s, e in mine.items()}
        innermost = k == len(order) - 1
        out = self.exit(place, r)
        return Kept(
            invariant.holder,
            where,
            element(carried.name, mine, sym(r.var)),
            element(region.inits[i].name, outer, r.lo) if k == 0 else element(carried.name, outer, r.lo),
            element(region.body.yields[i].name, mine, sym(r.var) + r.step)
            if innermost
            else element(carried.name, following, sym(r.var) + r.step),
            element(region.results[i].name, outer, out)
            if k == 0
            else element(carried.name, self._outer_next(place, outer, order[k - 1][0]), out),
            fill,
        )

    def _outer_next(self, place: Place, bindings: dict[str, Expr], symbol: str) -> dict[str, Expr]:
        """The bindings when the loop that binds `symbol` has moved on by one."""
        for frame in reversed(place.frames):
            for s, var in frame.bound:
                if s == symbol:
                    r = next(x for x in frame.ranges if x.var == var)
                    return {t: e.substitute({var: sym(var) + r.step}) for t, e in bindings.items()}
        raise Unsure("J1", f"nothing shows how {symbol} moves on", missing="a loop that enters it")

    def _carried(self, place: Place, claim: Claim, stmt: Loop) -> tuple[Region, int] | None:
        """The region and position of a carried value that this loop's iterations advance."""
        region = place.source.defs.get(claim.value)
        if not isinstance(region, Region):
            return None
        names = [v.name for v in region.carried]
        if claim.value not in names:
            return None
        if not any(place.source.regions.get(e.region) is region for e in stmt.enters):
            return None
        if region.kind == "parallel":
            return None
        entered = {n for e in stmt.enters if place.source.regions.get(e.region) is region for n, _ in e.binds}
        if len(entered) != 1:
            raise Unsure(
                "J1", f"one loop binds {len(entered)} arguments of {region.name}", missing="a loop an argument"
            )
        return region, names.index(claim.value)

    def holds(
        self,
        place: Place,
        kept: Kept,
        want: Term,
        env: dict[str, Expr],
        view: View,
        when: str,
    ) -> None:
        """*Errors*: a finding if the holder does not hold the term where the claim says."""
        holder, fill = kept.holder, kept.fill
        where, within = (tuple(c.substitute(env) for c in cs) for cs in (kept.where, kept.within))
        if holder in place.frags:
            facts = place.slots(place.frags[holder].shape).also(*within)
            held = place.held(holder, None, facts)
        else:
            buffer = place.buffers[holder]
            names = slots(len(buffer.shape))
            facts = place.facts.also(*box(names, [place.expr(e) for e in buffer.shape]), *within)
            inside = facts.also(*where)
            held = (
                only(want)
                if inside.contradictory
                else read(place.contents[holder], tuple(map(sym, names)), inside, holder)
            )
        try:
            inside = facts.also(*where)
            if not inside.contradictory:
                checked = replace(place, view=view)
                self.statements.prove(checked, inside, held, want)
            self._fill_holds(place, facts, where, held, fill, holder)
        except Finding as wrong:
            wrong.reason = f"{holder} {when}: {wrong.reason}"
            raise

    def _fill_holds(
        self, place: Place, facts: Facts, where: tuple[Constraint, ...], held: Pieces, fill: Pieces, holder: str
    ) -> None:
        term = fill[0][1]
        if isinstance(term, Undef):
            return
        for other in complements(where):
            outside = facts.also(*other)
            if outside.contradictory:
                continue
            if holder in place.buffers:
                names = slots(len(place.buffers[holder].shape))
                held = read(place.contents[holder], tuple(map(sym, names)), outside, holder)
            self.statements.prove(place, outside, held, term)

    def assume(self, place: Place, kept: Kept, term: Term, env: dict[str, Expr]) -> None:
        """What the holder holds from here on, of whose other slots nothing is known."""
        holder = kept.holder
        where, within = (tuple(c.substitute(env) for c in cs) for cs in (kept.where, kept.within))
        pieces: Pieces = ((where, term), *kept.fill) if where else only(term)
        if within:
            pieces = (*(((*within, *conds), t) for conds, t in pieces), *undefined("outside the invariant"))
        if holder in place.frags:
            place.holds[holder] = pieces
        else:
            place.contents[holder] = replace(place.contents[holder], layers=(Layer(pieces, whole=True),))

    def establish(self, inner: Place, kept: list[Kept], r: Range) -> dict[int, bool]:
        """Each invariant for the next value of the variable; whether it holds after the last iteration too."""
        strong: dict[int, bool] = {}
        env = {r.var: sym(r.var) + r.step}
        for k in kept:
            try:
                self.holds(inner, k, k.next, env, inner.view, "at the end of the body")
                strong[id(k)] = True
            except Finding:
                again = inner.inner(facts=inner.facts.also(lt(sym(r.var) + r.step, r.hi)))
                self.holds(again, k, k.next, env, inner.view, "at the end of the body")
                strong[id(k)] = False
        return strong

    # ---- what a control does to storage

    def collector(self, place: Place, wanted: Set[str], body: Body | None = None) -> Collector:
        """`body`: of the control that is looked at; a fragment that it does not assign is what it was before it."""
        free = place.inner(known=None)
        moving = place.frags.keys() if body is None else assigned(body)

        def resolve(e: Expr) -> Expr | None:
            if e.functions & moving:
                return None
            try:
                return free.expr(e)
            except Finding:
                return None

        return Collector(lambda name: place.frag(name).shape, wanted, resolve)

    def forget(self, place: Place, inner: Place, body: Body, control: Loop) -> None:
        """At the head of an iteration: what the body assigns is unknown, what earlier iterations stored is written."""
        for name in assigned(body):
            inner.holds[name] = undefined(f"{name} is assigned in the loop and kept by no invariant")
        opened = buffers_opened([control])
        for name in opened:
            if name in inner.contents:
                inner.contents[name] = replace(
                    inner.contents[name],
                    layers=inner.contents[name].forgotten(f"{name} gets a new version in the loop").layers,
                )
        for name, written in self.collector(place, inner.contents.keys(), body).loop(control, until=sym(control.var)):
            inner.contents[name] = inner.contents[name].after(written, opened=name in opened)

    def leave(self, place: Place, inner: Place, control: Loop | Tasks) -> None:
        """After a control: assigned fragments and re-versioned buffers are unknown, other stores are written."""
        for name in assigned(control.body):
            place.holds[name] = undefined(f"{name} was assigned in a loop and kept by no invariant")
        opened = buffers_opened([control])
        for name in opened:
            if name in place.contents:
                place.contents[name] = replace(
                    place.contents[name],
                    layers=place.contents[name].forgotten(f"{name} got a version in a loop").layers,
                )
        local = (
            {n for n, b in place.buffers.items() if b.place == "local"} if isinstance(control, Tasks) else set[str]()
        )
        collector = self.collector(
            place, place.contents.keys() - local, control.body if isinstance(control, Loop) else None
        )
        events = collector.loop(control) if isinstance(control, Loop) else collector.tasks(control)
        for name, written in events:
            place.contents[name] = place.contents[name].after(written, opened=name in opened)

    def alone(self, place: Place, stmt: Tasks) -> set[str]:
        """Buffers that no other task sees while one runs: those of the agent, and those of its workgroup if that
        runs one
        task at a time."""
        mine = ("local", "shared") if stmt.over in (*BY_WORKGROUPS, GANGS) else ("local",)
        return {n for n, b in place.buffers.items() if b.place in mine}


def number(value: int) -> Expr:
    """A number as an expression."""
    return Expr(()) + value
