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
from treadle.targets.cpu.blocking import Blocking, Roles, filled_to, round_to


@dataclass(frozen=True)
class Access:
    """Elements that are read and written."""

    read: float
    written: float


def source(blocking: Blocking, role: Roles, value: Value) -> int:
    """Elements of an operand that are read from where it lies: in place by each register block, else for its copy."""
    elements = blocking.shape.elements(role.found.op, value.type.dims)
    if blocking.in_place(value, role):
        return elements * tiles(blocking, role.row if value is role.lane_operand else role.lane)
    return blocking.shape.distinct(value) if blocking.shared(value, role) else elements * trips(blocking, role, value)


def trips(blocking: Blocking, role: Roles, value: Value) -> int:
    """How often an element of an operand is packed, where each block has its own copy: as blocks of the other's rows or
    lanes come round."""
    shape, block = blocking.shape, blocking.block
    other = role.row if value is role.lane_operand else role.lane
    if other is None or all(a.domain.dim != other for r in shape.chain(role.found.op) for a in r.args):
        return 1
    tile = blocking.tile[other.name]
    size = round_to(block.inner, tile) if other is role.lane else filled_to(block.outer, tile)
    return ceil(shape.extent(other) / size)


def accumulator(blocking: Blocking, role: Roles) -> Access:
    """Of sums in buffers: filled before the first block of what is summed, loaded and stored by each, loaded behind the
    last one, there without the padding of rows. What registers hold all the time lies in none."""
    folds = [r for r in blocking.shape.chain(role.found.op) if r.kind != "parallel"]
    if blocking.block.held and folds:
        return Access(0.0, 0.0)
    made = slots(blocking, role) / max(1, blocking.shape.size(blocking.folded(role)))
    passes = blocking.passes(role) if folds else 0
    return Access(made * passes + made / waste(blocking, role.row), made * (1 + passes))


def slots(blocking: Blocking, role: Roles) -> float:
    """Products that register blocks compute, those of their padding included."""
    return blocking.shape.products(role.found) * waste(blocking, role.lane) * waste(blocking, role.row)


def tiles(blocking: Blocking, dim: Dim | None) -> int:
    """Register blocks along a dimension."""
    return 1 if dim is None else ceil(blocking.shape.extent(dim) / blocking.tile[dim.name])


def waste(blocking: Blocking, dim: Dim | None) -> float:
    """What register blocks have along a dimension, padding included, over its extent."""
    extent = 0 if dim is None else blocking.shape.extent(dim)
    return tiles(blocking, dim) * blocking.tile[dim.name] / extent if dim is not None and extent else 1.0
