"""Cooperative launches: what stands between two meetings of all workgroups is judged as a launch of its own.

A meeting (`grid.sync`) ends when all threads of the launch have arrived, and orders what each did before it with what
any does after it, in all memory: as the end of a launch and the beginning of the next one do. All workgroups of a
cooperative launch run at once, or the launch fails as a whole and nothing has happened; so do clusters of them. What
outlives a meeting and not a launch (registers, shared memory) is taken to be undefined behind it.

What the end of a launch waits for and a meeting does not must be over before it: copies of threads and asynchronous
products (`reuse`, `inflight` hold it at the end of every role), boxes that were stored (waited for until they are
written), boxes that were loaded (`rings`: every step is taken). And the end of a launch makes ordinary accesses known
to engines, a meeting does not: where engines touch global memory that threads touched before it, all threads of the one
side or the other fence.

Every role meets as often. A ring, a staging slot and their counters are of one phase; its barriers share no byte with
anything else. A role without anything to do between two meetings waits at the second one.

Meetings inside loops: `meetings`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from treadle.algebra.sets import Facts
from treadle.checker.gpu import accesses
from treadle.checker.meetings import Meetings, meets, meets_within
from treadle.checker.verdict import Finding, Refused, Unsure
from treadle.machine.form import (
    Advance,
    Barrier,
    Body,
    Compute,
    Control,
    Copy,
    Kernel,
    Launch,
    MachineProgram,
    MemRef,
    Mma,
    Role,
    Stmt,
    Sync,
    Tasks,
    walk,
)
from treadle.machine.vocabulary import ASYNC_ATOMS, BOX_EFFECTS

ENGINE_STORES = (*BOX_EFFECTS, "bulk.store")
FENCE = "fence.proxy.async"


@dataclass
class Phases:
    """`at`: the statement at hand, for findings."""

    program: MachineProgram
    facts: Facts
    at: Stmt | Control | None = None

    def unfolded(self) -> MachineProgram:
        """The program with a launch for each phase of its cooperative launches; the program itself if it has none.

        *Errors*: refused, J2 and J5, where workgroups meet that may not run at once, or something is on its way; unsure
        where no rule covers a phase.
        """
        program = self.program
        if not any(_meets(k) for k in program.kernels) and not any(x.cooperative for x in program.host.launches):
            return program
        kernels = [k for k in program.kernels if not _meets(k)]
        launches: list[Launch] = []
        for at, launch in enumerate(program.host.launches):
            kernel = next((k for k in program.kernels if k.name == launch.kernel), None)
            if kernel is None or not _meets(kernel):
                if launch.cooperative and launch.cluster != 1:
                    raise Unsure("J5", f"clusters of {launch.kernel} run at once and do not meet", missing="meetings")
                launches.append(replace(launch, cooperative=False))
                continue
            self.at = next(s for role in kernel.roles for s in walk(role.body) if meets(s))
            if not launch.cooperative:
                raise Refused("J5", f"workgroups of {kernel.name} meet, and some may wait for others to end", {})
            if meets_within(kernel):
                self._within(kernel, launch)
                kernels.append(kernel)
                launches.append(launch)
                continue
            for phase in self._parts(kernel, at):
                kernels.append(phase)
                working = {r.name for r in phase.roles}
                idle = sum(r.agents * r.threads for r in kernel.roles if r.name not in working)
                threads = launch.threads - idle
                launches.append(replace(launch, kernel=phase.name, threads=threads, cooperative=False))
        return replace(program, kernels=kernels, host=replace(program.host, launches=launches))

    def _within(self, kernel: Kernel, launch: Launch) -> None:
        """Workgroups meet inside loops: the launch stays one."""
        if launch.cluster != 1:
            raise Unsure("J5", f"clusters of {kernel.name} meet inside loops", missing="launches without clusters")
        meetings = Meetings(kernel, launch, self.facts)
        try:
            meetings.check()
        except Finding:
            self.at = meetings.at
            raise

    # ---- between meetings

    def _parts(self, kernel: Kernel, number: int) -> list[Kernel]:
        """A kernel for each phase."""
        split = [self._split(role) for role in kernel.roles]
        if len({len(parts) for parts in split}) != 1:
            raise Refused("J5", f"the roles of {kernel.name} do not meet equally often", {})
        for role in kernel.roles:
            asked = next((s for s in walk(role.body) if isinstance(s, Sync) and s.kind == "setmaxnreg"), None)
            if asked is not None:
                self.at = asked
                raise Unsure("J5", "registers change hands where workgroups meet", missing="a launch without it")
        self._apart(kernel)
        found: list[Kernel] = []
        before: list[list[Body]] = []
        for i, bodies in enumerate(zip(*split, strict=True)):
            mine = [_some(r, body) for r, body in zip(kernel.roles, bodies, strict=True) if body]
            part = replace(kernel, name=f"{kernel.name}@{number}.{i}", roles=mine, barriers=_barriers(kernel, mine))
            if mine:
                self._idle(kernel, part)
                self._written(part)
                self._known(list(bodies), before)
                found.append(part)
            before.append(list(bodies))
        self._once(found)
        self.at = None
        return found

    def _split(self, role: Role) -> list[Body]:
        parts: list[Body] = [[]]
        for stmt in role.body:
            if meets(stmt):
                parts.append([])
            else:
                parts[-1].append(stmt)
        return parts

    def _apart(self, kernel: Kernel) -> None:
        """The bytes of phased barriers are used for nothing else, in no phase."""
        spans = [(b.offset, b.offset + 8 * b.versions, True, b.name) for b in kernel.barriers]
        for b in kernel.buffers:
            start, size = None if b.offset is None else b.offset.constant, b.size.constant
            if b.place == "shared" and start is not None and size is not None:
                spans.append((start, start + size, False, b.name))
        for start, end, barrier, name in spans:
            for other, last, _, another in spans:
                if barrier and name != another and start < last and other < end:
                    raise Refused("J4", f"{name} and {another} overlap in shared memory", {"byte": max(start, other)})

    def _once(self, parts: list[Kernel]) -> None:
        """Rings, and counters of steps, are of one phase."""
        seen: set[str] = set()
        for part in parts:
            moved = {s.counter for r in part.roles for s in walk(r.body) if isinstance(s, Advance)}
            mine = {b.name for b in part.barriers} | moved
            if mine & seen:
                raise Unsure("J3", f"{min(mine & seen)} is used before and behind a meeting", missing="one of its own")
            seen |= mine

    def _idle(self, kernel: Kernel, part: Kernel) -> None:
        """While some roles wait at the meeting, which all join as barrier 0, the others do not join there, and their
        threads are not counted as warpgroups."""
        if len(part.roles) == len(kernel.roles):
            return
        for s in (s for role in part.roles for s in walk(role.body)):
            self.at = s
            joins = isinstance(s, Sync) and s.kind.startswith("barrier.") and dict(s.args)["id"].constant in (0, None)
            if joins or (isinstance(s, Mma) and s.atom.split(".")[0] in ASYNC_ATOMS):
                raise Unsure("J5", "all roles' threads are counted, and some wait for all to meet", missing="all roles")

    def _written(self, part: Kernel) -> None:
        """Boxes that a phase stores are written when it ends: waited for, not only until their sources are free."""
        for role in part.roles:
            if not any(isinstance(s, Copy) and s.engine in ENGINE_STORES for s in walk(role.body)):
                continue
            waits = [s for s in role.body if isinstance(s, Sync) and s.kind == "bulk.wait"]
            if waits and dict(waits[-1].args).get("read") is not None:
                self.at = waits[-1]
                if dict(waits[-1].args)["read"].constant != 0:
                    box = next(s for s in walk(role.body) if isinstance(s, Copy) and s.engine in ENGINE_STORES)
                    raise Refused("J2", "workgroups meet, and boxes may not be written yet", {}, partner=box)

    def _known(self, bodies: list[Body], before: list[list[Body]]) -> None:
        """What was done to memory before some meeting is known to the engines that touch it behind: elements that
        they load and somebody stored, elements that they store and somebody touched."""
        for body in bodies:
            moved = [s for s in walk(body) if isinstance(s, Copy) and s.engine != "cp.async"]
            if not moved or _fenced_first(body):
                continue
            for other in (x for earlier in before for x in earlier if not _fenced_last(x)):
                for s in moved:
                    stores = s.engine in ENGINE_STORES
                    name = (s.dst if stores else s.src).name
                    found = (x for x, ref, writes in _touched(other) if ref.name == name and (stores or writes))
                    done = next(found, None)
                    if done is not None:
                        self.at = s
                        reason = f"an engine touches {name}, and no fence makes known what was done there"
                        raise Refused("J2", reason, {}, partner=done)


def _meets(kernel: Kernel) -> bool:
    return any(meets(s) for role in kernel.roles for s in walk(role.body))


def _some(role: Role, body: Body) -> Role:
    """The role in one phase, with the counters that it moves on there."""
    moved = {s.counter for s in walk(body) if isinstance(s, Advance)}
    return replace(role, body=body, counters=tuple(c for c in role.counters if c in moved))


def _barriers(kernel: Kernel, roles: Iterable[Role]) -> list[Barrier]:
    """The phased barriers that these roles name."""
    named: set[str] = set()
    for s in (s for role in roles for s in walk(role.body)):
        refs = (getattr(s, "object", None), getattr(s, "signal", None))
        named |= {ref.name for ref in refs if isinstance(ref, MemRef)}
    return [b for b in kernel.barriers if b.name in named]


def _touched(body: Body) -> Iterable[tuple[Stmt, MemRef, bool]]:
    """Statements with memory that they access, and whether they write it; engines' loads are over behind a meeting."""
    for s in (s for s in walk(body) if isinstance(s, Stmt)):
        yield from ((s, ref, writes) for ref, writes in accesses(s) if writes or not isinstance(s, Copy))
        if isinstance(s, Compute):
            yield from ((s, x, False) for x in s.args if isinstance(x, MemRef))


def _fence(stmt: object) -> bool:
    return isinstance(stmt, Sync) and stmt.kind == FENCE and not stmt.by


def _fenced_first(body: Body) -> bool:
    """Whether all threads of the role fence before its tasks."""
    first = next((i for i, s in enumerate(body) if isinstance(s, Tasks)), len(body))
    return any(_fence(s) for s in body[:first])


def _fenced_last(body: Body) -> bool:
    """Whether all threads of the role fence behind all that they do."""
    last = max((i for i, s in enumerate(body) if not isinstance(s, Sync)), default=-1)
    return any(_fence(s) for s in body[last + 1 :])
