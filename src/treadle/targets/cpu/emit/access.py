"""Loads and stores of whole fragments: along which axis vectors run in memory.

Along the fragment's own vector axis where memory has step 1 or 0 there. When another axis has step 1, vectors run along
that one and a block is transposed in registers. A group of neighbours on the last axis is interleaved with the axis
before. Else vectors are gathered or scattered (`moves.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.algebra.expr import Constraint, sym
from treadle.dtype.formats import bool_, u32
from treadle.machine.form import Load, Store
from treadle.targets.cpu.emit.errors import ill_formed
from treadle.targets.cpu.emit.fours import moved
from treadle.targets.cpu.emit.index import IndexWriter, Point, coordinate
from treadle.targets.cpu.emit.lanes import Lanes, Vec, chunks
from treadle.targets.cpu.emit.masks import Mask
from treadle.targets.cpu.emit.moves import Moves
from treadle.targets.cpu.emit.places import Memory, Place
from treadle.targets.cpu.emit.registers import Registers
from treadle.targets.cpu.emit.text import Function

LEAST_TURNED = 4
"""Elements along a contiguous axis from which vectors along it, transposed, beat a gather along the other."""


class Access:
    """The loads and stores of one function."""

    def __init__(
        self, registers: Registers, index: IndexWriter, moves: Moves, width: int, shifted: frozenset[str] = frozenset()
    ) -> None:
        self.registers = registers
        self.shifted = shifted
        self.index = index
        self.moves = moves
        self.width = width
        self.fn: Function = index.fn
        self.lanes: Lanes = index.lanes

    # ---- statements

    def load(self, stmt: Load, memory: Memory, where: Sequence[Constraint]) -> None:
        """`dst[$] = src` where active, else the fill."""
        frag = self.registers.frag(stmt.dst)
        if memory.dtype != frag.dtype:
            raise ill_formed(f"a load of {memory.dtype} into {stmt.dst}", f"the fragment's {frag.dtype}")
        rank = len(frag.shape)
        place = Place(self.index, memory, stmt.src, rank)
        mask = Mask(self.index, where, rank)
        points = self.registers.points(stmt.dst)
        own = points[0].axis
        if own is not None and self._is_grouped(place, frag.shape, own):
            self._load_grouped(stmt, place, mask, points)
            return
        axis = self._turned_axis(place, frag.shape, own)
        if axis is not None and own is not None:
            self._load_turned(stmt, place, mask, axis, own)
            return
        for point in points:
            self.registers.write(stmt.dst, point, self.moves.fetch(place, point, mask.at(point), stmt.fill))

    def store(self, stmt: Store, memory: Memory, where: Sequence[Constraint]) -> None:
        """`dst = src[$]` where active."""
        shape = self._store_shape(stmt)
        rank = len(shape)
        place = Place(self.index, memory, stmt.dst, rank)
        mask = Mask(self.index, where, rank)
        stream = "stream" in stmt.tags
        own = self.registers.axis(stmt.src.name) if rank else None
        points = (
            [Point(())]
            if own is None
            else self.registers.vector_points(shape, own, self.registers.width_of(stmt.src.name))
        )
        if own is not None and stmt.effect == "set":
            if self._is_grouped(place, shape, own):
                self._store_grouped(stmt, place, mask, points)
                return
            joined = self._joined(stmt, memory, own, where)
            if joined is not None:
                self._store_joined(stmt, place, *joined, own, shape)
                return
            axis = self._turned_axis(place, shape, own)
            if axis is not None:
                self._store_turned(stmt, place, mask, axis, own, shape)
                return
        for point in points:
            value = self.lanes.splat(self._source(stmt, point), point.lanes)
            if value.dtype != memory.dtype:
                raise ill_formed(f"a store of {value.dtype} to {memory.name}", f"its {memory.dtype}")
            active = self._with_mask(stmt, point, mask.at(point))
            if stmt.effect == "set":
                self.moves.put(place, point, value, active, stream)
            else:
                before = self.moves.accumulate(place, point, value, active, stmt.effect, stmt.old is not None)
                if stmt.old is not None:
                    self.registers.write(stmt.old, point, before)

    def _source(self, stmt: Store, point: Point) -> Vec:
        """What is stored, as its buffer holds it."""
        value = self.registers.read(stmt.src, point)
        return moved(self.registers, value) if stmt.dst.name in self.shifted else value

    def _store_shape(self, stmt: Store) -> tuple[int, ...]:
        name = stmt.src.name
        shape = () if name in self.registers.constants else self.registers.frag(name).shape
        if stmt.src.coords is not None and len(stmt.src.coords) != len(shape):
            raise ill_formed(f"{len(stmt.src.coords)} coordinates of {name}", f"{len(shape)}")
        return shape

    def _with_mask(self, stmt: Store, point: Point, active: str | None) -> str | None:
        if stmt.mask is None:
            return active
        mine = self.lanes.splat(self.registers.read(stmt.mask, point), point.lanes)
        if active is None:
            return mine.text
        return self.fn.value(f"and {mine.type} {active}, {mine.text}")

    def _turned_axis(self, place: Place, shape: tuple[int, ...], own: int | None) -> int | None:
        """Another axis than that of the vectors along which memory is contiguous, when along theirs it is strided."""
        if own is None or len(shape) < 2 or shape[own] < 2 or place.steps is None or place.steps[own] in (0, 1):
            return None
        found = [i for i in range(len(shape)) if i != own and place.steps[i] == 1 and shape[i] >= LEAST_TURNED]
        return max(found, key=lambda i: shape[i]) if found else None

    def _is_grouped(self, place: Place, shape: tuple[int, ...], own: int) -> bool:
        """Whether vectors along `own`, interleaved over the groups of the last axis, are contiguous in memory."""
        last = len(shape) - 1
        if own == last or place.steps is None or shape[last] not in (2, 4):
            return False
        return place.steps[last] == 1 and place.steps[own] == shape[last]

    # ---- turned blocks

    def _load_turned(self, stmt: Load, place: Place, mask: Mask, axis: int, own: int) -> None:
        shape = self.registers.frag(stmt.dst).shape
        for base in self._blocks(shape, axis, own):
            rows, lanes = self._extent(shape, axis, base), self._extent(shape, own, base)
            got: list[Vec] = []
            for j in range(lanes):
                point = Point(_moved(base.at, own, j), axis, rows)
                got.append(self.moves.fetch(place, point, mask.at(point), stmt.fill))
            for i, column in enumerate(self.lanes.transpose(got)):
                self.registers.write(stmt.dst, Point(_moved(base.at, axis, i), own, lanes), column)

    def _store_turned(self, stmt: Store, place: Place, mask: Mask, axis: int, own: int, shape: tuple[int, ...]) -> None:
        for base in self._blocks(shape, axis, own):
            rows, lanes = self._extent(shape, axis, base), self._extent(shape, own, base)
            points = [Point(_moved(base.at, axis, i), own, lanes) for i in range(rows)]
            got = [self.lanes.splat(self._source(stmt, p), lanes) for p in points]
            for j, column in enumerate(self.lanes.transpose(got)):
                point = Point(_moved(base.at, own, j), axis, rows)
                active = self._with_mask(stmt, point, mask.at(point))
                self.moves.put(place, point, column, active, "stream" in stmt.tags)

    def _blocks(self, shape: tuple[int, ...], axis: int, own: int) -> list[Point]:
        return [
            Point(_moved(p.at, axis, start))
            for p in self.registers.vector_points(shape, own)
            if p.at[axis] == 0
            for start, _ in chunks(shape[axis], self.width)
        ]

    def _extent(self, shape: tuple[int, ...], axis: int, base: Point) -> int:
        return min(self.width, shape[axis] - base.at[axis])

    # ---- fragments of groups

    def load_apart(self, stmt: Load, memory: Memory, where: Sequence[Constraint]) -> None:
        """`dst[$] = src` of a fragment that is kept as groups of 32 bits, each member from a place of its own."""
        many = 32 // memory.dtype.bits
        rank = len(self.registers.frag(stmt.dst).shape)
        place, mask = Place(self.index, memory, stmt.src, rank + 1), Mask(self.index, where, rank + 1)
        for point in self.registers.points(stmt.dst):
            members: list[Vec] = []
            for j in range(many):
                one = point.extended((j,))
                members.append(self.moves.fetch(place, one, mask.at(one), stmt.fill))
            n = point.lanes
            both = self.lanes.assemble([(v, 0) for v in members]) if n is None else self.lanes.interleave(members)
            kind = "i32" if n is None else f"<{n} x i32>"
            text = self.fn.value(f"bitcast {both.type} {both.text} to {kind}")
            self.registers.write(stmt.dst, point, Vec(text, u32, n))

    # ---- blocks whose groups of neighbours are turned as one element

    def _joined(self, stmt: Store, memory: Memory, own: int, where: Sequence[Constraint]) -> tuple[int, int] | None:
        """Another axis, and a number of neighbours along the vectors that are 32 bits together and stay neighbours in
        memory, where groups of them lie one behind the other along that axis."""
        many = 32 // memory.dtype.bits
        index, along = stmt.dst.index, sym(coordinate(own))
        if where or stmt.mask is not None or many not in (2, 4) or len(index) < 3 or memory.packed:
            return None
        if memory.strides[-1] != 1 or memory.strides[-2] != many or index[-1] != along % many:
            return None
        rest = [e for e in index[:-1] if coordinate(own) in e.symbols]
        if len(rest) != 1 or rest[0] is index[-2] or coordinate(own) in (rest[0] - along // many).symbols:
            return None
        rank = len(self._store_shape(stmt))
        found = [
            i
            for i in range(rank)
            if i != own
            and coordinate(i) not in (index[-2] - sym(coordinate(i))).symbols
            and not any(coordinate(i) in e.symbols for e in (*index[:-2], index[-1]))
        ]
        whole = self._store_shape(stmt)[own] % many == 0 and self.width % many == 0
        return (found[0], many) if found and whole else None

    def _store_joined(self, stmt: Store, place: Place, axis: int, many: int, own: int, shape: tuple[int, ...]) -> None:
        for base in self._blocks(shape, axis, own):
            rows, lanes = self._extent(shape, axis, base), self._extent(shape, own, base)
            got: list[Vec] = []
            for i in range(rows):
                value = self.lanes.splat(self._source(stmt, Point(_moved(base.at, axis, i), own, lanes)), lanes)
                bits = self.fn.value(f"bitcast {value.type} {value.text} to <{lanes // many} x i32>")
                got.append(Vec(bits, u32, lanes // many))
            for j, column in enumerate(self.lanes.transpose(got)):
                pointer = place.at(Point(_moved(base.at, own, many * j))).pointer
                self.fn.do(f"store {column.type} {column.text}, ptr {pointer}, align {32 // 8 // many}")

    # ---- groups: vectors that are interleaved in memory

    def _groups(self, points: Sequence[Point]) -> list[Point]:
        """The first point of each group."""
        return [p for p in points if p.at[-1] == 0]

    def _group_mask(self, mask: Mask, members: Sequence[Point], more: Sequence[str | None]) -> str | None:
        """The members' masks interleaved; `more` are further masks of the members."""
        n = members[0].lanes or 1
        found: list[str | None] = []
        for point, extra in zip(members, more):
            own = mask.at(point)
            both = own if extra is None else extra if own is None else self.fn.value(f"and <{n} x i1> {own}, {extra}")
            found.append(both)
        if all(m is None for m in found):
            return None
        return self.lanes.interleave([Vec(m or "splat (i1 true)", bool_, n) for m in found]).text

    def _load_grouped(self, stmt: Load, place: Place, mask: Mask, points: Sequence[Point]) -> None:
        size = self.registers.frag(stmt.dst).shape[-1]
        for first in self._groups(points):
            members = [Point(_moved(first.at, len(first.at) - 1, j), first.axis, first.lanes) for j in range(size)]
            active = self._group_mask(mask, members, [None] * size)
            n = first.lanes or 1
            whole = self.moves.fetch(place, Point(first.at, len(first.at) - 1, n * size), active, stmt.fill)
            for j, point in enumerate(members):
                part = self.lanes.shuffle(whole, None, [i * size + j for i in range(n)])
                self.registers.write(stmt.dst, point, part)

    def _store_grouped(self, stmt: Store, place: Place, mask: Mask, points: Sequence[Point]) -> None:
        size = self.registers.frag(stmt.src.name).shape[-1]
        for first in self._groups(points):
            members = [Point(_moved(first.at, len(first.at) - 1, j), first.axis, first.lanes) for j in range(size)]
            values = [self.lanes.splat(self._source(stmt, p), p.lanes) for p in members]
            more: list[str | None] = [None] * size
            if stmt.mask is not None:
                more = [self._with_mask(stmt, p, None) for p in members]
            active = self._group_mask(mask, members, more)
            whole = Point(first.at, len(first.at) - 1, (first.lanes or 1) * size)
            self.moves.put(place, whole, self.lanes.interleave(values), active, "stream" in stmt.tags)


def _moved(at: tuple[int, ...], axis: int, by: int) -> tuple[int, ...]:
    return (*at[:axis], at[axis] + by, *at[axis + 1 :])
