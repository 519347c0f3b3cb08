"""Ring counters in 32 bits.

A counter counts every step of a launch. Rings, phases and slots use it only through remainders, so it may wrap at a
common period of all of them. The period is proved, not assumed: every expression that mentions the counter must be
equal, as a canonical polynomial, with the counter and with the counter plus the period.
"""

from __future__ import annotations

from math import lcm

from treadle.algebra.expr import Expr, sym
from treadle.machine.form import Advance, Control, Let, Role, Stmt, Sync, walk
from treadle.targets.cuda.emit.mentions import expressions, versions

MOST_PERIOD = 1 << 16


def periods(role: Role, rings: dict[str, int]) -> dict[str, int | None]:
    """Counter -> the number at which it may return to zero, or None. `rings`: versions of buffers and barriers."""
    found: dict[str, int | None] = {}
    for counter in role.counters:
        used: list[Expr] = []
        candidate = 2
        for stmt in walk(role.body):
            for name, version in versions(stmt):
                if counter in version.symbols:
                    count = rings.get(name, 1)
                    candidate = lcm(candidate, 2 * count)
                    used.append(version % count)
            used += [e for e in expressions(stmt) if counter in e.symbols]
            if isinstance(stmt, Sync):
                used += [e % 2 for n, e in stmt.args if n == "phase" and counter in e.symbols]
        whole = all(e.substitute({counter: sym(counter) + candidate}) == e for e in used)
        found[counter] = candidate if whole and candidate <= MOST_PERIOD else None
    return found


def private(role: Role) -> frozenset[str]:
    """Counters that only statements of the elected thread mention."""
    shared: set[str] = set()
    for stmt in walk(role.body):
        if isinstance(stmt, Advance) or (isinstance(stmt, Stmt) and stmt.by == "elect" and not isinstance(stmt, Let)):
            continue
        mentioned = set(_symbols(stmt))
        shared |= mentioned & set(role.counters)
    return frozenset(set(role.counters) - shared)


def _symbols(stmt: Stmt | Control) -> set[str]:
    names: set[str] = set()
    for expr in expressions(stmt):
        names |= expr.symbols
    for _, version in versions(stmt):
        names |= version.symbols
    if isinstance(stmt, Sync):
        for _, expr in stmt.args:
            names |= expr.symbols
    return names
