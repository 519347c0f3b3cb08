"""Contractions of few rows or columns with lanes along what they sum: the family `sums in lanes`.

Where an operand runs along the contracted dimension in memory and its elements are used a few times only, turning it
round for lanes along the accumulator is most of the work. Here both operands are read along the depth, in place where
they lie so: each lane of a register block has a partial sum, and the lanes are joined at the end. What is converted on
the way (short floats, bytes, halves of bytes) is converted in registers, or once for all rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, inf

from treadle.algebra.dims import Dim
from treadle.analysis.uses import WEIGHT
from treadle.ir.core import Program, Value
from treadle.ir.guard import Guard
from treadle.ir.ops.access import Load, Store
from treadle.ir.ops.elementwise import Cast, Elementwise, Full
from treadle.ir.ops.fold import Reduce
from treadle.machine.form import MachineProgram
from treadle.plan.cost import CostVector
from treadle.plan.facts import CallFacts
from treadle.plan.family import Axis, Point
from treadle.plan.grain import Grain, blocks, evenness
from treadle.plan.pins import Pin
from treadle.realise.ahead import blocks_ahead
from treadle.realise.blocks import realise
from treadle.realise.choices import Choices, Digit, Pack
from treadle.rules.derivation import Derivation
from treadle.rules.folds import apart
from treadle.targets.cpu.admission import (
    call_guard,
    common_reasons,
    grain_of,
    handed_out,
    pins_refused,
    worker_counts,
)
from treadle.targets.cpu.blocking import DEPTH, EXACT, Block, Blocking, grouping
from treadle.targets.cpu.contraction import allowed, unaccumulated
from treadle.targets.cpu.emit.access import LEAST_TURNED
from treadle.targets.cpu.instructions import FEATURES
from treadle.targets.cpu.rates import rates, traffic
from treadle.targets.cpu.roles import Roles, lanes_of, roles
from treadle.targets.cpu.shape import Contraction, Shape, shape_of

FEW = 64
"""Rows or columns up to which the family is tried: from there on packed operands are read often enough."""

DEEP = 4032
"""Contracted coordinates after which lanes are joined; rows of a copy that are so long lie in different sets of a
cache."""

ROWS = (1, 2, 4, 3, 6)
COLUMNS = (8, 4, 16, 2)
"""Register blocks to try: results along each of two dimensions, a vector of partial sums each. A dimension of at most
`SHORT` coordinates may be whole."""
SHORT = 8

CONVERTED = {("i4", "bf16"): 2.5, ("u4", "bf16"): 2.5}
"""Instructions to convert a vector of contracted elements, where it is not `CONVERSION`."""
CONVERSION = 3.0
AHEAD = 1.0
"""The part of them where a loop does nothing else (and stores what it makes): 4-bit weights of one row took 174 us
converted on the way and 265 copied."""
TURNED = 1.0
MOVED = 0.02
"""What it costs to copy bytes across the depth, and along it, of what it costs to pack as many bytes."""
GATHERED = 4.0
"""That of what lies across the depth in pieces shorter than `LEAST_TURNED`: it is gathered, not turned in registers (3
to 5.7 for two or three columns, 0.5 to 1.1 from four on)."""
WINDOW = 3.5
"""That of windows that may begin before a tensor or end behind it, at least: each block of them finds out whether it is
inside, for few elements (2.8 to 4.1 in pieces of four)."""

STREAM = 512
"""Bytes of a row that are read at once from which the next ones are there in time."""
LINE = 64
APART = 12e-9
"""Seconds to wait for a line of rows of which less is read at a time (seen on two caches' worth of weights)."""


@dataclass(frozen=True)
class Way:
    """How a contraction goes: who is along the two dimensions of its register block, which values are copied first."""

    role: Roles
    deep: Dim
    atom: str
    copied: tuple[Value, ...]

    @property
    def group(self) -> int:
        """Coordinates that a lane sums at once."""
        return DEPTH[self.atom]


class Along:
    """Decisions of a point for one program."""

    def __init__(self, shape: Shape, point: Point) -> None:
        self.shape = shape
        self.point = point
        self.rate = rates(shape.facts)
        rows, columns = int(point["rows"]), int(point["columns"])
        lane = lanes_of(shape)[0]
        block = Block(lane, rows, columns, int(point["outer"]), int(point["inner"]), DEEP, packed=False)
        self.blocking = Blocking(shape, block)
        self.tile: dict[str, int] = {}
        for role in self.blocking.roles:
            self.tile[role.lane.name] = columns
            if role.row is not None:
                self.tile.setdefault(role.row.name, rows)
        self.blocking.tile = self.tile
        self.ways = [self.way(role) for role in self.blocking.roles]

    def way(self, role: Roles) -> Way:
        """One contraction."""
        deep = role.found.contracted[0]
        atom = str(self.point["atom"]) if str(self.point["atom"]) in grouping(role.found) else "fma"
        pair = (role.lane_operand, role.row_operand)
        return Way(role, deep, atom, tuple(v for v in pair if self.is_copied(v, role, deep)))

    def is_copied(self, value: Value, role: Roles, deep: Dim) -> bool:
        """Whether an operand is laid out along the depth first: one that does not lie so, or that is converted once for
        all rows."""
        if self.shape.source_unit(value) is not deep or not self.blocking.loaded(value):
            return True
        return bool(self.point["copied"]) and value is role.lane_operand and not self.plain(value)

    def plain(self, value: Value) -> bool:
        """Whether a value is loaded as its contraction reads it."""
        return isinstance(self.shape.uses.definition.get(value.name), Load)

    def width(self, way: Way) -> int:
        """Contracted coordinates of a step."""
        return self.rate.lanes * way.group

    def choices(self) -> Choices:
        """The point as decisions of the lowering engine."""
        shape, blocking = self.shape, self.blocking
        depth = {w.deep.name: self.width(w) for w in self.ways}
        sweep = dict.fromkeys(shape.contiguous, self.rate.lanes) | dict.fromkeys(blocking.lanes, self.rate.lanes)
        rows = tuple(w.role.row.name for w in self.ways if w.role.row is not None)
        others = tuple(n for n in shape.contiguous if n not in blocking.lanes and n not in depth)
        order = tuple(dict.fromkeys((*blocking.lanes, *rows)))
        return Choices(
            cuts=blocking.cuts(),
            tasks=handed_out(shape, self.point),
            sweep=sweep,
            tile=self.tile,
            vector=tuple(dict.fromkeys((*depth, *others, *blocking.lanes))),
            whole_tiles=blocking.accumulators(),
            packs=tuple({v.name: self.pack(v, w) for w in self.ways for v in w.copied}.values()),
            depth=depth,
            atoms={w.role.found.op.result.name: w.atom for w in self.ways if w.atom != "fma"},
            along={w.role.found.op.result.name: w.group for w in self.ways},
            fuse=True,
            row_order=order,
            sweep_order=order,
            numerics=("mma_subnormals",) if any(w.atom not in EXACT for w in self.ways) else (),
        )

    def pack(self, value: Value, way: Way) -> Pack:
        """A copy whose last axis is the depth, its ends filled up with zeros: rows that are not there are read, too."""
        shape, width = self.shape, self.width(way)
        source = shape.source_unit(value)
        dim = way.role.lane if value is way.role.lane_operand else way.role.row
        rows = 1 if dim is None else self.tile[dim.name]
        rest = [d for d in value.type.dims if d is not way.deep and (d is not dim or rows == 1)]
        whole_axes: list[Digit] = [(d.name, "all", 1) for d in rest]
        panels: list[Digit] = []
        slots: list[tuple[str, int]] = [(way.deep.name, width)]
        if dim is not None and rows > 1:
            panels = [(dim.name, "panel", rows), (dim.name, "lane", rows)]
            slots.insert(0, (dim.name, rows))
        layout: tuple[Digit, ...] = (*whole_axes, *panels, (way.deep.name, "all", 1))
        if source is not None and source is dim and rows > 1:
            slots = [(way.deep.name, self.rate.lanes), (source.name, rows)]
        elif source is not None and source is not way.deep and source in rest:
            slots.append((source.name, max(2, min(self.rate.lanes, shape.extent(source)))))
            slots[-2] = (way.deep.name, self.rate.lanes)
        level, whole = self.blocking.level(value, way.role), ((way.deep.name, width),)
        return Pack(value.name, level, layout, tuple(slots), way.atom == "fma", whole)

    def ahead(self) -> frozenset[str]:
        """The tensors that are read along the depth and whose rows come once, block by block: in place, or as they are
        copied."""
        found: set[str] = set()
        for way in self.ways:
            once = self.once(way)
            made = self.shape.uses.definition.get(once.name)
            while isinstance(made, Cast):
                made = self.shape.uses.definition.get(made.source.name)
            if self.shape.source_unit(once) is way.deep and isinstance(made, Load):
                found.add(made.tensor.name)
        return frozenset(found)

    def once(self, way: Way) -> Value:
        """The operand whose rows come once, block by block."""
        many = self.shape.extent(way.role.lane) > self.tile[way.role.lane.name]
        return way.role.lane_operand if many else way.role.row_operand

    # ---- what it takes

    def registers(self) -> int:
        """Vectors that the largest register block needs."""
        sizes = [
            (1 if w.role.row is None else self.tile[w.role.row.name], self.tile[w.role.lane.name]) for w in self.ways
        ]
        together = max(len(self.shape.uses.contractions(w.role.found.block)) for w in self.ways)
        return max(rows * columns * together + min(rows, columns) + 1 for rows, columns in sizes)

    def compute(self) -> float:
        """Seconds of one core for products, conversions and joins."""
        return sum(map(self._compute, self.ways)) + self.beside / self.rate.lanes / self.rate.simple

    def _compute(self, way: Way) -> float:
        shape, rate, role = self.shape, self.rate, way.role
        m, n = (1 if role.row is None else shape.extent(role.row)), shape.extent(role.lane)
        rows, columns = (1 if role.row is None else self.tile[role.row.name]), self.tile[role.lane.name]
        total = max(1, shape.extent(way.deep))
        others = shape.products(role.found) / max(1, m * n * total)
        blocks_ = others * ceil(m / rows) * ceil(n / columns)
        products = max(rows * columns, SHORT) / rate.issue(way.atom)
        step = products + 0.5 * (rows + columns) / rate.loads
        for value, many in ((role.row_operand, rows), (role.lane_operand, columns)):
            if value not in way.copied:
                step += many * self.converting(value, way) / rate.simple
        count = min(rate.lanes, rows * columns)
        halvings = (rate.lanes // count).bit_length() - 1
        join = 3.0 * ((count - 1) + halvings) / count * rows * columns / rate.simple
        waiting = sum(self.waiting(v, way) for v in (role.row_operand, role.lane_operand) if v not in way.copied)
        return blocks_ * (ceil(total / self.width(way)) * step + ceil(total / DEEP) * join) + waiting

    def waiting(self, value: Value, way: Way) -> float:
        """Seconds for lines of an operand that is read in place in short pieces, whose rows come round when they have
        left the first cache, and are not asked for ahead."""
        shape, dtype = self.shape, self.shape.source_dtype(value)
        if value is self.once(way) and value not in way.copied:
            return 0.0
        size = 4.0 if dtype is None else dtype.bits / 8
        lane = value is way.role.lane_operand
        dim = way.role.lane if lane else way.role.row
        whole = shape.elements(way.role.found.op, value.type.dims) * size
        block = int(self.point["inner" if lane else "outer"])
        share = 1.0 if dim is None else min(1.0, block / max(1, shape.extent(dim)))
        short = shape.extent(way.deep) * size < STREAM
        return whole / LINE * APART if short and share * whole > self.rate.l1 else 0.0

    def converting(self, value: Value, way: Way) -> float:
        """Instructions for a vector of an operand that is read in place."""
        wanted = "f32" if way.atom == "fma" else value.type.dtype.name
        source = self.shape.source_dtype(value)
        if source is None or source.name == wanted:
            return 0.0
        return CONVERTED.get((source.name, wanted), CONVERSION)

    def packing(self) -> float:
        """Seconds of one core for copies."""
        shape, rate, total = self.shape, self.rate, 0.0
        for way in self.ways:
            for value in way.copied:
                lane = value is way.role.lane_operand
                other = way.role.row if lane else way.role.lane
                size = int(self.point["outer"] if lane else self.point["inner"])
                trips = 1 if other is None else ceil(shape.extent(other) / size)
                elements = trips * shape.elements(way.role.found.op, value.type.dims)
                turned = shape.source_unit(value) is not way.deep
                copied = 4.0 if way.atom == "fma" else value.type.dtype.bits / 8
                moved = (copied + shape.source_bytes(value)) * (self.turning(value, way) if turned else MOVED)
                total += elements * moved / rate.packing_rate
                total += elements / self.width(way) * AHEAD * self.converting(value, way) / rate.simple
        return total

    def turning(self, value: Value, way: Way) -> float:
        """What it costs to copy an operand across the depth, of what it costs to pack as many bytes."""
        source = self.shape.source_unit(value)
        piece = self.rate.lanes if source is None else min(self.rate.lanes, self.shape.extent(source))
        if source is not None and source in (way.role.lane, way.role.row) and self.tile[source.name] > 1:
            piece = self.tile[source.name]
        least = TURNED if self.blocking.loaded(value) else WINDOW
        return least if piece >= LEAST_TURNED else max(least, GATHERED)

    @cached_property
    def beside(self) -> float:
        """Elements times simple instructions of what is no operand."""
        deep = {w.deep for w in self.ways}
        total = 0.0
        for op in self.shape.program.body.walk():
            if not isinstance(op, Elementwise | Cast | Reduce | Load | Store):
                continue
            value = op.value if isinstance(op, Store) else op.source if isinstance(op, Reduce) else op.result
            if not deep & set(value.type.dims):
                weight = WEIGHT.get(op.fn, 1) if isinstance(op, Elementwise) else 1
                total += weight * self.shape.elements(op, value.type.dims)
        return total


class SumsInLanes:
    """See the module."""

    name = "sums in lanes"

    def derivation(self, program: Program, facts: CallFacts, point: Point) -> Derivation | None:
        """Every contraction started from zero, where it is not; None where nothing is left to do."""
        shape = shape_of(program, facts)
        known = shape.known.get(self.name)
        if not isinstance(known, Derivation):
            known = Derivation(program)
            for found in shape.contractions:
                start = shape.uses.definition.get(found.op.acc.name)
                if found.contracted and not (isinstance(start, Full) and start.number == 0):
                    known = known.then(apart, found.op.result.name)
            shape.known[self.name] = known
        return known if known.steps else None

    def _shape(self, program: Program, facts: CallFacts) -> Shape:
        found = self.derivation(program, facts, {})
        return shape_of(program if found is None else found.program, facts)

    def admits(self, program: Program, facts: CallFacts) -> Sequence[str]:
        shape = shape_of(program, facts)
        reasons = common_reasons(shape)
        if not shape.contractions:
            return [*reasons, "it has no contraction"]
        reasons += [why for found in shape.contractions for why in _unfit(shape, found)]
        return list(dict.fromkeys(reasons)) or unaccumulated(shape)

    def axes(self, program: Program, facts: CallFacts) -> Sequence[Axis]:
        shape = self._shape(program, facts)
        m, n = self._extents(shape)
        return [
            Axis("rows", tuple(dict.fromkeys((*((m,) if m <= SHORT else ()), *(r for r in ROWS if r < m))))),
            Axis("columns", tuple(dict.fromkeys((*((n,) if n <= SHORT else ()), *(c for c in COLUMNS if c < n))))),
            Axis("outer", (FEW, 16) if m > 16 else (FEW,)),
            Axis("inner", (64, 128, 16, 256) if n > 16 else (64,)),
            Axis("copied", (False, True) if self.converts(shape) else (False,)),
            Axis("atom", self.atoms(shape)),
            Axis("workers", worker_counts(facts)),
        ]

    def converts(self, shape: Shape) -> bool:
        """Whether an operand is not contracted as it is loaded."""
        values = [v for c in shape.contractions for v in (c.op.a, c.op.b)]
        return not all(isinstance(shape.uses.definition.get(v.name), Load) for v in values)

    def _extents(self, shape: Shape) -> tuple[int, int]:
        """The most rows and columns of a contraction."""
        found = [r for c in shape.contractions if (r := roles(shape, c, lanes_of(shape)[0])) is not None]
        rows = max((shape.extent(r.row) for r in found if r.row is not None), default=1)
        return max(1, rows), max((shape.extent(r.lane) for r in found), default=1) or 1

    def atoms(self, shape: Shape) -> tuple[str, ...]:
        """Instructions to try for short formats, then multiply-adds."""
        known = dict.fromkeys(a for c in shape.contractions for a in grouping(c))
        return (*(a for a in known if a in FEATURES and allowed(shape, a)), "fma")

    def refuses(self, program: Program, facts: CallFacts, point: Point, pins: Sequence[Pin]) -> Sequence[str]:
        shape = self._shape(program, facts)
        return pins_refused(shape, Along(shape, point).choices(), pins)

    def guard(self, program: Program, facts: CallFacts, point: Point) -> Guard:
        return call_guard(self._shape(program, facts))

    def cost(self, program: Program, facts: CallFacts, point: Point) -> CostVector:
        shape = self._shape(program, facts)
        key = (self.name, *(v for n, v in point.items() if n != "workers"))
        known = shape.known.get(key)
        if not isinstance(known, _Seconds):
            known = shape.known[key] = _seconds(shape, point)
        workers, rate = int(point["workers"]), rates(facts)
        even = evenness(known.tasks, workers)
        count = 1
        for sizes in known.tasks:
            count *= len(sizes)
        return CostVector(
            compute=known.compute / even,
            memory=traffic(rate, shape.bytes, even),
            packing=known.packing / even,
            launch=(rate.fork if workers > 1 else 0.0) + count / workers * rate.task,
        )

    def grain(self, program: Program, facts: CallFacts, point: Point) -> Grain:
        shape = self._shape(program, facts)
        made = Along(shape, point).choices()
        return grain_of(shape, made, {**made.depth, **made.tile})

    def build(self, program: Program, facts: CallFacts, point: Point, guard: Guard) -> MachineProgram:
        shape = self._shape(program, facts)
        along = Along(shape, point)
        made = realise(shape.program, along.choices(), guard, facts.target, shape.uses)
        return blocks_ahead(made, along.ahead())


@dataclass(frozen=True)
class _Seconds:
    """Of one core, and the sizes of the tasks."""

    compute: float
    packing: float
    tasks: list[list[int]]


def _seconds(shape: Shape, point: Point) -> _Seconds:
    along = Along(shape, point)
    if along.registers() > along.rate.registers or (point["copied"] and not _converts(along)):
        return _Seconds(inf, 0.0, [])
    cuts = along.blocking.cuts()
    tasks = [
        blocks(shape.facts.value(arg.domain.extent), cuts.get(f"{name}.{arg.name}", 1))
        for name in shape.tasks[:1]
        for arg in shape.named(name).args
    ]
    return _Seconds(along.compute(), along.packing(), tasks)


def _converts(along: Along) -> bool:
    """Whether an operand is converted on its way."""
    return any(not along.plain(w.role.lane_operand) for w in along.ways)


def _unfit(shape: Shape, found: Contraction) -> Iterator[str]:
    """Why a contraction has no lanes along what it sums."""
    name = found.op.result.name
    if len(found.contracted) != 1:
        yield f"{name} sums over other than one dimension"
        return
    sizes = [shape.size(dims) for dims in (found.only_a, found.only_b)]
    if min(sizes) > FEW:
        yield f"{name} has more than {FEW} rows and columns"
    if not any(shape.source_unit(v) is found.contracted[0] for v in (found.op.a, found.op.b)):
        yield f"no operand of {name} is contiguous along what it sums"
    role = roles(shape, found, lanes_of(shape)[0])
    if role is None:
        yield f"{name} has no dimension beside those that it sums"
        return
    blocking = Blocking(shape, Block(role.lane.name, 1, 1, 1, 1, 1))
    if any(blocking.computed_here(v, found.op) for v in (found.op.a, found.op.b)):
        yield f"an operand of {name} is computed in the block that contracts it"
