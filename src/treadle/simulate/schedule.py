"""The scheduler: everything that runs is a generator; a seed decides who takes the next step.

Threads and operations of engines yield `None` after a step, or a `Wait` until they can go on. Policies: "random" mixes,
by the seed, uniform choice, fixed priorities that change now and then (bugs of small depth need few changes), engines
held back, and engines hurried; each takes bursts of steps. "program" runs everything in order of creation, engines
first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from treadle.simulate.findings import Findings


@dataclass(frozen=True)
class Wait:
    """Blocked until `ready`; `text` says at which line and for what."""

    ready: Callable[[], bool]
    text: str
    line: int


Steps = Iterator[Wait | None]


@dataclass
class Runner:
    """Something that runs: its steps, and what it waits for; `of`: the number of its launch."""

    name: str
    steps: Steps
    engine: bool
    priority: float
    of: int = 0
    wait: Wait | None = None

    @property
    def ready(self) -> bool:
        return self.wait is None or self.wait.ready()


class Scheduler:
    """Steps runners until none is left."""

    def __init__(self, seed: int, schedule: str, findings: Findings, max_steps: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.in_order = schedule == "program"
        self.policy = "program" if self.in_order else ("uniform", "priority", "late", "early")[seed % 4]
        self.findings = findings
        self.max_steps = max_steps
        self.steps = 0
        self.runners: list[Runner] = []
        self.current: Runner | None = None
        self._random: list[float] = []

    def chance(self) -> float:
        """A number in [0, 1), of which many are drawn at once."""
        if not self._random:
            self._random = self.rng.random(1024).tolist()
        return self._random.pop()

    def spawn(self, name: str, steps: Steps, *, engine: bool = False, of: int | None = None) -> None:
        """Adds a runner; it is of the launch of who adds it, unless `of` says another."""
        if of is None:
            of = self.current.of if self.current is not None else 0
        self.runners.append(Runner(name, steps, engine, self.chance(), of))

    def over(self, launch: int) -> bool:
        """Whether nothing of a launch runs any more."""
        return all(r.of != launch for r in self.runners)

    def run(self) -> None:
        """Until all are done. Errors: `Stop` after a deadlock or too many steps."""
        while self.runners:
            runner = self._pick()
            if runner is None:
                self._deadlock()
            else:
                self._burst(runner)

    def _burst(self, runner: Runner) -> None:
        self.current = runner
        length = 1_000_000 if self.in_order else 1 + int(self.chance() ** 4 * 24)
        for _ in range(length):
            self.steps += 1
            if self.steps > self.max_steps:
                line = runner.wait.line if runner.wait else 0
                raise self.findings.fatal("endless", line, f"more than {self.max_steps} steps")
            try:
                runner.wait = next(runner.steps)
            except StopIteration:
                self.runners.remove(runner)
                return
            if runner.wait is not None and not runner.wait.ready():
                return
            if self.in_order and not runner.engine and any(r.engine for r in self.runners):
                return

    def _pick(self) -> Runner | None:
        runners = self.runners
        if self.policy == "program":
            order = sorted(runners, key=lambda r: not r.engine)
            return next((r for r in order if r.ready), None)
        if self.policy == "priority":
            if self.chance() < 0.05:
                runners[int(self.chance() * len(runners))].priority = self.chance()
            return next((r for r in sorted(runners, key=lambda r: r.priority) if r.ready), None)
        start = int(self.chance() * len(runners))
        hold = {"late": 0.9, "early": 0.0}.get(self.policy, 0.3)
        spare: Runner | None = None
        for i in range(len(runners)):
            runner = runners[(start + i) % len(runners)]
            if not runner.ready:
                continue
            if self.policy == "early" and not runner.engine and spare is None and self.chance() < 0.7:
                spare = runner
                continue
            if runner.engine and self.chance() < hold:
                spare = spare or runner
                continue
            return runner
        return spare

    def _deadlock(self) -> None:
        waits = sorted({(r.wait.line, f"{r.name}: line {r.wait.line}: {r.wait.text}") for r in self.runners if r.wait})
        text = "; ".join(t for _, t in waits[:8]) + ("; ..." if len(waits) > 8 else "")
        raise self.findings.fatal("deadlock", waits[0][0] if waits else 0, f"nobody can go on: {text}")
