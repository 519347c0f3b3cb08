"""`check`: the verdict on a machine program.

The embedded program is the specification. Host facts first (J7), then each launch's roles statement by statement (J1 to
J6), then what only the whole shows: every source store covered exactly once, conflicting accesses in order.
"""

from __future__ import annotations

import time
from dataclasses import replace

from treadle.algebra.expr import Constraint, Expr, Floor, const, eq, ge, of, sym
from treadle.algebra.sets import Facts, SetError, fresh_budget
from treadle.base.errors import InternalError
from treadle.checker.between import Between
from treadle.checker.boxed import Boxed
from treadle.checker.chunks import Chunks
from treadle.checker.clusters import Clusters
from treadle.checker.compare import Compare
from treadle.checker.control import Walk
from treadle.checker.counters import Counters
from treadle.checker.coverage import Coverage
from treadle.checker.cuts import Range
from treadle.checker.dependent import Dependent
from treadle.checker.engines import Engines
from treadle.checker.folds import Folds
from treadle.checker.gangs import MEETING as GANG_MEETING
from treadle.checker.gangs import Gang, is_gang
from treadle.checker.gpu import check_parts, touched, uniform
from treadle.checker.handover import Handover
from treadle.checker.host import check_host
from treadle.checker.inflight import InFlight, check_staging
from treadle.checker.meetings import meets_within
from treadle.checker.order import Accesses
from treadle.checker.passed import Passed
from treadle.checker.peers import MEETING as CLUSTER_MEETING
from treadle.checker.peers import Apart, Peers
from treadle.checker.permissions import check_permissions
from treadle.checker.phases import Phases
from treadle.checker.reuse import Reuse
from treadle.checker.rings import Rings
from treadle.checker.scatter import Scatters
from treadle.checker.sends import Sends
from treadle.checker.sequence import check_sequence
from treadle.checker.source import Source
from treadle.checker.state import Frame, Place
from treadle.checker.statements import Statements
from treadle.checker.storage import Contents
from treadle.checker.threads import Locality
from treadle.checker.turns import check_turns, erased
from treadle.checker.verdict import Finding, Partner, Refused, Spent, Unsure, Verdict
from treadle.checker.webgpu import of_webgpu
from treadle.hardware.targets import Target, find_target
from treadle.ir.core import Program
from treadle.ir.expand import expand
from treadle.ir.ops.debug import Check, Print
from treadle.ir.printer import print_program
from treadle.ir.verifier import verify
from treadle.machine.form import (
    Buffer,
    Control,
    Copy,
    Kernel,
    Launch,
    MachineProgram,
    Role,
    Stmt,
    Store,
    Tasks,
    walk,
)
from treadle.machine.text import head_text, statement_text
from treadle.machine.verify import form_problems
from treadle.machine.vocabulary import RANK

_BROKEN = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    SetError,
)


def check(program: MachineProgram) -> Verdict:
    """The verdict, for all sizes that the guard admits.

    *Ensures*: `verified` only if for every valuation of the guard every execution ends with exactly the stores that the
    source allows; `rejected` carries a case; everything that no rule covers is `unknown` and names what is missing.
    """
    begun = time.perf_counter()
    fresh_budget()
    whole = program.captured or program.program
    malformed = _malformed(whole)
    if malformed is not None:
        return Verdict("rejected", "J1", reason=malformed)
    meant = expand(whole)
    if meant is not whole or program.captured is not None:
        if program.captured is not None and print_program(meant) != print_program(program.program):
            return Verdict("rejected", "J7", reason="the program that statements speak of is not the embedded one")
        program = replace(program, program=meant, captured=None)
    numbers = {id(s): i for i, s in enumerate(program.statements())}
    spent, written = Spent(), program
    try:
        program = of_webgpu(program, numbers)
    except Finding as no:
        return Verdict(no.status, no.judgement, None, None, no.reason, no.counterexample or None, no.missing)
    judge = Judge(program, numbers, spent)
    try:
        judge.run()
        wrong = form_problems(program)
        if wrong:
            raise Refused("J1", f"the form is wrong: {wrong[0]}", {})
    except _BROKEN as broken:  # a text that no rule foresaw: nothing can be said
        at = judge.walk.at
        reason = f"the judge could not go on: {type(broken).__name__}: {broken}"
        number = None if at is None else numbers.get(id(at))
        return Verdict(
            "unknown", "J1", number, None, reason, None, "a well-formed program", time.perf_counter() - begun
        )
    except Finding as no:
        at = no.at if isinstance(no.at, Stmt | Control) and id(no.at) in numbers else judge.walk.at
        return Verdict(
            no.status,
            no.judgement,
            None if at is None else numbers.get(id(at)),
            None if at is None else at.origin,
            no.reason,
            no.counterexample or None,
            no.missing,
            time.perf_counter() - begun,
            partner=_partner(no, numbers, written, None if at is None else numbers.get(id(at))),
        )
    return Verdict("verified", seconds=time.perf_counter() - begun, permissions=tuple(sorted(spent.names)))


def _partner(no: Finding, numbers: dict[int, int], program: MachineProgram, at: int | None) -> Partner | None:
    """The statement of the other access, where the finding has one and the text holds it."""
    stmt = no.partner
    if isinstance(stmt, str):
        stmt = _writing(stmt, program, numbers, at)
    number = numbers.get(id(stmt))
    if number is None or not isinstance(stmt, Stmt | Control):
        return None
    said = next(s for i, s in enumerate(program.statements()) if i == number)  # as written: rules rewrite some
    return Partner(number, statement_text(said).split(" ; ")[0] if isinstance(said, Stmt) else head_text(said))


def _writing(name: str, program: MachineProgram, numbers: dict[int, int], at: int | None) -> Stmt | None:
    """The statement that stores to this memory: the last one before a statement, else the first one behind it."""
    found: dict[int, Stmt] = {}
    shared = {b.name for b in program.host.workspace} | {t.name for t in program.program.tensors}
    for kernel in program.kernels:
        body = [s for role in kernel.roles for s in walk(role.body)]
        if name in shared or at is None or any(numbers.get(id(s)) == at for s in body):
            found |= {
                numbers[id(s)]: s
                for s in body
                if isinstance(s, Store | Copy) and s.dst.name == name and id(s) in numbers
            }
    before = [n for n in found if at is None or n < at]
    return found[max(before)] if before else found[min(found)] if found else None


def _malformed(source: Program) -> str | None:
    """What is wrong with the form of the embedded program, or None. Of a malformed one (two values of one name, an
    intrinsic named like a function, a result of another type) nothing that the judge reads would be what it means."""
    try:
        verify(source)
    except InternalError as no:
        return f"the embedded program is malformed ({no.code}): {no.found}; expected {no.expected}"
    except _BROKEN as broken:
        return f"the embedded program is malformed: {type(broken).__name__}: {broken}"
    return None


class Judge:
    """One judgement."""

    def __init__(self, program: MachineProgram, numbers: dict[int, int], spent: Spent) -> None:
        self.whole = program
        self.cluster = 1
        self.program = program = erased(program, numbers)
        self.source = Source(program.program, program.guard)
        self.compare = Compare(self.source)
        self.facts = Facts(base_facts(program))
        self.source.numbers = self.facts.known
        self.coverage = Coverage(self.source, self.facts)
        self.accesses = Accesses(self.source, self.facts, cuda=program.target.startswith("cuda"))
        self.known = frozenset(
            {
                s
                for d in [*program.program.dims, *(d for t in program.program.tensors for d in t.dims)]
                for s in d.extent.symbols
            }
            | program.program.lets.keys()
        )
        self.walk = Walk(self.coverage, self.accesses, numbers)
        folds = Folds(self.compare, spent)
        self.walk.statements = Statements(folds, spent, self.walk.stored, self.walk.loaded)
        self.walk.statements.scatters = Scatters(self.source, self.compare, self.coverage)
        self.walk.statements.position = lambda: self.walk.position
        if program.target.startswith("cuda"):
            self.walk.engines = Engines(self.walk.statements, program)
            self.walk.chunks = Chunks(self.walk.engines)

    def run(self) -> None:
        """*Errors*: findings."""
        target = find_target(self.program.target)
        if target is None:
            raise Unsure("J7", f"the target {self.program.target}", missing="a row of the hardware table")
        self.source.one_name_each()
        self._launches(target)
        check_host(self.program, self.source, self.facts, target)
        told = next((op for op in self.source.ops if isinstance(op, Print | Check)), None)
        if told is not None:
            raise Unsure("J1", f"the source has a {told.keyword}", missing="a rule for what a program shows or tests")
        workspace = {b.name: b for b in self.program.host.workspace}
        contents = {n: Contents(shape=self._extents(b)) for n, b in workspace.items()}
        for number, launch in enumerate(self.program.host.launches):
            kernel = next(k for k in self.program.kernels if k.name == launch.kernel)
            self.accesses.launch = number
            if launch.grid.constant == 1 and launch.threads == 1:
                self.accesses.single.add(number)
            if meets_within(kernel):
                self.accesses.met.add(number)
            kernel = self._of_cluster(kernel, launch.cluster)
            place = self._place(kernel, workspace, contents)
            self.cluster = launch.cluster
            rings = self._protocols(kernel, target) if target.kind == "cuda" else self._gang(kernel, launch)
            self.walk.rings, self.walk.published = rings, {}
            if self.walk.chunks is not None and rings is not None:
                self.walk.chunks.rings = rings.of_buffer
            for role in self._in_order(kernel, rings):
                self.walk.role = self.accesses.role = role.name
                mine = self._agents(place, role)
                self.walk.body(mine, role.body)
                if mine is not place:
                    self._left(place, mine, role)
            contents = {b: place.contents[b] for b in workspace}
        self.walk.at = None
        check_permissions(self.program, self.walk.statements.spent)
        self.coverage.check()
        for number, op in enumerate(self.source.stores):
            check_sequence(self.source, op, self.coverage.events.get(number, []), self.facts)
        try:
            self.accesses.check()
        except Finding:
            self.walk.at = self.accesses.at if isinstance(self.accesses.at, Stmt | Control) else None
            raise

    def _launches(self, target: Target) -> None:
        """Dependent launches wait; those whose workgroups count or meet are taken apart."""
        kernels = {k.name: k for k in self.program.kernels}
        phases = Phases(self.program, self.facts)
        dependent = Dependent(target, self.facts, self.program.host.lets)
        counters = Counters(self.program, self.source, self.facts)
        try:
            before: Kernel | None = None
            for launch in self.program.host.launches:
                kernel = kernels.get(launch.kernel)
                if kernel is not None:
                    dependent.check(launch, kernel, before)
                before = kernel
            if target.kind == "cuda":
                self.program = phases.program = counters.unfolded()
                self.whole = Counters(self.whole, self.source, self.facts).unfolded()
            self.walk.meanwhile = counters.meanwhile
            self.program = phases.unfolded()
            self.whole = Phases(self.whole, self.facts).unfolded()
        except Finding:
            self.walk.at = dependent.at or counters.at or phases.at
            raise

    def _of_cluster(self, kernel: Kernel, size: int) -> Kernel:
        """The kernel with memory of the whole cluster where threads reach other workgroups."""
        judge: Peers | Sends = Sends(kernel, size, self.facts, self.walk.numbers)
        try:
            kernel = judge.unfolded()
            judge = peers = Peers(kernel, size, self.walk.numbers)
            kernel = peers.unfolded()
        except Finding:
            self.walk.at = judge.at if isinstance(judge.at, Stmt | Control) else None
            raise
        self.walk.meeting, self.walk.member, self.walk.members = CLUSTER_MEETING, RANK, size
        self.walk.shared = peers.names
        return kernel

    def _gang(self, kernel: Kernel, launch: Launch) -> None:
        """Workers of a CPU that run tasks together."""
        self.walk.meeting, self.walk.shared = "", frozenset()
        if not is_gang(kernel):
            return
        gang = Gang(kernel, launch, self.source, tuple(self.program.host.workspace))
        try:
            gang.check()
        except Finding:
            self.walk.at = gang.at if isinstance(gang.at, Stmt | Control) else None
            raise
        (role,) = kernel.roles
        self.walk.meeting, self.walk.member, self.walk.members = GANG_MEETING, role.index or "", role.agents
        self.walk.shared = frozenset(b.name for b in kernel.buffers if b.place == "shared")
        self.accesses.cuda = True  # workers side by side: a text's order is no order of theirs

    def _protocols(self, kernel: Kernel, target: Target) -> Rings:
        """Rings, operations in flight, uniform control, barriers between accesses of several threads to memory."""
        everyone = sum(r.agents * r.threads for r in kernel.roles)
        lets = (eq(sym(name), e) for name, e in self.program.host.lets.items())
        rings = Rings(kernel, self.facts.also(*lets), cluster=self.cluster)
        clusters = Clusters(kernel, self.cluster, self.walk.shared, rings.facts)
        handover = self.walk.handover = Handover(kernel, rings, self.walk.shared)
        passed = self.walk.passed = Passed(kernel, self.walk.shared)
        judge: Handover | Passed | Rings | Clusters | InFlight | Between | Boxed | Locality | Reuse = rings
        try:
            judge = clusters
            clusters.check(self.source, self.program.host.workspace)
            judge = rings
            rings.check()
            check_turns(next(k for k in self.whole.kernels if k.name == kernel.name), rings, target.named_barriers)
            workspace = tuple(self.program.host.workspace)
            rings.at = None
            judge = handover
            handover.check()
            judge = passed
            passed.check()
            judge = rings
            shared = check_parts(kernel, frozenset(rings.of_buffer) | handover.buffers | passed.buffers, workspace)
            if shared is not None:
                rings.at = shared if isinstance(shared, Stmt) else None
                raise Unsure(
                    "J2", "agents side by side touch one memory", missing="an index that is the agent's number"
                )
            for role in kernel.roles:
                judge = held = Locality(kernel, role)
                held.run()
                judge = rings
                uniform(role, {f.name: f for f in kernel.frags})
                judge = flight = InFlight(kernel, role, rings)
                flight.check()
                judge = rings
                staged = check_staging(kernel, role, rings) | rings.of_buffer.keys()
                loose = next((b.name for b in kernel.buffers if b.versions and b.name not in staged), None)
                if loose is not None and any(touched(s, loose) for s in walk(role.body)):
                    raise Unsure("J2", f"{loose} has versions and no protocol", missing="a ring or staging slots")
                known = self._index_facts(role, rings.facts)
                guarded = self.walk.shared.union(rings.of_buffer)
                judge = reuse = Reuse(kernel, role, known, everyone, guarded)
                apart = rings.of_buffer.keys() | reuse.run()
                judge = between = Between(kernel, role, self.source, everyone, workspace, frozenset(apart), known)
                between.run()
                judge = between = Apart(kernel, role, self.source, everyone, facts=known, names=self.walk.shared)
                between.run()
                judge = boxed = Boxed(kernel, role, everyone)
                boxed.run()
        except Finding:
            self.walk.at = judge.at if isinstance(judge.at, Stmt | Control) else None
            raise
        return rings

    def _index_facts(self, role: Role, facts: Facts) -> Facts:
        """The facts, and which numbers the agents of a role have."""
        facts = facts.also(*Range(RANK, const(0), const(self.cluster)).inside)
        if role.index is None:
            return facts
        return facts.also(*Range(role.index, const(0), const(role.agents)).inside)

    def _in_order(self, kernel: Kernel, rings: Rings | None) -> list[Role]:
        """Roles that fill rings before those that read them: not an order of execution, but of what is known."""
        level = {r.name: 0 for r in kernel.roles}
        level |= {} if rings is None else {name: 1 for name, _ in rings.taken}
        found = [x for x in (self.walk.handover, self.walk.passed) if rings is not None and x is not None]
        given = [(x.writer[n], reader) for x in found for n, readers in x.readers.items() for reader in readers]
        if given:
            for _ in kernel.roles:
                for writer, reader in given:
                    if writer != reader:
                        level[reader] = min(len(level), max(level[reader], level[writer] + 1))
        return sorted(kernel.roles, key=lambda r: level[r.name])

    def _agents(self, place: Place, role: Role) -> Place:
        """A role's own view: its index and counters, and that each of its agents executes the body."""
        # No expression may mention a counter: it changes, a symbol does not. Rings compare their texts.
        names = [role.index] if role.index else []
        facts = place.facts.also(*(ge(sym(c), 0) for c in role.counters))
        frames = place.frames
        if role.index is not None:
            r = Range(role.index, const(0), const(role.agents))
            facts = facts.also(*r.inside)
            frames = (*frames, Frame(Control(), (r,), agents=role.agents))
        if self.cluster > 1:
            r = Range(RANK, const(0), const(self.cluster))
            facts = facts.also(*r.inside)
            frames = (*frames, Frame(Control(), (r,), agents=self.cluster))
            names.append(RANK)
        elif len(place.kernel.roles) == 1 and role.index is None:
            return place  # what it leaves in the workspace is kept
        inner = place.inner(facts=facts, frames=frames, known=place.knowing(names), holds={})
        self._apart(inner, role)
        return inner

    def _executing(self, role: Role) -> tuple[tuple[str, int], ...]:
        """What tells those apart that execute a role: its agents (a lone one's number means nothing outside
        either), the workgroups of a cluster."""
        agents = ((role.index, role.agents),) if role.index is not None else ()
        return (*agents, *(((RANK, self.cluster),) if self.cluster > 1 else ()))

    def _apart(self, place: Place, role: Role) -> None:
        """What others that execute the role store in the workspace, in any task, this one may not touch."""
        who = self._executing(role)
        if all(count == 1 for _, count in who):
            return
        all_ = Tasks(vars=tuple(n for n, _ in who), counts=tuple(const(n) for _, n in who), over="", body=role.body)
        workspace = {b.name for b in self.program.host.workspace}
        for name, written in self.walk.collector(place, workspace).tasks(all_, True):
            contents = place.contents[name]
            place.contents[name] = replace(contents, elsewhere=(*contents.elsewhere, written))

    def _left(self, place: Place, mine: Place, role: Role) -> None:
        """What the agents of a role leave in the workspace, which no other role touches then (`check_parts`)."""
        stored = {s.dst.name for s in walk(role.body) if isinstance(s, Store)}
        for name in stored & {b.name for b in self.program.host.workspace}:
            contents = replace(mine.contents[name], elsewhere=place.contents[name].elsewhere)
            for index, count in self._executing(role):
                contents = contents.by_all(index, count)
            place.contents[name] = contents

    def _extents(self, buffer: Buffer) -> tuple[Expr, ...]:
        return tuple(e.substitute(self.program.host.lets) for e in buffer.shape)

    def _place(self, kernel: Kernel, workspace: dict[str, Buffer], contents: dict[str, Contents]) -> Place:
        target = find_target(self.program.target)
        assert target is not None
        buffers = {b.name: b for b in kernel.buffers} | workspace
        return Place(
            self.source,
            self.compare,
            target,
            kernel,
            self.facts,
            {f.name: f for f in kernel.frags},
            buffers,
            lets=dict(self.program.host.lets),
            known=self.known,
            contents={
                name: contents.get(
                    name, Contents(shape=self._extents(b)).forgotten(f"{name} is undefined at the start")
                )
                for name, b in buffers.items()
            },
        )


def base_facts(program: MachineProgram) -> list[Constraint]:
    """What holds of sizes: extents are not negative, lets and requirements of the source have values, and the guard."""
    source: Program = program.program
    facts: list[Constraint] = []
    seen: set[Expr] = set()
    for dim in [*source.dims, *(d for t in source.tensors for d in t.dims)]:
        if dim.extent not in seen and dim.extent.constant is None:
            seen.add(dim.extent)
            facts.append(ge(dim.extent, 0))
    facts += [eq(sym(name), e) for name, e in source.lets.items()]
    facts += source.requires
    # A call computes these first; where one divides by 0, it is a mistake and nothing is launched. It may divide by a
    # negative number: what is no extent, or sum of extents, the guard has to say.
    first = [*source.lets.values(), *(c.expr for c in source.requires)]
    by = [a.den for e in first for a in e.atoms() if isinstance(a, Floor) and a.den.constant is None]
    facts += [ge(e, 1) for e in by if all(c >= 0 and all(of(a) in seen for a in m) for m, c in e.terms)]
    facts += list(program.guard.constraints())
    return facts
