"""J2 and J3 of slots that consumers give back: each step once, behind all of its reads.

A step is given back in its own body, whatever conditions it stands under. A ring with steps in one place, in the body
of a loop, may be a step late: each iteration but the first gives back the one before, and behind the loop, where it
had an iteration, the last one is given back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from treadle.algebra.expr import Constraint, Expr, ge, gt, lt, sym
from treadle.algebra.sets import Facts
from treadle.checker.gpu import accesses
from treadle.checker.pairs import named
from treadle.checker.steps import Ring, Step, at_barrier, bodies, flat, lets_of, ranged
from treadle.checker.verdict import Refused
from treadle.machine.form import Body, Control, If, Loop, Role, Sync

if TYPE_CHECKING:
    from treadle.checker.rings import Rings

Found = tuple[tuple[Control, ...], Body, int, Sync]
"""Where an arrival stands: the controls around it, the body, the position in it, the statement."""


def check_given_back(rings: Rings, role: Role, ring: Ring, steps: list[Step]) -> None:
    """Counts the arrivals of a role in `ring.arrivals`. *Errors*: findings of J2, J3 and J5, with `rings.at` at the
    statement."""
    found = [
        (path, body, i, s)
        for path, body in bodies(role.body, ())
        for i, s in enumerate(body)
        if isinstance(s, Sync) and at_barrier(s, "mbar.arrive", ring.empty.name)
    ]
    if not found:
        reason = f"{role.name} never gives {ring.full.name} back: nobody arrives at {ring.empty.name}"
        free, full = (rings.using("mbar.wait", n) for n in (ring.empty.name, ring.full.name))
        raise Refused("J5", reason, {}, at=free, partner=full)
    each = {"warp": role.agents * (role.threads // 32), "elect": role.agents, "": role.agents * role.threads}
    grains = {s.by for _, _, _, s in found}
    rings.at = found[0][3]
    if len(grains) != 1 or any(dict(s.args).get("count", Expr(()) + 1).constant != 1 for _, _, _, s in found):
        raise Refused("J3", f"{ring.empty.name}: arrivals of different grain", {})
    if any(s.object is not None and s.object.rank != ("all" if ring.shared else None) for _, _, _, s in found):
        where = "every workgroup's" if ring.shared else "its own workgroup's"
        reason = f"{ring.empty.name} is given back elsewhere than at {where} barrier"
        raise Refused("J3", reason, {}, partner=rings.filling(ring))
    ring.arrivals += each[grains.pop()] * (rings.cluster if ring.shared else 1)
    if len(steps) == 1 and len(found) == 2 and ring.slots > 1:
        _Behind(rings, role, ring, steps[0]).check(found)
        return
    for step in steps:
        mine = [(i, s) for _, body, i, s in found if body is step.body]
        if len(mine) != 1 or len(found) != len(steps):
            reason = f"{ring.empty.name}: not every step is given back once"
            reading = next((s for n in sorted(ring.buffers) if (s := named(role.body, n)) is not None), None)
            raise Refused("J3", reason, {"arrivals": len(found)}, partner=reading)
        _in_its_body(rings, ring, step, *mine[0])


def _in_its_body(rings: Rings, ring: Ring, step: Step, i: int, s: Sync) -> None:
    """A step is given back in its body, behind its wait and its reads."""
    late = i > step.position
    rings.at = s
    if s.object is None or s.object.version != sym(step.counter) - (1 if late else 0):
        raise Refused("J3", f"{ring.empty.name}: not every step is given back once", {}, partner=rings.filling(ring))
    if late:
        rings.moved(step.body[step.position + 1 : i], step)
    elif not any(at_barrier(x, "mbar.wait", ring.full.name) for x in step.body[:i]):
        reason = f"a step of {ring.full.name} is given back before it is waited for"
        raise Refused("J3", reason, {}, partner=rings.using("mbar.wait", ring.full.name))
    for x, _ in flat(step.before[i:], everything=True):
        if any(ref.name in ring.buffers for ref, _ in accesses(x)):
            rings.at = x
            reason = f"the slot is read after it was given back to {ring.full.name}"
            raise Refused("J2", reason, {}, partner=s)


class _Behind:
    """A step of one place that is given back one step late."""

    def __init__(self, rings: Rings, role: Role, ring: Ring, step: Step) -> None:
        self.rings, self.ring, self.step = rings, ring, step
        self.lets = lets_of(role)
        self.wrong = Refused("J3", f"{ring.empty.name}: not every step is given back once", {})

    def check(self, found: Sequence[Found]) -> None:
        """*Errors*: refused, J3."""
        step = self.step
        loop = step.path[-1] if step.path else None
        inner = next((x for x in found if x[0] and isinstance(x[0][-1], If) and _equal(x[0][:-1], step.path)), None)
        outer = next((x for x in found if x is not inner), None)
        if inner is None or outer is None or not isinstance(loop, Loop):
            raise self.wrong
        lo, hi = (e.substitute(self.lets) for e in (loop.lo, loop.hi))
        self._inside(inner, loop, lo, hi)
        self._behind(outer, loop, lo, hi)

    def _inside(self, found: Found, loop: Loop, lo: Expr, hi: Expr) -> None:
        """In every iteration but the first."""
        guard, step, at = found[0][-1], self.step, found[3].object
        assert isinstance(guard, If) and at is not None
        early = any(s is guard for s in step.before)
        late = any(s is guard for s in step.after)
        if not (early or late) or at.version != sym(step.counter) - (1 if early else 2):
            raise self.wrong
        if found[1] is not guard.then or guard.cond is not None or guard.last is not None:
            raise self.wrong
        v, facts = sym(loop.var), self.rings.facts
        conds = self._told(guard)
        self.rings.at = guard
        later = facts.also(ge(v, lo), lt(v, hi), gt(v, lo))
        first = facts.also(lt(lo, hi), *(c.substitute({loop.var: lo}) for c in conds))
        if not all(later.implies(c) for c in conds) or not first.contradictory:
            reason = f"{self.ring.empty.name}: given back in the first iteration, or not in a later one"
            raise Refused("J3", reason, {})

    def _behind(self, found: Found, loop: Loop, lo: Expr, hi: Expr) -> None:
        """Behind the loop, exactly where it has iterations."""
        path, body, position, s = found
        known = self._known(self.step.path)
        conds: list[Constraint] = []
        if path and isinstance(path[-1], If) and _equal(path[:-1], self.step.path[:-1]):
            guard = path[-1]
            if body is not guard.then or guard.cond is not None or guard.last is not None:
                raise self.wrong
            conds = self._told(guard)
            if any(e.functions for e in (lo, hi, *(c.expr for c in conds))):  # what they hold may be another thing now
                raise self.wrong
            body, path = self._outside(), path[:-1]
            position = next((i for i, x in enumerate(body) if x is guard), 0)
        behind = any(x is loop for x in body[:position])
        if not _equal(path, self.step.path[:-1]) or not behind:
            raise self.wrong
        if s.object is None or s.object.version != sym(self.step.counter) - 1:
            raise self.wrong
        some = lt(lo, hi)
        given = known.also(*conds)
        if not given.implies(some):
            case = given.against(some)
            reason = f"{self.ring.empty.name}: a loop without iterations gives a step back"
            raise Refused("J3", reason, case or {}, at=s, partner=loop)
        if not all(known.also(some).implies(c) for c in conds):
            raise self.wrong

    def _outside(self) -> Body:
        """The body in which the loop stands."""
        loop = self.step.path[-1]
        if len(self.step.path) == 1:
            return next(r.body for r in self.rings.kernel.roles if any(x is loop for x in r.body))
        outer = self.step.path[-2]
        ways = (outer.then, outer.orelse) if isinstance(outer, If) else (getattr(outer, "body", []),)
        return next(b for b in ways if any(x is loop for x in b))

    def _told(self, guard: If) -> list[Constraint]:
        return [c.substitute(self.lets) for c in guard.conds]

    def _known(self, path: Sequence[Control]) -> Facts:
        """What holds around the loop."""
        facts = self.rings.facts
        for control, inside in zip(path, path[1:], strict=False):
            facts = facts.also(*(c for c in ranged(control, self.lets) if not c.expr.functions))
            if isinstance(control, If) and any(x is inside for x in control.then):
                facts = facts.also(*(c for c in self._told(control) if not c.expr.functions))
        return facts


def _equal(path: Iterable[object], other: Iterable[object]) -> bool:
    """Whether these are the same controls."""
    a, b = tuple(path), tuple(other)
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))
