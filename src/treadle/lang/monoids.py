"""Monoids: what a fold merges with, and the folds and scans of the user's own.

A monoid of the user is captured twice: inlined where a kernel applies it, and as a `Merge` of the operation or region
that folds with it, which says how partial states are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from treadle.algebra.dims import Dim, Part
from treadle.algebra.monoids import MONOIDS
from treadle.base.names import identifier
from treadle.base.source import Span
from treadle.dtype import promote as rules
from treadle.dtype.formats import DType
from treadle.ir.core import Block, Merge, Op, Order, TileType, Value
from treadle.lang import folds, merging, pointwise
from treadle.lang.dims import PartRef
from treadle.lang.errors import BadArgument, NoMerge, NotCommutative, StateShape
from treadle.lang.frames import Path, is_container, items, path_text, rebuilt
from treadle.lang.objects import class_of, plain_number
from treadle.lang.state import context, maybe_context, staged_flag
from treadle.lang.tile import Tile

if TYPE_CHECKING:
    from treadle.lang.context import Context

MAX_TRIES = 6
LAWS = ("declared", "none")


class Monoid:
    """A fold's merge and identity: `monoid(s, x)` is `merge(s, lift(x))`, `monoid.merge(s, t)` merges two states.

    `identity` is the state that changes nothing, or a function that makes it; numbers in it are weak. States are tiles,
    tuples, lists, dicts or dataclasses of tiles. `laws` "declared": the merge is associative and the identity one, on
    the author's word; `None`: it is neither for sure, and only the exact chains `td.fold_left` and `td.fold_right` fold
    with it. `commutative` permits `td.unordered`.

    *Errors*: `reduce/not-commutative`, `reduce/no-merge`, `reduce/state-shape` where it is used.
    """

    def __init__(
        self,
        identity: Any,
        merge: Callable[[Any, Any], Any],
        lift: Callable[[Any], Any] | None = None,
        commutative: bool = False,
        laws: str | None = "declared",
    ) -> None:
        self.identity = identity
        self.function = merge
        self.lift = lift
        self.commutative = staged_flag("making td.Monoid", "commutative", commutative)
        self.laws = "none" if laws is None else laws
        if not callable(merge) or self.laws not in LAWS or not (lift is None or callable(lift)):
            ctx = maybe_context()
            raise BadArgument(
                doing="making td.Monoid",
                found=f"laws={laws!r}" if self.laws not in LAWS else "a merge or lift that is no function",
                expected='a function of two states; laws="declared" or None',
                hint="write td.Monoid(identity, merge, lift=None, commutative=False)",
                span=None if ctx is None else ctx.span,
            )

    @property
    def name(self) -> str:
        """A word for it: the name of its merge."""
        return identifier(getattr(self.function, "__name__", ""), "monoid").removeprefix("_") or "monoid"

    def __call__(self, s: Any, x: Any) -> Any:
        """The state with one more contribution."""
        return apply(context(), self, s, x, lifted=True)

    def merge(self, s: Any, t: Any) -> Any:
        """Two states as one."""
        return apply(context(), self, s, t, lifted=False)


class Builtin(Monoid):
    """A monoid that the language knows, with proved laws: `td.Add`, `td.Mul`, `td.Max`, `td.Min`, `td.And` ..."""

    def __init__(self, word: str) -> None:
        self.word = word
        super().__init__(0, self.both, None, commutative=True)

    @property
    def name(self) -> str:
        return self.word

    def both(self, s: Any, t: Any) -> Any:
        """The merge."""
        return pointwise.binary(context(), MONOIDS[self.word].merge, s, t)

    def __repr__(self) -> str:
        return f"td.{self.word.capitalize()}"


Add, Mul, Max, Min = Builtin("add"), Builtin("mul"), Builtin("max"), Builtin("min")
And, Or, Xor = Builtin("and"), Builtin("or"), Builtin("xor")


# ---- states


def leaves(state: Any) -> dict[Path, Any]:
    """The leaves of a state by their paths."""
    found: dict[Path, Any] = {}

    def go(path: Path, x: Any) -> None:
        if is_container(x):
            for key, inner in items(x):
                go((*path, key), inner)
        else:
            found[path] = x

    go((), state)
    return found


def with_leaves(state: Any, new: dict[Path, Any], path: Path = ()) -> Any:
    """A state like `state` with other leaves."""
    if not is_container(state):
        return new[path]
    return rebuilt(state, {key: with_leaves(inner, new, (*path, key)) for key, inner in items(state)})


def leaf_text(path: Path) -> str:
    """A leaf in words."""
    return path_text(("state", *path))


def same_shape(ctx: Context, doing: str, monoid: Monoid, found: Any, state: Any, what: str) -> dict[Path, Any]:
    """The leaves of `found`. *Errors*: `reduce/state-shape` where they are not those of `state`."""
    mine, wanted = leaves(found), leaves(state)
    odd = next((x for x in mine.values() if not isinstance(x, Tile) and not merging.is_number(x)), None)
    if mine.keys() == wanted.keys() and class_of(found) is class_of(state) and odd is None:
        return mine
    if is_container(found) == is_container(state) and mine.keys() == wanted.keys() and odd is None:
        if not is_container(found) or isinstance(found, (tuple, list)) and isinstance(state, (tuple, list)):
            return mine
    raise StateShape(
        doing=f"{doing} with {monoid.name}",
        found=f"{what} of {shape_text(found)}" if odd is None else f"{what} with {odd!r}",
        expected=f"a state of {shape_text(state)}",
        hint="identity, lift and merge give the same tuple or dataclass of tiles and numbers",
        span=ctx.span,
    )


def shape_text(state: Any) -> str:
    """The structure of a state in words."""
    if not is_container(state):
        return "one value"
    return f"{class_of(state).__name__}({', '.join(path_text(p) for p in leaves(state))})"


# ---- applying


@dataclass
class Application:
    """A monoid applied in a kernel: the state's leaves before and after, and the operations in between."""

    monoid: Monoid
    state: Any
    left: dict[Path, Value]
    results: dict[Path, Any]
    ops: set[Op]
    span: Span | None
    places: dict[Path, int] = field(default_factory=dict[Path, int])
    """Which carried value of the region each leaf comes from, filled in when its states are checked."""


def apply(ctx: Context, monoid: Monoid, s: Any, x: Any, *, lifted: bool) -> Any:
    """`monoid(s, x)` (`lifted`) or `monoid.merge(s, x)`: the author's functions inlined."""
    if isinstance(monoid, Builtin):
        return monoid.both(s, x)
    if lifted and monoid.lift is not None:
        x = ctx.call(monoid.lift, [x], {})
    region = None if ctx.quiet else next((r for r in reversed(ctx.regions) if r.kind == "reduce"), None)
    if region is None:
        return ctx.call(monoid.function, [s, x], {})
    doing = "folding in td.reduce"
    check_order(ctx, doing, monoid, region.order, region.span)
    same_shape(ctx, doing, monoid, x, s, "a contribution")
    left = {p: leaf.value for p, leaf in leaves(s).items() if isinstance(leaf, Tile)}
    block = ctx.builder.block
    start = len(block.ops)
    # The chain from the right has what comes later on the right, and that is the state.
    pair = [x, s] if region.order == "fold_right" else [s, x]
    result = ctx.call(monoid.function, pair, {})
    found = same_shape(ctx, doing, monoid, result, s, "a merged state")
    ops = set(block.ops[start:])
    ctx.applications.append(Application(monoid, s, left, found, ops, ctx.span))
    return result


def check_order(ctx: Context, doing: str, monoid: Monoid, order: str, region: Span | None = None) -> None:
    """*Errors*: `reduce/no-merge`, `reduce/not-commutative` where the order needs laws that the monoid lacks."""
    notes = () if region is None else ((region, "the region"),)
    if monoid.laws == "none" and order in ("unordered", "ordered"):
        raise NoMerge(
            doing=f"{doing} with {monoid.name}",
            found=f"order td.{order}, which merges partial states, and a merge without laws",
            expected="an associative merge, or an exact chain",
            hint="fold: order=td.fold_left or td.fold_right",
            span=ctx.span,
            notes=notes,
        )
    if order == "unordered" and not monoid.commutative:
        raise NotCommutative(
            doing=f"{doing} with {monoid.name}",
            found="order td.unordered, which permutes, and a merge that does not commute",
            expected="a commutative merge, or an order that keeps the order of the contributions",
            hint="write order=td.ordered, or td.Monoid(..., commutative=True) if it does commute",
            span=ctx.span,
            notes=notes,
        )


# ---- a monoid as blocks of the program


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


# ---- td.fold and td.scan


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
    x = folds.tile_operand(ctx, doing, x) if isinstance(x, PartRef) else x
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
