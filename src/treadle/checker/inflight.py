"""J2 of operations in flight: asynchronous products, and boxes that an engine stores.

An asynchronous product reads its operands and owns its accumulator from its issue to the wait that covers its group.
The walk carries the groups that may be unfinished; reads of ring slots are kept with their age in steps, so that a slot
given back one step late is told from one given back at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from treadle.algebra.expr import Expr, sym
from treadle.checker.clusters import without_farewell
from treadle.checker.gpu import accesses, own_base
from treadle.checker.pairs import named
from treadle.checker.rings import Rings
from treadle.checker.threads import expressions
from treadle.checker.verdict import Refused, Unsure
from treadle.machine.form import (
    Advance,
    Body,
    Compute,
    Control,
    Copy,
    Fold,
    FragRef,
    If,
    Kernel,
    Loop,
    Mma,
    Role,
    Stmt,
    Store,
    Sync,
    Tasks,
    Version,
    walk,
)
from treadle.machine.vocabulary import BOX_EFFECTS

STORES = (*BOX_EFFECTS, "bulk.store")
"""Engines that store boxes and runs out of shared memory, in groups of a thread."""

Item = tuple[str, str, int]  # ("ring", counter, age), ("acc" or "reg", fragment, 0), ("memory", buffer, 0)
Items = frozenset[Item]


@dataclass(frozen=True)
class Flight:
    """Committed groups that may be unfinished, oldest first; products of no group yet; plain reads of ring slots whose
    values may not have arrived; whether registers are fenced for the next product."""

    groups: tuple[Items, ...] = ()
    open: Items = frozenset()
    loads: Items = frozenset()
    fenced: bool = False
    dirty: frozenset[str] = frozenset()  # memory written by threads, with no fence since that engines heed
    unmet: Items = frozenset()  # plain reads of slots ("load") and products of memory, not over when all met last
    apart: frozenset[str] = frozenset()  # fenced by each thread, and the threads did not meet since
    held: frozenset[str] = frozenset()  # fragments that statements of threads used, with no fence of products since

    def join(self, other: Flight) -> Flight:
        """What holds of either."""
        n = max(len(self.groups), len(other.groups))
        nothing: Items = frozenset()
        a, b = ((nothing,) * (n - len(f.groups)) + f.groups for f in (self, other))
        groups = tuple(x | y for x, y in zip(a, b))
        return Flight(
            groups,
            self.open | other.open,
            self.loads | other.loads,
            self.fenced and other.fenced,
            self.dirty | other.dirty,
            self.unmet | other.unmet,
            self.apart | other.apart,
            self.held | other.held,
        )

    @property
    def pending(self) -> Items:
        """Everything that may be in use by products."""
        return self.open.union(*self.groups)

    def aged(self, counter: str) -> Flight:
        """After a ring moved on."""

        def older(items: Items) -> Items:
            return frozenset(
                (k, n, min(a + 1, 8)) if n == counter and k in ("ring", "load") else (k, n, a) for k, n, a in items
            )

        groups = tuple(map(older, self.groups))
        return replace(self, groups=groups, open=older(self.open), loads=older(self.loads), unmet=older(self.unmet))


@dataclass
class InFlight:
    """The walk over one role."""

    kernel: Kernel
    role: Role
    rings: Rings
    at: Stmt | Control | None = None
    counters: dict[str, str] = field(default_factory=dict[str, str])  # ring buffer or `empty` barrier -> own counter
    users: dict[tuple[str, str], Stmt] = field(default_factory=dict[tuple[str, str], Stmt])
    """The last statement on the way here that uses what an item names, while it may be in use; for reports."""

    def check(self) -> None:
        """*Errors*: findings of J2."""
        for (role, full), steps in self.rings.taken.items():
            if role == self.role.name:
                ring = self.rings.rings[full]
                for name in (*ring.buffers, ring.empty.name):
                    self.counters[name] = steps[0].counter
        end = self.body(self.role.body, Flight())
        if end.pending:
            raise Refused("J2", "the kernel may end with a product on its way", {}, partner=self.user("acc"))

    def user(self, *kinds: str, name: str | None = None) -> Stmt | None:
        """Who uses what `name` names (anything) in one of these ways."""
        return next((s for (k, n), s in self.users.items() if k in kinds and name in (n, None)), None)

    def _left(self, flight: Flight) -> Flight:
        """The same, and the users of what is not in use any more are forgotten."""
        used = {(k, n) for k, n, _ in flight.pending | flight.unmet | flight.loads}
        used |= {("stored", n) for n in flight.dirty | flight.apart}
        self.users = {key: s for key, s in self.users.items() if key in used}
        return flight

    def body(self, body: Body, flight: Flight) -> Flight:
        for stmt in body:
            self.at = stmt
            busy = {n for k, n, _ in flight.pending if k in ("acc", "reg")}
            if isinstance(stmt, Control) and busy:
                asked = {n for e in expressions(stmt) for n in e.functions} | {getattr(stmt, "cond", None)}
                if busy & asked:
                    name = min(busy & asked)
                    other = self.user("acc", "reg", name=name)
                    raise Refused("J2", f"{name} decides while a product is writing it", {}, partner=other)
            if isinstance(stmt, Loop | Tasks):
                flight = self.loop(stmt, flight)
            elif isinstance(stmt, If):
                before = dict(self.users)
                then = self.body(stmt.then, flight)
                self.users, after = before, self.users
                flight = then.join(self.body(stmt.orelse, flight))
                self.users = after | self.users
            elif isinstance(stmt, Stmt):
                flight = self.statement(stmt, flight)
        return flight

    def loop(self, stmt: Loop | Tasks, flight: Flight) -> Flight:
        head = flight
        for _ in range(12):
            before = dict(self.users)
            end = self.body(stmt.body, head)
            self.users = before | self.users
            grown = head.join(end)
            if grown == head:
                return flight.join(end)
            head = grown
        raise Unsure(
            "J2", "products in flight do not settle over the iterations of a loop", missing="a wait in the loop"
        )

    def statement(self, stmt: Stmt, flight: Flight) -> Flight:
        if isinstance(stmt, Sync):
            return self._left(self.sync(stmt, flight))
        if isinstance(stmt, Advance):
            return flight.aged(stmt.counter)
        if isinstance(stmt, Version) and stmt.buffer in self.counters.keys() & (flight.dirty | flight.apart):
            other = self.user("stored", name=stmt.buffer)
            reason = f"{stmt.buffer} gets other contents with no barrier after stores to it"
            raise Refused("J2", reason, {}, partner=other)
        if isinstance(stmt, Mma) and stmt.atom.startswith("wgmma"):
            return self.issue(stmt, flight)
        busy = {n for k, n, _ in flight.pending if k in ("acc", "reg")}
        touched = fragments(stmt)
        if busy & touched:
            name = min(busy & touched)
            other = self.user("acc", "reg", name=name)
            raise Refused("J2", f"{name} is in use by a product that no wait covers", {}, partner=other)
        memory = {n for k, n, _ in flight.pending if k == "memory"}
        for ref, writes in accesses(stmt):
            if writes and ref.name in memory:
                other = self.user("memory", name=ref.name)
                raise Refused("J2", f"{ref.name} is overwritten while a product reads it", {}, partner=other)
            if writes and ("memory", ref.name, 0) in flight.unmet:
                other = self.user("memory", name=ref.name)
                reason = f"{ref.name} is overwritten while another warp's product may read it"
                raise Refused("J2", reason, {}, partner=other)
            if ref.name in self.counters:
                self.slot(flight, ref.name, self.counters[ref.name], writes)
            if writes and isinstance(stmt, Store):
                flight = replace(flight, dirty=flight.dirty | {ref.name})
                self.users["stored", ref.name] = stmt
            if not writes and ref.name in self.counters:
                counter = self.counters[ref.name]
                flight = replace(flight, unmet=flight.unmet | {("load", counter, 0)})
                self.users["load", counter] = stmt
                if not self.rings.of_buffer[ref.name].copied:  # an engine heeds a fence alone
                    flight = replace(flight, loads=flight.loads | {("ring", counter, 0)})
                    self.users["ring", counter] = stmt
        flight = replace(flight, held=flight.held | touched)
        assigns = isinstance(getattr(stmt, "dst", None), str) or getattr(stmt, "old", None) is not None
        return replace(flight, fenced=False) if assigns else flight

    def slot(self, flight: Flight, name: str, counter: str, writes: bool) -> None:
        """A plain access to the slot of a step: stored to while nobody reads it, read when stores to it have met."""
        if writes and ("ring", counter, 0) in flight.pending:
            other = self.user("ring", name=counter)
            raise Refused("J2", f"{name} is overwritten while a product reads it", {}, partner=other)
        if writes and flight.unmet & {("ring", counter, 0), ("load", counter, 0)}:
            other = self.user("ring", "load", name=counter)
            reason = f"{name} is overwritten with no barrier after other threads' reads"
            raise Refused("J2", reason, {}, partner=other)
        if not writes and name in flight.dirty | flight.apart:
            other = self.user("stored", name=name)
            raise Refused("J2", f"{name} is read with no barrier after other threads wrote it", {}, partner=other)

    def whole(self, stmt: Sync) -> bool:
        """Whether a named barrier joins all threads of the agent."""
        everyone = sum(r.agents * r.threads for r in self.kernel.roles)
        return dict(stmt.args)["threads"].constant == everyone or _own(stmt, self.role)

    def issue(self, stmt: Mma, flight: Flight) -> Flight:
        if not flight.fenced or stmt.dst in flight.held:
            raise Refused("J2", f"registers of {stmt.dst} may not be written yet: no fence before the product", {})
        busy = {(k, n) for k, n, _ in flight.pending}
        items: set[Item] = {("acc", stmt.dst, 0)}
        if ("reg", stmt.dst) in busy:
            other = self.user("reg", name=stmt.dst)
            raise Refused("J2", f"{stmt.dst} is read by a product that no wait covers", {}, partner=other)
        if stmt.acc is not None and stmt.acc.name != stmt.dst:
            raise Refused("J2", "a product accumulates where it is told to", {})
        for x in (stmt.a, stmt.b):
            if isinstance(x, FragRef):
                if ("acc", x.name) in busy:
                    other = self.user("acc", name=x.name)
                    raise Refused("J2", f"{x.name} is in use by a product that no wait covers", {}, partner=other)
                items.add(("reg", x.name, 0))
            elif x.name in flight.dirty | flight.apart:
                other = self.user("stored", name=x.name)
                reason = f"{x.name} was written by threads: a fence, then a barrier, then the product"
                raise Refused("J2", reason, {}, partner=other)
            elif x.name in self.counters:
                items.add(("ring", self.counters[x.name], 0))
            else:
                items.add(("memory", x.name, 0))
        self.users |= {(kind, name): stmt for kind, name, _ in items}
        shared = {i for i in items if i[0] in ("ring", "memory")}
        return replace(flight, open=flight.open | items, unmet=flight.unmet | shared)

    def sync(self, stmt: Sync, flight: Flight) -> Flight:
        match stmt.kind:
            case "wgmma.fence":
                return replace(flight, fenced=True, held=frozenset())
            case "wgmma.commit":
                return replace(flight, groups=(*flight.groups, flight.open), open=frozenset())
            case "wgmma.wait":
                depth = dict(stmt.args)["depth"].constant
                if depth is None or depth < 0:
                    raise Unsure("J2", "a wait of unknown depth", missing="a number")
                return replace(flight, groups=flight.groups[max(0, len(flight.groups) - depth) :])
            case "grid.sync":
                if flight.pending:
                    other = self.user("acc")
                    raise Refused("J2", "workgroups meet with a product on its way", {}, partner=other)
                return replace(flight, apart=frozenset(), unmet=frozenset())
            case "fence.proxy.async" if not stmt.by:
                fenced = flight.apart | flight.dirty
                return replace(flight, loads=frozenset(), dirty=frozenset(), apart=fenced)
            case "barrier.sync" if self.whole(stmt):
                return replace(flight, apart=frozenset(), unmet=flight.unmet & flight.pending)
            case "mbar.arrive" if stmt.object is not None and stmt.object.version is not None:
                counter = self.counters.get(stmt.object.name)
                if any(self.counters.get(n) == counter for n in flight.dirty | flight.apart):
                    stores = (n for n in sorted(flight.dirty | flight.apart) if self.counters.get(n) == counter)
                    reason = f"{stmt.object.name}: given back while stores to the slot are not fenced and met"
                    raise Refused("J2", reason, {}, partner=self.user("stored", name=next(stores)))
                if counter is not None:
                    behind = (sym(counter) - stmt.object.version).constant
                    late = [i for i in flight.pending | flight.loads if i[:2] == ("ring", counter) and i[2] == behind]
                    if behind is None or late:
                        reason = f"{stmt.object.name}: given back while the slot may still be read"
                        raise Refused("J2", reason, {}, partner=self.user("ring", name=counter))
                    # A thread's arrival speaks for itself, and for the products of its warp.
                    others = {"elect": ("ring", "load"), "warp": ("load",)}.get(stmt.by, ())
                    if any(i[0] in others and i[1:] == (counter, behind) for i in flight.unmet):
                        reason = f"{stmt.object.name}: given back for threads that have not met"
                        raise Refused("J2", reason, {}, partner=self.user(*others, name=counter))
                return flight
            case _:
                return flight


def fragments(stmt: Stmt) -> set[str]:
    """Fragments that a statement reads or writes."""
    found: set[str] = {n for e in expressions(stmt) for n in e.functions}
    dst = getattr(stmt, "dst", None)
    if isinstance(dst, str):
        found.add(dst)
    if isinstance(stmt, Compute):
        found |= {x.name for x in stmt.args if isinstance(x, FragRef)}
    elif isinstance(stmt, Fold):
        found |= {x.name for x in (stmt.src, stmt.acc) if x is not None}
    elif isinstance(stmt, Store):
        found |= {x.name for x in (stmt.src, stmt.mask) if x is not None}
    elif isinstance(stmt, Mma):
        found |= {x.name for x in (stmt.a, stmt.b, stmt.acc) if isinstance(x, FragRef)}
    return found


# ---- boxes stored by an engine


def check_staging(kernel: Kernel, role: Role, rings: Rings) -> set[str]:
    """Staging slots: filled, fenced, joined, stored, and free again before they are filled once more. Returns their
    names.

    *Errors*: findings of J2 and J3, with `rings.at` at the statement.
    """
    copies = [s for s in walk(role.body) if isinstance(s, Copy) and s.engine in STORES]
    if not copies:
        if any(isinstance(s, Sync) and s.kind.startswith("bulk.") for s in walk(role.body)):
            raise Unsure("J2", "groups of boxes without a box", missing="a store by boxes")
        return set()
    steps = rings.steps(role)
    declared = {b.name: b for b in kernel.buffers}
    guarded: set[int] = set()
    staged: set[str] = set()
    for step in steps.values():
        number = sym(step.counter)
        mine = [s for s in step.before if isinstance(s, Copy) and s.src.version == number]
        if not mine:
            continue
        names = {s.src.name for s in mine}
        staged |= names
        words: list[tuple[str, Stmt | Control]] = []
        for s in step.before:
            word = _staging_word(s, names, number, role, rings)
            if word:
                words.append((word, s))
                guarded.add(id(s))
        rings.at = mine[0]
        free = _staged_in_order(words)
        for name in names:
            slots = declared[name].versions
            rings.at = free
            depth = dict(free.args)["depth"].constant
            if dict(free.args).get("read", sym("?")).constant not in (None, 0, 1):
                raise Refused("J2", "a wait for boxes reads 0 or 1", {})
            if depth is None or depth > max(slots, 1) - 1:
                reason = f"{name}: the slot may still be read by the box of {slots} steps ago"
                box = next(s for s in mine if s.src.name == name)
                raise Refused("J2", reason, {"depth": depth or 0}, partner=box)
    last = next((s for s in reversed(role.body) if isinstance(s, Sync) and s.kind == "bulk.wait"), None)
    body = without_farewell(role.body)
    if last is None or dict(last.args)["depth"].constant != 0 or last.by != "elect" or body[-1] is not last:
        rings.at = copies[-1]
        reason = "the kernel may end before its boxes are stored: no bulk.wait (depth = 0) by elect ends the role"
        raise Refused("J2", reason, {}, partner=last)
    for s in copies:
        if id(s) not in guarded:
            filling = named(role.body, s.src.name, writes=True)
            reason = (
                f"{s.src.name} is filled outside a staging step: the box of an earlier one may still be read from it"
            )
            raise Refused("J2", reason, {}, at=filling or s, partner=s)
    for s in walk(role.body):
        boxes = (isinstance(s, Copy) and s.engine in STORES) or (
            isinstance(s, Sync) and s.kind in ("bulk.wait", "bulk.commit")
        )
        if boxes and id(s) not in guarded and s is not last:
            rings.at = s
            raise Refused("J2", "a box, commit or wait outside a staging step", {})
        if isinstance(s, Stmt) and id(s) not in guarded and any(ref.name in staged for ref, _ in accesses(s)):
            rings.at = s
            raise Refused("J2", "a staging slot is touched outside its step", {})
    return staged


def _staged_in_order(words: list[tuple[str, Stmt | Control]]) -> Sync:
    """The wait for the step's slot, once the step is right: free, join, every fill, fence, join, every box, commit.

    Words of other steps may stand between. The wait counts groups of one thread, of which every step since the slot's
    last use has closed at least one, whoever else closes some: its depth is enough wherever it stands before the join.
    """
    order = [word for word, _ in words]
    first, last = order.index("fill") if "fill" in order else 0, len(order) - 1 - order[::-1].index("box")
    ready = order.index("box")
    filled = max((i for i, word in enumerate(order) if word == "fill"), default=0)
    joins = [i for i, word in enumerate(order[:first]) if word == "join"]
    frees = [i for i, word in enumerate(order[: joins[-1] if joins else 0]) if word == "free"]
    fence = next((i for i in range(filled, ready) if order[i] == "fence"), len(order))
    if "fill" not in order or not frees or "join" not in order[fence:ready] or "commit" not in order[last:]:
        seen = " ".join(word for i, word in enumerate(order) if not i or order[i - 1] != word)
        reason = f"a staging step goes {seen}, not free join fill fence join box commit"
        raise Refused("J2", reason, {}, partner=words[filled][1] if "fill" in order else None)
    found = words[frees[-1]][1]
    assert isinstance(found, Sync)
    return found


def _staging_word(s: Stmt | Control, names: set[str], number: Expr, role: Role, rings: Rings) -> str:
    rings.at = s
    if isinstance(s, Sync):
        match s.kind:
            case "bulk.wait" if s.by == "elect":
                return "free"
            case "bulk.commit" if s.by == "elect":
                return "commit"
            case "fence.proxy.async" if not s.by:
                return "fence"
            case "barrier.sync" if _own(s, role) and not s.by:
                return "join"
            case _:
                return ""
    if isinstance(s, Store) and s.dst.name in names:
        if s.dst.version != number:
            raise Refused("J2", f"{s.dst.name} is filled in another slot than the step's", {})
        return "fill"
    if isinstance(s, Copy) and s.src.name in names:
        if s.by != "elect" or s.engine not in STORES:
            raise Refused("J5", "one thread starts a box", {})
        return "box"
    if isinstance(s, Loop | If | Tasks) and any(
        ref.name in names for x in walk([s]) if isinstance(x, Stmt) for ref, _ in accesses(x)
    ):
        raise Unsure(
            "J2", "a staging slot is touched inside a control of the step", missing="a step without inner controls"
        )
    return ""


def _own(s: Sync, role: Role) -> bool:
    """Whether a named barrier joins exactly this agent's threads: numbered apart from the others', 0 is everyone's."""
    args = dict(s.args)
    base = own_base(args["id"], role)
    return args["threads"].constant == role.threads and base is not None and base >= 1
