"""Moving one vector between memory and a register: the instruction for a step along the lanes, and for a mask.

Step 1: a contiguous vector, masked where the statement is. Step 0: one element for all lanes. Else a gather or scatter,
or, where a few lanes are all active, element by element. Lanes that are not active are never accessed.
"""

from __future__ import annotations

from treadle.dtype.formats import DType
from treadle.machine.form import Fill
from treadle.targets.cpu.emit.arith import Arith
from treadle.targets.cpu.emit.errors import unsupported
from treadle.targets.cpu.emit.index import Point
from treadle.targets.cpu.emit.lanes import Lanes, Vec, constant, memory_bytes, vector
from treadle.targets.cpu.emit.nibbles import Nibbles
from treadle.targets.cpu.emit.places import Place, Spot
from treadle.targets.cpu.emit.text import Function

SINGLY = 8
"""Lanes up to which elements apart are moved one by one: processors whose gathers are sequences of such moves are no
slower by it, and those stores do not wait for one another."""


class Moves:
    """Single vectors of one function. `streamed`: whether a non-temporal store was written."""

    def __init__(self, fn: Function, lanes: Lanes, arith: Arith) -> None:
        self.fn = fn
        self.lanes = lanes
        self.arith = arith
        self.streamed = False
        self.nibbles = Nibbles(fn, lanes, arith)

    def fetch(self, place: Place, point: Point, active: str | None, fill: Fill) -> Vec:
        """Elements at a point; inactive lanes have the fill."""
        dtype = place.memory.dtype
        if place.memory.packed:
            return self.nibbles.fetch(place, point, active, fill)
        spot = place.at(point)
        if point.lanes is None:
            return self._fetch_one(place, spot, active, fill)
        n = point.lanes
        size = memory_bytes(dtype)
        kind = vector(place.kind, n)
        if spot.step == 0:
            some = None if active is None else self._any(active, n)
            element = self.lanes.splat(self._fetch_one(place, spot, some, fill), n)
            return element if active is None else self._filled(element, active, fill)
        if spot.step == 1 and active is None:
            return self._fetch_whole(place, spot, n)
        if spot.step != 1 and active is None and 1 < n <= SINGLY:
            return self.lanes.assemble(
                [(self._fetch_one(place, place.at(point.lane(i)), None, fill), 0) for i in range(n)]
            )
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

    def _fetch_whole(self, place: Place, spot: Spot, n: int) -> Vec:
        """A contiguous vector. An odd number of lanes is one masked access; LLVM would split it into several."""
        size, wide = memory_bytes(place.memory.dtype), padded(n)
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

    def _fetch_one(self, place: Place, spot: Spot, active: str | None, fill: Fill) -> Vec:
        dtype, size = place.memory.dtype, memory_bytes(place.memory.dtype)
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
        if place.memory.packed:
            self.nibbles.put(place, point, value, active)
            return
        spot = place.at(point)
        size = memory_bytes(place.memory.dtype)
        text, kind = self._to_memory(value)
        if point.lanes is None:
            self.fn.guarded(active, lambda: self.fn.do(f"store {kind} {text}, ptr {spot.pointer}, align {size}"))
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
        elif active is None and 1 < n <= SINGLY:
            for i in range(n):
                self.put(place, point.lane(i), self.lanes.element(value, i), None)
        else:
            # Several lanes may meet in one element (a step of 0): a scatter stores in order of lanes.
            self.fn.call(
                "void",
                f"llvm.masked.scatter.v{n}{_mangled(place.kind)}.v{n}p0",
                [(kind, text), (f"<{n} x ptr> align {size}", place.pointers(spot, n)), (f"<{n} x i1>", mask)],
            )

    def _put_padded(self, place: Place, value: Vec, spot: Spot) -> None:
        n, size = value.lanes or 1, memory_bytes(place.memory.dtype)
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

    def prefetch(self, place: Place, nearest: bool) -> None:
        """Asks for an element's line, without an access: into the first cache, or only the second."""
        point, locality = Point(()), "3" if nearest else "2"
        pointer = self.nibbles.byte(place, point) if place.memory.packed else place.at(point).pointer
        self.fn.call("void", "llvm.prefetch.p0", [("ptr", pointer), ("i32", "0"), ("i32", locality), ("i32", "1")])

    # ---- colliding stores

    def accumulate(self, place: Place, point: Point, value: Vec, active: str | None, effect: str, old: bool) -> Vec:
        """Atomic updates, lane by lane, for stores that may collide; with `old`, what the elements held before (0 in
        lanes that are not active)."""
        if place.memory.packed:
            raise unsupported(f"an atomic {effect} of {place.memory.dtype}", "an update of whole bytes")
        n = point.lanes
        found: list[tuple[Vec, int]] = []
        for i in range(1 if n is None else n):
            one = self.lanes.element(value, i)
            on = active
            if active is not None and n is not None:
                on = self.fn.value(f"extractelement <{n} x i1> {active}, i64 {i}")
            pointer = place.at(point.lane(i)).pointer
            held = self.fn.alloca(one.type, 8) if old else ""
            if old:
                self.fn.do(f"store {one.type} {constant(one.dtype, 0).text}, ptr {held}")

            def update(one: Vec = one, pointer: str = pointer, held: str = held) -> None:
                before = self._atomic(pointer, one, effect)
                if held:
                    self.fn.do(f"store {one.type} {before}, ptr {held}")

            self.fn.guarded(on, update)
            if old:
                found.append((Vec(self.fn.value(f"load {one.type}, ptr {held}"), one.dtype), 0))
        if not old:
            return value
        return found[0][0] if n is None else self.lanes.assemble(found)

    def _atomic(self, pointer: str, value: Vec, effect: str) -> str:
        """One update; the element before it."""
        dtype = value.dtype
        if dtype.is_int:
            verb = {"add": "add", "max": "max", "min": "min"}[effect]
            verb = verb if effect == "add" or dtype.kind == "int" else "u" + verb
            return self.fn.value(f"atomicrmw {verb} ptr {pointer}, {value.type} {value.text} monotonic")
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
        return old

    # ---- small parts

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


def padded(lanes: int) -> int:
    """The next power of two."""
    return 1 << (lanes - 1).bit_length()


def first_lanes(lanes: int, of: int) -> str:
    """The constant mask of the first lanes."""
    return "<" + ", ".join("i1 true" if i < lanes else "i1 false" for i in range(of)) + ">"


def _mangled(kind: str) -> str:
    return {"float": "f32", "double": "f64"}.get(kind, kind)
