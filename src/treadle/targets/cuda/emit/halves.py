"""Elements of four bits in a tensor: two share a byte along the last axis, the lower half first.

A load takes its half of one byte. A store clears its half and sets it, in two atomic updates of the word around it, so
that threads which store the two halves of a byte do not disturb one another.
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.algebra.expr import ZERO, Expr
from treadle.machine.form import Load, MemRef
from treadle.targets.cuda.emit.errors import unsupported
from treadle.targets.cuda.emit.fragments import Layout
from treadle.targets.cuda.emit.scope import Scope, register
from treadle.targets.cuda.emit.storage import Storage, element_type
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


def load_pairs(scope: Scope, stmt: Load, made: Layout, memory: Storage, points: Sequence[dict[str, Expr]]) -> None:
    """A load from shared memory: of each byte both elements, where they are neighbours in a thread's registers."""
    if stmt.where:
        raise unsupported(f"a load from {memory.name} under a condition", "whole slots")
    version = None if stmt.src.version is None else scope.symbols.resolve(stmt.src.version)
    offsets = [
        scope.symbols.resolve(memory.offset([i.substitute(env) for i in stmt.src.index], version)) for env in points
    ]
    with scope.block("{"):
        first = scope.head.fresh("q")
        start = scope.symbols.text(offsets[0] // 2 + memory.start)
        scope.line(f"const u32 {first} = (u32){start.narrow()};")
        array = register(made.frag.name)
        for slot in range(0, len(points), 2):
            both = slot + 1 < len(points) and (offsets[slot + 1] - offsets[slot]).constant == 1
            distance = (offsets[slot] - offsets[0]).constant
            if not both or distance is None or distance % 2 or scope.symbols.text(offsets[slot]).by % 2:
                raise unsupported(f"the elements of {stmt.dst} in {memory.name}", "pairs that share a byte")
            place = f"{first} + {distance // 2}"
            if memory.swizzle:
                place = f"{scope.use(f'swizzle_{memory.swizzle}')}({place})"
            byte = scope.head.fresh("v")
            scope.line(f"const int {byte} = *(const u8*)(smem + {place});")
            low, high = f"{byte} & 15", f"{byte} >> 4"
            if memory.dtype.kind == "int":
                low, high = f"(int)((u32){byte} << 28) >> 28", f"(int)((u32){byte} << 24) >> 28"
            kind = element_type(memory) if memory.dtype.kind != "int" else "i8"
            scope.line(f"{array}[{slot}] = ({kind})({low}); {array}[{slot + 1}] = ({kind})({high});")
