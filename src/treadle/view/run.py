"""A run of one workgroup (or one CPU's workers) as events with begin, end and what each had to wait for.

The machine program's own order is followed: statements of an agent one after another, waits until the phase they wait
for is complete, engines and tensor cores beside their agent until their barrier or group says so. Nothing is computed:
numbers that a kernel loads have a default. How long a statement takes is `pace.py`'s rough model.

*Ensures*: an event begins when all events of its `after` have ended, or later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from treadle.hardware.targets import find_target
from treadle.machine.form import Kernel, Launch, MachineProgram, MemRef, Stmt, Tasks
from treadle.view.agent import Agent
from treadle.view.facts import Scene
from treadle.view.happenings import MOST, TASKS, Event, Kind, Phased, Ready, Run, Slot
from treadle.view.pace import Pace


class World:
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
        self.phased: dict[Slot, Phased] = {}
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

    def barrier(self, ref: MemRef, env: Mapping[str, int]) -> Phased:
        count, versions = self.counts[ref.name]
        version = 0 if ref.version is None else self.scene.number(ref.version, env) % versions
        return self.phased.setdefault((ref.name, version), Phased(count))

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
        if item.over in ("persistent", "tickets"):
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
    world = World(machine, kernel, launch, scene)
    going: list[tuple[Agent, Iterator[Ready | None]]] = []
    for role in kernel.roles:
        for number in range(role.agents):
            env = {"cta": 0, "agent#": number, **dict.fromkeys(role.counters, 0)}
            if role.index is not None:
                env[role.index] = number
            lane = role.name if role.agents == 1 else f"{role.name} {number}"
            world.run.lanes.append(lane)
            agent = Agent(world, role, lane, env)
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


def _time(agent: Agent, wait: Ready | None) -> float:
    ready = wait() if wait is not None else None
    return max(agent.clock, ready[0]) if ready is not None else agent.clock
