"""Counters in global memory: tasks that go on where all tasks of their kind have arrived are judged as two launches.

A nest of tasks may end with a part that folds what several of its tasks have left in the workspace. Either the agent
that arrives last at a counter goes on (`if last`): it waits for nobody. Or one task owns the part, arrives as the
others do and waits for the number of arrivals (`counter.add`, `counter.wait`).

The shape. The tasks have variables; some of them (the *kept* ones) index the counter, each as it is, and the number of
arrivals is the number of values of all others: so a word counts exactly the tasks that agree in the kept variables,
each arrives once, as the last thing that every task does before the part, with all its threads joined. Or some tasks do
nothing: those whose other variable is not below a number that the kept ones tell; then so many arrive. An arrival
releases and the last one acquires at the scope of the device (so does the wait), hence the part for one value of the
kept variables is behind the tasks that agree in them, and behind nothing else of the launch.

Why two launches. The program is judged with all first parts in one launch and all others in the next. In the whole
one a part may run while tasks with other kept variables do. So nothing that a part stores is touched by any first part;
what it reads and first parts store are workspace elements that no task with other kept variables stores (`meanwhile`,
asked of every read), stored by threads, for engines order nothing at a counter. The part itself is loads, arithmetic
and stores of its own threads in fragments of its own: it waits for nobody, and no ring or barrier knows of it.

Why it ends. The last to arrive never waits. An owner waits for tasks of its own launch: of tickets, or of tasks that
workgroups of a cooperative launch go through in order, those have numbers no greater than its own. The unfinished task
with the least number then waits for nobody: its workgroup has begun, and is through with all tasks before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from treadle.algebra.expr import Constraint, Expr, Sym, const, eq, ge, sym
from treadle.algebra.sets import Facts
from treadle.checker.gpu import accesses, joins_whole, positive
from treadle.checker.pairs import touches_of
from treadle.checker.source import Source
from treadle.checker.threads import expressions
from treadle.checker.verdict import Refused, Unsure, require
from treadle.machine.form import (
    Advance,
    Body,
    Compute,
    Control,
    Copy,
    Counter,
    FragRef,
    If,
    Kernel,
    Last,
    Launch,
    Let,
    MachineProgram,
    MemRef,
    Mma,
    Role,
    Stmt,
    Sync,
    Tasks,
    walk,
)
from treadle.machine.vocabulary import ASYNC_ATOMS

ADD, WAIT = "counter.add", "counter.wait"
ALONE = "counter.one"
"""Names the only task of a part that no variable is kept of."""


@dataclass(frozen=True)
class Meanwhile:
    """First parts that may run while a part does: all that differ in a kept variable."""

    tasks: Tasks
    kept: tuple[str, ...]


@dataclass(frozen=True)
class Tail:
    """How a body of tasks ends: its first part, the counter and the number of arrivals, and the part that goes on.
    `owner`: the conditions that single out the task that waits."""

    first: Body
    counter: MemRef
    of: Expr
    part: Body
    control: If
    joins: Sync
    owner: tuple[Constraint, ...] | None = None
    some: If | None = None  # around all of that, where some tasks of the nest do nothing and do not arrive
    before: Body = field(default_factory=list["Stmt | Control"])  # names in front of it

    @property
    def task(self) -> Body:
        """A task without what goes on."""
        body = [*self.first, self.joins]
        return body if self.some is None else [*self.before, replace(self.some, then=body)]


@dataclass
class Counters:
    """`at`: the statement at hand, for findings. `meanwhile`: by the identity of a part's tasks."""

    program: MachineProgram
    source: Source
    facts: Facts
    at: Stmt | Control | None = None
    meanwhile: dict[int, Meanwhile] = field(default_factory=dict[int, Meanwhile])

    def unfolded(self) -> MachineProgram:
        """The program with two launches for one whose tasks arrive at a counter; itself, if it has none.

        *Errors*: refused or unsure, J2 to J5.
        """
        program = self.program
        counting = [k for k in program.kernels if any(_counts(s) for r in k.roles for s in walk(r.body))]
        self._tickets()
        if not counting:
            return program
        used: list[str] = []
        kernels = [k for k in program.kernels if k not in counting]
        launches: list[Launch] = []
        for number, launch in enumerate(program.host.launches):
            kernel = next((k for k in counting if k.name == launch.kernel), None)
            if kernel is None:
                launches.append(launch)
                continue
            tail, made = self._apart(kernel, launch, number)
            used.append(tail.counter.name)
            kernels += made
            launches.append(replace(launch, kernel=made[0].name))
            threads = made[1].roles[0].threads
            launches.append(Launch(made[1].name, launch.grid, threads))
        if len(set(used)) != len(used):
            raise Refused("J3", f"two launches count at {used[0]}, which is 0 for the first one only", {})
        return replace(program, kernels=kernels, host=replace(program.host, launches=launches))

    def _tickets(self) -> None:
        """A launch has one row of tickets, its workgroups draw for themselves."""
        for kernel in self.program.kernels:
            drawn = [s for r in kernel.roles for s in walk(r.body) if isinstance(s, Tasks) and s.over == "tickets"]
            if not drawn:
                continue
            self.at = drawn[0]
            launches = [x for x in self.program.host.launches if x.kernel == kernel.name]
            if len(launches) > 1 or any(x.cluster != 1 for x in launches):
                raise Unsure("J5", f"tickets of {kernel.name}", missing="one launch, without clusters")
            nests = [[s for s in walk(r.body) if isinstance(s, Tasks)] for r in kernel.roles]
            if any(len(n) != 1 or n[0].over != "tickets" for n in nests):
                raise Refused("J5", f"the roles of {kernel.name} do not all run the tasks that are drawn", {})
            heads = {(len(n[0].counts), tuple(map(str, n[0].counts)), n[0].raster) for n in nests}
            if len(heads) > 1:
                raise Refused("J5", f"the roles of {kernel.name} make different tasks of a ticket", {})
            self.at = None

    # ---- one launch

    def _apart(self, kernel: Kernel, launch: Launch, number: int) -> tuple[Tail, list[Kernel]]:
        """How its tasks end, and the two kernels."""
        mine = [r for r in kernel.roles if any(_counts(s) for s in walk(r.body))]
        self.at = next(s for s in walk(mine[0].body) if _counts(s))
        if any(isinstance(s, Sync) and s.kind == "grid.sync" for r in kernel.roles for s in walk(r.body)):
            raise Unsure("J5", f"workgroups of {kernel.name} meet and count", missing="one or the other")
        if len(mine) != 1 or launch.cluster != 1:
            raise Unsure("J3", f"arrivals of {kernel.name}", missing="one role that arrives, without clusters")
        role = mine[0]
        nests = [s for s in role.body if isinstance(s, Tasks)]
        if len(nests) != 1 or nests[0].over not in ("grid", "persistent", "tickets"):
            raise Unsure("J3", f"arrivals of {role.name}", missing="one nest of tasks over workgroups")
        tasks = nests[0]
        everyone = sum(r.agents * r.threads for r in kernel.roles)
        tail = self._some(role, tasks, everyone)
        if sum(_counts(s) for s in walk(role.body)) != (1 if tail.owner is None else 2):
            raise Unsure("J3", f"{role.name} arrives elsewhere too", missing="one arrival, behind all of a task")
        kept = self._counted(role, tasks, tail)
        if tail.owner is not None:
            self._progress(launch, tasks, tail, kept)
        self._separate(kernel, role, tasks, tail)
        first = replace(tasks, body=tail.task)
        one = self._with(kernel, role, [first if s is tasks else s for s in role.body], f"{kernel.name}@{number}")
        index = () if role.index is None else (role.index,)
        self.at = tail.control
        part = self._part(role, tasks, tail, kept)
        agents = (*first.vars, *index), (*first.counts, *(const(role.agents) for _ in index))
        self.meanwhile[id(part)] = Meanwhile(replace(first, vars=agents[0], counts=agents[1]), kept)
        lets = [s for s in role.body[: role.body.index(tasks)] if isinstance(s, Let)]
        folding = replace(role, agents=1, body=[*lets, part], index=None, registers=None, counters=())
        self.at = None
        return tail, [one, Kernel(f"{kernel.name}@{number}.last", [folding], kernel.frags)]

    def _with(self, kernel: Kernel, role: Role, body: Body, name: str) -> Kernel:
        return replace(kernel, name=name, roles=[replace(r, body=body) if r is role else r for r in kernel.roles])

    def _part(self, role: Role, tasks: Tasks, tail: Tail, kept: tuple[str, ...]) -> Tasks:
        """The tasks of the launch that goes on: one for each value of the kept variables. (An agent's number that is
        kept is a variable of them: what one agent does in it, any may.)"""
        counts = dict(zip(tasks.vars, tasks.counts))
        if role.index is not None:
            counts[role.index] = const(role.agents)
        names, sizes = (kept, [counts[v] for v in kept]) if kept else ((ALONE,), [const(1)])
        told, own = list[Let](), {v for v in tasks.vars if v not in kept}
        for s in tail.before:  # names of a task that the kept variables tell
            if isinstance(s, Let) and not s.expr.symbols & own:
                told.append(s)
            elif isinstance(s, Let):
                own.add(s.name)
        body: Body = [*self._owner(tasks, tail, kept), *told, *tail.part]
        return Tasks(vars=tuple(names), counts=tuple(sizes), over="persistent", enters=tail.control.enters, body=body)

    # ---- the shape

    def _some(self, role: Role, tasks: Tasks, everyone: int) -> Tail:
        """How a task ends: all of them alike, or those that do anything at all."""
        body = tasks.body
        control = body[-1] if body else None
        within = isinstance(control, If) and control.last is None and any(_counts(s) for s in walk(control.then))
        if not within or any(_counts(s) for s in walk(body[:-1])):
            return self._tail(role, body, everyone)
        assert isinstance(control, If)
        self.at = control
        named = all(isinstance(s, Let) for s in body[:-1])
        if not named or control.orelse or control.cond is not None or control.enters or len(control.conds) != 1:
            raise Unsure("J3", "some tasks arrive", missing="one condition around all that such a task does")
        tail = self._tail(role, control.then, everyone)
        if tail.owner is not None:
            raise Unsure("J5", "some tasks arrive, and an owner waits for them", missing="`if last`")
        return replace(tail, some=control, before=body[:-1])

    def _tail(self, role: Role, body: Body, everyone: int) -> Tail:
        control = body[-1] if body else None
        if isinstance(control, If) and control.last is not None:
            self.at = control
            joins = self._meeting(control.last)
            if not joins_whole(joins, role, everyone):
                raise Refused("J5", f"{joins.args[1][1]} threads meet before they arrive: not the agent's own", {})
            return Tail(body[:-1], control.last.counter, control.last.of, control.then, control, joins)
        if len(body) < 3 or not isinstance(control, If) or len(control.then) < 2 or control.orelse or control.cond:
            raise Unsure("J3", "an arrival that is not the end of a task", missing="`if last`, or the owner's wait")
        joins, arrival, wait, again = body[-3], body[-2], control.then[0], control.then[1]
        self.at = arrival if isinstance(arrival, Stmt) else None
        for stmt, kind in ((arrival, ADD), (wait, WAIT)):
            if not isinstance(stmt, Sync) or stmt.kind != kind or stmt.by != "elect" or stmt.object is None:
                raise Unsure("J3", "an arrival and a wait", missing=f"{kind} of one thread")
        assert isinstance(arrival, Sync) and isinstance(wait, Sync) and arrival.object is not None
        for stmt in (joins, again):
            if not isinstance(stmt, Sync) or stmt.kind != "barrier.sync" or not joins_whole(stmt, role, everyone):
                stored = [t for t, _, writes in touches_of(body[: len(body) - 2]) if writes]
                reason = f"the threads of {role.name} are not joined where one of them counts for all"
                raise Refused("J2", reason, {}, partner=stored[-1] if stored else None)
        assert isinstance(joins, Sync)
        if wait.object != arrival.object:
            raise Unsure("J3", "a wait for another counter than the arrival's", missing="the counter's own word")
        of = dict(wait.args)["count"]
        return Tail(body[:-2], arrival.object, of, control.then[2:], control, joins, tuple(control.conds))

    def _meeting(self, last: Last) -> Sync:
        return Sync(kind="barrier.sync", args=(("id", last.id), ("threads", const(last.threads))))

    def _counted(self, role: Role, tasks: Tasks, tail: Tail) -> tuple[str, ...]:
        """The variables that tell a counter's words apart: a word counts one arrival for each value of the others."""
        ranges = dict(zip(tasks.vars, tasks.counts))
        if role.agents > 1:
            if role.index is None:
                raise Unsure("J3", f"nothing tells the agents of {role.name} apart", missing="an index of the role")
            ranges[role.index] = const(role.agents)
        counter = self._declared(tail.counter)
        kept = tuple(next((v for v in ranges if e == sym(v)), "") for e in tail.counter.index)
        if "" in kept or len(set(kept)) != len(kept):
            raise Unsure("J3", f"the word {tail.counter.index} of {counter.name}", missing="variables of the tasks")
        lets = self.program.host.lets
        for v, extent in zip(kept, counter.shape):
            within = ge(extent.substitute(lets), ranges[v].substitute(lets))
            require(self.facts, within, "J4", f"{counter.name} has no word for every {v}")
        others = tuple(v for v in ranges if v not in kept)
        if tail.some is not None:
            self._computed(role, tasks, tail, kept, others, ranges)
            return tuple(v for v in ranges if v in kept)
        total: Expr = const(1)
        for v in others:
            total = total * ranges[v].substitute(lets)
        of = tail.of.substitute(lets)
        if (of.functions | total.functions) or of.symbols & ranges.keys():
            raise Unsure("J3", f"{of} arrivals", missing="a number that the host knows")
        if not self.facts.equal(of, total):
            require(self.facts, eq(of, total), "J3", f"{counter.name} is waited for until {of}, {total} arrive")
        if not positive(self.facts, total):
            require(self.facts, ge(total, 1), "J3", f"nobody may arrive at {counter.name}, and nobody would go on")
        if tail.owner is not None and role.agents > 1 and role.index in others:
            raise Unsure("J3", "several agents wait for one word", missing="a word for each agent")
        return tuple(v for v in ranges if v in kept)

    def _computed(
        self,
        role: Role,
        tasks: Tasks,
        tail: Tail,
        kept: tuple[str, ...],
        others: tuple[str, ...],
        ranges: dict[str, Expr],
    ) -> None:
        """Of each value of the kept variables so many tasks arrive: those whose other variable is below a number that
        the kept ones tell. `if last` waits for that many, at least one, and there are as many tasks."""
        assert tail.some is not None
        names = {s.name: s.expr for s in role.body[: role.body.index(tasks)] if isinstance(s, Let)}
        for s in tail.before:
            assert isinstance(s, Let)
            names[s.name] = s.expr
        lets = dict(self.program.host.lets)
        for name, e in names.items():
            lets[name] = e.substitute(lets)
        (cond,) = tail.some.conds
        below = cond.expr.substitute(lets)
        if len(others) != 1 or cond.equality or below.coefficient(Sym(others[0])) != -1:
            raise Unsure("J3", f"the tasks that arrive: {cond}", missing="one variable below a number")
        number = below + sym(others[0]) + 1
        of = tail.of.substitute(lets)
        if number.functions or of.functions or others[0] in number.symbols | of.symbols:
            raise Unsure("J3", f"{of} arrivals", missing="a number that the kept variables tell")
        known = self.facts.also(*(c for v in kept for c in _range(v, ranges[v].substitute(lets))))
        if not known.equal(of, number):
            require(known, eq(of, number), "J3", f"{tail.counter.name} is waited for until {of}, {number} arrive")
        require(known, ge(number, 1), "J3", f"nobody may arrive at {tail.counter.name}, and nobody would go on")
        most = ranges[others[0]].substitute(lets)
        require(known, ge(most, number), "J3", f"{number} tasks are to arrive, there may be fewer")

    def _declared(self, ref: MemRef) -> Counter:
        found = next((c for c in self.program.host.counters if c.name == ref.name), None)
        if found is None or len(found.shape) != len(ref.index) or ref.version is not None or ref.rank is not None:
            raise Refused("J3", f"{ref.name} is no counter of {len(ref.index)} axes", {})
        return found

    # ---- an owner that waits

    def _owner(self, tasks: Tasks, tail: Tail, kept: tuple[str, ...]) -> list[Let]:
        """What the variables that are not kept are in the task that goes on."""
        if tail.owner is None:
            return []
        found: list[Let] = []
        for v in (v for v in tasks.vars if v not in kept):
            told = [c.expr for c in tail.owner if c.equality and v in c.expr.symbols]
            ones = [e for e in told if e.coefficient(Sym(v)) in (1, -1)]
            if len(told) != 1 or not ones:
                raise Unsure("J3", f"which {v} waits", missing=f"one equation for {v}")
            value = sym(v) - ones[0] * ones[0].coefficient(Sym(v))
            if value.symbols & set(tasks.vars) - set(kept):
                raise Unsure("J3", f"which {v} waits", missing=f"one equation for {v}")
            found.append(Let(name=v, expr=value))
        if len(tail.owner) != len(found):
            raise Unsure("J3", "the owner is told by other conditions too", missing="one equation a variable")
        return found

    def _progress(self, launch: Launch, tasks: Tasks, tail: Tail, kept: tuple[str, ...]) -> None:
        """*Errors*: refused, J5, where an owner may wait for a task that nobody begins."""
        lets = self.program.host.lets
        counts = {v: c.substitute(lets) for v, c in zip(tasks.vars, tasks.counts)}
        owners = {x.name: x.expr.substitute(lets) for x in self._owner(tasks, tail, kept)}
        self.at = tail.control
        for v, value in owners.items():
            inside = self.facts.also(*(c for k in kept if k in counts for c in _range(k, counts[k])))
            for fact in (ge(value, 0), ge(counts[v] - 1, value)):
                if not self.facts.equal(value, counts[v] - 1):
                    require(inside, fact, "J3", f"no task has {v} = {value}")
        if tasks.over != "tickets" and not launch.cooperative:
            raise Refused("J5", "a task waits for others, which may not begin before its workgroup has ended", {})
        if tasks.over == "grid":
            return  # all tasks have begun
        if tasks.raster != ("row",):
            raise Unsure("J5", f"a wait among tasks in the order {tasks.raster}", missing="tasks in rows")
        for v, value in owners.items():
            if not self.facts.equal(value, counts[v] - 1):
                case = self.facts.also(*(c for k in kept if k in counts for c in _range(k, counts[k])))
                reason = f"the task that waits is not the last of its kind: its workgroup may run {v} = {counts[v] - 1}"
                require(case, ge(value, counts[v] - 1), "J5", reason)

    # ---- what the two parts touch

    def _separate(self, kernel: Kernel, role: Role, tasks: Tasks, tail: Tail) -> None:
        """*Errors*: where first parts and a part may meet in memory or registers, but for what a part is to read."""
        self._plain(kernel, tail.part)
        outside = [s for r in kernel.roles for s in _all_but(r.body, tail.part) if isinstance(s, Stmt)]
        both = set[str]().union(*map(_named, walk(tail.part)))
        for s in outside:
            self.at = s
            mixed = both & _named(s) & {f.name for f in kernel.frags}
            if mixed:
                raise Unsure("J1", f"{min(mixed)} is of both parts of a task", missing="fragments of its own")
        reads, writes = _touched(tail.part)
        first = [(s, ref, w) for s in outside for ref, w in _accesses(s)]
        for s, ref, stores in first:
            self.at = s
            for name in writes:
                if self._may_meet(name, ref.name):
                    reason = f"{name} is stored where all have arrived, and {ref.name} is touched before"
                    raise Unsure("J2", reason, missing="memory of its own")
            for name in reads if stores else ():
                if not self._may_meet(name, ref.name):
                    continue
                if name != ref.name or name not in {b.name for b in self.program.host.workspace}:
                    raise Unsure("J2", f"{name} is read where all have arrived", missing="partial results in workspace")
                if isinstance(s, Copy) or not any(s is x for x in walk(role.body)):
                    reason = f"{name} is stored by an engine or another role"
                    raise Unsure("J2", reason, missing="stores of the threads that arrive")
                if not any(s is x for x in walk(tasks.body)):
                    raise Refused("J2", f"{name} is stored outside the tasks that arrive", {})
        self.at = None

    def _may_meet(self, a: str, b: str) -> bool:
        tensors = {t.name for t in self.program.program.tensors}
        if a in tensors and b in tensors:
            return a == b or self.source.meet(a, b) != "never"
        return a == b

    def _plain(self, kernel: Kernel, part: Body) -> None:
        """The part is loads, arithmetic and stores."""
        own = {b.name for b in kernel.buffers}
        for s in walk(part):
            self.at = s
            if isinstance(s, Tasks) or (isinstance(s, If) and s.last is not None):
                raise Unsure("J3", "tasks where all have arrived", missing="loops and conditions")
            if isinstance(s, Copy) or (isinstance(s, Mma) and s.atom.split(".")[0] in ASYNC_ATOMS):
                raise Unsure("J2", "work of engines where all have arrived", missing="loads and stores of threads")
            if isinstance(s, Sync) and s.kind not in ("prefetch", "fence.gpu"):
                raise Unsure("J5", f"{s.kind} where all have arrived", missing="threads that need no others")
            if isinstance(s, Advance):  # the role goes on behind the part: in one workgroup with other numbers
                raise Unsure("J3", f"{s.counter} moves on where all have arrived", missing="a step in every task")
            if isinstance(s, Stmt) and any(ref.name in own or ref.rank is not None for ref, _ in _accesses(s)):
                raise Unsure("J2", "memory of the workgroup where all have arrived", missing="registers and workspace")


def _counts(stmt: Stmt | Control) -> bool:
    """Whether a statement speaks of a counter."""
    return (isinstance(stmt, Sync) and stmt.kind in (ADD, WAIT)) or (isinstance(stmt, If) and stmt.last is not None)


def _range(name: str, count: Expr) -> tuple[Constraint, Constraint]:
    return ge(sym(name), 0), ge(count - 1, sym(name))


def _accesses(stmt: Stmt) -> Iterator[tuple[MemRef, bool]]:
    yield from accesses(stmt)
    if isinstance(stmt, Compute):
        yield from ((a, False) for a in stmt.args if isinstance(a, MemRef))


def _named(stmt: Stmt | Control) -> set[str]:
    """Fragments that a statement names."""
    found = {name for e in expressions(stmt) for name in e.functions}
    found |= {n for n in (getattr(stmt, "dst", None), getattr(stmt, "old", None)) if isinstance(n, str)}
    refs = [getattr(stmt, n, None) for n in ("src", "acc", "a", "b", "mask")]
    args: tuple[object, ...] = stmt.args if isinstance(stmt, Compute) else ()
    found |= {ref.name for ref in (*refs, *args) if isinstance(ref, FragRef)}
    return found | ({stmt.cond} if isinstance(stmt, If) and stmt.cond is not None else set())


def _touched(body: Body) -> tuple[set[str], set[str]]:
    """Memory that a body reads and writes."""
    reads: set[str] = set()
    writes: set[str] = set()
    for s in walk(body):
        for ref, stores in _accesses(s) if isinstance(s, Stmt) else ():
            (writes if stores else reads).add(ref.name)
    return reads, writes


def _all_but(body: Body, part: Body) -> Iterator[Stmt | Control]:
    """Statements of a body that do not stand in one of its bodies."""
    inside = {id(s) for s in walk(part)}
    return (s for s in walk(body) if id(s) not in inside)
