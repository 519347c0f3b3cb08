"""Matrix units: accumulators and operands that live in tiles of the processor instead of vector registers.

Tiles move only whole rows between memory and the unit: accumulators are loaded from and stored to buffers with whole
tiles, operands come from packed buffers whose padding is zero. The operand with the lanes holds groups of `GROUP`
contracted coordinates side by side, so its fragment has the axes (group, lane, place in the group).
"""

from __future__ import annotations

from treadle.algebra.expr import Expr, const, sym
from treadle.dtype.formats import DType
from treadle.ir.core import Op, Value
from treadle.ir.ops.elementwise import Full
from treadle.ir.ops.fold import Mma
from treadle.machine import form
from treadle.machine.form import Claim, FragRef, MemRef
from treadle.realise.choices import LoweringBroken
from treadle.realise.frame import Frame, Kept, Lane, positions
from treadle.realise.storage import Storage, wide

GROUP = 2
"""Contracted 16-bit elements that lie side by side for one lane."""


class Matrix(Storage):
    """The lowering engine: contractions in tiles."""

    tile_names: dict[tuple[str, DType, tuple[int, ...]], str]

    def in_tiles(self, op: Op) -> bool:
        """Whether a contraction is done by a matrix unit."""
        return isinstance(op, Mma) and self.choices.atoms.get(op.result.name, "fma").startswith("amx")

    def tile(self, use: str, dtype: DType, shape: tuple[int, ...]) -> str:
        """The tiles for one use: contractions follow one another, so they share them (the processor has eight)."""
        key = (use, dtype, shape)
        if key not in self.tile_names:
            self.tile_names[key] = self.parts.fragment(use, dtype, shape, "tile")
        return self.tile_names[key]

    def tile_start(self, op: Mma, coords: tuple[Expr, ...], slots: tuple[str, ...], claim: Claim, frame: Frame) -> str:
        """A tile accumulator with the initial value of a contraction: zeros, or a block of a buffer."""
        dtype = op.result.type.dtype
        name = self.tile("acc", dtype, tuple(frame.width(s) for s in slots))
        made = self.uses.definition.get(op.acc.name)
        place = frame.kept(op.acc.name)
        if place is not None:
            frame.body.append(self.tile_load(op.acc, name, coords, slots, place[0], frame))
        elif isinstance(made, Full) and made.number is not None and made.number == 0:
            frame.body.append(form.Compute(dst=name, fn="copy", args=(made.number,), claim=claim, origin=self.line(op)))
        else:
            raise self.broken(op, f"{op.acc}, which is neither zero nor in a buffer")
        self.made_in[name] = frame
        return name

    def tile_load(
        self, value: Value, name: str, coords: tuple[Expr, ...], slots: tuple[str, ...], place: Kept, frame: Frame
    ) -> form.Load:
        """A load of whole rows into a tile."""
        at = positions(slots)
        index = tuple(self.digit(d, coords, frame).substitute(at) for d in place.digits)
        claim = self.claim(value, coords, slots, frame.live(slots))
        return form.Load(dst=name, src=MemRef(place.buffer, index), claim=claim)

    def tile_operand(self, value: Value, coords: tuple[Expr, ...], lane: str, deep: str, frame: Frame) -> FragRef:
        """An operand in tiles, as the contraction refers to it (`$0`, `$1` rows and lanes, `$2` contracted)."""
        place = frame.kept(wide(value.name))
        if place is None:
            raise self.broken(None, f"{value}, which is not packed")
        slots = self.slots_of(coords, frame)
        if lane not in slots:
            name = self.tile("rows", place[0].dtype, tuple(frame.width(s) for s in slots))
            frame.body.append(self.tile_load(value, name, coords, slots, place[0], frame))
            return FragRef(name, (sym("$0"), sym("$2")))
        return self.grouped_operand(value, coords, lane, deep, place[0], frame)

    def grouped_operand(
        self, value: Value, coords: tuple[Expr, ...], lane: str, deep: str, place: Kept, frame: Frame
    ) -> FragRef:
        """The operand with the lanes: its contracted slot becomes a group and a place in the group."""
        depth = frame.width(deep)
        group, within = f"{deep}g", f"{deep}w"
        shadow = Frame([], frame, frame.block, lanes=frame.lanes, in_tasks=frame.in_tasks)
        part = next(x.part for x in frame.lanes if x.slot == deep)
        shadow.lanes += (Lane(part, const(0), depth // GROUP, group), Lane(part, const(0), GROUP, within))
        parted = {deep: sym(group) * GROUP + sym(within)}
        spots = tuple(c.substitute(parted) for c in coords)
        at = positions((group, lane, within))
        live = tuple(c.substitute(parted).substitute(at) for c in frame.live((lane, deep)))
        shape = (depth // GROUP, frame.width(lane), GROUP)
        name = self.tile("lanes", place.dtype, shape)
        frame.body.append(
            form.Load(
                dst=name,
                src=MemRef(place.buffer, tuple(self.digit(d, spots, shadow).substitute(at) for d in place.digits)),
                claim=Claim(value.name, tuple(c.substitute(at) for c in spots), live),
            )
        )
        return FragRef(name, (sym("$2") // GROUP, sym("$1"), sym("$2") % GROUP))

    def broken(self, op: Op | None, found: str) -> LoweringBroken:
        """The error for an operand that a matrix unit cannot take."""
        return LoweringBroken(
            doing=f"lowering {self.program.name}",
            found=f"a contraction in tiles of {found}",
            expected="operands packed for the matrix unit",
            pass_name="realise",
            span=None if op is None else op.span,
        )
