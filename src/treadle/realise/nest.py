"""Nests: loops over fragments for groups of operations, folds with their accumulators, values put into buffers.

The work of a block is a list of items: folds, contractions, stores, values to keep, carried values to update, nested
regions. A group shares the loops over the axes that all its items have (rows). Inside them its items are ordered into
sweeps: a sweep is one pass over the remaining axes, and ends where a fold must be finished before the next item.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from treadle.algebra.expr import Expr
from treadle.analysis.uses import PURE, flat_subs
from treadle.ir.core import Op, Value
from treadle.ir.ops.access import Extract, Insert, Load, Store
from treadle.ir.ops.fold import Mma, Reduce
from treadle.machine import form
from treadle.machine.form import FragRef, MemRef, StoreClaim
from treadle.realise.folds import Folds
from treadle.realise.frame import Frame, Got, Kept, PartKey, positions
from treadle.realise.items import Item
from treadle.realise.storage import Loops

Nested = tuple[form.Loop, Frame]
"""A loop, and the frame inside it."""
KEEPING = ("keep", "store", "fold")
"""Kinds of items whose results may be kept for what comes after their sweep."""


@dataclass(eq=False)
class Prefixes:
    """A scan under way: what it carries from tile to tile ("": nothing), which spans `slots`."""

    item: Item
    carry: str = ""
    slots: tuple[str, ...] = ()


class Nests(Folds, ABC):
    """The lowering engine, sixth part: groups of items."""

    # ---- what items read

    parted: list[tuple[Item, Value, Kept]]
    made_again: dict[str, Value]
    """Tiles with the elements that an instance has replaced -> what stands for them where no instance is executed."""

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
            stored = self.uses.forwarded(op) if isinstance(op, Extract) else None
            if stored is not None:
                todo.append((stored, bent))
                continue
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

    # ---- groups

    def lower_group(self, items: list[Item], rest: set[str], frame: Frame) -> None:
        """Emits a group; `rest` are the values that items outside the group read."""
        contraction = self.contracts(items)
        led = self.leading, self.shares
        self.lead([self.free((*i.outer, *i.inner), frame) for i in items])
        rows = self.rows(items, frame)
        order = self.choices.row_order if contraction else self.choices.sweep_order
        if order:
            rank = {name: i for i, name in enumerate(order)}
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
        loops: Loops = []
        inner = frame
        for key in rows:
            if not loops and not frame.in_tasks and not frame.lanes and self.apart(items):
                loops, inner = self.in_packets(key, self.width_of(key, contraction), inner)
                continue
            loop, inner = self.over(key, self.width_of(key, contraction), inner)
            loops.append((loop, inner))
        self.parted = parted
        self.lower_levels(items, {id(i): p for i, p in outside}, contraction, inner)
        self.close(loops)
        self.leading, self.shares = led
        for _, result, place in parted:
            frame.places[result.name] = place
        for item, place in outside:
            assert item.makes is not None
            frame.places[self.place_name(item.makes)] = place

    def apart(self, items: Sequence[Item]) -> bool:
        """Whether tasks may share the rows of a group: the plan wants it, and no two of them touch an element that one
        of them stores."""
        kinds = ("fold", "store", "keep", "insert", "update")
        if self.choices.share is None or any(i.kind not in kinds for i in items):
            return False
        if any(i.kind == "update" and not isinstance(i.target, Kept) for i in items):
            return False
        ops = [i.op for i in items]
        if any(isinstance(op, Store) and op.effect != "set" for op in ops):
            return False
        return not any(s.tile is not None for op in ops if isinstance(op, Store | Insert) for s in flat_subs(op.subs))

    def lower_levels(self, items: list[Item], outside: dict[int, Kept], contraction: bool, frame: Frame) -> None:
        """Orders the items into sweeps over the axes that are still free, and emits these."""
        sweeps: list[tuple[tuple[frozenset[PartKey], bool], list[Item]]] = []
        at: dict[str, tuple[int, Item]] = {}
        tensors: dict[str, int] = {}
        for item in items:
            free = frozenset(self.free((*item.outer, *item.inner), frame))
            scans = [m for n in item.reads if n in at and (m := at[n][1]).kind == "scan"]
            # What has no direction of its own goes with the prefixes that it reads.
            backward = item.backward or (item.kind in ("keep", "store") and any(m.backward for m in scans))
            keys = free, backward
            first = 0
            for name in item.reads:
                if name in at:
                    number, maker = at[name]
                    apart = maker.kind not in ("keep", "scan") or name in item.skewed or sweeps[number][0] != keys
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
            self.control(item, contraction, frame)
            return
        if items[0].kind == "update":
            self.updates(items, contraction, frame)
            return
        places = self.places_of(items, outside, later, frame)
        keys = self.nest_order(self.free((*items[0].outer, *items[0].inner), frame))
        folds, scans = ([i for i in items if i.kind == kind] for kind in ("fold", "scan"))
        kept = self.free(folds[0].outer, frame) if folds else keys
        along = [k for i in scans for k in self.free(i.inner, frame)]
        kept = [k for k in kept if k not in along]
        loops, middle = self.loops_over([k for k in keys if k in kept], contraction, frame)
        folded = [k for k in keys if k not in kept]
        folding, inner = self.folding_over(folded, [*folds, *scans], contraction, middle)
        running = [self.begin(f, folding, middle, inner) for f in folds]
        self.invariants(running, folding)
        prefixes = {id(i): self.begin_scan(i, folding, middle, inner) for i in scans}
        for item in items:
            if item.kind == "scan":
                self.scan(prefixes[id(item)], folding, inner)
            elif item.kind == "fold":
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
            if item.kind in KEEPING and item.makes is not None and id(item) in places and id(item) not in outside:
                frame.places[self.place_name(item.makes)] = places[id(item)]

    def control(self, item: Item, contraction: bool, frame: Frame) -> None:
        """A region or an `if`, and the values that it hands on, each kept by a sweep of its own."""
        parted = [(r, p) for i, r, p in self.parted if i is item]
        self.lower_control(item.op, frame)
        for result, place in parted:
            # axes of this carried value alone
            loops, inner = self.loops_over(self.nest_order(self.free(result.type.axes, frame)), contraction, frame)
            coords = self.coords(result.type.axes, inner)
            self.put(result, self.fetch(result, coords, inner), coords, place, inner)
            self.close(loops)

    def places_of(self, items: list[Item], outside: dict[int, Kept], later: set[str], frame: Frame) -> dict[int, Kept]:
        """Where results are kept that are read after the sweep: `outside`, or a new place."""
        places = dict(outside)
        for item in items:
            made = item.makes
            if item.kind in KEEPING and made is not None and id(item) not in places:
                if made.name in later and self.free(item.outer, frame) and not isinstance(item.target, str):
                    places[id(item)] = self.keep_place(made, frame)
                    self.version(made, places[id(item)], frame)
        return places

    def loops_over(self, keys: Sequence[PartKey], contraction: bool, frame: Frame) -> tuple[list[Nested], Frame]:
        """Loops over axes that are kept, outermost first, and the frame inside them."""
        loops: list[Nested] = []
        for key in keys:
            loop, frame = self.over(key, self.width_of(key, contraction), frame)
            loops.append((loop, frame))
        return loops, frame

    def folding_over(
        self, keys: Sequence[PartKey], items: Sequence[Item], contraction: bool, frame: Frame
    ) -> tuple[list[Nested], Frame]:
        """Loops over axes that folds and scans go along, and the frame inside them."""
        loops: list[Nested] = []
        backward = any(i.backward for i in items)
        for key in keys:
            depth = 1 if any(i.exact for i in items if i.kind == "fold") else self.depth_of(key, contraction)
            # Only an atom that contracts several coordinates at once has slots behind the others.
            loop, frame = (
                self.over(key, depth, frame, True)
                if contraction and depth > 1
                else self.over(key, depth, frame, backward=backward)
            )
            loops.append((loop, frame))
        return loops, frame

    def act(self, item: Item, place: Kept | None, frame: Frame) -> None:
        """Stores, keeps and inserts at the coordinates where the frame stands."""
        if item.kind == "store":
            self.store(item, place, frame)
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

    def store(self, item: Item, place: Kept | None, frame: Frame) -> None:
        """A store to a tensor; the old values, where they are read, go to `place` or stay in a fragment."""
        op = item.op
        assert isinstance(op, Store)
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
        old = None
        if item.makes is not None:
            old = self.fragment(item.makes.hint or item.makes.name, op.tensor.dtype, slots, frame)
        frame.body.append(
            form.Store(
                dst=MemRef(op.tensor.name, tuple(i.substitute(names) for i in index)),
                src=FragRef(got.name),
                where=tuple(c.substitute(names) for c in frame.live(slots)),
                effect=op.effect,
                mask=None if mask is None else FragRef(mask.name),
                old=old,
                claim=StoreClaim(self.uses.store_number[id(op)], tuple(c.substitute(names) for c in coords)),
                origin=self.line(op),
                tags=self.choices.store_tags if op.effect == "set" else (),
            )
        )
        if item.makes is None or old is None:
            return
        made_at = tuple(at[d] for d in item.makes.type.dims)
        got = Got(old, op.tensor.dtype, slots)
        self.made_in[old] = frame
        self.claimed[old] = item.makes.name
        frame.memo[(item.makes.name, made_at)] = got
        if place is not None:
            self.put(item.makes, got, made_at, place, frame)

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
        if isinstance(self.uses.definition.get(op.value.name), Reduce | Mma):
            # An accumulator is said to be finished before it stands for a part of the tile.
            got = self.compute(op.value, value_at, "copy", [got], frame, slots=slots)
        self.put(op.result, got, index, item.target, frame, self.made_again.get(op.result.name))

    # ---- seams filled by the third part

    def begin_scan(self, item: Item, folding: list[tuple[form.Loop, Frame]], middle: Frame, inner: Frame) -> Prefixes:
        """Sets up what a scan carries from tile to tile. *Errors*: `realise/unsupported`, but for engines that have
        scans."""
        del folding, middle, inner
        raise self.unsupported(item.op, "a scan as it stands")

    def scan(self, run: Prefixes, folding: list[tuple[form.Loop, Frame]], inner: Frame) -> None:
        """The prefixes of the tile where the frame stands."""
        del folding, inner
        raise self.unsupported(run.item.op, "a scan as it stands")

    @abstractmethod
    def lower_control(self, op: Op, frame: Frame) -> None:
        """Lowers a nested region or `if`."""

    @abstractmethod
    def updates(self, items: list[Item], contraction: bool, frame: Frame) -> None:
        """Moves values into the holders of carried values."""
