"""Contractions fed through shared memory: how their operands are cut, laid out and grouped (`finding` finds them).

The form is: one parallel region, in its body one ordered region over blocks of one dimension, in that contractions
that the tensor cores have an instruction for. An operand that is a plain block of a tensor is a *tile*: an engine
copies it into a slot of a ring. The other operand of a contraction may be a tile too, or a value computed in registers.
Consecutive contractions that do not read each other's results are one *batch*: they are issued together, and a tile's
slot is free when the last batch that reads it is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from treadle.algebra.dims import Dim, Part
from treadle.algebra.expr import ZERO, Expr, sym
from treadle.dtype.formats import DType
from treadle.ir.core import AxisSub, Program, Region, RegionArg, Sub, Value
from treadle.ir.ops.access import Load
from treadle.ir.ops.fold import Mma

SWIZZLED = 64
"""Columns of a slice of results: elements of 16 bits in the 128 bytes of a swizzled row."""


def row_of(dtype: DType) -> int:
    """Elements of a format in the 128 bytes of a swizzled row."""
    return 1024 // dtype.bits


def row_in(dtype: DType, inner: int) -> int:
    """Elements of the widest row (128, 64 or 32 bytes swizzled, or 16) of which blocks of `inner` are made; 0: none
    fits."""
    rows = (8 * width // dtype.bits for width in (128, 64, 32, 16))
    return next((row for row in rows if inner and inner % row == 0), 0)


def swizzle_of(row: int, dtype: DType) -> int:
    """The swizzle of slots with such rows, in bytes; 0: none."""
    width = row * dtype.bits // 8
    return width if width >= 32 else 0


def depth_of_atom(dtype: DType) -> int:
    """Contracted elements of one instruction: 32 bytes of them."""
    return 256 // dtype.bits


@dataclass(eq=False)
class Tile:
    """A block of a tensor as an operand: `outer` and `inner` are its parts along the outer tile axis and along the
    tensor's contiguous axis; `axes` their positions among the tensor's axes. `streamed`: another block each iteration.

    `load` is None for a value that is computed on its way into the slot. `offsets`: where the coordinates of the two
    parts begin along their axes (0, but for a factor of a product axis and for shifted coordinates). `shifted`: parts
    whose coordinates are moved along their axes: past their ends a slot holds neighbours, not zeros."""

    value: Value
    load: Load | None
    outer: Part
    inner: Part
    axes: tuple[int, int]
    streamed: bool
    first: int = 0
    last: int = 0
    offsets: tuple[Expr, Expr] = (ZERO, ZERO)
    shifted: frozenset[Part] = frozenset()
    more: tuple[tuple[int, Part, Expr], ...] = ()
    """Further parts that rows are made of, slower than `outer`: axis, part, where its coordinates begin."""

    keeper: Value | None = None
    """The tile of the program, in the workspace, that the block is of; `load` stands for the read of it."""

    @property
    def spans(self) -> list[tuple[int, Part, Expr]]:
        """All parts, the contiguous one last: axis, part, where its coordinates begin."""
        outer = self.axes[0], self.outer, self.offsets[0]
        return [*self.more, outer, (self.axes[1], self.inner, self.offsets[1])]

    @property
    def tensor(self) -> str:
        """The tensor's name, or that of the value."""
        return self.value.name.lstrip("%") if self.load is None else self.load.tensor.name

    @property
    def source(self) -> Load:
        """The load of a plain block (Requires: it is one)."""
        assert self.load is not None
        return self.load


@dataclass(eq=False)
class Contraction:
    """A contraction with the rows of its result on the warps: `left` has the rows, `right` the columns.

    An operand without a tile is a value in registers: of the results of other contractions, or (`raw`) of the elements
    of these tiles, one by one, and of what is constant along its rows or its depth.
    """

    op: Mma
    rows: Part
    cols: Part
    deep: Part
    left: Value
    right: Value
    left_tile: Tile | None
    right_tile: Tile
    raw: tuple[Tile, ...] = ()

    @property
    def format(self) -> DType:
        """The format in which the left operand is contracted: elements made in registers are widened to the right's."""
        return self.right.type.dtype if self.raw else self.left.type.dtype


@dataclass(frozen=True)
class Whole:
    """A whole dimension in place of a block argument: every task has all of it."""

    part: Part

    @property
    def name(self) -> str:
        """What it is called."""
        return str(self.part)


@dataclass(eq=False)
class Stream:
    """What the analysis found: the region, the ordered region in it, batches of contractions, their tiles.

    Without an ordered region (`loop` None) contractions along one whole dimension are executed block by block, and so
    are those of one over single coordinates that add in place (`walked`). `step` is the part that a tile of an
    iteration has along the dimension of the loop. `rows` lie along the rows of all accumulators.
    """

    program: Program
    region: Region
    loop: Region | None
    rows: RegionArg | Whole
    step: Part
    batches: list[list[Contraction]] = field(default_factory=list["list[Contraction]"])
    tiles: list[Tile] = field(default_factory=list[Tile])
    walked: bool = False
    more_rows: tuple[RegionArg, ...] = ()
    """Block arguments whose coordinates are rows too, slower than those of `rows`: a block of rows is a box of them."""
    around: tuple[Region, ...] = ()
    """Parallel regions around the one that contracts, over single coordinates, the outermost first."""

    @property
    def nest(self) -> list[Region]:
        """The parallel regions, the one that contracts last."""
        return [*self.around, self.region]

    @property
    def told(self) -> list[RegionArg]:
        """The arguments of the region whose range an instance of the regions around it tells: it is loaded there, or
        differs from one to the other."""
        own = {a.name for r in self.around for a in r.args}
        ranges = ((a, (a.domain.lo, a.domain.hi)) for a in self.region.args)
        return [a for a, ends in ranges if any(e.functions or e.symbols & own for e in ends)]

    def told_in(self, tile: Tile, part: Part) -> bool:
        """Whether a tile's rows are those of a range that an instance tells: beyond the end blocks have further rows of
        its tensor, which are of other instances."""
        return any(a.part == part for a in self.told) and any(p == part and begin == ZERO for _, p, begin in tile.spans)

    @property
    def row_parts(self) -> list[Part]:
        """The parts that rows are made of, the fastest last."""
        return [*(a.part for a in self.more_rows), self.rows.part]

    @property
    def block(self) -> RegionArg | None:
        """The argument of the ordered region that goes over blocks, if it has one."""
        return None if self.loop is None else next((a for a in self.loop.args if a.kind == "block"), None)

    @property
    def all_rows(self) -> bool:
        """Whether a task has all rows there are."""
        return isinstance(self.rows, Whole)

    @property
    def contractions(self) -> list[Contraction]:
        """All contractions in order."""
        return [c for batch in self.batches for c in batch]

    @property
    def columns(self) -> RegionArg | None:
        """The block argument of the region that lies along columns of accumulators, if one does."""
        rows = [*self.more_rows, self.rows]
        args = [a for a in self.region.args if a.kind == "block" and not any(a is r for r in rows)]
        return args[0] if args else None

    def rings(self) -> list[list[Tile]]:
        """Tiles that are filled, read and freed together, in order of first use; those of a task first."""
        found: dict[tuple[bool, int, int], list[Tile]] = {}
        for tile in self.tiles:
            found.setdefault((tile.streamed, tile.first, tile.last), []).append(tile)
        return [found[k] for k in sorted(found)]


def factor(sub: AxisSub, dim: Dim) -> tuple[Sub | None, Expr]:
    """The one subscript of an axis that is no number, and where it begins: of a product axis the last factor, behind
    coordinates of the others."""
    if isinstance(sub, Sub):
        return sub, ZERO
    *before, last = sub
    total = ZERO
    for one, factor in zip(before, dim.factors):
        if one.index is None or one.index.functions:
            return None, ZERO
        total = total * factor.extent + one.index
    part = last.part
    if part is None:
        return None, ZERO
    return last, total * dim.factors[-1].extent


def joined(sub: AxisSub, dim: Dim) -> AxisSub:
    """The subscript of a product axis by a single coordinate of each factor, as one, where that is linear; others as
    they are."""
    if isinstance(sub, Sub):
        return sub
    total = ZERO
    for number, (one, factor) in enumerate(zip(sub, dim.factors, strict=True)):
        if one.index is None or one.index.functions or (number and factor.extent.constant is None):
            return sub
        total = total * factor.extent + one.index
    return Sub(index=total)


def slot_shape(outer: Sequence[int], inner: int, row: int) -> tuple[int, ...]:
    """The shape of a slot: chunks of a swizzled `row` along the contiguous axis come first."""
    return (*outer, inner) if inner == row else (inner // row, *outer, row)


def phase(counter: str, versions: int, ahead: int = 0) -> Expr:
    """The parity that a ring's reader (or, with `ahead` 1, its writer) waits for."""
    turn = sym(counter) // versions + ahead if versions > 1 else sym(counter) + ahead
    return turn % 2
