"""Where buffers are: offsets in the workspace, and how large it must be.

The workspace is one block, 64-byte aligned: first what the whole launch shares, then one piece for every worker. Local
buffers of a task are in its worker's piece; small ones of constant size are in the task's frame instead, and so are
those of the workspace that no task of the only launch touches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from treadle.algebra.expr import ZERO, Expr, as_expr, const, floordiv, maximum
from treadle.machine.form import Buffer, MachineProgram, Role, Tasks, walk
from treadle.targets.cpu.emit.errors import unsupported
from treadle.targets.cpu.emit.lanes import memory_bytes
from treadle.targets.cpu.emit.layouts import memory_operands

ALIGNMENT = 64
"""Bytes: a cache line and the widest vector."""

PIECE_ALIGNMENT = 256
"""Bytes between workers' pieces are a multiple of this: neighbouring lines are fetched in pairs."""

FRAME_BYTES = 8192
"""Constant local buffers up to this size are in the frame."""


@dataclass(frozen=True)
class Workspace:
    """Bytes, as expressions in the program's extents: `shared` once, `worker` for each worker."""

    shared: Expr
    worker: Expr

    def bytes(self, extents: Mapping[str, int], workers: int) -> int:
        """The size for a call."""
        return int(self.shared.evaluate(extents)) + workers * int(self.worker.evaluate(extents))


@dataclass
class BufferPlan:
    """`shared` and `worker`: buffer name -> byte offset in its piece. `frame`: buffers in the task's frame."""

    workspace: Workspace
    buffers: dict[str, Buffer]
    shared: dict[str, Expr] = field(default_factory=dict[str, Expr])
    worker: dict[str, Expr] = field(default_factory=dict[str, Expr])
    frame: set[str] = field(default_factory=set[str])


def round_up(size: Expr, to: int) -> Expr:
    """The next multiple."""
    return floordiv(size + (to - 1), to) * to


def buffer_elements(buffer: Buffer) -> Expr:
    """Elements of one version."""
    total = const(1)
    for n in buffer.shape:
        total = total * n
    return total


def buffer_bytes(buffer: Buffer) -> Expr:
    """Bytes of all versions."""
    return buffer_elements(buffer) * (memory_bytes(buffer.dtype) * max(1, buffer.versions))


def plan_buffers(program: MachineProgram, lets: Mapping[str, Expr]) -> BufferPlan:
    """Places for all buffers. `lets` are the host's names for expressions in extents."""
    buffers: dict[str, Buffer] = {b.name: b for b in program.host.workspace}
    inside: set[str] = set()
    outside: set[str] = set()
    for kernel in program.kernels:
        buffers |= {b.name: b for b in kernel.buffers}
        for role in kernel.roles:
            _users(role, inside, outside)
    plan = BufferPlan(Workspace(ZERO, ZERO), buffers)
    shared, worker = ZERO, ZERO
    for buffer in buffers.values():
        local = buffer.place == "local"
        # A launch by itself leaves nothing in its workspace for another: small pieces of it can be in registers.
        alone = len(program.host.launches) == 1 and buffer.name not in inside
        if (local or alone) and _in_frame(buffer, lets):
            plan.frame.add(buffer.name)
            continue
        if not local or buffer.name in outside:
            shared = _place(plan.shared, buffer, shared, lets)
        if local and buffer.name in inside:
            worker = _place(plan.worker, buffer, worker, lets)
    plan.workspace = Workspace(round_up(shared, PIECE_ALIGNMENT), round_up(worker, PIECE_ALIGNMENT))
    return plan


def numbers(lets: Mapping[str, Expr]) -> dict[str, int]:
    """The lets that are numbers: their loops can be unrolled, their buffers be in registers."""
    found = {name: _in_extents(expr, lets).constant for name, expr in lets.items() if not expr.functions}
    return {name: number for name, number in found.items() if number is not None}


def _in_frame(buffer: Buffer, lets: Mapping[str, Expr]) -> bool:
    size = _in_extents(buffer_bytes(buffer), lets).constant
    return size is not None and size <= FRAME_BYTES and buffer.offset is None


def _place(table: dict[str, Expr], buffer: Buffer, used: Expr, lets: Mapping[str, Expr]) -> Expr:
    """Adds the buffer; returns the bytes used so far."""
    size = _in_extents(buffer_bytes(buffer), lets)
    if buffer.offset is not None:
        offset = _in_extents(buffer.offset, lets)
        table[buffer.name] = offset
        return maximum(used, offset + size)
    offset = round_up(used, max(ALIGNMENT, buffer.align))
    table[buffer.name] = offset
    return offset + size


def _in_extents(expr: Expr, lets: Mapping[str, Expr]) -> Expr:
    while expr.symbols & lets.keys():
        expr = expr.substitute(lets)
    if expr.functions:
        raise unsupported(f"a buffer size {expr}", "an expression in extents that the host knows")
    return as_expr(expr)


def _users(role: Role, inside: set[str], outside: set[str]) -> None:
    """Buffers named inside tasks of the role and outside of them."""
    tasks = [s for s in walk(role.body) if isinstance(s, Tasks)]
    within = {id(s) for t in tasks for s in walk(t.body)}
    for stmt in walk(role.body):
        names = {ref.name for ref in memory_operands(stmt)}
        (inside if id(stmt) in within else outside).update(names)
