"""Masks of a statement: which of its elements are active.

`where` is a conjunction over coordinates. A conjunct that is affine in the coordinates with number factors is
evaluated once for the statement; at a point it then says "lanes from l on" or "lanes below u", so that the whole
conjunction is one comparison of the lane numbers with one count. What is left is evaluated lane by lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from treadle.algebra.expr import Constraint, Expr, compared, of
from treadle.targets.cpu.emit.index import IndexWriter, Point, split
from treadle.targets.cpu.emit.text import Int

_PREDICATES = {">=": "sge", ">": "sgt", "==": "eq"}


@dataclass(frozen=True)
class _Line:
    """`base + sum steps[i] * $i >= 0`, or `== 0`."""

    base: Int
    steps: tuple[int, ...]
    equality: bool
    held: bool
    """Whether `base` depends on numbers that nothing bounds: it may be the largest number of 64 bits, or the least."""


class Mask:
    """The active elements of one statement. `at` gives an i1, a vector of i1, or None where all are active."""

    def __init__(self, index: IndexWriter, constraints: Sequence[Constraint], rank: int) -> None:
        self._index = index
        self._lines: list[_Line] = []
        self._general: list[Constraint] = []
        self._compared: list[tuple[Expr, str, Expr]] = []
        for c in constraints:
            sides = compared(c)
            if sides is not None:  # of any two numbers: their difference is one that 64 bits need not hold
                self._compared.append((of(sides[0]), _PREDICATES[sides[1]], of(sides[2])))
                continue
            parts = split(c.expr, rank)
            steps = None if parts is None else parts.steps()
            if parts is None or steps is None:
                self._general.append(c)
            else:
                held = not c.equality and bool(parts.rest.functions)
                self._lines.append(_Line(index.value(parts.rest, held=held), steps, c.equality, held))

    def at(self, point: Point) -> str | None:
        """The mask at a point."""
        return self._scalar(point) if point.axis is None or point.lanes is None else self._vector(point)

    def _scalar(self, point: Point) -> str | None:
        fn = self._index.fn
        found: str | None = None
        for line in self._lines:
            value = self._start(line, point)
            if isinstance(value, int) and (value == 0 if line.equality else value >= 0):
                continue
            found = fn.both(found, fn.compare("eq" if line.equality else "sge", value, 0))
        for a, how, b in self._compared:
            found = fn.both(found, fn.compare(how, self._index.value(a, point), self._index.value(b, point)))
        for c in self._general:
            value = self._index.value(c.expr, point, held=not c.equality)
            found = fn.both(found, fn.compare("eq" if c.equality else "sge", value, 0))
        return found

    def _start(self, line: _Line, point: Point) -> Int:
        add = self._index.fn.add_held if line.held else self._index.fn.add
        return add(line.base, sum(s * a for s, a in zip(line.steps, point.at)))

    def _vector(self, point: Point) -> str | None:
        assert point.axis is not None and point.lanes is not None
        fn, n = self._index.fn, point.lanes
        above: Int | None = None  # lanes below this are active
        below: Int | None = None  # lanes from this on are active
        uniform: str | None = None
        vectors: list[str] = []
        for line in self._lines:
            first, step = self._start(line, point), line.steps[point.axis]
            if isinstance(first, int) and not line.equality and first >= 0 and first + step * (n - 1) >= 0:
                continue
            if step == 0:
                uniform = fn.both(uniform, fn.compare("eq" if line.equality else "sge", first, 0))
            elif step == -1 and not line.equality:
                bound = fn.add_held(first, 1) if line.held else fn.add(first, 1)
                above = bound if above is None else fn.smin(above, bound)
            elif step == 1 and not line.equality:
                bound = fn.sub_held(0, first) if line.held else fn.sub(0, first)
                below = bound if below is None else fn.smax(below, bound)
            else:
                lanes = self._index.lanes
                values = self._index.two("add", lanes.splat_int(first, n), lanes.iota(0, n, step=step), n, line.held)
                vectors.append(self._compare(values, "eq" if line.equality else "sge", n))
        for a, how, b in self._compared:
            left, right = (self._index.vector(e, point) for e in (a, b))
            vectors.append(fn.value(f"icmp {how} <{n} x i64> {left}, {right}"))
        for c in self._general:
            values = self._index.vector(c.expr, point, held=not c.equality)
            vectors.append(self._compare(values, "eq" if c.equality else "sge", n))
        if uniform is not None:
            above = fn.select(uniform, n if above is None else above, 0)
        if above is not None:
            vectors.insert(0, self._count("ult", above, n))
        if below is not None:
            vectors.insert(0, self._count("uge", below, n))
        result: str | None = None
        for v in vectors:
            result = v if result is None else fn.value(f"and <{n} x i1> {result}, {v}")
        return result

    def _compare(self, values: str, how: str, n: int) -> str:
        return self._index.fn.value(f"icmp {how} <{n} x i64> {values}, zeroinitializer")

    def _count(self, how: str, bound: Int, n: int) -> str:
        """Lane numbers compared with a bound, which is clamped to [0, n] so that 32 bits hold it."""
        fn, lanes = self._index.fn, self._index.lanes
        clamped = fn.smin(fn.smax(bound, 0), n)
        narrow = str(clamped) if isinstance(clamped, int) else fn.value(f"trunc i64 {clamped} to i32")
        splat = f"splat (i32 {narrow})" if isinstance(clamped, int) else lanes.splat_text("i32", narrow, n)
        return fn.value(f"icmp {how} <{n} x i32> {lanes.iota(0, n, 'i32')}, {splat}")


def scalar_condition(index: IndexWriter, constraints: Sequence[Constraint]) -> str | None:
    """A conjunction without coordinates, as an i1; None where it is known to hold."""
    return Mask(index, constraints, 0).at(Point(()))


def all_hold(index: IndexWriter, least: Sequence[Expr]) -> str | None:
    """Whether all these values are at least zero, as an i1; None where it is known."""
    return scalar_condition(index, [Constraint(e) for e in least])
