"""Loads and stores: which instruction moves a vector, by how the address changes along its lanes.

Address step along the lanes 1: a contiguous vector, masked where the statement is. Step 0: one element for all lanes.
Otherwise, when another axis of the fragment has step 1, vectors run along that axis and a block is transposed in
registers; else a gather or scatter. Lanes that are not active are never accessed. Strides of tensors are values of the
call; the guard's `unit` facts make them numbers here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from treadle.algebra.expr import ZERO, Constraint, Expr
from treadle.dtype.formats import DType, bool_
from treadle.machine.form import Fill, Load, MemRef, Store
from treadle.targets.cpu.emit.arith import Arith
from treadle.targets.cpu.emit.errors import ill_formed, unsupported
from treadle.targets.cpu.emit.index import IndexWriter, Point, coordinate, split, split_by
from treadle.targets.cpu.emit.lanes import Lanes, Vec, chunks, constant, memory_type, vector
from treadle.targets.cpu.emit.masks import Mask
from treadle.targets.cpu.emit.registers import Registers
from treadle.targets.cpu.emit.text import Function, Int


@dataclass(frozen=True)
class Memory:
    """A tensor or buffer in one function: its base and the step of each axis, in elements. Steps of a version, bytes of
    alignment that the base has."""

    name: str
    dtype: DType
    base: str
    strides: tuple[Int, ...]
    versions: int = 0
    version_step: Int = 0


@dataclass(frozen=True)
class _Spot:
    """Where a point's first lane is, and how lanes follow: a step in elements, or a vector of offsets from the base."""

    pointer: str
    step: Int | None
    offsets: str = ""


class Place:
    """The memory operand of one statement: addresses at its points."""

    def __init__(self, index: IndexWriter, memory: Memory, ref: MemRef, rank: int) -> None:
        if len(ref.index) != len(memory.strides):
            raise ill_formed(f"{len(ref.index)} subscripts of {ref.name}", f"{len(memory.strides)}")
        self.index = index
        self.fn = index.fn
        self.memory = memory
        self.kind = memory_type(memory.dtype)
        self._subscripts = ref.index
        self._base = self._versioned(ref)
        self.steps: tuple[Int, ...] | None = None
        parts = [split(e, rank) for e in ref.index]
        known = [p for p in parts if p is not None]
        if len(known) == len(parts):
            base: Int = 0
            for p, stride in zip(known, memory.strides):
                base = self.fn.add(base, self.fn.mul(index.value(p.rest), stride))
            self._base = self._offset(self._base, base)
            self.steps = tuple(self._step([p.factors[i] for p in known]) for i in range(rank))

    def _step(self, factors: Sequence[Expr]) -> Int:
        total: Int = 0
        for f, stride in zip(factors, self.memory.strides):
            if f != ZERO:
                total = self.fn.add(total, self.fn.mul(self.index.value(f), stride))
        return total

    def _versioned(self, ref: MemRef) -> str:
        if ref.version is None or self.memory.versions < 2:
            return self.memory.base
        slot = self.index.value(ref.version % self.memory.versions)
        return self._offset(self.memory.base, self.fn.mul(slot, self.memory.version_step))

    def _offset(self, pointer: str, elements: Int) -> str:
        if elements == 0:
            return pointer
        return self.fn.value(f"getelementptr {self.kind}, ptr {pointer}, i64 {elements}")

    def step(self, axis: int) -> Int | None:
        """The address step along an axis where it is the same everywhere; None: it is not."""
        return None if self.steps is None else self.steps[axis]

    def at(self, point: Point) -> _Spot:
        """Addresses at a point."""
        if self.steps is not None:
            total: Int = 0
            for step, a in zip(self.steps, point.at):
                total = self.fn.add(total, self.fn.mul(step, a))
            step = 0 if point.axis is None else self.steps[point.axis]
            return _Spot(self._offset(self._base, total), step)
        return self._general(point)

    def _general(self, point: Point) -> _Spot:
        first: Int = 0
        step: Int = 0
        name = "" if point.axis is None or point.lanes is None else coordinate(point.axis)
        for e, stride in zip(self._subscripts, self.memory.strides):
            if not name or name not in e.symbols:
                first = self.fn.add(first, self.fn.mul(self.index.value(e, point), stride))
                continue
            parts = split_by(e, (name,))
            if parts is None:
                return self._scattered(point)
            factor = self.index.value(parts.factors[0], point)
            first = self.fn.add(first, self.fn.mul(self.index.value(e, point), stride))
            step = self.fn.add(step, self.fn.mul(factor, stride))
        return _Spot(self._offset(self._base, first), step)

    def _scattered(self, point: Point) -> _Spot:
        n = point.lanes or 1
        lanes = self.index.lanes
        total = "zeroinitializer"
        for e, stride in zip(self._subscripts, self.memory.strides):
            if stride == 0:
                continue
            v = self.index.vector(e, point)
            if stride != 1:
                v = self.fn.value(f"mul <{n} x i64> {v}, {lanes.splat_int(stride, n)}")
            total = v if total == "zeroinitializer" else self.fn.value(f"add <{n} x i64> {total}, {v}")
        return _Spot(self._base, None, total)

    def pointers(self, spot: _Spot, lanes: int) -> str:
        """The vector of addresses."""
        offsets = spot.offsets
        if spot.step is not None:
            if isinstance(spot.step, int):
                offsets = self.index.lanes.iota(0, lanes, step=spot.step)
            else:
                count, step = self.index.lanes.iota(0, lanes), self.index.lanes.splat_int(spot.step, lanes)
                offsets = self.fn.value(f"mul <{lanes} x i64> {count}, {step}")
        return self.fn.value(f"getelementptr {self.kind}, ptr {spot.pointer}, <{lanes} x i64> {offsets}")


class Access:
    """The loads and stores of one function."""

    def __init__(self, registers: Registers, index: IndexWriter, arith: Arith, width: int) -> None:
        self.registers = registers
        self.index = index
        self.arith = arith
        self.width = width
        self.fn: Function = index.fn
        self.lanes: Lanes = index.lanes
        self.streamed = False

    # ---- statements

    def load(self, stmt: Load, memory: Memory, where: Sequence[Constraint]) -> None:
        """`dst[$] = src` where active, else the fill."""
        frag = self.registers.frag(stmt.dst)
        if memory.dtype != frag.dtype:
            raise ill_formed(f"a load of {memory.dtype} into {stmt.dst}", f"the fragment's {frag.dtype}")
        rank = len(frag.shape)
        place = Place(self.index, memory, stmt.src, rank)
        mask = Mask(self.index, where, rank)
        ahead = prefetch_distance(stmt.tags)
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
            if ahead:
                self.prefetch(place, point, ahead)
            self.registers.write(stmt.dst, point, self.fetch(place, point, mask.at(point), stmt.fill))

    def store(self, stmt: Store, memory: Memory, where: Sequence[Constraint]) -> None:
        """`dst = src[$]` where active."""
        shape = self._store_shape(stmt)
        rank = len(shape)
        place = Place(self.index, memory, stmt.dst, rank)
        mask = Mask(self.index, where, rank)
        stream = "stream" in stmt.tags
        own = self.registers.axis(stmt.src.name) if rank else None
        points = [Point(())] if own is None else self.registers.vector_points(shape, own)
        if own is not None and stmt.effect == "set":
            if self._is_grouped(place, shape, own):
                self._store_grouped(stmt, place, mask, points)
                return
            axis = self._turned_axis(place, shape, own)
            if axis is not None:
                self._store_turned(stmt, place, mask, axis, own, shape)
                return
        for point in points:
            value = self.lanes.splat(self.registers.read(stmt.src, point), point.lanes)
            if value.dtype != memory.dtype:
                raise ill_formed(f"a store of {value.dtype} to {memory.name}", f"its {memory.dtype}")
            active = self._with_mask(stmt, point, mask.at(point))
            if stmt.effect == "set":
                self.put(place, point, value, active, stream)
            else:
                self._accumulate(place, point, value, active, stmt.effect)

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
        found = [i for i in range(len(shape)) if i != own and place.steps[i] == 1 and shape[i] > 1]
        return max(found, key=lambda i: shape[i]) if found else None

    def _is_grouped(self, place: Place, shape: tuple[int, ...], own: int) -> bool:
        """Whether vectors along `own`, interleaved over the groups of the last axis, are contiguous in memory."""
        last = len(shape) - 1
        if own == last or place.steps is None or shape[last] not in (2, 4):
            return False
        return place.steps[last] == 1 and place.steps[own] == shape[last]

    # ---- one vector

    def fetch(self, place: Place, point: Point, active: str | None, fill: Fill) -> Vec:
        """Elements at a point; inactive lanes have the fill."""
        dtype = place.memory.dtype
        spot = place.at(point)
        if point.lanes is None:
            return self._fetch_one(place, spot, active, fill)
        n = point.lanes
        size = dtype.itemsize
        kind = vector(place.kind, n)
        if spot.step == 0:
            some = None if active is None else self._any(active, n)
            element = self.lanes.splat(self._fetch_one(place, spot, some, fill), n)
            return element if active is None else self._filled(element, active, fill)
        if spot.step == 1 and active is None:
            return self._fetch_whole(place, spot, n)
        other = self._fill_text(place, fill, n)
        mask = active or "splat (i1 true)"
        if spot.step == 1:
            text = self.fn.call(
                kind,
                f"llvm.masked.load.v{n}{_mangled(place.kind)}.p0",
                [(f"ptr align {size}", spot.pointer), (f"<{n} x i1>", mask), (kind, other)],
            )
        else:
            text = self.fn.call(
                kind,
                f"llvm.masked.gather.v{n}{_mangled(place.kind)}.v{n}p0",
                [(f"<{n} x ptr> align {size}", place.pointers(spot, n)), (f"<{n} x i1>", mask), (kind, other)],
            )
        return self._typed(text, dtype, n)

    def _fetch_whole(self, place: Place, spot: _Spot, n: int) -> Vec:
        """A contiguous vector. An odd number of lanes is one masked access; LLVM would split it into several."""
        size, wide = place.memory.dtype.itemsize, padded(n)
        if wide == n or size < 4:
            text = self.fn.value(f"load {vector(place.kind, n)}, ptr {spot.pointer}, align {size}")
            return self._typed(text, place.memory.dtype, n)
        kind = vector(place.kind, wide)
        text = self.fn.call(
            kind,
            f"llvm.masked.load.v{wide}{_mangled(place.kind)}.p0",
            [(f"ptr align {size}", spot.pointer), (f"<{wide} x i1>", first_lanes(n, wide)), (kind, "poison")],
        )
        return self.lanes.shuffle(self._typed(text, place.memory.dtype, wide), None, list(range(n)))

    def _fetch_one(self, place: Place, spot: _Spot, active: str | None, fill: Fill) -> Vec:
        dtype, size = place.memory.dtype, place.memory.dtype.itemsize
        if active is None:
            return self._typed(self.fn.value(f"load {place.kind}, ptr {spot.pointer}, align {size}"), dtype, None)
        yes, done, before = self.fn.label("load"), self.fn.label("loaded"), self.fn.block
        self.fn.branch(active, yes, done)
        self.fn.start(yes)
        text = self.fn.value(f"load {place.kind}, ptr {spot.pointer}, align {size}")
        self.fn.jump(done)
        self.fn.start(done)
        other = self._fill_text(place, fill, None)
        return self._typed(self.fn.value(f"phi {place.kind} [ {text}, %{yes} ], [ {other}, %{before} ]"), dtype, None)

    def put(self, place: Place, point: Point, value: Vec, active: str | None, stream: bool = False) -> None:
        """Stores the active lanes."""
        spot = place.at(point)
        size = place.memory.dtype.itemsize
        text, kind = self._to_memory(value)
        if point.lanes is None:
            self._guarded(active, lambda: self.fn.do(f"store {kind} {text}, ptr {spot.pointer}, align {size}"))
            return
        n = point.lanes
        mask = active or "splat (i1 true)"
        if spot.step == 1 and active is None:
            if stream and n * size in (16, 32, 64):
                self._stream(kind, text, spot.pointer, n * size, size)
            elif padded(n) == n or size < 4:
                self.fn.do(f"store {kind} {text}, ptr {spot.pointer}, align {size}")
            else:
                self._put_padded(place, value, spot)
        elif spot.step == 1:
            self.fn.call(
                "void",
                f"llvm.masked.store.v{n}{_mangled(place.kind)}.p0",
                [(kind, text), (f"ptr align {size}", spot.pointer), (f"<{n} x i1>", mask)],
            )
        else:
            # Several lanes may meet in one element (a step of 0): a scatter stores in order of lanes.
            self.fn.call(
                "void",
                f"llvm.masked.scatter.v{n}{_mangled(place.kind)}.v{n}p0",
                [(kind, text), (f"<{n} x ptr> align {size}", place.pointers(spot, n)), (f"<{n} x i1>", mask)],
            )

    def _put_padded(self, place: Place, value: Vec, spot: _Spot) -> None:
        n, size = value.lanes or 1, place.memory.dtype.itemsize
        wide = self.lanes.widen(value, padded(n))
        self.fn.call(
            "void",
            f"llvm.masked.store.v{wide.lanes}{_mangled(place.kind)}.p0",
            [
                wide.typed,
                (f"ptr align {size}", spot.pointer),
                (f"<{wide.lanes} x i1>", first_lanes(n, wide.lanes or 1)),
            ],
        )

    def _stream(self, kind: str, text: str, pointer: str, whole: int, size: int) -> None:
        """A non-temporal store where the address allows it."""
        self.streamed = True
        low = self.fn.value(f"and i64 {self.fn.value(f'ptrtoint ptr {pointer} to i64')}, {whole - 1}")
        even, odd, done = self.fn.label("stream"), self.fn.label("plain"), self.fn.label("stored")
        self.fn.branch(self.fn.compare("eq", low, 0), even, odd)
        self.fn.start(even)
        hint = self.fn.module.metadata("!{i32 1}")
        self.fn.do(f"store {kind} {text}, ptr {pointer}, align {whole}, !nontemporal {hint}")
        self.fn.jump(done)
        self.fn.start(odd)
        self.fn.do(f"store {kind} {text}, ptr {pointer}, align {size}")
        self.fn.jump(done)
        self.fn.start(done)

    def prefetch(self, place: Place, point: Point, elements: int) -> None:
        """Asks for the line `elements` further, without an access."""
        pointer = place.at(point).pointer
        ahead = self.fn.value(f"getelementptr {place.kind}, ptr {pointer}, i64 {elements}")
        self.fn.call("void", "llvm.prefetch.p0", [("ptr", ahead), ("i32", "0"), ("i32", "3"), ("i32", "1")])

    # ---- turned blocks

    def _load_turned(self, stmt: Load, place: Place, mask: Mask, axis: int, own: int) -> None:
        shape = self.registers.frag(stmt.dst).shape
        for base in self._blocks(shape, axis, own):
            rows, lanes = self._extent(shape, axis, base), self._extent(shape, own, base)
            got: list[Vec] = []
            for j in range(lanes):
                point = Point(_moved(base.at, own, j), axis, rows)
                got.append(self.fetch(place, point, mask.at(point), stmt.fill))
            for i, column in enumerate(self.lanes.transpose(got)):
                self.registers.write(stmt.dst, Point(_moved(base.at, axis, i), own, lanes), column)

    def _store_turned(self, stmt: Store, place: Place, mask: Mask, axis: int, own: int, shape: tuple[int, ...]) -> None:
        for base in self._blocks(shape, axis, own):
            rows, lanes = self._extent(shape, axis, base), self._extent(shape, own, base)
            points = [Point(_moved(base.at, axis, i), own, lanes) for i in range(rows)]
            got = [self.lanes.splat(self.registers.read(stmt.src, p), lanes) for p in points]
            for j, column in enumerate(self.lanes.transpose(got)):
                point = Point(_moved(base.at, own, j), axis, rows)
                active = self._with_mask(stmt, point, mask.at(point))
                self.put(place, point, column, active, "stream" in stmt.tags)

    def _blocks(self, shape: tuple[int, ...], axis: int, own: int) -> list[Point]:
        return [
            Point(_moved(p.at, axis, start))
            for p in self.registers.vector_points(shape, own)
            if p.at[axis] == 0
            for start, _ in chunks(shape[axis], self.width)
        ]

    def _extent(self, shape: tuple[int, ...], axis: int, base: Point) -> int:
        return min(self.width, shape[axis] - base.at[axis])

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
            whole = self.fetch(place, Point(first.at, len(first.at) - 1, n * size), active, stmt.fill)
            for j, point in enumerate(members):
                part = self.lanes.shuffle(whole, None, [i * size + j for i in range(n)])
                self.registers.write(stmt.dst, point, part)

    def _store_grouped(self, stmt: Store, place: Place, mask: Mask, points: Sequence[Point]) -> None:
        size = self.registers.frag(stmt.src.name).shape[-1]
        for first in self._groups(points):
            members = [Point(_moved(first.at, len(first.at) - 1, j), first.axis, first.lanes) for j in range(size)]
            values = [self.lanes.splat(self.registers.read(stmt.src, p), p.lanes) for p in members]
            more: list[str | None] = [None] * size
            if stmt.mask is not None:
                more = [self._with_mask(stmt, p, None) for p in members]
            active = self._group_mask(mask, members, more)
            whole = Point(first.at, len(first.at) - 1, (first.lanes or 1) * size)
            self.put(place, whole, self.lanes.interleave(values), active, "stream" in stmt.tags)

    # ---- colliding stores

    def _accumulate(self, place: Place, point: Point, value: Vec, active: str | None, effect: str) -> None:
        """Atomic updates, lane by lane."""
        n = point.lanes
        for i in range(1 if n is None else n):
            one = self.lanes.element(value, i)
            on = active
            if active is not None and n is not None:
                on = self.fn.value(f"extractelement <{n} x i1> {active}, i64 {i}")
            pointer = place.at(point.lane(i)).pointer
            self._guarded(on, lambda one=one, pointer=pointer: self._atomic(pointer, one, effect))

    def _atomic(self, pointer: str, value: Vec, effect: str) -> None:
        dtype = value.dtype
        if dtype.is_int:
            verb = {"add": "add", "max": "max", "min": "min"}[effect]
            verb = verb if effect == "add" or dtype.kind == "int" else "u" + verb
            self.fn.do(f"atomicrmw {verb} ptr {pointer}, {value.type} {value.text} monotonic")
            return
        if dtype.is_bool:
            raise unsupported(f"an atomic {effect} of bool", "an atomic update of numbers")
        kind = f"i{dtype.bits}"
        bits = self.fn.value(f"load atomic {kind}, ptr {pointer} monotonic, align {dtype.itemsize}")
        before, again, done = self.fn.block, self.fn.label("update"), self.fn.label("updated")
        self.fn.jump(again)
        self.fn.start(again)
        seen = f"%seen{again}"
        slot = self.fn.value(f"phi {kind} [ {bits}, %{before} ], [ {seen}, %{again} ]")
        old = slot if value.type == kind else self.fn.value(f"bitcast {kind} {slot} to {value.type}")
        name = {"add": "add", "max": "maximum", "min": "minimum"}[effect]
        new = self.arith.apply(name, [Vec(old, dtype), value])
        if self.fn.block != again:
            raise unsupported(f"an atomic {effect} of {dtype}", "an update in one block")
        text = new.text if value.type == kind else self.fn.value(f"bitcast {value.type} {new.text} to {kind}")
        pair = self.fn.value(f"cmpxchg ptr {pointer}, {kind} {slot}, {kind} {text} monotonic monotonic")
        self.fn.do(f"{seen} = extractvalue {{ {kind}, i1 }} {pair}, 0")
        self.fn.branch(self.fn.value(f"extractvalue {{ {kind}, i1 }} {pair}, 1"), done, again)
        self.fn.start(done)

    # ---- small parts

    def _guarded(self, active: str | None, emit: object) -> None:
        assert callable(emit)
        if active is None:
            emit()
            return
        yes, done = self.fn.label("active"), self.fn.label("after")
        self.fn.branch(active, yes, done)
        self.fn.start(yes)
        emit()
        self.fn.jump(done)
        self.fn.start(done)

    def _any(self, active: str, lanes: int) -> str:
        bits = self.fn.value(f"bitcast <{lanes} x i1> {active} to i{lanes}")
        return self.fn.value(f"icmp ne i{lanes} {bits}, 0")

    def _filled(self, value: Vec, active: str, fill: Fill) -> Vec:
        if fill == "undef":
            return value
        return self.arith.select(active, value, constant(value.dtype, fill, value.lanes))

    def _fill_text(self, place: Place, fill: Fill, lanes: int | None) -> str:
        if fill == "undef":
            return "zeroinitializer" if lanes is not None else "0" if place.kind.startswith("i") else "0.0"
        text = constant(place.memory.dtype, fill).text
        text = {"true": "1", "false": "0"}.get(text, text)
        return text if lanes is None else f"splat ({place.kind} {text})"

    def _typed(self, text: str, dtype: DType, lanes: int | None) -> Vec:
        if dtype.is_bool:
            kind = vector("i8", lanes)
            zero = "0" if lanes is None else "zeroinitializer"
            text = self.fn.value(f"icmp ne {kind} {text}, {zero}")
        return Vec(text, dtype, lanes)

    def _to_memory(self, value: Vec) -> tuple[str, str]:
        if not value.dtype.is_bool:
            return value.text, value.type
        kind = vector("i8", value.lanes)
        return self.fn.value(f"zext {value.type} {value.text} to {kind}"), kind


def prefetch_distance(tags: tuple[str, ...]) -> int:
    """N of the tag "prefetch=N", else 0."""
    return next((int(t.removeprefix("prefetch=")) for t in tags if t.startswith("prefetch=")), 0)


def padded(lanes: int) -> int:
    """The next power of two."""
    return 1 << (lanes - 1).bit_length()


def first_lanes(lanes: int, of: int) -> str:
    """The constant mask of the first lanes."""
    return "<" + ", ".join("i1 true" if i < lanes else "i1 false" for i in range(of)) + ">"


def _moved(at: tuple[int, ...], axis: int, by: int) -> tuple[int, ...]:
    return (*at[:axis], at[axis] + by, *at[axis + 1 :])


def _mangled(kind: str) -> str:
    return {"float": "f32", "double": "f64"}.get(kind, kind)
