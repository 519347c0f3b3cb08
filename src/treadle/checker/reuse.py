"""J2 of shared memory that threads copy into asynchronously (`cp.async`), or fill and read slot by slot in turn:
element by element, iteration by iteration.

A copy of threads is over for its own thread when a wait covers its group, and for the others when all threads have met
after that. Its place is free again when all threads have met after their last access to it. Slots of a ring are indices
like others (`A[j % 3, ...]`), so nothing here knows of rings, prologues or peeled iterations: the walk carries the
accesses that the next one may collide with, each as the set of elements that it touches, and moves them one iteration
back where a loop goes on (`j` of then is `j - 1` of now). Two sets that meet are a finding.

What the walk says of a state holds for every way there: ways are joined by union, groups are counted from the newest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count

from treadle.algebra.expr import Constraint, Expr, Floor, eq, ge, lt, sym
from treadle.algebra.maps import IndexMap, box
from treadle.algebra.sets import Facts, Inexpressible, Region, complements
from treadle.checker.gpu import accesses, joins_whole
from treadle.checker.verdict import Refused, Unsure
from treadle.machine.form import (
    Advance,
    Body,
    Compute,
    Control,
    Copy,
    If,
    Kernel,
    Let,
    Load,
    Loop,
    MemRef,
    Role,
    Stmt,
    Store,
    Sync,
    Tasks,
    walk,
)

COPIES = "cp.async"
GROUPS = ("cpasync.commit", "cpasync.wait")
ROUNDS = 16
"""Iterations after which the accesses that a loop leaves behind must repeat."""


@dataclass(frozen=True)
class Access:
    """Elements of a buffer that one statement touches, in terms of the controls around the walk's present place.
    `sure`: exactly these, not some of these. `stmt` is that statement, for a report: one of those that touch them."""

    buffer: str
    map: IndexMap
    writes: bool
    sure: bool = True
    stmt: Stmt | None = field(default=None, compare=False)

    def when(self, *conds: Constraint) -> Access:
        """Where these hold too."""
        new = tuple(c for c in conds if c not in self.map.where)
        return replace(self, map=replace(self.map, where=(*self.map.where, *new))) if new else self

    def past(self, var: str, *conds: Constraint) -> Access:
        """Of some value of a variable that is out of scope now; `conds` speak of it."""
        if var not in self.symbols:
            return self
        own = var
        while own in self.map.dims or own == var:
            own += "'"
        moved = self.when(*conds).map.substitute({var: sym(own)})
        return replace(self, map=replace(moved, dims=(own, *moved.dims)))

    @property
    def symbols(self) -> frozenset[str]:
        """Everything that the set is written with."""
        found: frozenset[str] = frozenset()
        for e in (*self.map.outs, *(c.expr for c in self.map.where)):
            found |= e.symbols
        return found


Accesses = frozenset[Access]
NONE: Accesses = frozenset()


@dataclass(frozen=True)
class Pending:
    """`plain` accesses of threads and `landed` copies since all met; copies of committed `groups`, oldest first, and of
    the `open` one."""

    plain: Accesses = NONE
    landed: Accesses = NONE
    groups: tuple[Accesses, ...] = ()
    open: Accesses = NONE

    def join(self, other: Pending) -> Pending:
        """What may be pending on either way."""
        n = max(len(self.groups), len(other.groups))
        a, b = ((NONE,) * (n - len(p.groups)) + p.groups for p in (self, other))
        return Pending(
            self.plain | other.plain,
            self.landed | other.landed,
            tuple(x | y for x, y in zip(a, b, strict=True)),
            self.open | other.open,
        )

    def parts(self) -> Iterator[Accesses]:
        """All sets."""
        yield from (self.plain, self.landed, self.open, *self.groups)

    def map(self, change: Changed) -> Pending:
        """Each access changed (None: it cannot be); the oldest groups with nothing in them are no more."""

        def some(found: Accesses) -> Accesses:
            return frozenset(x for x in map(change, found) if x is not None)

        groups = [some(g) for g in self.groups]
        while groups and not groups[0]:
            groups.pop(0)
        return Pending(some(self.plain), some(self.landed), tuple(groups), some(self.open))

    @property
    def flying(self) -> Accesses:
        """Copies that no wait has covered."""
        return self.open.union(*self.groups)


class Changed:
    """A change of accesses, by name for readers of `Pending.map`."""

    def __call__(self, access: Access) -> Access | None:
        raise AssertionError


@dataclass
class Within(Changed):
    """Accesses that the facts allow."""

    facts: Facts

    def __call__(self, access: Access) -> Access | None:
        try:
            return None if Region.of(access.map, self.facts).is_empty else access
        except Inexpressible:
            return replace(access, sure=False)


@dataclass
class Where(Changed):
    """Accesses on one way, if they are not on both."""

    conds: tuple[Constraint, ...]
    but: Accesses = NONE

    def __call__(self, access: Access) -> Access | None:
        return access if access in self.but else access.when(*self.conds)


@dataclass
class Shifted(Changed):
    """One iteration later."""

    loop: Loop

    def __call__(self, access: Access) -> Access | None:
        v = self.loop.var
        return replace(access, map=access.map.substitute({v: sym(v) - self.loop.step}))


@dataclass
class Over(Changed):
    """After the control of a variable."""

    var: str
    conds: tuple[Constraint, ...]

    def __call__(self, access: Access) -> Access | None:
        return access.past(self.var, *self.conds)


@dataclass
class Reuse:
    """The walk over one role. `at` is the statement in question."""

    kernel: Kernel
    role: Role
    facts: Facts
    everyone: int
    rings: frozenset[str] = frozenset()  # memory that a protocol guards, or a cluster has
    at: Stmt | Control | None = None
    watched: frozenset[str] = frozenset()
    lets: dict[str, Expr] = field(default_factory=dict[str, Expr])
    around: list[Constraint] = field(default_factory=list[Constraint])  # of the controls around the place
    moving: set[str] = field(default_factory=set[str])  # names that stand for run-time values
    fresh: Iterator[int] = field(default_factory=count)
    places: dict[int, int] = field(default_factory=dict[int, int])  # of statements in the text

    def run(self) -> frozenset[str]:
        """The buffers that were judged here. *Errors*: findings of J2."""
        copies = [
            s
            for s in walk(self.role.body)
            if isinstance(s, Copy) and s.engine == COPIES and s.dst.name not in self.rings
        ]
        if not copies:
            lost = next((s for s in walk(self.role.body) if isinstance(s, Sync) and s.kind in GROUPS), None)
            if lost is not None:
                self.at = lost
                raise Unsure("J2", "groups of copies without a copy", missing="a copy by threads")
        self.watched = frozenset(s.dst.name for s in copies) | self._turned()
        if not self.watched:
            return frozenset()
        self.moving = set(self.role.counters)
        self.places = {id(s): i for i, s in enumerate(walk(self.role.body))}
        self._kept()
        end = self.body(self.role.body, Pending())
        if end.flying:
            self.at = copies[-1]
            raise Refused("J2", "the kernel may end before its copies have landed", {})
        return self.watched

    def _turned(self) -> frozenset[str]:
        """Buffers whose slots the agent's own threads fill and read in turn: shared memory of this workgroup that they
        load and store, some index of which goes round."""
        shared = {b.name for b in self.kernel.buffers if b.place == "shared" and not b.versions}
        found: set[str] = set()
        for role in self.kernel.roles:
            for s in walk(role.body):
                if not isinstance(s, Stmt):
                    continue
                for ref, _ in accesses(s):
                    mine = role is self.role and isinstance(s, Load | Store) and ref.rank is None
                    if not mine:
                        shared.discard(ref.name)
                    elif any(_goes_round(e) for e in ref.index):
                        found.add(ref.name)
                if isinstance(s, Compute):
                    shared -= {x.name for x in s.args if isinstance(x, MemRef)}
        return frozenset((found & shared) - self.rings)

    def _kept(self) -> None:
        """Only threads touch these buffers, and copies of threads into them."""
        for s in walk(self.role.body):
            self.at = s
            if not isinstance(s, Stmt):
                continue
            if isinstance(s, Compute) and any(isinstance(x, MemRef) and x.name in self.watched for x in s.args):
                raise Unsure("J2", "an operand in memory that threads copy into", missing="a load of it")
            for ref, _ in accesses(s):
                if ref.name not in self.watched:
                    continue
                if not isinstance(s, Load | Store) and not (isinstance(s, Copy) and s.engine == COPIES):
                    raise Unsure(
                        "J2", f"{ref.name}, which threads copy into, is used by an engine", missing="a load or store"
                    )
                if ref.rank is not None:
                    raise Unsure("J2", f"{ref.name} of another workgroup is copied into", missing="one workgroup")
                if ref.version is not None:
                    raise Unsure("J2", f"{ref.name} has versions and is copied into by threads", missing="an axis")

    # ---- control

    def body(self, body: Body, state: Pending) -> Pending:
        for stmt in body:
            self.at = stmt
            match stmt:
                case Loop():
                    state = self.loop(stmt, state)
                case Tasks():
                    state = self.tasks(stmt, state)
                case If():
                    state = self.branch(stmt, state)
                case Let():
                    self._let(stmt)
                case Stmt():
                    state = self.statement(stmt, state)
                case _:
                    pass
        return state

    def _let(self, stmt: Let) -> None:
        known = self._expr(stmt.expr)
        self.moving.discard(stmt.name)
        if known is None:
            self.moving.add(stmt.name)
        else:
            self.lets[stmt.name] = known

    def _expr(self, e: Expr) -> Expr | None:
        """The expression of numbers that stay; None if it hangs on a value of the run."""
        return None if e.functions or e.symbols & self.moving else e.substitute(self.lets)

    def _conds(self, cs: tuple[Constraint, ...]) -> tuple[tuple[Constraint, ...], bool]:
        """What is known of conditions, and whether that is all."""
        found = [(self._expr(c.expr), c.equality) for c in cs]
        return tuple(Constraint(e, q) for e, q in found if e is not None), all(e is not None for e, _ in found)

    def _here(self) -> Facts:
        return self.facts.also(*self.around)

    def _matters(self, body: Body) -> bool:
        return any(
            (isinstance(s, Sync) and (s.kind == "barrier.sync" or s.kind.startswith("cpasync")))
            or (isinstance(s, Stmt) and any(ref.name in self.watched for ref, _ in accesses(s)))
            for s in walk(body)
        )

    def _range(self, stmt: Loop) -> tuple[Constraint, ...]:
        v, lo, hi, step = sym(stmt.var), self._expr(stmt.lo), self._expr(stmt.hi), stmt.step.constant
        found: list[Constraint] = []
        if lo is not None:
            found.append(ge(v, lo))
        if hi is not None:
            found.append(lt(v, hi))
        if lo is not None and step != 1:
            found.append(eq((v - lo) % (step or 1), 0))
        return tuple(found)

    def loop(self, stmt: Loop, state: Pending) -> Pending:
        if not self._matters(stmt.body):
            self._lets_of(stmt.body)
            return state
        step = stmt.step.constant
        if step is None or step < 1:
            raise Unsure("J2", f"a loop that steps by {stmt.step}", missing="a number")
        quiet = not any(isinstance(s, Sync) for s in walk(stmt.body))
        inside = self._range(stmt)
        known = list(self.around)
        self.around += inside
        end = self._quiet(stmt, state, inside) if quiet else self._timed(stmt, state, inside)
        self.around = known
        if quiet:
            return end
        lo, hi = self._expr(stmt.lo), self._expr(stmt.hi)
        never = state if lo is None or hi is None else state.map(Where((ge(lo, hi),)))
        self.at = stmt
        return never.map(Within(self._here())).join(end.map(Within(self._here())))

    def _quiet(self, stmt: Loop, state: Pending, inside: tuple[Constraint, ...]) -> Pending:
        """A loop in which nobody waits for anybody: its accesses are those of all iterations."""
        made = self.body(stmt.body, state)
        v = sym(stmt.var)
        before = "'" + stmt.var
        earlier = (*(c.substitute({stmt.var: sym(before)}) for c in inside), lt(sym(before), v))
        # Some earlier iteration's accesses are pending in this one.
        old = Pending(
            frozenset(self._earlier(a, stmt.var, before, earlier) for a in made.plain - state.plain),
            NONE,
            (),
            frozenset(self._earlier(a, stmt.var, before, earlier) for a in made.open - state.open),
        )
        self.body(stmt.body, state.join(old.map(Within(self._here()))))
        return made.map(Over(stmt.var, inside))

    def _earlier(self, access: Access, var: str, before: str, conds: tuple[Constraint, ...]) -> Access:
        moved = access.map.substitute({var: sym(before)})
        return replace(access, map=IndexMap((before, *moved.dims), moved.outs, (*moved.where, *conds)))

    def _timed(self, stmt: Loop, state: Pending, inside: tuple[Constraint, ...]) -> Pending:
        """A loop in which threads meet or wait: its head is what the entry and the iteration before leave."""
        v, lo, hi = sym(stmt.var), self._expr(stmt.lo), self._expr(stmt.hi)
        if lo is None or hi is None:
            raise Unsure("J2", f"a loop from {stmt.lo} to {stmt.hi} with waits", missing="bounds that are no values")
        here = Within(self._here())
        entry = state.map(Where((eq(v, lo),))).map(here)
        head = entry
        for _ in range(ROUNDS):
            end = self.body(stmt.body, head)
            following = entry.join(end.map(Shifted(stmt)).map(here))
            if following == head:
                last = (*inside, ge(v + stmt.step, hi))
                return end.map(Over(stmt.var, last))
            head = following
        self.at = stmt
        raise Unsure("J2", "copies of threads pile up over the iterations of a loop", missing="waits and meetings")

    def tasks(self, stmt: Tasks, state: Pending) -> Pending:
        """One task behind the other in a workgroup: what some earlier task left is pending."""
        counts = [self._expr(c) for c in stmt.counts]
        inside = [
            c for v, n in zip(stmt.vars, counts) for c in (ge(sym(v), 0), *([] if n is None else [lt(sym(v), n)]))
        ]
        known = list(self.around)
        self.around += inside
        head = state
        for _ in range(ROUNDS):
            end = self.body(stmt.body, head)
            for v in stmt.vars:
                end = end.map(Over(v, tuple(c for c in inside if v in c.symbols)))
            following = head if stmt.over == "grid" else head.join(end.map(Within(self._here())))
            if following == head:
                self.around = known
                return state.join(end)
            head = following
        self.at = stmt
        raise Unsure("J2", "copies of threads pile up over tasks", missing="waits and meetings")

    def branch(self, stmt: If, state: Pending) -> Pending:
        conds, sure = self._conds(stmt.conds)
        sure = sure and stmt.cond is None
        known = list(self.around)
        self.around = [*known, *conds]
        taken = state if self._here().contradictory else self.body(stmt.then, state)
        others = list(complements(conds)) if sure else []
        refused = others[0] if len(others) == 1 else ()
        self.around = [*known, *refused]
        left = state if self._here().contradictory else self.body(stmt.orelse, state)
        self.around = known
        both = NONE.union(*taken.parts()) & NONE.union(*left.parts())
        return taken.map(Where(conds if sure else (), both)).join(left.map(Where(tuple(refused), both)))

    def _lets_of(self, body: Body) -> None:
        for s in walk(body):
            if isinstance(s, Let):
                self._let(s)

    # ---- statements

    def statement(self, stmt: Stmt, state: Pending) -> Pending:
        if isinstance(stmt, Sync):
            return self.sync(stmt, state)
        if isinstance(stmt, Advance):
            return state
        for ref, writes in accesses(stmt):
            if ref.name in self.watched:
                state = self.access(stmt, ref, writes, state)
        return state

    def access(self, stmt: Stmt, ref: MemRef, writes: bool, state: Pending) -> Pending:
        """An access that must meet no pending one of which either writes."""
        mine = self.made(stmt, ref, writes)
        copies = isinstance(stmt, Copy)
        for other in self._sorted(state.flying):
            self._apart(mine, other, "is touched while a copy into it may be on its way")
        for other in self._sorted(state.landed):
            self._apart(mine, other, "is touched before all threads have met whose copies have landed")
        for other in self._sorted(state.plain):
            if writes or other.writes:
                self._apart(mine, other, "is touched by other threads with no meeting in between")
        if copies:
            return replace(state, open=state.open | {mine})
        return replace(state, plain=state.plain | {mine})

    def _sorted(self, found: Accesses) -> list[Access]:
        """As their statements stand in the text: the partner in a report is the same in every run."""
        return sorted(found, key=lambda a: self.places.get(id(a.stmt), 0))

    def made(self, stmt: Stmt, ref: MemRef, writes: bool) -> Access:
        """The access as a set. Of a copy all elements of the box are written, zeros where it brings nothing."""
        shape = stmt.box if isinstance(stmt, Copy) else self._shape(stmt)
        names = [f"${i}" for i in range(len(shape))]
        where: tuple[Constraint, ...] = ()
        sure = True
        if isinstance(stmt, Load | Store):
            where, sure = self._conds(stmt.where)
            sure = sure and getattr(stmt, "mask", None) is None
        outs: list[Expr] = []
        free: list[str] = []
        for e in ref.index:
            known = self._expr(e)
            if known is None:
                free.append(f"any{next(self.fresh)}")
                known, sure = sym(free[-1]), False
            outs.append(known)
        self._plain(where, outs)
        bounds = box(names, list(shape))
        around = tuple(c for c in self.around if c.symbols)
        return Access(ref.name, IndexMap((*names, *free), tuple(outs), (*bounds, *where, *around)), writes, sure, stmt)

    def _plain(self, where: tuple[Constraint, ...], outs: list[Expr]) -> None:
        for e in (*outs, *(c.expr for c in where)):
            if e.symbols & self.moving:
                raise Unsure("J2", f"the index {e} hangs on a value of the run", missing="an index of loop variables")

    def _shape(self, stmt: Stmt) -> tuple[int, ...]:
        name = stmt.dst if isinstance(stmt, Load) else stmt.src.name if isinstance(stmt, Store) else ""
        return next((f.shape for f in self.kernel.frags if f.name == name), ())

    def _apart(self, mine: Access, other: Access, what: str) -> None:
        if mine.buffer != other.buffer:
            return
        facts = self._here()
        try:
            meet = Region.of(mine.map, facts) & Region.of(other.map, facts)
        except Inexpressible as term:
            raise Unsure("J2", f"{mine.buffer}: the index has the term {term}", missing="an affine index") from None
        if meet.is_empty:
            return
        if mine.sure and other.sure:
            raise Refused("J2", f"{mine.buffer} {what}", meet.sample() or {}, partner=other.stmt)
        missing = "indices that are no values of the run"
        raise Unsure("J2", f"{mine.buffer} {what}", meet.sample(), missing=missing, partner=other.stmt)

    def sync(self, stmt: Sync, state: Pending) -> Pending:
        match stmt.kind:
            case "cpasync.commit":
                return replace(state, groups=(*state.groups, state.open), open=NONE)
            case "cpasync.wait":
                depth = dict(stmt.args)["depth"].constant
                if depth is None or depth < 0:
                    raise Unsure("J2", "a wait of unknown depth", missing="a number")
                covered = len(state.groups) - depth
                done, left = state.groups[: max(0, covered)], state.groups[max(0, covered) :]
                return replace(state, landed=state.landed.union(*done), groups=left)
            case "grid.sync" if state.flying:
                raise Refused("J2", "workgroups meet, and copies may still read what others store behind", {})
            case "barrier.sync" if joins_whole(stmt, self.role, self.everyone):
                return replace(state, plain=NONE, landed=NONE)
            case _:
                return state


def _goes_round(index: Expr) -> bool:
    """Whether an index is a remainder of loops' variables, as that of a slot is."""
    floors = [a for a in index.atoms() if isinstance(a, Floor)]
    return any(not n.startswith("$") for f in floors for n in f.num.symbols)
