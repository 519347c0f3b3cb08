"""How often a contraction reads and writes its values: what its costs count.

Counted are elements that operands are read from where they lie, products of register blocks, and sums in buffers (with
the padding that is really moved). No cache is modelled: an element that is read twice counts twice. On small mappings
they equal what walking the machine program's loops counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from treadle.algebra.dims import Dim
from treadle.ir.core import Value
from treadle.targets.cpu.blocking import Blocking
from treadle.targets.cpu.roles import Roles


@dataclass(frozen=True)
class Access:
    """Elements that are read and written."""

    read: float
    written: float


def source(blocking: Blocking, role: Roles, value: Value) -> float:
    """Elements of an operand that are read from where it lies: in place by each register block, else for its copy."""
    shape, op = blocking.shape, role.found.op
    elements = shape.elements(op, value.type.dims) * shape.share(op, value.type.dims, blocking.spans)
    if blocking.in_place(value, role):
        return elements * tiles(blocking, role.row if value is role.lane_operand else role.lane)
    return blocking.shape.distinct(value) if blocking.shared(value, role) else elements * trips(blocking, role, value)


def trips(blocking: Blocking, role: Roles, value: Value) -> int:
    """How often an element of an operand is packed, where each block has its own copy: as blocks of the other's rows or
    lanes come round, of the regions down to the one on whose entry it is packed."""
    shape, cuts, level, total = blocking.shape, blocking.cuts(), blocking.level(value, role), 1
    other = role.row if value is role.lane_operand else role.lane
    if other is None or (not level and not blocking.shared(value, role)):
        return 1
    for region in shape.chain(role.found.op):
        name = shape.names[id(region)]
        for arg in region.args:
            if arg.kind == "block" and arg.domain.dim == other:
                size = shape.facts.value(arg.size) if arg.size is not None else cuts[f"{name}.{arg.name}"]
                total *= ceil(shape.extent(other) / max(1, size))
        if name == level:
            break
    return total


def accumulator(blocking: Blocking, role: Roles) -> Access:
    """Of sums in buffers: filled before the first block of what is summed, loaded and stored by each, loaded behind the
    last one, there without the padding of rows. What registers hold all the time lies in none."""
    folds = [r for r in blocking.shape.chain(role.found.op) if r.kind != "parallel"]
    if blocking.block.held and folds:
        return Access(0.0, 0.0)
    dims = blocking.folded(role)
    left = blocking.shape.share(role.found.op, dims, blocking.spans)
    made = slots(blocking, role) / max(1, blocking.shape.size(dims) * left)
    passes = blocking.passes(role) if folds else 0
    return Access(made * passes + made / waste(blocking, role.row), made * (1 + passes))


def slots(blocking: Blocking, role: Roles) -> float:
    """Products that register blocks compute, those of their padding included."""
    return blocking.shape.products(role.found, blocking.spans) * waste(blocking, role.lane) * waste(blocking, role.row)


def tiles(blocking: Blocking, dim: Dim | None) -> int:
    """Register blocks along a dimension."""
    return 1 if dim is None else ceil(blocking.shape.extent(dim) / blocking.tile[dim.name])


def waste(blocking: Blocking, dim: Dim | None) -> float:
    """What register blocks have along a dimension, padding included, over its extent."""
    extent = 0 if dim is None else blocking.shape.extent(dim)
    return tiles(blocking, dim) * blocking.tile[dim.name] / extent if dim is not None and extent else 1.0
