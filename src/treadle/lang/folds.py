"""Folds over dimensions and contractions: `x.sum(N)`, `td.mma`, `td.dot`, `@`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from treadle.algebra.dims import Dim, Part
from treadle.algebra.expr import ONE, Constraint
from treadle.dtype import promote as rules
from treadle.dtype.formats import DType, bool_, f32, f64, i32, i64
from treadle.ir.core import Order
from treadle.lang import pointwise
from treadle.lang.dims import Dimension, PartRef
from treadle.lang.dtypes import as_dtype
from treadle.lang.errors import (
    BadArgument,
    DimConflict,
    DimTwice,
    EmptyExtremum,
    MissingDim,
    Narrowing,
    ObservedBlock,
    WrongDim,
)
from treadle.lang.objects import is_word, listed
from treadle.lang.tile import Tile

if TYPE_CHECKING:
    from treadle.lang.context import Context

ORDERS = ("unordered", "ordered", "fold_left", "fold_right")
WORDS = {"add": "sum", "mul": "prod", "or": "any", "and": "all"}
BITWISE = ("and", "or", "xor")


def along(ctx: Context, doing: str, x: Tile, over: Sequence[Any]) -> tuple[Dim, ...]:
    """The dimensions of `x` that `over` names, or all. *Errors*: `dims/missing`, `dims/part-mismatch`."""
    named: list[Any] = []
    for item in over:
        named.extend(listed(item))
    if not over:
        found = list(x.type.dims)
    else:
        found = [d for item in named for d in _named(ctx, doing, x, item)]
    for d in found:
        axis = x.type.axis(d)
        assert axis is not None
        not_observed(ctx, doing, axis, "" if over else "name the dimensions to fold over: no name means all; or ")
    twice = next((d for i, d in enumerate(found) if d in found[:i]), None)
    if twice is not None:
        raise DimTwice(
            doing=doing,
            found=f"{twice}, named twice",
            expected="each dimension once",
            hint=f"name {twice} once",
            span=ctx.span,
        )
    return tuple(found)


def _named(ctx: Context, doing: str, x: Tile, item: Any) -> list[Dim]:
    if not isinstance(item, PartRef):
        raise BadArgument(
            doing=doing,
            found=f"{item!r} as a dimension",
            expected="a dimension or a part of one",
            hint="name the dimension: x.sum(N)",
            span=ctx.span,
        )
    ctx.alive(item)
    part = item.part
    axis = x.type.axis(part.dim)
    if axis is None and part.dim.factors and all(x.type.axis(f) is not None for f in part.dim.factors):
        return list(part.dim.factors)
    if axis is None:
        raise MissingDim(
            doing=doing,
            found=f"{x.type}, which has no {part.dim}",
            expected=f"one of {', '.join(map(str, x.type.dims)) or 'no dimension'}",
            hint="name a dimension of the value",
            span=ctx.span,
        )
    if not isinstance(item, Dimension) and axis != part:
        raise DimConflict(
            doing=doing,
            found=f"a value over {pointwise.show_part(axis)}",
            expected=f"the named part, {pointwise.show_part(part)}",
            hint=f"name the dimension itself, {part.dim}, for whatever part the value holds",
            span=ctx.span,
        )
    return [part.dim]


def not_observed(ctx: Context, doing: str, axis: Part, first: str = "") -> None:
    """*Errors*: `block/observed` along an open block of `parallel`; `first` begins its advice."""
    block = ctx.open_parts.get(axis)
    if block is None:
        return
    raise ObservedBlock(
        doing=doing,
        found=f"the open block {block} of {axis.dim} of a td.parallel",
        expected="a result that no block size changes",
        hint=f"{first}name the whole dimension {axis.dim}, fix the size with .by, "
        f"or iterate with td.reduce({axis.dim})",
        span=ctx.span,
    )


def fold(
    ctx: Context, monoid: str, x: Tile, over: Sequence[Any], *, order: str = "unordered", nan: str = "propagate"
) -> Tile:
    """The fold of `x` along the named dimensions with a built-in monoid."""
    ctx.alive(x)
    doing = f"computing .{WORDS.get(monoid, monoid)}"
    rules.require_arithmetic(x.dtype, doing=doing, span=ctx.span)
    known_word(ctx, doing, "order", order, ORDERS)
    known_word(ctx, doing, "nan", nan, ("propagate", "ignore"))
    dims = along(ctx, doing, x, over)
    if monoid in ("max", "min"):
        _not_empty(ctx, doing, x, dims)
    if monoid in ("or", "and"):
        x = x if x.dtype.is_bool else pointwise.binary(ctx, "ne", x, 0)
    elif monoid in ("add", "mul"):
        x = pointwise.convert(ctx, x, rules.total(x.dtype))
    if not dims:
        return x
    return ctx.tile(ctx.builder.reduce(x.value, dims, monoid, order=cast(Order, order), nan=nan))


def known_word(ctx: Context, doing: str, name: str, value: str, allowed: Sequence[str]) -> None:
    """Refuses a word that is none of the allowed ones. *Errors*: `capture/argument`."""
    if not is_word(value, allowed):
        raise BadArgument(
            doing=doing,
            found=f"{name}={value!r}",
            expected=" or ".join(repr(a) for a in allowed),
            hint=f"leave {name}= out for the default",
            span=ctx.span,
        )


def _not_empty(ctx: Context, doing: str, x: Tile, dims: Sequence[Dim]) -> None:
    for d in dims:
        axis = x.type.axis(d)
        if axis is not None and axis.extent.constant == 0:
            raise EmptyExtremum(
                doing=doing,
                found=f"no element along {d}",
                expected="at least one element",
                hint="leave the reduction out where the range is empty",
                span=ctx.span,
            )


def argfold(ctx: Context, monoid: str, x: Tile, over: Sequence[Any], nan: str) -> Tile:
    """The coordinate of the first extremum."""
    ctx.alive(x)
    doing = f"computing .arg{monoid}"
    rules.require_arithmetic(x.dtype, doing=doing, span=ctx.span)
    known_word(ctx, doing, "nan", nan, ("propagate", "ignore"))
    dims = along(ctx, doing, x, over)
    _not_empty(ctx, doing, x, dims)
    if not dims:
        raise MissingDim(
            doing=doing,
            found="a scalar",
            expected="a value with a dimension",
            hint="a scalar has no coordinate; leave it out",
            span=ctx.span,
        )
    found = ctx.tile(ctx.builder.argreduce(x.value, dims, monoid, nan=nan))
    axis = x.type.axis(dims[0])
    return found if len(dims) > 1 or axis is None else coordinates(ctx, found, axis)


def coordinates(ctx: Context, found: Tile, axis: Part) -> Tile:
    """A tile of coordinates of an axis, known to be some: a call in which there are none to find is refused."""
    if found.expr is None:
        return found
    ctx.promises += [Constraint(found.expr - axis.lo), Constraint(axis.hi - 1 - found.expr)]
    return Tile(found.type, found.block, value=found.known_value, expr=found.expr, safe=True, fact=found.fact)


def tile_operand(ctx: Context, doing: str, v: Any) -> Tile:
    """The operand of a fold: a tile, or the coordinates of a part. *Errors*: `capture/argument`."""
    return _operand(ctx, doing, v)


def scan_operand(ctx: Context, doing: str, monoid: str, v: Any) -> Tile:
    """The operand of a scan with a built-in monoid, in the dtype of its results: that of the same fold."""
    x = _operand(ctx, doing, v)
    rules.require_arithmetic(x.dtype, doing=doing, span=ctx.span)
    if monoid in BITWISE:
        pointwise.need_kind(ctx, monoid, x.dtype)
        return x
    return pointwise.convert(ctx, x, rules.total(x.dtype)) if monoid in ("add", "mul") else x


def count(ctx: Context, x: Tile, dims: Sequence[Dim]) -> Tile | int:
    """The number of elements along the dimensions."""
    total = ONE
    for d in dims:
        axis = x.type.axis(d)
        assert axis is not None
        total = total * axis.extent
    return ctx.index(total)


def mean(ctx: Context, x: Tile, over: Sequence[Any]) -> Tile:
    """The sum over the count, in f32 (f64 of f64)."""
    wide = pointwise.convert(ctx, x, rules.average(x.dtype))
    dims = along(ctx, "computing .mean", x, over)
    return pointwise.binary(ctx, "div", fold(ctx, "add", wide, over), _as_float(ctx, count(ctx, x, dims), wide.dtype))


def _as_float(ctx: Context, n: Tile | int, dtype: DType) -> Tile | float:
    return pointwise.convert(ctx, n, dtype) if isinstance(n, Tile) else float(n)


def var(ctx: Context, x: Tile, over: Sequence[Any], ddof: int) -> Tile:
    """Squared deviations from the mean over the count less `ddof`."""
    wide = pointwise.convert(ctx, x, rules.average(x.dtype))
    dims = along(ctx, "computing .var", x, over)
    centred = pointwise.binary(ctx, "sub", wide, mean(ctx, wide, over))
    total = fold(ctx, "add", pointwise.binary(ctx, "mul", centred, centred), over)
    n = pointwise.binary(ctx, "sub", count(ctx, x, dims), ddof)
    return pointwise.binary(ctx, "div", total, _as_float(ctx, n, wide.dtype))


# ---- contractions


def mma(ctx: Context, a: Any, b: Any, acc: Any) -> Tile:
    """`acc` plus the products of `a` and `b` summed over the dimensions they share and `acc` lacks."""
    doing = "computing td.mma"
    x, y, s = (_operand(ctx, doing, v) for v in (a, b, acc))
    for side in (x, y):
        _exactly(ctx, doing, side.dtype, s.dtype)
    kept = s.type.dims
    shared = [d for d in x.type.dims if d in y.type.dims and d not in kept]
    pointwise.join(ctx, (x, y), doing)
    for side in (x, y):
        for axis in side.type.axes:
            if axis.dim in shared:
                not_observed(ctx, doing, axis)
            elif axis.dim not in kept:
                raise MissingDim(
                    doing=doing,
                    found=f"{axis.dim}, a dimension of one operand only",
                    expected=f"the accumulator to have it; it is over {', '.join(map(str, kept)) or 'no dimension'}",
                    hint=f"add {axis.dim} to the accumulator, or reduce the operand over it first",
                    span=ctx.span,
                )
    pointwise.join(ctx, (s, x), doing)
    pointwise.join(ctx, (s, y), doing)
    for d in kept:
        if d not in x.type.dims and d not in y.type.dims:
            raise WrongDim(
                doing=doing,
                found=f"{d}, a dimension of the accumulator that no operand has",
                expected=f"accumulator dimensions among {', '.join(map(str, x.type.dims + y.type.dims))}",
                hint="add the product afterwards: acc + td.dot(a, b, over=...)",
                span=ctx.span,
            )
    return ctx.tile(ctx.builder.mma(x.value, y.value, s.value))


def _operand(ctx: Context, doing: str, v: Any) -> Tile:
    x = pointwise.lift(ctx, v, doing)
    if not isinstance(x, Tile):
        raise BadArgument(
            doing=doing,
            found=f"the number {x}",
            expected="a tile",
            hint="make a tile of it: td.full(m, n, value=...), td.zeros(m, n)",
            span=ctx.span,
        )
    return x


def _exactly(ctx: Context, doing: str, source: DType, acc: DType) -> None:
    """*Errors*: `dtype/narrowing` where `acc` does not hold all values of `source`."""
    if holds(acc, source):
        return
    raise Narrowing(
        doing=doing,
        found=f"an operand of {source} with an accumulator of {acc}",
        expected=f"an accumulator dtype that holds every {source}",
        hint="use a wider accumulator, or round the operand yourself with .to",
        span=ctx.span,
    )


def holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is one of `wide`."""
    if wide == narrow:
        return True
    if wide.is_bool or narrow.is_bool:
        return narrow.is_bool
    if wide.is_float and narrow.is_float:
        lowest = wide.smallest if wide.has_zero else 0.0
        return (
            wide.mantissa >= narrow.mantissa
            and wide.finite_max >= narrow.finite_max
            and lowest <= (narrow.smallest if narrow.has_zero else 2.0**-127)
            and (wide.signed or not narrow.signed)
        )
    if wide.is_float:
        return narrow.bits - (narrow.kind == "int") <= wide.mantissa + 1
    if narrow.is_float:
        return False
    return wide.finite_min <= narrow.finite_min and wide.finite_max >= narrow.finite_max


def dot(ctx: Context, a: Any, b: Any, over: Any, dtype: Any = None) -> Tile:
    """The products of `a` and `b` summed over `over`, from zero in `dtype` (f32; f64, i32 or i64 where needed)."""
    doing = "computing td.dot"
    x, y = _operand(ctx, doing, a), _operand(ctx, doing, b)
    items = listed(over)
    summed = [d for side in (x, y) for item in items for d in _named(ctx, doing, side, item)]
    acc = dot_dtype(x.dtype, y.dtype) if dtype is None else as_dtype(dtype, doing, ctx.span)
    axes = tuple(p for p in pointwise.join(ctx, (x, y), doing) if p.dim not in summed)
    return mma(ctx, x, y, ctx.tile(pointwise.constant(ctx, 0, acc, axes)))


def dot_dtype(a: DType, b: DType) -> DType:
    """The dtype of `td.dot` and `@` where none is asked for: f64 or f32 of floats, else an integer wide enough."""
    if f64 in (a, b):
        return f64
    if a.is_float or b.is_float:
        return f32
    return i32 if all(holds(i32, d) and d != i32 or d == bool_ for d in (a, b)) else i64


def matmul(ctx: Context, a: Any, b: Any) -> Tile:
    """`a @ b`: the contraction over the one dimension that both have, in the dtype of `td.dot`."""
    doing = "computing a @ b"
    x, y = _operand(ctx, doing, a), _operand(ctx, doing, b)
    shared = [d for d in x.type.dims if d in y.type.dims]
    if len(shared) != 1:
        raise WrongDim(
            doing=doing,
            found=f"{len(shared)} shared dimensions" + (f": {', '.join(map(str, shared))}" if shared else ""),
            expected="exactly one",
            hint="name what is summed: td.dot(a, b, over=K)",
            span=ctx.span,
        )
    axis = x.type.axis(shared[0])
    assert axis is not None
    wide = dot_dtype(x.dtype, y.dtype)
    pointwise.join(ctx, (x, y), doing)
    axes = tuple(p for side in (x, y) for p in side.type.axes if p.dim is not shared[0])
    return mma(ctx, x, y, ctx.tile(pointwise.constant(ctx, 0, wide, axes)))
