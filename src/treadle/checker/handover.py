"""J2, J3 and J5 of named barriers between roles: one role fills shared memory, others read it, some only arrive.

Every role goes through the same controls and conditions (`alike`) and executes each barrier once in a step (the body
of the innermost control), so that the n-th use of a barrier is the same one for all. A barrier may be used once more
before the steps by those who are a use ahead (an arrival that says that the memory is free), then once more behind
them by the others.

What happens before what is a search in a small graph: statements of a step, joined by program order and by barriers
(all that a participant did before its use of a barrier is before what a waiting one does after it). A path counts
between threads only if it passes a barrier, and only over steps that exist: those from the first statement's to the
second's. Asked is

* each store of a step before each load of it, each load before the next step's store, each store before the next one:
  nothing races, and a load finds what its own step stored;
* every use of a barrier by one participant before the next use by an arriving one: no phase is taken for another;
* no way around the graph that stays in a step: nobody waits for what comes after.

Beside rings: `_beside_rings`, where several roles take part in both with `handover_rings`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from treadle.checker.alike import Alike, tree
from treadle.checker.gpu import accesses, handed, own_base
from treadle.checker.handover_rings import BesideRings, Waits, joins_rings
from treadle.checker.rings import Rings
from treadle.checker.steps import bodies
from treadle.checker.verdict import Finding, Refused, Unsure
from treadle.machine.form import Body, Control, Kernel, Load, Role, Stmt, Store, Sync, walk

Node = tuple[str, int]  # role, position in its step
AROUND = -1000
"""Stands for the meetings of the cluster between steps."""
State = tuple[Node, int, bool]  # a statement, so many steps on, and whether a barrier was passed


@dataclass
class Part:
    """A role's part: its step, the barriers that it uses there, those that it used once before it or will behind."""

    role: Role
    path: tuple[Control, ...]
    body: Body
    uses: dict[int, int] = field(default_factory=dict[int, int])  # barrier -> position
    waits: set[int] = field(default_factory=set[int])
    before: set[int] = field(default_factory=set[int])
    behind: set[int] = field(default_factory=set[int])
    around: bool = False  # whether the cluster meets between some steps

    @property
    def own(self) -> set[int]:
        """Positions of barriers that join all threads of the one agent."""
        found: set[int] = set()
        for i, s in enumerate(self.body):
            if isinstance(s, Sync) and s.kind == "barrier.sync" and self.role.agents == 1:
                args = dict(s.args)
                if args["threads"].constant == self.role.threads and own_base(args["id"], self.role) is not None:
                    found.add(i)
        return found


@dataclass
class Handover:
    """The hand-overs of one kernel. `at` is the statement in question when a finding is raised."""

    kernel: Kernel
    rings: Rings
    far: frozenset[str] = frozenset()  # memory of the whole cluster (`passed`)
    at: Stmt | Control | None = None
    parts: dict[str, Part] = field(default_factory=dict[str, Part])
    writer: dict[str, str] = field(default_factory=dict[str, str])  # buffer -> role
    readers: dict[str, set[str]] = field(default_factory=dict[str, "set[str]"])
    publishes: dict[int, list[str]] = field(default_factory=dict[int, "list[str]"])  # id of a use -> buffers

    @property
    def buffers(self) -> frozenset[str]:
        """Memory that is handed over."""
        return frozenset(self.writer)

    def check(self) -> None:
        """*Errors*: findings of J2, J3 and J5."""
        self.barriers = handed(self.kernel)
        if not self.barriers:
            return
        for role in self.kernel.roles:
            self._part(role)
        self._meetings()
        self._counts()
        parts = list(self.parts.values())
        for a, b in zip(parts, parts[1:]):
            self.at = b.body[min(b.uses.values())]
            Alike(a.role, b.role, self.rings.facts).check(*(tree(p.role.body, (), set(), p.body) for p in (a, b)))
        self._progress()
        self._beside_rings()
        self._phases()
        self._memory()
        self.at = None

    def _beside_rings(self) -> None:
        """Where at most one role has to do with rings and hands over: were all blocked for ever, it would be blocked at
        one of both: then the roles of that protocol, none of which waits for the other one, would be blocked in a
        program without the other, in which it was seen that they go on. Else all waits are put into one graph."""
        both = [r.name for r in self.kernel.roles if r.name in self.parts and joins_rings(r)]
        if len(both) < 2:
            return
        beside = BesideRings(self.kernel, self.rings, {name: p.path for name, p in self.parts.items()})
        waits = Waits()
        try:
            beside.links(waits)
        except Finding:
            self.at = beside.at if isinstance(beside.at, Stmt | Control) else None
            raise
        for p in self.parts.values():
            for number, at in p.uses.items():
                come, _ = waits.at(p.role.name, at)
                for q in self.parts.values():
                    if number in q.uses and number in q.waits:
                        shift = self._ahead(p, number) - self._ahead(q, number)
                        waits.link(come, waits.at(q.role.name, q.uses[number])[1], shift)
        stuck = waits.stuck()
        if stuck is not None:
            self.at = beside.steps[stuck[0]][stuck[1]]
            reason = f"{stuck[0]} may wait for what comes after, at a ring or a hand-over"
            raise Unsure("J5", reason, missing="rings and hand-overs in one order")

    # ---- who takes part

    def _part(self, role: Role) -> None:
        found = [
            (path, body, i, s)
            for path, body in bodies(role.body, ())
            for i, s in enumerate(body)
            if isinstance(s, Sync)
            and s.kind in ("barrier.sync", "barrier.arrive")
            and dict(s.args)["id"].constant in self.barriers
        ]
        inside = [x for x in found if x[0]]
        if not found:
            return
        if not inside:
            self.at = found[0][3]
            raise Unsure("J5", f"{role.name} hands over outside its tasks", missing="a step in its tasks")
        path, body = inside[0][0], inside[0][1]
        part = self.parts[role.name] = Part(role, path, body)
        outer = next(i for i, s in enumerate(role.body) if s is path[0])
        for where, own, i, s in found:
            self.at = s
            number = dict(s.args)["id"].constant or 0
            if s.by:
                raise Refused("J5", f"{s.kind} by {s.by!r}", {})
            if not where:
                (part.before if i < outer else part.behind).add(number)
                if s.kind != ("barrier.arrive" if i < outer else "barrier.sync"):
                    raise Unsure("J3", f"{s.kind} beside the steps", missing="an arrival before them, a wait behind")
                if sum(1 for w, _, _, t in found if not w and dict(t.args)["id"].constant == number) > 1:
                    raise Refused("J3", f"{role.name} uses barrier {number} more than once beside its steps", {})
                continue
            if own is not body:
                raise Unsure("J3", f"{role.name} uses barriers in two bodies", missing="one step with all of them")
            if number in part.uses:
                raise Refused("J3", f"{role.name} uses barrier {number} twice in a step", {"id": number})
            part.uses[number] = i
            if s.kind == "barrier.sync":
                part.waits.add(number)
        early = {n for n in part.before if n in part.waits} | {n for n in part.behind if n not in part.waits}
        if early:
            raise Unsure(
                "J3", f"{role.name} arrives at barrier {min(early)} here and waits there", missing="one of both"
            )
        stray = next((n for n in part.before | part.behind if n not in part.uses), None)
        if stray is not None:
            raise Refused("J3", f"{role.name} uses barrier {stray} beside its steps only", {"id": stray})

    def _meetings(self) -> None:
        """Meetings of the cluster are barriers of all roles: those of a step, the first of each role, and so on; those
        around the steps are taken for ones at the end of every step, where only that somebody waits is asked."""
        within = {r.name: list(_within(r)) for r in self.kernel.roles}
        if not any(within.values()):
            return
        self.at = next(s for found in within.values() for s in found)
        if self.rings.rings or len(self.parts) < len(self.kernel.roles):
            missing = "roles that all hand over, without rings"
            raise Unsure("J5", "roles that hand over meet the cluster within their work", missing=missing)
        for part in self.parts.values():
            mine = [i for i, s in enumerate(part.body) if _meets(s)]
            controls = (item for item in part.body if isinstance(item, Control))
            inner = next((s for item in controls for s in walk([item]) if _meets(s)), None)
            if inner is not None:
                self.at = inner
                raise Unsure("J5", "the cluster meets inside a step's controls", missing="meetings of whole steps")
            part.uses |= {-1 - k: i for k, i in enumerate(mine)}
            part.waits |= {-1 - k for k in range(len(mine))}
            part.around = len(within[part.role.name]) > len(mine)

    def _counts(self) -> None:
        """Each barrier counts its participants' threads; all have the same number of uses; somebody waits."""
        for number in self.barriers:
            users = [p for p in self.parts.values() if number in p.uses]
            total = sum(p.role.agents * p.role.threads for p in users)
            for part in self.parts.values():
                for s in walk(part.role.body):
                    if isinstance(s, Sync) and s.kind.startswith("barrier."):
                        args = dict(s.args)
                        if args["id"].constant == number and args["threads"].constant != total:
                            self.at = s
                            reason = f"barrier {number} counts {args['threads']} threads, {total} come"
                            others = (p.body[p.uses[number]] for p in users if p is not part)
                            raise Refused("J3", reason, {"come": total}, partner=next(others, None))
            self.at = users[0].body[users[0].uses[number]]
            if not any(number in p.waits for p in users):
                raise Refused("J5", f"nobody waits at barrier {number}", {"id": number})
            extra = [(number in p.before) + (number in p.behind) for p in users]
            if any(n != extra[0] for n in extra) or extra[0] > 1 or len(users) < 2:
                raise Refused("J3", f"barrier {number} is not used as often by each of its roles", {"id": number})

    # ---- what is before what

    def _ahead(self, part: Part, number: int) -> int:
        """How many uses a participant's step is ahead of the number of the step."""
        return 1 if number in part.before else 0

    def _next(self, state: State) -> Iterator[State]:
        (role, position), step, passed = state
        part = self.parts[role]
        passes = position in part.own
        for later in range(position + 1, len(part.body)):
            yield (role, later), step, passed or passes
        for again in range(position + 1):
            yield (role, again), step + 1, passed or passes
        for number, at in part.uses.items():
            if at != position:
                continue
            for other in self.parts.values():
                if number in other.uses and number in other.waits:
                    shift = self._ahead(part, number) - self._ahead(other, number)
                    yield (other.role.name, other.uses[number]), step + shift, True

    def before(self, a: Node, b: Node, distance: int) -> bool:
        """Whether `a` of a step is before `b` of the step that is `distance` later, for all their threads."""
        first: State = (a, 0, False)
        seen: set[State] = {first}
        stack: list[State] = [first]
        while stack:
            for state in self._next(stack.pop()):
                if not 0 <= state[1] <= distance or state in seen:
                    continue
                if state == (b, distance, True):
                    return True
                seen.add(state)
                stack.append(state)
        return False

    def _progress(self) -> None:
        """No cycle within a step, or back: an arrival has its role's earlier waits before it, a wait the arrivals of
        all participants."""
        uses = [(p, n, at) for p in self.parts.values() for n, at in p.uses.items()]
        uses += [(p, AROUND, len(p.body)) for p in self.parts.values() if p.around]
        nodes = [(p.role.name, at, end) for p, _, at in uses for end in ("come", "gone")]
        far = 1 << 20
        least = {(a, b): far for a in nodes for b in nodes}
        for p, number, at in uses:
            for q, other, there in uses:
                if p is q:  # an arrival that does not wait is gone when it has come
                    least[(p.role.name, at, "gone"), (q.role.name, there, "come")] = 0 if there > at else 1
                if number == other and (p is q or number in q.waits or number == AROUND):
                    shift = self._ahead(p, number) - self._ahead(q, number)
                    least[(p.role.name, at, "come"), (q.role.name, there, "gone")] = shift
        for k in nodes:
            for a in nodes:
                for b in nodes:
                    least[a, b] = min(least[a, b], least[a, k] + least[k, b])
        stuck = next((a for a in nodes if least[a, a] <= 0), None)
        if stuck is not None:
            part = self.parts[stuck[0]]
            self.at = part.body[min(stuck[1], len(part.body) - 1)]
            raise Refused("J5", f"{stuck[0]} waits for what comes after", {})

    def _phases(self) -> None:
        """Nobody arrives for the next use before all have come to this one."""
        for number in self.barriers:
            users = [p for p in self.parts.values() if number in p.uses]
            for part in users:
                if number in part.waits:
                    continue
                mine = (part.role.name, part.uses[number])
                self.at = part.body[part.uses[number]]
                for other in users:
                    if other is part:
                        if part.role.agents > 1 and not self.before(mine, mine, 1):
                            raise Refused("J3", f"{part.role.name} may arrive at barrier {number} again too early", {})
                        continue
                    theirs = (other.role.name, other.uses[number])
                    distance = 1 + self._ahead(other, number) - self._ahead(part, number)
                    if not self.before(theirs, mine, distance):
                        reason = f"{part.role.name} may arrive at barrier {number} twice before {other.role.name}"
                        raise Refused("J3", reason, {}, partner=other.body[other.uses[number]])

    # ---- memory

    def _touches(self) -> dict[str, list[tuple[Part, int, Stmt, bool]]]:
        """Accesses of steps to shared buffers that more than one role touches."""
        shared = {b.name for b in self.kernel.buffers if b.place == "shared" and not b.versions} - self.far
        found: dict[str, list[tuple[Part, int, Stmt, bool]]] = {}
        users: dict[str, set[str]] = {}
        for role in self.kernel.roles:
            for s in walk(role.body):
                if isinstance(s, Stmt):
                    for ref, _ in accesses(s):
                        users.setdefault(ref.name, set()).add(role.name)
        many = {n for n, roles in users.items() if n in shared and len(roles) > 1}
        for role in self.kernel.roles:
            part = self.parts.get(role.name)
            inside: set[int] = set()
            for i, item in enumerate(part.body if part is not None else []):
                for s in walk([item]):
                    inside.add(id(s))
                    if part is not None and isinstance(s, Stmt):
                        for ref, writes in accesses(s):
                            if ref.name in many:
                                found.setdefault(ref.name, []).append((part, i, s, writes))
            for s in walk(role.body):
                if isinstance(s, Stmt) and id(s) not in inside and any(r.name in many for r, _ in accesses(s)):
                    self.at = s
                    raise Refused("J2", f"{role.name} touches memory that is handed over outside its step", {})
        return found

    def _memory(self) -> None:
        for name, touches in self._touches().items():
            writers = {p.role.name for p, _, _, writes in touches if writes}
            if len(writers) != 1:
                self.at = touches[0][2]
                raise Unsure("J2", f"{name} is written by {len(writers)} roles", missing="one role that fills it")
            for part, i, s, writes in touches:
                self.at = s
                near = isinstance(s, Load | Store) and all(r.rank is None for r, _ in accesses(s) if r.name == name)
                if not near or (writes and part.role.agents != 1):
                    raise Unsure("J2", f"{name} is handed over", missing="loads, and stores of one agent")
                for other, j, there, other_writes in touches:
                    if not writes:
                        continue
                    mine, theirs = (part.role.name, i), (other.role.name, j)
                    if not other_writes and not self.before(mine, theirs, 0):
                        reason = f"{name} is not stored before {other.role.name} loads it"
                        raise Refused("J2", reason, {}, partner=there)
                    if not self.before(theirs, mine, 1):
                        reason = f"{name} is stored again before {other.role.name} is done with it"
                        raise Refused("J2", reason, {}, partner=there)
            owner = writers.pop()
            part = self.parts[owner]
            last = max(i for p, i, _, writes in touches if writes and p is part)
            told = min((i for i in part.uses.values() if i > last), default=None)
            if told is None:
                raise Refused("J2", f"{name} is handed over to nobody", {})
            self.publishes.setdefault(id(part.body[told]), []).append(name)
            self.writer[name] = owner
            self.readers[name] = {p.role.name for p, _, _, writes in touches if not writes}

    def taken_by(self, role: str, body: Body) -> list[str]:
        """The buffers that a role finds filled in this body: in its step."""
        part = self.parts.get(role)
        if part is None or part.body is not body:
            return []
        return [n for n, roles in self.readers.items() if role in roles and self.writer[n] != role]


def _meets(s: object) -> bool:
    """Whether the cluster meets here: at the arrival, behind which its wait stands (`clusters`)."""
    return isinstance(s, Sync) and s.kind == "cluster.arrive"


def _within(role: Role) -> Iterator[Stmt | Control]:
    """Meetings of the cluster inside the controls of a role."""
    for path, body in bodies(role.body, ()):
        yield from (s for s in body if path and _meets(s))
