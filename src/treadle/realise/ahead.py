"""Reading ahead: what the next iteration of a loop over rows reads first is asked for while passes of this one run.

A row that several passes go over comes from memory in the first of them; the others find it in a cache and leave memory
idle. So a later pass asks for the next row, line by line, into the second cache: nothing is read, nothing changes what
is computed, and a program without these requests is the same program, slower.

A block of rows of an operand that a register block reads in place is short: what a processor reads ahead by itself ends
with each row. So a block asks for the rows of the next one, each step for the line that it reads of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from treadle.algebra.expr import Expr, ExprLike, const, sym
from treadle.analysis.uses import WEIGHT
from treadle.ir.guard import Unit
from treadle.machine.form import Body, Compute, If, Kernel, Load, Loop, MachineProgram, MemRef, Store, Sync, Tasks

LINE = 64
"""Bytes that one request brings."""

MOST = 16
"""Requests for one fragment: a load that would need more is left alone."""

LEVEL = (("level", const(2)),)


def read_ahead(machine: MachineProgram) -> MachineProgram:
    """The program with requests for the next rows in it.

    *Ensures*: only `sync prefetch` statements are added.
    """
    for kernel in machine.kernels:
        for role in kernel.roles:
            for rows in _loops(role.body):
                _ask(machine, kernel, rows)
    return machine


def blocks_ahead(machine: MachineProgram, tensors: frozenset[str]) -> MachineProgram:
    """The program with requests into the second cache for the next block of what innermost loops read of these tensors.

    (Requests into the first one hold a place there until the line comes: blocks of rows of 1.5 KB that came from memory
    took 71 us with those, 106 with none, and 55 with these.)

    *Ensures*: only `sync prefetch` statements are added.
    """
    for kernel in machine.kernels:
        for role in kernel.roles:
            for around, inner in _innermost(role.body, ()):
                loads = [i for i in inner.body if isinstance(i, Load) and i.src.name in tensors]
                for load in reversed(loads):
                    _ask_block(machine, kernel, (around, inner), load)
    return machine


def _innermost(body: Body, around: tuple[Loop, ...]) -> Iterator[tuple[tuple[Loop, ...], Loop]]:
    """The loops without loops in them, each with those around it, the outermost first."""
    for item in body:
        if isinstance(item, If):
            yield from (*_innermost(item.then, around), *_innermost(item.orelse, around))
        elif isinstance(item, Tasks):
            yield from _innermost(item.body, ())
        elif isinstance(item, Loop):
            inside = tuple(_innermost(item.body, (*around, item)))
            yield from inside or ((around, item),)


def _ask_block(machine: MachineProgram, kernel: Kernel, nest: tuple[tuple[Loop, ...], Loop], load: Load) -> None:
    """Puts requests before a load along the last axis for what it reads in the next iteration of the loop over rows."""
    around, inner = nest
    *rows, along = load.src.index
    over = [one for one in around if any(one.var in e.symbols for e in rows)]
    if not over or inner.var not in along.symbols or any(inner.var in e.symbols for e in rows):
        return
    ahead: dict[str, ExprLike] = {over[-1].var: sym(over[-1].var) + over[-1].step}
    inner.body[:0] = [
        Sync(
            kind="prefetch",
            object=MemRef(load.src.name, tuple(e.substitute(ahead) for e in index)),
            args=LEVEL,
            origin=load.origin,
        )
        for index in _lines(machine, kernel, load)
    ]


def _loops(body: Body) -> Iterator[Loop]:
    """All loops whose bodies hold several loops, and no further control inside those."""
    for item in body:
        if isinstance(item, If):
            yield from (*_loops(item.then), *_loops(item.orelse))
        elif isinstance(item, Loop | Tasks):
            yield from _loops(item.body)
            if isinstance(item, Loop) and len(_passes(item)) > 1:
                yield item


def _passes(rows: Loop) -> list[Loop]:
    """The loops of a body, if they are flat."""
    found = [i for i in rows.body if isinstance(i, Loop)]
    return [] if any(isinstance(i, Loop | Tasks | If) for p in found for i in p.body) else found


def _ask(machine: MachineProgram, kernel: Kernel, rows: Loop) -> None:
    """Puts requests for the iteration after this one of `rows` into its passes."""
    passes, known = _passes(rows), set[str]()
    wanted: list[tuple[int, Load]] = []
    for number, one in enumerate(passes):
        loads = [i for i in one.body if isinstance(i, Load) and i.src.name in _tensors(machine)]
        for load in loads:
            if load.src.name not in known and any(rows.var in e.symbols for e in load.src.index):
                wanted.append((number, load))
                known.add(load.src.name)
    for number, load in reversed(wanted):
        targets = _quiet(machine, passes[number], passes[number + 1 :])
        lines = _lines(machine, kernel, load)
        whole, done = sum(map(_work, targets)), 0
        for target in targets:
            ahead: dict[str, ExprLike] = {passes[number].var: sym(target.var), rows.var: sym(rows.var) + rows.step}
            # Each pass asks for as much as its share of the work, so that memory is busy in all of them.
            first, done = len(lines) * done // whole, done + _work(target)
            share = lines[first : len(lines) * done // whole]
            asked = [tuple(e.substitute(ahead) for e in index) for index in share]
            target.body[:0] = [
                Sync(kind="prefetch", object=MemRef(load.src.name, index), args=LEVEL, origin=load.origin)
                for index in asked
            ]


def _tensors(machine: MachineProgram) -> set[str]:
    return {t.name for t in machine.program.tensors}


def _quiet(machine: MachineProgram, first: Loop, later: list[Loop]) -> list[Loop]:
    """Passes over the same range that store to no tensor, the first itself included; where no later one is such, a
    later one whose stores go past the caches; none where there is none of these."""
    same = [p for p in later if (p.lo, p.hi, p.step) == (first.lo, first.hi, first.step)]
    found = [p for p in same if not _stores(machine, p)]
    found = found or [p for p in same if all("stream" in s.tags for s in _stores(machine, p))][:1]
    return [*([] if _stores(machine, first) else [first]), *found] if found else []


def _work(one: Loop) -> int:
    """Simple instructions of an iteration, about."""
    return sum(WEIGHT.get(i.fn, 1) if isinstance(i, Compute) else 1 for i in one.body)


def _stores(machine: MachineProgram, one: Loop) -> list[Store]:
    return [i for i in one.body if isinstance(i, Store) and i.dst.name in _tensors(machine)]


def _lines(machine: MachineProgram, kernel: Kernel, load: Load) -> list[tuple[Expr, ...]]:
    """An element in each line that a load reads; none when there are too many or the lines are not known."""
    tensor = next(t for t in machine.program.tensors if t.name == load.src.name)
    axis = len(load.src.index) - 1
    if Unit(tensor.name, axis) not in machine.guard.facts or LINE * 8 % tensor.dtype.bits:
        return []
    shape = next(f.shape for f in kernel.frags if f.name == load.dst)
    steps = [_step(load.src.index, f"${i}", axis, LINE * 8 // tensor.dtype.bits) for i in range(len(shape))]
    places = [range(0, size, step) for size, step in zip(shape, steps, strict=True)]
    points = list(product(*places))
    if len(points) > MOST:
        return []
    return [
        tuple(e.substitute({f"${i}": const(at) for i, at in enumerate(point)}) for e in load.src.index)
        for point in points
    ]


def _step(index: tuple[Expr, ...], slot: str, axis: int, line: int) -> int:
    """How many values of a slot lie in one line: 1 unless it counts elements along the contiguous axis only."""
    moved = [e.substitute({slot: sym(slot) + 1}) - e for e in index]
    along = [const(1 if i == axis else 0) for i in range(len(index))]
    return line if moved == along else 1
