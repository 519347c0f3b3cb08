"""Contractions by warps out of a ring that all threads copy into ahead: any GPU with asynchronous copies of threads.

One workgroup is one agent. An iteration waits for its own block, meets, starts the copies of a block that is several
iterations ahead into the slot that everybody has just left, and contracts. Slots are an axis of the buffer; the first
blocks are brought before the loop, and blocks beyond the last one are zeros that nobody reads.
"""

from __future__ import annotations

from treadle.algebra.dims import Part
from treadle.algebra.expr import Constraint, Expr, const, lt, sym
from treadle.analysis.uses import Uses
from treadle.dtype.formats import f32, f64
from treadle.hardware.layouts import WARP_ATOMS
from treadle.ir.core import Program, Sub
from treadle.ir.guard import Guard
from treadle.machine import form
from treadle.machine.form import (
    Buffer,
    Claim,
    FragRef,
    Invariant,
    MachineProgram,
    MemRef,
    Sync,
)
from treadle.realise.batches import Issued
from treadle.realise.blocked import BlockedLowering, blocked
from treadle.realise.choices import Choices
from treadle.realise.feeding import Feeding, Ring
from treadle.realise.frame import Frame, ends
from treadle.realise.items import Item
from treadle.realise.lanes import Agent, Spot
from treadle.realise.ring import Contraction, Stream, Tile
from treadle.realise.slotted import SlottedLowering

WARPS = Agent(((3, "lane", 4), (4, "lane", 8), (5, "warp", 2), (6, "warp", 4)))
"""Two warps down the rows, four across the columns."""
CHUNK = 16
"""Bytes of one copy, and of the gap between rows of a slot, which puts eight of them on different banks."""


def down(width: int) -> tuple[Spot, ...]:
    """Rows of accumulators and left operands."""
    spots = (Spot(1, "slot", 2, 8), Spot(4, "lane", 8, 1), Spot(8, "slot", width // 32, 16))
    return tuple(s for s in (*spots, Spot(5, "warp", 2, width // 2)) if s.size > 1)


def across(width: int) -> tuple[Spot, ...]:
    """Columns of accumulators."""
    spots = (Spot(0, "slot", 2, 1), Spot(2, "slot", width // 32, 8), Spot(3, "lane", 4, 2))
    return tuple(s for s in (*spots, Spot(6, "warp", 4, width // 4)) if s.size > 1)


def right(width: int) -> tuple[Spot, ...]:
    """Columns of right operands."""
    spots = (Spot(4, "lane", 8, 1), Spot(8, "slot", width // 32, 8), Spot(6, "warp", 4, width // 4))
    return tuple(s for s in spots if s.size > 1)


def deep(pair: int, left: bool) -> tuple[Spot, ...]:
    """The depth of an operand: `pair` neighbours, four lanes, and the second half."""
    spots = (Spot(0, "slot", pair, 1), Spot(2 if left else 1, "slot", 2, 4 * pair), Spot(3, "lane", 4, pair))
    return tuple(s for s in spots if s.size > 1)


def atom_for(one: Contraction) -> str | None:
    """The instruction of warps for a contraction's formats."""
    formats = {one.left.type.dtype.name, one.right.type.dtype.name}
    if formats == {"f64"} and one.op.result.type.dtype == f64:
        return "mma.sync.m16n8k8.f64"
    if one.op.result.type.dtype != f32 or len(formats) != 1:
        return None
    return {"bf16": "mma.sync.m16n8k16.bf16", "f16": "mma.sync.m16n8k16.bf16", "f32": "mma.sync.m16n8k8.tf32"}.get(
        formats.pop()
    )


class WarpLowering(SlottedLowering):
    """The lowering engine for one workgroup a block, whose warps contract."""

    def __init__(self, program: Program, choices: Choices, uses: Uses, stream: Stream, feeding: Feeding) -> None:
        super().__init__(program, choices, uses, stream, feeding)
        self.agent = WARPS
        self.residents = feeding.resident if feeding.resident > 1 or len(stream.contractions) > 1 else 0
        for one in stream.contractions:
            if atom_for(one) is None or one.left_tile is None or one.cols == stream.step:
                raise self.refusal(f"{one.op.result} of {one.left.type.dtype}, or of a value in registers")

    # ---- resources

    def ring(self, tiles: list[Tile]) -> Ring:
        for tile in tiles:
            dtype = tile.value.type.dtype
            if not tile.streamed or tile.load is None or tile.shifted:
                raise self.refusal(f"{tile.value}, the same in every iteration, computed or shifted")
            count = 8 * CHUNK // dtype.bits
            outer, inner = self.extent(tile.outer), self.extent(tile.inner)
            if inner % count:
                raise self.refusal(f"a block of {outer} x {inner} of {tile.value}")
            name = self.parts.fresh(f"{tile.tensor}s")
            shape = (const(self.feeding.versions), const(outer), const(inner + count))
            self.parts.buffers.append(Buffer(name, dtype, shape, "shared", CHUNK))
            self.slots_of_tiles[id(tile)] = name
        return Ring(tiles, "", "", "", self.feeding.versions)

    def row_lane(self, frame: Frame) -> None:
        row = self.key(self.stream.rows.part, frame)
        lane = self.new_lane(row, row[1], self.feeding.rows, frame, (row[1] + self.feeding.rows,))
        self.spots[lane.slot] = down(self.feeding.rows)

    def column_spots(self, width: int) -> tuple[Spot, ...]:
        if width % 32:
            raise self.refusal(f"{width} columns")
        return across(width)

    def accumulator(
        self, item: Item, one: Contraction, coords: tuple[Expr, ...], slots: tuple[str, ...], frame: Frame
    ) -> tuple[str, bool]:
        rows = self.spots[slots[0]] if slots else ()
        if len(slots) != 2 or rows != down(self.feeding.rows):
            raise self.refusal("an accumulator with its columns first")
        return super(BlockedLowering, self).accumulator(item, one, coords, slots, frame)

    # ---- blocks on their way

    def order(self, tile: Tile) -> tuple[Part, Part]:
        """The axes of a slot: as they lie in the tensor."""
        return tile.outer, tile.inner

    def filled_once(self, frame: Frame) -> None:
        """The first blocks, one group each."""
        self.first, _ = self.range_of(frame)
        for number in range(self.ahead):
            for tile in self.stream.tiles:
                self.bring(tile, self.first + number * self.feeding.step, const(number), frame)
            frame.body.append(Sync(kind="cpasync.commit"))

    def emptied(self, frame: Frame) -> None:
        """The slots are the next task's."""
        frame.body.append(Sync(kind="cpasync.wait", args=(("depth", const(0)),)))
        frame.body.append(self.meet())

    def bring(self, tile: Tile, at: Expr, slot: Expr, frame: Frame) -> None:
        """Starts the copy of the block that begins at `at`."""
        name = self.slots_of_tiles[id(tile)]
        cut: list[Constraint] = []
        start: list[Expr] = []
        for number, (part, axis) in enumerate(zip((tile.outer, tile.inner), tile.axes, strict=True)):
            lo, hi = self.bounds(part, at, frame)
            extent = tile.source.tensor.dims[axis].extent
            cut += [lt(lo + sym(f"${number}"), e) for e in ends(hi) if e not in (lo + self.extent(part), extent)]
            start.append(self.index(tile.offsets[number], frame) + lo + sym(f"${number}"))
        frame.body.append(form.Version(buffer=name, fill=0, claim=self.brought(tile, at, frame)))
        index: list[Expr] = []
        for axis, sub in enumerate(tile.source.subs):
            if axis in tile.axes:
                index.append(start[tile.axes.index(axis)])
            else:
                assert isinstance(sub, Sub) and sub.index is not None
                index.append(self.index(sub.index, frame))
        frame.body.append(
            form.Copy(
                engine="cp.async",
                dst=MemRef(name, (slot, sym("$0"), sym("$1"))),
                src=MemRef(tile.tensor, tuple(index)),
                box=(self.extent(tile.outer), self.extent(tile.inner)),
                where=tuple(cut),
                origin=self.line(tile.source),
            )
        )

    # ---- iterations

    def issue(self, number: int, made: list[Issued], frame: Frame) -> None:
        self.promised = self.held(frame)
        at, block = self.block_at(frame)
        slots = self.feeding.versions
        frame.body.append(Sync(kind="cpasync.wait", args=(("depth", const(self.ahead - 1)),)))
        frame.body.append(self.meet())
        atom = atom_for(made[0].one)
        assert atom is not None
        each = 8 * WARP_ATOMS[atom]
        if self.feeding.step % each:
            raise self.refusal(f"blocks of {self.feeding.step} by instructions of {each}")
        count = self.feeding.step // each
        # The tensor cores have work while threads start the next copies.
        self.instruct(made, const(0), each, atom, frame)
        for tile in self.stream.tiles:
            self.bring(tile, at + self.ahead * self.feeding.step, (block + self.ahead) % slots, frame)
        frame.body.append(Sync(kind="cpasync.commit"))
        if count == 1:
            return
        loop = form.Loop(var=self.parts.fresh("f"), lo=const(1), hi=const(count), step=const(1), unroll=count - 1)
        inner = frame.child(loop.body)
        inner.symbols.add(loop.var)
        done = each * sym(loop.var)
        loop.invariants = tuple(Invariant(m.acc, self.so_far(m.one, m.coords, m.slots, done, frame)) for m in made)
        self.instruct(made, done, each, atom, inner)
        frame.body.append(loop)

    def instruct(self, made: list[Issued], done: Expr, each: int, atom: str, frame: Frame) -> None:
        """The instructions of all contractions at `done` of the block's depth."""
        held: dict[tuple[int, str], str] = {}
        for m in made:
            one = m.one
            assert one.left_tile is not None
            left = self.registers_of(one.left_tile, one.rows, m.slots[0], done, each, True, held, frame)
            other = self.registers_of(one.right_tile, one.cols, m.slots[1], done, each, False, held, frame)
            frame.body.append(
                form.Mma(
                    dst=m.acc,
                    acc=FragRef(m.acc),
                    a=FragRef(left, (sym("$0"), sym("$2"))),
                    b=FragRef(other, (sym("$1"), sym("$2"))),
                    atom=atom,
                    contracted=(each,),
                    claim=self.so_far(one, m.coords, m.slots, done + each, frame),
                    origin=self.line(one.op),
                )
            )

    def registers_of(
        self,
        tile: Tile,
        part: Part,
        slot: str,
        done: Expr,
        each: int,
        left: bool,
        held: dict[tuple[int, str], str],
        frame: Frame,
    ) -> str:
        """What an instruction takes of a slot, in its registers: along `part` and the next `each` of the depth."""
        if (id(tile), slot) in held:
            return held[id(tile), slot]
        lane = next(x for x in frame.lanes if x.slot == slot)
        pair = each // 8
        kept = down(lane.width) if left else right(lane.width)
        name = self.shaped(tile.tensor.lower(), tile.value.type.dtype, (lane.width, each), (kept, deep(pair, left)))
        at, number = self.block_at(frame)
        place = {part: sym("$0"), self.stream.step: done + sym("$1")}
        coords = {part.dim: lane.base + sym("$0"), self.stream.step.dim: at + done + sym("$1")}
        stop = self.range_of(frame)[1]
        where = [c.substitute({slot: sym("$0")}) for c in lane.live]
        where += [lt(coords[self.stream.step.dim], e) for e in ends(stop) if e != at + self.feeding.step]
        index = (number % self.feeding.versions, place[tile.outer], place[tile.inner])
        frame.body.append(
            form.Load(
                dst=name,
                src=MemRef(self.slots_of_tiles[id(tile)], index),
                claim=Claim(tile.value.name, tuple(coords[d] for d in tile.value.type.dims), tuple(where)),
            )
        )
        held[id(tile), slot] = name
        return name


def warped(
    program: Program, choices: Choices, guard: Guard, target: str, stream: Stream, feeding: Feeding
) -> MachineProgram:
    """The machine program of blocks contracted by warps: one role, all threads one agent.

    *Errors*: `realise/unsupported`.
    """
    return blocked(program, choices, guard, target, stream, feeding, WarpLowering)
