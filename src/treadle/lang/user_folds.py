"""`td.fold` and `td.scan`: folds and prefixes of values along dimensions, with any monoid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from treadle.algebra.dims import Dim, Part
from treadle.dtype import promote as rules
from treadle.dtype.formats import DType
from treadle.ir.core import Order, TileType, Value
from treadle.lang import folds, pointwise
from treadle.lang.errors import BadArgument, StateShape
from treadle.lang.merge_capture import Captured, capture
from treadle.lang.monoids import Builtin, Monoid, check_order, leaf_text, leaves, same_shape, state_values, with_leaves
from treadle.lang.objects import plain_number
from treadle.lang.state import staged_flag
from treadle.lang.tile import Tile

if TYPE_CHECKING:
    from treadle.lang.context import Context


def fold(ctx: Context, x: Any, over: Any, monoid: Any, order: str | None = None) -> Any:
    """`td.fold`: the state that the elements along dimensions fold to."""
    doing = "computing td.fold"
    known = _monoid(ctx, doing, monoid)
    order = order or ("fold_left" if known.laws == "none" else "unordered" if known.commutative else "ordered")
    folds.known_word(ctx, doing, "order", order, folds.ORDERS)
    if isinstance(known, Builtin):
        if known.word not in folds.BITWISE:
            return folds.fold(ctx, known.word, folds.tile_operand(ctx, doing, x), [over], order=order)
        tile = folds.scan_operand(ctx, doing, known.word, x)
        along = folds.along(ctx, doing, tile, [over])
        return ctx.tile(ctx.builder.reduce(tile.value, along, known.word, order=cast(Order, order)))
    check_order(ctx, doing, known, order)
    x = state_values(ctx, x)
    state, dims, captured, sources = _lifted(ctx, doing, known, x, over)
    results = ctx.builder.fold(sources, dims, captured.merge, order=cast(Order, order))
    return with_leaves(state, dict(zip(captured.paths, map(ctx.tile, results))))


def scan(ctx: Context, x: Any, over: Any, monoid: Any, exclusive: bool, reverse: bool, order: str = "ordered") -> Any:
    """`td.scan`: the states that every prefix along a dimension folds to."""
    doing = "computing td.scan"
    known = _monoid(ctx, doing, monoid)
    order = "fold_left" if known.laws == "none" and order == "ordered" else order
    folds.known_word(ctx, doing, "order", order, ("unordered", "ordered", "fold_left"))
    order = "ordered" if order == "unordered" else order
    flags: dict[str, Any] = {
        "exclusive": staged_flag(doing, "exclusive", exclusive),
        "reverse": staged_flag(doing, "reverse", reverse),
        "order": order,
    }
    if isinstance(known, Builtin):
        tile = folds.scan_operand(ctx, doing, known.word, x)
        dims = _one(ctx, doing, folds.along(ctx, doing, tile, [over]))
        return ctx.tile(ctx.builder.scan([tile.value], dims[0], known.word, **flags)[0])
    check_order(ctx, doing, known, order)
    x = state_values(ctx, x)
    state, dims, captured, sources = _lifted(ctx, doing, known, x, over)
    dims = _one(ctx, doing, dims)
    results = ctx.builder.scan(sources, dims[0], captured.merge, **flags)
    return with_leaves(state, dict(zip(captured.paths, map(ctx.tile, results))))


def _one(ctx: Context, doing: str, dims: Sequence[Dim]) -> Sequence[Dim]:
    if len(dims) == 1:
        return dims
    raise BadArgument(
        doing=doing,
        found=f"{len(dims)} dimensions: {', '.join(map(str, dims))}",
        expected="one dimension",
        hint="scan along one dimension after the other",
        span=ctx.span,
    )


def _monoid(ctx: Context, doing: str, monoid: Any) -> Monoid:
    if isinstance(monoid, Monoid):
        return monoid
    raise BadArgument(
        doing=doing,
        found=f"{monoid!r} as the monoid",
        expected="a td.Monoid, or td.Add, td.Mul, td.Max, td.Min, td.And, td.Or, td.Xor",
        hint="name the monoid: td.fold(x, N, td.Monoid(identity, merge))",
        span=ctx.span,
    )


def _lifted(
    ctx: Context, doing: str, monoid: Monoid, x: Any, over: Any
) -> tuple[Any, Sequence[Dim], Captured, list[Value]]:
    """The lifted state, the folded dimensions, the monoid for its leaves, and the leaves as sources."""
    dims, parts = _dims(ctx, doing, x, over)
    state = x if monoid.lift is None else ctx.call(monoid.lift, [x], {})
    lifted = same_shape(ctx, doing, monoid, state, state, "a state")
    types = {p: _leaf_type(leaf, dims) for p, leaf in lifted.items()}
    captured = capture(ctx, doing, monoid, state, types)
    sources: list[Value] = []
    for path, parameter in zip(captured.paths, captured.merge.left):
        leaf = lifted[path]
        if not isinstance(leaf, Tile):
            leaf = ctx.tile(pointwise.constant(ctx, plain_number(leaf), parameter.type.dtype))
        if not folds.holds(parameter.type.dtype, leaf.dtype):
            raise StateShape(
                doing=f"{doing} with {monoid.name}",
                found=f"{leaf_text(path)} lifted as {leaf.dtype} and merged as {parameter.type.dtype}",
                expected="a merge in a dtype that holds every lifted value",
                hint="convert in lift with .to",
                span=ctx.span,
            )
        sources.append(pointwise.convert(ctx, leaf, parameter.type.dtype).value)
    missing = [p for p in parts if all(p not in s.type.axes for s in sources)]
    if missing:
        # Every lifted leaf is the same along the dimension: one of them says how often it is folded.
        axes = (*sources[0].type.axes, *missing)
        sources[0] = pointwise.broadcast(ctx, ctx.tile(sources[0]), sources[0].type.dtype, axes)
    return state, dims, captured, sources


def _leaf_type(leaf: Any, dims: Sequence[Dim]) -> TileType:
    if isinstance(leaf, Tile):
        return TileType(leaf.dtype, tuple(a for a in leaf.type.axes if a.dim not in dims))
    dtype: DType = rules.weak_alone(plain_number(leaf))
    return TileType(dtype)


def _dims(ctx: Context, doing: str, x: Any, over: Any) -> tuple[Sequence[Dim], list[Part]]:
    """The dimensions that `over` names among the axes of the operands, and their parts."""
    tiles = [t for t in leaves(x).values() if isinstance(t, Tile)]
    if not tiles:
        folds.tile_operand(ctx, doing, x)
    joined = TileType(tiles[0].dtype, pointwise.join(ctx, tiles, doing))
    for t in tiles:
        ctx.alive(t)
    # The union of the axes as one tile that is only looked at.
    dims = folds.along(ctx, doing, Tile(joined, ctx.builder.block), [over])
    return dims, [a for d in dims for a in joined.axes if a.dim is d]
