"""Nests: loops over fragments for groups of operations, folds with their accumulators, values put into buffers.

The work of a block is a list of items: folds, contractions, stores, values to keep, carried values to update, nested
regions. A group shares the loops over the axes that all its items have (rows). Inside them its items are ordered into
sweeps: a sweep is one pass over the remaining axes, and ends where a fold must be finished before the next item.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from treadle.algebra.dims import Dim, Part
from treadle.algebra.expr import Constraint, Expr, Min, Sym, ceildiv, const, eq, lt, maximum, minimum, sym
from treadle.analysis.uses import PURE, flat_subs
from treadle.dtype.formats import DType
from treadle.ir.core import If as IfOp
from treadle.ir.core import Op, Region, Value
from treadle.ir.ops.access import Extract, Insert, Load, Store
from treadle.ir.ops.fold import Mma, Reduce
from treadle.machine import form
from treadle.machine.form import Claim, FragRef, Invariant, MemRef, Number, StoreClaim
from treadle.realise.choices import Digit, Pack
from treadle.realise.frame import Digits, Frame, Got, Kept, Lane, PartKey, positions, reference
from treadle.realise.pull import Pull


@dataclass(eq=False)
class Item:
    """One thing a block does. `outer` are the axes of what it makes, `inner` the axes it folds; `makes` its value."""

    kind: str  # "fold", "store", "keep", "insert", "update", "region", "if"
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
    def alone(self) -> bool:
        """Whether it makes a sweep by itself."""
        return self.kind in ("region", "if", "update")


@dataclass(eq=False)
class Running:
    """A fold under way: its accumulator and what describes the contributions folded so far."""

    item: Item
    acc: str
    slots: tuple[str, ...]
    coords: tuple[Expr, ...]
    names: tuple[str, ...] = ()
    done: bool = False


class Nests(Pull, ABC):
    """The lowering engine, second part: groups of items."""

    # ---- what items read

    rank: dict[str, int]
    parted: list[tuple[Item, Value, Kept]]

    def virtual(self, value: Value) -> bool:
        """Whether the value is computed at each use."""
        op = self.uses.definition.get(value.name)
        if value.name in self.keeping or not isinstance(op, PURE):
            return False
        return not isinstance(op, Load) or self.uses.stable(op)

    def roots(self, values: Sequence[Value], skewed: bool = False) -> tuple[set[str], set[str]]:
        """Values with a place of their own that these are computed from; the second set: at other coordinates."""
        reads: set[str] = set()
        skew: set[str] = set()
        todo = [(v, skewed) for v in values]
        seen: set[tuple[str, bool]] = set()
        while todo:
            value, bent = todo.pop()
            if (value.name, bent) in seen:
                continue
            seen.add((value.name, bent))
            if not self.virtual(value):
                reads.add(value.name)
                if bent:
                    skew.add(value.name)
                continue
            op = self.uses.definition[value.name]
            for used in self.uses.direct(op):
                todo.append((used, bent or (isinstance(op, Extract) and used is op.source) or used not in op.operands))
        return reads, skew

    def rows(self, items: Sequence[Item], frame: Frame) -> list[PartKey]:
        """Axes that every item of a group has and none folds, in the order of the first item that makes something."""
        common: list[PartKey] | None = None
        folded: list[PartKey] = []
        for item in items:
            own = self.free(item.outer, frame)
            folded += self.free(item.inner, frame)
            common = own if common is None else [k for k in common if k in own]
        return [k for k in common or [] if k not in folded]

    def contracts(self, items: Sequence[Item]) -> bool:
        """Whether a contraction is among the items or inside their regions."""
        return any(self.uses.contains(i.op, Mma) for i in items if i.kind in ("fold", "region"))

    # ---- loops

    def width_of(self, key: PartKey, contraction: bool) -> int:
        """Slots of a fragment along this part."""
        table = self.choices.tile if contraction else self.choices.sweep
        width = table.get(key[0].name, 1)
        extent = (key[2] - key[1]).constant
        return 1 if extent == 1 else width

    def over(self, key: PartKey, width: int, frame: Frame, deep: bool = False) -> tuple[form.Loop, Frame]:
        """A loop over the tiles of a part, and the frame of its body. The loop is not yet in the outer body."""
        dim, lo, hi = key
        count = tile_count(lo, hi, width)
        loop = form.Loop(var=self.parts.fresh(f"{dim.name.lower()}"), lo=const(0), hi=count, step=const(1))
        inner = frame.child(loop.body)
        base = lo + sym(loop.var) * width
        inner.symbols.add(loop.var)
        if width == 1:
            lane = Lane(key, base)
        else:
            slot = f"@{self.slots}"
            self.slots += 1
            inner.symbols.add(slot)
            # A bound at a multiple of the width above `lo` is implied by the loop's own count.
            open_ends = [b for b in ends(hi) if (gap := (b - lo).constant) is None or gap % width]
            lane = Lane(key, base, width, slot, tuple(lt(base + sym(slot), b) for b in open_ends), deep)
        inner.lanes = self.arranged((*frame.lanes, lane))
        return loop, inner

    def arranged(self, lanes: tuple[Lane, ...]) -> tuple[Lane, ...]:
        """Lanes with those along vector registers last."""
        return tuple(sorted(lanes, key=lambda x: (x.deep, self.rank.get(x.part[0].name, 0))))

    def nest_order(self, keys: Sequence[PartKey]) -> list[PartKey]:
        """Loop order of axes: as given, vector axes innermost."""
        return sorted(keys, key=lambda k: self.rank.get(k[0].name, 0))

    # ---- groups

    def lower_group(self, items: list[Item], rest: set[str], frame: Frame) -> None:
        """Emits a group; `rest` are the values that items outside the group read."""
        contraction = self.contracts(items)
        rows = self.rows(items, frame)
        if self.choices.row_order and contraction:
            rank = {name: i for i, name in enumerate(self.choices.row_order)}
            rows.sort(key=lambda k: rank.get(k[0].name, len(rank)))
        outside: list[tuple[Item, Kept]] = []
        parted: list[tuple[Item, Value, Kept]] = []
        for item in items:
            made = item.makes
            if item.kind == "region":
                for result in item.products:
                    if result.name in rest:
                        place = self.allocate(result, frame)
                        self.version(result, place, frame)
                        parted.append((item, result, place))
            if made is None or item.alone or item.kind == "insert":
                continue
            free = self.free(item.outer, frame)
            if isinstance(item.target, str):
                continue
            if made.name in rest and (free or not frame.in_tasks or item.target is not None):
                place = item.target if isinstance(item.target, Kept) else self.keep_place(made, frame)
                self.version(made, place, frame)
                outside.append((item, place))
        loops: list[tuple[form.Loop, Frame]] = []
        inner = frame
        for key in rows:
            loop, inner = self.over(key, self.width_of(key, contraction), inner)
            loops.append((loop, inner))
        self.parted = parted
        self.lower_levels(items, {id(i): p for i, p in outside}, contraction, inner)
        self.close(loops)
        for _, result, place in parted:
            frame.places[result.name] = place
        for item, place in outside:
            assert item.makes is not None
            frame.places[self.place_name(item.makes)] = place

    def close(self, loops: list[tuple[form.Loop, Frame]]) -> None:
        """Puts finished loops into the bodies around them, innermost first."""
        for loop, inner in reversed(loops):
            assert inner.parent is not None
            inner.parent.body.append(loop)

    def lower_levels(self, items: list[Item], outside: dict[int, Kept], contraction: bool, frame: Frame) -> None:
        """Orders the items into sweeps over the axes that are still free, and emits these."""
        sweeps: list[tuple[frozenset[PartKey], list[Item]]] = []
        at: dict[str, tuple[int, Item]] = {}
        tensors: dict[str, int] = {}
        for item in items:
            keys = frozenset(self.free((*item.outer, *item.inner), frame))
            first = 0
            for name in item.reads:
                if name in at:
                    number, maker = at[name]
                    apart = maker.kind not in ("keep",) or name in item.skewed or sweeps[number][0] != keys
                    first = max(first, number + (1 if apart else 0))
            touched = self.touched(item)
            for name in touched:
                first = max(first, tensors.get(name, -1) + 1)
            if item.alone:
                first = max(first, len(sweeps))
            for number in range(first, len(sweeps)):
                if sweeps[number][0] == keys and not sweeps[number][1][0].alone:
                    break
            else:
                number = len(sweeps)
                sweeps.append((keys, []))
            sweeps[number][1].append(item)
            for product in item.products:
                at[product.name] = (number, item)
            for name in touched:
                tensors[name] = max(number, tensors.get(name, -1))
        for number, (_, members) in enumerate(sweeps):
            later = {n for _, others in sweeps[number + 1 :] for i in others for n in i.reads}
            self.sweep(members, outside, later, contraction, frame)

    def touched(self, item: Item) -> set[str]:
        """Tensors that the item stores to, and unstable ones that it reads."""
        found: set[str] = set()
        if isinstance(item.op, Store):
            found.add(item.op.tensor.name)
        if isinstance(item.op, Load) and not self.uses.stable(item.op):
            found.add(item.op.tensor.name)
        return found

    # ---- a sweep

    def sweep(
        self, items: list[Item], outside: dict[int, Kept], later: set[str], contraction: bool, frame: Frame
    ) -> None:
        """One pass over the free axes of its items."""
        if items[0].kind in ("region", "if"):
            (item,) = items
            parted = [(r, p) for i, r, p in self.parted if i is item]
            self.lower_control(item.op, frame)
            for result, place in parted:
                coords = self.coords(result.type.axes, frame)
                self.put(result, self.fetch(result, coords, frame), coords, place, frame)
            return
        if items[0].kind == "update":
            self.updates(items, contraction, frame)
            return
        places = dict(outside)
        for item in items:
            made = item.makes
            if item.kind == "keep" and made is not None and id(item) not in places:
                if made.name in later and self.free(item.outer, frame):
                    places[id(item)] = self.keep_place(made, frame)
                    self.version(made, places[id(item)], frame)
        keys = self.nest_order(self.free((*items[0].outer, *items[0].inner), frame))
        folds = [i for i in items if i.kind == "fold"]
        kept = self.free(folds[0].outer, frame) if folds else keys
        shared = [k for k in keys if k in kept]
        folded = [k for k in keys if k not in kept]
        loops: list[tuple[form.Loop, Frame]] = []
        inner = frame
        for key in shared:
            loop, inner = self.over(key, self.width_of(key, contraction), inner)
            loops.append((loop, inner))
        middle = inner
        folding: list[tuple[form.Loop, Frame]] = []
        for key in folded:
            depth = self.depth_of(key, contraction)
            # Only an atom that contracts several coordinates at once has slots behind the others.
            loop, inner = self.over(key, depth, inner, True) if contraction and depth > 1 else self.over(key, depth, inner)
            folding.append((loop, inner))
        running = [self.begin(f, folding, middle, inner) for f in folds]
        self.invariants(running, folding)
        for item in items:
            if item.kind == "fold":
                run = next(r for r in running if r.item is item)
                self.contribute(run, folding, inner)
            else:
                self.act(item, places.get(id(item)), inner)
        if folding and contraction and self.choices.unroll > 1:
            folding[-1][0].unroll = self.choices.unroll
        self.close(folding)
        for run in running:
            self.finish(run, places.get(id(run.item)), folding, middle)
        self.close(loops)
        for item in items:
            if item.kind == "keep" and item.makes is not None and id(item) in places and id(item) not in outside:
                frame.places[self.place_name(item.makes)] = places[id(item)]

    def keep_place(self, value: Value, frame: Frame) -> Kept:
        """The buffer of a kept value, in the layout that its readers want."""
        pack = next((p for p in self.choices.laid_out if p.value == value.name), None)
        if pack is None:
            return self.allocate(value, frame)
        return self.allocate(value, frame, pack.layout, self.packed_dtype(pack))

    def packed_dtype(self, pack: Pack) -> DType:
        """The dtype of a packed operand."""
        value = self.uses.of_value[pack.value]
        readers = [u for u in self.uses.users.get(value.name, []) if isinstance(u, Mma)]
        return readers[0].result.type.dtype if pack.wide and readers else value.type.dtype

    def place_name(self, value: Value) -> str:
        """The key under which readers find a value's buffer."""
        return wide(value.name) if any(p.value == value.name for p in self.choices.laid_out) else value.name

    def depth_of(self, key: PartKey, contraction: bool) -> int:
        """Slots along a folded axis: what the atom contracts at once, or the lanes of a running fold."""
        if contraction:
            return self.choices.depth.get(key[0].name, 1)
        return self.width_of(key, False)

    def act(self, item: Item, place: Kept | None, frame: Frame) -> None:
        """Stores, keeps and inserts at the coordinates where the frame stands."""
        if item.kind == "store":
            self.store(item, frame)
        elif item.kind == "keep":
            assert item.makes is not None
            coords = self.coords(item.outer, frame)
            if place is None:
                frame.memo[(item.makes.name, coords)] = self.fresh_value(item.makes, coords, frame)
            else:
                got = self.fresh_value(item.makes, coords, frame)
                self.put(item.makes, self.zeroed(item.makes, got, coords, place, frame), coords, place, frame)
        elif item.kind == "insert":
            self.insert(item, frame)

    def zeroed(self, value: Value, got: Got, coords: tuple[Expr, ...], place: Kept, frame: Frame) -> Got:
        """The elements with the buffer's fill in the padding that will be stored with them."""
        covered = {s for a in place.padded for s in self.slots_of([coords[a]], frame)}
        where = frame.live([s for s in got.slots if s in covered])
        if place.fill is None or not where:
            return got
        fill = zero(value.type.dtype)
        return self.compute(value, coords, "copy", [got], frame, slots=got.slots, where=where, fill=fill)

    def fresh_value(self, value: Value, coords: tuple[Expr, ...], frame: Frame) -> Got:
        """A value computed from its definition (it is about to be kept)."""
        held = frame.held((value.name, coords))
        if held is not None:
            return held
        got = self.define(value, coords, frame, None)
        slots = self.slots_of(coords, frame)
        solid = self.solid(got, value, coords, frame, slots)
        frame.memo[(value.name, coords)] = solid
        return solid

    def store(self, item: Item, frame: Frame) -> None:
        """A store to a tensor."""
        op = item.op
        assert isinstance(op, Store)
        if op.results and any(self.uses.users.get(r.name) for r in op.results):
            raise self.unsupported(op, "a colliding store whose old values are used")
        coords = self.coords(item.outer, frame)
        at = {p.dim: c for p, c in zip(item.outer, coords, strict=True)}
        index = self.subscripts(op.subs, op.tensor.dims, at, frame)
        slots = self.slots_of([*coords, *index], frame)
        value_at = tuple(at[d] for d in op.value.type.dims)
        got = self.solid(self.fetch(op.value, value_at, frame), op.value, value_at, frame, slots)
        mask = None
        if op.where is not None:
            where_at = tuple(at[d] for d in op.where.type.dims)
            mask = self.solid(self.fetch(op.where, where_at, frame), op.where, where_at, frame, slots)
        names = positions(slots)
        frame.body.append(
            form.Store(
                dst=MemRef(op.tensor.name, tuple(i.substitute(names) for i in index)),
                src=FragRef(got.name),
                where=tuple(c.substitute(names) for c in frame.live(slots)),
                effect=op.effect,
                mask=None if mask is None else FragRef(mask.name),
                claim=StoreClaim(self.uses.store_number[id(op)], tuple(c.substitute(names) for c in coords)),
                origin=self.line(op),
                tags=self.choices.store_tags if op.effect == "set" else (),
            )
        )

    def insert(self, item: Item, frame: Frame) -> None:
        """Elements of an outer tile replaced, in its buffer."""
        op = item.op
        assert isinstance(op, Insert) and isinstance(item.target, Kept)
        coords = self.coords(item.outer, frame)
        at = {p.dim: c for p, c in zip(item.outer, coords, strict=True)}
        index = self.subscripts(op.subs, op.source.type.dims, at, frame)
        value_at = tuple(at[d] for d in op.value.type.dims)
        slots = self.slots_of([*coords, *index], frame)
        got = self.solid(self.fetch(op.value, value_at, frame), op.value, value_at, frame, slots)
        self.put(op.result, got, index, item.target, frame)

    # ---- folds

    def begin(self, item: Item, folding: list[tuple[form.Loop, Frame]], middle: Frame, inner: Frame) -> Running:
        """Sets up the accumulator of a fold before its loops."""
        op = item.op
        coords = self.coords(item.outer, middle)
        result = op.result
        names = tuple(f"c{i}" for i in range(len(item.inner)))
        extra = {
            lane.slot
            for part in item.inner
            if (lane := inner.lane(self.key(part, inner))) is not None and lane.slot and not isinstance(op, Mma)
        }
        slots = inner.slot_order(frozenset(self.slots_of(coords, inner)) | extra)
        run = Running(item, "", slots, coords, names)
        if not folding:
            return run
        if isinstance(item.target, str) and isinstance(op, Mma):
            run.acc = item.target
            return run
        dtype = result.type.dtype
        run.acc = self.fragment(result.hint or result.name, dtype, slots, inner)
        start: Got
        if isinstance(op, Mma):
            start = self.fetch(op.acc, coords, middle)
        else:
            assert isinstance(op, Reduce)
            start = Got(identity(op.monoid, dtype), dtype)
        claim = self.partial(run, folding, middle, inner, None)
        middle.body.append(
            form.Compute(dst=run.acc, fn="copy", args=(reference(start, slots),), claim=claim, origin=self.line(op))
        )
        self.made_in[run.acc] = middle
        return run

    def partial(
        self,
        run: Running,
        folding: list[tuple[form.Loop, Frame]],
        frame: Frame,
        inner: Frame,
        level: int | None,
        step: int = 0,
    ) -> Claim:
        """The claim of an accumulator: contributions of all tiles lexicographically before the loops' position.

        `level`: how many loops are entered (None: none, so nothing is folded); `step` is added to the last counter.
        """
        at = positions(run.slots)
        over: list[Constraint] = []
        bases: list[tuple[str, Expr, Expr, int, str]] = []
        for part, name in zip(run.item.inner, run.names, strict=True):
            key = self.key(part, inner)
            lane = inner.lane(key)
            if lane is None:
                over.append(eq(sym(name), key[1]))
                continue
            over += [Constraint(sym(name) - key[1]), lt(sym(name), key[2])]
            bases.append((name, lane.base, key[1], lane.width, lane.slot))
        order = {loop.var: i for i, (loop, _) in enumerate(folding)}
        bases.sort(key=lambda b: min((order[s] for s in b[1].symbols if s in order), default=-1))
        if level is None:
            over.append(lt(sym(bases[0][0]), bases[0][2]))
        else:
            over += _earlier(bases[:level], step)
        for number, (name, _, lo, width, slot) in enumerate(bases):
            if width > 1 and slot in run.slots:
                over.append(eq(sym(name) - lo - sym(slot) - sym(f"e{number}") * width, 0))
        coords = tuple(c.substitute(at) for c in run.coords)
        live = tuple(c.substitute(at) for c in frame.live(self.slots_of(run.coords, inner)))
        return Claim(run.item.op.result.name, coords, live, run.names, tuple(c.substitute(at) for c in over))

    def invariants(self, running: list[Running], folding: list[tuple[form.Loop, Frame]]) -> None:
        """What accumulators hold at the head of each folding loop."""
        for level, (loop, frame) in enumerate(folding):
            inner = folding[-1][1]
            loop.invariants += tuple(
                Invariant(run.acc, self.partial(run, folding, frame, inner, level + 1)) for run in running
            )

    def contribute(self, run: Running, folding: list[tuple[form.Loop, Frame]], inner: Frame) -> None:
        """One step of a fold: the contributions at the coordinates where the frame stands."""
        op = run.item.op
        claim = self.partial(run, folding, inner, inner, len(folding), 1) if folding else None
        if isinstance(op, Mma):
            self.multiply(run, op, claim, inner)
            return
        assert isinstance(op, Reduce)
        source = op.source
        at = dict(
            zip((p.dim for p in (*run.item.outer, *run.item.inner)), (*run.coords, *self.coords(run.item.inner, inner)))
        )
        coords = tuple(at[d] for d in source.type.dims)
        got = self.named(self.fetch(source, coords, inner), source, coords, inner, run.slots)
        folded = [
            c for part in run.item.inner if (lane := inner.lane(self.key(part, inner))) is not None for c in lane.live
        ]
        if folded:
            fill = identity(op.monoid, source.type.dtype)
            got = self.compute(
                source, coords, "copy", [got], inner, slots=run.slots, where=tuple(folded), fill=fill, dtype=got.dtype
            )
        if claim is None:
            # A single contribution: the fold of one element.
            run.acc = self.fragment(op.result.hint or op.result.name, op.result.type.dtype, run.slots, inner)
            whole = self.claim(op.result, run.coords, run.slots, inner.live(run.slots))
            inner.body.append(
                form.Fold(
                    dst=run.acc, monoid=op.monoid, src=FragRef(got.name), nan=op.nan, claim=whole, origin=self.line(op)
                )
            )
            return
        inner.body.append(
            form.Fold(
                dst=run.acc,
                monoid=op.monoid,
                src=FragRef(got.name),
                acc=FragRef(run.acc),
                nan=op.nan,
                claim=claim,
                origin=self.line(op),
            )
        )

    def multiply(self, run: Running, op: Mma, claim: Claim | None, inner: Frame) -> None:
        """One contraction statement."""
        at = {p.dim: c for p, c in zip(run.item.outer, run.coords, strict=True)}
        at |= {p.dim: c for p, c in zip(run.item.inner, self.coords(run.item.inner, inner), strict=True)}
        dtype = op.result.type.dtype
        atom = self.choices.atoms.get(op.result.name, "fma")
        gots = [self.operand(v, tuple(at[d] for d in v.type.dims), dtype, atom, inner) for v in (op.a, op.b)]
        slots = run.slots
        if claim is None:
            acc = self.fetch(op.acc, run.coords, inner)
            if isinstance(run.item.target, str):
                run.acc = run.item.target
            else:
                run.acc = self.fragment(op.result.hint or op.result.name, dtype, slots, inner)
                acc = self.solid(acc, op.acc, run.coords, inner, slots)
            claim = self.claim(op.result, run.coords, slots, inner.live(slots))
            acc_ref = FragRef(acc.name)
        else:
            acc_ref = FragRef(run.acc)
        deep = tuple(
            lane.slot
            for part in run.item.inner
            if (lane := inner.lane(self.key(part, inner))) is not None and lane.slot
        )
        numbered = (*slots, *deep)
        refs = [reference(g, numbered) for g in gots]
        a, b = (r if isinstance(r, FragRef) else FragRef("") for r in refs)
        inner.body.append(
            form.Mma(
                dst=run.acc,
                acc=acc_ref,
                a=FragRef(a.name, a.coords or tuple(sym(f"${i}") for i in range(len(gots[0].slots)))),
                b=FragRef(b.name, b.coords or tuple(sym(f"${i}") for i in range(len(gots[1].slots)))),
                atom=atom,
                contracted=tuple(inner.width(s) for s in deep),
                claim=claim,
                origin=self.line(op),
            )
        )
        self.made_in.setdefault(run.acc, inner)

    def operand(self, value: Value, coords: tuple[Expr, ...], dtype: DType, atom: str, frame: Frame) -> Got:
        """An operand of a contraction, from its packed copy if any; for multiply-adds converted exactly."""
        slots = self.slots_of(coords, frame)
        packed = frame.kept(wide(value.name))
        if packed is not None:
            key = (wide(value.name), coords)
            got = frame.held(key)
            if got is None:
                got = self.from_buffer(value, coords, *packed, frame)
                self.made_in[got.name].memo[key] = got
            return got
        got = self.named(self.fetch(value, coords, frame), value, coords, frame, slots)
        if got.dtype == dtype or atom != "fma":
            return got
        return self.compute(value, coords, "cast", [got], frame, slots=slots, dtype=dtype)

    def finish(self, run: Running, place: Kept | None, folding: list[tuple[form.Loop, Frame]], middle: Frame) -> None:
        """After the loops: joins the slots of a running fold, and puts the result where it is read."""
        op, result = run.item.op, run.item.op.result
        slots = self.slots_of(run.coords, middle)
        acc = run.acc
        if run.slots != slots:
            assert isinstance(op, Reduce)
            axes = tuple(i for i, s in enumerate(run.slots) if s not in slots)
            acc = self.fragment(result.hint or result.name, result.type.dtype, slots, middle)
            middle.body.append(
                form.Fold(
                    dst=acc,
                    monoid=op.monoid,
                    src=FragRef(run.acc),
                    axes=axes,
                    nan=op.nan,
                    claim=self.claim(result, run.coords, slots, middle.live(slots)),
                    origin=self.line(op),
                )
            )
        got = Got(acc, result.type.dtype, slots)
        self.made_in.setdefault(acc, middle)
        middle.memo[(result.name, run.coords)] = got
        if place is not None:
            self.put(result, got, run.coords, place, middle)

    # ---- buffers

    def allocate(
        self, value: Value, frame: Frame, layout: Sequence[Digit] | None = None, wider: DType | None = None
    ) -> Kept:
        """A buffer for the elements of a value that this frame's instance needs."""
        dtype = value.type.dtype if wider is None else wider
        axes = {p.dim.name: (i, p) for i, p in enumerate(value.type.axes)}
        digits: list[Digits] = []
        padded: set[int] = set()
        if layout is None:
            names = [p.dim.name for p in value.type.axes]
            layout = [(n, "all", 1) for n in sorted(names, key=lambda n: self.rank.get(n, 0))]
        for name, kind, width in layout:
            axis, part = axes[name]
            if self.single(part, frame):
                continue
            key = self.key(part, frame)
            lane = frame.lane(key)
            if lane is not None:
                if lane.slot:
                    digits.append(Digits(axis, lane.base, const(lane.width)))
                continue
            limit = self.limit(part, frame)
            origin = key[1] if limit is not None else const(0)
            size = const(limit) if limit is not None else self.size_of(part.dim)
            if kind == "all":
                digits.append(Digits(axis, origin, size))
            elif kind == "panel":
                digits.append(Digits(axis, key[1], ceildiv(size, width), kind, width))
            else:
                digits.append(Digits(axis, key[1], const(width), kind, width))
                padded.add(axis)
        shape = tuple(d.size for d in digits)
        name = self.parts.buffer(value.hint or value.name, dtype, shape, frame.in_tasks)
        return Kept(name, dtype, tuple(digits), frozenset(padded), zero(dtype) if padded else None)

    def size_of(self, dim: Dim) -> Expr:
        """The extent of a dimension, as the host knows it."""
        return dim.extent

    def version(self, value: Value, place: Kept, frame: Frame) -> None:
        """Says what the buffer holds from here on."""
        fill: form.Fill = "undef" if place.fill is None else place.fill
        frame.body.append(form.Version(buffer=place.buffer, fill=fill, claim=self.contents(value, place, frame)))

    def contents(self, value: Value, place: Kept, frame: Frame) -> Claim:
        """The claim that a buffer holds the elements of a value, in the buffer's `$i`."""
        coords: list[Expr] = []
        where: list[Constraint] = []
        for axis, part in enumerate(value.type.axes):
            digits = {d.kind: (i, d) for i, d in enumerate(place.digits) if d.axis == axis}
            if not digits:
                key = self.key(part, frame)
                lane = frame.lane(key)
                coords.append(key[1] if lane is None else lane.base)
                continue
            if "all" in digits:
                i, d = digits["all"]
                coord = d.origin + sym(f"${i}")
            else:
                (i, p), (j, _) = digits["panel"], digits["lane"]
                coord = p.origin + sym(f"${i}") * p.width + sym(f"${j}")
            coords.append(coord)
            key = self.key(part, frame)
            lane = frame.lane(key)
            if lane is not None:
                where += [c.substitute({lane.slot: coord - lane.base}) for c in lane.live]
            else:
                where += [Constraint(coord - key[1])]
                spans = [d for d in place.digits if d.axis == axis and d.kind == "all"]
                # The shape of the buffer itself implies a bound at its end.
                where += [lt(coord, b) for b in ends(key[2]) if not spans or b != spans[0].origin + spans[0].size]
        where = [w for w in where if not surely(w)]
        return Claim(value.name, tuple(coords), tuple(where))

    def put(
        self, value: Value, got: Got, coords: tuple[Expr, ...], place: Kept, frame: Frame, name: Value | None = None
    ) -> None:
        """Stores a fragment's elements of a value into its buffer, claimed as those of `name` when that is given."""
        index = tuple(self.digit(d, coords, frame) for d in place.digits)
        slots = self.slots_of([*coords, *index], frame)
        solid = self.solid(got, value, coords, frame, slots)
        if solid.dtype != place.dtype:
            solid = self.compute(value, coords, "cast", [solid], frame, slots=slots, dtype=place.dtype)
        names = positions(slots)
        covered = {s for a in place.padded for s in self.slots_of([coords[a]], frame)}
        live = frame.live([s for s in slots if s not in covered])
        frame.body.append(
            form.Store(
                dst=MemRef(place.buffer, tuple(i.substitute(names) for i in index)),
                src=FragRef(solid.name),
                where=tuple(c.substitute(names) for c in live),
                claim=self.claim(name or value, coords, slots, frame.live(slots)),
            )
        )

    # ---- seams filled by the third part

    @abstractmethod
    def lower_control(self, op: Op, frame: Frame) -> None:
        """Lowers a nested region or `if`."""

    @abstractmethod
    def updates(self, items: list[Item], contraction: bool, frame: Frame) -> None:
        """Moves values into the holders of carried values."""


def _earlier(bases: Sequence[tuple[str, Expr, Expr, int, str]], step: int) -> list[Constraint]:
    """Coordinates of tiles lexicographically before the given bases, the last moved on by `step` tiles.

    "c0 is in an earlier tile, or in this one and c1 is in an earlier tile, ...": `max(a, b) >= 0` says "a or b".
    """
    found: list[Constraint] = []
    strict: list[Expr] = []
    for number, (name, base, _, width, _) in enumerate(bases):
        last = number == len(bases) - 1
        moved = base + width * step if last else base
        before = moved - 1 - sym(name)
        if not last:
            found.append(Constraint(maximum(*strict, before + width)))
        strict.append(before)
    found.append(Constraint(maximum(*strict)))
    return found


def ends(hi: Expr) -> tuple[Expr, ...]:
    """The bounds that a minimum is made of: `x < min(a, b)` is `x < a` and `x < b`."""
    if len(hi.terms) == 1 and hi.terms[0][1] == 1 and len(hi.terms[0][0]) == 1:
        atom = hi.terms[0][0][0]
        if isinstance(atom, Min):
            return atom.args
    return (hi,)


def tile_count(lo: Expr, hi: Expr, width: int | Expr) -> Expr:
    """How many tiles of `width` cover `[lo, hi)`."""
    return minimum(*(ceildiv(b - lo, width) for b in ends(hi)))


def surely(constraint: Constraint) -> bool:
    """Whether a constraint holds whatever non-negative numbers the buffer coordinates are."""
    if constraint.equality:
        return constraint.expr == const(0)
    return all(
        c >= 0 and all(isinstance(a, Sym) and a.name.startswith("$") for a in monomial)
        for monomial, c in constraint.expr.terms
    )


def wide(name: str) -> str:
    """The key under which the packed copy of a contraction's operand is found."""
    return f"{name}^"


def zero(dtype: DType) -> Number:
    """The number 0 of a dtype."""
    return 0.0 if dtype.is_float else False if dtype.is_bool else 0


def identity(monoid: str, dtype: DType) -> Number:
    """What a built-in monoid starts from."""
    if monoid == "add":
        return -0.0 if dtype.is_float else 0
    if monoid == "mul":
        return 1.0 if dtype.is_float else 1
    if monoid in ("and", "or"):
        return monoid == "and" if dtype.is_bool else (-1 if monoid == "and" else 0)
    low = monoid == "max"
    if dtype.is_bool:
        return not low
    if dtype.is_float and dtype.has_inf:
        return float("-inf") if low else float("inf")
    return dtype.finite_min if low else dtype.finite_max


def item_of(op: Op) -> Item | None:
    """The item that an operation is by itself; None for one that is computed where it is used."""
    match op:
        case Reduce():
            inner = tuple(a for a in op.source.type.axes if a.dim in op.dims)
            return Item("fold", op, op.result.type.axes, inner, op.result)
        case Mma():
            inner = tuple(a for a in op.a.type.axes if a.dim in op.contracted)
            return Item("fold", op, op.result.type.axes, inner, op.result)
        case Store():
            return Item("store", op, store_axes(op))
        case Insert():
            return Item("insert", op, insert_axes(op), (), op.result)
        case Region():
            return Item("region", op, region_axes(op))
        case IfOp():
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
