"""How often a contraction reads and writes its values, at each level of memory: what its costs count.

Levels: `register`, the products of register blocks; `local`, buffers of a worker; `shared`, what is packed once for all
tasks; `memory`, tensors. Counted are elements, with the padding that is really moved. No cache is modelled: an element
that is read twice counts twice. On small mappings they equal what walking the machine program's loops counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from treadle.algebra.dims import Dim
from treadle.ir.core import Value
from treadle.targets.cpu.blocking import Blocking, Roles, filled_to, round_to


@dataclass(frozen=True)
class Access:
    """Elements of a value that are read and written at a level."""

    value: str
    level: str
    read: float
    written: float = 0.0


def accesses(blocking: Blocking, role: Roles) -> list[Access]:
    """Of both operands, of the accumulator, and the products."""
    found = [a for v in (role.lane_operand, role.row_operand) for a in operand(blocking, role, v)]
    sums = accumulator(blocking, role)
    products = Access(sums.value, "register", slots(blocking, role))
    return [*found, products, *([sums] if sums.written else [])]


def operand(blocking: Blocking, role: Roles, value: Value) -> list[Access]:
    """Of one operand: from where it lies, and from its copy if it has one."""
    elements = blocking.shape.elements(role.found.op, value.type.dims)
    by_lane = value is role.lane_operand
    dim, other = (role.lane, role.row) if by_lane else (role.row, role.lane)
    if blocking.in_place(value, role):
        return [Access(value.name, "memory", elements * tiles(blocking, other))]
    trips = 1 if once(blocking, role, value) else dict(packed(blocking, role))[value]
    level = "shared" if once(blocking, role, value) or not blocking.level(value, role) else "local"
    # Register blocks take whole panels, for every block along the other dimension.
    beside = blocking.block.columns if not by_lane else 1 if role.row is None else blocking.tile[role.row.name]
    copy = Access(value.name, level, slots(blocking, role) / beside, elements * trips * waste(blocking, dim))
    return [Access(value.name, "memory", elements * trips), copy]


def accumulator(blocking: Blocking, role: Roles) -> Access:
    """Of sums in buffers: filled before the first block of what is summed, loaded and stored by each, loaded behind the
    last one, there without the padding of rows. What registers hold all the time lies in none."""
    name = role.found.op.result.name
    folds = [r for r in blocking.shape.chain(role.found.op) if r.kind != "parallel"]
    if blocking.block.held and folds:
        return Access(name, "local", 0.0)
    made = slots(blocking, role) / max(1, blocking.shape.size(blocking.folded(role)))
    passes = blocking.passes(role) if folds else 0
    return Access(name, "local", made * passes + made / waste(blocking, role.row), made * (1 + passes))


def packed(blocking: Blocking, role: Roles) -> list[tuple[Value, int]]:
    """The operands that are packed, and how often each of their elements is read for it: as blocks come round."""
    shape, block = blocking.shape, blocking.block
    around = {a.domain.dim for r in shape.chain(role.found.op) for a in r.args}
    row_trips = lane_trips = 1
    if role.row is not None and role.row in around:
        row_trips = ceil(shape.extent(role.row) / filled_to(block.outer, blocking.tile[role.row.name]))
    if role.lane in around:
        lane_trips = ceil(shape.extent(role.lane) / round_to(block.inner, block.columns))
    both = ((role.lane_operand, row_trips), (role.row_operand, lane_trips))
    return [(value, trips) for value, trips in both if not blocking.in_place(value, role)]


def once(blocking: Blocking, role: Roles, value: Value) -> bool:
    """Whether an operand is packed once, for all tasks."""
    return blocking.block.shared and value is role.lane_operand and blocking.shape.everywhere(value)


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
