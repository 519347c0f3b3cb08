"""Steps on folds: factor a region's fold into parts that are merged, regroup a fold over several dimensions, write a
contraction as the fold of its products, let a contraction start from zero.

A fold may be regrouped where its order policy says so, and only then; a chain never. What a state held before the
region enters once, at its place.
"""

from __future__ import annotations

from dataclasses import dataclass

from treadle.algebra.dims import Dim, Part
from treadle.algebra.expr import Expr, ceildiv, minimum, sym
from treadle.algebra.monoids import MONOIDS
from treadle.ir.clone import Cloner
from treadle.ir.core import Block, Merge, Op, Program, Region, RegionArg, Sub, TileType, Value
from treadle.ir.infer import join_axes
from treadle.ir.ops.access import Insert
from treadle.ir.ops.elementwise import Cast, Elementwise, Full
from treadle.ir.ops.fold import Fold, Mma, Reduce
from treadle.ir.rewrite import has_effect, replace
from treadle.ir.states import update_monoid
from treadle.plan.steps import Step
from treadle.rules.draft import Draft
from treadle.rules.nests import d_positive, in_words
from treadle.rules.refusals import CoverageBroken, FormUnsupported, NotFactored, OrderBroken


def factor(program: Program, at: str, arg: str, size: int | str, chunks: str | None = None) -> tuple[Program, Step]:
    """A `reduce` region whose range is cut into chunks of `size`: a parallel region folds each from the identity, the
    parts are folded, and what the states held before is merged in front.

    *Errors*: `rules/chain` for what may not be regrouped, `rules/coverage`, `rules/order`, `rules/form`.
    """
    d = Draft(program, "factor", {"at": at, "arg": arg, "size": size, "chunks": chunks})
    region = d.region(at)
    old = d.argument(region, arg)
    groups = _groups(d, region)
    by = d.expr(size)
    if (by.constant is not None and by.constant < 1) or (by.constant is None and not d_positive(d, by)):
        raise d.no(CoverageBroken, f"chunks of {by}", "a size of at least 1", "give a positive size", region)
    _fits(d, region, old, by)
    lo, hi = old.domain.lo, old.domain.hi
    counter = d.symbols.fresh(f"{arg}_c")
    dim = Dim(d.symbols.fresh(chunks or f"{old.domain.dim.name}_chunks"), ceildiv(hi - lo, by))
    d.program.dims.append(dim)
    block, place = d.home(region)
    start = lo + by * sym(counter)
    old.domain = Part(old.domain.dim, start, minimum(start + by, hi))
    results, inits = region.results, region.inits
    parts = Region(
        kind="parallel",
        args=[RegionArg(counter, dim.whole(), "each", source=counter)],
        name=d.regions.fresh(f"{at}_parts"),
        span=region.span,
    )
    region.inits, region.results = [], [d.fresh(v.type, v.hint) for v in results]
    blanks: list[Op] = []
    for part in region.results:
        whole = TileType(part.type.dtype, (dim.whole(), *part.type.axes))
        blanks.append(Full(number=None, results=[d.fresh(whole)]))
        parts.inits.append(blanks[-1].result)
        for tiles in (parts.carried, parts.body.yields, parts.results):
            tiles.append(d.fresh(whole, part.hint))
    starts: dict[int, Value] = {}
    after: list[Op] = []
    renamed: dict[Value, Value] = {}
    for group in groups:
        parts.body.ops += _start(d, group, region, starts)
        now = [results[i] for i in group.states]
        made, merged = _merged(d, group, region, parts, dim, [inits[i] for i in group.states], now)
        after += made
        renamed |= {a: b for a, b in zip(now, merged, strict=True) if a is not b}
    region.inits = [starts[i] for i in range(len(results))]
    parts.body = Block([*parts.body.ops, region, *_puts(parts, region)], parts.body.yields)
    block.ops[place : place + 1] = [*blanks, parts, *after]
    replace(d.program.body, renamed)
    return d.finish()


@dataclass(frozen=True)
class Group:
    """States that are folded together: by a monoid of the user, or one state by a built-in one."""

    states: tuple[int, ...]
    merge: Merge | None = None
    monoid: str = ""


def _start(d: Draft, group: Group, region: Region, starts: dict[int, Value]) -> list[Op]:
    """What a chunk begins with: the identity."""
    if group.merge is None:
        (state,) = group.states
        kind = region.carried[state].type
        one = Full(number=MONOIDS[group.monoid].identity(kind.dtype), results=[d.fresh(kind)])
        starts[state] = one.result
        return [one]
    cloner = Cloner(lambda v: d.fresh(v.type, v.hint), d.symbols)
    block = cloner.block(group.merge.identity)
    starts |= dict(zip(group.states, block.yields, strict=True))
    return block.ops


def _merged(
    d: Draft, group: Group, region: Region, parts: Region, dim: Dim, inits: list[Value], results: list[Value]
) -> tuple[list[Op], list[Value]]:
    """The fold of the parts, and what the states held before merged in front of it: operations, and their values."""
    if group.merge is None:
        (state,), (init,) = group.states, inits
        kind = init.type
        total = Reduce(
            source=parts.results[state],
            dims=(dim,),
            monoid=group.monoid,
            order=region.order,
            results=[d.fresh(kind)],
        )
        merge = MONOIDS[group.monoid].merge
        return [total, Elementwise(fn=merge, args=(init, total.result), results=results)], results
    again = Cloner(lambda v: d.fresh(v.type, v.hint), d.symbols)
    fold = Fold(
        sources=tuple(parts.results[i] for i in group.states),
        dims=(dim,),
        merge=again.merge(group.merge),
        order=region.order,
        results=[d.fresh(v.type) for v in inits],
    )
    inline = Cloner(lambda v: d.fresh(v.type, v.hint), d.symbols)
    for side, values in ((group.merge.left, inits), (group.merge.right, fold.results)):
        inline.values |= {v.name: w for v, w in zip(side, values, strict=True)}
    body = inline.block(group.merge.body)
    return [fold, *body.ops], body.yields


def _puts(parts: Region, region: Region) -> list[Insert]:
    """The updates that put the results of a chunk into the tiles of parts."""
    found: list[Insert] = []
    for carried, part, result in zip(parts.carried, region.results, parts.body.yields, strict=True):
        axes = part.type.axes
        subs = (Sub(index=sym(parts.args[0].name)), *(Sub(part=a) for a in axes))
        found.append(Insert(source=carried, subs=subs, value=part, results=[result]))
    return found


def _groups(d: Draft, region: Region) -> list[Group]:
    if region.kind != "reduce" or region.order not in ("unordered", "ordered"):
        raise d.no(
            NotFactored,
            f"{region.name} is {in_words(region)}: an exact chain",
            "a reduce region that may be regrouped",
            "td.reduce(..., order=td.ordered) grants it, where the states are folds",
            region,
        )
    if has_effect(region):
        raise d.no(FormUnsupported, f"{region.name} stores", "folds only", "split the scope first", region)
    found = [Group(m.states, m) for m in region.merges]
    own = {i for m in region.merges for i in m.states}
    for i, value in enumerate(region.carried):
        monoid = None if i in own else update_monoid(region, i)
        if monoid is not None:
            found.append(Group((i,), None, monoid))
        elif i not in own:
            raise d.no(
                NotFactored,
                f"no monoid updates {value} in {region.name}",
                "an update by + * & | ^, maximum, minimum, mma or a monoid",
                "merge with td.Monoid, or keep the chain",
                region,
            )
    lawless = next((m for m in region.merges if m.laws == "none"), None)
    if lawless is not None:
        raise d.no(NotFactored, f"{lawless.name} has no laws", "an associative merge", "declare its laws", region)
    return found


def _fits(d: Draft, region: Region, arg: RegionArg, by: Expr) -> None:
    known = {s for x in d.program.dims for s in x.extent.symbols} | d.program.lets.keys()
    lo, hi = arg.domain.lo, arg.domain.hi
    if (lo.symbols | hi.symbols) - known or lo.functions | hi.functions:
        raise d.no(
            FormUnsupported,
            f"{arg.name} ranges over {arg.domain}, which changes from instance to instance",
            "a range that the extents tell",
            "a number of chunks is a dimension of the kernel",
            region,
        )
    if region.order == "ordered" and (arg is not region.args[0] or arg.reversed):
        raise d.no(
            OrderBroken,
            f"{arg.name} of {region.name}, whose leaves keep their order",
            "the first argument, running forwards",
            "factor the first one",
            region,
        )
    if arg.size is not None and (by.constant is None or by.constant % (arg.size.constant or by.constant + 1)):
        raise d.no(
            CoverageBroken,
            f"chunks of {by} around blocks of {arg.size}",
            f"a multiple of {arg.size}",
            "blocks of a fixed size are observed and stay whole",
            region,
        )


def regroup(program: Program, value: str, first: list[str]) -> tuple[Program, Step]:
    """A fold over several dimensions as two: over those of `first`, then over the others.

    *Errors*: `rules/chain` for exact chains, `rules/order` where leaves would be permuted, `rules/name`.
    """
    d = Draft(program, "regroup", {"value": value, "first": first})
    op = d.definition(value)
    if not isinstance(op, Reduce):
        raise d.no(NotFactored, f"{value} is no fold of axes", "a reduction over several dimensions", "name one", op)
    names = [x.name for x in op.dims]
    inner = tuple(x for x in op.dims if x.name in first)
    outer = tuple(x for x in op.dims if x.name not in first)
    if not inner or not outer or {x.name for x in inner} != set(first):
        raise d.no(CoverageBroken, f"the dimensions {', '.join(first)}", f"some of {', '.join(names)}", "name some", op)
    if op.order not in ("unordered", "ordered"):
        raise d.no(NotFactored, f"{value} is an exact chain, {op.order}", "a fold that may be regrouped", "order=", op)
    if op.order == "ordered" and op.dims != (*outer, *inner):
        raise d.no(
            OrderBroken,
            f"{', '.join(x.name for x in inner)} would be folded before what lies between its leaves",
            f"the dimensions that vary fastest, the last of {', '.join(names)}",
            "fold the last ones first",
            op,
        )
    block, place = d.home(op)
    kept = tuple(a for a in op.source.type.axes if a.dim not in inner)
    part = Reduce(
        source=op.source,
        dims=inner,
        monoid=op.monoid,
        order=op.order,
        nan=op.nan,
        results=[d.fresh(TileType(op.source.type.dtype, kept))],
        span=op.span,
    )
    block.ops.insert(place, part)
    op.source, op.dims = part.result, outer
    return d.finish()


def products(program: Program, value: str) -> tuple[Program, Step]:
    """A contraction as the fold of its products, added to what it held before: `acc + sum(a * b)`.

    *Errors*: `rules/form` for what is no contraction or sums nothing, `rules/name`.
    """
    d = Draft(program, "products", {"value": value})
    op = d.definition(value)
    if not isinstance(op, Mma) or not op.contracted:
        raise d.no(FormUnsupported, f"{value} sums no products", "a contraction", "name the result of an mma", op)
    block, place = d.home(op)
    dtype = op.acc.type.dtype
    made: list[Op] = []
    sides: list[Value] = []
    for side in (op.a, op.b):
        if side.type.dtype != dtype:
            made.append(Cast(source=side, dtype=dtype, results=[d.fresh(TileType(dtype, side.type.axes), side.hint)]))
            side = made[-1].result
        sides.append(side)
    axes = join_axes(side.type.axes for side in sides)
    product = Elementwise(fn="mul", args=tuple(sides), results=[d.fresh(TileType(dtype, axes))], span=op.span)
    kept = tuple(a for a in axes if a.dim not in op.contracted)
    total = Reduce(
        source=product.result,
        dims=op.contracted,
        monoid="add",
        order="unordered",
        results=[d.fresh(TileType(dtype, kept))],
        span=op.span,
    )
    whole = Elementwise(fn="add", args=(op.acc, total.result), results=op.results, span=op.span)
    made += [product, total, whole]
    block.ops[place : place + 1] = made
    for region in d.program.body.walk():
        if isinstance(region, Region) and region.body is block:  # stages count operations
            region.stages = [(name, at + len(made) - 1 if at > place else at) for name, at in region.stages]
    return d.finish()


def apart(program: Program, value: str) -> tuple[Program, Step]:
    """A contraction that starts from zero, added to what it held before: `acc + sum(a * b)`.

    *Errors*: `rules/form` for what is no contraction or sums nothing, `rules/name`.
    """
    d = Draft(program, "apart", {"value": value})
    op = d.definition(value)
    if not isinstance(op, Mma) or not op.contracted:
        raise d.no(FormUnsupported, f"{value} sums no products", "a contraction", "name the result of an mma", op)
    block, place = d.home(op)
    acc, results = op.acc, op.results
    start = Full(number=0.0 if acc.type.dtype.is_float else 0, results=[d.fresh(acc.type)])
    op.acc, op.results = start.result, [d.fresh(acc.type, acc.hint)]
    whole = Elementwise(fn="add", args=(acc, op.result), results=results, span=op.span)
    block.ops[place : place + 1] = [start, op, whole]
    for region in d.program.body.walk():
        if isinstance(region, Region) and region.body is block:  # stages count operations
            region.stages = [(name, at + 2 if at > place else at) for name, at in region.stages]
    return d.finish()
