"""Contractions: done when the statement is, or (asynchronous atoms) later, at a moment that the scheduler chooses.

An operand is read once for each combination of the coordinates that its index mentions, not once for each product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.dtype.convert import convert
from treadle.dtype.formats import DType
from treadle.machine.form import FragRef, MemRef, Mma, Mode
from treadle.simulate import arithmetic
from treadle.simulate.barriers import Work
from treadle.simulate.clocks import Strand, Strands
from treadle.simulate.fragments import Fragment, slots_of
from treadle.simulate.memory import ASYNC, DEFINED, NEVER, UNDEFINED
from treadle.simulate.schedule import Steps, Wait
from treadle.simulate.tape import Contracted
from treadle.simulate.thread import Thread

Array = NDArray[Any]
Index = tuple[Array, ...]
Source = Callable[[Strand | None], tuple[Array, Array, DType]]


@dataclass(frozen=True)
class LateOperand:
    """Elements to read (by the thread itself or by an engine's strand), and which of them each product takes."""

    source: Source
    rows: Array
    width: int

    def read(self, strand: Strand | None, wanted: DType) -> tuple[Array, Array]:
        """Values (exactly converted) and states: destination slots by contracted coordinates."""
        values, states, dtype = self.source(strand)
        values = convert(np.ascontiguousarray(values), dtype, wanted)
        return values.reshape(-1, self.width)[self.rows], states.reshape(-1, self.width)[self.rows]


def contract(thread: Thread, item: Mma) -> None:
    """A contraction that is done when the statement is."""
    held = thread.fragment(item.dst)
    dtype = held.frag.dtype
    a, b = (_operand(thread, item, ref, held).read(None, dtype) for ref in (item.a, item.b))
    if item.acc is None:
        acc, known = _zero(held)
    else:
        thread.bind(held.coords)
        acc, known = thread.operand(item.acc, held.frag.shape, held.coords, held.count)
    thread.assign(item.dst, None, *_result(item.atom, dtype, a, b, acc, known))


def issue_contract(thread: Thread, item: Mma) -> None:
    """Starts an asynchronous contraction: its registers are not the thread's until the wait that covers its group."""
    if item.acc is not None and (item.acc.name != item.dst or item.acc.coords is not None):
        raise thread.fatal("form", "an asynchronous contraction accumulates in its own registers")
    names = [item.dst] + [r.name for r in (item.a, item.b) if isinstance(r, FragRef)]
    for name in names:
        if name in thread.touched:
            thread.report("fence", f"{name} was touched since the last wgmma.fence")
    if any(item.dst in w.fragments[1:] for w in thread.wgmma.pending):
        thread.report("in-flight", f"{item.dst} is overwritten while a contraction reads it")
    held = thread.fragment(item.dst)
    sources = [_operand(thread, item, ref, held) for ref in (item.a, item.b)]
    before = [w for w in thread.wgmma.pending if not w.done]
    work = Work(thread.line, tuple(names))
    thread.wgmma.open.append(work)
    for name in names:
        thread.settle(thread.fragment(name))
        thread.fragment(name).flying += 1
    strand = thread.world.strands.fresh(thread.strand.order, proxy=True)
    if thread.strand.log is not None:
        strand.log = thread.strand.log.fresh()
        thread.strand.log.add(Contracted(item.atom, thread.line, strand.log))
    thread.strand.tick()
    steps = _later(thread, item, held, sources, work, before, strand)
    thread.world.scheduler.spawn(f"{item.atom} of line {thread.line}", steps, engine=True)


def _later(
    thread: Thread,
    item: Mma,
    held: Fragment,
    sources: list[LateOperand],
    work: Work,
    before: list[Work],
    strand: Strand,
) -> Steps:
    """The steps of an asynchronous contraction, after the earlier ones of its warp."""
    world, line, dtype = thread.world, work.line, held.frag.dtype
    yield Wait(lambda: all(w.done for w in before), "an earlier contraction of this warp", line)
    a, b = (source.read(strand, dtype) for source in sources)
    if item.acc is None:
        acc, known = _zero(held)
    else:
        acc, known = held.values[held.coords], held.states[held.coords]
        if (known == NEVER).any():
            world.findings.add("unwritten", line, f"the accumulator {item.dst} was never written")
    values, states = _result(item.atom, dtype, a, b, acc, known)
    yield None
    held.values[held.coords], held.states[held.coords] = values, states
    work.read = work.done = True
    work.read_trace = work.done_trace = Strands.trace(strand)
    world.strands.retire(strand)


def _zero(held: Fragment) -> tuple[Array, Array]:
    return np.zeros(held.count, held.frag.dtype.numpy), np.full(held.count, DEFINED, np.uint8)


def _result(
    atom: str, dtype: DType, a: tuple[Array, Array], b: tuple[Array, Array], acc: Array, known: Array
) -> tuple[Array, Array]:
    fine = ((a[1] == DEFINED) & (b[1] == DEFINED)).all(axis=1) & (known == DEFINED)
    values = arithmetic.contract(atom, dtype, np.asarray(acc), a[0], b[0])
    return values, np.where(fine, DEFINED, UNDEFINED)


def _operand(thread: Thread, item: Mma, ref: FragRef | MemRef, held: Fragment) -> LateOperand:
    """Where an operand's elements are: the indices are those of the moment of issue."""
    exprs = ref.coords if isinstance(ref, FragRef) else (*ref.index, *((ref.version,) if ref.version else ()))
    rank = len(held.coords)
    mentioned = {s for e in exprs or () for s in e.symbols}
    used = tuple(i for i in range(rank) if exprs is None or f"${i}" in mentioned)
    frag = held.frag
    coords, rows, width = _products(frag.shape, frag.dist, thread.warps, thread.warp, used, item.contracted)
    thread.bind(coords)
    count = (int(rows.max()) + 1) * width if len(rows) else 0
    read = _memory(thread, ref, count) if isinstance(ref, MemRef) else _registers(thread, ref, count)
    return LateOperand(read, rows, width)


@cache
def _products(
    shape: tuple[int, ...], dist: tuple[Mode, ...], warps: int, warp: int, used: tuple[int, ...], inner: tuple[int, ...]
) -> tuple[Index, Array, int]:
    """Coordinates at which an operand that mentions the axes `used` is read, which of them each slot takes, and the
    number of contracted coordinates."""
    _, held, first_held = slots_of(shape, dist, warps, warp)
    if used:
        key = np.ravel_multi_index(tuple(held[i] for i in used), tuple(shape[i] for i in used))
    else:
        key = np.zeros(len(first_held), np.int64)
    _, first, rows = np.unique(key, return_index=True, return_inverse=True)
    width = int(np.prod(inner)) if inner else 1
    grid = np.indices(inner).reshape(len(inner), width)
    outer = tuple(np.repeat(c[first], width) for c in held)
    return outer + tuple(np.tile(g, len(first)) for g in grid), rows, width


def _memory(thread: Thread, ref: MemRef, count: int) -> Source:
    line, findings = thread.line, thread.world.findings
    view, index = thread.place(ref, count)

    def read(strand: Strand | None) -> tuple[Array, Array, DType]:
        if strand is None:
            return *thread.fetch(view, index, count), view.dtype
        values, states = view.read(index, strand, line, ASYNC)
        if (states == NEVER).any():
            findings.add("unwritten", line, f"an element of {view.name} is read that was never written")
        return np.broadcast_to(values, (count,)), np.broadcast_to(states, (count,)), view.dtype

    return read


def _registers(thread: Thread, ref: FragRef, count: int) -> Source:
    line, findings = thread.line, thread.world.findings
    held = thread.fragment(ref.name)
    shape = held.frag.shape
    if ref.coords is None:
        # Without coordinates an operand of the contraction is read at `$0, $1, ...` themselves.
        at = tuple(np.asarray(thread.env[f"${i}"]) for i in range(len(shape)))
    else:
        at = thread.index(ref.coords, count)

    def read(strand: Strand | None) -> tuple[Array, Array, DType]:
        if strand is None:
            return *thread.gather(ref.name, at, count), held.frag.dtype
        values, states = held.values[at], held.states[at]
        if not held.mask[at].all():
            findings.add("not-held", line, f"a slot of {ref.name} is read that its warp does not hold")
        if (states == NEVER).any():
            findings.add("unwritten", line, f"a slot of {ref.name} is read that was never written")
        return values, states, held.frag.dtype

    return read
