"""Rows through shared memory: what a workgroup's threads read and wrote themselves, copy engines bring and take.

A machine program of persistent tasks whose rows are held whole is rewritten. Each load of a task's own row becomes a
ring: a producer of one warp goes through the same tasks and has the engine fill the next free slot with the row, as one
run of bytes without a tensor map; the consumer waits for its slot, takes the row into registers, and gives the slot
back once all its threads have their elements. So the next rows are on their way while one is computed. Each store of a
row is written to a slot of a staging ring and leaves as a run; the slot is free again when the engine has read it.
Everything between stays as it was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from treadle.algebra.expr import Constraint, Expr, const, ge, sym
from treadle.dtype.formats import DType
from treadle.ir.core import Tensor
from treadle.ir.guard import Aligned, Bound, Divisible, Guard, Pitch, Unit
from treadle.machine.form import (
    Advance,
    Barrier,
    Body,
    Buffer,
    Claim,
    Copy,
    Kernel,
    Load,
    MachineProgram,
    MemRef,
    Role,
    Stmt,
    Store,
    StoreClaim,
    Sync,
    Tasks,
    Version,
    walk,
)
from treadle.realise.choices import NotLowered
from treadle.realise.ring import phase
from treadle.realise.threads import lay_out

CHUNK = 16
"""Bytes that an engine moves as one: runs begin and end at multiples of it, boxes at such innermost coordinates."""

PRODUCER = 32
"""Threads of the role that fills slots: one of them does the work."""


@dataclass(frozen=True)
class Channels:
    """Slots of the ring before each row that is read, and of the one behind each that is stored; 0: by threads.
    `tickets`: a workgroup draws its next task when it is ready for it."""

    slots: int = 2
    stages: int = 1
    tickets: bool = False


@dataclass(frozen=True)
class Run:
    """A row as a run of bytes: the tensor, its contiguous axis, the fragment's width, how many elements there are."""

    tensor: Tensor
    axis: int
    width: int
    length: Expr
    where: tuple[Constraint, ...]

    def index(self, index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """An index of the row's statement, in the coordinates of the box."""
        return tuple(e.substitute({"$0": sym(f"${self.axis}")}) for e in index)

    @property
    def box(self) -> tuple[int, ...]:
        """One element along every axis but one."""
        return tuple(self.width if a == self.axis else 1 for a in range(len(self.tensor.dims)))

    @property
    def conditions(self) -> tuple[Constraint, ...]:
        """Which elements of the box there are."""
        return tuple(c.substitute({"$0": sym(f"${self.axis}")}) for c in self.where)


class Channelling:
    """The rewriting of one kernel."""

    def __init__(self, machine: MachineProgram, kernel: Kernel, channels: Channels) -> None:
        self.machine, self.kernel, self.channels = machine, kernel, channels
        self.worker = kernel.roles[0]
        self.everyone = self.worker.threads + PRODUCER
        self.names = {f.name for f in kernel.frags} | {b.name for b in kernel.buffers}
        self.stored = {s.dst.name for s in machine.statements() if isinstance(s, Store)}
        self.frags = {f.name: f for f in kernel.frags}
        self.buffers: list[Buffer] = []
        self.barriers: list[Barrier] = []
        self.takes: list[str] = []
        self.leaves: list[str] = []
        self.fills: Body = []

    def fresh(self, hint: str) -> str:
        """A name that nothing else has."""
        name, number = hint, 1
        while name in self.names:
            number += 1
            name = f"{hint}_{number}"
        self.names.add(name)
        return name

    # ---- which accesses are runs

    def run(self, fragment: str, ref: MemRef, where: tuple[Constraint, ...], tasks: Tasks) -> Run | None:
        """The access as a run of the task's own, where the guard says all that an engine wants."""
        tensor = next((t for t in self.machine.program.tensors if t.name == ref.name), None)
        shape = self.frags[fragment].shape
        if tensor is None or len(shape) != 1 or len(ref.index) != len(tensor.dims) or tensor.dtype.bits % 8:
            return None
        guard, count = self.machine.guard, CHUNK // tensor.dtype.itemsize
        units = {f.axis for f in guard.facts if isinstance(f, Unit) and f.tensor == tensor.name}
        if len(units) != 1 or not reachable(guard, tensor, units, count):
            return None
        axis = units.pop()
        start = ref.index[axis] - sym("$0")
        others = [e for a, e in enumerate(ref.index) if a != axis]
        mine = any(v in e.symbols for e in others for v in tasks.vars)
        if not mine or any("$0" in e.symbols or e.functions for e in (*others, start)):
            return None
        if any(c % count for _, c in start.terms) or shape[0] % count:
            return None
        length = const(shape[0])
        if where:
            length = where[0].expr + sym("$0") + 1
            if len(where) != 1 or where[0].equality or "$0" in length.symbols or length.functions:
                return None
            if not whole_chunks(guard, length, count):
                return None
        return Run(tensor, axis, shape[0], length, where)

    # ---- the two roles

    def rewritten(self, tasks: Tasks) -> Kernel | None:
        """The kernel with its channels; None where it has no row for one."""
        body: Body = []
        if self.channels.tickets:
            tasks = replace(tasks, over="tickets")
        for stmt in tasks.body:
            run = None
            if isinstance(stmt, Load) and self.channels.slots and stmt.src.name not in self.stored:
                run = self.run(stmt.dst, stmt.src, stmt.where, tasks)
                body += [stmt] if run is None else self.taken(stmt, run, tasks)
            elif isinstance(stmt, Store) and self.channels.stages and plain(stmt):
                run = self.run(stmt.src.name, stmt.dst, stmt.where, tasks)
                claim = None if run is None else self.held(stmt.src.name, tasks.body)
                body += [stmt] if run is None or claim is None else self.left(stmt, run, claim)
            else:
                body.append(stmt)
        if not self.takes:
            return None
        consumer = replace(
            self.worker,
            name="consumer",
            body=[self.meet(), replace(tasks, body=joined_apart(body)), *self.ended()],
            counters=(*self.takes, *self.leaves),
        )
        filling: Body = [*self.prepared(), replace(tasks, body=self.fills)]
        producer = Role("producer", 1, PRODUCER, filling, counters=tuple(self.takes))
        own = [b for b in self.kernel.buffers if b.place == "shared"]
        kernel = Kernel(self.kernel.name, [producer, consumer], self.kernel.frags, [*own, *self.buffers], self.barriers)
        return kernel

    def meet(self) -> Sync:
        """Both roles, once barriers are set up."""
        return Sync(kind="barrier.sync", args=(("id", const(0)), ("threads", const(self.everyone))))

    def prepared(self) -> Body:
        """Barriers set up by the producer, before the consumer goes on."""
        body: Body = [Sync(kind="mbar.init", object=MemRef(b.name, ()), by="elect") for b in self.barriers]
        return [*body, Sync(kind="fence.mbar_init", by="elect"), self.meet()]

    def ended(self) -> Body:
        """What is on its way out at the end."""
        return [Sync(kind="bulk.wait", args=(("depth", const(0)),), by="elect")] if self.leaves else []

    def own(self) -> Sync:
        """The consumer's threads."""
        return Sync(kind="barrier.sync", args=(("id", const(1)), ("threads", const(self.worker.threads))))

    def slot(self, hint: str, dtype: DType, width: int, versions: int) -> str:
        """A ring of rows in shared memory."""
        name = self.fresh(hint)
        self.buffers.append(Buffer(name, dtype, (const(width),), "shared", 128, versions))
        return name

    def taken(self, load: Load, run: Run, tasks: Tasks) -> Body:
        """A load through a ring: the producer's step goes to `fills`, the consumer's is returned."""
        del tasks
        versions = self.channels.slots
        buffer = self.slot(f"in_{run.tensor.name}", run.tensor.dtype, run.width, versions)
        full, empty = (self.fresh(f"{word}_{run.tensor.name}") for word in ("full", "empty"))
        self.barriers.append(Barrier(full, 1, versions, True))
        self.barriers.append(Barrier(empty, 1, versions))
        counter = self.fresh(f"at_{run.tensor.name}")
        self.takes.append(counter)
        number = sym(counter)
        at = {b: MemRef(b, (), number) for b in (full, empty)}
        claim = load.claim
        assert isinstance(claim, Claim)
        free = (("phase", phase(counter, versions, 1)),)
        told = (("bytes", run.length * run.tensor.dtype.itemsize),)
        self.fills += [
            Sync(kind="mbar.wait", object=at[empty], args=free, by="elect"),
            Sync(
                kind="mbar.expect",
                object=at[full],
                args=told,
                by="elect",
            ),
            Version(buffer=buffer, claim=claim),
            Copy(
                engine="bulk.load",
                dst=MemRef(buffer, (sym(f"${run.axis}"),), number),
                src=MemRef(run.tensor.name, run.index(load.src.index)),
                box=run.box,
                where=run.conditions,
                signal=at[full],
                by="elect",
                origin=load.origin,
            ),
            Advance(counter=counter),
        ]
        return [
            Sync(kind="mbar.wait", object=at[full], args=(("phase", phase(counter, versions, 0)),)),
            replace(load, src=MemRef(buffer, (sym("$0"),), number), tags=()),
            # The values are in registers when the fence is passed: only then may the engine write over them.
            Sync(kind="fence.proxy.async"),
            self.own(),
            Sync(kind="mbar.arrive", object=at[empty], by="elect"),
            Advance(counter=counter),
        ]

    def held(self, fragment: str, body: Body) -> Claim | None:
        """What the last assignment of a fragment says it holds."""
        found = [s for s in walk(body) if isinstance(s, Stmt) and getattr(s, "dst", None) == fragment]
        claim = found[-1].claim if found else None
        return claim if isinstance(claim, Claim) else None

    def left(self, store: Store, run: Run, claim: Claim) -> Body:
        """A store through a staging ring."""
        versions = self.channels.stages
        buffer = self.slot(f"out_{run.tensor.name}", run.tensor.dtype, run.width, versions)
        counter = self.fresh(f"left_{run.tensor.name}")
        self.leaves.append(counter)
        stored = store.claim
        assert isinstance(stored, StoreClaim)
        free = (("depth", const(versions - 1)), ("read", const(1)))
        return [
            Sync(kind="bulk.wait", args=free, by="elect"),
            self.own(),
            Version(buffer=buffer, claim=claim),
            replace(store, dst=MemRef(buffer, (sym("$0"),), sym(counter)), claim=claim),
            Sync(kind="fence.proxy.async"),
            self.own(),
            Copy(
                engine="bulk.store",
                dst=MemRef(run.tensor.name, run.index(store.dst.index)),
                src=MemRef(buffer, (sym(f"${run.axis}"),), sym(counter)),
                box=run.box,
                where=run.conditions,
                by="elect",
                origin=store.origin,
                claim=replace(stored, coords=run.index(stored.coords)),
            ),
            Sync(kind="bulk.commit", by="elect"),
            Advance(counter=counter),
        ]


def plain(store: Store) -> bool:
    """Whether a store sets elements, and does nothing else."""
    return store.effect == "set" and store.mask is None and store.old is None and store.src.coords is None


def reachable(guard: Guard, tensor: Tensor, units: set[int], count: int) -> bool:
    """Whether rows of a tensor begin at multiples of 16 bytes."""
    aligned = any(isinstance(f, Aligned) and f.tensor == tensor.name and f.bytes % CHUNK == 0 for f in guard.facts)
    pitched = {f.axis for f in guard.facts if isinstance(f, Pitch) and f.tensor == tensor.name and f.by % count == 0}
    return aligned and pitched | units >= set(range(len(tensor.dims)))


def whole_chunks(guard: Guard, length: Expr, count: int) -> bool:
    """Whether a run has a length that an engine can move: some chunks, and nothing beside them."""
    if length.constant is not None:
        return length.constant > 0 and length.constant % count == 0
    some = any(isinstance(f, Bound) and f.constraint == ge(length, 1) for f in guard.facts)
    return some and any(isinstance(f, Divisible) and f.expr == length and f.by % count == 0 for f in guard.facts)


def joined_apart(body: Body) -> Body:
    """The consumer's own barrier where the workgroup's was."""
    changed: Body = []
    for stmt in body:
        if isinstance(stmt, Sync) and stmt.kind == "barrier.sync":
            stmt = replace(stmt, args=(("id", const(1)), *(a for a in stmt.args if a[0] != "id")))
        changed.append(stmt)
    return changed


def through_channels(machine: MachineProgram, channels: Channels) -> MachineProgram:
    """The machine program with its rows brought and taken by copy engines.

    *Errors*: `realise/unsupported` where no kernel has a row of that kind.
    """
    kernels: list[Kernel] = []
    launches = list(machine.host.launches)
    found = False
    for kernel in machine.kernels:
        role = kernel.roles[0]
        tasks = role.body[0] if len(role.body) == 1 else None
        made = None
        if isinstance(tasks, Tasks) and tasks.over == "persistent" and len(kernel.roles) == 1 and role.agents == 1:
            made = Channelling(machine, kernel, channels).rewritten(tasks)
        kernels.append(kernel if made is None else made)
        if made is not None:
            found = True
            shared = lay_out(made)
            threads = sum(r.agents * r.threads for r in made.roles)
            launches = [
                replace(x, threads=threads, shared_bytes=shared) if x.kernel == kernel.name else x for x in launches
            ]
    if not found:
        raise NotLowered(
            doing=f"bringing the rows of {machine.program.name} by copy engines",
            found="no row of a task that is one run of 16-byte chunks",
            expected="rows that lie side by side, at aligned addresses, held whole",
            hint="threads can load and store them",
        )
    return replace(machine, host=replace(machine.host, launches=launches), kernels=kernels)


__all__ = ["Channels", "through_channels"]
