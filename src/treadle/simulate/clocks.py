"""Vector clocks: which accesses are ordered before which, whatever the schedule.

A clock maps strands (threads, tasks, operations of engines) to counts. An access of strand `s` at count `c` is ordered
before an observer whose clock has at least `c` for `s`. Two clocks go together: `seen` for ordinary order, `fenced` for
what of the *generic* accesses has been made known to the asynchronous proxy by a fence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.simulate.tape import Log

Ints = NDArray[np.int64]


def _empty() -> Ints:
    return np.zeros(0, np.int64)


@dataclass
class Clock:
    """Counts by strand; strands beyond the end count 0."""

    counts: Ints = field(default_factory=_empty)

    def copy(self) -> Clock:
        return Clock(self.counts.copy())

    def at(self, strand: int) -> int:
        return int(self.counts[strand]) if strand < len(self.counts) else 0

    def raise_to(self, strand: int, count: int) -> None:
        if strand >= len(self.counts):
            self.counts = np.concatenate([self.counts, np.zeros(strand + 17 - len(self.counts), np.int64)])
        if self.counts[strand] < count:
            self.counts[strand] = count

    def join(self, other: Clock) -> None:
        """The least clock at or above both."""
        if len(other.counts) > len(self.counts):
            grown = other.counts.copy()
            np.maximum(grown[: len(self.counts)], self.counts, out=grown[: len(self.counts)])
            self.counts = grown
        else:
            part = self.counts[: len(other.counts)]
            np.maximum(part, other.counts, out=part)

    def covers(self, strands: NDArray[Any], counts: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether each access (strand, count) is ordered before."""
        if not len(self.counts):
            return np.zeros(strands.shape, np.bool_)
        inside = strands < len(self.counts)
        known = np.where(inside, self.counts[np.where(inside, strands, 0)], 0)
        return np.asarray(known >= counts)


@dataclass
class Order:
    """What a strand knows, and what it hands on when it releases."""

    seen: Clock = field(default_factory=Clock)
    fenced: Clock = field(default_factory=Clock)

    def copy(self) -> Order:
        return Order(self.seen.copy(), self.fenced.copy())

    def join(self, other: Order) -> None:
        self.seen.join(other.seen)
        self.fenced.join(other.fenced)


@dataclass
class Strand:
    """Something that accesses memory: its number, its order, whether it is of the asynchronous proxy; where what it
    does is recorded, if that is wanted."""

    number: int
    order: Order
    proxy: bool = False
    log: Log | None = None

    @property
    def now(self) -> int:
        """Its own count."""
        return self.order.seen.at(self.number)

    def tick(self) -> None:
        """Begins a new count: what is handed on before does not speak for what comes after."""
        self.order.seen.raise_to(self.number, self.now + 1)

    def release(self) -> Order:
        """A copy of its order to hand on; later accesses are not in it."""
        given = self.order.copy()
        self.tick()
        return given

    def fence(self) -> None:
        """All that it knows of is now known to the asynchronous proxy too."""
        self.order.fenced.join(self.order.seen)
        self.tick()

    def ordered(self, strands: NDArray[Any], counts: NDArray[Any], generic: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether each access is ordered before this strand's; `generic` ones need a fence where this is a proxy's."""
        known = self.order.seen.covers(strands, counts)
        if self.proxy and bool(generic.any()):
            known = np.where(generic, self.order.fenced.covers(strands, counts), known)
        return known


class Strands:
    """Hands out strand numbers. The number of a finished operation is used again by one that it is ordered before."""

    def __init__(self) -> None:
        self.next = 0
        self.free: list[tuple[int, int]] = []

    def fresh(self, order: Order, *, proxy: bool = False) -> Strand:
        """A strand that begins knowing `order`."""
        number, count = self.next, 0
        for i, (old, last) in enumerate(self.free[:32]):
            if order.seen.at(old) >= last:
                number, count = old, last
                del self.free[i]
                break
        else:
            self.next += 1
        strand = Strand(number, order.copy(), proxy)
        strand.order.seen.raise_to(number, count + 1)
        return strand

    def retire(self, strand: Strand) -> None:
        """The strand makes no further access."""
        self.free.append((strand.number, strand.now))

    def part(self) -> Strands:
        """Numbers for a launch, among those of others that run meanwhile."""
        return _Part(self)

    @property
    def numbers(self) -> Iterable[int]:
        """Those that were handed out."""
        return range(self.next)

    @staticmethod
    def trace(strand: Strand) -> Order:
        """Only the strand's own accesses, not what it knew when it began: what the end of an engine's work proves."""
        own = Order()
        own.seen.raise_to(strand.number, strand.now)
        return own


class _Part(Strands):
    """Numbers of one launch: none of them is another launch's."""

    def __init__(self, whole: Strands) -> None:
        super().__init__()
        self.whole = whole
        self.own: list[int] = []

    def fresh(self, order: Order, *, proxy: bool = False) -> Strand:
        self.next = self.whole.next
        strand = super().fresh(order, proxy=proxy)
        if self.next > self.whole.next:
            self.own.append(strand.number)
            self.whole.next = self.next
        return strand

    @property
    def numbers(self) -> Iterable[int]:
        return self.own
