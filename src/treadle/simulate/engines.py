"""Asynchronous work: copies of engines, and contractions whose result is there later than they are issued.

Each operation is a runner of its own. It reads its source at one moment and writes its destination at another, both
chosen by the scheduler; only the completion that the protocol offers (bytes of a barrier, a group of the thread) orders
what comes after. What an operation knows of earlier accesses is what its issuer knew, seen through the proxy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.dtype.convert import convert
from treadle.dtype.formats import DType
from treadle.machine.form import Copy, FragRef, MemRef, Mma
from treadle.simulate import arithmetic
from treadle.simulate.barriers import Phased, Work
from treadle.simulate.clocks import Strand, Strands
from treadle.simulate.memory import ASYNC, DEFINED, GENERIC, NEVER, UNDEFINED, View
from treadle.simulate.schedule import Steps, Wait
from treadle.simulate.thread import Thread

Array = NDArray[Any]
Index = tuple[Array, ...]
LateSource = Callable[[Strand], tuple[Array, Array, DType]]


def issue_copy(thread: Thread, item: Copy) -> None:
    """Starts a copy. Its index arrays are those of the moment of issue."""
    count = int(np.prod(item.box))
    grid = np.indices(item.box).reshape(len(item.box), count)
    if item.engine == "cp.async" and thread.warps > 1:
        grid = grid[:, np.arange(count) % thread.warps == thread.warp]
        count = grid.shape[1]
    thread.bind(tuple(grid))
    source, source_index = thread.place(item.src, count)
    target, target_index = thread.place(item.dst, count)
    if source.dtype != target.dtype:
        raise thread.fatal("form", f"a copy from {source.dtype} to {target.dtype}")
    _check_map(thread, item)
    barrier = _signal(thread, item)
    work = Work(thread.line)
    if barrier is None:
        (thread.cpasync if item.engine == "cp.async" else thread.bulk).open.append(work)
    else:
        thread.group.loads += 1
    steps = _copy(thread, item, work, barrier, (source, source_index), (target, target_index))
    thread.world.scheduler.spawn(f"{item.engine} of line {thread.line}", steps, engine=True)


def _check_map(thread: Thread, item: Copy) -> None:
    if not item.engine.startswith("tma"):
        return
    tensor = item.src.name if item.engine == "tma.load" else item.dst.name
    entry = thread.world.maps.get(item.map or "")
    if entry is None:
        raise thread.fatal("form", f"{item.engine} without a tensor map of the host")
    if entry.tensor != tensor:
        raise thread.fatal("form", f"the map {entry.name} is of {entry.tensor}, the copy of {tensor}")
    if sorted(b for b in entry.box if b > 1) != sorted(b for b in item.box if b > 1):
        raise thread.fatal("form", f"the map {entry.name} has the box {entry.box}, the copy {item.box}")


def _signal(thread: Thread, item: Copy) -> Phased | None:
    if item.signal is None:
        return None
    barrier = phased(thread, item.signal)
    barrier.usable(thread.strand, thread.line, proxy=True)
    return barrier


def phased(thread: Thread, ref: MemRef) -> Phased:
    """The barrier that a reference names."""
    declared = thread.world.barriers.get(ref.name)
    if declared is None:
        raise thread.fatal("form", f"no barrier {ref.name}")
    version = thread.number(ref.version) % declared.versions if ref.version is not None else 0
    return thread.group.phased[ref.name, version]


def _inside(view: View, index: Index) -> Array:
    inside = np.ones(index[0].shape, np.bool_)
    for values, extent in zip(index, view.shape):
        inside &= (values >= 0) & (values < extent)
    return inside


def _copy(
    thread: Thread,
    item: Copy,
    work: Work,
    barrier: Phased | None,
    source: tuple[View, Index],
    target: tuple[View, Index],
) -> Steps:
    proxy = item.engine != "cp.async"
    kind = ASYNC if proxy else GENERIC
    world, line, group = thread.world, thread.line, thread.group
    strand = world.strands.fresh(thread.strand.order, proxy=proxy)
    thread.strand.tick()

    def steps() -> Steps:
        yield None
        (src, src_index), (dst, dst_index) = source, target
        values = np.zeros(src_index[0].shape, src.dtype.numpy)
        states = np.full(values.shape, DEFINED, np.uint8)
        chosen = np.arange(len(values))
        if item.engine == "tma.load":
            chosen = np.flatnonzero(_inside(src, src_index))
        elif item.engine == "tma.store":
            keep = np.flatnonzero(_inside(dst, dst_index))
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
        work.read, work.read_trace = True, Strands.trace(strand)
        strand.tick()
        if world.scheduler.chance() < 0.5 and dst.dtype.is_float and len(values):
            # The engine may write at any time from issue on: something else is seen there meanwhile.
            dst.check_bounds(dst_index, line)
            dst.array[dst_index] = np.nan
        yield None
        dst.write(dst_index, values, states, strand, line, kind)
        work.done, work.done_trace = True, Strands.trace(strand)
        if barrier is not None:
            group.loads -= 1
            barrier.landed(int(np.prod(item.box)) * src.dtype.numpy.itemsize, work.done_trace)
        world.strands.retire(strand)

    return steps()


# ---- contractions


def operands(thread: Thread, item: Mma) -> tuple[Index, int, int]:
    """Binds the coordinates of a contraction: destination slots by contracted ones, flat."""
    held = thread.fragment(item.dst)
    width = int(np.prod(item.contracted)) if item.contracted else 1
    grid = np.indices(item.contracted).reshape(len(item.contracted), width)
    coords = tuple(np.repeat(c, width) for c in held.coords)
    inner = tuple(np.tile(g, held.count) for g in grid)
    thread.bind(coords + inner)
    return held.coords, held.count, width


def contract(thread: Thread, item: Mma) -> None:
    """A contraction that is done when the statement is."""
    held = thread.fragment(item.dst)
    coords, count, width = operands(thread, item)
    parts: list[tuple[Array, Array]] = []
    for ref in (item.a, item.b):
        if isinstance(ref, FragRef):
            same = thread.fragment(ref.name).frag
            values, states = thread.operand(ref, same.shape, _same(thread, same.shape), count * width)
            parts.append((convert(np.ascontiguousarray(values), same.dtype, held.frag.dtype), states))
        else:
            view, index = thread.place(ref, count * width)
            values, states = thread.fetch(view, index, count * width)
            parts.append((convert(np.ascontiguousarray(values), view.dtype, held.frag.dtype), states))
    acc, known = _accumulator(thread, item, coords, count)
    result, states = _result(thread, item, parts, acc, known, count, width)
    thread.assign(item.dst, None, result, states)


def _same(thread: Thread, shape: tuple[int, ...]) -> Index:
    """`$0, $1, ...` themselves, for an operand written without coordinates."""
    return tuple(np.asarray(thread.env[f"${i}"]) for i in range(len(shape)))


def _accumulator(thread: Thread, item: Mma, coords: Index, count: int) -> tuple[Array, Array]:
    held = thread.fragment(item.dst)
    if item.acc is None:
        return np.zeros(count, held.frag.dtype.numpy), np.full(count, DEFINED, np.uint8)
    if item.acc.coords is None:
        return thread.operand(item.acc, held.frag.shape, coords, count)
    thread.bind(coords)
    return thread.operand(item.acc, held.frag.shape, coords, count)


def _result(
    thread: Thread, item: Mma, parts: list[tuple[Array, Array]], acc: Array, known: Array, count: int, width: int
) -> tuple[Array, Array]:
    (a, a_known), (b, b_known) = parts
    fine = (np.broadcast_to(a_known, (count * width,)) == DEFINED) & (b_known == DEFINED)
    states = np.where(fine.reshape(count, width).all(axis=1) & (known == DEFINED), DEFINED, UNDEFINED)
    a = np.broadcast_to(a, (count * width,)).reshape(count, width)
    b = np.broadcast_to(b, (count * width,)).reshape(count, width)
    dtype = thread.fragment(item.dst).frag.dtype
    return arithmetic.contract(item.atom, dtype, np.asarray(acc), a, b), states


def _late_source(thread: Thread, ref: FragRef | MemRef, count: int) -> LateSource:
    """How an operand is read when the engine comes to it: the indices are those of the moment of issue."""
    line, findings = thread.line, thread.world.findings
    if isinstance(ref, MemRef):
        view, index = thread.place(ref, count)

        def from_memory(strand: Strand) -> tuple[Array, Array, DType]:
            values, states = view.read(index, strand, line, ASYNC)
            if (states == NEVER).any():
                findings.add("unwritten", line, f"an element of {view.name} is read that was never written")
            return values, states, view.dtype

        return from_memory
    held = thread.fragment(ref.name)
    at = _same(thread, held.frag.shape) if ref.coords is None else thread.index(ref.coords, count)

    def from_registers(strand: Strand) -> tuple[Array, Array, DType]:
        if not held.mask[at].all():
            findings.add("not-held", line, f"a slot of {ref.name} is read that its warp does not hold")
        if (held.states[at] == NEVER).any():
            findings.add("unwritten", line, f"a slot of {ref.name} is read that was never written")
        return held.values[at], held.states[at], held.frag.dtype

    return from_registers


def issue_contract(thread: Thread, item: Mma) -> None:
    """Starts an asynchronous contraction: its registers are not the thread's until the wait that covers its group."""
    names = [item.dst] + [r.name for r in (item.a, item.b) if isinstance(r, FragRef)]
    if item.acc is not None and item.acc.name != item.dst:
        raise thread.fatal("form", "an asynchronous contraction accumulates in its own registers")
    for name in names:
        if name in thread.touched:
            text = f"{name} was touched since the last wgmma.fence"
            thread.report("fence", text)
    held = thread.fragment(item.dst)
    if any(w.fragments and item.dst in w.fragments[1:] for w in thread.wgmma.pending):
        thread.report("in-flight", f"{item.dst} is overwritten while a contraction reads it")
    coords, count, width = operands(thread, item)
    sources = [_late_source(thread, ref, count * width) for ref in (item.a, item.b)]
    work = Work(thread.line, tuple(names))
    before = [w for w in thread.wgmma.pending if not w.done]
    thread.wgmma.open.append(work)
    for name in names:
        fragment = thread.fragment(name)
        thread.settle(fragment)
        fragment.flying += 1
    world, line = thread.world, thread.line
    strand = world.strands.fresh(thread.strand.order, proxy=True)
    thread.strand.tick()

    def steps() -> Steps:
        yield Wait(lambda: all(w.done for w in before), "an earlier contraction of this warp", line)
        parts: list[tuple[Array, Array]] = []
        for source in sources:
            values, states, dtype = source(strand)
            parts.append((convert(np.ascontiguousarray(values), dtype, held.frag.dtype), states))
        if item.acc is None:
            acc, known = np.zeros(count, held.frag.dtype.numpy), np.full(count, DEFINED, np.uint8)
        else:
            acc, known = held.values[coords], held.states[coords]
            if (known == NEVER).any():
                world.findings.add("unwritten", line, f"the accumulator {item.dst} was never written")
        result, states = _result(thread, item, parts, acc, known, count, width)
        yield None
        held.values[coords], held.states[coords] = result, states
        work.read = work.done = True
        work.read_trace = work.done_trace = Strands.trace(strand)
        world.strands.retire(strand)

    world.scheduler.spawn(f"{item.atom} of line {line}", steps(), engine=True)
