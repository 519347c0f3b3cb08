"""Dimensions and parts of dimensions.

A `Dim` is an identity: two dimensions of the same extent are different dimensions. A `Part` is a half-open range of a
dimension's coordinates; the axes of tiles are parts. Two parts are *the same part* when their dimension is the same and
their bounds are equal expressions: that is what "provably the same part" means everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from treadle.algebra.expr import Expr, ExprLike, as_expr, const, maximum, minimum, sym


@dataclass(frozen=True, eq=False)
class Dim:
    """A dimension identity.

    `extent` is the symbol of its name, a number, the extent of the dimension it is an alias of, or the product of its
    factors' extents. `alias_of` is the root it was renamed from; `factors` make a row-major product dimension.
    """

    name: str
    extent: Expr
    alias_of: Dim | None = None
    factors: tuple[Dim, ...] = ()
    static: bool = False

    @property
    def root(self) -> Dim:
        """The dimension whose extent this one shares (itself, unless an alias)."""
        return self if self.alias_of is None else self.alias_of.root

    def whole(self) -> Part:
        """The part with every coordinate."""
        return Part(self, const(0), self.extent, self.name)

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


def dim(name: str, extent: ExprLike | None = None, *, static: bool = False) -> Dim:
    """A fresh dimension; its extent is the symbol `name` unless given."""
    return Dim(name, sym(name) if extent is None else as_expr(extent), static=static)


@dataclass(frozen=True)
class Part:
    """Coordinates `lo <= c < hi` of `dim`. `hi >= lo` always holds; `label` is for messages and printing."""

    dim: Dim
    lo: Expr
    hi: Expr
    label: str = field(default="", compare=False)

    @property
    def extent(self) -> Expr:
        """How many coordinates it has."""
        return self.hi - self.lo

    def cut(self, lo: ExprLike | None, hi: ExprLike | None, label: str = "") -> Part:
        """The sub-part `[lo, hi)`, clamped to this part; empty when `lo >= hi`.

        *Ensures*: the coordinates of the result are those `c` of this part with `lo <= c < hi`.
        """
        low = lo is None or as_expr(lo) == self.lo
        high = hi is None or as_expr(hi) == self.hi
        start = self.lo if low or lo is None else minimum(maximum(as_expr(lo), self.lo), self.hi)
        stop = self.hi if high or hi is None else maximum(start, minimum(as_expr(hi), self.hi))
        return Part(self.dim, start, stop, label)

    def __str__(self) -> str:
        return self.label or f"{self.dim}[{self.lo} : {self.hi}]"

    __repr__ = __str__
