"""Results that leave by threads through shared memory: rows that are scattered, or end inside of their tensor.

No engine can store such a slice as a box. Its elements go to shared memory as the tensor core holds them, pairs of
columns a thread, and come back eight neighbours a thread: the stores of a warp fill whole sectors of memory.
"""

from __future__ import annotations

from treadle.algebra.dims import Dim
from treadle.algebra.expr import Expr, const, lt, sym
from treadle.ir.ops.access import Store
from treadle.machine import form
from treadle.machine.form import Buffer, Claim, FragRef, MemRef, Sync
from treadle.realise.frame import Frame, Got, Lane, ends, positions
from treadle.realise.items import Item
from treadle.realise.lanes import Spot
from treadle.realise.ring import SWIZZLED, factor
from treadle.realise.staged import StagedLowering

NEIGHBOURS = 8
"""Columns of 16 bits that a thread stores at once."""


def neighbours(width: int) -> tuple[Spot, ...]:
    """Columns of a slice that is stored: eight, four lanes, stretches of 32."""
    spots = (Spot(0, "slot", NEIGHBOURS, 1), Spot(2, "slot", width // 32, 32), Spot(3, "lane", 4, NEIGHBOURS))
    return tuple(s for s in spots if s.size > 1)


class RelayedLowering(StagedLowering):
    """Streams whose 16-bit results leave through shared memory, where no engine takes them by threads."""

    relay: str | None = None

    def stageable(self, item: Item, lane: Lane, frame: Frame) -> bool:
        return super().stageable(item, lane, frame) or self.relayable(item, lane, frame)

    def relayable(self, item: Item, lane: Lane, frame: Frame) -> bool:
        """Whether threads can store a slice by whole rows of it."""
        op = item.op
        if not isinstance(op, Store) or op.effect != "set" or op.where is not None or self.stream.more_rows:
            return False
        if op.tensor.dtype.bits != 16 or lane.width != SWIZZLED or len(op.value.type.axes) != 2:
            return False
        last = factor(op.subs[-1], op.tensor.dims[-1])[0]
        keys = [self.key(p, frame) for p in op.value.type.axes]
        mine = last is not None and last.part is not None and self.key(last.part, frame) == lane.part
        return mine and keys == [self.key(self.stream.rows.part, frame), lane.part]

    def staged_store(self, item: Item, lane: Lane, frame: Frame) -> None:
        if super().stageable(item, lane, frame):
            super().staged_store(item, lane, frame)
        else:
            self.relayed_store(item, lane, frame)

    def relayed_store(self, item: Item, lane: Lane, frame: Frame) -> None:
        """One slice: written as it is held, met, read back by neighbours, stored."""
        op = item.op
        assert isinstance(op, Store)
        value = op.value
        if self.relay is None:
            shape = tuple(const(n) for n in (self.feeding.consumers, 64, SWIZZLED))
            self.relay = self.parts.fresh("relay")
            self.parts.buffers.append(Buffer(self.relay, op.tensor.dtype, shape, "shared", 1024, swizzle=128))
        row = frame.lane(self.key(self.stream.rows.part, frame))
        assert row is not None
        coords = self.coords(value.type.axes, frame)
        order = (row.slot, lane.slot)
        got = self.solid(self.fetch(value, coords, frame), value, coords, frame, self.slots_of(coords, frame))
        if got.slots != order:
            got = self.compute(value, coords, "copy", [got], frame, slots=order)
        meet = (("id", sym(self.me) + 1), ("threads", const(128)))
        held: dict[Dim, Expr] = {
            row.part[0]: row.base.substitute({self.me: sym("$0")}) + sym("$1"),
            lane.part[0]: lane.base + sym("$2"),
        }
        live = [lt(held[x.part[0]], e) for x in (row, lane) for e in ends(x.part[2]) if self.open(x, e)]
        body = frame.body
        body.append(Sync(kind="barrier.sync", args=meet))
        claim = Claim(value.name, tuple(held[d] for d in value.type.dims), tuple(live))
        body.append(form.Version(buffer=self.relay, claim=claim))
        place = MemRef(self.relay, (sym(self.me), sym("$0"), sym("$1")))
        body.append(form.Store(dst=place, src=FragRef(got.name), claim=self.own(value.name, coords, order, frame)))
        body.append(Sync(kind="barrier.sync", args=meet))
        inner = frame.child(body)
        inner.lanes = tuple(x for x in frame.lanes if x is not lane)
        known = [e for e in ends(lane.part[2]) if not self.open(lane, e)]
        wide = self.new_lane(lane.part, lane.base, lane.width, inner, known)
        self.spots[wide.slot] = neighbours(lane.width)
        coords, order = self.coords(value.type.axes, inner), (row.slot, wide.slot)
        if self.slots_of(coords, inner) != order:
            raise self.refusal(f"columns of {op.tensor} before their rows")
        read = self.fragment(value.hint or value.name, op.tensor.dtype, order, inner)
        body.append(form.Load(dst=read, src=place, claim=self.own(value.name, coords, order, inner)))
        inner.memo[(value.name, coords)] = Got(read, op.tensor.dtype, order)
        self.made_in[read] = inner
        self.store(item, None, inner)

    def own(self, name: str, coords: tuple[Expr, ...], slots: tuple[str, ...], frame: Frame) -> Claim:
        """What a fragment with these slots has of a value."""
        at = positions(slots)
        where = tuple(c.substitute(at) for c in frame.live(slots))
        return Claim(name, tuple(c.substitute(at) for c in coords), where)
