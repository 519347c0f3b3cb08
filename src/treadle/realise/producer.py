"""The producer: the consumers' tasks and iterations once more, copies instead of contractions."""

from __future__ import annotations

from treadle.algebra.expr import Expr, as_expr, const, maximum, minimum, sym
from treadle.ir.core import Sub
from treadle.machine import form
from treadle.machine.form import Body, MemRef, Sync
from treadle.realise.batches import Batches
from treadle.realise.closing import FAR
from treadle.realise.feeding import Ring
from treadle.realise.frame import Frame, ends
from treadle.realise.ring import Tile, phase, swizzle_of


class Producing(Batches):
    """The lowering engine for streams, third part: what the producer does for the consumers."""

    def produce(self) -> Body:
        """The producer's tasks: the same enumeration, copies instead of contractions."""
        assert self.tasks is not None and self.task_frame is not None
        outer = self.task_frame
        tasks = form.Tasks(
            vars=self.tasks.vars,
            counts=self.tasks.counts,
            over=self.tasks.over,
            raster=self.tasks.raster,
            enters=self.tasks.enters,
            origin=self.tasks.origin,
        )
        frame = Frame(tasks.body, outer.parent, barrier=True, in_tasks=True)
        frame.env, frame.bounds = dict(outer.env), dict(outer.bounds)
        loops, inner = self.walk_told(frame)
        for ring in self.rings:
            if not ring.streamed:
                self.fill_slot(ring, inner)
        for arg in () if self.stream.loop is None else self.stream.loop.args:
            assert self.stream.loop is not None
            loop, inner = self.enter_loop(self.stream.loop, arg, inner)
            loops.append((loop, inner))
        if self.stream.loop is None or self.stream.walked:
            loop, inner = self.walk_depth(inner)
            loops.append((loop, inner))
        for ring in self.rings:
            if ring.streamed:
                self.fill_slot(ring, inner)
        self.close(loops)
        return [tasks]

    def fill_slot(self, ring: Ring, frame: Frame) -> None:
        """Waits for a free slot, announces the bytes of whole boxes, copies, moves on."""
        number = sym(ring.counter)
        wait = (("phase", phase(ring.counter, ring.versions, 1)),)
        frame.body.append(Sync(kind="mbar.wait", object=MemRef(ring.empty, (), number), args=wait, by="elect"))
        told = (("bytes", const(ring.bytes)),)
        frame.body.append(Sync(kind="mbar.expect", object=MemRef(ring.full, (), number), args=told, by="elect"))
        for tile in ring.tiles:
            # Beyond an end inside the tensor the box brings what is there.
            fill: form.Fill = "undef" if any(tile is t for t, _ in self.passing) else 0
            name = self.slots_of_tiles[id(tile)]
            frame.body.append(form.Version(buffer=name, fill=fill, claim=self.slot_claim(tile, frame)))
        for tile in ring.tiles:
            self.copy_tile(tile, ring, frame)
        frame.body.append(form.Advance(counter=ring.counter))

    def boxes(self, count: int, body: Body) -> tuple[Body, Expr]:
        """A loop over boxes: its body and its variable."""
        loop = form.Loop(var=self.parts.fresh("box"), lo=const(0), hi=const(count), step=const(1), unroll=count)
        body.append(loop)
        return loop.body, sym(loop.var)

    def copy_tile(self, tile: Tile, ring: Ring, frame: Frame) -> None:
        """The boxes of one tile."""
        inner, box = self.extent(tile.inner), self.box_of(tile)
        row, dtype = self.row(tile), tile.value.type.dtype
        axes = (0, 1) if tile.tensor in self.moved and tile.keeper is None else tile.axes
        first, second = (sym(f"${a}") for a in axes)
        more = {axis: (part, begin) for axis, part, begin in tile.more}
        body = frame.body
        beyond = as_expr(0)
        if (size := self.grain(tile)) < self.extent(tile.outer) and not tile.more:
            body, at = self.boxes(self.extent(tile.outer) // size, body)
            _, _, hi = self.key(tile.outer, frame)
            first = at * size + first
            begin = self.start_of(tile.outer, frame) + at * size
            # Boxes beyond the end are moved past the tensor's, where there are zeros.
            beyond = FAR * maximum(0, begin + 1 - minimum(*ends(hi)))
        chunk: Expr | None = None
        if inner != row:
            body, chunk = self.boxes(inner // row, body)
        index: list[Expr] = []
        shared = self.shared(tile)
        if shared:
            first = self.feeding.cluster.offset(self.slice_of(tile)) + first
        for axis in range(len(box)):
            if axis == axes[0]:
                index.append(self.index(tile.offsets[0], frame) + self.start_of(tile.outer, frame) + first + beyond)
            elif axis in more:
                part, begin = more[axis]
                own = sym(f"${axis}") if box[axis] > 1 else as_expr(0)
                index.append(self.index(begin, frame) + self.start_of(part, frame) + own)
            elif axis == axes[1]:
                step = as_expr(0) if chunk is None else chunk * row
                start = self.index(tile.offsets[1], frame) + self.start_of(tile.inner, frame)
                index.append(start + step + second)
            else:
                sub = tile.source.subs[axis]
                assert isinstance(sub, Sub) and sub.index is not None
                index.append(self.index(sub.index, frame))
        slower = [sym(f"${axis}") for axis in more if box[axis] > 1]
        place = (*slower, first, second) if chunk is None else (chunk, *slower, first, second)
        number = sym(ring.counter)
        body.append(
            form.Copy(
                engine="tma.load",
                dst=MemRef(self.slots_of_tiles[id(tile)], place, number),
                src=MemRef(self.place_of(tile), tuple(index)),
                box=box,
                multicast=self.feeding.cluster.everyone() if shared else 0,
                signal=MemRef(ring.full, (), number),
                map=self.map_of(self.place_of(tile), dtype, box, swizzle_of(row, dtype)),
                by="elect",
                origin=self.line(tile.source),
            )
        )
