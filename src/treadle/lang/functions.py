"""The functions of `td.*` that compute: makers of tiles, elementwise functions, contractions, facts and checks."""

from __future__ import annotations

from typing import Any

from treadle.algebra.dims import Part
from treadle.dtype.formats import f32
from treadle.dtype.promote import promote_weak
from treadle.ir.core import Order, TileType
from treadle.ir.ops.elementwise import Full
from treadle.lang import folds, ordering, pointwise, user_folds
from treadle.lang.dims import PartRef
from treadle.lang.dtypes import as_dtype
from treadle.lang.errors import BadArgument, BadStage, DimTwice
from treadle.lang.objects import is_word, plain_number
from treadle.lang.specs import RegionSpec
from treadle.lang.state import context
from treadle.lang.storage import PLACES, Memory, constraint
from treadle.lang.tile import Tile

# ---- regions

unordered: Order = "unordered"
ordered: Order = "ordered"
fold_left: Order = "fold_left"
fold_right: Order = "fold_right"

ORDER_MEANING: dict[Order, str] = {
    "unordered": "Regroups and permutes contributions: the default of folds, for merges that commute.",
    "ordered": "Regroups neighbours and never permutes: for merges that are associative only.",
    "fold_left": "An exact chain from the first contribution to the last; no product is contracted into a sum.",
    "fold_right": "An exact chain from the last contribution to the first; no product is contracted into a sum.",
}
"""What each order of a fold permits, for the reference of the language."""


SCOPES = ("device", "cluster", "workgroup", "subgroup", "lane", "worker")
"""Levels of execution that `scope=` may name."""


def parallel(*args: Any, name: str = "", scope: str | None = None) -> RegionSpec:
    """Independent instances, in no order: for `for`. One never reads or writes what another writes.

    `scope` asks for a level of the machine; `scope="device"`, over `R.each`, runs instance `r` on device `r`.
    *Errors*: `capture/argument`, `region/device`.
    """
    if scope is not None and not is_word(scope, SCOPES):
        raise BadArgument(
            doing="making td.parallel",
            found=f"scope={scope!r}",
            expected=" or ".join(repr(s) for s in SCOPES),
            hint="leave scope= out: which level runs an instance is planned",
            span=context().span,
        )
    return RegionSpec("parallel", args, name=name, scope=scope)


def serial(*args: Any, name: str = "", versions: int | None = None) -> RegionSpec:
    """Instances one after another; outer names assigned inside are carried."""
    return RegionSpec("serial", args, name=name, versions=_versions("serial", versions))


def pipeline(*args: Any, name: str = "", versions: int | None = None) -> RegionSpec:
    """Like `serial`, ordered by dependences only: iterations may overlap."""
    return RegionSpec("pipeline", args, name=name, versions=_versions("pipeline", versions))


def _versions(kind: str, given: Any) -> int | None:
    """How many buffers an operand gets, if the author says. *Errors*: `capture/argument`."""
    number = plain_number(given)
    if number is None or (isinstance(number, int) and not isinstance(number, bool) and number >= 1):
        return number
    raise BadArgument(
        doing=f"making td.{kind}",
        found=f"versions={given!r}",
        expected="a staged integer of at least 1",
        hint="leave versions= out: how many buffers an operand gets is planned",
        span=context().span,
    )


def reduce(*args: Any, order: Order = "unordered", name: str = "", versions: int | None = None) -> RegionSpec:
    """A fold of contributions; outer names assigned inside are its states. *Errors*: `capture/argument`."""
    if not is_word(order, folds.ORDERS):
        raise BadArgument(
            doing="making td.reduce",
            found=f"order={order!r}",
            expected="td.unordered, td.ordered, td.fold_left or td.fold_right",
            hint="leave order= out",
            span=context().span,
        )
    return RegionSpec("reduce", args, order, name, None, _versions("reduce", versions))


def stage(name: str) -> None:
    """Begins a named stage of the innermost pipeline or reduce. *Errors*: `region/stage`."""
    ctx = context()
    region = ctx.regions[-1] if ctx.regions else None
    if region is None or region.kind not in ("pipeline", "reduce") or ctx.builder.block is not region.body:
        raise BadStage(
            doing=f"beginning the stage {name!r}",
            found="no td.pipeline or td.reduce directly around it",
            expected="a statement of the body of one",
            hint="move td.stage to the body's outermost level",
            span=ctx.span,
        )
    region.stages.append((name, len(region.body.ops)))


# ---- tiles


def zeros(*axes: Any, dtype: Any = f32) -> Tile:
    """A tile of zeros over the parts. *Errors*: `capture/argument`, `dims/twice`."""
    return full(*axes, value=0, dtype=dtype)


def full(*axes: Any, value: Any, dtype: Any = None) -> Tile:
    """A tile full of `value` over the parts, f32 unless `value` is a tile or `dtype` is given."""
    ctx = context()
    parts = _axes(axes)
    x = pointwise.lift(ctx, value, "making a tile")
    if dtype is None:
        wanted = x.dtype if isinstance(x, Tile) else f32
    else:
        wanted = as_dtype(dtype, "making a tile", ctx.span)
    if isinstance(x, Tile) and x.rank:
        raise BadArgument(
            doing="making a tile with td.full",
            found=f"the value {x.type}",
            expected="a number or a scalar",
            hint="tiles broadcast by themselves in expressions and stores",
            span=ctx.span,
        )
    if isinstance(x, int) and wanted.is_int:
        promote_weak(wanted, x, doing="making a tile with td.full", span=ctx.span)
    return ctx.tile(pointwise.broadcast(ctx, x, wanted, parts))


def empty(*axes: Any, dtype: Any = f32) -> Tile:
    """An uninitialised tile over the parts, to be assigned part by part."""
    ctx = context()
    return ctx.tile(ctx.builder.full(None, as_dtype(dtype, "making a tile", ctx.span), _axes(axes)))


def memory(*axes: Any, dtype: Any = f32, layout: str | None = None, place: str | None = None) -> Memory:
    """Addressable storage over the parts, owned by the scope that declares it; its elements begin without values.

    `place` ("global", "shared", "register", "tile") and `layout` constrain the plan. *Errors*: `capture/argument`.
    """
    ctx = context()
    wanted, parts = as_dtype(dtype, "making td.memory", ctx.span), _axes(axes)
    where, how = constraint(ctx, "place", place, PLACES), constraint(ctx, "layout", layout, ())
    made = ctx.builder.emit(Full(number=None, place=where, layout=how), TileType(wanted, tuple(parts)))
    return Memory(ctx.tile(made.result))


def _axes(axes: tuple[Any, ...]) -> list[Part]:
    ctx = context()
    found: list[Part] = []
    for axis in axes:
        if not isinstance(axis, PartRef):
            raise BadArgument(
                doing="making a tile",
                found=f"the axis {axis!r}",
                expected="parts of dimensions",
                hint='make a dimension of that size: td.dims("D", 64)',
                span=ctx.span,
            )
        ctx.alive(axis)
        if any(p.dim is axis.part.dim for p in found):
            raise DimTwice(
                doing="making a tile",
                found=f"{axis.part.dim} twice",
                expected="each dimension once",
                hint=f"use an alias: {axis.part.dim}2 = {axis.part.dim}.alias(...)",
                span=ctx.span,
            )
        found.append(axis.part)
    return found


# ---- elementwise


def where(c: Any, a: Any, b: Any) -> Any:
    """`a` where `c`, else `b`."""
    return pointwise.where(context(), c, a, b)


def maximum(a: Any, b: Any) -> Any:
    """The greater of both; NaN where either is."""
    return pointwise.binary(context(), "maximum", a, b)


def minimum(a: Any, b: Any) -> Any:
    """The lesser of both; NaN where either is."""
    return pointwise.binary(context(), "minimum", a, b)


def exp(x: Any) -> Any:
    """e to the power of x."""
    return pointwise.function(context(), "exp", x)


def exp2(x: Any) -> Any:
    """2 to the power of x."""
    return pointwise.function(context(), "exp2", x)


def expm1(x: Any) -> Any:
    """exp(x) - 1, accurate near 0."""
    return pointwise.function(context(), "expm1", x)


def log(x: Any) -> Any:
    """The natural logarithm."""
    return pointwise.function(context(), "log", x)


def log2(x: Any) -> Any:
    """The logarithm to base 2."""
    return pointwise.function(context(), "log2", x)


def log1p(x: Any) -> Any:
    """log(1 + x), accurate near 0."""
    return pointwise.function(context(), "log1p", x)


def sqrt(x: Any) -> Any:
    """The square root."""
    return pointwise.function(context(), "sqrt", x)


def rsqrt(x: Any) -> Any:
    """One over the square root."""
    return pointwise.function(context(), "rsqrt", x)


def sin(x: Any) -> Any:
    """The sine."""
    return pointwise.function(context(), "sin", x)


def cos(x: Any) -> Any:
    """The cosine."""
    return pointwise.function(context(), "cos", x)


def tanh(x: Any) -> Any:
    """The hyperbolic tangent."""
    return pointwise.function(context(), "tanh", x)


def erf(x: Any) -> Any:
    """The error function."""
    return pointwise.function(context(), "erf", x)


def floor(x: Any) -> Any:
    """The greatest whole number not above x."""
    return pointwise.function(context(), "floor", x)


def ceil(x: Any) -> Any:
    """The least whole number not below x."""
    return pointwise.function(context(), "ceil", x)


def round(x: Any) -> Any:
    """The nearest whole number, ties to even."""
    return pointwise.function(context(), "round", x)


def trunc(x: Any) -> Any:
    """The whole number towards 0."""
    return pointwise.function(context(), "trunc", x)


def isnan(x: Any) -> Any:
    """Whether x is NaN."""
    return pointwise.function(context(), "isnan", x)


def isinf(x: Any) -> Any:
    """Whether x is an infinity."""
    return pointwise.function(context(), "isinf", x)


def abs(x: Any) -> Any:
    """The absolute value."""
    return pointwise.unary(context(), "abs", x)


def pow(x: Any, y: Any) -> Any:
    """x to the power of y."""
    return pointwise.binary(context(), "pow", x, y)


# ---- contractions


def mma(a: Any, b: Any, acc: Any) -> Tile:
    """`acc` plus the contraction of `a` and `b` over the dimensions that both have and `acc` lacks, in acc's dtype.

    *Errors*: `dims/missing`, `dims/wrong-dimension`, `dims/part-mismatch`, `dtype/narrowing`, `block/observed`.
    """
    return folds.mma(context(), a, b, acc)


def dot(a: Any, b: Any, over: Any, dtype: Any = None) -> Tile:
    """The contraction of `a` and `b` over the named dimensions, from zero. *Errors*: as `mma`."""
    return folds.dot(context(), a, b, over, dtype)


# ---- folds of the user's own, sorting


def fold(x: Any, over: Any, monoid: Any, *, order: Order | None = None) -> Any:
    """The state that the elements of `x` along the dimensions fold to with a monoid; of none, its identity.

    `order` is `td.unordered` for a monoid that commutes, else `td.ordered` (without laws: `td.fold_left`).
    *Errors*: `reduce/...`, `dims/missing`, `block/observed`.
    """
    return user_folds.fold(context(), x, over, monoid, order)


def scan(
    x: Any, over: Any, monoid: Any, exclusive: bool = False, reverse: bool = False, *, order: Order = ordered
) -> Any:
    """The states that every prefix along a dimension folds to: what is visited first is the left operand.

    `exclusive`: without the element itself, the identity first. `reverse`: from the highest coordinate on.
    *Errors*: `reduce/...`, `dims/missing`, `block/observed`.
    """
    return user_folds.scan(context(), x, over, monoid, exclusive, reverse, order)


def sort(x: Any, over: Any, *, descending: bool = False) -> Tile:
    """`x` with its elements along the dimension in order: stable, NaN last.

    *Errors*: `dims/missing`, `block/observed`.
    """
    return ordering.sort(context(), x, over, descending)[0]


def argsort(x: Any, over: Any, *, descending: bool = False) -> Tile:
    """The i64 coordinates along the dimension in the order of `sort`. *Errors*: as `sort`."""
    return ordering.sort(context(), x, over, descending)[1]


def topk(x: Any, over: Any, to: Any) -> tuple[Tile, Tile]:
    """The greatest elements along the dimension, greatest first, along the new axis `to`, and their i64 coordinates.

    Of equal elements the one with the lowest coordinate comes first; NaN comes last. `to` has at most as many elements
    as the dimension: where that is not proved it is required of the call. *Errors*: as `sort`, `dims/twice`.
    """
    return ordering.topk(context(), x, over, to)
