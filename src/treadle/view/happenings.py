"""What happens in a run, as data: events with begin, end and causes, and what they wait on; the order of tasks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from treadle.machine.form import Stmt

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
class Phased:
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
class Group:
    """Asynchronous operations of an agent that are committed together."""

    events: list[int] = field(default_factory=list[int])
    end: float = 0.0


def order_of_tasks(raster: tuple[str | int, ...], counts: tuple[int, ...], number: int) -> tuple[int, ...]:
    """The task that a linear number stands for: `row` counts the last variable fastest, `group g` goes through panels
    of g of the first variable, the first variable fastest in each, `slow g` through groups of g of all but the last
    variable, the last one slowest in each; `reverse` begins with the last."""
    total = math.prod(counts)
    number = total - 1 - number if "reverse" in raster else number
    if raster[:1] == ("group",):
        height = max(1, int(raster[1]))
        rest = total // counts[0]
        panel, within = divmod(number, height * rest)
        tall = min(height, counts[0] - panel * height)
        return (panel * height + within % tall, *_unravel(within // tall, counts[1:]))
    if raster[:1] == ("slow",) and len(counts) > 1:
        others = total // counts[-1]
        height = max(1, min(int(raster[1]), others))
        group, within = divmod(number, height * counts[-1])
        tall = min(height, others - group * height)
        return (*_unravel(group * height + within % tall, counts[:-1]), within // tall)
    return _unravel(number, counts)


def _unravel(number: int, counts: tuple[int, ...]) -> tuple[int, ...]:
    found: list[int] = []
    for count in reversed(counts):
        number, digit = divmod(number, count)
        found.append(digit)
    return tuple(reversed(found))
