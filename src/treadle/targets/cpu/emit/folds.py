"""Folds over fragment axes, and contractions by multiply-add.

**Order of a fold.** The axes are folded one after another, outer ones first. An axis of length L is folded by
halving: while L > 1, with h the largest power of two below L, element i becomes `x[i] (+) x[i + h]` for all i with
i + h < L, and then L = h. At last `acc (+) result`. The order does not depend on the width of vectors, and the
simulator has the same.

**Order of a contraction.** The contracted coordinates in row-major order, one multiply-add each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import product

from treadle.machine.form import Fold, FragRef, MemRef, Mma
from treadle.targets.cpu.emit.arith import Arith
from treadle.targets.cpu.emit.errors import ill_formed, unsupported
from treadle.targets.cpu.emit.index import Point, coordinate
from treadle.targets.cpu.emit.lanes import Lanes, Vec, constant, power_below
from treadle.targets.cpu.emit.moves import Moves
from treadle.targets.cpu.emit.places import Memory, Place
from treadle.targets.cpu.emit.registers import Registers

Rows = dict[tuple[int, ...], list[Vec]]
"""The vectors of each row; the key has the coordinates of the axes but the last that are not folded yet."""

FMA_ATOMS = ("fma", "muladd")
"""Fused, and rounded after the product."""


class Folds:
    """Folds and contractions of one function."""

    def __init__(self, registers: Registers, arith: Arith, moves: Moves, memories: dict[str, Memory]) -> None:
        self.registers = registers
        self.arith = arith
        self.moves = moves
        self.memories = memories
        self.lanes: Lanes = arith.lanes
        self.width = registers.width

    # ---- folds

    def fold(self, stmt: Fold) -> None:
        """`dst[$] = acc[$] (+) fold of src over axes`."""

        def merge(a: Vec, b: Vec) -> Vec:
            return self.arith.fold(stmt.monoid, a, b, stmt.nan)

        points = self.registers.points(stmt.dst)
        if not stmt.axes:
            self._finish(
                stmt, ((p, self.lanes.splat(self.registers.read(stmt.src, p), p.lanes)) for p in points), merge
            )
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
            self._finish(stmt, ((p, self._from_rows(rows, p)) for p in points), merge)
            return
        ones = self._fold_lanes(rows, shape[last], merge)
        self._finish(stmt, ((p, self._from_ones(ones, p)) for p in points), merge)

    def _from_ones(self, ones: dict[tuple[int, ...], tuple[Vec, int]], point: Point) -> Vec:
        """The folds at a point of the destination."""
        if point.lanes is None:
            return self.lanes.element(*ones[point.at])
        return self.lanes.assemble([ones[point.lane(i).at] for i in range(point.lanes)])

    def _from_rows(self, rows: Rows, point: Point) -> Vec:
        """The elements at a point of the destination, whose last axis is that of the rows."""
        if point.axis == len(point.at) - 1:
            return rows[point.at[:-1]][point.at[-1] // self.width]
        places = [point.lane(i).at for i in range(point.lanes or 1)]
        parts = [(rows[at[:-1]][at[-1] // self.width], at[-1] % self.width) for at in places]
        return self.lanes.element(*parts[0]) if point.lanes is None else self.lanes.assemble(parts)

    def _finish(self, stmt: Fold, folded: Iterable[tuple[Point, Vec]], merge: Callable[[Vec, Vec], Vec]) -> None:
        def merged() -> Iterator[tuple[Point, Vec]]:
            for point, value in folded:
                if stmt.acc is not None:
                    value = merge(self.lanes.splat(self.registers.read(stmt.acc, point), point.lanes), value)
                yield point, value

        moved = any(r is not None and r.name == stmt.dst and r.coords is not None for r in (stmt.src, stmt.acc))
        # All is read before anything is written where an operand is another part of the destination.
        for point, value in list(merged()) if moved else merged():
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

    def _fold_lanes(
        self, rows: Rows, length: int, merge: Callable[[Vec, Vec], Vec]
    ) -> dict[tuple[int, ...], tuple[Vec, int]]:
        """For each row the vector and lane that hold its fold along the last axis.

        Rows are folded together, as many as a row has lanes: a step takes the lower halves of two vectors' rows and
        their upper halves, and one merge serves both. The order inside each row is the documented one.
        """
        found: dict[tuple[int, ...], tuple[Vec, int]] = {}
        keys = list(rows)
        vectors = [self._to_power_of_two(rows[key], length, merge) for key in keys]
        size = vectors[0].lanes or 1
        for start in range(0, len(keys), size):
            group = vectors[start : start + size]
            lanes, count = size, 1
            while lanes > 1:
                group = [
                    self._fold_pair(group[i], group[i + 1] if i + 1 < len(group) else None, count, lanes, merge)
                    for i in range(0, len(group), 2)
                ]
                lanes //= 2
                count *= 2 if len(keys) > 1 else 1
            for i, key in enumerate(keys[start : start + size]):
                found[key] = group[0], i
        return found

    def _fold_pair(self, a: Vec, b: Vec | None, count: int, lanes: int, merge: Callable[[Vec, Vec], Vec]) -> Vec:
        """`count` rows of `lanes` lanes in `a`, as many in `b`: all rows with half the lanes."""
        half = lanes // 2
        low = [row * lanes + i for row in range(count) for i in range(half)]
        high = [i + half for i in low]
        if b is None:
            return merge(self.lanes.shuffle(a, None, low), self.lanes.shuffle(a, None, high))
        total = a.lanes or 1
        wide = self.lanes.widen(b, total)
        return merge(
            self.lanes.shuffle(a, wide, low + [total + i for i in low]),
            self.lanes.shuffle(a, wide, high + [total + i for i in high]),
        )

    def _to_power_of_two(self, vectors: list[Vec], length: int, merge: Callable[[Vec, Vec], Vec]) -> Vec:
        """A row folded to one vector of a power of two of lanes, at most a vector's width."""
        vectors = list(vectors)
        while length > self.width:
            half = power_below(length)
            for k in range(half // self.width, len(vectors)):
                into = k - half // self.width
                vectors[into] = self._merged_front(vectors[into], vectors[k], merge)
            vectors = vectors[: half // self.width]
            length = half
        (vec,) = vectors
        if length & (length - 1) == 0:
            return vec
        half = power_below(length)
        rest = length - half
        front = self.lanes.shuffle(vec, None, list(range(half)))
        return self._merged_front(front, self.lanes.shuffle(vec, None, list(range(half, half + rest))), merge)

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
            assert self.registers.index is not None
            place = Place(self.registers.index, self.memories[ref.name], ref, rank)
        seen: dict[tuple[int | None, ...], Vec] = {}

        def read(point: Point) -> Vec:
            key = (point.lanes, *(point.at[i] for i in used))
            if key not in seen:
                at = point if point.axis in used else Point(point.at)
                if place is None:
                    assert isinstance(ref, FragRef)
                    value = self.registers.read(ref, at)
                else:
                    value = self.moves.fetch(place, at, None, "undef")
                seen[key] = self.lanes.splat(self.arith.casts.cast(value, dtype), point.lanes)
            return seen[key]

        return read
