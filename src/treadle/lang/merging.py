"""Values that meet: the two branches of a traced condition, and the types that carried values keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from treadle.algebra.expr import Constraint
from treadle.base.source import Span
from treadle.dtype import promote as rules
from treadle.ir.core import Block, If, Region, TileType, Value
from treadle.ir.ops.access import Extract, Load
from treadle.ir.rewrite import has_effect
from treadle.lang import pointwise
from treadle.lang.dims import PartRef
from treadle.lang.errors import BranchType
from treadle.lang.frames import is_container, items, rebuilt
from treadle.lang.objects import plain_number
from treadle.lang.tile import Tile

if TYPE_CHECKING:
    from treadle.lang.context import Context


def is_number(x: Any) -> bool:
    """A Python number, which is weak."""
    return isinstance(x, (bool, int, float, np.generic))


def same_leaf(a: Any, b: Any) -> bool:
    """Whether two leaves are the same value for sure."""
    if a is b:
        return True
    if isinstance(a, Tile) and isinstance(b, Tile):
        if a.known_value is None and b.known_value is None:
            return a.expr == b.expr
        return a.known_value is b.known_value
    if isinstance(a, Tile) or isinstance(b, Tile):
        return False
    if is_number(a) and is_number(b):
        return type(a) is type(b) and (a == b or (a != a and b != b))
    return isinstance(a, (str, bytes, type)) and type(a) is type(b) and a == b


def conform(ctx: Context, x: Any, type: TileType) -> Value | None:
    """The leaf as a value of exactly `type`: numbers fill, axes are put in order; `None` where it is another type."""
    if is_number(x):
        number = plain_number(x)
        if type.dtype.is_bool and not isinstance(number, bool):
            return None
        if type.dtype.is_int and isinstance(number, float):
            return None
        return pointwise.constant(ctx, number, type.dtype, type.axes)
    if isinstance(x, Tile) and x.dtype != type.dtype:
        x = pointwise.in_weak_dtype(ctx, x, type.dtype)
    if not isinstance(x, Tile) or x.dtype != type.dtype or set(x.type.axes) != set(type.axes):
        return None
    return pointwise.broadcast(ctx, x, type.dtype, type.axes)


def is_plain(block: Block) -> bool:
    """Whether the block's operations may as well run always: no access, no effect, nothing nested."""
    return not any(isinstance(op, (Load, Extract, If, Region)) or has_effect(op) for op in block.ops)


def splice(ctx: Context, block: Block) -> None:
    """Moves a plain block's operations into the current one."""
    ctx.builder.block.ops.extend(block.ops)
    block.ops = []


def negated(cond: Tile) -> tuple[Constraint, ...]:
    """What holds where a single inequality does not."""
    if cond.fact is None or not cond.exact or cond.fact[0].equality:
        return ()
    return (Constraint(-cond.fact[0].expr - 1),)


class Merge:
    """The results of a traced `if`: leaves of both branches that differ become results of one `If` operation."""

    def __init__(self, ctx: Context, cond: Tile, then: Block, orelse: Block, span: Span | None) -> None:
        self.ctx = ctx
        self.cond = cond
        self.then = then
        self.orelse = orelse
        self.span = span
        self.pairs: list[tuple[Value, Value, str | None]] = []
        self.slots: list[Tile] = []

    def leaf(self, what: str, a: Any, b: Any, hint: str | None = None) -> Any:
        """The merged leaf; a tile whose value `finish` fills in. *Errors*: `region/branch-type`."""
        if same_leaf(a, b):
            return a
        type = self._type(a, b)
        if type is None:
            raise self._mismatch(what, a, b)
        with self.ctx.scope(self.then):
            first = conform(self.ctx, a, type)
        with self.ctx.scope(self.orelse):
            second = conform(self.ctx, b, type)
        if first is None or second is None:
            raise self._mismatch(what, a, b)
        self.pairs.append((first, second, hint))
        slot = Tile(type, self.ctx.builder.block)
        self.slots.append(slot)
        return slot

    def tree(self, what: str, a: Any, b: Any, hint: str | None = None) -> Any:
        """The merged structure. *Errors*: `region/branch-type` where the structures differ."""
        if not is_container(a) or not is_container(b):
            return self.leaf(what, a, b, hint)
        mine, other = dict(items(a)), dict(items(b))
        if type(a) is not type(b) or mine.keys() != other.keys():
            raise self._mismatch(what, a, b)
        merged = {k: self.tree(f"{what}[{k!r}]", v, other[k], hint and f"{hint}_{k}") for k, v in mine.items()}
        return a if all(merged[k] is v for k, v in mine.items()) and a is b else rebuilt(a, merged)

    def _type(self, a: Any, b: Any) -> TileType | None:
        if isinstance(a, Tile):
            return a.type
        if isinstance(b, Tile):
            return b.type
        if is_number(a) and is_number(b):
            kinds = [rules.weak_alone(plain_number(x)) for x in (a, b)]
            return TileType(max(kinds, key=lambda d: ("bool", "i64", "f32").index(d.name)))
        return None

    def _mismatch(self, what: str, a: Any, b: Any) -> BranchType:
        return BranchType(
            doing=f"joining the branches of an if for {what}",
            found=f"{describe(a)} in one branch and {describe(b)} in the other",
            expected="the same dtype and dimensions from both",
            hint="convert with .to, or assign a tile of the same dimensions in both branches",
            span=self.span,
        )

    def finish(self) -> None:
        """Emits the operation; slots become its results. Nothing is emitted where nothing happens."""
        self.then.yields = [p[0] for p in self.pairs]
        self.orelse.yields = [p[1] for p in self.pairs]
        if not self.pairs and not any(has_effect(op) for b in (self.then, self.orelse) for op in b.ops):
            return
        cond = self.cond.value
        results = self.ctx.builder.conditional(cond, self.then, self.orelse, [p[2] for p in self.pairs])
        for slot, value in zip(self.slots, results):
            slot.fill(value)


def describe(x: Any) -> str:
    """A leaf in words."""
    if isinstance(x, Tile):
        return f"a tile {x.type}"
    if is_number(x):
        return f"the number {x}"
    if isinstance(x, PartRef):
        return f"the part {x} of a dimension"
    if hasattr(x, "set_at"):
        return f"the tensor {x}"
    return f"{x!r}" if x is None or isinstance(x, str) else f"{type(x).__name__} {x}"
