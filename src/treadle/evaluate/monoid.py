"""States of user-defined folds: arrays with one leading axis of states, merged all at once where the merge allows."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from treadle.dtype.convert import bitcast, convert
from treadle.evaluate import pointwise
from treadle.evaluate.tiles import Tile, spread
from treadle.ir.core import Block, Merge, Op, Value
from treadle.ir.ops.elementwise import Bitcast, Cast, Coords, Elementwise, Full, Index

if TYPE_CHECKING:
    from treadle.evaluate.machine import Machine

Array = NDArray[Any]
Batch = list[Array]
"""One array a leaf: states along the first axis, then the leaf's own axes."""

MANY = "many"
Known = dict[str, tuple[Array, tuple[Hashable, ...]]]
"""Data by value name, with its axes."""

POINTWISE = (Full, Coords, Index, Elementwise, Cast, Bitcast)


class Monoid:
    """A user's monoid in a run."""

    def __init__(self, machine: Machine, merge: Merge) -> None:
        self.m = machine
        self.merge = merge
        self.pointwise = all(isinstance(op, POINTWISE) for op in merge.body.ops)

    def identity(self) -> Batch:
        """The state that changes nothing, as a batch of one."""
        self.m.block(self.merge.identity)
        return [self.leaf(v, self.m.values[v.name].data[None]) for v in self.merge.identity.yields]

    def leaf(self, value: Value, data: Array) -> Array:
        _, shape = self.m.shape(value)
        return np.broadcast_to(data, (data.shape[0], *shape))

    def combine(self, left: Batch, right: Batch) -> Batch:
        """The merged states, one by one along the first axis."""
        if not self.pointwise:
            count = left[0].shape[0]
            found = [self.one([x[i] for x in left], [y[i] for y in right]) for i in range(count)]
            return [np.stack(leaves) for leaves in zip(*found, strict=True)]
        known: Known = {}
        for parameter, data in zip(self.merge.parameters, (*left, *right), strict=True):
            known[parameter.name] = (data, (MANY, *parameter.type.dims))
        self.all_at_once(self.merge.body, known)
        count = left[0].shape[0]
        merged: Batch = []
        for value, parameter in zip(self.merge.body.yields, self.merge.left, strict=True):
            data = self.read(known, value, parameter.type.dims)
            _, shape = self.m.shape(parameter)
            merged.append(np.broadcast_to(data, (count, *shape)).astype(parameter.type.dtype.numpy))
        return merged

    def one(self, left: Sequence[Array], right: Sequence[Array]) -> list[Array]:
        """One merge, by the operations of the block."""
        for parameter, data in zip(self.merge.parameters, (*left, *right), strict=True):
            self.m.tile(parameter, data)
        self.m.block(self.merge.body)
        return [self.m.values[v.name].data for v in self.merge.body.yields]

    def all_at_once(self, block: Block, found: Known) -> None:
        for op in block.ops:
            dims = op.result.type.dims
            found[op.result.name] = (self.pointwise_op(op, dims, found), (MANY, *dims))

    def pointwise_op(self, op: Op, dims: tuple[Any, ...], found: Known) -> Array:
        match op:
            case Elementwise():
                return pointwise.apply(op, [self.read(found, a, dims) for a in op.args])
            case Cast():
                return convert(self.read(found, op.source, dims), op.source.type.dtype, op.dtype, op.saturate)
            case Bitcast():
                return bitcast(self.read(found, op.source, dims), op.source.type.dtype, op.dtype)
            case _:
                self.m.block(Block([op]))
                return self.m.values[op.result.name].data[None]

    def read(self, found: Known, value: Value, dims: tuple[Any, ...]) -> Array:
        """A value's data along (many, *dims)."""
        if value.name in found:
            data, have = found[value.name]
        else:
            data, have = self.m.values[value.name].data[None], (MANY, *value.type.dims)
        return spread(data, have, (MANY, *dims))

    # ---- folds of a batch

    def tree(self, batch: Batch) -> Batch:
        """The fold of a batch, neighbours first: a regrouping that keeps the order."""
        if batch[0].shape[0] == 0:
            return self.identity()
        while (count := batch[0].shape[0]) > 1:
            even = count - count % 2
            merged = self.combine([x[0:even:2] for x in batch], [x[1:even:2] for x in batch])
            batch = [np.concatenate([y, x[even:]]) for x, y in zip(batch, merged, strict=True)]
        return batch

    def chain(self, batch: Batch, *, right: bool = False) -> Batch:
        """The exact chain from the identity: from the first state, or (`right`) from the last one."""
        state = self.identity()
        count = batch[0].shape[0]
        for i in reversed(range(count)) if right else range(count):
            one = [x[i : i + 1] for x in batch]
            state = self.combine(one, state) if right else self.combine(state, one)
        return state

    def prefixes(self, batch: Batch) -> Batch:
        """Every prefix fold of a batch, by doubling: a regrouping that keeps the order.

        Source: W. D. Hillis, G. L. Steele, "Data Parallel Algorithms", CACM 29 (12), 1986.
        """
        step, count = 1, batch[0].shape[0]
        while step < count:
            merged = self.combine([x[:-step] for x in batch], [x[step:] for x in batch])
            batch = [np.concatenate([x[:step], y]) for x, y in zip(batch, merged, strict=True)]
            step *= 2
        return batch

    def chained_prefixes(self, batch: Batch) -> Batch:
        """Every prefix of the exact chain from the identity."""
        state = self.identity()
        found: list[Batch] = []
        for i in range(batch[0].shape[0]):
            state = self.combine(state, [x[i : i + 1] for x in batch])
            found.append(state)
        if not found:
            return [x[:0] for x in state]
        return [np.concatenate(leaves) for leaves in zip(*found, strict=True)]

    def tiles(self, batch: Batch) -> list[Tile]:
        """The only state of a batch as tiles."""
        found: list[Tile] = []
        for parameter, data in zip(self.merge.left, batch, strict=True):
            lo, _ = self.m.shape(parameter)
            found.append(Tile(np.ascontiguousarray(data[0]).reshape(data.shape[1:]), parameter.type.dims, lo))
        return found
