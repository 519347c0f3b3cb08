"""What launches beside a contraction do for the streams family: operands made first, and the other regions."""

from __future__ import annotations

from treadle.algebra.dims import Part
from treadle.algebra.expr import Constraint, Expr
from treadle.analysis.uses import PURE, Uses, flat_subs
from treadle.ir.core import AxisSub, Region, Sub, Value
from treadle.ir.guard import Bound, Fact
from treadle.ir.ops.access import Load
from treadle.ir.ops.fold import Mma
from treadle.realise.finding import MOST_AXES
from treadle.realise.ring import Stream
from treadle.rules.copies import recompute
from treadle.rules.derivation import Derivation
from treadle.rules.layouts import linear, relayout
from treadle.rules.tiles import materialise
from treadle.targets.cuda.shape import Shape
from treadle.targets.cuda.stream_facts import holds


def kept_first(way: Derivation, value: Value) -> Derivation:
    """A value made by a region of its own, with what it needs of the regions around it computed there again. *Errors*:
    those of the rules."""
    uses = Uses(way.program)
    home = uses.home[id(uses.definition[value.name])]
    owner = uses.owner.get(id(home))
    todo, again = [value], list[Value]()
    while todo:
        op = uses.definition.get(todo.pop().name)
        if not isinstance(op, PURE) or op.result in again:
            continue
        if uses.home[id(op)] is not home and uses.home[id(op)] is not way.program.body:
            again.append(op.result)
        todo += uses.direct(op)
    for block in [b for op in way.program.body.walk() for b in op.blocks]:
        for op in reversed(block.ops):
            if isinstance(owner, Region) and any(v in again for v in op.results):
                way = way.then(recompute, op.result.name, owner.name)
    return way.then(materialise, value.name, rank=MOST_AXES)


def laid_first(way: Derivation, value: Value, shape: Shape) -> Derivation:
    """A load of a contraction as one of a copy of its tensor: what is contracted is contiguous there, and multiples of
    a part's coordinates are neighbours. Others are made whole (`kept_first`). *Errors*: those of the rules."""
    asked = layout_of(value, shape)
    return kept_first(way, value) if asked is None else way.then(relayout, value.name, *asked)


def layout_of(value: Value, shape: Shape) -> tuple[list[int], list[int]] | None:
    """In which order of axes, and with which strides along them, a copy of a tensor has what a contraction loads at
    computed places as boxes; None where it has not: rows that are gathered lie no better in a copy."""
    op = shape.uses.definition.get(value.name)
    if not isinstance(op, Load) or not any(s.tile is not None for s in flat_subs(op.subs)):
        return None
    if any(s.tile is not None and linear(s.tile, shape.uses.definition) is None for s in flat_subs(op.subs)):
        return None
    readers = [m for m in shape.program.body.walk() if isinstance(m, Mma) and value in (m.a, m.b)]
    deep = {d for m in readers for d in m.contracted}
    last = [axis for axis, one in enumerate(op.subs) if (p := innermost(one)) is not None and p.dim in deep]
    strides = [1 if (p := places(one, shape)) is None else p[1] for one in op.subs]
    if len(last) != 1 or min(strides) < 1 or strides[last[0]] > 1:
        return None
    return [*(axis for axis in range(len(op.subs)) if axis not in last), *last], strides


def innermost(one: AxisSub) -> Part | None:
    """The part that an axis, or the last factor of one, is subscripted by."""
    return one.part if isinstance(one, Sub) else one[-1].part


def places(one: AxisSub, shape: Shape) -> tuple[Part | None, int, Expr] | None:
    """Computed coordinates as those of a part times a number, and what is added."""
    return None if not isinstance(one, Sub) or one.tile is None else linear(one.tile, shape.uses.definition)


def copied_as_is(stream: Stream, value: Value) -> bool:
    """Whether engines copy an operand from where it is, boxes at shifted coordinates for one."""
    sides = [(c.left, c.left_tile) for c in stream.contractions] + [
        (c.right, c.right_tile) for c in stream.contractions
    ]
    return all(tile is not None for one, tile in sides if one.name == value.name)


def across(op: Load, shape: Shape) -> bool:
    """Whether neighbours of what is loaded are no neighbours in memory: single coordinates are what is contiguous."""
    unit = [op.subs[axis] for axis in range(len(op.subs)) if (op.tensor.name, axis) in shape.facts.unit]
    return bool(unit) and all(isinstance(s, Sub) and s.index is not None for s in unit)


def small(shape: Shape) -> list[Fact]:
    """That coordinates fit 32 bits, factors of products too, where a call has no larger ones: tasks of a few elements
    a thread are found by quotients."""
    dims = [d for d in shape.program.dims if not d.factors and d.extent.constant is None]
    factors = {f.name for d in shape.program.dims for f in d.factors}
    bounds = [Bound(Constraint((1 << (24 if d.name in factors else 30)) - d.extent)) for d in dims]
    return [b for b in bounds if holds(b, shape)]


def contracting(shape: Shape) -> str:
    """The one region that contracts, of a program of several; "" where there is no such thing."""
    regions = [op for op in shape.program.body.ops if isinstance(op, Region)]
    if len(regions) < 2 or any(not isinstance(op, (Region, *PURE)) for op in shape.program.body.ops):
        return ""
    found = [r for r in regions if any(isinstance(op, Mma) for op in r.body.walk())]
    return shape.names[id(found[0])] if len(found) == 1 else ""


def beside(shape: Shape, region: Region) -> list[Region]:
    """The other regions of the program."""
    return [op for op in shape.program.body.ops if isinstance(op, Region) and op is not region]
