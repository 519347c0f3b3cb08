"""Dependent launches: one that may begin while the launch before it runs touches no memory until that one is over.

`grid.wait` ends when the launch before is complete and its memory visible. As each launch in a chain of dependent ones
waits so itself before it is complete, what is behind a wait sees all launches before it, as behind an ordinary launch.
`grid.release` lets the next launch begin; what it may do before its own wait needs no more than its registers and the
barriers in its shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.checker.pairs import conflict
from treadle.checker.verdict import Refused, Unsure
from treadle.hardware.targets import Target
from treadle.machine.form import Body, Control, If, Kernel, Launch, Let, Stmt, Sync, walk

WAIT = "grid.wait"
_BEFORE = (
    *("mbar.init", "fence.mbar_init", "fence.proxy.async", "barrier.sync", "setmaxnreg", "grid.release"),
    *("cluster.arrive", "cluster.wait"),
)
"""What touches no memory but barriers of the workgroup and its cluster."""


class Dependent:
    """`at`: the statement at hand, for findings."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.at: Stmt | Control | None = None

    def check(self, launch: Launch, kernel: Kernel, before: Sequence[Kernel]) -> None:
        """`before`: what is launched before it.

        *Errors*: refused, J2, where a dependent launch does not wait, or touches first what a launch before stores;
        unsure where it does something else before.
        """
        if not launch.dependent:
            return
        if not self.target.dependent_launches:
            raise Refused("J7", f"{kernel.name} is a dependent launch, which {self.target.name} has not", {})
        if launch.cooperative:
            raise Unsure("J5", f"{kernel.name} is dependent and cooperative", missing="a rule for both")
        launched = [role.body for other in before for role in other.roles]
        own = frozenset(b.name for k in (*before, kernel) for b in (*k.buffers, *k.barriers))
        for role in kernel.roles:
            place = next((i for i, s in enumerate(role.body) if isinstance(s, Sync) and s.kind == WAIT), None)
            if place is None:
                self.at = role.body[0] if role.body else None
                mine, yours = conflict(role.body, launched, own) or (None, None)
                reason = f"{role.name} does not wait for the launch before, which may still run"
                raise Refused("J2", reason, {}, at=mine and mine[0], partner=yours and yours[0])
            early = conflict(role.body[:place], launched, own)
            if early is not None:
                reason = f"{role.name} waits for the launch before when it has touched what that one may be storing"
                raise Refused("J2", reason, {}, at=early[0][0], partner=early[1][0])
            self._early(role.body[:place])

    def _early(self, body: Body) -> None:
        for stmt in walk(body):
            if isinstance(stmt, Let | If) or (isinstance(stmt, Sync) and stmt.kind in _BEFORE):
                continue
            self.at = stmt
            raise Unsure("J2", "work before the launch before is over", missing=f"{WAIT} in front of it")
