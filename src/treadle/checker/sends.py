"""J2, J3 and J5 of stores to other workgroups of a cluster whose bytes complete at a barrier there (`st.async`).

The shape that is proved. In each step all workgroups of the cluster, which go through the same controls (`clusters`),
announce the bytes that come to them, send to one another, and wait: every thread for the phase of its own workgroup's
barrier, at the scope of the cluster. Each store of the step goes from every workgroup to one of them, so that each
receives as many bytes as it announced; hence its phase is over when all that was sent to it in this step has come, and
not before. The whole cluster meets between the wait of a step and what is sent in the next one: then every workgroup's
phase is that of the next step, and whoever read what came is done with it.

A wait says nothing of what others receive, and is no meeting of the workgroup's own threads: it makes known what came
to this workgroup alone. So the stores are judged as other stores to a cluster's memory (`peers`), with `LANDED` in
place of the wait; its rules are in `peers`, `between` and `control`.

Why it ends. A wait is for bytes that are sent before the same wait of others, and for one arrival of this workgroup,
which stands before it; all meet as often as they wait.

One role of one agent sends. Beside it others may fill and take rings and meet the cluster, in one order (`rings`): of
what is first in that order and never over, nothing before it is missing in any workgroup, nor so is a wait for bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import prod

from treadle.algebra.expr import Expr, const, ge, sym
from treadle.algebra.sets import Facts
from treadle.checker.clusters import FAREWELL, LANDED, reached
from treadle.checker.steps import bodies, kind
from treadle.checker.verdict import Refused, Unsure
from treadle.machine.form import (
    Advance,
    Body,
    Control,
    Copy,
    If,
    Kernel,
    Loop,
    MemRef,
    Role,
    Stmt,
    Store,
    Sync,
    Tasks,
    walk,
)
from treadle.machine.vocabulary import RANK

SIZES = (4, 8)
"""Bytes of elements that are sent. *Source*: PTX ISA 9.0, st.async: .b32, .b64."""


@dataclass
class Sends:
    """The rules of a kernel in clusters of `size`. `at` is the statement in question when a finding is raised; a new
    statement has the number of the one that it stands for in `numbers`."""

    kernel: Kernel
    size: int
    facts: Facts
    numbers: dict[int, int] = field(default_factory=dict[int, int])
    at: object = None
    landed: dict[int, Sync] = field(default_factory=dict[int, Sync])  # by the identity of a wait
    gone: set[int] = field(default_factory=set[int])  # announcements

    def unfolded(self) -> Kernel:
        """The kernel with plain stores, and `LANDED` for waits; itself, if nothing is sent. *Errors*: findings."""
        sent = [s for r in self.kernel.roles for s in walk(r.body) if isinstance(s, Store) and s.signal is not None]
        if not sent:
            return self.kernel
        self.at = sent[0]
        if self.size == 1:
            raise Refused("J2", "a store to another workgroup, and there is none", {})
        senders = [r for r in self.kernel.roles if any(s is t for s in walk(r.body) for t in sent)]
        if len(senders) != 1 or senders[0].agents != 1:
            missing = "one role of one agent that does"
            raise Unsure("J2", "roles of a cluster send to other workgroups", missing=missing)
        (role,) = senders
        names = dict.fromkeys(s.signal.name for s in sent if s.signal is not None)
        for name in names:
            self._step(role, name, [s for s in sent if s.signal is not None and s.signal.name == name])
        self._apart(role)
        for other in self.kernel.roles:
            self._elsewhere(other, frozenset(names) if other is not role else frozenset())
        self.at = None
        roles = [replace(r, body=self._body(r.body)) if r is role else r for r in self.kernel.roles]
        return replace(self.kernel, roles=roles)

    def _elsewhere(self, role: Role, names: frozenset[str]) -> None:
        """Other roles have nothing to do with the barriers at which sent bytes complete, but that they set them up."""
        for s in walk(role.body):
            refs = (getattr(s, "object", None), getattr(s, "signal", None))
            if kind(s) != "mbar.init" and any(isinstance(r, MemRef) and r.name in names for r in refs):
                self.at = s
                raise Refused(
                    "J3", f"{role.name} uses a barrier at which the bytes of another role's stores complete", {}
                )

    def _apart(self, role: Role) -> None:
        """A wait says that all has come which was sent to a buffer: so nothing else is stored there, and what is sent
        there completes at one barrier."""
        at: dict[str, str] = {}
        stores = [s for s in walk(role.body) if isinstance(s, Store | Copy)]
        for s in stores:
            if s.signal is not None and at.setdefault(s.dst.name, s.signal.name) != s.signal.name:
                self.at = s
                raise Unsure("J2", f"what is sent to {s.dst.name} completes at two barriers", missing="one barrier")
        for s in stores:
            if s.signal is None and s.dst.name in at:
                self.at = s
                missing = "memory of its own for what is sent"
                raise Unsure("J2", f"{s.dst.name} is stored to, and others send there", missing=missing)

    # ---- one barrier

    def _step(self, role: Role, name: str, sent: list[Store]) -> None:
        barrier = next((b for b in self.kernel.barriers if b.name == name), None)
        if barrier is None or barrier.count != 1 or not barrier.tx:
            raise Refused("J3", f"{name} must count one arrival and bytes", {})
        used = [
            (path, body, i, s)
            for path, body in bodies(role.body, ())
            for i, s in enumerate(body)
            if isinstance(s, Sync) and s.object is not None and s.object.name == name and s.kind != "mbar.init"
        ]
        self.at = used[0][3] if used else sent[0]
        if sorted(s.kind for *_, s in used) != ["mbar.expect", "mbar.wait"] or used[0][1] is not used[1][1]:
            raise Refused("J3", f"a step must announce the bytes of {name} once and wait once, in one body", {})
        path, body = used[0][0], used[0][1]
        if any(isinstance(c, If) for c in path):
            raise Unsure("J3", f"{name} is used under a condition", missing="a step in every iteration")
        (expect_at, expect), (wait_at, wait) = ((i, s) for *_, i, s in sorted(used, key=lambda u: u[3].kind))
        if expect_at > wait_at:
            raise Refused(
                "J3", f"the bytes of {name} are announced after the wait for them", {}, at=expect, partner=wait
            )
        counter = self._counter(role, body, wait_at, wait, expect)
        self._wait(wait, expect, counter, barrier.versions, sent[0])
        places = {i for i, item in enumerate(body) if any(s is t for s in walk([item]) for t in sent)}
        if not places or max(places) > wait_at:
            reason = f"what completes at {name} is sent after the wait for it, or elsewhere"
            raise Refused("J3", reason, {}, at=sent[-1], partner=wait)
        self._on_the_way(body[min(places) : wait_at], sent, wait)
        self._received(body[: wait_at + 1], sent, counter, expect)
        self._meetings(body, min(places), wait_at, name, sent[0])
        self.gone.add(id(expect))
        filled = tuple(dict.fromkeys(s.dst.name for s in sent))
        self.landed[id(wait)] = Sync(kind=LANDED, tags=filled, origin=wait.origin)

    def _on_the_way(self, body: Body, sent: list[Store], wait: Sync) -> None:
        """Nothing else touches the memory until the wait: a barrier does not tell even the sender that it has come."""
        filled = {s.dst.name for s in sent}
        for s in walk(body):
            names = {ref.name for ref, _ in reached(s)} & filled if isinstance(s, Stmt) else set[str]()
            if names and not any(s is t for t in sent):
                self.at = s
                raise Refused("J2", f"{min(names)} is touched before what is sent there has come", {}, partner=wait)

    def _counter(self, role: Role, body: Body, wait_at: int, wait: Sync, expect: Sync) -> str:
        """The counter of the step: it moves on once, behind the wait."""
        version = None if wait.object is None else wait.object.version
        counter = next((c for c in role.counters if version == sym(c)), None)
        moves = [s for s in walk(role.body) if isinstance(s, Advance) and s.counter == counter]
        if counter is None or len(moves) != 1 or not any(s is moves[0] for s in body[wait_at:]):
            raise Refused("J3", "the step of a wait is counted once, behind it", {})
        if expect.object is None or expect.object.version != version:
            raise Refused("J3", "bytes are announced for another step than is waited for", {})
        return counter

    def _wait(self, wait: Sync, expect: Sync, counter: str, slots: int, sent: Store) -> None:
        self.at = wait
        number, args = sym(counter), dict(wait.args)
        counting = self.facts.also(ge(number, 0))
        if not counting.equal(args["phase"], (number // slots) % 2):
            raise Refused(
                "J3",
                f"waits for the phase {args['phase']}, not that of its turn",
                counting.sample() or {},
                partner=sent,
            )
        if args.get("cluster", Expr(())).constant != 1:
            raise Refused(
                "J2", "a wait for the scope of the workgroup, of what other workgroups stored", {}, partner=sent
            )
        if wait.by:
            raise Refused("J2", "only some threads wait for what is sent, all of them read", {}, partner=sent)
        if expect.by != "elect":
            self.at = expect
            raise Refused("J5", "one thread announces", {})

    def _received(self, body: Body, sent: list[Store], counter: str, expect: Sync) -> None:
        """Each workgroup receives what it announces."""
        received = [0] * self.size
        seen: set[int] = set()
        for store, env in self._executed(body, {}):
            self.at = store
            seen.add(id(store))
            for rank in range(self.size):
                to = self._to(store, counter, {**env, RANK: const(rank)})
                received[to] += self._bytes(store)
        missed = next((s for s in sent if id(s) not in seen), None)
        if missed is not None:
            self.at = missed
            raise Unsure("J3", "a store that signals under a condition", missing="the same stores in every step")
        self.at = expect
        told = dict(expect.args)["bytes"]
        for rank, count in enumerate(received):
            if not self.facts.equal(told, const(count)):
                case = {"workgroup": rank, "bytes": count}
                raise Refused("J3", f"{told} bytes are announced, {count} come", case, partner=sent[0])

    def _executed(self, body: Body, env: dict[str, Expr]) -> Iterator[tuple[Store, dict[str, Expr]]]:
        """The stores that signal, each as often as it is executed, with the variables of the loops around it."""
        for s in body:
            if isinstance(s, Store) and s.signal is not None:
                yield s, env
            elif isinstance(s, Loop) and any(isinstance(x, Store) and x.signal is not None for x in walk([s])):
                lo, hi, step = (e.substitute(env).constant for e in (s.lo, s.hi, s.step))
                if lo is None or hi is None or step is None or step < 1 or (hi - lo) // step > 256:
                    self.at = s
                    raise Unsure("J3", "stores that signal in a loop of unknown length", missing="numbers as bounds")
                for value in range(lo, hi, step):
                    yield from self._executed(s.body, {**env, s.var: const(value)})

    def _to(self, store: Store, counter: str, env: dict[str, Expr]) -> int:
        """The workgroup that a store goes to."""
        rank, signal = store.dst.rank, store.signal
        if not isinstance(rank, Expr) or signal is None or signal.rank != rank:
            raise Refused("J3", "a store signals another workgroup than it goes to", {})
        if signal.version != sym(counter):
            raise Refused("J3", f"a store completes at {signal.name} of another step", {})
        to = rank.substitute(env).constant
        if to is None:
            raise Unsure("J3", f"a store to the workgroup {rank}", missing="the sender's number, and numbers")
        if not 0 <= to < self.size:
            raise Refused("J4", f"a store to workgroup {to} of a cluster of {self.size}", {"workgroup": to})
        return to

    def _bytes(self, store: Store) -> int:
        frag = next((f for f in self.kernel.frags if f.name == store.src.name), None)
        if frag is None or frag.dtype.packed or frag.dtype.itemsize not in SIZES:
            raise Unsure("J7", f"elements of {store.src.name} are sent", missing="elements of 4 or 8 bytes")
        if store.where or store.mask is not None or store.effect != "set" or store.by == "warp":
            raise Unsure("J3", f"some elements of {store.src.name} are sent", missing="all of them, once")
        return prod(frag.shape) * frag.dtype.itemsize

    def _meetings(self, body: Body, first: int, wait_at: int, name: str, sent: Store) -> None:
        """The whole cluster meets between the wait of a step and what the next one sends."""
        for i in (*range(first - 1), *range(wait_at + 1, len(body) - 1)):
            if (kind(body[i]), kind(body[i + 1])) == FAREWELL:
                return
        wait, reason = body[wait_at], f"the next step sends to {name} before others have waited for this one"
        raise Refused("J2", reason, {}, at=sent, partner=wait)

    # ---- the kernel without

    def _body(self, body: Body) -> Body:
        made: Body = []
        for old in body:
            if id(old) in self.gone:
                continue
            new = self._one(old)
            if id(old) in self.numbers:
                self.numbers[id(new)] = self.numbers[id(old)]
            made.append(new)
        return made

    def _one(self, item: Stmt | Control) -> Stmt | Control:
        match item:
            case Sync() if id(item) in self.landed:
                return self.landed[id(item)]
            case Store() if item.signal is not None:
                return replace(item, signal=None)
            case Loop() | Tasks():
                return replace(item, body=self._body(item.body))
            case If():
                return replace(item, then=self._body(item.then), orelse=self._body(item.orelse))
            case _:
                return item
