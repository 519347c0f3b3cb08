"""J2, J3 and J5 of clusters: workgroups that run together and reach one another's shared memory.

The shape that is proved. Every thread of a cluster begins at the cluster's barrier, behind the set-up of the phased
barriers, and ends at it: so whoever touches another workgroup's memory finds that it has begun, that its barriers are
set up, and that it has not ended. All workgroups of a cluster run the same tasks; nothing that steers a ring, or a
barrier of the cluster, hangs on the number of the workgroup or on what it has read: they go through the same steps.

A ring is *shared* if boxes of it go to all workgroups at once. Its step n is filled in each workgroup by the producers
of all of them, slice by slice, and each one's `full` counts the bytes of all slices. So a producer may fill step n once
the consumers of all workgroups have given back step n - slots: they arrive at every workgroup's `empty`, which counts
them all. No wait is for ever: of the earliest step that is not filled somewhere, every producer finds all consumers
behind step n - slots, as in `rings`, whatever the workgroup.

An arrival at another workgroup's barrier is emitted with the scope of a workgroup. It is good for what is over when the
thread arrives (values that have come, products waited for: `inflight` holds that), and publishes nothing. Threads that
read or write another workgroup's memory themselves: `peers`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import permutations

from treadle.algebra.expr import Constraint, Expr, const, eq, lt, sym
from treadle.algebra.sets import Facts, is_opaque
from treadle.checker.gpu import accesses
from treadle.checker.pairs import executed
from treadle.checker.source import Source
from treadle.checker.steps import kind, lets_of
from treadle.checker.verdict import Refused, Unsure
from treadle.hardware.targets import Target
from treadle.machine.form import (
    Body,
    Buffer,
    Copy,
    If,
    Kernel,
    Launch,
    Loop,
    MemRef,
    Role,
    Stmt,
    Store,
    Sync,
    Tasks,
    nested,
    walk,
)
from treadle.machine.vocabulary import RANK

MOST = 8
"""Workgroups of a cluster that every device takes. *Source*: CUDA C++ Programming Guide 13.0, Thread Block Clusters."""

TAG = "turn"
LANDED = "sends.landed"
"""Stands for a wait until what others sent to this workgroup has come (`sends`); no word of a text."""
FAREWELL = ("cluster.arrive", "cluster.wait")


def check_launch(kernel: Kernel, launch: Launch, target: Target, facts: Facts, lets: Mapping[str, Expr]) -> None:
    """What a launch in clusters needs. *Errors*: findings of J5 and J7."""
    size = launch.cluster
    if size == 1:
        return
    if not 1 < size <= min(MOST, target.cluster):
        raise Unsure("J7", f"clusters of {size} workgroups", missing=f"at most {min(MOST, target.cluster)}")
    if launch.cooperative:
        raise Unsure("J5", f"{kernel.name} is launched in clusters and cooperatively", missing="a rule for both")
    grid = launch.grid.substitute(lets)
    if not facts.equal(grid % size, Expr(())):
        raise Refused("J7", f"a grid of {grid} workgroups in clusters of {size}", facts.sample() or {})
    for role in kernel.roles:
        for s in walk(role.body):
            if isinstance(s, Tasks) and s.over != "clusters":
                raise Unsure("J2", f"tasks over {s.over} in clusters", missing="tasks over clusters")


def without_farewell(body: Body) -> Body:
    """A role's body without the cluster's barrier at its end."""
    return body[:-2] if tuple(kind(s) for s in body[-2:]) == FAREWELL else body


def everyone(size: int) -> int:
    """The set of all workgroups of a cluster, a bit each."""
    return (1 << size) - 1


class Clusters:
    """The rules of a kernel in clusters of `size`. `at` is the statement in question when a finding is raised."""

    def __init__(self, kernel: Kernel, size: int, far: frozenset[str], facts: Facts) -> None:
        self.kernel, self.size, self.facts = kernel, size, facts
        self.at: object = None
        self.far = far  # memory of the whole cluster (`peers`)

    def check(self, source: Source, workspace: Iterable[Buffer]) -> None:
        """*Errors*: findings of J2 and J5."""
        if self.size == 1:
            return
        rooms = {b.name for b in workspace}
        every = [s for role in self.kernel.roles for s in walk(role.body)]
        used = {ref.name for s in every if isinstance(s, Stmt) for ref, writes in reached(s) if not writes}
        for s in every:
            self.at = s
            changed = {ref.name for ref, writes in accesses(s) if writes} if isinstance(s, Stmt) else set[str]()
            # Of workspace each workgroup stores elements of its own (`judge`), which later launches find.
            only = used if isinstance(s, Store) and s.effect == "set" else rooms
            if changed & ((rooms & only) | source.loaded):
                raise Unsure("J2", f"{min(changed)} is written in clusters", missing="memory that is only written")
            if isinstance(s, Sync) and TAG in s.tags:
                raise Unsure("J5", "turns in clusters", missing="a rule for both")
        for role in self.kernel.roles:
            self._ends(role)
            self._alike(role)

    def _ends(self, role: Role) -> None:
        """The cluster's barrier stands at the beginning, at the end, and between them, an arrival with its wait. (All
        roles meet as often: `rings`.)"""
        body, alone = role.body, len(self.kernel.roles) == 1 and role.agents == 1
        self.at = last = body[-1] if body else None
        # Without phased barriers, none is reached but by loads and stores: behind a meeting that ends each task, too.
        each = (
            alone and not self.kernel.barriers and isinstance(last, Tasks) and without_farewell(last.body) != last.body
        )
        if without_farewell(body) is body and not each:
            reason = f"{role.name} may end while others of the cluster reach its workgroup's memory"
            raise Refused("J2", reason, {}, at=last, partner=self._reaching(role, *self.kernel.roles))
        begin = next((i for i, s in enumerate(body) if kind(s) == "cluster.arrive"), 0)
        welcome = tuple(kind(s) for s in body[begin : begin + 2])
        if welcome != FAREWELL or begin + (2 if each else 3) >= len(body):
            reason = f"{role.name} does not meet the cluster before and behind its work"
            reaching = self._reaching(role, *self.kernel.roles)
            raise Refused("J2", reason, {}, at=reaching, partner=self._own(reaching))
        edge = {id(s) for s in (*body[begin : begin + 2], *(() if each else body[-2:]))}
        for before, s, behind in neighbours(body):
            self.at = s
            if kind(s) not in FAREWELL or id(s) in edge:
                continue
            if (kind(s), kind(behind)) != FAREWELL and (kind(before), kind(s)) != FAREWELL:
                raise Unsure("J5", f"{kind(s)} alone", missing="an arrival and the wait behind it")

    def _reaching(self, *roles: Role) -> Stmt | None:
        """A statement that reaches another workgroup: its memory or its barriers."""

        def reaches(s: object) -> bool:
            if isinstance(s, Sync):
                return s.object is not None and s.object.rank is not None
            if isinstance(s, Copy) and s.multicast:
                return True
            # Of memory that is the whole cluster's (`peers`), the first axis is the workgroup's number.
            refs = reached(s) if isinstance(s, Stmt) else ()
            return any(ref.rank is not None or (ref.name in self.far and ref.index[0] != sym(RANK)) for ref, _ in refs)

        return next((s for role in roles for s in walk(role.body) if isinstance(s, Stmt) and reaches(s)), None)

    def _own(self, reaching: Stmt | None) -> Stmt | None:
        """What the workgroup that is reached does first with that memory, or with its barriers: it sets them up."""
        if reaching is None:
            return None
        names = {ref.name for ref, _ in reached(reaching)}
        every = [s for role in self.kernel.roles for s in walk(role.body) if isinstance(s, Stmt) and s is not reaching]
        init = next((s for s in every if kind(s) == "mbar.init"), None)
        mine = [s for s in every if any(ref.name in names for ref, _ in reached(s))]
        here = next((s for s in mine if all(r.index[0] == sym(RANK) for r, _ in reached(s) if r.name in names)), None)
        return init or here or next(iter(mine), None)

    def _ways(self, role: Role, s: Loop | Tasks | If) -> dict[str, int] | None:
        """A case in which two workgroups of the cluster go different ways, and one of them alone comes to what reaches
        all of them, or comes there more often."""
        if not isinstance(s, Loop | If) or getattr(s, "cond", None) or getattr(s, "last", None):
            return None
        if isinstance(s, If) and any(self._concerns(x) for x in walk(s.orelse)):
            return None
        lets, local = lets_of(role), self._local(role)
        bounds = [e.substitute(lets) for e in ((s.lo, s.hi) if isinstance(s, Loop) else (c.expr for c in s.conds))]
        if any(e.symbols & local for e in bounds) or self._elsewhere(role, s):
            return None
        body = s.body if isinstance(s, Loop) else s.then
        for common in (x for x in (body if isinstance(s, Loop) else walk(body)) if _for_all(x)):
            for rank, other in permutations(range(self.size), 2):
                here = executed(role, common, {RANK: const(rank)})
                if here is None:
                    continue
                known = self.facts.also(*here)
                if isinstance(s, If):
                    tried = [(known, c.substitute(lets).substitute({RANK: const(other)})) for c in s.conds]
                else:
                    tried = self._as_often(role, s, known, rank, other)
                for facts, fact in tried:
                    case = None if fact.expr.functions or "cta" in fact.expr.symbols else facts.against(fact)
                    if case is not None and not is_opaque(case):
                        return {**case, RANK: rank}
        return None

    def _local(self, role: Role) -> set[str | None]:
        """What has another value in another agent or iteration."""
        controls = [x for x in walk(role.body) if isinstance(x, Loop | Tasks)]
        inside = {v for x in controls for v in ((x.var,) if isinstance(x, Loop) else x.vars)}
        return {role.index, *role.counters, *inside}

    def _elsewhere(self, role: Role, s: Loop | If) -> bool:
        """Whether what reaches all workgroups also stands in other controls that tell them apart: another workgroup may
        come to it there instead."""
        inside = {id(x) for x in walk([s])}
        others = (x for x in walk(role.body) if isinstance(x, Loop | Tasks | If) and id(x) not in inside)
        lets = lets_of(role)
        for x in others:
            common = any(_for_all(y) and id(y) not in inside for y in walk([x]))
            told = [] if not isinstance(x, If) else [c.expr for c in x.conds]
            told += [x.lo, x.hi, x.step] if isinstance(x, Loop) else []
            told += x.counts if isinstance(x, Tasks) else []
            apart = any({RANK, "cta"} & e.substitute(lets).symbols or e.functions for e in told)
            if common and (apart or getattr(x, "cond", None)):
                return True
        return False

    def _as_often(self, role: Role, loop: Loop, known: Facts, rank: int, other: int) -> list[tuple[Facts, Constraint]]:
        """What is so if one workgroup goes through a loop that it comes to as often as another one, all in all."""
        lo, hi = (e.substitute(lets_of(role)) for e in (loop.lo, loop.hi))
        if not loop.step.constant:
            return []
        mine, yours = ([e.substitute({RANK: const(n)}) for e in (lo, hi)] for n in (rank, other))
        some = lt(yours[0], yours[1])
        trips = ((b - a + (loop.step - 1)) // loop.step for a, b in (mine, yours))
        return [(known, some), (known.also(some), eq(*trips))]

    def _alike(self, role: Role) -> None:
        """Controls around what concerns the whole cluster are the same in all of its workgroups."""
        lets = lets_of(role)
        for s in walk(role.body):
            bounds: Iterable[Expr] = ()
            if isinstance(s, Loop):
                bounds = (s.lo, s.hi, s.step)
            elif isinstance(s, Tasks):
                bounds = s.counts
            elif isinstance(s, If):
                bounds = tuple(c.expr for c in s.conds)
            else:
                continue
            if not any(self._concerns(x) for x in walk([s])):
                continue
            self.at = s
            told = [e.substitute(lets) for e in bounds]
            if any(RANK in e.symbols or "cta" in e.symbols or e.functions for e in told) or getattr(s, "cond", None):
                concerned = next(x for x in walk([s]) if isinstance(x, Stmt) and self._concerns(x))
                reason, case = "what concerns the cluster hangs on one workgroup", self._ways(role, s)
                if case is not None:
                    raise Refused("J5", reason, case, partner=concerned)
                raise Unsure("J5", reason, missing="controls that are the same in all", partner=concerned)

    def _concerns(self, s: object) -> bool:
        """Whether a statement waits for, fills or reaches other workgroups, or their memory."""
        if isinstance(s, Sync):
            return s.kind in FAREWELL or s.kind.startswith("mbar.") or s.kind in ("cpasync.arrive", LANDED)
        if isinstance(s, Copy):
            return s.signal is not None
        return isinstance(s, Stmt) and any(ref.name in self.far or ref.rank is not None for ref, _ in reached(s))


def _for_all(s: object) -> bool:
    """Whether all workgroups of the cluster have to do with a statement, wherever it is executed."""
    if isinstance(s, Sync):
        return s.kind in FAREWELL or (s.object is not None and s.object.rank == "all")
    return isinstance(s, Copy) and bool(s.multicast)


def neighbours(body: Body) -> Iterable[tuple[object, object, object]]:
    """Every statement with those before and behind it in its body."""
    for inner in nested(body):
        yield from zip([None, *inner], inner, [*inner[1:], None], strict=False)


def reached(stmt: Stmt) -> Iterable[tuple[MemRef, bool]]:
    """Memory that a statement touches, operands of computations included, and whether it writes it."""
    yield from accesses(stmt)
    for x in getattr(stmt, "args", ()):
        if isinstance(x, MemRef):
            yield x, False


def far_buffers(kernel: Kernel) -> frozenset[str]:
    """Buffers that some statement reaches in another workgroup."""
    stmts = (s for role in kernel.roles for s in walk(role.body) if isinstance(s, Stmt) and not isinstance(s, Sync))
    return frozenset(ref.name for s in stmts for ref, _ in reached(s) if ref.rank is not None)
