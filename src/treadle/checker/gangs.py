"""Gangs of CPU workers: the agents of a kernel's only role run each task together and meet at the gang's barrier.

A gang takes a task as a whole; its workers run at the same time, each the same body for its own number. What one of
them does before a meeting (`gang.sync`), all find behind it; between two meetings no element of the gang's memory, of
the workspace, or of a tensor that is stored and loaded may be accessed by two of them if one stores it. An element of
which some subscript is the worker's number is that worker's alone.

Every worker comes to every meeting: nothing that steers one hangs on the number of the worker or on what it has read.
"""

from __future__ import annotations

from dataclasses import dataclass

from treadle.algebra.expr import Constraint, Expr, sym
from treadle.checker.between import Between, Pending, another
from treadle.checker.source import Source
from treadle.checker.verdict import Refused, Unsure
from treadle.machine.form import (
    Body,
    Buffer,
    If,
    Kernel,
    Launch,
    Let,
    Loop,
    MemRef,
    Mode,
    Role,
    Sync,
    Tasks,
    walk,
)

POOL, MEETING = "gangs", "gang.sync"


def is_gang(kernel: Kernel) -> bool:
    """Whether a kernel's workers run tasks together, or meet."""
    stmts = [s for r in kernel.roles for s in walk(r.body)]
    return any(r.agents > 1 for r in kernel.roles) or any(
        (isinstance(s, Tasks) and s.over == POOL) or (isinstance(s, Sync) and s.kind == MEETING) for s in stmts
    )


@dataclass
class Gang:
    """The rules of one kernel of a gang. `at` is the statement in question."""

    kernel: Kernel
    launch: Launch
    source: Source
    workspace: tuple[Buffer, ...]
    at: object = None

    def check(self) -> None:
        """*Errors*: findings of J2, J4, J5 and J7."""
        if len(self.kernel.roles) != 1 or self.kernel.roles[0].threads != 1 or self.kernel.roles[0].index is None:
            raise Unsure("J5", f"the gang of {self.kernel.name}", missing="one role of workers that have numbers")
        (role,) = self.kernel.roles
        if self.launch.threads != role.agents:
            raise Refused("J7", f"a gang of {role.agents} workers, the launch has {self.launch.threads}", {})
        nests = [s for s in role.body if not isinstance(s, Let)]
        if len(nests) != 1 or not isinstance(nests[0], Tasks) or nests[0].over != POOL:
            raise Unsure("J5", f"work of {role.name} beside the gang's tasks", missing=f"one nest of tasks over {POOL}")
        self._places()
        self._alike(role, role.body, {}, nested=False)
        stored, used = self.source.stored, self.source.stored | self.source.loaded
        for name in sorted(stored):
            for other in sorted(used - {name}):
                if self.source.meet(name, other) != "never":
                    missing = f"disjoint({name}, {other}) in the guard"
                    raise Unsure("J7", f"workers side by side use {name} and {other}", missing=missing)
        shared = frozenset(b.name for b in self.kernel.buffers if b.place == "shared")
        names = shared | {b.name for b in self.workspace} | (stored & self.source.loaded)
        meets = Meets(self.kernel, role, self.source, role.agents)
        meets.memories = set(names)
        try:
            meets.body(role.body)
        except Refused:
            self.at = meets.at
            raise

    def _places(self) -> None:
        for b in self.kernel.buffers:
            if b.place != "shared":
                continue
            size, start = b.dtype.itemsize, None if b.offset is None else b.offset.constant
            for e in b.shape:
                if e.constant is None:
                    raise Unsure("J4", f"{b.name} has the shape {e}", missing="numbers")
                size *= e.constant
            if start is None:
                raise Unsure("J4", f"{b.name} has no place in the gang's memory", missing="an offset")
            if b.versions or b.swizzle:
                raise Unsure("J4", f"{b.name} is a ring or swizzled", missing="a rule for it on CPUs")
            if start + size > self.launch.shared_bytes:
                raise Refused("J4", f"{b.name} ends at byte {start + size} of {self.launch.shared_bytes}", {})

    def _alike(self, role: Role, body: Body, lets: dict[str, Expr], nested: bool) -> bool:
        """Whether the workers of the gang meet in a body; *Errors* where not all of them may come."""
        meets = False
        for s in body:
            if isinstance(s, Let):
                lets[s.name] = s.expr.substitute(lets)
            elif isinstance(s, Sync) and s.kind == MEETING:
                if not nested:
                    self.at = s
                    raise Refused("J5", "workers meet outside of a task, which one alone executes", {})
                meets = True
            elif isinstance(s, Loop | Tasks):
                inside = self._alike(role, s.body, lets, nested or isinstance(s, Tasks))
                bounds = (s.lo, s.hi, s.step) if isinstance(s, Loop) else s.counts
                self._same(s, role, [e.substitute(lets) for e in bounds], inside)
                meets |= inside
            elif isinstance(s, If):
                inside = self._alike(role, s.then, lets, nested)
                inside |= self._alike(role, s.orelse, lets, nested)
                self._same(s, role, [c.expr.substitute(lets) for c in s.conds], inside)
                if inside and s.cond is not None:
                    raise Unsure("J5", "workers meet under a condition that each reads", missing="one of numbers")
                meets |= inside
        return meets

    def _same(self, s: Loop | Tasks | If, role: Role, told: list[Expr], meets: bool) -> None:
        if not meets and not isinstance(s, Tasks):
            return
        self.at = s
        if any(role.index in e.symbols or e.functions for e in told):
            raise Refused("J5", "whether a worker comes to a meeting hangs on its number or on what it read", {})


@dataclass
class Meets(Between):
    """Accesses of different workers with no meeting between them."""

    def statement(self, stmt: object) -> None:
        if isinstance(stmt, Sync):
            if stmt.kind == MEETING:
                self.state = {}
            return
        super().statement(stmt)

    def access(self, ref: MemRef, writes: bool, where: tuple[Constraint, ...], dist: tuple[Mode, ...]) -> None:
        p = self.state.setdefault(ref.name, Pending())
        assert self.role.index is not None
        number = sym(self.role.index)
        own = next((i for i, e in enumerate(ref.index) if self._now(e) == number), None)
        if writes:
            others = (p.writers | p.readers) if p.older else p.readers
            if any(o is None or o != own for o in others):
                reason = f"{ref.name} is overwritten, and the gang has not met since others used it"
                raise Refused("J2", reason, {}, partner=another(others, own))
            p.written = True
            p.writers[own] = self.at
        else:
            if any(o is None or o != own for o in p.writers):
                reason = f"{ref.name} is read, and the gang has not met since others stored it"
                raise Refused("J2", reason, {}, partner=another(p.writers, own))
            p.read = True
            p.readers[own] = self.at
