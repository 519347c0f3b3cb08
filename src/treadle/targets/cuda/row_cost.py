"""What rows over lanes take: computing, moving, and what of the one is not hidden behind the other."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from treadle.ir.core import Region
from treadle.ir.ops.fold import Reduce
from treadle.plan.cost import CostVector
from treadle.plan.family import Point
from treadle.realise.channels import Channels
from treadle.targets.cuda.rates import FOLLOWS, rates
from treadle.targets.cuda.row_lanes import (
    along,
    dependent_folds,
    folded_beside,
    long_region,
    one_element,
    read_again,
    scans,
    sweeps_out,
)
from treadle.targets.cuda.row_shares import ahead, channels_of, instances, resident_of, stripes_of
from treadle.targets.cuda.shape import Shape

UNEVEN = 0.09
"""How much longer the last multiprocessor takes than all would together, where each is given its rows beforehand
(measured: without any computing, they end between 96 and 133 us)."""

DRAWN = 0.1
"""The same where they draw the next row when they are ready for it (measured: 0 to 5 % longer than rows dealt out;
they end at different times because memory serves them unevenly, not because they have different work)."""

STEP = {False: 0.62e-6, True: 0.46e-6}
"""Seconds of a tile of a scan that no other tile of its row hides, its loads and the meeting of the warps; where the
next tile's loads are on their way (measured, benchmarks/results/2026-11-30-scans.json: 0.55 to 0.65, 0.42 to 0.48)."""

ALONE = {False: 47e9, True: 74e9}
"""Bytes a second that a multiprocessor moves for tiles which follow one another (measured in the same place)."""

SPARSE = 0.27
"""Of the seconds of a tile, what is left of them where there is enough else to do."""

SWEPT_WIDE = 65536
"""Bytes under way on a multiprocessor with which stretches reach the bandwidth, beside three tenths that they always
have: the loads of a tile wait for those of the one before (one row of 16M f32: 16, 32 and 64 KiB under way take 50, 37
and 31 us, benchmarks/results/2026-12-01-whole-folds.json)."""

CACHED = 20e6
"""Bytes that one launch reads and the next one finds in the second cache."""


@dataclass(frozen=True)
class Spread:
    """Tasks of all launches, tiles of a row that a task goes through, how often memory is read, which part of the lanes
    has elements, workgroups that share a multiprocessor, and rounds of those."""

    rows: float
    tiles: int
    passes: float
    busy: float
    a_processor: int
    waves: int


def spread_of(shape: Shape, point: Point) -> Spread:
    """How a point spreads its rows."""
    warps, parts = int(point["warps"]), int(point.get("stretches", 1))
    stripes = stripes_of(shape, point)
    passes, busy, tiles = 1.0, 1.0, 1.0
    regions = {shape.names[id(r)]: shape.bytes_in(r) for r in shape.program.body.ops if isinstance(r, Region)}
    for name, one in along(shape).items():
        extent = max(1, shape.facts.value(one.dim.extent))
        width = stripes[name].width(warps)
        if regions[name] == max(regions.values()):
            busy = min(busy, extent / (width * ceil(extent / width)))
        tiles = max(tiles, ceil(extent / width))
        if not point["held"] and one.whole:
            swept_over = dependent_folds(shape, name) + sweeps_out(shape) if parts > 1 else 1 + dependent_folds(shape)
            passes = max(passes, float(swept_over))
    rows = instances(shape, along(shape), stripes, warps) * parts
    a_processor = resident_of(shape, point)
    waves = ceil(rows / (rates(shape.facts).processors * a_processor))
    return Spread(rows, ceil(tiles / parts), passes, busy, a_processor, waves)


def cost(shape: Shape, point: Point) -> CostVector:
    """The cost of a point that can be built."""
    rate, spread = rates(shape.facts), spread_of(shape, point)
    channels, parts = channels_of(point), int(point.get("stretches", 1))
    compute, streamed = computing(shape, point, spread), streaming(shape, point, spread)
    # One workgroup on a multiprocessor reads, computes and writes in turn, faster than its share of the bandwidth.
    in_turn = spread.a_processor == 1 and not ahead(shape, point) and not channels.slots
    turns = compute - streamed / 3 if in_turn else 0.0
    moved = following(shape, point, spread, streamed) + walking(shape, point, spread)
    apart = apart_of(spread.a_processor, int(point["warps"]), channels, bool(point.get("close")))
    # Rows dealt out beforehand end at different times; where computing is short, more of it is hidden.
    dealt = 1.0 + (DRAWN if channels.tickets else UNEVEN if channels.slots else 0.0)
    hidden = 1.0 if channels.slots else min(1.0, 0.1 + compute / moved)
    return CostVector(
        compute=max(compute, stalling(shape, point, spread)),
        cache=(spread.passes - 1.0) * shape.bytes() / rate.cache,
        memory=dealt * moved + max(turns, apart * hidden * min(compute, moved)),
        launch=rate.launch + FOLLOWS * (len(along(shape)) - 1 + (parts > 1)),
    )


def computing(shape: Shape, point: Point, spread: Spread) -> float:
    """Seconds of all instructions."""
    rate, warps = rates(shape.facts), int(point["warps"])
    threads, folds, again = 32 * warps, dependent_folds(shape), spread.passes - 1.0
    # Every thread of a workgroup folds the shares of all warps.
    around = spread.rows * threads * (60.0 + folds * (15.0 + 1.25 * warps if warps > 1 else 10.0))
    around += spread.rows * spread.tiles * threads * scans(shape) * (20.0 + 5.0 * warps if warps > 1 else 10.0)
    slots = (1.0 + 0.5 * again) * shape.work() / spread.busy * (0.98 if point.get("exact") else 1.0) + around
    return slots / (rate.lanes * rate.processors * rate.clock)


def stalling(shape: Shape, point: Point, spread: Spread) -> float:
    """Seconds in which rounds of workgroups wait for memory and for each other's warps."""
    rate = rates(shape.facts)
    exchanges = (dependent_folds(shape) + scans(shape)) * (rate.exchange if int(point["warps"]) > 1 else 0.05e-6)
    return spread.waves * (rate.latency + exchanges) / (1.0 if spread.a_processor == 1 else 1.6)


def streaming(shape: Shape, point: Point, spread: Spread) -> float:
    """Seconds of all bytes at the bandwidth that what is in flight reaches."""
    share = max((s.vector * s.rounds for s in stripes_of(shape, point).values()), default=1)
    rate, workgroups, parts = rates(shape.facts), float(spread.a_processor), int(point.get("stretches", 1))
    enough = 49152
    if parts > 1 and not scans(shape):
        found, name = along(shape), long_region(shape)
        tasks = instances(shape, found, stripes_of(shape, point), int(point["warps"]), name) * parts
        workgroups, enough = min(workgroups, tasks / rate.processors), SWEPT_WIDE
    in_flight = workgroups * 32 * int(point["warps"]) * share * one_element(shape)
    moved = shape.bytes() / (rate.memory * min(1.0, 0.3 + in_flight / enough))
    if parts > 1 and read_again(shape):  # where the second cache holds it for little
        moved *= 1.15 if shape.bytes() < 2 * CACHED else 1.5
    return moved


def following(shape: Shape, point: Point, spread: Spread, moved: float) -> float:
    """Seconds of moving where tiles of a task follow one another."""
    busy_ones = min(spread.rows, rates(shape.facts).processors)
    if scans(shape):
        early = bool(point.get("next"))
        steps = spread.tiles * spread.waves
        alone = steps * STEP[early] + shape.bytes() / (busy_ones * ALONE[early])
        moved = max(moved, alone) + SPARSE * steps * STEP[early]
    tiles = walked(shape, point, spread.rows)
    if tiles:  # of regions in a task, each with its loads
        alone = tiles * spread.waves * STEP[False] + shape.bytes() / (busy_ones * ALONE[False])
        moved = max(moved, alone)
    return moved


def walking(shape: Shape, point: Point, spread: Spread) -> float:
    """Seconds in which tasks go over what they fold beside the lanes, some coordinates at once, one launch after the
    other; those of many tasks hide one another's."""
    together, seconds = int(point.get("together", 1)), 0.0
    beside = set(folded_beside(shape)[1])
    stripes = stripes_of(shape, point)
    for region in (op for op in shape.program.body.ops if isinstance(op, Region)):
        name = shape.names[id(region)]
        folds = [r.args for r in shape.regions if r.kind == "reduce" and region in shape.around[id(r)]]
        ranges = [a.domain for args in folds for a in args if a.domain.dim.name in beside]
        own = {a.dim for a in ranges}
        whole = [p for op in region.body.ops if isinstance(op, Reduce) for p in op.source.type.axes if p.dim in op.dims]
        ranges += [p for p in whole if p.dim.name in beside and p.dim not in own]
        once = together * (32 // stripes[name].lanes if name in stripes else 1)
        steps = sum(ceil(shape.reach(part) / once) for part in ranges)
        tasks, processors = (
            instances(shape, along(shape), stripes, int(point["warps"]), name),
            rates(shape.facts).processors,
        )
        busy = ceil(tasks / (processors * spread.a_processor))
        alone = shape.bytes_in(region) * (1 / min(tasks, processors) - 1 / processors) / ALONE[False]
        seconds += steps * busy * STEP[False] * (1.0 if busy == 1 else SPARSE) + (alone if ranges else 0.0)
    return seconds


def walked(shape: Shape, point: Point, rows: float) -> int:
    """Blocks along the lanes that a task goes through in regions of its own; 0 without such regions. Of ranges that
    only a run tells, as many as cover the dimension once in all tasks."""
    stripes, most = stripes_of(shape, point), 0
    for region in shape.regions:
        outer = shape.names[id((*shape.around[id(region)], region)[0])]
        one = along(shape).get(outer)
        dims = [a.domain.dim for a in region.args if a.kind == "block"]
        if one is not None and shape.names[id(region)] != outer and one.dim in dims:
            extent = shape.facts.value(one.dim.extent) / (rows if one.told else 1.0)
            most = max(most, ceil(extent / stripes[outer].width(int(point["warps"]))))
    return most


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
