"""The host part of a run: extents, workspace, launches in order, the threads of each workgroup."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from treadle.algebra.expr import Expr
from treadle.machine.form import Buffer, Kernel, Launch, MachineProgram, Role, Tasks, walk
from treadle.machine.vocabulary import RANK
from treadle.simulate.barriers import Phased
from treadle.simulate.clocks import Order, Strand, Strands
from treadle.simulate.control import run_thread
from treadle.simulate.expression import evaluate
from treadle.simulate.findings import Findings
from treadle.simulate.layout import Layout, check_barriers, lay_out
from treadle.simulate.memory import View
from treadle.simulate.schedule import Scheduler, Steps, Wait
from treadle.simulate.tape import Tape
from treadle.simulate.thread import Thread
from treadle.simulate.world import Cell, Cluster, Ended, Workgroup, World


@dataclass
class Host:
    """The host part of one run. `tape`: where to record what threads do, if that is wanted."""

    program: MachineProgram
    env: dict[str, Any]
    opaque: Mapping[str, Callable[..., Any]]
    memory: dict[str, View]
    tensors: frozenset[str]
    lines: Mapping[int, int]
    findings: Findings
    scheduler: Scheduler
    workers: int
    tape: Tape | None = None
    cells: dict[tuple[str, tuple[int, ...]], Cell] = field(default_factory=lambda: dict[Any, Cell]())

    def run(self) -> None:
        """Extents, workspace, then every launch after the one before has ended, or may be followed."""
        for name, expr in self.program.host.lets.items():
            self.env[name] = self.number(expr, name)
        for buffer in self.program.host.workspace:
            self.provide(buffer)
        kernels = {k.name: k for k in self.program.kernels}
        strands = Strands()
        order = Order()
        together: list[World] = []
        for number, launch in enumerate(self.program.host.launches):
            if launch.kernel not in kernels:
                raise self.findings.fatal("form", self.lines.get(id(launch), 0), f"no kernel {launch.kernel}")
            if not launch.dependent:
                order = self.finished(together, strands, order)
                together = []
            world = self.world(launch, kernels[launch.kernel], strands.part(), number)
            world.previous = together[-1] if together else None
            together.append(world)
            start = Order(order.seen.copy(), order.seen.copy())
            self.scheduler.spawn(f"launch of {launch.kernel}", self.workgroups(world, start), of=number)
        self.finished(together, strands, order)

    def finished(self, together: Sequence[World], strands: Strands, order: Order) -> Order:
        """Runs launches to their end, which shows everything to everybody, engines' writes too: all counts so far are
        known."""
        self.scheduler.run()
        for world in together:
            order.join(world.known())
        for number in strands.numbers:
            order.seen.raise_to(number, 1 << 40)
        strands.free.clear()
        return Order(order.seen, order.seen.copy())

    def number(self, expr: Expr, what: str) -> int:
        try:
            return int(evaluate(expr, self.env, self.opaque))
        except (KeyError, ZeroDivisionError) as problem:
            raise self.findings.fatal("form", 0, f"{what} = {expr} has no value: {problem}") from None

    def provide(self, buffer: Buffer) -> None:
        """Memory for a workspace buffer."""
        self.memory.update(self.layout([buffer]).fresh(buffer.name, tracked=True, findings=self.findings))

    def layout(self, buffers: list[Buffer]) -> Layout:
        try:
            return lay_out(buffers, self.env, self.opaque, self.lines, self.findings)
        except (KeyError, ZeroDivisionError) as problem:
            raise self.findings.fatal("form", 0, f"a buffer's extent has no value: {problem}") from None

    def world(self, launch: Launch, kernel: Kernel, strands: Strands, number: int) -> World:
        """One launch, not begun."""
        shared = self.layout([b for b in kernel.buffers if b.place == "shared"])
        check_barriers(kernel.barriers, shared, launch.shared_bytes, self.lines, self.findings)
        world = World(
            self.program,
            kernel,
            launch,
            self.env,
            self.opaque,
            self.memory,
            self.tensors,
            self.lines,
            self.findings,
            self.scheduler,
            strands,
            self.layout([b for b in kernel.buffers if b.place == "local"]),
            shared,
            self.workers,
            str(self.program.program.numerics.get("functions") or "2ulp"),
            number,
        )
        for buffer in kernel.buffers:
            if buffer.place == "workspace" and buffer.name not in self.memory:
                self.provide(buffer)
        gangs = any(isinstance(s, Tasks) and s.over == "gangs" for r in kernel.roles for s in walk(r.body))
        world.grid = self.number(launch.grid, "the grid") if world.cuda else 2 if gangs else 1
        world.cells = self.cells
        world.meeting = Cluster(threads=world.grid * sum(r.agents * r.threads for r in kernel.roles))
        if world.cuda and sum(r.agents * r.threads for r in kernel.roles) != launch.threads:
            text = f"the roles of {kernel.name} do not make {launch.threads} threads"
            self.findings.add("resource", self.lines.get(id(launch), 0), text)
        return world

    def workgroups(self, world: World, order: Order) -> Steps:
        """Starts the workgroups, cluster by cluster, only some of them resident at a time unless they must be."""
        before = world.previous
        if before is not None:
            yield Wait(lambda: before.may_be_followed, f"the workgroups of {before.kernel.name}", 0)
        each = world.launch.cluster
        numbers = list(range(world.grid // each))
        if world.grid % each:
            text = f"a grid of {world.grid} workgroups in clusters of {each}"
            raise self.findings.fatal("resource", self.lines.get(id(world.launch), 0), text)
        if not self.scheduler.in_order:
            self.scheduler.rng.shuffle(numbers)
        resident = world.grid if world.launch.cooperative else (1, 2, 3, 4)[int(self.scheduler.chance() * 4)]
        running: list[Workgroup] = []
        for number in numbers:
            yield Wait(lambda: sum(g.running > 0 for g in running) < resident, "a free multiprocessor", 0)
            running[:] = [g for g in running if g.running > 0]
            cluster = Cluster(threads=each * sum(r.agents * r.threads for r in world.kernel.roles))
            for rank in range(each):
                running.append(self.workgroup(world, each * number + rank, order, cluster))

    def workgroup(self, world: World, number: int, order: Order, cluster: Cluster) -> Workgroup:
        """One workgroup with fresh shared memory and barriers; its threads are given to the scheduler."""
        group = Workgroup(number, self.shared(world, number), cluster=cluster)
        cluster.groups.append(group)
        for barrier in world.kernel.barriers:
            for version in range(barrier.versions):
                name = f"{barrier.name}{{{version}}}"
                group.phased[barrier.name, version] = Phased(name, barrier.count, self.findings, barrier.tx)
        begun: list[tuple[str, Steps]] = []
        for role in world.kernel.roles:
            for agent in range(role.agents):
                for warp in range(max(1, -(-role.threads // 32))):
                    env = {**world.env, "cta": number, RANK: number % world.launch.cluster}
                    env |= dict.fromkeys(role.counters, 0)
                    if role.index is not None:
                        env[role.index] = agent
                    thread, steps = self.thread(world, group, role, agent, warp, world.strands.fresh(order), env)
                    world.threads.append(thread)
                    group.born.append((thread.strand.number, thread.strand.now))
                    begun.append((f"workgroup {number} {role.name} {agent} warp {warp}", steps))
        group.running = len(begun)
        world.groups.append(group)
        for name, steps in begun:
            self.scheduler.spawn(name, steps)
        return group

    def shared(self, world: World, number: int) -> dict[str, View]:
        """Fresh shared memory of a workgroup."""
        return world.shared.fresh(f"shared memory of workgroup {number}", tracked=True, findings=self.findings)

    def thread(
        self, world: World, group: Workgroup, role: Role, agent: int, warp: int, strand: Strand, env: dict[str, Any]
    ) -> tuple[Ended, Steps]:
        """A thread that begins, and its steps."""
        if self.tape is not None:
            strand.log = self.tape.thread((world.number, group.number, role.name, agent, warp))
        thread = Thread(world, group, role, agent, warp, strand, env)
        return thread, run_thread(thread)
