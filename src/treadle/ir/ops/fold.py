"""Folds over axes, and the contraction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from treadle.algebra.dims import Dim
from treadle.ir.core import Op, Order, Value


@dataclass(eq=False, kw_only=True)
class Reduce(Op):
    """The fold of `source` over the axes along `dims` with a built-in monoid, in coordinate order as `order` permits.

    `monoid`: "add" (float identity -0.0 seen as 0.0 for an empty fibre), "mul", "max", "min", "and", "or".
    `nan` "propagate" or "ignore" for max and min. An empty fibre gives the identity. `source` has the result's dtype.
    """

    keyword: ClassVar[str] = "reduce"
    source: Value
    dims: tuple[Dim, ...]
    monoid: str
    order: Order = "unordered"
    nan: str = "propagate"

    @property
    def operands(self) -> tuple[Value, ...]:
        return (self.source,)


@dataclass(eq=False, kw_only=True)
class ArgReduce(Op):
    """The i64 coordinate (row-major position, for several dimensions) of the first maximum or minimum along `dims`."""

    keyword: ClassVar[str] = "argreduce"
    source: Value
    dims: tuple[Dim, ...]
    monoid: str
    nan: str = "propagate"

    @property
    def operands(self) -> tuple[Value, ...]:
        return (self.source,)


@dataclass(eq=False, kw_only=True)
class Mma(Op):
    """`acc + sum over the axes that a and b share and acc lacks of a * b`, products and sums in acc's dtype.

    Operands are converted exactly to acc's dtype (never to a lower precision). With no contracted axis: the outer
    product.
    """

    keyword: ClassVar[str] = "mma"
    a: Value
    b: Value
    acc: Value

    @property
    def operands(self) -> tuple[Value, ...]:
        return (self.a, self.b, self.acc)

    @property
    def contracted(self) -> tuple[Dim, ...]:
        """Dimensions of both operands that the accumulator lacks, in the order of `a`."""
        shared = self.b.type.dims
        kept = self.acc.type.dims
        return tuple(d for d in self.a.type.dims if d in shared and d not in kept)
