"""J1, J4 and J7 of what a copy engine moves: boxes of tensor maps, and runs of bytes without a map.

A box is read with zeros outside the tensor and written clipped to it, so that its edges need no mask; its bytes always
count whole. A run is a stretch of one axis: the engine knows no tensor, so every element of it must exist, and it moves
whole chunks of 16 bytes at addresses that are multiples of 16; its bytes are those of the elements that it copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from treadle.algebra.expr import Constraint, Expr, eq, ge, lt, sym
from treadle.algebra.maps import IndexMap, box
from treadle.algebra.sets import Facts, Inexpressible, Region, Relation, is_opaque
from treadle.checker.compare import split
from treadle.checker.state import Place
from treadle.checker.statements import Statements
from treadle.checker.steps import run_length
from treadle.checker.storage import Contents, Written, from_all, read
from treadle.checker.terms import Cell, Num, Pieces, Undef, substituted, undefined
from treadle.checker.verdict import Refused, Unsure, require
from treadle.ir.core import Tensor
from treadle.ir.guard import Aligned, Divisible, Pitch, Unit
from treadle.machine.form import Buffer, Copy, MachineProgram, MemRef, Store, StoreClaim, walk
from treadle.machine.vocabulary import BOX_EFFECTS, RANK

ROWS = (128, 64, 32)
"""Bytes of the inner extent of a swizzled box: those of its mode; the pattern of addresses repeats after eight of them.
*Source*: PTX ISA 9.0, "Tensors": swizzling modes."""

SPAN = 128
"""Bytes that boxes without a swizzle begin at multiples of."""


CHUNK = 16
"""Bytes that a box's store writes as one: of a last chunk that the tensor ends in, those beyond too; and bytes that
boxes begin at multiples of, or the copy faults. *Source*: seen on an H200
(benchmarks/results/2026-11-29-spine-check.json: 513 columns of bf16, the frame to column 520 overwritten;
benchmarks/results/2026-11-30-box-starts.json: illegal instructions)."""


def filled(contents: Contents, index: tuple[Expr, ...], facts: Facts, name: str) -> Pieces:
    """What the element at `index` of a slot holds after its step: what engines brought, else nothing."""
    if not contents.layers or contents.layers[0].whole:
        return read(contents, index, facts, name)
    top = contents.layers[0]
    try:
        here = Region.of(IndexMap((), index), facts)
        brought = Region.nothing(len(index))
        for event in top.written:
            brought = brought | (Region.of(event.map, facts) if event.sure else Region.nothing(len(index)))
        if here <= brought:
            return some(read(contents, index, facts, name))
        ways = (here & brought).when(facts)
    except Inexpressible as term:
        raise Unsure("J1", f"{name}: the filled part has the term {term}", missing="an affine index") from None
    pieces = substituted(top.pieces, {f"${i}": e for i, e in enumerate(index)})
    return (
        *(((*w, *conds), term) for w in ways for conds, term in some(pieces)),
        *undefined(f"{name} is not filled there"),
    )


def some(pieces: Pieces) -> Pieces:
    """Where the version tells nothing, an engine brought some value all the same."""
    return tuple((conds, replace(t, some=True) if isinstance(t, Undef) else t) for conds, t in pieces)


_MERGED = {
    "add": ("i32", "u32", "u64", "f32", "f16", "bf16"),
    **dict.fromkeys(("max", "min"), ("i32", "u32", "i64", "u64")),
}
"""Dtypes that boxes are merged in. *Source*: PTX ISA 9.0, cp.reduce.async.bulk.tensor with the types of tensor maps."""


class Engines:
    """The rules of `Copy`."""

    def __init__(self, statements: Statements, program: MachineProgram) -> None:
        self.statements = statements
        self.program = program
        self.maps = {m.name: m for m in program.host.maps}

    def copy(self, place: Place, stmt: Copy) -> None:
        """`Copy`. *Errors*: findings of J1, J4 and J7."""
        match stmt.engine:
            case "tma.load":
                self._load(place, stmt)
            case engine if engine in BOX_EFFECTS:
                self._store(place, stmt)
            case "bulk.load":
                self._load_run(place, stmt)
            case "bulk.store":
                self._store_run(place, stmt)
            case _:
                raise Unsure("J2", f"the engine {stmt.engine}", missing=f"a rule for {stmt.engine}")

    # ---- what both share

    def tensor(self, name: str) -> Tensor | None:
        return next((t for t in self.program.program.tensors if t.name == name), None)

    def room(self, name: str) -> Buffer | None:
        """The workspace of this name."""
        return next((b for b in self.program.host.workspace if b.name == name), None)

    def _map(self, place: Place, stmt: Copy, memory: MemRef, ref: MemRef) -> Buffer:
        """The buffer of a box, once its map agrees with it and with the tensor or workspace on the other side."""
        buffer = place.buffers.get(memory.name)
        tensor, room = self.tensor(ref.name), self.room(ref.name)
        far = tensor or room
        m = self.maps.get(stmt.map or "")
        if buffer is None or far is None or buffer.place != "shared":
            raise Refused("J1", f"a box between {stmt.src.name} and {stmt.dst.name}", {})
        if buffer.align % SPAN:  # its offset is a multiple of that, and so is where a workgroup's memory begins
            reason = f"{buffer.name} is aligned to {buffer.align} bytes: boxes lie at multiples of {SPAN}"
            raise Refused("J4", reason, {"align": buffer.align})
        if m is None or m.tensor != far.name:
            raise Refused("J7", f"the tensor map {stmt.map} is none of {far.name}", {})
        if m.box != stmt.box or m.dtype != far.dtype or buffer.dtype != far.dtype or m.swizzle != buffer.swizzle:
            raise Refused("J7", f"the tensor map {m.name} has other boxes, elements or swizzle than the copy", {})
        rank = len(far.dims if isinstance(far, Tensor) else far.shape)
        if m.fill != "zero" or len(m.box) != rank or not 1 <= len(m.box) <= 5 or max(m.box) > 256:
            raise Refused("J7", f"the tensor map {m.name} of {len(m.box)} axes, boxes {m.box}, fill {m.fill}", {})
        unit = self.unit(far) if isinstance(far, Tensor) else rank - 1
        inner = m.box[unit] * far.dtype.bits // 8
        if (m.swizzle and (m.swizzle not in ROWS or inner != m.swizzle)) or inner % 16:
            raise Refused(
                "J7", f"the tensor map {m.name}: {inner} inner bytes with swizzle {m.swizzle}", {"bytes": inner}
            )
        if isinstance(far, Tensor):
            self.pitches(far)
            self.whole_bytes(place, stmt, far)
        else:
            self.row_pitch(far)
        return buffer

    def whole_bytes(self, place: Place, stmt: Copy, tensor: Tensor) -> None:
        """Boxes of elements of four bits begin with a byte, and so do their rows end; they are only read."""
        if not tensor.dtype.packed:
            return
        if stmt.engine != "tma.load":
            raise Unsure("J7", f"a box stored to {tensor.name} of {tensor.dtype}", missing="elements of whole bytes")
        unit = self.unit(tensor)
        start = place.expr(stmt.src.index[unit]) - sym(f"${unit}")
        if any(c % 2 for _, c in start.terms) and not place.facts.equal(start % 2, Expr(())):
            raise Unsure("J7", f"boxes of {tensor.name} start at {start}", missing="a multiple of 2 elements")
        extent = tensor.dims[unit].extent
        known = any(isinstance(f, Divisible) and f.expr == extent and f.by % 2 == 0 for f in self.program.guard.facts)
        if not known and any(c % 2 for _, c in extent.terms):
            raise Unsure("J7", f"boxes of {tensor.name}", missing=f"{extent} % 2 == 0 in the guard")

    def row_pitch(self, room: Buffer) -> None:
        """Workspace is row-major: whole chunks of 16 bytes a row, from the first on."""
        if room.dtype.packed:
            raise Unsure("J7", f"boxes of {room.name} of {room.dtype}", missing="elements of whole bytes")
        count = CHUNK // room.dtype.itemsize
        told = (f for f in self.program.guard.facts if isinstance(f, Divisible))
        whole = any(f.expr == room.shape[-1] and f.by % count == 0 for f in told)
        whole = whole or not any(c % count for _, c in room.shape[-1].terms)
        if room.align % CHUNK or room.versions or not whole:
            raise Unsure("J7", f"boxes of {room.name}", missing=f"rows of a multiple of {count} elements")

    def unit(self, tensor: Tensor) -> int:
        """The one axis that the guard says is contiguous: the innermost of the tensor's maps."""
        facts = self.program.guard.facts
        units = {f.axis for f in facts if isinstance(f, Unit) and f.tensor == tensor.name}
        if len(units) != 1:
            last = len(tensor.dims) - 1
            raise Unsure("J7", f"boxes of {tensor.name}", missing=f"unit({tensor.name}, {last}) in the guard")
        return units.pop()

    def pitches(self, tensor: Tensor) -> None:
        """Engines want 16-byte addresses and pitches, and elements side by side."""
        # Strides of elements of four bits count bytes.
        size = 1 if tensor.dtype.packed else tensor.dtype.itemsize
        facts, unit = self.program.guard.facts, self.unit(tensor)
        if not any(isinstance(f, Aligned) and f.tensor == tensor.name and f.bytes % 16 == 0 for f in facts):
            raise Unsure("J7", f"boxes of {tensor.name}", missing=f"align({tensor.name}) >= 16 in the guard")
        for axis in range(len(tensor.dims)):
            if axis != unit and not any(
                isinstance(f, Pitch) and f.tensor == tensor.name and f.axis == axis and f.by * size % 16 == 0
                for f in facts
            ):
                fact = f"pitch({tensor.name}, {axis}) % {max(1, 16 // size)} == 0"
                if any(isinstance(f, Pitch) and f.tensor == tensor.name and f.axis == axis for f in facts):
                    raise Unsure("J7", f"boxes of {tensor.name}", missing=f"{fact} in the guard")
                # The guard says nothing of it: it admits any pitch, and an engine takes whole 16 bytes.
                reason = f"boxes of {tensor.name} begin at rows whose pitch the guard does not bind"
                raise Refused("J7", reason, {f"pitch({tensor.name}, {axis})": 1}, missing=f"{fact} in the guard")

    def _places(
        self, place: Place, stmt: Copy, memory: MemRef, ref: MemRef, buffer: Buffer, facts: Facts
    ) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        """Index tuples in the buffer and the tensor for each slot of the box, once the box is one piece of the
        buffer."""
        slots = [f"${i}" for i in range(len(stmt.box))]
        there = tuple(place.expr(e, facts) for e in ref.index)
        if len(there) != len(stmt.box):
            raise Refused("J1", f"{ref.name} has {len(stmt.box)} axes", {})
        for i, (e, extent) in enumerate(zip(there, stmt.box)):
            rest = e - sym(slots[i]) if extent > 1 else e
            if rest.symbols & set(slots):
                raise Refused("J1", f"axis {i} of a box of {ref.name} does not follow its slot", {})
        extents = tuple(place.expr(e) for e in buffer.shape)
        here = self.statements.index(place, memory, facts, extents, "a box touches")
        # A box lies in shared memory as in the tensor: the contiguous axis last, the others in order.
        tensor = self.tensor(ref.name)
        unit = len(stmt.box) - 1 if tensor is None else self.unit(tensor)
        wide = sorted((i for i, extent in enumerate(stmt.box) if extent > 1), key=lambda i: (i == unit, i))
        lead = len(here) - len(wide)
        tail = [e.constant for e in extents[lead:]]
        straight = lead >= 0 and list(here[lead + 1 :]) == [sym(slots[i]) for i in wide[1:]]
        if not straight or tail[1:] != [stmt.box[i] for i in wide[1:]]:
            raise Refused("J4", f"a box of {stmt.box} is no piece of {buffer.name}", {})
        if wide:  # of the outermost axis a box may have a part, in steps of its size
            start, count, whole = here[lead] - sym(slots[wide[0]]), stmt.box[wide[0]], tail[0] or 0
            part = whole != count or start != Expr(())
            uneven = whole % count or any(c % count for _, c in start.terms) or bool(start.symbols & set(slots))
            if part and (uneven or (buffer.swizzle and len(wide) < 2)):
                raise Refused("J4", f"a box of {stmt.box} is no piece of {buffer.name}", {})
            tail[0] = count
        if any(e.symbols & set(slots) for e in here[:lead]):
            raise Refused("J4", f"a box of {stmt.box} is no piece of {buffer.name}", {})
        size = buffer.dtype.bits * prod(n or 1 for n in tail) // 8
        if size % (8 * buffer.swizzle or SPAN):
            raise Refused("J4", f"boxes of {size} bytes in {buffer.name} are not aligned", {"bytes": size})
        return here, there

    def _run(self, place: Place, stmt: Copy, memory: MemRef, ref: MemRef) -> tuple[Tensor, Buffer, int]:
        """The tensor, the buffer and the axis of the box of a run, once its ends are places for whole chunks."""
        buffer = place.buffers.get(memory.name)
        tensor = next((t for t in self.program.program.tensors if t.name == ref.name), None)
        if buffer is None or tensor is None or buffer.place != "shared" or buffer.swizzle:
            raise Refused("J1", f"a run between {stmt.src.name} and {stmt.dst.name}", {})
        if buffer.dtype != tensor.dtype or stmt.map is not None or tensor.dtype.packed:
            raise Refused("J1", f"a run of {tensor.dtype} in {buffer.name} of {buffer.dtype}", {})
        self.pitches(tensor)
        along = [axis for axis, extent in enumerate(stmt.box) if extent > 1] or [len(stmt.box) - 1]
        if len(along) != 1:
            raise Unsure("J4", f"a run of {stmt.box}", missing="one axis with more than one element")
        axis, slot, count = along[0], sym(f"${along[0]}"), CHUNK // tensor.dtype.itemsize
        facts = place.slots(stmt.box)
        for end, last, name in ((ref, self.unit(tensor), tensor.name), (memory, len(memory.index) - 1, buffer.name)):
            index = [place.expr(e, facts) for e in end.index]
            start = index[last] - slot
            fixed = (*index[:last], start, *index[last + 1 :])
            if any(f"${i}" in e.symbols for e in fixed for i in range(len(stmt.box))):
                raise Refused("J4", f"the elements of {name} are no run", {})
            if any(c % count for _, c in start.terms):
                raise Unsure("J4", f"a run of {name} starts at {start}", missing=f"a multiple of {count} elements")
        extents = [place.expr(e).constant for e in buffer.shape]
        if not extents or (extents[-1] or 1) % count or buffer.align % CHUNK:
            raise Refused("J4", f"rows of {buffer.name} are not aligned to {CHUNK} bytes", {})
        return tensor, buffer, axis

    def _length(self, place: Place, stmt: Copy, axis: int, count: int) -> Facts:
        """The facts of a run's elements: from the first on, at least one, all inside the box, whole chunks.

        *Errors*: findings of J4 and J7."""
        length = run_length(stmt, axis)
        if length is None:
            raise Unsure("J4", f"a run of the elements where {stmt.where[0]}", missing="one bound of its axis")
        length = place.expr(length)
        require(place.facts, ge(length, 1), "J4", "a run may be empty")
        require(place.facts, ge(Expr(()) + stmt.box[axis], length), "J4", f"a run passes its box {stmt.box}")
        known = isinstance(length.constant, int) and length.constant % count == 0
        if not known and not any(
            isinstance(f, Divisible) and f.expr == length and f.by % count == 0 for f in self.program.guard.facts
        ):
            raise Unsure("J7", f"a run of {length} elements", missing=f"{length} % {count} == 0 in the guard")
        return place.slots(stmt.box).also(lt(sym(f"${axis}"), length))

    def _load_run(self, place: Place, stmt: Copy) -> None:
        tensor, buffer, axis = self._run(place, stmt, stmt.dst, stmt.src)
        if tensor.name in self.statements.source.stored:
            raise Unsure(
                "J2", f"a run of {tensor.name}, which the program stores to", missing="a tensor that is only read"
            )
        facts = self._length(place, stmt, axis, CHUNK // tensor.dtype.itemsize)
        there = self.statements.index(place, stmt.src, facts, tuple(d.extent for d in tensor.dims), "a run reads")
        here = self.statements.index(place, stmt.dst, facts, tuple(place.expr(e) for e in buffer.shape), "a run fills")
        where = () if not stmt.where else place.constraints(stmt.where, facts)
        self.fills(place, stmt, buffer, here, (((), Cell(tensor.name, there, tensor.dtype)),), facts, where)

    def _store_run(self, place: Place, stmt: Copy) -> None:
        tensor, buffer, axis = self._run(place, stmt, stmt.src, stmt.dst)
        if not isinstance(stmt.claim, StoreClaim):
            raise Refused("J1", f"a run of {tensor.name} claims no store of the source", {})
        facts = self._length(place, stmt, axis, CHUNK // tensor.dtype.itemsize)
        here = self.statements.index(place, stmt.src, facts, tuple(place.expr(e) for e in buffer.shape), "a run reads")
        where = () if not stmt.where else place.constraints(stmt.where, facts)
        held = read(place.contents[buffer.name], here, facts, buffer.name)
        self.statements.store_elements(place, stmt, stmt.dst, stmt.box, tensor.dtype, where, facts, held)

    def _whole_chunks(self, tensor: Tensor, index: tuple[Expr, ...], facts: Facts) -> None:
        """Engines write whole chunks of 16 bytes: a box that passes the end must pass it at a chunk's."""
        unit = self.unit(tensor)
        extent, count = tensor.dims[unit].extent, CHUNK // tensor.dtype.itemsize
        whole = extent.constant is not None and extent.constant % count == 0
        whole = whole or any(
            isinstance(f, Divisible) and f.expr == extent and f.by % count == 0 for f in self.program.guard.facts
        )
        if not whole and not facts.implies(lt(index[unit], extent)):
            raise Unsure("J7", f"boxes of {tensor.name}", missing=f"{extent} % {count} == 0 in the guard")

    def _begins(self, far: Tensor | Buffer, index: tuple[Expr, ...], facts: Facts) -> None:
        """A box begins at a whole chunk of 16 bytes of its contiguous axis."""
        unit = self.unit(far) if isinstance(far, Tensor) else len(index) - 1
        count, start = 8 * CHUNK // far.dtype.bits, index[unit] - sym(f"${unit}")
        whole = eq(start % count, 0)
        if not any(c % count for _, c in start.terms) or facts.implies(whole):
            return
        case, wanted = facts.against(whole), f"a multiple of {count} elements"
        if case is None or is_opaque(case):
            raise Unsure("J7", f"boxes of {far.name} start at {start}", missing=wanted)
        raise Refused(
            "J7", f"a box of {far.name} starts at {start}: engines copy whole {CHUNK} bytes", case, missing=wanted
        )

    def _inside(self, tensor: Tensor, index: tuple[Expr, ...], facts: Facts) -> tuple[Constraint, ...]:
        found: list[Constraint] = []
        for e, dim in zip(index, tensor.dims):
            found += [c for c in (ge(e, 0), lt(e, dim.extent)) if not facts.implies(c)]
        return tuple(found)

    # ---- loads and stores

    def _load(self, place: Place, stmt: Copy) -> None:
        buffer = self._map(place, stmt, stmt.dst, stmt.src)
        room, tensor = self.room(stmt.src.name), self.tensor(stmt.src.name)
        if tensor is None and room is not None:
            self._load_room(place, stmt, room, buffer)
            return
        assert tensor is not None
        if tensor.name in self.statements.source.stored:
            raise Unsure(
                "J2", f"boxes of {tensor.name}, which the program stores to", missing="a tensor that is only read"
            )
        facts = place.slots(stmt.box)
        here, there = self._places(place, stmt, stmt.dst, stmt.src, buffer, facts)
        self._begins(tensor, there, facts)
        inside = self._inside(tensor, there, facts)
        cell = Cell(tensor.name, there, tensor.dtype)
        held: Pieces = ((inside, cell), ((), Num(0, tensor.dtype))) if inside else (((), cell),)
        self.fills(place, stmt, buffer, here, held, facts, ())

    def _load_room(self, place: Place, stmt: Copy, room: Buffer, buffer: Buffer) -> None:
        """A box of workspace that earlier launches filled: what it holds, and zeros beyond its ends."""
        for s in (s for role in place.kernel.roles for s in walk(role.body)):
            if isinstance(s, Store | Copy) and s.dst.name == room.name:
                raise Unsure("J2", f"boxes of {room.name}", missing="a launch of its own for its stores")
        facts = place.slots(stmt.box)
        here, there = self._places(place, stmt, stmt.dst, stmt.src, buffer, facts)
        self._begins(room, there, facts)
        ends = tuple(place.expr(e) for e in room.shape)
        inside = tuple(c for e, end in zip(there, ends) for c in (ge(e, 0), lt(e, end)) if not facts.implies(c))
        within = facts.also(*inside)
        held: Pieces = ()
        if not within.contradictory:
            held = tuple(
                ((*inside, *conds), term) for conds, term in read(place.contents[room.name], there, within, room.name)
            )
        if inside:
            held = (*held, ((), Num(0, room.dtype)))
        self.fills(place, stmt, buffer, here, held, facts, ())

    def fills(
        self,
        place: Place,
        stmt: Copy,
        buffer: Buffer,
        here: tuple[Expr, ...],
        held: Pieces,
        facts: Facts,
        where: tuple[Constraint, ...],
    ) -> None:
        """What the engine brings conforms to the version; its elements are written from here on."""
        contents = place.contents[buffer.name]
        if not contents.layers or contents.layers[0].whole:
            raise Unsure("J1", f"{buffer.name} is filled under no version", missing=f"a version of {buffer.name}")
        names = tuple(f"${i}" for i in range(len(stmt.box)))
        map_ = IndexMap(names, here, (*box(names, stmt.box), *where))
        if stmt.multicast:
            map_ = self._from_all(place, buffer, contents.layers[0].pieces, map_, stmt)
        if stmt.dst.version is not None:
            # Before what it brings: of two copies into one element, one is wrong there as well, and the pair says more.
            self._once(place, stmt, contents.layers[0].written, map_)
        wanted = substituted(contents.layers[0].pieces, {f"${i}": e for i, e in enumerate(here)})
        for case, want in split(facts, wanted):
            if not isinstance(want, Undef):
                self.statements.prove(place, case, held, want)
        written = Written(map_, by=stmt)
        place.contents[buffer.name] = contents.stored(written)

    def _once(self, place: Place, stmt: Copy, before: Sequence[Written], map_: IndexMap) -> None:
        """No element of a slot is copied twice in one step: nothing orders two copies."""
        try:
            mine = Region.of(map_, place.facts)
            meet = [(mine & Region.of(w.map, place.facts), w.by) for w in before]
        except Inexpressible as term:
            raise Unsure("J2", f"a copy into {stmt.dst.name} at {term}", missing="an affine index") from None
        for twice, other in meet:
            if not twice.is_empty:
                reason = f"two copies into one element of {stmt.dst.name} in one step"
                raise Refused("J2", reason, twice.sample() or {}, partner=other or stmt)

    def _from_all(self, place: Place, buffer: Buffer, pieces: Pieces, mine: IndexMap, stmt: Copy) -> IndexMap:
        """Where boxes of all workgroups of the cluster come to rest in each of them: what the version says is the same
        in all, and no two workgroups' boxes meet."""
        if substituted(pieces, {RANK: sym("another")}) != pieces:
            raise Unsure(
                "J1", f"{buffer.name} differs from workgroup to workgroup", missing="a version without the rank"
            )
        all_ = from_all(mine, stmt.multicast)
        try:
            relation = Relation.of(all_, place.facts)
        except Inexpressible as term:
            raise Unsure("J2", f"boxes of {buffer.name} have the term {term}", missing="an affine index") from None
        if not relation.is_injective:
            reason = f"two workgroups send to one place of {buffer.name}"
            raise Refused("J2", reason, relation.collision(), partner=stmt)
        return all_

    def _store(self, place: Place, stmt: Copy) -> None:
        buffer, tensor = self._map(place, stmt, stmt.src, stmt.dst), self.tensor(stmt.dst.name)
        if tensor is None:
            raise Unsure("J2", f"a box stored to {stmt.dst.name}", missing="a rule for boxes into workspace")
        if not isinstance(stmt.claim, StoreClaim):
            raise Refused("J1", f"a box of {tensor.name} claims no store of the source", {})
        effect = BOX_EFFECTS[stmt.engine]
        if effect != "set" and tensor.dtype.name not in _MERGED[effect]:
            raise Refused("J7", f"{stmt.engine} of elements of {tensor.dtype}", {})
        others = (s for role in place.kernel.roles for s in walk(role.body) if isinstance(s, Store))
        if effect != "set" and any(s.dst.name == tensor.name for s in others):
            raise Unsure("J2", f"threads and engines update {tensor.name}", missing="one of the two in a launch")
        facts = place.slots(stmt.box)
        here, there = self._places(place, stmt, stmt.src, stmt.dst, buffer, facts)
        inside = self._inside(tensor, there, facts)
        self._begins(tensor, there, facts)
        self._whole_chunks(tensor, there, facts)
        within = facts.also(*inside)
        if within.contradictory:
            return
        held = read(place.contents[buffer.name], here, within, buffer.name)
        self.statements.store_elements(place, stmt, stmt.dst, stmt.box, tensor.dtype, inside, within, held)
