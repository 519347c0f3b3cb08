"""WebGPU: a workgroup's barrier joins all its invocations, as a named barrier of everyone joins the threads of a CUDA
workgroup; what is allowed besides are loads, stores and arithmetic. Programs of this target are judged as CUDA's.

`workgroup.barrier` is WGSL's workgroupBarrier and storageBarrier in one: behind it the accesses of all invocations to
the workgroup's memory, and to storage within the workgroup, are ordered. Two workgroups are ordered by the end of a
dispatch only. How many lanes a subgroup has no program knows: nothing is exchanged among them.
"""

from __future__ import annotations

from dataclasses import replace

from treadle.algebra.expr import const
from treadle.checker.verdict import Refused, Unsure
from treadle.dtype.formats import f16
from treadle.hardware.memory_model import find_ordering
from treadle.hardware.targets import Target, find_target
from treadle.machine.form import (
    Body,
    Compute,
    Copy,
    Fold,
    If,
    Kernel,
    Loop,
    MachineProgram,
    Mma,
    Stmt,
    Store,
    Sync,
    Tasks,
    walk,
)
from treadle.machine.vocabulary import ATOMS

WORD, WHOLE = 32, (f16,)
"""Bits of what an invocation stores at once: elements of fewer share a word, but for those of f16. *Source*: WGSL (W3C
Candidate Recommendation), Memory: Memory Access Interference; Host-shareable Types."""
BARRIER, STAND_IN = "workgroup.barrier", "cuda:sm_80"
SCALAR = tuple(a for a in ATOMS if a in ("fma", "muladd"))


def of_webgpu(program: MachineProgram, numbers: dict[int, int]) -> MachineProgram:
    """The program as one of CUDA; itself, if it is for another target. New statements get their numbers.

    *Errors*: refused where a capacity is exceeded; unsure for words that have no rule here.
    """
    target = find_target(program.target)
    if target is None or target.kind != "webgpu":
        return program
    kernels: list[Kernel] = []
    for kernel in program.kernels:
        for launch in (x for x in program.host.launches if x.kernel == kernel.name):
            if launch.threads > target.threads_a_workgroup or launch.cluster != 1:
                raise Refused(
                    "J7", f"{launch.threads} threads a workgroup, {target.name} has {target.threads_a_workgroup}", {}
                )
            if launch.shared_bytes > target.shared_bytes:
                raise Refused("J4", f"{launch.shared_bytes} bytes of shared memory of {target.shared_bytes}", {})
            for word in ("cooperative", "dependent"):
                if getattr(launch, word) and find_ordering(f"launch.{word}", target.kind) is None:
                    raise Unsure("J7", f"a {word} launch on {target.name}", missing="a rule for it there")
        everyone = sum(r.agents * r.threads for r in kernel.roles)
        memories = (*program.program.tensors, *kernel.buffers, *program.host.workspace)
        packed = {m.name for m in memories if m.dtype.bits < WORD and m.dtype not in WHOLE}
        for s in (s for r in kernel.roles for s in walk(r.body)):
            _known(kernel, s, target, packed)
        roles = [replace(r, body=_body(r.body, everyone, numbers)) for r in kernel.roles]
        kernels.append(replace(kernel, roles=roles))
    return replace(program, target=STAND_IN, kernels=kernels)


def _known(kernel: Kernel, s: object, target: Target, packed: set[str]) -> None:
    words = [s.kind] if isinstance(s, Sync) else [s.over] if isinstance(s, Tasks) else []
    words += [s.engine] if isinstance(s, Copy) else []
    if isinstance(s, Store):
        words += ["effect"] if s.effect != "set" else []
        words += ["store.packed"] if s.dst.name in packed else []
    for word in words:
        if find_ordering(word, target.kind) is None:
            raise Unsure("J2", f"{word} on {target.name}", missing=f"a rule for {word} there")
    if isinstance(s, Mma) and s.atom.split(".")[0] not in SCALAR:
        raise Unsure("J2", f"{s.atom} on {target.name}", missing="a contraction by multiply-add")
    if isinstance(s, Fold) and s.axes:
        held = next((f for f in kernel.frags if f.name == s.src.name), None)
        if held is not None and any(m.who in ("lane", "warp") and m.axis in s.axes for m in held.dist):
            raise Unsure("J5", "a fold among lanes of a subgroup", missing="memory of the workgroup between them")
    if isinstance(s, Compute) and s.fn == "pick":
        raise Unsure("J5", "an element of another lane of a subgroup", missing="memory of the workgroup between them")
    if isinstance(s, If) and s.last is not None:
        raise Unsure("J3", f"arrivals at a counter on {target.name}", missing="a rule for them there")
    if isinstance(s, Stmt) and s.by == "warp":
        raise Unsure("J5", f"one lane of each subgroup on {target.name}", missing="all threads or one")


def _body(body: Body, everyone: int, numbers: dict[int, int]) -> Body:
    made: Body = []
    for s in body:
        new = s
        if isinstance(s, Sync) and s.kind == BARRIER:
            new = replace(s, kind="barrier.sync", args=(("id", const(0)), ("threads", const(everyone))))
        elif isinstance(s, Loop | Tasks):
            new = replace(s, body=_body(s.body, everyone, numbers))
        elif isinstance(s, If):
            new = replace(s, then=_body(s.then, everyone, numbers), orelse=_body(s.orelse, everyone, numbers))
        if id(s) in numbers:
            numbers[id(new)] = numbers[id(s)]
        made.append(new)
    return made
