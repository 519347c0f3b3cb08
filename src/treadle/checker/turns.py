"""Turns: two agents of a role hand the right to go on to each other, by named barriers tagged `turn`.

Turns keep an order for speed alone, so nothing may rest on them: J1 to J4 and J6 judge the program without its tagged
statements (`erased`). That program has every execution of the whole one and more, for a barrier between two agents only
takes executions away. What is left to prove is that the whole program ends (J5, `Turns`).

The shape. Agent w of two waits at its own barrier, `b + w`, with all its threads, and hands over by an arrival of all
its threads at the other's, `b + 1 - w`. Before anything else agent 1 arrives at `b` once; after everything agent 0
waits at `b` once. In between each agent's program is wait, arrive, wait, arrive, ..., whatever the numbers of
iterations: every loop body and every body of tasks begins and ends on the same side of a turn.

Why it ends. Both agents execute the same controls, whose bounds speak neither of the agent's number nor of values in
registers, so they have the same number n of pairs. Agent 0's k-th wait takes the arrival before agent 1's k-th
(the first that before everything), agent 1's k-th wait takes agent 0's k-th arrival. An arrival comes after the wait
before it, which has taken the other side's last arrival: so no barrier ever has two arrivals of a thread pending, and
phases are what the pairing says. Were all blocked for ever: both at their waits contradicts the pairing. Both at rings
contradicts the argument of `rings`. One, Y, at its k-th wait and the other, X, at a ring's step p, which the producer
has not filled: if X is before its own k-th wait, then Y has passed that step, which was filled. Else Y is agent 1 and X
is agent 0 inside its k-th turn; the producer then waits for Y to give back step p - slots. Y has done so before its
k-th wait, if what Y holds of that ring there, and the steps that the turn waits for, are no more than the slots: that
is `_within`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from treadle.algebra.expr import Expr, sym
from treadle.checker.gpu import handed
from treadle.checker.rings import Rings
from treadle.checker.steps import lets_of
from treadle.checker.verdict import Refused, Unsure
from treadle.machine.form import Body, Control, If, Kernel, Loop, MachineProgram, Role, Stmt, Sync, Tasks, walk

TAG = "turn"
ROUNDS = 8
"""How often a loop body is looked at before its state must be settled: what is held of a ring only grows, up to its
slots."""


def tagged(stmt: Stmt | Control) -> bool:
    """Whether a statement is there for turns alone: a named barrier with the tag."""
    return isinstance(stmt, Sync) and TAG in stmt.tags and stmt.kind in ("barrier.sync", "barrier.arrive")


def erased(program: MachineProgram, numbers: dict[int, int]) -> MachineProgram:
    """The program without turns; the program itself, if it has none. Statements stay the same objects; what stands in
    for a control gets its number in `numbers`.

    *Errors*: refused, J5, for a tag on anything but a named barrier.
    """
    if not any(tagged(s) for k in program.kernels for r in k.roles for s in walk(r.body)):
        return program
    kernels: list[Kernel] = []
    for kernel in program.kernels:
        roles = [replace(role, body=_without(role.body, numbers)) for role in kernel.roles]
        kernels.append(replace(kernel, roles=roles))
    return replace(program, kernels=kernels)


def _without(body: Body, numbers: dict[int, int]) -> Body:
    found: Body = []
    for s in body:
        if isinstance(s, Stmt):
            if not tagged(s):
                found.append(s)
            continue
        kept: Stmt | Control = s
        if any(tagged(x) for x in walk([s])):
            if isinstance(s, If):
                kept = replace(s, then=_without(s.then, numbers), orelse=_without(s.orelse, numbers))
                if not kept.then and not kept.orelse:
                    continue
            elif isinstance(s, Loop | Tasks):
                kept = replace(s, body=_without(s.body, numbers))
            if id(s) in numbers:
                numbers[id(kept)] = numbers[id(s)]
        found.append(kept)
    return found


@dataclass(frozen=True)
class Turn:
    """Where an agent is: inside its turn or not; of each ring, how many steps it has waited for and not given back, how
    many it had at the last wait for its turn, and how many it has waited for since."""

    inside: bool = False
    held: Mapping[str, int] = field(default_factory=dict[str, int])
    before: Mapping[str, int] = field(default_factory=dict[str, int])
    since: Mapping[str, int] = field(default_factory=dict[str, int])

    def most(self, other: Turn) -> Turn:
        """The larger of every number."""
        return Turn(self.inside, *(_most(a, b) for a, b in zip(self._counts(), other._counts(), strict=True)))

    def _counts(self) -> tuple[Mapping[str, int], ...]:
        return self.held, self.before, self.since


def _most(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, int]:
    return {n: max(a.get(n, 0), b.get(n, 0)) for n in sorted(a.keys() | b.keys())}


@dataclass
class Turns:
    """The walk over one role with turns. `at` is the statement in question when a finding is raised."""

    role: Role
    rings: Rings
    named: int
    at: Stmt | Control | None = None
    base: int = 0
    slots: dict[str, int] = field(default_factory=dict[str, int])  # by the name of either barrier of a ring
    names: dict[str, str] = field(default_factory=dict[str, str])

    def check(self) -> None:
        """*Errors*: findings of J5."""
        role = self.role
        mine = [s for s in walk(role.body) if tagged(s)]
        if not mine:
            return
        self.at = mine[0]
        if role.agents != 2 or role.index is None:
            raise Unsure("J5", f"turns of {role.agents} agents", missing="a rule for turns of more than two")
        for ring in self.rings.rings.values():
            for barrier in (ring.full, ring.empty):
                self.slots[barrier.name], self.names[barrier.name] = ring.slots, ring.full.name
        apart = handed(self.rings.kernel)
        both = next((s for s in walk(role.body) if _at_one_of(s, apart)), None)
        if both is not None:  # who waits there inside its turn waits for the other agent, who waits for its turn
            self.at = both
            raise Unsure("J5", f"{role.name} has turns and hands over", missing="a rule for both")
        self._barriers(mine)
        first = next((i for i, s in enumerate(role.body) if isinstance(s, Tasks)), None)
        if first is None:
            raise Unsure("J5", "turns outside tasks", missing="tasks with the turns in them")
        self._edges(first)
        begun = Turn(held={n: 0 for n in self.rings.rings})
        self._inside = {id(s) for s in walk([role.body[first]])}
        after = self._body([role.body[first]], begun)
        if after.inside:
            raise Refused("J5", f"{role.name} ends inside a turn", {})
        self.at = None

    # ---- the barriers

    def _barriers(self, mine: list[Stmt | Control]) -> None:
        """Every tagged statement joins all threads of both agents, at a barrier of the two."""
        role = self.role
        w = sym(role.index or "")
        numbers: set[int] = set()
        for s in mine:
            self.at = s
            assert isinstance(s, Sync)
            args = dict(s.args)
            if args["threads"].constant != 2 * role.threads or s.by:
                raise Refused("J5", f"a turn joins {args['threads']} threads, two agents have {2 * role.threads}", {})
            number = args["id"]
            up, down = (number - w).constant, (number + w).constant
            if number.constant is not None:
                numbers.add(number.constant)
            elif s.kind == "barrier.sync" and up is not None:
                numbers.add(up)
            elif s.kind == "barrier.arrive" and down is not None:
                numbers.add(down - 1)
            else:
                raise Refused("J5", f"{s.kind} {number} is neither an agent's own turn nor the other's", {})
        if len(numbers) != 1:
            raise Refused("J5", f"turns begin at barriers {', '.join(map(str, sorted(numbers)))}", {})
        self.base = numbers.pop()
        if not 1 <= self.base <= self.named - 2:
            raise Refused("J4", f"turns need the barriers {self.base} and {self.base + 1}", {"id": self.base})

    def _edges(self, first: int) -> None:
        """Agent 1 hands over once before the tasks, agent 0 takes that turn once after them."""
        role = self.role
        begin = [s for s in role.body[:first] if any(tagged(x) for x in walk([s]))]
        end = [s for s in role.body[first + 1 :] if any(tagged(x) for x in walk([s]))]
        for found, kind, agent in ((begin, "barrier.arrive", 1), (end, "barrier.sync", 0)):
            self.at = found[0] if found else self.at
            what = "hand over before its tasks" if agent else "take a turn after its tasks"
            if len(found) != 1 or not self._alone(found[0], kind, agent):
                raise Refused("J5", f"agent {agent} of {role.name} does not {what} once", {})

    def _alone(self, s: Stmt | Control, kind: str, agent: int) -> bool:
        """Whether one agent, and no other, executes this one barrier statement."""
        if not isinstance(s, If) or s.orelse or s.cond is not None or len(s.then) != 1:
            return False
        inner = s.then[0]
        if not isinstance(inner, Sync) or not tagged(inner) or inner.kind != kind:
            return False
        if dict(inner.args)["id"].constant != self.base:
            return False
        name = self.role.index or ""
        taken: list[int] = []
        for n in range(self.role.agents):
            values = [c.expr.substitute({name: Expr(()) + n}).constant for c in s.conds]
            if any(v is None for v in values):
                return False
            if all(v == 0 if c.equality else (v or 0) >= 0 for c, v in zip(s.conds, values, strict=True)):
                taken.append(n)
        return taken == [agent]

    # ---- alternation

    def _body(self, body: Body, turn: Turn) -> Turn:
        for s in body:
            self.at = s
            if isinstance(s, Loop | Tasks):
                turn = self._repeated(s, turn)
            elif isinstance(s, If):
                turn = self._chosen(s, turn)
            elif isinstance(s, Sync):
                turn = self._sync(s, turn)
        return turn

    def _repeated(self, control: Loop | Tasks, turn: Turn) -> Turn:
        """A loop: the state at its head covers the first iteration and all later ones."""
        if any(tagged(x) for x in walk([control])):
            self._same_in_both(control)
        head = turn
        for _ in range(ROUNDS):
            end = self._body(control.body, head)
            self.at = control
            if end.inside != head.inside:
                raise Refused("J5", "an iteration ends on the other side of a turn than it begins", {})
            wider = head.most(end)
            if wider == head:
                return head
            head = wider
        raise Unsure("J5", "steps of a ring pile up in a loop with turns", missing="as many given back as waited for")

    def _same_in_both(self, control: Loop | Tasks) -> None:
        """Both agents execute a control with turns in it equally often."""
        lets = lets_of(self.role)
        bounds = control.counts if isinstance(control, Tasks) else (control.lo, control.hi, control.step)
        for e in (b.substitute(lets) for b in bounds):
            if e.functions or (self.role.index or "") in e.symbols:
                raise Unsure("J5", f"the turns hang on {e}", missing="a bound that is the same for both agents")
        if isinstance(control, Tasks) and control.over not in ("persistent", "grid", "tickets"):
            raise Refused("J5", f"turns in tasks over {control.over}", {})

    def _chosen(self, s: If, turn: Turn) -> Turn:
        if any(tagged(x) for x in walk([s])):
            raise Unsure("J5", "a turn under a condition", missing="a turn in every iteration")
        return self._body(s.then, turn).most(self._body(s.orelse, turn))

    def _sync(self, s: Sync, turn: Turn) -> Turn:
        if tagged(s):
            if dict(s.args)["id"].constant is not None:
                raise Refused("J5", "a turn of one agent among the turns of both", {})
            if (s.kind == "barrier.sync") == turn.inside:
                word = "waits inside its turn" if turn.inside else "hands over a turn that it does not have"
                raise Refused("J5", f"an agent {word}", {})
            if s.kind == "barrier.sync":
                return Turn(True, turn.held, turn.held, {})
            return Turn(False, turn.held)
        name = self.names.get(s.object.name) if s.object is not None else None
        if name is None:
            return turn
        if s.kind == "mbar.wait":
            return self._within(name, turn)
        if s.kind == "mbar.arrive":
            return replace(turn, held={**turn.held, name: max(0, turn.held.get(name, 0) - 1)})
        return turn

    def _within(self, name: str, turn: Turn) -> Turn:
        """A wait for a step of a ring: inside a turn, the slot must be free whatever the other agent waits for."""
        held = {**turn.held, name: turn.held.get(name, 0) + 1}
        if held[name] > self.slots[name]:
            raise Unsure("J5", f"more steps of {name} are held than it has slots", missing="steps given back in time")
        since = {**turn.since, name: turn.since.get(name, 0) + 1} if turn.inside else turn.since
        if turn.inside and turn.before.get(name, 0) + since[name] > self.slots[name]:
            raise Refused(
                "J5",
                f"inside its turn an agent waits for {name}, whose slot the other may hold while it waits for its turn",
                {"slots": self.slots[name], "held": turn.before.get(name, 0)},
            )
        return Turn(turn.inside, held, turn.before, since)


def _at_one_of(s: object, numbers: frozenset[int]) -> bool:
    """Whether a statement is for one of these named barriers, and no turn."""
    if not isinstance(s, Sync) or not s.kind.startswith("barrier.") or tagged(s):
        return False
    return dict(s.args)["id"].constant in numbers


def check_turns(kernel: Kernel, rings: Rings, named: int) -> None:
    """Turns of all roles; `named`: barriers that a workgroup has. *Errors*: findings of J4 and J5, `rings.at` the
    statement."""
    taken: dict[int, str] = {}
    for role in kernel.roles:
        turns = Turns(role, rings, named)
        try:
            turns.check()
        finally:
            rings.at = turns.at
        if turns.base:
            for n in (turns.base, turns.base + 1):
                if n in taken:
                    raise Refused("J5", f"barrier {n} is for the turns of {taken[n]} and of {role.name}", {"id": n})
                taken[n] = role.name
    for role in kernel.roles:
        for s in walk(role.body):
            rings.at = s
            if isinstance(s, Stmt) and TAG in s.tags and not tagged(s):
                raise Refused("J5", "a statement other than a named barrier is tagged as a turn", {})
            if taken and isinstance(s, Sync) and s.kind.startswith("barrier.") and not tagged(s):
                _elsewhere(s, role, taken)
    rings.at = None


def _elsewhere(s: Sync, role: Role, taken: Mapping[int, str]) -> None:
    """Another barrier of the workgroup has another number than those of turns."""
    for n in range(role.agents):
        number = dict(s.args)["id"].substitute({role.index: Expr(()) + n} if role.index else {}).constant
        if number is None:
            raise Unsure("J5", f"barrier {dict(s.args)['id']} beside turns", missing="a number")
        if number in taken:
            raise Refused("J5", f"barrier {number} is used for turns too", {"id": number})
