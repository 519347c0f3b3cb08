"""What the CUDA families see of a program: regions, contiguous dimensions, how much there is to compute and move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Generic, TypeVar

from treadle.algebra.dims import Dim, Part
from treadle.analysis.uses import PURE, Uses
from treadle.base.memo import memoised
from treadle.ir.core import Block, If, Op, Program, Region, RegionArg, Sub, Tensor
from treadle.ir.guard import Aligned, Fact, Pitch, Unit
from treadle.ir.ops.access import Extract, Insert, Load, Store
from treadle.ir.ops.debug import Check, Print
from treadle.ir.ops.elementwise import Cast, Elementwise
from treadle.ir.ops.fold import ArgReduce, Mma, Reduce, Scan
from treadle.math.table import BY_WIDE
from treadle.plan.facts import CallFacts
from treadle.realise.universal import task_regions

SLOTS: dict[str, float] = {
    **dict.fromkeys(("exp", "exp2", "log", "log2", "expm1", "log1p", "sin", "cos"), 24.0),
    **dict.fromkeys(("tanh", "erf"), 30.0),
    **dict.fromkeys(("div", "sqrt", "rsqrt", "floordiv", "mod"), 9.0),
    "pow": 60.0,
}
"""Issue slots of a function whose expansion keeps the accuracy class; everything else takes one."""

NEAR: dict[str, float] = {"exp": 9.0, "exp2": 8.0, "sigmoid": 34.0, "tanh": 18.0, "erf": 22.0}
"""The same where the expansion stands around the hardware's instructions."""

FAST: dict[str, float] = {
    "exp": 2.0,
    **dict.fromkeys(("sin", "cos"), 5.0),
    **dict.fromkeys(("log2", "rsqrt", "tanh"), 4.0),
    "exp2": 1.0,
}
"""The same where the hardware's approximation is allowed."""


SCANNED = 6.0
"""Issue slots of an element of a scan: its own sum, what stands before its lane and its warp, its share of shuffles."""


@dataclass
class Shape:
    """Facts about one program under the strides of a call."""

    program: Program
    facts: CallFacts
    uses: Uses
    names: dict[int, str] = field(default_factory=dict[int, str])
    regions: list[Region] = field(default_factory=list[Region])
    around: dict[int, tuple[Region, ...]] = field(default_factory=dict[int, "tuple[Region, ...]"])
    tasks: list[str] = field(default_factory=list[str])
    known: dict[object, object] = field(default_factory=dict[object, object])
    """What families remember from point to point."""

    def __post_init__(self) -> None:
        self.tasks = task_regions(self.program)
        self._visit(self.program.body, ())

    def _visit(self, block: Block, chain: tuple[Region, ...]) -> None:
        for op in block.ops:
            self.around[id(op)] = chain
            if isinstance(op, Region):
                self.names[id(op)] = op.name or f"R{len(self.names)}"
                self.regions.append(op)
            for inner in op.blocks:
                self._visit(inner, (*chain, op) if isinstance(op, Region) else chain)

    # ---- sizes

    def extent(self, part: Part) -> int:
        """Representative extent of the dimension of a part."""
        return max(1, self.facts.value(part.dim.extent))

    def reach(self, part: Part) -> int:
        """Coordinates of a range in an instance; of one that only a run tells, or that a range around it gives, those
        of the whole dimension."""
        extent = part.extent
        known = {s for d in self.program.dims for s in d.extent.symbols} | self.program.lets.keys()
        inner = extent.symbols - known
        singles = {a.name for r in self.regions for a in r.args if a.kind == "each"}
        if extent.functions or not inner <= singles:
            return self.extent(part)
        return max(1, self.facts.value(extent.substitute(dict.fromkeys(inner, 0))))

    def instances(self, op: Op) -> int:
        """Single coordinates that the regions around an operation enumerate."""
        return prod(max(1, self.facts.value(a.domain.dim.extent)) for r in self.around[id(op)] for a in r.args)

    def elements(self, op: Op, axes: tuple[Part, ...]) -> int:
        """Elements along `axes` over all instances of an operation."""
        dims: dict[Dim, int] = {}
        for region in self.around[id(op)]:
            for arg in region.args:
                dims[arg.domain.dim] = self.reach(arg.domain)
        for part in axes:
            dims[part.dim] = dims.get(part.dim) or self.extent(part)
        return prod(dims.values())

    def bytes_of(self, tensor: Tensor) -> int:
        """Bytes of a tensor."""
        return prod(max(1, self.facts.value(d.extent)) for d in tensor.dims) * tensor.dtype.bits // 8

    @memoised
    def bytes(self) -> int:
        """Bytes of all tensors, each once."""
        used = set(self.uses.loaded) | set(self.uses.stored)
        return sum(self.bytes_of(t) for t in self.program.tensors if t.name in used)

    @memoised
    def bytes_in(self, region: Region) -> int:
        """Bytes of the tensors that a region reads and stores to, and of tiles that other regions have filled, each
        once."""
        used: dict[str, int] = {}
        made = {v.name for op in self.program.body.ops if isinstance(op, Region) for v in op.results}
        for op in region.body.walk():
            if isinstance(op, Load | Store):
                used[op.tensor.name] = self.bytes_of(op.tensor)
            elif isinstance(op, Extract) and op.source.name in made:
                axes = op.source.type.axes
                used[op.source.name] = prod(self.extent(a) for a in axes) * op.source.type.dtype.bits // 8
        return sum(used.values())

    @memoised
    def work(self, *, contractions: bool = True) -> float:
        """Simple instructions in all: elements times weights, and products."""
        total = 0.0
        for op in self.program.body.walk():
            if isinstance(op, Elementwise | Cast | Reduce | Scan | Load | Store) and (
                op.results or isinstance(op, Store)
            ):
                value = op.value if isinstance(op, Store) else op.source if isinstance(op, Reduce) else op.results[0]
                total += self.weight(op) * self.elements(op, value.type.axes)
            elif isinstance(op, Mma) and contractions:
                total += self.products(op)
        return total

    def weight(self, op: Op) -> float:
        """Issue slots of one element."""
        if isinstance(op, Scan):
            return SCANNED * len(op.results)
        if not isinstance(op, Elementwise):
            return 1.0
        if op.fn == "div" and len(op.args[1].type.axes) < len(op.result.type.axes):
            return 5.0  # inverted once
        accuracy, near = self.program.numerics.get("functions"), self.facts.target.endswith("sm_90a")
        table = FAST if accuracy == "fast" else NEAR if near and accuracy not in BY_WIDE else SLOTS
        return table.get(op.fn, SLOTS.get(op.fn, 1.0))

    def products(self, op: Mma) -> float:
        """Products that a contraction sums in all."""
        deep = tuple(a for a in op.a.type.axes if a.dim in op.contracted)
        return self.elements(op, (*op.result.type.axes, *deep))

    # ---- accesses

    def last_axis(self, op: Op) -> Part | None:
        """The part along which an access to memory moves by one element."""
        if not isinstance(op, Load | Store | Insert | Extract) or not op.subs:
            return None
        sub = op.subs[-1]
        if isinstance(sub, tuple) and len(sub) > 0:
            sub = sub[-1]  # of a product the last factor
        if isinstance(op, Load | Store) and (op.tensor.name, len(op.subs) - 1) not in self.facts.unit:
            return None
        return sub.part if isinstance(sub, Sub) else None

    def arg_of(self, part: Part) -> RegionArg | None:
        """The block argument whose part this is."""
        for region in self.regions:
            for arg in region.args:
                if arg.kind == "block" and arg.part == part:
                    return arg
        return None


T = TypeVar("T")


class OfShapes(Generic[T]):
    """What was found of the shapes asked for last, so many of them: a family asks at every point of one. A shape is
    known by itself, not by what is equal to it."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._found: list[tuple[Shape, tuple[object, ...], T]] = []

    def get(self, shape: Shape, make: Callable[[], T], *also: object) -> T:
        """What `make` finds of the shape, and of whatever else it depends on. *Errors*: those of `make`, which are not
        kept."""
        for known, asked, found in self._found:
            if known is shape and asked == also:
                return found
        made = make()
        self._found.append((shape, also, made))
        del self._found[: -self._kept]
        return made


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


def remembered(shape: Shape) -> Shape:
    """The shape itself, which `shape_of` finds for its program and facts from now on."""
    if not any(s is shape for _, _, s in _recent):
        _recent.append((shape.program, shape.facts, shape))
        del _recent[:-16]
    return shape


def common_reasons(shape: Shape) -> list[str]:
    """Why no family but the universal one takes the program."""
    reasons: list[str] = []
    if not shape.facts.disjoint:
        reasons.append("an output may overlap another argument")
    for op in shape.program.body.ops:
        if not isinstance(op, PURE) and not (isinstance(op, Region) and op.kind == "parallel"):
            reasons.append("it has statements outside parallel regions")
    for op in shape.program.body.walk():
        if isinstance(op, Print | Check | ArgReduce):
            reasons.append(f"it has an operation `{op.keyword}`")
        if isinstance(op, Reduce) and op.order != "unordered" and op.source.type.dtype.is_float:
            reasons.append(f"a fold of floats in the order {op.order}")
        if isinstance(op, If):
            reasons.append("it has a conditional")
    return list(dict.fromkeys(reasons))


def vector_facts(tensor: Tensor, elements: int) -> list[Fact]:
    """Facts under which the last axis of a tensor is read and written `elements` at a time."""
    size = max(1, tensor.dtype.bits // 8)
    found: list[Fact] = [Unit(tensor.name, len(tensor.dims) - 1)]
    if elements > 1:
        found.append(Aligned(tensor.name, min(16, elements * size)))
        found += [Pitch(tensor.name, axis, elements) for axis in range(len(tensor.dims) - 1)]
    return found
