"""J2 of tensors into which engines store boxes, and which threads of the same role access too.

A box is read and written by its engine at some time between the copy and the wait that covers its group. So a thread
that reads the tensor afterwards must know that the boxes are written: the thread that started them has waited for all
of its groups, and all threads have met since. And what threads have read of the tensor must have come before an engine
writes there: each of them has executed a fence that engines heed since, and all have met after that.

What other tasks touch are other elements, or accesses that nothing orders anyway: `order` holds that.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from treadle.checker.gpu import joins_whole
from treadle.checker.inflight import STORES
from treadle.checker.verdict import Refused, Unsure
from treadle.machine.form import Body, Control, Copy, If, Kernel, Load, Loop, Role, Stmt, Store, Sync, Tasks, walk

Names = frozenset[str]
NONE: Names = frozenset()


@dataclass(frozen=True)
class Under:
    """Tensors by what may be on its way: boxes `started`, boxes `landed` of which the other threads do not know; values
    that threads have `read` and that may not have come, those that have come (`fenced`) unknown to other threads."""

    started: Names = NONE
    landed: Names = NONE
    read: Names = NONE
    fenced: Names = NONE

    def join(self, other: Under) -> Under:
        """What may be on its way on either way."""
        return Under(
            self.started | other.started,
            self.landed | other.landed,
            self.read | other.read,
            self.fenced | other.fenced,
        )


@dataclass
class Boxed:
    """The walk over one role. `at` is the statement in question."""

    kernel: Kernel
    role: Role
    everyone: int
    at: Stmt | Control | None = None
    users: dict[tuple[str, str], Stmt] = field(default_factory=dict[tuple[str, str], Stmt])  # the last loads and boxes

    def run(self) -> None:
        """*Errors*: findings of J2."""
        stmts = [s for s in walk(self.role.body) if isinstance(s, Stmt)]
        self.boxed = {s.dst.name for s in stmts if isinstance(s, Copy) and s.engine in STORES}
        if not self.boxed:
            return
        apart = any(isinstance(s, Tasks) and s.over == "threads" for s in self.role.body)
        self.single = apart or self.role.threads == 1
        for s in stmts:
            self.at = s
            if self.single and isinstance(s, Store) and s.dst.name in self.boxed:
                raise Unsure("J2", f"one thread and its engine store to {s.dst.name}", missing="one of the two")
        self.body(self.role.body, Under())

    def body(self, body: Body, under: Under) -> Under:
        for stmt in body:
            self.at = stmt
            match stmt:
                case Loop():
                    before = dict(self.users)
                    once = under.join(self.body(stmt.body, under))
                    self.users = before | self.users
                    under = once.join(self.body(stmt.body, once))
                    self.users = before | self.users
                case Tasks():
                    before = dict(self.users)
                    self.body(stmt.body, under)
                    self.users = before
                case If():
                    before = dict(self.users)
                    then = self.body(stmt.then, under)
                    self.users, after = before, self.users
                    under = then.join(self.body(stmt.orelse, under))
                    self.users = after | self.users
                case Stmt():
                    under = self.statement(stmt, under)
                case _:
                    pass
        return under

    def statement(self, stmt: Stmt, under: Under) -> Under:
        match stmt:
            case Load() if stmt.src.name in self.boxed:
                if stmt.src.name in under.started | under.landed:
                    reason = f"{stmt.src.name} is read while boxes may be on their way into it"
                    raise Refused("J2", reason, {}, partner=self.users.get(("box", stmt.src.name)))
                self.users["load", stmt.src.name] = stmt
                return replace(under, read=under.read | {stmt.src.name})
            case Copy() if stmt.engine in STORES:
                if stmt.dst.name in under.read | under.fenced:
                    reason = f"a box overwrites {stmt.dst.name} while threads may still read it"
                    raise Refused("J2", reason, {}, partner=self.users.get(("load", stmt.dst.name)))
                self.users["box", stmt.dst.name] = stmt
                return replace(under, started=under.started | {stmt.dst.name})
            case Sync():
                under = self.sync(stmt, under)
                pending = {("box", n) for n in under.started | under.landed}
                pending |= {("load", n) for n in under.read | under.fenced}
                self.users = {key: s for key, s in self.users.items() if key in pending}
                return under
            case _:
                return under

    def sync(self, stmt: Sync, under: Under) -> Under:
        args = dict(stmt.args)
        if stmt.kind == "bulk.wait" and args["depth"].constant == 0:
            if "read" in args and args["read"].constant != 0:
                return under
            under = replace(under, started=NONE, landed=under.landed | under.started)
            return replace(under, landed=NONE) if self.single else under
        if stmt.kind == "fence.proxy.async" and (not stmt.by or self.single):
            under = replace(under, read=NONE, fenced=under.fenced | under.read)
            return replace(under, fenced=NONE) if self.single else under
        if stmt.kind == "barrier.sync" and joins_whole(stmt, self.role, self.everyone):
            return replace(under, landed=NONE, fenced=NONE)
        return under
