"""Which two accesses a report names, where a rule has found that nothing orders them.

A rule that refuses a protocol (a launch that does not wait, workgroups that have not met) knows the memory that is at
stake, not the statements. These are looked up here, for the report only: no verdict hangs on it, except where a rule
says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from treadle.machine.form import Body, Compute, Copy, Load, MemRef, Mma, Stmt, Store, Tasks, walk

Touch = tuple[Stmt, MemRef, bool]
"""A statement, memory that it touches, and whether it writes it."""


def touches_of(body: Body) -> Iterator[Touch]:
    """What the statements of a body, and inside it, do to memory, operands included."""
    for s in walk(body):
        if isinstance(s, Load):
            yield s, s.src, False
        elif isinstance(s, Store):
            yield s, s.dst, True
        elif isinstance(s, Copy):
            yield s, s.src, False
            yield s, s.dst, True
        elif isinstance(s, Mma | Compute):
            operands = (s.a, s.b) if isinstance(s, Mma) else s.args
            yield from ((s, x, False) for x in operands if isinstance(x, MemRef))


def conflict(body: Body, others: Iterable[Body], own: frozenset[str] = frozenset()) -> tuple[Touch, Touch] | None:
    """The first access of a body, and the last one of other bodies, to one memory which one of the two stores to.
    `own` names memory that each has for itself."""
    there = [t for other in others for t in touches_of(other) if t[1].name not in own]
    for mine in touches_of(body):
        for yours in reversed(there):
            if mine[1].name == yours[1].name and (mine[2] or yours[2]):
                return mine, yours
    return None


def named(body: Body, name: str, writes: bool | None = None) -> Stmt | None:
    """The first statement that touches this memory (`writes`: that stores to it, or does not)."""
    return next((s for s, ref, w in touches_of(body) if ref.name == name and writes in (None, w)), None)


def updated(tasks: Tasks) -> tuple[Stmt | None, Stmt | None]:
    """A load of what tasks store and that store; the store twice where none of it is loaded."""
    found = list(touches_of(tasks.body))
    store = next((t for t in found if t[2]), None)
    if store is None:
        return None, None
    load = next((t for t in found if not t[2] and t[1].name == store[1].name), store)
    return load[0], store[0]
