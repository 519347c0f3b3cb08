"""One thread of execution (a CPU task, or a warp of a role's agent) and what each kind of statement does in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.algebra.expr import Constraint, Expr
from treadle.dtype.convert import bitcast, convert
from treadle.dtype.formats import DType, bool_
from treadle.evaluate.pointwise import computed
from treadle.ir.ops.elementwise import ELEMENTWISE
from treadle.machine.form import (
    Advance,
    Compute,
    Fold,
    FragRef,
    Let,
    Load,
    MemRef,
    Operand,
    Role,
    Scan,
    Stmt,
    Store,
)
from treadle.simulate import arithmetic
from treadle.simulate.atomics import update
from treadle.simulate.barriers import Groups
from treadle.simulate.clocks import Strand
from treadle.simulate.expression import evaluate, holds
from treadle.simulate.findings import Stop
from treadle.simulate.fragments import Fragment, digits, fresh, order, tiled
from treadle.simulate.memory import DEFINED, GENERIC, NEVER, UNDEFINED, View, distinct
from treadle.simulate.tape import Mark
from treadle.simulate.world import Workgroup, World

Array = NDArray[Any]
Index = tuple[Array, ...]


class Thread:
    """Executes statements. `warps` of the agent, of which this is number `warp`; `lanes` threads in it."""

    def __init__(
        self, world: World, group: Workgroup, role: Role, agent: int, warp: int, strand: Strand, env: dict[str, Any]
    ) -> None:
        self.world = world
        self.group = group
        self.role = role
        self.agent = agent
        self.warp = warp
        self.warps = max(1, -(-role.threads // 32))
        self.lanes = min(32, role.threads)
        self.strand = strand
        self.env = env
        self.line = 0
        self.by = ""
        self.apart = False  # in a task of its own, beside those of the other threads of the agent
        self.phase: int | None = None  # of the cluster's barrier, arrived at and not waited for
        self.target: list[Workgroup] = [group]  # whose barrier the last arrival was at
        self.fragments: dict[str, Fragment] = {}
        self.local: dict[str, View] = {}
        self.bulk, self.cpasync, self.wgmma = Groups(), Groups(), Groups()
        self.touched: set[str] = {f.name for f in world.kernel.frags}
        self.configured = False
        self.functions: dict[str, Callable[..., Any]] = dict(world.functions)
        for frag in world.kernel.frags:
            if frag.dtype.is_int or frag.dtype.is_bool:
                self.functions[frag.name] = self._element(frag.name)

    # ---- names

    def fragment(self, name: str) -> Fragment:
        """The state of a fragment, made on first use."""
        known = self.fragments.get(name)
        if known is None:
            declared = self.world.frags.get(name)
            if declared is None:
                raise self.fatal("form", f"no fragment {name}")
            warps, warp = (1, 0) if self.apart else (self.warps, self.warp)
            known = self.fragments[name] = fresh(declared, warps, warp)
        return known

    def dtype(self, name: str) -> DType:
        """The dtype of a fragment or scalar argument."""
        if name in self.world.scalars:
            return self.world.views[self.world.scalars[name]].dtype
        return self.fragment(name).frag.dtype

    def memory(self, name: str, group: Workgroup | None = None) -> View:
        """The memory of a name: local, shared (of another `group`), workspace, a tensor or a scalar argument."""
        if name in self.world.local_names:
            if not self.local:
                self.local = self.world.local.fresh("local memory", tracked=False, findings=self.world.findings)
            return self.local[name]
        view = (group or self.group).views.get(name) or self.world.views.get(name)
        if view is None:
            raise self.fatal("form", f"no tensor or buffer {name}")
        return view

    def reach(self, ref: MemRef) -> list[Workgroup]:
        """The workgroups whose memory a reference means. Reports those that may not have begun, or have ended."""
        groups = self.group.cluster.groups
        if ref.rank is None:
            return [self.group]
        if isinstance(ref.rank, str):
            found = groups
        else:
            number = self.number(ref.rank)
            if not 0 <= number < len(groups):
                raise self.fatal("bounds", f"workgroup {number} of a cluster of {len(groups)}")
            found = groups[number : number + 1]
        return [self.reached(group) for group in found]

    def reached(self, group: Workgroup, *, noted: bool = True) -> Workgroup:
        """The thread touches another workgroup's memory (`noted`: itself, not through an engine, whose end is seen
        otherwise). Fatal where that has ended."""
        if group is self.group:
            return group
        if group.running == 0:
            raise self.fatal("protocol", f"workgroup {group.number} has ended: its memory is no more")
        if not any(self.strand.order.seen.at(number) >= count for number, count in group.born):
            self.report("race", f"nothing says that workgroup {group.number} has begun")
        if noted:
            group.reached.append((self.strand.number, self.strand.now, self.line))
        return group

    def fatal(self, code: str, message: str) -> Stop:
        return self.world.findings.fatal(code, self.line, message)

    def report(self, code: str, message: str) -> None:
        self.world.findings.add(code, self.line, message)

    def mark(self, what: Mark) -> None:
        """Tells the log, where there is one, how far the thread is."""
        if self.strand.log is not None:
            self.strand.log.add(what)

    # ---- expressions

    def value(self, expr: Expr) -> Any:
        """The value of an index expression here."""
        try:
            return evaluate(expr, self.env, self.functions)
        except KeyError as missing:
            raise self.fatal("form", f"the expression {expr} mentions {missing}, which has no value here") from None
        except ZeroDivisionError:
            raise self.fatal("form", f"the expression {expr} divides by zero") from None

    def number(self, expr: Expr) -> int:
        """The value of a uniform index expression."""
        value = np.asarray(self.value(expr))
        if value.size != 1:
            raise self.fatal("form", f"the expression {expr} has several values here")
        return int(value.reshape(-1)[0])

    def test(self, fact: Constraint) -> Any:
        try:
            return holds(fact, self.env, self.functions)
        except KeyError as missing:
            raise self.fatal("form", f"the condition {fact} mentions {missing}, which has no value here") from None
        except ZeroDivisionError:
            raise self.fatal("form", f"the condition {fact} divides by zero") from None

    def bind(self, coords: Index, chosen: Array | None = None) -> None:
        """Gives `$0, $1, ...` their values."""
        for i, c in enumerate(coords):
            self.env[f"${i}"] = c if chosen is None else c[chosen]

    def select(self, coords: Index, count: int, where: tuple[Constraint, ...]) -> Array:
        """The positions at which all of `where` holds, each condition asked only where those before it hold."""
        chosen = np.arange(count)
        self.bind(coords)
        for fact in where:
            truth = np.asarray(self.test(fact))
            chosen = chosen[np.broadcast_to(truth, chosen.shape)]
            self.bind(coords, chosen)
        return chosen

    def index(self, exprs: tuple[Expr, ...], count: int) -> Index:
        """Index arrays of `count` elements for the bound coordinates."""
        return tuple(np.broadcast_to(np.asarray(self.value(e), np.int64), (count,)) for e in exprs)

    def place(self, ref: MemRef, count: int) -> tuple[View, Index]:
        """The view of a memory reference and its index arrays, the ring slot first."""
        view = self.memory(ref.name, None if ref.rank is None else self.reach(ref)[0])
        index = self.index(ref.index, count)
        if ref.version is not None:
            ring = view.shape[0] if len(view.shape) == len(ref.index) + 1 else 0
            if not ring:
                raise self.fatal("form", f"{ref.name} is no ring and is given a version")
            slot = np.broadcast_to(np.asarray(self.value(ref.version), np.int64) % ring, (count,))
            index = (slot, *index)
        return view, index

    # ---- fragments

    def _element(self, name: str) -> Callable[..., Any]:
        def element(*coords: Any) -> Any:
            shape = np.broadcast_shapes(*(np.shape(c) for c in coords)) if coords else ()
            index = tuple(np.broadcast_to(np.asarray(c), shape).reshape(-1) for c in coords)
            values, states = self.gather(name, index, int(np.prod(shape)))
            if (states != DEFINED).any():
                self.report("undefined", f"an index uses an element of {name} that holds no value")
            wide = values.astype(np.int64)
            return wide.reshape(shape) if shape else int(wide[0])

        return element

    def settle(self, held: Fragment) -> None:
        """The fragment's values are being used: what it was loaded from has arrived."""
        for view, index in held.pending:
            at = distinct(view.granules(index), len(view.arena.state))
            view.arena.readers.arrive(at, self.strand)
            view.arena.tell(self.strand, "arrive", at, self.line, GENERIC)
        held.pending.clear()

    def _grain(self, name: str, held: Fragment, *, reading: bool) -> None:
        """One lane or one thread holds only its own slots: what it writes alone is not what the others hold."""
        apart = {"warp": ("lane",), "elect": ("lane", "warp")}.get(self.by, ())
        if any(m.who in apart and m.axis is not None and m.size > 1 for m in held.frag.dist):
            self.report("not-held", f"one thread alone uses {name}, whose slots are spread over threads")
        if not reading:
            held.grain = self.by
        elif held.grain and self.by != "elect" and self.by != held.grain:
            self.report("not-held", f"{name} was written by one thread alone and is read by others")

    def gather(self, name: str, index: Index, count: int) -> tuple[Array, Array]:
        """Values and states of fragment elements. Reports what is not held, in flight or never written."""
        if name in self.world.scalars:
            view = self.world.views[self.world.scalars[name]]
            return np.broadcast_to(view.array, (count,)), np.full(count, DEFINED, np.uint8)
        held = self.fragment(name)
        shape = held.frag.shape
        if len(index) != len(shape):
            raise self.fatal("form", f"fragment {name} has {len(shape)} axes and is indexed by {len(index)}")
        for axis, (values, extent) in enumerate(zip(index, shape)):
            if values.size and (int(values.min()) < 0 or int(values.max()) >= extent):
                raise self.fatal("bounds", f"fragment {name} axis {axis}: index outside [0, {extent})")
        if held.flying:
            self.report("in-flight", f"{name} is read while an asynchronous operation uses it")
        self._grain(name, held, reading=True)
        self.settle(held)
        self.touched.add(name)
        if not shape:
            return np.broadcast_to(held.values, (count,)), np.broadcast_to(held.states, (count,))
        if not held.all_held and not held.mask[index].all():
            self.report("not-held", f"a slot of {name} is read that warp {self.warp} does not hold")
        values, states = held.values[index], held.states[index]
        if (states == NEVER).any():
            self.report("unwritten", f"a slot of {name} is read that was never written")
        return values, states

    def assign(self, name: str, chosen: Array | None, values: Array, states: Array | int) -> None:
        """Writes the slots that this warp holds (`chosen` of them)."""
        held = self.fragment(name)
        if held.flying:
            self.report("in-flight", f"{name} is written while an asynchronous operation uses it")
        self.touched.add(name)
        self._grain(name, held, reading=False)
        if not held.frag.shape:
            if chosen is None or len(chosen):
                held.values[...] = np.asarray(values).reshape(-1)[0]
                held.states[...] = np.asarray(states).reshape(-1)[0]
            return
        at = held.coords if chosen is None else tuple(c[chosen] for c in held.coords)
        held.values[at] = values
        held.states[at] = states

    def operand(self, ref: FragRef, same: tuple[int, ...], coords: Index, count: int) -> tuple[Array, Array]:
        """A fragment operand at the bound coordinates; without coordinates the same slot, or the scalar."""
        if ref.coords is not None:
            return self.gather(ref.name, self.index(ref.coords, count), count)
        shape = () if ref.name in self.world.scalars else self.fragment(ref.name).frag.shape
        if shape == ():
            return self.gather(ref.name, (), count)
        if shape != same:
            raise self.fatal("form", f"{ref.name} has shape {shape} where {same} is needed")
        return self.gather(ref.name, coords, count)

    # ---- statements that only this thread sees through

    def execute(self, item: Stmt) -> None:
        """A statement that never waits."""
        match item:
            case Load():
                self._load(item)
            case Store():
                self._store(item)
            case Compute():
                self._compute(item)
            case Scan():
                self._scan(item)
            case Fold():
                self._fold(item)
            case Let():
                self.env[item.name] = self.number(item.expr)
            case Advance():
                self.env[item.counter] = self.env[item.counter] + 1
            case _:
                raise AssertionError(type(item).__name__)

    def _fill(self, name: str, held: Fragment, chosen: Array, fill: Any) -> None:
        """Slots that are not chosen get the fill."""
        rest = np.setdiff1d(np.arange(held.count), chosen, assume_unique=True)
        if not len(rest):
            return
        if fill == "undef":
            self.assign(name, rest, held.values[tuple(c[rest] for c in held.coords)], UNDEFINED)
        else:
            self.assign(name, rest, np.full(len(rest), fill, held.frag.dtype.numpy), DEFINED)

    def fetch(self, view: View, index: Index, count: int) -> tuple[Array, Array]:
        """Values and states of `count` elements of memory."""
        if not count:
            return np.zeros(0, view.dtype.numpy), np.zeros(0, np.uint8)
        values, states = view.read(index, self.strand, self.line)
        if (states == NEVER).any():
            self.report("unwritten", f"an element of {view.name} is read that was never written")
            states = np.where(states == NEVER, UNDEFINED, states)
        return np.broadcast_to(values, (count,)), np.broadcast_to(states, (count,))

    def _load(self, item: Load) -> None:
        held = self.fragment(item.dst)
        chosen = self.select(held.coords, held.count, item.where)
        view, index = self.place(item.src, len(chosen))
        if view.dtype != held.frag.dtype:
            raise self.fatal("form", f"{item.dst} is {held.frag.dtype} and {view.name} is {view.dtype}")
        values, states = self.fetch(view, index, len(chosen))
        self._fill(item.dst, held, chosen, item.fill)
        self.assign(item.dst, chosen, values, states)
        if view.arena.tracked and self.world.cuda:
            held.pending.append((view, index))

    def _store(self, item: Store) -> None:
        view, index, values, states, chosen = self.taken(item)
        if item.effect != "set":
            old = update(self.world, view, index, (values, states), item.effect, self.strand, self.line)
            if item.old is not None:
                self.assign(item.old, chosen, old, np.full(len(chosen), DEFINED))
        else:
            view.write(index, values, states, self.strand, self.line)

    def taken(self, item: Store) -> tuple[View, Index, Array, Array, Array]:
        """What a store writes where: the memory, its elements, values and states, and their slots of the fragment."""
        held = self.fragment(item.src.name)
        if item.src.coords is not None:
            raise self.fatal("form", "the source of a store is a whole fragment")
        chosen = self.select(held.coords, held.count, item.where)
        chosen = chosen[held.first[chosen]]
        if item.mask is not None:
            self.bind(held.coords, chosen)
            here = tuple(c[chosen] for c in held.coords)
            mask, known = self.operand(item.mask, held.frag.shape, here, len(chosen))
            if (known != DEFINED).any():
                self.report("undefined", f"the mask {item.mask.name} of a store holds no value")
            if item.old is not None:  # skipped elements hand back 0
                rest = chosen[~mask.astype(np.bool_)]
                nothing = np.zeros(len(rest), self.fragment(item.old).frag.dtype.numpy)
                self.assign(item.old, rest, nothing, np.full(len(rest), DEFINED))
            chosen = chosen[mask.astype(np.bool_)]
        self.bind(held.coords, chosen)
        view, index = self.place(item.dst, len(chosen))
        if view.dtype != held.frag.dtype:
            raise self.fatal("form", f"{item.src.name} is {held.frag.dtype} and {view.name} is {view.dtype}")
        values, states = self.gather(item.src.name, tuple(c[chosen] for c in held.coords), len(chosen))
        states = np.where(states == NEVER, UNDEFINED, states)
        if view.name in self.world.tensors and (states != DEFINED).any():
            self.report("undefined", f"a slot of {item.src.name} that holds no value is stored to {view.name}")
        return view, index, values, states, chosen

    # ---- computing

    def _compute(self, item: Compute) -> None:
        held = self.fragment(item.dst)
        chosen = self.select(held.coords, held.count, item.where)
        here = tuple(c[chosen] for c in held.coords)
        count = len(chosen)
        if item.fn == "index":
            if item.expr is None:
                raise self.fatal("form", "index needs an expression")
            values = np.broadcast_to(np.asarray(self.value(item.expr), np.int64), (count,))
            result, states = values.astype(held.frag.dtype.numpy), np.full(count, DEFINED, np.uint8)
        else:
            result, states = self._apply(item, held, here, count)
        self._fill(item.dst, held, chosen, item.fill)
        self.assign(item.dst, chosen, result, states)

    def _apply(self, item: Compute, held: Fragment, here: Index, count: int) -> tuple[Array, Array]:
        """The function of the operands at the chosen slots, and whether each result means anything."""
        parts = [self._argument(a, held.frag.shape, here, count) for a in item.args]
        states = np.full(count, DEFINED, np.uint8)
        for _, known, _ in parts:
            states = np.where(known == DEFINED, states, UNDEFINED)
        typed = [d for _, _, d in (parts[1:] if item.fn == "where" else parts) if d is not None]
        out = held.frag.dtype
        if item.fn in ("cast", "cast.saturate", "bitcast", "copy", "pick"):
            fn = "cast.saturate" if item.fn == "cast" and "saturate" in item.tags else item.fn
            return self._convert(fn, parts[0], out), states
        meaning = next((m for m in self.world.program.program.intrinsics if m.name == item.fn), None)
        if meaning is None and not arithmetic.is_function(item.fn):
            raise self.fatal("form", f"no function {item.fn}")
        dtype = typed[-1] if typed else out
        arrays: list[Array] = []
        for i, (values, _, own) in enumerate(parts):
            wanted = bool_ if item.fn == "where" and i == 0 else dtype
            wanted = wanted if meaning is None else meaning.params[i].type.dtype
            if own is not None and own != wanted:
                raise self.fatal("form", f"operand {i} of {item.fn} is {own} beside {wanted}")
            arrays.append(values if own is not None else np.full(count, values, wanted.numpy))
        if meaning is not None:
            return np.broadcast_to(computed(meaning, arrays), (count,)), states
        gives = bool_ if item.fn in ELEMENTWISE and ELEMENTWISE[item.fn][2] == "bool" else dtype
        if gives != out:
            raise self.fatal("form", f"{item.fn} gives {gives} and {item.dst} is {out}")
        world = self.world
        with np.errstate(all="ignore"):
            return arithmetic.elementwise(item.fn, dtype, arrays, world.accuracy, world.program.target), states

    def _convert(self, fn: str, part: tuple[Any, Array, DType | None], out: DType) -> Array:
        values, known, own = part
        if own is None:
            return np.full(known.shape, values, out.numpy)
        values = np.ascontiguousarray(values)
        with np.errstate(all="ignore"):
            if fn == "bitcast":
                return bitcast(values, own, out)
            if fn in ("copy", "pick"):
                if own != out:
                    raise self.fatal("form", f"copy from {own} to {out}")
                return values
            return convert(values, own, out, fn == "cast.saturate")

    def _argument(
        self, arg: Operand, shape: tuple[int, ...], here: Index, count: int
    ) -> tuple[Any, Array, DType | None]:
        """Values, states and dtype; a number has no dtype of its own."""
        if isinstance(arg, FragRef):
            values, states = self.operand(arg, shape, here, count)
            return values, states, self.dtype(arg.name)
        if isinstance(arg, MemRef):
            view, index = self.place(arg, count)
            values, states = self.fetch(view, index, count)
            return values, states, view.dtype
        return arg, np.full(count, DEFINED, np.uint8), None

    def _fold(self, item: Fold) -> None:
        held = self.fragment(item.dst)
        self.bind(held.coords)
        count = held.count
        dtype = held.frag.dtype
        source = self.fragment(item.src.name).frag
        if source.dtype != dtype:
            raise self.fatal("form", f"a fold of {source.dtype} into {dtype}")
        if not item.axes:
            values, states = self.operand(item.src, held.frag.shape, held.coords, count)
        else:
            values, states = self._along(item, source.shape, held, count)
        if item.acc is not None:
            acc, known = self.operand(item.acc, held.frag.shape, held.coords, count)
            values = arithmetic.merge(item.monoid, dtype, acc, values, item.nan)
            states = np.where(known == DEFINED, states, UNDEFINED)
        self.assign(item.dst, None, values, np.where(states == DEFINED, DEFINED, UNDEFINED))

    def _scan(self, item: Scan) -> None:
        """All prefixes along an axis, digit by digit as emitted code has them."""
        held = self.fragment(item.dst)
        self.bind(held.coords)
        frag, source = held.frag, self.fragment(item.src.name).frag
        if source.dtype != frag.dtype or source.shape != frag.shape or item.src.coords is not None:
            raise self.fatal("form", f"a scan of {source.dtype}{source.shape} into {frag.dtype}{frag.shape}")
        (axis,) = item.axes
        extent = frag.shape[axis]
        index = [np.repeat(c, extent) for c in held.coords]
        index[axis] = np.tile(np.arange(extent), held.count)
        values, states = self.gather(item.src.name, tuple(index), held.count * extent)
        if not tiled(extent, source.dist, axis):
            raise self.fatal("form", f"a scan along an axis of {item.src.name} whose digits do not count it")
        folded = arithmetic.scan(
            item.monoid,
            frag.dtype,
            values.reshape(held.count, extent),
            digits(extent, source.dist, axis),
            item.nan,
            (item.exclusive, item.reverse),
        )
        known = states.reshape(held.count, extent) == DEFINED
        ready = np.logical_and.accumulate(known[:, ::-1] if item.reverse else known, axis=1)
        ready = ready[:, ::-1] if item.reverse else ready
        if item.exclusive:
            one = np.ones((held.count, 1), np.bool_)
            ready = np.concatenate([ready[:, 1:], one] if item.reverse else [one, ready[:, :-1]], axis=1)
        own, row = held.coords[axis], np.arange(held.count)
        result, fine = folded[row, own], ready[row, own]
        if item.acc is not None:
            acc, known_acc = self.operand(item.acc, frag.shape, held.coords, held.count)
            result = arithmetic.merge(item.monoid, frag.dtype, acc, result, item.nan)
            fine = fine & (known_acc == DEFINED)
        self.assign(item.dst, None, result, np.where(fine, DEFINED, UNDEFINED))

    def _along(self, item: Fold, shape: tuple[int, ...], held: Fragment, count: int) -> tuple[Array, Array]:
        """The fold over the source's axes, the outer first, as emitted code does it."""
        kept = [a for a in range(len(shape)) if a not in item.axes]
        if tuple(shape[a] for a in kept) != held.frag.shape or item.src.coords is not None:
            raise self.fatal("form", f"a fold of shape {shape} over axes {item.axes} into {held.frag.shape}")
        axes = sorted(item.axes)
        grid = np.indices(tuple(shape[a] for a in axes)).reshape(len(axes), -1)
        width = grid.shape[1]
        index: list[Array] = []
        for axis in range(len(shape)):
            if axis in axes:
                index.append(np.tile(grid[axes.index(axis)], count))
            else:
                index.append(np.repeat(held.coords[kept.index(axis)], width))
        values, states = self.gather(item.src.name, tuple(index), count * width)
        known = (states.reshape(count, width) == DEFINED).all(axis=1)
        orders = [order(shape[a], self.fragment(item.src.name).frag.dist, a) for a in axes]
        grid_shape = (count, *(shape[a] for a in axes))
        folded = arithmetic.fold(item.monoid, held.frag.dtype, values.reshape(grid_shape), orders, item.nan)
        return folded, np.where(known, DEFINED, UNDEFINED)
