"""What windows and bands cost: reads of neighbouring rows that fragments of several rows share, and rows that bands
make twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from treadle.analysis.uses import WEIGHT
from treadle.ir.core import Op, Program, Region
from treadle.ir.ops.access import Extract, Load, Store
from treadle.ir.ops.elementwise import Cast, Elementwise
from treadle.ir.ops.fold import Reduce
from treadle.realise.bands import Band, Reach, neighbours
from treadle.targets.cpu.shape import Shape

Cuts = Mapping[str, int]


def window_work(shape: Shape, cuts: Cuts | None, beside: int) -> float:
    """Elements times simple instructions, reads of tiles among them: with bands of these cuts (None: without), and so
    many rows in a fragment."""
    factors = {b.region: again(shape, b, cuts) for b in shape.bands} if cuts is not None else {}
    total = 0.0
    for name, (work, reads) in _by_region(shape).items():
        shared = sum(n * (count + beside - 1) / (count * beside) for count, n in reads.items())
        total += (work + shared) * factors.get(name, 1.0)
    return total


def again(shape: Shape, band: Band, cuts: Cuts) -> float:
    """How often an element of a band's tile is made, on average: bands end where the tile does."""
    return prod(
        1.0 + (-(-extent // cut) - 1) * shape.facts.value(reach.last - reach.first) / extent
        for reach, cut, extent in _cut(shape, band, cuts)
    )


def band_bytes(shape: Shape, band: Band, cuts: Cuts) -> float:
    """Bytes of a band."""
    part = prod(min(cut, extent) / extent for _, cut, extent in _cut(shape, band, cuts))
    return tile_bytes(shape, band) * part * again(shape, band, cuts)


def tile_bytes(shape: Shape, band: Band) -> float:
    """Bytes of the tiles that a band is part of."""
    values = shape.named(band.region).results
    return float(sum(shape.size(v.type.dims) * max(1, v.type.dtype.bits // 8) for v in values))


def _cut(shape: Shape, band: Band, cuts: Cuts) -> Iterator[tuple[Reach, int, int]]:
    """Of each argument that a band is cut along: its reach, the cut, and its extent."""
    for arg in shape.named(band.region).args:
        reach = band.reach[arg.name]
        if reach is not None:
            yield reach, cuts.get(f"{band.into}.{reach.arg}", 1), max(1, shape.extent(arg.domain.dim))


def _by_region(shape: Shape) -> dict[str, tuple[float, dict[int, float]]]:
    """By outermost region: its work but for reads, and the elements of its reads by the rows that one source is read
    at."""
    known = shape.counted
    if not known:
        known |= _counted(shape, shape.program)
    return known


def _counted(shape: Shape, program: Program) -> dict[str, tuple[float, dict[int, float]]]:
    rows = {
        source: max([len(o) for d, o in axes.items() if d.name not in shape.swept] or [1])
        for source, axes in neighbours(program, shape.uses).items()
    }
    found: dict[str, tuple[float, dict[int, float]]] = {}
    for op in program.body.walk():
        top = shape.chain(op)[:1]
        name = shape.names[id(top[0])] if top else ""
        work, reads = found.setdefault(name, (0.0, {}))
        if isinstance(op, Load | Extract):
            count = rows.get(op.tensor.name if isinstance(op, Load) else op.source.name, 1)
            reads[count] = reads.get(count, 0.0) + shape.elements(op, op.result.type.dims)
        else:
            found[name] = (work + _work(shape, op), reads)
    return found


def _work(shape: Shape, op: Op) -> float:
    if isinstance(op, Region) or not isinstance(op, Elementwise | Cast | Reduce | Store):
        return 0.0
    if isinstance(op, Store):
        return float(shape.elements(op, op.value.type.dims))
    value = op.source if isinstance(op, Reduce) else op.result
    weight = WEIGHT.get(op.fn, 1) if isinstance(op, Elementwise) else 1
    return float(weight * shape.elements(op, value.type.dims))
