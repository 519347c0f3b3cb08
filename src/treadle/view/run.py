"""A run of one workgroup (or one CPU's workers) as events with begin, end and what each had to wait for.

The machine program's own order is followed: statements of an agent one after another, waits until the phase they wait
for is complete, engines and tensor cores beside their agent until their barrier or group says so. Nothing is computed:
numbers that a kernel loads have a default. How long a statement takes is `pace.py`'s rough model.

*Ensures*: an event begins when all events of its `after` have ended, or later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from treadle.hardware.targets import find_target
from treadle.machine.form import (
    Advance,
    Body,
    Copy,
    If,
    Kernel,
    Launch,
    Let,
    Loop,
    MachineProgram,
    MemRef,
    Mma,
    Role,
    Stmt,
    Sync,
    Tasks,
    Version,
)
from treadle.machine.vocabulary import ENGINES
from treadle.view.facts import Scene, is_async, memory_read, memory_written, orders
from treadle.view.pace import ISSUE, LATENCY, Pace

Kind = Literal["work", "wait", "copy", "contract", "sync", "fork"]
Slot = tuple[str, int]
MOST = 1200
"""Events after which a run is cut."""
TASKS = 2
ROUNDS = 8
WORKERS, WORKER_TASKS = 4, 8


@dataclass(eq=False)
class Event:
    """Something that an agent, an engine or the tensor cores did from `begin` to `end` (model cycles).

    `statements` are those of the text; `reads` and `writes` the slots of rings (buffer, slot) that were touched.
    """

    number: int
    lane: str
    kind: Kind
    begin: float
    end: float
    what: str
    statements: tuple[Stmt, ...]
    after: tuple[int, ...]
    reads: tuple[Slot, ...] = ()
    writes: tuple[Slot, ...] = ()
    at: str = ""


@dataclass
class Run:
    """All events in order of their numbers. `cut` says why a run ended early; `tasks` how many of how many are in it;
    `grid` is the number of workgroups that the picture assumes."""

    events: list[Event] = field(default_factory=list[Event])
    lanes: list[str] = field(default_factory=list[str])
    cut: str = ""
    tasks: str = ""
    grid: int = 1

    @property
    def end(self) -> float:
        """When the last event ends."""
        return max((e.end for e in self.events), default=0.0)


Ready = Callable[[], tuple[float, tuple[int, ...]] | None]


@dataclass
class _Phased:
    """A phased barrier: arrivals and bytes of the phase at hand, and when earlier phases were over, because of whom."""

    count: int
    arrived: int = 0
    expected: int = 0
    landed: int = 0
    time: float = 0.0
    causes: list[int] = field(default_factory=list[int])
    over: list[tuple[float, tuple[int, ...]]] = field(default_factory=list[tuple[float, tuple[int, ...]]])

    def put(self, time: float, cause: int, arrivals: int = 0, expected: int = 0, landed: int = 0) -> None:
        self.arrived += arrivals
        self.expected += expected
        self.landed += landed
        self.time = max(self.time, time)
        self.causes.append(cause)
        if self.arrived >= self.count and self.landed >= self.expected:
            self.over.append((self.time, tuple(self.causes)))
            self.arrived, self.expected, self.landed = self.arrived - self.count, 0, 0
            self.causes = []

    def passed(self, parity: int) -> tuple[float, tuple[int, ...]] | None:
        """When the phase of that parity was over; a fresh barrier counts as behind a phase of parity 1."""
        done = len(self.over)
        if (done + 1) % 2 != parity % 2:
            return None
        return self.over[-1] if done else (0.0, ())


@dataclass
class _Group:
    """Asynchronous operations of an agent that are committed together."""

    events: list[int] = field(default_factory=list[int])
    end: float = 0.0


class _Agent:
    """An agent of a role on its way through the body."""

    def __init__(self, world: _World, role: Role, lane: str, env: dict[str, int]) -> None:
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
        self.groups: dict[str, list[_Group]] = {"wgmma": [], "bulk": [], "cpasync": []}
        self.open: dict[str, _Group] = {name: _Group() for name in self.groups}

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
        workers = [_Agent(self.world, self.role, f"worker {i}", dict(self.env)) for i in range(min(WORKERS, few))]
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
        self.open[name] = _Group()

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
        elif item.kind in ("mbar.arrive", "mbar.expect") and item.object is not None:
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


class _World:
    """What the agents of one run share."""

    def __init__(self, machine: MachineProgram, kernel: Kernel, launch: Launch | None, scene: Scene) -> None:
        self.run = Run()
        self.kernel = kernel
        self.scene = scene
        target = find_target(machine.target)
        self.cuda = target is not None and target.kind == "cuda"
        vector = 0 if self.cuda or target is None else max(128, target.vector_bits)
        self.pace = Pace({f.name: f for f in kernel.frags}, scene, vector)
        self.rings = {b.name: max(1, b.versions) for b in kernel.buffers if b.place == "shared"}
        self.sizes = {b.name: max(1, b.dtype.bits // 8) for b in kernel.buffers}
        self.free: dict[str, float] = {}
        self.phased: dict[Slot, _Phased] = {}
        self.counts = {b.name: (b.count, b.versions) for b in kernel.barriers}
        self.meeting: dict[int, list[tuple[int, list[Event]]]] = {}
        self.grid = max(1, scene.number(launch.grid)) if launch is not None else 1

    def full(self) -> bool:
        if len(self.run.events) >= MOST:
            self.run.cut = f"after {MOST} events"
        return bool(self.run.cut)

    def event(
        self,
        lane: str,
        kind: Kind,
        begin: float,
        end: float,
        what: str,
        statements: Sequence[Stmt],
        after: tuple[int, ...],
        at: str,
    ) -> Event:
        event = Event(len(self.run.events), lane, kind, begin, end, what, tuple(statements), after, at=at)
        self.run.events.append(event)
        if lane not in self.run.lanes:
            self.run.lanes.append(lane)
        return event

    def barrier(self, ref: MemRef, env: Mapping[str, int]) -> _Phased:
        count, versions = self.counts[ref.name]
        version = 0 if ref.version is None else self.scene.number(ref.version, env) % versions
        return self.phased.setdefault((ref.name, version), _Phased(count))

    def named(self, ref: MemRef, env: Mapping[str, int]) -> str:
        version = "" if ref.version is None else f"[{self.scene.number(ref.version, env) % self.counts[ref.name][1]}]"
        return f"{ref.name}{version}"

    def meet(self, number: int, threads: int, mine: int, event: Event) -> Ready:
        """An arrival at a named barrier; what tells when its meeting is over."""
        rounds = self.meeting.setdefault(number, [])
        if not rounds or rounds[-1][0] >= threads:
            rounds.append((0, []))
        count, there = rounds[-1]
        there.append(event)
        at = len(rounds) - 1
        rounds[at] = (count + mine, there)

        def ready() -> tuple[float, tuple[int, ...]] | None:
            count, there = rounds[at]
            return (max(e.end for e in there), tuple(e.number for e in there)) if count >= threads else None

        return ready

    def share(self, item: Tasks, total: int, env: Mapping[str, int]) -> list[int]:
        """Linear numbers of the tasks that the picture's workgroup (its agent) has, at most a few."""
        first, step = 0, max(1, total)
        if item.over == "persistent":
            self.run.grid = self.grid if self.grid < total or total < TASKS else -(-total // TASKS)
            step = max(1, self.run.grid)
        elif item.over == "grid":
            self.run.grid = total
        else:
            self.run.grid = self.grid
            first = next((env[r.index] for r in self.kernel.roles if r.index and r.index in env), env.get("agent#", 0))
            step = max(1, sum(r.agents for r in self.kernel.roles) * self.grid)
        count = max(0, -(-(total - first) // step))
        self.run.tasks = f"{min(count, TASKS)} of {count}"
        return [first + step * i for i in range(min(count, TASKS))]


def run_kernel(machine: MachineProgram, kernel: Kernel, launch: Launch | None, scene: Scene) -> Run:
    """The run of workgroup 0 of a launch, its agents in the order in which they can go on."""
    world = _World(machine, kernel, launch, scene)
    going: list[tuple[_Agent, Iterator[Ready | None]]] = []
    for role in kernel.roles:
        for number in range(role.agents):
            env = {"cta": 0, "agent#": number, **dict.fromkeys(role.counters, 0)}
            if role.index is not None:
                env[role.index] = number
            lane = role.name if role.agents == 1 else f"{role.name} {number}"
            world.run.lanes.append(lane)
            agent = _Agent(world, role, lane, env)
            going.append((agent, agent.body(role.body)))
    waits: dict[int, Ready] = {}
    while going:
        able = [g for g in going if id(g[0]) not in waits or waits[id(g[0])]() is not None]
        if not able:
            world.run.cut = world.run.cut or "where everybody waits for somebody"
            break
        agent, steps = min(able, key=lambda g: _time(g[0], waits.get(id(g[0]))))
        waits.pop(id(agent), None)
        try:
            wait = next(steps)
        except StopIteration:
            agent.flush()
            going = [g for g in going if g[0] is not agent]
            continue
        if wait is not None:
            waits[id(agent)] = wait
    world.run.lanes = [lane for lane in world.run.lanes if any(e.lane == lane for e in world.run.events)]
    return world.run


def _time(agent: _Agent, wait: Ready | None) -> float:
    ready = wait() if wait is not None else None
    return max(agent.clock, ready[0]) if ready is not None else agent.clock


def order_of_tasks(raster: tuple[str | int, ...], counts: tuple[int, ...], number: int) -> tuple[int, ...]:
    """The task that a linear number stands for: `row` counts the last variable fastest, `group g` goes through panels
    of g of the first variable, the first variable fastest in each; `reverse` begins with the last."""
    total = math.prod(counts)
    number = total - 1 - number if "reverse" in raster else number
    if raster[:1] == ("group",):
        height = max(1, int(raster[1]))
        rest = total // counts[0]
        panel, within = divmod(number, height * rest)
        tall = min(height, counts[0] - panel * height)
        return (panel * height + within % tall, *_unravel(within // tall, counts[1:]))
    return _unravel(number, counts)


def _unravel(number: int, counts: tuple[int, ...]) -> tuple[int, ...]:
    found: list[int] = []
    for count in reversed(counts):
        number, digit = divmod(number, count)
        found.append(digit)
    return tuple(reversed(found))


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
