"""What every thread and engine of one run did, event by event: enough to run the same threads in another order.

An event is an access of memory that threads share (which granules, and whose writes a read saw), a synchronisation
with its numbers, the start of an asynchronous operation, the fork of tasks, or the end of a statement. Values are not
kept: a thread's next event depends on what it has read, and a replay (`replay.py`) goes on only while every read sees
the writes that it saw here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from treadle.machine.form import Sync

Array = NDArray[Any]
Key = tuple[int, int, str, int, int]
"""A thread: number of the launch, of the workgroup, role, agent, warp."""


What = Literal["read", "write", "arrive"]
"""Kinds of access. "arrive": the values of an earlier read have been used, so it is over."""


@dataclass(eq=False)
class Access:
    """An access of the granules `at` (each once) of arena number `arena`. `seen`: for a read, the number of the last
    write of each granule, -1 for none. `number`: for a write, its own."""

    what: What
    arena: int
    at: Array
    line: int = 0
    kind: int = 0
    seen: Array | None = None
    number: int = 0


@dataclass(eq=False)
class Synchronised:
    """A synchronisation that was gone through. `version`: of its barrier; `numbers`: its arguments; `groups`: the
    workgroups whose barrier it was, where it was not its own's."""

    item: Sync
    line: int
    numbers: dict[str, int]
    version: int
    groups: tuple[int, ...] = ()


@dataclass(eq=False)
class Copied:
    """A copy that was started: `barrier` and `bytes` are what it signals, in the workgroup `group` if not in its own;
    `log` is what the engine did."""

    engine: str
    line: int
    barrier: tuple[str, int] | None
    bytes: int
    log: Log
    group: int | None = None


@dataclass(eq=False)
class Contracted:
    """An asynchronous contraction that was started."""

    atom: str
    line: int
    log: Log


@dataclass(eq=False)
class Forked:
    """Tasks handed to a pool of workers, each with its log."""

    line: int
    tasks: list[Log]


@dataclass(eq=False)
class Counted:
    """What was done at a word of a counter. `what`: "add" `number` to it; "wait" until it is `number`; "last": add 1,
    and whether it was `number` then (`found`); "draw" the ticket `number`."""

    what: Literal["add", "wait", "last", "draw"]
    cell: tuple[str, tuple[int, ...]]
    number: int
    found: bool = False


Mark = Literal["step", "apart", "task", "task over", "apart over"]
"""The end of a statement; tasks of single threads or warps: begin of all, of one, end of one, of all."""
Entry = Access | Synchronised | Copied | Contracted | Forked | Counted | Mark


@dataclass(eq=False)
class Log:
    """The events of one thread, task or operation of an engine, in order."""

    tape: Tape
    entries: list[Entry] = field(default_factory=list[Entry])

    def add(self, entry: Entry) -> None:
        """Appends an event."""
        self.entries.append(entry)

    def fresh(self) -> Log:
        """A log for something that this thread starts."""
        return self.tape.log()


@dataclass(eq=False)
class Tape:
    """All logs of a run. `sizes`: granules of each arena. `whole`: whether everything that was done is told here;
    `settled`: whether threads do the same in every order, so that they can be replayed."""

    threads: dict[Key, Log] = field(default_factory=dict[Key, Log])
    logs: list[Log] = field(default_factory=list[Log])
    sizes: list[int] = field(default_factory=list[int])
    accesses: list[Access] = field(default_factory=list[Access])
    whole: bool = True
    settled: bool = True
    _writes: int = 0
    _last: list[Array] = field(default_factory=list[Array])
    _arenas: dict[int, int] = field(default_factory=dict[int, int])
    _held: list[object] = field(default_factory=list[object])

    def thread(self, key: Key) -> Log:
        """The log of a thread that begins."""
        log = self.threads[key] = self.log()
        return log

    def log(self) -> Log:
        """An empty log."""
        self.logs.append(Log(self))
        return self.logs[-1]

    def access(
        self,
        log: Log,
        what: Literal["read", "write", "arrive"],
        arena: object,
        size: int,
        at: Array,
        line: int,
        kind: int,
    ) -> None:
        """Records an access of an arena of `size` granules."""
        number = self._arenas.get(id(arena))
        if number is None:
            number = self._arenas[id(arena)] = len(self.sizes)
            self._held.append(arena)  # its identity is not given to another
            self.sizes.append(size)
            self._last.append(np.full(size, -1, np.int32))
        entry = Access(what, number, at, line, kind)
        if what == "read":
            entry.seen = self._last[number][at]
        elif what == "write":
            entry.number = self._writes
            self._last[number][at] = self._writes
            self._writes += 1
        self.accesses.append(entry)
        log.add(entry)
