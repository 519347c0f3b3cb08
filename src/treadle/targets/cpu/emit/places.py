"""Addresses: a memory operand of a statement at the points of its fragment.

Subscripts that are affine in the coordinates give one base and a step for each axis, computed once. Others are
evaluated where they are used: as one address and a step where only other axes are irregular, else as a vector of
offsets. Strides of tensors are values of the call; the guard's `unit` facts make them numbers here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from treadle.algebra.expr import ZERO, Expr
from treadle.dtype.formats import DType
from treadle.machine.form import MemRef
from treadle.targets.cpu.emit.errors import ill_formed
from treadle.targets.cpu.emit.index import IndexWriter, Point, coordinate, split, split_by
from treadle.targets.cpu.emit.lanes import memory_type
from treadle.targets.cpu.emit.text import Int


@dataclass(frozen=True)
class Memory:
    """A tensor or buffer in one function: its base, and the steps of each axis and of a version, in elements.

    `packed`: two elements share a byte along the last axis, and the steps count bytes.
    """

    name: str
    dtype: DType
    base: str
    strides: tuple[Int, ...]
    versions: int = 0
    version_step: Int = 0
    packed: bool = False


@dataclass(frozen=True)
class Spot:
    """Where a point's first lane is, and how lanes follow: a step in elements, or a vector of offsets from the base."""

    pointer: str
    step: Int | None
    offsets: str = ""


def _constant(expr: Expr) -> int:
    """The number in a sum."""
    return next((c for monomial, c in expr.terms if monomial == ()), 0)


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
        self._strides = memory.strides
        self._first: Int = 0
        self._start: Int = 0
        """What subscripts add to the base whatever the point: apart from it, so that statements whose windows overlap
        name one element by one address, and load it once."""
        self.steps: tuple[Int, ...] | None = None
        if memory.packed and memory.strides:
            # In half bytes; along the last axis elements follow one another where bytes do.
            self._strides = (*(self.fn.mul(2, s) for s in memory.strides[:-1]), 1)
            if memory.strides[-1] != 1:
                return
        parts = [split(e, rank) for e in ref.index]
        known = [p for p in parts if p is not None]
        if len(known) == len(parts):
            base: Int = 0
            for p, stride in zip(known, self._strides):
                base = self.fn.add(base, self.fn.mul(index.value(p.rest - _constant(p.rest)), stride))
            for p, stride in zip(known, self._strides):
                self._start = self.fn.add(self._start, self.fn.mul(_constant(p.rest), stride))
            if memory.packed:
                self._first, self._start = self.fn.add(base, self._start), 0
            else:
                self._base = self._offset(self._base, base)
            self.steps = tuple(self._step([p.factors[i] for p in known]) for i in range(rank))

    def _step(self, factors: Sequence[Expr]) -> Int:
        total: Int = 0
        for f, stride in zip(factors, self._strides):
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

    def at(self, point: Point) -> Spot:
        """Addresses at a point."""
        if self.steps is not None:
            total = self._start
            for step, a in zip(self.steps, point.at):
                total = self.fn.add(total, self.fn.mul(step, a))
            step = 0 if point.axis is None else self.steps[point.axis]
            return Spot(self._offset(self._base, total), step)
        return self._general(point)

    def half(self, point: Point) -> Int:
        """The number of half bytes from `base` to a point's first lane. Requires: packed memory."""
        total = self._first
        if self.steps is not None:
            for step, a in zip(self.steps, point.at):
                total = self.fn.add(total, self.fn.mul(step, a))
            return total
        for number, (e, stride) in enumerate(zip(self._subscripts, self._strides)):
            at = self.index.value(e, point)
            if number == len(self._strides) - 1:
                # The byte by its own step, then which half of it.
                byte = self.fn.mul(self.fn.mul(self.fn.floordiv(at, 2), 2), self.memory.strides[-1])
                at = self.fn.add(byte, at % 2 if isinstance(at, int) else self.fn.value(f"and i64 {at}, 1"))
            total = self.fn.add(total, self.fn.mul(at, stride))
        return total

    @property
    def base(self) -> str:
        """The address that `half` counts from."""
        return self._base

    def _general(self, point: Point) -> Spot:
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
        return Spot(self._offset(self._base, first), step)

    def _scattered(self, point: Point) -> Spot:
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
        return Spot(self._base, None, total)

    def pointers(self, spot: Spot, lanes: int) -> str:
        """The vector of addresses."""
        offsets = spot.offsets
        if spot.step is not None:
            if isinstance(spot.step, int):
                offsets = self.index.lanes.iota(0, lanes, step=spot.step)
            else:
                count, step = self.index.lanes.iota(0, lanes), self.index.lanes.splat_int(spot.step, lanes)
                offsets = self.fn.value(f"mul <{lanes} x i64> {count}, {step}")
        return self.fn.value(f"getelementptr {self.kind}, ptr {spot.pointer}, <{lanes} x i64> {offsets}")
