"""Contractions by ordinary multiply-add: blocks of operands in shared memory, an accumulator over all threads.

The same form of program as for engines and tensor cores, with other ideas of three things: all threads of a workgroup
are one agent, an iteration fills its slots itself (any values, converted on the way), and a contraction is a loop of
rank-one updates out of shared memory.
"""

from __future__ import annotations

from treadle.algebra.dims import Part
from treadle.algebra.expr import Constraint, Expr, const, lt, maximum, minimum, sym
from treadle.analysis.uses import Uses
from treadle.ir.core import Program
from treadle.ir.guard import Guard
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
BLOCK = Agent(((2, "lane", 8), (3, "lane", 4), (6, "warp", 2), (7, "warp", 4)))
PAD = 4
"""Elements between rows of a slot, so that neighbours along the depth lie in different banks."""


def across(width: int) -> tuple[Spot, ...]:
    """Columns over 8 lanes and 2 warps, fours of neighbours."""
    spots = (Spot(0, "slot", 4, 1), Spot(2, "lane", 8, 4), Spot(4, "slot", width // 64, 32))
    return tuple(s for s in (*spots, Spot(6, "warp", 2, width // 2)) if s.size > 1)


def down(width: int) -> tuple[Spot, ...]:
    """Rows over 4 lanes and 4 warps, fours of neighbours."""
    spots = (Spot(1, "slot", 4, 1), Spot(3, "lane", 4, 4), Spot(5, "slot", width // 64, 16))
    return tuple(s for s in (*spots, Spot(7, "warp", 4, width // 4)) if s.size > 1)


class BlockedLowering(StreamLowering):
    """The lowering engine for one workgroup a block."""

    from_nothing = False

    def __init__(self, program: Program, choices: Choices, uses: Uses, stream: Stream, feeding: Feeding) -> None:
        super().__init__(program, choices, uses, stream, feeding)
        self.agent = BLOCK

    # ---- resources

    def ring(self, tiles: list[Tile]) -> Ring:
        for tile in tiles:
            if not tile.streamed:
                raise self.refusal(f"{tile.value}, the same in every iteration")
            deep = tile.outer if tile.outer == self.stream.step else tile.inner
            kept = tile.inner if deep is tile.outer else tile.outer
            acc = next(c.op.result.type.dtype for c in self.stream.contractions if tile in (c.left_tile, c.right_tile))
            own = tile.value.type.dtype
            if (
                own.bits > acc.bits
                or own.is_float != acc.is_float
                or (own.is_int and own.bits < acc.bits and not own.signed)
            ):
                raise self.refusal(f"{tile.value} of {own} does not widen to {acc}")
            name = self.parts.fresh(f"{tile.tensor}s")
            shape = (const(self.extent(deep)), const(self.extent(kept) + PAD))
            self.parts.buffers.append(Buffer(name, acc, shape, "shared", 16))
            self.slots_of_tiles[id(tile)] = name
        return Ring(tiles, "", "", "", 1)

    def row_lane(self, frame: Frame) -> None:
        row = self.key(self.stream.rows.part, frame)
        lane = self.new_lane(row, row[1], self.feeding.rows, frame, (row[1] + self.feeding.rows,))
        self.spots[lane.slot] = down(self.feeding.rows)

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
        return Sync(kind="barrier.sync", args=(("id", const(0)), ("threads", const(THREADS))))

    def issue(self, number: int, made: list[Issued], frame: Frame) -> None:
        frame.body.append(self.meet())
        for ring in self.rings:
            for tile in ring.tiles:
                if tile.first == number:
                    self.fill_tile(tile, frame)
        frame.body.append(self.meet())
        depth = self.feeding.step
        loop = form.Loop(var=self.parts.fresh("d"), lo=const(0), hi=const(depth), step=const(1), unroll=4)
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
        if len(slots) != 2 or rows != down(self.feeding.rows):
            raise self.refusal("an accumulator with its columns first")
        return super().accumulator(item, one, coords, slots, frame)

    def fill_tile(self, tile: Tile, frame: Frame) -> None:
        """Computes a block by all threads and puts it into its slot."""
        outer, inner = self.extent(tile.outer), self.extent(tile.inner)
        lanes = min(32, inner)
        rest, warps = 32 // lanes, 8
        rounds, sweeps = max(1, inner // lanes), outer // (rest * warps)
        if inner % lanes or outer % (rest * warps) or lanes & (lanes - 1):
            raise self.refusal(f"a block of {outer} x {inner} of {tile.value}")
        along = (Spot(0, "lane", lanes, 1), Spot(1, "slot", rounds, lanes))
        down_spots = (Spot(2, "lane", rest, 1), Spot(3, "warp", warps, rest), Spot(4, "slot", sweeps, rest * warps))
        digits = ((0, "lane", lanes), (2, "lane", rest), (3, "warp", warps))
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
        name = self.slots_of_tiles[id(tile)]
        dtype = next(b.dtype for b in self.parts.buffers if b.name == name)
        got = self.padded(tile, coords, slots, place)
        if got.dtype != dtype:
            got = self.compute(value, coords, "cast", [got], place, slots=slots, dtype=dtype)
        names = positions(slots)
        at = {p.dim: c for p, c in zip(value.type.axes, coords, strict=True)}
        deep = tile.outer if tile.outer == self.stream.step else tile.inner
        kept = tile.inner if deep is tile.outer else tile.outer
        index = (at[deep.dim] - self.span(deep, frame)[1], at[kept.dim] - self.span(kept, frame)[1])
        frame.body.append(form.Version(buffer=name, fill=zero(dtype), claim=self.block_claim(tile, deep, kept, frame)))
        frame.body.append(
            form.Store(
                dst=MemRef(name, tuple(i.substitute(names) for i in index)),
                src=FragRef(got.name),
                claim=self.claim(value, coords, slots, place.live(slots)),
            )
        )
        self.agent = before

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
                src=MemRef(name, (at, (lane.coord - lane.part[1]).substitute(names))),
                claim=Claim(tile.value.name, coords, where),
            )
        )
        held[name] = dst
        return dst

    # ---- what follows

    def lower_tail(self, items: list[Item], frame: Frame) -> None:
        for number, item in enumerate(items):
            self.lower_group([item], {n for other in items[number + 1 :] for n in other.reads}, frame)


def tile_load(uses: Uses, tile: Tile) -> object | None:
    """The load that a tile is, when nothing is computed on the way."""
    op = uses.definition.get(tile.value.name)
    return op if type(op).__name__ == "Load" else None


def blocked(
    program: Program, choices: Choices, guard: Guard, target: str, stream: Stream, feeding: Feeding
) -> MachineProgram:
    """The machine program of blocks in shared memory: one role, all threads one agent.

    *Errors*: `realise/unsupported`.
    """
    low = BlockedLowering(program, choices, Uses(program), stream, feeding)
    top = Frame([], block=program.body)
    low.lower_block(program.body, top)
    if any(not isinstance(s, form.Tasks) for s in top.body) or low.tasks is None:
        raise low.refusal("statements outside the tasks")
    role = Role("worker", 1, THREADS, top.body)
    kernel = Kernel("main", [role], low.parts.frags, low.parts.buffers)
    without_idle(kernel)
    shared = lay_out(kernel)
    total = const(1)
    for count in low.tasks.counts:
        total = total * count
    grid = maximum(1, minimum(feeding.workgroups, total))
    launch = Launch("main", grid=grid, threads=THREADS, shared_bytes=shared)
    return MachineProgram(target, program, guard, Host(dict(program.lets), [], [], [launch]), [kernel], low.ledger())
