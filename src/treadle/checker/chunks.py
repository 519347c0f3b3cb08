"""J1, J4 and J7 of what threads copy asynchronously: chunks of 16 bytes, zeros outside the tensor and outside `where`.

All threads of an agent take part; which of them copies a chunk is not said, so nobody may look before all have met
(`reuse`). A chunk is one instruction: both its addresses are multiples of 16, it lies along the tensor's contiguous
axis, and what the tensor or the condition does not have of it is written as zero.
"""

from __future__ import annotations

from collections.abc import Container

from treadle.algebra.expr import Expr, ge, lt, sym
from treadle.algebra.maps import IndexMap, box
from treadle.algebra.sets import Facts, Inexpressible, Relation
from treadle.checker.engines import CHUNK, Engines
from treadle.checker.meetings import meets_within
from treadle.checker.reuse import COPIES
from treadle.checker.state import Place
from treadle.checker.storage import read
from treadle.checker.terms import Cell, Num, Pieces
from treadle.checker.verdict import Refused, Unsure
from treadle.ir.core import Tensor
from treadle.machine.form import Buffer, Copy, Store, Tasks, walk

__all__ = ["COPIES", "Chunks"]


class Chunks:
    """The rule of `copy cp.async`."""

    def __init__(self, engines: Engines) -> None:
        self.engines = engines
        self.rings: Container[str] = ()  # buffers whose versions a protocol guards

    def copy(self, place: Place, stmt: Copy) -> None:
        """*Errors*: findings of J1, J4, J5 and J7."""
        engines, statements = self.engines, self.engines.statements
        buffer = place.buffers.get(stmt.dst.name)
        tensor, room = engines.tensor(stmt.src.name), engines.room(stmt.src.name)
        if stmt.by:
            raise Unsure("J5", f"a copy of threads by {stmt.by!r}", missing="all threads of the agent")
        if buffer is None or buffer.place != "shared" or (tensor is None and room is None) or stmt.map is not None:
            raise Refused("J1", f"a copy between {stmt.src.name} and {stmt.dst.name}", {})
        if stmt.dst.rank is not None or stmt.src.rank is not None or stmt.multicast:
            raise Unsure("J2", "a copy of threads between workgroups", missing="one workgroup")
        if stmt.signal is not None or (stmt.dst.version is not None and buffer.name not in self.rings):
            raise Unsure("J2", f"a copy of threads into versions of {buffer.name}", missing="an axis for them")
        far = tensor or room
        assert far is not None
        if far.dtype != buffer.dtype or far.dtype.bits % 8:
            raise Refused("J1", f"a copy of {far.dtype} into {buffer.name} of {buffer.dtype}", {})
        facts = place.slots(stmt.box)
        if facts.contradictory:
            return  # never executed
        here = self._into(place, stmt, buffer, facts)
        there = tuple(place.expr(e, facts) for e in stmt.src.index)
        where = place.constraints(stmt.where, facts)
        self._chunks(stmt, far, there, facts)
        if tensor is not None:
            if tensor.name in statements.source.stored:
                raise Unsure(
                    "J2", f"copies of {tensor.name}, which the program stores to", missing="a tensor that is only read"
                )
            engines.pitches(tensor)
            ends = tuple(d.extent for d in tensor.dims)
        else:
            assert room is not None
            self._other_launches(place, room)
            engines.row_pitch(room)
            ends = tuple(place.expr(e) for e in room.shape)
        if len(there) != len(ends):
            raise Refused("J1", f"{far.name} has {len(ends)} axes", {})
        bounds = (c for e, end in zip(there, ends, strict=True) for c in (ge(e, 0), lt(e, end)))
        inside = (*(c for c in bounds if not facts.implies(c)), *where)
        within = facts.also(*inside)
        held: Pieces = ()
        if not within.contradictory:
            if tensor is not None:
                held = ((inside, Cell(tensor.name, there, tensor.dtype)),)
            else:
                found = read(place.contents[far.name], there, within, far.name)
                held = tuple(((*inside, *conds), term) for conds, term in found)
        if inside:
            held = (*held, ((), Num(0, far.dtype)))
        engines.fills(place, stmt, buffer, here, held, facts, ())

    def _other_launches(self, place: Place, room: Buffer) -> None:
        nest = next((f.control for f in place.frames if isinstance(f.control, Tasks)), None)
        around = [r.body for r in place.kernel.roles]
        if meets_within(place.kernel) and nest is not None:
            around = [nest.body]  # all workgroups meet between nests
        for s in (s for body in around for s in walk(body)):
            if isinstance(s, Store | Copy) and s.dst.name == room.name:
                raise Unsure("J2", f"copies of {room.name}", missing="a launch of its own for its stores", partner=s)

    def _into(self, place: Place, stmt: Copy, buffer: Buffer, facts: Facts) -> tuple[Expr, ...]:
        """Where the box goes: whole chunks, no element of the buffer twice."""
        extents = tuple(place.expr(e) for e in buffer.shape)
        here = self.engines.statements.index(place, stmt.dst, facts, extents, "a copy fills")
        count, last = CHUNK // buffer.dtype.itemsize, len(stmt.box) - 1
        if not count or stmt.box[last] % count:
            raise Refused("J4", f"rows of {stmt.box[last]} elements are no whole chunks", {"elements": stmt.box[last]})
        start = here[-1] - sym(f"${last}")
        if any(f"${last}" in e.symbols for e in (*here[:-1], start)):
            raise Refused("J4", f"the elements of a chunk of {buffer.name} are no run", {})
        if _odd(facts, start, count) or (extents[-1].constant or 1) % count or buffer.align % CHUNK:
            raise Refused("J4", f"chunks of {buffer.name} are not aligned to {CHUNK} bytes", {})
        names = tuple(f"${i}" for i in range(len(stmt.box)))
        try:
            if not Relation.of(IndexMap(names, here, box(names, list(stmt.box))), place.facts).is_injective:
                raise Refused("J2", f"two threads copy into one element of {buffer.name}", {}, partner=stmt)
        except Inexpressible as term:
            raise Unsure("J4", f"a copy into {buffer.name} at {term}", missing="an affine index") from None
        return here

    def _chunks(self, stmt: Copy, far: Tensor | Buffer, there: tuple[Expr, ...], facts: Facts) -> None:
        """Chunks lie along the contiguous axis and begin at whole ones."""
        unit = self.engines.unit(far) if isinstance(far, Tensor) else len(there) - 1
        count, last = CHUNK // far.dtype.itemsize, f"${len(stmt.box) - 1}"
        if unit >= len(there):
            raise Refused("J1", f"{far.name} has another rank", {})
        start = there[unit] - sym(last)
        if last in start.symbols or any(last in e.symbols for i, e in enumerate(there) if i != unit):
            raise Refused("J4", f"the elements of a chunk of {far.name} are no run", {})
        if _odd(facts, start, count):
            raise Unsure("J4", f"chunks of {far.name} start at {start}", missing=f"a multiple of {count} elements")
        if any(e.functions for e in there):
            raise Unsure("J4", f"chunks of {far.name} at values of the run", missing="an affine index")


def _odd(facts: Facts, start: Expr, count: int) -> bool:
    """Whether a start is not shown to be a multiple."""
    return any(c % count for _, c in start.terms) and not facts.equal(start % count, Expr(()))
