"""Counters in global memory: arrivals from all workgroups of a launch, waits for them, and tickets.

An arrival releases what its thread knows to whoever finds it counted (at the scope of the device); a ticket tells only
a number. Who arrives last, and who draws which number, is up to the schedule: what is done hangs on the order of steps,
so nothing of it is replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from treadle.machine.form import If, MemRef, Sync, Tasks
from treadle.simulate.schedule import Steps, Wait
from treadle.simulate.tape import Counted, Synchronised
from treadle.simulate.thread import Thread
from treadle.simulate.world import Cell


def cell_of(thread: Thread, ref: MemRef) -> Cell:
    """The word of a reference. Fatal outside of the counter."""
    world = thread.world
    shape = next((c.shape for c in world.program.host.counters if c.name == ref.name), None)
    if shape is None or len(shape) != len(ref.index):
        raise thread.fatal("form", f"no counter {ref.name} of {len(ref.index)} axes")
    index = tuple(thread.number(e) for e in ref.index)
    for axis, (i, extent) in enumerate(zip(index, shape)):
        if not 0 <= i < thread.number(extent):
            raise thread.fatal("bounds", f"{ref.name} axis {axis}: {i} is outside")
    return world.cells.setdefault((ref.name, index), Cell(ref.name, index))


def _told(thread: Thread, entry: Counted) -> None:
    """Tells the log, where there is one."""
    log = thread.strand.log
    if log is not None:
        log.add(entry)
        log.tape.settled = False


def add(thread: Thread, item: Sync, numbers: dict[str, int]) -> Steps:
    """`counter.add`."""
    assert item.object is not None
    cell = cell_of(thread, item.object)
    number = 1 if item.by in ("elect", "warp") else thread.lanes
    cell.value += number
    cell.known.join(thread.strand.release())
    _told(thread, Counted("add", (cell.name, cell.index), number))
    yield None


def await_count(thread: Thread, item: Sync, numbers: dict[str, int]) -> Steps:
    """`counter.wait`."""
    assert item.object is not None
    cell, count = cell_of(thread, item.object), numbers["count"]
    yield Wait(lambda: cell.value >= count, f"{item.object.name} to reach {count}", thread.line)
    _told(thread, Counted("wait", (cell.name, cell.index), count))
    thread.strand.order.join(cell.known)


DRAWN = "tickets"
Meet = Callable[[Thread, Sync, dict[str, int]], Steps]


def is_last(thread: Thread, item: If, meet: Meet) -> Steps:
    """Goes through the arrival of an `if last`, whose threads `meet` before and behind it; what it found stands in the
    workgroup then, for every thread."""
    last = item.last
    assert last is not None
    numbers = {"id": thread.number(last.id), "threads": last.threads}
    barrier = Sync(kind="barrier.sync")
    key = (thread.role.name, thread.agent, id(item))
    yield from _met(thread, meet, barrier, numbers)
    if thread.warp == 0:
        cell = cell_of(thread, last.counter)
        cell.value += 1
        cell.known.join(thread.strand.release())
        thread.strand.order.join(cell.known)
        of = thread.number(last.of)
        thread.group.found[key] = cell.value == of
        _told(thread, Counted("last", (cell.name, cell.index), of, cell.value == of))
        yield None
    yield from _met(thread, meet, barrier, numbers)


def _met(thread: Thread, meet: Meet, barrier: Sync, numbers: dict[str, int]) -> Steps:
    yield from meet(thread, barrier, numbers)
    if thread.strand.log is not None:
        thread.strand.log.add(Synchronised(barrier, thread.line, numbers, 0))


def found_last(thread: Thread, item: If) -> bool:
    """What the arrival found."""
    return thread.group.found[thread.role.name, thread.agent, id(item)]


def draw(thread: Thread, item: Tasks, total: int) -> Iterator[int]:
    """The numbers that the thread's workgroup draws: each by the first of its threads that comes to it."""
    drawn = thread.group.drawn
    at = 0
    while True:
        if at == len(drawn):
            drawn.append(thread.world.tickets)
            thread.world.tickets += 1
        _told(thread, Counted("draw", (DRAWN, (thread.group.number,)), drawn[at]))
        if drawn[at] >= total:
            return
        yield drawn[at]
        at += 1
