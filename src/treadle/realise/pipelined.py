"""Contractions by multiply-add whose next block is in registers while one is contracted.

Threads ask for the elements of a block an iteration ahead, contract half of what is in one slot of shared memory, put
what has come meanwhile into the other one, contract the other half, and meet once. Values may be converted and computed
on the way as in `blocked`.
"""

from __future__ import annotations

from treadle.algebra.expr import Expr, const
from treadle.analysis.uses import Uses
from treadle.ir.core import Program
from treadle.machine import form
from treadle.realise.batches import Issued
from treadle.realise.choices import Choices
from treadle.realise.feeding import Feeding
from treadle.realise.frame import Frame, Got
from treadle.realise.ring import Stream, Tile
from treadle.realise.slotted import SlottedLowering
from treadle.realise.storage import zero


class PipelinedLowering(SlottedLowering):
    """The lowering engine for one workgroup a block, whose threads hold the next block."""

    def __init__(self, program: Program, choices: Choices, uses: Uses, stream: Stream, feeding: Feeding) -> None:
        self.slot_axis = (const(feeding.versions),)
        super().__init__(program, choices, uses, stream, feeding)

    def block_frame(self, at: Expr, frame: Frame) -> Frame:
        """A frame in which the ordered region's block is the one that begins at `at`."""
        inner = frame.child(frame.body)
        if self.stream.block is not None:
            assert self.stream.loop is not None
            self.bind_arg(self.stream.loop, self.stream.block, None, at, inner)
        return inner

    def asked(self, at: Expr, frame: Frame) -> list[tuple[Tile, Got, Frame]]:
        """All operands of the block that begins at `at`, in registers."""
        inner = self.block_frame(at, frame)
        before, self.block = self.block, at if self.stream.block is None else self.block
        found = [(tile, *self.computed(tile, inner)) for tile in self.stream.tiles]
        self.block = before
        return found

    def kept(self, asked: list[tuple[Tile, Got, Frame]], at: Expr, slot: Expr, frame: Frame) -> None:
        """Puts operands into a slot."""
        inner = self.block_frame(at, frame)
        before, self.block = self.block, at if self.stream.block is None else self.block
        for tile, got, place in asked:
            name = self.slots_of_tiles[id(tile)]
            claim = self.brought(tile, at, frame, own=True)
            frame.body.append(form.Version(buffer=name, fill=zero(got.dtype), claim=claim))
            frame.body.append(self.stored_block(tile, got, place, (slot,), inner))
        self.block = before

    def filled_once(self, frame: Frame) -> None:
        """The first block, in the first slot."""
        self.first, _ = self.range_of(frame)
        self.kept(self.asked(self.first, frame), self.first, const(0), frame)
        frame.body.append(self.meet())

    @property
    def unroll(self) -> int:
        # A half at a time: at each loop's head threads wait for what they multiply first.
        return min(16, self.feeding.step // 2)

    def slot(self, frame: Frame) -> tuple[Expr, ...]:
        return (self.block_at(frame)[1] % self.feeding.versions,)

    def issue(self, number: int, made: list[Issued], frame: Frame) -> None:
        self.promised = self.held(frame)
        at, block = self.block_at(frame)
        following = at + self.feeding.step
        asked = self.asked(following, frame)
        # Stores between two halves of the products: behind all of them every thread would wait for all others'.
        half = self.feeding.step // 2
        self.contract(made, frame, 0, half)
        self.kept(asked, following, (block + 1) % self.feeding.versions, frame)
        self.contract(made, frame, half)
        frame.body.append(self.meet())
