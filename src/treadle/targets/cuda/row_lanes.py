"""What of a program's tasks lies along the lanes of a warp: the dimension, how many neighbours an access takes, what is
read and folded along it."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from treadle.algebra.dims import Dim, Part
from treadle.base.memo import memoised
from treadle.ir.core import Op, Region, Sub, Tensor
from treadle.ir.guard import Divisible, Fact
from treadle.ir.ops.access import Extract, Insert, Load, Store
from treadle.ir.ops.fold import Reduce, Scan
from treadle.targets.cuda.shape import Shape, vector_facts

LONG_ROW = 32 * 1024
"""Bytes of a row of which a multiprocessor does few: the last ones show."""


@dataclass(frozen=True)
class Along:
    """A dimension along the lanes: neighbours that one access takes, whether a row of it is a whole dimension (else a
    block of a region's argument), facts that the accesses need, whether a run tells where ranges of it begin."""

    dim: Dim
    vector: int
    whole: bool
    facts: tuple[Fact, ...]
    told: bool = False


@memoised
def along(shape: Shape) -> dict[str, Along]:
    """For each task region, the dimension that its stores, the largest first (else its loads), are contiguous along."""
    found: dict[str, Along] = {}
    for op in shape.program.body.ops:
        if not isinstance(op, Region):
            continue
        inside = list(op.body.walk())
        stores = sorted((s for s in inside if isinstance(s, Store | Insert)), key=lambda s: -kept(shape, s))
        stored = [p for s in stores if (p := shape.last_axis(s)) is not None]
        read = [p for s in inside if isinstance(s, Load) and (p := shape.last_axis(s)) is not None]
        folded = [a for s in inside if isinstance(s, Reduce) for a in s.source.type.axes if a.dim in s.dims]
        made = {v.name for o in shape.program.body.ops if isinstance(o, Region) for v in o.results}
        tiles = [s for s in inside if isinstance(s, Extract) and s.source.name in made]
        read += [p for s in tiles if (p := shape.last_axis(s)) is not None]
        turned = across(shape, inside)
        for part in [*heavy(shape, inside), *turned, *stored] or [p for p in read if p in folded] or read:
            arg = shape.arg_of(part)
            if arg is None and (part.lo.symbols | part.hi.symbols) & _symbols(shape):
                continue
            vector, facts = widest(shape, op, part.dim)
            found[shape.names[id(op)]] = Along(part.dim, vector, arg is None, tuple(facts), told(op, part.dim))
            break
    return found


def told(region: Region, dim: Dim) -> bool:
    """Whether a region in this one goes over ranges of a dimension that only a run tells."""
    args = [a for op in region.body.walk() if isinstance(op, Region) for a in op.args]
    return any(a.domain.dim is dim and (a.domain.lo.functions or a.domain.hi.functions) for a in args)


def heavy(shape: Shape, inside: list[Op]) -> list[Part]:
    """Axes that are folded alone and in any order, as long as a warp, of loads that weigh more than all that is stored:
    their elements, not those of the results, are to lie side by side in the lanes."""
    reduces = [s for s in inside if isinstance(s, Reduce) and s.order == "unordered" and len(s.dims) == 1]
    free = [a for s in reduces for a in s.source.type.axes if a.dim in s.dims]
    out = sum(bytes_of(shape, s.tensor) for s in inside if isinstance(s, Store))
    loads = [s for s in inside if isinstance(s, Load) and bytes_of(shape, s.tensor) > 2 * out]
    parts = [part for s in loads if (part := shape.last_axis(s)) is not None and part in free]
    return [part for part in parts if shape.facts.value(part.dim.extent) >= 32]


def across(shape: Shape, inside: list[Op]) -> list[Part]:
    """Blocks along which everything is read, where a tile is filled whose contiguous axis an instance has whole: a
    thread that reads some of that axis, beside its neighbours in memory, keeps all that memory takes at a time."""
    puts = [s for s in inside if isinstance(s, Insert)]
    whole = [p for s in puts if (p := shape.last_axis(s)) is not None and shape.arg_of(p) is None]
    read = [walked(shape, s) for s in inside if isinstance(s, Load) and s.tensor.dims]
    parts = [p for p in read if p is not None and shape.arg_of(p) is not None]
    alike = len(puts) == len(whole) == 1 and len(parts) == len(read) and len({p.dim for p in parts}) == 1
    return parts[:1] if alike else []


def walked(shape: Shape, op: Load) -> Part | None:
    """The part along which a load moves by an element, or by a few."""
    last, unit = op.subs[-1], (op.tensor.name, len(op.subs) - 1) in shape.facts.unit
    if not unit or not isinstance(last, Sub) or last.tile is None:
        return shape.last_axis(op)
    return last.tile.type.axes[0] if len(last.tile.type.axes) == 1 else None


def kept(shape: Shape, op: Store | Insert) -> float:
    """How large the tensor or the tile is that something is stored to."""
    if isinstance(op, Store):
        return bytes_of(shape, op.tensor)
    return float(prod(shape.extent(p) for p in op.result.type.axes)) * max(1, op.result.type.dtype.bits // 8)


def bytes_of(shape: Shape, tensor: Tensor) -> float:
    """How large a tensor is for the call in question."""
    return float(prod(max(1, shape.facts.value(d.extent)) for d in tensor.dims)) * max(1, tensor.dtype.bits // 8)


def _symbols(shape: Shape) -> set[str]:
    return {n for r in shape.regions for a in r.args for n in (a.name, f"{a.name}.start", f"{a.name}.stop")}


def widest(shape: Shape, region: Region, dim: Dim) -> tuple[int, list[Fact]]:
    """How many neighbours along a dimension all accesses can take at once under the call's facts."""
    tensors: dict[str, Tensor] = {}
    for op in region.body.walk():
        part = shape.last_axis(op)
        if part is not None and part.dim.root is dim.root and isinstance(op, Load | Store):
            tensors[op.tensor.name] = op.tensor
    if not tensors:
        return 1, []
    size = min(max(1, t.dtype.bits // 8) for t in tensors.values())
    vector = 1 if told(region, dim) else 16 // size  # ranges that a run tells begin anywhere
    while vector > 1 and not (
        shape.facts.value(dim.extent) % vector == 0
        and all(
            shape.facts.aligned.get(t.name, 0) >= min(16, vector * max(1, t.dtype.bits // 8)) for t in tensors.values()
        )
    ):
        vector //= 2
    facts: list[Fact] = []
    for tensor in tensors.values():
        facts += vector_facts(tensor, vector)
    if vector > 1 and dim.extent.constant is None:
        facts.append(Divisible(dim.extent, vector))
    return vector, facts


@memoised
def chunked(shape: Shape) -> bool:
    """Whether a row of a task is read that begins and ends at whole chunks of a copy engine."""
    for region in shape.regions:
        one = along(shape).get(shape.names[id(region)])
        for op in region.body.walk() if one is not None else ():
            part = shape.last_axis(op) if isinstance(op, Load) else None
            if one is not None and part is not None and isinstance(op, Load) and part.dim.root is one.dim.root:
                if len(op.subs) > 1 and one.vector * op.tensor.dtype.bits % 128 == 0:
                    return True
    return False


@memoised
def few_long_rows(shape: Shape) -> bool:
    """Whether rows are so long that a multiprocessor does few of them."""
    return chunked(shape) and any(
        one.whole and shape.facts.value(one.dim.extent) * one_element(shape) >= LONG_ROW
        for one in along(shape).values()
    )


def long_region(shape: Shape) -> str:
    """The one region whose tasks have whole rows, which may be long; "" where there are several, or none."""
    found = [name for name, one in along(shape).items() if one.whole]
    return found[0] if len(found) == 1 else ""


@memoised
def one_element(shape: Shape) -> int:
    """Bytes of the widest element that is read."""
    return max((max(1, t.dtype.bits // 8) for t in shape.program.tensors if t.name in shape.uses.loaded), default=4)


def folded_beside(shape: Shape) -> tuple[list[str], list[str]]:
    """What is folded in tasks beside what lies along the lanes, one coordinate after the other unless several are read
    at once: block arguments of folds, by region and name, and dimensions."""
    cuts: list[str] = []
    dims: list[str] = []
    for region in shape.regions:
        name, chain = shape.names[id(region)], (*shape.around[id(region)], region)
        one = along(shape).get(shape.names[id(chain[0])])
        if one is None:
            continue
        for arg in region.args if region.kind == "reduce" else ():
            if arg.kind == "block" and arg.size is None and arg.domain.dim is not one.dim:
                cuts.append(f"{name}.{arg.name}")
                dims.append(arg.domain.dim.name)
        whole = [op for op in region.body.ops if isinstance(op, Reduce)]
        dims += [d.name for op in whole for d in op.dims if d is not one.dim]
    return cuts, list(dict.fromkeys(dims))


@memoised
def narrow(shape: Shape) -> dict[str, int]:
    """Task regions whose rows are too short for a warp, and how many lanes they fill, a power of two: where one
    dimension is folded beside them, the other lanes have further coordinates of that."""
    found: dict[str, int] = {}
    for op in (op for op in shape.program.body.ops if isinstance(op, Region)):
        one = along(shape).get(shape.names[id(op)])
        if one is None or one.told:
            continue
        folds = [r for r in shape.regions if op in shape.around[id(r)]]
        args = [a for r in folds for a in r.args]
        blocks = all(r.kind == "reduce" for r in folds) and all(a.kind == "block" and a.size is None for a in args)
        dims = {a.domain.dim for a in args if a.domain.dim is not one.dim}
        inside = [d for o in op.body.walk() if isinstance(o, Reduce) for d in o.dims if d is not one.dim]
        lanes = 1 << max(0, (-(-shape.facts.value(one.dim.extent) // one.vector) - 1).bit_length())
        if blocks and len(dims | set(inside)) == 1 and lanes < 32:
            found[shape.names[id(op)]] = lanes
    return found


@memoised
def dependent_folds(shape: Shape, only: str = "") -> int:
    """Folds along lanes, of all regions or one: each needs the one before it to be finished."""
    regions = [r for r in shape.regions if shape.names[id(r)] == only]
    ops = shape.program.body.walk() if not only else [op for r in regions for op in r.body.walk()]
    return sum(isinstance(op, Reduce) for op in ops)


@memoised
def scans(shape: Shape) -> int:
    """Scans: each needs what came before, of a tile of the row and of every one before it."""
    return sum(isinstance(op, Scan) for op in shape.program.body.walk())


@memoised
def sweeps_out(shape: Shape) -> bool:
    """Whether something is stored along a row."""
    dims = {one.dim.root for one in along(shape).values()}
    stores = [op for r in shape.regions for op in r.body.walk() if isinstance(op, Store)]
    return any((part := shape.last_axis(op)) is not None and part.dim.root in dims for op in stores)


def read_again(shape: Shape) -> bool:
    """Whether the tasks of a long row read it more than once: scanned, folded twice, or stored along after a fold."""
    return bool(scans(shape)) or dependent_folds(shape, long_region(shape)) + sweeps_out(shape) > 1
