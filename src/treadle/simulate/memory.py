"""Memory as the simulator sees it: bytes, and per granule who wrote it, whether it holds anything, who has read it.

An `Arena` is a run of bytes: the memory under an argument (views that overlap share it), the shared memory of one
workgroup, the local memory of one task. A `View` is a strided array in it. Overlap needs no special case: two views of
one granule meet in the arena's records.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.dtype.formats import DType
from treadle.simulate.clocks import Strand
from treadle.simulate.findings import Findings
from treadle.simulate.tape import What

Array = NDArray[Any]
Index = tuple[Array, ...]

NEVER, DEFINED, UNDEFINED = 0, 1, 2
"""States of an element: nothing was written, a value, or something that nobody may look at."""

GENERIC, ASYNC, ATOMIC, ARRIVED = 0, 1, 2, 3
"""Kinds of access. ARRIVED is a generic read whose value has been used: it is over, also for the other proxy."""

MAX_READERS = 64


class Readers:
    """The last reads of each granule: some slots, so that several concurrent readers are remembered.

    A row of each array is a slot: strand (-1 for none), count, line, kind, count when the value had arrived."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.slots = 0
        self.who = np.full((0, size), -1, np.int64)
        self.when, self.line, self.used = (np.zeros((0, size), np.int64) for _ in range(3))
        self.kind = np.zeros((0, size), np.int8)

    def record(self, at: Array, strand: Strand, line: int, kind: int) -> None:
        """Remembers a read of the granules `at` (each once) in the first slot whose read is ordered before it."""
        left = at
        # Mostly the first slot is free, or the strand's own: the others are not looked at then.
        for first, last in ((0, min(1, self.slots)), (1, self.slots)):
            if first >= last:
                continue
            free = self._free(slice(first, last), left, strand, kind)
            found = free.any(axis=0)
            slot, mine = first + free.argmax(axis=0)[found], left[found]
            self._put(slot, mine, strand, line, kind)
            left = left[~found]
            if not left.size:
                return
        if self.slots < MAX_READERS:
            if self.slots == len(self.who):
                self._grow()
            self._put(self.slots, left, strand, line, kind)
            self.slots += 1

    def _free(self, rows: slice, at: Array, strand: Strand, kind: int) -> Array:
        """Which slots may forget their read of which granules."""
        who = self.who[rows, at]
        free = (who < 0) | (who == strand.number)
        if not free.all():
            other = ~free
            ordered = strand.order.seen.covers(who[other], self.when[rows, at][other])
            # A generic read that only a fence completes must stay until a fence has been seen.
            free[other] = ordered if kind == GENERIC else ordered & (self.kind[rows, at][other] != GENERIC)
        return free

    def _put(self, slot: Any, at: Array, strand: Strand, line: int, kind: int) -> None:
        self.who[slot, at], self.when[slot, at], self.line[slot, at] = strand.number, strand.now, line
        self.kind[slot, at], self.used[slot, at] = kind, 0

    def _grow(self) -> None:
        more = max(2, self.slots)
        self.who = np.concatenate([self.who, np.full((more, self.size), -1, np.int64)])
        blank = np.zeros((more, self.size), np.int64)
        self.when, self.line, self.used = (np.concatenate([a, blank]) for a in (self.when, self.line, self.used))
        self.kind = np.concatenate([self.kind, blank.astype(np.int8)])

    def arrive(self, at: Array, strand: Strand) -> None:
        """The strand has used the values that it read from `at`: those reads are over."""
        if self.slots:
            slot, place = np.nonzero(
                (self.who[: self.slots, at] == strand.number) & (self.kind[: self.slots, at] == GENERIC)
            )
            self.kind[slot, at[place]] = ARRIVED
            self.used[slot, at[place]] = strand.now

    def unordered(self, at: Array, strand: Strand) -> list[int]:
        """The slots with a read of one of `at` that is not plainly ordered before the strand."""
        if not self.slots:
            return []
        who = self.who[: self.slots, at]
        others = (who >= 0) & (who != strand.number)
        if not others.any():
            return []
        kinds = self.kind[: self.slots, at][others]
        others[others] = ~strand.ordered(who[others], self.when[: self.slots, at][others], kinds != ASYNC)
        return [int(k) for k in np.flatnonzero(others.any(axis=1))]


class Arena:
    """Bytes with records. `tracked`: accesses of several strands may meet here."""

    def __init__(self, name: str, size: int, granule: int, *, tracked: bool, findings: Findings) -> None:
        self.name = name
        self.granule = max(1, granule)
        self.data: NDArray[np.uint8] = np.full(size, 0xAB, np.uint8)
        self.findings = findings
        self.tracked = tracked
        count = -(-size // self.granule)
        self.state: Array = np.zeros(count, np.uint8)
        self.writer: Array = np.full(count if tracked else 0, -1, np.int64)
        self.written_at: Array = np.zeros(count if tracked else 0, np.int64)
        self.written_line: Array = np.zeros(count if tracked else 0, np.int64)
        self.written_as: Array = np.zeros(count if tracked else 0, np.int8)
        self.readers = Readers(count if tracked else 0)

    def tell(self, strand: Strand, what: What, at: Array, line: int, kind: int) -> None:
        """Records an access where the strand keeps a log."""
        if strand.log is not None:
            tape = strand.log.tape
            tape.whole &= kind != ATOMIC  # what an atomic update finds is in no read
            tape.access(strand.log, what, self, len(self.state), at, line, kind)

    def check(self, at: Array, strand: Strand, line: int, what: str, *, reads: bool, atomic: bool) -> None:
        """Reports conflicting accesses of other strands that no order puts before this one."""
        who = self.writer[at]
        others = (who >= 0) & (who != strand.number)
        if atomic:
            others &= self.written_as[at] != ATOMIC
        if others.any():
            earlier = (who, self.written_at[at], self.written_line[at], self.written_as[at])
            self._report(at, others, earlier, strand, line, what)
        read = self.readers
        for slot in read.unordered(at, strand) if reads else ():
            who = read.who[slot, at]
            others = (who >= 0) & (who != strand.number)
            earlier = (who, read.when[slot, at], read.line[slot, at], read.kind[slot, at])
            self._report(at, others, earlier, strand, line, what, read.used[slot, at])

    def _report(
        self,
        at: Array,
        others: Array,
        earlier: tuple[Array, Array, Array, Array],
        strand: Strand,
        line: int,
        what: str,
        used: Array | None = None,
    ) -> None:
        """Reports the first of the `earlier` accesses (strand, count, line, kind) that is not ordered before this one.

        `used`: for reads, the count at which the value had arrived, which is as good as a fence."""
        who, when, lines, kinds = (part[others] for part in earlier)
        fine = strand.ordered(who, when, kinds != ASYNC)
        if used is not None:
            fine = fine | ((kinds == ARRIVED) & strand.order.seen.covers(who, np.maximum(when, used[others])))
        if fine.all():
            return
        first = int(np.flatnonzero(~fine)[0])
        why = "nothing orders them"
        if strand.order.seen.covers(who[first : first + 1], when[first : first + 1]).all():
            why = "only a fence.proxy.async is missing between them"
            if int(kinds[first]) == ARRIVED:
                why = "the value read may arrive after this: use it, or fence, before what orders them"
        byte = int(at[others][first]) * self.granule
        kind = "write" if used is None else "read"
        message = f"{what} of {self.name} at byte {byte} and an earlier {kind}: {why}"
        self.findings.add("race", line, message, int(lines[first]))


@dataclass(frozen=True)
class View:
    """A strided array in an arena. `strides` and `offset` in bytes."""

    name: str
    arena: Arena
    dtype: DType
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def array(self) -> Array:
        """The NumPy view of the bytes."""
        return np.ndarray(self.shape, self.dtype.numpy, self.arena.data, self.offset, self.strides)

    def check_bounds(self, index: Index, line: int) -> None:
        """A fatal finding where an index lies outside."""
        if len(index) != len(self.shape):
            text = f"{self.name} has {len(self.shape)} axes and is indexed by {len(index)}"
            raise self.arena.findings.fatal("form", line, text)
        for axis, (values, extent) in enumerate(zip(index, self.shape)):
            outside = (values < 0) | (values >= extent)
            if outside.any():
                worst = int(np.asarray(values)[outside][0])
                text = f"{self.name} axis {axis}: index {worst} outside [0, {extent})"
                raise self.arena.findings.fatal("bounds", line, text)

    def granules(self, index: Index) -> Array:
        """The granules of the elements, `itemsize // granule` for each, element by element."""
        at: Any = np.full(index[0].shape if index else (1,), self.offset, np.int64)
        for values, stride in zip(index, self.strides):
            at = at + values.astype(np.int64) * stride
        first = at // self.arena.granule
        count = max(1, self.dtype.numpy.itemsize // self.arena.granule)
        return first if count == 1 else (first[:, None] + np.arange(count)).reshape(-1)

    def states(self, index: Index) -> Array:
        """The state of each element: the worst of its granules."""
        states = self.arena.state[self.granules(index)]
        count = max(1, self.dtype.numpy.itemsize // self.arena.granule)
        if count == 1:
            return states
        grid = states.reshape(-1, count)
        some = np.where((grid == UNDEFINED).any(axis=1), UNDEFINED, DEFINED)
        return np.where((grid == NEVER).any(axis=1), NEVER, some).astype(np.uint8)

    def read(self, index: Index, strand: Strand, line: int, kind: int = GENERIC) -> tuple[Array, Array]:
        """Values and states of the elements. The access is checked and recorded."""
        self.check_bounds(index, line)
        if self.arena.tracked:
            at = distinct(self.granules(index), len(self.arena.state))
            self.arena.check(at, strand, line, "read", reads=False, atomic=False)
            self.arena.readers.record(at, strand, line, kind)
            self.arena.tell(strand, "read", at, line, kind)
        values = self.array[index] if index else self.array.reshape(1).copy()
        return np.atleast_1d(values), self.states(index)

    def write(self, index: Index, values: Array, states: Array, strand: Strand, line: int, kind: int = GENERIC) -> None:
        """Writes the elements. The access is checked and recorded."""
        self.check_bounds(index, line)
        if not values.size:
            return
        granules = self.granules(index)
        if self.arena.tracked:
            at = distinct(granules, len(self.arena.state))
            if len(at) < len(granules) and kind != ATOMIC:
                self.arena.findings.add("race", line, f"one write stores twice to an element of {self.name}", line)
            self.arena.check(at, strand, line, "write", reads=True, atomic=kind == ATOMIC)
            self.arena.writer[at], self.arena.written_at[at] = strand.number, strand.now
            self.arena.written_line[at], self.arena.written_as[at] = line, kind
            self.arena.tell(strand, "write", at, line, kind)
        count = max(1, self.dtype.numpy.itemsize // self.arena.granule)
        self.arena.state[granules] = np.repeat(states, count)
        if index:
            self.array[index] = values
        else:
            self.array[...] = values[0]

    def poison(self) -> None:
        """Fills the bytes with what nobody should read; nothing is written."""
        if 0 in self.shape:
            return
        self.array[...] = poison(self.dtype)
        index = tuple(np.indices(self.shape).reshape(len(self.shape), -1)) if self.shape else ()
        self.arena.state[self.granules(index)] = NEVER


def poison(dtype: DType) -> Any:
    """What nobody should read: NaN where the format has it, else bytes 0xAB (true, for bool)."""
    if dtype.is_bool:
        return True
    if dtype.is_float and dtype.has_nan:
        return np.nan
    return np.full(dtype.numpy.itemsize, 0xAB, np.uint8).view(dtype.numpy)[0]


def distinct(at: Array, size: int) -> Array:
    """The numbers in `at`, each once, in order; all are below `size`."""
    if size > 64 * len(at):
        return np.unique(at)
    seen = np.zeros(size, np.bool_)
    seen[at] = True
    return np.flatnonzero(seen)


def row_major(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Strides in bytes, last axis fastest."""
    strides: list[int] = []
    step = itemsize
    for extent in reversed(shape):
        strides.append(step)
        step *= max(1, extent)
    return tuple(reversed(strides))


def granule_of(*numbers: int) -> int:
    """The largest power of two up to 8 that divides every number."""
    return gcd(8, *numbers)
