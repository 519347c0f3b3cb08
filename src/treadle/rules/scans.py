"""A chain that keeps each of its states, written as the scan that it is.

`expand` writes a scan out as a serial region that carries the state and an outer tile; where the scan may be regrouped,
the region is of `order ordered`. This step is the way back, to a scan that stays: a plan with lanes has statements for
it.
"""

from __future__ import annotations

from treadle.algebra.monoids import BY_MERGE, MONOIDS
from treadle.ir.core import Op, Program, Region, Sub
from treadle.ir.ops.access import Extract, Insert
from treadle.ir.ops.elementwise import Elementwise, Full
from treadle.ir.ops.fold import Scan
from treadle.ir.rewrite import operand_names
from treadle.plan.steps import Step
from treadle.rules.draft import Draft
from treadle.rules.refusals import FormUnsupported, NotFactored, StillUsed


def gather(program: Program, at: str) -> tuple[Program, Step]:
    """A serial region of `order ordered` that carries one state, merges an element of a value into it in each instance
    and keeps the state (after or before that) in a tile, as a `whole` scan of that value.

    *Errors*: `rules/chain` for a region that nothing may regroup, `rules/used` where its last state is read,
    `rules/form`.
    """
    d = Draft(program, "gather", {"at": at})
    region = d.region(at)
    if region.kind != "serial" or region.order != "ordered":
        raise d.no(NotFactored, f"{at} is {region.kind}, an exact chain", "a scan, written out", "keep it", region)
    block, place = d.home(region)
    made = _scan(d, region)
    if any(region.results[0].name in operand_names(op) for op in d.program.body.walk()) or any(
        region.results[0] is v for op in d.program.body.walk() for b in op.blocks for v in b.yields
    ):
        raise d.no(StillUsed, f"the last state of {at} is read", "prefixes alone", "keep it", region)
    block.ops[place] = made
    d.clean()
    return d.finish()


def _scan(d: Draft, region: Region) -> Scan:
    """The scan. *Errors*: `rules/form`."""
    if len(region.args) != 1 or region.args[0].kind != "each" or len(region.carried) != 2 or region.merges:
        raise _unlike(d, region)
    arg, (state, tile) = region.args[0], region.carried
    merged = next((op for op in region.body.ops if op.results == [region.body.yields[0]]), None)
    put = next((op for op in region.body.ops if op.results == [region.body.yields[1]]), None)
    if not isinstance(merged, Elementwise) or merged.fn not in BY_MERGE or merged.args[0] is not state:
        raise _unlike(d, region)
    new = next((op for op in region.body.ops if isinstance(op, Extract) and op.result is merged.args[1]), None)
    if new is None or new.fill is not None or not isinstance(put, Insert) or put.source is not tile:
        raise _unlike(d, region)
    expected: list[Op] = [new, merged, put]
    if len(region.body.ops) != 3 or any(op not in expected for op in region.body.ops):
        raise _unlike(d, region)
    dim = arg.domain.dim
    axes = new.source.type.axes
    along = tuple(Sub(index=arg.index) if a.dim is dim else Sub(part=a) for a in axes)
    same = tile.type.axes == axes and new.subs == along and put.subs == along and arg.domain in axes
    defs = d.program.definitions()
    first, blank = (defs.get(v.name) for v in region.inits)
    law = BY_MERGE[merged.fn]
    start = first.number if isinstance(first, Full) else None
    neutral = start is not None and MONOIDS[law.name].starts_empty(start, state.type.dtype)
    if not same or not neutral or not isinstance(blank, Full) or blank.number is not None:
        raise _unlike(d, region)
    if put.value not in (state, merged.result):
        raise _unlike(d, region)
    return Scan(
        sources=(new.source,),
        dim=dim,
        merge=law.name,
        exclusive=put.value is state,
        reverse=arg.reversed,
        order="ordered",
        whole=True,
        results=[region.results[1]],
        span=region.span,
    )


def _unlike(d: Draft, region: Region) -> Exception:
    return d.no(
        FormUnsupported,
        f"{region.name} does more than to merge an element into a state and to keep that",
        "an extract, a merge by a built-in monoid from its identity, and an update of an empty tile",
        "keep it",
        region,
    )
