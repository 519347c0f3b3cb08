"""Blocks on their way: slots as an axis of a buffer, filled some iterations ahead by the threads that contract.

What contractions by one agent share that keep the next blocks of their operands in shared memory, or on the way there,
however they get there. The first blocks are brought before the loop; blocks beyond the last one are zeros that nobody
reads.
"""

from __future__ import annotations

from treadle.algebra.dims import Dim, Part
from treadle.algebra.expr import Constraint, Expr, const, lt, sym
from treadle.analysis.uses import Uses
from treadle.ir.core import Program, Region
from treadle.machine import form
from treadle.machine.form import Claim, Invariant
from treadle.realise.blocked import BlockedLowering
from treadle.realise.choices import Choices
from treadle.realise.feeding import Feeding
from treadle.realise.frame import Frame, ends
from treadle.realise.items import Item
from treadle.realise.ring import Stream, Tile


class SlottedLowering(BlockedLowering):
    """The lowering engine for one workgroup a block, whose slots are filled ahead."""

    def __init__(self, program: Program, choices: Choices, uses: Uses, stream: Stream, feeding: Feeding) -> None:
        super().__init__(program, choices, uses, stream, feeding)
        self.first: Expr = const(0)
        self.promised: tuple[Invariant, ...] = ()
        if len(stream.batches) != 1 or stream.walked or (stream.loop is not None and len(stream.loop.args) != 1):
            raise self.refusal("several batches an iteration, or several ordered dimensions")

    @property
    def ahead(self) -> int:
        """How many blocks are on their way when one is contracted."""
        return self.feeding.versions - 1

    def range_of(self, frame: Frame) -> tuple[Expr, Expr]:
        """Where blocks begin and end along the dimension that is gone through."""
        if self.stream.block is None:
            _, lo, hi = self.key(self.stream.step, frame)
            return lo, hi
        domain = self.stream.block.domain
        return self.index(domain.lo, frame), self.index(domain.hi, frame)

    def bounds(self, part: Part, at: Expr, frame: Frame) -> tuple[Expr, Expr]:
        """The part of a block: along the dimension gone through from `at` on."""
        if part == self.stream.step:
            return at, self.range_of(frame)[1]
        _, lo, hi = self.span(part, frame)
        return lo, hi

    def block_at(self, frame: Frame) -> tuple[Expr, Expr]:
        """Where an iteration's block begins, and its number."""
        at = self.span(self.stream.step, frame)[1]
        return at, (at - self.first) // self.feeding.step

    def brought(self, tile: Tile, at: Expr, frame: Frame, *, own: bool = False) -> Claim:
        """What a slot holds of the block that begins at `at`; `at` may hang on the slot, `$0`. `own`: the slot's places
        between rows are none of it."""
        coords: dict[Dim, Expr] = {}
        where: list[Constraint] = []
        for number, part in enumerate(self.order(tile)):
            lo, hi = self.bounds(part, at, frame)
            coords[part.dim] = lo + sym(f"${number + 1}")
            where += [lt(coords[part.dim], e) for e in ends(hi) if e != lo + self.extent(part)]
            if own and number:
                where.append(lt(sym(f"${number + 1}"), self.extent(part)))
        return Claim(tile.value.name, tuple(coords[d] for d in tile.value.type.dims), tuple(where))

    def held(self, frame: Frame) -> tuple[Invariant, ...]:
        """At the head of an iteration the next blocks are in their slots, or on their way."""
        found: list[Invariant] = []
        at, number = self.block_at(frame)
        later = (sym("$0") - number) % self.feeding.versions
        for tile in self.stream.tiles:
            claim = self.brought(tile, at + self.feeding.step * later, frame)
            # Without the gaps between rows.
            filled = (lt(later, self.ahead), lt(sym("$2"), self.extent(self.order(tile)[1])))
            found.append(Invariant(self.slots_of_tiles[id(tile)], claim, 0, filled))
        return tuple(found)

    def lower_ordered(self, op: Region, frame: Frame) -> None:
        before = len(frame.body)
        super().lower_ordered(op, frame)
        self.promise(frame, before)

    def batch(self, items: list[Item], frame: Frame) -> None:
        before = len(frame.body)
        super().batch(items, frame)
        if self.stream.loop is None:
            self.promise(frame, before)

    def promise(self, frame: Frame, before: int) -> None:
        """Gives the loop over blocks its invariants about slots."""
        loop = next(s for s in frame.body[before:] if isinstance(s, form.Loop))
        loop.invariants = (*loop.invariants, *self.promised)
