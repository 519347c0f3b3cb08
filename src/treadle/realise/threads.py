"""From one body to launches: tasks become kernels, what stands between them kernels of one agent.

The lowering engine writes a program as one body: statements executed once, and task nests. A GPU has no body around its
kernels, so each task nest becomes a launch, and so does each stretch of statements between two nests; launches follow
one another in order. A fragment that a later stretch needs is computed again there from what made it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from treadle.algebra.expr import Expr, ceildiv, const, maximum, minimum
from treadle.analysis.uses import Uses
from treadle.ir.core import Program
from treadle.ir.guard import Guard
from treadle.machine.form import (
    Barrier,
    Body,
    Buffer,
    Compute,
    Control,
    Fold,
    FragRef,
    Host,
    If,
    Kernel,
    Launch,
    Load,
    Loop,
    MachineProgram,
    MemRef,
    Mma,
    Role,
    Stmt,
    Store,
    Sync,
    Tasks,
    Version,
    walk,
)
from treadle.realise.chained import chained
from treadle.realise.choices import Choices, NotLowered
from treadle.realise.frame import Frame
from treadle.realise.lanes import Agent, LaneLowering


@dataclass(frozen=True)
class Binding:
    """How tasks are handed out: `over` as in `Tasks`; a workgroup has `agents` agents of `threads` threads; at most
    `workgroups` of them are launched."""

    over: str
    agents: int
    threads: int
    workgroups: int

    @property
    def a_workgroup(self) -> int:
        """Tasks that a workgroup takes in one round."""
        return {"threads": self.agents * self.threads, "warps": self.agents * max(1, self.threads // 32)}.get(
            self.over, self.agents
        )


def one_thread_each(program: Program, choices: Choices, guard: Guard, target: str, workgroups: int) -> MachineProgram:
    """A plan of which every task is one thread's."""
    engine = LaneLowering(program, choices, Uses(program), Agent(), {})
    top = Frame([], block=program.body)
    engine.lower_block(program.body, top)
    return assemble(engine, top.body, guard, target, Binding("threads", 4, 32, workgroups))


def assemble(engine: LaneLowering, body: Body, guard: Guard, target: str, binding: Binding) -> MachineProgram:
    """The machine program of a lowered body."""
    kernels: list[Kernel] = []
    launches: list[Launch] = []
    program = engine.program
    done: Body = []
    for stretch in stretches(body):
        tasks = next((s for s in stretch if isinstance(s, Tasks)), None)
        wanted = again(stretch, done, program)
        done += stretch
        if all(isinstance(s, Version) for s in stretch):
            continue
        name = f"part{len(kernels)}" if len(list(stretches(body))) > 1 else "main"
        if tasks is None:
            role = Role("worker", agents=1, threads=1, body=[*wanted, *stretch])
            launches.append(Launch(name, grid=const(1), threads=1))
        else:
            tasks.over = binding.over
            role = Role("worker", agents=binding.agents, threads=binding.threads, body=[*wanted, *stretch])
            grid = grid_of(tasks, binding, program)
            launches.append(Launch(name, grid=grid, threads=binding.agents * binding.threads))
        kernels.append(trimmed(Kernel(name, [role], list(engine.parts.frags), list(engine.parts.buffers))))
        launches[-1] = replace(launches[-1], shared_bytes=lay_out(kernels[-1]))
    host = Host(dict(program.lets), list(engine.parts.workspace), [], launches)
    return chained(MachineProgram(target, program, guard, host, kernels, engine.choices.numerics))


def grid_of(tasks: Tasks, binding: Binding, program: Program) -> Expr:
    """How many workgroups: enough for one round, at most the binding's; at least one, for a launch needs one."""
    total = const(1)
    for count in tasks.counts:
        total = total * count
    if total.functions or not total.symbols <= host_symbols(program):
        return const(binding.workgroups)
    return maximum(1, minimum(binding.workgroups, ceildiv(total, binding.a_workgroup)))


def host_symbols(program: Program) -> set[str]:
    """Symbols that the host knows."""
    return {s for d in program.dims for s in d.extent.symbols} | set(program.lets)


def stretches(body: Body) -> Iterator[Body]:
    """The body cut at task nests; ghost statements go with what follows them."""
    current: Body = []
    for item in body:
        if isinstance(item, Tasks):
            first = len(current)
            while first and isinstance(current[first - 1], Version):
                first -= 1
            if current[:first]:
                yield current[:first]
            yield [*current[first:], item]
            current = []
        else:
            current.append(item)
    if current:
        yield current


def again(stretch: Body, done: Body, program: Program) -> Body:
    """Copies of the earlier statements that make the fragments which a stretch reads and does not make."""
    missing = fragments_read(stretch) - fragments_made(stretch)
    found: Body = []
    for item in reversed(done):
        made = fragments_made([item])
        if not made & missing:
            continue
        inner = list(walk([item]))
        if any(isinstance(i, Store | Sync | Tasks | Version) for i in inner):
            raise NotLowered(
                doing=f"realising {program.name}",
                found=f"{', '.join(sorted(made & missing))} from statements with effects, needed in a later launch",
                expected="values that can be computed again",
                hint="store it in a tile, or write the regions the other way round",
            )
        found.insert(0, copy.deepcopy(item))
        missing = (missing - made) | (fragments_read([item]) - made)
    return found


def fragments_made(body: Body) -> set[str]:
    """Names of fragments that statements write."""
    return {s.dst for s in walk(body) if isinstance(s, Load | Compute | Fold | Mma)}


def fragments_read(body: Body) -> set[str]:
    """Names that operands and expressions mention (scalar parameters too)."""
    found: set[str] = set()
    for item in walk(body):
        found |= names_read(item)
    return found


def names_read(item: Stmt | Control) -> set[str]:
    """Names that one statement or control mentions as fragments."""
    refs: list[object] = []
    exprs: list[Expr] = []
    match item:
        case Load():
            refs, exprs = [item.src], [w.expr for w in item.where]
        case Store():
            refs, exprs = [item.src, item.dst, item.mask], [w.expr for w in item.where]
        case Compute():
            refs, exprs = list(item.args), [w.expr for w in item.where]
            exprs += [] if item.expr is None else [item.expr]
        case Fold():
            refs = [item.src, item.acc]
        case Mma():
            refs = [item.a, item.b, item.acc]
        case Loop():
            exprs = [item.lo, item.hi, item.step]
        case Tasks():
            exprs = list(item.counts)
        case If():
            exprs = [c.expr for c in item.conds]
            refs = [] if item.cond is None else [FragRef(item.cond)]
        case _:
            pass
    found: set[str] = set()
    for ref in refs:
        if isinstance(ref, FragRef):
            found.add(ref.name)
            exprs += ref.coords or ()
        elif isinstance(ref, MemRef):
            exprs += [*ref.index, *([] if ref.version is None else [ref.version])]
    return found | {name for e in exprs for name in e.functions}


def trimmed(kernel: Kernel) -> Kernel:
    """The kernel with the declarations that it uses."""
    names = {n for role in kernel.roles for n in fragments_read(role.body) | fragments_made(role.body)}
    held = set(mentioned(kernel))
    kernel.frags = [f for f in kernel.frags if f.name in names]
    kernel.buffers = [b for b in kernel.buffers if b.name in held]
    return kernel


def lay_out(kernel: Kernel, start: int = 0) -> int:
    """Places shared buffers and barriers one after the other; gives the bytes that the launch asks for.

    The base of a workgroup's memory is rounded up by the kernel, so the largest alignment is added.
    """
    end, align = start, 1
    placed: list[Buffer] = []
    for buffer in kernel.buffers:
        if buffer.place != "shared":
            placed.append(buffer)
            continue
        size = buffer.size.constant
        assert size is not None
        end = -(-end // buffer.align) * buffer.align
        align = max(align, buffer.align)
        placed.append(replace(buffer, offset=const(end)))
        end += size
    kernel.buffers = placed
    end = -(-end // 8) * 8
    barriers: list[Barrier] = []
    for barrier in kernel.barriers:
        barriers.append(replace(barrier, offset=end))
        end += 8 * barrier.versions
    kernel.barriers = barriers
    return end + align if end else 0


def mentioned(kernel: Kernel) -> Iterable[str]:
    """Names of memory that statements touch."""
    for role in kernel.roles:
        for item in walk(role.body):
            if isinstance(item, Load):
                yield item.src.name
            elif isinstance(item, Store):
                yield item.dst.name
            elif isinstance(item, Version):
                yield item.buffer
