"""Asynchronous copies of engines.

Each operation is a runner of its own. It reads its source at one moment and writes its destination at another, both
chosen by the scheduler; only the completion that the protocol offers (bytes of a barrier, a group of the thread) orders
what comes after. What an operation knows of earlier accesses is what its issuer knew, seen through the proxy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.ir.guard import Unit
from treadle.machine.form import Copy, MemRef
from treadle.machine.vocabulary import BOX_EFFECTS
from treadle.simulate.atomics import update
from treadle.simulate.barriers import Phased, Work
from treadle.simulate.clocks import Strand, Strands
from treadle.simulate.memory import ASYNC, DEFINED, GENERIC, NEVER, UNDEFINED, View
from treadle.simulate.schedule import Steps
from treadle.simulate.tape import Copied
from treadle.simulate.thread import Thread
from treadle.simulate.world import Workgroup

Array = NDArray[Any]
Index = tuple[Array, ...]


def issue_copy(thread: Thread, item: Copy) -> None:
    """Starts a copy. Its index arrays are those of the moment of issue."""
    count = int(np.prod(item.box))
    grid = np.indices(item.box).reshape(len(item.box), count)
    brought: Array | None = None
    if item.engine == "cp.async":
        grid = grid[:, np.arange(count) % thread.warps == thread.warp]
        count = grid.shape[1]
        brought = thread.select(tuple(grid), count, item.where)
    elif item.where:
        grid = grid[:, thread.select(tuple(grid), count, item.where)]
        count = grid.shape[1]
    thread.bind(tuple(grid))
    source, source_index = thread.place(item.src, count)
    target, target_index = thread.place(item.dst, count)
    if source.dtype != target.dtype:
        raise thread.fatal("form", f"a copy from {source.dtype} to {target.dtype}")
    _check_map(thread, item)
    if item.engine.startswith("tma"):
        far = (source, source_index) if item.engine == "tma.load" else (target, target_index)
        _check_start(thread, item, *far)
    if item.engine.startswith("bulk"):
        _check_run(thread, item, (source, source_index), (target, target_index))
    work = Work(thread.line)
    if item.signal is None:
        (thread.cpasync if item.engine == "cp.async" else thread.bulk).open.append(work)
    if brought is not None:  # zeros are written where the tensor or the condition ends
        brought = brought[_inside(source, source_index)[brought]]
        _check_chunks(thread, item, source, target)
    for group in _receivers(thread, item):
        barrier = _signal(thread, item, group)
        if barrier is not None:
            group.loads += 1
        view = target if group is thread.group else thread.memory(item.dst.name, group)
        steps = _copy(thread, item, work, barrier, (source, source_index), (view, target_index), group, brought)
        thread.world.scheduler.spawn(f"{item.engine} of line {thread.line}", steps, engine=True)


def _receivers(thread: Thread, item: Copy) -> list[Workgroup]:
    """The workgroups into whose memory a copy goes."""
    if not item.multicast:
        return [thread.group]
    groups = thread.group.cluster.groups
    if item.multicast >> len(groups):
        raise thread.fatal("form", f"multicast {item.multicast} in a cluster of {len(groups)}")
    return [thread.reached(g, noted=False) for rank, g in enumerate(groups) if item.multicast >> rank & 1]


def _check_map(thread: Thread, item: Copy) -> None:
    if not item.engine.startswith("tma"):
        return
    tensor = item.src.name if item.engine == "tma.load" else item.dst.name
    entry = thread.world.maps.get(item.map or "")
    if entry is None:
        raise thread.fatal("form", f"{item.engine} without a tensor map of the host")
    if entry.tensor != tensor:
        raise thread.fatal("form", f"the map {entry.name} is of {entry.tensor}, the copy of {tensor}")
    shared = item.dst if item.engine == "tma.load" else item.src
    buffer = next((b for b in thread.world.kernel.buffers if b.name == shared.name), None)
    if buffer is not None and buffer.swizzle != entry.swizzle:
        raise thread.fatal("form", f"{shared.name} is swizzled by {buffer.swizzle} and the map by {entry.swizzle}")
    offset = None if buffer is None or buffer.offset is None else buffer.offset.constant
    if offset is not None and offset % 128:
        thread.report("resource", f"{item.engine}: {shared.name} is at no multiple of 128 bytes of shared memory")
    inner = item.box[_contiguous(thread, tensor, len(item.box))]
    if entry.swizzle and inner * entry.dtype.bits > 8 * entry.swizzle:
        raise thread.fatal("form", f"a box of {inner} elements is wider than the swizzle of {entry.swizzle} bytes")
    if sorted(b for b in entry.box if b > 1) != sorted(b for b in item.box if b > 1):
        raise thread.fatal("form", f"the map {entry.name} has the box {entry.box}, the copy {item.box}")


def _check_start(thread: Thread, item: Copy, view: View, index: Index) -> None:
    """A box begins at 16 bytes of its contiguous axis: engines fault elsewhere."""
    axis = _contiguous(thread, view.name, len(index))
    if len(index[axis]) and int(index[axis].min()) * view.dtype.bits % 128:
        thread.report("resource", f"{item.engine} of a box of {view.name} that starts at {int(index[axis].min())}")


def _check_run(thread: Thread, item: Copy, *ends: tuple[View, Index]) -> None:
    """A bulk copy moves one run of 16-byte chunks along the contiguous axis; of addresses the guard speaks."""
    for view, index in ends:
        axis = len(index) - 1
        if view.name in thread.world.tensors:
            axis = _contiguous(thread, view.name, len(index))
        run, size = index[axis], view.dtype.numpy.itemsize
        if not len(run) or len(run) * size % 16 or int(run[0]) * size % 16:
            text = f"{item.engine} of {len(run)} elements of {view.name}: no whole chunks of 16 bytes"
            thread.report("resource", text)
        elif (np.diff(run) != 1).any() or any(len(np.unique(x)) > 1 for i, x in enumerate(index) if i != axis):
            thread.report("resource", f"{item.engine} of elements of {view.name} that are no run")


def _check_chunks(thread: Thread, item: Copy, *ends: View) -> None:
    """Threads copy whole chunks of 16 bytes: rows of the box are some, and begin at one on both sides."""
    corner = tuple(np.zeros(1, np.int64) for _ in item.box)
    thread.bind(corner)
    for view, ref in zip(ends, (item.src, item.dst), strict=True):
        axis = len(ref.index) - 1
        if view.name in thread.world.tensors:
            axis = _contiguous(thread, view.name, len(ref.index))
        size = view.dtype.numpy.itemsize
        if item.box[-1] * size % 16 or int(thread.index(ref.index, 1)[axis][0]) * size % 16:
            thread.report("resource", f"{item.engine} of {view.name}: no whole chunks of 16 bytes")


def _contiguous(thread: Thread, tensor: str, rank: int) -> int:
    """The axis that the guard says is contiguous: the innermost of the tensor's maps."""
    facts = thread.world.program.guard.facts
    return next((f.axis for f in facts if isinstance(f, Unit) and f.tensor == tensor), rank - 1)


def _signal(thread: Thread, item: Copy, group: Workgroup) -> Phased | None:
    if item.signal is None:
        return None
    barrier = phased(thread, item.signal, group)
    barrier.usable(thread.strand, thread.line, proxy=True)
    return barrier


def phased(thread: Thread, ref: MemRef, group: Workgroup | None = None) -> Phased:
    """The barrier that a reference names, in another workgroup of the cluster if told."""
    declared = thread.world.barriers.get(ref.name)
    if declared is None:
        raise thread.fatal("form", f"no barrier {ref.name}")
    version = thread.number(ref.version) % declared.versions if ref.version is not None else 0
    return (group or thread.group).phased[ref.name, version]


def _inside(view: View, index: Index) -> Array:
    inside = np.ones(index[0].shape, np.bool_)
    for values, extent in zip(index, view.shape):
        inside &= (values >= 0) & (values < extent)
    return inside


def _cuts_a_chunk(thread: Thread, item: Copy, view: View, index: Index) -> bool:
    """Whether a stored box passes the end of its tensor at another place than the end of 16 bytes."""
    axis = _contiguous(thread, item.dst.name, len(item.box))
    size, extent = view.dtype.numpy.itemsize, view.shape[axis]
    return bool(extent * size % 16 and len(index[axis]) and (index[axis] >= extent).any())


def _copy(
    thread: Thread,
    item: Copy,
    work: Work,
    barrier: Phased | None,
    source: tuple[View, Index],
    target: tuple[View, Index],
    group: Workgroup,
    brought: Array | None = None,
) -> Steps:
    proxy = item.engine != "cp.async"
    kind = ASYNC if proxy else GENERIC
    world, line = thread.world, thread.line
    size = _moved(item, *source)
    strand = world.strands.fresh(thread.strand.order, proxy=proxy)
    if thread.strand.log is not None:
        strand.log = thread.strand.log.fresh()
        signal = next((key for key, known in group.phased.items() if known is barrier), None)
        far = None if group is thread.group else group.number
        thread.strand.log.add(Copied(item.engine, line, signal, size, strand.log, far))
    thread.strand.tick()

    def steps() -> Steps:
        yield None
        dst, (dst_index, values, states) = target[0], _taken(thread, item, source, target, brought, strand, line)
        work.read, work.read_trace = True, Strands.trace(strand)
        strand.tick()
        effect = BOX_EFFECTS.get(item.engine, "set")
        if world.scheduler.chance() < 0.5 and effect == "set" and dst.dtype.is_float and len(values):
            # The engine may write at any time from issue on: something else is seen there meanwhile.
            dst.check_bounds(dst_index, line)
            dst.array[dst_index] = np.nan
        yield None
        if effect == "set":
            dst.write(dst_index, values, states, strand, line, kind)
        else:
            update(world, dst, dst_index, (values, states), effect, strand, line)
        work.done, work.done_trace = True, Strands.trace(strand)
        if barrier is not None:
            group.loads -= 1
            barrier.landed(size, work.done_trace)
        world.strands.retire(strand)

    return steps()


def _moved(item: Copy, view: View, index: Index) -> int:
    """The bytes that a copy counts."""
    if item.where:
        return len(index[0]) * view.dtype.numpy.itemsize
    return int(np.prod(item.box)) * (4 if view.dtype.packed else 8 * view.dtype.numpy.itemsize) // 8


def _taken(
    thread: Thread,
    item: Copy,
    source: tuple[View, Index],
    target: tuple[View, Index],
    brought: Array | None,
    strand: Strand,
    line: int,
) -> tuple[Index, Array, Array]:
    """Where a copy writes, what, and whether that is defined: zeros where its source ends, nothing where its target
    does."""
    world = thread.world
    (src, src_index), (dst, dst_index) = source, target
    kind = GENERIC if item.engine == "cp.async" else ASYNC
    values = np.zeros(src_index[0].shape, src.dtype.numpy)
    states = np.full(values.shape, DEFINED, np.uint8)
    chosen = np.arange(len(values)) if brought is None else brought
    if item.engine == "tma.load":
        chosen = np.flatnonzero(_inside(src, src_index))
    elif item.engine in BOX_EFFECTS:
        keep = np.flatnonzero(_inside(dst, dst_index))
        if _cuts_a_chunk(thread, item, dst, dst_index):
            text = f"a box of {dst.name} ends within 16 bytes: the engine writes them whole"
            world.findings.add("out-of-bounds", line, text)
        src_index, dst_index = tuple(c[keep] for c in src_index), tuple(c[keep] for c in dst_index)
        values, states, chosen = values[keep], states[keep], np.arange(len(keep))
    if len(chosen):
        read = src.read(tuple(c[chosen] for c in src_index), strand, line, kind)
        values[chosen], states[chosen] = read
        if (states == NEVER).any():
            world.findings.add("unwritten", line, f"an element of {src.name} is copied that was never written")
            states = np.where(states == NEVER, UNDEFINED, states)
        if dst.name in world.tensors and (states != DEFINED).any():
            text = f"an element of {src.name} that holds no value goes to {dst.name}"
            world.findings.add("undefined", line, text)
    return dst_index, values, states
