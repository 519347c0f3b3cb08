"""Stores to other workgroups of the cluster that complete at a barrier there: values of the moment of issue, written
when the scheduler likes, then counted in bytes."""

from __future__ import annotations

from treadle.machine.form import Store
from treadle.simulate.clocks import Strands
from treadle.simulate.engines import phased
from treadle.simulate.schedule import Steps
from treadle.simulate.tape import Copied
from treadle.simulate.thread import Thread

SEND = "st.async"
"""What such a store is called on tapes."""


def send(thread: Thread, item: Store) -> None:
    """Starts the store."""
    assert item.signal is not None
    view, index, values, states, _ = thread.taken(item)
    (group,) = thread.reach(item.signal)
    if view is not thread.memory(item.dst.name, group):
        raise thread.fatal("form", f"{item.dst.name} is stored in another workgroup than {item.signal.name} is of")
    barrier = phased(thread, item.signal, group)
    barrier.usable(thread.strand, thread.line, proxy=True)
    if not len(values):
        return  # another warp holds what is stored
    size, line, world = len(values) * view.dtype.numpy.itemsize, thread.line, thread.world
    strand = world.strands.fresh(thread.strand.order)
    if thread.strand.log is not None:
        strand.log = thread.strand.log.fresh()
        signal = next((key for key, known in group.phased.items() if known is barrier), None)
        far = None if group is thread.group else group.number
        thread.strand.log.add(Copied(SEND, line, signal, size, strand.log, far))
    thread.strand.tick()
    group.loads += 1

    def steps() -> Steps:
        yield None
        view.write(index, values, states, strand, line)
        trace = Strands.trace(strand)
        group.loads -= 1
        barrier.landed(size, trace, far=True)
        world.strands.retire(strand)

    world.scheduler.spawn(f"the store of line {line}", steps(), engine=True)
