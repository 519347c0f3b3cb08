"""Which of a kernel's plans on the CPU a call gets, by numbers that are kept with the plans: no planner is asked.

Calls fall into cells (`call_class`: extents between the same powers of two). In a cell a plan is known by its *reach*:
of the calls there for which the planner found no other that is worth a compilation, how much its blocks left over at
most, and how much there was to do. A call within some plan's reach gets that plan; one beyond all of them is predicted
anew (`predicted.settle`), which widens a reach or adds a plan. Each widens it by a factor, so that a cell asks the
planner a few times, however many extents come by.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any

from treadle.driver.facts import CallFacts
from treadle.driver.record import Record
from treadle.driver.variants import Variant
from treadle.plan.grain import EVERYWHERE, Grain, Reach


def reach_of(record: Record, rank: int) -> Reach:
    """What a kept record says of its cell; everywhere where it says nothing."""
    said: Any = record.meta.get("reach")
    if said is None:
        return EVERYWHERE
    loss, least, most = (inf if float(n) < 0 else float(n) for n in said)
    return Reach(loss, least, most, rank)


def volume(facts: CallFacts) -> float:
    """How many points the extents of a call span."""
    return float(prod(max(1, n) for n in facts.extents.values()))


def loss(variant: Variant, facts: CallFacts, workers: int) -> float:
    """What a plan's blocks leave over for a call."""
    return Grain.read(variant.record.meta.get("grain", ((), ()))).loss(facts.extents, workers)


def within(variants: Sequence[Variant], facts: CallFacts, cls: str, workers: int) -> Variant | None:
    """The variant in whose reach a call of a cell is, the one that leaves least over of several."""
    found: list[tuple[float, int, Variant]] = []
    for i, variant in enumerate(variants):
        reach = variant.reach.get(cls)
        if reach is None:
            continue
        over = loss(variant, facts, workers)
        if reach.covers(over, volume(facts)):
            found.append((0.0 if reach.loss == inf else over, i, variant))
    return min(found, key=lambda f: f[:2])[2] if found else None


def widened(variant: Variant, facts: CallFacts, cls: str, workers: int) -> Reach:
    """The reach of a variant in a cell with this call in it."""
    over, size = loss(variant, facts, workers), volume(facts)
    known = variant.reach.get(cls)
    if known is None:
        return Reach(over, size, size)
    return Reach(max(known.loss, over), min(known.least, size), max(known.most, size), known.rank)
