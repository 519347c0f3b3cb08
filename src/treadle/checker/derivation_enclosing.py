"""The validator of `enclose`: all statements of a program became the body of one parallel region.

With all coordinates of its dimensions in the place of the region's blocks the body is the program before. That each
instance may do its own coordinates, in any order beside the others, is asked of the program before alone: nothing in it
brings coordinates of such a dimension together, and whatever is stored to is accessed at the own ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from treadle.algebra.dims import Dim
from treadle.checker.derivation_copies import apart
from treadle.checker.derivation_match import Match, wrong
from treadle.ir.clone import Cloner
from treadle.ir.core import Block, If, Op, Region, Sub, Value
from treadle.ir.ops.access import Extract, Insert, Load, Store
from treadle.ir.ops.elementwise import Bitcast, Cast, Coords, Elementwise, Full, Index
from treadle.ir.ops.fold import ArgReduce, Fold, Mma, Reduce, Scan, Sort
from treadle.ir.rewrite import expressions

POINTWISE = (Full, Coords, Index, Elementwise, Cast, Bitcast, Load, Store, Extract, Insert)
"""Operations whose elements along a dimension hang on nothing else along it, if their subscripts say so."""


def enclose(m: Match) -> None:
    """See above."""
    ops = m.before.body.ops
    if not ops or m.before.body.yields:
        wrong("there is nothing to enclose")
    y = m.after.body.ops[0] if len(m.after.body.ops) == 1 else None
    if not isinstance(y, Region) or id(y) in m.claimed or y.kind != "parallel" or not y.args:
        wrong("the statements are not the body of one new parallel region")
    if y.carried or y.inits or y.results or y.merges or y.body.yields or y.scope is not None or y.versions is not None:
        wrong(f"{y.name} carries values, or is constrained, and nothing says why")
    back = Cloner(lambda v: Value(v.name, v.type, v.hint))
    over: list[Dim] = []
    for arg in y.args:
        if arg.domain != arg.domain.dim.whole() or arg.size is not None:
            wrong(f"{arg.name} ranges over {arg.domain} in blocks that nothing says why")
        if arg.kind == "block":
            over.append(_own(m, arg.domain.dim))
            back.symbols |= {f"{arg.name}.start": arg.domain.lo, f"{arg.name}.stop": arg.domain.hi}
        elif arg.domain.extent.constant != 1:
            wrong(f"{y.name} has an instance for each of {arg.domain}")
    if len({d.name for d in over}) < len(over):
        wrong(f"{y.name} goes twice over a dimension")
    for dim in over:
        _apart(m, dim)
    whole = back.block(y.body)

    def handler(m: Match, xs: Sequence[Op], i: int, ys: Sequence[Op], j: int) -> tuple[int, int]:
        if i or j or len(ys) != 1:
            wrong(f"{y.name} does not stand alone")
        m.loose = True  # what is compared are copies, which no claim names
        m.handlers.pop(id(ops[0]))
        m.block(Block(list(xs), []), whole)
        m.loose = False
        return len(xs), len(ys)

    m.handlers[id(ops[0])] = handler


def _own(m: Match, dim: Dim) -> Dim:
    """The dimension of the program before."""
    found = next((d for d in m.before.dims if d.name == dim.name), None)
    if found is None:
        wrong(f"{dim} is no dimension of the program before")
    return found


def _apart(m: Match, dim: Dim) -> None:
    """No operation brings coordinates of a dimension together, and accesses to what is stored to stay apart."""
    ops = list(m.before.body.walk())
    places: dict[str, int] = {}
    for op in ops:
        for text in _together(m, op, dim):
            wrong(f"{m.said(op)} {text}")
        if isinstance(op, Store):
            at = [i for i, s in enumerate(op.subs) if _whole(s, dim)]
            if op.effect != "set" or len(at) != 1:
                wrong(f"{m.said(op)} is made by every instance along {dim}")
            if places.setdefault(op.tensor.name, at[0]) != at[0]:
                wrong(f"two stores to {op.tensor} lie otherwise along {dim}")
    accesses = [op for op in ops if isinstance(op, Load | Store)]
    for op in accesses:
        own = places.get(op.tensor.name)
        if own is not None and not _whole(op.subs[own], dim):
            wrong(f"{op.tensor} is stored to, and accessed at other coordinates of {dim}")
    for touched, stored in ((op.tensor.name, name) for op in accesses for name in places):
        if touched != stored:
            apart(m, touched, stored)


def _whole(sub: object, dim: Dim) -> bool:
    return isinstance(sub, Sub) and sub.part is not None and sub.part == dim.whole()


def _together(m: Match, op: Op, dim: Dim) -> Iterator[str]:
    """How an operation brings coordinates of a dimension together, if it may."""
    match op:
        case Reduce() | ArgReduce() | Fold():
            if dim in op.dims:
                yield f"folds {dim}"
        case Scan() | Sort():
            if op.dim is dim:
                yield f"goes along {dim}"
        case Mma():
            if dim in op.contracted:
                yield f"contracts {dim}"
        case Region():
            if any(a.domain.dim is dim for a in op.args):
                yield f"runs over {dim}"
        case If():
            pass
        case _:
            if not isinstance(op, POINTWISE):
                yield "is of a kind that instances have no part of"
    subs = op.subs if isinstance(op, Load | Store | Extract | Insert) else ()
    if isinstance(op, Extract | Insert):
        for sub, axis in zip(subs, op.source.type.axes, strict=True):
            if axis.dim is dim and not _whole(sub, dim):
                yield f"picks some of {dim}"
    if any(isinstance(sub, tuple) and any(s.part is not None and s.part.dim is dim for s in sub) for sub in subs):
        yield f"subscripts {dim} as a factor"
    values = [*op.results, *op.parameters, *op.operands, *(v for b in op.blocks for v in b.yields)]
    parts = [a for v in values for a in v.type.axes]
    parts += [s.part for s in subs if isinstance(s, Sub) and s.part is not None]
    if any(p.dim is dim and p != dim.whole() for p in parts):
        yield f"takes some of {dim}"
    made = m.before.definitions()
    for name in {n for e in expressions(op) for n in e.functions if n.startswith("%")}:
        values = (*made[name].results, *made[name].parameters) if name in made else ()  # of scalars there are none
        if any(v.name == name and dim in v.type.dims for v in values):
            yield f"picks an element of {name}"
