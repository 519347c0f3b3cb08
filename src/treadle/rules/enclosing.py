"""A program that no region is around, as the body of one: what a program does at once, its instances do in parallel.

Tasks are instances of parallel regions, so a program of whole statements, or a fold that everything waits for, has
none. Around them stands a region over blocks of dimensions along which nothing meets, or over a single instance.
"""

from __future__ import annotations

from treadle.algebra.dims import Dim, Part
from treadle.algebra.expr import const
from treadle.ir.clone import Cloner
from treadle.ir.core import Block, If, Op, Program, Region, RegionArg, Sub, Value
from treadle.ir.ops.access import Extract, Insert, Load, Store
from treadle.ir.ops.debug import Check, Print
from treadle.ir.ops.elementwise import Bitcast, Cast, Coords, Elementwise, Full, Index
from treadle.ir.ops.fold import ArgReduce, Fold, Mma, Reduce, Scan, Sort
from treadle.ir.rewrite import expressions, has_effect
from treadle.plan.steps import Step
from treadle.rules.draft import Draft, named
from treadle.rules.refusals import CoverageBroken, DependenceBroken, FormUnsupported, NameUnknown
from treadle.rules.tiles import assume

APART = (Full, Coords, Index, Elementwise, Cast, Bitcast, Region, If)
"""Operations that keep the coordinates of a dimension apart, if what is in them does."""


def enclose(program: Program, dims: list[str], disjoint: list[list[str]] | None = None) -> tuple[Program, Step]:
    """All statements of a program in one parallel region over blocks of `dims`; over a single instance where there are
    none.

    *Ensures*: each instance does what the program does at its coordinates, in the same order. *Errors*: `rules/form`
    for a dimension that something folds, scans, sorts or runs over, or that has parts; `rules/coverage` where not every
    store has all of it; `rules/dependence` where tensors that are stored to are accessed at other coordinates.
    """
    d = Draft(program, "enclose", {"dims": dims})
    known = {x.name: x for x in program.dims}
    args: list[RegionArg] = []
    for name in dims:
        if name not in known or name in dims[: len(args)]:
            raise d.no(NameUnknown, f"no dimension {name}", f"some of {', '.join(known)}", "name each once")
        _apart(d, known[name])
        args.append(RegionArg(d.symbols.fresh(f"{name}_b"), known[name].whole(), "block"))
    if not dims:
        one = Dim(d.symbols.fresh("one"), const(1))
        d.program.dims.append(one)
        args.append(RegionArg(d.symbols.fresh("at_once"), one.whole(), "each"))
    body = _Enclosed(args).block(d.program.body) if dims else d.program.body
    moved = dict(zip(map(id, d.program.body.walk()), body.walk(), strict=True))
    d.twins = {key: moved[id(op)] for key, op in d.twins.items()}
    region = Region(kind="parallel", args=args, body=body, name=d.regions.fresh("R_whole"), results=[])
    d.program.body = Block([region], [])
    return d.finish()


class _Enclosed(Cloner):
    """Copies with a block of an argument in the place of all coordinates of its dimension."""

    def __init__(self, args: list[RegionArg]) -> None:
        super().__init__(lambda v: Value(v.name, v.type, v.hint))
        self.blocks = {a.domain: a.part for a in args}

    def part(self, part: Part) -> Part:
        return self.blocks.get(part) or super().part(part)


def _apart(d: Draft, dim: Dim) -> None:
    """Nothing that the program does brings coordinates of a dimension together, and each store has all of them.

    *Errors*: see `enclose`.
    """
    whole = dim.whole()
    ops = list(d.program.body.walk())
    stores = [op for op in ops if isinstance(op, Store)]
    places: dict[str, int] = {}
    for op in stores:
        at = [i for i, s in enumerate(op.subs) if isinstance(s, Sub) and s.part == whole]
        if len(at) != 1 or op.effect != "set" or places.setdefault(op.tensor.name, at[0]) != at[0]:
            raise d.no(CoverageBroken, f"a store to {op.tensor} not along {dim}", "stores along it", "name others", op)
    for op in ops:
        _alone(d, op, dim)
        if isinstance(op, Load) and op.tensor.name in places:
            sub = op.subs[places[op.tensor.name]]
            if not (isinstance(sub, Sub) and sub.part == whole):
                raise d.no(
                    DependenceBroken,
                    f"{op.tensor} is stored to, and read at other coordinates of {dim}",
                    "elements of the own coordinates",
                    "name other dimensions",
                    op,
                )
        if isinstance(op, Load | Store):
            assume(d, [(op.tensor.name, name) for name in places])


def _alone(d: Draft, op: Op, dim: Dim) -> None:
    """An operation that brings no coordinates of a dimension together."""
    folded = isinstance(op, Reduce | ArgReduce | Fold) and dim in op.dims
    folded = folded or (isinstance(op, Scan | Sort) and op.dim is dim) or (isinstance(op, Mma) and dim in op.contracted)
    runs = isinstance(op, Region) and any(a.domain.dim is dim for a in op.args)
    shown = isinstance(op, Print | Check) or (has_effect(op) and not isinstance(op, Store | Region | If))
    known = isinstance(op, (*APART, Load, Store, Extract, Insert, Reduce, ArgReduce, Fold, Scan, Sort, Mma))
    if folded or runs or shown or not known:
        raise d.no(FormUnsupported, f"{named(op)} is not apart along {dim}", "element by element", "name others", op)
    subs = op.subs if isinstance(op, Load | Store | Extract | Insert) else ()
    inner = [x for sub in subs if isinstance(sub, tuple) for x in sub]  # of a product of dimensions
    parts = [a for v in (*op.results, *op.parameters, *op.operands) for a in v.type.axes]
    parts += [s.part for s in subs if isinstance(s, Sub) and s.part is not None]
    if any(p.dim is dim and p != dim.whole() for p in parts) or any(s.part and s.part.dim is dim for s in inner):
        raise d.no(FormUnsupported, f"{named(op)} takes a part of {dim}", "all of it", "name others", op)
    made, names = d.program.definitions(), {n for e in expressions(op) for n in e.functions}
    values = [v for n in sorted(names & made.keys()) for v in (*made[n].results, *made[n].parameters)]
    picked = [v.name for v in values if v.name in names and dim in v.type.dims]
    if isinstance(op, Extract | Insert):
        pairs = zip(op.subs, op.source.type.axes, strict=True)
        picked += [op.source.name for s, a in pairs if a.dim is dim and not (isinstance(s, Sub) and s.part == a)]
    if picked:
        raise d.no(FormUnsupported, f"{named(op)} picks from {picked[0]}", f"all of {dim}", "name others", op)
