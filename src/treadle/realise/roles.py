"""Producer and consumers: one role copies blocks of tensors into rings, the other contracts them and computes.

The consumers are the lowering engine with other ideas of three things: an instance of the parallel region is a task
of a persistent workgroup whose rows are shared out to consumers; the ordered region waits for slots and frees them;
a contraction is a batch of asynchronous atoms. Everything else of the program (scaling, row folds, activations,
bias) is lowered as anywhere. The producer enumerates the same tasks and iterations.
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.algebra.dims import Part
from treadle.algebra.expr import Expr, const, lt, maximum, minimum, sym
from treadle.analysis.uses import Uses
from treadle.ir.core import Block, Program, Region, RegionArg, Value
from treadle.ir.guard import Guard
from treadle.machine import form
from treadle.machine.form import Body, FragRef, Host, Kernel, Launch, MachineProgram, MemRef, Role, Sync
from treadle.machine.vocabulary import RANK
from treadle.realise.chained import chained
from treadle.realise.choices import Choices
from treadle.realise.closing import crossed
from treadle.realise.feeding import ROWS, Feeding, columns
from treadle.realise.frame import Frame, Got, Kept, Lane, PartKey, ends, positions
from treadle.realise.items import Item
from treadle.realise.lanes import Spot
from treadle.realise.onward import ahead, parts
from treadle.realise.producer import Producing
from treadle.realise.repack import Repacked
from treadle.realise.ring import SWIZZLED, Stream
from treadle.realise.threads import lay_out
from treadle.realise.tidy import without_idle
from treadle.realise.turns import first_turn, last_turn, others, own, turn


class StreamLowering(Producing):
    """The lowering engine for consumers, and what the producer does for them."""

    # ---- tasks

    def lower_parallel(self, op: Region, frame: Frame) -> None:
        if self.skipped(op, frame):
            return
        if self.tasks is not None:
            self.lower_within(op, frame)
            return
        places: list[Kept] = []
        for carried, init, result in zip(op.carried, op.inits, op.results, strict=True):
            place = self.tile_holder(carried, init, op, frame)
            if not self.assembled(init):
                self.version(result, place, frame)
            places.append(place)
            frame.places[result.name] = place
        told, nest = self.stream.told, self.stream.nest
        args = [(r, a) for r in nest for a in r.args if a not in told]
        counts = tuple(self.tiles(r, a, frame) for r, a in args)
        names = tuple(self.parts.fresh(f"t_{a.name}") for _, a in args)
        over = "tickets" if self.feeding.tickets else "persistent" if self.feeding.cluster.size == 1 else "clusters"
        tasks = form.Tasks(vars=names, counts=counts, over=over, raster=self.feeding.raster, origin=self.line(op))
        inner = frame.child(tasks.body, barrier=True)
        inner.in_tasks = True
        inner.symbols |= {*names, self.me, RANK}
        enters: list[form.Enter] = []
        for region in nest:
            mine = [(a, n) for (r, a), n in zip(args, names, strict=True) if r is region]
            binds = tuple(self.bind_arg(region, a, sym(n), None, inner) for a, n in mine)
            enters += [form.Enter(self.region_names[id(region)], binds)] if binds else []
        tasks.enters = tuple(enters)
        if self.share:
            # Shares of a range are slower than what all of them have.
            at = sum(len(r.args) for r in self.stream.around)
            tasks.vars = (*names[:at], self.share, *names[at:])
            tasks.counts = (*counts[:at], const(self.feeding.shares), *counts[at:])
            inner.symbols.add(self.share)
        inner.block = op.body
        self.tasks, self.task_frame = tasks, inner
        if op is self.stream.region:
            self.fix_lanes(inner)
        self.body(op, places, inner)
        frame.body.append(tasks)

    def bind_arg(
        self, op: Region, arg: RegionArg, counter: Expr | None, at: Expr | None, frame: Frame
    ) -> tuple[str, tuple[Expr, ...]]:
        name, bounds = super().bind_arg(op, arg, counter, at, frame)
        if arg.name not in self.feeding.whole or arg.kind != "block":
            return name, bounds
        stop = bounds[0] + self.cut(op, arg, frame)[0]
        frame.bind(f"{arg.name}.stop", stop)
        return name, (bounds[0], stop)

    def fix_lanes(self, frame: Frame) -> None:
        """Fixes rows and columns of accumulators."""
        self.row_lane(frame)
        for part in self.fixed_columns():
            self.column_lane(part, self.extent(part), frame)

    def lower_within(self, op: Region, frame: Frame) -> None:
        """A region inside of a task's: blocks of the ranges that the regions around it have told."""
        loops: list[tuple[form.Loop, Frame]] = []
        inner = frame
        if op is self.stream.region:
            loops, inner = self.walk_told(frame)
        if inner is frame:
            inner = frame.child(frame.body)
        inner.block = op.body
        if op is self.stream.region:
            self.fix_lanes(inner)
        self.body(op, [], inner)
        self.close(loops)

    def row_lane(self, frame: Frame) -> None:
        """Fixes the rows: each consumer has 64 of them."""
        if self.stream.more_rows:
            self.row_lanes(frame)
            return
        row = self.key(self.stream.rows.part, frame)
        size = self.feeding.cluster.size if self.dealt == self.stream.rows.part else 1
        start = self.span(self.stream.rows.part, frame)[1] + 64 * sym(self.me)
        mine = self.new_lane(row, start, 64, frame, (row[1] + size * self.feeding.rows,))
        self.spots[mine.slot] = ROWS

    def row_lanes(self, frame: Frame) -> None:
        """Fixes the parts that rows are made of: digits of one slot symbol."""
        slot = f"@{self.slots}"
        self.slots += 1
        frame.symbols.add(slot)
        self.spots[slot] = ROWS
        lanes: list[Lane] = []
        for part, digit, size in zip(self.stream.row_parts, self.digits(sym(slot)), self.feeding.box, strict=True):
            key = self.key(part, frame)
            live = tuple(lt(key[1] + digit, e) for e in ends(key[2]) if e != key[1] + size)
            if slot in digit.symbols:
                lanes.append(Lane(key, key[1], 64, slot, live, digit=digit))
            else:
                lanes.append(Lane(key, key[1] + digit, live=live))
        frame.lanes = self.arranged((*frame.lanes, *lanes))

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
        start = self.span(part, frame)[1] if part == self.dealt else key[1]
        known = {start + width} | (set(ends(key[2])) - set(crossed(start, width, ends(key[2]))))
        lane = self.new_lane(key, start, width, frame, tuple(known))
        self.spots[lane.slot] = self.column_spots(width)
        return lane

    # ---- the ordered region

    def lower_ordered(self, op: Region, frame: Frame) -> None:
        if op is not self.stream.loop:
            raise self.refusal("a second ordered region")
        holders = [self.holder(c, i, op, frame) for c, i in zip(op.carried, op.inits, strict=True)]
        self.filled_once(frame)
        if self.feeding.turns:
            frame.body.append(turn("barrier.sync", own(self.me)))
        loops: list[tuple[form.Loop, Frame]] = []
        inner = frame
        for arg in op.args:
            outer = inner
            loop, inner = self.enter_loop(op, arg, outer)
            loop.invariants = tuple(self.holds(c, h, outer) for c, h in zip(op.carried, holders, strict=True))
            loops.append((loop, inner))
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
        if self.feeding.ahead:
            frame.body += self.one_ahead(loops[-1][0], inner)
        self.close(loops[-1:])
        if self.stream.block is not None:
            self.landed(loops[-2][1] if len(loops) > 1 else frame)
        self.close(loops[:-1])
        if self.feeding.turns and not self.feeding.ahead:
            frame.body.append(turn("barrier.arrive", others(self.me)))
        self.emptied(frame)
        for result, holder in zip(op.results, holders, strict=True):
            self.settle(result, holder, frame)
            self.remember(result, holder, frame)

    def one_ahead(self, loop: form.Loop, frame: Frame) -> Body:
        """Puts the first contraction of a chain's iteration one step ahead; gives what stands in front of the loop."""
        streamed = [r for r in self.rings if r.streamed]
        if len(streamed) != 2 or [len(b) for b in self.stream.batches] != [1, 1] or self.feeding.flight:
            raise self.refusal("a step ahead of anything but two rings of a contraction each")
        rings = sorted(streamed, key=lambda r: r.first)
        found = parts(loop.body, *((r.full, r.counter) for r in rings))
        one = self.stream.batches[0][0].op.result
        coords = self.coords(one.type.axes, frame)
        got = frame.memo.get((one.name, coords))
        if found is None or got is None or not isinstance(got.source, str):
            raise self.refusal("a step ahead where more is done than two contractions and what lies between")
        claim = self.claim(one, coords, got.slots, frame.live(got.slots))
        hand_over = [turn("barrier.arrive", others(self.me))] if self.feeding.turns else []
        return [ahead(loop, found, got.source, claim, hand_over, self.parts.fresh), *hand_over]

    def step_lane(self, frame: Frame) -> None:
        """Fixes the block of an iteration to the columns of an accumulator."""
        if self.stream.block is None:
            return  # the depth of an iteration is in slots only
        key = self.key(self.stream.step, frame)
        self.column_lane_at(key, self.feeding.step, self.stream.block.domain.lo, frame)

    def column_lane_at(self, key: PartKey, width: int, origin: Expr, frame: Frame) -> Lane:
        """A column lane of a block that starts at `origin` plus a multiple of its width."""
        start = self.index(origin, frame)
        known = {key[1] + width} | (set(ends(key[2])) - set(crossed(start, width, ends(key[2]))))
        lane = self.new_lane(key, key[1], width, frame, tuple(known))
        self.spots[lane.slot] = self.column_spots(width)
        return lane

    # ---- slices of accumulators

    def define(self, value: Value, coords: tuple[Expr, ...], frame: Frame, pad: form.Number | None) -> Got:
        held = self.wide.get(value.name)
        if held is None:
            return super().define(value, coords, frame, pad)
        name, lanes, spans = held
        index: dict[str, Expr] = {}
        for coord, lane in zip(coords, lanes, strict=True):
            if lane is not None and lane.slot:
                index[lane.slot] = sym(lane.slot) if lane.digit is not None else coord - lane.base
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
        tail = [item for i, item in enumerate(items) if i > heart[0] and i not in heart]
        updates = [item for item in tail if item.kind == "insert"]
        for item in updates:
            self.prepare_insert(item, tail, frame)
        self.lower_tail(tail, frame)
        for item in updates:
            if item.makes is not None and isinstance(item.target, Kept):
                frame.places[item.makes.name] = item.target

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
        plain = all(i.kind in ("store", "keep", "insert") for i in items)
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
        """The items, a slice of columns at a time."""
        whole = frame.lane(key)
        assert whole is not None
        width = min(self.feeding.slice or SWIZZLED, whole.width)
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


def fed(
    program: Program,
    choices: Choices,
    guard: Guard,
    target: str,
    stream: Stream,
    feeding: Feeding,
    engine: type[StreamLowering],
    copies: Repacked | None = None,
    elsewhere: frozenset[str] = frozenset(),
) -> MachineProgram:
    """The machine program of a stream: one kernel with a producer and consumers, behind the `copies` of operands; with
    regions in `elsewhere`, which are left out, its launches are not chained yet.

    *Errors*: `realise/unsupported`.
    """
    before = copies or Repacked([], [], [], {})
    low = engine(program, choices, Uses(program), stream, feeding, before.places)
    low.elsewhere = elsewhere
    top = Frame([], block=program.body)
    if feeding.turns and (feeding.consumers != 2 or len(stream.batches) != 2 or feeding.flight):
        raise low.refusal("turns of anything but two consumers with two batches an iteration")
    low.lower_block(program.body, top)
    others = [s for s in top.body if not isinstance(s, form.Tasks | form.Version)]
    if others or low.tasks is None or any(b.place == "local" for b in low.parts.buffers):
        raise low.refusal("statements or memory outside the tasks")
    kernel = Kernel("main", roles_of(low, feeding, top.body), low.parts.frags, low.parts.buffers, low.barriers)
    without_idle(kernel)
    shared = lay_out(kernel)
    total = const(1)
    for count in low.tasks.counts:
        total = total * count
    size = feeding.cluster.size
    grid = maximum(1, minimum(feeding.workgroups // size, total)) * size
    resident = feeding.resident if feeding.resident > 1 else 0
    threads = 128 * (1 + feeding.consumers)
    launch = Launch("main", grid=grid, threads=threads, cluster=size, shared_bytes=shared, resident=resident)
    workspace = [*before.workspace, *low.parts.workspace]
    host = Host(dict(program.lets), workspace, list(low.maps.values()), [*before.launches, launch])
    made = MachineProgram(target, program, guard, host, [*before.kernels, kernel], low.ledger())
    return made if elsewhere else chained(made)


def roles_of(low: StreamLowering, feeding: Feeding, tasks: Body) -> list[Role]:
    """One producer, which sets barriers up, and the consumers of its tasks."""
    cluster, threads = feeding.cluster, 128 * (1 + feeding.consumers)
    few, many = feeding.registers or (None, None)

    def budget(count: int | None) -> list[Sync]:
        return [] if count is None else [Sync(kind="setmaxnreg", args=(("registers", const(count)),))]

    setup: Body = [Sync(kind="mbar.init", object=MemRef(b.name, ()), by="elect") for b in low.barriers]
    setup += [Sync(kind="fence.mbar_init", by="elect"), *cluster.meeting(threads), *budget(few)]
    counters = tuple(r.counter for r in low.rings)
    producer = Role("producer", 1, 128, cluster.ended([*setup, *low.produce()]), registers=few, counters=counters)
    first: Body = [first_turn(low.me)] if feeding.turns else []
    after: Body = [last_turn(low.me)] if feeding.turns else []
    mine = counters
    if low.stage_counter is not None:
        after.append(Sync(kind="bulk.wait", args=(("depth", const(0)),), by="elect"))
        mine = (*counters, low.stage_counter)
    body = cluster.ended([*cluster.meeting(threads), *budget(many), *first, *tasks, *after])
    consumer = Role("consumer", feeding.consumers, 128, body, index=low.me, registers=many, counters=mine)
    return [producer, consumer]


__all__ = ["StreamLowering", "fed"]
