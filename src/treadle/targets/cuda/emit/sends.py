"""Stores to other workgroups of the cluster whose bytes a barrier there counts: an instruction an element."""

from __future__ import annotations

from dataclasses import replace

from treadle.algebra.expr import Expr
from treadle.machine.form import MemRef, Store
from treadle.targets.cuda.emit.access import Pointer, storage
from treadle.targets.cuda.emit.copies import barrier
from treadle.targets.cuda.emit.errors import unsupported
from treadle.targets.cuda.emit.scope import Scope


def send(scope: Scope, stmt: Store) -> None:
    """`dst = src[$] where ...`, by one holder of each slot. *Errors*: emit/cuda-unsupported."""
    scope.setting.need_hopper("a store that signals")
    made, memory = scope.layout(stmt.src.name), storage(scope, stmt.dst.name)
    size, rank, signal = made.frag.dtype.itemsize, stmt.dst.rank, stmt.signal
    fits = size in (4, 8) and memory.kind == "shared" and memory.dtype == made.frag.dtype
    if not fits or not isinstance(rank, Expr) or signal is None or stmt.src.coords is not None:
        raise unsupported(f"a store of {made.frag.dtype} that signals", "whole elements of 4 or 8 bytes")
    where = (*scope.inside(made), *stmt.where)
    points = [scope.point(made, s) for s in range(made.count)]
    owner = scope.owner(made)
    with scope.block("{" if owner is None else f"if ({owner}) {{"):
        pointer = Pointer(scope, memory, replace(stmt.dst, rank=None), points[0])
        pointer.start()
        there, bar = scope.head.fresh("there"), scope.head.fresh("bar")
        scope.line(f"const u32 {there} = {scope.use('address_at')}(base, {scope.text(rank)});")
        own = barrier(scope, MemRef(signal.name, (), signal.version))
        scope.line(f"const u32 {bar} = {there} - base + ({own});")
        for slot, env in enumerate(points):
            condition = scope.conditions(where, env)
            index = [i.substitute(env) for i in stmt.dst.index]
            offset = scope.symbols.resolve(memory.offset(index, pointer.version))
            value = scope.read(stmt.src.name, slot).text
            guard = "" if condition is None else f"if ({condition}) "
            called = scope.use(f"send_{8 * size}")
            scope.line(f"{guard}{called}({there} + {pointer.shared(offset)}, {value}, {bar});")
