"""What a point of rows over lanes gives a thread and a multiprocessor: shares of a row, stretches, tasks, registers,
and workgroups that run side by side."""

from __future__ import annotations

from math import ceil

from treadle.base.memo import memoised
from treadle.ir.core import Region
from treadle.plan.family import Point
from treadle.realise.channels import PRODUCER, Channels
from treadle.realise.rows import Stripe
from treadle.targets.cuda.row_lanes import Along, along, dependent_folds, long_region, narrow, one_element, scans
from treadle.targets.cuda.shape import Shape

THREADS = 1024
"""Threads of a workgroup at most."""

REGISTERS = 65536
"""Of a multiprocessor."""

TIGHT = 0.92
"""Of the registers that a thread is believed to need, this part is enough without spills."""

SHARED = 227 * 1024
"""Bytes of shared memory that the workgroups of a multiprocessor have together, 1 KiB of each reserved."""

BURST = 16
"""Elements that a thread takes at a time where a row is swept."""

SHORT = 4
"""The same of ranges that only a run tells (CSR of 0 to 16 a row is at 0.75 of cuSPARSE with it,
of 0 to 64 at 1.2, of 0 to 400 at 1.0; other numbers are not timed: benchmarks/results/2026-12-01-inside.json)."""


def stripes_of(shape: Shape, point: Point) -> dict[str, Stripe]:
    """The stripes of a point, by region."""
    how = int(point["warps"]), bool(point["held"]), bool(point.get("exact")), int(point.get("together", 1))
    return _stripes(shape, *how)


@memoised
def _stripes(shape: Shape, warps: int, held: bool, exact: bool, together: int) -> dict[str, Stripe]:
    found: dict[str, Stripe] = {}
    for region, one in along(shape).items():
        extent = shape.facts.value(one.dim.extent)
        if warps == 1 and together > 1 and region in narrow(shape):
            found[region] = Stripe(one.vector, 1, held and one.whole, False, narrow(shape)[region])
        elif held and one.whole:
            found[region] = Stripe(one.vector, rounded(ceil(extent / (32 * warps * one.vector))), True, exact)
        else:
            found[region] = Stripe(one.vector, SHORT if one.told else max(1, min(BURST // (one.vector * together), 8)))
    return found


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


def stretched(shape: Shape, point: Point) -> tuple[int, int, int] | None:
    """The width of a tile, the tiles of a stretch, and how many stretches a row has at most; None without any."""
    asked = int(point.get("stretches", 1))
    if asked == 1:
        return None
    region = long_region(shape)
    stripe = stripes_of(shape, point)[region]
    width = stripe.width(int(point["warps"]))
    tiles = ceil(shape.facts.value(along(shape)[region].dim.extent) / width)
    return width, max(1, ceil(tiles / asked)), 32 * ceil(asked / 32)


def instances(shape: Shape, found: dict[str, Along], stripes: dict[str, Stripe], warps: int, only: str = "") -> float:
    """Tasks of all launches together, or of that of one region."""
    total = 0.0
    for op in shape.program.body.ops:
        if isinstance(op, Region) and only in ("", shape.names[id(op)]):
            count = 1.0
            for arg in op.args:
                extent = max(1, shape.facts.value(arg.domain.dim.extent))
                name = shape.names[id(op)]
                lanes = arg.kind == "block" and name in found and found[name].dim is arg.domain.dim
                count *= ceil(extent / stripes[name].width(warps)) if lanes else extent
            total += count
    return max(1.0, total)


def even(tasks: float, most: int) -> int:
    """As few executors as finish in the rounds that `most` would take: none idles in the last, while all share the
    memory's bandwidth in every one.

    *Ensures*: `ceil(tasks / even(tasks, most)) == ceil(tasks / most)`, and no smaller number has that.
    """
    return max(1, ceil(tasks / ceil(max(1.0, tasks) / most)))


def channels_of(point: Point) -> Channels:
    """The rings of a point."""
    return Channels(int(point.get("slots", 0)), int(point.get("stages", 0)), bool(point.get("tickets", False)))


def registers_of(shape: Shape, point: Point) -> float:
    """About how many a thread needs, loads ahead left out."""
    share = max((s.vector * s.rounds for s in stripes_of(shape, point).values()), default=1)
    together = int(point.get("together", 1))
    # Of several coordinates at once there is what is folded so far, and what comes to it.
    need = 24 + share * together * (2.5 if together > 1 else 1.25 if point["held"] else 1.5)
    if scans(shape):
        need += 4 + share * (0.25 + (one_element(shape) / 4 if point.get("next") else 0.0))
    return need


def rationed(shape: Shape, point: Point) -> float:
    """As `registers`, with what is read beside the row, and wide elements that are not unpacked at each use: where
    there is no room for more, all of it counts."""
    share = max((s.vector * s.rounds for s in stripes_of(shape, point).values()), default=1)
    beside = max(0, len(shape.uses.loaded) - 1) + (1 if one_element(shape) > 2 else 0)
    return registers_of(shape, point) + share * 0.25 * beside


def ahead(shape: Shape, point: Point) -> bool:
    """Whether a workgroup reads its next row while it computes: where it is alone on a multiprocessor and its
    threads have registers left for that row as it is stored."""
    threads = 32 * int(point["warps"])
    registers = registers_of(shape, point)
    if not point["held"] or 2 * registers * threads <= REGISTERS:
        return False
    share = max((s.vector * s.rounds for s in stripes_of(shape, point).values()), default=1)
    return (registers + share * one_element(shape) / 4 - 8) * threads <= REGISTERS


def resident_of(shape: Shape, point: Point) -> int:
    """Workgroups that fit a multiprocessor at once: by threads, registers, shared memory; 0: none surely does."""
    threads, channels = 32 * int(point["warps"]), channels_of(point)
    found = max(1, int(min(2048, REGISTERS / registers_of(shape, point)) // threads))
    if threads == THREADS and (dependent_folds(shape) > 1 or scans(shape)):
        found = 1  # two of the largest have 32 registers a thread, of which a second fold spills (seen)
    need = rationed(shape, point)
    if point.get("close"):
        return found + 1 if found + 1 <= 2048 // threads and need * TIGHT <= least(found + 1, threads) else 0
    if not channels.slots:
        return found
    threads += PRODUCER
    beside = 1024 + ring_bytes(shape, point)
    by_threads = min(2048 // threads, SHARED // beside)
    while by_threads and need * TIGHT > least(by_threads, threads):
        by_threads -= 1
    return by_threads


def least(workgroups: int, threads: int) -> int:
    """Registers of a thread when so many workgroups share a multiprocessor, which hands them out to four warps at a
    time, and in eights."""
    return min(255, REGISTERS // (workgroups * 128 * ceil(threads / 128))) // 8 * 8


def ring_bytes(shape: Shape, point: Point) -> int:
    """Shared memory for rows on their way."""
    width = max((s.width(int(point["warps"])) for s in stripes_of(shape, point).values()), default=0)
    read = sum(t.dtype.bits // 8 for t in shape.program.tensors if t.name in shape.uses.loaded and len(t.dims) > 1)
    stored = sum(t.dtype.bits // 8 for t in shape.program.tensors if t.name in shape.uses.stored)
    return width * (int(point.get("slots", 0)) * read + int(point.get("stages", 0)) * stored)
