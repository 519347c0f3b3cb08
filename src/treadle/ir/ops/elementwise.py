"""Pointwise operations: constants, coordinates, arithmetic, conversions.

Axes of operands join by identity: the result has the union of the operands' axes, in order of first appearance, and an
operand without an axis is the same along it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from treadle.algebra.dims import Part
from treadle.algebra.expr import Expr
from treadle.dtype.formats import DType
from treadle.ir.core import Op, Value


@dataclass(eq=False, kw_only=True)
class Full(Op):
    """Every element is the number `number`, of the result's dtype; `empty` has no number.

    `place` and `layout` are constraints on where and how the storage of `td.memory` lives; they mean nothing else.
    """

    keyword: ClassVar[str] = "full"
    number: float | int | bool | None  # None: uninitialised (`td.empty`)
    place: str | None = None
    layout: str | None = None


@dataclass(eq=False, kw_only=True)
class Coords(Op):
    """An i64 tile over `part` whose element at coordinate c is c."""

    keyword: ClassVar[str] = "coords"
    part: Part


@dataclass(eq=False, kw_only=True)
class Index(Op):
    """The i64 scalar value of an index expression."""

    keyword: ClassVar[str] = "index"
    expr: Expr


@dataclass(eq=False, kw_only=True)
class Elementwise(Op):
    """`fn` of the operands, element by element; operands have been converted to the operation's dtype by `Cast`.

    `fn` is a row of `ELEMENTWISE`. Comparisons give bool; `where` takes (bool, x, x).
    """

    fn: str
    args: tuple[Value, ...]

    @property
    def operands(self) -> tuple[Value, ...]:
        return self.args


@dataclass(eq=False, kw_only=True)
class Cast(Op):
    """A rounding event: `x.to(dtype, saturate=)`."""

    keyword: ClassVar[str] = "cast"
    source: Value
    dtype: DType
    saturate: bool = False

    @property
    def operands(self) -> tuple[Value, ...]:
        return (self.source,)


@dataclass(eq=False, kw_only=True)
class Bitcast(Op):
    """The same bits read as another dtype of the same width."""

    keyword: ClassVar[str] = "bitcast"
    source: Value
    dtype: DType

    @property
    def operands(self) -> tuple[Value, ...]:
        return (self.source,)


# name -> (arity, kinds of dtype it accepts: b bool, i int, u uint, f float; result "same" or "bool")
ELEMENTWISE: dict[str, tuple[int, str, str]] = {
    "add": (2, "iuf", "same"),
    "sub": (2, "iuf", "same"),
    "mul": (2, "iuf", "same"),
    "div": (2, "f", "same"),
    "floordiv": (2, "iuf", "same"),
    "mod": (2, "iuf", "same"),
    "pow": (2, "f", "same"),
    "maximum": (2, "biuf", "same"),
    "minimum": (2, "biuf", "same"),
    "neg": (1, "iuf", "same"),
    "abs": (1, "iuf", "same"),
    "and": (2, "biu", "same"),
    "or": (2, "biu", "same"),
    "xor": (2, "biu", "same"),
    "not": (1, "biu", "same"),
    "shl": (2, "iu", "same"),
    "shr": (2, "iu", "same"),
    "eq": (2, "biuf", "bool"),
    "ne": (2, "biuf", "bool"),
    "lt": (2, "biuf", "bool"),
    "le": (2, "biuf", "bool"),
    "gt": (2, "biuf", "bool"),
    "ge": (2, "biuf", "bool"),
    "where": (3, "biuf", "same"),
    "exp": (1, "f", "same"),
    "exp2": (1, "f", "same"),
    "log": (1, "f", "same"),
    "log2": (1, "f", "same"),
    "log1p": (1, "f", "same"),
    "expm1": (1, "f", "same"),
    "sqrt": (1, "f", "same"),
    "rsqrt": (1, "f", "same"),
    "sin": (1, "f", "same"),
    "cos": (1, "f", "same"),
    "tanh": (1, "f", "same"),
    "erf": (1, "f", "same"),
    "floor": (1, "f", "same"),
    "ceil": (1, "f", "same"),
    "round": (1, "f", "same"),
    "trunc": (1, "f", "same"),
    "isnan": (1, "f", "bool"),
    "isinf": (1, "f", "bool"),
}
