"""Running what a tape holds in another order: clocks, barriers and races as in a whole run, without any arithmetic.

A thread does what it did on the tape as long as each of its reads sees the writes that it saw then: the values are the
same, so its branches, addresses and results are. A replay therefore stops where a read sees another write. Up to there
it is a run of the program, and if it ends without a finding that run's outputs are the tape's.

Granules that the tape always accesses together are one cell here: a tile of thousands of elements is often a few cells.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.algebra.expr import Expr
from treadle.machine.form import Buffer, MachineProgram, MemRef, Role
from treadle.simulate.barriers import Work
from treadle.simulate.clocks import Order, Strand, Strands
from treadle.simulate.control import finish
from treadle.simulate.findings import Finding, Findings, Stop
from treadle.simulate.host import Ended, Host
from treadle.simulate.memory import Arena, View
from treadle.simulate.schedule import Scheduler, Steps, Wait
from treadle.simulate.sends import SEND
from treadle.simulate.sync import HANDLERS
from treadle.simulate.tape import Access, Contracted, Copied, Counted, Entry, Forked, Log, Synchronised, Tape
from treadle.simulate.thread import Thread
from treadle.simulate.world import Workgroup, World

Array = NDArray[Any]


class Departed(Exception):
    """A read saw other writes than on the tape: nothing is known of what follows."""


@dataclass(frozen=True)
class Cell:
    """An access as a replay does it: cells of an arena and, for a read, the writes that it must see."""

    at: Array
    seen: Array | None


@dataclass
class Replayer:
    """Replays a recorded run of a program. `env`, `functions`, `lines` and `workers` are those of that run.

    A thread pauses after each of its events. If `exact` it also pauses after statements that no other thread could tell
    from nothing: then a replay is step by step the whole run of its seed; without, much shorter and a schedule of its
    own. `steps`: how many the last replay took."""

    program: MachineProgram
    tape: Tape
    env: Mapping[str, Any]
    functions: Mapping[str, Callable[..., Any]]
    lines: Mapping[int, int]
    workers: int
    max_steps: int
    exact: bool = False
    cells: dict[int, Cell] = field(default_factory=dict[int, Cell])
    sizes: list[int] = field(default_factory=list[int])
    logs: dict[int, list[Entry]] = field(default_factory=dict[int, list[Entry]])
    steps: int = 0

    def __post_init__(self) -> None:
        """Cells: granules with the same accesses, told apart by sums of a random number for each access."""
        random = np.random.default_rng(0)
        marks = [np.zeros(n, np.uint64) for n in self.tape.sizes]
        for access in self.tape.accesses:
            marks[access.arena][access.at] += random.integers(1, 1 << 63, dtype=np.uint64)
        numbers: list[Array] = []
        for mark in marks:
            found, start, cell = np.unique(mark, return_index=True, return_inverse=True)
            rank = np.empty(len(found), np.int64)
            rank[np.argsort(start)] = np.arange(len(found))  # in the order of addresses, however the marks fell
            numbers.append(rank[cell])
            self.sizes.append(len(found))
        for access in self.tape.accesses:
            at, first = np.unique(numbers[access.arena][access.at], return_index=True)
            self.cells[id(access)] = Cell(at, None if access.seen is None else access.seen[first])
        self.logs = {}
        for log in self.tape.logs:
            self.logs[id(log)] = log.entries if self.exact else _telling(log.entries)

    def signature(self) -> str:
        """A digest of all that replays depend on: two programs with the same one have the same schedules, each found
        clean, or not, for both.

        Accesses count by cells and the writes that they see, both numbered in the order in which the logs mention them:
        not by addresses, lines, or the order of the recorded run.
        """
        names: dict[tuple[str, int, int], int] = {}

        def name(kind: str, where: int, number: int) -> int:
            return -1 if number < 0 else names.setdefault((kind, where, number), len(names))

        def told(log: Log) -> Iterator[object]:
            for entry in self.logs[id(log)]:
                match entry:
                    case Access():
                        cell = self.cells[id(entry)]
                        yield entry.what, entry.kind, [name("cell", entry.arena, c) for c in cell.at.tolist()]
                        if cell.seen is not None:
                            yield [name("write", 0, n) for n in cell.seen.tolist()]
                        if entry.what == "write":
                            yield name("write", 0, entry.number)
                    case Synchronised(item, _, numbers, version, groups):
                        called = None if item.object is None else item.object.name
                        yield item.kind, item.by, called, numbers, version, groups
                    case Copied():
                        yield entry.engine, entry.barrier, entry.bytes, entry.group, list(told(entry.log))
                    case Contracted():
                        yield entry.atom, list(told(entry.log))
                    case Forked():
                        yield [list(told(task)) for task in entry.tasks]
                    case mark:
                        yield mark

        digest = hashlib.sha256()
        for kernel in self.program.kernels:
            barriers = [(b.name, b.count, b.versions, b.tx) for b in kernel.barriers]
            digest.update(repr([(r.name, r.agents, r.threads) for r in kernel.roles] + barriers).encode())
        launches = [(k.cooperative, k.cluster, k.dependent) for k in self.program.host.launches]
        digest.update(repr([*launches, self.workers]).encode())
        for key in sorted(self.tape.threads):
            digest.update(repr((key, list(told(self.tape.threads[key])))).encode())
        return digest.hexdigest()[:24]

    def run(self, seed: int) -> list[Finding] | None:
        """What the schedule of this seed finds; None where a thread would have read something else than on the tape.

        What a thread does wrong on its own account (registers not fenced, slots not held) is not found again.
        """
        findings = Findings()
        scheduler = Scheduler(seed, "random", findings, self.max_steps)
        arenas = [Arena(f"arena {i}", n, 1, tracked=True, findings=findings) for i, n in enumerate(self.sizes)]
        last = [np.full(n, -1, np.int32) for n in self.sizes]
        again = _Again(
            self.program,
            dict(self.env),
            self.functions,
            {},
            frozenset(),
            self.lines,
            findings,
            scheduler,
            self.workers,
            replayer=self,
            arenas=arenas,
            last=last,
        )
        try:
            again.run()
        except Stop:
            pass
        except Departed:
            return None
        self.steps = scheduler.steps
        return findings.found


@dataclass
class _Again(Host):
    """The host part of a replay: no memory but records, no threads but their logs."""

    replayer: Replayer = field(kw_only=True)
    arenas: list[Arena] = field(kw_only=True)
    last: list[Array] = field(kw_only=True)

    def provide(self, buffer: Buffer) -> None:
        self.layout([buffer])

    def shared(self, world: World, number: int) -> dict[str, View]:
        return {}

    def thread(
        self, world: World, group: Workgroup, role: Role, agent: int, warp: int, strand: Strand, env: dict[str, Any]
    ) -> tuple[Ended, Steps]:
        key = (world.number, group.number, role.name, agent, warp)
        log = self.replayer.tape.threads[key]
        player = Player(world, group, role, agent, warp, strand, env)
        return player, _whole(player, self, log)

    def access(self, entry: Access, strand: Strand) -> None:
        """One access of memory, checked and recorded as `View` does it."""
        cell, arena, last = self.replayer.cells[id(entry)], self.arenas[entry.arena], self.last[entry.arena]
        at = cell.at
        if entry.what == "arrive":
            arena.readers.arrive(at, strand)
            return
        if entry.what == "read":
            arena.check(at, strand, entry.line, "read", reads=False, atomic=False)
            arena.readers.record(at, strand, entry.line, entry.kind)
            if (last[at] != cell.seen).any():
                raise Departed
            return
        arena.check(at, strand, entry.line, "write", reads=True, atomic=False)
        arena.writer[at], arena.written_at[at] = strand.number, strand.now
        arena.written_line[at], arena.written_as[at] = entry.line, entry.kind
        last[at] = entry.number


class Player(Thread):
    """A thread of a replay: it has a log, and knows the version of the barrier at hand."""

    version = 0
    groups: tuple[int, ...] = ()

    def reach(self, ref: MemRef) -> list[Workgroup]:
        """The workgroups whose barrier it is."""
        if ref.rank is None:
            return [self.group]
        return [self.reached(g) for g in self.group.cluster.groups if g.number in self.groups]

    def number(self, expr: Expr) -> int:
        """The version of a barrier: the only expression that is still asked for."""
        return self.version


def _whole(player: Player, host: _Again, log: Log) -> Steps:
    yield from _play(player, host, log)
    finish(player)


def _play(player: Player, host: _Again, log: Log) -> Steps:
    """The events of a log, with a pause wherever the recorded thread had one."""
    outer, start, done = player.strand, Order(), Order()
    for entry in host.replayer.logs[id(log)]:
        match entry:
            case Access():
                host.access(entry, player.strand)
            case "step":
                yield None
            case Synchronised(item, line, numbers, version, groups):
                player.line, player.version, player.groups = line, version, groups
                yield from HANDLERS[item.kind](player, item, numbers)
            case Copied():
                _copy(player, host, entry)
            case Contracted():
                _contract(player, host, entry)
            case Forked():
                yield from _fork(player, host, entry)
            case Counted():
                pass  # what hangs on counters is not replayed
            case "apart":
                outer, done = player.strand, Order()
                start = outer.release()
            case "task":
                player.strand = player.world.strands.fresh(start)
            case "task over":
                done.join(player.strand.order)
            case "apart over":
                player.strand = outer
                outer.order.join(done)


def _fork(player: Player, host: _Again, entry: Forked) -> Steps:
    world = player.world
    queue = list(range(len(entry.tasks)))
    world.scheduler.rng.shuffle(queue)
    start, done = player.strand.release(), Order()
    left = [world.workers]

    def worker() -> Steps:
        while queue:
            number = queue.pop(0)
            strand = world.strands.fresh(start)
            task = Player(world, player.group, player.role, player.agent, player.warp, strand, {})
            yield from _play(task, host, entry.tasks[number])
            done.join(task.strand.order)
        left[0] -= 1

    for number in range(world.workers):
        world.scheduler.spawn(f"worker {number}", worker())
    yield Wait(lambda: left[0] == 0, "the end of all tasks", entry.line)
    player.strand.order.join(done)


def _copy(player: Player, host: _Again, entry: Copied) -> None:
    """As `engines.issue_copy`, with the accesses of the log."""
    world, group = player.world, player.group
    if entry.group is not None:
        group = player.reached(next(g for g in group.cluster.groups if g.number == entry.group), noted=False)
    barrier = None if entry.barrier is None else group.phased[entry.barrier]
    work = Work(entry.line)
    if barrier is None:
        (player.cpasync if entry.engine == "cp.async" else player.bulk).open.append(work)
    else:
        barrier.usable(player.strand, entry.line, proxy=True)
        group.loads += 1
    strand = world.strands.fresh(player.strand.order, proxy=entry.engine not in ("cp.async", SEND))
    player.strand.tick()

    def send() -> Steps:
        yield None
        for access in _of(entry.log, "write"):
            host.access(access, strand)
        assert barrier is not None
        group.loads -= 1
        barrier.landed(entry.bytes, Strands.trace(strand), far=True)
        world.strands.retire(strand)

    def steps() -> Steps:
        yield None
        for access in _of(entry.log, "read"):
            host.access(access, strand)
        work.read, work.read_trace = True, Strands.trace(strand)
        strand.tick()
        world.scheduler.chance()  # whether the recorded engine scribbled meanwhile
        yield None
        for access in _of(entry.log, "write"):
            host.access(access, strand)
        work.done, work.done_trace = True, Strands.trace(strand)
        if barrier is not None:
            group.loads -= 1
            barrier.landed(entry.bytes, work.done_trace)
        world.strands.retire(strand)

    moving = send() if entry.engine == SEND else steps()
    world.scheduler.spawn(f"{entry.engine} of line {entry.line}", moving, engine=True)


def _contract(player: Player, host: _Again, entry: Contracted) -> None:
    """As `contractions.issue_contract`, with the accesses of the log."""
    world = player.world
    before = [w for w in player.wgmma.pending if not w.done]
    work = Work(entry.line)
    player.wgmma.open.append(work)
    strand = world.strands.fresh(player.strand.order, proxy=True)
    player.strand.tick()

    def steps() -> Steps:
        yield Wait(lambda: all(w.done for w in before), "an earlier contraction of this warp", entry.line)
        for access in _of(entry.log, "read"):
            host.access(access, strand)
        yield None
        work.read = work.done = True
        work.read_trace = work.done_trace = Strands.trace(strand)
        world.strands.retire(strand)

    world.scheduler.spawn(f"{entry.atom} of line {entry.line}", steps(), engine=True)


def _telling(entries: list[Entry]) -> list[Entry]:
    """The entries without pauses that directly follow a pause."""
    before: list[Entry | None] = [None, *entries]
    return [e for old, e in zip(before, entries, strict=False) if not (e == "step" and old == "step")]


def _of(log: Log, what: str) -> list[Access]:
    return [e for e in log.entries if isinstance(e, Access) and e.what == what]
