"""The expected time of a point of the streams family.

What no point changes is computed once: a planner asks for hundreds of points.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf, prod

from treadle.analysis.uses import flat_subs
from treadle.ir.core import Block, Op, Sub
from treadle.ir.ops.access import Load
from treadle.ir.ops.elementwise import Cast, Elementwise
from treadle.ir.ops.fold import Reduce
from treadle.plan.cost import CostVector
from treadle.plan.family import Point
from treadle.realise.closing import contracted, passing
from treadle.realise.clusters import Cluster
from treadle.realise.ring import Stream
from treadle.targets.cuda.rates import Rates, rates
from treadle.targets.cuda.shape import Shape
from treadle.targets.cuda.stream_clusters import MEETINGS, SPARED, cluster_of, later
from treadle.targets.cuda.stream_deals import Hands, drawn, hands, spread, weights
from treadle.targets.cuda.stream_facts import copied, holds, part_size, stored
from treadle.targets.cuda.stream_groups import FOUND, blocks, groups
from treadle.targets.cuda.stream_rates import (
    ARRIVAL,
    BEHIND,
    CLEARING,
    COMPANY,
    DRAWN,
    DRAWN_IN_TURNS,
    DRAWN_TOGETHER,
    FETCHED,
    FIRST,
    HANDOVER,
    HELD_NEAR,
    LAST,
    NARROW,
    NARROW_FLOAT,
    NARROW_INT,
    NEAR,
    NO_FASTER,
    ONE_PIECE,
    SCATTERED,
    SECTORS,
    SHARING,
    SLOT,
    SLOW_START,
    TAKEN,
    UNDER_WAY,
)
from treadle.targets.cuda.stream_room import Span, StreamRoom, size, sizes_of, slot_bytes
from treadle.targets.cuda.stream_whole import uncut


class StreamCost(StreamRoom):
    """Costs of the points of one stream under a call's facts."""

    def __init__(self, shape: Shape, stream: Stream) -> None:
        super().__init__(shape, stream)
        self.rate = rates(shape.facts)
        self.raw = any(c.raw for c in stream.contractions)
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
        self.narrow_results = any(op.tensor.dtype.bits < 32 for op in stored(stream, 0))
        self.packing = packing(shape, stream, self.rate)
        self._cleared: dict[tuple[int, int], int] = {}
        self._loads: dict[tuple[int, int], list[int] | None] = {}
        self._uncut: dict[tuple[int, int], frozenset[str]] = {}
        self._hands: dict[tuple[int, int, int, int, str], Hands] = {}

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

    # ---- a point

    def cost(self, point: Point) -> CostVector:
        """The expected time of a point."""
        if self.exceeds(point):
            return CostVector(compute=inf)
        rate, sizes, cluster = self.rate, sizes_of(point), cluster_of(point)
        tasks, resident = self.tasks(sizes, cluster), int(point.get("resident", 1))
        streamed = sum(slot_bytes(s, sizes) for s in self.slots if s.streamed)
        iterations = self.iterations(point, sizes)
        whole = self.cycles(point, sizes, tasks, iterations, streamed)
        workgroups = tasks * cluster.size
        again = workgroups * iterations * (streamed - SPARED * self.spared(cluster, sizes))
        if cluster.size > 1:
            whole += MEETINGS
        # What is on its way at a time, on the multiprocessors that have a task.
        ahead = int(point["versions"]) - int(point["flight"])
        flying = min(workgroups, resident * rate.processors) * ahead * streamed
        if point.get("turned", False):
            flying *= min(1.0, self.bytes / again)  # thin blocks: what several tasks ask for comes from memory once
        flow = min(rate.memory, flying / ARRIVAL, min(workgroups, rate.processors) * TAKEN * rate.clock)
        straight = self.bytes / flow + SLOW_START * self.bytes / flying + 0.05 * again / rate.cache
        return CostVector(
            compute=whole / rate.clock,
            memory=max(straight + 0.1 * whole / rate.clock / resident, 1.04 * again / rate.cache / 1.6),
            packing=self.packing,
            launch=rate.launch,
        )

    def tasks(self, sizes: dict[str, int], cluster: Cluster) -> int:
        """Into how many tasks a point cuts the call, each a cluster's."""
        block = joined(sizes, cluster)
        tasks = 1
        for span, extent, kind in self.args:
            tasks *= ceil(extent / size(span, block)) if kind == "block" else extent
        return tasks

    def iterations(self, point: Point, sizes: dict[str, int]) -> float:
        """Iterations of a task, in the mean."""
        loads = self.differing(point, sizes)
        if loads:
            return self.times * sum(loads) / len(loads)
        return self.times * max(1, ceil(self.depth / sizes["step"])) * (0.5 if self.varying else 1.0)

    def differing(self, point: Point, sizes: dict[str, int]) -> list[int] | None:
        """`loads` of a point."""
        return self.loads(sizes["rows"], sizes["step"]) if cluster_of(point).size == 1 else None

    def cycles(self, point: Point, sizes: dict[str, int], tasks: int, iterations: float, streamed: int) -> float:
        """Cycles of all tasks of a point, were memory always there in time."""
        resident, cluster = int(point.get("resident", 1)), cluster_of(point)
        executors = resident * self.rate.processors
        one, ends = self.one(point, sizes, streamed), self.ends(point, sizes)
        rounds, found = self.rounds(point, sizes, tasks, executors)
        company = 0.0 if self.chained else COMPANY * (int(point["consumers"]) - 1)
        whole = rounds * (iterations * one + ends) + company + found
        tasks *= cluster.size
        order, loads = str(point["raster"]), self.differing(point, sizes)
        if loads:
            dealt = self.hands(sizes["rows"], sizes["step"], tasks // len(loads), executors, order)
            whole = max(work * self.times * one + count * ends for work, count in dealt)
            near = streamed / sizes["step"] * self.depth * self.times
            whole *= spread(order, len(loads), tasks // len(loads), executors, near)
        elif order == "row" and tasks > 2 * self.rate.processors:
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
        return whole

    def rounds(self, point: Point, sizes: dict[str, int], tasks: int, executors: int) -> tuple[float, float]:
        """How many tasks the last executor to end has had, and cycles in which they were found."""
        cluster = cluster_of(point)
        if not self.stream.told:
            return float(ceil(tasks / (executors // cluster.size))), 0.0
        many = groups(self.shape, self.stream)
        number = blocks(self.shape, self.stream, joined(sizes, cluster)["rows"])
        share = int(point.get("shares", 1))
        each = max(1.0, number / many / share)
        # Workgroups end half a task apart.
        rounds = max(each, tasks * number / many / executors + 0.5 * each)
        return rounds, share * tasks / self.rate.processors * FOUND

    def one(self, point: Point, sizes: dict[str, int], streamed: int) -> float:
        """Cycles of an iteration."""
        cycles, consumers, resident = (
            self.computing(point, sizes),
            int(point["consumers"]),
            int(point.get("resident", 1)),
        )
        if resident > 1:
            # Two compute and contract in turn as they come; a task alone takes longer, both together less than twice.
            cycles *= SHARING
        if cluster_of(point).size > 1:
            cycles += later(cycles)
        # Turns leave a ring of two full most of the time; more of them only take longer to come round (measured: 2 %).
        versions = int(point["versions"])
        hidden = min(1.0, 0.4 + 0.2 * versions)
        if self.chained:
            hidden = 1.02 - 0.01 * versions if point["turns"] else min(1.0, 0.7 + 0.1 * versions)
        one = cycles / hidden + (60 if self.chained else 0)
        # What comes and what contracts hold each other up a little, the more alike they are.
        return one if self.chained else together(one, resident * (streamed / NEAR + (SLOT if consumers == 1 else 0.0)))

    def computing(self, point: Point, sizes: dict[str, int]) -> float:
        """Cycles of what an iteration contracts and computes beside."""
        cycles, consumers = self.contracting(point, sizes), int(point["consumers"])
        cycles += CLEARING * self.cleared(sizes["rows"], sizes["step"])
        if self.stream.loop is None:
            return cycles
        # Consumers that contract at the same time compute at the same time too: without turns little hides.
        simple = total(self.inside, sizes) / self.rate.lanes
        simple += sum(SECTORS * consumers * size(span, sizes) for span in self.strided)
        if self.raw:
            # The next stretch of an operand is made while products of this one are under way.
            return cycles + max(0.0, simple - UNDER_WAY * cycles)
        shown = 0.88 if point["turns"] else {1: 1.0, 2: 1.0, 3: 0.72}[consumers]
        if point["turns"] and self.stream.block is not None and self.stream.block.name in self.uncut(point):
            shown = ONE_PIECE
        return max(cycles, simple) + shown * min(cycles, simple) + (150.0 if self.chained else 0.0)

    def contracting(self, point: Point, sizes: dict[str, int]) -> float:
        """Cycles of an iteration's products."""
        cycles, consumers = 0.0, int(point["consumers"])
        for width, deep, bits, _ in self.products:
            one = 64 * size(width, sizes) * 256 / bits / self.rate.products * bits / 16
            cycles += max(one, NARROW / consumers) * consumers * size(deep, sizes) * bits / 256
        if self.chained:
            return cycles * (1.25 if consumers == 1 else 1.0)
        return max(cycles, cycles / consumers + (BEHIND if int(point["flight"]) else HANDOVER))

    def ends(self, point: Point, sizes: dict[str, int]) -> float:
        """Cycles of a task beside its iterations."""
        after = total(self.after, sizes) / self.rate.lanes
        after += sizes["rows"] * (sizes["columns"] or 128) * self.leaving(point)
        late = FETCHED if int(point.get("held", 1)) == 1 and self.chained and not point["turns"] else 0.0
        return after + 600 + late

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


def packing(shape: Shape, stream: Stream, rate: Rates) -> float:
    """Seconds in which operands are copied, or turned, that engines cannot take as they lie."""
    again = copied(stream, shape)
    seconds = len(again) * rate.launch
    for tile in again:
        moved = shape.bytes_of(tile.source.tensor)
        turned = (tile.tensor, tile.axes[1]) not in shape.facts.unit
        # Lanes that step along another axis than the contiguous one read a sector for each element.
        seconds += 2 * moved / (0.6 * rate.memory)
        seconds += 32 * moved / (tile.value.type.dtype.bits // 8) / rate.cache if turned else 0.0
    return seconds


def joined(sizes: dict[str, int], cluster: Cluster) -> dict[str, int]:
    """Sizes of the blocks of a cluster."""
    return {**sizes, cluster.along: sizes[cluster.along] * cluster.size} if cluster.size > 1 else sizes


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


def total(operations: Sequence[tuple[float, Sequence[Span]]], sizes: dict[str, int]) -> float:
    """Issue slots of simple operations."""
    return sum(weight * prod(size(s, sizes) for s in spans) for weight, spans in operations)
