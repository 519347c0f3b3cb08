"""Steps on the instances of regions: split, fuse, permute, reindex, serialise.

What they keep: every instance of the source runs once (of a region whose instances are ordered: in that order), and
what an outer instance owns it keeps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from treadle.algebra.dims import Dim, Part
from treadle.algebra.expr import Constraint, Expr, ge, lt, sym
from treadle.algebra.expr_text import parse_expr
from treadle.algebra.maps import IndexMap
from treadle.algebra.sets import Facts, Inexpressible, Relation, SetError, before
from treadle.algebra.sets import Region as Tuples
from treadle.ir.core import Block, Op, Program, Region, RegionArg
from treadle.ir.ops.access import Insert, Store
from treadle.ir.ops.debug import Print
from treadle.ir.rewrite import edit_block, operand_names
from treadle.plan.steps import Step
from treadle.rules.accesses import extents_known
from treadle.rules.draft import Draft
from treadle.rules.refusals import CoverageBroken, FormUnsupported, NameUnknown, OrderBroken, PrefixBroken


def is_ordered(region: Region) -> bool:
    """Whether the order of the instances is part of what the region means."""
    if region.kind == "parallel" or (region.kind == "reduce" and region.order == "unordered"):
        return any(_ordered_effect(op) for op in region.body.walk())
    return True


def in_words(region: Region) -> str:
    """Kind and order, for messages."""
    return region.kind if region.order == "unordered" else f"{region.kind} {region.order}"


def _ordered_effect(op: object) -> bool:
    return isinstance(op, Print) or (isinstance(op, Store) and op.effect != "set" and op.order != "unordered")


def split(program: Program, at: str, arg: str, size: int | str, outer: str | None = None) -> tuple[Program, Step]:
    """An argument cut into blocks of `size`, each block's indices run by a region inside: a level more in the nest.
    With the size "all" there is one block: the argument runs inside, beneath the others.

    The tail is a shorter block. *Ensures*: each index is in one block; ordered instances keep their order.
    *Errors*: `rules/coverage`, `rules/order`, `rules/name`, `rules/form`.
    """
    d = Draft(program, "split", {"at": at, "arg": arg, "size": size, "outer": outer})
    region = d.region(at)
    old = d.argument(region, arg)
    d.without_merges(region)
    place = region.args.index(old)
    if is_ordered(region) and place != len(region.args) - 1:
        raise d.no(
            OrderBroken,
            f"{arg} is not the last argument of {at}, whose instances are ordered: blocks of it would run first",
            "the last argument",
            "split the last one, or permute the region where its order policy admits it",
            region,
        )
    if size == "all":
        if len(region.args) == 1:
            raise d.no(NameUnknown, f"{arg} is all that {at} runs", "an argument beside others", "split it", region)
        del region.args[place]
        nest(d, region, [old], f"{at}_{arg}")
        return d.finish()
    by = d.expr(size)
    number = by.constant
    if number is not None and number < 1:
        raise d.no(CoverageBroken, f"blocks of {number}", "a size of at least 1", "give a positive size", region)
    if number is None and not d_positive(d, by):
        raise d.no(CoverageBroken, f"blocks of {by}", "a size known to be positive", "require it in the kernel", region)
    if old.size is not None and not _multiple(by, old.size):
        raise d.no(
            CoverageBroken,
            f"blocks of {by} around blocks of {old.size}",
            f"a multiple of {old.size}",
            "blocks of a fixed size are observed and stay whole",
            region,
        )
    name = d.symbols.fresh(outer or f"{arg}_o")
    region.args[place] = RegionArg(name, old.domain, "block", by, old.reversed, old.source)
    inside = RegionArg(old.name, region.args[place].part, old.kind, old.size, old.reversed, old.source)
    nest(d, region, [inside], f"{at}_{arg}")
    return d.finish()


def d_positive(d: Draft, e: Expr) -> bool:
    """Whether an expression of extents is at least 1 in every call."""
    return extents_known(d.program).implies(ge(e, 1))


def _multiple(by: Expr, size: Expr) -> bool:
    a, b = by.constant, size.constant
    return by == size if a is None or b is None else a % b == 0


def nest(d: Draft, region: Region, args: list[RegionArg], name: str) -> Region:
    """The region's body moved into a region of the same kind inside it, with these arguments; carried values go
    through."""
    inner = Region(
        kind=region.kind,
        args=args,
        carried=region.carried,
        body=region.body,
        order=region.order,
        name=d.regions.fresh(name),
        stages=region.stages,
        span=region.span,
    )
    region.carried = [d.fresh(v.type, v.hint) for v in inner.carried]
    inner.inits = list(region.carried)
    inner.results = [d.fresh(v.type, v.hint) for v in inner.carried]
    region.body, region.stages = Block([inner], list(inner.results)), []
    return inner


def fuse(program: Program, at: str) -> tuple[Program, Step]:
    """A region and the region that is all its body, made one with the arguments of both. Undoes a split.

    *Errors*: `rules/prefix` where the outer instance owns something, `rules/form`.
    """
    d = Draft(program, "fuse", {"at": at})
    region = d.region(at)
    inner = region.body.ops[-1] if region.body.ops else None
    if not isinstance(inner, Region) or len(region.body.ops) != 1:
        raise d.no(
            PrefixBroken,
            f"an instance of {at} does {len(region.body.ops)} things, not one region only",
            "a region that is the whole body",
            "move what the outer instance owns out, or recompute it inside",
            region,
        )
    threaded = inner.inits == region.carried and region.body.yields == inner.results
    if (inner.kind, inner.order, threaded) != (region.kind, region.order, True) or region.merges or inner.merges:
        raise d.no(
            FormUnsupported,
            f"{inner.name}, {inner.kind} {inner.order}, in {at}, {region.kind} {region.order}",
            "two regions of one kind and order, the carried values of one going through the other",
            "fuse regions of one kind",
            region,
        )
    region.args = _joined(d, region, inner)
    region.carried, region.body, region.stages = inner.carried, inner.body, inner.stages
    return d.finish()


def _joined(d: Draft, region: Region, inner: Region) -> list[RegionArg]:
    mine = {s for a in region.args for s in (a.name, f"{a.name}.start", f"{a.name}.stop")}
    back = next((a for a in region.args if inner.args and inner.args[0].domain == a.part and a.kind == "block"), None)
    if back is not None and len(inner.args) == 1 and (back is region.args[-1] or not is_ordered(region)):
        used = {s for op in inner.body.walk() for e in _every(op) for s in e.symbols}
        one = inner.args[0]
        whole = one.size is None or back.size is None or _multiple(back.size, one.size)
        if not used & {back.name, f"{back.name}.start", f"{back.name}.stop"} and back.size is not None and whole:
            if back.reversed == one.reversed:
                joined = RegionArg(one.name, back.domain, one.kind, one.size, one.reversed, one.source)
                return [joined if a is back else a for a in region.args]
    for arg in inner.args:
        if (arg.domain.lo.symbols | arg.domain.hi.symbols) & mine or any(
            n.startswith("%") for n in arg.domain.lo.functions | arg.domain.hi.functions
        ):
            raise d.no(
                FormUnsupported,
                f"{arg.name} of {inner.name} ranges over {arg.domain}, which depends on the instance of {region.name}",
                "a range that is the same in every instance",
                "fuse only blocks that were split, or rectangular nests",
                inner,
            )
    return [*region.args, *inner.args]


def _every(op: Op) -> list[Expr]:
    from_op: list[Expr] = []

    def seen(e: Expr) -> Expr:
        from_op.append(e)
        return e

    edit_block(Block([op]), lambda v: v, seen)
    return from_op


def permute(program: Program, at: str, order: list[str], backwards: list[str] | None = None) -> tuple[Program, Step]:
    """The arguments of a region in another order (the last one varies fastest), those in `backwards` turned round.

    *Errors*: `rules/order` for instances that are ordered, `rules/name`.
    """
    d = Draft(program, "permute", {"at": at, "order": order, "backwards": backwards})
    region = d.region(at)
    args = [d.argument(region, name) for name in order]
    turned = [d.argument(region, name) for name in backwards or []]
    if len(args) != len(region.args) or len({a.name for a in args}) != len(args):
        known = ", ".join(a.name for a in region.args)
        raise d.no(CoverageBroken, f"the order {', '.join(order)}", f"each of {known} once", "name each", region)
    if (args != region.args or turned) and is_ordered(region):
        raise d.no(
            OrderBroken,
            f"{at} is {in_words(region)}: its instances are ordered",
            "a parallel region, or an unordered fold of monoids that commute",
            "order=td.unordered grants it where the result may be regrouped and permuted",
            region,
        )
    _commutes(d, region)
    region.args = args
    for arg in turned:
        arg.reversed = not arg.reversed
    return d.finish()


def _commutes(d: Draft, region: Region) -> None:
    loose = next((m for m in region.merges if not m.commutative), None)
    if loose is not None:
        raise d.no(
            OrderBroken,
            f"{loose.name} does not commute",
            "monoids that commute",
            "keep the order of the leaves",
            region,
        )


def serialise(program: Program, at: str) -> tuple[Program, Step]:
    """A parallel region whose instances run one after another. The other way round is no step.

    *Errors*: `rules/order` for a region that is not parallel, `rules/form` where a carried tile is read.
    """
    d = Draft(program, "serialise", {"at": at})
    region = d.region(at)
    if region.kind != "parallel":
        raise d.no(OrderBroken, f"{at} is {region.kind}", "a parallel region", "name a parallel region", region)
    own = {v.name for v in region.carried}
    for op in region.body.walk():
        reads = operand_names(op) & own
        if isinstance(op, Insert) and op.source.name in reads:
            reads -= {op.source.name} - {op.value.name}
            own.add(op.result.name)
        elif isinstance(op, Region) and op.kind == "parallel":
            reads -= {v.name for v in op.inits}
            own |= {c.name for c, i in zip(op.carried, op.inits, strict=True) if i.name in own}
            own |= {r.name for r, i in zip(op.results, op.inits, strict=True) if i.name in own}
        if reads:
            raise d.no(
                FormUnsupported,
                f"{sorted(reads)[0]}, which instances fill, is read inside {at}",
                "tiles that instances only fill",
                "an instance of a parallel region reads what stood there before it; one of a serial region may not",
                op,
            )
    region.kind = "serial"
    return d.finish()


# ---- reindexing


def reindex(
    program: Program, at: str, levels: list[list[dict[str, Any]]], map: dict[str, str], inverse: dict[str, str]
) -> tuple[Program, Step]:
    """New instances for a nest: `map` says of each old index which one it is, in terms of new ones; `inverse` back.

    `levels` has for `at` and each region that is nested in it the new arguments, single indices: `{"name": "p", "dim":
    "I"}`, with "lo" and "hi" for a part and "extent" for a new dimension. *Ensures*: one-to-one and onto, level by
    level: an old prefix is a function of the new one.

    *Errors*: `rules/prefix`, `rules/coverage` with a case, `rules/order`, `rules/form`.
    """
    args = {"at": at, "levels": levels, "map": map, "inverse": inverse}
    d = Draft(program, "reindex", args)
    nested = [d.region(at)]
    while len(nested) < len(levels):
        inner = [op for op in nested[-1].body.ops if isinstance(op, Region)]
        if len(inner) != 1:
            raise d.no(
                FormUnsupported, f"{len(inner)} regions in {nested[-1].name}", "one region a level", "name the levels"
            )
        nested.append(inner[0])
    there = {name: parse_expr(text) for name, text in map.items()}
    back = {name: parse_expr(text) for name, text in inverse.items()}
    facts = extents_known(program)
    known = {n for level in levels for n in _names(level)}
    made: list[list[RegionArg]] = []
    outside: dict[str, Expr] = {}
    for region, spec in zip(nested, levels, strict=True):
        fresh = [_argument(d, one) for one in spec]
        made.append(fresh)
        _single(d, region)
        _prefix(d, region, there, known - {a.name for level in made for a in level})
        level = _Level(d, region, fresh, there, back, outside)
        facts = level.check(facts)
        outside |= {a.name: there[a.name] for a in region.args}
    edit_block(nested[0].body, lambda v: v, lambda e: e.substitute(there))
    for region, fresh in zip(nested, made, strict=True):
        region.args = fresh
    return d.finish()


def _prefix(d: Draft, region: Region, there: dict[str, Expr], later: set[str]) -> None:
    """An old index of this level is a function of the new ones of this level and those around it."""
    for arg in region.args:
        if arg.name not in there:
            raise d.no(
                CoverageBroken, f"nothing says which {arg.name} an instance is", "an expression", "map it", region
            )
        late = sorted(there[arg.name].symbols & later)
        if late:
            raise d.no(
                PrefixBroken,
                f"{arg.name} = {there[arg.name]} depends on {late[0]}, which varies inside what an instance of "
                f"{region.name} owns",
                f"a function of the new indices of {region.name} and of the regions around it",
                "fuse the two levels first, where the outer instance owns nothing; or recompute inside what it owns",
                region,
            )


def _names(level: Sequence[dict[str, Any]]) -> set[str]:
    return {str(one["name"]) for one in level}


def _argument(d: Draft, spec: dict[str, Any]) -> RegionArg:
    name, dim_name = str(spec["name"]), str(spec["dim"])
    dim = next((x for x in d.program.dims if x.name == dim_name), None)
    if dim is None:
        if "extent" not in spec:
            raise d.no(CoverageBroken, f"no dimension {dim_name}", "a dimension, or an extent for a new one", "give it")
        dim = Dim(dim_name, parse_expr(str(spec["extent"])))
        d.program.dims.append(dim)
    lo = parse_expr(str(spec.get("lo", 0)))
    hi = parse_expr(str(spec["hi"])) if "hi" in spec else dim.extent
    return RegionArg(name, Part(dim, lo, hi, dim.name), "each", source=name)


def _single(d: Draft, region: Region) -> None:
    turned = next((a for a in region.args if a.reversed), None)
    if turned is not None and is_ordered(region):
        raise d.no(
            FormUnsupported,
            f"{turned.name} of {region.name} runs backwards, in order",
            "indices that run forwards",
            "reindex it before it is turned",
            region,
        )
    block = next((a for a in region.args if a.kind == "block"), None)
    if block is not None:
        raise d.no(
            FormUnsupported,
            f"{block.name} of {region.name} is a block",
            "single indices: blocks of other indices are no blocks",
            "write M.each, or permute and split blocks",
            region,
        )


def _box(args: Sequence[RegionArg], env: Mapping[str, Expr] | None = None) -> list[Constraint]:
    found = [c for a in args for c in (ge(sym(a.name), a.domain.lo), lt(sym(a.name), a.domain.hi))]
    return [c.substitute(env) for c in found] if env else found


class _Level:
    """One level of a nest whose instances get new indices. `outside`: old indices of the levels around it."""

    def __init__(
        self,
        d: Draft,
        region: Region,
        new: Sequence[RegionArg],
        there: dict[str, Expr],
        back: dict[str, Expr],
        outside: Mapping[str, Expr],
    ) -> None:
        self.d, self.region, self.new, self.there, self.back = d, region, new, there, back
        self.old = region.args
        self.image = [there[a.name] for a in self.old]
        self.old_box = _box(self.old, outside)
        self.outside = outside

    def check(self, facts: Facts) -> Facts:
        """One-to-one and onto: by isl where it can hold the map, by the inverse otherwise. The facts inside."""
        inside = facts.also(*_box(self.new))
        for c in self.old_box:
            at = c.substitute(self.there)
            if not inside.implies(at):
                raise self.missed(f"an instance leaves the range: {c} fails", inside.against(at))
        if not self.decided(facts):
            self.inverted(facts, inside)
        if is_ordered(self.region):
            self.monotone(facts)
        return inside

    def decided(self, facts: Facts) -> bool:
        """Whether isl decides it; a refusal where it decides against."""
        names = tuple(a.name for a in self.new)
        olds = tuple(a.name for a in self.old)
        try:
            whole = Relation.of(IndexMap(names, tuple(self.image), tuple(_box(self.new))), facts)
            twice = whole.collision()
            want = Tuples.of(IndexMap(olds, tuple(map(sym, olds)), tuple(self.old_box)), facts)
            lost = (want - whole.range()).sample()
        except (Inexpressible, SetError):
            return False
        if twice is not None:
            raise self.missed("an instance would run twice", twice)
        if lost is not None:
            raise self.missed("an instance would never run", lost)
        return True

    def inverted(self, facts: Facts, inside: Facts) -> None:
        """By a two-sided inverse."""
        source = facts.also(*self.old_box)
        back = {n: e.substitute(self.outside) for n, e in self.back.items()}
        for arg in self.new:
            if arg.name not in back:
                raise self.d.no(
                    CoverageBroken, f"no inverse for {arg.name}", "an expression", "give inverse=", self.region
                )
        for c in _box(self.new):
            at = c.substitute(back)
            if not source.implies(at):
                raise self.missed(f"the inverse leaves the range: {c} fails", source.against(at))
        for arg in self.new:
            if not inside.equal(back[arg.name].substitute(self.there), sym(arg.name)):
                raise self.missed(f"{arg.name} does not come back through {back[arg.name]}", None)
        for arg, image in zip(self.old, self.image, strict=True):
            if not source.equal(image.substitute(back), sym(arg.name)):
                raise self.missed(f"{arg.name} does not come back through {image}", None)

    def missed(self, found: str, case: dict[str, int] | None) -> Exception:
        text = "" if not case else ", for instance at " + ", ".join(f"{k} = {v}" for k, v in sorted(case.items()))
        expected = f"each instance of {self.region.name} exactly once"
        return self.d.no(CoverageBroken, found + text, expected, "give a one-to-one map and its inverse", self.region)

    def monotone(self, facts: Facts) -> None:
        """Ordered instances stay in order."""
        env = {a.name: sym(f"{a.name}'") for a in self.new}
        names = (*(a.name for a in self.new), *(f"{a.name}'" for a in self.new))
        where = [*_box(self.new), *_box(self.new, env)]
        later = [e.substitute(env) for e in self.image]
        for early in before([sym(a.name) for a in self.new], [env[a.name] for a in self.new]):
            for wrong in before(later, self.image):
                try:
                    found = Tuples.of(IndexMap(names, (Expr(()),), (*where, *early, *wrong)), facts)
                    case = None if found.is_empty else found.sample()
                except (Inexpressible, SetError):
                    case = {}
                if case is not None:
                    text = ", ".join(f"{k} = {v}" for k, v in sorted(case.items())) or "not decided"
                    raise self.d.no(
                        OrderBroken,
                        f"instances of {self.region.name} are ordered, and would run in another order ({text})",
                        "a map that keeps the order",
                        "reindex parallel regions and unordered folds",
                        self.region,
                    )
