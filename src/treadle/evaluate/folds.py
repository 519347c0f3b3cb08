"""The meaning of folds, scans, sorting and contractions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from treadle.algebra.dims import Dim
from treadle.algebra.monoids import MONOIDS
from treadle.dtype.convert import as_computable, convert
from treadle.dtype.formats import DType
from treadle.evaluate import scalar
from treadle.evaluate.laws import try_laws
from treadle.evaluate.monoid import Batch, Monoid
from treadle.evaluate.tiles import spread
from treadle.ir.ops.fold import ArgReduce, Fold, Mma, Reduce, Scan, Sort

if TYPE_CHECKING:
    from treadle.evaluate.machine import Machine

Array = NDArray[Any]


def reduce(m: Machine, op: Reduce) -> None:
    """The fold of a tile along dimensions; the order policies that are exact keep their chain."""
    dims = op.source.type.dims
    array = m.operand(op.source, dims, op)
    axes = tuple(dims.index(d) for d in op.dims)
    exact = op.order in ("fold_left", "fold_right")
    if op.order == "fold_right":
        array = np.flip(array, axes)
    kept = tuple(d for d in dims if d not in op.dims)
    out = scalar.fold(op.monoid, op.result.type.dtype, array, axes, exact=exact, nan=op.nan)
    m.tile(op.result, spread(out, kept, op.result.type.dims))


def argreduce(m: Machine, op: ArgReduce) -> None:
    """The coordinates of first extrema; of nothing, the first coordinate."""
    tile = m.values[op.source.name]
    dims = op.source.type.dims
    array = m.operand(op.source, dims, op)
    kept = tuple(d for d in dims if d not in op.dims)
    flat = array.transpose([dims.index(d) for d in (*kept, *op.dims)])
    flat = flat.reshape(*flat.shape[: len(kept)], math.prod(flat.shape[len(kept) :]))
    if flat.shape[-1] == 0:
        first = tile.lo[dims.index(op.dims[0])] if len(op.dims) == 1 else 0
        m.tile(op.result, np.asarray(first))
        return
    wide = flat.astype(np.float64) if op.source.type.dtype.is_float else flat
    choose = np.argmax if op.monoid == "max" else np.argmin
    best = choose(wide, axis=-1)
    if op.nan == "ignore" and op.source.type.dtype.is_float:
        absent = np.isnan(wide)
        filled = np.where(absent, -np.inf if op.monoid == "max" else np.inf, wide)
        edge = np.take_along_axis(filled, choose(filled, axis=-1)[..., None], -1)
        # An infinity counts before a NaN that stands in for one; only NaN: the first.
        best = np.argmax((filled == edge) & (~absent | absent.all(-1, keepdims=True)), axis=-1)
    if len(op.dims) == 1:
        best = best + tile.lo[dims.index(op.dims[0])]
    m.tile(op.result, spread(np.asarray(best), kept, op.result.type.dims))


def mma(m: Machine, op: Mma) -> None:
    """A contraction, whose operands are converted to the accumulator's dtype before they are multiplied."""
    dims = op.result.type.dims
    dtype = op.result.type.dtype
    a, b = (m.operand(v, v.type.dims, op) for v in (op.a, op.b))
    wide_a = convert(a, op.a.type.dtype, dtype) if op.a.type.dtype != dtype else a
    wide_b = convert(b, op.b.type.dtype, dtype) if op.b.type.dtype != dtype else b
    acc = m.operand(op.acc, dims, op)
    factors = (*op.a.type.dims, *op.b.type.dims)
    have = tuple(d for d in dims if d in factors)
    with np.errstate(all="ignore"):
        if dtype.is_float and m.program.numerics.get("contract", True) is False:
            order = (*op.contracted, *have)
            left, right = spread(wide_a, op.a.type.dims, order), spread(wide_b, op.b.type.dims, order)
            product = _unfused(left, right, len(op.contracted))
        elif wide_a.size == wide_b.size == 1 and dtype.numpy.isbuiltin == 1:
            # One product: blocks of 1 have no more.
            product = (wide_a.reshape(()) * wide_b.reshape(())).reshape((1,) * len(have))
        else:
            letters = {d: i for i, d in enumerate((*dims, *op.contracted))}
            product = np.einsum(
                wide_a,
                [letters[d] for d in op.a.type.dims],
                wide_b,
                [letters[d] for d in op.b.type.dims],
                [letters[d] for d in have],
                optimize=True,
            )
        m.tile(op.result, acc + spread(np.asarray(product), have, dims))


def _unfused(a: NDArray[Any], b: NDArray[Any], summed: int) -> NDArray[Any]:
    """The sum over the first axes of products that are rounded before they are added: what multiplies large arrays
    fast fuses both."""
    extents = np.broadcast_shapes(a.shape, b.shape)
    total = np.zeros(extents[summed:], np.result_type(a, b))
    wide = [np.broadcast_to(x, (*extents[:summed], *x.shape[summed:])) for x in (a, b)]
    for at in np.ndindex(extents[:summed]):
        total = total + wide[0][at] * wide[1][at]
    return total


# ---- folds and scans with a user's monoid


def fold(m: Machine, op: Fold) -> None:
    """See `Fold`; groups of neighbours are folded by themselves, as the cuts say, and merged afterwards."""
    monoid = Monoid(m, op.merge)
    batch = _batch(m, op, op.dims)
    if op.order in ("fold_left", "fold_right"):
        state = monoid.chain(batch, right=op.order == "fold_right")
    else:
        try_laws(m, op, op.merge, batch)
        state = _grouped(m, op, monoid, batch)
    for result, parameter, data in zip(op.results, op.merge.left, state, strict=True):
        m.tile(result, spread(data[0], parameter.type.dims, result.type.dims))


def _grouped(m: Machine, op: Fold, monoid: Monoid, batch: Batch) -> Batch:
    parts: list[Batch] = []
    at = 0
    for size in m.cuts.groups(batch[0].shape[0]):
        parts.append(monoid.tree([x[at : at + size] for x in batch]))
        at += size
    if op.order == "unordered":
        parts = m.cuts.shuffled(parts)
    if not parts:
        return monoid.identity()
    return monoid.tree([np.concatenate(leaves) for leaves in zip(*parts, strict=True)])


def _batch(m: Machine, op: Fold | Scan, folded: tuple[Dim, ...]) -> Batch:
    """The sources as states along one leading axis, in coordinate order."""
    merge = op.merge
    assert not isinstance(merge, str)
    extents = [m.range(next(a for v in op.sources for a in v.type.axes if a.dim is d)) for d in folded]
    count = math.prod(hi - lo for lo, hi in extents)
    found: Batch = []
    for source, parameter in zip(op.sources, merge.left, strict=True):
        _, shape = m.shape(parameter)
        data = m.operand(source, (*folded, *parameter.type.dims), op)
        data = np.broadcast_to(data, (*(hi - lo for lo, hi in extents), *shape))
        found.append(data.reshape(count, *shape))
    return found


def scan(m: Machine, op: Scan) -> None:
    """See `Scan`."""
    if isinstance(op.merge, str):
        _builtin_scan(m, op, op.merge)
        return
    monoid = Monoid(m, op.merge)
    batch = _batch(m, op, (op.dim,))
    if op.reverse:
        batch = [x[::-1] for x in batch]
    exact = op.order == "fold_left"
    if not exact:
        try_laws(m, op, op.merge, batch)
    prefixes = monoid.chained_prefixes(batch) if exact else _grouped_prefixes(m, monoid, batch)
    if op.exclusive and prefixes[0].shape[0]:
        prefixes = [np.concatenate([e, x[:-1]]) for e, x in zip(monoid.identity(), prefixes, strict=True)]
    for result, parameter, data in zip(op.results, op.merge.left, prefixes, strict=True):
        data = data[::-1] if op.reverse else data
        m.tile(result, spread(data, (op.dim, *parameter.type.dims), result.type.dims))


def _grouped_prefixes(m: Machine, monoid: Monoid, batch: Batch) -> Batch:
    """Prefixes within groups, each merged with what the groups before it fold to."""
    parts: list[Batch] = []
    at, before = 0, None
    for size in m.cuts.groups(batch[0].shape[0]):
        part = monoid.prefixes([x[at : at + size] for x in batch])
        at += size
        if before is not None:
            part = monoid.combine([np.broadcast_to(x, (size, *x.shape[1:])) for x in before], part)
        before = [x[-1:] for x in part]
        parts.append(part)
    return [np.concatenate(leaves) for leaves in zip(*parts, strict=True)] if parts else batch


def _builtin_scan(m: Machine, op: Scan, monoid: str) -> None:
    (source,) = op.sources
    dtype, dims = source.type.dtype, source.type.dims
    data = np.moveaxis(m.operand(source, dims, op), dims.index(op.dim), 0)
    data = data[::-1] if op.reverse else data
    out = np.empty(data.shape, dtype.numpy)
    if data.shape[0]:
        total = data[0]
        first = 0
        if op.exclusive:
            zero = 0.0 if monoid == "add" and dtype.is_float else MONOIDS[monoid].identity(dtype)
            out[0] = np.asarray(zero).astype(dtype.numpy)
            first, total = 1, np.broadcast_to(out[0], total.shape)
        else:
            out[0] = total
        for i in range(1, data.shape[0]):
            total = scalar.merge(monoid, dtype, total, data[i - first])
            out[i] = total
    out = out[::-1] if op.reverse else out
    m.tile(op.results[0], np.moveaxis(out, 0, dims.index(op.dim)))


# ---- sorting


def sort(m: Machine, op: Sort) -> None:
    """See `Sort`."""
    dims, dtype = op.source.type.dims, op.source.type.dtype
    axis = dims.index(op.dim)
    data = m.operand(op.source, dims, op)
    lo, _ = m.range(op.part)
    order = sorted_order(np.moveaxis(data, axis, -1), dtype, descending=op.descending)
    if op.to is not None:
        start, stop = m.range(op.to)
        order = order[..., : stop - start]
    order = np.moveaxis(order, -1, axis)
    values, coordinates = op.results
    m.tile(values, np.take_along_axis(data, order, axis))
    m.tile(coordinates, order + lo)


def sorted_order(data: Array, dtype: DType, *, descending: bool) -> Array:
    """Places of the elements along the last axis in sorted order: stable, NaN last."""
    keys = as_computable(data, dtype) if dtype.is_float else data
    if not descending:
        return np.argsort(keys, axis=-1, kind="stable")
    if dtype.is_float:
        return np.argsort(-keys, axis=-1, kind="stable")
    # Sorted backwards from the end, equal elements keep their order; no key is negated, which could wrap.
    count = keys.shape[-1]
    return count - 1 - np.argsort(keys[..., ::-1], axis=-1, kind="stable")[..., ::-1]
