"""J2, J3 and J5 of rings: buffers that a producer fills through a copy engine and consumers read and give back.

The shape that is proved. A ring has slots, a barrier `full` (one arrival that announces bytes, and the bytes) and a
barrier `empty` (an arrival of every consumer's every warp). Step n of the producer waits for `empty` of turn n //
slots - 1, announces the bytes of its copies, copies, moves on. Step n of a consumer waits for `full`, reads, gives
the slot back once all its reads are complete, moves on. Producer and consumers go through the same controls and
conditions around a step (`alike`), so their n-th steps are the same step, wherever in a role they stand; the order in
which a consumer first waits for rings is the order in which the producer fills them, and it has given back step n -
slots before it waits for step n: then no wait is for ever (the earliest unfilled step is blocked by no consumer).
Where roles meet their cluster between steps, they do it in the same places among them: a meeting is then a step like
others in that order, which all come to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from treadle.algebra.expr import Expr, eq, ge, sym
from treadle.algebra.sets import Facts
from treadle.checker.alike import Alike, tree
from treadle.checker.clusters import everyone
from treadle.checker.copied import ARRIVE, check_counted, copied_ring
from treadle.checker.given_back import check_given_back
from treadle.checker.gpu import accesses, handed
from treadle.checker.pairs import named
from treadle.checker.setting_up import check_set_up
from treadle.checker.steps import Ring, Step, at_barrier, bodies, flat, kind, run_length, touches
from treadle.checker.verdict import Refused, Unsure
from treadle.machine.form import (
    Advance,
    Barrier,
    Body,
    Control,
    Copy,
    If,
    Kernel,
    Mma,
    Role,
    Stmt,
    Store,
    Sync,
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
    taken: dict[tuple[str, str], list[Step]] = field(default_factory=dict[tuple[str, str], "list[Step]"])
    """The steps of a role, by its name and that of `full`."""
    matched: dict[int, tuple[Sync, dict[str, Expr]]] = field(default_factory=dict[int, "tuple[Sync, dict[str, Expr]]"])
    """By the wait of a consumer, the announcement of the same step, and what the producer's variables are there."""
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
        self._once(consumers)
        for ring in self.rings.values():
            if ring.empty.count != ring.arrivals:
                raise Refused(
                    "J3",
                    f"{ring.empty.name} counts {ring.empty.count} arrivals, there are {ring.arrivals}",
                    {"count": ring.empty.count, "arrivals": ring.arrivals},
                    at=self.using("mbar.arrive", ring.empty.name),
                    partner=self.using("mbar.wait", ring.empty.name),
                )
            if ring.copied:
                check_counted(ring)
            elif ring.full.count != 1 or not ring.full.tx or ring.empty.tx:
                raise Refused(
                    "J3",
                    f"{ring.full.name} must count one arrival and bytes, {ring.empty.name} arrivals only",
                    {"count": ring.full.count},
                )
        check_set_up(self)
        if self.cluster > 1:
            for role, other in zip(self.kernel.roles, self.kernel.roles[1:], strict=False):
                self.compare(role, (), other, (), set())
        for role in producers:
            for other in consumers:
                mine = {full for name, full in self.taken if name == other.name}
                self.compare(role, FILLS, other, ("mbar.wait",), mine)

    # ---- the producer

    def _fills(self, role: Role) -> None:
        steps = [step for places in self.places(role).values() for step in places]
        if role.agents != 1:
            raise Refused("J3", f"{role.agents} agents fill each slot", {"agents": role.agents})
        for step in steps:
            events = [(s, c) for s, c in flat(step.before) if touches(s, step.counter)]
            copied = any(kind(s) == "cpasync.arrive" for s, _ in events)
            self._declare(copied_ring(self, role, step, events) if copied else self._boxes(role, step, events))
        inside = {id(s) for t in steps for s, _ in flat(t.before) if touches(s, t.counter)}
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

    def _boxes(self, role: Role, step: Step, events: Sequence[tuple[Stmt, int]]) -> Ring:
        """The ring of a step that an engine fills: it waits for the slot, announces all bytes of its copies, copies."""
        number = sym(step.counter)
        copies = [(s, c) for s, c in events if isinstance(s, Copy)]
        wait, expect = self._announced(role, step, events, copies)
        full, empty = (self.barrier(s, number) for s in (expect, wait))
        self.phase(wait, number, full.versions, 1, self._taking(role, copies[0][0].dst.name) if copies else None)
        total: Expr = Expr(())
        for copy, times in copies:
            self._box(role, copy, full, number)
            total = total + self._bytes(copy) * times * (self.cluster if copy.multicast else 1)
        self.at = expect
        told = dict(expect.args)["bytes"]
        if not self.facts.equal(told, total):
            case = self.facts.sample() if total.constant is None else {"bytes": total.constant}
            reason = f"{full.name} announces {told} bytes, whole boxes are {total}"
            raise Refused("J3", reason, case or {}, partner=copies[-1][0] if copies else None)
        if wait.by != "elect" or expect.by != "elect":
            raise Refused("J5", "one thread waits, announces and copies", {})
        buffers = frozenset(c.dst.name for c, _ in copies)
        return Ring(full, empty, full.versions, buffers, [step], shared=any(c.multicast for c, _ in copies))

    def _announced(
        self, role: Role, step: Step, events: Sequence[tuple[Stmt, int]], copies: Sequence[tuple[Copy, int]]
    ) -> tuple[Sync, Sync]:
        """The wait for the slot and the announcement, each executed once, in this order, before all copies."""
        order = [s for s, _ in events]
        expects = [s for s in order if kind(s) == "mbar.expect"]
        waits = [s for s in order if kind(s) == "mbar.wait"]
        once = all(times == 1 for s, times in events if isinstance(s, Sync))
        if len(expects) != 1 or len(waits) != 1 or len(events) != 2 + len(copies) or not once:
            self.at = step.body[step.position]
            if copies and not waits:
                name = copies[0][0].dst.name
                reason = f"{name} is filled again, and nobody has waited until its slot is free"
                raise Refused("J3", reason, {}, at=copies[0][0], partner=self._taking(role, name))
            often = {k: sum(times for s, times in events if kind(s) == k) for k in ("mbar.wait", "mbar.expect")}
            counts = f"{often['mbar.wait']} waits, {often['mbar.expect']} announcements, {len(copies)} copies"
            reason = f"a step of {step.counter} must wait once, announce once and copy: it has {counts}"
            raise Refused("J3", reason, {})
        wait, expect = waits[0], expects[0]
        assert isinstance(wait, Sync) and isinstance(expect, Sync)
        self.at = expect
        if order[:2] != [wait, expect]:
            raise Refused("J3", f"a step of {step.counter} must wait for the slot and announce before it copies", {})
        return wait, expect

    def _box(self, role: Role, copy: Copy, full: Barrier, number: Expr) -> None:
        """A copy goes to the step's slot, in every workgroup or in its own, and completes there."""
        self.at = copy
        signal = copy.signal
        if copy.by != "elect" or signal is None or signal.name != full.name or signal.version != number:
            raise Refused("J3", f"a copy into {copy.dst.name} does not complete as {full.name} of its step", {})
        if copy.dst.version != number:
            reason = f"a copy into another slot of {copy.dst.name} than its step's"
            raise Refused("J2", reason, {}, partner=self._taking(role, copy.dst.name))
        if copy.multicast and copy.multicast != everyone(self.cluster):
            raise Refused("J3", f"a slice of {copy.dst.name} does not come to every workgroup", {})

    def _declare(self, ring: Ring) -> None:
        """The ring has barriers and buffers of its own, all with as many slots; in each of its steps the same ones."""
        full, empty = ring.full, ring.empty
        known = self.rings.get(full.name)
        step = ring.steps[0]
        begun = next(i for i, s in enumerate(step.before) if any(touches(x, step.counter) for x in walk([s])))
        self.moved(step.before[begun:], step)
        if known is not None and known.steps[0].counter == step.counter:
            if (known.empty, known.buffers, known.shared, known.copied) != (
                empty,
                ring.buffers,
                ring.shared,
                ring.copied,
            ):
                raise Refused("J3", f"steps of {full.name} have other barriers or buffers", {})
            known.steps += ring.steps
            return
        if any(r.steps[0].counter == step.counter for r in self.rings.values()):
            raise Refused("J3", f"{step.counter} counts the steps of two rings", {})
        taken = {b.name for r in self.rings.values() for b in (r.full, r.empty)}
        if taken & {full.name, empty.name} and known is None:
            raise Refused("J3", f"{min(taken & {full.name, empty.name})} is a barrier of two rings", {})
        for name in ring.buffers:
            if self.declared[name].versions != ring.slots or name in self.of_buffer:
                raise Refused(
                    "J3",
                    f"{name} has {self.declared[name].versions} slots, its barriers {ring.slots}",
                    {"slots": ring.slots},
                )
            self.of_buffer[name] = ring
        if empty.versions != ring.slots or known is not None or full.name == empty.name:
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

    def places(self, role: Role) -> dict[str, list[Step]]:
        """Where the role's counters move on, in order. *Errors*: refused, J3, if one moves on twice in a body."""
        found: dict[str, list[Step]] = {}
        for path, body in bodies(role.body, ()):
            for position, s in enumerate(body):
                if isinstance(s, Advance):
                    self.at = s
                    mine = found.setdefault(s.counter, [])
                    if any(step.body is body for step in mine):
                        raise Refused("J3", f"{s.counter} moves on in two places", {})
                    mine.append(Step(s.counter, path, body, position))
        return found

    def steps(self, role: Role) -> dict[str, Step]:
        """Where the role's other counters than those of rings move on. *Errors*: findings of J3, if one moves on twice
        or under an `if`."""
        found: dict[str, Step] = {}
        rings = {step.counter for (name, _), steps in self.taken.items() if name == role.name for step in steps}
        rings |= {step.counter for r in self.rings.values() for step in r.steps if step.of(role)}
        for counter, places in self.places(role).items():
            if counter in rings:
                continue
            step = found[counter] = places[0]
            self.at = places[-1].body[places[-1].position]
            if len(places) > 1:
                raise Refused("J3", f"{counter} moves on in two places", {})
            if any(isinstance(c, If) for c in step.path):
                raise Unsure("J3", f"{counter} moves on under a condition", missing="a step in every iteration")
        return found

    def moved(self, body: Body, step: Step) -> None:
        """*Errors*: refused, J3, if the counter of a step moves on inside it."""
        inner = next((s for s in walk(body) if isinstance(s, Advance) and s.counter == step.counter), None)
        if inner is not None:
            self.at = inner
            raise Refused("J3", f"{step.counter} moves on in two places of one step", {})

    def barrier(self, s: Sync, number: Expr) -> Barrier:
        self.at = s
        if s.object is None or s.object.name not in self.barriers:
            raise Refused("J3", f"{s.kind} without a barrier", {})
        if s.object.version != number:
            raise Refused("J3", f"{s.kind} of another slot than the step's", {})
        return self.barriers[s.object.name]

    def phase(self, s: Sync, number: Expr, slots: int, ahead: int, partner: Stmt | None = None) -> None:
        """A wait is for the parity of its turn (the turn before, for a slot to be free). `partner`: the access of
        others that it is to wait for."""
        self.at = s
        have = dict(s.args)["phase"]
        want = (number // slots + ahead) % 2
        counting = self.facts.also(*(ge(sym(n), 0) for n in number.symbols))
        if not counting.equal(have, want):
            case = counting.against(eq(have, want))
            name = "" if s.object is None else f" of {s.object.name}"
            raise Refused("J3", f"waits for the phase {have}{name}, its turn has {want}", case or {}, partner=partner)

    # ---- consumers

    def _takes(self, role: Role) -> None:
        places = self.places(role)
        waits = [s for s in walk(role.body) if kind(s) == "mbar.wait"]
        for s in waits:
            self.at = s
            assert isinstance(s, Sync)
            ring = None if s.object is None else self.rings.get(s.object.name)
            if ring is None or s.object is None or s.object.version is None:
                raise Refused("J3", "a wait for a barrier that no producer fills", {})
            steps = [t for c, found in places.items() if s.object.version == sym(c) for t in found]
            step = next((t for t in steps if any(x is s for x in t.before)), None)
            if step is None:
                raise Refused("J3", f"the wait for {ring.full.name} is not in its step", {})
            if s.by:
                reading = next((x for n in sorted(ring.buffers) if (x := named(role.body, n)) is not None), None)
                reason = f"only some threads wait for {ring.full.name}, all of them read"
                raise Refused("J2", reason, {}, partner=reading)
            mine = self.taken.setdefault((role.name, ring.full.name), [])
            if any(t is step for found in self.taken.values() for t in found):
                raise Refused("J3", f"{ring.full.name} is waited for twice in a step", {})
            if mine and mine[0].counter != step.counter:
                raise Refused("J3", f"steps of {ring.full.name} are counted by {step.counter} and another counter", {})
            self.moved(step.before[next(i for i, x in enumerate(step.before) if x is s) :], step)
            self.phase(s, sym(step.counter), ring.slots, 0, self.filling(ring))
            mine.append(step)
        for (name, full), steps in self.taken.items():
            if name == role.name:
                self._each(role, self.rings[full], steps, places[steps[0].counter])
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

    def _each(self, role: Role, ring: Ring, steps: list[Step], places: list[Step]) -> None:
        """What concerns all steps of a ring that a role takes."""
        for place in places:
            if not any(place is step for step in steps):
                self.at = place.body[place.position]
                raise Refused("J3", f"{place.counter} moves on where {ring.full.name} is not waited for", {})
        self._reads(role, ring, steps)
        check_given_back(self, role, ring, steps)

    def _reads(self, role: Role, ring: Ring, steps: list[Step]) -> None:
        """Reads of the ring stand between a wait and the end of its step, and are of the step's slot. One agent that
        has the ring to itself may store to the slot there, too (`inflight` keeps its stores and reads apart)."""
        inside: set[int] = set()
        for step in steps:
            start = next(i for i, x in enumerate(step.before) if at_barrier(x, "mbar.wait", ring.full.name))
            inside |= {id(s) for s, _ in flat(step.before[start + 1 :], everything=True)}
        for s in walk(role.body):
            if not isinstance(s, Stmt):
                continue
            for ref, writes in accesses(s):
                if ref.name not in ring.buffers:
                    continue
                self.at = s
                plain = isinstance(s, Store) and s.effect == "set" and s.mask is None and not s.by
                if writes and not (plain and self._alone(role, ring)):
                    raise Refused("J2", f"a consumer writes {ref.name}", {}, partner=self.filling(ring))
                if ref.version != sym(steps[0].counter):
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

    def filling(self, ring: Ring) -> Stmt | None:
        """A copy that fills a ring."""
        return self._filling(min(ring.buffers))

    def _taking(self, producer: Role, name: str) -> Stmt | None:
        """What another role reads of a buffer of a ring."""
        others = (named(role.body, name) for role in self.kernel.roles if role is not producer)
        return next((s for s in others if s is not None), None)

    def using(self, word: str, name: str) -> Stmt | None:
        """A wait for a barrier, or an arrival there."""
        every = (s for role in self.kernel.roles for s in walk(role.body))
        uses = (s for s in every if isinstance(s, Sync) and s.kind == word)
        return next((s for s in uses if s.object is not None and s.object.name == name), None)

    def _alone(self, role: Role, ring: Ring) -> bool:
        """Whether one agent of one workgroup is all that takes a ring."""
        full = ring.full.name
        takers = [r for r in self.kernel.roles if any(at_barrier(s, "mbar.wait", full) for s in walk(r.body))]
        return takers == [role] and role.agents == 1 and not ring.shared

    # ---- all roles

    def filled_by(self, full: str, step: Step) -> tuple[Step, dict[str, Expr]]:
        """The producer's step of which a consumer's one takes what it filled, and what the producer's variables are."""
        wait = next(s for s in step.before if at_barrier(s, "mbar.wait", full))
        filling, env = self.matched[id(wait)]
        return next(t for t in self.rings[full].steps if any(s is filling for s in t.before)), env

    def _once(self, consumers: list[Role]) -> None:
        for name, ring in self.rings.items():
            if not any((r.name, name) in self.taken for r in consumers):
                raise Refused("J5", f"{name} is filled and never taken", {})
            self.at = ring.step.body[ring.step.position]

    def compare(self, first: Role, fills: Sequence[str], second: Role, takes: Sequence[str], of: set[str]) -> None:
        """Two roles go through the same controls and conditions around the steps of these rings, in one order.

        *Errors*: findings of J3 and J5."""
        alike = Alike(first, second, self.facts)
        try:
            alike.check(tree(first.body, fills, of), tree(second.body, takes, of))
        finally:
            self.at = alike.at or self.at
        self.matched |= alike.matched
