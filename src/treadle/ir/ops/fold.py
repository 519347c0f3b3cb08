"""Folds over axes, prefix folds, sorting, and the contraction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from treadle.algebra.dims import Dim, Part
from treadle.ir.core import Block, Merge, Op, Order, Value


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


@dataclass(eq=False, kw_only=True)
class Fold(Op):
    """The fold of states along `dims` with a monoid of the user, in row-major coordinate order as `order` permits.

    `sources` are the leaves of the states: at each coordinate along `dims`, tiles over the remaining axes (a source may
    lack axes: it is the same along them). One result a leaf, of the merge's types; of an empty fibre, the identity.
    """

    keyword: ClassVar[str] = "fold"
    sources: tuple[Value, ...]
    dims: tuple[Dim, ...]
    merge: Merge
    order: Order = "unordered"

    @property
    def operands(self) -> tuple[Value, ...]:
        return self.sources

    @property
    def blocks(self) -> tuple[Block, ...]:
        return self.merge.blocks

    @property
    def parameters(self) -> tuple[Value, ...]:
        return self.merge.parameters


@dataclass(eq=False, kw_only=True)
class Scan(Op):
    """All prefix folds of states along `dim`: one result a leaf, which has the axis along `dim` too.

    The element at coordinate c folds those visited up to c itself, or before it (`exclusive`: the identity at the one
    visited first). Coordinates are visited from the lowest, or from the highest (`reverse`); what is visited first is
    the left operand. `merge` is a monoid of the user, or the name of a built-in one (then one source). `order`
    "unordered" and "ordered" regroup, "fold_left" is the exact chain. `whole`: `expand` leaves it as it is (a plan has
    statements for it; only derivations make such scans, `rules.scans`).
    """

    keyword: ClassVar[str] = "scan"
    sources: tuple[Value, ...]
    dim: Dim
    merge: Merge | str
    exclusive: bool = False
    reverse: bool = False
    order: Order = "ordered"
    whole: bool = False

    @property
    def operands(self) -> tuple[Value, ...]:
        return self.sources

    @property
    def blocks(self) -> tuple[Block, ...]:
        return () if isinstance(self.merge, str) else self.merge.blocks

    @property
    def parameters(self) -> tuple[Value, ...]:
        return () if isinstance(self.merge, str) else self.merge.parameters

    @property
    def part(self) -> Part:
        """The axis along `dim`."""
        return next(a for v in self.sources for a in v.type.axes if a.dim is self.dim)


@dataclass(eq=False, kw_only=True)
class Sort(Op):
    """The elements of `source` along `dim` in ascending (`descending`) order, and the i64 coordinates they come from.

    Stable: equal elements keep their order. NaN comes last in both directions. `to`: the results have this part in the
    place of the axis along `dim`, and keep the first elements (its extent must not be greater); else the axis itself.
    """

    keyword: ClassVar[str] = "sort"
    source: Value
    dim: Dim
    to: Part | None = None
    descending: bool = False

    @property
    def operands(self) -> tuple[Value, ...]:
        return (self.source,)

    @property
    def part(self) -> Part:
        """The axis along `dim`."""
        return next(a for a in self.source.type.axes if a.dim is self.dim)
