"""Blocks of contractions on the CPU: from a register block and cache blocks to decisions of the lowering engine.

One dimension of each accumulator lies along the vector registers (its lane), another is the row of the register block,
the rest are loops. The operand with the lane is packed in panels of the block's columns, the other in panels of its
rows; both hold a cache block of the contracted dimension. Values computed between contractions lie in local buffers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, prod

from treadle.algebra.dims import Dim
from treadle.analysis.uses import PURE
from treadle.base.memo import memoised
from treadle.ir.core import Region, Value
from treadle.ir.ops.access import Load
from treadle.ir.ops.elementwise import Cast
from treadle.ir.ops.fold import Mma
from treadle.realise.choices import Choices, Digit, Pack
from treadle.targets.cpu.roles import Roles, folded, roles
from treadle.targets.cpu.shape import Contraction, Shape, Spans


@dataclass(frozen=True)
class Block:
    """A point: register rows and columns (`rows` x `columns` elements), block sizes, where accumulators live.

    `lane`: the dimension along the registers, for accumulators that have it. `outer`, `inner`, `deep`: cut of row
    dimensions, lane dimensions, contracted dimensions. `held`: accumulators stay in registers across the whole fold.
    `atom`: the instruction for contractions of 16-bit floats into f32; others are multiply-adds. `shared`: operands
    with the lane are packed once for all tasks, where they are the same everywhere. `packed`: operands are copied into
    panels; otherwise those that lie in memory as a contraction reads them are read there.
    """

    lane: str
    rows: int
    columns: int
    outer: int
    inner: int
    deep: int
    held: bool = False
    atom: str = "fma"
    shared: bool = False
    packed: bool = True


FEW = 16
"""Rows up to which a register block is made for just so many."""


DEPTH = {"fma": 1, "dpbf16": 2, "dpbssd": 4, "amx.tdpbf16ps": 32}
"""Contracted coordinates that an atom takes at once."""


GROUP = 4
"""Contracted coordinates that lie beside one another in a vector; deeper atoms read rows of a tile."""


EXACT = ("fma", "dpbssd")
"""Atoms that flush nothing."""


ROW = 32
"""16-bit elements of a vector: what a copied row is filled up to."""


LINE = 64
"""Bytes of a line of memory."""


def fitting(extent: int | None, most: int) -> int:
    """The height of a register block along a row dimension: the largest that wastes least of a known extent, if any."""
    if not extent:
        return most
    least = max(1, min(most // 2, extent))
    return min(range(least, most + 1), key=lambda r: (ceil(extent / r) * r / extent - r * 1e-3, -r))


def round_to(size: int, multiple: int) -> int:
    """The multiple nearest below `size`, at least one."""
    return max(multiple, size // multiple * multiple)


def filled_to(size: int, multiple: int) -> int:
    """The multiple nearest above `size`: halves of an extent stay two blocks when a register block does not divide."""
    return ceil(size / multiple) * multiple


def grouping(found: Contraction) -> tuple[str, ...]:
    """Atoms for the formats of a contraction that take several contracted coordinates at once."""
    op = found.op
    formats = op.a.type.dtype.name, op.b.type.dtype.name, op.result.type.dtype.name
    return _GROUPS.get(formats, ())


_GROUPS = {("bf16", "bf16", "f32"): ("amx.tdpbf16ps", "dpbf16"), ("i8", "i8", "i32"): ("dpbssd",)}


class Blocking:
    """Decisions for a block, for one program."""

    def __init__(self, shape: Shape, block: Block) -> None:
        self.shape = shape
        self.block = block
        self._folded: dict[int, tuple[Dim, ...]] = {}
        self._cuts: Mapping[str, int] | None = None
        self.roles = [r for c in shape.contractions if (r := roles(shape, c, block.lane)) is not None]
        self.lanes = tuple(dict.fromkeys(r.lane.name for r in self.roles))
        self.deep = {d.name for r in self.roles for d in self.folded(r)}
        self.tile = self.tiles()

    def folded(self, role: Roles) -> tuple[Dim, ...]:
        """Every dimension that a contraction sums over."""
        known = self._folded.get(id(role.found))
        if known is None:
            known = self._folded[id(role.found)] = folded(self.shape, role.found)
        return known

    def tiles(self) -> dict[str, int]:
        """Slots of the register block along each dimension."""
        found: dict[str, int] = dict.fromkeys(self.lanes, self.block.columns)
        for role in self.roles:
            if role.row is not None and role.row.name not in found:
                extent = self.shape.extent(role.row)
                known = role.row.extent.constant if role.row.extent.constant is not None or extent > FEW else extent
                atom = self.atom(role.found)
                # Tiles are whole, and other instructions that contract groups have rows, be it one of padding.
                height = self.block.rows if atom.startswith("amx") else fitting(known, self.block.rows)
                found[role.row.name] = height if atom == "fma" else max(2, height)
        return found

    def atom(self, found: Contraction) -> str:
        """The instruction of a contraction."""
        return self.block.atom if found.contracted and self.block.atom in grouping(found) else "fma"

    def depth(self) -> dict[str, int]:
        """Coordinates contracted at once, by dimension."""
        found = {r.found.contracted[-1].name: DEPTH[self.atom(r.found)] for r in self.roles if r.found.contracted}
        return {name: depth for name, depth in found.items() if depth > 1}

    def accumulators(self) -> frozenset[str]:
        """Values that contractions accumulate into, wherever they are carried."""
        found: set[str] = set()
        for role in self.roles:
            op = role.found.op
            found |= {op.result.name, op.acc.name}
            region = self.shape.owner(op)
            # A value made from the carried one before the contraction shares its buffer with it.
            if region is not None and op.result in region.body.yields:
                found.add(region.carried[region.body.yields.index(op.result)].name)
        return frozenset(found)

    def wrapped(self) -> frozenset[str]:
        """Regions whose accumulators are held in registers."""
        if not self.block.held:
            return frozenset()
        return frozenset(self.shape.names[id(r)] for r in self.folding_regions())

    def folding_regions(self) -> list[Region]:
        """Ordered regions right around contractions."""
        found = [self.shape.owner(r.found.op) for r in self.roles]
        return list(dict.fromkeys(r for r in found if r is not None and r.kind != "parallel"))

    def cuts(self) -> Mapping[str, int]:
        """Block sizes of region arguments."""
        if self._cuts is None:
            self._cuts = self._cut()
        return self._cuts

    @cached_property
    def spans(self) -> Spans:
        """Coordinates of the domains that hang on blocks."""
        return self.shape.spans(self.cuts())

    def _cut(self) -> dict[str, int]:
        wrapped = self.wrapped()
        shares = self.shares()
        ordered: dict[str, int] = {}
        found: dict[str, int] = {}
        for region, arg, key in self.shape.arguments():
            name = arg.domain.dim.name
            tile = self.tile.get(name, 1)
            if self.shape.names[id(region)] in wrapped:
                depth = self.depth().get(name, 1)
                size = 1 if depth == 1 else round_to(self.block.deep, depth)
            elif name in self.deep:
                size = round_to(shares.get(key, self.block.deep), max(tile, self.depth().get(name, 1)))
            elif name in self.lanes:
                size = round_to(self.block.inner, tile)
            elif name in self.tile:
                size = filled_to(self.block.outer, tile)
            else:
                size = 1
                if region.kind != "parallel":
                    # Blocks of every ordered argument multiply into what an instance holds.
                    size = 16 if ordered.get(self.shape.names[id(region)], 0) < 2 else 1
                    ordered[self.shape.names[id(region)]] = ordered.get(self.shape.names[id(region)], 0) + 1
            found[key] = size
        return found

    def shares(self) -> dict[str, int]:
        """Block sizes of the arguments that a contraction folds together with others: their product is one block's.

        A packed panel holds a block of every folded dimension, so that one budget, `block.deep`, is theirs together.
        Short ones take their extents (rounded up to a power of two when that is no constant), the longest what is left.
        """
        wrapped = self.wrapped()
        found: dict[str, int] = {}
        for role in self.roles:
            folded = {d.name for d in self.folded(role)}
            around = {self.shape.names[id(r)] for r in self.shape.chain(role.found.op)} - wrapped
            cut = [
                (key, arg.domain.dim)
                for region, arg, key in self.shape.arguments()
                if arg.domain.dim.name in folded and self.shape.names[id(region)] in around
            ]
            if len(cut) < 2:
                continue
            left = self.block.deep
            cut.sort(key=lambda c: self.shape.extent(c[1]))
            for key, dim in cut:
                extent = max(1, dim.extent.constant or 1 << (self.shape.extent(dim) - 1).bit_length())
                size = left if key == cut[-1][0] and dim.extent.constant is None else min(extent, left)
                left //= size
                found[key] = min(size, found.get(key, size))
        return found

    def side(self, dim: Dim) -> int:
        """The size of a block along a row or a lane: its extent where no region cuts it."""
        extent = self.shape.extent(dim)
        return min(self._sides.get(dim.name, extent), extent)

    @cached_property
    def _sides(self) -> Mapping[str, int]:
        """The smallest block of each dimension that is cut."""
        found: dict[str, int] = {}
        for _, arg, key in self.shape.arguments():
            size = self.cuts()[key]
            found[arg.domain.dim.name] = min(size, found.get(arg.domain.dim.name, size))
        return found

    def passes(self, role: Roles) -> int:
        """How often a contraction comes back to its accumulators: the blocks of what is summed around it."""
        cuts, names = self.cuts(), self.shape.names
        return prod(
            ceil(self.spans.get(id(a), self.shape.extent(a.domain.dim)) / cuts.get(f"{names[id(r)]}.{a.name}", 1))
            for r in self.shape.chain(role.found.op)
            for a in r.args
            if r.kind != "parallel" and a.domain.dim in self.folded(role)
        )

    def local_bytes(self) -> int:
        """Bytes of packed operands that each worker holds: blocks at their full sizes, the rest at its extent."""
        cuts = self.cuts()
        total = 0
        for role in self.roles:
            chain = self.shape.chain(role.found.op)
            for value, dim in ((role.lane_operand, role.lane), (role.row_operand, role.row)):
                level = self.level(value, role)
                if not level or self.computed_here(value, role.found.op) or self.in_place(value, role):
                    continue  # one copy for all workers, or a value of the block itself
                around = chain[: 1 + next(i for i, r in enumerate(chain) if self.shape.names[id(r)] == level)]
                elements = 1
                for part in value.type.dims:
                    tile = self.tile.get(part.name, 1) if part is dim else 1
                    elements *= filled_to(self.reach(part, around, cuts), tile)
                total += 4 * elements
        return total

    def reach(self, dim: Dim, around: Iterable[Region], cuts: Mapping[str, int]) -> int:
        """Coordinates of a dimension in one instance of the regions: the smallest block of it, else its extent."""
        sizes = [
            1 if a.kind == "each" else cuts[key] if a.size is None else self.shape.facts.value(a.size)
            for r in around
            for a in r.args
            if a.domain.dim == dim and (key := f"{self.shape.names[id(r)]}.{a.name}")
        ]
        return min(sizes, default=self.shape.extent(dim))

    # ---- operands

    def packs(self) -> tuple[tuple[Pack, ...], tuple[Pack, ...]]:
        """Packed operands, and values that are kept where they are made in the layout of their contractions."""
        packs: dict[str, Pack] = {}
        kept: dict[str, Pack] = {}
        for role in self.roles:
            for value, dim in ((role.lane_operand, role.lane), (role.row_operand, role.row)):
                if value.name in packs or value.name in kept or self.in_place(value, role):
                    continue
                if not self.computed_here(value, role.found.op):
                    packs[value.name] = replace(self.pack(value, dim, role), instances=self.instances(value, role))
                elif self.only_contractions(value):
                    kept[value.name] = self.pack(value, dim, role, made_here=True)
        return tuple(packs.values()), tuple(kept.values())

    def instances(self, value: Value, role: Roles) -> tuple[str, ...]:
        """The arguments whose coordinates an operand that is packed once for all tasks has axes for."""
        told = self.shape.everywhere(value) if self.shared(value, role) else None
        return tuple(a.name for a in told or ())

    def in_place(self, value: Value, role: Roles) -> bool:
        """Whether an operand is read where it lies.

        The one with the lane if lanes are neighbours there, so that vectors of it are loads (rows that an atom sums
        together are interleaved). The other, whose elements are broadcast one by one, if nothing is left to compute of
        it.
        """
        depth = DEPTH[self.atom(role.found)]
        if self.block.packed or depth > GROUP:
            return False
        if value is role.lane_operand:
            plain = depth == 1 or isinstance(self.shape.uses.definition.get(value.name), Load)
            return plain and self.shape.source_unit(value) is role.lane and self.loaded(value)
        if depth > 1:
            return False
        op = self.shape.uses.definition.get(value.name)
        return isinstance(op, Load) and self.loaded(value) and value.type.dtype == role.found.op.result.type.dtype

    def loaded(self, value: Value) -> bool:
        """Whether a value is an element of a tensor that nothing changes, converted at most."""
        op = self.shape.uses.definition.get(value.name)
        while isinstance(op, Cast):
            op = self.shape.uses.definition.get(op.source.name)
        return isinstance(op, Load) and op.fill is None and self.shape.uses.stable(op)

    def only_contractions(self, value: Value) -> bool:
        """Whether nothing but contractions reads a pure value."""
        users = self.shape.uses.users.get(value.name, [])
        pure = isinstance(self.shape.uses.definition.get(value.name), PURE)
        return pure and all(isinstance(u, Mma) for u in users)

    def computed_here(self, value: Value, reader: Mma) -> bool:
        """Whether a value comes from a fold, contraction or carried value of the block in which it is contracted."""
        return _computed_here(self.shape, value, reader)

    def pack(self, value: Value, dim: Dim | None, role: Roles, *, made_here: bool = False) -> Pack:
        """How an operand is copied: panels of its lane or row, groups contracted at once, the rest whole."""
        tile = 1 if dim is None else self.tile.get(dim.name, 1)
        source = self.shape.source_unit(value)
        depth = DEPTH[self.atom(role.found)]
        deep = role.found.contracted[-1] if depth > 1 else None
        if made_here and depth == 1:
            return Pack(value.name, "", tuple((d.name, "all", 1) for d in self.lane_last(value)), ())
        rest: list[Digit] = [(d.name, "all", 1) for d in value.type.dims if d is not dim and d is not deep]
        # The operand with the lanes lies in pairs; rows of a matrix unit hold all that it contracts at once.
        side = 2 if dim is role.lane and depth > GROUP else depth
        groups: list[Digit] = [] if deep is None else [(deep.name, "panel", side)]
        within: list[Digit] = [] if deep is None else [(deep.name, "lane", side)]
        # A row operand whose source runs along the contracted dimension keeps that order: its panel is read as scalars.
        straight = dim is not None and dim is not role.lane and source is not dim and source is not None
        if dim is None or tile == 1:
            layout: tuple[Digit, ...] = (*rest, *([] if dim is None else [_whole(dim)]), *groups, *within)
        elif straight and depth == 1 and self.short(role):
            layout = ((dim.name, "panel", tile), (dim.name, "lane", tile), *rest)
        elif straight and deep is not None and depth <= GROUP and source is deep and self.short(role):
            # Pairs lie along the source's own order: rows are copied as they are, their ends filled up with zeros.
            layout = ((dim.name, "panel", tile), (dim.name, "lane", tile), *rest, _whole(deep))
            slots = ((dim.name, tile), (deep.name, ROW))
            return Pack(value.name, self.level(value, role), layout, slots, False, ((deep.name, ROW),))
        else:
            layout = ((dim.name, "panel", tile), *rest, *groups, (dim.name, "lane", tile), *within)
        if deep is not None and depth <= GROUP and source is deep and tile > 1 and self.loaded(value):
            # Whole lines of the source are read, and its groups change places in registers.
            line = LINE * 8 // value.type.dtype.bits
            slots = ((dim.name if dim is not None else "", tile), (deep.name, line))
            return Pack(value.name, self.level(value, role), layout, slots, False, ((deep.name, line),))
        whole = () if deep is None or depth <= GROUP else ((deep.name, depth),)
        slots = self.slots(value, dim, tile, deep, side, source)
        return Pack(value.name, self.level(value, role), layout, slots, depth == 1, whole)

    def slots(
        self, value: Value, dim: Dim | None, tile: int, deep: Dim | None, depth: int, source: Dim | None
    ) -> tuple[tuple[str, int], ...]:
        """The fragment shape of a copy: last what an atom contracts at once, else what is contiguous in the source."""
        found: list[tuple[str, int]] = [] if dim is None or tile == 1 else [(dim.name, tile)]
        if deep is not None:
            return (*found, (deep.name, depth))
        if source is not None and source is not dim and source in value.type.dims:
            found.append((source.name, 16))
        found.sort(key=lambda s: source is not None and s[0] == source.name)
        return tuple(found)

    def lane_last(self, value: Value) -> list[Dim]:
        """The dimensions of a value, those along registers last."""
        return sorted(value.type.dims, key=lambda d: d.name in self.lanes)

    def short(self, role: Roles) -> bool:
        """Whether the folded dimensions are cut short: rows far apart by a power of two would share cache sets."""
        cut = {
            a.domain.dim
            for r in self.shape.chain(role.found.op)
            if self.shape.names[id(r)] not in self.wrapped()
            for a in r.args
        }
        return all(d in cut or (d.extent.constant or 1 << 20) <= 512 for d in self.folded(role))

    def shared(self, value: Value, role: Roles) -> bool:
        """Whether an operand is packed once for all tasks: blocks of it are whole panels, those of the program too."""
        if not self.block.shared or value is not role.lane_operand or self.shape.everywhere(value) is None:
            return False
        panels = {**self.depth(), role.lane.name: self.block.columns}
        fixed = [a for r in self.shape.regions for a in r.args if a.kind == "block" and a.size is not None]
        return all((a.size % panels.get(a.domain.dim.name, 1)).constant == 0 for a in fixed if a.size is not None)

    def level(self, value: Value, role: Roles) -> str:
        """The region on entry to which an operand is packed: where it is loaded, but outside held accumulators."""
        uses = self.shape.uses
        if self.shared(value, role):
            return ""
        op = uses.definition[value.name]
        wrapped = self.wrapped()
        region = self.shape.owner(op)
        # A chain of pure operations stands where its innermost part does.
        while region is not None and self.shape.names[id(region)] in wrapped:
            region = self.shape.parents[id(region)]
        return "" if region is None else self.shape.names[id(region)]

    # ---- all together

    def choices(self, sweep: Iterable[tuple[str, int]] = ()) -> Choices:
        """The decisions. `sweep` adds widths for groups without a contraction."""
        packs, laid_out = self.packs()
        widths: dict[str, int] = dict.fromkeys(self.lanes, self.block.columns)
        for name in self.shape.contiguous:
            widths.setdefault(name, 16)
        for name in self.deep:
            widths.setdefault(name, 2)
        # What is kept in groups is made in those groups.
        widths |= {name: depth for p in laid_out for name, kind, depth in p.layout if kind == "lane" and depth <= GROUP}
        widths |= dict(sweep)
        others = tuple(n for n in self.shape.contiguous if n not in self.lanes)
        rows = tuple(r.row.name for r in self.roles if r.row is not None)
        return Choices(
            cuts=self.cuts(),
            tasks=frozenset(self.shape.tasks),
            sweep=widths,
            tile=self.tile,
            vector=(*others, *(n for n in reversed(self.lanes) if n != self.block.lane), self.block.lane),
            wrap=self.wrapped(),
            laid_out=laid_out,
            whole_tiles=self.accumulators(),
            slots=256,
            packs=packs,
            depth=self.depth(),
            atoms={r.found.op.result.name: self.atom(r.found) for r in self.roles if self.atom(r.found) != "fma"},
            fuse=True,
            row_order=(*self.lanes, *rows),
            unroll=1,
            join=not self.block.atom.startswith("amx"),
            numerics=("mma_subnormals",) if self.depth() and self.block.atom not in EXACT else (),
        )


@memoised
def _computed_here(shape: Shape, value: Value, reader: Mma) -> bool:
    uses = shape.uses
    home = uses.home[id(reader)]
    todo = [value]
    while todo:
        one = todo.pop()
        op = uses.definition.get(one.name)
        if op is None:
            continue
        if isinstance(op, PURE):
            if not (isinstance(op, Load) and not uses.stable(op)):
                todo += uses.direct(op)
                continue
        if isinstance(op, Region) and any(v is one for v in op.carried):
            if op.body is home:
                return True
        elif uses.home[id(op)] is home:
            return True
    return False


def _whole(dim: Dim) -> Digit:
    return (dim.name, "all", 1)
