"""Running a machine program: the host part, its launches in order, one schedule or many."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.machine.form import Copy, MachineProgram, Store
from treadle.machine.text import statement_lines
from treadle.machine.verify import form_problems
from treadle.simulate.arguments import check_guard, extents, functions, views
from treadle.simulate.findings import Finding, Findings, Stop
from treadle.simulate.host import Host
from treadle.simulate.replay import Replayer
from treadle.simulate.schedule import Scheduler
from treadle.simulate.tape import Tape

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
    return _simulated(program, args, seed, schedule, workers, max_steps, symbols, findings, None)[0]


def _simulated(
    program: MachineProgram,
    args: Mapping[str, Any],
    seed: int,
    schedule: str,
    workers: int,
    max_steps: int,
    symbols: Mapping[str, int] | None,
    findings: Findings,
    tape: Tape | None,
    exact: bool = False,
    told: bool = False,
) -> tuple[Simulation, Replayer | None]:
    """A run, and how to run it again in other orders if it was recorded to its end."""
    scheduler = Scheduler(seed, schedule, findings, max_steps)
    lines = statement_lines(program)
    env: dict[str, Any] = {**(symbols or {}), **extents(program.program, args)}
    before = dict(env)
    check_guard(program.guard, env, args)
    written = _written(program)
    memory = views(program.program, args, written, findings)
    tensors = frozenset(memory)
    opaque = functions(program.program, args)
    stored = [n for n in memory if n in written]
    ended = False
    try:
        Host(program, env, opaque, memory, tensors, lines, findings, scheduler, workers, tape).run()
        ended = True
    except Stop:
        pass
    outputs = {name: memory[name].array.copy() for name in stored}
    run = Simulation(outputs, findings.found, scheduler.steps, seed)
    if tape is None or not tape.whole or not ended or not (tape.settled or told):
        return run, None
    return run, Replayer(program, tape, before, opaque, lines, workers, max_steps, exact)


def record(
    program: MachineProgram,
    args: Mapping[str, Any],
    *,
    seed: int = 0,
    workers: int = 2,
    max_steps: int = 2_000_000,
    symbols: Mapping[str, int] | None = None,
    exact: bool = False,
    told: bool = False,
) -> tuple[Simulation, Replayer | None]:
    """`simulate` of a program whose form is right, and the replayer of what was done: None where the run ended early or
    an atomic update makes values depend on the order, or a counter decides what is done (unless `told`: then its tape
    is wanted, not its replays).

    Errors: as `simulate`.
    """
    found = Findings()
    return _simulated(program, args, seed, "random", workers, max_steps, symbols, found, Tape(), exact, told)


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
    whole: int | None = None,
) -> Trials:
    """`n` adversarial schedules with seeds `seed, seed + 1, ...`; outputs compared with `expected` (bit for bit, or
    `same`).

    Without `expected`, the outputs of the first schedule must come again. The first `whole` schedules are run whole
    (None: all), the others replayed with the events of the first (`replay.py`), which is much faster.
    """
    compare = same or _same_bits
    wanted = dict(expected) if expected is not None else None
    trials = Trials()
    problems = form_problems(program)
    if problems:
        return Trials(1, [(seed, str(Finding("form", problems[0].line, problems[0].text)))])
    again: Replayer | None = None
    for number in range(seed, seed + n):
        trials.runs += 1
        if again is not None and whole is not None and number >= seed + whole:
            found = again.run(number)
            if found is None or found:
                what = str(found[0]) if found else "a read sees other writes than in the first schedule"
                trials.failures.append((number, what))
        else:
            tape = Tape() if whole is not None and number == seed else None
            run, replayer = _simulated(program, args, number, "random", workers, max_steps, symbols, Findings(), tape)
            again = replayer if run.clean and replayer is not None else again
            wanted = run.outputs if wanted is None else wanted
            if run.findings:
                trials.failures.append((number, str(run.findings[0])))
            else:
                wrong = [n for n, array in wanted.items() if not compare(run.outputs.get(n, np.zeros(0)), array)]
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
