"""Where buffers and barriers lie: arenas for shared and local memory, with the checks that addresses allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from treadle.dtype.formats import DType
from treadle.machine.form import Barrier, Buffer
from treadle.simulate.expression import Functions, evaluate
from treadle.simulate.findings import Findings
from treadle.simulate.memory import Arena, View, granule_of, row_major


@dataclass(frozen=True)
class Slot:
    """A buffer's place: offset and shape (ring versions as a leading axis)."""

    name: str
    dtype: DType
    offset: int
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        total = self.dtype.numpy.itemsize
        for extent in self.shape:
            total *= extent
        return total


@dataclass(frozen=True)
class Layout:
    """The places of all buffers of one kind. `apart`: buffers of elements of four bits, which have a byte each here,
    more than their place has room for; they lie by themselves."""

    slots: tuple[Slot, ...]
    size: int
    granule: int
    apart: tuple[Slot, ...] = ()

    def fresh(self, name: str, *, tracked: bool, findings: Findings) -> dict[str, View]:
        """Poisoned memory with this layout."""
        views: dict[str, View] = {}
        arena = Arena(name, self.size, self.granule, tracked=tracked, findings=findings) if self.slots else None
        for slot in (*self.slots, *self.apart):
            strides = row_major(slot.shape, slot.dtype.numpy.itemsize)
            place, offset = arena, slot.offset
            if place is None or slot in self.apart:
                place, offset = Arena(f"{name} {slot.name}", slot.size, 1, tracked=tracked, findings=findings), 0
            views[slot.name] = View(slot.name, place, slot.dtype, offset, slot.shape, strides)
            views[slot.name].poison()
        return views


def lay_out(
    buffers: Sequence[Buffer],
    env: Mapping[str, int],
    functions: Functions,
    lines: Mapping[int, int],
    findings: Findings,
) -> Layout:
    """Places buffers: at their offsets, those without one behind the rest."""
    slots: list[Slot] = []
    top = 0
    apart: list[Slot] = []
    for buffer in sorted(buffers, key=lambda b: b.offset is None):
        line = lines.get(id(buffer), 0)
        shape = tuple(int(evaluate(e, env, functions)) for e in buffer.shape)
        if buffer.versions:
            shape = (buffer.versions, *shape)
        if any(extent < 0 for extent in shape):
            raise findings.fatal("resource", line, f"buffer {buffer.name} has the shape {shape}")
        if buffer.offset is None:
            offset = -(-top // buffer.align) * buffer.align
        else:
            offset = int(evaluate(buffer.offset, env, functions))
            if offset < 0:
                raise findings.fatal("resource", line, f"buffer {buffer.name} begins at byte {offset}")
        if offset % max(1, buffer.align):
            findings.add("resource", line, f"buffer {buffer.name} at byte {offset} is not {buffer.align}-byte aligned")
        slot = Slot(buffer.name, buffer.dtype, offset, shape)
        packed = buffer.dtype.packed
        (apart if packed else slots).append(slot)
        top = max(top, offset + (slot.size // 2 if packed else slot.size))
    granule = granule_of(*(n for s in slots for n in (s.offset, s.dtype.numpy.itemsize))) if slots else 1
    return Layout(tuple(slots), top, granule, tuple(apart))


def check_barriers(
    barriers: Sequence[Barrier], layout: Layout, limit: int, lines: Mapping[int, int], findings: Findings
) -> None:
    """Barriers lie apart from one another and from buffers, aligned, all within the shared memory of the launch."""
    taken = [(s.offset, s.offset + s.size, s.name) for s in layout.slots if s.size]
    for barrier in barriers:
        line = lines.get(id(barrier), 0)
        begin, end = barrier.offset, barrier.offset + 8 * barrier.versions
        if begin % 8:
            findings.add("resource", line, f"barrier {barrier.name} at byte {begin} is not 8-byte aligned")
        for other_begin, other_end, other in taken:
            if begin < other_end and other_begin < end:
                findings.add("resource", line, f"barrier {barrier.name} overlaps {other}")
        taken.append((begin, end, barrier.name))
    for _, end, name in taken:
        if limit and end > limit:
            findings.add("resource", 0, f"{name} ends at byte {end} of {limit} bytes of shared memory")
