"""J7, and what of J4 the declarations alone decide: launches, workspace, storage, and the facts about arguments.

Distinct index tuples of a stored tensor must be distinct elements, and a stored tensor must share no byte with another
one that the program accesses: the guard has to say so.
"""

from __future__ import annotations

from treadle.algebra.expr import Floor, ge
from treadle.algebra.sets import Facts
from treadle.checker.clusters import check_launch
from treadle.checker.gangs import is_gang
from treadle.checker.gpu import check_kernel, positive
from treadle.checker.source import Source
from treadle.checker.verdict import Refused, Unsure, require
from treadle.hardware.targets import Target
from treadle.ir.guard import Injective
from treadle.machine.form import Buffer, Copy, Kernel, Let, Loop, MachineProgram, Tasks, walk
from treadle.machine.vocabulary import SYMBOLS


def check_host(program: MachineProgram, source: Source, facts: Facts, target: Target) -> None:
    """*Errors*: findings of J4 and J7."""
    _divisors(program, facts)
    kernels = {k.name: k for k in program.kernels}
    if len(kernels) != len(program.kernels):
        raise Refused("J7", "two kernels have one name", {})
    for launch in program.host.launches:
        if launch.kernel not in kernels:
            raise Refused("J7", f"a launch of {launch.kernel}, which is no kernel", {})
        gang = launch.kernel in kernels and is_gang(kernels[launch.kernel])
        alone = launch.threads == 1 or gang
        if target.kind == "cpu" and (launch.grid.constant != 1 or not alone or launch.cluster != 1):
            raise Refused("J7", "a CPU kernel is launched once: tasks spread the work", {})
        if target.kind == "cuda":
            check_kernel(program, kernels[launch.kernel], launch, target, facts)
            check_launch(kernels[launch.kernel], launch, target, facts, program.host.lets)
    launched = {launch.kernel for launch in program.host.launches}
    if source.stores and not launched:
        raise Refused("J7", "nothing is launched, though the source stores", {})
    for kernel in program.kernels:
        if kernel.name in launched:
            _storage(program, kernel, target)
    _arguments(program, source, target)
    _workspace(program, facts)


def _divisors(program: MachineProgram, facts: Facts) -> None:
    """What the host computes has a value: it divides by positive numbers."""
    host = program.host
    told = [*host.lets.values(), *(launch.grid for launch in host.launches)]
    told += [e for x in (*host.workspace, *host.counters) for e in x.shape]
    for e in (e.substitute(host.lets) for e in told):
        for by in dict.fromkeys(a.den for a in e.atoms() if isinstance(a, Floor)):
            if not positive(facts, by):
                require(facts, ge(by, 1), "J7", f"the host divides by {by}")


def _storage(program: MachineProgram, kernel: Kernel, target: Target) -> None:
    _tiles(kernel, target)
    _variables(program, kernel)
    names = [f.name for f in kernel.frags] + [b.name for b in [*kernel.buffers, *program.host.workspace]]
    names += [b.name for b in kernel.barriers] + [t.name for t in program.program.tensors]
    twice = {n for n in names if names.count(n) > 1}
    if twice:
        raise Refused("J4", f"the name {min(twice)} is declared twice", {})
    if target.kind == "cpu":
        if len(kernel.roles) != 1 or kernel.roles[0].threads != 1:
            raise Unsure("J5", "a CPU kernel with more than its one role", missing="one role, of one thread an agent")
        if kernel.barriers:
            raise Unsure("J3", "a phased barrier on a CPU", missing="a rule for it")
        for b in kernel.buffers:
            if b.place not in ("local", *(("shared",) if is_gang(kernel) else ())) or b.versions or b.swizzle:
                raise Unsure(
                    "J4", f"the buffer {b.name} is {b.place}, a ring or swizzled", missing="a rule for it on CPUs"
                )
        _overlap(kernel.buffers)
    elif target.kind == "cuda":
        _overlap([b for b in kernel.buffers if b.place != "shared"])
        if any(b.place == "workspace" for b in kernel.buffers):
            raise Unsure("J4", f"{kernel.name} declares workspace", missing="a buffer that the host provides")
    else:
        raise Unsure("J2", f"the target kind {target.kind}", missing="rules for its memory model")


def _tiles(kernel: Kernel, target: Target) -> None:
    if not target.tiles and any(f.place == "tile" for f in kernel.frags):
        raise Refused("J4", f"fragments in tiles, which {target.name} has not", {})
    needed = 0
    for frag in kernel.frags:
        if frag.place == "tile":
            size = frag.dtype.itemsize
            for extent in frag.shape:
                size *= extent
            needed += -(-size // max(target.tile_bytes, 1))
    if needed > target.tiles:
        raise Refused("J4", f"{needed} tiles, {target.name} has {target.tiles}", {"tiles": needed})


def _variables(program: MachineProgram, kernel: Kernel) -> None:
    """Names of variables are used once and are none of the source's: a fact about one never speaks of another."""
    source = program.program
    taken = {s for d in [*source.dims, *(d for t in source.tensors for d in t.dims)] for s in d.extent.symbols}
    taken |= source.lets.keys() | program.host.lets.keys() | set(SYMBOLS)
    always = taken
    for role in kernel.roles:
        taken = set(always)
        for name in [*role.counters, *([role.index] if role.index else [])]:
            taken |= {name}
        for stmt in walk(role.body):
            names = (
                stmt.vars
                if isinstance(stmt, Tasks)
                else (stmt.var,)
                if isinstance(stmt, Loop)
                else (stmt.name,)
                if isinstance(stmt, Let)
                else ()
            )
            for name in names:
                if name in taken or name[0] in "$#?!@<%" or "'" in name:
                    raise Refused("J4", f"the name {name} is used twice", {})
                taken.add(name)


def _overlap(buffers: list[Buffer]) -> None:
    """Buffers with fixed places must not share bytes: all of them may be live at once."""
    placed: list[tuple[int, int, Buffer]] = []
    for b in buffers:
        if b.offset is None:
            continue
        size = b.dtype.itemsize
        for e in b.shape:
            n = e.constant
            if n is None:
                raise Unsure("J4", f"{b.name} has a place and the shape {e}", missing="a shape of numbers")
            size *= n
        start = b.offset.constant
        if start is None or start < 0:
            raise Unsure("J4", f"{b.name} is at {b.offset}", missing="a number as place")
        if start % b.align:
            raise Refused("J4", f"{b.name} at byte {start} is not aligned to {b.align}", {"byte": start})
        for low, high, other in placed:
            if other.place == b.place and start < high and low < start + size:
                raise Refused("J4", f"{b.name} and {other.name} overlap", {"byte": max(low, start)})
        placed.append((start, start + size, b))


def _arguments(program: MachineProgram, source: Source, target: Target) -> None:
    """Stored tensors have distinct elements. On a GPU a stored tensor is apart from all others that are used, or is the
    very view of tensors that are only loaded, which threads themselves access; on a CPU the rules of order see to
    those that may overlap."""
    injective = {f.tensor for f in source.guard.facts if isinstance(f, Injective)}
    used = source.stored | source.loaded
    copied = {ref.name for s in program.statements() if isinstance(s, Copy) for ref in (s.src, s.dst)}
    for name in sorted(source.stored):
        if source.program.tensor(name).dims and name not in injective:
            raise Unsure("J7", f"{name} is stored", missing=f"injective({name}) in the guard")
        for other in sorted(used - {name}):
            meet = source.meet(name, other)
            if target.kind == "cpu" or meet == "never":
                continue
            if meet == "maybe" or other in source.stored:
                raise Unsure(
                    "J7", f"{name} is stored and {other} used", missing=f"disjoint({name}, {other}) in the guard"
                )
            if {name, other} & copied:
                raise Unsure(
                    "J7",
                    f"{name} is stored in the place of {other}, and copied by an engine",
                    missing=f"loads and stores by threads, or disjoint({name}, {other}) in the guard",
                )


def _workspace(program: MachineProgram, facts: Facts) -> None:
    _overlap(program.host.workspace)
    for b in program.host.workspace:
        if b.place != "workspace":
            raise Refused("J4", f"{b.name} is provided by the host and is {b.place}", {})
        for e in b.shape:
            require(facts, ge(e.substitute(program.host.lets), 0), "J4", f"{b.name} may have a negative extent")
