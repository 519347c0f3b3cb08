"""J2 and J5 of cooperative launches whose workgroups meet inside loops.

Outside its tasks such a launch has loops, names, versions and meetings (`grid.sync`) only, and its loops have bounds
that are no value of a run or of a workgroup: so all threads of all workgroups go through the same loops, tasks and
meetings in the same order, and as all of them run at once, every meeting ends. Between two nests of tasks, on every way
from one to the next, all meet: also from the last one of an iteration to the first one of the next, and past a loop
that never runs. So nests are ordered like forks and joins of workers, what tasks leave in the workspace others find
behind the meeting, and the launch is judged as those are: loop by invariants, nest by nest. Registers and shared memory
are undefined at the start of a task, as ever. Nothing is on its way when all meet: copies of threads have landed
(`reuse`), products are over (`inflight`), no engine works in such a launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from treadle.algebra.expr import Expr, const, eq, ge, lt, sym
from treadle.algebra.sets import Facts, is_opaque
from treadle.checker.pairs import Reach, conflict, conflicts, meeting, reach
from treadle.checker.steps import lets_of
from treadle.checker.verdict import Refused, Unsure
from treadle.machine.form import (
    Body,
    Control,
    Copy,
    Kernel,
    Launch,
    Let,
    Loop,
    Role,
    Stmt,
    Sync,
    Tasks,
    Version,
    walk,
)
from treadle.machine.vocabulary import SYMBOLS

MEETING = "grid.sync"


def meets(stmt: object) -> bool:
    """Whether all workgroups of a launch meet here."""
    return isinstance(stmt, Sync) and stmt.kind == MEETING


def meets_within(kernel: Kernel) -> bool:
    """Whether workgroups meet inside loops, and not at the top of a role only."""
    top = {id(s) for role in kernel.roles for s in role.body}
    return any(meets(s) and id(s) not in top for role in kernel.roles for s in walk(role.body))


@dataclass
class Meetings:
    """The rules of one kernel. `at`: the statement at hand, for findings."""

    kernel: Kernel
    launch: Launch
    facts: Facts
    at: Stmt | Control | None = None
    own: frozenset[str] = frozenset()  # symbols that differ from workgroup to workgroup, or agent to agent

    def check(self) -> None:
        """*Errors*: findings of J2 and J5."""
        if len(self.kernel.roles) != 1 or self.kernel.barriers:
            raise Unsure("J5", f"roles of {self.kernel.name} meet inside loops", missing="one role without barriers")
        (role,) = self.kernel.roles
        if role.counters or role.registers is not None:
            raise Unsure("J5", f"{role.name} has counters or registers of its own", missing="a role without rings")
        self.own = frozenset({*SYMBOLS, role.index or ""})
        self._at_rest(role)
        self._outer(role.body, dirty=False)

    def _at_rest(self, role: Role) -> None:
        for s in walk(role.body):
            if isinstance(s, Copy) and s.engine != "cp.async":
                self.at = s
                reason = "work on its way where workgroups meet in loops"
                raise Unsure("J2", reason, missing="loads, stores, products and copies of threads")

    def _outer(self, body: Body, dirty: bool) -> bool:
        """A body outside tasks. `dirty`: whether some nest was executed since all met. Returns the same for its end."""
        for s in body:
            self.at = s
            match s:
                case Sync() if meets(s):
                    dirty = False
                case Tasks():
                    if dirty:
                        reason = "a nest of tasks begins, and workgroups have not met since another one"
                        own = frozenset(b.name for b in self.kernel.buffers)
                        nests = [x for r in self.kernel.roles for x in walk(r.body) if isinstance(x, Tasks)]
                        mine, yours = conflict(s.body, [x.body for x in nests], own) or (None, None)
                        raise Refused("J2", reason, {}, at=mine and mine[0], partner=yours and yours[0])
                    self._inner(s)
                    dirty = True
                case Loop():
                    self._same(s)
                    end = self._outer(s.body, dirty)
                    if end and not dirty:
                        self._outer(s.body, dirty=True)  # the next iteration
                    dirty = dirty or end
                case Let():
                    self._same(s)
                case Version():
                    pass
                case _:
                    reason = f"{type(s).__name__} outside tasks, where workgroups meet in loops"
                    raise Unsure("J5", reason, missing="loops, names, versions, meetings and tasks")
        return dirty

    def _same(self, s: Loop | Let) -> None:
        """What all workgroups know alike."""
        told: tuple[Expr, ...] = (s.lo, s.hi, s.step) if isinstance(s, Loop) else (s.expr,)
        if any(e.functions or e.symbols & self.own for e in told):
            raise Unsure("J5", "workgroups may not meet equally often", missing="bounds that are the same for all")

    def _unequal(self, tasks: Tasks, meeting: object) -> None:
        """*Errors*: refused where all meet in every task, and some workgroups have more tasks than others."""
        (role,) = self.kernel.roles
        each = {"threads": role.agents * role.threads, "warps": role.agents}.get(tasks.over, 1)
        if not any(s is meeting for s in tasks.body) or tasks.over == "grid":
            return
        total: Expr = const(1)
        for count in tasks.counts:
            total = total * count
        fact = eq(total % (self.launch.grid * each), 0)
        if total.functions or self.launch.grid.constant is None or self.facts.implies(fact):
            return
        case = self.facts.against(fact)
        if case is not None and not is_opaque(case):
            reason = f"all meet in every task, and {total} tasks are not as many for each of {self.launch.grid * each}"
            raise Refused("J5", reason, case, partner=tasks)

    def _inner(self, tasks: Tasks) -> None:
        if tasks.over in ("tickets", "clusters"):
            raise Unsure("J5", f"tasks over {tasks.over} where workgroups meet in loops", missing="tasks dealt anew")
        for s in walk(tasks.body):
            if meets(s):
                self.at = s
                self._unequal(tasks, s)
                raise Unsure("J5", "workgroups meet inside a control", missing="a meeting outside tasks")
            if isinstance(s, Tasks):
                self.at = s
                raise Unsure("J2", "tasks inside tasks", missing="one nest")


def check_unmet(
    kernel: Kernel, role: Role, launch: Launch, tasks: list[Tasks], facts: Facts, lets: Mapping[str, Expr], reason: str
) -> None:
    """Nests of one launch between which workgroups do not meet, nor count (`phases` and `counters` took others apart).

    *Errors*: refused where tasks of two of them, of different workgroups, touch one element that one of them stores to.
    """
    own = frozenset(b.name for b in (*kernel.buffers, *kernel.barriers))
    if launch.cluster > 1:
        return
    for i, first in enumerate(tasks):
        for second in tasks[i + 1 :]:
            for mine, yours in conflicts(second.body, [first.body], own):
                one, other = (reach(kernel, role, touch, lets) for touch in (mine, yours))
                if one is not None and other is not None:
                    case = _apart(role, launch, (second, first), (one, other), facts, lets)
                    if case is not None:
                        raise Refused("J2", reason, case, at=mine[0], partner=yours[0])


def _apart(
    role: Role,
    launch: Launch,
    tasks: tuple[Tasks, Tasks],
    reached: tuple[Reach, Reach],
    facts: Facts,
    lets: Mapping[str, Expr],
) -> dict[str, int] | None:
    """A case in which accesses of two tasks touch one element, and one workgroup has the one, another the other."""
    each = {"threads": role.agents * role.threads, "warps": role.agents, "persistent": 1}
    if any(t.over not in each or t.raster != ("row",) for t in tasks):
        return None
    mine, yours = reached[0], reached[1].renamed()
    where, grid = meeting(mine, yours), launch.grid.substitute(lets)
    places: list[Expr] = []
    for nest, names in zip(tasks, ({}, reached[1].names), strict=True):
        number = const(0)
        for v, count in zip(nest.vars, nest.counts, strict=True):
            number = number * count.substitute(lets_of(role)).substitute(lets) + sym(v)
        places.append(number.substitute(names) // each[nest.over] % grid)
    sizes = {s for e in (*places, *(c.expr for c in where)) for s in e.symbols} - mine.own - yours.own
    for least in (2, 2 * max(each.values())):  # of sizes, for tasks of several workgroups
        case = facts.also(*where).sample(*(ge(sym(s), least) for s in sizes))
        if case is None or is_opaque(case):
            continue
        env = {s: const(case[s]) for s in sizes}
        if (grid.substitute(env).constant or 0) < 2:
            continue
        here, (one, other) = Facts(c.substitute(env) for c in where), (e.substitute(env) for e in places)
        for apart in (lt(one, other), lt(other, one)):
            found = here.sample(apart)
            if found is not None and not is_opaque(found):
                return {**{s: case[s] for s in sizes}, **found}
    return None
