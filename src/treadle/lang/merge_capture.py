"""A monoid of the user as blocks of the program: captured for states whose types grow until a merge keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from treadle.dtype import promote as rules
from treadle.ir.core import Block, Merge, TileType, Value
from treadle.lang import pointwise
from treadle.lang.errors import StateShape
from treadle.lang.frames import Path
from treadle.lang.monoids import Monoid, leaf_text, leaves, same_shape, with_leaves
from treadle.lang.objects import plain_number
from treadle.lang.tile import Tile

if TYPE_CHECKING:
    from treadle.lang.context import Context

MAX_TRIES = 6


@dataclass
class Captured:
    """A merge captured for states of these leaves."""

    merge: Merge
    paths: list[Path]


def capture(ctx: Context, doing: str, monoid: Monoid, state: Any, types: dict[Path, TileType]) -> Captured:
    """The monoid's blocks for states like `state`, whose leaves that are in `types` are tiles; the others are numbers.

    The types grow until a merge keeps them. *Errors*: `reduce/state-shape`.
    """
    types = _with_identity(ctx, doing, monoid, state, types)
    for _ in range(MAX_TRIES):
        mark = ctx.checkpoint()
        found, grown = _attempt(ctx, doing, monoid, state, types)
        if grown == types:
            return found
        ctx.rollback(mark)
        types = grown
    raise StateShape(
        doing=f"{doing} with {monoid.name}",
        found="merged states whose dtype or dimensions grow with every merge",
        expected="a merge that keeps them",
        hint="convert the merged leaves with .to, or start from the final dtype and dimensions",
        span=ctx.span,
    )


def identity_state(ctx: Context, monoid: Monoid) -> Any:
    """The identity as the author wrote it."""
    given = monoid.identity
    return ctx.call(given, [], {}) if callable(given) and not isinstance(given, Tile) else given


def _with_identity(
    ctx: Context, doing: str, monoid: Monoid, state: Any, types: dict[Path, TileType]
) -> dict[Path, TileType]:
    """The types, joined with those of the identity's leaves."""
    mark = ctx.checkpoint()
    with ctx.scope(Block()), ctx.quietly():
        found = same_shape(ctx, doing, monoid, identity_state(ctx, monoid), state, "an identity")
        joined = {p: _joined(ctx, doing, monoid, t, found[p], p) for p, t in types.items()}
    ctx.rollback(mark)
    return joined


def _joined(ctx: Context, doing: str, monoid: Monoid, type: TileType, leaf: Any, path: Path) -> TileType:
    """The type of a leaf that also takes the value `leaf`."""
    if not isinstance(leaf, Tile):
        number = plain_number(leaf)
        if type.dtype.is_int and isinstance(number, float) or type.dtype.is_bool and not isinstance(number, bool):
            return TileType(rules.promote_weak(type.dtype, number, doing=doing, span=ctx.span), type.axes)
        return type
    dtype = type.dtype
    if leaf.dtype != dtype:
        dtype = rules.promote(dtype, leaf.dtype, doing=f"{doing}: {leaf_text(path)}", span=ctx.span)
    axes = list(type.axes)
    for part in leaf.type.axes:
        known = next((a for a in axes if a.dim is part.dim), None)
        if known is None:
            axes.append(part)
        elif known != part:
            raise StateShape(
                doing=f"{doing} with {monoid.name}",
                found=f"{leaf_text(path)} over {pointwise.show_part(known)} and over {pointwise.show_part(part)}",
                expected="one part of a dimension in all states",
                hint="give identity, lift and merge the same parts",
                span=ctx.span,
            )
    return TileType(dtype, tuple(axes))


def _attempt(
    ctx: Context, doing: str, monoid: Monoid, state: Any, types: dict[Path, TileType]
) -> tuple[Captured, dict[Path, TileType]]:
    paths = list(types)
    left, right = ([ctx.builder.value(types[p], hint(p)) for p in paths] for _ in range(2))
    merge = Merge(monoid.name, left, right, Block(), Block(), monoid.commutative, monoid.laws)
    with ctx.scope(merge.identity), ctx.quietly():
        found = same_shape(ctx, doing, monoid, identity_state(ctx, monoid), state, "an identity")
        merge.identity.yields = [_conform(ctx, found[p], types[p]) for p in paths]
    with ctx.scope(merge.body), ctx.quietly():
        old = leaves(state)
        given = [
            with_leaves(state, old | {p: Tile(v.type, merge.body, value=v) for p, v in zip(paths, side)})
            for side in (left, right)
        ]
        result = ctx.call(monoid.function, given, {})
        found = same_shape(ctx, doing, monoid, result, state, "a merged state")
        grown = {p: _joined(ctx, doing, monoid, types[p], found[p], p) for p in paths}
        if grown == types:
            merge.body.yields = [_conform(ctx, found[p], types[p]) for p in paths]
    return Captured(merge, paths), grown


def hint(path: Path) -> str | None:
    """A leaf as a value's name."""
    words = [str(k) for k in path if isinstance(k, str) and k.isidentifier()]
    return "_".join(words) or None


def _conform(ctx: Context, leaf: Any, type: TileType) -> Value:
    return pointwise.broadcast(ctx, plain_number(leaf) if not isinstance(leaf, Tile) else leaf, type.dtype, type.axes)
