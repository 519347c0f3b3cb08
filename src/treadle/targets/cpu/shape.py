"""What the CPU families see of a program: regions and their arguments, contractions and the roles of their dimensions,
which dimensions are contiguous in memory, and how much there is to compute and move.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, prod
from typing import cast

from treadle.algebra.dims import Dim
from treadle.algebra.expr import sym
from treadle.analysis.uses import PURE, WEIGHT, Uses, flat_subs
from treadle.base.memo import memoised
from treadle.dtype.formats import DType
from treadle.ir.core import Block, Op, Program, Region, RegionArg, Sub, Value
from treadle.ir.ops.access import Extract, Load, Store
from treadle.ir.ops.elementwise import Cast, Elementwise, Full
from treadle.ir.ops.fold import Mma, Reduce
from treadle.plan.facts import CallFacts
from treadle.realise.bands import Band, bands, neighbours, offset_of
from treadle.realise.universal import task_regions

Spans = Mapping[int, float]
"""Coordinates of an argument's domain, by the identity of the argument."""
MANY = 32
"""Blocks that a mean is taken over, at most."""
SWEPT = 16
"""A dimension along which so many times fewer elements are contiguous than along another is left to rows."""


@dataclass(frozen=True)
class Contraction:
    """One `mma`: its operation, the dimensions of its accumulator that only `a` or only `b` has, those of both, and
    the contracted ones. `block` is the block it stands in."""

    op: Mma
    block: Block
    only_a: tuple[Dim, ...]
    only_b: tuple[Dim, ...]
    both: tuple[Dim, ...]
    contracted: tuple[Dim, ...]


@dataclass
class Shape:
    """Facts about one program under the strides of a call."""

    program: Program
    facts: CallFacts
    uses: Uses
    names: dict[int, str] = field(default_factory=dict[int, str])
    regions: list[Region] = field(default_factory=list[Region])
    parents: dict[int, Region | None] = field(default_factory=dict[int, "Region | None"])
    contractions: list[Contraction] = field(default_factory=list[Contraction])
    tasks: list[str] = field(default_factory=list[str])
    contiguous: dict[str, int] = field(default_factory=dict[str, int])
    along: dict[str, int] = field(default_factory=dict[str, int])
    """Dimension -> elements of the accesses that are contiguous along it."""
    known: dict[object, object] = field(default_factory=dict[object, object])
    """What families remember from point to point."""
    counted: dict[str, tuple[float, dict[int, float]]] = field(
        default_factory=dict[str, tuple[float, dict[int, float]]]
    )
    """What `windows` has counted by outermost region."""
    _everywhere: dict[str, tuple[RegionArg, ...] | None] = field(
        default_factory=dict[str, "tuple[RegionArg, ...] | None"]
    )
    _extents: dict[Dim, int] = field(default_factory=dict[Dim, int])
    _chains: dict[int, list[Region]] = field(default_factory=dict[int, list[Region]])
    _products: dict[int, int] = field(default_factory=dict[int, int])
    _elements: dict[tuple[int, tuple[Dim, ...]], int] = field(default_factory=dict[tuple[int, tuple[Dim, ...]], int])

    def __post_init__(self) -> None:
        self.tasks = task_regions(self.program)
        self._visit(self.program.body, None)
        for op in self.program.body.walk():
            if isinstance(op, Load | Store):
                dim = self.unit_dim(op)
                if dim is not None:
                    self.contiguous[dim.name] = self.contiguous.get(dim.name, 0) + 1
                    moved = self.elements(op, (op.value if isinstance(op, Store) else op.result).type.dims)
                    self.along[dim.name] = self.along.get(dim.name, 0) + moved

    def _visit(self, block: Block, owner: Region | None) -> None:
        for op in block.ops:
            if isinstance(op, Region):
                self.names[id(op)] = op.name or f"R{len(self.names)}"
                self.regions.append(op)
                self.parents[id(op)] = owner
            if isinstance(op, Mma):
                self.contractions.append(_contraction(op, block))
            for inner in op.blocks:
                self._visit(inner, op if isinstance(op, Region) else owner)

    # ---- regions

    def named(self, name: str) -> Region:
        """The region of that name."""
        return next(r for r in self.regions if self.names[id(r)] == name)

    def owner(self, op: Op) -> Region | None:
        """The innermost region around an operation."""
        holder: Op | None = self.uses.owner[id(self.uses.home[id(op)])]
        while holder is not None and not isinstance(holder, Region):
            holder = self.uses.owner[id(self.uses.home[id(holder)])]
        return holder

    def chain(self, op: Op) -> list[Region]:
        """The regions around an operation, outermost first."""
        if id(op) not in self._chains:
            found: list[Region] = []
            region = self.owner(op)
            while region is not None:
                found.insert(0, region)
                region = self.parents[id(region)]
            self._chains[id(op)] = found
        return self._chains[id(op)]

    def arguments(self) -> Iterator[tuple[Region, RegionArg, str]]:
        """All block arguments of open size: region, argument, key of `Choices.cuts`."""
        for region in self.regions:
            for arg in region.args:
                if arg.kind == "block" and arg.size is None:
                    yield region, arg, f"{self.names[id(region)]}.{arg.name}"

    # ---- extents

    def extent(self, dim: Dim) -> int:
        """The representative extent of a dimension."""
        known = self._extents.get(dim)
        if known is None:
            known = self._extents[dim] = self.facts.value(dim.extent)
        return known

    def size(self, dims: tuple[Dim, ...]) -> int:
        """How many coordinates a product of dimensions has."""
        return prod(self.extent(d) for d in dims)

    def instances(self, op: Op) -> int:
        """How many single coordinates the regions around an operation enumerate."""
        return prod(self.facts.value(a.domain.extent) for r in self.chain(op) for a in r.args)

    def spans(self, cuts: Mapping[str, int]) -> Spans:
        """Coordinates of the domains that hang on the blocks of other arguments (the keys that a block of causal
        queries sees), on average over those blocks: by the identity of the argument.

        *Ensures*: the mean over all blocks where they are no more than `MANY`, else over as many of them, evenly apart.
        """
        if not self.hanging:
            return {}
        sizes = tuple(cuts.get(key, 1) for _, (_, key) in self.hanging)
        known = self.known.get(("spans", sizes))
        if not isinstance(known, dict):
            made = {id(a): self._span(a, b, size) for (a, (b, _)), size in zip(self.hanging, sizes, strict=True)}
            known = self.known["spans", sizes] = made
        return cast("dict[int, float]", known)

    def _span(self, arg: RegionArg, on: RegionArg, cut: int) -> float:
        """The mean coordinates of an argument's domain over blocks of another."""
        extent = self.facts.value(on.domain.extent)
        starts = range(0, extent, max(1, cut))
        table, found = dict(self.facts.extents), list[int]()
        for start in starts[:: ceil(len(starts) / MANY) or 1]:
            table |= {f"{on.name}.start": start, f"{on.name}.stop": min(extent, start + cut)}
            found.append(max(0, int(arg.domain.extent.evaluate(table))))
        return sum(found) / max(1, len(found))

    @cached_property
    def hanging(self) -> list[tuple[RegionArg, tuple[RegionArg, str]]]:
        """Arguments whose domains hang on the blocks of one other argument around them, of another dimension, and on
        extents that are known; with that argument and its key of `Choices.cuts`."""
        found: list[tuple[RegionArg, tuple[RegionArg, str]]] = []
        bounds = {s: (arg, key) for _, arg, key in self.arguments() for s in (f"{arg.name}.start", f"{arg.name}.stop")}
        for region in self.regions:
            for arg in region.args:
                extent = arg.domain.extent
                names = set(extent.symbols)
                on = {bounds[s][1]: bounds[s] for s in names if s in bounds}
                if len(on) != 1 or extent.functions or not names <= {*bounds, *self.facts.extents}:
                    continue
                ((other, key),) = on.values()
                if other.domain.dim != arg.domain.dim and other.domain == other.domain.dim.whole():
                    found.append((arg, (other, key)))
        return found

    def share(self, op: Op, dims: Iterable[Dim], spans: Spans) -> float:
        """Of coordinates along `dims`, how many the domains around an operation leave."""
        parts = [
            spans[id(a)] / whole
            for r in self.chain(op)
            for a in r.args
            if id(a) in spans and a.domain.dim in dims and (whole := self.extent(a.domain.dim))
        ]
        return prod(parts, start=1.0)

    def elements(self, op: Op, dims: tuple[Dim, ...]) -> int:
        """How many elements along `dims` there are over all single coordinates of the regions around an operation."""
        known = self._elements.get((id(op), dims))
        if known is None:
            args = [a for r in self.chain(op) for a in r.args]
            cutting = {s for a in args if a.domain.dim in dims for e in (a.domain.lo, a.domain.hi) for s in e.symbols}
            # An index that only says which part of one of the dimensions is meant adds none.
            around = {a.domain.dim for a in args if a.kind == "each" and a.name not in cutting}
            known = self._elements[id(op), dims] = self.size(tuple(around | set(dims)))
        return known

    def products(self, found: Contraction, spans: Spans | None = None) -> float:
        """How many products a contraction sums in all, of domains as `spans` of them (else by single coordinates)."""
        known = self._products.get(id(found.op))
        if known is None:
            around = {a.domain.dim for r in self.chain(found.op) for a in r.args}
            free = {*found.op.result.type.dims, *found.contracted} - around
            known = self._products[id(found.op)] = self.size(tuple(free))
        table = self.spans({}) if spans is None else spans
        args = [a for r in self.chain(found.op) for a in r.args]
        return known * prod(table[id(a)] if id(a) in table else self.facts.value(a.domain.extent) for a in args)

    # ---- memory

    def unit_dim(self, op: Load | Store) -> Dim | None:
        """The dimension along which an access moves by one element."""
        tensor = op.tensor
        axes = [i for i in range(len(tensor.dims)) if (tensor.name, i) in self.facts.unit]
        if not axes:
            return None
        found = op.subs[axes[-1]]
        sub = found[-1] if isinstance(found, tuple) else found
        return None if sub.part is None else sub.part.dim

    @memoised
    def source_unit(self, value: Value) -> Dim | None:
        """The contiguous dimension of the first load that a value is computed from."""
        todo = [value]
        while todo:
            op = self.uses.definition.get(todo.pop(0).name)
            if isinstance(op, Load):
                return self.unit_dim(op)
            if isinstance(op, PURE):
                todo += op.operands
        return None

    @memoised
    def source_dtype(self, value: Value) -> DType | None:
        """The dtype of the first load that a value is computed from."""
        todo = [value]
        while todo:
            op = self.uses.definition.get(todo.pop(0).name)
            if isinstance(op, Load):
                return op.tensor.dtype
            if isinstance(op, PURE):
                todo += op.operands
        return None

    def source_bytes(self, value: Value) -> int:
        """Bytes of an element where it is loaded."""
        dtype = self.source_dtype(value)
        return 4 if dtype is None else max(1, dtype.bits // 8)

    def everywhere(self, value: Value) -> tuple[RegionArg, ...] | None:
        """The arguments of regions that tell which elements of tensors a value is made of, if nothing else does: for
        each of their coordinates there is one tile over whole dimensions, and each block of the value is a part of one.
        None where it is not so."""
        if value.name not in self._everywhere:
            self._everywhere[value.name] = self._told(value)
        return self._everywhere[value.name]

    def _told(self, value: Value) -> tuple[RegionArg, ...] | None:
        args = [a for r in self.regions for a in r.args if a.domain == a.domain.dim.whole()]
        whole = {a.part for a in args if a.kind == "block"}
        each = {a.name: a for a in args if a.kind == "each"}
        found: dict[str, RegionArg] = {}
        todo = [value]
        while todo:
            op = self.uses.definition.get(todo.pop().name)
            if isinstance(op, Load):
                if op.fill is not None or not self.uses.stable(op):
                    return None
                for sub, dim in subscripted(op):
                    arg = (
                        None
                        if sub.index is None
                        else next((a for a in each.values() if sub.index == sym(a.name)), None)
                    )
                    if arg is not None and arg.domain.dim == dim:
                        found[arg.name] = arg
                    elif sub.part is None or not (sub.part in whole or sub.part == sub.part.dim.whole()):
                        return None
            elif isinstance(op, Cast | Elementwise | Full):
                todo += op.operands
            else:
                return None
        return tuple(a for a in each.values() if a.name in found)

    def distinct(self, value: Value) -> int:
        """How many elements a value has that is the same everywhere, over all coordinates that tell it."""
        told = self.everywhere(value) or ()
        return self.size(tuple({*value.type.dims, *(a.domain.dim for a in told)}))

    @cached_property
    def swept(self) -> list[str]:
        """Dimensions worth having vectors along, those with most elements first: not that of a number a row."""
        most = max(self.along.values(), default=0)
        return sorted((n for n, c in self.along.items() if SWEPT * c >= most), key=lambda n: -self.along[n])

    @cached_property
    def statements(self) -> list[Store]:
        """Stores of whole dimensions, where all that the program does is made of such statements: none if tiles are
        gathered from, which vectors would do lane by lane."""
        for op in self.program.body.walk():
            for sub in flat_subs(op.subs) if isinstance(op, Extract) else ():
                if sub.tile is not None and offset_of(sub.tile, self.uses) is None:
                    return []
        return [op for op in self.program.body.ops if isinstance(op, Store) and op.value.type.dims]

    @cached_property
    def bands(self) -> tuple[Band, ...]:
        """Regions that instances of later ones can make for themselves."""
        return bands(self.program, self.uses, self.names)

    @cached_property
    def windows(self) -> dict[str, int]:
        """Dimensions without vectors along them of which neighbours are read from one source at several constant
        offsets, and at how many."""
        found: dict[str, int] = {}
        for axes in neighbours(self.program, self.uses).values():
            for dim, offsets in axes.items():
                if len(offsets) > 1 and dim.name not in self.swept:
                    found[dim.name] = max(found.get(dim.name, 0), len(offsets))
        return found

    @cached_property
    def folding(self) -> bool:
        """Whether something is folded."""
        return any(isinstance(o, Reduce | Mma) for o in self.program.body.walk()) or any(
            r.kind != "parallel" for r in self.regions
        )

    @cached_property
    def bytes(self) -> int:
        """Bytes of all tensors together."""
        return sum(self.size(t.dims) * max(1, t.dtype.bits) // 8 for t in self.program.tensors)

    @cached_property
    def stored_bytes(self) -> int:
        """Bytes of the tensors that are stored to."""
        return sum(
            self.size(t.dims) * max(1, t.dtype.bits // 8) for t in self.program.tensors if t.name in self.uses.stored
        )

    @cached_property
    def pointwise_work(self) -> float:
        """Elements times simple instructions of everything but contractions."""
        return sum(weight * self.elements(op, dims) for op, dims, weight in self.pointwise)

    @cached_property
    def pointwise(self) -> list[tuple[Op, tuple[Dim, ...], int]]:
        """Operations other than contractions: each with the dimensions of its elements and instructions for one."""
        found: list[tuple[Op, tuple[Dim, ...], int]] = []
        for op in self.program.body.walk():
            if isinstance(op, Elementwise | Cast | Reduce | Load | Store) and (op.results or isinstance(op, Store)):
                value = op.value if isinstance(op, Store) else op.source if isinstance(op, Reduce) else op.result
                found.append((op, value.type.dims, WEIGHT.get(op.fn, 1) if isinstance(op, Elementwise) else 1))
        return found

    @memoised
    def contracted_by_region(self, found: Contraction) -> tuple[Dim, ...]:
        """Dimensions contracted by a fold of iterations: of arguments of ordered regions around the operation that the
        accumulator lacks."""
        kept = found.op.result.type.dims
        return tuple(
            a.domain.dim
            for r in self.chain(found.op)
            if r.kind != "parallel"
            for a in r.args
            if a.domain.dim not in kept
        )


def subscripted(op: Load) -> Iterator[tuple[Sub, Dim]]:
    """The single subscripts of a load with their dimensions, factors of product axes one by one."""
    for sub, dim in zip(op.subs, op.tensor.dims, strict=True):
        if isinstance(sub, tuple):
            yield from zip(sub, dim.factors if len(sub) > 1 else (dim,), strict=True)
        else:
            yield sub, dim


_recent: list[tuple[Program, CallFacts, Shape]] = []


def shape_of(program: Program, facts: CallFacts) -> Shape:
    """The shape of a program under a call's facts; the last few are remembered (a family asks at every point)."""
    for known, under, shape in _recent:
        if known is program and under is facts:
            return shape
    made = Shape(program, facts, Uses(program))
    _recent.append((program, facts, made))
    del _recent[:-8]
    return made


def _contraction(op: Mma, block: Block) -> Contraction:
    kept, in_a, in_b = op.result.type.dims, op.a.type.dims, op.b.type.dims
    return Contraction(
        op,
        block,
        tuple(d for d in kept if d in in_a and d not in in_b),
        tuple(d for d in kept if d in in_b and d not in in_a),
        tuple(d for d in kept if d in in_a and d in in_b),
        op.contracted,
    )
