"""What producers and consumers share: the decisions of a stream, its rings, boxes of tensors, extents of tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from treadle.algebra.dims import Part
from treadle.algebra.expr import Constraint, Expr, const, lt, minimum, sym
from treadle.analysis.uses import Uses
from treadle.dtype.formats import DType
from treadle.ir.core import Program, Region
from treadle.machine import form
from treadle.machine.form import Barrier, Buffer, Claim, TensorMap
from treadle.realise.choices import Choices, NotLowered
from treadle.realise.closing import grain, passing
from treadle.realise.clusters import ALONE, Cluster
from treadle.realise.frame import Frame, Lane, PartKey, ends
from treadle.realise.lanes import Agent, LaneLowering, Spot
from treadle.realise.pieces import between_launches
from treadle.realise.ring import Stream, Tile, row_in, slot_shape, swizzle_of

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
    cluster: Cluster = ALONE
    tickets: bool = False
    """A workgroup draws its next task when it is ready for it; else tasks are dealt out beforehand."""
    box: tuple[int, ...] = ()
    """Coordinates of a block of rows along each of the parts that rows are made of, where there are several."""
    resident: int = 1
    """Workgroups that share a multiprocessor: while one computes, others contract and wait."""
    held: int = 1
    """Versions of the tiles of a task: with two, the next task's are on their way before this one has ended."""
    whole: frozenset[str] = frozenset()
    """Arguments of which no block is cut short by the end of its range: the guard says so."""
    threads: int = 256
    """Threads of a workgroup that is one agent: no producer, no consumers."""
    ahead: bool = False
    """The next block's first contraction is issued with this one's second."""
    shares: int = 1
    """Tasks among which the blocks of a range are dealt whose length an instance tells."""
    slice: int = 0
    """Columns of the results that are made at a time; 0: a swizzled row of them."""

    @property
    def rows(self) -> int:
        """Rows of a workgroup's part of a task."""
        return 64 * self.consumers


@dataclass(eq=False)
class Ring:
    """Tiles that share barriers: a counter in each role, slots, bytes of a whole slot. `shared`: all workgroups of a
    cluster fill it together."""

    tiles: list[Tile]
    counter: str
    full: str
    empty: str
    versions: int
    bytes: int = 0
    streamed: bool = True
    shared: bool = False

    @property
    def first(self) -> int:
        """The first batch that reads it."""
        return self.tiles[0].first

    @property
    def last(self) -> int:
        """The last batch that reads it."""
        return self.tiles[0].last


class Fed(LaneLowering):
    """The lowering engine for streams, first part: resources, and where tiles lie."""

    def __init__(
        self,
        program: Program,
        choices: Choices,
        uses: Uses,
        stream: Stream,
        feeding: Feeding,
        places: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(program, choices, uses, WARPGROUP, {})
        self.moved: dict[str, str] = dict(places or {})
        """Tensors that earlier launches copied -> the workspace with the outer and the inner axis of their tile."""
        for name in self.moved.values():
            self.parts.names.fresh(name)
        self.placed = {}
        for tile in stream.tiles:
            made = None if tile.keeper is None else uses.definition.get(tile.keeper.name)
            if tile.keeper is not None and tile.keeper.name not in self.placed and isinstance(made, Region):
                carried = made.carried[made.results.index(tile.keeper)]
                self.placed[tile.keeper.name] = place = self.allocate(carried, Frame([], block=program.body))
                self.moved[tile.tensor] = place.buffer
        self.stream = stream
        self.feeding = feeding
        self.me = self.parts.fresh("w")
        self.slots_of_tiles: dict[int, str] = {}
        self.maps: dict[str, TensorMap] = {}
        self.barriers: list[Barrier] = []
        self.rings = [self.ring(tiles) for tiles in stream.rings()]
        self.share = self.parts.fresh("share") if stream.told and feeding.shares > 1 else ""
        self.tasks: form.Tasks | None = None
        self.task_frame: Frame | None = None
        self.wide: dict[str, tuple[str, tuple[Lane | None, ...], tuple[str, ...]]] = {}
        self.block: Expr | None = None
        self.stage: str | None = None
        self.stage_counter: str | None = None
        self.joined = {id(c.op): (number, c) for number, batch in enumerate(stream.batches) for c in batch}
        self.loaded = {id(t.load): t for c in stream.contractions for t in c.raw}
        """Loads of which an operand is made in registers -> the tiles that engines bring for them."""

    @cached_property
    def passing(self) -> list[tuple[Tile, Part]]:
        """Tiles whose slots hold further elements of their tensor beyond the end of a part."""
        return passing(self.stream, self.feeding.rows, self.feeding.step)

    # ---- clusters

    @property
    def dealt(self) -> Part | None:
        """The part of a task that is dealt to the workgroups of a cluster, if it runs in clusters."""
        if self.feeding.cluster.size == 1:
            return None
        if self.feeding.cluster.along == "rows":
            return self.stream.rows.part
        if self.stream.columns is None:
            raise self.refusal("a cluster along columns without columns")
        return self.stream.columns.part

    def shared(self, tile: Tile) -> bool:
        """Whether all workgroups of a cluster need the same block of a tile."""
        return self.dealt is not None and self.dealt not in (tile.outer, tile.inner)

    def slice_of(self, tile: Tile) -> int:
        """Coordinates along a tile's outer axis that one workgroup fetches."""
        outer = self.extent(tile.outer)
        if tile.more:
            return outer
        if self.grain(tile) < outer:
            return self.grain(tile)
        size = self.feeding.cluster.size if self.shared(tile) else 1
        if outer % (8 * size):
            raise self.refusal(f"a block of {outer} rows of {tile.tensor} in {size} slices")
        return outer // size

    def grain(self, tile: Tile) -> int:
        """Coordinates along a tile's outer axis in one box, were it not for clusters."""
        outer = self.extent(tile.outer)
        if tile.outer != self.stream.step or self.feeding.cluster.size > 1:
            return outer
        return grain(self.stream, tile, self.feeding.rows, self.feeding.step)

    # ---- resources

    def extent(self, part: Part) -> int:
        """Coordinates of a tile along a part."""
        if self.stream.more_rows and part in self.stream.row_parts:
            return self.feeding.box[self.stream.row_parts.index(part)]
        if part == self.stream.rows.part:
            return self.feeding.rows
        if part == self.stream.step:
            return self.feeding.step
        across = self.stream.columns
        if across is not None and part == across.part:
            return self.feeding.columns
        whole = part.extent.substitute(dict(self.program.lets)).constant
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
        versions = self.feeding.versions if streamed else self.feeding.held
        hint = "_".join(t.tensor.lower() for t in tiles)
        names = [self.parts.fresh(f"{hint}_{what}") for what in ("at", "full", "empty")]
        ring = Ring(tiles, names[0], names[1], names[2], versions, streamed=streamed)
        for tile in tiles:
            outer, inner = prod(self.heights(tile)), self.extent(tile.inner)
            dtype = tile.value.type.dtype
            row = row_in(dtype, inner)
            if not row or outer > 256 or outer % 8:
                raise self.refusal(f"a block of {outer} x {inner} elements of {tile.tensor}")
            name = self.parts.fresh(f"{tile.tensor}s")
            shape = tuple(const(n) for n in slot_shape([n for n in self.heights(tile) if n > 1], inner, row))
            width = swizzle_of(row, dtype)
            self.parts.buffers.append(Buffer(name, dtype, shape, "shared", 1024, versions, width))
            self.slots_of_tiles[id(tile)] = name
            self.map_of(self.place_of(tile), dtype, self.box_of(tile), width)
            ring.bytes += outer * inner * dtype.bits // 8
        self.barriers.append(Barrier(ring.full, 1, versions, tx=True))
        ring.shared = any(self.shared(t) for t in tiles)
        each = self.feeding.cluster.size if ring.shared else 1
        self.barriers.append(Barrier(ring.empty, 4 * self.feeding.consumers * each, versions))
        return ring

    def memory_order(self, axes: Sequence[Part], frame: Frame) -> list[Part]:
        return super().memory_order(axes, frame) if frame.in_tasks else between_launches(axes)

    def place_of(self, tile: Tile) -> str:
        """The memory that a tile is copied from."""
        return self.moved.get(tile.tensor, tile.tensor)

    def box_of(self, tile: Tile) -> tuple[int, ...]:
        """The box of a tile, one swizzled row wide."""
        outer, row = self.slice_of(tile), self.row(tile)
        if tile.tensor in self.moved and tile.keeper is None:
            return outer, row
        box = [1] * len(tile.source.subs)
        box[tile.axes[0]], box[tile.axes[1]] = outer, row
        for axis, part, _ in tile.more:
            box[axis] = self.extent(part)
        return tuple(box)

    def heights(self, tile: Tile) -> list[int]:
        """Coordinates of a tile along each of its parts but the contiguous one."""
        return [self.extent(part) for _, part, _ in tile.spans[:-1]]

    def rows_at(self, at: Expr) -> list[tuple[int, Expr, Expr]]:
        """The rows of a consumer along each of the parts that they are made of: how many coordinates, which of them the
        row `at` of its 64 has, and where the first stands in the block."""
        me = sym(self.me) if self.feeding.consumers > 1 else const(0)
        found: list[tuple[int, Expr, Expr]] = []
        step, whole = 64 * self.feeding.consumers, 64 * self.feeding.consumers
        for size in self.feeding.box:
            step //= size
            own = at if step == 1 else at // step
            if step >= 64:  # consumers lie along it
                number = me if step == 64 else me // (step // 64)
                found.append((1, const(0), number if size * step == whole else number % size))
            elif size * step >= 64:
                number = me if size * step == whole else me % (size * step // 64)
                found.append((64 // step, own, (64 // step) * number))
            else:
                found.append((size, own % size, const(0)))
        return found

    def digits(self, at: Expr) -> list[Expr]:
        """Where the row `at` of a consumer's 64 stands in a block, along each of the parts that rows are made of."""
        return [own + first for _, own, first in self.rows_at(at)]

    def row(self, tile: Tile) -> int:
        """Elements of a swizzled row of a tile's slot."""
        return row_in(tile.value.type.dtype, self.extent(tile.inner))

    def map_of(self, tensor: str, dtype: DType, box: tuple[int, ...], swizzle: int = 128) -> str:
        """The tensor map with this box."""
        for name, entry in self.maps.items():
            if entry.tensor == tensor and entry.box == box:
                return name
        name = self.parts.fresh(f"map_{tensor}")
        self.maps[name] = TensorMap(name, tensor, dtype, box, swizzle, promotion=256)
        return name

    # ---- where tiles lie

    def walk_told(self, frame: Frame) -> tuple[list[tuple[form.Loop, Frame]], Frame]:
        """Loops over the blocks of ranges that an instance tells: a task has every so many of them."""
        loops: list[tuple[form.Loop, Frame]] = []
        for arg in self.stream.told:
            region = self.stream.region
            lo, hi = self.index(arg.domain.lo, frame), self.index(arg.domain.hi, frame)
            size = self.cut(region, arg, frame)[0]
            first = lo + size * sym(self.share) if self.share else lo
            loop = form.Loop(
                var=self.parts.fresh(f"{arg.name}0"),
                lo=first,
                hi=hi,
                step=size * self.feeding.shares,
                origin=self.line(region),
            )
            inner = frame.child(loop.body)
            inner.symbols.add(loop.var)
            bound = self.bind_arg(region, arg, None, sym(loop.var), inner)
            loop.enters = (form.Enter(self.region_names[id(region)], (bound,)),)
            loops.append((loop, inner))
            frame = inner
        return loops, frame

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
        if part == self.dealt:
            return dim, *self.feeding.cluster.part(lo, self.extent(part), ends(hi))
        return dim, lo, hi

    def start_of(self, part: Part, frame: Frame) -> Expr:
        """The first coordinate of a tile along a part."""
        return self.span(part, frame)[1]

    def slot_claim(self, tile: Tile, frame: Frame) -> Claim:
        """What a slot holds, in the buffer's `$i`: elements of its tile, zeros past their ends.

        Shifted coordinates have no end: a load with fill has elements everywhere."""
        inner, row = self.extent(tile.inner), self.row(tile)
        at: dict[object, Expr] = {}
        place = 0 if inner == row else 1
        for _, part, _ in tile.spans[:-1]:
            wide = self.extent(part) > 1
            at[part.dim] = sym(f"${place}") if wide else const(0)
            place += wide
        at[tile.inner.dim] = sym(f"${place}") if inner == row else sym("$0") * row + sym(f"${place}")
        where: list[Constraint] = []
        coords: dict[object, Expr] = {}
        for part, size in ((part, self.extent(part)) for _, part, _ in tile.spans):
            _, lo, hi = self.span(part, frame)
            if self.stream.told_in(tile, part):
                hi = part.dim.extent
            coord = lo + at[part.dim]
            coords[part.dim] = coord
            if part not in tile.shifted:
                where += [lt(coord, e) for e in ends(hi) if e != lo + size]
        value = tile.value
        return Claim(value.name, tuple(coords[d] for d in value.type.dims), tuple(where))
