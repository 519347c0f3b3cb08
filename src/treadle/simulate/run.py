"""Running a machine program: the host part, its launches in order, one schedule or many."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.algebra.expr import Expr
from treadle.machine.form import Buffer, Copy, Kernel, Launch, MachineProgram, Store
from treadle.machine.text import statement_lines
from treadle.machine.verify import form_problems
from treadle.simulate.arguments import check_guard, extents, functions, views
from treadle.simulate.barriers import Phased
from treadle.simulate.clocks import Order, Strands
from treadle.simulate.control import run_thread
from treadle.simulate.expression import evaluate
from treadle.simulate.findings import Finding, Findings, Stop
from treadle.simulate.layout import Layout, check_barriers, lay_out
from treadle.simulate.memory import View
from treadle.simulate.schedule import Scheduler, Steps, Wait
from treadle.simulate.thread import Thread
from treadle.simulate.world import Workgroup, World

Array = NDArray[Any]


@dataclass
class Simulation:
    """What a run gave: the stored tensors, what was found wrong (empty when all is well), the steps taken."""

    outputs: dict[str, Array]
    findings: list[Finding]
    steps: int
    seed: int

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not self.findings


@dataclass
class Trials:
    """Many schedules: those with findings or with outputs that differ from what was expected."""

    runs: int = 0
    failures: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])

    @property
    def right(self) -> bool:
        """Whether every schedule was clean and gave what was expected."""
        return not self.failures


def simulate(
    program: MachineProgram,
    args: Mapping[str, Any],
    *,
    seed: int = 0,
    schedule: str = "random",
    workers: int = 2,
    max_steps: int = 2_000_000,
    symbols: Mapping[str, int] | None = None,
    check_form: bool = True,
) -> Simulation:
    """Runs the program on arrays (any strided views; they are not changed) and scalars under one adversarial schedule.

    `schedule`: "random" by the seed, or "program" (in order). `symbols` gives values to host symbols that no argument
    tells, such as a number of multiprocessors. A program whose form is wrong does not run: its problems are the
    findings.

    Errors: `simulate/arguments`, `simulate/unsupported`. What the *program* does wrong are findings.
    """
    findings = Findings()
    for problem in form_problems(program) if check_form else ():
        findings.add("form", problem.line, problem.text)
    if findings.found:
        return Simulation({}, findings.found, 0, seed)
    scheduler = Scheduler(seed, schedule, findings, max_steps)
    lines = statement_lines(program)
    env: dict[str, Any] = {**(symbols or {}), **extents(program.program, args)}
    check_guard(program.guard, env, args)
    written = _written(program)
    memory = views(program.program, args, written, findings)
    tensors = frozenset(memory)
    opaque = functions(program.program, args)
    stored = [n for n in memory if n in written]
    try:
        _Host(program, env, opaque, memory, tensors, lines, findings, scheduler, workers).run()
    except Stop:
        pass
    outputs = {name: memory[name].array.copy() for name in stored}
    return Simulation(outputs, findings.found, scheduler.steps, seed)


def run_schedules(
    program: MachineProgram,
    args: Mapping[str, Any],
    n: int,
    seed: int = 0,
    *,
    expected: Mapping[str, Array] | None = None,
    same: Callable[[Array, Array], bool] | None = None,
    stop_early: bool = True,
    workers: int = 2,
    max_steps: int = 2_000_000,
    symbols: Mapping[str, int] | None = None,
) -> Trials:
    """`n` adversarial schedules with seeds `seed, seed + 1, ...`; outputs compared with `expected` (bit for bit, or
    `same`).

    Without `expected`, the outputs of the first schedule must come again.
    """
    compare = same or _same_bits
    wanted = dict(expected) if expected is not None else None
    trials = Trials()
    for number in range(seed, seed + n):
        first = number == seed
        run = simulate(
            program, args, seed=number, workers=workers, max_steps=max_steps, symbols=symbols, check_form=first
        )
        trials.runs += 1
        wanted = run.outputs if wanted is None else wanted
        if run.findings:
            trials.failures.append((number, str(run.findings[0])))
        else:
            wrong = [name for name, array in wanted.items() if not compare(run.outputs.get(name, np.zeros(0)), array)]
            if wrong:
                trials.failures.append((number, f"{', '.join(wrong)} differ from what was expected"))
        if trials.failures and stop_early:
            break
    return trials


def _same_bits(a: Array, b: Array) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def _written(program: MachineProgram) -> frozenset[str]:
    names = {s.dst.name for s in program.statements() if isinstance(s, Store | Copy)}
    return frozenset(names)


@dataclass
class _Host:
    """The host part of one run."""

    program: MachineProgram
    env: dict[str, Any]
    opaque: Mapping[str, Callable[..., Any]]
    memory: dict[str, View]
    tensors: frozenset[str]
    lines: Mapping[int, int]
    findings: Findings
    scheduler: Scheduler
    workers: int

    def run(self) -> None:
        """Extents, workspace, then every launch after the one before has ended."""
        for name, expr in self.program.host.lets.items():
            self.env[name] = self.number(expr, name)
        for buffer in self.program.host.workspace:
            self.memory.update(self.layout([buffer]).fresh(buffer.name, tracked=True, findings=self.findings))
        kernels = {k.name: k for k in self.program.kernels}
        strands = Strands()
        order = Order()
        for launch in self.program.host.launches:
            if launch.kernel not in kernels:
                raise self.findings.fatal("form", self.lines.get(id(launch), 0), f"no kernel {launch.kernel}")
            order = self.launch(launch, kernels[launch.kernel], strands, order)

    def number(self, expr: Expr, what: str) -> int:
        try:
            return int(evaluate(expr, self.env, self.opaque))
        except (KeyError, ZeroDivisionError) as problem:
            raise self.findings.fatal("form", 0, f"{what} = {expr} has no value: {problem}") from None

    def layout(self, buffers: list[Buffer]) -> Layout:
        try:
            return lay_out(buffers, self.env, self.opaque, self.lines, self.findings)
        except (KeyError, ZeroDivisionError) as problem:
            raise self.findings.fatal("form", 0, f"a buffer's extent has no value: {problem}") from None

    def launch(self, launch: Launch, kernel: Kernel, strands: Strands, order: Order) -> Order:
        """One launch; what everything in it did is ordered before the next."""
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
        )
        for buffer in kernel.buffers:
            if buffer.place == "workspace" and buffer.name not in self.memory:
                self.memory.update(self.layout([buffer]).fresh(buffer.name, tracked=True, findings=self.findings))
        world.grid = self.number(launch.grid, "the grid") if world.cuda else 1
        if world.cuda and sum(r.agents * r.threads for r in kernel.roles) != launch.threads:
            text = f"the roles of {kernel.name} do not make {launch.threads} threads"
            self.findings.add("resource", self.lines.get(id(launch), 0), text)
        ended: list[Thread] = []
        order = Order(order.seen.copy(), order.seen.copy())
        self.scheduler.spawn(f"launch of {kernel.name}", self.workgroups(world, order, ended))
        self.scheduler.run()
        for thread in ended:
            order.join(thread.strand.order)
        # The end of a launch shows everything to everybody, engines' writes too: all counts so far are known.
        for number in range(strands.next):
            order.seen.raise_to(number, 1 << 40)
        fresh = Order(order.seen, order.seen.copy())
        strands.free.clear()
        return fresh

    def workgroups(self, world: World, order: Order, ended: list[Thread]) -> Steps:
        """Starts the workgroups, only some of them resident at a time unless they must be."""
        numbers = list(range(world.grid))
        if not self.scheduler.in_order:
            self.scheduler.rng.shuffle(numbers)
        resident = world.grid if world.launch.cooperative else (1, 2, 3, 4)[int(self.scheduler.chance() * 4)]
        running: list[Workgroup] = []
        for number in numbers:
            yield Wait(lambda: sum(g.running > 0 for g in running) < resident, "a free multiprocessor", 0)
            running[:] = [g for g in running if g.running > 0]
            running.append(self.workgroup(world, number, order, ended))

    def workgroup(self, world: World, number: int, order: Order, ended: list[Thread]) -> Workgroup:
        """One workgroup with fresh shared memory and barriers; its threads are given to the scheduler."""
        shared = world.shared.fresh(f"shared memory of workgroup {number}", tracked=True, findings=self.findings)
        group = Workgroup(number, shared)
        for barrier in world.kernel.barriers:
            for version in range(barrier.versions):
                name = f"{barrier.name}{{{version}}}"
                group.phased[barrier.name, version] = Phased(name, barrier.count, self.findings, barrier.tx)
        threads: list[tuple[str, Thread]] = []
        for role in world.kernel.roles:
            for agent in range(role.agents):
                for warp in range(max(1, -(-role.threads // 32))):
                    env = {**world.env, "cta": number, **dict.fromkeys(role.counters, 0)}
                    if role.index is not None:
                        env[role.index] = agent
                    thread = Thread(world, group, role, agent, warp, world.strands.fresh(order), env)
                    threads.append((f"workgroup {number} {role.name} {agent} warp {warp}", thread))
        group.running = len(threads)
        for name, thread in threads:
            ended.append(thread)
            self.scheduler.spawn(name, run_thread(thread))
        return group
