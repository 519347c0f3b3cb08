"""Folds over fragment axes, and contractions by multiply-add.

**Order of a fold.** The axes are folded one after another, outer ones first. An axis of length L is folded by
halving: while L > 1, with h the largest power of two below L, element i becomes `x[i] (+) x[i + h]` for all i with
i + h < L, and then L = h. At last `acc (+) result`. The order does not depend on the width of vectors, and the
simulator has the same.

**Order of a contraction.** The contracted coordinates in row-major order, one multiply-add each.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from treadle.machine.form import Fold, FragRef, MemRef, Mma
from treadle.targets.cpu.emit.access import Access, Memory, Place
from treadle.targets.cpu.emit.arith import Arith
from treadle.targets.cpu.emit.errors import ill_formed, unsupported
from treadle.targets.cpu.emit.index import Point, coordinate
from treadle.targets.cpu.emit.lanes import Lanes, Vec, chunks, constant, power_below
from treadle.targets.cpu.emit.registers import Registers

Rows = dict[tuple[int, ...], list[Vec]]
"""The vectors of each row; the key has the coordinates of the axes but the last that are not folded yet."""

FMA_ATOMS = ("fma", "muladd")
"""Fused, and rounded after the product."""


class Folds:
    """Folds and contractions of one function."""

    def __init__(self, registers: Registers, arith: Arith, access: Access, memories: dict[str, Memory]) -> None:
        self.registers = registers
        self.arith = arith
        self.access = access
        self.memories = memories
        self.lanes: Lanes = arith.lanes
        self.width = registers.width

    # ---- folds

    def fold(self, stmt: Fold) -> None:
        """`dst[$] = acc[$] (+) fold of src over axes`."""

        def merge(a: Vec, b: Vec) -> Vec:
            return self.arith.fold(stmt.monoid, a, b, stmt.nan)

        if not stmt.axes:
            for point in self.registers.points(stmt.dst):
                value = self.lanes.splat(self.registers.read(stmt.src, point), point.lanes)
                self._finish(stmt, point, value, merge)
            return
        if stmt.src.coords is not None:
            raise unsupported(f"a fold of {stmt.src.name} at chosen coordinates", "a fold of a whole fragment")
        shape = self.registers.frag(stmt.src.name).shape
        axes = sorted(stmt.axes)
        last = len(shape) - 1
        rows = self._rows(stmt.src.name, shape)
        kept = [i for i in range(last)]
        for axis in [a for a in axes if a != last]:
            rows = self._fold_rows(rows, kept.index(axis), shape[axis], merge)
            kept.remove(axis)
        if last not in axes:
            for key, vectors in rows.items():
                for (start, n), vec in zip(chunks(shape[last], self.width), vectors):
                    self._finish(stmt, Point((*key, start), len(key), n), vec, merge)
            return
        ones = {key: self._fold_lanes(vectors, shape[last], merge) for key, vectors in rows.items()}
        for point in self.registers.points(stmt.dst):
            if point.lanes is None:
                self._finish(stmt, point, ones[point.at], merge)
                continue
            parts = [(ones[point.lane(i).at], 0) for i in range(point.lanes)]
            self._finish(stmt, point, self.lanes.assemble(parts), merge)

    def _finish(self, stmt: Fold, point: Point, value: Vec, merge: Callable[[Vec, Vec], Vec]) -> None:
        if stmt.acc is not None:
            value = merge(self.lanes.splat(self.registers.read(stmt.acc, point), point.lanes), value)
        self.registers.write(stmt.dst, point, value)

    def _rows(self, name: str, shape: tuple[int, ...]) -> Rows:
        rows: Rows = {}
        whole = FragRef(name)
        for point in self.registers.vector_points(shape, len(shape) - 1):
            rows.setdefault(point.at[:-1], []).append(self.registers.read(whole, point))
        return rows

    def _fold_rows(self, rows: Rows, place: int, length: int, merge: Callable[[Vec, Vec], Vec]) -> Rows:
        while length > 1:
            half = power_below(length)
            for key in list(rows):
                if key[place] >= half:
                    into = (*key[:place], key[place] - half, *key[place + 1 :])
                    rows[into] = [merge(a, b) for a, b in zip(rows[into], rows.pop(key))]
            length = half
        return {(*key[:place], *key[place + 1 :]): vectors for key, vectors in rows.items()}

    def _fold_lanes(self, vectors: list[Vec], length: int, merge: Callable[[Vec, Vec], Vec]) -> Vec:
        vectors = list(vectors)
        while length > self.width:
            half = power_below(length)
            for k in range(half // self.width, len(vectors)):
                into = k - half // self.width
                vectors[into] = self._merged_front(vectors[into], vectors[k], merge)
            vectors = vectors[: half // self.width]
            length = half
        (vec,) = vectors
        while length > 1:
            half = power_below(length)
            rest = length - half
            low = self.lanes.shuffle(vec, None, list(range(rest)))
            high = self.lanes.shuffle(vec, None, list(range(half, length)))
            folded = merge(low, high)
            if rest < half:
                wide = self.lanes.widen(folded, vec.lanes or 1)
                folded = self.lanes.shuffle(wide, vec, [i if i < rest else (vec.lanes or 1) + i for i in range(half)])
            vec, length = folded, half
        return self.lanes.element(vec, 0)

    def _merged_front(self, into: Vec, other: Vec, merge: Callable[[Vec, Vec], Vec]) -> Vec:
        """`other` merged into the first lanes of `into`."""
        n, whole = other.lanes or 1, into.lanes or 1
        if n == whole:
            return merge(into, other)
        front = merge(self.lanes.shuffle(into, None, list(range(n))), other)
        wide = self.lanes.widen(front, whole)
        return self.lanes.shuffle(wide, into, [i if i < n else whole + i for i in range(whole)])

    # ---- contractions

    def mma(self, stmt: Mma) -> None:
        """`dst[$] = acc[$] + sum of a * b`, by multiply-add."""
        if stmt.atom not in FMA_ATOMS:
            raise unsupported(f"the atom {stmt.atom} on register fragments", f"one of {', '.join(FMA_ATOMS)}")
        points = self.registers.points(stmt.dst)
        dtype = self.registers.frag(stmt.dst).dtype
        totals: list[Vec] = []
        for point in points:
            # -0.0 is the identity of float addition: the first product keeps its sign.
            start = constant(dtype, -0.0 if dtype.is_float else 0, point.lanes)
            if stmt.acc is not None:
                start = self.lanes.splat(self.registers.read(stmt.acc, point), point.lanes)
            totals.append(start)
        a, b = self._operand(stmt, stmt.a), self._operand(stmt, stmt.b)
        for step in product(*map(range, stmt.contracted)):
            for i, point in enumerate(points):
                whole = point.extended(step)
                totals[i] = self._step(stmt.atom, a(whole), b(whole), totals[i])
        for point, total in zip(points, totals):
            self.registers.write(stmt.dst, point, total)

    def _step(self, atom: str, a: Vec, b: Vec, total: Vec) -> Vec:
        if atom == "fma":
            return self.arith.fma(a, b, total)
        return self.arith.apply("add", [total, self.arith.apply("mul", [a, b])])

    def _operand(self, stmt: Mma, ref: FragRef | MemRef) -> Callable[[Point], Vec]:
        """A reader that reads each element or vector once, converted to the accumulator's dtype."""
        dtype = self.registers.frag(stmt.dst).dtype
        rank = len(self.registers.frag(stmt.dst).shape) + len(stmt.contracted)
        subscripts = ref.index if isinstance(ref, MemRef) else ref.coords
        if subscripts is None:
            raise ill_formed(f"the operand {ref.name} of a contraction without coordinates", "coordinates")
        used = [i for i in range(rank) if any(coordinate(i) in e.symbols for e in subscripts)]
        place: Place | None = None
        if isinstance(ref, MemRef):
            place = Place(self.access.index, self.memories[ref.name], ref, rank)
        seen: dict[tuple[int | None, ...], Vec] = {}

        def read(point: Point) -> Vec:
            key = (point.lanes, *(point.at[i] for i in used))
            if key not in seen:
                at = point if point.axis in used else Point(point.at)
                if place is None:
                    assert isinstance(ref, FragRef)
                    value = self.registers.read(ref, at)
                else:
                    value = self.access.fetch(place, at, None, "undef")
                seen[key] = self.lanes.splat(self.arith.casts.cast(value, dtype), point.lanes)
            return seen[key]

        return read
