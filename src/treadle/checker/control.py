"""The walk over a role's body: loops by their invariants, regions by exact cuts, tasks apart from one another.

A loop is judged once: its invariants hold on entry, and one iteration from a state of which only the invariants are
known establishes them again. An `if` is judged in both ways, and its ways join into decision lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, replace

from treadle.algebra.expr import Constraint, Expr, eq, ge, lt, sym
from treadle.algebra.maps import box
from treadle.algebra.sets import Facts, complements
from treadle.checker.compare import split
from treadle.checker.coverage import Coverage, StoreEvent
from treadle.checker.cuts import Cut, Range, argument_of
from treadle.checker.engines import Engines
from treadle.checker.gpu import replicated
from treadle.checker.order import Accesses
from treadle.checker.rings import Rings
from treadle.checker.source import View, argument_symbols
from treadle.checker.state import Frame, Place
from treadle.checker.statements import Statements, Stored
from treadle.checker.storage import Collector, Contents, Layer, buffers_opened, read, slots, unknown_contents
from treadle.checker.terms import Elem, Num, Part, Pieces, Term, Undef, only, substituted, undefined
from treadle.checker.verdict import Finding, Refused, Unsure
from treadle.dtype.formats import bool_
from treadle.ir.core import Region
from treadle.ir.ops import access
from treadle.machine.form import (
    Advance,
    Body,
    Claim,
    Compute,
    Control,
    Copy,
    Enter,
    Fold,
    FragRef,
    If,
    Invariant,
    Let,
    Load,
    Loop,
    Mma,
    Stmt,
    Store,
    StoreClaim,
    Sync,
    Tasks,
    Version,
)

PROTOCOL: tuple[str, ...] = (
    *("mbar.init", "mbar.expect", "mbar.arrive", "mbar.wait", "fence.proxy.async", "fence.mbar_init", "setmaxnreg"),
    *("wgmma.fence", "wgmma.commit", "wgmma.wait", "bulk.commit", "bulk.wait"),
)
"""Kinds of synchronisation that `rings` and `inflight` judge, role by role."""


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


class Walk:
    """Judges bodies. `numbers` gives each statement its number, for findings."""

    def __init__(self, coverage: Coverage, accesses: Accesses, numbers: dict[int, int]) -> None:
        self.coverage = coverage
        self.accesses = accesses
        self.numbers = numbers
        self.at: Stmt | Control | None = None
        self.statements: Statements
        self.engines: Engines | None = None
        self.rings: Rings | None = None
        self.published: dict[str, tuple[tuple[str, ...], Pieces]] = {}

    # ---- called by the statements' rules

    def stored(self, place: Place, shape: tuple[int, ...], claim: StoreClaim, op: access.Store, stored: Stored) -> None:
        """Notes a store to a tensor."""
        event = StoreEvent(op, place.frames, stored, shape, self.position)
        self.coverage.add(claim.store, event)
        self.accesses.store(event)

    def loaded(self, place: Place, stmt: Load, op: access.Load) -> None:
        """Notes a load of a tensor that the program stores to."""
        self.accesses.load(stmt, op, place.frames, self.position)

    position = 0
    role = ""

    # ---- rings

    def publish(self, place: Place, stmt: Advance) -> None:
        """What a step's slots hold, for all of their elements, in terms of the controls around the step."""
        if self.rings is None:
            return
        for name, ring in self.rings.of_buffer.items():
            if ring.step.body[ring.step.position] is not stmt:
                continue
            buffer = place.buffers[name]
            names = slots(len(buffer.shape))
            facts = place.facts.also(*box(names, [place.expr(e) for e in buffer.shape]))
            pieces = read(place.contents[name], tuple(map(sym, names)), facts, name)
            self.published[name] = tuple(r.var for f in place.frames for r in f.ranges), pieces

    def subscribe(self, place: Place, role: str) -> None:
        """On entry to the body of a step: its slots hold what the producer published, in terms of our own controls."""
        if self.rings is None:
            return
        for (taker, full), step in self.rings.taken.items():
            controls = [f.control for f in place.frames if isinstance(f.control, Loop | Tasks) and f.agents == 0]
            if taker != role or len(controls) != len(step.path) or any(a is not b for a, b in zip(controls, step.path)):
                continue
            mine = [r.var for f in place.frames if f.agents == 0 for r in f.ranges]
            for name in self.rings.rings[full].buffers:
                theirs, pieces = self.published[name]
                place.filled[name] = substituted(pieces, {a: sym(b) for a, b in zip(theirs, mine)})

    # ---- bodies

    def body(self, place: Place, body: Body) -> None:
        """Every statement in order."""
        for position, stmt in enumerate(body):
            self.at = stmt
            self.position = position
            self.one(place, stmt, position)

    def one(self, place: Place, stmt: Stmt | Control, position: int) -> None:
        """One statement. *Errors*: findings."""
        if isinstance(stmt, Stmt) and stmt.by:
            self._grain(place, stmt)
        if isinstance(stmt, Stmt):
            self._tiles(place, stmt)
        match stmt:
            case Load():
                self.statements.load(place, stmt)
            case Store():
                self.statements.store(place, stmt)
            case Compute():
                self.statements.compute(place, stmt)
            case Fold():
                self.statements.fold(place, stmt)
            case Mma():
                self.statements.mma(place, stmt)
            case Version():
                self.statements.version(place, stmt)
            case Let():
                self.statements.let(place, stmt)
            case Loop():
                self.loop(place, stmt, position)
            case Tasks():
                self.tasks(place, stmt, position)
            case If():
                self.branch(place, stmt, position)
            case Sync() if stmt.kind == "prefetch":
                pass
            case Sync() if stmt.kind in ("amx.config", "amx.release"):
                self.configure(place, stmt)
            case Sync() if place.target.kind == "cuda" and stmt.kind in ("barrier.sync", *PROTOCOL):
                pass  # ordering is judged role by role: `gpu` and `rings`
            case Sync():
                raise Unsure(
                    "J2", f"the synchronisation {stmt.kind}", missing=f"a rule for {stmt.kind} on {place.target.name}"
                )
            case Copy() if self.engines is not None:
                self.engines.copy(place, stmt)
            case Advance() if self.engines is not None:
                self.publish(place, stmt)
            case Copy() | Advance():
                raise Unsure("J2", type(stmt).__name__, missing=f"a rule for it on {place.target.name}")
            case _:
                raise Unsure("J1", type(stmt).__name__, missing="a rule for this statement")

    def _grain(self, place: Place, stmt: Stmt) -> None:
        """A statement by one lane of each warp or by one thread: what it needs, that thread holds."""
        if place.target.kind != "cuda":
            raise Unsure("J5", f"a statement by {stmt.by!r}", missing="a rule for part of an agent on this target")
        if isinstance(stmt, Sync | Copy):
            return
        if not isinstance(stmt, Store) or not replicated(place.frag(stmt.src.name), stmt.by):
            raise Unsure("J5", f"{type(stmt).__name__} by {stmt.by!r}", missing="a store of a replicated fragment")

    # ---- entering regions

    def entered(
        self, place: Place, enters: tuple[Enter, ...], ranges: list[Range], ordered: bool
    ) -> tuple[View, tuple[tuple[str, str], ...]]:
        """Bindings in force inside, and the argument symbols bound with the variables that enumerate their blocks."""
        place = place.inner(known=place.knowing([r.var for r in ranges]))
        bindings = dict(place.view.bindings)
        bound: list[tuple[str, str]] = []
        for enter in enters:
            region = place.source.regions.get(enter.region)
            if region is None:
                raise Refused("J1", f"{enter.region} is no region of the source", {})
            self._nesting(place, region, bindings)
            if region.kind != "parallel" and not ordered:
                raise Refused("J2", f"tasks are unordered, the instances of {region.name} are not", {})
            for name, binds in enter.binds:
                arg = argument_of(region, name)
                if any(s in bindings for s in argument_symbols(arg)):
                    raise Refused("J1", f"{region.name}.{name} is entered twice", {})
                exprs = tuple(place.expr(e) for e in binds)
                if len(exprs) != (2 if arg.kind == "block" else 1):
                    raise Refused(
                        "J1", f"{region.name}.{name} is a {arg.kind}, the binding has {len(exprs)} expressions", {}
                    )
                start, stop = exprs if len(exprs) == 2 else (exprs[0], exprs[0] + 1)
                mine = [r for r in ranges if r.var in start.symbols | stop.symbols]
                if len(mine) != 1:
                    raise Unsure(
                        "J1",
                        f"{region.name}.{name} is bound to {start} .. {stop}",
                        missing="one variable that enumerates its blocks",
                    )
                if any(v == mine[0].var for _, v in bound):
                    raise Refused("J1", f"{mine[0].var} enumerates the blocks of two arguments", {})
                others = [c for r in ranges if r is not mine[0] for c in r.inside]
                Cut(place.facts.also(*others), region, arg, mine[0], start, stop, bindings).check(place.source)
                for symbol, e in zip(argument_symbols(arg), exprs):
                    bindings[symbol] = e
                    bound.append((symbol, mine[0].var))
            self._argument_order(region, bindings)
        return View(bindings, place.view.branches), tuple(bound)

    def _nesting(self, place: Place, region: Region, bindings: dict[str, Expr]) -> None:
        """The domain of a region may hang on outer arguments, which must be bound before it is entered."""
        for arg in region.args:
            for e in (arg.domain.lo, arg.domain.hi):
                place.source.expr_at(e, bindings)

    def _argument_order(self, region: Region, bindings: dict[str, Expr]) -> None:
        if region.kind == "parallel":
            return
        bound = [all(s in bindings for s in argument_symbols(a)) for a in region.args]
        if bound != sorted(bound, reverse=True):
            raise Refused("J2", f"the arguments of {region.name} are entered out of their order", {})

    # ---- loops

    def loop(self, place: Place, stmt: Loop, position: int) -> None:
        """`Loop`."""
        step = place.expr(stmt.step).constant
        if step is None or step < 1:
            raise Unsure("J1", f"the step {stmt.step}", missing="a positive number as step")
        r = Range(stmt.var, place.expr(stmt.lo), place.expr(stmt.hi), step)
        view, bound = self.entered(place, stmt.enters, [r], ordered=True)
        inside = place.facts.also(*r.inside)
        inner = place.inner(facts=inside, view=view, known=place.knowing([stmt.var]))
        kept = [self._resolve(place, inner, i, stmt, r) for i in stmt.invariants]
        for k in kept:
            self._holds(place, k.holder, k.where, k.entry, k.fill, {r.var: r.lo}, place.view, "on entry to the loop")
        frame = Frame(stmt, (r,), bound, position=position)
        inner.frames = (*place.frames, frame)
        self._forget(place, inner, stmt.body, stmt)
        for k in kept:
            self._assume(inner, k.holder, k.where, k.head, k.fill, {})
        self.subscribe(inner, self.role)
        self.body(inner, stmt.body)
        self.at = stmt
        self._configured(place, inner)
        strong = self._establish(inner, kept, r)
        self._leave(place, inner, stmt)
        for k in kept:
            if strong[id(k)]:
                self._assume(place, k.holder, k.where, k.exit, k.fill, {r.var: self._exit(place, r)})

    def _exit(self, place: Place, r: Range) -> Expr:
        if r.step == 1 and place.facts.implies(ge(r.hi, r.lo)):
            return r.hi
        return r.exit

    def _resolve(self, place: Place, inner: Place, invariant: Invariant, stmt: Loop, r: Range) -> Kept:
        claim, holder = invariant.claim, invariant.holder
        if holder in place.frags:
            frag = place.frags[holder]
            names, shape, dtype = slots(len(frag.shape)), list(map(_number, frag.shape)), frag.dtype
        elif holder in place.buffers:
            buffer = place.buffers[holder]
            names, dtype = slots(len(buffer.shape)), buffer.dtype
            shape = [place.expr(e) for e in buffer.shape]
        else:
            raise Refused("J1", f"the invariant's holder {holder} is no fragment or buffer", {})
        ranges = box(names, shape)
        number = invariant.fill
        fill = (
            undefined("outside the invariant")
            if number is None or isinstance(number, str)
            else only(Num(number, dtype))
        )
        carried = self._carried(place, claim, stmt)
        if carried is None:
            where, head = inner.claimed(claim, inner.facts.also(*ranges), dtype)
            env_next, env_exit = {r.var: sym(r.var) + r.step}, {r.var: self._exit(place, r)}
            return Kept(
                holder,
                where,
                head,
                head.substitute({r.var: r.lo}),
                head.substitute(env_next),
                head.substitute(env_exit),
                fill,
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
        out = self._exit(place, r)
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

    def _holds(
        self,
        place: Place,
        holder: str,
        where: tuple[Constraint, ...],
        want: Term,
        fill: Pieces,
        env: dict[str, Expr],
        view: View,
        when: str,
    ) -> None:
        """*Errors*: a finding if the holder does not hold the term where the claim says."""
        where = tuple(c.substitute(env) for c in where)
        if holder in place.frags:
            facts = place.slots(place.frags[holder].shape)
            held = place.held(holder, None, facts)
        else:
            buffer = place.buffers[holder]
            names = slots(len(buffer.shape))
            facts = place.facts.also(*box(names, [place.expr(e) for e in buffer.shape]))
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

    def _assume(
        self, place: Place, holder: str, where: tuple[Constraint, ...], term: Term, fill: Pieces, env: dict[str, Expr]
    ) -> None:
        where = tuple(c.substitute(env) for c in where)
        pieces: Pieces = ((where, term), *fill) if where else only(term)
        if holder in place.frags:
            place.holds[holder] = pieces
        else:
            place.contents[holder] = replace(place.contents[holder], layers=(Layer(pieces, whole=True),))

    def _establish(self, inner: Place, kept: list[Kept], r: Range) -> dict[int, bool]:
        """Each invariant for the next value of the variable; whether it holds after the last iteration too."""
        strong: dict[int, bool] = {}
        env = {r.var: sym(r.var) + r.step}
        for k in kept:
            try:
                self._holds(inner, k.holder, k.where, k.next, k.fill, env, inner.view, "at the end of the body")
                strong[id(k)] = True
            except Finding:
                again = inner.inner(facts=inner.facts.also(lt(sym(r.var) + r.step, r.hi)))
                self._holds(again, k.holder, k.where, k.next, k.fill, env, inner.view, "at the end of the body")
                strong[id(k)] = False
        return strong

    # ---- tiles of the processor

    def configure(self, place: Place, stmt: Sync) -> None:
        """The tile configuration of a thread: set once in a task before any tile is touched, and released at its
        end."""
        wanted = stmt.kind == "amx.release"
        if place.configured != wanted:
            raise Refused("J4", f"{stmt.kind} while the tiles are {'not ' if wanted else ''}configured", {})
        if not place.target.tiles:
            raise Refused("J4", f"{place.target.name} has no tiles", {})
        place.configured = not wanted

    def _configured(self, place: Place, inner: Place) -> None:
        if place.configured != inner.configured:
            raise Unsure(
                "J4", "the tiles are configured or released inside a loop or if", missing="a configuration around it"
            )

    def _tiles(self, place: Place, stmt: Stmt) -> None:
        names = {getattr(stmt, "dst", None)} if not isinstance(stmt, Store) else {stmt.src.name}
        names |= (
            {x.name for x in getattr(stmt, "args", ()) if isinstance(x, FragRef)}
            if isinstance(stmt, Compute)
            else set()
        )
        if isinstance(stmt, Mma):
            names |= {x.name for x in (stmt.a, stmt.b, stmt.acc) if isinstance(x, FragRef)}
        if isinstance(stmt, Fold):
            names |= {x.name for x in (stmt.src, stmt.acc) if isinstance(x, FragRef)}
        for name in names:
            frag = place.frags.get(name) if isinstance(name, str) else None
            if frag is not None and frag.place == "tile" and not place.configured:
                raise Refused("J4", f"the tile {frag.name} is touched while the tiles are not configured", {})

    # ---- what a control does to storage

    def _collector(self, place: Place, wanted: Set[str]) -> Collector:
        free = place.inner(known=None)

        def resolve(e: Expr) -> Expr | None:
            return None if e.functions & place.frags.keys() else free.expr(e)

        return Collector(lambda name: place.frag(name).shape, wanted, resolve)

    def _forget(self, place: Place, inner: Place, body: Body, control: Loop) -> None:
        """At the head of an iteration: what the body assigns is unknown, what earlier iterations stored is written."""
        for name in assigned(body):
            inner.holds[name] = undefined(f"{name} is assigned in the loop and kept by no invariant")
        opened = buffers_opened([control])
        for name in opened:
            if name in inner.contents:
                inner.contents[name] = replace(
                    inner.contents[name], layers=unknown_contents(f"{name} gets a new version in the loop").layers
                )
        for name, written in self._collector(place, inner.contents.keys() - opened).loop(
            control, until=sym(control.var)
        ):
            inner.contents[name] = inner.contents[name].stored(written)

    def _leave(self, place: Place, inner: Place, control: Loop | Tasks) -> None:
        """After a control: assigned fragments and re-versioned buffers are unknown, other stores are written."""
        for name in assigned(control.body):
            place.holds[name] = undefined(f"{name} was assigned in a loop and kept by no invariant")
        opened = buffers_opened([control])
        for name in opened:
            if name in place.contents:
                place.contents[name] = replace(
                    place.contents[name], layers=unknown_contents(f"{name} got a version in a loop").layers
                )
        local = (
            {n for n, b in place.buffers.items() if b.place == "local"} if isinstance(control, Tasks) else set[str]()
        )
        collector = self._collector(place, place.contents.keys() - opened - local)
        events = collector.loop(control) if isinstance(control, Loop) else collector.tasks(control)
        for name, written in events:
            place.contents[name] = place.contents[name].stored(written)

    # ---- tasks

    def _alone(self, place: Place, stmt: Tasks) -> set[str]:
        """Buffers that no other task sees while one runs: those of the agent, and those of its workgroup if that
        runs one
        task at a time."""
        mine = ("local", "shared") if stmt.over in ("persistent", "grid") else ("local",)
        return {n for n, b in place.buffers.items() if b.place in mine}

    def tasks(self, place: Place, stmt: Tasks, position: int) -> None:
        """`Tasks`: each task once, unordered among one another, with private fragments and local buffers."""
        if len(stmt.vars) != len(stmt.counts):
            raise Refused("J1", "a task nest has one count a variable", {})
        ranges = [Range(v, _number(0), place.expr(c)) for v, c in zip(stmt.vars, stmt.counts)]
        view, bound = self.entered(place, stmt.enters, ranges, ordered=False)
        inside = place.facts.also(*(c for r in ranges for c in r.inside))
        inner = place.inner(facts=inside, view=view, known=place.knowing(stmt.vars))
        inner.frames = (*place.frames, Frame(stmt, tuple(ranges), bound, position=position))
        inner.holds = {}
        others: dict[str, list[object]] = {}
        alone = self._alone(place, stmt)
        shared = place.buffers.keys() - alone
        for name, written in self._collector(place, shared).tasks(stmt, but=True):
            others.setdefault(name, []).append(written.map)
        for name in place.buffers:
            if name in alone:
                inner.contents[name] = unknown_contents(f"{name} is undefined at the start of a task")
            else:
                inner.contents[name] = replace(
                    inner.contents[name],
                    elsewhere=(*inner.contents[name].elsewhere, *others.get(name, [])),  # type: ignore[arg-type]
                )
        inner.configured = False
        self.subscribe(inner, self.role)
        self.body(inner, stmt.body)
        self.at = stmt
        if inner.configured:
            raise Refused("J4", "a task ends with the tiles configured", {})
        self._leave(place, inner, stmt)
        for name in place.buffers:
            if name in alone:
                place.contents[name] = unknown_contents(f"{name} is undefined after tasks")

    # ---- if

    def branch(self, place: Place, stmt: If, position: int) -> None:
        """`If`: both ways, then joined."""
        if stmt.cond is not None:
            self._dynamic(place, stmt, position)
            return
        conds = place.constraints(stmt.conds)
        ways: list[tuple[tuple[Constraint, ...], Place]] = []
        for body, alternatives, taken in ((stmt.then, (conds,), True), (stmt.orelse, tuple(complements(conds)), False)):
            frame = Frame(stmt, branch=taken, position=position)
            for extra in alternatives:
                facts = place.facts.also(*extra)
                if facts is not place.facts and facts.contradictory:
                    continue
                inner = place.inner(facts=facts)
                inner.frames = (*place.frames, replace(frame, alternatives=(extra,)))
                self.body(inner, body)
                ways.append((extra, inner))
        self.at = stmt
        self._join(place, stmt, ways)

    def _dynamic(self, place: Place, stmt: If, position: int) -> None:
        if stmt.source is None or not 0 <= stmt.source < len(place.source.ifs) or stmt.conds:
            raise Unsure(
                "J1", "an if on a fragment that is no if of the source", missing="the number of the source's if"
            )
        op = place.source.ifs[stmt.source]
        assert stmt.cond is not None
        facts = place.facts
        want = place.source.element(op.cond, {}, dict(place.view.bindings))
        if place.frag(stmt.cond).dtype != bool_ or place.frag(stmt.cond).shape:
            raise Refused("J1", f"{stmt.cond} is no scalar bool", {})
        self.statements.prove(place, facts, place.held(stmt.cond, None, facts), want)
        ways: list[tuple[tuple[Constraint, ...], Place]] = []
        for body, taken in ((stmt.then, True), (stmt.orelse, False)):
            view = View(place.view.bindings, dict(place.view.branches) | {want: taken})
            inner = place.inner(view=view)
            inner.frames = (*place.frames, Frame(stmt, branch=taken, source_if=id(op), position=position))
            self.body(inner, body)
            ways.append(((), inner))
        self.at = stmt
        self._join(place, stmt, ways)

    def _join(self, place: Place, stmt: If, ways: list[tuple[tuple[Constraint, ...], Place]]) -> None:
        if not ways:
            return
        for _, inner in ways:
            self._configured(place, inner)
        changed = assigned(stmt.then) | assigned(stmt.orelse)
        for name in changed:
            held = [(conds, inner.holds.get(name, undefined(f"{name} is not assigned"))) for conds, inner in ways]
            if all(h == held[0][1] for _, h in held[1:]):
                place.holds[name] = held[0][1]
            elif stmt.cond is not None:
                place.holds[name] = undefined(f"{name} holds different values after an if")
            else:
                rows = [((*conds, *c), t) for conds, pieces in held[:-1] for c, t in pieces]
                place.holds[name] = (*rows, *held[-1][1])
        opened = buffers_opened(stmt.then) | buffers_opened(stmt.orelse)
        for name in opened:
            if name in place.contents:
                place.contents[name] = replace(
                    place.contents[name], layers=unknown_contents(f"{name} got a version in an if").layers
                )
        for name, written in self._collector(place, place.contents.keys() - opened).body([stmt]):
            place.contents[name] = place.contents[name].stored(written)


def assigned(body: Body) -> set[str]:
    """Fragments that a body assigns."""
    found: set[str] = set()
    for stmt in walk(body):
        if isinstance(stmt, Load | Compute | Fold | Mma):
            found.add(stmt.dst)
    return found


def walk(body: Body) -> Iterator[Stmt | Control]:
    """All statements, outer before inner."""
    for stmt in body:
        yield stmt
        if isinstance(stmt, Loop | Tasks):
            yield from walk(stmt.body)
        elif isinstance(stmt, If):
            yield from walk(stmt.then)
            yield from walk(stmt.orelse)


def _number(value: int) -> Expr:
    return Expr(()) + value


_ = (Contents, Part, eq, split, substituted)
