"""What all threads of a launch share: arguments, workspace, declarations, the scheduler, the findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from treadle.machine.form import Barrier, Frag, Kernel, Launch, MachineProgram, TensorMap
from treadle.simulate.barriers import Named, Phased
from treadle.simulate.clocks import Order, Strand, Strands
from treadle.simulate.findings import Findings
from treadle.simulate.layout import Layout
from treadle.simulate.memory import View
from treadle.simulate.schedule import Scheduler


class Ended(Protocol):
    """What threads and their replays have in common for the host."""

    strand: Strand


@dataclass
class Cell:
    """One word of a counter, and what those who added to it knew."""

    name: str
    index: tuple[int, ...]
    value: int = 0
    known: Order = field(default_factory=Order)


@dataclass
class World:
    """One launch: its number, the one before that may still run, its workgroups and threads."""

    program: MachineProgram
    kernel: Kernel
    launch: Launch
    env: dict[str, Any]
    functions: Mapping[str, Callable[..., Any]]
    views: dict[str, View]
    tensors: frozenset[str]
    lines: Mapping[int, int]
    findings: Findings
    scheduler: Scheduler
    strands: Strands
    local: Layout
    shared: Layout
    workers: int
    accuracy: str
    number: int = 0
    previous: World | None = None
    groups: list[Workgroup] = field(default_factory=lambda: list[Workgroup]())
    threads: list[Ended] = field(default_factory=lambda: list[Ended]())
    grid: int = 1
    tickets: int = 0  # the next number that a workgroup draws
    cells: dict[tuple[str, tuple[int, ...]], Cell] = field(default_factory=lambda: dict[Any, Cell]())
    meeting: Cluster = field(default_factory=lambda: Cluster())  # the barrier of all workgroups
    frags: dict[str, Frag] = field(default_factory=dict[str, Frag])
    barriers: dict[str, Barrier] = field(default_factory=dict[str, Barrier])
    maps: dict[str, TensorMap] = field(default_factory=dict[str, TensorMap])
    local_names: frozenset[str] = frozenset()
    scalars: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        self.frags = {f.name: f for f in self.kernel.frags}
        self.barriers = {b.name: b for b in self.kernel.barriers}
        self.maps = {m.name: m for m in self.program.host.maps}
        for scalar in self.program.program.scalars:
            self.scalars |= {scalar.name: scalar.name, scalar.value.name: scalar.name}
        self.local_names = frozenset(s.name for s in self.local.slots)

    @property
    def over(self) -> bool:
        """Whether all of it has run."""
        return len(self.groups) == self.grid and self.scheduler.over(self.number)

    @property
    def may_be_followed(self) -> bool:
        """Whether the launch that depends on it may begin: every workgroup has said so, or has ended."""
        return len(self.groups) == self.grid and all(g.released or not g.running for g in self.groups)

    def known(self) -> Order:
        """What is known when it is over: what its threads knew, and all that they and their engines did."""
        order = Order()
        for thread in self.threads:
            order.join(thread.strand.order)
        for number in self.strands.numbers:
            order.seen.raise_to(number, 1 << 40)
        return Order(order.seen, order.seen.copy())

    @property
    def cuda(self) -> bool:
        """Whether loads arrive later than they are issued, and engines have a proxy of their own."""
        return not self.program.target.startswith("cpu")


@dataclass
class Cluster:
    """Workgroups that run together, and their barrier: a phase ends when all `threads` that have not ended have
    arrived."""

    groups: list[Workgroup] = field(default_factory=lambda: list[Workgroup]())
    threads: int = 0
    arrived: int = 0
    generation: int = 0
    gathered: Order = field(default_factory=Order)
    released: dict[int, Order] = field(default_factory=dict[int, Order])

    def arrive(self, count: int, given: Order) -> int:
        """The arrival of `count` threads; the phase to wait for is returned."""
        mine = self.generation
        self.arrived += count
        self.gathered.join(given)
        self._turn()
        return mine

    def leave(self, count: int) -> None:
        """`count` threads have ended: nobody waits for them."""
        self.threads -= count
        self._turn()

    def _turn(self) -> None:
        if self.arrived and self.arrived >= self.threads:
            self.released[self.generation] = self.gathered
            self.gathered, self.arrived = Order(), 0
            self.generation += 1


@dataclass
class Workgroup:
    """One workgroup: its shared memory and its barriers; its cluster, the strands of its threads as they began, what
    others of the cluster did to its memory (strand, count, line), and what its ended threads knew; the tickets that it
    drew, and whether its agents were the last to arrive at a counter."""

    number: int
    views: dict[str, View] = field(default_factory=dict[str, View])
    phased: dict[tuple[str, int], Phased] = field(default_factory=dict[tuple[str, int], Phased])
    named: dict[int, Named] = field(default_factory=dict[int, Named])
    running: int = 0
    released: bool = False
    loads: int = 0
    cluster: Cluster = field(default_factory=Cluster)
    born: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    reached: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    drawn: list[int] = field(default_factory=list[int])
    found: dict[tuple[str, int, int], bool] = field(default_factory=dict[tuple[str, int, int], bool])
    known: Order = field(default_factory=Order)
