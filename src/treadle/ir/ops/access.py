"""Reading and writing: tensors, parts of tiles, parts of outer tiles.

A subscript list has one entry an axis of the tensor or tile. The element of a load at result coordinates `c` is the
tensor's element whose index along each axis is: the coordinate of that axis (a part), the index expression (an index),
or the element of the integer tile at the coordinates of its axes. The result's axes are the union of the subscripts'
axes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from treadle.ir.core import AxisSub, Op, Tensor, Value, values_of


@dataclass(eq=False, kw_only=True)
class Load(Op):
    """A snapshot of elements of a tensor. `fill` (a scalar value) stands for elements outside the tensor."""

    keyword: ClassVar[str] = "load"
    tensor: Tensor
    subs: tuple[AxisSub, ...]
    fill: Value | None = None

    @property
    def operands(self) -> tuple[Value, ...]:
        return values_of(self.subs) + (() if self.fill is None else (self.fill,))


@dataclass(eq=False, kw_only=True)
class Store(Op):
    """Elements of `value` (already of the tensor's dtype) stored; axes match by identity, missing ones broadcast.

    `where` (a bool value) skips elements. `effect` "set" may not collide; "add", "max", "min" are atomic and may.
    Results: none for "set"; the old values otherwise.
    """

    keyword: ClassVar[str] = "store"
    tensor: Tensor
    subs: tuple[AxisSub, ...]
    value: Value
    where: Value | None = None
    effect: str = "set"
    order: str = "unordered"

    @property
    def operands(self) -> tuple[Value, ...]:
        return (*values_of(self.subs), self.value, *(() if self.where is None else (self.where,)))


@dataclass(eq=False, kw_only=True)
class Extract(Op):
    """Elements of a tile, subscripted in global coordinates like a tensor."""

    keyword: ClassVar[str] = "extract"
    source: Value
    subs: tuple[AxisSub, ...]
    fill: Value | None = None

    @property
    def operands(self) -> tuple[Value, ...]:
        return (self.source, *values_of(self.subs), *(() if self.fill is None else (self.fill,)))


@dataclass(eq=False, kw_only=True)
class Insert(Op):
    """The tile `source` with the subscripted elements replaced by those of `value` (`T[m, n] = v`)."""

    keyword: ClassVar[str] = "insert"
    source: Value
    subs: tuple[AxisSub, ...]
    value: Value

    @property
    def operands(self) -> tuple[Value, ...]:
        return (self.source, *values_of(self.subs), self.value)
