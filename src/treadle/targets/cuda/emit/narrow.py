"""Fragments of f32 that stay in the 16 bits they came in.

Numbers of bf16 widened to f32 take half the registers as they were, and widening one again is one instruction. So a
fragment that is such a widening, and nothing else, is held in pairs; a maximum or minimum of it is taken of pairs.
At a barrier the pairs are redefined (no instruction), or the compiler would keep the wide numbers from one side of it
for the other: registers are what limits how many rows are in flight.
"""

from __future__ import annotations

from treadle.dtype.formats import bf16, f32
from treadle.machine.form import Body, Compute, FragRef, Stmt, Sync, nested, walk
from treadle.targets.cuda.emit.fragments import Layout
from treadle.targets.cuda.emit.mentions import fragments_named
from treadle.targets.cuda.emit.scope import Scope, register

LEAST = 16
"""Slots from which on pairs are worth it."""


def written_once(body: Body) -> frozenset[str]:
    """Fragments that one statement assigns."""
    counts: dict[str, int] = {}
    for stmt in walk(body):
        name = getattr(stmt, "dst", None)
        if isinstance(stmt, Stmt) and isinstance(name, str):
            counts[name] = counts.get(name, 0) + 1
    return frozenset(n for n, count in counts.items() if count == 1)


def read_later(body: Body) -> dict[int, frozenset[str]]:
    """`id` of each barrier -> fragments that its body mentions behind it."""
    found: dict[int, frozenset[str]] = {}
    for block in nested(body):
        after: frozenset[str] = frozenset()
        for stmt in reversed(block):
            if isinstance(stmt, Sync) and stmt.kind == "barrier.sync":
                found[id(stmt)] = after
            after |= fragments_named(stmt)
    return found


def kept_narrow(scope: Scope, stmt: Compute, made: Layout) -> bool:
    """Holds the destination in pairs, if the statement only widens bf16, or copies what does."""
    if stmt.fn not in ("cast", "copy") or stmt.where or stmt.dst not in scope.setting.once:
        return False
    if made.frag.dtype != f32 or made.count < LEAST or made.count % 2 or not isinstance(stmt.args[0], FragRef):
        return False
    arg = stmt.args[0]
    if arg.name not in scope.setting.frags:
        return False
    other = scope.layout(arg.name)
    if stmt.fn == "cast":
        words = register(arg.name) if other.packed and other.frag.dtype == bf16 else None
    else:
        words = scope.setting.narrow.get(arg.name)
    if words is None or not _neighbours(made) or other.count != made.count or not _in_order(scope, arg, made):
        return False
    own = f"w_{stmt.dst}"
    if stmt.dst not in scope.setting.narrow:
        scope.head.lines.append(f"u32 {own}[{made.count // 2}];")
        scope.setting.narrow[stmt.dst] = own
    scope.line("#pragma unroll")
    scope.line(f"for (int i = 0; i < {made.count // 2}; i++) {own}[i] = {words}[i];")
    return True


def _neighbours(made: Layout) -> bool:
    """Whether pairs of slots are pairs in memory too, which one access reads under one mask."""
    first, second = made.slots[0], made.slots[1]
    return bool(first) and second[:-1] == first[:-1] and second[-1] == first[-1] + 1


def _in_order(scope: Scope, arg: FragRef, made: Layout) -> bool:
    """Whether each slot of the destination is the same slot of the operand."""
    other = scope.layout(arg.name)
    if arg.coords is None:
        return other.slots == made.slots and other.parts == made.parts
    coords = arg.coords
    return all(scope.source(arg.name, coords, scope.place(made, slot)) == slot for slot in range(made.count))
