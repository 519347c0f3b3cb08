"""Which fragments land at which wait.

Warpgroup contractions run on after their statement. A wait for all but the newest `depth` groups makes the fragments of
the older ones readable; there the text needs pins (`landed`), or the compiler would move arithmetic on them above the
wait. A pin on a fragment that is still in flight would serialise everything, so both sides are computed: a walk over
the body with the possible queues of committed groups.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from treadle.machine.form import Body, FragRef, If, Loop, Mma, Sync, Tasks, walk

Group = frozenset[str]
Queue = tuple[Group, ...]
MOST = 8
"""Groups remembered; older ones have long been waited for in every program that makes sense."""


@dataclass
class _Walk:
    landing: dict[int, set[str]] = field(default_factory=dict[int, "set[str]"])
    flying: dict[int, set[str]] = field(default_factory=dict[int, "set[str]"])

    def body(self, body: Body, states: frozenset[tuple[Queue, Group]]) -> frozenset[tuple[Queue, Group]]:
        for item in body:
            if isinstance(item, Tasks | Loop):
                states = self.repeated(item, states)
            elif isinstance(item, If):
                states = self.body(item.then, states) | self.body(item.orelse, states)
            elif isinstance(item, Mma) and item.atom.startswith("wgmma"):
                used = {item.dst, item.a.name} if isinstance(item.a, FragRef) else {item.dst}
                states = frozenset((queue, open_ | used) for queue, open_ in states)
            elif isinstance(item, Sync):
                states = frozenset(self.sync(item, *state) for state in states)
        return states

    def repeated(self, item: Tasks | Loop, states: frozenset[tuple[Queue, Group]]) -> frozenset[tuple[Queue, Group]]:
        """Until no new state comes to the head: queues are bounded, so it ends."""
        while True:
            after = states | self.body(item.body, states)
            if after == states:
                return states
            states = after

    def sync(self, item: Sync, queue: Queue, open_: Group) -> tuple[Queue, Group]:
        if item.kind == "wgmma.commit":
            return (*queue, open_)[-MOST:], frozenset()
        if item.kind != "wgmma.wait":
            return queue, open_
        depth = next((e.constant for n, e in item.args if n == "depth"), 0) or 0
        done, left = (queue[:-depth], queue[-depth:]) if depth else (queue, ())
        self.landing.setdefault(id(item), set()).update(*done)
        self.flying.setdefault(id(item), set()).update(*left)
        return left, open_


def landings(body: Body) -> dict[int, tuple[str, ...]]:
    """`id` of each wgmma.wait -> the fragments that are readable after it and were in flight before."""
    walk = _Walk()
    walk.body(body, frozenset({((), frozenset())}))
    return {key: tuple(sorted(names - walk.flying[key])) for key, names in walk.landing.items()}


def ready_for_turns(body: Body) -> dict[int, tuple[str, ...]]:
    """`id` of each wait for a turn -> what the contractions issued in that turn read in registers.

    The compiler may move arithmetic below a barrier. There it would be done while the tensor cores wait for this agent
    and the other one waits for its turn.
    """
    found: dict[int, tuple[str, ...]] = {}
    for number, item in enumerate(body):
        if isinstance(item, Tasks | Loop):
            found |= ready_for_turns(item.body)
        elif isinstance(item, Sync) and item.kind == "barrier.sync" and "turn" in item.tags:
            found[id(item)] = _read_in_registers(body[number + 1 :])
    return found


def _read_in_registers(body: Body) -> tuple[str, ...]:
    """Fragments that contractions read or add to, up to their commit."""
    names: list[str] = []
    fresh: set[str] = set()
    for stmt in walk(body):
        if isinstance(stmt, Sync) and stmt.kind == "wgmma.commit":
            break
        if isinstance(stmt, Mma):
            fresh |= {stmt.dst} if stmt.acc is None else set()
            refs = [r.name for r in (stmt.acc, stmt.a) if isinstance(r, FragRef)]
            names += [n for n in refs if n not in names and n not in fresh]
    return tuple(names)
