"""Results that leave through shared memory: a ring of two slices a consumer, stored as boxes by an engine.

A slice of 64 columns of 16-bit results is written to shared memory by all threads of a consumer and stored by one of
them as one box; the engine clips what lies outside the tensor. The slot used two slices ago is free when that thread
has waited for its read, and the others have met it.
"""

from __future__ import annotations

from treadle.algebra.dims import Dim
from treadle.algebra.expr import Constraint, Expr, const, lt, sym
from treadle.ir.ops.access import Store
from treadle.machine import form
from treadle.machine.form import Buffer, Claim, FragRef, MemRef, StoreClaim, Sync
from treadle.realise.channels import CHUNK
from treadle.realise.finding import multiple
from treadle.realise.frame import Frame, Lane, ends
from treadle.realise.items import Item
from treadle.realise.ring import SWIZZLED, factor
from treadle.realise.roles import StreamLowering


class StagedLowering(StreamLowering):
    """Streams whose 16-bit results are stored by boxes."""

    def stageable(self, item: Item, lane: Lane, frame: Frame) -> bool:
        op = item.op
        if not isinstance(op, Store) or op.effect != "set" or op.where is not None:
            return False
        if op.tensor.dtype.bits != 16 or lane.width != SWIZZLED:
            return False
        plain = [factor(s, d)[0] for s, d in zip(op.subs, op.tensor.dims, strict=True)]
        if any(s is None or s.tile is not None for s in plain):
            return False
        parts = [s.part if s is not None else None for s in plain]
        spans = [p for p in parts if p is not None]
        if parts[-1] is None or self.key(parts[-1], frame) != lane.part:
            return False
        if spans[:-1] != self.stream.row_parts or set(op.value.type.axes) != set(spans):
            return False
        begin = self.index(factor(op.subs[-1], op.tensor.dims[-1])[1], frame) + lane.base
        if not multiple(begin, CHUNK * 8 // op.tensor.dtype.bits, op.tensor.dims[-1].extent):
            return False
        # The engine clips at the tensor's extents: blocks may end only there.
        for part, dim, sub in zip(parts, op.tensor.dims, op.subs, strict=True):
            if part is None:
                continue
            if isinstance(sub, tuple):
                # Of a factor, in whole chunks of the engine, such that nothing of it is outside.
                fixed = frame.lane(self.key(part, frame))
                if fixed is None or fixed.live or fixed.width % 8:
                    return False
                continue
            fixed = frame.lane(self.key(part, frame))
            assert fixed is not None
            if any(lt(fixed.coord, dim.extent) != c for c in fixed.live):
                return False
        return True

    def staged_store(self, item: Item, lane: Lane, frame: Frame) -> None:
        op = item.op
        assert isinstance(op, Store)
        if self.stage is None:
            heights = [n for n, _, _ in self.held_rows(sym("$0"), frame) if n > 1]
            shape = tuple(const(n) for n in (self.feeding.consumers, *heights, SWIZZLED))
            self.stage = self.parts.fresh("stage")
            self.stage_counter = self.parts.fresh("stage_at")
            self.parts.buffers.append(Buffer(self.stage, op.tensor.dtype, shape, "shared", 1024, 2, 128))
        assert self.stage_counter is not None
        coords = self.coords(item.outer, frame)
        at: dict[Dim, Expr] = {p.dim: c for p, c in zip(item.outer, coords, strict=True)}
        slots = self.slots_of(coords, frame)
        row = next(x for x in frame.lanes if x.part == self.key(self.stream.rows.part, frame))
        order = (row.slot, lane.slot)
        value_at = tuple(at[d] for d in op.value.type.dims)
        got = self.solid(self.fetch(op.value, value_at, frame), op.value, value_at, frame, slots)
        if slots != order:
            got = self.compute(op.value, value_at, "copy", [got], frame, slots=order)
        held: dict[Dim, Expr] = {}
        facts: list[Constraint] = []
        lanes = [x for p in self.stream.row_parts if (x := frame.lane(self.key(p, frame))) is not None]
        place = 1
        for x, (count, _, first) in zip(lanes, self.held_rows(sym("$0"), frame), strict=True):
            own = sym(f"${place}") if count > 1 else const(0)
            place += count > 1
            held[x.part[0]] = first.substitute({self.me: sym("$0")}) + own
            facts += [lt(held[x.part[0]], e) for e in ends(x.part[2]) if self.open(x, e)]
        held[lane.part[0]] = lane.base + sym(f"${place}")
        facts += [lt(held[lane.part[0]], e) for e in ends(lane.part[2]) if self.open(lane, e)]
        number = sym(self.stage_counter)
        meet = (("id", sym(self.me) + 1), ("threads", const(128)))
        body = frame.body
        depth = (("depth", const(1)), ("read", const(1)))
        body.append(Sync(kind="bulk.wait", args=depth, by="elect"))
        body.append(Sync(kind="barrier.sync", args=meet))
        claim = Claim(op.value.name, tuple(held[d] for d in op.value.type.dims), tuple(facts))
        body.append(form.Version(buffer=self.stage, claim=claim))
        names = {row.slot: sym("$0"), lane.slot: sym("$1")}
        body.append(
            form.Store(
                dst=MemRef(self.stage, (sym(self.me), *self.staged_rows(frame), sym("$1")), number),
                src=FragRef(got.name),
                claim=Claim(
                    op.value.name,
                    tuple(c.substitute(names) for c in value_at),
                    tuple(c.substitute(names) for c in frame.live(order)),
                ),
            )
        )
        body.append(Sync(kind="fence.proxy.async"))
        body.append(Sync(kind="barrier.sync", args=meet))
        body.append(self.box(op, row, lane, number, item, frame))
        body.append(Sync(kind="bulk.commit", by="elect"))
        body.append(form.Advance(counter=self.stage_counter))

    def open(self, lane: Lane, end: Expr) -> bool:
        """Whether the slots of a lane may lie beyond an end of its part."""
        return lt(lane.coord, end) in lane.live

    def held_rows(self, at: Expr, frame: Frame) -> list[tuple[int, Expr, Expr]]:
        """A consumer's rows along each of their parts: how many, which one the row `at` is, the first coordinate."""
        if not self.stream.more_rows:
            row = frame.lane(self.key(self.stream.rows.part, frame))
            assert row is not None
            return [(64, at, row.base)]
        starts = [self.key(p, frame)[1] for p in self.stream.row_parts]
        return [(n, own, lo + first) for lo, (n, own, first) in zip(starts, self.rows_at(at), strict=True)]

    def staged_rows(self, frame: Frame) -> list[Expr]:
        """The place of the row `$0` in a staging slot."""
        return [own for n, own, _ in self.held_rows(sym("$0"), frame) if n > 1]

    def box(self, op: Store, row: Lane, lane: Lane, number: Expr, item: Item, frame: Frame) -> form.Copy:
        """The engine's store of one slice."""
        sizes = [1] * len(op.subs)
        index: list[Expr] = []
        held = dict(zip(self.stream.row_parts, self.held_rows(sym(row.slot), frame), strict=True))
        rows: list[Expr] = []
        column: Expr = const(0)
        claimed: dict[Dim, Expr] = {}
        for axis, (whole, dim) in enumerate(zip(op.subs, op.tensor.dims, strict=True)):
            sub, begin = factor(whole, dim)
            assert sub is not None
            if sub.part is None:
                assert sub.index is not None
                index.append(self.index(sub.index, frame))
                continue
            here = sym(f"${axis}")
            if self.key(sub.part, frame) == lane.part:
                sizes[axis], column, coord = SWIZZLED, here, lane.base + here
            else:
                count, _, first = held[sub.part]
                sizes[axis], coord = count, first + here if count > 1 else first
                rows += [here] if count > 1 else []
            claimed[sub.part.dim] = coord
            index.append(self.index(begin, frame) + coord)
        assert self.stage is not None
        place = (sym(self.me), *rows, column)
        coords = tuple(claimed[p.dim] for p in item.outer)
        return form.Copy(
            engine="tma.store",
            dst=MemRef(op.tensor.name, tuple(index)),
            src=MemRef(self.stage, place, number),
            box=tuple(sizes),
            map=self.map_of(op.tensor.name, op.tensor.dtype, tuple(sizes)),
            by="elect",
            claim=StoreClaim(self.uses.store_number[id(op)], coords),
            origin=self.line(op),
        )
