"""J2 of plain memory that threads of one agent share: accesses of different threads with no meeting between them.

What one thread wrote another reads, or overwrites, only after all threads of the agent have met, on every way there: a
loop may run never, and then nobody meets in it. Element by element nothing is asked, but for tensors that threads load
and store: an element that one thread alone accesses needs no meeting.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from treadle.algebra.expr import Constraint, Expr, Sym, ge, lt, sym
from treadle.algebra.sets import Facts
from treadle.checker.clusters import LANDED
from treadle.checker.gpu import accesses, handed, joins_whole
from treadle.checker.meetings import meets
from treadle.checker.source import Source
from treadle.checker.verdict import Refused
from treadle.machine.form import (
    Body,
    Buffer,
    Frag,
    If,
    Kernel,
    Let,
    Load,
    Loop,
    MemRef,
    Mode,
    Role,
    Stmt,
    Store,
    Sync,
    Tasks,
    Version,
    walk,
)


@dataclass
class Pending:
    """Accesses to one memory since the last barrier of the agent."""

    read: bool = False
    written: bool = False
    older: bool = False  # written, and a new version begun since
    # Who read and wrote, as a judge tells them apart, each with its last statement.
    readers: dict[Any, object] = field(default_factory=dict[Any, object])
    writers: dict[Any, object] = field(default_factory=dict[Any, object])

    def copy(self) -> Pending:
        """A state of its own."""
        return Pending(self.read, self.written, self.older, dict(self.readers), dict(self.writers))


@dataclass
class Between:
    """The walk that finds accesses of different threads with no barrier between them."""

    kernel: Kernel
    role: Role
    source: Source
    everyone: int
    workspace: tuple[Buffer, ...] = ()
    skip: frozenset[str] = frozenset()  # buffers that a ring protocol guards
    facts: Facts = field(default_factory=Facts)
    at: object = None
    memories: set[str] = field(default_factory=set[str])
    declared: dict[str, Frag] = field(default_factory=dict[str, Frag])
    state: dict[str, Pending] = field(default_factory=dict[str, Pending])
    views: dict[str, str] = field(default_factory=dict[str, str])  # loaded tensors that are a view of a stored one
    lets: dict[str, Expr] = field(default_factory=dict[str, Expr])
    between: frozenset[int] = frozenset()  # barriers at which roles hand over
    steps: dict[str, tuple[Expr, int]] = field(default_factory=dict[str, "tuple[Expr, int]"])  # of loops: start, step

    def run(self) -> None:
        """*Errors*: refused, J2."""
        apart = any(isinstance(s, Tasks) and s.over == "threads" for s in walk(self.role.body))
        if apart or self.role.threads == 1:
            return  # every agent is one thread, which sees its own accesses in order
        self.declared = {f.name: f for f in self.kernel.frags}
        self.between = handed(self.kernel)
        buffers = {b.name for b in self.workspace} | {b.name for b in self.kernel.buffers if b.place != "local"}
        stored, loaded = self.source.stored, self.source.loaded
        self.views = {n: s for s in stored for n in loaded - stored if self.source.meet(s, n) == "same"}
        self.memories = (buffers - self.skip) | (stored & loaded) | self.views.keys() | set(self.views.values())
        self.body(self.role.body)

    def body(self, body: Body) -> None:
        for stmt in body:
            self.at = stmt
            if isinstance(stmt, Loop | Tasks):
                self._repeated(stmt)
            elif isinstance(stmt, If):
                before = self._copied()
                self.body(stmt.then)
                after, self.state = self.state, before
                self.body(stmt.orelse)
                self._join(after)
            elif isinstance(stmt, Let):
                self.lets[stmt.name] = stmt.expr.substitute(self.lets)
            else:
                self.statement(stmt)

    def _repeated(self, stmt: Loop | Tasks) -> None:
        """A loop or tasks: any number of times, none too unless the facts say otherwise."""
        known = self.facts
        if isinstance(stmt, Loop):
            self.steps[stmt.var] = self._now(stmt.lo), stmt.step.constant or 1
        inside = self._inside(stmt)
        sure = isinstance(stmt, Loop) and len(inside) == 2 and known.implies(lt(self._now(stmt.lo), self._now(stmt.hi)))
        without = {} if sure else self._copied()
        self.facts = known.also(*inside)
        self.body(stmt.body)
        if isinstance(stmt, Tasks):  # of other tasks' elements of tensors, `order` knows that they are others
            self.state = {n: p for n, p in self.state.items() if n not in self.source.stored}
        self.body(stmt.body)  # once more, behind what an iteration leaves
        self.facts = known
        self._join(without)

    def _now(self, e: Expr) -> Expr:
        return e.substitute(self.lets)

    def _inside(self, stmt: Loop | Tasks) -> list[Constraint]:
        """What holds of the variables, where no value of the run decides."""
        if isinstance(stmt, Loop):
            found = [ge(sym(stmt.var), self._now(stmt.lo)), lt(sym(stmt.var), self._now(stmt.hi))]
        else:
            found = [c for v, n in zip(stmt.vars, stmt.counts) for c in (ge(sym(v), 0), lt(sym(v), self._now(n)))]
        return [c for c in found if not c.expr.functions]

    def _copied(self) -> dict[str, Pending]:
        return {k: v.copy() for k, v in self.state.items()}

    def _join(self, other: dict[str, Pending]) -> None:
        """What may be pending on either way."""
        for name, p in other.items():
            q = self.state.setdefault(name, Pending())
            q.read, q.written, q.older = q.read or p.read, q.written or p.written, q.older or p.older
            q.readers |= p.readers
            q.writers |= p.writers

    def statement(self, stmt: object) -> None:
        if isinstance(stmt, Sync) and stmt.kind == "barrier.sync":
            # At a barrier between roles (`handover`) all threads of an only agent meet too.
            met = self.role.agents == 1 and dict(stmt.args)["id"].constant in self.between
            if met or joins_whole(stmt, self.role, self.everyone):
                self.state = {}
            return
        if isinstance(stmt, Sync) and stmt.kind == "cluster.wait":
            self.state = {}  # all threads of the cluster have arrived (`clusters`: just before)
            return
        if meets(stmt):
            self.state = {}
            return
        if isinstance(stmt, Sync) and stmt.kind == LANDED:  # each thread has waited for all that was sent here
            for p in (self.state[name] for name in stmt.tags if name in self.state):
                p.written, p.older, p.writers = False, False, {}
            return
        if isinstance(stmt, Version):
            p = self.state.get(stmt.buffer)
            if p is not None and p.written:
                p.older = True
            return
        if isinstance(stmt, Stmt):
            for ref, writes in accesses(stmt):
                if ref.name in self.memories:
                    where = stmt.where if isinstance(stmt, Load | Store) else ()
                    self.access(ref, writes, where, self._held(stmt))

    def _held(self, stmt: Stmt) -> tuple[Mode, ...]:
        """How the fragment of an access lies on the threads."""
        name = stmt.dst if isinstance(stmt, Load) else stmt.src.name if isinstance(stmt, Store) else ""
        return self.declared[name].dist if name in self.declared else ()

    def access(self, ref: MemRef, writes: bool, where: tuple[Constraint, ...], dist: tuple[Mode, ...]) -> None:
        name = self.views.get(ref.name, ref.name)
        p = self.state.setdefault(name, Pending())
        # The same index, mask and distribution: the same element by the same thread, if elements tell threads.
        own = (ref.index, where, dist) if name in self.source.stored and self._settled(ref, where, dist) else None
        if writes:
            if p.older or (p.read and (own is None or p.readers.keys() != {own})):
                other = another(p.readers, own) or another(p.writers, own)
                reason = f"{name} is overwritten with no barrier after other threads' accesses"
                raise Refused("J2", reason, {}, partner=other)
            p.written = True
            p.writers[own] = self.at
        else:
            if p.written and (own is None or p.writers.keys() != {own}):
                reason = f"{name} is read with no barrier after other threads wrote it"
                raise Refused("J2", reason, {}, partner=another(p.writers, own))
            p.read = True
            p.readers[own] = self.at

    def _settled(self, ref: MemRef, where: tuple[Constraint, ...], dist: tuple[Mode, ...]) -> bool:
        """Whether an element is one thread's alone, whichever iteration of the loops around accesses it.

        Of each axis of the fragment that threads share, the coordinate is that of the element, moved by what does not
        change the thread; not so where several threads hold an element, or where a value of the run decides.
        """
        index = [self._now(e) for e in ref.index]
        if not dist or any(e.functions for e in (*index, *(self._now(c.expr) for c in where))):
            return False
        if any(m.axis is None and m.size > 1 for m in dist):
            return False
        spans: dict[int, int] = {}
        for m in dist:
            if m.who != "slot" and m.axis is not None and m.size > 1:
                spans[m.axis] = max(spans.get(m.axis, 1), m.stride * m.size)
        return all(any(self._moved(e - sym(f"${axis}"), span) for e in index) for axis, span in spans.items())

    def _moved(self, rest: Expr, span: int) -> bool:
        """Whether all iterations add the same to a coordinate, but for multiples of a span."""
        if rest.functions:
            return False
        for monomial, c in rest.terms:
            names = Expr(((monomial, 1),)).symbols
            if any(n.startswith("$") for n in names):
                return False
            for name in names & self.steps.keys() if c % span else ():
                start, step = self.steps[name]
                if monomial != (Sym(name),) or c * step % span or not self._moved(start * c, span):
                    return False
        return True


def another(found: dict[Any, object], own: Any) -> object:
    """The statement of an access that is not known to be the same threads' as `own`, None where there is none."""
    return next((stmt for who, stmt in found.items() if who is None or who != own), None)
