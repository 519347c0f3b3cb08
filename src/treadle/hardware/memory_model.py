"""What orders memory on each target: one row a word of machine text, with what it promises and who says so.

These are assumptions: the judge's rules of rings, barriers, tasks and operations in flight rest on them and on nothing
else. `status` says what stands behind a row: a document that promises it, runs on a device that showed it (`litmus`
names the test in benchmarks/device/litmus.py), or nobody yet. `measured` tells what leaving the row out did on an H200:
a count of wrong results; zero of them never shows that a row is not needed.

A row that is not `judged` is vocabulary to come: what it would promise is written down and looked up, but no rule rests
on it, and `find_ordering` does not know it.
"""

from __future__ import annotations

from treadle.hardware.orderings import Ordering, Status
from treadle.hardware.orderings_barriers import MEETING, PHASED, PROXIES
from treadle.hardware.orderings_engines import COPIES, PRODUCTS
from treadle.hardware.orderings_plain import MEMORY, TASKS, TILES

__all__ = ["FAMILIES", "ROWS", "Ordering", "Status", "find_ordering"]

FAMILIES: tuple[tuple[str, tuple[Ordering, ...]], ...] = (
    ("Phased barriers", PHASED),
    ("Threads that meet", MEETING),
    ("Proxies, fences and counters", PROXIES),
    ("Asynchronous products and registers", PRODUCTS),
    ("Copies", COPIES),
    ("Plain accesses", MEMORY),
    ("Tasks and launches", TASKS),
    ("Tile registers of a CPU", TILES),
)
"""The rows by what they are about."""

ROWS: tuple[Ordering, ...] = tuple(row for _, rows in FAMILIES for row in rows)
"""Every row. A kind that has none, or whose row is not judged, is unknown to the judge."""

_BY_KIND: dict[str, Ordering] = {r.kind: r for r in ROWS}


def find_ordering(kind: str, target_kind: str) -> Ordering | None:
    """The row of a word, if targets of that kind ("cpu", "cuda", "webgpu") have it and rules may rest on it."""
    row = _BY_KIND.get(kind)
    return row if row is not None and row.judged and target_kind in row.targets.split() else None
