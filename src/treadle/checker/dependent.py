"""Dependent launches: one that may begin while the launch before it runs touches no memory until that one is over.

`grid.wait` ends when the launch before is complete and its memory visible. As each launch in a chain of dependent ones
waits so itself before it is complete, what is behind a wait sees all launches before it, as behind an ordinary launch.
`grid.release` lets the next launch begin; what it may do before its own wait needs no more than its registers and the
barriers in its shared memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from treadle.algebra.expr import Expr
from treadle.algebra.sets import Facts
from treadle.checker.pairs import conflicts, encounter, reach
from treadle.checker.verdict import Refused, Unsure
from treadle.hardware.targets import Target
from treadle.machine.form import Body, Control, If, Kernel, Launch, Let, Role, Stmt, Sync, walk

WAIT = "grid.wait"
_BEFORE = (
    *("mbar.init", "fence.mbar_init", "fence.proxy.async", "barrier.sync", "setmaxnreg", "grid.release"),
    *("cluster.arrive", "cluster.wait"),
)
"""What touches no memory but barriers of the workgroup and its cluster."""


class Dependent:
    """`at`: the statement at hand, for findings."""

    def __init__(self, target: Target, facts: Facts, lets: Mapping[str, Expr]) -> None:
        self.target, self.facts, self.lets = target, facts, lets
        self.at: Stmt | Control | None = None

    def check(self, launch: Launch, kernel: Kernel, before: Kernel | None) -> None:
        """`before`: what is launched before it.

        *Errors*: refused, J2, where a dependent launch touches an element before it waits, or without that, which the
        launch before stores, or stores one that it touches; unsure where it does something else before, or does not
        wait.
        """
        if not launch.dependent:
            return
        if not self.target.dependent_launches:
            raise Refused("J7", f"{kernel.name} is a dependent launch, which {self.target.name} has not", {})
        if launch.cooperative:
            raise Unsure("J5", f"{kernel.name} is dependent and cooperative", missing="a rule for both")
        for role in kernel.roles:
            place = next((i for i, s in enumerate(role.body) if isinstance(s, Sync) and s.kind == WAIT), None)
            reason = f"{role.name} waits for the launch before when it has touched what that one may be storing"
            if place is None:
                reason = f"{role.name} does not wait for the launch before, which may still run"
            self._races(kernel, role, _unordered(kernel, role.body[:place]), before, reason)
            if place is None:
                self.at = role.body[0] if role.body else None
                raise Unsure("J2", reason, missing=f"{WAIT} at the top of its body")
            self._early(role.body[:place])

    def _races(self, kernel: Kernel, role: Role, body: Body, before: Kernel | None, reason: str) -> None:
        """*Errors*: refused where a body and the launch before touch one element that one of them stores to."""
        own = frozenset(b.name for k in (before, kernel) if k is not None for b in (*k.buffers, *k.barriers))
        for other in () if before is None else before.roles:
            for mine, yours in conflicts(body, [other.body], own):
                reached = reach(kernel, role, mine, self.lets), reach(before or kernel, other, yours, self.lets)
                case = encounter(*reached, self.facts)
                if case is not None:
                    raise Refused("J2", reason, case, at=mine[0], partner=yours[0])

    def _early(self, body: Body) -> None:
        for stmt in walk(body):
            if isinstance(stmt, Let | If) or (isinstance(stmt, Sync) and stmt.kind in _BEFORE):
                continue
            self.at = stmt
            raise Unsure("J2", "work before the launch before is over", missing=f"{WAIT} in front of it")


def _unordered(kernel: Kernel, body: Body) -> Body:
    """What of a body nothing of its kernel orders behind the launch before: a wait of another role, or inside a
    control, may do so by whatever the body waits for."""
    if not any(isinstance(s, Sync) and s.kind == WAIT for role in kernel.roles for s in walk(role.body)):
        return body
    return body[: next((i for i, s in enumerate(body) if any(isinstance(x, Sync) for x in walk([s]))), None)]
