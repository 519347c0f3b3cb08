"""Trials of plans in a process of their own: realised, judged, compiled, run on copies of the arguments.

Messages are pickles with a length before them on the standard streams, as the compiler's worker has them. Whatever a
trial does, from an abort of the compiler to an endless loop, ends this process and nothing else.
"""

from __future__ import annotations

import os
import pickle
import signal
import struct
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from treadle.base.errors import TreadleError
from treadle.driver.build import Built, assemble, judged
from treadle.driver.candidates import candidate_of
from treadle.driver.rooms import compile_native
from treadle.driver.specialisation import Specialisation
from treadle.driver.tuning_arrays import Copies, DeviceCopies, Placed
from treadle.driver.variants import load
from treadle.ir.parser import parse_program
from treadle.plan.facts import CallFacts
from treadle.plan.plan import Plan
from treadle.runtime import native
from treadle.runtime.driver import ordinal_of
from treadle.runtime.pool import set_workers
from treadle.runtime.signature import TensorParam
from treadle.runtime.timing import Timing, flushing, interleaved, interleaved_on_device

HEADER = struct.Struct("<Q")
ENOUGH = 0.25
"""Seconds for which a trial is measured; less where a few rounds are longer than that, more never."""
SLOW = 4.0
"""A plan whose first two runs take so many times the best one's is not measured."""


@dataclass(frozen=True)
class Task:
    """What all trials of a process are about. `descriptor` is the open file of the arguments, `device` where they
    lie."""

    program: str
    facts: CallFacts
    workers: int
    descriptor: int
    placed: tuple[Placed, ...]
    scalars: dict[str, Any]
    device: str = "cpu"


@dataclass(frozen=True)
class Stage:
    """A trial has come so far."""

    name: str


@dataclass(frozen=True)
class Measured:
    """Median seconds of a call, and how many times what the best plan takes, measured in turn with it (1 if there is
    none): by medians or by least times, whichever says more."""

    seconds: float
    ratio: float


@dataclass(frozen=True)
class Refused:
    """Why a plan was not measured."""

    reason: str


Run = Callable[[], Any]


class Trials:
    """The trials of one process. `best` is what others are measured against."""

    def __init__(self, task: Task, tell: Callable[[Any], None]) -> None:
        set_workers(task.workers)
        self.task = task
        self.tell = tell
        self.program = parse_program(task.program, "<tuned>")
        self.special = Specialisation(self.program, task.program, 1)
        on_gpu = task.device != "cpu"
        self.clock = DeviceClock(ordinal_of(task.device)) if on_gpu else HostClock()
        self.copies: Copies | DeviceCopies = (
            DeviceCopies(task.descriptor, task.placed, task.device) if on_gpu else Copies(task.descriptor, task.placed)
        )
        params = self.special.signature.params
        self.stored = [p.name for p in params if isinstance(p, TensorParam) and p.out]
        arguments = [self.copies.arrays[p.name] if isinstance(p, TensorParam) else task.scalars[p.name] for p in params]
        self.block = self.special.packer.pack(tuple(arguments))
        self.runs: dict[str, Run] = {}
        self.best: str | None = None

    def make(self, plan: Plan) -> Run | Refused:
        """The plan as something that runs, if the judge verifies it."""
        known = self.runs.get(plan.line())
        if known is not None:
            return known
        self.tell(Stage("realising"))
        candidate = candidate_of(plan, self.special.expanded, self.task.facts)
        machine = candidate.build()
        self.tell(Stage("judging"))
        verdict = judged(self.program, candidate, machine)
        if verdict.status != "verified":
            return Refused(f"{verdict.status} by the judge: {verdict.reason}")
        self.tell(Stage("compiling"))
        record = assemble(Built(candidate, machine, verdict, program=self.program))
        kernel = load(record, self.special.signature).kernel
        run = self.runs[plan.line()] = kernel.ready(self.block)
        return run

    def measure(self, plan: Plan) -> Measured | Refused:
        """The plan's time beside the best one's."""
        run = self.make(plan)
        if isinstance(run, Refused):
            return run
        self.copies.refresh(self.stored)
        self.tell(Stage("running"))
        best = None if self.best is None else self.runs[self.best]
        clock = self.clock
        first = min(clock.once(run), clock.once(run))
        if best is None or best is run:
            own = clock.together({"plan": run}, _rounds(first))["plan"].median
            return Measured(own, 1.0)
        usual = clock.once(best)
        if first > SLOW * usual:
            return Refused(f"slow: {first / usual:.3g} times the best at first sight")
        both = clock.together({"plan": run, "best": best}, _rounds(first + usual))
        ours, theirs = both["plan"], both["best"]
        by_least = min(ours.samples) / min(theirs.samples)
        return Measured(ours.median, max(by_least, ours.median / theirs.median))


class HostClock:
    """Times calls on the host's clock."""

    def once(self, run: Run) -> float:
        """Seconds of one call."""
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    def together(self, sides: Mapping[str, Run], rounds: int) -> dict[str, Timing]:
        """Sides in turn."""
        return interleaved(sides, rounds=rounds, warmup=1)


class DeviceClock:
    """Times calls on a GPU by events, its L2 cache overwritten before each."""

    def __init__(self, ordinal: int) -> None:
        self._ordinal = ordinal
        self._flush = flushing(ordinal)

    def once(self, run: Run) -> float:
        """Seconds of one call."""
        return self._timed({"plan": run}, 1, 0)["plan"].samples[0]

    def together(self, sides: Mapping[str, Run], rounds: int) -> dict[str, Timing]:
        """Sides in turn."""
        return self._timed(sides, rounds, 1)

    def _timed(self, sides: Mapping[str, Run], rounds: int, warmup: int) -> dict[str, Timing]:
        return interleaved_on_device(sides, ordinal=self._ordinal, rounds=rounds, warmup=warmup, before=self._flush)


def _rounds(seconds: float) -> int:
    """Rounds that fit `ENOUGH` seconds: samples are at least 2 ms."""
    return max(3, min(25, int(ENOUGH / max(seconds, 2e-3))))


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answers requests until the stream ends: the task, then `("try", plan)`, `("best", plan)`."""

    def tell(message: Any) -> None:
        data = pickle.dumps(message)
        sink.write(HEADER.pack(len(data)) + data)
        sink.flush()

    trials: Trials | None = None
    while (request := _next(source)) is not None:
        try:
            if trials is None:
                trials = Trials(request, tell)
                tell(Measured(0.0, 1.0))
                continue
            word, plan = request
            if word == "try":
                tell(trials.measure(plan))
            else:
                made = trials.make(plan)
                trials.best = None if isinstance(made, Refused) else plan.line()
                tell(Measured(0.0, 1.0))
        except TreadleError as error:
            tell(Refused(f"{error.code}: {' '.join(error.found.split())}"))
        except Exception as error:  # whatever a trial raises is what is wrong with its plan
            tell(Refused(f"{type(error).__name__}: {error}"))


def _next(source: BinaryIO) -> Any:
    header = source.read(HEADER.size)
    return pickle.loads(source.read(HEADER.unpack(header)[0])) if len(header) == HEADER.size else None


def main() -> None:
    """The process: what trials print goes to standard error, an interrupt is the parent's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    native.install_compiler(compile_native)
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, sink)
