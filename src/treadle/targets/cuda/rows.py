"""Rows over lanes: elementwise work and folds with a row's elements along the lanes of a warp or of a workgroup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf, prod

from treadle.algebra.dims import Dim, Part
from treadle.algebra.expr import Constraint
from treadle.ir.core import Op, Program, Region, Tensor
from treadle.ir.guard import Bound, Divisible, Fact, Guard
from treadle.ir.ops.access import Insert, Load, Store
from treadle.ir.ops.fold import Mma, Reduce, Scan
from treadle.machine.form import Load as MachineLoad
from treadle.machine.form import MachineProgram, Tasks, walk
from treadle.plan.cost import CostVector
from treadle.plan.facts import CallFacts
from treadle.plan.family import Axis, Point
from treadle.plan.pins import Pin
from treadle.realise.channels import PRODUCER, Channels, through_channels
from treadle.realise.choices import Choices, NotLowered
from treadle.realise.earlier import loads_earlier
from treadle.realise.rows import Stripe, over_lanes
from treadle.realise.stretches import in_stretches
from treadle.realise.universal import base_facts
from treadle.targets.cuda.ledger import functions_by_hardware
from treadle.targets.cuda.pins import pins_refused
from treadle.targets.cuda.rates import rates
from treadle.targets.cuda.shape import Shape, common_reasons, shape_of, vector_facts

HELD = 64
"""Elements of a row that a thread may hold in registers."""

THREADS = 1024
"""Threads of a workgroup at most."""

MOST = 1024
"""Threads of the largest workgroup."""

REGISTERS = 65536
"""Of a multiprocessor."""

UNEVEN = 0.09
"""How much longer the last multiprocessor takes than all would together, where each is given its rows beforehand
(measured: without any computing, they end between 96 and 133 us)."""

DRAWN = 0.1
"""The same where they draw the next row when they are ready for it (measured: 0 to 5 % longer than rows dealt out;
they end at different times because memory serves them unevenly, not because they have different work)."""

LONG_ROW = 32 * 1024
"""Bytes of a row of which a multiprocessor does few: the last ones show."""

TIGHT = 0.92
"""Of the registers that a thread is believed to need, this part is enough without spills."""

SHARED = 227 * 1024
"""Bytes of shared memory that the workgroups of a multiprocessor have together, 1 KiB of each reserved."""

MOST_WORKGROUPS = 65536
"""In a launch; up to so many rows, each has its own, dealt out as multiprocessors become free."""

STEP = {False: 0.62e-6, True: 0.46e-6}
"""Seconds of a tile of a scan that no other tile of its row hides, its loads and the meeting of the warps; where the
next tile's loads are on their way (measured, benchmarks/results/2026-11-30-scans.json: 0.55 to 0.65, 0.42 to 0.48)."""

ALONE = {False: 47e9, True: 74e9}
"""Bytes a second that a multiprocessor moves for tiles which follow one another (measured in the same place)."""

SPARSE = 0.27
"""Of the seconds of a tile, what is left of them where there is enough else to do."""

MOST_STRETCHES = 1024
"""Of a row: a warp scans what they come to in its registers."""

SHORTEST = 2048
"""Coordinates of a stretch at least."""

CACHED = 20e6
"""Bytes that one launch reads and the next one finds in the second cache."""

FOLLOWS = 2.6e-6
"""Seconds that a launch takes which begins while the one before it ends (as `parted` has it)."""

BURST = 16
"""Elements that a thread takes at a time where a row is swept."""

SHORT = 4
"""The same of ranges that only a run tells (CSR of 0 to 16 a row is at 0.70 of cuSPARSE with it,
of 0 to 64 and 0 to 400 at 1.0; other numbers are not timed: benchmarks/results/2026-11-30-inside.json)."""


@dataclass(frozen=True)
class Along:
    """A dimension along the lanes: neighbours that one access takes, whether a row of it is a whole dimension (else a
    block of a region's argument), facts that the accesses need, whether a run tells where ranges of it begin."""

    dim: Dim
    vector: int
    whole: bool
    facts: tuple[Fact, ...]
    told: bool = False


def along(shape: Shape) -> dict[str, Along]:
    """For each task region, the dimension that its stores, the largest first (else its loads), are contiguous along."""
    found: dict[str, Along] = {}
    for op in shape.program.body.ops:
        if not isinstance(op, Region):
            continue
        inside = list(op.body.walk())
        stores = sorted((s for s in inside if isinstance(s, Store | Insert)), key=lambda s: -kept(shape, s))
        stored = [p for s in stores if (p := shape.last_axis(s)) is not None]
        read = [p for s in inside if isinstance(s, Load) and (p := shape.last_axis(s)) is not None]
        folded = [a for s in inside if isinstance(s, Reduce) for a in s.source.type.axes if a.dim in s.dims]
        for part in [*heavy(shape, inside), *stored] or [p for p in read if p in folded] or read:
            arg = shape.arg_of(part)
            if arg is None and (part.lo.symbols | part.hi.symbols) & _symbols(shape):
                continue
            vector, facts = widest(shape, op, part.dim)
            found[shape.names[id(op)]] = Along(part.dim, vector, arg is None, tuple(facts), told(op, part.dim))
            break
    return found


def told(region: Region, dim: Dim) -> bool:
    """Whether a region in this one goes over ranges of a dimension that only a run tells."""
    args = [a for op in region.body.walk() if isinstance(op, Region) for a in op.args]
    return any(a.domain.dim is dim and (a.domain.lo.functions or a.domain.hi.functions) for a in args)


def heavy(shape: Shape, inside: list[Op]) -> list[Part]:
    """Axes that are folded alone and in any order, as long as a warp, of loads that weigh more than all that is stored:
    their elements, not those of the results, are to lie side by side in the lanes."""
    reduces = [s for s in inside if isinstance(s, Reduce) and s.order == "unordered" and len(s.dims) == 1]
    free = [a for s in reduces for a in s.source.type.axes if a.dim in s.dims]
    out = sum(bytes_of(shape, s.tensor) for s in inside if isinstance(s, Store))
    loads = [s for s in inside if isinstance(s, Load) and bytes_of(shape, s.tensor) > 2 * out]
    parts = [part for s in loads if (part := shape.last_axis(s)) is not None and part in free]
    return [part for part in parts if shape.facts.value(part.dim.extent) >= 32]


def kept(shape: Shape, op: Store | Insert) -> float:
    """How large the tensor or the tile is that something is stored to."""
    if isinstance(op, Store):
        return bytes_of(shape, op.tensor)
    return float(prod(shape.extent(p) for p in op.result.type.axes)) * max(1, op.result.type.dtype.bits // 8)


def bytes_of(shape: Shape, tensor: Tensor) -> float:
    """How large a tensor is for the call in question."""
    return float(prod(max(1, shape.facts.value(d.extent)) for d in tensor.dims)) * max(1, tensor.dtype.bits // 8)


def _symbols(shape: Shape) -> set[str]:
    return {n for r in shape.regions for a in r.args for n in (a.name, f"{a.name}.start", f"{a.name}.stop")}


def widest(shape: Shape, region: Region, dim: Dim) -> tuple[int, list[Fact]]:
    """How many neighbours along a dimension all accesses can take at once under the call's facts."""
    tensors: dict[str, Tensor] = {}
    for op in region.body.walk():
        part = shape.last_axis(op)
        if part is not None and part.dim.root is dim.root and isinstance(op, Load | Store):
            tensors[op.tensor.name] = op.tensor
    if not tensors:
        return 1, []
    size = min(max(1, t.dtype.bits // 8) for t in tensors.values())
    vector = 1 if told(region, dim) else 16 // size  # ranges that a run tells begin anywhere
    while vector > 1 and not (
        shape.facts.value(dim.extent) % vector == 0
        and all(
            shape.facts.aligned.get(t.name, 0) >= min(16, vector * max(1, t.dtype.bits // 8)) for t in tensors.values()
        )
    ):
        vector //= 2
    facts: list[Fact] = []
    for tensor in tensors.values():
        facts += vector_facts(tensor, vector)
    if vector > 1 and dim.extent.constant is None:
        facts.append(Divisible(dim.extent, vector))
    return vector, facts


def chunked(shape: Shape) -> bool:
    """Whether a row of a task is read that begins and ends at whole chunks of a copy engine."""
    for region in shape.regions:
        one = along(shape).get(shape.names[id(region)])
        for op in region.body.walk() if one is not None else ():
            part = shape.last_axis(op) if isinstance(op, Load) else None
            if one is not None and part is not None and isinstance(op, Load) and part.dim.root is one.dim.root:
                if len(op.subs) > 1 and one.vector * op.tensor.dtype.bits % 128 == 0:
                    return True
    return False


class Rows:
    """Axes: warps a row; whether a thread holds its share of the row from the first read to the last write; whether the
    plan is for rows that fill the threads' shares exactly, and has no masks; slots of the rings through which copy
    engines bring rows (0: threads load them), and of those through which rows leave; whether the assembler is asked for
    one workgroup a multiprocessor more than the registers of a thread would leave room for; whether long rows are drawn
    as tickets, not dealt out beforehand; whether a row that is scanned tile by tile has its next tile loaded while this
    one is scanned; into how many stretches such a row is cut."""

    name = "rows"

    def admits(self, program: Program, facts: CallFacts) -> Sequence[str]:
        shape = shape_of(program, facts)
        reasons = common_reasons(shape)
        if any(isinstance(op, Mma) for op in program.body.walk()):
            reasons.append("it has contractions")
        if not reasons and not along(shape):
            reasons.append("nothing is contiguous along a dimension")
        if not reasons and not tried(shape, self.axes(program, facts)):
            reasons.append("some values do not fit the registers of a group of threads")
        return reasons

    def axes(self, program: Program, facts: CallFacts) -> Sequence[Axis]:
        found = [Axis("warps", (1, 4, 8, 16, 32)), Axis("held", (True, False)), Axis("exact", (False, True))]
        if rates(facts).engines:
            found += [Axis("slots", (0, 1, 2, 3)), Axis("stages", (0, 1, 2))]
        if rates(facts).engines and few_long_rows(shape_of(program, facts)):
            found.append(Axis("tickets", (False, True)))
        if scans(shape_of(program, facts)):
            found.append(Axis("next", (False, True)))
            found.append(Axis("stretches", self.counts(shape_of(program, facts))))
        return [*found, Axis("close", (False, True))]

    def counts(self, shape: Shape) -> tuple[int, ...]:
        """Into how many stretches a row that is scanned may be cut: 1, and as many as would give each multiprocessor a
        few, where rows alone leave three of four without any."""
        found = along(shape)
        rows = instances(shape, found, self.stripes(shape, {"warps": 1, "held": False}), 1)
        processors = rates(shape.facts).processors
        longest = max((shape.facts.value(one.dim.extent) for one in found.values()), default=1)
        if scans(shape) != 1 or 4 * rows > processors or not all(one.whole for one in found.values()):
            return (1,)
        wanted = {min(MOST_STRETCHES, ceil(k * processors / rows)) for k in (2, 8)}
        return (1, *sorted(n for n in wanted if 1 < n <= longest // SHORTEST))

    def stretched(self, shape: Shape, point: Point) -> tuple[int, int, int] | None:
        """The width of a tile, the tiles of a stretch, and how many stretches a row has at most; None without any."""
        asked = int(point.get("stretches", 1))
        if asked == 1:
            return None
        ((region, stripe),) = self.stripes(shape, point).items()
        width = stripe.width(int(point["warps"]))
        tiles = ceil(shape.facts.value(along(shape)[region].dim.extent) / width)
        return width, max(1, ceil(tiles / asked)), 32 * ceil(asked / 32)

    def refuses(self, program: Program, facts: CallFacts, point: Point, pins: Sequence[Pin]) -> Sequence[str]:
        shape = shape_of(program, facts)
        return pins_refused(shape, self.cuts(shape, point), "fma", {}, pins)

    def stripes(self, shape: Shape, point: Point) -> dict[str, Stripe]:
        """The stripes of a point, by region."""
        warps, held = int(point["warps"]), bool(point["held"])
        found: dict[str, Stripe] = {}
        for region, one in along(shape).items():
            extent = shape.facts.value(one.dim.extent)
            if held and one.whole:
                found[region] = Stripe(
                    one.vector, rounded(ceil(extent / (32 * warps * one.vector))), True, bool(point.get("exact"))
                )
            else:
                found[region] = Stripe(one.vector, SHORT if one.told else max(1, min(BURST // one.vector, 8)))
        return found

    def cuts(self, shape: Shape, point: Point) -> dict[str, int]:
        """Blocks of arguments that lie along the lanes are as wide as a stripe, those of regions in a task too."""
        stripes = self.stripes(shape, point)
        found: dict[str, int] = {}
        for region in shape.regions:
            outer = shape.names[id((*shape.around[id(region)], region)[0])]
            one = along(shape).get(outer)
            for arg in region.args:
                if one is not None and arg.kind == "block" and arg.domain.dim is one.dim and arg.size is None:
                    name = f"{shape.names[id(region)]}.{arg.name}"
                    found[name] = stripes[outer].width(int(point["warps"]))
        return found

    def guard(self, program: Program, facts: CallFacts, point: Point) -> Guard:
        shape = shape_of(program, facts)
        found = base_facts(program, shape.uses, disjoint=True)
        stripes = self.stripes(shape, point)
        for name, one in along(shape).items():
            found += [f for f in one.facts if f not in found]
            if stripes[name].held and one.dim.extent.constant is None:
                width = stripes[name].width(int(point["warps"]))
                found.append(Bound(Constraint(width - one.dim.extent)))
                if stripes[name].exact:
                    found.append(Bound(Constraint(one.dim.extent - width)))
                elif point.get("slots"):
                    found.append(Bound(Constraint(one.dim.extent - 1)))  # engines move no empty rows
        stretches = self.stretched(shape, point)
        if stretches is not None:
            (one,) = along(shape).values()
            if one.dim.extent.constant is None:
                found.append(Bound(Constraint(stretches[0] * stretches[1] * stretches[2] - one.dim.extent)))
        return Guard(tuple(found))

    def cost(self, program: Program, facts: CallFacts, point: Point) -> CostVector:
        shape = shape_of(program, facts)
        rate = rates(facts)
        warps, held = int(point["warps"]), bool(point["held"])
        channels, close = channels_of(point), bool(point.get("close"))
        threads = 32 * warps + (PRODUCER if channels.slots else 0)
        if threads > THREADS or channels.slots == 0 < channels.stages:
            return CostVector(compute=inf)
        if channels.tickets and not channels.slots:
            return CostVector(compute=inf)
        if channels.slots and (warps == 1 or not held or close):
            return CostVector(compute=inf)
        if not buildable(shape, warps, held) or (channels.slots and (facts.same or not chunked(shape))):
            return CostVector(compute=inf)
        stripes = self.stripes(shape, point)
        if point.get("exact") and not exactly(shape, stripes, warps):
            return CostVector(compute=inf)
        share = max((s.vector * s.rounds for s in stripes.values()), default=1)
        if held and share > HELD:
            return CostVector(compute=inf)
        parts = int(point.get("stretches", 1))
        if (point.get("next") or parts > 1) and (held or channels.slots or close or point.get("exact")):
            return CostVector(compute=inf)
        passes, busy, tiles = 1.0, 1.0, 1.0
        for name, one in along(shape).items():
            extent = max(1, facts.value(one.dim.extent))
            width = stripes[name].width(warps)
            busy = min(busy, extent / (width * ceil(extent / width)))
            tiles = max(tiles, ceil(extent / width))
            if not held and one.whole:
                passes = max(passes, 1.0 + dependent_folds(shape))
        rows = instances(shape, along(shape), stripes, warps) * parts
        tiles = ceil(tiles / parts)
        threads = 32 * warps
        wide = one_element(shape)
        early = self.ahead(shape, point)
        registers = self.registers(shape, point)
        if registers * threads > REGISTERS or registers > 255:
            return CostVector(compute=inf)
        if (channels.slots or close) and not all(o.whole for o in along(shape).values()):
            return CostVector(compute=inf)
        a_processor = self.resident(shape, point)
        if not a_processor or (close and warps == 1):
            return CostVector(compute=inf)
        in_flight = a_processor * threads * share * wide
        speed = rate.memory * min(1.0, 0.3 + in_flight / 49152)
        waves = ceil(rows / (rate.processors * a_processor))
        folds = dependent_folds(shape)
        exchanges = (folds + scans(shape)) * (rate.exchange if warps > 1 else 0.05e-6)
        moved = shape.bytes() / speed
        if parts > 1:  # what is scanned is read twice, where the second cache holds it almost for nothing
            moved *= 1.15 if shape.bytes() < 2 * CACHED else 1.5
        again = passes - 1.0
        # Every thread of a workgroup folds the shares of all warps.
        around = rows * threads * (60.0 + folds * (15.0 + 1.25 * warps if warps > 1 else 10.0))
        around += rows * tiles * threads * scans(shape) * (20.0 + 5.0 * warps if warps > 1 else 10.0)
        slots = (1.0 + 0.5 * again) * shape.work() / busy * (0.98 if point.get("exact") else 1.0) + around
        compute = slots / (rate.lanes * rate.processors * rate.clock)
        stalls = waves * (rate.latency + exchanges) / (1.0 if a_processor == 1 else 1.6)
        # One workgroup on a multiprocessor reads, computes and writes in turn, faster than its share of the bandwidth.
        turns = compute - moved / 3 if a_processor == 1 and not early and not channels.slots else 0.0
        if scans(shape):
            ahead = bool(point.get("next"))
            steps, busy_ones = tiles * waves, min(rows, rate.processors)
            alone = steps * STEP[ahead] + shape.bytes() / (busy_ones * ALONE[ahead])
            moved = max(moved, alone) + SPARSE * steps * STEP[ahead]
        walked = self.walked(shape, point, rows)
        if walked:  # tiles that follow one another in a task, each with its loads
            alone = walked * waves * STEP[False] + shape.bytes() / (min(rows, rate.processors) * ALONE[False])
            moved = max(moved, alone)
        apart = apart_of(a_processor, warps, channels, close)
        # Rows dealt out beforehand end at different times; where computing is short, more of it is hidden.
        dealt = 1.0 + (DRAWN if channels.tickets else UNEVEN if channels.slots else 0.0)
        hidden = 1.0 if channels.slots else min(1.0, 0.1 + compute / moved)
        return CostVector(
            compute=max(compute, stalls),
            cache=again * shape.bytes() / rate.cache,
            memory=dealt * moved + max(turns, apart * hidden * min(compute, moved)),
            launch=rate.launch + (FOLLOWS if parts > 1 else 0.0),
        )

    def walked(self, shape: Shape, point: Point, rows: float) -> int:
        """Blocks along the lanes that a task goes through in regions of its own; 0 without such regions. Of ranges that
        only a run tells, as many as cover the dimension once in all tasks."""
        stripes, most = self.stripes(shape, point), 0
        for region in shape.regions:
            outer = shape.names[id((*shape.around[id(region)], region)[0])]
            one = along(shape).get(outer)
            dims = [a.domain.dim for a in region.args if a.kind == "block"]
            if one is not None and shape.names[id(region)] != outer and one.dim in dims:
                extent = shape.facts.value(one.dim.extent) / (rows if one.told else 1.0)
                most = max(most, ceil(extent / stripes[outer].width(int(point["warps"]))))
        return most

    def registers(self, shape: Shape, point: Point) -> float:
        """About how many a thread needs, loads ahead left out."""
        share = max((s.vector * s.rounds for s in self.stripes(shape, point).values()), default=1)
        need = 24 + share * (1.25 if point["held"] else 1.5)
        if scans(shape):
            need += 4 + share * (0.25 + (one_element(shape) / 4 if point.get("next") else 0.0))
        return need

    def rationed(self, shape: Shape, point: Point) -> float:
        """As `registers`, with what is read beside the row, and wide elements that are not unpacked at each use: where
        there is no room for more, all of it counts."""
        share = max((s.vector * s.rounds for s in self.stripes(shape, point).values()), default=1)
        beside = max(0, len(shape.uses.loaded) - 1) + (1 if one_element(shape) > 2 else 0)
        return self.registers(shape, point) + share * 0.25 * beside

    def ahead(self, shape: Shape, point: Point) -> bool:
        """Whether a workgroup reads its next row while it computes: where it is alone on a multiprocessor and its
        threads have registers left for that row as it is stored."""
        threads = 32 * int(point["warps"])
        registers = self.registers(shape, point)
        if not point["held"] or 2 * registers * threads <= REGISTERS:
            return False
        share = max((s.vector * s.rounds for s in self.stripes(shape, point).values()), default=1)
        return (registers + share * one_element(shape) / 4 - 8) * threads <= REGISTERS

    def build(self, program: Program, facts: CallFacts, point: Point, guard: Guard) -> MachineProgram:
        shape = shape_of(program, facts)
        warps = int(point["warps"])
        choices = Choices(
            cuts=self.cuts(shape, point),
            tasks=frozenset(shape.tasks),
            numerics=functions_by_hardware(program, facts.target),
        )
        processors = rates(facts).processors
        channels = channels_of(point)
        early = not channels.slots and self.ahead(shape, point)
        most = processors * (16 if warps == 1 else 1) if warps == 1 or early else MOST_WORKGROUPS
        if channels.slots:
            most = processors * max(1, self.resident(shape, point))
        if early or (channels.slots and not channels.tickets):
            most = even(instances(shape, along(shape), self.stripes(shape, point), warps), most)
        # Unasked, the assembler spills a few registers to make room for a second one of the largest workgroups.
        alone = (32 * warps == MOST and dependent_folds(shape) > 1 and not channels.slots) or bool(scans(shape))
        resident = self.resident(shape, point) if point.get("close") else 1 if alone else 0
        machine = over_lanes(
            program,
            choices,
            guard,
            facts.target,
            {r: {along(shape)[r].dim.name: s} for r, s in self.stripes(shape, point).items()},
            warps=warps,
            agents=4,
            workgroups=most,
            resident=resident,
        )
        if channels.slots:
            return through_channels(machine, channels)
        stretches = self.stretched(shape, point)
        if stretches is not None:
            machine = in_stretches(machine, *stretches, MOST_WORKGROUPS)
        if point.get("next"):
            return loads_earlier(machine)
        return with_next(machine) if early else machine

    def resident(self, shape: Shape, point: Point) -> int:
        """Workgroups that fit a multiprocessor at once: by threads, registers, shared memory; 0: none surely does."""
        threads, channels = 32 * int(point["warps"]), channels_of(point)
        found = max(1, int(min(2048, REGISTERS / self.registers(shape, point)) // threads))
        if threads == MOST and (dependent_folds(shape) > 1 or scans(shape)):
            found = 1  # two of the largest have 32 registers a thread, of which a second fold spills (seen)
        need = self.rationed(shape, point)
        if point.get("close"):
            return found + 1 if found + 1 <= 2048 // threads and need * TIGHT <= least(found + 1, threads) else 0
        if not channels.slots:
            return found
        threads += PRODUCER
        beside = 1024 + self.ring_bytes(shape, point)
        by_threads = min(2048 // threads, SHARED // beside)
        while by_threads and need * TIGHT > least(by_threads, threads):
            by_threads -= 1
        return by_threads

    def ring_bytes(self, shape: Shape, point: Point) -> int:
        """Shared memory for rows on their way."""
        width = max((s.width(int(point["warps"])) for s in self.stripes(shape, point).values()), default=0)
        read = sum(t.dtype.bits // 8 for t in shape.program.tensors if t.name in shape.uses.loaded and len(t.dims) > 1)
        stored = sum(t.dtype.bits // 8 for t in shape.program.tensors if t.name in shape.uses.stored)
        return width * (int(point.get("slots", 0)) * read + int(point.get("stages", 0)) * stored)


def few_long_rows(shape: Shape) -> bool:
    """Whether rows are so long that a multiprocessor does few of them."""
    return chunked(shape) and any(
        one.whole and shape.facts.value(one.dim.extent) * one_element(shape) >= LONG_ROW
        for one in along(shape).values()
    )


def channels_of(point: Point) -> Channels:
    """The rings of a point."""
    return Channels(int(point.get("slots", 0)), int(point.get("stages", 0)), bool(point.get("tickets", False)))


def least(workgroups: int, threads: int) -> int:
    """Registers of a thread when so many workgroups share a multiprocessor, which hands them out to four warps at a
    time, and in eights."""
    return min(255, REGISTERS // (workgroups * 128 * ceil(threads / 128))) // 8 * 8


def apart_of(a_processor: int, warps: int, channels: Channels, close: bool) -> float:
    """What part of the shorter of computing and moving is not hidden behind the other.

    *Source*: measured on an H200 (benchmarks/results/2026-11-30-rows.json): workgroups one after the other hide the
    more the more there are; rows that engines bring and take are hidden best by a workgroup that is alone.
    """
    if channels.slots:
        fewer = (0.03 if channels.slots == 1 else 0.0) + (0.035 if not channels.stages else 0.0)
        return (max(0.03, 0.3 - 0.017 * warps) if a_processor == 1 else 0.15) + fewer
    if close:
        return 0.17
    return {1: 0.18, 2: 0.31}.get(a_processor, 0.24)


def with_next(machine: MachineProgram) -> MachineProgram:
    """The same, loads of a task's own rows also asking for those of the executor's next task."""
    tensors = {t.name for t in machine.program.tensors}
    for role in (r for k in machine.kernels for r in k.roles):
        for tasks in (s for s in walk(role.body) if isinstance(s, Tasks)):
            for stmt in tasks.body:
                if isinstance(stmt, MachineLoad) and stmt.src.name in tensors:
                    if any(v in i.symbols for i in stmt.src.index for v in tasks.vars):
                        stmt.tags = (*stmt.tags, "ahead")
    return machine


def rounded(rounds: int) -> int:
    """Sweeps for at least `rounds`, in steps of an eighth: few widths, little of a row wasted.

    *Ensures*: `rounds <= rounded(rounds) <= max(rounds + 1, 9 * rounds / 8)`.
    """
    step = 1
    while step * 16 <= rounds:
        step *= 2
    return -(-max(1, rounds) // step) * step


def exactly(shape: Shape, stripes: dict[str, Stripe], warps: int) -> bool:
    """Whether every row that is held has as many elements as its threads' shares."""
    found = along(shape)
    held = [(r, s) for r, s in stripes.items() if s.held]
    return bool(held) and all(shape.facts.value(found[r].dim.extent) == s.width(warps) for r, s in held)


def even(tasks: float, most: int) -> int:
    """As few executors as finish in the rounds that `most` would take: none idles in the last, while all share the
    memory's bandwidth in every one.

    *Ensures*: `ceil(tasks / even(tasks, most)) == ceil(tasks / most)`, and no smaller number has that.
    """
    return max(1, ceil(tasks / ceil(max(1.0, tasks) / most)))


def instances(shape: Shape, found: dict[str, Along], stripes: dict[str, Stripe], warps: int) -> float:
    """Tasks of all launches together."""
    total = 0.0
    for op in shape.program.body.ops:
        if isinstance(op, Region):
            count = 1.0
            for arg in op.args:
                extent = max(1, shape.facts.value(arg.domain.dim.extent))
                name = shape.names[id(op)]
                lanes = arg.kind == "block" and name in found and found[name].dim is arg.domain.dim
                count *= ceil(extent / stripes[name].width(warps)) if lanes else extent
            total += count
    return max(1.0, total)


def one_element(shape: Shape) -> int:
    """Bytes of the widest element that is read."""
    return max((max(1, t.dtype.bits // 8) for t in shape.program.tensors if t.name in shape.uses.loaded), default=4)


def dependent_folds(shape: Shape) -> int:
    """Folds along lanes: each needs the one before it to be finished."""
    return sum(isinstance(op, Reduce) for op in shape.program.body.walk())


def scans(shape: Shape) -> int:
    """Scans: each needs what came before, of a tile of the row and of every one before it."""
    return sum(isinstance(op, Scan) for op in shape.program.body.walk())


_known: list[tuple[Shape, dict[tuple[int, bool], bool]]] = []


def buildable(shape: Shape, warps: int, held: bool) -> bool:
    """Whether the engine finds fragments for every value at this point (remembered for a shape)."""
    table = next((t for s, t in _known if s is shape), None)
    if table is None:
        table = dict[tuple[int, bool], bool]()
        _known.append((shape, table))
        del _known[:-8]
    key = (min(warps, 4), held)
    if key not in table:
        point = {"warps": key[0], "held": held}
        rows = Rows()
        try:
            rows.build(shape.program, shape.facts, point, Guard())
            table[key] = True
        except NotLowered:
            table[key] = False
    return table[key]


def tried(shape: Shape, axes: Sequence[Axis]) -> bool:
    """Whether some point can be built."""
    del axes
    return any(buildable(shape, w, h) for w in (1, 4) for h in (True, False))
