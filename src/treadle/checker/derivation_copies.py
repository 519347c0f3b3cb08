"""Validators of steps on copies: dematerialise, recompute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

from treadle.algebra.dims import Dim, Part
from treadle.algebra.expr import Constraint, Expr, ge, lt
from treadle.checker.derivation_match import Match, around, effects, wrong
from treadle.checker.derivation_nests import region_of
from treadle.checker.derivation_order import accesses
from treadle.checker.derivation_tiles import aliased
from treadle.checker.scopes import index_expressions
from treadle.checker.verdict import require
from treadle.ir.core import Block, Op, Program, Region, Sub, Value, values_of
from treadle.ir.infer import flat_subs
from treadle.ir.ops.access import Extract, Insert, Load, Store
from treadle.ir.ops.elementwise import Elementwise


def definition(program: Program, name: object) -> tuple[Block, int]:
    """The block and the place of the operation that defines a value. *Errors*: refused."""
    todo = [program.body]
    while todo:
        block = todo.pop()
        for i, op in enumerate(block.ops):
            if any(v.name == name for v in op.results):
                return block, i
            todo += op.blocks
    wrong(f"the program before has no value {name}")


def stored(ops: Sequence[Op]) -> set[str]:
    """Tensors that operations store to."""
    return {a.tensor.name for op in ops for a in accesses(op) if isinstance(a, Store)}


def apart(m: Match, first: str, second: str) -> None:
    """Two tensors share no element: the step says so, and the derivation holds under it."""
    said = m.step.args.get("disjoint")
    pairs: list[Any] = said if isinstance(said, list) else []
    given = [sorted(map(str, cast("list[Any]", p))) for p in pairs if isinstance(p, list)]
    if sorted((first, second)) not in given:
        wrong(f"{first} and {second} may overlap, and the step does not say disjoint({first}, {second})")


# ---- dematerialise


def dematerialise(m: Match) -> None:
    """A read of what the same instance wrote last is what it wrote; what nothing needs is gone."""
    block, place = definition(m.before, m.step.args["value"])
    op = block.ops[place]
    m.drops = True
    if isinstance(op, Region):
        m.handlers[id(op)] = aliased
        return
    found = _written(m, block, place)

    def handler(m: Match, xs: Sequence[Op], i: int, ys: Sequence[Op], j: int) -> tuple[int, int]:
        if m.claims.get(id(op)) is not None:
            wrong(f"{m.said(op)} is still there")
        if found.name in m.values:  # else it is used nowhere
            m.values[op.results[0].name] = m.values[found.name]
        return i + 1, j

    m.handlers[id(op)] = handler


def _written(m: Match, block: Block, place: int) -> Value:
    op = block.ops[place]
    if isinstance(op, Extract) and op.fill is None:
        source = op.source
        for before in reversed(block.ops[:place]):
            if isinstance(before, Insert) and before.result is source:
                _once(before)
                if before.subs == op.subs and before.value.type == op.result.type:
                    return before.value
                wrong(f"{op.result.name} reads {op.source.name} where another update, {before.result.name}, came last")
        wrong(f"{op.source.name} was not updated last in the block of {op.result.name}")
    if isinstance(op, Load) and op.fill is None:
        for before in reversed(block.ops[:place]):
            touched = stored([before])
            if isinstance(before, Load) and before.tensor is op.tensor and before.subs == op.subs:
                if before.fill is None and before.result.type == op.result.type:
                    return before.result  # read already, and nothing has changed it since
            if op.tensor.name in touched:
                good = isinstance(before, Store) and before.effect == "set" and before.where is None
                if isinstance(before, Store) and good and before.subs == op.subs:
                    _once(before)
                    if before.value.type == op.result.type:
                        return before.value
                wrong(f"another store to {op.tensor.name} may have changed what {op.result.name} reads")
            for name in sorted(touched):
                apart(m, op.tensor.name, name)
        wrong(f"nothing in its block has stored or read what {op.result.name} reads")
    wrong(f"{m.said(op)} reads back nothing that it is sure to find")


def _once(put: Insert | Store) -> None:
    """An operation has one value for each element: coordinates that it computes may be the same ones twice."""
    if any(v.type.axes for v in values_of(put.subs)):
        what = put.result.name if isinstance(put, Insert) else f"a store to {put.tensor.name}"
        wrong(f"{what} may put two values at one place, and which one stays is not told")


# ---- distribute


def distribute(m: Match) -> None:
    """A load of a region's body is made once, in front of the region; its instances read their elements of the tile."""
    block, place = definition(m.before, m.step.args["value"])
    load = block.ops[place]
    owner = next((op for op in m.before.body.walk() if isinstance(op, Region) and op.body is block), None)
    if not isinstance(load, Load) or owner is None or load.fill is not None:
        wrong(f"{m.said(load)} is no load without fill in a region")
    _unchanged(m, load, stored([owner]))
    wide: list[Load] = []

    def in_front(m: Match, xs: Sequence[Op], i: int, ys: Sequence[Op], j: int) -> tuple[int, int]:
        new = ys[j] if j < len(ys) else None
        if not isinstance(new, Load) or id(new) in m.claimed or new.fill is not None:
            wrong(f"no load stands in front of {owner.name}")
        wide.append(new)
        del m.handlers[id(owner)]
        return i, j + 1

    def inside(m: Match, xs: Sequence[Op], i: int, ys: Sequence[Op], j: int) -> tuple[int, int]:
        read = ys[j] if j < len(ys) else None
        if not isinstance(read, Extract) or read.fill is not None or read.source is not wide[0].result:
            wrong(f"{load.result.name} is not read from the tile in front of {owner.name}")
        _same_elements(m, owner, load, wide[0], read)
        m.bind(load.results, read.results)
        return i + 1, j + 1

    m.handlers[id(owner)] = in_front
    m.handlers[id(load)] = inside


def _same_elements(m: Match, owner: Region, load: Load, wide: Load, read: Extract) -> None:
    """Axis by axis: the tile has the elements that the load reads, under their own coordinates."""
    if wide.tensor.name != load.tensor.name or len(wide.subs) != len(load.subs):
        wrong(f"the tile in front of {owner.name} is not one of {load.tensor.name}")
    inner = iter(read.subs)
    for position, (mine, theirs) in enumerate(zip(load.subs, wide.subs, strict=True)):
        if not isinstance(mine, Sub) or not isinstance(theirs, Sub) or mine.promised or mine.tile is not None:
            wrong(f"a subscript of {load.result.name} is none that can be widened")
        if theirs.part is None:
            if mine.index is None or not m.same(mine, theirs):
                wrong(f"{load.tensor.name}[{theirs}] is not what {load.result.name} reads")
            _inside(m, owner, mine.index, load.tensor.dims[position])
            continue
        if not m.same(mine, next(inner, None)):
            wrong(f"{load.result.name} reads other elements of the tile")
        arg = next(
            (
                a
                for a in owner.args
                if (a.kind == "block" and mine.part == a.part) or (a.kind == "each" and mine.index == a.index)
            ),
            None,
        )
        if not m.same(mine.part if arg is None else arg.domain, theirs.part):
            wrong(f"the tile has {theirs.part}, and instances read {mine}")


def _inside(m: Match, owner: Region, index: Expr, dim: Dim) -> None:
    """An index is inside its axis whether the region has an instance or not: the load is made in either case."""
    block = next(b for b in _blocks(m.before.body) if any(op is owner for op in b.ops))
    known: list[Constraint] = []
    for arg in around(m.before, block):
        first, last = (arg.index, arg.index) if arg.kind == "each" else (arg.part.lo, arg.part.hi - 1)
        known += [ge(first, arg.domain.lo), ge(last, first), lt(last, arg.domain.hi)]  # a block has an index
    facts = m.facts.also(*known)
    for c in (ge(index, 0), lt(index, dim.extent)):
        require(facts, c, "step", f"{index} may leave {dim} where {owner.name} has no instance")


def _blocks(block: Block) -> list[Block]:
    return [block, *(inner for op in block.ops for b in op.blocks for inner in _blocks(b))]


# ---- recompute


def recompute(m: Match) -> None:
    """A value is computed again where it is used."""
    m.drops = True
    block, place = definition(m.before, m.step.args["value"])
    op = block.ops[place]
    m.floating = None if "into" in m.step.args else []
    if "into" in m.step.args:
        _again(m, block, place, region_of(m.before, m.step.args["into"]))
    elif isinstance(op, Extract) and op.fill is None:
        _inline(m, op)
    else:
        wrong(f"{m.said(op)} is no extract, and nothing says where it is computed")


def _again(m: Match, block: Block, place: int, region: Region) -> None:
    """The first operation of a region's body is the one that defines the value, once more."""
    op = block.ops[place]
    if effects(op) or op.blocks or len(op.results) != 1:
        wrong(f"{m.said(op)} is no operation on elements")
    below = [i for i, x in enumerate(block.ops) if i > place and (x is region or _holds(x, region))]
    if not below:
        wrong(f"{region.name} does not come after {op.results[0].name}")
    if isinstance(op, Load):
        _unchanged(m, op, stored(block.ops[place + 1 : below[0] + 1]))

    def start(m: Match, ys: Sequence[Op]) -> int:
        if not ys or id(ys[0]) in m.claimed or type(ys[0]) is not type(op):
            wrong(f"{region.name} does not begin by computing {op.results[0].name}")
        m.fields(op, ys[0])
        outside = m.values.get(op.results[0].name)
        m.bind(op.results, ys[0].results)
        m.after_region[id(region)] = (op.results[0].name, outside)
        return 1

    m.body_starts[id(region)] = start


def _holds(op: Op, region: Region) -> bool:
    return any(x is region for b in op.blocks for x in b.walk())


def _unchanged(m: Match, load: Load, touched: set[str]) -> None:
    if load.tensor.name in touched:
        wrong(f"{load.tensor.name} is stored to before {load.result.name} would be read again")
    for name in sorted(touched):
        apart(m, load.tensor.name, name)


def _inline(m: Match, read: Extract) -> None:
    """The operations of a parallel region that make an element, in the place of the extract that reads it."""
    maker = next((op for op in m.before.body.walk() if isinstance(op, Region) and read.source in op.results), None)
    if maker is None or maker.kind != "parallel":
        wrong(f"{read.source.name} is not what a parallel region fills")
    slot = maker.results.index(read.source)
    put = next((op for op in maker.body.ops if maker.body.yields[slot] in op.results), None)
    if not isinstance(put, Insert) or put.source is not maker.carried[slot]:
        wrong(f"{read.source.name} is not filled by one update an instance")

    def handler(m: Match, xs: Sequence[Op], i: int, ys: Sequence[Op], j: int) -> tuple[int, int]:
        if m.claims.get(id(read)) is not None:
            wrong(f"{m.said(read)} is still there")
        wider = _instance(m, maker, put, read)
        end = j
        while end < len(ys) and id(ys[end]) not in m.claimed:
            end += 1
        new, m.floating = [*(m.floating or ()), *ys[j:end]], []
        _slice(m, maker, put.value, new, [y for y in ys[:j] if id(y) in m.claimed], wider)
        m.values[read.result.name] = m.value(put.value)
        made = {v.name: v for op in (*new, *ys[:end]) for v in op.results}.get(m.value(put.value), put.value)
        if not m.same(read.result.type, made.type):
            wrong(f"{read.result.name} has another type")
        return i + 1, end

    m.handlers[id(read)] = handler


def _instance(m: Match, maker: Region, put: Insert, read: Extract) -> bool:
    """The instance that fills what is read: each argument is a subscript of the update over a whole axis. Whether other
    instances may fill what nothing reads."""
    left = {a.name: a for a in maker.args}
    block, _ = definition(m.before, read.result.name)
    readers = around(m.before, block)
    wider = False
    for mine, theirs, axis in _by_factors(put, read):
        if mine.part == axis and theirs.part == axis:
            continue
        arg = next(
            (
                a
                for a in left.values()
                if (a.kind == "block" and mine.part == a.part) or (a.kind == "each" and mine.index == a.index)
            ),
            None,
        )
        if arg is None or (arg.domain.lo, arg.domain.hi) != (axis.lo, axis.hi) or arg.size is not None:
            wrong(f"the instances of {maker.name} do not fill {axis.dim} of {read.source.name} whole")
        if arg.kind == "block" and theirs.part is not None and theirs.part.dim is arg.domain.dim:
            m.symbols |= {f"{arg.name}.start": m.expr(theirs.part.lo), f"{arg.name}.stop": m.expr(theirs.part.hi)}
        elif arg.kind == "each" and theirs.index is not None:
            m.symbols[arg.name] = m.expr(theirs.index)
        else:
            wrong(f"{read.result.name} reads {axis.dim} of {read.source.name} by other subscripts than it was filled")
        del left[arg.name]
        goes = [a.domain for a in readers if theirs in (Sub(part=a.part), Sub(index=a.index))]
        wider = wider or [(p.lo, p.hi) for p in goes] != [(axis.lo, axis.hi)]
    if left:
        wrong(f"which {next(iter(left))} of {maker.name} filled {read.result.name} is not told")
    return wider


def _by_factors(put: Insert, read: Extract) -> Iterator[tuple[Sub, Sub, Part]]:
    """The subscripts of an update and of a read, with the whole that each is of: an axis, or a factor of one."""
    for mine, theirs, axis in zip(put.subs, read.subs, read.source.type.axes, strict=True):
        if isinstance(mine, Sub) and isinstance(theirs, Sub):
            yield mine, theirs, axis
            continue
        whole = (axis.lo, axis.hi) == (axis.dim.whole().lo, axis.dim.whole().hi)
        if isinstance(mine, Sub) or isinstance(theirs, Sub) or len(mine) != len(theirs) or not whole:
            wrong(f"{axis.dim} is subscripted by its factors on one side")
        if len(mine) != len(axis.dim.factors):
            wrong(f"{axis.dim} has other factors")
        yield from zip(mine, theirs, (f.whole() for f in axis.dim.factors))


def _slice(m: Match, maker: Region, value: Value, ys: Sequence[Op], shared: Sequence[Op], wider: bool) -> None:
    """New operations are operations of the region's body, in their order, without effect, of unchanged tensors; what
    the body does that stands in front of the extract already (`shared`) need not be done again. `wider`: the region may
    make elements that nothing reads, for which no promise was given."""
    touched = stored(m.before.body.ops)
    m.loose = True
    left, unlike = list(ys), ""
    alike: dict[tuple[type[Op], str], list[Op]] = {}
    for y in (*shared, *ys):
        alike.setdefault(_kind(y), []).append(y)
    for op in maker.body.ops:
        if effects(op) or not _wanted(maker, op, value):
            continue
        found = next((y for y in alike.get(_kind(op), ()) if _done(m, op, y)), None)
        if found is None:
            unlike = unlike or next((m.differs(op, y) for y in left if type(y) is type(op)), "")
            continue
        twins = [found, *(y for y in alike[_kind(op)] if y is not found and m.again(op, y))]
        left = [y for y in left if not any(y is one for one in twins)]
        for access in accesses(op):
            if isinstance(access, Load):
                _unchanged(m, access, touched)
                if m.backwards and wider and any(s.promised for s in flat_subs(access.subs)):
                    wrong(f"{m.said(access)} is promised to be inside its tensor only where an instance reads it")
    m.loose = False
    if left and not m.backwards:
        wrong(unlike or f"{m.said(left[0])} is new, and nothing says why")


def _kind(op: Op) -> tuple[type[Op], str]:
    return type(op), op.fn if isinstance(op, Elementwise) else ""


def _done(m: Match, op: Op, now: Op) -> bool:
    """Whether a new operation does what one of the region's body does; a step back may leave out a fill."""
    if m.backwards and isinstance(op, Load) and isinstance(now, Load) and op.fill is not None is now.fill:
        return _filled(m, op, now)
    return m.agrees(op, now)


def _filled(m: Match, op: Load, now: Load) -> bool:
    """A load with a fill, in the place of one that never leaves its tensor: what was given is right, or promised."""
    mine, theirs = list(flat_subs(op.subs)), list(flat_subs(now.subs))
    shapes = [[len(s) if isinstance(s, tuple) else 0 for s in x.subs] for x in (op, now)]
    if shapes[0] != shapes[1] or not all(m.same(replace(a, promised=b.promised), b) for a, b in zip(mine, theirs)):
        return False
    m.fields(op, now, ("fill", "subs"))
    m.bind(op.results, now.results)
    return True


def _wanted(maker: Region, op: Op, value: Value) -> bool:
    """Whether a value of the body is made with an operation."""
    names = {value.name}
    for x in reversed(maker.body.ops):
        if any(v.name in names for v in x.results):
            for y in (x, *(z for b in x.blocks for z in b.walk())):
                names |= {v.name for v in y.operands} | {v.name for b in y.blocks for v in b.yields}
                names |= {n for e in index_expressions(y) for n in e.functions}
    return any(v.name in names for v in op.results)
