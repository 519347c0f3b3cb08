"""J2, J3 and J5 of rings that threads fill by their own copies (`cp.async`), each of which arrives when it is complete.

Step n of the producer: all its threads wait for the slot to be free, all copy, and the copies of each arrive at `full`
(`cpasync.arrive`): it counts one arrival of each thread, and no bytes. Either the arrivals of the copies are the ones
that it counts, or (`more`) each thread arrives itself, and the phase waits for its copies too. So the phase is over
when every copy of every thread is complete and visible; what else the threads wrote nobody may rely on.

Each thread waits itself, for each copies itself: an arrival of consumers orders their reads before copies of whoever
has seen the phase of `empty`. Copies of threads are ordinary accesses: loads need no fence before the slot is given
back, and neither engines nor asynchronous products read such a slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from treadle.algebra.expr import sym
from treadle.checker.steps import Ring, Step, flat, kind
from treadle.checker.verdict import Refused
from treadle.machine.form import Copy, Role, Stmt, Sync

if TYPE_CHECKING:
    from treadle.checker.rings import Rings

ARRIVE = "cpasync.arrive"
COPIES = "cp.async"


def copied_ring(rings: Rings, role: Role, step: Step, events: Sequence[tuple[Stmt, int]]) -> Ring:
    """The ring of a step that threads fill. `events`: the statements of the step that name its counter, and how often
    each is executed. *Errors*: findings of J2, J3 and J5, with `rings.at` at the statement."""
    number = sym(step.counter)
    rings.at = step.body[step.position]
    order = [s for s, _ in events]
    copies = [s for s in order if isinstance(s, Copy)]
    waits, arrivals = ([s for s in order if isinstance(s, Sync) and s.kind == k] for k in ("mbar.wait", ARRIVE))
    own = [s for s in order if isinstance(s, Sync) and s.kind == "mbar.arrive"]
    if len(waits) != 1 or len(arrivals) != 1 or len(own) > 1 or len(order) != 2 + len(own) + len(copies):
        raise Refused("J3", f"a step of {step.counter} must wait once, copy, and arrive once", {})
    wait, arrive = waits[0], arrivals[0]
    if order[0] is not wait or order[1 + len(copies)] is not arrive or not copies:
        raise Refused("J3", f"a step of {step.counter} must wait, then copy, then have its copies arrive", {})
    if any(times != 1 for s, times in events if isinstance(s, Sync)):
        raise Refused("J3", f"a step of {step.counter} must wait once, copy, and arrive once", {})
    if wait.by or arrive.by or any(s.by for s in own):
        raise Refused("J5", "every thread that copies waits for the slot and arrives", {})
    rings.at = arrive
    full, empty = rings.barrier(arrive, number), rings.barrier(wait, number)
    rings.phase(wait, number, full.versions, 1)
    _own_arrivals(rings, arrive, own)
    for copy in copies:
        rings.at = copy
        if copy.engine != COPIES or copy.signal is not None or copy.by:
            raise Refused("J3", f"a copy into {copy.dst.name} is none of the threads that arrive", {})
        if copy.dst.version != number:
            raise Refused("J2", f"a copy into another slot of {copy.dst.name} than its step's", {})
    between = [s for s, _ in flat(step.before, everything=True)]
    inside = between[next(i for i, s in enumerate(between) if s is wait) + 1 :]
    for s in inside[: next(i for i, s in enumerate(inside) if s is arrive)]:
        if kind(s) == "mbar.wait":
            rings.at = s
            raise Refused("J5", "steps of two rings stand one inside the other", {})
    rings.at = arrive
    return Ring(full, empty, full.versions, frozenset(c.dst.name for c in copies), [step], copied=role.threads)


def _own_arrivals(rings: Rings, arrive: Sync, own: Sequence[Sync]) -> None:
    """Where the phase counts an arrival more for the copies of each thread, each thread arrives once itself; else its
    copies alone do."""
    more = dict(arrive.args).get("more")
    told = 0 if more is None else more.constant
    if told not in (0, 1) or len(own) != told:
        rings.at = own[0] if own else arrive
        raise Refused("J3", f"{len(own)} arrivals of each thread beside those of its copies", {"more": told or 0})
    for s in own:
        same = s.object is not None and arrive.object is not None and s.object == arrive.object
        if not same or dict(s.args).get("count") is not None:
            rings.at = s
            raise Refused("J3", "a thread arrives elsewhere than its copies do", {})


def check_counted(ring: Ring) -> None:
    """`full` counts an arrival of each thread that copies. *Errors*: refused, J3."""
    if ring.full.count != ring.copied or ring.full.tx or ring.empty.tx:
        raise Refused(
            "J3",
            f"{ring.full.name} must count the arrivals of {ring.copied} threads, and no bytes",
            {"count": ring.full.count, "threads": ring.copied},
        )
