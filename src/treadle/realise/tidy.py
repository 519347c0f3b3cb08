"""Statements whose results nobody reads, taken out: values fetched for an operation that another rule then replaced."""

from __future__ import annotations

from treadle.machine.form import Body, Compute, Fold, If, Kernel, Load, Loop, Mma, Tasks
from treadle.realise.threads import fragments_read


def without_idle(kernel: Kernel) -> Kernel:
    """The kernel without computations of fragments that no statement, condition or invariant mentions.

    *Ensures*: stores, copies and synchronisation are untouched.
    """
    while True:
        used: set[str] = set()
        for role in kernel.roles:
            used |= fragments_read(role.body) | _held(role.body)
        before = sum(_clean(role.body, used) for role in kernel.roles)
        if not before:
            break
    made = {f for role in kernel.roles for f in _mentioned(role.body)}
    kernel.frags = [f for f in kernel.frags if f.name in made]
    return kernel


def _held(body: Body) -> set[str]:
    """Holders of invariants."""
    found: set[str] = set()
    for item in body:
        if isinstance(item, Loop):
            found |= {i.holder for i in item.invariants}
        if isinstance(item, Loop | Tasks):
            found |= _held(item.body)
        elif isinstance(item, If):
            found |= _held(item.then) | _held(item.orelse)
    return found


def _mentioned(body: Body) -> set[str]:
    """Fragments that statements read or write."""
    found = fragments_read(body) | _held(body)
    for item in body:
        if isinstance(item, Loop | Tasks):
            found |= _mentioned(item.body)
        elif isinstance(item, If):
            found |= _mentioned(item.then) | _mentioned(item.orelse)
        elif isinstance(item, Load | Compute | Fold | Mma):
            found.add(item.dst)
    return found


def _clean(body: Body, used: set[str]) -> int:
    """Removes idle statements in place; gives their number."""
    count = 0
    kept: Body = []
    for item in body:
        if isinstance(item, Loop | Tasks):
            count += _clean(item.body, used)
        elif isinstance(item, If):
            count += _clean(item.then, used) + _clean(item.orelse, used)
        if isinstance(item, Load | Compute | Fold) and item.dst not in used:
            count += 1
            continue
        if isinstance(item, If) and not item.then and not item.orelse:
            count += 1
            continue
        kept.append(item)
    body[:] = kept
    return count
