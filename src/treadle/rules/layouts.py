"""A step on how elements lie: a load reads a copy of its tensor in another order of axes, a strided axis in phases.

The copy is made by a region of its own in front, once, and holds each element once: what an engine can copy boxes of
depends on which axis is contiguous, and on neighbours of a box being neighbours in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from treadle.algebra.dims import Dim, Part
from treadle.algebra.expr import ZERO, Expr, const
from treadle.ir.core import AxisSub, Block, Op, Program, Region, RegionArg, Sub, TileType, Value
from treadle.ir.infer import result_type, sub_axes
from treadle.ir.ops.access import Extract, Insert, Load
from treadle.ir.ops.elementwise import Cast, Coords, Elementwise, Full, Index
from treadle.ir.ops.fold import Mma
from treadle.ir.rewrite import operand_names
from treadle.plan.steps import Step
from treadle.rules.accesses import stored_in
from treadle.rules.draft import Draft, named
from treadle.rules.refusals import FormUnsupported, Overwritten
from treadle.rules.tiles import around, assume


def relayout(
    program: Program,
    value: str,
    order: list[int],
    strides: list[int] | None = None,
    disjoint: list[list[str]] | None = None,
) -> tuple[Program, Step]:
    """A load that a contraction reads, of a copy of its whole tensor: `order` has the axes of the tensor as the copy
    has them, the contiguous one last.

    `strides`, one a tensor's axis: an axis of stride `s > 1` is two in the copy, `copy[.., r, .., u, ..] = X[.., s u +
    r, ..]`, so that coordinates `s x + k` are neighbours; phases `r` of all axes are one dimension, the first of the
    copy. Elements beside the tensor are 0 there.

    *Ensures*: the program after stores what the one before does; a coordinate `c` of a strided axis is read at phase
    `c mod s` and unit `c div s`. *Errors*: `rules/form` where something else than contractions reads the load, where it
    is filled with other than zeros, or where coordinates along a strided axis are no such sum; `rules/overwritten`
    where the tensor is stored to.
    """
    d = Draft(program, "relayout", {"value": value, "order": list(order), "strides": strides})
    load = d.definition(value)
    outer = _checked(d, load, order, strides)
    assert isinstance(load, Load)
    _unchanged(d, load)
    steps = strides or [1] * len(order)
    copied = _Copy(d, load.tensor.dims, order, steps)
    blank, region = copied.made(load, outer.name)
    block, place = d.home(load)
    made, subs = copied.read(load)
    fill = load.fill
    now = d.fresh(TileType(load.tensor.dtype, sub_axes(subs)), load.result.hint)
    read = Extract(source=region.result, subs=subs, fill=fill, results=[now], span=load.span)
    block.ops[place : place + 1] = [*made, read]
    for op in d.program.body.walk():
        if isinstance(op, Mma):
            op.a = now if op.a is load.result else op.a
            op.b = now if op.b is load.result else op.b
    top, at = d.home(outer)
    top.ops[at:at] = [blank, region]
    return d.finish()


def _checked(d: Draft, load: Op, order: list[int], strides: list[int] | None) -> Region:
    """The outermost region around a load that can be read from a copy. *Errors*: `rules/form`."""
    if not isinstance(load, Load):
        raise d.no(FormUnsupported, f"{named(load)}", "a load", "name one", load)
    rank = len(load.tensor.dims)
    if sorted(order) != list(range(rank)) or (strides and (len(strides) != rank or min(strides) < 1)):
        raise d.no(
            FormUnsupported,
            f"the order {order} with strides {strides} of {rank} axes",
            "each axis of the tensor once, and a stride for each",
            "count the axes",
            load,
        )
    if len({x.root for x in load.tensor.dims}) < rank:
        raise d.no(FormUnsupported, f"two axes of {load.tensor} along one dimension", "one axis each", "alias", load)
    chain = around(d.program.body, d.home(load)[0])
    if not chain or chain[0].kind != "parallel" or chain[0] not in d.program.body.ops:
        raise d.no(FormUnsupported, f"{load.result} is outside of all regions", "a load in a region", "leave it", load)
    zero = None if load.fill is None else d.program.definitions().get(load.fill.name)
    if zero is not None and not (isinstance(zero, Full) and zero.number == 0):
        raise d.no(FormUnsupported, f"{load.result} is filled with {load.fill}", "zeros", "leave it", load)
    name = load.result.name
    for op in d.program.body.walk():
        read = name in operand_names(op) or any(v.name == name for b in op.blocks for v in b.yields)
        alone = isinstance(op, Mma) and op.acc.name != name and len(op.contracted) == 1
        if read and not alone:
            raise d.no(
                FormUnsupported,
                f"{named(op)} reads {load.result}",
                "contractions along one dimension only",
                "leave it",
                op,
            )
    return chain[0]


def _unchanged(d: Draft, load: Load) -> None:
    """*Errors*: `rules/overwritten` where the program stores to the tensor."""
    stored = stored_in(d.program.body.ops)
    if load.tensor.name in stored:
        raise d.no(Overwritten, f"{load.tensor} is stored to", "a tensor that keeps its elements", "leave it", load)
    assume(d, [(load.tensor.name, t) for t in stored])


@dataclass(frozen=True)
class _Axis:
    """An axis of the tensor in the copy: its dimension there, and its stride."""

    at: int
    dim: Dim
    stride: int


class _Copy:
    """The copy of a tensor: its axes, the region that fills it, and what reads it."""

    def __init__(self, d: Draft, dims: Sequence[Dim], order: Sequence[int], strides: Sequence[int]) -> None:
        self.d = d
        self.axes = [_Axis(i, self._units(dims[i], strides[i]), strides[i]) for i in order]
        split = [i for i in range(len(dims)) if strides[i] > 1]
        self.phases = {i: self._new(f"{dims[i].name}_phase", const(strides[i])) for i in split}
        self.phase: Dim | None = next(iter(self.phases.values()), None)
        if len(split) > 1:
            found = tuple(self.phases.values())
            self.phase = self._new("phase", prod((f.extent for f in found), start=const(1)), found)

    def _new(self, name: str, extent: Expr, factors: tuple[Dim, ...] = ()) -> Dim:
        """A new dimension of the program."""
        taken = (
            {x.name for x in self.d.program.dims} | set(self.d.program.lets) | {x.name for x in self.d.program.tensors}
        )
        while name in taken:
            name += "_"
        made = Dim(name, extent, factors=factors)
        self.d.program.dims.append(made)
        return made

    def _units(self, dim: Dim, stride: int) -> Dim:
        return dim if stride == 1 else self._new(f"{dim.name}_by_{stride}", (dim.extent + (stride - 1)) // stride)

    def _subs(self, phases: Sequence[Sub], others: Sequence[AxisSub]) -> tuple[AxisSub, ...]:
        first: list[AxisSub] = [] if not phases else [phases[0] if len(phases) == 1 else tuple(phases)]
        return (*first, *others)

    def made(self, load: Load, stem: str) -> tuple[Full, Region]:
        """The tile before it is filled, and the region that fills it: instances for all axes but the contiguous one of
        the tensor, of which they have blocks, and that of the copy, of which they have all."""
        d, tensor = self.d, load.tensor
        parts = ([] if self.phase is None else [self.phase.whole()]) + [a.dim.whole() for a in self.axes]
        tile = TileType(tensor.dtype, tuple(parts))
        blank = Full(number=None, results=[d.fresh(tile, f"{tensor.name}_copy")])
        args: list[RegionArg] = []
        # Instances of neighbouring phases, which read the same stretch of memory, come one after the other.
        phased = [self._arg(dim, "each") for dim in self.phases.values()]
        phases = [Sub(index=a.index) for a in phased]
        own: dict[int, AxisSub] = {}
        last = len(tensor.dims) - 1
        whole = self.axes[-1].at
        for axis in self.axes:
            if axis.at == whole != last:
                own[axis.at] = self._whole(axis.dim, args)
                continue
            args.append(self._arg(axis.dim, "block" if axis.at == last else "each"))
            own[axis.at] = Sub(part=args[-1].part) if axis.at == last else Sub(index=args[-1].index)
        args += phased
        ops: list[Op] = []
        subs: list[AxisSub] = []
        for at in range(len(tensor.dims)):
            axis = next(a for a in self.axes if a.at == at)
            number = list(self.phases).index(at) if at in self.phases else -1
            subs.append(own[at] if number < 0 else self._spread(own[at], axis.stride, phases[number], ops))
        zero = Full(number=0.0 if tensor.dtype.is_float else 0, results=[d.fresh(TileType(tensor.dtype, ()), "zero")])
        if self.phases:
            ops.append(zero)
        value = d.fresh(TileType(tensor.dtype, sub_axes(tuple(subs))), tensor.name)
        fill = zero.result if self.phases else None
        ops.append(Load(tensor=tensor, subs=tuple(subs), fill=fill, results=[value], span=load.span))
        held, put, result = (d.fresh(tile, f"{tensor.name}_copy") for _ in range(3))
        places = self._subs(phases, [own[a.at] for a in self.axes])
        ops.append(Insert(source=held, subs=places, value=value, results=[put]))
        region = Region(
            kind="parallel",
            args=args,
            inits=[blank.result],
            carried=[held],
            body=Block(ops, [put]),
            results=[result],
            name=d.regions.fresh(f"{stem}_{tensor.name}"),
            span=load.span,
        )
        return blank, region

    def _arg(self, dim: Dim, kind: str) -> RegionArg:
        name = self.d.symbols.fresh(dim.name.lower())
        return RegionArg(name, dim.whole(), "block" if kind == "block" else "each")

    def _whole(self, dim: Dim, args: list[RegionArg]) -> AxisSub:
        """All of a dimension; of a product all of the last factor, for an instance of the others."""
        if not dim.factors:
            return Sub(part=dim.whole())
        args += [self._arg(f, "each") for f in dim.factors[:-1]]
        before = args[len(args) - len(dim.factors) + 1 :]
        return (*(Sub(index=a.index) for a in before), Sub(part=dim.factors[-1].whole()))

    def _spread(self, sub: AxisSub, stride: int, phase: Sub, ops: list[Op]) -> Sub:
        """The coordinate of the tensor for one of the copy and a phase."""
        assert phase.index is not None and isinstance(sub, Sub)
        if sub.index is not None:
            return Sub(index=sub.index * stride + phase.index)
        assert sub.part is not None
        return Sub(tile=self._sum(sub.part, stride, phase.index, ops))

    def _sum(self, part: Part, times: int, more: Expr, ops: list[Op]) -> Value:
        """`times` coordinates of a part and `more`, computed."""
        coords = Coords(part=part, results=[])
        coords.results = [self.d.fresh(_typed(coords))]
        found = coords.result
        ops.append(coords)
        if times != 1:
            found = self._op("mul", found, self._number(const(times), ops), ops)
        return self._op("add", found, self._number(more, ops), ops) if more != ZERO else found

    def _number(self, e: Expr, ops: list[Op]) -> Value:
        op = Index(expr=e, results=[])
        ops.append(op)
        op.results = [self.d.fresh(_typed(op))]
        return op.result

    def _op(self, fn: str, a: Value, b: Value, ops: list[Op]) -> Value:
        op = Elementwise(fn=fn, args=(a, b), results=[])
        op.results = [self.d.fresh(_typed(op))]
        ops.append(op)
        return op.result

    def read(self, load: Load) -> tuple[list[Op], tuple[AxisSub, ...]]:
        """What computes coordinates, and subscripts of the copy, for those of the load. *Errors*: `rules/form`."""
        ops: list[Op] = []
        phases: list[Sub] = []
        for at, dim in self.phases.items():
            _, more = self._linear(load, at)
            phases.append(Sub(index=more % dim.extent))
        subs: list[AxisSub] = []
        for axis in self.axes:
            if axis.stride == 1:
                subs.append(load.subs[axis.at])
                continue
            part, more = self._linear(load, axis.at)
            unit = more // axis.stride
            subs.append(Sub(index=unit) if part is None else Sub(tile=self._sum(part, 1, unit, ops)))
        return ops, self._subs(phases, subs)

    def _linear(self, load: Load, at: int) -> tuple[Part | None, Expr]:
        """Coordinates along a strided axis: the part of which they are the stride's multiple, and what is added."""
        sub = load.subs[at]
        stride = next(a.stride for a in self.axes if a.at == at)
        if isinstance(sub, Sub) and sub.index is not None and not sub.index.functions:
            return None, sub.index
        found = None if not isinstance(sub, Sub) or sub.tile is None else linear(sub.tile, self.d.program.definitions())
        if found is None or found[0] is None or found[1] != stride or load.fill is None:
            raise self.d.no(
                FormUnsupported,
                f"the coordinates of {load.result} along {load.tensor.dims[at]}",
                f"{stride} times those of a part and a number, with zeros outside",
                "leave it",
                load,
            )
        return found[0], found[2]


def _typed(op: Op) -> TileType:
    found = result_type(op)
    assert found is not None
    return found


def linear(value: Value, made: dict[str, Op]) -> tuple[Part | None, int, Expr] | None:
    """An integer value as a number times the coordinates of a part, and what is added: part, number, sum. None where it
    is no such sum."""
    match made.get(value.name):
        case Coords():
            return value.type.axes[0], 1, ZERO
        case Index(expr=expr):
            return None if expr.functions else (None, 0, expr)
        case Full(number=int(number)):
            return None, 0, const(number)
        case Cast(source=source):
            return linear(source, made) if source.type.dtype.is_int else None
        case Elementwise(fn=("add" | "sub" | "mul") as fn, args=args):
            first, second = linear(args[0], made), linear(args[1], made)
            return None if first is None or second is None else _combined(fn, first, second)
        case _:
            return None


def _combined(
    fn: str, first: tuple[Part | None, int, Expr], second: tuple[Part | None, int, Expr]
) -> tuple[Part | None, int, Expr] | None:
    (part, times, more), (other, others, add) = first, second
    if fn == "mul":
        if part is not None and other is not None:
            return None
        if part is None and other is None:
            return None, 0, more * add
        factor = (more if part is None else add).constant
        if factor is None:
            return None
        return (other, others * factor, add * factor) if part is None else (part, times * factor, more * factor)
    if part is not None and other is not None or (fn == "sub" and other is not None):
        return None
    total = more + add if fn == "add" else more - add
    return (part, times, total) if part is not None else (other, others, total)
