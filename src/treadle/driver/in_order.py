"""Programs for calls in which inputs lie on outputs in any way: shifted, strided, backwards, or the same view.

What such a call means is what its statements do one after another. Ordered regions do that by themselves. An instance
of a parallel region never sees what another one stores, by its promise: so its loads are from a snapshot of the input,
taken where the region stands; or, if an instance reads again what it may have stored itself, the instances run in
order. Nothing else changes, and the plan is judged for arguments that may overlap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from treadle.driver.overlap import copies_suffice_in
from treadle.ir.core import Block, If, Program, Region, Sub, TileType, Value
from treadle.ir.ops.access import Extract, Load, Store
from treadle.ir.parser import parse_program
from treadle.ir.printer import print_program
from treadle.ir.rewrite import rename
from treadle.ir.verifier import verify

Met = Mapping[str, Sequence[str]]
"""Inputs, and the outputs that each lies on."""


def in_order(program: Program, met: Met) -> Program:
    """A program that means the same for arguments apart, and for inputs that lie on outputs what its statements do one
    after another."""
    made = parse_program(print_program(program))
    _block(made.body, made, met)
    rename(made)
    verify(made, pass_name="in_order")
    return made


def _block(block: Block, program: Program, met: Met) -> None:
    for op in list(block.ops):
        if isinstance(op, Region) and op.kind == "parallel":
            inner = list(op.body.walk())
            stored = {o.tensor.name for o in inner if isinstance(o, Store)}
            read = [n for n in met if stored & set(met[n]) and any(_loads(o, n) for o in inner)]
            if not read:
                continue
            if all(copies_suffice_in(op.body, [n], met[n]) for n in read):
                for n in read:
                    _snapshot(block, op, program, n)
                continue
            op.kind = "serial"
        for nested in op.blocks if isinstance(op, Region | If) else ():
            _block(nested, program, met)


def _loads(op: object, name: str) -> bool:
    return isinstance(op, Load) and op.tensor.name == name


def _snapshot(block: Block, region: Region, program: Program, name: str) -> None:
    """Loads of a tensor inside a region made reads of the whole tensor, loaded before the region."""
    tensor = next(t for t in program.tensors if t.name == name)
    whole = tuple(d.whole() for d in tensor.dims)
    number = sum(1 for _ in program.body.walk())
    value = Value(f"%snapshot{number}", TileType(tensor.dtype, whole), name)
    load = Load(results=[value], span=region.span, tensor=tensor, subs=tuple(Sub(part=p) for p in whole))
    block.ops.insert(block.ops.index(region), load)
    todo = [region.body]
    while todo:
        inner = todo.pop()
        for i, op in enumerate(inner.ops):
            todo += op.blocks
            if isinstance(op, Load) and op.tensor.name == name:
                inner.ops[i] = Extract(results=op.results, span=op.span, source=value, subs=op.subs, fill=op.fill)
