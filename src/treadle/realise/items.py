"""Items: the things a block does, and the axes over which it does them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from treadle.algebra.dims import Dim, Part
from treadle.analysis.uses import flat_subs
from treadle.ir.core import If, Op, Region, Value
from treadle.ir.ops.access import Extract, Insert, Load, Store
from treadle.ir.ops.fold import Mma, Reduce, Scan
from treadle.realise.frame import Kept


@dataclass(eq=False)
class Item:
    """One thing a block does. `outer` are the axes of what it makes, `inner` the axes it folds; `makes` its value."""

    kind: str  # "fold", "scan", "store", "keep", "insert", "update", "region", "if"
    op: Op
    outer: tuple[Part, ...] = ()
    inner: tuple[Part, ...] = ()
    makes: Value | None = None
    source: Value | None = None
    reads: set[str] = field(default_factory=set[str])
    skewed: set[str] = field(default_factory=set[str])
    target: Kept | str | None = None  # an existing buffer or fragment to put the value into
    name: Value | None = None  # what a move claims to have moved, when not its source (the result of an `if`)

    @property
    def products(self) -> list[Value]:
        """The values that later items may read from this one."""
        if self.kind in ("region", "if"):
            return list(self.op.results)
        return [self.makes] if self.makes is not None and self.kind != "update" else []

    @property
    def exact(self) -> bool:
        """Whether it folds one contribution after another, in an order that nothing may change."""
        return isinstance(self.op, Reduce) and self.op.order != "unordered"

    @property
    def backward(self) -> bool:
        """Whether it folds the last contribution first."""
        op = self.op
        return (isinstance(op, Reduce) and op.order == "fold_right") or (isinstance(op, Scan) and op.reverse)

    @property
    def alone(self) -> bool:
        """Whether it makes a sweep by itself."""
        return self.kind in ("region", "if", "update")


def item_of(op: Op) -> Item | None:
    """The item that an operation is by itself; None for one that is computed where it is used."""
    match op:
        case Reduce():
            axes = op.source.type.axes
            inner = tuple(a for a in axes if a.dim in op.dims)
            if op.order != "unordered":
                inner = tuple(sorted(inner, key=lambda a: op.dims.index(a.dim)))
            return Item("fold", op, op.result.type.axes, inner, op.result)
        case Mma():
            inner = tuple(a for a in op.a.type.axes if a.dim in op.contracted)
            return Item("fold", op, op.result.type.axes, inner, op.result)
        case Scan() if len(op.results) == 1:
            axes = op.result.type.axes
            return Item("scan", op, tuple(a for a in axes if a.dim is not op.dim), (op.part,), op.result)
        case Store():
            return Item("store", op, store_axes(op), (), op.results[0] if op.results else None)
        case Insert():
            return Item("insert", op, insert_axes(op), (), op.result)
        case Region():
            return Item("region", op, region_axes(op))
        case If():
            return Item("if", op)
        case _:
            return None


def store_axes(op: Store) -> tuple[Part, ...]:
    """The axes of the elements of a store: of its subscripts, then of its value."""
    return _axes([s.part or s.tile for s in flat_subs(op.subs)], (op.value, op.where))


def insert_axes(op: Insert) -> tuple[Part, ...]:
    """The axes of the elements that an insert replaces."""
    return _axes([s.part or s.tile for s in flat_subs(op.subs)], (op.value,))


def _axes(subs: Sequence[Part | Value | None], values: Sequence[Value | None]) -> tuple[Part, ...]:
    found: dict[Dim, Part] = {}
    for sub in (*subs, *values):
        if isinstance(sub, Part):
            found.setdefault(sub.dim, sub)
        elif isinstance(sub, Value):
            for axis in sub.type.axes:
                found.setdefault(axis.dim, axis)
    return tuple(found.values())


def region_axes(op: Region) -> tuple[Part, ...]:
    """Axes that all carried values of a region have."""
    if not op.carried:
        return ()
    first, *rest = (v.type.axes for v in op.carried)
    return tuple(a for a in first if all(a in r for r in rest))


def runs_apart(op: Region) -> bool:
    """Whether each element along the axes of `region_axes` goes through all iterations without the others: nothing
    inside folds or reads elsewhere along them, and no tensor is stored to and read."""
    axes = region_axes(op)
    inside = list(op.body.walk())
    if not axes or any(isinstance(o, Region) for o in inside):
        return False
    touched = [{o.tensor.name for o in inside if isinstance(o, kind)} for kind in (Load, Store)]
    return not touched[0] & touched[1] and all(_along(o, axes) for o in inside)


def _along(op: Op, axes: Sequence[Part]) -> bool:
    """Whether what an operation makes has those of these axes that its operands have, each element of its own place."""
    if isinstance(op, Store):
        made = {s.part for s in flat_subs(op.subs) if s.part is not None}
        return all(a in made for a in axes)
    if isinstance(op, Extract | Insert):
        at = {s.part for s in flat_subs(op.subs) if s.part is not None}
        if not all(a in at for a in axes if a in op.source.type.axes):
            return False
    made = {a for v in op.results for a in v.type.axes}
    return not op.results or all(a in made for v in op.operands for a in axes if a in v.type.axes)
