"""Nests of parallel regions as one region: instances of a region that is all another one does are instances of both.

`for b in parallel(B): for k in parallel(K): ...` and `for b, k in parallel(B, K): ...` mean the same instances; what
realises programs looks for tasks in the arguments of one region. An outer instance that does anything of its own stays:
what it owns is shared by the inner ones, and whether each makes it again is a choice (`rules.copies.recompute`).
"""

from __future__ import annotations

from treadle.ir.core import Block, Program, Region


def nested(program: Program) -> bool:
    """Whether `join_nests` has something to do."""
    return any(isinstance(op, Region) and inner_of(op) is not None for op in program.body.walk())


def join_nests(program: Program) -> None:
    """Makes one region of every parallel region and the parallel region that is all it does, in place.

    *Ensures*: the same instances with the same values and stores; `not nested(program)`.
    """
    _join(program.body)


def inner_of(region: Region) -> Region | None:
    """The parallel region that is all that an instance of a parallel region does, if its range is the same in every
    instance."""
    inner = region.body.ops[0] if len(region.body.ops) == 1 else None
    if not isinstance(inner, Region) or {region.kind, inner.kind} != {"parallel"}:
        return None
    if (inner.order, inner.scope, inner.versions) != (region.order, region.scope, region.versions):
        return None
    if inner.inits != region.carried or region.body.yields != inner.results or region.stages or inner.stages:
        return None
    mine = {s for a in region.args for s in (a.name, f"{a.name}.start", f"{a.name}.stop")}
    for arg in inner.args:
        # What the outer region hands in has no name once the regions are one, so no value may tell a range.
        ends = (arg.domain.lo, arg.domain.hi, *([] if arg.size is None else [arg.size]))
        if any(e.symbols & mine or any(n.startswith("%") for n in e.functions) for e in ends):
            return None
    return inner


def _join(block: Block) -> None:
    for op in block.ops:
        for inside in op.blocks:
            _join(inside)
        if isinstance(op, Region) and (inner := inner_of(op)) is not None:
            op.args, op.carried, op.body = [*op.args, *inner.args], inner.carried, inner.body
