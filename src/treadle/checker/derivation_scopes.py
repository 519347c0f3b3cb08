"""Validators of steps on scopes and statements: fuse_scopes, split_scopes, move, specialise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from treadle.algebra.expr import Constraint, Expr
from treadle.algebra.expr_text import parse_constraint
from treadle.algebra.sets import before, complements
from treadle.checker.derivation_copies import apart, definition
from treadle.checker.derivation_match import Match, effects, wrong
from treadle.checker.derivation_nests import counterpart, ordered, region_of
from treadle.checker.derivation_order import Family, accesses, families, never_meet, states
from treadle.checker.source import Source
from treadle.ir.core import Block, If, Op, Region, Value
from treadle.ir.ops.access import Load, Store
from treadle.ir.ops.debug import Check, Print
from treadle.ir.ops.elementwise import Elementwise, Full, Index
from treadle.ir.paths import op_at
from treadle.ir.rewrite import operand_names

# ---- fuse_scopes


def fuse_scopes(m: Match) -> None:
    """Two regions of one block became one, whose instances do both."""
    a, b = region_of(m.before, m.step.args["first"]), region_of(m.before, m.step.args["second"])
    mine, theirs = ((r.kind, r.order, r.scope, r.versions, len(r.args)) for r in (a, b))
    if mine != theirs or a.merges or b.merges:
        wrong(f"{a.name} and {b.name} are not regions of one kind")
    if a.kind == "pipeline":
        wrong(f"{a.name} is a pipeline")
    _independent(m, a, b)
    m.handlers[id(a)] = _fused


def _fused(m: Match, xs: Sequence[Op], i: int, ys: Sequence[Op], j: int) -> tuple[int, int]:
    a = xs[i]
    assert isinstance(a, Region)
    b = region_of(m.before, m.step.args["second"])
    end = next((k for k in range(i + 1, len(xs)) if xs[k] is b), None)
    if end is None:
        wrong(f"{b.name} does not follow {a.name} in its block")
    if m.claims.get(id(b)) is not None:
        wrong(f"{b.name} is still there")
    for op in xs[i + 1 : end]:  # what stood between them goes in front: it has no effect and needs nothing of the first
        if effects(op) or operand_names(op) & {r.name for r in a.results}:
            wrong(f"{m.said(op)} stands between {a.name} and {b.name} and cannot go in front")
        if j >= len(ys) or m.claims.get(id(op)) is not ys[j]:
            wrong(f"{m.said(op)} is not in front of {a.name}")
        m.op(op, ys[j])
        j += 1
    y = counterpart(m, a, ys, j)
    m.fields(a, y)
    if len(y.args) != len(a.args):
        wrong(f"{y.name} has {len(y.args)} arguments")
    for mine, theirs in zip(a.args, y.args, strict=True):
        m.argument(mine, theirs)
    for mine, theirs in zip(b.args, y.args, strict=True):
        m.argument(mine, theirs)
    _bodies(m, a, b, y)
    return end + 1, j + 1


def _bodies(m: Match, a: Region, b: Region, y: Region) -> None:
    """The first body, then the second; a tile that the first one fills is, in the second, what its own instance has."""
    goes_on = {k: a.results.index(init) for k, init in enumerate(b.inits) if init in a.results}
    own = [k for k in range(len(b.inits)) if k not in goes_on]
    if len(set(goes_on.values())) < len(goes_on):
        wrong(f"{b.name} goes on twice with one tile of {a.name}")
    n = len(a.carried)
    if len(y.carried) != n + len(own):
        wrong(f"{y.name} carries {len(y.carried)} values instead of {n + len(own)}")
    m.same_values([*a.inits, *(b.inits[k] for k in own)], y.inits, f"the initial values of {y.name}")
    m.bind(a.carried, y.carried[:n])
    m.bind([b.carried[k] for k in own], y.carried[n:])
    split = next((k for k, op in enumerate(y.body.ops) if any(m.claims.get(id(x)) is op for x in b.body.ops)), None)
    split = len(y.body.ops) if split is None else split
    m.ops(a.body.ops, y.body.ops[:split])
    ends = [m.value(v) for v in a.body.yields]
    for result, end in zip(a.results, ends, strict=True):
        m.values[result.name] = end
    for k, at in goes_on.items():
        m.values[b.carried[k].name] = ends[at]
    m.ops(b.body.ops, y.body.ops[split:])
    for k, at in goes_on.items():
        ends[at] = m.value(b.body.yields[k])
    ends += [m.value(b.body.yields[k]) for k in own]
    if ends != [v.name for v in y.body.yields]:
        wrong(f"{y.name} yields {', '.join(v.name for v in y.body.yields)} instead of {', '.join(ends)}")
    m.bind(a.results, y.results[:n])
    m.bind([b.results[k] for k in own], y.results[n:])
    for k, at in goes_on.items():
        m.values[b.results[k].name] = y.results[at].name
        del m.values[a.results[at].name]  # the tile between the two is nowhere any more


def _independent(m: Match, a: Region, b: Region) -> None:
    """No element that both touch, one of them writing, in instances that would change their order."""
    source = Source(m.before)
    if all(any(isinstance(op, Print | Check) for op in r.body.walk()) for r in (a, b)):
        wrong(f"what {a.name} and {b.name} show would be shown in another order")
    first, second = families(source, a, a.body.ops, "1"), families(source, b, b.body.ops, "2")
    results = {v.name: k for k, v in enumerate(a.results)}
    needed = {name for op in (b, *b.body.walk()) for name in operand_names(op)} | {v.name for v in b.body.yields}
    if a.kind != "parallel" and needed & results.keys():
        wrong(f"{b.name} needs what {a.name} has after its last instance")
    tiles = _shared(a, b, {name: k for name, k in results.items() if name in needed})
    for x in first:
        for y in second:
            if not x.writes and not y.writes:
                continue
            atomic = isinstance(x.op, Store) and isinstance(y.op, Store) and x.op.effect == y.op.effect != "set"
            told = source.used & {v.name for f in (x, y) for v in f.op.results}
            if atomic and not told and _unordered(x, y):
                continue
            mine, theirs = _object(x, tiles), _object(y, tiles)
            if mine != theirs:
                if isinstance(x.op, Load | Store) and isinstance(y.op, Load | Store):
                    apart(m, mine, theirs)
                continue
            pairs = list(zip(x.instance, y.instance, strict=True))
            if a.kind == "parallel" or not ordered(a):
                wrong_orders = list(complements([Constraint(p - q, True) for p, q in pairs]))
            else:
                turned = [(-p, -q) if arg.reversed else (p, q) for (p, q), arg in zip(pairs, a.args, strict=True)]
                wrong_orders = list(before([q for _, q in turned], [p for p, _ in turned]))
            pair = f"{x.op.keyword} in {a.name} and {y.op.keyword} in {b.name}"
            what = f"{pair} touch one element of {mine} in two instances"
            never_meet(x, y, wrong_orders, m.facts, what)


def _unordered(*touches: Family) -> bool:
    """Whether the order of colliding stores is nobody's."""
    return all(isinstance(t.op, Store) and t.op.order == "unordered" for t in touches)


def _shared(a: Region, b: Region, results: Mapping[str, int]) -> dict[str, str]:
    """The tiles that `a` fills and `b` needs, by their values in both: `b` sees them element by element alone."""
    filled = states(a.body.ops, {a.carried[k].name: name for name, k in results.items()})
    start = {name: name for name in results}
    start |= {c.name: i.name for c, i in zip(b.carried, b.inits, strict=True) if i.name in results}
    seen = states(b.body.ops, start)
    for region, of in ((a, filled), (b, seen)):
        for inside, end in zip(region.carried, region.body.yields, strict=True):
            if of.get(inside.name) != of.get(end.name):
                wrong(f"{region.name} yields {end.name} for {inside.name}, and they are states of different tiles")
    return filled | seen


def _object(x: Family, tiles: Mapping[str, str]) -> str:
    """The tensor, or the tile that both regions know; a value of one region alone has its own name."""
    return x.op.tensor.name if isinstance(x.op, Load | Store) else tiles.get(x.op.source.name, x.op.source.name)


# ---- split_scopes


def split_scopes(m: Match) -> None:
    """A parallel region became two: its first operations in one, the others in the next."""
    m.handlers[id(region_of(m.before, m.step.args["at"]))] = _split


def _split(m: Match, xs: Sequence[Op], i: int, ys: Sequence[Op], j: int) -> tuple[int, int]:
    x = xs[i]
    assert isinstance(x, Region)
    if x.kind != "parallel" or x.merges or ordered(x):
        wrong(f"{x.name} is {x.kind}, or has effects in order: its instances are one chain")
    y = counterpart(m, x, ys, j)
    rest = ys[j + 1] if j + 1 < len(ys) else None
    if not isinstance(rest, Region) or id(rest) in m.claimed or rest.kind != "parallel" or rest.merges:
        wrong(f"no parallel region follows {y.name}")
    cut = int(str(m.step.args["first"]))
    m.fields(x, y)
    late = {v.name for op in x.body.ops[cut:] for v in op.results}
    late_reads = {
        v.name for op in x.body.ops[cut:] for o in (op, *(z for b in op.blocks for z in b.walk())) for v in o.operands
    }
    second = [k for k, v in enumerate(x.carried) if x.body.yields[k].name in late or v.name in late_reads]
    first = [k for k in range(len(x.carried)) if k not in second]
    for part, slots, ops in ((y, first, x.body.ops[:cut]), (rest, second, x.body.ops[cut:])):
        if len(part.args) != len(x.args):
            wrong(f"{part.name} has {len(part.args)} arguments")
        for mine, theirs in zip(x.args, part.args, strict=True):
            m.argument(mine, theirs)
        m.same_values([x.inits[k] for k in slots], part.inits, f"the initial values of {part.name}")
        made = dict(m.values)
        m.bind([x.carried[k] for k in slots], part.carried)
        m.ops(ops, part.body.ops)
        m.same_values([x.body.yields[k] for k in slots], part.body.yields, f"what {part.name} yields")
        m.values = made  # nothing crosses from the first one to the second
        m.bind([x.results[k] for k in slots], part.results)
    return i + 1, j + 2


# ---- move


def move(m: Match) -> None:
    """An operation at another place of its block."""
    op = op_at(m.before, str(m.step.args["at"]))
    if op is None:
        wrong(f"the program before has nothing at {m.step.args['at']}")
    block = next(b for b in _blocks(m.before.body) if any(x is op for x in b.ops))

    def moved(m: Match, xs: Sequence[Op], ys: Sequence[Op]) -> Sequence[Op]:
        if xs is not block.ops:
            return xs
        place = {id(y): k for k, y in enumerate(ys)}
        now = sorted(xs, key=lambda x: place.get(id(m.claims.get(id(x))), -1))
        for k, late in enumerate(xs):
            for early in xs[:k]:
                if now.index(late) < now.index(early):
                    _exchanged(m, early, late)
        return now

    m.moved = moved


def _blocks(block: Block) -> list[Block]:
    return [block, *(inner for op in block.ops for b in op.blocks for inner in _blocks(b))]


def _exchanged(m: Match, early: Op, late: Op) -> None:
    """Two operations may change places: neither sees what the other does (values are bound in the new order)."""
    for x in accesses(early):
        for y in accesses(late):
            if isinstance(x, Load | Store) and isinstance(y, Load | Store) and Store in (type(x), type(y)):
                if x.tensor.name == y.tensor.name:
                    wrong(f"{x.keyword} and {y.keyword} of {x.tensor.name} would change places")
                apart(m, x.tensor.name, y.tensor.name)
    shown = [any(isinstance(z, Print | Check) for z in Block([op]).walk()) for op in (early, late)]
    if all(shown):
        wrong(f"{m.said(early)} and {m.said(late)} would change places")


# ---- specialise


def specialise(m: Match) -> None:
    """A region twice, under an `if` on facts of extents."""
    m.handlers[id(region_of(m.before, m.step.args["at"]))] = _special


def _special(m: Match, xs: Sequence[Op], i: int, ys: Sequence[Op], j: int) -> tuple[int, int]:
    x = xs[i]
    assert isinstance(x, Region)
    k = j
    while k < len(ys) and not isinstance(ys[k], If):
        if effects(ys[k]) or not isinstance(ys[k], Full | Index | Elementwise) or id(ys[k]) in m.claimed:
            wrong(f"{m.said(ys[k])} is new, and no part of a condition")
        k += 1
    chosen = ys[k] if k < len(ys) else None
    if not isinstance(chosen, If) or id(chosen) in m.claimed:
        wrong(f"{x.name} is not inside an if")
    facts = m.step.args["when"]
    _condition(m, [parse_constraint(str(t)) for t in facts] if isinstance(facts, list) else [], ys[j:k], chosen.cond)
    whole = m.claims.get(id(x))
    for block in (chosen.then, chosen.orelse):
        only = block.ops[0] if len(block.ops) == 1 else None
        if not isinstance(only, Region):
            wrong(f"a branch does not hold {x.name} alone")
        if block is chosen.then and only is not whole:
            wrong(f"{x.name} is not in the first branch")
        m.loose = only is not whole
        m.region(x, only)
        m.loose = False
        if block.yields != only.results:
            wrong("a branch does not yield what its region gives")
    m.bind(x.results, chosen.results)
    return i + 1, k + 1


def _condition(m: Match, facts: Sequence[Constraint], ops: Sequence[Op], cond: Value) -> None:
    """The condition is the conjunction of the facts of the step: no more is claimed for the branch than it tests."""
    made = {v.name: op for op in ops for v in op.results}
    found: list[tuple[Expr, bool]] = []

    def number(value: Value) -> Expr:
        op = made.get(value.name)
        match op:
            case Full(number=int(n)):
                return Expr(()) + n
            case Index(expr=e):
                return e
            case _:
                wrong(f"the condition mentions {value.name}, which is no index")

    def read(value: Value) -> None:
        op = made.get(value.name)
        match op:
            case Elementwise(fn="and", args=(a, b)):
                read(a)
                read(b)
            case Elementwise(fn="eq" | "ge" as fn, args=(a, b)):
                found.append((number(a) - number(b), fn == "eq"))
            case _:
                wrong(f"the condition is not a conjunction of facts: {value.name}")

    read(cond)
    if sorted(map(str, found)) != sorted(str((f.expr, f.equality)) for f in facts):
        wrong("the condition is not what the step says")


__all__ = ["definition", "fuse_scopes", "move", "specialise", "split_scopes"]
