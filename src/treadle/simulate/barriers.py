"""Phased barriers, named barriers, and the groups in which a thread's asynchronous work is counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from treadle.simulate.clocks import Order, Strand
from treadle.simulate.findings import Findings


@dataclass
class Phased:
    """One phased barrier of a workgroup: a phase is over when `count` arrivals and all announced bytes have come."""

    name: str
    count: int
    findings: Findings
    counts_bytes: bool
    initialised: bool = False
    initialiser: tuple[int, int] = (-1, 0)
    fenced: bool = False
    pending: int = 0
    bytes: int = 0
    phase: int = 0
    gathered: Order = field(default_factory=Order)
    released: Order = field(default_factory=Order)
    gathered_far: Order = field(default_factory=Order)  # what waits for the scope of the cluster see besides
    released_far: Order = field(default_factory=Order)

    def initialise(self, strand: Strand, line: int) -> None:
        """By one thread, once, before anybody uses it."""
        if self.initialised:
            self.findings.add("protocol", line, f"{self.name} is initialised again")
        self.initialised, self.pending, self.bytes, self.phase = True, self.count, 0, 0
        self.initialiser = (strand.number, strand.now)

    def usable(self, strand: Strand, line: int, *, proxy: bool = False) -> None:
        """Reports a use that the initialisation is not ordered before. Fatal where there was none."""
        if not self.initialised:
            raise self.findings.fatal("protocol", line, f"{self.name} is used before it is initialised")
        number, count = self.initialiser
        if number != strand.number and strand.order.seen.at(number) < count:
            self.findings.add("race", line, f"nothing orders the initialisation of {self.name} before this use")
        if proxy and not self.fenced:
            text = f"{self.name} was initialised without fence.mbar_init before an engine uses it"
            self.findings.add("fence", line, text)

    def arrive(self, count: int, given: Order, line: int) -> None:
        """`count` arrivals."""
        self.gathered.join(given)
        self.pending -= count
        if self.pending < 0:
            text = f"{self.name}: {-self.pending} more arrivals than the count {self.count} in phase {self.phase}"
            raise self.findings.fatal("protocol", line, text)
        self._turn()

    def more(self, count: int) -> None:
        """The phase at hand waits for so many arrivals more."""
        self.pending += count

    def expect(self, count: int, line: int) -> None:
        """Announces bytes of this phase."""
        if not self.counts_bytes:
            self.findings.add("protocol", line, f"{self.name} is not declared to count bytes (tx)")
        self.bytes += count

    def landed(self, count: int, trace: Order, *, far: bool = False) -> None:
        """Bytes have come (`far`: stored by threads of another workgroup)."""
        (self.gathered_far if far else self.gathered).join(trace)
        self.bytes -= count
        self._turn()

    def over(self, parity: int) -> bool:
        """Whether the phase of this parity is over: what a wait tests."""
        return self.phase & 1 != parity & 1

    def _turn(self) -> None:
        if self.pending == 0 and self.bytes == 0:
            self.phase += 1
            self.pending = self.count
            self.released.join(self.gathered)
            self.released_far.join(self.gathered_far)
            self.gathered, self.gathered_far = Order(), Order()


@dataclass
class Named:
    """A named barrier of a workgroup: generations of a fixed number of threads."""

    name: str
    findings: Findings
    threads: int = 0
    arrived: int = 0
    generation: int = 0
    gathered: Order = field(default_factory=Order)
    released: dict[int, Order] = field(default_factory=dict[int, Order])

    def arrive(self, count: int, threads: int, given: Order, line: int) -> int:
        """Arrival of `count` threads; the generation to wait for is returned."""
        if self.arrived and threads != self.threads:
            text = f"{self.name}: {threads} threads here and {self.threads} at another participant"
            raise self.findings.fatal("protocol", line, text)
        self.threads = threads
        self.arrived += count
        self.gathered.join(given)
        if self.arrived > threads:
            raise self.findings.fatal("protocol", line, f"{self.name}: {self.arrived} threads arrived of {threads}")
        mine = self.generation
        if self.arrived == threads:
            self.released[mine] = self.gathered
            self.gathered, self.arrived = Order(), 0
            self.generation += 1
        return mine


@dataclass
class Work:
    """An asynchronous operation: when its source is free, when its result is there, and what that proves."""

    line: int
    fragments: tuple[str, ...] = ()
    read: bool = False
    done: bool = False
    read_trace: Order | None = None
    done_trace: Order | None = None


class Groups:
    """Commit groups of one thread, oldest first."""

    def __init__(self) -> None:
        self.open: list[Work] = []
        self.closed: list[list[Work]] = []

    def commit(self) -> None:
        self.closed.append(self.open)
        self.open = []

    def covered(self, depth: int) -> list[Work]:
        """The work that a wait for at most `depth` unfinished groups waits for."""
        last = len(self.closed) - max(0, depth)
        return [work for group in self.closed[: max(0, last)] for work in group]

    def forget(self, depth: int) -> None:
        """Groups that were waited for to the end are gone."""
        last = len(self.closed) - max(0, depth)
        del self.closed[: max(0, last)]

    def ready(self, depth: int, *, read: bool = False) -> Callable[[], bool]:
        """Whether that work is over (`read`: its sources are free)."""
        works = self.covered(depth)
        return lambda: all(w.read if read else w.done for w in works)

    @property
    def pending(self) -> list[Work]:
        return [w for group in self.closed for w in group] + self.open
