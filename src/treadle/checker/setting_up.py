"""J2, J3 and J5 of setting barriers up: once each, by one thread, fenced, and before all roles meet and go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.algebra.expr import Expr
from treadle.checker.steps import is_meeting, kind
from treadle.checker.verdict import Refused, Unsure
from treadle.machine.form import Body, Control, Copy, Role, Stmt, Sync, walk

if TYPE_CHECKING:
    from treadle.checker.rings import Rings


BEFORE = ("mbar.init", "fence.mbar_init", "setmaxnreg", "barrier.sync")
"""What a role may do before all have met."""


def check_set_up(rings: Rings) -> None:
    """Where there are barriers, a cluster, or roles that all meet. *Errors*: findings of J2, J3 and J5, with `rings.at`
    at the statement."""
    roles = rings.kernel.roles
    threads = sum(r.agents * r.threads for r in roles)
    met = len(roles) > 1 and any(is_meeting(s, threads, rings.handed) for r in roles for s in walk(r.body))
    if rings.kernel.barriers or rings.cluster > 1 or met:
        _prologues(rings, threads)


def _prologues(rings: Rings, threads: int) -> None:
    """Each barrier is set up once in all, and all roles meet at barrier 0."""
    set_up: list[str] = []
    met: set[Expr] = set()
    for role in rings.kernel.roles:
        rings.at = role.body[0] if role.body else None
        prologue, behind, meeting = _prologue(rings, role, threads)
        met.add(dict(meeting.args)["id"] if rings.cluster == 1 else Expr(()))
        set_up += _inits(rings, role, prologue)
        _one_prologue(rings, role, behind, threads)
    if len(met) != 1 or next(iter(met)).constant != 0:
        raise Refused("J5", f"the roles meet at barriers {', '.join(map(str, met))}, not all at 0", {})
    rings.at = None
    for b in rings.kernel.barriers:
        if set_up.count(b.name) != 1:
            raise Refused("J3", f"{b.name} is set up {set_up.count(b.name)} times", {"times": set_up.count(b.name)})


def _prologue(rings: Rings, role: Role, threads: int) -> tuple[Body, Body, Sync]:
    """What a role does before all meet, what it does behind that, and the meeting: of a cluster, of all threads of all
    its workgroups."""
    if rings.cluster > 1:
        waits = (i for i, s in enumerate(role.body) if kind(s) == "cluster.wait")
    else:
        waits = (i for i, s in enumerate(role.body) if is_meeting(s, threads, rings.handed))
    meet = next(waits, None)
    if meet is None:
        raise Refused("J2", f"{role.name} does not meet the others after the barriers are set up", {})
    meeting, prologue = role.body[meet], role.body[:meet]
    assert isinstance(meeting, Sync)
    if rings.cluster > 1:
        prologue = prologue[: next((i for i, s in enumerate(prologue) if kind(s) == "cluster.arrive"), 0)]
        if meet != len(prologue) + 1:
            raise Refused("J2", f"{role.name} does not arrive at the cluster's barrier and wait there", {})
    return prologue, role.body[meet + 1 :], meeting


def _inits(rings: Rings, role: Role, prologue: Body) -> list[str]:
    """The barriers that a role sets up, by one thread and fenced; it does nothing else before all meet."""
    found: list[str] = []
    inits = [s for s in prologue if isinstance(s, Sync) and s.kind == "mbar.init"]
    for s in inits:
        rings.at = s
        if s.by != "elect" or s.object is None or s.object.version is not None or role.agents != 1:
            raise Refused("J3", "a barrier is set up by more than one thread, or in part", {})
        found.append(s.object.name)
    if inits:
        last = next(i for i, s in enumerate(prologue) if s is inits[-1])
        plain = rings.cluster == 1 and all(r.copied for r in rings.rings.values())
        if not plain and not any(kind(s) == "fence.mbar_init" for s in prologue[last + 1 :]):
            reason = f"barriers are set up without a fence: {', '.join(sorted(set(found)))}"
            raise Refused("J2", reason, {}, partner=_completing(rings, set(found)))
    for s in prologue:
        if kind(s) not in BEFORE:
            rings.at = s
            raise Refused("J2", "work before all roles have met", {})
    return found


def _one_prologue(rings: Rings, role: Role, behind: Body, threads: int) -> None:
    """Behind it no barrier is set up, nor do all meet again, but the one agent of a cluster's only role."""
    alone = rings.cluster > 1 and len(rings.kernel.roles) == 1 and role.agents == 1
    for s in walk(behind):
        if kind(s) == "mbar.init" or (is_meeting(s, threads, rings.handed) and not alone):
            rings.at = s
            _late(rings, role, s, threads)
            raise Unsure("J3", "barriers are set up, or all roles meet, again", missing="one prologue")


def _completing(rings: Rings, names: set[str]) -> Stmt | None:
    """A copy that completes at one of these barriers."""
    every = (s for role in rings.kernel.roles for s in walk(role.body))
    return next((s for s in every if isinstance(s, Copy) and s.signal is not None and s.signal.name in names), None)


def _late(rings: Rings, role: Role, s: Stmt | Control, threads: int) -> None:
    """*Errors*: refused where a barrier is set up behind the last meeting of all and others use it: nothing is
    between the two."""
    if not isinstance(s, Sync) or s.kind != "mbar.init" or s.object is None or rings.handed or rings.cluster > 1:
        return
    at = next((i for i, x in enumerate(role.body) if x is s), None)
    if at is None or any(is_meeting(x, threads, rings.handed) for x in walk(role.body[at:])):
        return
    for other in rings.kernel.roles:
        for x in walk(other.body) if other is not role else ():
            if isinstance(x, Sync) and x.object is not None and x.object.name == s.object.name:
                reason = f"{s.object.name} is set up behind the meeting of all, and others may have come to it"
                raise Refused("J3", reason, {}, partner=x)
