"""Batches of contractions: slots waited for, atoms issued together, slots given back."""

from __future__ import annotations

from dataclasses import dataclass

from treadle.algebra.dims import Dim, Part
from treadle.algebra.expr import Constraint, Expr, const, lt, minimum, sym
from treadle.hardware.atoms import Atom, warpgroup_atom
from treadle.ir.core import Value
from treadle.ir.ops.access import Load
from treadle.machine import form
from treadle.machine.form import Claim, FragRef, Invariant, MemRef, Number, Sync
from treadle.realise.carried import Holder
from treadle.realise.closing import contracted
from treadle.realise.feeding import Fed, Ring, columns
from treadle.realise.frame import Frame, Got, ends, positions
from treadle.realise.items import Item
from treadle.realise.lanes import Spot
from treadle.realise.ring import Contraction, Tile, depth_of_atom, phase
from treadle.realise.turns import others, own, turn

STRETCH = 2
"""Instructions whose operand is made in registers at a time: enough loads to be under way together."""


@dataclass(frozen=True)
class Issued:
    """A contraction of a batch: its accumulator, at which coordinates, its left operand where that is in registers.
    `fresh`: the accumulator holds nothing yet, the first atom starts it from zero."""

    one: Contraction
    acc: str
    slots: tuple[str, ...]
    coords: tuple[Expr, ...]
    left: str | None
    fresh: bool = False


class Batches(Fed):
    """The lowering engine for streams, second part: contractions of consumers."""

    from_nothing = True
    """Whether the atom has a form that adds to nothing."""

    def wait(self, ring: Ring) -> Sync:
        """Until the slot at the ring's counter is full."""
        object = MemRef(ring.full, (), sym(ring.counter))
        return Sync(kind="mbar.wait", object=object, args=(("phase", phase(ring.counter, ring.versions)),))

    def release(self, ring: Ring, number: Expr) -> Sync:
        """One arrival a warp: its reads of the slot are over."""
        object = MemRef(ring.empty, (), number, "all" if ring.shared else None)
        return Sync(kind="mbar.arrive", object=object, by="warp")

    def joins(self, group: list[Item], item: Item, frame: Frame) -> bool:
        mine, theirs = (self.joined.get(id(i.op)) for i in (item, group[0]))
        if mine is not None or theirs is not None:
            return mine is not None and theirs is not None and mine[0] == theirs[0]
        return super().joins(group, item, frame)

    def lower_group(self, items: list[Item], rest: set[str], frame: Frame) -> None:
        if id(items[0].op) in self.joined and items[0].kind == "fold":
            self.batch(items, frame)
            return
        super().lower_group(items, rest, frame)

    def batch(self, items: list[Item], frame: Frame) -> None:
        """Issues contractions together, waits, and frees the slots that nobody reads any more."""
        number = self.joined[id(items[0].op)][0]
        made: list[Issued] = []
        for item in items:
            one = self.joined[id(item.op)][1]
            coords = self.coords(one.op.result.type.axes, frame)
            slots = self.slots_of(coords, frame)
            acc, fresh = self.accumulator(item, one, coords, slots, frame)
            made.append(Issued(one, acc, slots, coords, self.in_registers(one, frame), fresh))
        if self.stream.loop is not None and not self.stream.walked:
            self.issue(number, made, frame)
        else:
            if self.stream.loop is None:
                self.filled_once(frame)
            loop, inner = self.walk_depth(frame)
            loop.invariants = tuple(
                Invariant(m.acc, self.so_far(m.one, m.coords, m.slots, const(0), inner)) for m in made
            )
            self.issue(number, made, inner)
            frame.body.append(loop)
            self.landed(frame)
            if self.stream.loop is None:
                self.emptied(frame)
        for m in made:
            result = m.one.op.result
            frame.memo[(result.name, m.coords)] = Got(m.acc, result.type.dtype, m.slots)
            self.made_in.setdefault(m.acc, frame)
            if self.stream.loop is None:
                self.remember(result, m.acc, frame)

    def remember(self, value: Value, holder: Holder, frame: Frame) -> None:
        """Lets slices of a wide holder be taken later."""
        if isinstance(holder, str):
            lanes = tuple(frame.lane(self.key(p, frame)) for p in value.type.axes)
            slots = self.slots_of(self.coords(value.type.axes, frame), frame)
            self.wide[value.name] = (holder, lanes, slots)

    def issue(self, number: int, made: list[Issued], frame: Frame) -> None:
        """Waits for slots, issues the atoms, waits for them, frees slots."""
        used = [r for r in self.rings if r.streamed]
        frame.body += [self.wait(r) for r in used if r.first == number]
        self.clear(number, frame)
        if self.feeding.turns and number:
            frame.body.append(turn("barrier.sync", own(self.me)))
        if any(m.one.raw for m in made):
            self.convert_and_multiply(made, frame)
        else:
            frame.body.append(Sync(kind="wgmma.fence"))
            for m in made:
                self.multiply_steps(m, frame)
            frame.body.append(Sync(kind="wgmma.commit"))
        if self.feeding.turns and not number:
            frame.body.append(turn("barrier.arrive", others(self.me)))
        flight = self.feeding.flight
        frame.body.append(Sync(kind="wgmma.wait", args=(("depth", const(flight)),)))
        self.read_by_all([r for r in used if r.last == number], frame)
        for ring in used:
            if ring.last != number:
                continue
            if flight:
                later = form.If(conds=(Constraint(self.position(frame) - 1),), scope="workgroup")
                later.then.append(self.release(ring, sym(ring.counter) - 1))
                frame.body.append(later)
            else:
                frame.body.append(self.release(ring, sym(ring.counter)))
            frame.body.append(form.Advance(counter=ring.counter))

    def clear(self, number: int, frame: Frame) -> None:
        """Zeros where the slots of a batch pass the end of what is contracted: the box brought further elements of the
        tensor there, and zero times one of them may be no zero."""
        found = [(t, p) for t, p in self.passing if t.streamed and t.first == number]
        found = [(t, p) for t, p in found if contracted(self.stream, t, p)]
        for tile, part in found:
            self.clear_tile(tile, part, frame)
        if found:
            frame.body.append(Sync(kind="fence.proxy.async"))
            meet = (("id", sym(self.me) + 1), ("threads", const(128)))
            frame.body.append(Sync(kind="barrier.sync", args=meet))

    def clear_tile(self, tile: Tile, part: Part, frame: Frame) -> None:
        """Zeros beyond the end of a slot's part, 16 swizzled rows at a time: 16 bytes a thread."""
        name, dtype = self.slots_of_tiles[id(tile)], tile.value.type.dtype
        outer, inner, row = self.extent(tile.outer), self.extent(tile.inner), self.row(tile)
        if outer % 16 or self.feeding.consumers > 1:
            raise self.refusal(f"zeros in slots of {outer} rows, for {self.feeding.consumers} consumers")
        ring = next(r for r in self.rings if tile in r.tiles)
        frame.body.append(form.Version(buffer=name, fill=0, claim=self.slot_claim(tile, frame)))
        down = (Spot(3, "lane", 4, 1), Spot(5, "warp", 4, 4))
        across = (Spot(0, "slot", row // 8, 1), Spot(4, "lane", 8, row // 8))
        zeros = self.shaped("nothing", dtype, (16, row), (down, across))
        frame.body.append(form.Compute(dst=zeros, fn="copy", args=(0.0 if dtype.is_float else 0,)))
        body, at = frame.body, [const(0), const(0)]
        for number, (hint, count) in enumerate((("chunk", inner // row), ("group", outer // 16))):
            if count > 1:
                var = self.parts.fresh(hint)
                loop = form.Loop(var=var, lo=const(0), hi=const(count), step=const(1), unroll=count)
                body.append(loop)
                body, at[number] = loop.body, sym(var)
        (_, lo, hi), size = self.span(part, frame), self.extent(part)
        line, along = at[1] * 16 + sym("$0"), at[0] * row + sym("$1")
        coord = lo + (line if part == tile.outer else along)
        index = (line, sym("$1")) if inner == row else (at[0], line, sym("$1"))
        body.append(
            form.Store(
                dst=MemRef(name, index, sym(ring.counter)),
                src=FragRef(zeros),
                where=(Constraint(coord - minimum(*(e for e in ends(hi) if e != lo + size))),),
            )
        )

    def position(self, frame: Frame) -> Expr:
        """How far the iteration's block is from the first one."""
        if self.stream.block is None:
            return self.span(self.stream.step, frame)[1] - self.key(self.stream.step, frame)[1]
        start = self.index(self.stream.block.domain.lo, frame)
        return self.key(self.stream.step, frame)[1] - start

    def filled_once(self, frame: Frame) -> None:
        """Waits for the tiles of the task."""
        frame.body += [self.wait(r) for r in self.rings if not r.streamed]

    def landed(self, frame: Frame) -> None:
        """After the last iteration of the innermost loop: what is in flight, and the slots that it reads."""
        if self.feeding.flight:
            frame.body.append(Sync(kind="wgmma.wait", args=(("depth", const(0)),)))
            frame.body += [self.release(r, sym(r.counter) - 1) for r in self.rings if r.streamed]

    def emptied(self, frame: Frame) -> None:
        """After the last iteration: the slots still held."""
        self.read_by_all([r for r in self.rings if not r.streamed], frame)
        for ring in self.rings:
            if not ring.streamed:
                frame.body += [self.release(ring, sym(ring.counter)), form.Advance(counter=ring.counter)]

    def accumulator(
        self, item: Item, one: Contraction, coords: tuple[Expr, ...], slots: tuple[str, ...], frame: Frame
    ) -> tuple[str, bool]:
        """The fragment that a contraction adds to, holding its start; whether that is zero, and not yet in it."""
        if isinstance(item.target, str):
            return item.target, False
        if self.feeding.flight and self.stream.loop is not None:
            raise self.refusal(f"{one.op.result} is not added in place, and its wait is one iteration late")
        start = self.fetch(one.op.acc, coords, frame)
        result = one.op.result
        acc = self.fragment(result.hint or result.name, result.type.dtype, slots, frame)
        if self.from_nothing and start.source == 0.0 and self.stream.loop is not None:
            return acc, True
        args = (FragRef(start.name),) if isinstance(start.source, str) else (start.source,)
        if isinstance(start.source, str) and start.slots != slots:
            args = (FragRef(self.solid(start, one.op.acc, coords, frame, slots).name),)
        claim = self.claim(one.op.acc, coords, slots, frame.live(slots))
        frame.body.append(form.Compute(dst=acc, fn="copy", args=args, claim=claim))
        return acc, False

    def in_registers(self, one: Contraction, frame: Frame) -> str | None:
        """The left operand where it is computed, zero beyond the end of the contraction."""
        if one.left_tile is not None or one.raw:
            return None
        return self.left_operand(one, frame)

    def left_operand(self, one: Contraction, frame: Frame) -> str:
        """The left operand in registers, where this frame stands."""
        at = {p.dim: self.coords([p], frame)[0] for p in (one.rows, one.deep)}
        coords = tuple(at[d] for d in one.left.type.dims)
        order = [self.slots_of([at[p.dim]], frame)[0] for p in (one.rows, one.deep)]
        slots = frame.slot_order(frozenset(order))
        if list(slots) != order:
            raise self.refusal(f"{one.left} has its depth before its rows")
        got = self.solid(self.fetch(one.left, coords, frame), one.left, coords, frame, slots)
        if got.dtype != one.format:
            got = self.compute(one.left, coords, "cast", [got], frame, slots=slots, dtype=one.format)
        lane = frame.lane(self.key(one.deep, frame))
        if lane is not None:
            self.masked(got, one.left, coords, [lane], 0.0, frame)
        return got.name

    # ---- operands made in registers

    def read_by_all(self, rings: list[Ring], frame: Frame) -> None:
        """Slots that threads read themselves: the values have come to all of a consumer before one gives slots back."""
        if any(id(t.load) in self.loaded for r in rings for t in r.tiles):
            frame.body.append(Sync(kind="fence.proxy.async"))
            frame.body.append(Sync(kind="barrier.sync", args=(("id", sym(self.me) + 1), ("threads", const(128)))))

    def convert_and_multiply(self, made: list[Issued], frame: Frame) -> None:
        """A stretch of the depth after the other: the next one is made in registers while products are under way."""
        depth = self.extent(made[0].one.deep)
        each = depth_of_atom(made[0].one.right.type.dtype)
        size = each * (STRETCH if depth % (each * STRETCH) == 0 else 1)
        for m in made:
            if depth % each or self.extent(m.one.deep) != depth or self.instruction(m.one) is None:
                raise self.refusal(f"a contraction of {depth} into {self.extent(m.one.cols)} columns")
            if m.one.left_tile is None and not m.one.raw:
                raise self.refusal(f"{m.one.left} and an operand made of a tile in one batch")
        for start in range(0, depth, size):
            at = self.stretch(made[0].one, start, size, frame)
            held = [self.left_operand(m.one, at) if m.one.raw else None for m in made]
            frame.body.append(Sync(kind="wgmma.fence"))
            for m, left in zip(made, held, strict=True):
                for step in range(start, start + size, each):
                    frame.body.append(self.atom(m, const(step), frame, (left, start)))
            frame.body.append(Sync(kind="wgmma.commit"))

    def stretch(self, one: Contraction, start: int, size: int, frame: Frame) -> Frame:
        """A frame that stands at a stretch of the contractions' depth."""
        key = self.key(one.deep, frame)
        inner = frame.child(frame.body)
        inner.lanes = tuple(x for x in frame.lanes if x.part != key)
        _, lo, hi = self.span(one.deep, frame)
        known = [e for e in ends(hi) if e == lo + self.extent(one.deep)]
        lane = self.new_lane(key, lo + start, size, inner, known)
        self.spots[lane.slot] = columns(size)
        return inner

    def load(
        self, value: Value, op: Load, coords: tuple[Expr, ...], at: dict[Dim, Expr], frame: Frame, pad: Number | None
    ) -> Got:
        tile = self.loaded.get(id(op))
        if tile is None:
            return super().load(value, op, coords, at, frame, pad)
        slots = self.slots_of(coords, frame)
        outer, inner = (at[p.dim] - self.start_of(p, frame) for p in (tile.outer, tile.inner))
        row = self.row(tile)
        place = (outer, inner)
        if self.extent(tile.inner) != row:
            # What is read lies in one row of the slot, or goes on in the next one.
            first = dict.fromkeys((s for s in slots if frame.width(s) <= row), 0)
            chunk = inner.substitute(first) // row
            place = (chunk, outer, inner - chunk * row)
        ring = next(r for r in self.rings if tile in r.tiles)
        dst = self.fragment(value.hint or value.name, value.type.dtype, slots, frame)
        names = positions(slots)
        stmt = form.Load(
            dst=dst,
            src=MemRef(self.slots_of_tiles[id(tile)], tuple(e.substitute(names) for e in place), sym(ring.counter)),
            claim=self.claim(value, coords, slots, frame.live(slots)),
            origin=self.line(op),
        )
        return self.append(stmt, dst, value.type.dtype, slots, frame)

    def multiply_steps(self, made: Issued, frame: Frame) -> None:
        """The atoms of one contraction, 32 bytes of the depth each."""
        one = made.one
        depth, width = self.extent(one.deep), self.extent(one.cols)
        each = depth_of_atom(one.right.type.dtype)
        if depth % each or self.instruction(one) is None:
            raise self.refusal(f"a contraction of {depth} into {width} columns")
        first = 1 if made.fresh else 0
        if made.fresh:
            frame.body.append(self.atom(made, const(0), frame))
        loop = form.Loop(
            var=self.parts.fresh("f"),
            lo=const(first),
            hi=const(depth // each),
            step=const(1),
            unroll=depth // each - first,
        )
        at = sym(loop.var) * each
        loop.invariants = (Invariant(made.acc, self.so_far(one, made.coords, made.slots, at, frame)),)
        loop.body.append(self.atom(made, at, frame))
        if depth // each > first:
            frame.body.append(loop)

    def instruction(self, one: Contraction) -> Atom | None:
        """The contract of a contraction's atom, if there is one of its width."""
        width = self.extent(one.cols)
        fits = width % 8 == 0 and 8 <= width <= 256
        return warpgroup_atom(one.format.name, one.right.type.dtype.name, width) if fits else None

    def atom(self, made: Issued, at: Expr, frame: Frame, held: tuple[str | None, int] = (None, 0)) -> form.Mma:
        """The atom that contracts from `at` on; the first of a fresh accumulator adds to nothing. `held`: the fragment
        that has its left operand's depth from there on."""
        one = made.one
        each, row = depth_of_atom(one.right.type.dtype), self.row(one.right_tile)
        instruction = self.instruction(one)
        assert instruction is not None
        rows = sym(self.me) * 64 + sym("$0") if self.feeding.consumers > 1 else sym("$0")
        a: FragRef | MemRef
        left, first = held if held[0] is not None else (made.left, 0)
        if left is not None:
            a = FragRef(left, (sym("$0"), at - first + sym("$2")))
        else:
            assert one.left_tile is not None
            a = self.slot_ref(one.left_tile, one.rows, rows, sym(self.me), at)
        return form.Mma(
            dst=made.acc,
            acc=None if made.fresh and at.constant == 0 else FragRef(made.acc),
            a=a,
            b=self.slot_ref(one.right_tile, one.cols, sym("$1"), sym("$1") // row, at),
            atom=instruction.name,
            contracted=(each,),
            claim=self.so_far(one, made.coords, made.slots, at + each, frame),
            origin=self.line(one.op),
        )

    def so_far(
        self, one: Contraction, coords: tuple[Expr, ...], slots: tuple[str, ...], done: Expr, frame: Frame
    ) -> Claim:
        """An accumulator after `done` of the depth of its block."""
        at = positions(slots)
        _, lo, hi = self.span(one.deep, frame)
        name = "c0"
        size = self.extent(one.deep)
        known = {lo + size}
        first = self.key(one.deep, frame)[1]
        over = [Constraint(sym(name) - first), lt(sym(name), lo + done)]
        over += [lt(sym(name), e) for e in ends(hi) if e not in known]
        where = tuple(c.substitute(at) for c in frame.live(slots))
        return Claim(one.op.result.name, tuple(c.substitute(at) for c in coords), where, (name,), tuple(over))

    def slot_ref(self, tile: Tile, part: Part, coord: Expr, chunk: Expr, at: Expr) -> MemRef:
        """An operand of an atom in a slot: `coord` along its kept axis, `at` + `$2` along the contracted one."""
        ring = next(r for r in self.rings if tile in r.tiles)
        inner, row = self.extent(tile.inner), self.row(tile)
        deep = at + sym("$2")
        index: tuple[Expr, ...]
        if tile.more:
            wide = [d for d, n in zip(self.digits(sym("$0")), self.feeding.box, strict=True) if n > 1]
            index = (*wide, deep) if inner == row else (at // row, *wide, deep - (at // row) * row)
        elif tile.outer == part:
            index = (coord, deep) if inner == row else (at // row, coord, deep - (at // row) * row)
        else:
            index = (deep, coord) if inner == row else (chunk, deep, coord - chunk * row)
        return MemRef(self.slots_of_tiles[id(tile)], index, sym(ring.counter))
