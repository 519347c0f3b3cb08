"""Steps on copies: read what was written instead of the copy, and compute again instead of keeping.

A value is a snapshot: reading its source again is right as long as nothing has changed the source. Deleting a copy
keeps the order that it carried: only reads of the same instance are forwarded, and what lies in another region is
computed again from its own sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from treadle.algebra.expr import Constraint, ge, lt, sym
from treadle.ir.clone import Cloner
from treadle.ir.core import Block, Op, Program, Region, Sub, TileType, Value, values_of
from treadle.ir.ops.access import Extract, Insert, Load, Store
from treadle.ir.ops.elementwise import Bitcast, Cast, Coords, Elementwise, Full, Index
from treadle.ir.ops.fold import Mma, Reduce
from treadle.ir.rewrite import has_effect, operand_names, replace
from treadle.plan.steps import Step
from treadle.rules.accesses import extents_known, stored_in
from treadle.rules.draft import Draft, named, reads
from treadle.rules.refusals import FormUnsupported, NameUnknown, Overwritten
from treadle.rules.tiles import aliased, assume, needed

PURE = (Elementwise, Cast, Bitcast, Full, Coords, Index, Load, Extract, Reduce, Mma)


def dematerialise(program: Program, value: str, disjoint: list[list[str]] | None = None) -> tuple[Program, Step]:
    """A load or extract that reads back what the same instance has just written, or read already, is that value; what
    nothing needs any more is dropped, whole tiles included.

    So is a tile of which every instance of a parallel region copies its elements from another tile: it is read there.
    `disjoint` of the step: pairs of tensors that must share no element. *Errors*: `rules/overwritten`, `rules/form`.
    """
    d = Draft(program, "dematerialise", {"value": value})
    op = d.definition(value)
    if isinstance(op, Region):
        aliased(d, op)
        d.clean()
        return d.finish()
    if isinstance(op, Load) and op.fill is None:
        found, others = _stored(d, op)
        assume(d, [(op.tensor.name, t) for t in others])
    elif isinstance(op, Extract) and op.fill is None:
        found = _inserted(d, op)
    else:
        raise d.no(
            FormUnsupported, f"{value} is the result of {named(op)}", "a load or extract without fill", "name one", op
        )
    if found.type != op.result.type:
        raise d.no(FormUnsupported, f"{found.type} was written", f"{op.result.type}", "convert or broadcast first", op)
    replace(d.program.body, {op.result: found})
    block, place = d.home(op)
    del block.ops[place]
    d.clean()
    return d.finish()


def _stored(d: Draft, load: Load) -> tuple[Value, list[str]]:
    """What the nearest store before a load in its block wrote there, or a load read, and the tensors stored to in
    between."""
    block, place = d.home(load)
    between: set[str] = set()
    for op in reversed(block.ops[:place]):
        stored = stored_in([op])
        if isinstance(op, Load) and (op.tensor, op.subs, op.fill) == (load.tensor, load.subs, None):
            return op.result, sorted(between)
        if load.tensor.name in stored:
            if isinstance(op, Store) and op.subs == load.subs and op.effect == "set" and op.where is None:
                _once(d, op, load)
                return op.value, sorted(between)
            raise d.no(
                Overwritten,
                f"{load.result} reads elements of {load.tensor} that another store may have changed",
                "a store to the same elements, and none in between",
                "fuse the scopes first, or keep the copy",
                load,
            )
        between |= stored
    raise d.no(
        Overwritten,
        f"nothing in its instance has written or read what {load.result} reads",
        "a store or load of the same elements in the same block before it",
        "fuse the scopes first",
        load,
    )


def _inserted(d: Draft, read: Extract) -> Value:
    """What the last update of a tile has put where an extract reads."""
    made = d.program.definitions().get(read.source.name)
    if isinstance(made, Insert) and made.result is read.source:
        if made.subs == read.subs:
            _once(d, made, read)
            return made.value
        raise d.no(
            Overwritten,
            f"{read.result} reads {read.source}[{', '.join(map(str, read.subs))}], which was updated at "
            f"[{', '.join(map(str, made.subs))}] last",
            "an update of just those elements",
            "keep the tile",
            read,
        )
    raise d.no(
        Overwritten,
        f"{read.source} comes from outside the instance that reads it",
        "an update in the same instance",
        "fuse the scopes, or recompute the value",
        read,
    )


def _once(d: Draft, put: Insert | Store, read: Load | Extract) -> None:
    """*Errors*: `rules/overwritten`, where computed coordinates may put two values at one place."""
    if any(v.type.axes for v in values_of(put.subs)):
        raise d.no(
            Overwritten,
            f"what {read.result} reads may have been written twice at one place, by coordinates that are computed",
            "coordinates that tell the elements apart",
            "keep the copy",
            read,
        )


# ---- distribute


def distribute(program: Program, value: str, disjoint: list[list[str]] | None = None) -> tuple[Program, Step]:
    """A load in a region's body made once, in front of the region, for all its instances, which read their elements of
    that tile: a copy is placed further out.

    *Errors*: `rules/overwritten` where the region stores to the tensor, `rules/form`.
    """
    d = Draft(program, "distribute", {"value": value})
    load = d.definition(value)
    owner = next((op for op in program_regions(d.program) if load in op.body.ops), None)
    if not isinstance(load, Load) or load.fill is not None or owner is None:
        raise d.no(
            FormUnsupported,
            f"{value} is the result of {named(load)}",
            "a load without fill in a region",
            "name one",
            load,
        )
    _unchanged(d, load, [owner])
    wide = list(_wide(d, owner, load))
    axes = tuple(s.part for s in wide if s.part is not None)
    if len({a.dim for a in axes}) < len(axes) or any(not isinstance(s, Sub) for s in load.subs):
        raise d.no(FormUnsupported, f"two axes along one dimension of {load.tensor}", "one axis each", "alias", load)
    kind = TileType(load.tensor.dtype, axes)
    whole = Load(tensor=load.tensor, subs=tuple(wide), results=[d.fresh(kind, load.result.hint)], span=load.span)
    inner = tuple(s for s, w in zip(load.subs, wide, strict=True) if w.part is not None)
    block, place = d.home(owner)
    block.ops.insert(place, whole)
    at = owner.body.ops.index(load)
    owner.body.ops[at] = Extract(source=whole.result, subs=inner, results=load.results, span=load.span)
    return d.finish()


def _wide(d: Draft, owner: Region, load: Load) -> Iterator[Sub]:
    """The subscripts of a load for all instances of a region. *Errors*: `rules/form`."""
    facts = extents_known(d.program).also(*_ranges(d, owner))
    made = {v.name for op in owner.body.walk() for v in op.results} | {v.name for v in owner.carried}
    for sub, dim in zip(load.subs, load.tensor.dims, strict=True):
        one = _widened(owner, sub) if isinstance(sub, Sub) else None
        other = one is not None and one.part is not None and one.part.dim.root is not dim.root
        if one is None or other or one.promised or (one.index is not None and one.index.functions & made):
            raise d.no(
                FormUnsupported,
                f"the subscript {sub} of {load.tensor}",
                f"arguments of {owner.name} over {dim}, or what is the same in all its instances",
                "subscripts of another form stay where they are",
                load,
            )
        inside = (ge(one.index, 0), lt(one.index, dim.extent)) if one.index is not None else ()
        if not all(facts.implies(c) for c in inside):
            raise d.no(
                FormUnsupported,
                f"{one.index} may leave {dim} where {owner.name} has no instance",
                "an index that is inside whether the region runs or not",
                "the load stays where it is",
                load,
            )
        yield one


def _ranges(d: Draft, owner: Region) -> Iterator[Constraint]:
    """Where the arguments of the regions around one range."""
    for region in program_regions(d.program):
        if any(op is owner for op in region.body.walk()):
            for arg in region.args:
                symbols = (arg.index, arg.index + 1) if arg.kind == "each" else (arg.part.lo, arg.part.hi)
                yield ge(symbols[0], arg.domain.lo)
                yield ge(arg.domain.hi, symbols[1])
                yield ge(symbols[1], symbols[0] + 1)


def program_regions(program: Program) -> Iterator[Region]:
    """All regions of a program."""
    yield from (op for op in program.body.walk() if isinstance(op, Region))


def _widened(owner: Region, sub: Sub) -> Sub | None:
    """A subscript for all instances of a region: the range of an argument, or itself where it is the same in all."""
    own = {s for a in owner.args for s in (a.name, f"{a.name}.start", f"{a.name}.stop")}
    for arg in owner.args:
        if (arg.kind == "block" and sub.part == arg.part) or (arg.kind == "each" and sub.index == sym(arg.name)):
            return Sub(part=arg.domain)
    if sub.part is not None and not (sub.part.lo.symbols | sub.part.hi.symbols) & own:
        return None if sub.part.lo.functions | sub.part.hi.functions else sub
    return sub if sub.index is not None and not sub.index.symbols & own else None


# ---- recompute


def recompute(
    program: Program, value: str, into: str | None = None, disjoint: list[list[str]] | None = None
) -> tuple[Program, Step]:
    """A value computed again where it is used.

    With `into`: in each instance of that region, which uses it. Without: `value` is what an extract reads of a tile
    that an earlier parallel region fills, and is computed from that region's sources.
    *Errors*: `rules/overwritten`, `rules/form`, `rules/name`.
    """
    d = Draft(program, "recompute", {"value": value, "into": into})
    op = d.definition(value)
    if into is not None:
        _again(d, op, value, d.region(into))
    elif isinstance(op, Extract):
        _inline(d, op)
    else:
        raise d.no(FormUnsupported, f"{value} is the result of {named(op)}", "an extract, or into=", "say where", op)
    d.clean()
    return d.finish()


def _again(d: Draft, op: Op, value: str, region: Region) -> None:
    if not isinstance(op, PURE):
        raise d.no(FormUnsupported, f"{value} is the result of {named(op)}", "an operation on elements", "name one", op)
    block, place = d.home(op)
    end = next((i for i, x in enumerate(block.ops) if x is region or _inside(x, region)), None)
    if end is None or end <= place:
        raise d.no(NameUnknown, f"{region.name} does not come after {value}", "a region below it", "name one", region)
    if not any(value in reads(x) for x in region.body.ops) and value not in {v.name for v in region.body.yields}:
        raise d.no(NameUnknown, f"{region.name} does not use {value}", "a region that does", "name another", region)
    if isinstance(op, Load):
        _unchanged(d, op, block.ops[place + 1 : end + 1])
    again = Cloner(lambda v: d.fresh(v.type, v.hint)).op(op)
    replace(region.body, {op.result: again.result})
    region.body.ops.insert(0, again)
    region.stages = [(name, start + 1 if start else 0) for name, start in region.stages]


def _inside(op: Op, region: Region) -> bool:
    return any(x is region for block in op.blocks for x in block.walk())


def _unchanged(d: Draft, load: Load, ops: Sequence[Op]) -> None:
    stored = stored_in(ops)
    if load.tensor.name in stored:
        raise d.no(
            Overwritten,
            f"{load.tensor} is stored to before {load.result} would be read again",
            "a source that keeps its elements",
            "keep the snapshot",
            load,
        )
    assume(d, [(load.tensor.name, t) for t in stored])


def _inline(d: Draft, read: Extract) -> None:
    """The slice of a parallel region that makes the elements that an extract reads, in the place of the extract."""
    maker = d.program.definitions().get(read.source.name)
    if not isinstance(maker, Region) or maker.kind != "parallel" or read.source not in maker.results:
        raise d.no(FormUnsupported, f"{read.source} is not filled by a parallel region", "one", "name another", read)
    slot = maker.results.index(read.source)
    put = maker.body.ops and next(
        (op for op in maker.body.ops if op.results and op.results[0] is maker.body.yields[slot]), None
    )
    if not isinstance(put, Insert) or put.source is not maker.carried[slot] or read.fill is not None:
        raise d.no(
            FormUnsupported, f"several updates fill {read.source}", "one update an instance", "keep the tile", read
        )
    cloner = Cloner(lambda v: d.fresh(v.type, v.hint), d.symbols)
    _bind(d, maker, put, read, cloner)
    wanted = list(needed(maker.body, put.value))
    own = {v.name for v in maker.carried}
    stored = stored_in(d.program.body.ops)
    for op in wanted:
        if has_effect(op) or operand_names(op) & own:
            raise d.no(
                FormUnsupported,
                f"{named(op)} in {maker.name} reads what it fills",
                "pure elements",
                "keep the tile",
                op,
            )
        for load in Block([op]).walk():
            if isinstance(load, Load):
                if load.tensor.name in stored:
                    raise d.no(
                        Overwritten,
                        f"{load.tensor}, which {read.result} would be computed from, is stored to",
                        "sources that keep their elements",
                        "keep the tile",
                        load,
                    )
                assume(d, [(load.tensor.name, t) for t in stored])
    block, place = d.home(read)
    made = [cloner.op(op) for op in wanted]
    for op in Block(made).walk():
        if isinstance(op, Region) and not op.name:
            op.name = d.regions.fresh(maker.name)
    result = cloner.value(put.value)
    if result.type != read.result.type:
        raise d.no(FormUnsupported, f"{result.type} computed", f"{read.result.type}", "axes in one order", read)
    block.ops[place : place + 1] = made
    replace(d.program.body, {read.result: result})


def _bind(d: Draft, maker: Region, put: Insert, read: Extract, cloner: Cloner) -> None:
    """Arguments of the region that fills a tile, for the elements that an extract reads."""
    left = {a.name: a for a in maker.args}
    for mine, theirs, axis in zip(put.subs, read.subs, read.source.type.axes, strict=True):
        if isinstance(mine, Sub) and isinstance(theirs, Sub):
            if mine.part == axis and theirs.part == axis:
                continue
            for arg in list(left.values()):
                whole = arg.domain.lo == axis.lo and arg.domain.hi == axis.hi
                if arg.kind == "block" and mine.part == arg.part and theirs.part is not None and whole and not arg.size:
                    cloner.symbols |= {f"{arg.name}.start": theirs.part.lo, f"{arg.name}.stop": theirs.part.hi}
                    del left[arg.name]
                    break
                if arg.kind == "each" and mine.index == sym(arg.name) and theirs.index is not None and whole:
                    cloner.symbols[arg.name] = theirs.index
                    del left[arg.name]
                    break
            else:
                raise _unbound(d, read, axis.dim.name)
        else:
            raise _unbound(d, read, axis.dim.name)
    if left:
        raise _unbound(d, read, next(iter(left)))


def _unbound(d: Draft, read: Extract, name: str) -> Exception:
    return d.no(
        FormUnsupported,
        f"which instance fills {read.result} along {name} is not a matter of parts and indices",
        "a tile filled by arguments over whole axes, read by parts or indices",
        "keep the tile",
        read,
    )
