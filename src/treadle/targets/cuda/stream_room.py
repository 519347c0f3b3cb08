"""Whether a point of the streams family fits: what its blocks take of shared memory, registers and the width of
instructions, and whether the form has it.

What no point changes is computed once: a planner asks for hundreds of points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from treadle.algebra.dims import Part
from treadle.algebra.expr import Constraint
from treadle.analysis.uses import flat_subs
from treadle.dtype.formats import DType
from treadle.ir.guard import Bound
from treadle.ir.ops.access import Load
from treadle.ir.ops.elementwise import Cast, Elementwise
from treadle.plan.family import Need, Point, Setting
from treadle.plan.pins import Pin
from treadle.realise.closing import closing
from treadle.realise.ring import Stream, row_in, row_of, swizzle_of
from treadle.targets.cuda.pins import asked_for
from treadle.targets.cuda.rates import target
from treadle.targets.cuda.shape import Shape
from treadle.targets.cuda.stream_boxes import box_of
from treadle.targets.cuda.stream_clusters import cluster_of
from treadle.targets.cuda.stream_facts import (
    atom_of,
    chained,
    depth_of,
    holds,
    in_place,
    store_facts,
    stored,
    told_apart,
    varying,
    whole_extent,
)
from treadle.targets.cuda.stream_rates import AHEAD, GATHERED, ODD, RESERVED, SLACK, TOLD_APART, TURNS, WIDEST

Span = str | int
"""Coordinates along a part: those of a block of rows, columns or the ordered region, or a number."""


NEEDING = (
    *("consumers", "step", "columns", "box", "cluster", "turned", "turns"),
    *("flight", "staged", "resident", "versions", "held", "ahead"),
)
"""The axes that say what a point needs."""


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


class StreamRoom:
    """What the points of one stream need under a call's facts."""

    def __init__(self, shape: Shape, stream: Stream) -> None:
        self.shape, self.stream = shape, stream
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
        self.beside = sum(ODD for op in stream.region.body.ops if isinstance(op, Load) and self.odd(op))
        self.chained, self.varying = chained(stream), varying(stream)
        self.told_apart = self.chained and told_apart(stream, shape.uses)
        self.stages, self.follows = staging(shape, stream), following(shape, stream)
        self._closed: dict[tuple[int, int], bool] = {}
        self._atoms: dict[int, bool] = {}
        self._exceeding: dict[tuple[Setting | None, ...], bool] = {}

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

    def odd(self, op: Load) -> bool:
        """Whether a tile is read beside the results, and not in pairs of neighbours."""
        facts, tensor = self.shape.facts, op.tensor
        if len(op.result.type.axes) != 2 or any(t.load is op for t in self.stream.tiles):
            return False
        pairs = facts.aligned.get(tensor.name, 0) >= tensor.dtype.bits // 4
        return not pairs or facts.value(tensor.dims[-1].extent) % 2 != 0

    # ---- a point

    def exceeds(self, point: Point) -> bool:
        """Whether a point needs more than the target has, or asks for what the form cannot do: whatever its order and
        its parts."""
        key = tuple(map(point.get, NEEDING))
        if key not in self._exceeding:
            self._exceeding[key] = self._exceeds(point)
        return self._exceeding[key]

    def _exceeds(self, point: Point) -> bool:
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


def staging(shape: Shape, stream: Stream) -> bool:
    """Whether results may go through shared memory."""
    results = stored(stream, 16)
    if not results or not all(holds(f, shape) for op in results for f in store_facts(op)) or stream.all_rows:
        return False
    return not any(s.part == stream.rows.part for op in results for s in flat_subs(op.subs[-1:]))


def following(shape: Shape, stream: Stream) -> bool:
    """Whether a product may be left under way while the next begins."""
    depth = depth_of(stream)
    local = {s for r in stream.nest for a in r.args for s in (a.name, f"{a.name}.start", f"{a.name}.stop")}
    if not holds(Bound(Constraint(depth - 1)), shape) or not in_place(stream) or depth.symbols & local:
        return False
    # Registers of an operand are a product's until it is waited for: the next iteration makes its own in them.
    return not any(c.raw for c in stream.contractions)


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
