"""What a point of the streams family needs and takes: whether it fits a multiprocessor, and its expected time.

What no point changes is computed once: a planner asks for hundreds of points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf, prod

from treadle.algebra.dims import Part
from treadle.algebra.expr import Constraint
from treadle.analysis.uses import flat_subs
from treadle.dtype.formats import DType
from treadle.ir.core import Block, Op, Sub
from treadle.ir.guard import Bound
from treadle.ir.ops.access import Load
from treadle.ir.ops.elementwise import Cast, Elementwise
from treadle.ir.ops.fold import Reduce
from treadle.plan.cost import CostVector
from treadle.plan.family import Need, Point
from treadle.plan.pins import Pin
from treadle.realise.closing import closing, contracted, passing
from treadle.realise.clusters import Cluster
from treadle.realise.ring import Stream, row_in, row_of, swizzle_of
from treadle.targets.cuda.pins import asked_for
from treadle.targets.cuda.rates import rates, target
from treadle.targets.cuda.shape import Shape
from treadle.targets.cuda.stream_boxes import box_of
from treadle.targets.cuda.stream_clusters import MEETINGS, SPARED, cluster_of, later
from treadle.targets.cuda.stream_deals import Hands, drawn, hands, spread, weights
from treadle.targets.cuda.stream_facts import (
    atom_of,
    chained,
    copied,
    depth_of,
    holds,
    in_place,
    part_size,
    store_facts,
    stored,
    told_apart,
    varying,
    whole_extent,
)
from treadle.targets.cuda.stream_groups import FOUND, blocks, groups
from treadle.targets.cuda.stream_rates import (
    AHEAD,
    ARRIVAL,
    BEHIND,
    CLEARING,
    COMPANY,
    DRAWN,
    DRAWN_IN_TURNS,
    DRAWN_TOGETHER,
    FETCHED,
    FIRST,
    GATHERED,
    HANDOVER,
    HELD_NEAR,
    LAST,
    NARROW,
    NARROW_FLOAT,
    NARROW_INT,
    NEAR,
    NO_FASTER,
    ODD,
    ONE_PIECE,
    RESERVED,
    SCATTERED,
    SECTORS,
    SHARING,
    SLACK,
    SLOT,
    SLOW_START,
    TAKEN,
    TOLD_APART,
    TURNS,
    UNDER_WAY,
    WIDEST,
)
from treadle.targets.cuda.stream_whole import uncut

Span = str | int
"""Coordinates along a part: those of a block of rows, columns or the ordered region, or a number."""


@dataclass(frozen=True)
class Slot:
    """A tile: the name of what it is a block of, its spans, its format, whether its depth is contiguous, whether each
    iteration has another, whether instructions read its slots (else threads do)."""

    name: str
    outer: Span
    inner: Span
    dtype: DType
    deep: bool
    streamed: bool
    plain: bool

    def fits(self, sizes: dict[str, int]) -> bool:
        """Whether blocks are made of rows of a slot: swizzled for instructions, of 128 bytes but along the depth."""
        inner = size(self.inner, sizes)
        row = row_in(self.dtype, inner)
        if self.plain:
            row = row if row == row_of(self.dtype) or self.deep and swizzle_of(row, self.dtype) else 0
        return size(self.outer, sizes) <= 256 and row > 0


class StreamCost:
    """Costs of the points of one stream under a call's facts."""

    def __init__(self, shape: Shape, stream: Stream) -> None:
        self.shape, self.stream = shape, stream
        self.rate = rates(shape.facts)
        self.shared = target(shape.facts).shared_bytes
        plain = {id(t) for c in stream.contractions for t in (c.left_tile, c.right_tile)}
        self.slots = [
            Slot(
                t.tensor,
                "rows" if t.more else self.span(t.outer),
                self.span(t.inner),
                t.value.type.dtype,
                t.inner == stream.step,
                t.streamed,
                id(t) in plain,
            )
            for t in stream.tiles
        ]
        self.products = [
            (self.span(c.cols), self.span(c.deep), c.right.type.dtype.bits, c.left_tile is None)
            for c in stream.contractions
        ]
        self.results = [c.op.result.hint or c.op.result.name.lstrip("%") for c in stream.contractions]
        started = self.started()
        self.carried = [
            self.span(next(p for p in v.type.axes if p != stream.rows.part))
            for v in (() if stream.loop is None else stream.loop.carried)
            if len(v.type.axes) == 2 and stream.rows.part in v.type.axes and v.name not in started
        ]
        """Columns of tiles that live through all iterations beside the accumulators."""
        across = any(t.inner != stream.step for c in stream.contractions for t in c.raw)
        self.gathered = GATHERED if across else 0
        self.raw = any(c.raw for c in stream.contractions)
        self.beside = sum(ODD for op in stream.region.body.ops if isinstance(op, Load) and self.odd(op))
        self.inside = [] if stream.loop is None else self.simple(stream.loop.body)
        self.after = self.simple(stream.region.body)
        body = [] if stream.loop is None else stream.loop.body.ops
        self.strided = [
            self.span(op.result.type.axes[0]) for op in body if isinstance(op, Load) and strided(shape, stream, op)
        ]
        """Spans of what an iteration reads number by number, a sector each."""
        self.args = [
            (self.span(a.part), max(1, shape.facts.value(a.domain.dim.extent)), a.kind)
            for r in stream.nest
            for a in r.args
            if a not in stream.told
        ]
        lets = dict(stream.program.lets)
        self.depth = part_size(stream) or shape.facts.value(stream.step.dim.extent.substitute(lets))
        self.times = 1
        """How often the depth is gone through: once for each coordinate of the ordered region that is single."""
        for arg in () if stream.loop is None else stream.loop.args:
            if arg.kind == "each":
                self.times *= max(1, shape.facts.value(arg.domain.dim.extent.substitute(lets)))
        self.bytes = shape.bytes_in(stream.region)
        self.chained, self.varying = chained(stream), varying(stream)
        self.told_apart = self.chained and told_apart(stream, shape.uses)
        results = stored(stream, 16)
        self.narrow_results = any(op.tensor.dtype.bits < 32 for op in stored(stream, 0))
        self.stages = bool(results) and all(holds(f, shape) for op in results for f in store_facts(op))
        self.stages = self.stages and not stream.all_rows
        self.stages = self.stages and not any(
            s.part == stream.rows.part for op in results for s in flat_subs(op.subs[-1:])
        )
        depth = depth_of(stream)
        local = {s for r in stream.nest for a in r.args for s in (a.name, f"{a.name}.start", f"{a.name}.stop")}
        self.follows = holds(Bound(Constraint(depth - 1)), shape) and in_place(stream) and not depth.symbols & local
        # Registers of an operand are a product's until it is waited for: the next iteration makes its own in them.
        self.follows = self.follows and not any(c.raw for c in stream.contractions)
        again = copied(stream, shape)
        self.packing = len(again) * self.rate.launch
        for tile in again:
            size = shape.bytes_of(tile.source.tensor)
            turned = (tile.tensor, tile.axes[1]) not in shape.facts.unit
            # Lanes that step along another axis than the contiguous one read a sector for each element.
            self.packing += 2 * size / (0.6 * self.rate.memory)
            self.packing += 32 * size / (tile.value.type.dtype.bits // 8) / self.rate.cache if turned else 0.0
        self._closed: dict[tuple[int, int], bool] = {}
        self._atoms: dict[int, bool] = {}
        self._cleared: dict[tuple[int, int], int] = {}
        self._loads: dict[tuple[int, int], list[int] | None] = {}
        self._uncut: dict[tuple[int, int], frozenset[str]] = {}
        self._hands: dict[tuple[int, int, int, int, str], Hands] = {}

    def started(self) -> set[str]:
        """Values that accumulators start as, or are made of one by one: their registers are the accumulators'."""
        todo = [c.op.acc for c in self.stream.contractions]
        found: set[str] = set()
        while todo:
            value = todo.pop()
            if value.name not in found:
                found.add(value.name)
                made = self.shape.uses.definition.get(value.name)
                if isinstance(made, Elementwise | Cast):
                    todo += self.shape.uses.direct(made)
        return found

    def span(self, part: Part) -> Span:
        """The span of a part."""
        stream = self.stream
        if stream.more_rows and part in stream.row_parts:
            return f"rows{stream.row_parts.index(part)}"
        if part == stream.rows.part:
            return "rows"
        if part == stream.step:
            return "step"
        if stream.columns is not None and part == stream.columns.part:
            return "columns"
        return whole_extent(part, stream.program) or self.shape.extent(part)

    def simple(self, block: Block) -> list[tuple[float, list[Span]]]:
        """Simple operations of a block: the weight of an element and the spans of what they make."""
        found: list[tuple[float, list[Span]]] = []
        for op in block.ops:
            if isinstance(op, Elementwise | Cast | Reduce):
                value = op.source if isinstance(op, Reduce) else op.result
                spans = [s if isinstance(s := self.span(p), str) else self.shape.extent(p) for p in value.type.axes]
                found.append((max(self.shape.weight(op), taken_apart(op)), spans))
            elif isinstance(op, Load) and self.scattered(op):
                axes = op.result.type.axes
                spans = [s if isinstance(s := self.span(p), str) else self.shape.extent(p) for p in axes]
                found.append((SCATTERED, spans))
        return found

    def scattered(self, op: Load) -> bool:
        """Whether threads find each element of an operand by a computed place."""
        places = any(s.tile is not None for s in flat_subs(op.subs))
        return places and len(op.result.type.axes) == 2 and not any(t.load is op for t in self.stream.tiles)

    def odd(self, op: Load) -> bool:
        """Whether a tile is read beside the results, and not in pairs of neighbours."""
        facts, tensor = self.shape.facts, op.tensor
        if len(op.result.type.axes) != 2 or any(t.load is op for t in self.stream.tiles):
            return False
        pairs = facts.aligned.get(tensor.name, 0) >= tensor.dtype.bits // 4
        return not pairs or facts.value(tensor.dims[-1].extent) % 2 != 0

    # ---- a point

    def cost(self, point: Point) -> CostVector:
        """The expected time of a point."""
        if self.exceeds(point):
            return CostVector(compute=inf)
        rate = self.rate
        sizes = sizes_of(point)
        rows, step, columns = sizes["rows"], sizes["step"], sizes["columns"]
        cluster = cluster_of(point)
        block = {**sizes, cluster.along: sizes[cluster.along] * cluster.size} if cluster.size > 1 else sizes
        tasks = 1
        for span, extent, kind in self.args:
            tasks *= ceil(extent / size(span, block)) if kind == "block" else extent
        loads = self.loads(rows, step) if cluster.size == 1 else None
        iterations = self.times * max(1, ceil(self.depth / step)) * (0.5 if self.varying else 1.0)
        if loads:
            iterations = self.times * sum(loads) / len(loads)
        cycles = 0.0
        consumers = int(point["consumers"])
        for width, deep, bits, _ in self.products:
            one = 64 * size(width, sizes) * 256 / bits / rate.products * bits / 16
            cycles += max(one, NARROW / consumers) * consumers * size(deep, sizes) * bits / 256
        if self.chained:
            cycles *= 1.25 if consumers == 1 else 1.0
        else:
            cycles = max(cycles, cycles / consumers + (BEHIND if int(point["flight"]) else HANDOVER))
        cycles += CLEARING * self.cleared(rows, step)
        if self.stream.loop is not None:
            # Consumers that contract at the same time compute at the same time too: without turns little hides.
            simple = total(self.inside, sizes) / rate.lanes
            simple += sum(SECTORS * consumers * size(span, sizes) for span in self.strided)
            shown = 0.88 if point["turns"] else {1: 1.0, 2: 1.0, 3: 0.72}[consumers]
            if point["turns"] and self.stream.block is not None and self.stream.block.name in self.uncut(point):
                shown = ONE_PIECE
            if self.raw:
                # The next stretch of an operand is made while products of this one are under way.
                cycles += max(0.0, simple - UNDER_WAY * cycles)
            else:
                cycles = max(cycles, simple) + shown * min(cycles, simple) + (150.0 if self.chained else 0.0)
        # Turns leave a ring of two full most of the time; more of them only take longer to come round (measured: 2 %).
        versions = int(point["versions"])
        hidden = min(1.0, 0.4 + 0.2 * versions)
        if self.chained:
            hidden = 1.02 - 0.01 * versions if point["turns"] else min(1.0, 0.7 + 0.1 * versions)
        after = total(self.after, sizes) / rate.lanes
        after += rows * (columns or 128) * self.leaving(point)
        resident = int(point.get("resident", 1))
        if resident > 1:
            # Two compute and contract in turn as they come; a task alone takes longer, both together less than twice.
            cycles *= SHARING
        rounds = float(ceil(tasks / (resident * rate.processors // cluster.size)))
        if self.stream.told:
            number = blocks(self.shape, self.stream, block["rows"])
            share = int(point.get("shares", 1))
            each = max(1.0, number / groups(self.shape, self.stream) / share)
            # Workgroups end half a task apart.
            rounds = max(
                each, tasks * number / groups(self.shape, self.stream) / (resident * rate.processors) + 0.5 * each
            )
            found = share * tasks / rate.processors * FOUND
        else:
            found = 0.0
        tasks *= cluster.size
        if cluster.size > 1:
            cycles += later(cycles)
        company = 0.0 if self.chained else COMPANY * (consumers - 1)
        streamed = sum(slot_bytes(s, sizes) for s in self.slots if s.streamed)
        late = FETCHED if int(point.get("held", 1)) == 1 and self.chained and not point["turns"] else 0.0
        one, ends = cycles / hidden + (60 if self.chained else 0), after + 600 + late
        # What comes and what contracts hold each other up a little, the more alike they are.
        one = one if self.chained else together(one, resident * (streamed / NEAR + (SLOT if consumers == 1 else 0.0)))
        whole = rounds * (iterations * one + ends) + company + found
        order, executors = str(point["raster"]), resident * rate.processors
        if loads:
            dealt = self.hands(rows, step, tasks // len(loads), executors, order)
            whole = max(work * self.times * one + count * ends for work, count in dealt)
            near = streamed / step * self.depth * self.times
            whole *= spread(order, len(loads), tasks // len(loads), executors, near)
        elif order == "row" and tasks > 2 * rate.processors:
            whole *= self.plain_order
        elif order == "drawn":
            whole *= DRAWN
        if drawn(order) and order != "drawn":
            whole *= DRAWN_IN_TURNS if point["turns"] else DRAWN_TOGETHER
        if point.get("ahead", False):
            whole += NO_FASTER
        if int(point["flight"]):
            whole = 1.002 * whole + LAST
        if not self.chained:
            whole += FIRST * streamed
        again = tasks * iterations * (streamed - SPARED * self.spared(cluster, sizes))
        if cluster.size > 1:
            whole += MEETINGS
        # What is on its way at a time, on the multiprocessors that have a task.
        flying = min(tasks, resident * rate.processors) * (versions - int(point["flight"])) * streamed
        if point.get("turned", False):
            flying *= min(1.0, self.bytes / again)  # thin blocks: what several tasks ask for comes from memory once
        flow = min(rate.memory, flying / ARRIVAL, min(tasks, rate.processors) * TAKEN * rate.clock)
        straight = self.bytes / flow + SLOW_START * self.bytes / flying + 0.05 * again / rate.cache
        return CostVector(
            compute=whole / rate.clock,
            memory=max(straight + 0.1 * whole / rate.clock / resident, 1.04 * again / rate.cache / 1.6),
            packing=self.packing,
            launch=rate.launch,
        )

    def uncut(self, point: Point) -> frozenset[str]:
        """Arguments of which no block of a point is cut short."""
        key = int(point["consumers"]), int(point["step"])
        if key not in self._uncut:
            self._uncut[key] = uncut(self.stream, point, lambda fact: holds(fact, self.shape))[0]
        return self._uncut[key]

    def loads(self, rows: int, step: int) -> list[int] | None:
        """Iterations of the tasks along the rows, where they differ and are known."""
        if not self.varying or self.stream.told:
            return None
        if (rows, step) not in self._loads:
            self._loads[rows, step] = weights(self.shape, self.stream, rows, step)
        return self._loads[rows, step]

    def hands(self, rows: int, step: int, others: int, executors: int, order: str) -> Hands:
        """What workgroups get of these tasks."""
        key = rows, step, others, executors, order
        if key not in self._hands:
            self._hands[key] = hands(self.loads(rows, step) or [], others, executors, order)
        return self._hands[key]

    def leaving(self, point: Point) -> float:
        """Cycles of an element of the results on its way out, in which nothing is contracted: from registers a warp
        writes halves of sectors of numbers of 16 bits; of a chain they leave while others are made."""
        if self.chained:
            return 1.0 / 64 if point["staged"] else 1.0 / 6.5
        return 1.0 / 2.3 if self.narrow_results and not point["staged"] else 1.0 / 6

    @property
    def plain_order(self) -> float:
        """How much longer tasks take in the order in which they are written."""
        if len(self.args) != 2 and not self.varying:
            return 1.0  # panels are of two arguments
        return 1.03 if self.varying or self.bytes > HELD_NEAR else 1.008

    def cleared(self, rows: int, step: int) -> int:
        """How many slots of an iteration are cleared beyond an end."""
        if (rows, step) not in self._cleared:
            found = passing(self.stream, rows, step)
            self._cleared[rows, step] = sum(t.streamed and contracted(self.stream, t, p) for t, p in found)
        return self._cleared[rows, step]

    def spared(self, cluster: Cluster, sizes: dict[str, int]) -> float:
        """Bytes of an iteration that a workgroup has from the others of its cluster."""
        if cluster.size == 1:
            return 0.0
        both = (s for s in self.slots if s.streamed and cluster.along not in (s.outer, s.inner))
        return sum(slot_bytes(s, sizes) for s in both) * (1 - 1 / cluster.size)

    def exceeds(self, point: Point) -> bool:
        """Whether a point needs more than the target has, or asks for what the form cannot do."""
        consumers, sizes, cluster = int(point["consumers"]), sizes_of(point), cluster_of(point)
        if cluster.size > 1 and self.varying:
            return True
        if not point.get("turned", False) and 0 < sizes["columns"] < 64:
            return True
        if self.stream.more_rows and prod(box_of(point)) != sizes["rows"]:
            return True
        if point["turns"] and (consumers != 2 or len(self.stream.batches) != 2):
            return True
        if (int(point["flight"]) and not self.follows) or (point["staged"] and not self.stages):
            return True
        for slot in self.slots:
            if not slot.fits(sizes):
                return True
            if cluster.size > 1 and size(slot.outer, sizes) % (8 * cluster.size):
                return True
        shared = sum(n for _, n in self.shared_parts(point, sizes))
        resident = int(point.get("resident", 1))
        if resident > 1 and (
            consumers > 1 or self.told_apart or resident * (shared + RESERVED) > self.shared + RESERVED
        ):
            return True
        if shared > self.shared:
            return True
        for cols, _, _, _ in self.products:
            width = size(cols, sizes)
            if width % 8 or width > WIDEST or not self.has_atoms(width):
                return True
        if sum(n for _, n in self.register_parts(point, sizes)) > self.registers(point):
            return True
        return not self.closes(sizes["rows"], sizes["step"])

    def shared_parts(self, point: Point, sizes: dict[str, int], pins: Sequence[Pin] = ()) -> list[tuple[str, int]]:
        """Bytes of shared memory of a point, by what holds them."""
        found = [("barriers and alignment", SLACK + 512)]
        if point["staged"]:
            found.append(("results", 16384 * int(point["consumers"])))
        for slot in self.slots:
            own = int(point["versions"]) if slot.streamed else int(point.get("held", 1))
            copies = asked_for(own, slot.name, pins) if slot.streamed else own
            found.append((slot.name, copies * slot_bytes(slot, sizes)))
        return found

    def register_parts(self, point: Point, sizes: dict[str, int]) -> list[tuple[str, int]]:
        """Registers of a consumer's thread, by what holds them."""
        found = [("carried", sum(size(cols, sizes) // 2 for cols in self.carried))]
        found.append(("beside", self.gathered + self.beside))
        found.append(("a step ahead", AHEAD if point.get("ahead", False) and self.varying else 0))
        found.append(("loaded numbers", TOLD_APART if self.told_apart and point["staged"] else 0))
        for name, (cols, deep, _, computed) in zip(self.results, self.products, strict=True):
            found.append((name, size(cols, sizes) // 2))
            if computed:
                found.append((f"operand of {name}", (size(deep, sizes) if isinstance(deep, str) else 128) // 4))
        return found

    def registers(self, point: Point) -> int:
        """What a consumer's thread has of them for all that."""
        return TURNS if point["turns"] else {1: 200, 2: 200, 3: 128}[int(point["consumers"])]

    def needs(self, point: Point, pins: Sequence[Pin]) -> list[Need]:
        """What a point takes of shared memory, registers and the width of instructions."""
        sizes = sizes_of(point)
        resident = int(point.get("resident", 1))
        limit = (self.shared + RESERVED) // resident - RESERVED
        widths = [(name, size(cols, sizes)) for name, (cols, *_) in zip(self.results, self.products, strict=True)]
        room, held = self.shared_parts(point, sizes, pins), self.register_parts(point, sizes)
        return [
            Need("shared memory", " bytes", limit, [p for p in room if p[1]]),
            Need("a thread's registers", "", self.registers(point), [p for p in held if p[1]]),
            *(Need("an instruction's columns", "", WIDEST, [one]) for one in widths),
        ]

    def has_atoms(self, width: int) -> bool:
        """Whether every contraction has an instruction of this width."""
        if width not in self._atoms:
            self._atoms[width] = all(atom_of(c, width) is not None for c in self.stream.contractions)
        return self._atoms[width]

    def closes(self, rows: int, step: int) -> bool:
        """Whether blocks of these sizes end where engines deliver zeros."""
        if (rows, step) not in self._closed:
            ends = closing(self.stream, rows, step)
            self._closed[rows, step] = not isinstance(ends, str) and all(holds(f, self.shape) for f in ends)
        return self._closed[rows, step]


def strided(shape: Shape, stream: Stream, op: Load) -> bool:
    """Whether an iteration reads a number for each column that does not lie beside the next column's."""
    kept = {id(t.load) for t in stream.tiles}
    cols = [c.cols for c in stream.contractions]
    if id(op) in kept or len(op.result.type.axes) != 1 or op.result.type.axes[0] not in cols or not op.subs:
        return False
    last = next((p for a, p in enumerate(op.subs) if (op.tensor.name, a) in shape.facts.unit), op.subs[-1])
    return not isinstance(last, Sub) or last.part not in cols


def together(first: float, second: float) -> float:
    """The larger of two times where they differ, and a twelfth more where they are alike."""
    most = max(first, second)
    return most * ((first / most) ** 8 + (second / most) ** 8) ** 0.125


def taken_apart(op: Op) -> float:
    """Issue slots of an element: a number of 8 bits or fewer is cut out of a word, then converted."""
    if not isinstance(op, Cast) or op.source.type.dtype.bits > 8:
        return 1.0
    return NARROW_FLOAT if op.source.type.dtype.is_float else NARROW_INT


def sizes_of(point: Point) -> dict[str, int]:
    """The sizes of a point's blocks."""
    found = {"rows": 64 * int(point["consumers"]), "step": int(point["step"]), "columns": int(point["columns"])}
    return found | {f"rows{i}": size for i, size in enumerate(box_of(point))}


def size(span: Span, sizes: dict[str, int]) -> int:
    """Coordinates along a span."""
    return sizes[span] if isinstance(span, str) else span


def slot_bytes(slot: Slot, sizes: dict[str, int]) -> int:
    """Bytes of a slot."""
    return slot.dtype.bits * size(slot.outer, sizes) * size(slot.inner, sizes) // 8


def total(operations: Sequence[tuple[float, Sequence[Span]]], sizes: dict[str, int]) -> float:
    """Issue slots of simple operations."""
    return sum(weight * prod(size(s, sizes) for s in spans) for weight, spans in operations)
