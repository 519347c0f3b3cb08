"""Validators of steps on folds: factor, regroup, products, apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from treadle.algebra.expr import Expr, ceildiv, ge, minimum
from treadle.algebra.monoids import BY_MERGE, MONOIDS
from treadle.checker.derivation_match import Match, effects, wrong
from treadle.checker.derivation_nests import ordered, region_of
from treadle.checker.verdict import Unsure, require
from treadle.ir.core import Merge, Op, Region, Value
from treadle.ir.ops.access import Extract, Insert
from treadle.ir.ops.elementwise import Cast, Elementwise, Full
from treadle.ir.ops.fold import Fold, Mma, Reduce
from treadle.ir.rewrite import operand_names


def factor(m: Match) -> None:
    """A fold of a region became a fold of the folds of chunks."""
    x = region_of(m.before, m.step.args["at"])
    m.handlers[id(x)] = _factor


def _factor(m: Match, xs: Sequence[Op], i: int, ys: Sequence[Op], j: int) -> tuple[int, int]:
    x = xs[i]
    assert isinstance(x, Region)
    if x.kind != "reduce" or x.order not in ("unordered", "ordered"):
        wrong(f"{x.name} is {x.kind} {x.order}, an exact chain: it has no parts")
    if effects(x):
        wrong(f"{x.name} stores: its instances would no longer run once, in one region")
    if any(merge.laws == "none" for merge in x.merges):
        wrong(f"a monoid of {x.name} has no laws")
    groups = _groups(x)
    n = len(x.carried)
    count = n + 1 + sum(2 if g.merge is None else 1 + len(g.merge.body.ops) for g in groups)
    new = list(ys[j : j + count])
    if len(new) != count or any(id(op) in m.claimed for op in new):
        wrong(f"in the place of {x.name} do not stand tiles, a region of chunks, and their folds")
    parts = new[n]
    inner = m.claims.get(id(x))
    if not isinstance(parts, Region) or not isinstance(inner, Region) or parts.kind != "parallel" or parts.merges:
        wrong(f"{x.name} is not in a parallel region of chunks")
    blanks = [op for op in new[:n] if isinstance(op, Full) and op.number is None]
    if [b.result for b in blanks] != parts.inits or len(parts.args) != 1:
        wrong(f"{parts.name} does not begin with empty tiles")
    _chunks(m, x, parts, inner)
    _full(m, parts)
    _inside(m, x, parts, inner, groups)
    at = n + 1
    for group in groups:
        at = _whole(m, x, parts, group, new, at)
    return i + 1, j + count


@dataclass(frozen=True)
class _Group:
    """States that are folded together: by a monoid of the user, or one state by a built-in one."""

    states: tuple[int, ...]
    merge: Merge | None = None
    monoid: str = ""


def _groups(x: Region) -> list[_Group]:
    """The states of a region, those of users' monoids first. That a merge is what updates its states is part of what
    the region says."""
    own = {i for merge in x.merges for i in merge.states}
    rest = [_Group((k,), None, _monoid(x, k)) for k in range(len(x.carried)) if k not in own]
    return [*(_Group(merge.states, merge) for merge in x.merges), *rest]


def _whole(m: Match, x: Region, parts: Region, group: _Group, new: Sequence[Op], at: int) -> int:
    """The parts of a group are folded, and what it held before is merged in front; the place behind that."""
    total = new[at]
    chunks = [parts.args[0].domain.dim.name]
    first = [m.value(x.inits[k]) for k in group.states]
    about = ", ".join(x.carried[k].name for k in group.states)
    if group.merge is None:
        (k,), merged = group.states, new[at + 1]
        if (
            not isinstance(total, Reduce)
            or total.source is not parts.results[k]
            or [d.name for d in total.dims] != chunks
            or (total.monoid, total.order, total.nan) != (group.monoid, x.order, "propagate")
        ):
            wrong(f"the parts of {about} are not folded by {group.monoid}, {x.order}")
        if (
            not isinstance(merged, Elementwise)
            or merged.fn != MONOIDS[group.monoid].merge
            or [v.name for v in merged.args] != [*first, total.result.name]
        ):
            wrong(f"what {about} held before does not enter once, in front of its parts")
        m.bind([x.results[k]], merged.results)
        return at + 2
    if (
        not isinstance(total, Fold)
        or list(total.sources) != [parts.results[k] for k in group.states]
        or [d.name for d in total.dims] != chunks
        or total.order != x.order
    ):
        wrong(f"the parts of {about} are not folded by {group.merge.name}, {x.order}")
    m.loose = True
    m.merge(group.merge, total.merge)
    for side, names in ((group.merge.left, first), (group.merge.right, [v.name for v in total.results])):
        m.values |= {v.name: name for v, name in zip(side, names, strict=True)}
    end = at + 1 + len(group.merge.body.ops)
    m.ops(group.merge.body.ops, new[at + 1 : end])
    m.loose = False
    for k, value in zip(group.states, group.merge.body.yields, strict=True):
        m.values[x.results[k].name] = m.value(value)
    return end


def _chunks(m: Match, x: Region, parts: Region, inner: Region) -> None:
    """The chunks cover the range of the argument, each index once, in order."""
    counter = parts.args[0]
    if counter.kind != "each" or counter.reversed or len(inner.args) != len(x.args):
        wrong(f"{parts.name} does not count chunks")
    for mine, theirs in zip(x.args, inner.args, strict=True):
        if mine.name != m.step.args["arg"]:
            m.argument(mine, theirs)
            continue
        if (mine.kind, mine.reversed) != (
            theirs.kind,
            theirs.reversed,
        ) or mine.domain.dim.name != theirs.domain.dim.name:
            wrong(f"{theirs.name} is of another kind than {mine.name}")
        if (mine.size is None) != (theirs.size is None) or (
            mine.size is not None and not m.same(mine.size, theirs.size)
        ):
            wrong(f"{theirs.name} is in other blocks than {mine.name}")
        if ordered(x) and (mine is not x.args[0] or mine.reversed):
            wrong(
                f"{mine.name} is not the first argument of {x.name}, whose leaves keep their order, or runs backwards"
            )
        lo, hi = m.expr(mine.domain.lo), m.expr(mine.domain.hi)
        c = counter.index
        step = theirs.domain.lo.substitute({counter.name: c + 1}) - theirs.domain.lo
        start = lo + step * c
        require(m.facts, ge(step, 1), "step", f"chunks of {step} may have no index")
        if mine.size is not None and (
            step.constant is None or step.constant % (mine.size.constant or step.constant + 1)
        ):
            wrong(f"chunks of {step} cut through blocks of {mine.size}, which are observed")
        if not (m.facts.equal(theirs.domain.lo, start) and m.facts.equal(theirs.domain.hi, minimum(start + step, hi))):
            wrong(f"the chunk {theirs.domain} is not [{start} : min({start + step}, {hi})]")
        count = counter.domain
        if not (m.facts.equal(count.lo, Expr(())) and m.facts.equal(count.hi, ceildiv(hi - lo, step))):
            case = m.facts.against(ge(count.hi, ceildiv(hi - lo, step)))
            wrong(f"{count} chunks of {step} are not those of {mine.domain}", case)
        if (lo.symbols | hi.symbols) - {s for d in m.before.dims for s in d.extent.symbols} - m.before.lets.keys():
            wrong(f"{mine.domain} changes from instance to instance")
        m.bind_argument(mine, theirs)


def _full(m: Match, parts: Region) -> None:
    """The tiles have an element for each chunk and no other: one that no chunk fills would be folded too."""
    counter = parts.args[0].domain
    for tile in parts.inits:
        first = tile.type.axes[0] if tile.type.axes else None
        if first is None or first.dim.name != counter.dim.name:
            wrong(f"{tile.name} is not a tile over {counter.dim}")
        if not (m.facts.equal(first.lo, counter.lo) and m.facts.equal(first.hi, counter.hi)):
            wrong(f"{tile.name} is over {first}, and the chunks are {counter}")


def _inside(m: Match, x: Region, parts: Region, inner: Region, groups: Sequence[_Group]) -> None:
    """One chunk: from the identity, the body of the source, put into the tiles of parts."""
    ops = parts.body.ops
    count = sum(1 if g.merge is None else len(g.merge.identity.ops) for g in groups)
    n = len(x.carried)
    if len(ops) != count + 1 + n or ops[count] is not inner:
        wrong(f"{parts.name} does more than fold a chunk")
    if any(id(op) in m.claimed for op in (*ops[:count], *ops[count + 1 :])):
        wrong(f"{parts.name} does more than fold a chunk")
    m.fields(x, inner)
    at = 0
    for group in groups:
        begins = [inner.inits[k] for k in group.states]
        if group.merge is None:
            _identity(x, group, ops[at], begins[0])
            at += 1
            continue
        end = at + len(group.merge.identity.ops)
        m.loose = True
        m.ops(group.merge.identity.ops, ops[at:end])
        m.loose = False
        m.same_values(group.merge.identity.yields, begins, f"what a chunk of {group.merge.name} begins with")
        at = end
    _body(m, x, inner)
    _put(m, x, parts, inner, ops[count + 1 :])


def _identity(x: Region, group: _Group, one: Op, begin: Value) -> None:
    """A chunk begins with the identity of a built-in monoid."""
    state = x.carried[group.states[0]]
    if not isinstance(one, Full) or one.number is None or one.result is not begin:
        wrong(f"a chunk of {state.name} does not begin with a number")
    if not MONOIDS[group.monoid].is_identity(one.number, state.type.dtype):
        wrong(f"a chunk of {state.name} begins with {one.number}, which is not the identity of {group.monoid}")


def _body(m: Match, x: Region, inner: Region) -> None:
    """Monoids and body are those of the source."""
    m.merges(x, inner)
    m.bind(x.carried, inner.carried)
    m.block(x.body, inner.body)


def _put(m: Match, x: Region, parts: Region, inner: Region, puts: Sequence[Op]) -> None:
    """The results of a chunk are put into the tiles of parts, whole, at the chunk."""
    for k, put in enumerate(puts):
        axes = x.carried[k].type.axes
        if (
            not isinstance(put, Insert)
            or put.source is not parts.carried[k]
            or put.value is not inner.results[k]
            or put.result is not parts.body.yields[k]
            or len(put.subs) != len(axes) + 1
        ):
            wrong(f"the part of {x.carried[k].name} is not put into its tile")
        first, *rest = put.subs
        if isinstance(first, tuple) or first.index != parts.args[0].index:
            wrong(f"the part of {x.carried[k].name} is not put at its chunk")
        if not all(not isinstance(s, tuple) and m.same(a, s.part) for s, a in zip(rest, axes, strict=True)):
            wrong(f"the part of {x.carried[k].name} is not put whole")


def _monoid(region: Region, slot: int) -> str:
    """The built-in monoid by which an iteration updates a state, read along the chain of its updates.

    *Errors*: refused where the state is read otherwise; unsure for updates of parts.
    """
    made = {v.name: op for op in region.body.walk() for v in op.results}
    found: set[str] = set()
    state = region.carried[slot]
    uses = _uses(region)

    def back(value: Value, start: Value) -> None:
        while value is not start:
            op = made.get(value.name)
            if uses.get(value.name, 0) > 1:
                wrong(f"{value.name}, a state of {region.name}, is read more than once")
            if isinstance(op, Mma):
                found.add("add")
                value = op.acc
            elif isinstance(op, Elementwise) and op.fn in BY_MERGE and len(op.args) == 2:
                found.add(BY_MERGE[op.fn].name)
                sides = [a for a in op.args if _reaches(made, a, state)]
                if len(sides) != 1:
                    wrong(f"{value.name} in {region.name} is no update of {state.name}")
                value = sides[0]
            elif isinstance(op, Region):
                at = op.results.index(value)
                back(op.body.yields[at], op.carried[at])
                value = op.inits[at]
            elif isinstance(op, Extract | Insert):
                raise Unsure("step", f"{state.name} is updated in parts", missing="a rule for parts")
            else:
                wrong(f"no monoid updates {state.name} in {region.name}")

    back(region.body.yields[slot], state)
    if len(found) != 1 or uses.get(state.name, 0) != 1:
        wrong(f"no one monoid updates {state.name} in {region.name}")
    return found.pop()


def _uses(region: Region) -> dict[str, int]:
    count: dict[str, int] = {}
    for op in region.body.walk():
        direct = [v.name for v in op.operands]
        for name in (*direct, *(operand_names(op) - set(direct)), *(v.name for b in op.blocks for v in b.yields)):
            count[name] = count.get(name, 0) + 1
    for v in region.body.yields:
        count[v.name] = count.get(v.name, 0) + 1
    return count


def _reaches(made: dict[str, Op], value: Value, state: Value) -> bool:
    """Whether a value depends on a state."""
    seen: set[str] = set()
    todo = [value.name]
    while todo:
        one = todo.pop()
        if one == state.name:
            return True
        if one in seen:
            continue
        seen.add(one)
        op = made.get(one)
        if op is not None:
            todo += operand_names(op)  # what enters a region inside is among them
            todo += [n for b in op.blocks for x in b.walk() for n in operand_names(x)]
            todo += [v.name for b in op.blocks for v in b.yields]
    owner = next((op for op in made.values() if isinstance(op, Region) and value in op.carried), None)
    return owner is not None and _reaches(made, owner.inits[owner.carried.index(value)], state)


def regroup(m: Match) -> None:
    """A fold over several dimensions became one over some, and one over the others."""
    name = m.step.args["value"]
    op = next((op for op in m.before.body.walk() if any(v.name == name for v in op.results)), None)
    if not isinstance(op, Reduce):
        wrong(f"{name} is no fold of axes")
    m.handlers[id(op)] = _regroup


def _regroup(m: Match, xs: Sequence[Op], i: int, ys: Sequence[Op], j: int) -> tuple[int, int]:
    x = xs[i]
    assert isinstance(x, Reduce)
    if x.order not in ("unordered", "ordered"):
        wrong(f"{x.result.name} is an exact chain, {x.order}")
    part, whole = (ys[j], ys[j + 1]) if j + 1 < len(ys) else (None, None)
    if not isinstance(part, Reduce) or not isinstance(whole, Reduce) or id(part) in m.claimed:
        wrong(f"in the place of {x.result.name} do not stand two folds")
    if whole is not m.claims.get(id(x)) or part.source.name != m.value(x.source) or whole.source is not part.result:
        wrong(f"the second fold of {x.result.name} is not of the first")
    for one in (part, whole):
        if (one.monoid, one.order, one.nan) != (x.monoid, x.order, x.nan):
            wrong(f"{one.result.name} folds otherwise than {x.result.name}")
    inner, outer, every = ([d.name for d in op.dims] for op in (part, whole, x))
    if sorted([*inner, *outer]) != sorted(every):
        wrong(f"the two folds are over {', '.join([*inner, *outer])}, not {', '.join(every)}")
    if x.order == "ordered" and [*outer, *inner] != every:
        wrong(f"{', '.join(inner)} would be folded before what lies between its leaves")
    m.bind(x.results, whole.results)
    return i + 1, j + 2


def products(m: Match) -> None:
    """A contraction became the fold of its products, in any order, added once to what it held before."""
    name = m.step.args["value"]
    op = next((op for op in m.before.body.walk() if any(v.name == name for v in op.results)), None)
    if not isinstance(op, Mma) or not op.contracted:
        wrong(f"{name} sums no products")
    m.handlers[id(op)] = _products


def _products(m: Match, xs: Sequence[Op], i: int, ys: Sequence[Op], j: int) -> tuple[int, int]:
    x = xs[i]
    assert isinstance(x, Mma)
    about, dtype = x.result.name, x.acc.type.dtype
    factors: list[str] = []
    begun = j
    for side in (x.a, x.b):
        name = m.value(side)
        if side.type.dtype != dtype:
            cast = ys[j] if j < len(ys) else None
            if not isinstance(cast, Cast) or (cast.source.name, cast.dtype, cast.saturate) != (name, dtype, False):
                wrong(f"{side.name} is not converted to {dtype}, exactly, before {about} multiplies it")
            name, j = cast.result.name, j + 1
        factors.append(name)
    if any(id(op) in m.claimed for op in ys[begun : j + 3]) or j + 3 > len(ys):
        wrong(f"in the place of {about} do not stand a product, its fold, and a sum")
    product, total, whole = ys[j : j + 3]
    if not isinstance(product, Elementwise) or product.fn != "mul" or [v.name for v in product.args] != factors:
        wrong(f"the products of {about} are not those of {factors[0]} and {factors[1]}")
    if (
        not isinstance(total, Reduce)
        or total.source is not product.result
        or sorted(d.name for d in total.dims) != sorted(d.name for d in x.contracted)
        or (total.monoid, total.order, total.nan) != ("add", "unordered", "propagate")
    ):
        wrong(f"the products of {about} are not added up over {', '.join(d.name for d in x.contracted)}")
    before = [m.value(x.acc), total.result.name]
    if not isinstance(whole, Elementwise) or whole.fn != "add" or [v.name for v in whole.args] != before:
        wrong(f"what {about} held before does not enter once")
    m.bind(x.results, whole.results)
    return i + 1, j + 3


def apart(m: Match) -> None:
    """A contraction starts from zero, and is added once to what it held before."""
    name = m.step.args["value"]
    op = next((op for op in m.before.body.walk() if any(v.name == name for v in op.results)), None)
    if not isinstance(op, Mma) or not op.contracted:
        wrong(f"{name} sums no products")
    m.handlers[id(op)] = _apart


def _apart(m: Match, xs: Sequence[Op], i: int, ys: Sequence[Op], j: int) -> tuple[int, int]:
    x = xs[i]
    assert isinstance(x, Mma)
    about = x.result.name
    start, sums, whole = ys[j : j + 3] if j + 3 <= len(ys) else (None, None, None)
    if not isinstance(start, Full) or start.number != 0 or start.result.type.dtype != x.acc.type.dtype:
        wrong(f"{about} does not start from a zero of its own")
    if not isinstance(sums, Mma) or sums.acc is not start.result or sums is not m.claims.get(id(x)):
        wrong(f"in the place of {about} does not stand a contraction that starts from zero")
    factors = [m.value(x.a), m.value(x.b)]
    same = [d.name for d in sums.contracted] == [d.name for d in x.contracted]
    if [sums.a.name, sums.b.name] != factors or not same:
        wrong(f"the products of {about} are not those of {factors[0]} and {factors[1]}")
    before = [m.value(x.acc), sums.result.name]
    if not isinstance(whole, Elementwise) or whole.fn != "add" or [v.name for v in whole.args] != before:
        wrong(f"what {about} held before does not enter once")
    m.bind(x.results, whole.results)
    return i + 1, j + 3
