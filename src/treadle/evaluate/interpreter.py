"""The reference interpreter: a program on NumPy arrays, straight from the meaning of its operations.

Each instance of a region is run for itself. Blocks of open size are cut by a `Cuts`; a program whose stores depend
on them breaks its promise (`sanitize` compares several). No planner, no machine program: this is the oracle.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.algebra.dims import Dim, Part
from treadle.algebra.expr import Expr
from treadle.base.errors import InternalError, UserError
from treadle.dtype.convert import bitcast, convert
from treadle.evaluate import scalar
from treadle.evaluate.cuts import Cuts, Even
from treadle.evaluate.tiles import Tile, spread
from treadle.evaluate.watch import Silent
from treadle.ir.core import AxisSub, Block, If, Op, Program, Region, RegionArg, Sub, Value
from treadle.ir.ops.access import Extract, Insert, Load, Store
from treadle.ir.ops.debug import Check, Print
from treadle.ir.ops.elementwise import Bitcast, Cast, Coords, Elementwise, Full, Index
from treadle.ir.ops.fold import ArgReduce, Mma, Reduce

Array = NDArray[Any]
Ranges = dict[Dim, tuple[int, int]]


class OutOfRange(UserError):
    """An index outside its tensor or tile, seen in a run."""

    code = "bounds/out-of-range"


class CheckFailed(UserError):
    """A `td.check` that did not hold."""

    code = "check/failed"


class NoMeaning(InternalError):
    """An operation that the interpreter has no rule for."""

    code = "evaluate/no-meaning"


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
    machine = _Machine(program, arrays, extents, cuts or Even(1 << 62), watcher or Silent())
    for parameter in program.scalars:
        number = (scalars or {})[parameter.name]
        data = np.asarray(number).astype(parameter.value.type.dtype.numpy)
        machine.values[parameter.value.name] = Tile(data, (), ())
    machine.block(program.body)
    if machine.failed is not None:
        raise machine.failed


class _Machine:
    """The state of a run: symbols, values, tensors."""

    def __init__(
        self, program: Program, arrays: Mapping[str, Array], extents: Mapping[str, int], cuts: Cuts, watcher: Silent
    ) -> None:
        self.program = program
        self.arrays = arrays
        self.symbols: dict[str, int] = dict(extents)
        self.values: dict[str, Tile] = {}
        self.cuts = cuts
        self.watcher = watcher
        self.failed: CheckFailed | None = None
        for name, expr in program.lets.items():
            self.symbols.setdefault(name, int(expr.evaluate(self.symbols)))

    # ---- expressions and ranges

    def number(self, expr: Expr, env: Mapping[str, Any] | None = None) -> Any:
        """The value of an index expression; elements of integer values are looked up."""
        functions: dict[str, Callable[..., Any]] = {name: self.values[name].element for name in expr.functions}
        return expr.evaluate(self.symbols if env is None else {**self.symbols, **env}, functions)

    def range(self, part: Part) -> tuple[int, int]:
        """The bounds of a part, `hi >= lo`."""
        lo, hi = int(self.number(part.lo)), int(self.number(part.hi))
        return lo, max(lo, hi)

    def shape(self, value: Value) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Where the axes of a value start, and how long they are."""
        ranges = [self.range(axis) for axis in value.type.axes]
        return tuple(lo for lo, _ in ranges), tuple(hi - lo for lo, hi in ranges)

    def tile(self, value: Value, data: Array, known: NDArray[np.bool_] | None = None) -> None:
        """Defines a value; `data` broadcasts to its shape."""
        lo, shape = self.shape(value)
        full = np.ascontiguousarray(np.broadcast_to(data, shape)).reshape(shape)
        full = full if full.dtype == value.type.dtype.numpy else full.astype(value.type.dtype.numpy)
        mask = None if known is None else np.broadcast_to(known, shape).copy()
        self.values[value.name] = Tile(full, value.type.dims, lo, mask)

    def operand(self, value: Value, dims: tuple[Dim, ...], op: Op) -> Array:
        """A value's data along `dims`; reports elements that were never written."""
        tile = self.values[value.name]
        if tile.known is not None and not tile.known.all():
            self.watcher.report("read/uninitialised", f"{value.hint or value} has elements that were never written", op)
        return tile.aligned(dims)

    # ---- control

    def block(self, block: Block) -> None:
        """Runs the operations of a block."""
        for op in block.ops:
            self.watcher.reach(op, self)
            rule = _RULES.get(type(op))
            if rule is None:
                raise NoMeaning(
                    doing=f"evaluating {self.program.name}",
                    found=f"an operation {type(op).__name__} without a meaning",
                    expected="a rule in treadle.evaluate.interpreter",
                    hint="report this program",
                    span=op.span,
                )
            rule(self, op)
        self.watcher.reach(block, self)

    def blocks_of(self, arg: RegionArg) -> list[tuple[int, int]]:
        """The consecutive ranges of an argument of a region, in the order in which it runs."""
        lo, hi = self.range(arg.domain)
        if arg.kind == "each":
            found = [(i, i + 1) for i in range(lo, hi)]
        elif hi == lo:
            found = []
        else:
            fixed = None if arg.size is None else int(self.number(arg.size))
            sizes = self.cuts.sizes(arg.name, hi - lo) if fixed is None else Even(fixed).sizes(arg.name, hi - lo)
            edges = [lo, *itertools.accumulate(sizes, initial=lo)][1:]
            found = list(zip(edges, edges[1:], strict=False))
        return found[::-1] if arg.reversed else found

    def bind(self, args: list[RegionArg], ranges: tuple[tuple[int, int], ...]) -> None:
        """Gives the symbols of an instance their values."""
        for arg, (start, stop) in zip(args, ranges, strict=True):
            if arg.kind == "each":
                self.symbols[arg.name] = start
            else:
                self.symbols[f"{arg.name}.start"] = start
                self.symbols[f"{arg.name}.stop"] = stop

    def region(self, op: Region) -> None:
        instances = list(itertools.product(*(self.blocks_of(a) for a in op.args)))
        if op.kind == "parallel":
            self.parallel(op, self.cuts.shuffled(instances))
            return
        state = [self.values[v.name] for v in op.inits]
        for ranges in instances:
            self.bind(op.args, ranges)
            for value, tile in zip(op.carried, state, strict=True):
                self.values[value.name] = tile
            self.watcher.enter(op, dict(zip((a.name for a in op.args), ranges, strict=True)))
            self.block(op.body)
            state = [self.values[v.name] for v in op.body.yields]
        self.watcher.leave(op)
        for value, tile in zip(op.results, state, strict=True):
            self.values[value.name] = tile

    def parallel(self, op: Region, instances: list[tuple[tuple[int, int], ...]]) -> None:
        """Independent instances; outer tiles are joined from the parts that instances covered."""
        entry = [self.values[v.name] for v in op.inits]
        joined = [Tile(t.data.copy(), t.dims, t.lo, None if t.known is None else t.known.copy()) for t in entry]
        owners = [np.zeros(t.data.shape, np.bool_) for t in entry]
        for ranges in instances:
            self.bind(op.args, ranges)
            for value, tile in zip(op.carried, entry, strict=True):
                blank = np.zeros(tile.data.shape, np.bool_)
                self.values[value.name] = Tile(tile.data, tile.dims, tile.lo, tile.known, blank)
            self.watcher.enter(op, dict(zip((a.name for a in op.args), ranges, strict=True)))
            self.block(op.body)
            for value, tile, owner in zip(op.body.yields, joined, owners, strict=True):
                self.join(op, self.values[value.name], tile, owner)
        self.watcher.leave(op)
        for value, tile, outer in zip(op.results, joined, entry, strict=True):
            # Within an enclosing parallel instance, what this region covered counts as that instance's own part.
            cover = None if outer.covered is None else outer.covered | owners[op.results.index(value)]
            self.values[value.name] = Tile(tile.data, tile.dims, tile.lo, tile.known, cover)

    def join(self, op: Region, mine: Tile, total: Tile, owner: NDArray[np.bool_]) -> None:
        """Adds the part of an instance to an assembled tile."""
        cover = mine.covered
        if cover is None or not cover.any():
            return
        if (owner & cover).any():
            self.watcher.report("parallel/assembled-twice", "two instances assemble the same element of a tile", op)
        owner |= cover
        total.data[cover] = mine.data[cover]
        if total.known is not None:
            total.known[cover] = True if mine.known is None else mine.known[cover]

    # ---- subscripts

    def index(
        self, subs: tuple[AxisSub, ...], dims: tuple[Dim, ...], out: Value | None, ranges: Ranges
    ) -> tuple[Any, ...]:
        """One index array an axis, all broadcasting over the axes of `ranges` (in its order)."""
        order = tuple(ranges)
        return tuple(self.axis_index(sub, dim, order, ranges) for sub, dim in zip(subs, dims, strict=True))

    def axis_index(self, sub: AxisSub, dim: Dim, order: tuple[Dim, ...], ranges: Ranges) -> Any:
        if isinstance(sub, tuple):
            if len(sub) == 1:
                return self.axis_index(sub[0], dim, order, ranges)
            total: Any = 0
            for one, factor in zip(sub, dim.factors, strict=True):
                total = total * int(self.number(factor.extent)) + self.axis_index(one, factor, order, ranges)
            return total
        if sub.index is not None:
            return np.asarray(self.number(sub.index))
        if sub.tile is not None:
            tile = self.values[sub.tile.name]
            return spread(tile.data.astype(np.int64), tile.dims, order)
        part = sub.part
        assert part is not None
        lo, hi = ranges[part.dim]
        return spread(np.arange(lo, hi), (part.dim,), order)

    def sub_ranges(self, subs: tuple[AxisSub, ...]) -> Ranges:
        """The axes that subscripts span, in order, with their ranges."""
        found: Ranges = {}
        for sub in subs:
            for one in sub if isinstance(sub, tuple) else (sub,):
                self.one_range(one, found)
        return found

    def one_range(self, sub: Sub, found: Ranges) -> None:
        if sub.part is not None:
            found.setdefault(sub.part.dim, self.range(sub.part))
        elif sub.tile is not None:
            tile = self.values[sub.tile.name]
            for dim, lo, extent in zip(tile.dims, tile.lo, tile.data.shape, strict=True):
                found.setdefault(dim, (lo, lo + extent))

    def inside(
        self, index: tuple[Any, ...], low: tuple[int, ...], shape: tuple[int, ...], op: Op, what: str, filled: bool
    ) -> NDArray[np.bool_] | None:
        """Which elements an index picks inside `shape`; None when all. Elements outside need a fill."""
        ok: Any = np.bool_(True)
        for i, lo, extent in zip(index, low, shape, strict=True):
            ok = ok & (np.asarray(i) >= lo) & (np.asarray(i) < lo + extent)
        if np.all(ok):
            return None
        if not filled:
            self.outside(index, low, shape, op, what)
        return np.asarray(ok)

    def outside(self, index: tuple[Any, ...], low: tuple[int, ...], shape: tuple[int, ...], op: Op, what: str) -> None:
        """Raises, naming the first index that lies outside."""
        writes = isinstance(op, Store | Insert)
        for axis, (i, lo, extent) in enumerate(zip(index, low, shape, strict=True)):
            bad = np.asarray(i)[(np.asarray(i) < lo) | (np.asarray(i) >= lo + extent)]
            if bad.size:
                raise OutOfRange(
                    doing=f"accessing {what} in {self.program.name}",
                    found=f"index {int(bad.flat[0])} along axis {axis}",
                    expected=f"{lo} <= index < {lo + extent}",
                    hint="make the index stay inside" + ("" if writes else ", or give the access a fill="),
                    span=op.span,
                )


# ---- the rules, one an operation


def _full(m: _Machine, op: Full) -> None:
    dtype = op.result.type.dtype
    if op.number is None:
        blank = np.zeros((), np.bool_)
        poison = np.nan if dtype.has_nan else dtype.finite_max
        m.tile(op.result, np.asarray(poison).astype(dtype.numpy), blank)
    else:
        m.tile(op.result, np.asarray(op.number).astype(dtype.numpy))


def _coords(m: _Machine, op: Coords) -> None:
    lo, hi = m.range(op.part)
    m.tile(op.result, np.arange(lo, hi))


def _index(m: _Machine, op: Index) -> None:
    m.tile(op.result, np.asarray(m.number(op.expr)))


def _elementwise(m: _Machine, op: Elementwise) -> None:
    dims = op.result.type.dims
    arrays = [m.operand(a, dims, op) for a in op.args]
    m.tile(op.result, scalar.apply(op.fn, op.args[-1].type.dtype, *arrays))


def _cast(m: _Machine, op: Cast) -> None:
    data = m.operand(op.source, op.result.type.dims, op)
    m.tile(op.result, convert(data, op.source.type.dtype, op.dtype, op.saturate))


def _bitcast(m: _Machine, op: Bitcast) -> None:
    data = m.operand(op.source, op.result.type.dims, op)
    m.tile(op.result, bitcast(data, op.source.type.dtype, op.dtype))


def _load(m: _Machine, op: Load) -> None:
    array = m.arrays[op.tensor.name]
    ranges = {d: m.range(a) for d, a in zip(op.result.type.dims, op.result.type.axes, strict=True)}
    index = m.index(op.subs, op.tensor.dims, op.result, ranges)
    low = (0,) * array.ndim
    ok = m.inside(index, low, array.shape, op, op.tensor.name, op.fill is not None)
    _gather(m, op, array, index, ok, None)


def _gather(
    m: _Machine,
    op: Load | Extract,
    array: Array,
    index: tuple[Any, ...],
    ok: NDArray[np.bool_] | None,
    known: NDArray[np.bool_] | None,
) -> None:
    if ok is None:
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
    m.tile(op.result, np.where(ok, array[safe], fill))


def _store(m: _Machine, op: Store) -> None:
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


def _no_collision(m: _Machine, op: Store, index: tuple[Array, ...], shape: tuple[int, ...]) -> None:
    if not any(s.tile for axis in op.subs for s in (axis if isinstance(axis, tuple) else (axis,))):
        return
    flat = np.ravel_multi_index(index, shape) if index and index[0].size else np.zeros(0, np.int64)
    if flat.size != np.unique(flat).size:
        m.watcher.report("store/collides", f"a store to {op.tensor.name} writes one element twice", op)


def _atomic(op: Store, array: Array, index: tuple[Array, ...], data: Array) -> Array:
    """One element after the other, in order: colliding writes accumulate."""
    old = np.zeros(data.shape, array.dtype)
    monoid = {"add": "add", "max": "max", "min": "min"}[op.effect]
    for i in range(data.size):
        at = tuple(axis[i] for axis in index)
        old[i] = array[at]
        array[at] = scalar.merge(monoid, op.tensor.dtype, np.asarray(array[at]), np.asarray(data[i]))
    return old


def _extract(m: _Machine, op: Extract) -> None:
    tile = m.values[op.source.name]
    ranges = {d: m.range(a) for d, a in zip(op.result.type.dims, op.result.type.axes, strict=True)}
    index = m.index(op.subs, tile.dims, op.result, ranges)
    ok = m.inside(index, tile.lo, tile.data.shape, op, op.source.hint or op.source.name, op.fill is not None)
    local = tuple(i - lo for i, lo in zip(index, tile.lo, strict=True))
    _gather(m, op, tile.data, local, ok, tile.known)


def _insert(m: _Machine, op: Insert) -> None:
    tile = m.values[op.source.name]
    ranges = m.sub_ranges(op.subs)
    dims = tuple(ranges)
    shape = tuple(hi - lo for lo, hi in ranges.values())
    index = tuple(np.broadcast_to(i, shape) for i in m.index(op.subs, tile.dims, None, ranges))
    m.inside(index, tile.lo, tile.data.shape, op, op.source.hint or op.source.name, False)
    at = tuple(i - lo for i, lo in zip(index, tile.lo, strict=True))
    data = tile.data.copy()
    data[at] = np.broadcast_to(m.operand(op.value, dims, op), shape)
    known, covered = tile.known, tile.covered
    if known is not None:
        known = known.copy()
        known[at] = True
    if covered is not None:
        covered = covered.copy()
        covered[at] = True
    m.values[op.result.name] = Tile(data, tile.dims, tile.lo, known, covered)


def _reduce(m: _Machine, op: Reduce) -> None:
    dims = op.source.type.dims
    array = m.operand(op.source, dims, op)
    axes = tuple(dims.index(d) for d in op.dims)
    exact = op.order in ("fold_left", "fold_right")
    if op.order == "fold_right":
        array = np.flip(array, axes)
    kept = tuple(d for d in dims if d not in op.dims)
    out = scalar.fold(op.monoid, op.result.type.dtype, array, axes, exact=exact, nan=op.nan)
    m.tile(op.result, spread(out, kept, op.result.type.dims))


def _argreduce(m: _Machine, op: ArgReduce) -> None:
    tile = m.values[op.source.name]
    dims = op.source.type.dims
    array = m.operand(op.source, dims, op)
    kept = tuple(d for d in dims if d not in op.dims)
    flat = array.transpose([dims.index(d) for d in (*kept, *op.dims)])
    flat = flat.reshape(*flat.shape[: len(kept)], math.prod(flat.shape[len(kept) :]))
    wide = flat.astype(np.float64) if op.source.type.dtype.is_float else flat
    if op.nan == "ignore" and op.source.type.dtype.is_float:
        wide = np.where(np.isnan(wide), -np.inf if op.monoid == "max" else np.inf, wide)
    best = (np.argmax if op.monoid == "max" else np.argmin)(wide, axis=-1)
    if len(op.dims) == 1:
        best = best + tile.lo[dims.index(op.dims[0])]
    m.tile(op.result, spread(np.asarray(best), kept, op.result.type.dims))


def _mma(m: _Machine, op: Mma) -> None:
    dims = op.result.type.dims
    dtype = op.result.type.dtype
    every = (*dims, *op.contracted)
    letters = {d: i for i, d in enumerate(every)}
    a, b = (m.operand(v, v.type.dims, op) for v in (op.a, op.b))
    wide_a = convert(a, op.a.type.dtype, dtype) if op.a.type.dtype != dtype else a
    wide_b = convert(b, op.b.type.dtype, dtype) if op.b.type.dtype != dtype else b
    acc = m.operand(op.acc, dims, op)
    with np.errstate(all="ignore"):
        product = np.einsum(
            wide_a,
            [letters[d] for d in op.a.type.dims],
            wide_b,
            [letters[d] for d in op.b.type.dims],
            [letters[d] for d in dims if d in (*op.a.type.dims, *op.b.type.dims)],
            optimize=True,
        )
        have = tuple(d for d in dims if d in (*op.a.type.dims, *op.b.type.dims))
        m.tile(op.result, acc + spread(np.asarray(product), have, dims))


def _print(m: _Machine, op: Print) -> None:
    tile = m.values[op.value.name]
    dims = tile.dims
    shown = None if op.where is None else np.broadcast_to(m.operand(op.where, dims, op), tile.data.shape)
    for at in np.ndindex(tile.data.shape):
        if shown is None or shown[at]:
            place = ", ".join(f"{d} = {lo + i}" for d, lo, i in zip(dims, tile.lo, at, strict=True))
            print(f"{op.label}[{place}] = {tile.data[at]}" if place else f"{op.label} = {tile.data[at]}")


def _check(m: _Machine, op: Check) -> None:
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


def _if(m: _Machine, op: If) -> None:
    taken = op.then if bool(m.values[op.cond.name].data) else op.orelse
    m.block(taken)
    for result, value in zip(op.results, taken.yields, strict=True):
        m.values[result.name] = m.values[value.name]


def _region(m: _Machine, op: Region) -> None:
    m.region(op)


_RULES: dict[type[Op], Callable[[_Machine, Any], None]] = {
    Full: _full,
    Coords: _coords,
    Index: _index,
    Elementwise: _elementwise,
    Cast: _cast,
    Bitcast: _bitcast,
    Load: _load,
    Store: _store,
    Extract: _extract,
    Insert: _insert,
    Reduce: _reduce,
    ArgReduce: _argreduce,
    Mma: _mma,
    Print: _print,
    Check: _check,
    If: _if,
    Region: _region,
}
