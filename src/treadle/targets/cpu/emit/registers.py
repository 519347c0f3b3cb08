"""Reading and writing fragments: variables that LLVM turns into registers, or arrays in the frame."""

from __future__ import annotations

from itertools import product

from treadle.algebra.expr import Expr
from treadle.machine.form import Frag, FragRef
from treadle.targets.cpu.emit.errors import ill_formed, unsupported
from treadle.targets.cpu.emit.index import IndexWriter, Point, coordinate, split
from treadle.targets.cpu.emit.lanes import Lanes, Vec, chunks, lane_type, memory_bytes, memory_type, vector
from treadle.targets.cpu.emit.layouts import Layout, vector_axis
from treadle.targets.cpu.emit.text import Function, Int


class Registers:
    """The fragments of one function. `constants` are values without a variable (scalar parameters); the vectors of
    `full` fragments have twice as many lanes (`layouts.full`)."""

    def __init__(
        self,
        fn: Function,
        lanes: Lanes,
        width: int,
        frags: dict[str, Frag],
        layouts: dict[str, Layout],
        full: frozenset[str] = frozenset(),
    ) -> None:
        self.fn = fn
        self.lanes = lanes
        self.width = width
        self.frags = frags
        self.layouts = layouts
        self.full = full
        self.constants: dict[str, Vec] = {}
        self.index: IndexWriter | None = None
        self._variables: dict[tuple[str, tuple[int, ...]], str] = {}

    # ---- shape

    def frag(self, name: str) -> Frag:
        """The declaration."""
        found = self.frags.get(name)
        if found is None:
            raise ill_formed(f"the fragment {name}", "a fragment of the kernel")
        return found

    def points(self, name: str) -> list[Point]:
        """The points that together cover the fragment, in row-major order, as its layout divides it."""
        shape = self.frag(name).shape
        if not shape:
            return [Point(())]
        if self.layouts[name] is Layout.SCALAR:
            return [Point(at) for at in product(*map(range, shape))]
        return self.vector_points(shape, self.axis(name), self.width_of(name))

    def width_of(self, name: str) -> int:
        """Lanes of a fragment's vectors."""
        return 2 * self.width if name in self.full else self.width

    def axis(self, name: str) -> int:
        """The axis along which the fragment's vectors run; arrays are row-major."""
        shape = self.frag(name).shape
        return vector_axis(shape) if self.layouts[name] is Layout.VECTOR else len(shape) - 1

    def vector_points(self, shape: tuple[int, ...], axis: int, width: int | None = None) -> list[Point]:
        """The same with vectors along any axis, of so many lanes."""
        others = [range(n) for i, n in enumerate(shape) if i != axis]
        return [
            Point((*at[:axis], start, *at[axis:]), axis, n)
            for at in product(*others)
            for start, n in chunks(shape[axis], width or self.width)
        ]

    # ---- variables

    def _variable(self, name: str, at: tuple[int, ...]) -> str:
        """The variable of the vector or element that begins at `at`."""
        key = (name, at)
        if key not in self._variables:
            frag = self.frag(name)
            if self.layouts[name] is Layout.MEMORY:
                return self._array(name)
            lanes = self._lanes(name, at)
            self._variables[key] = self.fn.alloca(vector(lane_type(frag.dtype), lanes), 64 if lanes else 8)
        return self._variables[key]

    def _lanes(self, name: str, at: tuple[int, ...]) -> int | None:
        """Lanes of the variable that begins at `at`."""
        shape = self.frag(name).shape
        if not shape or self.layouts[name] is not Layout.VECTOR:
            return None
        axis = self.axis(name)
        return min(self.width_of(name), shape[axis] - at[axis])

    def _array(self, name: str) -> str:
        key = (name, ())
        if key not in self._variables:
            frag = self.frag(name)
            count = 1
            for n in frag.shape:
                count *= n
            self._variables[key] = self.fn.alloca(f"[{count} x {memory_type(frag.dtype)}]", 64)
        return self._variables[key]

    def _pitches(self, shape: tuple[int, ...]) -> list[int]:
        pitches = [1] * len(shape)
        for i in range(len(shape) - 2, -1, -1):
            pitches[i] = pitches[i + 1] * shape[i + 1]
        return pitches

    # ---- memory elements, shared with access.py in form only

    def _load_memory(self, pointer: str, frag: Frag, lanes: int | None) -> Vec:
        kind = vector(memory_type(frag.dtype), lanes)
        text = self.fn.value(f"load {kind}, ptr {pointer}, align {memory_bytes(frag.dtype)}")
        if frag.dtype.is_bool:
            text = self.fn.value(f"trunc {kind} {text} to {vector('i1', lanes)}")
        return Vec(text, frag.dtype, lanes)

    def _element_pointer(self, name: str, offset: Int) -> str:
        return self.fn.value(
            f"getelementptr {memory_type(self.frag(name).dtype)}, ptr {self._array(name)}, i64 {offset}"
        )

    # ---- reading

    def read(self, ref: FragRef, point: Point) -> Vec:
        """The operand at a point: a vector where it varies along the lane axis, else one element."""
        if ref.name in self.constants:
            return self.constants[ref.name]
        frag = self.frag(ref.name)
        if ref.coords is None:
            if not frag.shape:
                return self._take(ref.name, ())
            if len(frag.shape) != len(point.at):
                raise ill_formed(
                    f"{ref.name} of rank {len(frag.shape)} read without coordinates among {len(point.at)}",
                    "equal ranks, or coordinates",
                )
            return self._run(ref.name, point.at, point.axis, point.lanes)
        return self.read_at(ref.name, ref.coords, point)

    def read_at(self, name: str, coords: tuple[Expr, ...], point: Point) -> Vec:
        """The element or vector at coordinates given as expressions."""
        if name in self.constants:
            return self.constants[name]
        assert self.index is not None
        frag = self.frag(name)
        if len(coords) != len(frag.shape):
            raise ill_formed(f"{len(coords)} coordinates of {name}", f"{len(frag.shape)}")
        first: list[Int] = []
        steps: list[int] = []
        lane = "" if point.axis is None or point.lanes is None else coordinate(point.axis)
        for c in coords:
            parts = split(c, len(point.at))
            numbers = None if parts is None else parts.steps()
            if parts is None or numbers is None:
                if lane and lane in c.symbols:
                    return self._each(name, coords, point)
                first.append(self.index.value(c, point))
                steps.append(0)
                continue
            offset = sum(s * a for s, a in zip(numbers, point.at))
            first.append(self.fn.add(self.index.value(parts.rest), offset))
            steps.append(numbers[point.axis] if point.axis is not None and lane else 0)
        return self._line(name, first, steps, point)

    def _each(self, name: str, coords: tuple[Expr, ...], point: Point) -> Vec:
        elements = [self.read_at(name, coords, point.lane(i)) for i in range(point.lanes or 1)]
        return self.lanes.assemble([(e, 0) for e in elements])

    def _line(self, name: str, first: list[Int], steps: list[int], point: Point) -> Vec:
        lanes = point.lanes if any(steps) else None
        numbers = [f for f in first if isinstance(f, int)]
        if len(numbers) != len(first):
            return self._from_array(name, first, steps, lanes)
        at = tuple(numbers)
        if lanes is None:
            return self._element(name, at)
        moving = [i for i, s in enumerate(steps) if s]
        if len(moving) == 1 and steps[moving[0]] == 1:
            return self._run(name, at, moving[0], lanes)
        return self.lanes.assemble(
            [self._find(name, tuple(a + s * i for a, s in zip(at, steps))) for i in range(lanes)]
        )

    def _from_array(self, name: str, first: list[Int], steps: list[int], lanes: int | None) -> Vec:
        frag = self.frag(name)
        if self.layouts[name] is not Layout.MEMORY:
            raise ill_formed(f"{name} read at coordinates that are not numbers", "an array fragment")
        pitches = self._pitches(frag.shape)
        offset: Int = 0
        for f, p in zip(first, pitches):
            offset = self.fn.add(offset, self.fn.mul(f, p))
        step = sum(s * p for s, p in zip(steps, pitches))
        if lanes is None or step == 1:
            return self._load_memory(self._element_pointer(name, offset), frag, lanes)
        places = [self._element_pointer(name, self.fn.add(offset, step * i)) for i in range(lanes)]
        return self.lanes.assemble([(self._load_memory(p, frag, None), 0) for p in places])

    def _take(self, name: str, at: tuple[int, ...]) -> Vec:
        """A whole variable."""
        frag = self.frag(name)
        lanes = self._lanes(name, at)
        kind = vector(lane_type(frag.dtype), lanes)
        align = "" if lanes is None else ", align 64"
        return Vec(self.fn.value(f"load {kind}, ptr {self._variable(name, at)}{align}"), frag.dtype, lanes)

    def _find(self, name: str, at: tuple[int, ...]) -> tuple[Vec, int]:
        """The variable that holds an element, loaded, and its lane."""
        frag = self.frag(name)
        if any(not 0 <= a < n for a, n in zip(at, frag.shape)):
            raise ill_formed(f"element {at} of {name}", f"coordinates inside {frag.shape}")
        match self.layouts[name]:
            case Layout.MEMORY:
                offset = sum(a * p for a, p in zip(at, self._pitches(frag.shape)))
                return self._load_memory(self._element_pointer(name, offset), frag, None), 0
            case Layout.SCALAR:
                return self._take(name, at), 0
            case Layout.TILE:
                raise unsupported(f"an element of the tile {name}", "tiles stored to memory before they are read")
            case Layout.VECTOR:
                if not at:
                    return self._take(name, at), 0
                start = self._start(name, at)
                axis = self.axis(name)
                return self._take(name, start), at[axis] - start[axis]

    def _element(self, name: str, at: tuple[int, ...]) -> Vec:
        vec, lane = self._find(name, at)
        return self.lanes.element(vec, lane)

    def _start(self, name: str, at: tuple[int, ...]) -> tuple[int, ...]:
        """The first element of the variable that holds an element."""
        axis, width = self.axis(name), self.width_of(name)
        return (*at[:axis], at[axis] // width * width, *at[axis + 1 :])

    def _run(self, name: str, at: tuple[int, ...], axis: int | None, lanes: int | None) -> Vec:
        """`lanes` elements along an axis from `at`."""
        frag = self.frag(name)
        if lanes is None or axis is None:
            return self._element(name, at)
        layout = self.layouts[name]
        if layout is Layout.MEMORY and axis == len(frag.shape) - 1:
            offset = sum(a * p for a, p in zip(at, self._pitches(frag.shape)))
            return self._load_memory(self._element_pointer(name, offset), frag, lanes)
        if layout is Layout.VECTOR and axis == self.axis(name):
            if self._start(name, at) == at and lanes == self._lanes(name, at):
                return self._take(name, at)
        taken: dict[tuple[int, ...], Vec] = {}
        parts: list[tuple[Vec, int]] = []
        for i in range(lanes):
            place = (*at[:axis], at[axis] + i, *at[axis + 1 :])
            if layout is not Layout.VECTOR:
                parts.append(self._find(name, place))
                continue
            start = self._start(name, place)
            if start not in taken:
                taken[start], _ = self._find(name, place)
            own = self.axis(name)
            parts.append((taken[start], place[own] - start[own]))
        return self.lanes.assemble(parts)

    # ---- writing

    def write(self, name: str, point: Point, value: Vec) -> None:
        """Sets the elements at one of the fragment's own points."""
        frag = self.frag(name)
        value = self.lanes.splat(value, point.lanes)
        if value.dtype != frag.dtype:
            raise ill_formed(f"{value.dtype} written to {name}", f"{frag.dtype}")
        if self.layouts[name] is not Layout.MEMORY:
            align = "" if value.lanes is None else ", align 64"
            self.fn.do(f"store {value.type} {value.text}, ptr {self._variable(name, point.at)}{align}")
            return
        text, kind = value.text, value.type
        if frag.dtype.is_bool:
            kind = vector("i8", value.lanes)
            text = self.fn.value(f"zext {value.type} {text} to {kind}")
        offset = sum(a * p for a, p in zip(point.at, self._pitches(frag.shape)))
        self.fn.do(f"store {kind} {text}, ptr {self._element_pointer(name, offset)}, align {memory_bytes(frag.dtype)}")

    def fetch(self, name: str, point: Point) -> Vec:
        """The value at one of the fragment's own points."""
        return self._run(name, point.at, point.axis, point.lanes) if self.frag(name).shape else self._take(name, ())
