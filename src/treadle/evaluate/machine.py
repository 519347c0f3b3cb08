"""The state of a run: symbols, values, tensors; regions and their instances; subscripts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.algebra.dims import Dim, Part
from treadle.algebra.expr import DivisionByZero, Expr
from treadle.base.errors import InternalError, UserError
from treadle.evaluate import regroup
from treadle.evaluate.cuts import Cuts, Even
from treadle.evaluate.naming import unwritten_variable, variable_of
from treadle.evaluate.tiles import Tile, spread
from treadle.evaluate.watch import Silent, instance_text
from treadle.ir.core import AxisSub, Block, Op, Program, Region, RegionArg, Sub, Value
from treadle.ir.infer import flat_subs
from treadle.ir.ops.access import Insert, Store

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


@dataclass
class Owners:
    """For each element of an assembled tile, which instance covered it, and by which operation (0: none)."""

    instances: NDArray[np.int64]
    ops: NDArray[np.int64]


Rules = Mapping[type[Op], Callable[["Machine", Any], None]]


class Machine:
    """The state of a run: symbols, values, tensors."""

    def __init__(
        self,
        program: Program,
        arrays: Mapping[str, Array],
        extents: Mapping[str, int],
        cuts: Cuts,
        watcher: Silent,
        rules: Rules,
    ) -> None:
        self.program = program
        self.rules = rules
        self.arrays = arrays
        self.symbols: dict[str, int] = dict(extents)
        self.values: dict[str, Tile] = {}
        self.cuts = cuts
        self.watcher = watcher
        self.failed: CheckFailed | None = None
        self.ops: list[Op] = []
        self.numbers: dict[int, int] = {}
        self.tried: dict[int, int] = {}
        """How often the laws of a merge, by its id, were put to the test."""
        for name, expr in program.lets.items():
            self.symbols.setdefault(name, int(expr.evaluate(self.symbols)))

    # ---- expressions and ranges

    def number(self, expr: Expr, env: Mapping[str, Any] | None = None) -> Any:
        """The value of an index expression; elements of integer values are looked up."""
        functions: dict[str, Callable[..., Any]] = {name: self.values[name].element for name in expr.functions}
        return expr.evaluate(self.symbols if env is None else {**self.symbols, **env}, functions)

    def range(self, part: Part) -> tuple[int, int]:
        """The bounds of a part, `hi >= lo`."""
        lo, hi = self.integer(part.lo), self.integer(part.hi)
        return lo, max(lo, hi)

    def integer(self, expr: Expr) -> int:
        """The value of an index expression that is one number."""
        return int(self.number(expr)) if expr.functions else expr.integer(self.symbols)

    def shape(self, value: Value) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Where the axes of a value start, and how long they are."""
        ranges = [self.range(axis) for axis in value.type.axes]
        return tuple(lo for lo, _ in ranges), tuple(hi - lo for lo, hi in ranges)

    def tile(self, value: Value, data: Array, known: NDArray[np.bool_] | None = None) -> None:
        """Defines a value; `data` broadcasts to its shape."""
        lo, shape = self.shape(value)
        full = data if data.shape == shape else np.broadcast_to(data, shape)
        full = np.ascontiguousarray(full).reshape(shape)
        full = full if full.dtype == value.type.dtype.numpy else full.astype(value.type.dtype.numpy)
        mask = None if known is None else np.broadcast_to(known, shape).copy()
        self.values[value.name] = Tile(full, value.type.dims, lo, mask)

    def copied(self, value: Value, part: Array, have: tuple[Dim, ...], lo: tuple[int, ...]) -> None:
        """Defines a value as a copy of a part with axes along `have`, which are its own in some order."""
        data = np.array(spread(part, have, value.type.dims), value.type.dtype.numpy, order="C")
        self.values[value.name] = Tile(data, value.type.dims, lo)

    def operand(self, value: Value, dims: tuple[Dim, ...], op: Op) -> Array:
        """A value's data along `dims`; reports elements that were never written."""
        tile = self.values[value.name]
        if tile.known is not None and not tile.known.all():
            self.watcher.report(
                "read/uninitialised", f"{unwritten_variable(self, value)} has elements that were never written", op
            )
        return tile.aligned(dims)

    # ---- control

    def block(self, block: Block) -> None:
        """Runs the operations of a block. *Errors*: those of the rules; `bounds/division`, at the operation."""
        for op in block.ops:
            self.watcher.reach(op, self)
            rule = self.rules.get(type(op))
            if rule is None:
                raise NoMeaning(
                    doing=f"evaluating {self.program.name}",
                    found=f"an operation {type(op).__name__} without a meaning",
                    expected="a rule in treadle.evaluate.interpreter",
                    hint="report this program",
                    span=op.span,
                )
            try:
                rule(self, op)
            except DivisionByZero as error:
                if error.span is None:  # of the innermost operation
                    error.span, error.doing = op.span, f"running {self.program.name}"
                raise
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
        if op.kind == "reduce" and op.order == "fold_right":
            instances.reverse()
        state = [self.values[v.name] for v in op.inits]
        parts: list[list[Tile]] = []
        for number, group in enumerate(regroup.groups(self, op, instances)):
            # A group after the first starts from nothing; what it found is merged with what came before.
            start = state if number == 0 else regroup.identities(self, op)
            found = self.chain(op, group, start)
            state = found if number == 0 else regroup.merged(self, op, state, found)
            parts.append(found)
        if len(parts) > 1:
            regroup.try_laws(self, op, parts)
        self.watcher.leave(op)
        for value, tile in zip(op.results, state, strict=True):
            self.values[value.name] = tile

    def chain(self, op: Region, instances: list[tuple[tuple[int, int], ...]], state: list[Tile]) -> list[Tile]:
        """Instances one after another; what is carried after the last."""
        for ranges in instances:
            self.bind(op.args, ranges)
            for value, tile in zip(op.carried, state, strict=True):
                self.values[value.name] = tile
            self.watcher.enter(op, dict(zip((a.name for a in op.args), ranges, strict=True)))
            self.block(op.body)
            state = [self.values[v.name] for v in op.body.yields]
        return state

    def parallel(self, op: Region, instances: list[tuple[tuple[int, int], ...]]) -> None:
        """Independent instances; outer tiles are joined from the parts that instances covered."""
        entry = [self.values[v.name] for v in op.inits]
        joined = [Tile(t.data.copy(), t.dims, t.lo, None if t.known is None else t.known.copy()) for t in entry]
        owners = [Owners(np.zeros(t.data.shape, np.int64), np.zeros(t.data.shape, np.int64)) for t in entry]
        names = [""]
        for ranges in instances:
            self.bind(op.args, ranges)
            for value, tile in zip(op.carried, entry, strict=True):
                blank = np.zeros(tile.data.shape, np.int64)
                self.values[value.name] = Tile(tile.data, tile.dims, tile.lo, tile.known, blank)
            instance = dict(zip((a.name for a in op.args), ranges, strict=True))
            names.append(instance_text(instance))
            self.watcher.enter(op, instance)
            self.block(op.body)
            for value, tile, owner in zip(op.body.yields, joined, owners, strict=True):
                self.join(value, tile, owner, names)
        self.watcher.leave(op)
        for value, tile, outer, owner in zip(op.results, joined, entry, owners, strict=True):
            # Within an enclosing parallel instance, what this region covered counts as that instance's own part.
            cover = None if outer.covered is None else np.where(owner.ops > 0, owner.ops, outer.covered)
            self.values[value.name] = Tile(tile.data, tile.dims, tile.lo, tile.known, cover)

    def join(self, value: Value, total: Tile, owner: Owners, names: list[str]) -> None:
        """Adds the part of the latest instance to an assembled tile."""
        mine = self.values[value.name]
        if mine.covered is None or not mine.covered.any():
            return
        cover = mine.covered > 0
        if (owner.instances[cover] > 0).any():
            at = tuple(int(i) for i in np.argwhere(cover & (owner.instances > 0))[0])
            both = (names[-1], names[int(owner.instances[at])])
            element = ", ".join(str(lo + i) for lo, i in zip(total.lo, at, strict=True))
            whole = variable_of(self.program, value)
            message = f"the instances {both[0]} and {both[1]} assemble one element: {whole}[{element}]"
            ops = self.ops[int(mine.covered[at]) - 1], self.ops[int(owner.ops[at]) - 1]
            self.watcher.report("parallel/assembled-twice", message, ops[0], ops[1], both)
        owner.instances[cover] = len(names) - 1
        owner.ops[cover] = mine.covered[cover]
        total.data[cover] = mine.data[cover]
        if total.known is not None:
            total.known[cover] = True if mine.known is None else mine.known[cover]

    def mark(self, op: Op) -> int:
        """The number of an operation, from 1: what `covered` says of the elements that it inserted."""
        if not self.ops:
            self.ops = list(self.program.body.walk())
            self.numbers = {id(o): i + 1 for i, o in enumerate(self.ops)}
        return self.numbers[id(op)]

    # ---- subscripts

    def index(
        self, subs: tuple[AxisSub, ...], dims: tuple[Dim, ...], out: Value | None, ranges: Ranges
    ) -> tuple[Any, ...]:
        """One index array an axis, all broadcasting over the axes of `ranges` (in its order)."""
        order = tuple(ranges)
        return tuple(self.axis_index(sub, dim, order, ranges) for sub, dim in zip(subs, dims, strict=True))

    def box(
        self, subs: tuple[AxisSub, ...], ranges: Ranges, low: tuple[int, ...], shape: tuple[int, ...]
    ) -> tuple[tuple[Any, ...], tuple[Dim, ...]] | None:
        """What subscripts pick as numbers and slices, from 0, and the dimensions of the slices in order.

        None where it is no box (tiles, products of dimensions, one dimension twice), has no element, or is not inside.
        *Ensures*: `array[key]` has the elements that `array[index(...)]` has, less `low`.
        """
        key: list[Any] = []
        dims: list[Dim] = []
        for sub, start, extent in zip(subs, low, shape, strict=True):
            if isinstance(sub, tuple) or sub.tile is not None:
                return None
            if sub.part is None:
                assert sub.index is not None
                lo = self.integer(sub.index) - start if not sub.index.functions else -1
                hi = lo + 1
                key.append(lo)
            else:
                if sub.part.dim in dims:
                    return None
                dims.append(sub.part.dim)
                lo, hi = ranges[sub.part.dim]
                lo, hi = lo - start, hi - start
                key.append(slice(lo, hi))
            if not 0 <= lo < hi <= extent:
                return None
        return (tuple(key), tuple(dims)) if len(dims) == len(ranges) else None

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
        self,
        index: tuple[Any, ...],
        low: tuple[int, ...],
        shape: tuple[int, ...],
        op: Op,
        what: str | Value,
        filled: bool,
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

    def outside(
        self, index: tuple[Any, ...], low: tuple[int, ...], shape: tuple[int, ...], op: Op, what: str | Value
    ) -> None:
        """Raises, naming the first index that lies outside."""
        what = what if isinstance(what, str) else variable_of(self.program, what)
        writes = isinstance(op, Store | Insert)
        promised = any(s.promised for s in flat_subs(getattr(op, "subs", ())))
        promise = ", promised by td.in_range" if promised else ""
        for axis, (i, lo, extent) in enumerate(zip(index, low, shape, strict=True)):
            bad = np.asarray(i)[(np.asarray(i) < lo) | (np.asarray(i) >= lo + extent)]
            if bad.size:
                raise OutOfRange(
                    doing=f"accessing {what} in {self.program.name}",
                    found=f"index {int(bad.flat[0])} along axis {axis}{promise}",
                    expected=f"{lo} <= index < {lo + extent}",
                    hint="make the index stay inside" + ("" if writes else ", or give the access a fill="),
                    span=op.span,
                )
