"""The families `tiled contraction` and `tiled regions`: register blocks, cache blocks, packed operands.

They differ in what they admit and in the block sizes they try: the first takes programs whose ordered regions only
contract (products of matrices with any prologue and epilogue), the second takes bodies that mix contractions with folds
and elementwise work, whose values live in local buffers between the contractions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, prod
from typing import cast

from treadle.base.memo import memoised
from treadle.hardware.atoms import find_atom
from treadle.ir.core import Program
from treadle.ir.guard import Guard
from treadle.ir.ops.access import Load
from treadle.ir.ops.elementwise import Bitcast, Cast, Full
from treadle.ir.ops.fold import Mma
from treadle.machine.form import MachineProgram
from treadle.plan.cost import CostVector
from treadle.plan.facts import CallFacts
from treadle.plan.family import Axis, Point
from treadle.plan.grain import Grain, blocks, evenness
from treadle.plan.pins import Pin
from treadle.realise.blocks import realise
from treadle.realise.choices import Choices
from treadle.targets.cpu.accesses import accumulator, slots, source, trips, waste
from treadle.targets.cpu.admission import call_guard, common_reasons, grain_of, handed_out, pins_refused, worker_counts
from treadle.targets.cpu.blocking import EXACT, Block, Blocking, filled_to, grouping
from treadle.targets.cpu.instructions import CORRECTED, FEATURES, feature_of
from treadle.targets.cpu.rates import HAND, Rates, rates, traffic
from treadle.targets.cpu.roles import Roles, folded, lanes_of, roles
from treadle.targets.cpu.shape import Shape, shape_of

COLUMNS = {16: (32, 48, 64, 16), 8: (16, 24, 8), 4: (12, 16, 8)}
"""Columns of register blocks, by lanes of a vector."""


TILES = 32
"""Rows and columns of a block of two by two matrix tiles."""


COPIED = {"fma": 4.0, "dpbssd": 1.0}
"""Bytes of an element of a packed operand; 2 for the other atoms."""


SLIM = 64
"""Rows up to which copies of the other operand may cost more than they save."""


@dataclass(frozen=True)
class Sizes:
    """Cache block sizes to try, the preferred first: rows, columns, contracted."""

    outer: tuple[int, ...]
    inner: tuple[int, ...]
    deep: tuple[int, ...]


@dataclass(frozen=True)
class Work:
    """Seconds of one core, and the sizes of the tasks along each argument of their region."""

    compute: float
    cache: float
    packing: float
    tasks: list[list[int]]


class Contracting(ABC):
    """What both families share."""

    name = ""
    sizes = Sizes((), (), ())

    @abstractmethod
    def admits(self, program: Program, facts: CallFacts) -> Sequence[str]:
        """Why the family does not take the program."""

    def axes(self, program: Program, facts: CallFacts) -> Sequence[Axis]:
        shape = shape_of(program, facts)
        return [
            Axis("lanes", tuple(lanes_of(shape)[:2])),
            Axis("columns", COLUMNS[rates(facts).lanes]),
            *self.blocks(shape),
            Axis("held", (False, True)),
            Axis("shared", self.sharing(shape)),
            Axis("packed", self.packing(shape)),
            Axis("atom", self.atoms(shape)),
            Axis("workers", worker_counts(facts)),
        ]

    def atoms(self, shape: Shape) -> tuple[str, ...]:
        """Instructions to try for contractions of short formats, the fastest first."""
        known = [a for c in shape.contractions for a in grouping(c)]
        found: list[str] = []
        for atom in dict.fromkeys(known):
            if allowed(shape, atom) and (atom in FEATURES or self.matrix_units(shape)):
                found.append(atom)
        return (*found, "fma")

    def sharing(self, shape: Shape) -> tuple[bool, ...]:
        """Whether to try operands packed once for all tasks: several must read them, or instances of other arguments
        than those that tell the operand."""
        for lane in lanes_of(shape)[:2]:
            for found in shape.contractions:
                role = roles(shape, found, lane)
                if role is None or role.row is None:
                    continue
                told = shape.everywhere(role.lane_operand)
                if told is None:
                    continue
                if shape.elements(found.op, role.lane_operand.type.dims) > shape.distinct(role.lane_operand):
                    return (False, True)
                # Where arguments tell the operand, blocks of rows alone do not pay (attention: 0.63 to 1.01).
                if not told and shape.extent(role.row) > min(self.sizes.outer[:3]):
                    return (False, True)
        return (False,)

    def blocks(self, shape: Shape) -> list[Axis]:
        """Sizes of cache blocks to try."""
        return [
            Axis("outer", self.sizes.outer),
            Axis("inner", self.sizes.inner),
            Axis("deep", tuple(size * self.shorter(shape) for size in self.sizes.deep)),
        ]

    def shorter(self, shape: Shape) -> int:
        """How often an element of a packed operand goes into one of 32 bits, where bytes stay bytes."""
        return 4 if all(set(self.atoms(shape)) & set(grouping(c)) == {"dpbssd"} for c in shape.contractions) else 1

    def packing(self, shape: Shape) -> tuple[bool, ...]:
        """Whether to try operands in place."""
        return (True,)

    def matrix_units(self, shape: Shape) -> bool:
        """Whether the family uses the tiles of the target."""
        return False

    def block(self, shape: Shape, point: Point) -> Block:
        """The point as block sizes; rows of the register block are what the registers leave."""
        rate = rates(shape.facts)
        columns = int(point["columns"])
        vectors = columns // rate.lanes
        together = most_together(shape)
        joined = together if self.joined(shape) else 1
        # Beside a vector of an operand in place there is what is taken off for it, where a factor has to be unsigned.
        atom = str(point["atom"])
        beside = 2 * vectors + 1 if self.owing(shape, atom) and not point["packed"] else vectors
        # Elements that lie apart are taken for all lanes ahead of their products, unless each is used just once.
        apart = rate.apart or int(atom == "fma" and not point["packed"] and vectors > 1)
        rows = max(1, (rate.registers - 1 - beside * joined) // (vectors + apart) // joined)
        if atom.startswith("amx"):
            rows, columns = TILES, TILES
        return Block(
            lane=str(point["lanes"]),
            rows=min(rows, TILES if columns == TILES == rows else 16),
            columns=columns,
            outer=int(point["outer"]),
            inner=int(point["inner"]),
            deep=int(point["deep"]),
            held=bool(point["held"]),
            atom=atom,
            shared=bool(point["shared"]),
            packed=bool(point["packed"]),
        )

    def owing(self, shape: Shape, atom: str) -> bool:
        """Whether the instruction of an atom takes an unsigned factor, and what that adds is taken off again."""
        return atom in FEATURES and feature_of(atom, shape.facts.features) in CORRECTED

    def joined(self, shape: Shape) -> bool:
        """Whether contractions of a block share their accumulators' nest."""
        return _joined(shape)

    def refuses(self, program: Program, facts: CallFacts, point: Point, pins: Sequence[Pin]) -> Sequence[str]:
        shape = shape_of(program, facts)
        return pins_refused(shape, self.choices(shape, point), pins)

    def guard(self, program: Program, facts: CallFacts, point: Point) -> Guard:
        return call_guard(shape_of(program, facts))

    def build(self, program: Program, facts: CallFacts, point: Point, guard: Guard) -> MachineProgram:
        shape = shape_of(program, facts)
        return realise(program, self.choices(shape, point), guard, facts.target, shape.uses)

    def choices(self, shape: Shape, point: Point) -> Choices:
        """The point as decisions of the lowering engine."""
        return replace(Blocking(shape, self.block(shape, point)).choices(), tasks=handed_out(shape, point))

    def grain(self, program: Program, facts: CallFacts, point: Point) -> Grain:
        shape = shape_of(program, facts)
        made = self.choices(shape, point)
        return grain_of(shape, made, {**made.depth, **made.tile})

    # ---- cost

    def cost(self, program: Program, facts: CallFacts, point: Point) -> CostVector:
        shape = shape_of(program, facts)
        rate, workers = rates(facts), int(point["workers"])
        if str(point["atom"]).startswith("amx") and (point["columns"] != COLUMNS[rate.lanes][0] or point["held"]):
            return CostVector(compute=inf)
        if point["shared"] and (point["held"] or not point["packed"]):
            return CostVector(compute=inf)
        if not point["packed"] and str(point["atom"]).startswith("amx"):
            return CostVector(compute=inf)
        work = self.work(shape, point, rate)
        even = evenness(work.tasks, workers)
        return CostVector(
            compute=work.compute / even,
            cache=work.cache / even,
            memory=traffic(rate, shape.bytes, even),
            packing=work.packing / even,
            launch=(rate.fork if workers > 1 else 0.0) + prod(map(len, work.tasks)) / workers * rate.task,
        )

    def work(self, shape: Shape, point: Point, rate: Rates) -> Work:
        """What one worker would do in all, remembered for other numbers of workers, and for sizes that are all one."""
        lane, columns, outer, inner = (
            str(point["lanes"]),
            int(point["columns"]),
            int(point["outer"]),
            int(point["inner"]),
        )
        most = self.most(shape, lane)
        by_outer, by_inner = self.cutting(shape, lane)
        outer = min(outer, most) if by_outer else self.sizes.outer[0]
        inner = min(inner, filled_to(most, columns)) if by_inner else self.sizes.inner[0]
        key = (lane, columns, outer, inner, *(point[n] for n in ("deep", "held", "shared", "packed", "atom")))
        known = shape.known.get(key)
        if not isinstance(known, Work):
            block = self.block(shape, {**point, "outer": outer, "inner": inner})
            known = shape.known[key] = self.worked(Blocking(shape, block), rate)
        return known

    def cutting(self, shape: Shape, lane: str) -> tuple[bool, bool]:
        """Whether blocks of rows, and of lanes, cut anything: what is summed elsewhere is cut as that is."""
        known = shape.known.get(("cutting", lane))
        if not isinstance(known, tuple):
            found = [r for c in shape.contractions if (r := roles(shape, c, lane)) is not None]
            open_ = {arg.domain.dim for _, arg, _ in shape.arguments()} - {
                d for r in found for d in folded(shape, r.found)
            }
            lanes = {r.lane for r in found}
            rows = {r.row for r in found if r.row is not None} - lanes
            known = shape.known["cutting", lane] = (bool(open_ & rows), bool(open_ & lanes))
        return cast("tuple[bool, bool]", known)

    def most(self, shape: Shape, lane: str) -> int:
        """The largest extent of what blocks cut into rows and lanes: sizes beyond it are all one."""
        known = shape.known.get(("most", lane))
        if not isinstance(known, int):
            found = [r for c in shape.contractions if (r := roles(shape, c, lane)) is not None]
            dims = [d for r in found for d in (r.lane, r.row) if d is not None]
            known = shape.known["most", lane] = max((shape.extent(d) for d in dims), default=1) or 1
        return known

    def worked(self, blocking: Blocking, rate: Rates) -> Work:
        """The work of a block."""
        shape = blocking.shape
        crowd = self.footprint(blocking) / rate.l2
        if crowd > HAND.crowded or blocking.local_bytes() > rate.local:
            return Work(inf, 0.0, 0.0, [])
        compute = cache = packing = 0.0
        for role in blocking.roles:
            compute += self.arithmetic(blocking, role, rate)
            cache += self.accumulators(blocking, role, rate)
            packing += self.copies(blocking, role, rate)
        # Values that go from one orientation to another are folded across lanes and read one by one.
        crossing = HAND.crossing if mixed(shape) and len(blocking.lanes) > 1 else 1.0
        compute += crossing * self.elementwise(blocking) / rate.lanes / rate.simple + self.turned(blocking, rate)
        return Work(compute, cache * max(1.0, crowd), packing, self.tasks(blocking))

    def elementwise(self, blocking: Blocking) -> float:
        """Elements times simple instructions of everything but contractions, of what domains leave, in whole blocks of
        lanes."""
        shape = blocking.shape
        filled = {r.lane: waste(blocking, r.lane) for r in blocking.roles}
        return sum(
            weight
            * shape.elements(op, dims)
            * shape.share(op, dims, blocking.spans)
            * prod(filled[d] for d in dims if d in filled)
            for op, dims, weight in shape.pointwise
        )

    def footprint(self, blocking: Blocking) -> float:
        """Bytes of blocks that an instance works on."""
        shape, block = blocking.shape, blocking.block
        total = 0.0
        for role in blocking.roles:
            deep = shape.size(blocking.folded(role))
            deep = deep if block.held else min(block.deep, deep)
            inner = blocking.side(role.lane)
            outer = 1 if role.row is None else blocking.side(role.row)
            size = COPIED.get(blocking.atom(role.found), 2.0)
            total += size * (deep * inner + deep * outer) + (0 if block.held else 4.0 * inner * outer)
        return total

    def arithmetic(self, blocking: Blocking, role: Roles, rate: Rates) -> float:
        """Seconds of the register blocks, padding included."""
        shape, columns = blocking.shape, blocking.block.columns
        rows = 1 if role.row is None else blocking.tile[role.row.name]
        vectors = columns / rate.lanes
        products = rows * vectors
        atom = blocking.atom(role.found)
        # In place there is what is taken off for each vector; of a panel it is known before.
        owing = vectors if self.owing(shape, atom) and not blocking.block.packed else 0
        step = max(products + owing, HAND.block_least) / rate.issue(atom) + 0.5 * (rows + vectors) / rate.loads
        at_once = {"fma": 1.0, "dpbf16": HAND.pair_width, "dpbssd": HAND.four_width}.get(atom, HAND.tile_width)
        steps = slots(blocking, role) / (products * rate.lanes * at_once)
        # Sums beyond the registers are loaded and stored at every step.
        step += (
            2.0 * max(0.0, products + vectors + 1 - rate.registers) / rate.loads if not atom.startswith("amx") else 0.0
        )
        whole = shape.size(blocking.folded(role))
        deep = whole if blocking.block.held else min(whole, blocking.block.deep)
        # Panels that do not fit the first cache are read from the second in every block.
        size = COPIED.get(atom, 2.0)
        far = size * deep * (columns + rows) > rate.l1 * 1.5
        return steps * (step + (4.0 * (columns + rows) / rate.l2_rate * HAND.far if far else 0.0))

    def accumulators(self, blocking: Blocking, role: Roles, rate: Rates) -> float:
        """Seconds to load and store accumulators between blocks of the contracted dimension."""
        near = 8 * blocking.side(role.lane) * (1 if role.row is None else blocking.side(role.row)) <= rate.l1
        sums = accumulator(blocking, role)
        size = 4.0 * (sums.read + sums.written)
        return size / (rate.l1_rate if near else rate.l2_rate) + self.columns(blocking, role, rate)

    def columns(self, blocking: Blocking, role: Roles, rate: Rates) -> float:
        """Seconds to read an operand in place column by column, once for each row of register blocks."""
        shape, block = blocking.shape, blocking.block
        if not blocking.in_place(role.lane_operand, role):
            return 0.0
        value = role.lane_operand
        whole = shape.elements(role.found.op, value.type.dims) * shape.source_bytes(value)
        if whole <= rate.l1 or not (block.held or whole > rate.l2 and block.deep > HAND.streams):
            return 0.0
        size = source(blocking, role, value) * shape.source_bytes(value) if block.held else whole
        return size / (HAND.near * rate.l2_rate if whole <= rate.l2 else rate.l3_rate)

    def copies(self, blocking: Blocking, role: Roles, rate: Rates) -> float:
        """Seconds to pack both operands, as often as their blocks come round."""
        shape = blocking.shape
        total = 0.0
        for value in (role.lane_operand, role.row_operand):
            if blocking.in_place(value, role) or blocking.computed_here(value, role.found.op):
                continue
            copied = COPIED.get(blocking.atom(role.found), 2.0)
            read = source(blocking, role, value)
            if blocking.shared(value, role):
                # It comes back from memory as often as it would be packed, ahead of its use.
                again = shape.elements(role.found.op, value.type.dims) * trips(blocking, role, value)
                total += again * copied * HAND.back
            turned = value is role.lane_operand and shape.source_unit(value) not in (role.lane, role.row)
            total += read * (copied + shape.source_bytes(value)) * (1.6 if turned else 1.0)
        return total / rate.packing_rate

    def turned(self, blocking: Blocking, rate: Rates) -> float:
        """Seconds to store what lies across the lanes."""
        shape, total = blocking.shape, 0
        for stores in shape.uses.stored.values():
            for op in stores:
                unit = shape.unit_dim(op)
                if unit is not None and unit.name not in blocking.lanes[-1:] and blocking.block.lane != unit.name:
                    total += shape.elements(op, op.value.type.dims)
        return total * 1.5 / rate.simple

    def tasks(self, blocking: Blocking) -> list[list[int]]:
        """The blocks of each argument of the first parallel region."""
        shape, cuts = blocking.shape, blocking.cuts()
        return [
            blocks(shape.facts.value(arg.domain.extent), cuts.get(f"{name}.{arg.name}", 1))
            for name in shape.tasks[:1]
            for arg in shape.named(name).args
        ]


@memoised
def most_together(shape: Shape) -> int:
    """The most contractions that one block has."""
    return max((len(shape.uses.contractions(c.block)) for c in shape.contractions), default=1)


@memoised
def _joined(shape: Shape) -> bool:
    first = shape.contractions[0]
    return all(
        c.op.result.type.axes == first.op.result.type.axes and c.block is first.block for c in shape.contractions
    )


@memoised
def mixed(shape: Shape) -> bool:
    """Whether a block that contracts also folds or computes, other than converting operands."""
    simple = Load | Cast | Bitcast | Full | Mma
    for found in shape.contractions:
        region = shape.owner(found.op)
        if region is not None and region.kind != "parallel":
            if any(not isinstance(op, simple) for op in found.block.ops):
                return True
    first = shape.contractions[0]
    return any(
        c.block is first.block and c.op.result.type.axes != first.op.result.type.axes for c in shape.contractions
    )


def allowed(shape: Shape, atom: str) -> bool:
    """Whether the program may be given an atom for short formats, and the processor has it."""
    # These flush subnormal operands and results, and join products in pairs.
    if atom not in EXACT and shape.program.numerics.get("mma_subnormals") == "keep":
        return False
    # Without a contract of the atom on the target no plan that uses it is verified.
    if find_atom(shape.facts.target, atom) is None:
        return False
    return atom not in FEATURES or feature_of(atom, shape.facts.features) is not None


class TiledContraction(Contracting):
    """Contractions with any prologue and epilogue."""

    name = "tiled contraction"
    sizes = Sizes((256, 512, 128, 14), (384, 512, 256), (256, 384))

    def admits(self, program: Program, facts: CallFacts) -> Sequence[str]:
        shape = shape_of(program, facts)
        reasons = common_reasons(shape)
        if not shape.contractions:
            return [*reasons, "it has no contraction"]
        if mixed(shape):
            reasons.append("a block mixes contractions with other work")
        return reasons + unaccumulated(shape)

    def blocks(self, shape: Shape) -> list[Axis]:
        if self.rows(shape) > SLIM:
            return super().blocks(shape)
        # All rows are one block; a block of operands that lie in place is as many rows of them as memory streams well.
        return [Axis("outer", (SLIM,)), Axis("inner", (1024, 512, 256, 2048)), Axis("deep", (16, 256, 8))]

    def packing(self, shape: Shape) -> tuple[bool, ...]:
        # A copy pays when it is read often, or when the original is far apart in a cache.
        small = sum(shape.elements(c.op, v.type.dims) for c in shape.contractions for v in (c.op.a, c.op.b))
        return (False, True) if self.rows(shape) <= SLIM or 4 * small <= rates(shape.facts).l2 else (True,)

    def rows(self, shape: Shape) -> int:
        """How often elements of an operand with the lanes are used, at most."""
        found = [roles(shape, c, lane) for c in shape.contractions for lane in lanes_of(shape)[:1]]
        return max((1 if r is None or r.row is None else shape.extent(r.row) for r in found), default=1)

    def matrix_units(self, shape: Shape) -> bool:
        # Accumulators have to lie in buffers between blocks of the contracted dimension; a tile has rows and columns.
        tiles = all(len(c.contracted) == 1 and c.only_a and c.only_b for c in shape.contractions)
        return shape.facts.target.endswith("amx") and tiles


class TiledRegions(Contracting):
    """Bodies that mix contractions, folds and elementwise work."""

    name = "tiled regions"
    sizes = Sizes((128, 64), (128, 64, 32), (128, 256, 64))

    def packing(self, shape: Shape) -> tuple[bool, ...]:
        return (True, False)

    def admits(self, program: Program, facts: CallFacts) -> Sequence[str]:
        shape = shape_of(program, facts)
        reasons = common_reasons(shape)
        if not shape.contractions:
            return [*reasons, "it has no contraction"]
        if not mixed(shape):
            reasons.append("no block mixes contractions with other work")
        return reasons + unaccumulated(shape)

    def axes(self, program: Program, facts: CallFacts) -> Sequence[Axis]:
        return [Axis("held", (False,)) if a.name == "held" else a for a in super().axes(program, facts)]


def unaccumulated(shape: Shape) -> list[str]:
    """Accumulators that vector multiply-adds do not have."""
    bad = {c.op.result.type.dtype.name for c in shape.contractions} - {"f32", "f64", "i32"}
    return [f"no vector instruction accumulates in {name}" for name in sorted(bad)]
