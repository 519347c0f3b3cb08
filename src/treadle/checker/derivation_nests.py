"""Validators of steps on the instances of regions: split, fuse, permute, reindex, serialise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from treadle.algebra.expr import Constraint, Expr, ge, lt, sym
from treadle.algebra.expr_text import parse_expr
from treadle.algebra.maps import IndexMap
from treadle.algebra.sets import Facts, Inexpressible, Relation, SetError, before
from treadle.algebra.sets import Region as Tuples
from treadle.checker.derivation_match import Match, wrong
from treadle.checker.derivation_order import states
from treadle.checker.verdict import Unsure, require
from treadle.ir.core import Op, Program, Region, RegionArg
from treadle.ir.ops.access import Extract, Store
from treadle.ir.ops.debug import Print


def region_of(program: Program, name: object) -> Region:
    """The region of a name. *Errors*: refused."""
    found = next((op for op in program.body.walk() if isinstance(op, Region) and op.name == name), None)
    if found is None:
        wrong(f"the program before has no region {name}")
    return found


def ordered(region: Region) -> bool:
    """Whether the source orders the instances."""
    if region.kind in ("serial", "pipeline") or (region.kind == "reduce" and region.order != "unordered"):
        return True
    if any(not merge.commutative for merge in region.merges):
        return True
    return any(
        isinstance(op, Print) or (isinstance(op, Store) and op.effect != "set" and op.order != "unordered")
        for op in region.body.walk()
    )


def counterpart(m: Match, x: Region, ys: Sequence[Op], j: int) -> Region:
    """The region that one is claimed to have become, which stands next."""
    y = m.claims.get(id(x))
    if not isinstance(y, Region) or j >= len(ys) or ys[j] is not y:
        wrong(f"{x.name} does not stand where the order of the statements puts it")
    return y


def only_region(m: Match, y: Region) -> Region:
    """The region that is all the body of another, through which the carried values go."""
    inner = y.body.ops[0] if len(y.body.ops) == 1 else None
    if not isinstance(inner, Region) or id(inner) in m.claimed:
        wrong(f"the body of {y.name} is not one new region")
    if (inner.kind, inner.order) != (y.kind, y.order):
        wrong(f"{inner.name} in {y.name} is {inner.kind} {inner.order}, not {y.kind} {y.order}")
    if inner.scope is not None or inner.versions is not None:
        wrong(f"{inner.name} is constrained, and nothing says why")
    if inner.inits != y.carried or y.body.yields != inner.results:
        wrong(f"the carried values of {y.name} do not go through {inner.name}")
    return inner


# ---- split


def split(m: Match) -> None:
    """An argument became blocks of a fixed size, and a region inside runs the indices of a block."""
    x = region_of(m.before, m.step.args["at"])
    m.handlers[id(x)] = _split


def _split(m: Match, xs: Sequence[Op], i: int, ys: Sequence[Op], j: int) -> tuple[int, int]:
    x = xs[i]
    assert isinstance(x, Region)
    y = counterpart(m, x, ys, j)
    m.fields(x, y)
    inner = only_region(m, y)
    place = next((k for k, a in enumerate(x.args) if a.name == m.step.args["arg"]), None)
    whole = m.step.args["size"] == "all"
    if place is None or len(x.args) != len(y.args) + whole or len(inner.args) != 1 or not y.args:
        wrong(f"the arguments of {x.name} are not those of the program before, but for one that is split")
    if ordered(x) and place != len(x.args) - 1:
        wrong(f"{x.args[place].name} is not the last argument of {x.name}, whose instances are ordered")
    others = [a for k, a in enumerate(y.args) if whole or k != place]
    for mine, theirs in zip([a for k, a in enumerate(x.args) if k != place], others, strict=True):
        m.argument(mine, theirs)
    if whole:
        m.argument(x.args[place], inner.args[0])
    else:
        cut(m, x.args[place], y.args[place], inner.args[0])
        m.bind_argument(x.args[place], inner.args[0])
    m.inside(x, y, inner)
    m.bind_results(x, y)
    return i + 1, j + 1


def cut(m: Match, old: RegionArg, outer: RegionArg, part: RegionArg) -> None:
    """The blocks `outer`, with the indices `part` of each, are the indices of `old`, each once, in order."""
    if outer.kind != "block" or outer.size is None or not m.same(old.domain, outer.domain):
        wrong(f"{outer.name} does not cut {old.domain} into blocks of a size")
    if (part.kind, part.reversed, outer.reversed) != (old.kind, old.reversed, old.reversed):
        wrong(f"{part.name} is of another kind or direction than {old.name}")
    require(m.facts, ge(outer.size, 1), "step", f"blocks of {outer.size} may have no index")
    _same_blocks(m, old, part)
    if old.size is not None:
        _whole_blocks(outer.size, m.expr(old.size))
    if part.domain.dim.name != outer.domain.dim.name:
        wrong(f"{part.name} ranges over {part.domain.dim}")
    if (part.domain.lo, part.domain.hi) != (outer.part.lo, outer.part.hi):
        _covers(m, outer, part)


def _same_blocks(m: Match, before: RegionArg, after: RegionArg) -> None:
    """Both arguments are in blocks of the same size, or neither is."""
    if (before.size is None) != (after.size is None) or (
        before.size is not None and not m.same(before.size, after.size)
    ):
        wrong(f"{after.name} is in other blocks than {before.name}")


def _whole_blocks(outer: Expr, inner: Expr) -> None:
    """A block of the outer size is some whole blocks of the inner one, which the program observes."""
    a, b = outer.constant, inner.constant
    if outer != inner and (a is None or b is None or a % b):
        wrong(f"blocks of {outer} cut through blocks of {inner}, which are observed")


def _covers(m: Match, outer: RegionArg, part: RegionArg) -> None:
    """Ranges that are not written as the block: the same indices, asked of isl."""
    assert outer.size is not None
    q, c = "q@", "c@"
    lo, hi, size = outer.domain.lo, outer.domain.hi, outer.size
    start = lo + size * sym(q)
    env = {f"{outer.name}.start": start, f"{outer.name}.stop": start + size}
    own = [ge(sym(c), part.domain.lo.substitute(env)), lt(sym(c), part.domain.hi.substitute(env))]
    block = [ge(sym(q), 0), ge(sym(c), start), lt(sym(c), start + size), lt(sym(c), hi)]
    try:
        have = Tuples.of(IndexMap((q, c), (sym(q), sym(c)), tuple(own) + (ge(sym(q), 0), lt(start, hi))), m.facts)
        want = Tuples.of(IndexMap((q, c), (sym(q), sym(c)), tuple(block)), m.facts)
        lost, more = (want - have).sample(), (have - want).sample()
    except (Inexpressible, SetError):
        raise Unsure("step", f"{part.name} ranges over {part.domain}", missing="an affine range") from None
    if lost is not None:
        wrong(f"the index [1] of {outer.domain} is in no block: {part.name} ranges over {part.domain}", lost)
    if more is not None:
        wrong(f"the index [1] is in two blocks, or none: {part.name} ranges over {part.domain}", more)


# ---- fuse


def fuse(m: Match) -> None:
    """A region and the one that is all its body became one region with the arguments of both."""
    x = region_of(m.before, m.step.args["at"])
    m.handlers[id(x)] = _fuse


def _fuse(m: Match, xs: Sequence[Op], i: int, ys: Sequence[Op], j: int) -> tuple[int, int]:
    x = xs[i]
    assert isinstance(x, Region)
    y = counterpart(m, x, ys, j)
    inner = x.body.ops[0] if len(x.body.ops) == 1 else None
    if not isinstance(inner, Region) or x.merges or inner.merges:
        wrong(f"an instance of {x.name} does more than run one region: what it owns would have no owner")
    if (inner.kind, inner.order) != (x.kind, x.order) or inner.inits != x.carried or x.body.yields != inner.results:
        wrong(f"{x.name} and {inner.name} are not one nest")
    if m.claims.get(id(inner)) is not None:
        wrong(f"{inner.name} is still there")
    m.fields(x, y)
    args = list(x.args)
    if len(y.args) == len(x.args) and len(inner.args) == 1:
        k = next((k for k, a in enumerate(args) if inner.args[0].domain == a.part and a.kind == "block"), None)
        if k is None or (ordered(x) and k != len(args) - 1):
            wrong(f"{inner.args[0].name} does not run the indices of a block of {x.name}")
        _blocks_are_gone(m, args[k], inner.args[0], y.args[k])
        rest = [(a, b) for n, (a, b) in enumerate(zip(args, y.args, strict=True)) if n != k]
        for mine, theirs in rest:
            m.argument(mine, theirs)
        m.bind_argument(inner.args[0], y.args[k])
    else:
        args += inner.args
        if len(args) != len(y.args):
            wrong(f"{y.name} has {len(y.args)} arguments instead of {len(args)}")
        for mine, theirs in zip(args, y.args, strict=True):
            m.argument(mine, theirs)
        # a range inside that depends on the outer instance would mention a symbol that the region itself binds
    m.same_values(x.inits, y.inits, f"the initial values of {x.name}")
    m.bind(inner.carried, y.carried)
    m.block(inner.body, y.body)
    m.bind(x.results, y.results)
    return i + 1, j + 1


def _blocks_are_gone(m: Match, outer: RegionArg, part: RegionArg, now: RegionArg) -> None:
    """Blocks and their indices became the indices; that nothing sees the blocks shows where their symbols are used."""
    if outer.size is None or outer.reversed != part.reversed:
        wrong(f"{outer.name} has no size, or another direction than {part.name}")
    if not m.same(outer.domain, now.domain) or (now.kind, now.reversed) != (part.kind, part.reversed):
        wrong(f"{now.name} does not run the indices of {outer.domain}")
    _same_blocks(m, part, now)
    if part.size is not None:
        _whole_blocks(outer.size, part.size)
    gone = {outer.name, f"{outer.name}.start", f"{outer.name}.stop"}
    m.symbols |= {s: sym(f"{s} is gone") for s in gone}


# ---- permute


def permute(m: Match) -> None:
    """The arguments of a region in another order, some backwards."""
    x = region_of(m.before, m.step.args["at"])
    m.handlers[id(x)] = _permute


def _permute(m: Match, xs: Sequence[Op], i: int, ys: Sequence[Op], j: int) -> tuple[int, int]:
    x = xs[i]
    assert isinstance(x, Region)
    y = counterpart(m, x, ys, j)
    m.fields(x, y)
    order = m.step.args["order"]
    names = [str(n) for n in order] if isinstance(order, list) else []
    by_name = {a.name: a for a in x.args}
    if sorted(names) != sorted(by_name) or len(y.args) != len(names):
        wrong(f"the order {', '.join(names)} does not name each argument of {x.name} once")
    changed = names != [a.name for a in x.args]
    for name, theirs in zip(names, y.args, strict=True):
        mine = by_name[name]
        size = (mine.size is None) == (theirs.size is None) and (mine.size is None or m.same(mine.size, theirs.size))
        if not (m.same(mine.domain, theirs.domain) and size and mine.kind == theirs.kind):
            wrong(f"{mine.name} ranges over {mine.domain}, {theirs.name} over {theirs.domain}, or in other blocks")
        changed = changed or mine.reversed != theirs.reversed
        m.bind_argument(mine, theirs)
    if changed and any(not merge.commutative for merge in x.merges):
        wrong(f"a monoid of {x.name} does not commute, and its leaves would be permuted")
    if changed and ordered(x):
        wrong(f"{x.name} is {x.kind} {x.order}: its instances are ordered, and would run in another order")
    m.inside(x, y, y)
    m.bind_results(x, y)
    return i + 1, j + 1


# ---- serialise


def serialise(m: Match) -> None:
    """A parallel region whose instances run one after another."""
    x = region_of(m.before, m.step.args["at"])
    m.handlers[id(x)] = _serialise


def _serialise(m: Match, xs: Sequence[Op], i: int, ys: Sequence[Op], j: int) -> tuple[int, int]:
    x = xs[i]
    assert isinstance(x, Region)
    y = counterpart(m, x, ys, j)
    if (x.kind, y.kind) != ("parallel", "serial"):
        wrong(f"{x.name} is {x.kind} and became {y.kind}: only a parallel region may be put in an order")
    m.fields(x, y, ("kind",))
    for value in x.carried:
        _only_filled(x, value.name)
    if len(x.args) != len(y.args):
        wrong(f"{y.name} has {len(y.args)} arguments")
    for mine, theirs in zip(x.args, y.args, strict=True):
        m.argument(mine, theirs)
    m.inside(x, y, y)
    m.bind_results(x, y)
    return i + 1, j + 1


def _only_filled(region: Region, carried: str) -> None:
    """No instance sees what others put into a tile: it is the source of updates and enters regions inside, no more."""
    names = states(region.body.ops, {carried: carried})
    for op in region.body.walk():
        if isinstance(op, Extract) and op.source.name in names:
            wrong(f"{op.source.name} is read in {region.name}: a serial instance sees what earlier ones put there")


# ---- reindex


def reindex(m: Match) -> None:
    """New instances for a nest."""
    x = region_of(m.before, m.step.args["at"])
    levels = m.step.args["levels"]
    depth = len(levels) if isinstance(levels, list) else 0
    nest = [x]
    while len(nest) < depth:
        inner = [op for op in nest[-1].body.ops if isinstance(op, Region)]
        if len(inner) != 1:
            wrong(f"{nest[-1].name} does not hold one region")
        nest.append(inner[0])
    maps = m.step.args["map"], m.step.args["inverse"]
    there, back = ({str(k): parse_expr(str(v)) for k, v in (t if isinstance(t, dict) else {}).items()} for t in maps)
    state = _Reindex(there, back)
    for region in nest:
        m.handlers[id(region)] = state.level


class _Reindex:
    """The levels met so far."""

    def __init__(self, there: Mapping[str, Expr], back: Mapping[str, Expr]) -> None:
        self.there, self.back = there, back
        self.visible: set[str] = set()
        self.facts: Facts | None = None

    def level(self, m: Match, xs: Sequence[Op], i: int, ys: Sequence[Op], j: int) -> tuple[int, int]:
        x = xs[i]
        assert isinstance(x, Region)
        y = counterpart(m, x, ys, j)
        m.fields(x, y)
        backwards = [*(y.args), *(x.args if ordered(x) else ())]
        if any(a.kind != "each" for a in (*x.args, *y.args)) or any(a.reversed for a in backwards):
            wrong(f"{x.name} runs blocks or backwards: only single indices have new ones")
        facts = self.facts if self.facts is not None else m.facts
        self.visible |= {a.name for a in y.args}
        for arg in x.args:
            if arg.name not in self.there:
                wrong(f"nothing says which {arg.name} an instance of {y.name} is")
            image = self.there[arg.name]
            inner = {a.name for op in y.body.walk() if isinstance(op, Region) for a in op.args}
            late = sorted(image.symbols & (inner | set(self.back)) - self.visible)
            if late:
                wrong(f"{arg.name} = {image} depends on {late[0]}, which varies inside an instance of {x.name}")
        new_box = _box(m, y.args, own=False)
        # an index before the step is not the one that has its name now: `inside` speaks of the new ones
        old = {a.name: sym(f"{a.name} before") for a in x.args}
        old_box = [c.substitute(old) for c in _box(m, x.args, own=True)]
        inside = facts.also(*new_box)
        self.bijection(x, y, old, facts, inside, old_box, new_box)
        if ordered(x):
            self.monotone(x, y, facts, new_box)
        m.symbols |= {a.name: self.there[a.name] for a in x.args}
        self.facts, kept = inside, m.facts
        m.facts = inside
        m.inside(x, y, y)
        m.facts = kept
        m.bind_results(x, y)
        return i + 1, j + 1

    def bijection(
        self,
        x: Region,
        y: Region,
        old: Mapping[str, Expr],
        facts: Facts,
        inside: Facts,
        old_box: Sequence[Constraint],
        new_box: Sequence[Constraint],
    ) -> None:
        """A two-sided inverse, pointwise; else isl says yes or gives the case."""
        image = {str(old[a.name]): self.there[a.name] for a in x.args}
        for c in old_box:
            require(inside, c.substitute(image), "step", f"an instance of {y.name} is none of {x.name}: {c}")
        if self.inverse(y, old, image, facts, inside, old_box, new_box):
            return
        news, olds = tuple(a.name for a in y.args), tuple(image)
        try:
            relation = Relation.of(IndexMap(news, tuple(image[o] for o in olds), tuple(new_box)), facts)
            want = Tuples.of(IndexMap(olds, tuple(map(sym, olds)), tuple(old_box)), facts)
            twice, lost = relation.collision(), (want - relation.range()).sample()
        except (Inexpressible, SetError):
            raise Unsure("step", f"the map of {x.name}", missing="an inverse that gives each index back") from None
        if twice is not None:
            wrong(f"an instance of {x.name} would run twice", twice)
        if lost is not None:
            wrong(f"an instance of {x.name} would never run", lost)

    def inverse(
        self,
        y: Region,
        old: Mapping[str, Expr],
        image: Mapping[str, Expr],
        facts: Facts,
        inside: Facts,
        old_box: Sequence[Constraint],
        new_box: Sequence[Constraint],
    ) -> bool:
        """Whether the inverse of the step takes each old instance to a new one and back, and each new one."""
        if any(a.name not in self.back for a in y.args):
            return False
        outside = {k: v for k, v in self.there.items() if k not in old}
        back = {a.name: self.back[a.name].substitute({**outside, **old}) for a in y.args}
        source = facts.also(*old_box)
        return (
            all(source.implies(c.substitute(back)) for c in new_box)
            and all(inside.equal(back[n].substitute(image), sym(n)) for n in back)
            and all(source.equal(image[n].substitute(back), sym(n)) for n in image)
        )

    def monotone(self, x: Region, y: Region, facts: Facts, new_box: Sequence[Constraint]) -> None:
        """Of two instances the earlier one stays the earlier one."""
        env = {a.name: sym(f"{a.name}'") for a in y.args}
        names = (*env, *(f"{n}'" for n in env))
        image = [self.there[a.name] for a in x.args]
        late = [e.substitute(env) for e in image]
        where = (*new_box, *(c.substitute(env) for c in new_box))
        for early in before(list(map(sym, env)), list(env.values())):
            for turned in before(late, image):
                try:
                    found = Tuples.of(IndexMap(names, (Expr(()),), (*where, *early, *turned)), facts)
                except (Inexpressible, SetError):
                    raise Unsure("step", f"the order of {x.name}", missing="an affine map") from None
                if not found.is_empty:
                    wrong(f"instances of {x.name}, which are ordered, would run in another order", found.sample())


def _box(m: Match, args: Sequence[RegionArg], own: bool) -> list[Constraint]:
    found: list[Constraint] = []
    for a in args:
        lo, hi = (m.expr(a.domain.lo), m.expr(a.domain.hi)) if own else (a.domain.lo, a.domain.hi)
        found += [ge(sym(a.name), lo), lt(sym(a.name), hi)]
    return found
