"""The walk over a role's body: loops by their invariants, regions by exact cuts, tasks apart from one another.

A loop is judged once: its invariants hold on entry, and one iteration from a state of which only the invariants are
known establishes them again. An `if` is judged in both ways, and its ways join into decision lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from treadle.algebra.expr import Constraint, Expr, Floor, const, ge, sym
from treadle.algebra.maps import box
from treadle.algebra.sets import complements
from treadle.checker.chunks import COPIES, Chunks
from treadle.checker.clusters import LANDED
from treadle.checker.counters import Meanwhile
from treadle.checker.coverage import Coverage, StoreEvent
from treadle.checker.cuts import Cut, Range, argument_of
from treadle.checker.engines import Engines, filled
from treadle.checker.gpu import divides, replicated
from treadle.checker.handover import Handover
from treadle.checker.invariants import Invariants, number
from treadle.checker.order import Accesses
from treadle.checker.pairs import updated
from treadle.checker.passed import Passed
from treadle.checker.reading import Loaded
from treadle.checker.rings import Rings
from treadle.checker.scopes import View, argument_symbols
from treadle.checker.state import Frame, Place
from treadle.checker.statements import Stored
from treadle.checker.storage import Layer, Written, assigned, buffers_opened, slots
from treadle.checker.terms import Pieces, substituted, undefined
from treadle.checker.threads import expressions
from treadle.checker.verdict import Refused, Unsure, require
from treadle.checker.widths import check_widths
from treadle.dtype.formats import bool_
from treadle.hardware.memory_model import find_ordering
from treadle.ir.core import Region
from treadle.ir.ops import access
from treadle.machine.form import (
    Advance,
    Body,
    Compute,
    Control,
    Copy,
    Enter,
    Fold,
    FragRef,
    If,
    Let,
    Load,
    Loop,
    MemRef,
    Mma,
    Scan,
    Stmt,
    Store,
    StoreClaim,
    Sync,
    Tasks,
    Version,
    walk,
)


class Walk(Invariants):
    """Judges bodies. `numbers` gives each statement its number, for findings."""

    def __init__(self, coverage: Coverage, accesses: Accesses, numbers: dict[int, int]) -> None:
        self.coverage = coverage
        self.accesses = accesses
        self.numbers = numbers
        super().__init__()
        self.engines: Engines | None = None
        self.chunks: Chunks | None = None
        self.handover: Handover | None = None
        self.passed: Passed | None = None
        self.meanwhile: Mapping[int, Meanwhile] = {}
        self.meeting = ""  # what all members of a cluster or gang come to, who they are, their memory
        self.member, self.members = "", 1
        self.shared: frozenset[str] = frozenset()
        self.rings: Rings | None = None
        self.ranges: dict[str, tuple[int, int]] = {}  # of lets and loops' variables that hang on what was loaded
        self.published: dict[tuple[str, int], tuple[tuple[str, ...], Pieces]] = {}  # by buffer and body of a step

    # ---- called by the statements' rules

    def stored(self, place: Place, shape: tuple[int, ...], claim: StoreClaim, op: access.Store, stored: Stored) -> None:
        """Notes a store to a tensor."""
        nests = [f.control.over for f in place.frames if isinstance(f.control, Tasks)]
        single = all(r.threads == 1 for r in place.kernel.roles) or nests[-1:] == ["threads"]
        event = StoreEvent(op, place.frames, stored, shape, self.position, not single, isinstance(self.at, Copy))
        self.coverage.add(claim.store, event)
        self.accesses.at = self.at
        self.accesses.store(op, event)

    def loaded(self, place: Place, op: access.Load, loaded: Loaded) -> None:
        """Notes a load of a tensor that the program stores to."""
        self.accesses.at = self.at
        self.accesses.load(op, loaded, place.frames, self.position)

    position = 0
    role = ""

    # ---- rings

    def publish(self, place: Place, stmt: Advance) -> None:
        """What a step's slots hold, for all of their elements, in terms of the controls around the step."""
        if self.rings is None:
            return
        for name, ring in self.rings.of_buffer.items():
            for step in ring.steps:
                if step.body[step.position] is stmt:
                    self._publish(place, name, id(step.body))

    def _publish(self, place: Place, name: str, where: int = 0) -> None:
        buffer = place.buffers[name]
        names = slots(len(buffer.shape))
        facts = place.facts.also(*box(names, [place.expr(e) for e in buffer.shape]))
        pieces = filled(place.contents[name], tuple(map(sym, names)), facts, name)
        # The number of a lone agent means nothing to others, who may call theirs so.
        lone = {r.var: const(0) for f in place.frames if f.agents == 1 for r in f.ranges}
        pieces = substituted(pieces, lone) if lone else pieces
        self.published[name, where] = tuple(r.var for f in place.frames if f.agents == 0 for r in f.ranges), pieces

    def begin(self, place: Place, body: Body) -> None:
        """On entry to the body of a step: the slots that it names have nothing in them that earlier steps put there,
        which had other slots. A version is opened in the step that fills it."""
        moved = {s.counter for s in body if isinstance(s, Advance)}
        for name in _turning(body, moved) & place.buffers.keys() if moved else ():
            place.contents[name] = place.contents[name].forgotten(f"{name} is another slot in each step")
        self.subscribe(place, self.role, body)

    def subscribe(self, place: Place, role: str, body: Body) -> None:
        """On entry to the body of a step: its slots hold what the producer published, in terms of our own controls."""
        if self.rings is None:
            return
        mine = [r.var for f in place.frames if f.agents == 0 for r in f.ranges]
        given = (x.taken_by(role, body) for x in (self.handover, self.passed) if x is not None)
        for name in (name for names in given for name in names):
            theirs, _ = self.published.get((name, 0), ((), ()))
            self._subscribe(place, name, 0, {a: sym(b) for a, b in zip(theirs, mine)})
        for (taker, full), steps in self.rings.taken.items():
            for step in steps if taker == role else ():
                if step.body is body:
                    filling, env = self.rings.filled_by(full, step)
                    for name in self.rings.rings[full].buffers:
                        self._subscribe(place, name, id(filling.body), env)

    def _subscribe(self, place: Place, name: str, where: int, env: Mapping[str, Expr]) -> None:
        if (name, where) not in self.published:
            raise Unsure("J1", f"what is put into {name} is not known yet", missing="roles that fill before they take")
        _, pieces = self.published[name, where]
        found = place.filled[name] = substituted(pieces, env)
        # Versions of the consumer's own lie over it.
        place.contents[name] = replace(place.contents[name], layers=(Layer(found, whole=True),), touched=())

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
        self._divisors(place, stmt)
        check_widths(place, stmt, self.ranges)
        match stmt:
            case Load():
                self.statements.load(place, stmt)
            case Store():
                self.statements.store(place, stmt)
            case Compute():
                self.statements.compute(place, stmt)
            case Scan():
                self.statements.scan(place, stmt)
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
            case Sync() if stmt.kind == self.meeting:
                self.met(place, self.shared)
                for name in self.passed.publishes.get(id(stmt), ()) if self.passed is not None else ():
                    self._publish(place, name)
            case Sync() if stmt.kind == LANDED:
                self.met(place, stmt.tags)
            case Sync() if self.handover is not None and id(stmt) in self.handover.publishes:
                for name in self.handover.publishes[id(stmt)]:
                    self._publish(place, name)
            case Sync() if place.target.kind == "cuda" and find_ordering(stmt.kind, "cuda") is not None:
                pass  # ordering is judged role by role: `between` and `rings`
            case Sync():
                raise Unsure(
                    "J2", f"the synchronisation {stmt.kind}", missing=f"a rule for {stmt.kind} on {place.target.name}"
                )
            case Copy() if self.chunks is not None and stmt.engine == COPIES:
                self.chunks.copy(place, stmt)
            case Copy() if self.engines is not None:
                self.engines.copy(place, stmt)
            case Advance() if self.engines is not None:
                self.publish(place, stmt)
            case Copy() | Advance():
                raise Unsure("J2", type(stmt).__name__, missing=f"a rule for it on {place.target.name}")
            case _:
                raise Unsure("J1", type(stmt).__name__, missing="a rule for this statement")

    def _divisors(self, place: Place, stmt: Stmt | Control) -> None:
        """What is computed divides by positive numbers, wherever it is computed: a processor may trap on others."""
        for e in expressions(stmt):
            for by in dict.fromkeys(a.den for a in e.atoms() if isinstance(a, Floor) and a.den.constant is None):
                value = place.expr(by)
                if not divides(place.facts, value):
                    require(place.facts, ge(value, 1), "J4", f"a division by {by}")

    def met(self, place: Place, names: Iterable[str]) -> None:
        """The cluster, or the gang, has met: what each of its members has written to their memory, all have."""
        for name in names:
            known = place.contents[name].by_all(self.member, self.members)
            if len(known.layers) != len(place.contents[name].layers):
                raise Unsure("J1", f"versions of {name} hang on {self.member}", missing="one claim for all of them")
            place.contents[name] = known

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
                reason = f"tasks are unordered, the instances of {region.name} are not"
                load, store = updated(self.at) if isinstance(self.at, Tasks) else (None, None)
                raise Refused("J2", reason, {}, at=load, partner=store)
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
                dealt, whole = self._dealt(place, region, mine[0], exprs, bound)
                Cut(place.facts.also(*others), region, arg, whole, start, stop, bindings).check(place.source)
                for symbol, e in zip(argument_symbols(arg), exprs):
                    bindings[symbol] = e
                    bound.append((symbol, mine[0].var))
                    bound += [(symbol, dealt)] if dealt else []
            self._argument_order(region, bindings)
        return View(bindings, place.view.branches), tuple(bound)

    def _dealt(
        self, place: Place, region: Region, mine: Range, exprs: tuple[Expr, ...], bound: list[tuple[str, str]]
    ) -> tuple[str, Range]:
        """The variable of the tasks around by which the blocks of a range are dealt out, and the range; "" and the
        variable's own range where they are not."""
        if region.kind != "parallel" or not place.frames or isinstance(self.at, Tasks):
            return "", mine
        taken = {v for f in place.frames for _, v in f.bound} | {v for _, v in bound}
        for frame in place.frames:
            for shares in frame.ranges if isinstance(frame.control, Tasks) else ():
                used = shares.var in taken or any(shares.var in e.symbols for e in exprs)
                whole = None if used or shares.var not in mine.lo.symbols else mine.whole(shares)
                if whole is not None:
                    return shares.var, whole
        return "", mine

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
        moved = (stmt.lo.functions | stmt.hi.functions | stmt.step.functions) & assigned(stmt.body)
        if moved:
            raise Unsure("J5", f"the body assigns {min(moved)}, which bounds the loop", missing="bounds that stay")
        r = Range(stmt.var, place.expr(stmt.lo), place.expr(stmt.hi), step)
        view, bound = self.entered(place, stmt.enters, [r], ordered=True)
        inside = place.facts.also(*r.inside)
        inner = place.inner(facts=inside, view=view, known=place.knowing([stmt.var]))
        kept = [self.resolve(place, inner, i, stmt, r) for i in stmt.invariants]
        for k in kept:
            self.holds(place, k, k.entry, {r.var: r.lo}, place.view, "on entry to the loop")
        frame = Frame(stmt, (r,), bound, position=position)
        inner.frames = (*place.frames, frame)
        self.forget(place, inner, stmt.body, stmt)
        for k in kept:
            self.assume(inner, k, k.head, {})
        self.begin(inner, stmt.body)
        self.body(inner, stmt.body)
        self.at = stmt
        self._configured(place, inner)
        strong = self.establish(inner, kept, r)
        self.leave(place, inner, stmt)
        for k in kept:
            if strong[id(k)]:
                self.assume(place, k, k.exit, {r.var: self.exit(place, r)})

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

    # ---- tasks

    def tasks(self, place: Place, stmt: Tasks, position: int) -> None:
        """`Tasks`: each task once, unordered among one another, with private fragments and local buffers."""
        if len(stmt.vars) != len(stmt.counts):
            raise Refused("J1", "a task nest has one count a variable", {})
        ranges = [Range(v, number(0), place.expr(c)) for v, c in zip(stmt.vars, stmt.counts)]
        view, bound = self.entered(place, stmt.enters, ranges, ordered=False)
        inside = place.facts.also(*(c for r in ranges for c in r.inside))
        inner = place.inner(facts=inside, view=view, known=place.knowing(stmt.vars))
        inner.frames = (*place.frames, Frame(stmt, tuple(ranges), bound, position=position))
        inner.holds = {}
        others: dict[str, list[Written]] = {}
        alone = self.alone(place, stmt)
        shared = place.buffers.keys() - alone
        for name, written in self.collector(place, shared).tasks(stmt, but=True):
            others.setdefault(name, []).append(written)
        for other in (self.meanwhile[id(stmt)],) if id(stmt) in self.meanwhile else ():
            for name, written in self.collector(place, shared).tasks(other.tasks, True, other.kept):
                others.setdefault(name, []).append(written)
        for name in place.buffers:
            if name in alone:
                inner.contents[name] = inner.contents[name].forgotten(f"{name} is undefined at the start of a task")
            else:
                inner.contents[name] = replace(
                    inner.contents[name],
                    elsewhere=(*inner.contents[name].elsewhere, *others.get(name, [])),
                )
        inner.configured = False
        self.begin(inner, stmt.body)
        self.body(inner, stmt.body)
        self.at = stmt
        if inner.configured:
            raise Refused("J4", "a task ends with the tiles configured", {})
        self.leave(place, inner, stmt)
        for name in place.buffers:
            if name in alone:
                place.contents[name] = place.contents[name].forgotten(f"{name} is undefined after tasks")

    # ---- if

    def branch(self, place: Place, stmt: If, position: int) -> None:
        """`If`: both ways, then joined."""
        if stmt.last is not None or stmt.enters:
            raise Unsure("J3", "what goes on where all have arrived", missing=f"a rule for it on {place.target.name}")
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
                self.begin(inner, body)
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
            inner = place.inner(view=view, facts=facts.also(*place.source.consequences(want, place.view, taken)))
            inner.frames = (*place.frames, Frame(stmt, branch=taken, source_if=id(op), position=position))
            self.begin(inner, body)
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
                    place.contents[name], layers=place.contents[name].forgotten(f"{name} got a version in an if").layers
                )
        for name, written in self.collector(place, place.contents.keys()).body([stmt]):
            place.contents[name] = place.contents[name].after(written, opened=name in opened)


def _turning(body: Body, counters: set[str]) -> set[str]:
    """Buffers that statements of a body name by versions which hang on these counters."""
    found: set[str] = set()
    for s in walk(body):
        for r in (getattr(s, n, None) for n in ("src", "dst", "a", "b")):
            if isinstance(r, MemRef) and r.version is not None and r.version.symbols & counters:
                found.add(r.name)
    return found
