"""An agent of a role on its way through the body: its statements in order, its waits, what it starts beside itself."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from treadle.machine.form import Advance, Body, Copy, If, Let, Loop, MemRef, Mma, Role, Stmt, Sync, Tasks, Version
from treadle.machine.vocabulary import ENGINES
from treadle.view.facts import is_async, memory_read, memory_written, orders
from treadle.view.happenings import (
    ROUNDS,
    WORKER_TASKS,
    WORKERS,
    Event,
    Group,
    Kind,
    Ready,
    Slot,
    order_of_tasks,
)
from treadle.view.pace import ISSUE, LATENCY

if TYPE_CHECKING:
    from treadle.view.run import World


class Agent:
    """An agent of a role on its way through the body."""

    def __init__(self, world: World, role: Role, lane: str, env: dict[str, int]) -> None:
        self.world = world
        self.role = role
        self.lane = lane
        self.env = env
        self.clock = 0.0
        self.last: tuple[int, ...] = ()
        self.at = ""
        self.gathered: list[Stmt] = []
        self.apart = not orders(role.body)
        self.only: Loop | None = None  # the loop that is all that a task does
        self.contracting: list[Mma] = []
        self.groups: dict[str, list[Group]] = {"wgmma": [], "bulk": [], "cpasync": []}
        self.open: dict[str, Group] = {name: Group() for name in self.groups}

    # ---- events

    def put(
        self,
        kind: Kind,
        cycles: float,
        what: str,
        statements: Sequence[Stmt] = (),
        *,
        after: tuple[int, ...] = (),
        until: float = 0.0,
    ) -> Event:
        """An event of the agent itself, behind its last one, and not over before `until`."""
        begin = self.clock
        if kind == "wait":
            # What is waited for ends within the wait: the wait is the span in which nothing is done.
            event = self.world.event(self.lane, kind, begin, max(begin, until), what, statements, self.last, self.at)
            event.after = self.last
            self.clock = event.end
            self.last = (event.number, *after)
            return event
        event = self.world.event(self.lane, kind, begin, begin + cycles, what, statements, self.last, self.at)
        event.reads = tuple(self.slot(r) for s in statements for r in memory_read(s) if self.is_ring(r))
        event.writes = tuple(self.slot(r) for s in statements for r in memory_written(s) if self.is_ring(r))
        self.clock = event.end
        self.last = (event.number,)
        return event

    def flush(self) -> None:
        """The plain statements gathered so far become an event."""
        if self.gathered:
            cycles = sum(self.world.pace.statement(s, self.role) for s in self.gathered)
            self.put("work", max(1.0, cycles), "", self.gathered)
            self.gathered = []

    def is_ring(self, ref: MemRef) -> bool:
        return ref.name in self.world.rings

    def slot(self, ref: MemRef) -> Slot:
        """The slot of a ring that a reference means now."""
        version = 0 if ref.version is None else self.world.scene.number(ref.version, self.env)
        return ref.name, version % max(1, self.world.rings[ref.name])

    # ---- control

    def body(self, body: Body) -> Iterator[Ready | None]:
        """Goes through a body; yields what it waits for, or None where others may go first."""
        for item in body:
            if self.world.full():
                return
            match item:
                case Version():
                    pass
                case Let():
                    self.env[item.name] = self.world.scene.number(item.expr, self.env)
                case Advance():
                    self.flush()
                    self.env[item.counter] = self.env.get(item.counter, 0) + 1
                case Stmt():
                    yield from self.statement(item)
                case Loop():
                    yield from self.loop(item)
                case If():
                    yield from self.body(item.then if self.holds(item) else item.orelse)
                case Tasks():
                    yield from self.tasks(item)
                case _:
                    pass

    def holds(self, item: If) -> bool:
        for fact in item.conds:
            value = self.world.scene.number(fact.expr, self.env)
            if value < 0 or (fact.equality and value):
                return False
        return True

    def loop(self, item: Loop) -> Iterator[Ready | None]:
        lo, hi, step = (self.world.scene.number(e, self.env) for e in (item.lo, item.hi, item.step))
        values = range(lo, hi, max(1, step))
        few = len(values) <= (2 * ROUNDS if item is self.only else ROUNDS)
        if not orders(item.body) and not (few and (item.enters or item is self.only)):
            self.flush()
            cycles = self.world.pace.body([item], self.role, self.env)
            if len(values):
                self.put("work", max(1.0, cycles), f"{len(values)} × {item.var}", _inside(item))
            return
        outside = self.at
        for value in values:
            self.env[item.var] = value
            if item.enters or item.unroll == 1:
                self.flush()
                self.at = f"{item.var} = {value}"
            yield from self.body(item.body)
        self.at = outside
        self.env.pop(item.var, None)

    def tasks(self, item: Tasks) -> Iterator[Ready | None]:
        counts = tuple(max(0, self.world.scene.number(c, self.env)) for c in item.counts)
        total = math.prod(counts)
        if item.over == "workers":
            yield from self.fork(item, counts, total)
            return
        for number in self.world.share(item, total, self.env):
            self.enter(item, counts, number)
            yield from self.body(item.body)
        self.flush()
        self.at = ""

    def enter(self, item: Tasks, counts: tuple[int, ...], number: int) -> None:
        """Begins a task."""
        self.flush()
        where = order_of_tasks(item.raster, counts, number)
        self.env.update(zip(item.vars, where))
        self.at = ", ".join(f"{v} = {n}" for v, n in zip(item.vars, where))

    def fork(self, item: Tasks, counts: tuple[int, ...], total: int) -> Iterator[Ready | None]:
        """The first tasks on a few workers, each taken by the worker that is free first."""
        self.flush()
        start = self.put("fork", 1.0, f"{total} tasks", ())
        few = min(total, WORKER_TASKS)
        self.world.run.tasks = f"{few} of {total}"
        steps = [s for s in item.body if not isinstance(s, Version)]
        workers = [Agent(self.world, self.role, f"worker {i}", dict(self.env)) for i in range(min(WORKERS, few))]
        for worker in workers:
            worker.clock, worker.last = self.clock, (start.number,)
            worker.only = steps[0] if len(steps) == 1 and isinstance(steps[0], Loop) else None
        for number in range(few):
            worker = min(workers, key=lambda w: w.clock)
            worker.enter(item, counts, number)
            for _ in worker.body(item.body):
                pass
            worker.flush()
        self.clock = max((w.clock for w in workers), default=self.clock)
        self.last = tuple(n for w in workers for n in w.last) or self.last
        self.put("fork", 1.0, "join", ())
        yield None

    # ---- statements

    def statement(self, item: Stmt) -> Iterator[Ready | None]:
        if isinstance(item, Sync):
            yield from self.synchronise(item)
        elif isinstance(item, Copy):
            self.flush()
            self.copy(item)
        elif isinstance(item, Mma) and is_async(item):
            self.flush()
            self.contracting.append(item)
        else:
            self.gathered.append(item)
            if self.apart:
                self.flush()

    def copy(self, item: Copy) -> None:
        """An engine takes it: it begins when the engine is free."""
        world = self.world
        loads = ENGINES.get(item.engine, False) or item.engine == "cp.async"
        issued = self.put("work", ISSUE, f"issue {item.engine}", (item,))
        issued.reads = issued.writes = ()
        inner = item.dst if loads else item.src
        size = world.sizes.get(inner.name, 2)
        begin = max(self.clock, world.free.get(item.engine, 0.0))
        busy = world.pace.transfer(item, size)
        world.free[item.engine] = begin + busy
        ref = self.slot(inner) if self.is_ring(inner) else (inner.name, 0)
        lane = f"{ref[0]}[{ref[1]}]" if self.is_ring(inner) else item.engine
        end = begin + busy + LATENCY
        event = world.event(lane, "copy", begin, end, item.engine, (item,), (issued.number,), self.at)
        event.writes, event.reads = ((ref,), ()) if loads else ((), (ref,))
        if item.signal is not None:
            world.barrier(item.signal, self.env).put(end, event.number, landed=math.prod(item.box) * size)
            return
        group = self.open["cpasync" if item.engine == "cp.async" else "bulk"]
        group.events.append(event.number)
        group.end = max(group.end, end)

    def commit(self, name: str, item: Sync) -> None:
        """Closes a group; contractions of it are one event on the tensor cores."""
        group = self.open[name]
        if name == "wgmma" and self.contracting:
            world = self.world
            issued = self.put("work", ISSUE, "issue contractions", self.contracting)
            begin = max(self.clock, world.free.get("tensor cores", 0.0))
            end = begin + sum(world.pace.contraction(m) for m in self.contracting)
            world.free["tensor cores"] = end
            what = f"{len(self.contracting)} contractions of {self.lane}"
            event = world.event(
                "tensor cores", "contract", begin, end, what, self.contracting, (issued.number,), self.at
            )
            event.reads, issued.reads = issued.reads, ()
            group.events.append(event.number)
            group.end = end
            self.contracting = []
        self.groups[name].append(group)
        self.open[name] = Group()

    def synchronise(self, item: Sync) -> Iterator[Ready | None]:
        world = self.world
        numbers = {name: world.scene.number(expr, self.env) for name, expr in item.args}
        kind, _, verb = item.kind.partition(".")
        if verb == "commit":
            self.flush()
            self.commit(kind, item)
        elif verb == "wait" and kind in self.groups:
            self.flush()
            keep = numbers.get("depth", 0)
            groups = self.groups[kind]
            over = groups[: len(groups) - keep] if keep else list(groups)
            self.groups[kind] = groups[len(over) :]
            causes = tuple(e for g in over for e in g.events)
            self.put("wait", 0, item.kind, (item,), after=causes, until=max((g.end for g in over), default=0.0))
        elif item.kind == "mbar.wait" and item.object is not None:
            self.flush()
            barrier, parity = world.barrier(item.object, self.env), numbers["phase"]
            yield lambda: barrier.passed(parity)
            time, causes = barrier.passed(parity) or (self.clock, ())
            self.put("wait", 0, f"mbar.wait {world.named(item.object, self.env)}", (item,), after=causes, until=time)
        elif item.kind in ("mbar.arrive", "mbar.expect", "cpasync.arrive") and item.object is not None:
            self.flush()
            arrivals = self.arrivals(item) * numbers.get("count", 1)
            event = self.put("sync", 1.0, f"{item.kind} {world.named(item.object, self.env)}", (item,))
            barrier = world.barrier(item.object, self.env)
            barrier.put(event.end, event.number, arrivals, numbers.get("bytes", 0))
        elif kind == "barrier":
            self.flush()
            event = self.put("sync", 1.0, f"{item.kind} {numbers['id']}", (item,))
            ready = world.meet(numbers["id"], numbers["threads"], self.role.threads, event)
            if verb == "sync":
                yield ready
                time, causes = ready() or (self.clock, ())
                self.put("wait", 0, f"barrier {numbers['id']}", (item,), after=causes, until=time)
        yield None

    def arrivals(self, item: Sync) -> int:
        if item.by == "elect":
            return 1
        return max(1, self.role.threads // 32) if item.by == "warp" else self.role.threads


def _inside(item: Loop) -> list[Stmt]:
    found: list[Stmt] = []
    for inner in item.body:
        if isinstance(inner, Stmt):
            found.append(inner)
        elif isinstance(inner, Tasks | Loop):
            found += _inside(inner) if isinstance(inner, Loop) else []
        elif isinstance(inner, If):
            found += [s for s in inner.then if isinstance(s, Stmt)]
    return found
