"""Steps on scopes and statements: fuse and split neighbouring regions, move a statement, specialise under a condition.

Two neighbouring regions over one domain are one when whatever crosses between them stays inside an instance (parallel
ones), or never runs from a later instance to an earlier one (ordered ones).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from treadle.algebra.expr import Constraint, Expr, sym
from treadle.algebra.expr_text import parse_constraint
from treadle.algebra.sets import Facts, before, complements
from treadle.dtype.formats import bool_, i64
from treadle.ir.clone import Cloner
from treadle.ir.core import Block, If, Op, Program, Region, TileType, Value
from treadle.ir.ops.access import Load, Store
from treadle.ir.ops.debug import Check, Print
from treadle.ir.ops.elementwise import Elementwise, Full, Index
from treadle.ir.rewrite import edit_block, has_effect, operand_names, replace
from treadle.plan.steps import Step
from treadle.rules.accesses import Reading, Touch, extents_known, meeting
from treadle.rules.draft import Draft, named, reads
from treadle.rules.nests import is_ordered
from treadle.rules.refusals import DependenceBroken, FormUnsupported, NameUnknown, OrderBroken, StillUsed


def fuse_scopes(
    program: Program, first: str, second: str, disjoint: list[list[str]] | None = None
) -> tuple[Program, Step]:
    """Two neighbouring regions of one kind over one domain, as one whose instances do both, the first one first.

    *Errors*: `rules/dependence` with two instances and an element, `rules/form`, `rules/name`.
    """
    d = Draft(program, "fuse_scopes", {"first": first, "second": second})
    a, b = d.region(first), d.region(second)
    _alike(d, a, b)
    block, i = d.home(a)
    other, j = d.home(b)
    if other is not block or j <= i:
        raise d.no(NameUnknown, f"{second} does not follow {first} in its block", "neighbours", "move them", b)
    results = {v.name for v in a.results}
    between = block.ops[i + 1 : j]
    late = [op for op in between if has_effect(op) or reads(op) & results]
    if late:
        raise d.no(
            StillUsed,
            f"{named(late[0])} stands between {first} and {second} and must stay there",
            "nothing in between, or what can go in front",
            "move it",
            late[0],
        )
    _still_needed(d, a, b)
    env = _renaming(a, b)
    _independent(d, a, b)
    edit_block(b.body, lambda v: v, lambda e: e.substitute(env))
    _thread(d, a, b)
    block.ops[i : j + 1] = [*between, a]
    return d.finish()


def _still_needed(d: Draft, a: Region, b: Region) -> None:
    """A tile with which the second region goes on is needed by nothing else: between the two it is nowhere any more."""
    further = [v for v in b.inits if v in a.results]
    for op in d.program.body.walk():
        inside = op is b or any(op is x for x in b.body.walk())
        late = [v for v in further if v.name in operand_names(op) and not inside]
        late += [v for v in further for block in op.blocks if op is not b and v in block.yields]
        if late or len(set(further)) < len(further):
            raise d.no(
                StillUsed,
                f"{(late or further)[0]}, as {a.name} leaves it, is used beside {b.name}",
                f"a tile that only {b.name} goes on with",
                "keep two scopes",
                op,
            )
    if all(any(isinstance(x, Print | Check) for x in r.body.walk()) for r in (a, b)):
        raise d.no(OrderBroken, "both regions show values", "one of them", "keep two scopes", b)


def _alike(d: Draft, a: Region, b: Region) -> None:
    def key(r: Region) -> object:
        return (r.kind, r.order, r.scope, r.versions, [(x.domain, x.kind, x.size, x.reversed) for x in r.args])

    if key(a) != key(b) or a.merges or b.merges or a.kind == "pipeline" or a.stages or b.stages:
        raise d.no(
            FormUnsupported,
            f"{a.name}, {a.kind} over {_over(a)}, and {b.name}, {b.kind} over {_over(b)}",
            "two regions of one kind over the same parts, in one order",
            "split or permute them into the same instances first",
            b,
        )


def _over(r: Region) -> str:
    return ", ".join(f"{a.domain}{'' if a.size is None else f' by {a.size}'}" for a in r.args)


def _renaming(a: Region, b: Region) -> dict[str, Expr]:
    env: dict[str, Expr] = {}
    for x, y in zip(a.args, b.args, strict=True):
        env |= {y.name: x.index, f"{y.name}.start": x.part.lo, f"{y.name}.stop": x.part.hi}
    return env


def _independent(d: Draft, a: Region, b: Region) -> None:
    """No two instances that fusing would bring into another order touch one element."""
    mine, theirs = list(Reading(a).touches(a.body.ops)), list(Reading(b).touches(b.body.ops))
    result = {r.name: c.name for r, c in zip(a.results, a.carried, strict=True)}
    if a.kind != "parallel":
        last = next((v for v in a.results if any(v.name in reads(x) for x in [b]) or v in b.inits), None)
        if last is not None:
            raise d.no(
                DependenceBroken,
                f"{b.name} needs {last}, which {a.name} has after its last instance",
                "scopes that only share tensors",
                "keep them apart",
                b,
            )
    facts = extents_known(d.program)
    used = {n for op in d.program.body.walk() for n in reads(op)}
    pairs: set[tuple[str, ...]] = set()
    for x in mine:
        for y in theirs:
            seen = _tile_of(y, result, a, b)
            if not (x.writes or y.writes) or _commute(x, y, used):
                continue
            if x.name != y.name and x.name != seen:
                if isinstance(x.op, Load | Store) and isinstance(y.op, Load | Store):
                    pairs.add(tuple(sorted((x.name, y.name))))
                continue
            _apart(d, a, b, x.renamed("'1"), y.renamed("'2"), facts)
    if pairs:
        d.args["disjoint"] = [list(p) for p in sorted(pairs)]


def _commute(x: Touch, y: Touch, used: set[str]) -> bool:
    """Whether two colliding stores may change places: of one kind, in nobody's order, and nobody is told."""
    orders = [t.op.order for t in (x, y) if isinstance(t.op, Store)]
    told = any(v.name in used for t in (x, y) for v in t.op.results)
    return x.atomic is not None and x.atomic == y.atomic and not told and orders == ["unordered", "unordered"]


def _tile_of(y: Touch, result: dict[str, str], a: Region, b: Region) -> str | None:
    """The carried tile of the first region that an access of the second one means."""
    inits = {c.name: i.name for c, i in zip(b.carried, b.inits, strict=True)}
    name = inits.get(y.name, y.name)
    return result.get(name)


def _apart(d: Draft, a: Region, b: Region, x: Touch, y: Touch, facts: Facts) -> None:
    one, two = [sym(v) for v in x.instance], [sym(v) for v in y.instance]
    if a.kind == "parallel" or not is_ordered(a):
        wrong = list(complements([Constraint(p - q, True) for p, q in zip(one, two, strict=True)]))
    else:
        turned = [(-p, -q) if arg.reversed else (p, q) for p, q, arg in zip(one, two, a.args, strict=True)]
        wrong = list(before([q for _, q in turned], [p for p, _ in turned]))
    found = meeting(x, y, wrong, facts)
    if found is None:
        return
    case, sure = found
    text = ", ".join(f"{k} = {v}" for k, v in sorted(case.items()))
    raise d.no(
        DependenceBroken,
        f"{x.op.keyword} of {x.name} in {a.name} and {y.op.keyword} of {y.name} in {b.name} touch one element in "
        f"different instances{'' if sure else ', as far as is known'} ({text})",
        "dependences inside an instance" if a.kind == "parallel" else "no dependence on a later instance",
        "shift one of them, exchange through memory with a join, or keep two scopes",
        y.op,
    )


def _thread(d: Draft, a: Region, b: Region) -> None:
    """Carried values and uses of the region that is fused into the first one; its body goes behind the first's."""
    now: dict[Value, Value] = dict(zip(a.results, a.body.yields, strict=True))
    for slot, (init, carried, final, result) in enumerate(
        zip(list(b.inits), b.carried, list(b.body.yields), b.results, strict=True)
    ):
        if init in a.results:  # the second one goes on with a tile of the first
            place = a.results.index(init)
            replace(b.body, {carried: a.body.yields[place]})
            final = b.body.yields[slot]
            a.body.yields[place] = final
            now[init] = final
            replace(d.program.body, {result: a.results[place]})
        else:
            a.inits.append(init)
            a.carried.append(carried)
            a.body.yields.append(final)
            a.results.append(result)
    inside = {r: v for r, v in zip(now, now.values()) if r is not v}
    replace(b.body, {r: v for r, v in inside.items() if r in now})
    a.body.ops += b.body.ops


def split_scopes(program: Program, at: str, first: int) -> tuple[Program, Step]:
    """A parallel region as two: its first operations in one, the others in the next. Undoes `fuse_scopes`.

    *Errors*: `rules/used` for a value that crosses, `rules/order` for a region that is not parallel.
    """
    d = Draft(program, "split_scopes", {"at": at, "first": first})
    region = d.region(at)
    if region.kind != "parallel" or region.stages or is_ordered(region):
        raise d.no(OrderBroken, f"{at} is {region.kind}", "a parallel region", "chains stay together", region)
    if not 0 < first < len(region.body.ops):
        raise d.no(
            NameUnknown,
            f"{first} of {len(region.body.ops)} operations",
            "some of them",
            "count the lines of its body",
            region,
        )
    early, late = region.body.ops[:first], region.body.ops[first:]
    made = {v.name for op in early for v in op.results}
    needed = {n for op in late for n in reads(op)} & made
    if needed:
        raise d.no(
            StillUsed,
            f"{sorted(needed)[0]} crosses from the first scope to the second",
            "scopes that share no value of an instance",
            "store it in a tile, or recompute it",
            region,
        )
    rest = Region(kind="parallel", args=[], name=d.regions.fresh(at), span=region.span)
    cloner = Cloner(lambda v: v)
    for arg in region.args:
        name = d.symbols.fresh(arg.name)
        copy = cloner.arg(arg)
        copy.name = name
        rest.args.append(copy)
    env = _renaming(rest, region)
    block = Block(late)
    edit_block(block, lambda v: v, lambda e: e.substitute(env))
    rest.body = block
    moving = {v.name for op in late for v in op.results}
    for slot in reversed(range(len(region.carried))):
        carried, final = region.carried[slot], region.body.yields[slot]
        by_late = final.name in moving or any(carried.name in reads(op) for op in late)
        by_early = final.name in made or any(carried.name in reads(op) for op in early)
        if by_late and by_early:
            raise d.no(StillUsed, f"{carried} is filled by both scopes", "tiles of one scope", "keep one scope", region)
        if by_late:
            for mine, theirs in (
                (region.inits, rest.inits),
                (region.carried, rest.carried),
                (region.body.yields, rest.body.yields),
                (region.results, rest.results),
            ):
                theirs.insert(0, mine.pop(slot))
    region.body.ops = early
    home, place = d.home(region)
    home.ops.insert(place + 1, rest)
    return d.finish()


def move(program: Program, at: str, to: int, disjoint: list[list[str]] | None = None) -> tuple[Program, Step]:
    """The operation at the path `at` to another place in its block (counted without it).

    *Errors*: `rules/used` where it would leave a value it needs, `rules/dependence` where it would pass an access that
    touches the same tensor.
    """
    d = Draft(program, "move", {"at": at, "to": to})
    op = d.at(at)
    block, place = d.home(op)
    if not 0 <= to < len(block.ops):
        raise d.no(NameUnknown, f"place {to}", f"0 .. {len(block.ops) - 1}", "count the others of its block", op)
    rest = [x for x in block.ops if x is not op]
    passed = rest[to:place] if to < place else rest[place:to]
    pairs: set[tuple[str, ...]] = set()
    for other in passed:
        early, late = (other, op) if to < place else (op, other)
        need = {v.name for v in early.results} & reads(late)
        if need:
            raise d.no(
                StillUsed,
                f"{sorted(need)[0]} would be used before it is made",
                "what it needs before it",
                "move that first",
                op,
            )
        pairs |= set(_crossing(d, op, other))
    block.ops[:] = [*rest[:to], op, *rest[to:]]
    if pairs:
        d.args["disjoint"] = [list(p) for p in sorted(pairs)]
    return d.finish()


def _crossing(d: Draft, op: Op, other: Op) -> Iterator[tuple[str, ...]]:
    """Pairs of tensors that must be apart for two operations to change places."""
    for x in Block([op]).walk():
        for y in Block([other]).walk():
            if isinstance(x, Load | Store) and isinstance(y, Load | Store) and Store in (type(x), type(y)):
                if x.tensor is y.tensor:
                    raise d.no(
                        DependenceBroken,
                        f"{x.keyword} and {y.keyword} of {x.tensor} would change places",
                        "accesses to other tensors",
                        "keep their order",
                        op,
                    )
                yield tuple(sorted((x.tensor.name, y.tensor.name)))
            if isinstance(x, Print | Check) and isinstance(y, Print | Check):
                raise d.no(
                    DependenceBroken,
                    f"{x.keyword} and {y.keyword} would change places",
                    "one of them",
                    "keep their order",
                    op,
                )


def specialise(program: Program, at: str, when: list[str]) -> tuple[Program, Step]:
    """A region twice, under an `if` on facts of the extents: in the first one they hold.

    *Errors*: `rules/form` for facts about what is no extent.
    """
    d = Draft(program, "specialise", {"at": at, "when": when})
    region = d.region(at)
    facts = [parse_constraint(text) for text in when]
    known = {s for x in d.program.dims for s in x.extent.symbols} | d.program.lets.keys()
    for fact in facts:
        if fact.symbols - known or fact.expr.functions:
            raise d.no(FormUnsupported, f"{fact}", "a fact about extents", "name dimensions", region)
    block, place = d.home(region)
    cond, ops = _condition(d, facts)
    cloner = Cloner(lambda v: d.fresh(v.type, v.hint), d.symbols)
    other = cloner.op(region)
    for op in Block([other]).walk():
        if isinstance(op, Region):
            op.name = d.regions.fresh(region.name)
    results = region.results
    region.results = [d.fresh(v.type, v.hint) for v in results]
    then, orelse = Block([region], list(region.results)), Block([other], list(other.results))
    chosen = If(cond=cond, then=then, orelse=orelse, results=results, span=region.span)
    block.ops[place : place + 1] = [*ops, chosen]
    return d.finish()


def _condition(d: Draft, facts: Sequence[Constraint]) -> tuple[Value, list[Op]]:
    """The conjunction of facts as a bool value, and the operations that make it."""
    ops: list[Op] = [Full(number=0, results=[d.fresh(TileType(i64))])]
    zero, every = ops[0].result, list[Value]()
    for fact in facts:
        index = Index(expr=fact.expr, results=[d.fresh(TileType(i64))])
        test = Elementwise(
            fn="eq" if fact.equality else "ge", args=(index.result, zero), results=[d.fresh(TileType(bool_))]
        )
        ops += [index, test]
        every.append(test.result)
    whole = every[0]
    for one in every[1:]:
        both = Elementwise(fn="and", args=(whole, one), results=[d.fresh(TileType(bool_))])
        ops.append(both)
        whole = both.result
    return whole, ops


__all__ = ["fuse_scopes", "move", "specialise", "split_scopes"]
