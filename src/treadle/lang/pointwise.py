"""Elementwise operations: lifting of numbers and parts, dtype rules, broadcasting by identity.

f16 and bf16 are computed in f32 and rounded once an operation. Scalars that are index expressions stay expressions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from treadle.algebra.dims import Part
from treadle.algebra.expr import Constraint, Expr, as_expr, eq, floordiv, ge, gt, le, lt, maximum, minimum
from treadle.dtype import promote as rules
from treadle.dtype.formats import DType, bool_, f32, f64, i64, u64
from treadle.ir.core import Value
from treadle.ir.ops.elementwise import ELEMENTWISE
from treadle.ir.ranges import LIMIT
from treadle.lang import numbers
from treadle.lang.dims import PartRef
from treadle.lang.errors import BadArgument, DimConflict, WrongDType
from treadle.lang.objects import python_operator
from treadle.lang.storage import Memory
from treadle.lang.tile import Tile, axis_symbol

if TYPE_CHECKING:
    from treadle.lang.context import Context

Number = bool | int | float
Operand = Tile | Number

SIGNS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "and": "&",
    "or": "|",
    "xor": "^",
    "shl": "<<",
    "shr": ">>",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq": "==",
    "ne": "!=",
}
PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "add": python_operator("add"),
    "sub": python_operator("sub"),
    "mul": python_operator("mul"),
    "div": python_operator("truediv"),
    "floordiv": python_operator("floordiv"),
    "mod": python_operator("mod"),
    "pow": numbers.power,
    "and": python_operator("and_"),
    "or": python_operator("or_"),
    "xor": python_operator("xor"),
    "shl": python_operator("lshift"),
    "shr": python_operator("rshift"),
    "lt": python_operator("lt"),
    "le": python_operator("le"),
    "gt": python_operator("gt"),
    "ge": python_operator("ge"),
    "eq": python_operator("eq"),
    "ne": python_operator("ne"),
    "maximum": numbers.maximum,
    "minimum": numbers.minimum,
}
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
COMMUTATIVE = ("add", "mul", "maximum", "minimum", "and", "or", "xor", "eq", "ne")
INDEX_FUNCTIONS: dict[str, Callable[[Expr, Expr], Expr]] = {
    "add": python_operator("add"),
    "sub": python_operator("sub"),
    "mul": python_operator("mul"),
    "maximum": maximum,
    "minimum": minimum,
}
FACTS: dict[str, Callable[[Expr, Expr], Constraint]] = {"lt": lt, "le": le, "gt": gt, "ge": ge, "eq": eq}

# ---- operands


def lift(ctx: Context, x: Any, doing: str) -> Operand:
    """`x` as an operand: a tile, or a Python number, which stays weak. *Errors*: `capture/argument`, `capture/gone`."""
    if isinstance(x, Tile):
        ctx.alive(x)
        return x
    if isinstance(x, (bool, int, float)):
        return x
    if isinstance(x, PartRef):
        return ctx.coords(x)
    if isinstance(x, np.generic):
        return lift(ctx, x.item(), doing)
    raise BadArgument(
        doing=doing,
        found=f"an operand of type {type(x).__name__}",
        expected="a tile, a part of a dimension or a number",
        hint=_subscripted(x),
        span=ctx.span,
    )


def _subscripted(x: Any) -> str:
    if isinstance(x, Memory):
        return "subscript the memory to read a tile: buffer[m, k]"
    return "subscript a tensor to load a tile: X[m, k]" if hasattr(x, "set_at") else "convert it to a number first"


def constant(ctx: Context, number: Number, dtype: DType, axes: Sequence[Part] = ()) -> Value:
    """A tile full of `number`, rounded to `dtype`; scalars are made once a block.

    *Errors*: `dtype/number-out-of-range` for an integer that no dtype holds.
    """
    _some_dtype_holds(ctx, number, dtype)
    found = rounded(number, dtype)
    if axes:
        return ctx.builder.full(found, dtype, axes)
    key = (dtype, repr(found))
    for block in ctx.builder.stack:
        if (known := ctx.cached(block).numbers.get(key)) is not None:
            return known
    made = ctx.builder.full(found, dtype)
    ctx.cached(ctx.builder.block).numbers[key] = made
    return made


def _some_dtype_holds(ctx: Context, number: Number, dtype: DType) -> None:
    """*Errors*: `dtype/number-out-of-range` for an integer beyond every dtype of the kind."""
    widest = (f64.finite_min, f64.finite_max) if dtype.is_float else (i64.finite_min, u64.finite_max)
    if isinstance(number, int) and not dtype.is_bool and not widest[0] <= number <= widest[1]:
        rules.promote_weak(dtype if dtype.is_float else i64, number, doing=f"making a number of {dtype}", span=ctx.span)


def rounded(number: Number, dtype: DType) -> Number:
    """The number that `dtype` holds for it."""
    if dtype.is_bool:
        return bool(number)
    if dtype.is_int:
        if isinstance(number, float):
            if number != number:
                return 0
            return int(min(max(number, dtype.finite_min), dtype.finite_max))
        low, count = int(dtype.finite_min), 1 << dtype.bits
        return (int(number) - low) % count + low
    with np.errstate(all="ignore"):
        return float(np.asarray(numbers.as_float(number), dtype.numpy).astype(np.float64))


def materialise(ctx: Context, x: Operand, dtype: DType) -> Value:
    """The operand as a value of `dtype`."""
    if isinstance(x, Tile):
        return convert(ctx, x, dtype).value
    return constant(ctx, x, dtype)


def convert(ctx: Context, x: Tile, dtype: DType, *, saturate: bool = False) -> Tile:
    """`x` in `dtype`, itself where it has that dtype."""
    if x.dtype == dtype:
        return x
    value = ctx.builder.cast(x.value, dtype, saturate=saturate)
    widens = x.dtype.is_int and dtype == i64 and not (x.dtype.kind == "uint" and x.dtype.bits == 64)
    return ctx.tile(value, expr=x.expr if widens else None, safe=widens and (x.dtype.bits <= 32 or x.safe))


def within_signed(ctx: Context, x: Tile) -> Expr:
    """A scalar of u64 as an i64 index, the largest of these where it is larger."""
    top = constant(ctx, LIMIT, x.dtype)
    return ctx.builder.cast(ctx.builder.elementwise("minimum", x.value, top), i64).at()


def join(ctx: Context, operands: Sequence[Operand], doing: str) -> tuple[Part, ...]:
    """The axes of the result. *Errors*: `dims/part-mismatch`."""
    joined: list[Part] = []
    for x in operands:
        for part in x.type.axes if isinstance(x, Tile) else ():
            known = next((p for p in joined if p.dim is part.dim), None)
            if known is None:
                joined.append(part)
            elif known != part:
                raise DimConflict(
                    doing=doing,
                    found=f"two parts of {part.dim}: {show_part(known)} and {show_part(part)}",
                    expected="operands that share a dimension to hold provably the same part of it",
                    hint=f"use the same block, or rename one side by an alias: {part.dim}2 = {part.dim}.alias(...)",
                    span=ctx.span,
                )
    return tuple(joined)


def show_part(part: Part) -> str:
    """A part by its name and bounds."""
    bounds = f"{part.dim}[{part.lo} : {part.hi}]"
    return bounds if not part.label or part.label == part.dim.name else f"{part.label} = {bounds}"


# ---- operations


def binary(ctx: Context, fn: str, a: Any, b: Any) -> Any:
    """`fn` of two operands by the dtype rules. *Errors*: `dtype/...`, `dims/part-mismatch`, `capture/argument`."""
    sign = SIGNS.get(fn, fn)
    x, y = lift(ctx, a, f"computing {sign}"), lift(ctx, b, f"computing {sign}")
    if not isinstance(x, Tile) and not isinstance(y, Tile):
        return PYTHON[fn](x, y)
    if fn == "pow":
        return power(ctx, x, y)
    selected = weak_selection(ctx, fn, x, y)
    if selected is not None:
        return selected
    x, y = strengthened(ctx, x, y), strengthened(ctx, y, x)
    exact = index_binary(ctx, fn, x, y)
    if exact is not None and not any(isinstance(t, Tile) and t.rank for t in (x, y)):
        return ctx.index(exact)
    if exact is not None and not ctx.fits(exact):
        exact = None  # i64 elements of a tile wrap, expressions do not
    dtype = common(ctx, x, y, sign)
    if fn == "div":
        dtype = rules.division(dtype)
    if dtype.is_bool and fn in ("add", "mul"):
        fn = "or" if fn == "add" else "and"
    need_kind(ctx, fn, dtype)
    join(ctx, (x, y), f"computing {sign}")
    # The operand of higher rank first keeps the order of its axes, so that `x[n] + acc[m, n]` is over m, n.
    flip = fn in COMMUTATIVE and isinstance(y, Tile) and y.rank > (x.rank if isinstance(x, Tile) else 0)
    value = compute(ctx, fn, (y, x) if flip else (x, y), dtype)
    fact = index_fact(ctx, fn, x, y) if fn in COMPARISONS else None
    if fn == "and" and dtype.is_bool:
        return both_facts(ctx.tile(value), x, y)
    return ctx.tile(value, expr=exact, safe=exact is not None, fact=fact)


def both_facts(result: Tile, x: Any, y: Any) -> Tile:
    """A conjunction: where it is true, the facts of both operands hold; where it is false, nothing is known."""
    facts = [x.fact for x in (x, y) if isinstance(x, Tile) and x.fact is not None and not x.rank]
    if facts and not result.rank:
        result.fact = tuple(f for fact in facts for f in fact)
        result.exact = False
    return result


def common(ctx: Context, x: Operand, y: Operand, sign: str) -> DType:
    """The dtype of an operation on both operands."""
    doing = f"computing {sign}"
    if isinstance(x, Tile) and isinstance(y, Tile):
        return rules.promote(x.dtype, y.dtype, doing=doing, span=ctx.span)
    if isinstance(x, Tile):
        assert not isinstance(y, Tile)
        return rules.promote_weak(x.dtype, y, doing=doing, span=ctx.span)
    assert isinstance(y, Tile)
    return rules.promote_weak(y.dtype, x, doing=doing, span=ctx.span)


def need_kind(ctx: Context, fn: str, dtype: DType) -> None:
    """*Errors*: `dtype/operand` where `fn` does not take the dtype."""
    kinds = ELEMENTWISE[fn][1]
    if dtype.kind[0] in kinds:
        return
    words = {"b": "bool", "i": "signed integers", "u": "unsigned integers", "f": "floats"}
    raise WrongDType(
        doing=f"computing {SIGNS.get(fn, fn)}",
        found=f"operands of {dtype}",
        expected=", ".join(words[k] for k in kinds),
        hint="convert the operands with .to first",
        span=ctx.span,
    )


def compute(ctx: Context, fn: str, operands: Sequence[Operand], dtype: DType) -> Value:
    """The operation in the computing dtype of `dtype`, its result rounded to `dtype` once."""
    inner = rules.computing(dtype)
    args: list[Value] = []
    for x in operands:
        if isinstance(x, Tile):
            args.append(convert(ctx, convert(ctx, x, dtype), inner).value)
        else:
            _some_dtype_holds(ctx, x, dtype)
            args.append(constant(ctx, rounded(x, dtype), inner))
    value = ctx.builder.elementwise(fn, *args)
    if ELEMENTWISE[fn][2] == "same" and inner != dtype:
        value = ctx.builder.cast(value, dtype)
    return value


def index_binary(ctx: Context, fn: str, x: Operand, y: Operand) -> Expr | None:
    """The result as an index expression, where both operands are exact ones."""
    a, b = index_operand(x), index_operand(y)
    if a is None or b is None:
        return narrow_division(fn, x, y)
    if fn in INDEX_FUNCTIONS:
        return INDEX_FUNCTIONS[fn](a, b)
    if fn in ("floordiv", "mod"):
        number = b.constant
        if number is not None and number < 0:
            a, b = -a, -b
        if number == 0 or (number is None and not ctx.proves(b - 1) and not ctx.is_extent(b)):
            return None
        quotient = floordiv(a, b)
        if fn == "floordiv":
            return quotient
        return a - b * quotient if number is None or number > 0 else -(a - b * quotient)
    return None


def narrow_division(fn: str, x: Operand, y: Operand) -> Expr | None:
    """`//` and `%` by a positive number cannot wrap, so that the expression of any integer tile may be kept."""
    if not isinstance(y, int) or isinstance(y, bool) or y <= 0:
        return None
    if fn not in ("floordiv", "mod") or not isinstance(x, Tile) or x.expr is None or not x.rank:
        return None
    return x.expr // y if fn == "floordiv" else x.expr % y


def index_operand(x: Operand) -> Expr | None:
    """The operand's exact index expression: of i64 tiles of coordinates and of integers."""
    if isinstance(x, bool):
        return None
    if isinstance(x, int):
        return as_expr(x)
    if isinstance(x, Tile) and x.dtype == i64 and x.safe:
        return x.expr
    return None


def index_fact(ctx: Context, fn: str, x: Operand, y: Operand) -> tuple[Constraint, ...] | None:
    """What a scalar comparison says where it is true."""
    if any(isinstance(t, Tile) and t.rank for t in (x, y)) or fn not in FACTS:
        return None
    a = x.expr if isinstance(x, Tile) else index_operand(x)
    b = y.expr if isinstance(y, Tile) else index_operand(y)
    return None if a is None or b is None else (FACTS[fn](a, b),)


def unary(ctx: Context, fn: str, a: Any) -> Any:
    """`fn` of one operand. *Errors*: `dtype/...`."""
    x = lift(ctx, a, f"computing {fn}")
    if not isinstance(x, Tile):
        return python_operator({"not": "invert"}.get(fn, fn))(x)
    if fn == "pos":
        return x
    exact = index_operand(x) if fn == "neg" else None
    if exact is not None and not x.rank:
        return ctx.index(-exact)
    rules.require_arithmetic(x.dtype, doing=f"computing {fn}", span=ctx.span)
    need_kind(ctx, fn, x.dtype)
    value = compute(ctx, fn, (x,), x.dtype)
    return ctx.tile(value, expr=None if exact is None else -exact, safe=exact is not None)


def function(ctx: Context, fn: str, a: Any) -> Any:
    """A float function: integers are taken to f32, f16 and bf16 are computed in f32 and rounded once."""
    x = lift(ctx, a, f"computing {fn}")
    if not isinstance(x, Tile):
        return numbers.FUNCTIONS[fn](x)
    rules.require_arithmetic(x.dtype, doing=f"computing {fn}", span=ctx.span)
    dtype = rules.function(x.dtype)
    if ELEMENTWISE[fn][2] == "bool" and not x.dtype.is_float:
        return ctx.tile(constant(ctx, False, bool_, x.type.axes))
    if fn in ("floor", "ceil", "round", "trunc") and not x.dtype.is_float:
        return x
    return ctx.tile(compute(ctx, fn, (x,), dtype))


def power(ctx: Context, x: Operand, y: Operand) -> Any:
    """`x ** y`: small staged integers multiply, 0.5 and -0.5 are roots, the rest is `pow` on floats."""
    if isinstance(x, Tile) and isinstance(y, int) and not isinstance(y, bool) and 0 <= y <= 8:
        if y == 0:
            return ctx.tile(constant(ctx, 1, x.dtype, x.type.axes))
        result: Any = x
        for _ in range(y - 1):
            result = binary(ctx, "mul", result, x)
        return result
    if isinstance(x, Tile) and isinstance(y, float) and abs(y) == 0.5:
        return function(ctx, "sqrt" if y > 0 else "rsqrt", x)
    dtype = common(ctx, x, y, "**")
    if not dtype.is_float:
        raise WrongDType(
            doing="computing **",
            found=f"a power of {dtype}",
            expected="a staged exponent from 0 to 8, or floats",
            hint="convert the base with .to(f32)",
            span=ctx.span,
        )
    join(ctx, (x, y), "computing **")
    return ctx.tile(compute(ctx, "pow", (x, y), dtype))


def where(ctx: Context, c: Any, a: Any, b: Any) -> Any:
    """`a` where `c`, else `b`: a selection, exact in the operands' common dtype."""
    cond = lift(ctx, c, "selecting with td.where")
    x, y = lift(ctx, a, "selecting with td.where"), lift(ctx, b, "selecting with td.where")
    if not isinstance(cond, Tile):
        cond = ctx.tile(constant(ctx, bool(cond), bool_))
    if not cond.dtype.is_bool:
        raise WrongDType(
            doing="selecting with td.where",
            found=f"a condition of {cond.dtype}",
            expected="a bool tile",
            hint="compare first: td.where(x != 0, a, b)",
            span=ctx.span,
        )
    x, y = strengthened(ctx, x, y), strengthened(ctx, y, x)
    dtype = weak_pair(ctx, x, y)
    join(ctx, (cond, x, y), "selecting with td.where")
    result = selection(ctx, cond, x, y, dtype)
    if type(x) in (int, float) and type(y) in (int, float):
        assert not isinstance(x, Tile) and not isinstance(y, Tile)
        result.weak = (cond, x, y)
    return result


def selection(ctx: Context, cond: Tile, x: Operand, y: Operand, dtype: DType) -> Tile:
    """`x` where `cond`, else `y`, in a dtype."""
    args = [materialise(ctx, v, dtype) for v in (x, y)]
    return ctx.tile(ctx.builder.elementwise("where", cond.value, *args))


def strengthened(ctx: Context, x: Operand, other: Operand) -> Operand:
    """A selection between two numbers in the dtype of the tile beside it, if that holds both."""
    if not isinstance(x, Tile) or x.weak is None or not isinstance(other, Tile) or other.weak is not None:
        return x
    return in_weak_dtype(ctx, x, other.dtype)


def fits_weakly(x: Tile, dtype: DType) -> bool:
    """Whether a tile is a selection between two numbers that a dtype of their kind holds: none overflows.

    Whole numbers beside floats stay integers, which are promoted without loss of what a float holds.
    """
    if x.weak is None or not dtype.has_arithmetic:
        return False
    numbers = x.weak[1:]
    if any(type(n) is float for n in numbers) != dtype.is_float or not (dtype.is_int or dtype.is_float):
        return False
    return all(not math.isfinite(n) or dtype.finite_min <= n <= dtype.finite_max for n in numbers)


def in_weak_dtype(ctx: Context, x: Tile, dtype: DType) -> Tile:
    """A selection between two numbers in the dtype, if that holds both; any other tile as it is."""
    if x.weak is None or x.dtype == dtype or not fits_weakly(x, dtype):
        return x
    cond, a, b = x.weak
    return selection(ctx, cond, a, b, dtype)


def weak_selection(ctx: Context, fn: str, x: Operand, y: Operand) -> Tile | None:
    """A selection between two numbers, added to or multiplied by a third one: again such a selection."""
    if fn not in ("add", "sub", "mul"):
        return None
    if isinstance(x, Tile) and x.weak is not None and type(y) in (int, float):
        cond, a, b = x.weak
        return where(ctx, cond, PYTHON[fn](a, y), PYTHON[fn](b, y))
    if isinstance(y, Tile) and y.weak is not None and type(x) in (int, float):
        cond, a, b = y.weak
        return where(ctx, cond, PYTHON[fn](x, a), PYTHON[fn](x, b))
    return None


def weak_pair(ctx: Context, x: Operand, y: Operand) -> DType:
    """The common dtype of two operands that may both be numbers; equal dtypes without arithmetic are fine."""
    if isinstance(x, Tile) and isinstance(y, Tile) and x.dtype == y.dtype:
        return x.dtype
    if isinstance(x, Tile) or isinstance(y, Tile):
        return common(ctx, x, y, "td.where")
    kinds = {rules.weak_alone(x), rules.weak_alone(y)}
    return f32 if f32 in kinds else i64 if i64 in kinds else bool_


def broadcast(ctx: Context, x: Operand, dtype: DType, axes: Sequence[Part]) -> Value:
    """`x` in `dtype` over `axes`, which include its own."""
    if not isinstance(x, Tile):
        return constant(ctx, x, dtype, axes)
    value = convert(ctx, x, dtype).value
    if value.type.axes == tuple(axes):
        return value
    every = constant(ctx, True, bool_, axes)
    return ctx.builder.elementwise("where", every, value, value)


def coords_expr(part: Part) -> Expr:
    """The element expression of a tile of coordinates."""
    return axis_symbol(part.dim.name)
