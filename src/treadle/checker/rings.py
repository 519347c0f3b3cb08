"""J2, J3 and J5 of rings: buffers that a producer fills through a copy engine and consumers read and give back.

The shape that is proved. A ring has slots, a barrier `full` (one arrival that announces bytes, and the bytes) and a
barrier
`empty` (an arrival of every consumer's every warp). Step n of the producer waits for `empty` of turn n // slots - 1,
announces the bytes of its copies, copies, moves on. Step n of a consumer waits for `full`, reads, gives the slot
back once
all its reads are complete, moves on. Producer and consumers go through the same controls around a step, so their
n-th steps are the same step; the order in which a consumer first waits for rings is the order in which the producer
fills them, and it has given back step n - slots before it waits for step n: then no wait is for ever (the earliest
unfilled step is blocked by no consumer). Where roles meet their cluster between steps, they do it in the same places
among them: a meeting is then a step like others in that order, which all come to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from treadle.algebra.expr import Atom, Constraint, Expr, Fn, ge, gt, lt, sym
from treadle.algebra.sets import Facts
from treadle.checker.clusters import everyone
from treadle.checker.copied import ARRIVE, check_counted, copied_ring
from treadle.checker.gpu import BY_WORKGROUPS, accesses, handed
from treadle.checker.steps import Ring, Step, Tree, bodies, flat, is_meeting, kind, run_length, touches
from treadle.checker.verdict import Refused, Unsure
from treadle.machine.form import (
    Advance,
    Barrier,
    Body,
    Claim,
    Compute,
    Control,
    Copy,
    If,
    Kernel,
    Let,
    Load,
    Loop,
    Mma,
    Role,
    Stmt,
    Store,
    Sync,
    Tasks,
    walk,
)

FILLS = ("mbar.expect", ARRIVE)
"""What a producer says of a step: bytes to come, or an arrival of its copies."""


@dataclass
class Rings:
    """The protocols of one kernel. `at` is the statement in question when a finding is raised."""

    kernel: Kernel
    facts: Facts
    rings: dict[str, Ring] = field(default_factory=dict[str, Ring])  # by the name of `full`
    of_buffer: dict[str, Ring] = field(default_factory=dict[str, Ring])
    taken: dict[tuple[str, str], Step] = field(default_factory=dict[tuple[str, str], Step])  # (role, full)
    lets: tuple[dict[str, Expr], dict[str, Expr]] = field(default_factory=lambda: ({}, {}))  # of the two roles compared
    told: dict[int, dict[str, Claim]] = field(default_factory=dict[int, dict[str, Claim]])  # control -> by fragment
    at: Stmt | Control | None = None
    cluster: int = 1

    def check(self) -> None:
        """*Errors*: findings of J2, J3 and J5."""
        self.barriers = {b.name: b for b in self.kernel.barriers}
        self.handed = handed(self.kernel)
        self.declared = {b.name: b for b in self.kernel.buffers}
        producers = [r for r in self.kernel.roles if any(kind(s) in FILLS for s in walk(r.body))]
        if len(producers) > 1:
            raise Unsure("J3", "two roles fill rings", missing="one producer")
        for role in producers:
            self._fills(role)
        consumers = [r for r in self.kernel.roles if r not in producers]
        for role in consumers:
            self._takes(role)
        self._once(producers, consumers)
        for ring in self.rings.values():
            if ring.empty.count != ring.arrivals:
                raise Refused(
                    "J3",
                    f"{ring.empty.name} counts {ring.empty.count} arrivals, there are {ring.arrivals}",
                    {"count": ring.empty.count, "arrivals": ring.arrivals},
                )
            if ring.copied:
                check_counted(ring)
            elif ring.full.count != 1 or not ring.full.tx or ring.empty.tx:
                raise Refused(
                    "J3",
                    f"{ring.full.name} must count one arrival and bytes, {ring.empty.name} arrivals only",
                    {"count": ring.full.count},
                )
        threads = sum(r.agents * r.threads for r in self.kernel.roles)
        many = len(self.kernel.roles) > 1
        if (
            self.kernel.barriers
            or self.cluster > 1
            or (many and any(is_meeting(s, threads, self.handed) for r in self.kernel.roles for s in walk(r.body)))
        ):
            self._setup()
        if self.cluster > 1:
            for role, other in zip(self.kernel.roles, self.kernel.roles[1:], strict=False):
                self.lets = lets_of(role), lets_of(other)
                self.told = values_at(role) | values_at(other)
                self.same(self._tree(role.body, (), set()), self._tree(other.body, (), set()), {})
        for role in producers:
            for other in consumers:
                mine = {full for name, full in self.taken if name == other.name}
                self.lets = lets_of(role), lets_of(other)
                self.told = values_at(role) | values_at(other)
                self.same(self._tree(role.body, FILLS, mine), self._tree(other.body, ("mbar.wait",), mine), {})

    # ---- the producer

    def _fills(self, role: Role) -> None:
        steps = self.steps(role)
        if role.agents != 1:
            raise Refused("J3", f"{role.agents} agents fill each slot", {"agents": role.agents})
        for step in steps.values():
            number = sym(step.counter)
            events = [(s, c) for s, c in flat(step.before) if touches(s, step.counter)]
            if any(kind(s) == "cpasync.arrive" for s, _ in events):
                self._declare(copied_ring(self, role, step, events))
                continue
            expects = [s for s, _ in events if kind(s) == "mbar.expect"]
            waits = [s for s, _ in events if kind(s) == "mbar.wait"]
            copies = [(s, c) for s, c in events if isinstance(s, Copy)]
            if len(expects) != 1 or len(waits) != 1 or len(events) != 2 + len(copies):
                self.at = step.body[step.position]
                raise Refused("J3", f"a step of {step.counter} must wait once, announce once and copy", {})
            wait, expect = waits[0], expects[0]
            assert isinstance(wait, Sync) and isinstance(expect, Sync)
            order = [s for s, _ in events]
            self.at = expect
            if order[:2] != [wait, expect]:
                raise Refused(
                    "J3", f"a step of {step.counter} must wait for the slot and announce before it copies", {}
                )
            full, empty = (self.barrier(s, number) for s in (expect, wait))
            self.phase(wait, number, full.versions, 1)
            total: Expr = Expr(())
            for copy, times in copies:
                self.at = copy
                if (
                    copy.by != "elect"
                    or copy.signal is None
                    or copy.signal.name != full.name
                    or copy.signal.version != number
                ):
                    raise Refused("J3", f"a copy into {copy.dst.name} does not complete as {full.name} of its step", {})
                if copy.dst.version != number:
                    raise Refused("J2", f"a copy into another slot of {copy.dst.name} than its step's", {})
                if copy.multicast and copy.multicast != everyone(self.cluster):
                    raise Refused("J3", f"a slice of {copy.dst.name} does not come to every workgroup", {})
                total = total + self._bytes(copy) * times * (self.cluster if copy.multicast else 1)
            self.at = expect
            told = dict(expect.args)["bytes"]
            if not self.facts.equal(told, total):
                case = self.facts.sample() if total.constant is None else {"bytes": total.constant}
                raise Refused("J3", f"{full.name} announces {told} bytes, whole boxes are {total}", case or {})
            if wait.by != "elect" or expect.by != "elect":
                raise Refused("J5", "one thread waits, announces and copies", {})
            buffers = frozenset(c.dst.name for c, _ in copies)
            shared = any(c.multicast for c, _ in copies)
            self._declare(Ring(full, empty, full.versions, buffers, step, shared=shared))
        inside = {id(s) for t in steps.values() for s, _ in flat(t.before) if touches(s, t.counter)}
        for s in walk(role.body):
            if isinstance(s, Copy) or kind(s) in (*FILLS, "mbar.wait", "mbar.arrive"):
                if id(s) not in inside:
                    self.at = s
                    raise Refused("J3", "a copy, announcement or wait outside the steps of a ring", {})
            if isinstance(s, Stmt) and not isinstance(s, Copy):
                for ref, _ in accesses(s):
                    if ref.name in self.of_buffer:
                        self.at = s
                        raise Refused("J2", f"the producer touches {ref.name} other than by its copies", {})

    def _declare(self, ring: Ring) -> None:
        """The ring has barriers and buffers of its own, all with as many slots."""
        full, empty = ring.full, ring.empty
        for name in ring.buffers:
            if self.declared[name].versions != ring.slots or name in self.of_buffer:
                raise Refused(
                    "J3",
                    f"{name} has {self.declared[name].versions} slots, its barriers {ring.slots}",
                    {"slots": ring.slots},
                )
            self.of_buffer[name] = ring
        if empty.versions != ring.slots or full.name in self.rings or full.name == empty.name:
            raise Refused("J3", f"{full.name} and {empty.name} do not have the same slots", {"slots": ring.slots})
        self.rings[full.name] = ring

    def _bytes(self, copy: Copy) -> Expr:
        """What a copy counts when it is complete: boxes count whole, runs their elements (`engines` holds a run inside
        its box)."""
        dtype = self.declared[copy.dst.name].dtype
        if dtype.packed:
            return Expr(()) + prod(copy.box) // 2
        size: Expr = Expr(()) + dtype.itemsize
        along = [axis for axis, extent in enumerate(copy.box) if extent > 1] or [len(copy.box) - 1]
        for axis, extent in enumerate(copy.box):
            length = run_length(copy, axis) if copy.where and along == [axis] else Expr(()) + extent
            if length is None:
                raise Unsure("J3", f"how many bytes are copied where {copy.where[0]}", missing="one bound of its axis")
            size = size * length
        return size

    def steps(self, role: Role) -> dict[str, Step]:
        """Where the role's counters move on. *Errors*: refused, J3, if one moves on twice or under an `if`."""
        found: dict[str, Step] = {}
        for path, body in bodies(role.body, ()):
            for position, s in enumerate(body):
                if isinstance(s, Advance):
                    self.at = s
                    if s.counter in found:
                        raise Refused("J3", f"{s.counter} moves on in two places", {})
                    if any(isinstance(c, If) for c in path):
                        raise Unsure(
                            "J3", f"{s.counter} moves on under a condition", missing="a step in every iteration"
                        )
                    found[s.counter] = Step(s.counter, path, body, position)
        return found

    def barrier(self, s: Sync, number: Expr) -> Barrier:
        self.at = s
        if s.object is None or s.object.name not in self.barriers:
            raise Refused("J3", f"{s.kind} without a barrier", {})
        if s.object.version != number:
            raise Refused("J3", f"{s.kind} of another slot than the step's", {})
        return self.barriers[s.object.name]

    def phase(self, s: Sync, number: Expr, slots: int, ahead: int) -> None:
        """A wait is for the parity of its turn (the turn before, for a slot to be free)."""
        self.at = s
        have = dict(s.args)["phase"]
        want = (number // slots + ahead) % 2
        counting = self.facts.also(*(ge(sym(n), 0) for n in number.symbols))
        if not counting.equal(have, want):
            case = counting.sample()
            raise Refused("J3", f"waits for the phase {have}, its turn has {want}", case or {})

    # ---- consumers

    def _takes(self, role: Role) -> None:
        steps = self.steps(role)
        waits = [s for s in walk(role.body) if kind(s) == "mbar.wait"]
        for s in waits:
            self.at = s
            assert isinstance(s, Sync)
            ring = None if s.object is None else self.rings.get(s.object.name)
            if ring is None or s.object is None or s.object.version is None:
                raise Refused("J3", "a wait for a barrier that no producer fills", {})
            step = next((t for t in steps.values() if s.object.version == sym(t.counter)), None)
            if step is None or not any(x is s for x in step.before):
                raise Refused("J3", f"the wait for {ring.full.name} is not in its step", {})
            if s.by:
                raise Refused("J2", f"only some threads wait for {ring.full.name}, all of them read", {})
            if (role.name, ring.full.name) in self.taken or any(t is step for t in self.taken.values()):
                raise Refused("J3", f"{ring.full.name} is waited for twice in a step", {})
            self.phase(s, sym(step.counter), ring.slots, 0)
            self.taken[role.name, ring.full.name] = step
            self._reads(role, ring, step, s)
            self._releases(role, ring, step)
        for s in walk(role.body):
            self.at = s
            if isinstance(s, Copy) and s.signal is not None:
                raise Refused("J3", f"a copy signals {s.signal.name} outside the steps of a ring", {})
            if isinstance(s, Stmt):
                for ref, _ in accesses(s):
                    ring = self.of_buffer.get(ref.name)
                    if ring is not None and (role.name, ring.full.name) not in self.taken:
                        other = self._filling(ref.name)
                        raise Refused("J2", f"{ref.name} is touched and never waited for", {}, partner=other)
            if kind(s) == "mbar.arrive":
                assert isinstance(s, Sync)
                name = None if s.object is None else s.object.name
                if not any(
                    r.empty.name == name and (role.name, r.full.name) in self.taken for r in self.rings.values()
                ):
                    raise Refused("J3", f"an arrival at {name}, which is given back to no ring", {})

    def _reads(self, role: Role, ring: Ring, step: Step, wait: Sync) -> None:
        """Reads of the ring stand between the wait and the end of the step, and are of the step's slot. One agent that
        has the ring to itself may store to the slot there, too (`inflight` keeps its stores and reads apart)."""
        start = next(i for i, x in enumerate(step.before) if x is wait)
        inside = {id(s) for s, _ in flat(step.before[start + 1 :], everything=True)}
        for s in walk(role.body):
            if not isinstance(s, Stmt):
                continue
            for ref, writes in accesses(s):
                if ref.name not in ring.buffers:
                    continue
                self.at = s
                plain = isinstance(s, Store) and s.effect == "set" and s.mask is None and not s.by
                if writes and not (plain and self._alone(role, ring)):
                    raise Refused("J2", f"a consumer writes {ref.name}", {})
                if ref.version != sym(step.counter):
                    reason = f"{ref.name} is read in another slot than the step's"
                    raise Refused("J2", reason, {}, partner=self._filling(ref.name))
                if ring.copied and isinstance(s, Mma | Copy):
                    reason = f"{ref.name}, which threads copy into, is read by an engine"
                    raise Unsure("J2", reason, missing="loads of threads")
                if id(s) not in inside:
                    reason = f"{ref.name} is read before its slot is full, or after the step"
                    raise Refused("J2", reason, {}, partner=self._filling(ref.name))

    def _filling(self, name: str) -> Stmt | None:
        """A copy into a buffer of a ring."""
        every = (s for role in self.kernel.roles for s in walk(role.body))
        return next((s for s in every if isinstance(s, Copy) and s.dst.name == name), None)

    def _alone(self, role: Role, ring: Ring) -> bool:
        """Whether one agent of one workgroup is all that takes a ring."""
        takers = [
            r
            for r in self.kernel.roles
            if any(
                isinstance(s, Sync)
                and s.kind == "mbar.wait"
                and s.object is not None
                and s.object.name == ring.full.name
                for s in walk(r.body)
            )
        ]
        return takers == [role] and role.agents == 1 and not ring.shared

    def _releases(self, role: Role, ring: Ring, step: Step) -> None:
        """Every step is given back once: in its own iteration, or one behind with the last one after the loop."""
        number = sym(step.counter)
        found = [
            (path, body, i, s)
            for path, body in bodies(role.body, ())
            for i, s in enumerate(body)
            if kind(s) == "mbar.arrive"
            and isinstance(s, Sync)
            and s.object is not None
            and s.object.name == ring.empty.name
        ]
        if not found:
            raise Refused("J5", f"{role.name} never gives {ring.full.name} back", {})
        each = {"warp": role.agents * (role.threads // 32), "elect": role.agents, "": role.agents * role.threads}
        grains = {s.by for _, _, _, s in found}
        self.at = found[0][3]
        if len(grains) != 1 or any(dict(s.args).get("count", Expr(()) + 1).constant != 1 for _, _, _, s in found):
            raise Refused("J3", f"{ring.empty.name}: arrivals of different grain", {})
        if any(s.object is not None and s.object.rank != ("all" if ring.shared else None) for _, _, _, s in found):
            where = "every workgroup's" if ring.shared else "its own workgroup's"
            raise Refused("J3", f"{ring.empty.name} is given back elsewhere than at {where} barrier", {})
        ring.arrivals += each[grains.pop()] * (self.cluster if ring.shared else 1)
        if len(found) == 1:
            _, body, i, s = found[0]
            late = body is step.body and i > step.position
            assert s.object is not None
            if body is not step.body or s.object.version != number - (1 if late else 0):
                raise Refused("J3", f"{ring.empty.name}: not every step is given back once", {})
            for x, _ in flat(body[i:] if not late else [], everything=True):
                if any(ref.name in ring.buffers for ref, _ in accesses(x)):
                    self.at = x
                    reason = f"the slot is read after it was given back to {ring.full.name}"
                    raise Refused("J2", reason, {}, partner=s)
            return
        if len(found) != 2 or ring.slots < 2:
            raise Refused("J3", f"{ring.empty.name}: not every step is given back once", {"arrivals": len(found)})
        self._behind(ring, step, found)

    def _behind(self, ring: Ring, step: Step, found: Sequence[tuple[tuple[Control, ...], Body, int, Sync]]) -> None:
        number, loop = sym(step.counter), step.path[-1] if step.path else None
        inner = next((x for x in found if x[0] and isinstance(x[0][-1], If) and x[0][:-1] == step.path), None)
        outer = next((x for x in found if x is not inner), None)
        wrong = Refused("J3", f"{ring.empty.name}: not every step is given back once", {})
        if inner is None or outer is None or not isinstance(loop, Loop):
            raise wrong
        guard = inner[0][-1]
        assert isinstance(guard, If)
        early = any(s is guard for s in step.before)
        if not early and not any(s is guard for s in step.after):
            raise wrong
        at_inner, at_outer = inner[3].object, outer[3].object
        assert at_inner is not None and at_outer is not None
        if at_inner.version != number - (1 if early else 2) or inner[1] is not guard.then or guard.cond is not None:
            raise wrong
        behind = any(s is loop for s in outer[1][: outer[2]])
        if outer[0] != step.path[:-1] or not behind or at_outer.version != number - 1:
            raise wrong
        v = sym(loop.var)
        inside = self.facts.also(ge(v, loop.lo), lt(v, loop.hi))
        later = inside.also(gt(v, loop.lo))
        self.at = guard
        first = self.facts.also(lt(loop.lo, loop.hi), *(c.substitute({loop.var: loop.lo}) for c in guard.conds))
        if not all(later.implies(c) for c in guard.conds) or not first.contradictory:
            raise Refused("J3", f"{ring.empty.name}: given back in the first iteration, or not in a later one", {})
        known = self.facts.also(*(c for control in step.path[:-1] for c in ranged(control)))
        if not known.implies(lt(loop.lo, loop.hi)):
            case = known.against(lt(loop.lo, loop.hi))
            raise Refused("J3", f"{ring.empty.name}: a loop without iterations gives a step back", case or {})

    # ---- all roles

    def _once(self, producers: list[Role], consumers: list[Role]) -> None:
        for name, ring in self.rings.items():
            if not any((r.name, name) in self.taken for r in consumers):
                raise Refused("J5", f"{name} is filled and never taken", {})
            self.at = ring.step.body[ring.step.position]

    def _setup(self) -> None:
        """Barriers are set up once, by one thread, fenced, and before any role goes on."""
        threads = sum(r.agents * r.threads for r in self.kernel.roles)
        alone = self.cluster > 1 and len(self.kernel.roles) == 1 and self.kernel.roles[0].agents == 1
        set_up: list[str] = []
        met: set[Expr] = set()
        for role in self.kernel.roles:
            self.at = role.body[0] if role.body else None
            first = (i for i, s in enumerate(role.body) if is_meeting(s, threads, self.handed))
            if self.cluster > 1:  # all threads of all its workgroups
                first = (i for i, s in enumerate(role.body) if kind(s) == "cluster.wait")
            meet = next(first, None)
            if meet is None:
                raise Refused("J2", f"{role.name} does not meet the others after the barriers are set up", {})
            prologue = role.body[:meet]
            meeting = role.body[meet]
            assert isinstance(meeting, Sync)
            met.add(dict(meeting.args)["id"] if self.cluster == 1 else Expr(()))
            if self.cluster > 1:
                prologue = prologue[: next((i for i, s in enumerate(prologue) if kind(s) == "cluster.arrive"), 0)]
                if meet != len(prologue) + 1:
                    raise Refused("J2", f"{role.name} does not arrive at the cluster's barrier and wait there", {})
            inits = [s for s in prologue if kind(s) == "mbar.init"]
            for s in inits:
                assert isinstance(s, Sync)
                self.at = s
                if s.by != "elect" or s.object is None or s.object.version is not None or role.agents != 1:
                    raise Refused("J3", "a barrier is set up by more than one thread, or in part", {})
                set_up.append(s.object.name)
            if inits:
                last = max(i for i, s in enumerate(prologue) if kind(s) == "mbar.init")
                plain = self.cluster == 1 and all(r.copied for r in self.rings.values())
                if not plain and not any(kind(s) == "fence.mbar_init" for s in prologue[last + 1 :]):
                    raise Refused("J2", "barriers are set up without a fence", {})
            for s in prologue:
                if not isinstance(s, Sync) or s.kind not in (
                    "mbar.init",
                    "fence.mbar_init",
                    "setmaxnreg",
                    "barrier.sync",
                ):
                    self.at = s
                    raise Refused("J2", "work before all roles have met", {})
            for s in walk(role.body[meet + 1 :]):
                if kind(s) == "mbar.init" or (is_meeting(s, threads, self.handed) and not alone):
                    self.at = s
                    raise Unsure("J3", "barriers are set up, or all roles meet, again", missing="one prologue")
        if len(met) != 1 or next(iter(met)).constant != 0:
            raise Refused("J5", f"the roles meet at barriers {', '.join(map(str, met))}, not all at 0", {})
        self.at = None
        for b in self.kernel.barriers:
            if set_up.count(b.name) != 1:
                raise Refused("J3", f"{b.name} is set up {set_up.count(b.name)} times", {"times": set_up.count(b.name)})

    def _tree(self, body: Body, words: tuple[str, ...], only: set[str]) -> Tree:
        found: Tree = []
        for s in body:
            if kind(s) in words and isinstance(s, Sync) and s.object is not None and s.object.name in only:
                found.append(("ring", s.object.name, []))
            elif kind(s) == "cluster.wait":
                found.append(("ring", "the cluster", []))
            elif isinstance(s, Loop | Tasks):
                inner = self._tree(s.body, words, only)
                if inner:
                    found.append(("loop", s, inner))
            elif isinstance(s, If) and (self._tree(s.then, words, only) or self._tree(s.orelse, words, only)):
                self.at = s
                raise Unsure("J3", "a ring is used under a condition", missing="a step in every iteration")
        return found

    def same(self, fills: Tree, takes: Tree, names: dict[str, Expr]) -> None:
        """Both roles go through the same controls and rings, in the same order."""
        if len(fills) != len(takes):
            raise Refused("J5", "producer and consumer do not go through the same rings in the same order", {})
        for (sort, a, inner_a), (other, b, inner_b) in zip(fills, takes):
            self.at = b if isinstance(b, Control) else self.at
            if sort != other or (sort == "ring" and a != b):
                raise Refused("J5", f"the producer fills {a} where the consumer waits for {b}", {})
            if sort == "ring":
                continue
            env = dict(names)
            if isinstance(a, Loop) and isinstance(b, Loop):
                env[a.var] = sym(b.var)
                pairs = [(a.lo, b.lo), (a.hi, b.hi), (a.step, b.step)]
            elif isinstance(a, Tasks) and isinstance(b, Tasks):
                if (a.over, a.raster, len(a.vars)) != (b.over, b.raster, len(b.vars)) or a.over not in BY_WORKGROUPS:
                    raise Refused("J3", "producer and consumer are dealt different tasks", {})
                env |= {x: sym(y) for x, y in zip(a.vars, b.vars)}
                pairs = list(zip(a.counts, b.counts))
            else:
                raise Refused("J3", "producer and consumer go through different controls", {})
            pairs += [
                (x, y)
                for e, g in zip(a.enters, b.enters)
                for (_, p), (_, q) in zip(e.binds, g.binds)
                for x, y in zip(p, q)
            ]
            if len(a.enters) != len(b.enters) or [e.region for e in a.enters] != [e.region for e in b.enters]:
                raise Refused("J3", "producer and consumer enter different regions", {})
            for x, y in pairs:
                x, y = x.substitute(self.lets[0]), y.substitute(self.lets[1])
                x, y = self._value(x, a, env), self._value(y, b, {})
                if x.functions or y.functions:
                    raise Unsure("J3", f"the controls of two roles hang on {x}", missing="the same value in both")
                if not self.facts.equal(x.substitute(env), y):
                    raise Refused("J3", f"producer and consumer differ: {x} against {y}", {})
            self.same(inner_a, inner_b, env)

    def _value(self, e: Expr, control: object, env: dict[str, Expr]) -> Expr:
        """An expression of a control, each fragment in it by the value of the program that it holds there: of one
        instance, the one in which both roles are, there is one such value."""
        known = self.told.get(id(control), {})

        def change(atom: Atom) -> Expr | None:
            claim = known.get(atom.name) if isinstance(atom, Fn) and not atom.args else None
            return None if claim is None else sym(f"{claim.value}{[str(c.substitute(env)) for c in claim.coords]}")

        return e.rewrite(change) if e.functions else e


def values_at(role: Role) -> dict[int, dict[str, Claim]]:
    """For each control of a role, the fragments of one element that one statement assigns, before it and in its own
    iteration, with their claims (which J1 proves)."""
    counted = Counter(n for s in walk(role.body) for n in (getattr(s, "dst", None), getattr(s, "old", None)))
    found: dict[int, dict[str, Claim]] = {}

    def visit(body: Body, known: dict[str, Claim]) -> None:
        known = dict(known)
        for s in body:
            if isinstance(s, Loop | Tasks):
                found[id(s)] = dict(known)
                visit(s.body, known)
            elif isinstance(s, If):
                visit(s.then, known)
                visit(s.orelse, known)
            elif isinstance(s, Load | Compute) and counted[s.dst] == 1 and isinstance(s.claim, Claim):
                if s.claim.over is None and not s.claim.where and not s.claim.instance:
                    known[s.dst] = s.claim

    visit(role.body, {})
    return found


def lets_of(role: Role) -> dict[str, Expr]:
    """What a role's names stand for: names are unique in a role, not among roles."""
    found: dict[str, Expr] = {}
    for s in walk(role.body):
        if isinstance(s, Let):
            found[s.name] = s.expr.substitute(found)
    return found


def ranged(control: Control) -> list[Constraint]:
    """What the variables of a task nest or loop are inside it."""
    if isinstance(control, Tasks):
        pairs = zip(control.vars, control.counts, strict=True)
        return [c for name, count in pairs for c in (ge(sym(name), 0), lt(sym(name), count))]
    return [ge(sym(control.var), control.lo), lt(sym(control.var), control.hi)] if isinstance(control, Loop) else []
