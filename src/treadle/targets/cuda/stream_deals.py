"""How tasks that take longer and longer are dealt to workgroups: what the slowest of them gets.

Iterations of a task follow from where its block of rows lies, so an order of tasks can be judged before anything runs:
the tasks of a persistent launch are dealt as the machine deals them, and the heaviest hand is what counts.
"""

from __future__ import annotations

from heapq import heapify, heapreplace
from math import ceil
from operator import add

from treadle.realise.ring import Stream
from treadle.targets.cuda.shape import Shape

ALL = 1 << 20
"""More combinations than there are."""

RASTERS: dict[str, tuple[str | int, ...]] = {
    "heavy first": ("row", "reverse", "snake"),
    "heavy first 16": ("slow", 16, "reverse", "snake"),
    "heavy first 32": ("slow", 32, "reverse", "snake"),
    "heavy first all": ("slow", ALL, "reverse", "snake"),
    "drawn": ("row", "reverse"),
    "drawn 8": ("slow", 8, "reverse"),
    "drawn 16": ("slow", 16, "reverse"),
}
"""Orders of uneven tasks: the last first, every second round dealt in reverse, the heaviest of each combination of the
other arguments, of 16 or 32 of them, or of all together; the last first, each drawn by the workgroup that is ready, of
one combination, of 8 or 16 of them."""

MOST = 1 << 15
"""Tasks that are dealt one by one here; more of them even out."""

NEAR = 45e6
"""Bytes of blocks that tasks of several combinations share in the second cache."""

SPREAD = 0.8e-9
"""What a task takes longer for each byte beyond (measured: 64 heads together, of 1 and 2 MB each)."""

Hands = list[tuple[float, int]]
"""Iterations and tasks of workgroups, each pair once."""


def drawn(order: str) -> bool:
    """Whether workgroups draw their tasks in this order."""
    return order.startswith("drawn")


def weights(shape: Shape, stream: Stream, rows: int, step: int) -> list[int] | None:
    """Iterations of the tasks along the rows, where nothing else says how many there are; else None."""
    block = stream.block
    if block is None or stream.more_rows or stream.region.args[-1] is not stream.rows or stream.all_rows:
        return None
    name, dim = stream.rows.name, stream.rows.part.dim
    extent = max(1, shape.facts.value(dim.extent))
    domain = block.domain
    names = {f"{name}.start", f"{name}.stop", *shape.facts.extents}
    lo, hi = (e.substitute(dict(stream.program.lets)) for e in (domain.lo, domain.hi))
    if lo.functions or hi.functions or not (lo.symbols | hi.symbols) <= names:
        return None
    found: list[int] = []
    for start in range(0, extent, rows):
        env = {**shape.facts.extents, f"{name}.start": start, f"{name}.stop": min(start + rows, extent)}
        found.append(max(0, ceil((int(hi.evaluate(env)) - int(lo.evaluate(env))) / step)))
    return found


def hands(loads: list[int], others: int, executors: int, order: str) -> Hands:
    """What workgroups get of `others` times these tasks."""
    if len(loads) * others > MOST:
        return [(sum(loads) * others / executors, ceil(len(loads) * others / executors))]
    words = RASTERS.get(order, ("row",))
    together = min(int(words[1]), others) if words[0] == "slow" else 1
    tasks: list[int] = []
    for first in range(0, others, together):
        for load in reversed(loads) if "reverse" in words else loads:
            tasks += [load] * min(together, others - first)
    if drawn(order):
        return _drawn(tasks, executors)
    work, count = [0] * executors, [0] * executors
    for number, first in enumerate(range(0, len(tasks), executors)):
        dealt = tasks[first : first + executors]
        there = [1] * len(dealt) + [0] * (executors - len(dealt))
        dealt += [0] * (executors - len(dealt))
        turn = -1 if "snake" in words and number % 2 else 1
        work = list(map(add, work, dealt[::turn]))
        count = list(map(add, count, there[::turn]))
    return list(set(zip(work, count, strict=True)))


def _drawn(tasks: list[int], executors: int) -> Hands:
    ready = [(0, 0)] * executors
    heapify(ready)
    for load in tasks:
        work, count = ready[0]
        heapreplace(ready, (work + load, count + 1))
    return list(set(ready))


def spread(order: str, loads: int, others: int, executors: int, each: float) -> float:
    """How much longer tasks take whose blocks do not stay in the second cache; `each`: bytes of one combination's."""
    words = RASTERS.get(order, ("row",))
    together = int(words[1]) if words[0] == "slow" else ceil(executors / loads)
    return 1.0 + min(0.1, SPREAD * max(0.0, min(together, others) * each - NEAR))
