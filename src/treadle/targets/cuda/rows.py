"""Rows over lanes: elementwise work and folds with a row's elements along the lanes of a warp or of a workgroup."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf

from treadle.algebra.expr import Constraint
from treadle.ir.core import Program
from treadle.ir.guard import Bound, Guard
from treadle.ir.ops.fold import Mma
from treadle.machine.form import Load as MachineLoad
from treadle.machine.form import MachineProgram, Tasks, walk
from treadle.plan.cost import CostVector
from treadle.plan.facts import CallFacts
from treadle.plan.family import Axis, Point
from treadle.plan.pins import Pin
from treadle.realise.channels import PRODUCER, through_channels
from treadle.realise.choices import Choices, NotLowered
from treadle.realise.earlier import loads_earlier
from treadle.realise.rows import over_lanes
from treadle.realise.stretches import in_stretches
from treadle.realise.universal import base_facts
from treadle.targets.cuda.ledger import functions_by_hardware
from treadle.targets.cuda.pins import pins_refused
from treadle.targets.cuda.rates import rates
from treadle.targets.cuda.row_cost import cost
from treadle.targets.cuda.row_lanes import (
    along,
    chunked,
    dependent_folds,
    few_long_rows,
    folded_beside,
    long_region,
    scans,
)
from treadle.targets.cuda.row_shares import (
    REGISTERS,
    THREADS,
    ahead,
    channels_of,
    even,
    exactly,
    instances,
    registers_of,
    resident_of,
    stretched,
    stripes_of,
)
from treadle.targets.cuda.shape import Shape, common_reasons, shape_of

HELD = 64
"""Elements of a row that a thread may hold in registers."""

MOST_WORKGROUPS = 65536
"""In a launch; up to so many rows, each has its own, dealt out as multiprocessors become free."""

MOST_STRETCHES = 1024
"""Of a row: a warp scans what they come to in its registers."""

TOGETHER = 4
"""Coordinates that a thread reads before it folds the first, of a dimension beside the lanes: one after the other each
would take the latency of memory."""

SHORTEST = 2048
"""Coordinates of a stretch at least."""


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
        if not reasons and not tried(shape):
            reasons.append("some values do not fit the registers of a group of threads")
        return reasons

    def axes(self, program: Program, facts: CallFacts) -> Sequence[Axis]:
        found = [Axis("warps", (1, 4, 8, 16, 32)), Axis("held", (True, False)), Axis("exact", (False, True))]
        if rates(facts).engines:
            found += [Axis("slots", (0, 1, 2, 3)), Axis("stages", (0, 1, 2))]
        if rates(facts).engines and few_long_rows(shape_of(program, facts)):
            found.append(Axis("tickets", (False, True)))
        if folded_beside(shape_of(program, facts))[1]:
            found.append(Axis("together", (1, TOGETHER)))
        if scans(shape_of(program, facts)):
            found.append(Axis("next", (False, True)))
            found.append(Axis("stretches", self.counts(shape_of(program, facts))))
        return [*found, Axis("close", (False, True))]

    def counts(self, shape: Shape) -> tuple[int, ...]:
        """Into how many stretches a row that is scanned may be cut: 1, and as many as would give each multiprocessor a
        few, where rows alone leave three of four without any."""
        found = along(shape)
        rows = instances(shape, found, stripes_of(shape, {"warps": 1, "held": False}), 1)
        processors = rates(shape.facts).processors
        longest = max((shape.facts.value(one.dim.extent) for one in found.values()), default=1)
        if scans(shape) != 1 or 4 * rows > processors or not all(one.whole for one in found.values()):
            return (1,)
        wanted = {min(MOST_STRETCHES, ceil(k * processors / rows)) for k in (2, 8)}
        return (1, *sorted(n for n in wanted if 1 < n <= longest // SHORTEST))

    def refuses(self, program: Program, facts: CallFacts, point: Point, pins: Sequence[Pin]) -> Sequence[str]:
        shape = shape_of(program, facts)
        return pins_refused(shape, self.cuts(shape, point), "fma", {}, pins)

    def cuts(self, shape: Shape, point: Point) -> dict[str, int]:
        """Blocks of arguments that lie along the lanes are as wide as a stripe, those of regions in a task too."""
        stripes, beside, together = stripes_of(shape, point), folded_beside(shape)[0], int(point.get("together", 1))
        found: dict[str, int] = {}
        for region in shape.regions:
            outer = shape.names[id((*shape.around[id(region)], region)[0])]
            one = along(shape).get(outer)
            for arg in region.args:
                if one is not None and arg.kind == "block" and arg.domain.dim is one.dim and arg.size is None:
                    name = f"{shape.names[id(region)]}.{arg.name}"
                    found[name] = stripes[outer].width(int(point["warps"]))
                elif together > 1 and f"{shape.names[id(region)]}.{arg.name}" in beside:
                    found[f"{shape.names[id(region)]}.{arg.name}"] = together * 32 // stripes[outer].lanes
        return found

    def guard(self, program: Program, facts: CallFacts, point: Point) -> Guard:
        shape = shape_of(program, facts)
        found = base_facts(program, shape.uses, disjoint=True)
        stripes = stripes_of(shape, point)
        for name, one in along(shape).items():
            found += [f for f in one.facts if f not in found]
            if stripes[name].held and one.dim.extent.constant is None:
                width = stripes[name].width(int(point["warps"]))
                found.append(Bound(Constraint(width - one.dim.extent)))
                if stripes[name].exact:
                    found.append(Bound(Constraint(one.dim.extent - width)))
                elif point.get("slots"):
                    found.append(Bound(Constraint(one.dim.extent - 1)))  # engines move no empty rows
        stretches = stretched(shape, point)
        if stretches is not None:
            one = along(shape)[long_region(shape)]
            if one.dim.extent.constant is None:
                found.append(Bound(Constraint(stretches[0] * stretches[1] * stretches[2] - one.dim.extent)))
        return Guard(tuple(found))

    def cost(self, program: Program, facts: CallFacts, point: Point) -> CostVector:
        shape = shape_of(program, facts)
        if not agrees(point) or not buildable(shape, int(point["warps"]), bool(point["held"])):
            return CostVector(compute=inf)
        return cost(shape, point) if fits(shape, point) else CostVector(compute=inf)

    def build(self, program: Program, facts: CallFacts, point: Point, guard: Guard) -> MachineProgram:
        shape = shape_of(program, facts)
        machine, channels = self.lanes(shape, point, guard), channels_of(point)
        if channels.slots:
            return through_channels(machine, channels)
        stretches = stretched(shape, point)
        if stretches is not None:
            machine = in_stretches(machine, *stretches, MOST_WORKGROUPS)
        if point.get("next"):
            return loads_earlier(machine)
        return with_next(machine) if ahead(shape, point) else machine

    def lanes(
        self, shape: Shape, point: Point, guard: Guard, elsewhere: frozenset[str] = frozenset()
    ) -> MachineProgram:
        """The launches of all regions but those in `elsewhere`, as lanes hold their rows."""
        warps, together = int(point["warps"]), int(point.get("together", 1))
        stripes, channels = stripes_of(shape, point), channels_of(point)
        widest = max((s.width(warps) for s in stripes.values()), default=1)
        beside = dict.fromkeys(folded_beside(shape)[1] if together > 1 else [], together)
        choices = Choices(
            cuts=self.cuts(shape, point),
            sweep=beside,
            slots=max(
                Choices.slots, together * max(widest, *(32 // s.lanes * s.width(warps) for s in stripes.values()))
            ),
            tasks=frozenset(shape.tasks),
            numerics=functions_by_hardware(shape.program, shape.facts.target),
        )
        processors = rates(shape.facts).processors
        early = not channels.slots and ahead(shape, point)
        most = processors * (16 if warps == 1 else 1) if warps == 1 or early else MOST_WORKGROUPS
        if channels.slots:
            most = processors * max(1, resident_of(shape, point))
        if early or (channels.slots and not channels.tickets):
            most = even(instances(shape, along(shape), stripes, warps), most)
        # Unasked, the assembler spills a few registers to make room for a second one of the largest workgroups.
        alone = (32 * warps == THREADS and dependent_folds(shape) > 1 and not channels.slots) or bool(scans(shape))
        alone = alone or (len(shape.tasks) > 1 and bool(folded_beside(shape)[0]))
        return over_lanes(
            shape.program,
            choices,
            guard,
            shape.facts.target,
            {r: {along(shape)[r].dim.name: s} for r, s in stripes.items() if r not in elsewhere},
            warps=warps,
            agents=4,
            workgroups=most,
            resident=resident_of(shape, point) if point.get("close") else 1 if alone else 0,
            beside=beside,
            elsewhere=elsewhere,
        )


def agrees(point: Point) -> bool:
    """Whether what the axes of a point say goes together."""
    warps, held, close = int(point["warps"]), bool(point["held"]), bool(point.get("close"))
    channels = channels_of(point)
    tiled = bool(point.get("next")) or int(point.get("stretches", 1)) > 1
    return not (
        32 * warps + (PRODUCER if channels.slots else 0) > THREADS
        or (not channels.slots and (channels.stages or channels.tickets))
        or (channels.slots and (warps == 1 or not held or close))
        or (tiled and (held or channels.slots or close or point.get("exact")))
        or (int(point.get("together", 1)) > 1 and (channels.slots or close or tiled))
        or (close and warps == 1)
    )


def fits(shape: Shape, point: Point) -> bool:
    """Whether a call's rows are those that a point is for, and a multiprocessor has room for them."""
    warps, stripes, slots = int(point["warps"]), stripes_of(shape, point), channels_of(point).slots
    share = max((s.vector * s.rounds for s in stripes.values()), default=1) * int(point.get("together", 1))
    registers = registers_of(shape, point)
    return not (
        (slots and (shape.facts.same or not chunked(shape)))
        or (point.get("exact") and not exactly(shape, stripes, warps))
        or ((point["held"] or point.get("together", 1) != 1) and share > HELD)
        or registers * 32 * warps > REGISTERS
        or registers > 255
        or ((slots or point.get("close")) and not all(one.whole for one in along(shape).values()))
        or not resident_of(shape, point)
    )


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


def tried(shape: Shape) -> bool:
    """Whether some point can be built."""
    return any(buildable(shape, w, h) for w in (1, 4) for h in (True, False))
