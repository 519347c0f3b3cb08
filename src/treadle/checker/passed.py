"""J2 of memory of a cluster that several roles touch: one stores to it, others load, meetings of the cluster between.

The shape that is proved. All roles meet the cluster equally often, in the same places (`rings`). The roles that touch
such memory do so in their step, the body of the innermost control around their meetings but the first and the last
one, which is the same step for all. Its meetings cut the step into parts; what stands behind the last of them and
what stands before the first one of the next step is in no order. So an access and a store of different roles are in
different parts, the last one being the first. Loads stand in a later part than all stores of their step: they find
what this step stored, all workgroups' parts of it, each for its number (`peers`).

Accesses of one role to it are judged role by role (`peers`, `between`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from treadle.checker.clusters import FAREWELL, LANDED
from treadle.checker.gpu import accesses
from treadle.checker.steps import bodies, kind
from treadle.checker.verdict import Refused, Unsure
from treadle.machine.form import Body, Control, Kernel, Load, Role, Stmt, Store, Sync, walk


@dataclass
class Step:
    """A role's step: the controls around it, its body, the positions of its meetings' waits."""

    path: tuple[Control, ...]
    body: Body
    meetings: list[int]


@dataclass
class Passed:
    """The rules of one kernel; `names` is the memory of its cluster. `at`: the statement in question for findings."""

    kernel: Kernel
    names: frozenset[str]
    at: object = None
    writer: dict[str, str] = field(default_factory=dict[str, str])  # buffer -> role
    readers: dict[str, set[str]] = field(default_factory=dict[str, "set[str]"])
    publishes: dict[int, list[str]] = field(default_factory=dict[int, "list[str]"])  # id of a wait -> buffers
    steps: dict[str, Step] = field(default_factory=dict[str, Step])

    @property
    def buffers(self) -> frozenset[str]:
        """Memory that more than one role touches."""
        return frozenset(self.writer)

    def check(self) -> None:
        """*Errors*: findings of J2."""
        for name in sorted(self.names):
            users = [r for r in self.kernel.roles if any(self._touch(s, name) for s in walk(r.body))]
            if len(users) > 1:
                self._buffer(name, users)
        self.at = None

    def _touch(self, s: object, name: str) -> bool:
        return isinstance(s, Stmt) and any(ref.name == name for ref, _ in accesses(s))

    def _buffer(self, name: str, users: Sequence[Role]) -> None:
        found: list[tuple[Role, int, Stmt, bool]] = []
        sent = [s for r in users for s in walk(r.body) if isinstance(s, Sync) and s.kind == LANDED and name in s.tags]
        if sent:
            self.at = sent[0]
            raise Unsure("J2", f"{name}, into which others send, is touched by several roles", missing="one role")
        for role in users:
            step = self.steps.setdefault(role.name, self._step(role))
            inside: dict[int, int] = {}
            for position, item in enumerate(step.body):
                part = sum(at < position for at in step.meetings)
                inside |= {id(s): part for s in walk([item])}
            for s in walk(role.body):
                if isinstance(s, Stmt) and self._touch(s, name):
                    self.at = s
                    plain = isinstance(s, Load) or (isinstance(s, Store) and s.effect == "set")
                    if id(s) not in inside or not plain:
                        raise Unsure("J2", f"{name} is touched by several roles", missing="loads and stores in a step")
                    found.append((role, inside[id(s)], s, isinstance(s, Store)))
        writers = {role.name for role, _, _, writes in found if writes}
        self.at = next((s for _, _, s, writes in found if writes), found[0][2])
        if len(writers) != 1 or any(role.agents != 1 for role, _, _, writes in found if writes):
            raise Unsure(
                "J2", f"{name} is stored to by {len(writers)} roles", missing="one role of one agent that does"
            )
        self._apart(name, found)
        (owner,) = writers
        last = max(part for _, part, _, writes in found if writes)
        step = self.steps[owner]
        self.publishes.setdefault(id(step.body[step.meetings[last]]), []).append(name)
        self.writer[name] = owner
        self.readers[name] = {role.name for role, _, _, writes in found if not writes} - {owner}

    def _apart(self, name: str, found: Sequence[tuple[Role, int, Stmt, bool]]) -> None:
        """What one role stores and another one loads are in different parts, the loads behind all stores."""
        for role, part, stmt, writes in found:
            for other, there, load, stores in found:
                if not writes or stores or role is other:
                    continue
                count = len(self.steps[role.name].meetings)
                self.at = load
                if part % count == there % count:
                    reason = f"{name} is loaded, and the cluster has not met since {role.name} stored to it, or before"
                    raise Refused("J2", reason, {}, partner=stmt)
                if there < part:
                    missing = "loads behind the stores of their step"
                    raise Unsure("J2", f"{name} is loaded before it is stored in a step", missing=missing)

    def _step(self, role: Role) -> Step:
        """The one body inside the role's controls in which it meets the cluster."""
        found = [
            (path, body, [i for i, s in enumerate(body) if kind(s) == FAREWELL[1]])
            for path, body in bodies(role.body, ())
            if path and any(kind(s) == FAREWELL[1] for s in body)
        ]
        if len(found) != 1:
            self.at = role.body[0] if role.body else None
            missing = "one step with all meetings"
            raise Unsure("J2", f"{role.name} meets the cluster in {len(found)} bodies inside its work", missing=missing)
        return Step(*found[0])

    def taken_by(self, role: str, body: Body) -> list[str]:
        """The buffers that a role finds filled in this body: in its step."""
        step = self.steps.get(role)
        if step is None or step.body is not body:
            return []
        return [n for n, roles in self.readers.items() if role in roles]
