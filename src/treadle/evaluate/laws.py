"""The laws of a user's monoid on the states of a run: what `laws="declared"` and `commutative=True` promise.

Regrouping alone does not show every broken law: an empty part that is merged in shows a wrong identity, two orders of
one pair a merge that does not commute. Each law is an equation between merges of actual states, tested where an order
relies on it. Floating-point states may differ by what rounding explains: by what regrouping may, and as much as they do
when their operands are moved by a unit in the last place or two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from treadle.evaluate.monoid import Array, Batch, Monoid
from treadle.ir.core import Block, Merge, Op, TileType

if TYPE_CHECKING:
    from treadle.evaluate.machine import Machine

MOST_RUNS = 32
"""How often the laws of one merge are put to the test in a run."""
MOST_STATES = 256
"""How many states of a fold take part, where merges are computed all at once; else `FEW_STATES`."""
FEW_STATES = 8
SPREAD = 4.0
"""How many times what moved operands change may be the difference of the two sides."""

Sides = Callable[[Sequence[Batch]], tuple[Batch, Batch]]
"""The two sides of a law on its operands."""


@dataclass(frozen=True)
class Law:
    """An equation between merges of states: the code of its finding, the two sides as a user writes them."""

    code: str
    left: str
    right: str


LEFT = Law("reduce/not-identity", "merge(identity, x)", "x")
RIGHT = Law("reduce/not-identity", "merge(x, identity)", "x")
GROUPED = Law("reduce/not-associative", "merge(merge(x, y), z)", "merge(x, merge(y, z))")
SWAPPED = Law("reduce/not-commutative", "merge(x, y)", "merge(y, x)")


def try_laws(m: Machine, op: Op, merge: Merge, states: Batch) -> None:
    """Reports the first law that `states`, in the order in which `op` folds them, break.

    *Requires*: the order of `op` permits regrouping.
    """
    count = states[0].shape[0] if states else 0
    if not m.watcher.laws or merge.laws != "declared" or not count or m.tried.get(id(merge), 0) >= MOST_RUNS:
        return
    m.tried[id(merge)] = m.tried.get(id(merge), 0) + 1
    monoid = Monoid(m, merge)
    merged = monoid.combine
    x = _cut(states, 0, min(count, MOST_STATES if monoid.pointwise else FEW_STATES))
    count = x[0].shape[0]
    identity = monoid.identity()

    def one(a: Batch) -> Batch:
        return [np.broadcast_to(e, y.shape) for e, y in zip(identity, a, strict=True)]

    def regrouped(o: Sequence[Batch]) -> tuple[Batch, Batch]:
        return merged(merged(o[0], o[1]), o[2]), merged(o[0], merged(o[1], o[2]))

    trials: list[tuple[Law, Sides, Sequence[Batch]]] = [
        (LEFT, lambda o: (merged(one(o[0]), o[0]), o[0]), (x,)),
        (RIGHT, lambda o: (merged(o[0], one(o[0])), o[0]), (x,)),
    ]
    if merge.commutative and count > 1:
        trials.append(
            (SWAPPED, lambda o: (merged(o[0], o[1]), merged(o[1], o[0])), (x, [np.roll(y, -1, 0) for y in x]))
        )
    if count > 2:
        trials.append((GROUPED, regrouped, tuple(_cut(x, i, count - 2 + i) for i in range(3))))
    if count > 5:
        edges = [0, count // 3, count - count // 3, count]
        parts = tuple(monoid.tree(_cut(x, a, b)) for a, b in zip(edges, edges[1:], strict=False))
        trials.append((GROUPED, regrouped, parts))
    types = merge.types
    for law, sides, operands in trials:
        found = _broken(types, sides, operands)
        if found is not None:
            _report(m, op, merge, law, sides(operands), operands, found)
            return


def _cut(states: Batch, start: int, stop: int) -> Batch:
    return [leaf[start:stop] for leaf in states]


def _broken(types: list[TileType], sides: Sides, operands: Sequence[Batch]) -> tuple[int, tuple[int, ...]] | None:
    """The leaf, and in it the element, of a state where the two sides of a law differ by more than rounding does."""
    with np.errstate(all="ignore"):
        left, right = sides(operands)
        suspects = [_differ(t, a, b, 0.0) for t, a, b in zip(types, left, right, strict=True)]
        if not any(bad.any() for bad in suspects):
            return None
        moved = [sides([[_moved(t, x, s) for t, x in zip(types, o, strict=True)] for o in operands]) for s in (1, -1)]
        for leaf, (type, a, b) in enumerate(zip(types, left, right, strict=True)):
            slack: Array | float = 0.0
            if type.dtype.is_float:
                for new_left, new_right in moved:
                    for old, new in ((a, new_left[leaf]), (b, new_right[leaf])):
                        change = np.abs(old.astype(np.float64) - new.astype(np.float64))
                        slack = np.maximum(slack, np.nan_to_num(change, nan=0.0, posinf=0.0) * SPREAD)
            bad = _differ(type, a, b, slack)
            if bad.any():
                return leaf, tuple(int(i) for i in np.argwhere(bad)[0])
    return None


def _moved(type: TileType, x: Array, sign: int) -> Array:
    """Numbers moved by two units in the last place, every other one the other way."""
    if not type.dtype.is_float:
        return x
    ways = np.where(np.arange(x.size).reshape(x.shape) % 2 == 0, sign, -sign)
    return (x.astype(np.float64) * (1.0 + ways * 2.0 * 2.0**-type.dtype.mantissa)).astype(x.dtype)


def _differ(type: TileType, a: Array, b: Array, slack: Array | float) -> NDArray[np.bool_]:
    """Which elements differ by more than regrouping explains, and by more than `slack`."""
    if not type.dtype.is_float:
        return np.asarray(a != b)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    tolerance = max(1e-3, 4.0 * 2.0**-type.dtype.mantissa)
    size = np.maximum(1.0, np.maximum(np.abs(wide_a), np.abs(wide_b)))
    same = (wide_a == wide_b) | (np.isnan(wide_a) & np.isnan(wide_b))
    return ~same & ~(np.abs(wide_a - wide_b) <= tolerance * size + slack)


def _report(
    m: Machine,
    op: Op,
    merge: Merge,
    law: Law,
    sides: tuple[Batch, Batch],
    operands: Sequence[Batch],
    place: tuple[int, tuple[int, ...]],
) -> None:
    leaf, at = place
    values = ", ".join(f"{name} = {_text(o, leaf, at)}" for name, o in zip("xyz", operands, strict=False))
    left, right = (_text(side, leaf, at) for side in sides)
    second = f"{law.right} is {right}" if law.right != "x" else "not x"
    message = f"{law.left} is {left}, {second}, for {values}"
    line = _own_line(merge.identity, op) if law.code == LEFT.code else None
    line = line or _own_line(merge.body, op)
    m.watcher.report(law.code, message, line or op, op if line else None)


def _own_line(block: Block, op: Op) -> Op | None:
    """The last operation of a block that stands on a line of the monoid's, not within the fold itself."""
    for inner in reversed(block.ops):
        at, fold = inner.span, op.span
        if at and not (fold and at.file == fold.file and fold.line <= at.line <= (fold.end_line or fold.line)):
            return inner
    return None


def _text(state: Batch, leaf: int, at: tuple[int, ...]) -> str:
    """A state at a place: the number, or all leaves of one shape there."""
    shape = state[leaf].shape
    shown = [str(x[at]) if x.shape == shape else "..." for x in state]
    return shown[0] if len(shown) == 1 else f"({', '.join(shown)})"
