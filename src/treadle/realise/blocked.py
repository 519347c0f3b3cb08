"""Contractions by ordinary multiply-add: blocks of operands in shared memory, an accumulator over all threads.

The same form of program as for engines and tensor cores, with other ideas of three things: all threads of a workgroup
are one agent, an iteration fills its slots itself (any values, converted on the way), and a contraction is a loop of
rank-one updates out of shared memory.
"""

from __future__ import annotations

from math import prod

from treadle.algebra.dims import Part
from treadle.algebra.expr import Constraint, Expr, const, lt, maximum, minimum, sym
from treadle.analysis.uses import Uses
from treadle.ir.core import Program, Sub, Tensor
from treadle.ir.guard import Divisible, Guard, Unit
from treadle.ir.ops.access import Load
from treadle.ir.ops.elementwise import Cast
from treadle.machine import form
from treadle.machine.form import (
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
)
from treadle.realise.batches import Issued
from treadle.realise.channels import CHUNK, reachable
from treadle.realise.choices import Choices
from treadle.realise.feeding import Feeding, Ring
from treadle.realise.frame import Frame, Got, ends, positions
from treadle.realise.items import Item
from treadle.realise.lanes import Agent, Spot
from treadle.realise.ring import Contraction, Stream, Tile
from treadle.realise.roles import StreamLowering
from treadle.realise.storage import zero
from treadle.realise.threads import lay_out
from treadle.realise.tidy import without_idle

THREADS = 256
"""Threads of a workgroup, where nothing else is decided."""
WHOLE = "whole"
"""Tag of a load of a block, which most often is whole: threads need no mask then."""
PAD = 4
"""Elements between rows of a slot, so that neighbours along the depth lie in different banks."""


def agent(threads: int) -> Agent:
    """The lanes and warps of a workgroup: two warps lie beside one another, the others below.

    Of the 4 x 8 lanes of a warp, the first digit and the last count rows, what is between them columns: neighbouring
    lanes read the same columns, every other lane the same rows. Shared memory gives 16 bytes to the lanes of half a
    warp at once where lanes that differ in one of their two lowest bits read the same place, else to a quarter.
    """
    return Agent(((2, "lane", 2), (3, "lane", 8), (4, "lane", 2), (7, "warp", 2), (8, "warp", threads // 64)))


def across(width: int) -> tuple[Spot, ...]:
    """Columns over 8 lanes and 2 warps, fours of neighbours."""
    spots = (Spot(0, "slot", 4, 1), Spot(3, "lane", 8, 4), Spot(5, "slot", width // 64, 32))
    return tuple(s for s in (*spots, Spot(7, "warp", 2, width // 2)) if s.size > 1)


def down(width: int, threads: int) -> tuple[Spot, ...]:
    """Rows over 4 lanes and the warps below one another, fours of neighbours."""
    warps = threads // 64
    spots = (Spot(1, "slot", 4, 1), Spot(2, "lane", 2, 4), Spot(4, "lane", 2, 8))
    rest = (Spot(6, "slot", width // (16 * warps), 16), Spot(8, "warp", warps, width // warps))
    return tuple(s for s in (*spots, *rest) if s.size > 1)


class BlockedLowering(StreamLowering):
    """The lowering engine for one workgroup a block."""

    from_nothing = False
    guard = Guard()
    residents = 1
    """Workgroups that must fit on a multiprocessor; 0: as the assembler likes, which may spill for more of them."""
    slot_axis: tuple[Expr, ...] = ()
    """Slots of a buffer, where it has several."""

    def __init__(self, program: Program, choices: Choices, uses: Uses, stream: Stream, feeding: Feeding) -> None:
        super().__init__(program, choices, uses, stream, feeding)
        self.threads = feeding.threads
        self.agent = agent(self.threads)
        self.residents = max(self.residents, feeding.resident)

    # ---- resources

    def ring(self, tiles: list[Tile]) -> Ring:
        for tile in tiles:
            if not tile.streamed:
                raise self.refusal(f"{tile.value}, the same in every iteration")
            deep, kept = self.order(tile)
            acc = next(c.op.result.type.dtype for c in self.stream.contractions if tile in (c.left_tile, c.right_tile))
            own = tile.value.type.dtype
            if (
                own.bits > acc.bits
                or own.is_float != acc.is_float
                or (own.is_int and own.bits < acc.bits and not own.signed)
            ):
                raise self.refusal(f"{tile.value} of {own} does not widen to {acc}")
            name = self.parts.fresh(f"{tile.tensor}s")
            shape = (*self.slot_axis, const(self.extent(deep)), const(self.extent(kept) + PAD))
            self.parts.buffers.append(Buffer(name, acc, shape, "shared", 16))
            self.slots_of_tiles[id(tile)] = name
        return Ring(tiles, "", "", "", 1)

    def row_lane(self, frame: Frame) -> None:
        row = self.key(self.stream.rows.part, frame)
        lane = self.new_lane(row, row[1], self.feeding.rows, frame, (row[1] + self.feeding.rows,))
        self.spots[lane.slot] = down(self.feeding.rows, self.threads)

    def column_spots(self, width: int) -> tuple[Spot, ...]:
        if width % 64:
            raise self.refusal(f"{width} columns")
        return across(width)

    # ---- iterations

    def step_lane(self, frame: Frame) -> None:
        """The depth is walked one by one: no fragment lies along it."""

    def filled_once(self, frame: Frame) -> None:
        return

    def emptied(self, frame: Frame) -> None:
        return

    def meet(self) -> Sync:
        """All threads of the workgroup."""
        return Sync(kind="barrier.sync", args=(("id", const(0)), ("threads", const(self.threads))))

    def issue(self, number: int, made: list[Issued], frame: Frame) -> None:
        frame.body.append(self.meet())
        for ring in self.rings:
            for tile in ring.tiles:
                if tile.first == number:
                    self.fill_tile(tile, frame)
        frame.body.append(self.meet())
        self.contract(made, frame)

    @property
    def unroll(self) -> int:
        """Rank-one updates that are scheduled together."""
        return min(16, self.feeding.step)

    def contract(self, made: list[Issued], frame: Frame, start: int = 0, stop: int | None = None) -> None:
        """Rank-one updates out of the slots, one coordinate of the depth after another, from `start` to `stop`."""
        ends = const(start), const(self.feeding.step if stop is None else stop)
        loop = form.Loop(var=self.parts.fresh("d"), lo=ends[0], hi=ends[1], step=const(1), unroll=self.unroll)
        inner = frame.child(loop.body)
        inner.symbols.add(loop.var)
        at = sym(loop.var)
        loop.invariants = tuple(Invariant(m.acc, self.so_far(m.one, m.coords, m.slots, at, frame)) for m in made)
        held: dict[str, str] = {}
        for m in made:
            assert m.one.left_tile is not None
            rows, cols = m.slots
            left = self.factor(m.one.left_tile, m.one.left.name, rows, at, held, inner)
            right = self.factor(m.one.right_tile, m.one.right.name, cols, at, held, inner)
            loop.body.append(
                form.Mma(
                    dst=m.acc,
                    acc=FragRef(m.acc),
                    a=FragRef(left, (sym("$0"),)),
                    b=FragRef(right, (sym("$1"),)),
                    atom="fma" if self.may_fuse(m.one.op) else "muladd",
                    claim=self.so_far(m.one, m.coords, m.slots, at + 1, frame),
                    origin=self.line(m.one.op),
                )
            )
        frame.body.append(loop)

    def accumulator(
        self, item: Item, one: Contraction, coords: tuple[Expr, ...], slots: tuple[str, ...], frame: Frame
    ) -> tuple[str, bool]:
        rows = self.spots[slots[0]] if slots else ()
        if len(slots) != 2 or rows != down(self.feeding.rows, self.threads):
            raise self.refusal("an accumulator with its columns first")
        return super().accumulator(item, one, coords, slots, frame)

    def fill_tile(self, tile: Tile, frame: Frame) -> None:
        """Computes a block by all threads and puts it into its slot."""
        got, place = self.computed(tile, frame)
        name = self.slots_of_tiles[id(tile)]
        deep, kept = self.order(tile)
        version = form.Version(buffer=name, fill=zero(got.dtype), claim=self.block_claim(tile, deep, kept, frame))
        frame.body.append(version)
        frame.body.append(self.stored_block(tile, got, place, (), frame))

    def order(self, tile: Tile) -> tuple[Part, Part]:
        """The axes of a slot: the depth first."""
        return (tile.outer, tile.inner) if tile.outer == self.stream.step else (tile.inner, tile.outer)

    def computed(self, tile: Tile, frame: Frame) -> tuple[Got, Frame]:
        """The elements of a block in the registers of all threads, neighbours along the tensor's rows; and the frame
        whose lanes say where."""
        outer, inner = self.extent(tile.outer), self.extent(tile.inner)
        each = self.neighbours(tile)
        # What lies along the depth is stored across it: few lanes along it, or they would meet in the same banks.
        few = 32 if self.order(tile)[0] == tile.outer else max(1, 8 // each, self.threads // outer)
        lanes = min(few, inner // each)
        rest, warps = 32 // max(lanes, 1), self.threads // 32
        rounds, sweeps = max(1, inner // (lanes * each)), outer // (rest * warps)
        if inner % (lanes * each) or outer % (rest * warps) or lanes & (lanes - 1):
            raise self.refusal(f"a block of {outer} x {inner} of {tile.value}")
        along = (Spot(0, "slot", each, 1), Spot(1, "lane", lanes, each), Spot(2, "slot", rounds, lanes * each))
        down_spots = (Spot(3, "lane", rest, 1), Spot(4, "warp", warps, rest), Spot(5, "slot", sweeps, rest * warps))
        digits = ((1, "lane", lanes), (3, "lane", rest), (4, "warp", warps))
        before, self.agent = self.agent, Agent(tuple(d for d in digits if d[2] > 1))
        place = frame.child(frame.body)
        place.lanes = tuple(x for x in frame.lanes if x.part[0] not in (tile.outer.dim, tile.inner.dim))
        for part, size, spots in ((tile.outer, outer, down_spots), (tile.inner, inner, along)):
            key = self.span(part, frame)
            plain = self.key(part, frame)
            lane = self.new_lane((key[0], plain[1], plain[2]), key[1], size, place, (key[1] + size,))
            self.spots[lane.slot] = tuple(s for s in spots if s.size > 1)
        value = tile.value
        coords = self.coords(value.type.axes, place)
        slots = self.slots_of(coords, place)
        dtype = next(b.dtype for b in self.parts.buffers if b.name == self.slots_of_tiles[id(tile)])
        first = len(frame.body)
        got = self.padded(tile, coords, slots, place)
        for made in frame.body[first:]:
            if isinstance(made, form.Load) and made.where:
                made.tags = (*made.tags, WHOLE)
        if got.dtype != dtype:
            got = self.compute(value, coords, "cast", [got], place, slots=slots, dtype=dtype)
        self.agent = before
        return got, place

    def neighbours(self, tile: Tile) -> int:
        """Neighbours that a thread loads at once: a chunk where the guard says that rows are whole chunks."""
        lies = lying(self.uses, tile)
        if lies is None:
            return 1
        tensor, axis = lies
        count = CHUNK // tensor.dtype.itemsize
        whole = any(
            isinstance(f, Divisible) and f.expr == tensor.dims[axis].extent and f.by % count == 0
            for f in self.guard.facts
        )
        unit = any(isinstance(f, Unit) and f.tensor == tensor.name and f.axis == axis for f in self.guard.facts)
        if not (unit and whole and reachable(self.guard, tensor, {axis}, count)):
            return 1
        elements = self.extent(tile.outer) * self.extent(tile.inner)
        while count > 1 and elements < count * self.threads:  # a small block: fewer neighbours for each of the threads
            count //= 2
        return count

    def stored_block(self, tile: Tile, got: Got, place: Frame, slot: tuple[Expr, ...], frame: Frame) -> form.Store:
        """The store of a block's elements into its slot."""
        coords = self.coords(tile.value.type.axes, place)
        slots = self.slots_of(coords, place)
        at = {p.dim: c for p, c in zip(tile.value.type.axes, coords, strict=True)}
        index = [at[part.dim] - self.span(part, frame)[1] for part in self.order(tile)]
        names = positions(slots)
        return form.Store(
            dst=MemRef(self.slots_of_tiles[id(tile)], (*slot, *(i.substitute(names) for i in index))),
            src=FragRef(got.name),
            claim=self.claim(tile.value, coords, slots, place.live(slots)),
        )

    def padded(self, tile: Tile, coords: tuple[Expr, ...], slots: tuple[str, ...], frame: Frame) -> Got:
        """The block's elements, zero where there are none."""
        value = tile.value
        live = frame.live(slots)
        fill = zero(value.type.dtype)
        got = self.solid(self.fetch(value, coords, frame, fill), value, coords, frame, slots)
        if live and tile_load(self.uses, tile) is None:
            got = self.compute(value, coords, "copy", [got], frame, slots=slots, where=live, fill=fill, dtype=got.dtype)
        return got

    def block_claim(self, tile: Tile, deep: Part, kept: Part, frame: Frame) -> Claim:
        """What a slot holds: depth first."""
        coords: dict[object, Expr] = {}
        where: list[Constraint] = []
        for number, part in enumerate((deep, kept)):
            key = self.span(part, frame)
            coord = key[1] + sym(f"${number}")
            coords[key[0]] = coord
            size = self.extent(part)
            ends_here = [c for c in self.ends_in(key[2], coord) if c != lt(coord, key[1] + size)]
            where += ends_here
            if number:
                where.append(lt(coord, key[1] + size))
        return Claim(tile.value.name, tuple(coords[d] for d in tile.value.type.dims), tuple(where))

    def ends_in(self, hi: Expr, coord: Expr) -> list[Constraint]:
        """`coord < hi`, one by one."""
        return [lt(coord, e) for e in ends(hi)]

    def factor(self, tile: Tile, value: str, slot: str, at: Expr, held: dict[str, str], frame: Frame) -> str:
        """A row or column of a slot at depth `at`, in the distribution of the accumulator."""
        name = self.slots_of_tiles[id(tile)]
        if name in held:
            return held[name]
        lane = next(x for x in frame.lanes if x.slot == slot)
        buffer = next(b for b in self.parts.buffers if b.name == name)
        dst = self.fragment(value, buffer.dtype, (slot,), frame)
        dims = {lane.part[0]: lane.coord, self.stream.step.dim: self.span(self.stream.step, frame)[1] + at}
        names = {slot: sym("$0")}
        coords = tuple(dims[d].substitute(names) for d in tile.value.type.dims)
        deep = [lt(dims[self.stream.step.dim], e) for e in ends(self.span(self.stream.step, frame)[2])]
        known = lt(dims[self.stream.step.dim], self.span(self.stream.step, frame)[1] + self.feeding.step)
        where = (*(c.substitute(names) for c in lane.live), *(c for c in deep if c != known))
        frame.body.append(
            form.Load(
                dst=dst,
                src=MemRef(name, (*self.slot(frame), at, (lane.coord - lane.part[1]).substitute(names))),
                claim=Claim(tile.value.name, coords, where),
            )
        )
        held[name] = dst
        return dst

    def slot(self, frame: Frame) -> tuple[Expr, ...]:
        """The slot that an iteration contracts."""
        return ()

    # ---- what follows

    def lower_tail(self, items: list[Item], frame: Frame) -> None:
        for number, item in enumerate(items):
            self.lower_group([item], {n for other in items[number + 1 :] for n in other.reads}, frame)


def tile_load(uses: Uses, tile: Tile) -> object | None:
    """The load that a tile is, when nothing is computed on the way."""
    op = uses.definition.get(tile.value.name)
    return op if type(op).__name__ == "Load" else None


def lying(uses: Uses, tile: Tile) -> tuple[Tensor, int] | None:
    """The tensor that a tile is loaded from, converted at most, and which of its axes lies along the tile's rows; None
    where it is something else, or of parts of bytes."""
    op = uses.definition.get(tile.value.name)
    while isinstance(op, Cast):
        op = uses.definition.get(op.source.name)
    if not isinstance(op, Load) or op.tensor.dtype.bits % 8:
        return None
    axes = [i for i, sub in enumerate(op.subs) if isinstance(sub, Sub) and sub.part == tile.inner]
    return (op.tensor, axes[0]) if len(axes) == 1 else None


def blocked(
    program: Program,
    choices: Choices,
    guard: Guard,
    target: str,
    stream: Stream,
    feeding: Feeding,
    engine: type[BlockedLowering] = BlockedLowering,
) -> MachineProgram:
    """The machine program of blocks in shared memory: one role, all threads one agent.

    *Errors*: `realise/unsupported`.
    """
    low = engine(program, choices, Uses(program), stream, feeding)
    low.guard = guard
    top = Frame([], block=program.body)
    low.lower_block(program.body, top)
    if any(not isinstance(s, form.Tasks) for s in top.body) or low.tasks is None:
        raise low.refusal("statements outside the tasks")
    role = Role("worker", 1, feeding.threads, top.body)
    kernel = Kernel("main", [role], low.parts.frags, low.parts.buffers)
    without_idle(kernel)
    shared = lay_out(kernel)
    total = prod(low.tasks.counts, start=const(1))
    grid = maximum(1, minimum(feeding.workgroups, total))
    launch = Launch("main", grid=grid, threads=feeding.threads, shared_bytes=shared, resident=low.residents)
    return MachineProgram(target, program, guard, Host(dict(program.lets), [], [], [launch]), [kernel], low.ledger())
