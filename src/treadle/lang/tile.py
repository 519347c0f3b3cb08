"""`Tile`: what a kernel computes with. An immutable value with a dtype and axes; no axes is a scalar.

An integer tile also knows an *element expression* (`expr`): its element as an index expression in the symbols `@d` of
its axes. Scalars made of coordinates, bounds and extents are expressions only, and become an operation where a value is
needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from treadle.algebra.expr import Constraint, Expr, Fn, of, sym
from treadle.dtype.formats import DType
from treadle.ir.core import Block, TileType, Value
from treadle.lang.errors import BadAssignment, TracedBool, TracedNumber
from treadle.lang.operators import Operators
from treadle.lang.state import context

if TYPE_CHECKING:
    from treadle.lang.dims import PartRef


class Tile(Operators):
    """A traced value. Made by loads, `td.zeros` and operations, never directly."""

    __hash__ = object.__hash__

    def __init__(
        self,
        type: TileType,
        block: Block,
        *,
        value: Value | None = None,
        expr: Expr | None = None,
        safe: bool = False,
        fact: tuple[Constraint, ...] | None = None,
    ) -> None:
        self.type = type
        self.block = block
        self._value = value
        self._expr = expr
        self.safe = safe
        """Whether arithmetic on `expr` cannot wrap around: coordinates, extents, and integers of at most 32 bits."""
        self.fact = fact
        """Of a scalar comparison: what holds where it is true."""
        self.exact = fact is not None and len(fact) == 1
        """Whether `fact` is false where the comparison is."""
        self.weak: tuple[Tile, int | float, int | float] | None = None
        """Of a selection between two Python numbers: its condition and the numbers, which are weak."""

    # ---- what it is

    @property
    def dtype(self) -> DType:
        """The scalar format."""
        return self.type.dtype

    @property
    def dims(self) -> tuple[PartRef, ...]:
        """The parts that are its axes."""
        return tuple(context().part_ref(a, self.block) for a in self.type.axes)

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.type.axes)

    @property
    def value(self) -> Value:
        """The program's value, made where only an expression was known."""
        if self._value is None:
            assert self._expr is not None
            return context().index_value(self._expr)
        return self._value

    @property
    def known_value(self) -> Value | None:
        """The program's value if there is one already."""
        return self._value

    def fill(self, value: Value) -> None:
        """Gives a tile that waits for its operation its value."""
        self._value = value

    @property
    def expr(self) -> Expr | None:
        """The element expression of an integer tile."""
        if self._expr is None and self.dtype.is_int and self._value is not None:
            self._expr = of(Fn(self._value.name, tuple(axis_symbol(a.dim.name) for a in self.type.axes)))
        return self._expr

    # ---- conversions

    def to(self, dtype: Any, *, saturate: bool = False) -> Tile:
        """Converted to `dtype`: a rounding event. *Errors*: `capture/argument`."""
        return context().convert_to(self, dtype, saturate)

    def bitcast(self, dtype: Any) -> Tile:
        """The same bits as another dtype of that width. *Errors*: `dtype/operand`."""
        return context().bitcast(self, dtype)

    # ---- subscripts

    def __getitem__(self, key: Any) -> Tile:
        return context().extract(self, key)

    def at(self, *subs: Any, fill: Any = None) -> Tile:
        """The subscripted elements; `fill` stands for those outside. *Errors*: `bounds/unproved`, `dims/...`."""
        return context().extract(self, subs, fill)

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise BadAssignment(
            doing="assigning a part of a tile",
            found="code that is not captured from its source",
            expected="an assignment in a kernel or in a Python function it calls",
            hint="write the function in Python, with its source at hand",
            span=context().span,
        )

    # ---- folds

    def sum(self, *over: Any, order: str = "unordered") -> Tile:
        """The sum over the named dimensions, or all; f16 and bf16 are summed in f32, short integers in i32 or u32."""
        return context().fold("add", self, over, order=order)

    def prod(self, *over: Any, order: str = "unordered") -> Tile:
        """The product over the named dimensions, or all, in the dtype of `sum`."""
        return context().fold("mul", self, over, order=order)

    def max(self, *over: Any, nan: str = "propagate") -> Tile:
        """The maximum; of nothing, the lowest value. *Errors*: `reduce/empty`."""
        return context().fold("max", self, over, nan=nan)

    def min(self, *over: Any, nan: str = "propagate") -> Tile:
        """The minimum; of nothing, the highest value. *Errors*: `reduce/empty`."""
        return context().fold("min", self, over, nan=nan)

    def any(self, *over: Any) -> Tile:
        """Whether an element is true (not zero)."""
        return context().fold("or", self, over)

    def all(self, *over: Any) -> Tile:
        """Whether every element is true (not zero)."""
        return context().fold("and", self, over)

    def argmax(self, *over: Any, nan: str = "propagate") -> Tile:
        """The i64 coordinate of the first maximum (several dimensions: the row-major position)."""
        return context().argfold("max", self, over, nan)

    def argmin(self, *over: Any, nan: str = "propagate") -> Tile:
        """The i64 coordinate of the first minimum (several dimensions: the row-major position)."""
        return context().argfold("min", self, over, nan)

    def mean(self, *over: Any) -> Tile:
        """The average, in f32 (f64 of f64)."""
        return context().mean(self, over)

    def var(self, *over: Any, ddof: int = 0) -> Tile:
        """The variance, in f32 (f64 of f64): squared deviations over the count less `ddof`."""
        return context().var(self, over, ddof)

    # ---- what Python must not do with it

    def __bool__(self) -> bool:
        raise TracedBool(
            doing="asking for the truth value of a tile" if self.rank else "asking Python for a traced truth value",
            found=f"{self.type}, which is known only when the kernel runs",
            expected="a staged value",
            hint="use td.where and & | ~ on tiles; and, or, not and if take traced scalars in captured code",
            span=context().span,
        )

    def __index__(self) -> int:
        raise self._no_number()

    def __int__(self) -> int:
        raise self._no_number()

    def __float__(self) -> float:
        raise self._no_number()

    def __len__(self) -> int:
        raise self._no_number()

    def __iter__(self) -> NoReturn:
        ctx = context()
        raise TracedNumber(
            doing="iterating over a tile",
            found=f"{self.type}, whose elements are known only when the kernel runs",
            expected="a Python iterable, or a region",
            hint="compute with whole tiles, or iterate over a dimension: for n in td.serial(N.each):",
            span=ctx.span,
        )

    def _no_number(self) -> Exception:
        ctx = context()
        missing = ctx.extent_wanted(self)
        if missing is not None:
            return missing
        return TracedNumber(
            doing="asking Python for a number",
            found=f"{self.type}, which is known only when the kernel runs",
            expected="a staged number",
            hint="use a region for a traced count (td.serial(n)), or pass the number as a keyword-only parameter",
            span=ctx.span,
        )

    def __str__(self) -> str:
        return f"Tile({self._value or self._expr}: {self.type})"

    __repr__ = __str__


def axis_symbol(name: str) -> Expr:
    """The symbol that stands for the coordinate along a dimension in element expressions."""
    return sym(f"@{name}")
