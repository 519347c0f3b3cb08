"""Elements of four bits in a tensor: two share a byte along the last axis, the lower half first.

A load takes its half of one byte. A store clears its half and sets it, in two atomic updates of the word around it, so
that threads which store the two halves of a byte do not disturb one another.
"""

from __future__ import annotations

from treadle.algebra.expr import ZERO, Expr
from treadle.machine.form import MemRef
from treadle.targets.cuda.emit.scope import Scope
from treadle.targets.cuda.emit.storage import Storage
from treadle.targets.cuda.emit.values import Val


def place(scope: Scope, memory: Storage, ref: MemRef, env: dict[str, Expr]) -> tuple[str, str]:
    """The address of the byte of an element, and which half of it (0 or 1)."""
    index = [scope.symbols.resolve(i.substitute(env)) for i in ref.index]
    steps = [*index[:-1], index[-1] // 2] if index else []
    parts: list[str] = []
    for i, stride in zip(steps, memory.strides):
        number, step = scope.symbols.text(i), scope.symbols.text(stride)
        if number.number != 0:
            parts.append(f"(i64)({number.text})" if step.number == 1 else f"(i64)({number.text}) * {step.text}")
    half = scope.text(index[-1] % 2) if index else scope.text(ZERO)
    return f"({memory.pointer} + ({' + '.join(parts) or '0'}))", half


def fetched(scope: Scope, memory: Storage, ref: MemRef, env: dict[str, Expr]) -> Val:
    """An element at a slot's coordinates."""
    address, half = place(scope, memory, ref, env)
    if memory.dtype.kind == "int":
        return Val(f"(i8)((i8)(u8)(*{address} << 4 * (1 - {half})) >> 4)", memory.dtype)
    return Val(f"(u8)(*{address} >> 4 * {half} & 15)", memory.dtype)


def put(scope: Scope, memory: Storage, ref: MemRef, env: dict[str, Expr], value: Val) -> str:
    """The statement that stores an element."""
    address, half = place(scope, memory, ref, env)
    return f"{scope.use('store_half')}({address}, 4 * ({half}), {value.text})"
