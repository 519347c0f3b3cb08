"""Monoids: what a fold merges with, and the folds and scans of the user's own.

A monoid of the user is captured twice: inlined where a kernel applies it, and as a `Merge` of the operation or region
that folds with it, which says how partial states are merged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from treadle.algebra.monoids import MONOIDS
from treadle.base.names import identifier
from treadle.base.source import Span
from treadle.ir.core import Op, Value
from treadle.lang import merging, pointwise
from treadle.lang.dims import PartRef
from treadle.lang.errors import BadArgument, NoMerge, NotCommutative, StateShape
from treadle.lang.frames import Path, is_container, items, path_text, rebuilt
from treadle.lang.objects import class_of
from treadle.lang.state import context, span_here, staged_flag
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
            raise BadArgument(
                doing="making td.Monoid",
                found=f"laws={laws!r}" if self.laws not in LAWS else "a merge or lift that is no function",
                expected='a function of two states; laws="declared" or None',
                hint="write td.Monoid(identity, merge, lift=None, commutative=False)",
                span=span_here(),
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

    def __repr__(self) -> str:
        return f"td.Monoid({self.name})"


_SENTENCES = {
    "add": "addition, with identity 0",
    "mul": "multiplication, with identity 1",
    "max": "the larger of two, with the lowest value of the dtype as identity",
    "min": "the smaller of two, with the highest value of the dtype as identity",
    "and": "`&`: the conjunction of conditions, bit by bit for integers, with all bits set as identity",
    "or": "`|`: the disjunction of conditions, bit by bit for integers, with identity 0",
    "xor": "`^`: the exclusive disjunction of conditions, bit by bit for integers, with identity 0",
}


class Builtin(Monoid):
    """A monoid that the language knows, with proved laws: `td.Add`, `td.Mul`, `td.Max`, `td.Min`, `td.And` ..."""

    def __init__(self, word: str) -> None:
        self.word = word
        super().__init__(0, self.both, None, commutative=True)
        self.__doc__ = f"The monoid of {_SENTENCES[word]}. Its laws are proved."

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


def state_values(ctx: Context, state: Any) -> Any:
    """The state with parts of dimensions as their coordinates."""
    found = leaves(state)
    parts = {p: ctx.coords(leaf) for p, leaf in found.items() if isinstance(leaf, PartRef)}
    return with_leaves(state, found | parts) if parts else state


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
    x = state_values(ctx, x)
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
