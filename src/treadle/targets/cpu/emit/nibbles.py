"""Moving elements of four bits, two of which share a byte of a tensor: the lower half first.

An address is a number of half bytes from the tensor's base (`Place.half`). Neighbouring elements are read as whole
bytes and taken apart in registers, whichever half the first one is in. Other elements are read one at a time.

A store of one element changes its half of the byte in two atomic steps, so that agents which store the two halves of
a byte do not disturb one another: each half is cleared and set by its owner alone. A run of whole bytes is stored
plainly.
"""

from __future__ import annotations

from dataclasses import replace

from treadle.dtype.formats import DType, bool_, u8
from treadle.machine.form import Fill
from treadle.targets.cpu.emit.arith import Arith
from treadle.targets.cpu.emit.index import Point
from treadle.targets.cpu.emit.lanes import Lanes, Vec, constant, vector
from treadle.targets.cpu.emit.places import Place
from treadle.targets.cpu.emit.text import Function, Int


class Nibbles:
    """Loads and stores of packed tensors in one function."""

    def __init__(self, fn: Function, lanes: Lanes, arith: Arith) -> None:
        self.fn = fn
        self.lanes = lanes
        self.arith = arith

    def fetch(self, place: Place, point: Point, active: str | None, fill: Fill) -> Vec:
        """Elements at a point; inactive lanes have the fill, and their bytes are not touched."""
        dtype, n = place.memory.dtype, point.lanes
        if n is None:
            return self._one(place, point, active, fill)
        if self._neighbours(place, point) and active is None:
            return self._run(place, point, n)
        if point.axis is not None and place.steps is not None and place.steps[point.axis] == 0:
            some = None if active is None else self._any(active, n)
            element = self.lanes.splat(self._one(place, point, some, fill), n)
            return element if active is None or fill == "undef" else self._filled(element, active, fill)
        if self._neighbours(place, point) and active is not None:
            return self._masked(place, point, n, active, fill)
        parts: list[tuple[Vec, int]] = []
        for i in range(n):
            parts.append((self._one(place, point.lane(i), self._lane(active, n, i), fill), 0))
        return replace(self.lanes.assemble(parts), dtype=dtype)

    def put(self, place: Place, point: Point, value: Vec, active: str | None) -> None:
        """Stores the active lanes."""
        n = point.lanes
        if n is None:
            self.fn.guarded(active, lambda: self._put_one(place, point, value))
            return
        whole = self._neighbours(place, point) and active is None and n % 2 == 0
        if not whole:
            self._put_each(place, point, value, active)
            return
        half = place.half(point)
        even, odd, done = self.fn.label("bytes"), self.fn.label("halves"), self.fn.label("stored")
        self.fn.branch(self.fn.compare("eq", self._parity(half), 0), even, odd)
        self.fn.start(even)
        low = self.lanes.shuffle(value, None, list(range(0, n, 2)))
        high = self.lanes.shuffle(value, None, list(range(1, n, 2)))
        kind, count = vector("i8", n // 2), n // 2
        below = self._two("and", low.text, 15, count)
        above = self._two("shl", high.text, 4, count)
        both = self.fn.value(f"or {kind} {below}, {above}")
        self.fn.do(f"store {kind} {both}, ptr {self._byte(place, half)}, align 1")
        self.fn.jump(done)
        self.fn.start(odd)
        self._put_each(place, point, value, None)
        self.fn.jump(done)
        self.fn.start(done)

    def byte(self, place: Place, point: Point) -> str:
        """The address of the byte of a point's first lane."""
        return self._byte(place, place.half(point))

    # ---- single elements

    def _one(self, place: Place, point: Point, active: str | None, fill: Fill) -> Vec:
        dtype = place.memory.dtype
        if active is None:
            return self._read(place, point)
        yes, done, before = self.fn.label("load"), self.fn.label("loaded"), self.fn.block
        self.fn.branch(active, yes, done)
        self.fn.start(yes)
        got = self._read(place, point)
        end = self.fn.block
        self.fn.jump(done)
        self.fn.start(done)
        other = "0" if fill == "undef" else constant(dtype, fill).text
        return Vec(self.fn.value(f"phi i8 [ {got.text}, %{end} ], [ {other}, %{before} ]"), dtype)

    def _read(self, place: Place, point: Point) -> Vec:
        half = place.half(point)
        byte = self.fn.value(f"load i8, ptr {self._byte(place, half)}, align 1")
        shifted = self.fn.value(f"lshr i8 {byte}, {self._shift(half)}")
        return self._typed(shifted, place.memory.dtype, None)

    def _put_each(self, place: Place, point: Point, value: Vec, active: str | None) -> None:
        n = point.lanes or 1
        for i in range(n):
            one, at = self.lanes.element(value, i), point.lane(i)
            self.fn.guarded(self._lane(active, n, i), lambda one=one, at=at: self._put_one(place, at, one))

    def _put_one(self, place: Place, point: Point, value: Vec) -> None:
        half = place.half(point)
        pointer, shift = self._byte(place, half), self._shift(half)
        other = self.fn.value(f"shl i8 15, {shift}")
        kept = self.fn.value(f"xor i8 {other}, -1")
        self.fn.do(f"atomicrmw and ptr {pointer}, i8 {kept} monotonic")
        code = self.fn.value(f"shl i8 {self.fn.value(f'and i8 {value.text}, 15')}, {shift}")
        self.fn.do(f"atomicrmw or ptr {pointer}, i8 {code} monotonic")

    # ---- neighbours

    def _neighbours(self, place: Place, point: Point) -> bool:
        """Whether the lanes of a point are elements beside one another."""
        return point.axis is not None and place.steps is not None and place.steps[point.axis] == 1

    def _run(self, place: Place, point: Point, n: int) -> Vec:
        """`n` neighbours: as many bytes as they fill, and the byte of the last one."""
        half, count = place.half(point), (n + 1) // 2
        bytes_ = self.fn.value(f"load {vector('i8', count)}, ptr {self._byte(place, half)}, align 1")
        halves = self._apart(bytes_, count)
        if n % 2:
            first, second = (self.lanes.shuffle(halves, None, list(range(i, i + n))) for i in (0, 1))
        else:
            last = self.fn.value(f"load i8, ptr {self._byte(place, self.fn.add(half, n - 1))}, align 1")
            low = Vec(self.fn.value(f"and i8 {last}, 15"), halves.dtype)
            moved = self.lanes.shuffle(halves, None, [*range(1, n), n - 1])
            text = self.fn.value(f"insertelement {moved.type} {moved.text}, i8 {low.text}, i64 {n - 1}")
            first, second = halves, replace(moved, text=text)
        odd = self.fn.compare("ne", self._parity(half), 0)
        kind = first.type
        text = self.fn.value(f"select i1 {odd}, {kind} {second.text}, {kind} {first.text}")
        return self._typed(text, place.memory.dtype, n)

    def _masked(self, place: Place, point: Point, n: int, active: str, fill: Fill) -> Vec:
        """Neighbours of which all are there, or not all: only bytes of those that are there are read."""
        if n % 2 == 0:
            some = self._some(place, point, n, active)
            return some if fill == "undef" else self._filled(some, active, fill)
        every = self.fn.value(f"icmp eq i{n} {self.fn.value(f'bitcast <{n} x i1> {active} to i{n}')}, -1")
        yes, no, done = self.fn.label("run"), self.fn.label("some"), self.fn.label("read")
        self.fn.branch(every, yes, no)
        self.fn.start(yes)
        whole = self._run(place, point, n)
        ended = self.fn.block
        self.fn.jump(done)
        self.fn.start(no)
        parts = [(self._one(place, point.lane(i), self._lane(active, n, i), fill), 0) for i in range(n)]
        some = self.lanes.assemble(parts)
        left = self.fn.block
        self.fn.jump(done)
        self.fn.start(done)
        text = self.fn.value(f"phi {whole.type} [ {whole.text}, %{ended} ], [ {some.text}, %{left} ]")
        return Vec(text, place.memory.dtype, n)

    def _some(self, place: Place, point: Point, n: int, active: str) -> Vec:
        """`n` neighbours, an even number; the elements of inactive lanes are any."""
        half, count = place.half(point), n // 2
        odd = self.fn.compare("ne", self._parity(half), 0)
        lanes = Vec(active, bool_, n)
        none = Vec("zeroinitializer", bool_, n)
        # The byte j has lanes 2j and 2j + 1, or where the first half is the upper one, those before.
        first, second = (self.lanes.shuffle(lanes, None, list(range(i, n, 2))) for i in (0, 1))
        before = self.lanes.shuffle(lanes, none, [n, *range(1, n - 1, 2)])
        kind, bytes_kind = vector("i1", count), vector("i8", count)
        here = self.fn.value(f"select i1 {odd}, {kind} {before.text}, {kind} {second.text}")
        mask = self.fn.value(f"or {kind} {here}, {first.text}")
        pointer = ("ptr", self._byte(place, half))
        name = f"llvm.masked.load.v{count}i8.p0"
        given = [pointer, ("i32", "1"), (kind, mask), (bytes_kind, "zeroinitializer")]
        halves = self._apart(self.fn.call(bytes_kind, name, given), count)
        last = self._one(place, point.lane(n - 1), self._lane(active, n, n - 1), 0)
        code = self.fn.value(f"and i8 {last.text}, 15")
        moved = self.lanes.shuffle(halves, None, [*range(1, n), n - 1])
        text = self.fn.value(f"insertelement {moved.type} {moved.text}, i8 {code}, i64 {n - 1}")
        chosen = self.fn.value(f"select i1 {odd}, {moved.type} {text}, {moved.type} {halves.text}")
        return self._typed(chosen, place.memory.dtype, n)

    def _apart(self, bytes_: str, count: int) -> Vec:
        """The halves of bytes, zeros above."""
        # In 16 bits, four places up, the upper half is the low one of the next byte.
        wide = vector("i16", count)
        apart = self.fn.value(f"zext {vector('i8', count)} {bytes_} to {wide}")
        moved = self.fn.value(f"shl {wide} {apart}, splat (i16 4)")
        both = self.fn.value(f"or {wide} {apart}, {moved}")
        halves = self.fn.value(f"bitcast {wide} {both} to {vector('i8', 2 * count)}")
        return Vec(self._two("and", halves, 15, 2 * count), u8, 2 * count)

    # ---- small parts

    def _typed(self, text: str, dtype: DType, lanes: int | None) -> Vec:
        """A byte whose low half is an element's code, as the register form of the dtype."""
        if dtype.kind == "int":
            up = self._two("shl", text, 4, lanes)
            return Vec(self._two("ashr", up, 4, lanes), dtype, lanes)
        return Vec(self._two("and", text, 15, lanes), dtype, lanes)

    def _two(self, verb: str, a: str, number: int, lanes: int | None) -> str:
        other = str(number) if lanes is None else f"splat (i8 {number})"
        return self.fn.value(f"{verb} {vector('i8', lanes)} {a}, {other}")

    def _byte(self, place: Place, half: Int) -> str:
        offset = self.fn.floordiv(half, 2)
        return place.base if offset == 0 else self.fn.value(f"getelementptr i8, ptr {place.base}, i64 {offset}")

    def _parity(self, half: Int) -> Int:
        return half % 2 if isinstance(half, int) else self.fn.value(f"and i64 {half}, 1")

    def _shift(self, half: Int) -> Int | str:
        parity = self._parity(half)
        if isinstance(parity, int):
            return 4 * parity
        return self.fn.value(f"trunc i64 {self.fn.value(f'shl i64 {parity}, 2')} to i8")

    def _lane(self, active: str | None, n: int, lane: int) -> str | None:
        return None if active is None else self.fn.value(f"extractelement <{n} x i1> {active}, i64 {lane}")

    def _any(self, active: str, n: int) -> str:
        return self.fn.value(f"icmp ne i{n} {self.fn.value(f'bitcast <{n} x i1> {active} to i{n}')}, 0")

    def _filled(self, value: Vec, active: str, fill: int | float | bool) -> Vec:
        return self.arith.select(active, value, constant(value.dtype, fill, value.lanes))
