"""Accesses of two regions as families of executions, and whether two of them meet in a forbidden order.

An instance of a region over blocks of open size is a single index: the promise of a region is about those, and a block
of one element is among the cuts that its author promised not to matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from treadle.algebra.dims import Dim
from treadle.algebra.expr import Constraint, Expr, eq, ge, lt, minimum, sym
from treadle.algebra.maps import IndexMap
from treadle.algebra.sets import Facts, Inexpressible, SetError
from treadle.algebra.sets import Region as Tuples
from treadle.checker.dependence import expressible
from treadle.checker.source import Source
from treadle.checker.verdict import Finding, Refused, Unsure
from treadle.ir.core import If, Op, Region, RegionArg, Value
from treadle.ir.infer import sub_axes
from treadle.ir.ops.access import Extract, Insert, Load, Store
from treadle.ir.rewrite import expressions

Access = Load | Store | Extract | Insert


@dataclass(frozen=True)
class Family:
    """The executions of one access: its element `index` in terms of the region's `instance` and further variables."""

    op: Access
    index: tuple[Expr, ...]
    instance: tuple[Expr, ...]
    variables: tuple[str, ...]
    where: tuple[Constraint, ...]

    @property
    def writes(self) -> bool:
        """Whether elements change."""
        return isinstance(self.op, Store | Insert)


def accesses(op: Op) -> Iterator[Access]:
    """All accesses of an operation and inside it."""
    if isinstance(op, Access):
        yield op
    for block in op.blocks:
        for inner in block.ops:
            yield from accesses(inner)


def states(ops: Sequence[Op], start: Mapping[str, str]) -> dict[str, str]:
    """By name, the values that updates make of some tiles, each with its tile; `start` has the first ones.

    *Ensures*: every other operation sees such a value element by element, by an extract that `accesses` gives.
    *Errors*: refused where one is used as a whole, in an index, or becomes a state of another tile.
    """
    of = dict(start)

    def whole(name: str, op: Op) -> None:
        if name in of:
            raise Refused("step", f"{op.keyword} uses {name} as a whole, and instances hold their own parts of it")

    def kept(mine: Sequence[Value], theirs: Sequence[Value]) -> None:
        for x, y in zip(mine, theirs, strict=True):
            if of.get(x.name) != of.get(y.name):
                raise Refused("step", f"{y.name} goes on as {x.name}, and they are states of different tiles")

    def follow(ops: Sequence[Op]) -> None:
        for op in ops:
            others = list(op.operands[1:] if isinstance(op, Extract | Insert) else op.operands)
            for name in (n for e in expressions(op) for n in e.functions):
                whole(name, op)
            if isinstance(op, Region):
                for init, inner, result in zip(op.inits, op.carried, op.results, strict=True):
                    if init.name in of:
                        of[inner.name] = of[result.name] = of[init.name]
            else:
                for value in others:
                    whole(value.name, op)
            for block in op.blocks:
                follow(block.ops)
            if isinstance(op, Region):
                kept(op.carried, op.body.yields)
            elif isinstance(op, If):
                kept(op.then.yields, op.orelse.yields)
                of.update({r.name: of[y.name] for r, y in zip(op.results, op.then.yields, strict=True) if y.name in of})
            elif isinstance(op, Insert) and op.source.name in of:
                of[op.result.name] = of[op.source.name]

    follow(ops)
    return of


def families(source: Source, region: Region, ops: Sequence[Op], tag: str) -> list[Family]:
    """The accesses of some operations of a region, with variables that end in `tag`."""
    return [_family(source, region, access, tag) for op in ops for access in accesses(op)]


def _family(source: Source, region: Region, op: Access, tag: str) -> Family:
    bindings: dict[str, Expr] = {}
    variables: list[str] = []
    where: list[Constraint] = []
    instance: list[Expr] = []
    mine = False
    for scope, _ in source.scopes[id(op)]:
        mine = mine or scope is region
        for arg in scope.args if isinstance(scope, Region) else ():
            if not mine:  # one instance of the regions around it: the same on both sides
                bindings |= {s: sym(s) for s in (arg.name, f"{arg.name}.start", f"{arg.name}.stop")}
                continue
            variable, symbols, bounds = _argument(arg, tag, bindings)
            variables.append(variable)
            bindings |= symbols
            where += bounds
            if scope is region:
                instance.append(sym(variable))
    at: dict[Dim, Expr] = {}
    for axis in sub_axes(op.subs):
        name = f"{axis.dim.name}:{tag}"
        variables.append(name)
        at[axis.dim] = sym(name)
        where += [ge(sym(name), source.expr_at(axis.lo, bindings)), lt(sym(name), source.expr_at(axis.hi, bindings))]
    dims = op.tensor.dims if isinstance(op, Load | Store) else tuple(a.dim for a in op.source.type.axes)
    try:
        index = source.subscripts(op.subs, dims, at, bindings)
    except Finding:
        index = tuple(sym(f"?{i}:{tag}") for i in range(len(dims)))
        variables += [f"?{i}:{tag}" for i in range(len(dims))]
    return Family(op, index, tuple(instance), tuple(variables), tuple(where))


def _argument(arg: RegionArg, tag: str, bindings: dict[str, Expr]) -> tuple[str, dict[str, Expr], list[Constraint]]:
    lo, hi = arg.domain.lo.substitute(bindings), arg.domain.hi.substitute(bindings)
    name = f"{arg.name}:{tag}"
    v = sym(name)
    if arg.kind == "each":
        return name, {arg.name: v}, [ge(v, lo), lt(v, hi)]
    if arg.size is None:
        return name, {f"{arg.name}.start": v, f"{arg.name}.stop": v + 1}, [ge(v, lo), lt(v, hi)]
    start = lo + arg.size.substitute(bindings) * v
    stop = minimum(start + arg.size.substitute(bindings), hi)
    return name, {f"{arg.name}.start": start, f"{arg.name}.stop": stop}, [ge(v, 0), lt(start, hi)]


def never_meet(a: Family, b: Family, orders: Sequence[tuple[Constraint, ...]], facts: Facts, what: str) -> None:
    """No element of `a` is one of `b` while their instances stand in one of the orders.

    *Errors*: refused with a case; unsure where a subscript or condition is not affine.
    """
    same = [eq(x, y) for x, y in zip(a.index, b.index, strict=True)]
    names = (*a.variables, *b.variables)
    own = frozenset(names)
    for order in orders:
        every = (*a.where, *b.where, *same, *order)
        kept = tuple(c for c in every if expressible(c.expr, own))
        try:
            found = Tuples.of(IndexMap(names, (Expr(()),), kept), facts)
            case = None if found.is_empty else found.sample() or {}
        except (Inexpressible, SetError):
            raise Unsure("step", what, missing="affine subscripts") from None
        if case is not None:
            if len(kept) < len(every) or any(n.startswith("?") for n in names):
                raise Unsure("step", what, case, missing="affine subscripts and conditions")
            raise Refused("step", what, case)
