"""Shared memory of other workgroups of a cluster, read and written by threads: one memory of the whole cluster.

A buffer that some statement reaches in another workgroup is judged as one buffer with an axis in front, the number of
the workgroup in its cluster: `S[i]` is `S[cta.rank, i]`, and `S@(r)[i]` is `S[r, i]`. A version says of every
workgroup's part what it says of its own. All workgroups of a cluster go through the same controls (`clusters`), so each
executes for its number what the text says for `cta.rank`.

What others wrote is known behind a meeting of the cluster, where every thread of it has arrived: what a workgroup had
written there, all had, each for its number. Between two meetings a place that one workgroup reaches in another may not
be accessed by both sides, unless all only read, or all write the same version (then each writes the same value). A
barrier of one workgroup orders nothing for another.

Roles of one agent do so, one each to a buffer, or one that stores and others that load (`passed`); all roles, beside
rings too, meet the cluster as often, in the same places among the steps of their rings (`rings`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from treadle.algebra.expr import Constraint, Expr, const, sym
from treadle.checker.between import Between, Pending
from treadle.checker.clusters import LANDED, far_buffers
from treadle.checker.verdict import Refused, Unsure
from treadle.machine.form import (
    Body,
    Buffer,
    Claim,
    Compute,
    Control,
    If,
    Kernel,
    Load,
    Loop,
    MemRef,
    Mode,
    Stmt,
    Store,
    Sync,
    Tasks,
    Version,
    walk,
)
from treadle.machine.vocabulary import RANK

MEETING = "cluster.wait"


@dataclass
class Peers:
    """One kernel in clusters of `size`. `at` is the statement in question; `names` are the buffers of the cluster. What
    stands in for a statement gets its number in `numbers`."""

    kernel: Kernel
    size: int
    numbers: dict[int, int] = field(default_factory=dict[int, int])
    at: object = None
    names: frozenset[str] = frozenset()

    def unfolded(self) -> Kernel:
        """The kernel with memory of the cluster; itself, if no statement reaches another workgroup.

        *Errors*: unsure, where no rule covers how.
        """
        self.names = far_buffers(self.kernel) if self.size > 1 else frozenset()
        if not self.names:
            return self.kernel
        self.at = next(s for r in self.kernel.roles for s in walk(r.body) if self._reaches(s))
        reaching = [r for r in self.kernel.roles if any(self._reaches(s) for s in walk(r.body))]
        if any(r.agents != 1 for r in reaching):
            raise Unsure("J2", "several agents of a role reach other workgroups", missing="roles of one agent")
        buffers = [self._buffer(b) if b.name in self.names else b for b in self.kernel.buffers]
        roles = [replace(r, body=self._body(r.body)) for r in self.kernel.roles]
        return replace(self.kernel, buffers=buffers, roles=roles)

    def _reaches(self, stmt: object) -> bool:
        refs = (getattr(stmt, n, None) for n in ("src", "dst"))
        return any(isinstance(r, MemRef) and r.rank is not None for r in refs)

    def _buffer(self, buffer: Buffer) -> Buffer:
        if buffer.versions or buffer.swizzle:
            raise Unsure("J2", f"the ring {buffer.name} of another workgroup", missing="a buffer of one version")
        return replace(buffer, shape=(const(self.size), *buffer.shape))

    def _body(self, body: Body) -> Body:
        made = [self._control(s) if isinstance(s, Control) else self._statement(s) for s in body]
        for old, new in zip(body, made):
            if id(old) in self.numbers:
                self.numbers[id(new)] = self.numbers[id(old)]
        return made

    def _control(self, item: Control) -> Control:
        match item:
            case Loop():
                if any(i.holder in self.names for i in item.invariants):
                    self.at = item
                    raise Unsure("J1", "an invariant of a cluster's memory", missing="a version in the loop")
                return replace(item, body=self._body(item.body))
            case Tasks():
                return replace(item, body=self._body(item.body))
            case If():
                return replace(item, then=self._body(item.then), orelse=self._body(item.orelse))
            case _:
                return item

    def _statement(self, stmt: Stmt) -> Stmt:
        match stmt:
            case Load() if stmt.src.name in self.names:
                return replace(stmt, src=self._ref(stmt.src))
            case Store() if stmt.dst.name in self.names:
                return replace(stmt, dst=self._ref(stmt.dst))
            case Version() if stmt.buffer in self.names and stmt.claim is not None:
                assert isinstance(stmt.claim, Claim)
                return replace(stmt, claim=self._claim(stmt.claim))
            case _:
                pass
        args = stmt.args if isinstance(stmt, Compute) else ()
        refs = [getattr(stmt, n, None) for n in ("src", "dst", "a", "b", "object", "signal")]
        if any(isinstance(r, MemRef) and r.name in self.names for r in (*refs, *args)):
            self.at = stmt
            raise Unsure("J2", "memory of a cluster in more than loads and stores", missing="loads and stores")
        return stmt

    def _ref(self, ref: MemRef) -> MemRef:
        rank = sym(RANK) if ref.rank is None else ref.rank
        assert isinstance(rank, Expr)
        return MemRef(ref.name, (rank, *ref.index))

    def _claim(self, claim: Claim) -> Claim:
        """As of each workgroup's part: `$i` is the next coordinate, the workgroup's number is the first one."""
        names = {s for e in (*claim.coords, *(c.expr for c in claim.where)) for s in e.symbols if s.startswith("$")}
        names |= {s for c in claim.over or () for s in c.symbols if s.startswith("$")}
        env = {s: sym(f"${int(s[1:]) + 1}") for s in names} | {RANK: sym("$0")}
        return replace(
            claim,
            coords=tuple(c.substitute(env) for c in claim.coords),
            where=tuple(c.substitute(env) for c in claim.where),
            over=None if claim.over is None else tuple(c.substitute(env) for c in claim.over),
            instance=tuple((n, e.substitute(env)) for n, e in claim.instance),
        )


@dataclass
class Apart(Between):
    """The walk that finds accesses of different workgroups to memory of their cluster with no meeting between."""

    names: frozenset[str] = field(default_factory=frozenset[str])

    def run(self) -> None:
        """*Errors*: refused, J2."""
        self.memories = set(self.names)
        if self.names:
            self.body(self.role.body)

    def statement(self, stmt: object) -> None:
        if isinstance(stmt, Sync) and stmt.kind == "barrier.sync":
            return
        if isinstance(stmt, Sync) and stmt.kind == LANDED:
            for name in stmt.tags:  # what others sent here has come; what was sent elsewhere may not
                p = self.state.setdefault(name, Pending())
                p.written, p.older, p.writers = False, False, {"sent": stmt}
            return
        super().statement(stmt)

    def access(self, ref: MemRef, writes: bool, where: tuple[Constraint, ...], dist: tuple[Mode, ...]) -> None:
        p = self.state.setdefault(ref.name, Pending())
        far = ref.index[0] != sym(RANK)
        if "sent" in p.writers and (writes or far):
            reason = f"{ref.name}, into which others send, is touched before the cluster has met"
            raise Refused("J2", reason, {}, partner=p.writers["sent"])
        if writes:
            if (far and p.read) or "far" in p.readers:
                reason = f"{ref.name} is overwritten, and nothing says that others have read it"
                raise Refused("J2", reason, {}, partner=self._of_other(p.readers, far))
            if p.older and (far or "far" in p.writers):
                reason = f"{ref.name} is overwritten by another workgroup, in no order"
                raise Refused("J2", reason, {}, partner=self._of_other(p.writers, far))
            p.written = True
            p.writers["far" if far else "near"] = self.at
        else:
            if (far and p.written) or "far" in p.writers:
                reason = f"{ref.name} is read, and the cluster has not met since it was written"
                raise Refused("J2", reason, {}, partner=self._of_other(p.writers, far))
            p.read = True
            p.readers["far" if far else "near"] = self.at

    def _of_other(self, found: dict[Any, object], far: bool) -> object:
        """The statement of an access on another side, if there is one; two that reach out may meet as well."""
        return found.get("near" if far else "far") or found.get("far")
