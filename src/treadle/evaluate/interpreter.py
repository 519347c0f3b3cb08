"""The reference interpreter: a program on NumPy arrays, straight from the meaning of its operations.

Each instance of a region is run for itself. Blocks of open size are cut by a `Cuts`; a program whose stores depend
on them breaks its promise (`sanitize` compares several). No planner, no machine program: this is the oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.algebra.dims import Dim
from treadle.dtype.convert import bitcast, convert
from treadle.evaluate import folds, pointwise, scalar
from treadle.evaluate.cuts import Cuts, Even
from treadle.evaluate.machine import CheckFailed, Machine
from treadle.evaluate.naming import variable_of
from treadle.evaluate.tiles import Tile, spread
from treadle.evaluate.watch import Silent
from treadle.ir.core import If, Op, Program, Region
from treadle.ir.ops.access import Extract, Insert, Load, Store
from treadle.ir.ops.debug import Check, Print
from treadle.ir.ops.elementwise import Bitcast, Cast, Coords, Elementwise, Full, Index
from treadle.ir.ops.fold import ArgReduce, Fold, Mma, Reduce, Scan, Sort
from treadle.ir.ops.intrinsic import Intrinsic

Array = NDArray[Any]


def evaluate(
    program: Program,
    arrays: Mapping[str, Array],
    scalars: Mapping[str, int | float | bool] | None = None,
    *,
    extents: Mapping[str, int],
    cuts: Cuts | None = None,
    watcher: Silent | None = None,
) -> None:
    """Runs `program`; outputs are written into `arrays` in place.

    `arrays` has an array for each tensor that was passed, of its NumPy dtype; `extents` gives every dimension symbol.
    *Errors*: `bounds/out-of-range` for an index that a fill does not cover, `check/failed`.
    """
    machine = Machine(program, arrays, extents, cuts or Even(1 << 62), watcher or Silent(), _RULES)
    for parameter in program.scalars:
        number = (scalars or {})[parameter.name]
        data = np.asarray(number).astype(parameter.value.type.dtype.numpy)
        machine.values[parameter.value.name] = Tile(data, (), ())
    machine.block(program.body)
    if machine.failed is not None:
        raise machine.failed


# ---- the rules, one an operation


def _full(m: Machine, op: Full) -> None:
    dtype = op.result.type.dtype
    if op.number is None:
        blank = np.zeros((), np.bool_)
        poison = np.nan if dtype.has_nan else dtype.finite_max
        m.tile(op.result, np.asarray(poison).astype(dtype.numpy), blank)
    else:
        m.tile(op.result, np.asarray(op.number).astype(dtype.numpy))


def _coords(m: Machine, op: Coords) -> None:
    lo, hi = m.range(op.part)
    m.tile(op.result, np.arange(lo, hi))


def _index(m: Machine, op: Index) -> None:
    m.tile(op.result, np.asarray(m.number(op.expr)))


def _elementwise(m: Machine, op: Elementwise) -> None:
    dims = op.result.type.dims
    arrays = [m.values[a.name].aligned(dims) for a in op.args]
    m.tile(op.result, pointwise.apply(op, arrays), _known_elements(m, op, dims))


def _known_elements(m: Machine, op: Elementwise, dims: tuple[Dim, ...]) -> NDArray[np.bool_] | None:
    """Which elements of the result have a value: those whose operands have (of a selection, the selected one)."""
    tiles = [m.values[a.name] for a in op.args]
    if all(t.known is None for t in tiles):
        return None
    known = [np.bool_(True) if t.known is None else spread(t.known, t.dims, dims) for t in tiles]
    if op.fn == "where":
        return known[0] & np.where(tiles[0].aligned(dims), known[1], known[2])
    found = known[0]
    for one in known[1:]:
        found = found & one
    return np.asarray(found)


def _same_known(m: Machine, op: Cast | Bitcast) -> NDArray[np.bool_] | None:
    tile = m.values[op.source.name]
    return None if tile.known is None else spread(tile.known, tile.dims, op.result.type.dims)


def _cast(m: Machine, op: Cast) -> None:
    data = m.values[op.source.name].aligned(op.result.type.dims)
    m.tile(op.result, convert(data, op.source.type.dtype, op.dtype, op.saturate), _same_known(m, op))


def _bitcast(m: Machine, op: Bitcast) -> None:
    data = m.values[op.source.name].aligned(op.result.type.dims)
    m.tile(op.result, bitcast(data, op.source.type.dtype, op.dtype), _same_known(m, op))


def _load(m: Machine, op: Load) -> None:
    array = m.arrays[op.tensor.name]
    ranges = {d: m.range(a) for d, a in zip(op.result.type.dims, op.result.type.axes, strict=True)}
    low = (0,) * array.ndim
    box = None if m.watcher.sees(op.tensor) else m.box(op.subs, ranges, low, array.shape)
    if box is not None:
        m.copied(op.result, array[box[0]], box[1], tuple(lo for lo, _ in ranges.values()))
        return
    index = m.index(op.subs, op.tensor.dims, op.result, ranges)
    ok = m.inside(index, low, array.shape, op, op.tensor.name, op.fill is not None)
    _gather(m, op, array, index, ok, None)


def _gather(
    m: Machine,
    op: Load | Extract,
    array: Array,
    index: tuple[Any, ...],
    ok: NDArray[np.bool_] | None,
    known: NDArray[np.bool_] | None,
) -> None:
    if ok is None:
        # Together: an access of no element may well name a scalar index that lies outside.
        index = tuple(np.broadcast_arrays(*index))
        if isinstance(op, Load):
            m.watcher.read(op.tensor, index, op)
        m.tile(op.result, array[index], None if known is None else known[index])
        return
    assert op.fill is not None
    safe = tuple(np.where(ok, i, 0) for i in index)
    fill = m.values[op.fill.name].data
    if isinstance(op, Load):
        m.watcher.read(op.tensor, tuple(np.broadcast_to(i, ok.shape)[ok] for i in safe), op)
    if array.size == 0:
        m.tile(op.result, np.broadcast_to(fill, ok.shape))
        return
    mask = None if known is None else np.where(ok, known[safe], True)
    m.tile(op.result, np.where(ok, array[safe], fill), mask)


def _store(m: Machine, op: Store) -> None:
    array = m.arrays[op.tensor.name]
    ranges = m.sub_ranges(op.subs)
    dims = tuple(ranges)
    shape = tuple(hi - lo for lo, hi in ranges.values())
    index = tuple(np.broadcast_to(i, shape) for i in m.index(op.subs, op.tensor.dims, None, ranges))
    data = np.broadcast_to(m.operand(op.value, dims, op), shape)
    active = np.ones(shape, np.bool_)
    if op.where is not None:
        active = active & m.operand(op.where, dims, op)
    picked = tuple(i[active] for i in index)
    m.inside(picked, (0,) * array.ndim, array.shape, op, op.tensor.name, False)
    m.watcher.write(op.tensor, picked, op, op.effect != "set")
    if array.ndim == 0:
        # One element, and no index to pick it by: as an array of one.
        array, picked = array.reshape(1), (np.zeros(int(active.sum()), np.int64),)
    if op.effect == "set":
        _no_collision(m, op, picked, array.shape)
        array[picked] = data[active]
        return
    old = _atomic(op, array, picked, data[active])
    if op.results:
        result = np.zeros(shape, array.dtype)
        result[active] = old
        m.tile(op.result, spread(result, dims, op.result.type.dims))


def _no_collision(m: Machine, op: Store | Insert, index: tuple[Array, ...], shape: tuple[int, ...]) -> None:
    if not any(s.tile for axis in op.subs for s in (axis if isinstance(axis, tuple) else (axis,))):
        return
    flat = np.ravel_multi_index(index, shape).ravel() if index and index[0].size else np.zeros(0, np.int64)
    every, counts = np.unique(flat, return_counts=True)
    if flat.size != every.size:
        places: tuple[Any, ...] = np.unravel_index(int(every[counts > 1][0]), shape)
        at = ", ".join(str(int(i)) for i in places)
        what = op.tensor.name if isinstance(op, Store) else variable_of(m.program, op.source)
        kind = "a store to" if isinstance(op, Store) else "an assignment to a part of"
        m.watcher.report("store/collides", f"{kind} {what} writes one element twice: {what}[{at}]", op)


def _atomic(op: Store, array: Array, index: tuple[Array, ...], data: Array) -> Array:
    """One element after the other, in order: colliding writes accumulate."""
    old = np.zeros(data.shape, array.dtype)
    monoid = {"add": "add", "max": "max", "min": "min"}[op.effect]
    for i in range(data.size):
        at = tuple(axis[i] for axis in index)
        old[i] = array[at]
        array[at] = scalar.merge(monoid, op.tensor.dtype, np.asarray(array[at]), np.asarray(data[i]))
    return old


def _extract(m: Machine, op: Extract) -> None:
    tile = m.values[op.source.name]
    ranges = {d: m.range(a) for d, a in zip(op.result.type.dims, op.result.type.axes, strict=True)}
    box = None if tile.known is not None else m.box(op.subs, ranges, tile.lo, tile.data.shape)
    if box is not None:
        m.copied(op.result, tile.data[box[0]], box[1], tuple(lo for lo, _ in ranges.values()))
        return
    index = m.index(op.subs, tile.dims, op.result, ranges)
    ok = m.inside(index, tile.lo, tile.data.shape, op, op.source, op.fill is not None)
    local = tuple(i - lo for i, lo in zip(index, tile.lo, strict=True))
    _gather(m, op, tile.data, local, ok, tile.known)


def _insert(m: Machine, op: Insert) -> None:
    tile = m.values[op.source.name]
    ranges = m.sub_ranges(op.subs)
    dims = tuple(ranges)
    shape = tuple(hi - lo for lo, hi in ranges.values())
    index = tuple(np.broadcast_to(i, shape) for i in m.index(op.subs, tile.dims, None, ranges))
    m.inside(index, tile.lo, tile.data.shape, op, op.source, False)
    at = tuple(i - lo for i, lo in zip(index, tile.lo, strict=True))
    _no_collision(m, op, at, tile.data.shape)
    data = tile.data.copy()
    data[at] = np.broadcast_to(m.values[op.value.name].aligned(dims), shape)
    known, covered = tile.known, tile.covered
    new = m.values[op.value.name].known
    if known is not None or new is not None:
        known = np.ones(tile.data.shape, np.bool_) if known is None else known.copy()
        known[at] = True if new is None else np.broadcast_to(spread(new, op.value.type.dims, dims), shape)
    if covered is not None:
        covered = covered.copy()
        covered[at] = m.mark(op)
    m.values[op.result.name] = Tile(data, tile.dims, tile.lo, known, covered)


def _print(m: Machine, op: Print) -> None:
    if not m.watcher.prints:
        return
    tile = m.values[op.value.name]
    dims = tile.dims
    shown = None if op.where is None else np.broadcast_to(m.operand(op.where, dims, op), tile.data.shape)
    for at in np.ndindex(tile.data.shape):
        if shown is None or shown[at]:
            place = ", ".join(f"{d} = {lo + i}" for d, lo, i in zip(dims, tile.lo, at, strict=True))
            print(f"{op.label}[{place}] = {tile.data[at]}" if place else f"{op.label} = {tile.data[at]}")


def _check(m: Machine, op: Check) -> None:
    tile = m.values[op.cond.name]
    if tile.data.all() or m.failed is not None:
        return
    at = np.argwhere(~tile.data)[0] if tile.data.ndim else ()
    place = ", ".join(f"{d} = {lo + int(i)}" for d, lo, i in zip(tile.dims, tile.lo, at, strict=True))
    m.failed = CheckFailed(
        doing=f"running {m.program.name}",
        found=f"td.check failed{' at ' + place if place else ''}: {op.message}",
        expected="the condition to hold",
        hint="look at the values that enter the condition, for instance with td.print",
        span=op.span,
    )


def _if(m: Machine, op: If) -> None:
    taken = op.then if bool(m.values[op.cond.name].data) else op.orelse
    m.block(taken)
    for result, value in zip(op.results, taken.yields, strict=True):
        m.values[result.name] = m.values[value.name]


def _region(m: Machine, op: Region) -> None:
    m.region(op)


_RULES: dict[type[Op], Callable[[Machine, Any], None]] = {
    Full: _full,
    Coords: _coords,
    Index: _index,
    Elementwise: _elementwise,
    Intrinsic: _elementwise,
    Cast: _cast,
    Bitcast: _bitcast,
    Load: _load,
    Store: _store,
    Extract: _extract,
    Insert: _insert,
    Reduce: folds.reduce,
    ArgReduce: folds.argreduce,
    Fold: folds.fold,
    Scan: folds.scan,
    Sort: folds.sort,
    Mma: folds.mma,
    Print: _print,
    Check: _check,
    If: _if,
    Region: _region,
}
