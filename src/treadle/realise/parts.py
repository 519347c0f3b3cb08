"""Which part of a carried tile a region touches: what an instance needs of a tile that it shares with others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from treadle.algebra.dims import Part
from treadle.algebra.expr import sym
from treadle.analysis.uses import flat_subs
from treadle.ir.core import AxisSub, If, Op, Region, Sub, Value
from treadle.ir.ops.access import Extract, Insert


def touched_part(region: Region, carried: Value) -> tuple[Part, ...]:
    """The axes of a carried value as far as the region reads and replaces elements of it.

    An axis that every access subscripts alike, by something that the region does not change, is that coordinate or part
    of it, one that they all subscript by an index of the region what that runs over; any other axis is whole.
    """
    chain = versions(region, carried)
    subs: list[tuple[AxisSub, ...]] = []
    for op in region.body.walk():
        if isinstance(op, Insert | Extract) and op.source.name in chain:
            subs.append(op.subs)
        elif not isinstance(op, Region | If) and any(v.name in chain for v in op.operands):
            return ()
    inside = set(_symbols(region))
    inner: list[Op] = [region, *region.body.walk()]
    each = {a.name: a.domain for r in inner if isinstance(r, Region) for a in r.args if a.kind == "each"}
    axes = [_common([s[i] for s in subs], axis, inside, each) for i, axis in enumerate(carried.type.axes)]
    return tuple(axes)


def versions(region: Region, carried: Value) -> set[str]:
    """Names of the values that a carried tile becomes inside the region."""
    chain = {carried.name}
    while True:
        before = len(chain)
        for op in region.body.walk():
            if isinstance(op, Insert) and op.source.name in chain:
                chain.add(op.result.name)
            elif isinstance(op, Region):
                for init, own, result in zip(op.inits, op.carried, op.results, strict=True):
                    if init.name in chain:
                        chain |= {own.name, result.name}
            elif isinstance(op, If):
                for yields in zip(op.then.yields, op.orelse.yields, op.results, strict=True):
                    if any(y.name in chain for y in yields[:2]):
                        chain.add(yields[2].name)
        if len(chain) == before:
            return chain


def scatters(op: Insert) -> bool:
    """Whether integer tiles select the elements that are replaced."""
    return any(sub.tile is not None for sub in flat_subs(op.subs))


def scattered(region: Region, carried: Value) -> bool:
    """Whether the region replaces elements of a carried tile that integer tiles select, or bounds known at run time
    only."""
    chain = versions(region, carried)
    inner: list[Op] = [region, *region.body.walk()]
    ragged = any(
        e.functions for r in inner if isinstance(r, Region) for arg in r.args for e in (arg.domain.lo, arg.domain.hi)
    )
    return any(isinstance(op, Insert) and op.source.name in chain and (ragged or scatters(op)) for op in inner)


def _common(subs: list[AxisSub], axis: Part, inside: set[str], each: Mapping[str, Part]) -> Part:
    first = subs[0] if subs else None
    if not isinstance(first, Sub) or any(s != first for s in subs):
        return axis
    if first.index is not None and not first.index.functions and not first.index.symbols & inside:
        return Part(axis.dim, first.index, first.index + 1)
    # All coordinates of an argument are those that it runs over.
    part = first.part if first.index is None else next((d for n, d in each.items() if first.index == sym(n)), None)
    if part is not None and part.dim is not axis.dim:
        return axis
    if part is not None and not (part.lo.symbols | part.hi.symbols) & inside:
        return axis if part.lo.functions or part.hi.functions else part
    return axis


def _symbols(region: Region) -> Iterator[str]:
    """Symbols that a region and those inside it bind."""
    inner: list[Op] = [region, *region.body.walk()]
    for op in inner:
        if isinstance(op, Region):
            for arg in op.args:
                yield from (arg.name, f"{arg.name}.start", f"{arg.name}.stop")
