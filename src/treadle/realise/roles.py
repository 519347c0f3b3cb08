"""Producer and consumers: one role copies blocks of tensors into rings, the other contracts them and computes.

The consumers are the lowering engine with other ideas of three things: an instance of the parallel region is a task
of a persistent workgroup whose rows are shared out to consumers; the ordered region waits for slots and frees them;
a contraction is a batch of asynchronous atoms. Everything else of the program (scaling, row folds, activations,
bias) is lowered as anywhere. The producer enumerates the same tasks and iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from treadle.algebra.dims import Part
from treadle.algebra.expr import Constraint, Expr, as_expr, const, lt, maximum, minimum, sym
from treadle.analysis.uses import Uses
from treadle.ir.core import Block, Program, Region, Value
from treadle.ir.guard import Guard
from treadle.machine import form
from treadle.machine.form import (
    Barrier,
    Body,
    Buffer,
    Claim,
    FragRef,
    Host,
    Invariant,
    Kernel,
    Launch,
    MachineProgram,
    MemRef,
    Role,
    Sync,
    TensorMap,
)
from treadle.realise.carried import Holder
from treadle.realise.choices import Choices, NotLowered
from treadle.realise.frame import Frame, Got, Kept, Lane, PartKey, ends, positions
from treadle.realise.items import Item
from treadle.realise.lanes import Agent, LaneLowering, Spot
from treadle.realise.ring import SWIZZLED, Contraction, Stream, Tile, crossed, phase, slot_shape
from treadle.realise.threads import lay_out
from treadle.realise.tidy import without_idle

WARPGROUP = Agent(((3, "lane", 4), (4, "lane", 8), (5, "warp", 4)))
ROWS = (Spot(1, "slot", 2, 8), Spot(4, "lane", 8, 1), Spot(5, "warp", 4, 16))


def columns(width: int) -> tuple[Spot, ...]:
    """Columns of an accumulator of the tensor core: pairs, four lanes, eights."""
    spots = (Spot(0, "slot", 2, 1), Spot(2, "slot", width // 8, 8), Spot(3, "lane", 4, 2))
    return tuple(s for s in spots if s.size > 1)


@dataclass(frozen=True)
class Feeding:
    """Decisions of a stream: `consumers` of 64 rows each; block sizes along the columns and of the ordered region;
    `versions` of the streamed rings; `flight`: batches in flight behind an iteration (0 or 1); `registers` of producer
    and consumers, None to leave them as they are; `staged`: 16-bit results leave through shared memory;
    `workgroups` at most."""

    consumers: int
    columns: int
    step: int
    versions: int
    flight: int
    registers: tuple[int, int] | None
    staged: bool
    raster: tuple[str | int, ...]
    workgroups: int
    turns: bool = False
    """Two consumers issue their contractions in turn, so that one computes while the other contracts: order for speed
    alone, by named barriers tagged `turn`."""

    @property
    def rows(self) -> int:
        """Rows of a task."""
        return 64 * self.consumers


@dataclass(eq=False)
class Ring:
    """Tiles that share barriers: a counter in each role, slots, bytes of a whole slot."""

    tiles: list[Tile]
    counter: str
    full: str
    empty: str
    versions: int
    bytes: int = 0
    streamed: bool = True

    @property
    def first(self) -> int:
        """The first batch that reads it."""
        return self.tiles[0].first

    @property
    def last(self) -> int:
        """The last batch that reads it."""
        return self.tiles[0].last


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


class StreamLowering(LaneLowering):
    """The lowering engine for consumers, and what the producer does for them."""

    def __init__(self, program: Program, choices: Choices, uses: Uses, stream: Stream, feeding: Feeding) -> None:
        super().__init__(program, choices, uses, WARPGROUP, {})
        self.stream = stream
        self.feeding = feeding
        self.me = self.parts.fresh("w")
        self.slots_of_tiles: dict[int, str] = {}
        self.maps: dict[str, TensorMap] = {}
        self.barriers: list[Barrier] = []
        self.rings = [self.ring(tiles) for tiles in stream.rings()]
        self.tasks: form.Tasks | None = None
        self.task_frame: Frame | None = None
        self.wide: dict[str, tuple[str, tuple[Lane | None, ...], tuple[str, ...]]] = {}
        self.block: Expr | None = None
        self.stage: str | None = None
        self.stage_counter: str | None = None
        self.joined = {id(c.op): (number, c) for number, batch in enumerate(stream.batches) for c in batch}

    # ---- resources

    def extent(self, part: Part) -> int:
        """Coordinates of a tile along a part."""
        if part == self.stream.rows.part:
            return self.feeding.rows
        if part == self.stream.step:
            return self.feeding.step
        across = self.stream.columns
        if across is not None and part == across.part:
            return self.feeding.columns
        whole = part.extent.constant
        if whole is None:
            raise self.refusal(f"a tile along {part} of open extent")
        return whole

    def refusal(self, what: str) -> NotLowered:
        """The error for a tile or value that the rings cannot carry."""
        return NotLowered(
            doing=f"realising {self.program.name} with rings",
            found=what,
            expected="blocks of fixed size along two axes of a tensor",
            hint="another plan has to run this program",
        )

    def ring(self, tiles: list[Tile]) -> Ring:
        """Declares slots, barriers and tensor maps of tiles that share a ring."""
        streamed = tiles[0].streamed
        versions = self.feeding.versions if streamed else 1
        hint = "_".join(t.tensor.lower() for t in tiles)
        names = [self.parts.fresh(f"{hint}_{what}") for what in ("at", "full", "empty")]
        ring = Ring(tiles, names[0], names[1], names[2], versions, streamed=streamed)
        for tile in tiles:
            outer, inner = self.extent(tile.outer), self.extent(tile.inner)
            if inner % SWIZZLED or outer > 256 or outer % 8:
                raise self.refusal(f"a block of {outer} x {inner} elements of {tile.tensor}")
            name = self.parts.fresh(f"{tile.tensor}s")
            shape = tuple(const(n) for n in slot_shape(outer, inner))
            dtype = tile.value.type.dtype
            self.parts.buffers.append(Buffer(name, dtype, shape, "shared", 1024, versions, 128))
            self.slots_of_tiles[id(tile)] = name
            box = [1] * len(tile.source.subs)
            box[tile.axes[0]], box[tile.axes[1]] = outer, SWIZZLED
            self.map_of(tile.tensor, dtype, tuple(box))
            ring.bytes += outer * inner * 2
        self.barriers.append(Barrier(ring.full, 1, versions, tx=True))
        self.barriers.append(Barrier(ring.empty, 4 * self.feeding.consumers, versions))
        return ring

    def map_of(self, tensor: str, dtype: object, box: tuple[int, ...]) -> str:
        """The tensor map with this box."""
        for name, entry in self.maps.items():
            if entry.tensor == tensor and entry.box == box:
                return name
        name = self.parts.fresh(f"map_{tensor}")
        self.maps[name] = TensorMap(name, tensor, dtype, box, 128, promotion=256)  # type: ignore[arg-type]
        return name

    # ---- tasks

    def lower_parallel(self, op: Region, frame: Frame) -> None:
        region = self.region_names[id(op)]
        counts = tuple(self.tiles(op, a, frame) for a in op.args)
        names = tuple(self.parts.fresh(f"t_{a.name}") for a in op.args)
        tasks = form.Tasks(
            vars=names, counts=counts, over="persistent", raster=self.feeding.raster, origin=self.line(op)
        )
        inner = frame.child(tasks.body, barrier=True)
        inner.in_tasks = True
        inner.symbols |= {*names, self.me}
        binds = tuple(self.bind_arg(op, a, sym(n), None, inner) for a, n in zip(op.args, names, strict=True))
        tasks.enters = (form.Enter(region, binds),)
        inner.block = op.body
        self.tasks, self.task_frame = tasks, inner
        self.row_lane(inner)
        for part in self.fixed_columns():
            self.column_lane(part, self.extent(part), inner)
        self.body(op, [], inner)
        frame.body.append(tasks)

    def row_lane(self, frame: Frame) -> None:
        """Fixes the rows: each consumer has 64 of them."""
        row = self.key(self.stream.rows.part, frame)
        mine = self.new_lane(row, row[1] + 64 * sym(self.me), 64, frame, (row[1] + self.feeding.rows,))
        self.spots[mine.slot] = ROWS

    def fixed_columns(self) -> list[Part]:
        """Columns of accumulators that do not change from iteration to iteration."""
        found: list[Part] = []
        for one in self.stream.contractions:
            if one.cols != self.stream.step and one.cols not in found:
                found.append(one.cols)
        return found

    def column_spots(self, width: int) -> tuple[Spot, ...]:
        """The digits of columns."""
        return columns(width)

    def column_lane(self, part: Part, width: int, frame: Frame) -> Lane:
        """Fixes a part to the columns of an accumulator."""
        key = self.key(part, frame)
        known = {key[1] + width} | (set(ends(key[2])) - set(crossed(key[1], width, ends(key[2]))))
        lane = self.new_lane(key, key[1], width, frame, tuple(known))
        self.spots[lane.slot] = self.column_spots(width)
        return lane

    # ---- the ordered region

    def lower_ordered(self, op: Region, frame: Frame) -> None:
        if op is not self.stream.loop:
            raise self.refusal("a second ordered region")
        holders = [self.holder(c, i, op, frame) for c, i in zip(op.carried, op.inits, strict=True)]
        self.filled_once(frame)
        if self.feeding.turns:
            frame.body.append(self.turn("barrier.sync", sym(self.me) + 3))
        loop, inner = self.enter_loop(op, op.args[0], frame)
        loop.invariants = tuple(self.holds(c, h, frame) for c, h in zip(op.carried, holders, strict=True))
        self.step_lane(inner)
        inner.block = op.body
        moves: list[Item] = []
        for carried, given, holder in zip(op.carried, op.body.yields, holders, strict=True):
            self.settle(carried, holder, inner)
            if given is carried:
                continue
            move = Item("update", op, carried.type.axes, (), carried, given, target=holder)
            move.reads, move.skewed = self.roots([given])
            moves.append(move)
        self.lower_block(op.body, inner, moves)
        self.close([(loop, inner)])
        if self.feeding.turns:
            frame.body.append(self.turn("barrier.arrive", 4 - sym(self.me)))
        self.emptied(frame)
        for result, holder in zip(op.results, holders, strict=True):
            self.settle(result, holder, frame)
            self.remember(result, holder, frame)

    def step_lane(self, frame: Frame) -> None:
        """Fixes the block of an iteration to the columns of an accumulator."""
        assert self.stream.loop is not None
        key = self.key(self.stream.step, frame)
        self.column_lane_at(key, self.feeding.step, self.stream.loop.args[0].domain.lo, frame)

    def column_lane_at(self, key: PartKey, width: int, origin: Expr, frame: Frame) -> Lane:
        """A column lane of a block that starts at `origin` plus a multiple of its width."""
        start = self.index(origin, frame)
        known = {key[1] + width} | (set(ends(key[2])) - set(crossed(start, width, ends(key[2]))))
        lane = self.new_lane(key, key[1], width, frame, tuple(known))
        self.spots[lane.slot] = self.column_spots(width)
        return lane

    def remember(self, value: Value, holder: Holder, frame: Frame) -> None:
        """Lets slices of a wide holder be taken later."""
        if isinstance(holder, str):
            lanes = tuple(frame.lane(self.key(p, frame)) for p in value.type.axes)
            slots = self.slots_of(self.coords(value.type.axes, frame), frame)
            self.wide[value.name] = (holder, lanes, slots)

    def wait(self, ring: Ring) -> Sync:
        """Until the slot at the ring's counter is full."""
        object = MemRef(ring.full, (), sym(ring.counter))
        return Sync(kind="mbar.wait", object=object, args=(("phase", phase(ring.counter, ring.versions)),))

    def release(self, ring: Ring, number: Expr) -> Sync:
        """One arrival a warp: its reads of the slot are over."""
        return Sync(kind="mbar.arrive", object=MemRef(ring.empty, (), number), by="warp")

    # ---- batches

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
        if self.stream.loop is not None:
            self.issue(number, made, frame)
        else:
            self.filled_once(frame)
            loop, inner = self.walk_depth(frame)
            loop.invariants = tuple(
                Invariant(m.acc, self.so_far(m.one, m.coords, m.slots, const(0), inner)) for m in made
            )
            self.issue(number, made, inner)
            frame.body.append(loop)
            self.emptied(frame)
        for m in made:
            result = m.one.op.result
            frame.memo[(result.name, m.coords)] = Got(m.acc, result.type.dtype, m.slots)
            self.made_in.setdefault(m.acc, frame)
            if self.stream.loop is None:
                self.remember(result, m.acc, frame)

    def issue(self, number: int, made: list[Issued], frame: Frame) -> None:
        """Waits for slots, issues the atoms, waits for them, frees slots."""
        used = [r for r in self.rings if r.streamed]
        frame.body += [self.wait(r) for r in used if r.first == number]
        if self.feeding.turns and number:
            frame.body.append(self.turn("barrier.sync", sym(self.me) + 3))
        frame.body.append(Sync(kind="wgmma.fence"))
        for m in made:
            self.multiply_steps(m, frame)
        frame.body.append(Sync(kind="wgmma.commit"))
        if self.feeding.turns and not number:
            frame.body.append(self.turn("barrier.arrive", 4 - sym(self.me)))
        flight = self.feeding.flight
        frame.body.append(Sync(kind="wgmma.wait", args=(("depth", const(flight)),)))
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

    def turn(self, kind: str, number: Expr) -> Sync:
        """One side of a hand-over between the two consumers: who waits, who goes on."""
        return Sync(kind=kind, args=(("id", number), ("threads", const(256))), tags=("turn",))

    def position(self, frame: Frame) -> Expr:
        """How far the iteration's block is from the first one."""
        if self.stream.loop is None:
            return self.span(self.stream.step, frame)[1] - self.key(self.stream.step, frame)[1]
        start = self.index(self.stream.loop.args[0].domain.lo, frame)
        return self.key(self.stream.step, frame)[1] - start

    def filled_once(self, frame: Frame) -> None:
        """Waits for the tiles of the task."""
        frame.body += [self.wait(r) for r in self.rings if not r.streamed]

    def emptied(self, frame: Frame) -> None:
        """After the last iteration: what is in flight, then the slots still held."""
        if self.feeding.flight:
            frame.body.append(Sync(kind="wgmma.wait", args=(("depth", const(0)),)))
            frame.body += [self.release(r, sym(r.counter) - 1) for r in self.rings if r.streamed]
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
        if start.source == 0.0 and self.stream.loop is not None:
            return acc, True
        args = (FragRef(start.name),) if isinstance(start.source, str) else (start.source,)
        if isinstance(start.source, str) and start.slots != slots:
            args = (FragRef(self.solid(start, one.op.acc, coords, frame, slots).name),)
        claim = self.claim(one.op.acc, coords, slots, frame.live(slots))
        frame.body.append(form.Compute(dst=acc, fn="copy", args=args, claim=claim))
        return acc, False

    def in_registers(self, one: Contraction, frame: Frame) -> str | None:
        """The left operand where it is computed, zero beyond the end of the contraction."""
        if one.left_tile is not None:
            return None
        at = {p.dim: self.coords([p], frame)[0] for p in (one.rows, one.deep)}
        coords = tuple(at[d] for d in one.left.type.dims)
        order = [self.slots_of([at[p.dim]], frame)[0] for p in (one.rows, one.deep)]
        slots = frame.slot_order(frozenset(order))
        if list(slots) != order:
            raise self.refusal(f"{one.left} has its depth before its rows")
        got = self.solid(self.fetch(one.left, coords, frame), one.left, coords, frame, slots)
        lane = frame.lane(self.key(one.deep, frame))
        if lane is not None:
            self.masked(got, one.left, coords, [lane], 0.0, frame)
        return got.name

    def multiply_steps(self, made: Issued, frame: Frame) -> None:
        """The atoms of one contraction, 16 of the depth each."""
        one = made.one
        depth, width = self.extent(one.deep), self.extent(one.cols)
        if depth % 16 or width % 8 or not 8 <= width <= 256:
            raise self.refusal(f"a contraction of {depth} into {width} columns")
        first = 1 if made.fresh else 0
        if made.fresh:
            frame.body.append(self.atom(made, const(0), frame))
        loop = form.Loop(
            var=self.parts.fresh("f"),
            lo=const(first),
            hi=const(depth // 16),
            step=const(1),
            unroll=depth // 16 - first,
        )
        at = sym(loop.var) * 16
        loop.invariants = (Invariant(made.acc, self.so_far(one, made.coords, made.slots, at, frame)),)
        loop.body.append(self.atom(made, at, frame))
        if depth // 16 > first:
            frame.body.append(loop)

    def atom(self, made: Issued, at: Expr, frame: Frame) -> form.Mma:
        """The atom that contracts 16 from `at`; the first of a fresh accumulator adds to nothing."""
        one = made.one
        rows = sym(self.me) * 64 + sym("$0") if self.feeding.consumers > 1 else sym("$0")
        a: FragRef | MemRef
        if made.left is not None:
            a = FragRef(made.left, (sym("$0"), at + sym("$2")))
        else:
            assert one.left_tile is not None
            a = self.slot_ref(one.left_tile, one.rows, rows, sym(self.me), at)
        return form.Mma(
            dst=made.acc,
            acc=None if made.fresh and at.constant == 0 else FragRef(made.acc),
            a=a,
            b=self.slot_ref(one.right_tile, one.cols, sym("$1"), sym("$1") // SWIZZLED, at),
            atom=f"wgmma.m64n{self.extent(one.cols)}k16.{one.right.type.dtype}",
            contracted=(16,),
            claim=self.so_far(one, made.coords, made.slots, at + 16, frame),
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
        inner = self.extent(tile.inner)
        deep = at + sym("$2")
        index: tuple[Expr, ...]
        if tile.outer == part:
            index = (coord, deep) if inner == SWIZZLED else (at // SWIZZLED, coord, deep - (at // SWIZZLED) * SWIZZLED)
        else:
            index = (deep, coord) if inner == SWIZZLED else (chunk, deep, coord - chunk * SWIZZLED)
        return MemRef(self.slots_of_tiles[id(tile)], index, sym(ring.counter))

    # ---- slices of accumulators

    def define(self, value: Value, coords: tuple[Expr, ...], frame: Frame, pad: form.Number | None) -> Got:
        held = self.wide.get(value.name)
        if held is None:
            return super().define(value, coords, frame, pad)
        name, lanes, spans = held
        index: dict[str, Expr] = {}
        for coord, lane in zip(coords, lanes, strict=True):
            if lane is not None and lane.slot:
                index[lane.slot] = coord - lane.base
        slots = self.slots_of(coords, frame)
        at = positions(slots)
        dst = self.fragment(value.hint or value.name, value.type.dtype, slots, frame)
        goal = self.target(frame, coords, [], None)
        stmt = form.Compute(
            dst=dst,
            fn="copy",
            args=(FragRef(name, tuple(index[s].substitute(at) for s in spans)),),
            claim=self.claim(value, coords, slots, frame.live(slots)),
        )
        return self.append(stmt, dst, value.type.dtype, slots, goal)

    # ---- the body of an instance

    def lower_block(self, block: Block, frame: Frame, after: Sequence[Item] = ()) -> None:
        if block is not self.stream.region.body:
            super().lower_block(block, frame, after)
            return
        items = [*self.items(block), *after]
        self.in_place(items)
        heart = [i for i, item in enumerate(items) if item.op is self.stream.loop or id(item.op) in self.joined]
        for number, item in enumerate(items[: heart[0]]):
            self.lower_group([item], {n for other in items[number + 1 :] for n in other.reads}, frame)
        if self.stream.loop is not None:
            self.lower_control(self.stream.loop, frame)
        else:
            self.batch([items[i] for i in heart], frame)
        self.lower_tail([item for i, item in enumerate(items) if i > heart[0] and i not in heart], frame)

    def lower_tail(self, items: list[Item], frame: Frame) -> None:
        """What follows the ordered region: in slices of columns where it is only stores and what they need."""
        keys: list[PartKey] = []
        for item in items:
            for part in item.outer:
                key = self.key(part, frame)
                lane = frame.lane(key)
                wide = lane is not None and self.spots.get(lane.slot, ROWS) is not ROWS
                if wide and key not in keys:
                    keys.append(key)
        plain = all(i.kind in ("store", "keep") for i in items)
        if not plain or len(keys) != 1:
            for number, item in enumerate(items):
                self.lower_group([item], {n for other in items[number + 1 :] for n in other.reads}, frame)
            return
        across = [i for i in items if any(self.key(p, frame) == keys[0] for p in i.outer)]
        for number, item in enumerate(items):
            if item not in across:
                self.lower_group([item], {n for other in items[number + 1 :] for n in other.reads}, frame)
        self.slices(across, keys[0], frame)

    def slices(self, items: list[Item], key: PartKey, frame: Frame) -> None:
        """The items, 64 columns at a time."""
        whole = frame.lane(key)
        assert whole is not None
        width = min(SWIZZLED, whole.width)
        count = whole.width // width
        loop = form.Loop(var=self.parts.fresh("g"), lo=const(0), hi=const(count), step=const(1), unroll=count)
        inner = frame.child(loop.body)
        inner.symbols.add(loop.var)
        inner.lanes = tuple(x for x in frame.lanes if x is not whole)
        known = [e for e in ends(key[2]) if lt(whole.base + sym(whole.slot), e) not in whole.live]
        base = whole.base + sym(loop.var) * width
        lane = self.new_lane(key, base, width, inner, known)
        self.spots[lane.slot] = self.column_spots(width)
        for number, item in enumerate(items):
            rest = {n for other in items[number + 1 :] for n in other.reads}
            if item.kind == "store" and self.feeding.staged and self.stageable(item, lane, inner):
                self.staged_store(item, lane, inner)
            else:
                self.lower_group([item], rest, inner)
        frame.body.append(loop)

    def stageable(self, item: Item, lane: Lane, frame: Frame) -> bool:
        """Whether an engine can store this slice as a box."""
        return False

    def staged_store(self, item: Item, lane: Lane, frame: Frame) -> None:
        """A store through shared memory."""
        raise self.refusal("a staged store without a staging buffer")

    # ---- the producer

    def produce(self) -> Body:
        """The producer's tasks: the same enumeration, copies instead of contractions."""
        assert self.tasks is not None and self.task_frame is not None
        outer = self.task_frame
        tasks = form.Tasks(
            vars=self.tasks.vars,
            counts=self.tasks.counts,
            over=self.tasks.over,
            raster=self.tasks.raster,
            enters=self.tasks.enters,
            origin=self.tasks.origin,
        )
        frame = Frame(tasks.body, outer.parent, barrier=True, in_tasks=True)
        frame.env, frame.bounds = dict(outer.env), dict(outer.bounds)
        for ring in self.rings:
            if not ring.streamed:
                self.fill_slot(ring, frame)
        if self.stream.loop is not None:
            loop, inner = self.enter_loop(self.stream.loop, self.stream.loop.args[0], frame)
        else:
            loop, inner = self.walk_depth(frame)
        for ring in self.rings:
            if ring.streamed:
                self.fill_slot(ring, inner)
        frame.body.append(loop)
        return [tasks]

    def walk_depth(self, frame: Frame) -> tuple[form.Loop, Frame]:
        """A loop over blocks of a dimension that is contracted as a whole."""
        _, lo, hi = self.key(self.stream.step, frame)
        loop = form.Loop(var=self.parts.fresh("k0"), lo=lo, hi=hi, step=const(self.feeding.step))
        inner = frame.child(loop.body)
        inner.symbols.add(loop.var)
        self.block = sym(loop.var)
        return loop, inner

    def span(self, part: Part, frame: Frame) -> PartKey:
        """The part of a tile, that of an iteration along the dimension walked through."""
        dim, lo, hi = self.key(part, frame)
        if self.block is not None and part == self.stream.step:
            return dim, self.block, minimum(self.block + self.feeding.step, hi)
        return dim, lo, hi

    def fill_slot(self, ring: Ring, frame: Frame) -> None:
        """Waits for a free slot, announces the bytes of whole boxes, copies, moves on."""
        number = sym(ring.counter)
        wait = (("phase", phase(ring.counter, ring.versions, 1)),)
        frame.body.append(Sync(kind="mbar.wait", object=MemRef(ring.empty, (), number), args=wait, by="elect"))
        told = (("bytes", const(ring.bytes)),)
        frame.body.append(Sync(kind="mbar.expect", object=MemRef(ring.full, (), number), args=told, by="elect"))
        for tile in ring.tiles:
            frame.body.append(
                form.Version(buffer=self.slots_of_tiles[id(tile)], fill=0, claim=self.slot_claim(tile, frame))
            )
        for tile in ring.tiles:
            self.copy_tile(tile, ring, frame)
        frame.body.append(form.Advance(counter=ring.counter))

    def start_of(self, part: Part, frame: Frame) -> Expr:
        """The first coordinate of a tile along a part."""
        return self.span(part, frame)[1]

    def slot_claim(self, tile: Tile, frame: Frame) -> Claim:
        """What a slot holds, in the buffer's `$i`."""
        outer, inner = self.extent(tile.outer), self.extent(tile.inner)
        at = {tile.outer.dim: sym("$0"), tile.inner.dim: sym("$1")}
        if inner != SWIZZLED:
            at = {tile.outer.dim: sym("$1"), tile.inner.dim: sym("$0") * SWIZZLED + sym("$2")}
        where: list[Constraint] = []
        coords: dict[object, Expr] = {}
        for part, size in ((tile.outer, outer), (tile.inner, inner)):
            _, lo, hi = self.span(part, frame)
            coord = lo + at[part.dim]
            coords[part.dim] = coord
            where += [lt(coord, e) for e in ends(hi) if e != lo + size]
        value = tile.value
        return Claim(value.name, tuple(coords[d] for d in value.type.dims), tuple(where))

    def copy_tile(self, tile: Tile, ring: Ring, frame: Frame) -> None:
        """The boxes of one tile."""
        outer, inner = self.extent(tile.outer), self.extent(tile.inner)
        box = [1] * len(tile.source.subs)
        box[tile.axes[0]], box[tile.axes[1]] = outer, SWIZZLED
        first, second = (sym(f"${a}") for a in tile.axes)
        body = frame.body
        chunk: Expr | None = None
        if inner != SWIZZLED:
            count = inner // SWIZZLED
            loop = form.Loop(var=self.parts.fresh("box"), lo=const(0), hi=const(count), step=const(1), unroll=count)
            frame.body.append(loop)
            body, chunk = loop.body, sym(loop.var)
        index: list[Expr] = []
        for axis, sub in enumerate(tile.source.subs):
            assert not isinstance(sub, tuple)
            if axis == tile.axes[0]:
                index.append(self.start_of(tile.outer, frame) + first)
            elif axis == tile.axes[1]:
                step = as_expr(0) if chunk is None else chunk * SWIZZLED
                index.append(self.start_of(tile.inner, frame) + step + second)
            else:
                assert sub.index is not None
                index.append(self.index(sub.index, frame))
        place = (first, second) if chunk is None else (chunk, first, second)
        number = sym(ring.counter)
        body.append(
            form.Copy(
                engine="tma.load",
                dst=MemRef(self.slots_of_tiles[id(tile)], place, number),
                src=MemRef(tile.tensor, tuple(index)),
                box=tuple(box),
                signal=MemRef(ring.full, (), number),
                map=self.map_of(tile.tensor, tile.value.type.dtype, tuple(box)),
                by="elect",
                origin=self.line(tile.source),
            )
        )


def fed(
    program: Program,
    choices: Choices,
    guard: Guard,
    target: str,
    stream: Stream,
    feeding: Feeding,
    engine: type[StreamLowering],
) -> MachineProgram:
    """The machine program of a stream: one kernel with a producer and consumers.

    *Errors*: `realise/unsupported`.
    """
    low = engine(program, choices, Uses(program), stream, feeding)
    top = Frame([], block=program.body)
    if feeding.turns and (feeding.consumers != 2 or len(stream.batches) != 2 or feeding.flight):
        raise low.refusal("turns of anything but two consumers with two batches an iteration")
    low.lower_block(program.body, top)
    others = [s for s in top.body if not isinstance(s, form.Tasks)]
    if others or low.tasks is None or any(b.place == "local" for b in low.parts.buffers):
        raise low.refusal("statements or memory outside the tasks")
    threads = 128 * (1 + feeding.consumers)
    meet = Sync(kind="barrier.sync", args=(("id", const(0)), ("threads", const(threads))))
    few, many = feeding.registers or (None, None)

    def budget(count: int | None) -> list[Sync]:
        return [] if count is None else [Sync(kind="setmaxnreg", args=(("registers", const(count)),))]

    setup: Body = [Sync(kind="mbar.init", object=MemRef(b.name, ()), by="elect") for b in low.barriers]
    setup += [Sync(kind="fence.mbar_init", by="elect"), meet, *budget(few)]
    counters = tuple(r.counter for r in low.rings)
    producer = Role("producer", 1, 128, [*setup, *low.produce()], registers=few, counters=counters)
    after: Body = []
    mine = counters
    first: Body = []
    if feeding.turns:
        # The first consumer begins: the second hands over before its first turn, and the last hand-over is taken.
        second = form.If(conds=(Constraint(sym(low.me) - 1),), scope="agent")
        second.then.append(low.turn("barrier.arrive", const(3)))
        last = form.If(conds=(Constraint(-sym(low.me)),), scope="agent")
        last.then.append(low.turn("barrier.sync", const(3)))
        first.append(second)
        after.append(last)
    if low.stage_counter is not None:
        after.append(Sync(kind="bulk.wait", args=(("depth", const(0)),), by="elect"))
        mine = (*counters, low.stage_counter)
    body: Body = [
        Sync(kind="barrier.sync", args=(("id", const(0)), ("threads", const(threads)))),
        *budget(many),
        *first,
        *top.body,
        *after,
    ]
    consumer = Role("consumer", feeding.consumers, 128, body, index=low.me, registers=many, counters=mine)
    kernel = Kernel("main", [producer, consumer], low.parts.frags, low.parts.buffers, low.barriers)
    without_idle(kernel)
    shared = lay_out(kernel)
    total = const(1)
    for count in low.tasks.counts:
        total = total * count
    grid = maximum(1, minimum(feeding.workgroups, total))
    launch = Launch("main", grid=grid, threads=threads, shared_bytes=shared)
    host = Host(dict(program.lets), [], list(low.maps.values()), [launch])
    return MachineProgram(target, program, guard, host, [kernel], low.ledger())


__all__ = ["Feeding", "Kept", "StreamLowering", "fed"]
