"""What a statement reads and writes, how much each participant holds, and the extents for which pictures are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from treadle.algebra.expr import Expr, Fn
from treadle.ir.guard import Bound, Divisible, Guard
from treadle.machine.form import (
    Body,
    Compute,
    Copy,
    Fold,
    Frag,
    FragRef,
    If,
    Kernel,
    Load,
    Loop,
    MachineProgram,
    MemRef,
    Mma,
    Stmt,
    Store,
    Sync,
    Tasks,
    walk,
)
from treadle.machine.vocabulary import ASYNC_ATOMS

LOADED = 96
"""What a number that a kernel loads from memory is taken to be in a picture."""
ABSENT = 256
"""What a symbol is taken to be that nothing tells."""


def fragments_read(stmt: Stmt) -> Iterator[str]:
    """Names of the fragments whose elements the statement takes, those in its index expressions too."""
    match stmt:
        case Store(src=src, mask=mask):
            yield src.name
            if mask is not None:
                yield mask.name
        case Compute(args=args):
            yield from (a.name for a in args if isinstance(a, FragRef))
        case Fold(src=src, acc=acc):
            yield src.name
            if acc is not None:
                yield acc.name
        case Mma(acc=acc, a=a, b=b):
            yield from (r.name for r in (acc, a, b) if isinstance(r, FragRef))
        case _:
            pass
    for expr in expressions(stmt):
        yield from (a.name for a in expr.atoms() if isinstance(a, Fn))


def fragment_written(stmt: Stmt) -> str | None:
    """The fragment that the statement gives a value."""
    if isinstance(stmt, Load | Compute | Fold | Mma):
        return stmt.dst
    return stmt.old if isinstance(stmt, Store) else None


def memory_read(stmt: Stmt) -> Iterator[MemRef]:
    """References to memory that the statement reads."""
    match stmt:
        case Load(src=src) | Copy(src=src):
            yield src
        case Compute(args=args):
            yield from (a for a in args if isinstance(a, MemRef))
        case Mma(a=a, b=b):
            yield from (r for r in (a, b) if isinstance(r, MemRef))
        case _:
            pass


def memory_written(stmt: Stmt) -> Iterator[MemRef]:
    """References to memory that the statement writes."""
    if isinstance(stmt, Store | Copy):
        yield stmt.dst


def expressions(stmt: Stmt) -> Iterator[Expr]:
    """Index expressions of a statement, those of its claim left out."""
    for ref in (*memory_read(stmt), *memory_written(stmt)):
        yield from ref.index
        if ref.version is not None:
            yield ref.version
    match stmt:
        case Load(where=where) | Store(where=where) | Compute(where=where):
            yield from (c.expr for c in where)
        case Sync(args=args):
            yield from (e for _, e in args)
        case _:
            pass
    if isinstance(stmt, Compute) and stmt.expr is not None:
        yield stmt.expr


def is_async(stmt: object) -> bool:
    """Whether the statement only starts something that others do: a copy of an engine, a contraction."""
    return isinstance(stmt, Copy) or (isinstance(stmt, Mma) and stmt.atom.split(".")[0] in ASYNC_ATOMS)


def orders(body: Body) -> bool:
    """Whether anything in the body waits for others, tells others, or starts an engine."""
    return any(is_async(s) or (isinstance(s, Sync) and s.kind not in _SILENT) for s in walk(body))


_SILENT = frozenset(("prefetch", "setmaxnreg", "amx.config", "amx.release"))


def slots(frag: Frag) -> int:
    """Elements that one thread holds: all, where no distribution says otherwise."""
    if not frag.dist:
        return math.prod(frag.shape)
    return math.prod(m.size for m in frag.dist if m.who == "slot")


def held_bytes(frag: Frag) -> int:
    """Bytes that one thread holds; less than a register is a register of 4 bytes."""
    return max(4, slots(frag) * max(1, frag.dtype.bits) // 8)


# ---- extents


@dataclass(frozen=True)
class Scene:
    """Values of extents and of the host's names for which a picture is drawn."""

    values: Mapping[str, int]

    def number(self, expr: Expr, more: Mapping[str, int] | None = None) -> int:
        """The value of an expression; what nothing tells has a default."""
        env: dict[str, int] = dict.fromkeys(expr.symbols, ABSENT)
        env.update((n, v) for n, v in self.values.items() if n in env)
        env.update((n, v) for n, v in (more or {}).items() if n in env)
        functions: dict[str, Callable[..., Any]] = dict.fromkeys(expr.functions, lambda *_: LOADED)
        return int(expr.evaluate(env, functions))


def scene(machine: MachineProgram, extents: Mapping[str, int]) -> Scene:
    """The extents given, defaults for the others, and what the host computes of them."""
    program = machine.program
    values = {s: extents.get(s, 1024) for d in program.dims for s in sorted(d.extent.symbols)}
    values.update((n, v) for n, v in extents.items() if n not in values)
    for name, expr in (*program.lets.items(), *machine.host.lets.items()):
        values[name] = Scene(values).number(expr)
    return Scene(values)


def small_scene(machine: MachineProgram, kernel: Kernel, extents: Mapping[str, int]) -> Scene:
    """Extents of the guard under which loops that order something go round their rings a little more than once.

    Extents are halved from the given ones as long as such a loop still goes round more often than there are versions,
    and the guard admits it.
    """
    free = {s for d in machine.program.dims for s in d.extent.symbols}
    values = {n: v for n, v in scene(machine, extents).values.items() if n in free}
    least = 1 + max([2, *(b.versions for b in kernel.buffers)])
    loops = [s for r in kernel.roles for s in walk(r.body) if isinstance(s, Loop) and _shown(s)]
    for name in sorted(free):
        while values[name] > 1:
            smaller = {**values, name: values[name] // 2}
            there = [loop for loop in loops if name in (loop.hi - loop.lo).symbols]
            if not there or not admits(machine.guard, smaller):
                break
            if any(_trips(machine, loop, smaller) < least for loop in there):
                break
            values = smaller
    return scene(machine, values)


def _shown(loop: Loop) -> bool:
    return orders(loop.body) or bool(loop.enters)


def _trips(machine: MachineProgram, loop: Loop, values: Mapping[str, int]) -> int:
    here = scene(machine, values)
    inner = dict.fromkeys((loop.hi - loop.lo).symbols - here.values.keys(), 0)
    return (here.number(loop.hi, inner) - here.number(loop.lo, inner)) // max(1, here.number(loop.step, inner))


def admits(guard: Guard, values: Mapping[str, int]) -> bool:
    """Whether the facts of a guard about extents hold; facts about arrays are left aside."""
    here = Scene(values)
    for fact in guard.facts:
        if isinstance(fact, Divisible) and here.number(fact.expr) % fact.by:
            return False
        if isinstance(fact, Bound):
            value = here.number(fact.constraint.expr)
            if value < 0 or (fact.constraint.equality and value):
                return False
    return True


def statements(body: Body) -> Iterator[Stmt]:
    """The plain statements of a body and of those inside it, in order."""
    for item in body:
        if isinstance(item, Stmt):
            yield item
        elif isinstance(item, Tasks | Loop):
            yield from statements(item.body)
        elif isinstance(item, If):
            yield from statements(item.then)
            yield from statements(item.orelse)
