"""CUDA kernels: shapes of launches and roles, distributions of fragments, named barriers, places in shared memory (J4,
J5), and which of its parts an agent keeps to (J2). What its threads do to shared memory between barriers: `between`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from treadle.algebra.expr import Atom, Expr, Floor, Fn, Max, Min, Sym, const, ge, of, sym
from treadle.algebra.sets import Facts
from treadle.checker.meetings import check_unmet, meets_within
from treadle.checker.pairs import named
from treadle.checker.registers import check_registers
from treadle.checker.threads import expressions
from treadle.checker.verdict import Finding, Refused, Unsure, require
from treadle.hardware.memory_model import find_ordering
from treadle.hardware.targets import Target
from treadle.machine.form import (
    Body,
    Buffer,
    Compute,
    Copy,
    Frag,
    If,
    Kernel,
    Launch,
    Let,
    Load,
    Loop,
    MachineProgram,
    MemRef,
    Mma,
    Mode,
    Role,
    Stmt,
    Store,
    Sync,
    Tasks,
    walk,
)

BY_WORKGROUPS = ("persistent", "grid", "clusters", "tickets")
"""Pools whose tasks a workgroup has to itself, or shares with the others of its cluster."""
TICKET_BYTES = 64
"""Shared memory, beside what the text names, through which the threads of a workgroup learn the number drawn."""


def check_kernel(program: MachineProgram, kernel: Kernel, launch: Launch, target: Target, facts: Facts) -> None:
    """What declarations and the launch decide. *Errors*: findings of J4, J5 and J7."""
    threads = sum(r.agents * r.threads for r in kernel.roles)
    if launch.threads != threads or not 1 <= threads <= target.threads_a_workgroup:
        raise Refused("J7", f"{kernel.name} has {threads} threads, the launch {launch.threads}", {"threads": threads})
    grid = launch.grid.substitute(program.host.lets)
    if not positive(facts, grid):
        require(facts, ge(grid, 1), "J7", f"the grid of {kernel.name} may be empty")
    check_registers(kernel, launch, target)
    _words(kernel, target)
    _shared(kernel, launch, target)
    _named(kernel, threads, target)
    for role in kernel.roles:
        for s in walk(role.body):
            if isinstance(s, Tasks) and s.over == "grid":
                total: Expr = Expr(()) + 1
                for count in s.counts:
                    total = total * count.substitute(program.host.lets)
                grid = launch.grid.substitute(program.host.lets)
                if not facts.equal(grid, total):
                    raise Refused("J7", f"a grid of {grid} for {total} tasks, one each", facts.sample() or {})
        _role(kernel, role, launch, target, facts, program.host.lets)
        _grains(role)


def _words(kernel: Kernel, target: Target) -> None:
    """The target has every synchronisation, engine and asynchronous product."""
    for s in (s for role in kernel.roles for s in walk(role.body)):
        words: tuple[str, ...] = ()
        if isinstance(s, Sync):
            words = (s.kind,)
        elif isinstance(s, Copy):
            words = (s.engine,)
        elif isinstance(s, Mma):
            words = (s.atom.split(".")[0],)
        elif isinstance(s, Store) and s.signal is not None:
            words = ("st.async",)
        for word in words:
            row = find_ordering(word, target.kind)
            if row is not None and row.since and _age(target.name) < _age(row.since):
                raise Unsure("J7", f"{word} on {target.name}", missing=row.since)


def _age(architecture: str) -> int:
    return int("".join(c for c in architecture if c.isdigit()))


def positive(facts: Facts, e: Expr) -> bool:
    """Whether an extent is at least 1, products of such included."""
    if facts.implies(ge(e, 1)):
        return True
    if len(e.terms) != 1 or e.terms[0][1] < 1 or not e.terms[0][0]:
        return False
    return all(_positive_atom(facts, a) for a in e.terms[0][0])


def _positive_atom(facts: Facts, atom: Atom) -> bool:
    match atom:
        case Min(args):
            return all(positive(facts, a) for a in args)
        case Max(args):
            return any(positive(facts, a) for a in args)
        case _:
            return facts.implies(ge(of(atom), 1))


def divides(facts: Facts, by: Expr) -> bool:
    """Whether a divisor is positive, where the facts hold: a task below a product says so of its factors."""
    if positive(facts, by):
        return True
    atoms = by.terms[0][0] if len(by.terms) == 1 and by.terms[0][1] > 0 else ()
    return bool(atoms) and all(_positive_atom(facts, a) or (isinstance(a, Sym) and _never(facts, a)) for a in atoms)


def _never(facts: Facts, a: Sym) -> bool:
    """Whether a number that is not negative is never 0: the facts, with 0 for it, contradict one another."""
    if not facts.implies(ge(of(a), 0)):
        return False
    told = [c for c in facts.all() if not any(isinstance(x, Floor) for x in c.expr.atoms())]
    return Facts(c.substitute({a.name: const(0)}) for c in told).contradictory


def _role(kernel: Kernel, role: Role, launch: Launch, target: Target, facts: Facts, lets: Mapping[str, Expr]) -> None:
    tasks = [s for s in role.body if isinstance(s, Tasks)]
    nested = [s for s in walk(role.body) if isinstance(s, Tasks)]
    if launch.cooperative and meets_within(kernel):
        tasks = nested  # apart in time (`meetings`)
    elif len(nested) != len(tasks) or len(tasks) > 1:
        reason = f"{kernel.name}: several task nests in one launch are not ordered"
        check_unmet(kernel, role, launch, tasks, facts, lets, reason)
        raise Unsure("J2", reason, missing="one launch each")
    if not tasks:
        if launch.grid.constant != 1 or launch.threads != 1:
            raise Refused("J2", f"{kernel.name} has no tasks: every thread would execute it", {})
        return
    if len({t.over in BY_WORKGROUPS or t.over for t in tasks}) > 1:
        raise Unsure("J5", f"{role.name} has tasks of workgroups and of threads", missing="one kind of tasks")
    over = tasks[0].over
    thread_agents = over == "threads"
    if over == "warps" and role.threads != target.warp:
        raise Refused("J5", f"tasks over warps by agents of {role.threads} threads", {})
    if over in BY_WORKGROUPS and role.agents != 1 and len(kernel.roles) == 1:
        raise Unsure("J5", "several agents share each task", missing="a rule for one role of several agents")
    if over not in ("threads", "warps", *BY_WORKGROUPS) or (over == "clusters" and launch.cluster == 1):
        raise Refused("J5", f"tasks over {over} on a GPU", {})
    if over in ("threads", "warps") and len(kernel.roles) > 1:
        raise Unsure("J5", f"tasks over {over} beside other roles", missing="one role")
    if over != "threads" and role.threads % target.warp:
        raise Refused("J5", f"an agent of {role.threads} threads is no number of warps", {"threads": role.threads})
    if over in BY_WORKGROUPS and role.agents > 1 and role.index is None:
        raise Unsure("J1", f"{role.name}: nothing tells its agents apart", missing="an index of the role")
    before = sum(r.agents * r.threads for r in kernel.roles[: kernel.roles.index(role)])
    grouped = any(
        (isinstance(s, Mma) and s.atom.startswith("wgmma")) or (isinstance(s, Sync) and s.kind == "setmaxnreg")
        for s in walk(role.body)
    )
    if grouped and (before % 128 or role.threads % 128):
        raise Refused("J5", f"the agents of {role.name} are no warpgroups", {"threads": role.threads, "before": before})
    _outside(role)
    used = fragments_of(role.body)
    for frag in kernel.frags:
        if frag.name in used:
            try:
                check_distribution(frag, 1 if thread_agents else role.threads)
            except Finding as no:
                no.at = next(s for s in walk(role.body) if getattr(s, "dst", None) == frag.name)
                raise
    for b in kernel.buffers:
        if b.place == "shared" and over not in BY_WORKGROUPS:
            raise Unsure("J2", f"{b.name} is shared by the tasks of a workgroup", missing="a rule for several agents")
        if b.place == "local" and not thread_agents:
            raise Unsure("J4", f"{b.name} is local to an agent of several threads", missing="shared memory for it")


def _outside(role: Role) -> None:
    """Beside its tasks, every workgroup of the launch executes the body: memory is written by tasks only."""
    inside = {id(s) for t in walk(role.body) if isinstance(t, Tasks) for s in walk(t.body)}
    for s in walk(role.body):
        if isinstance(s, Store | Copy) and id(s) not in inside:
            raise Refused("J2", f"{role.name} writes {s.dst.name} outside its tasks: every workgroup does", {}, at=s)


def _named(kernel: Kernel, everyone: int, target: Target) -> None:
    """Named barriers: 0 joins everyone; each role's own number, one an agent, is nobody else's."""
    between = handed(kernel)
    taken: dict[int, tuple[str, str, Sync]] = {}
    for s in (s for role in kernel.roles for s in walk(role.body) if between and isinstance(s, Sync)):
        n = dict(s.args)["id"].constant if s.kind in ("barrier.sync", "barrier.arrive") else None
        if n in between:  # no agent's own: `handover` has looked who comes there
            taken.setdefault(n, ("", "", s))
    for role in kernel.roles:
        for s in walk(role.body):
            if not isinstance(s, Sync) or s.kind not in ("barrier.sync", "barrier.arrive"):
                continue
            number = dict(s.args)["id"]
            try:
                own = _own_numbers(kernel, role, s, everyone, target, between)
            except Finding as no:
                no.at = s
                raise
            for n in own:
                of = taken.setdefault(n, (role.name, str(number), s))
                if of[:2] != (role.name, str(number)):
                    raise Refused("J5", f"barrier {n} joins different threads", {"id": n}, at=s, partner=of[2])


def _own_numbers(
    kernel: Kernel, role: Role, s: Sync, everyone: int, target: Target, between: frozenset[int]
) -> Iterable[int]:
    """The numbers that a meeting takes for the role's agents; those of hand-overs are their own."""
    args = dict(s.args)
    number, threads = args["id"], args["threads"].constant
    if (threads or 1) % target.warp:
        raise Refused("J5", f"barrier {number} joins {threads} threads, no number of warps", {})
    if number.constant is not None and number.constant in between:  # `handover` has looked
        if not 1 <= number.constant < target.named_barriers:
            raise Refused("J5", f"roles hand over at barrier {number}", {})
        return ()
    if s.kind == "barrier.arrive":
        raise Unsure("J5", f"an arrival at the named barrier {number}", missing="a number")
    apart = {t.over for t in walk(role.body) if isinstance(t, Tasks)} & {"threads", "warps"}
    if "threads" in apart or ("warps" in apart and threads != role.threads):
        raise Refused("J5", f"{role.name}: tasks that run apart join at a barrier", {"threads": threads or 0})
    if "warps" in apart and number.constant is not None and role.agents > 1:
        raise Refused("J5", f"{role.name}: warps that run apart join at barrier {number}", {})
    if threads == everyone and (len(kernel.roles) > 1 or role.agents > 1 or number.constant == 0):
        if number.constant != 0:
            raise Refused("J5", f"everyone joins at barrier {number}, not at 0", {})
        return ()
    if threads != role.threads:
        reason = f"barrier {number} joins {threads} threads, an agent has {role.threads}"
        raise Refused("J5", reason, {"threads": threads or 0})
    base = own_base(number, role)
    if base is None or base < 1 or base + role.agents > target.named_barriers:
        raise Refused("J5", f"{role.name}: barrier {number} is not the agent's own", {})
    return range(base, base + role.agents)


def handed(kernel: Kernel) -> frozenset[int]:
    """Numbers of the named barriers at which roles hand over to one another: some only arrive, or threads of several
    roles meet, those of all at another barrier than 0."""
    found: set[int] = set()
    users: dict[int, set[str]] = {}
    everyone = sum(r.agents * r.threads for r in kernel.roles)
    for role in kernel.roles:
        for s in walk(role.body):
            if isinstance(s, Sync) and s.kind in ("barrier.sync", "barrier.arrive"):
                number, threads = (dict(s.args)[n].constant for n in ("id", "threads"))
                apart = s.kind == "barrier.arrive" or threads not in (role.threads, everyone if number == 0 else None)
                if number is not None:
                    users.setdefault(number, set()).add(role.name)
                if number is not None and apart:
                    found.add(number)
    return frozenset(n for n in found if len(users[n]) > 1)


def own_base(number: Expr, role: Role) -> int | None:
    """The number of the first agent's own barrier, where every agent has one."""
    if role.index is not None:
        base = (number - sym(role.index)).constant
        if base is not None:
            return base
    return number.constant if role.agents == 1 else None


def _grains(role: Role) -> None:
    """Synchronisation is by whom its row says."""
    for s in walk(role.body):
        row = find_ordering(s.kind, "cuda") if isinstance(s, Sync) else None
        if isinstance(s, Sync) and row is not None and s.by not in row.grains:
            raise Refused(
                "J5", f"{s.kind} by {s.by or 'all'!r}: it is for {' or '.join(map(repr, row.grains))}", {}, at=s
            )


def fragments_of(body: Body) -> set[str]:
    """Names of fragments that a body assigns or stores."""
    found: set[str] = set()
    for s in walk(body):
        dst = getattr(s, "dst", None)
        if isinstance(dst, str):
            found.add(dst)
    return found


def check_distribution(frag: Frag, threads: int) -> None:
    """Every element is held, and the digits name the threads there are. *Errors*: refused, J5."""
    if not frag.dist:
        if threads > 1 and frag.shape:
            raise Unsure("J5", f"{frag.name} is held by {threads} threads", missing="its distribution")
        return
    for axis, extent in enumerate(frag.shape):
        reached = 1
        for mode in sorted((m for m in frag.dist if m.axis == axis), key=lambda m: m.stride):
            if mode.stride != reached:
                raise Refused(
                    "J5", f"{frag.name}: the digits along axis {axis} leave elements out", {"stride": mode.stride}
                )
            reached *= mode.size
        if reached != extent:
            raise Refused(
                "J5", f"{frag.name}: the digits along axis {axis} reach {reached} of {extent}", {"axis": axis}
            )
    lanes, warps = (_count(frag.dist, who) for who in ("lane", "warp"))
    wanted = (min(threads, 32), max(1, threads // 32))
    if (lanes, warps) != wanted:
        raise Refused(
            "J5", f"{frag.name} lies on {warps} x {lanes} threads, its agent has {threads}", {"threads": threads}
        )


def _count(dist: tuple[Mode, ...], who: str) -> int:
    total = 1
    for mode in dist:
        if mode.who == who:
            total *= mode.size
    return total


def replicated(frag: Frag, grain: str) -> bool:
    """Whether one lane of each warp ("warp"), or one thread ("elect"), holds all that the others of the grain hold."""
    who = ("lane",) if grain == "warp" else ("lane", "warp")
    return all(m.axis is None for m in frag.dist if m.who in who)


def _shared(kernel: Kernel, launch: Launch, target: Target) -> None:
    """Places in shared memory: inside what the launch asks for, and no two over one another."""
    spans: list[tuple[int, int, str]] = []
    base = max((b.align for b in kernel.buffers if b.place == "shared"), default=1)  # where the memory begins
    for b in kernel.buffers:
        if b.place != "shared":
            continue
        odd = b.dtype.packed and (b.shape[-1].constant if b.shape else None) not in range(0, 1 << 20, 2)
        size = b.size.constant
        if size is None or odd or any(e.constant is None for e in b.shape):
            raise Unsure("J4", f"{b.name} has the shape {b.shape}", missing="numbers")
        start = None if b.offset is None else b.offset.constant
        if start is None:
            raise Unsure("J4", f"{b.name} has no place in shared memory", missing="an offset")
        if start < 0 or start % b.align or (b.swizzle and (start | base) % (8 * b.swizzle)):
            raise Refused("J4", f"{b.name} at byte {start} is not aligned", {"byte": start})
        spans.append((start, start + size, b.name))
    spans += [(b.offset, b.offset + 8 * b.versions, b.name) for b in kernel.barriers]
    for b in kernel.barriers:
        if b.versions < 1 or b.count < 1:
            raise Refused("J4", f"{b.name} has {b.versions} slots and counts {b.count}", {"count": b.count})
        if b.offset % 8:
            raise Refused("J4", f"{b.name} at byte {b.offset} is not aligned", {"byte": b.offset})
    spans.sort()
    for (_, end, name), (start, _, other) in zip(spans, spans[1:]):
        if start < end:
            bodies = [role.body for role in kernel.roles]
            one, two = (next((s for b in bodies if (s := named(b, n)) is not None), None) for n in (name, other))
            raise Refused("J4", f"{name} and {other} overlap in shared memory", {"byte": start}, at=one, partner=two)
    last = max((end for _, end, _ in spans), default=0)
    drawn = any(isinstance(s, Tasks) and s.over == "tickets" for r in kernel.roles for s in walk(r.body))
    if drawn and launch.shared_bytes + TICKET_BYTES > target.shared_bytes:
        raise Refused("J4", f"no {TICKET_BYTES} bytes of shared memory are left for tickets", {"bytes": last})
    if last > launch.shared_bytes or launch.shared_bytes > target.shared_bytes:
        raise Refused(
            "J4",
            f"{last} bytes of shared memory, the launch has {launch.shared_bytes} of {target.shared_bytes}",
            {"bytes": last},
        )


def joins_whole(stmt: Sync, role: Role, everyone: int) -> bool:
    """Whether a barrier joins all threads that execute this role's agent."""
    args = dict(stmt.args)
    threads = args["threads"].constant
    return threads == everyone or (threads == role.threads and own_base(args["id"], role) is not None)


def accesses(stmt: Stmt) -> Iterator[tuple[MemRef, bool]]:
    """Memory that a statement touches, and whether it writes it."""
    if isinstance(stmt, Load):
        yield stmt.src, False
    elif isinstance(stmt, Store):
        yield stmt.dst, True
    elif isinstance(stmt, Copy):
        yield stmt.src, False
        yield stmt.dst, True
    elif isinstance(stmt, Mma):
        for x in (stmt.a, stmt.b):
            if isinstance(x, MemRef):
                yield x, False


def check_parts(kernel: Kernel, guarded: frozenset[str], workspace: tuple[Buffer, ...]) -> object:
    """Agents that run side by side keep to parts of shared memory of their own: an index that is the agent's number.
    Workspace that changes is one role's (that its agents keep apart there is seen where they store), by its threads.

    Returns the statement in question, for a finding that the caller raises; None if all is well.
    """
    shared = {b.name for b in kernel.buffers if b.place == "shared"} - guarded
    owners: dict[str, set[tuple[str, int]]] = {}
    users: dict[str, str] = {}
    # Of workspace that this launch only reads, earlier launches made what all agents find.
    stmts = (s for role in kernel.roles for s in walk(role.body) if isinstance(s, Stmt))
    changed = {ref.name for s in stmts for ref, writes in accesses(s) if writes} & {b.name for b in workspace}
    many = len(kernel.roles) > 1 or any(r.agents > 1 for r in kernel.roles)
    for role in kernel.roles:
        if any(isinstance(s, Tasks) and s.over in ("threads", "warps") for s in walk(role.body)):
            continue  # shared memory is refused there, and tasks keep apart in the workspace
        for s in walk(role.body):
            if not isinstance(s, Stmt):
                continue
            for ref, _ in accesses(s):
                if many and ref.name in changed:
                    if isinstance(s, Copy) or users.setdefault(ref.name, role.name) != role.name:
                        return s
                    continue
                if ref.name not in shared:
                    continue
                axis = next((i for i, e in enumerate(ref.index) if role.index and e == sym(role.index)), -1)
                if role.agents > 1 and axis < 0:
                    return s
                owners.setdefault(ref.name, set()).add((role.name, axis if role.agents > 1 else -1))
                if len(owners[ref.name]) > 1:
                    return s
    return None


def uniform(role: Role, frags: dict[str, Frag]) -> None:
    """Loops and `if`s take the same way in all threads of an agent, and what is said to all of them (names, copies,
    synchronisation) is the same for each. *Errors*: unsure, J5."""
    for s in walk(role.body):
        if isinstance(s, Loop | Tasks | If | Let | Copy | Sync):
            for e in expressions(s):
                for name in e.functions:
                    if name in frags and not replicated(frags[name], "elect"):
                        reason = f"control hangs on {name}, which differs from thread to thread"
                        joins = [x for x in walk([s]) if isinstance(x, Sync) and x.kind == "barrier.sync"]
                        case = _divergent(role, s, frags[name]) if isinstance(s, If) and joins else None
                        if case is not None:
                            reason = (
                                f"{reason}: some of them come to barrier {dict(joins[0].args)['id']} and others do not"
                            )
                            raise Refused("J5", reason, case, at=joins[0], partner=s)
                        raise Unsure("J5", reason, missing="a replicated fragment", at=s)


def _divergent(role: Role, control: If, frag: Frag) -> dict[str, int] | None:
    """Two elements of a fragment for which a condition holds and does not: of one that only names its elements."""
    made = [s for s in walk(role.body) if getattr(s, "dst", None) == frag.name or getattr(s, "old", None) == frag.name]
    index = made[0] if len(made) == 1 else None
    if not isinstance(index, Compute) or index.fn != "index" or index.expr is None or len(frag.shape) != 1:
        return None
    if control.cond is not None or control.last is not None:
        return None
    found: dict[bool, int] = {}
    for element in range(min(frag.shape[0], 1024)):
        value = index.expr.substitute({"$0": const(element)})

        def told(atom: Atom, value: Expr = value) -> Expr | None:
            return value if isinstance(atom, Fn) and atom.name == frag.name else None

        values = [(c, c.expr.rewrite(told).constant) for c in control.conds]
        if any(v is None for _, v in values):
            return None
        found.setdefault(all(v == 0 if c.equality else v >= 0 for c, v in values if v is not None), element)
    return {"holds for $0": found[True], "not for $0": found[False]} if len(found) == 2 else None


def touched(stmt: object, name: str) -> bool:
    """Whether a statement accesses that memory."""
    return isinstance(stmt, Stmt) and any(ref.name == name for ref, _ in accesses(stmt))
