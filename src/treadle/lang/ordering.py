"""Sorting along a dimension: `td.sort`, `td.argsort`, `td.topk`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from treadle.algebra.expr import Constraint
from treadle.dtype import promote as rules
from treadle.lang import folds, pointwise
from treadle.lang.dims import PartRef
from treadle.lang.errors import BadArgument, DimTwice, Unproved
from treadle.lang.state import staged_flag
from treadle.lang.tile import Tile

if TYPE_CHECKING:
    from treadle.algebra.dims import Dim, Part
    from treadle.lang.context import Context


def sort(ctx: Context, x: Any, over: Any, descending: bool) -> tuple[Tile, Tile]:
    """The sorted elements along a dimension, and the coordinates they come from."""
    tile, dim = _operand(ctx, "computing td.sort", x, over)
    values, places = ctx.builder.sort(
        tile.value, dim, descending=staged_flag("computing td.sort", "descending", descending)
    )
    axis = tile.type.axis(dim)
    assert axis is not None
    return ctx.tile(values), folds.coordinates(ctx, ctx.tile(places), axis)


def topk(ctx: Context, x: Any, over: Any, to: Any) -> tuple[Tile, Tile]:
    """The greatest elements along a dimension, along a new axis, and the coordinates they come from."""
    doing = "computing td.topk"
    tile, dim = _operand(ctx, doing, x, over)
    if not isinstance(to, PartRef):
        raise BadArgument(
            doing=doing,
            found=f"to={to!r}",
            expected="a dimension for the new axis",
            hint='name it: T = td.dims("T", 4), then td.topk(x, N, to=T)',
            span=ctx.span,
        )
    ctx.alive(to)
    if tile.type.axis(to.part.dim) is not None:
        raise DimTwice(
            doing=doing,
            found=f"to={to}, a dimension that the value has",
            expected="a dimension of its own for the new axis",
            hint=f"use another one, or an alias: {to.part.dim}2 = {to.part.dim}.alias(...)",
            span=ctx.span,
        )
    axis = tile.type.axis(dim)
    assert axis is not None
    _enough(ctx, doing, axis, to.part)
    values, places = ctx.builder.sort(tile.value, dim, to=to.part, descending=True)
    return ctx.tile(values), folds.coordinates(ctx, ctx.tile(places), axis)


def _operand(ctx: Context, doing: str, x: Any, over: Any) -> tuple[Tile, Dim]:
    tile = folds.tile_operand(ctx, doing, x)
    rules.require_arithmetic(tile.dtype, doing=doing, span=ctx.span)
    dims = folds.along(ctx, doing, tile, [over])
    if len(dims) != 1:
        raise BadArgument(
            doing=doing,
            found=f"{len(dims)} dimensions: {', '.join(map(str, dims))}",
            expected="one dimension",
            hint="keep the values along one dimension: a product D = td.product(M, N) has all of them",
            span=ctx.span,
        )
    return tile, dims[0]


def _enough(ctx: Context, doing: str, axis: Part, to: Part) -> None:
    """The new axis is not longer than the sorted one: proved, or required of the call."""
    more = axis.extent - to.extent
    if ctx.proves(more):
        return
    known = {s for d in ctx.program_dims for s in d.extent.symbols}
    if more.functions or not more.symbols <= known or more.constant is not None:
        raise Unproved(
            doing=doing,
            found=f"{to.extent} elements of {pointwise.show_part(axis)}",
            expected="at most as many as there are",
            hint="take the greatest of a whole dimension, or of a part whose extent is fixed",
            span=ctx.span,
        )
    if Constraint(more) not in ctx.requires:
        ctx.requires.append(Constraint(more))
