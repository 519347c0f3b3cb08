"""`reduce` regions regrouped: groups of instances folded from the identity, their states merged afterwards.

What an order permits must not change a result: the interpreter does it at random, so that a merge that breaks its
laws, or a state that is no state, shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from treadle.algebra.monoids import MONOIDS
from treadle.evaluate import laws, scalar
from treadle.evaluate.monoid import Monoid
from treadle.evaluate.tiles import Tile, spread
from treadle.ir.core import Region, Value
from treadle.ir.states import update_monoid

if TYPE_CHECKING:
    from treadle.evaluate.machine import Machine

Instance = tuple[tuple[int, int], ...]


def groups(machine: Machine, op: Region, instances: list[Instance]) -> list[list[Instance]]:
    """The instances in groups that are folded by themselves; one group where the order or a state forbids it."""
    if op.kind != "reduce" or op.order not in ("unordered", "ordered") or len(instances) < 2 or not op.carried:
        return [instances]
    sizes = machine.cuts.groups(len(instances))
    if len(sizes) < 2 or not all(_mergeable(op, i) for i in range(len(op.carried))):
        return [instances]
    if op.order == "unordered" and all(m.commutative for m in op.merges):
        instances = machine.cuts.shuffled(instances)
    found: list[list[Instance]] = []
    for size in sizes:
        found.append(instances[:size])
        instances = instances[size:]
    return found


def _mergeable(op: Region, state: int) -> bool:
    merge = next((m for m in op.merges if state in m.states), None)
    return update_monoid(op, state) is not None if merge is None else merge.laws != "none"


def identities(machine: Machine, op: Region) -> list[Tile]:
    """The states that change nothing."""
    found: dict[int, Tile] = {}
    for merge in op.merges:
        monoid = Monoid(machine, merge)
        found |= dict(zip(merge.states, monoid.tiles(monoid.identity()), strict=True))
    return [found[i] if i in found else _identity(machine, op, i, v) for i, v in enumerate(op.carried)]


def _identity(machine: Machine, op: Region, state: int, value: Value) -> Tile:
    dtype = value.type.dtype
    lo, shape = machine.shape(value)
    number = MONOIDS[str(update_monoid(op, state))].identity(dtype)
    return Tile(np.full(shape, number).astype(dtype.numpy), value.type.dims, lo)


def merged(machine: Machine, op: Region, first: list[Tile], second: list[Tile]) -> list[Tile]:
    """Two groups' states as one."""
    found: dict[int, Tile] = {}
    for merge in op.merges:
        monoid = Monoid(machine, merge)
        sides = [[_data(s[i], v)[None] for i, v in zip(merge.states, merge.left, strict=True)] for s in (first, second)]
        found |= dict(zip(merge.states, monoid.tiles(monoid.combine(sides[0], sides[1])), strict=True))
    for i, value in enumerate(op.carried):
        if i not in found:
            a, b = first[i], second[i]
            name = str(update_monoid(op, i))
            data = scalar.merge(name, value.type.dtype, _data(a, value), _data(b, value))
            known = a.known if a.known is not None else b.known
            found[i] = Tile(np.asarray(data).astype(value.type.dtype.numpy), value.type.dims, a.lo, known, a.covered)
    return [found[i] for i in range(len(op.carried))]


def try_laws(machine: Machine, op: Region, parts: list[list[Tile]]) -> None:
    """Puts the laws of the user's monoids to the test on the states of the groups."""
    for merge in op.merges:
        leaves = zip(merge.states, merge.left, strict=True)
        laws.try_laws(machine, op, merge, [np.stack([_data(p[i], v) for p in parts]) for i, v in leaves])


def _data(tile: Tile, value: Value) -> np.ndarray:
    return spread(tile.data, tile.dims, value.type.dims)
