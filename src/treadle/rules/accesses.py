"""What instances of a region touch, as families of index tuples, and whether two such families meet.

An instance is a valuation of the region's arguments: for blocks of open size a single index, since the promise of a
region is about single indices; for blocks of a fixed size the start of the block. What cannot be read as index
arithmetic may be anything inside its axis: more pairs seem to meet then, never fewer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from treadle.algebra.dims import Dim
from treadle.algebra.expr import Atom, Constraint, Expr, Floor, Fn, Max, Min, eq, ge, lt, maximum, minimum, sym
from treadle.algebra.maps import IndexMap
from treadle.algebra.sets import Facts, Inexpressible, SetError
from treadle.algebra.sets import Region as Tuples
from treadle.ir.core import AxisSub, Block, Op, Program, Region, RegionArg, Sub, Value
from treadle.ir.ops.access import Extract, Insert, Load, Store
from treadle.ir.ops.elementwise import Cast, Coords, Elementwise, Full, Index

Constraints = tuple[Constraint, ...]


@dataclass(frozen=True)
class Touch:
    """Elements of a tensor or tile (`name`) that an operation touches in one instance of a region.

    `instance` are the region's own variables; `free` the further ones. `exact` is false where an index or a bound is
    not known.
    """

    op: Op
    name: str
    writes: bool
    atomic: str | None
    index: tuple[Expr, ...]
    instance: tuple[str, ...]
    free: tuple[str, ...]
    where: Constraints
    exact: bool

    def renamed(self, suffix: str) -> Touch:
        """The same touch with variables of its own."""
        env = {v: sym(f"{v}{suffix}") for v in (*self.instance, *self.free)}
        return Touch(
            self.op,
            self.name,
            self.writes,
            self.atomic,
            tuple(e.substitute(env) for e in self.index),
            tuple(f"{v}{suffix}" for v in self.instance),
            tuple(f"{v}{suffix}" for v in self.free),
            tuple(c.substitute(env) for c in self.where),
            self.exact,
        )


def argument_variable(arg: RegionArg) -> tuple[str, dict[str, Expr], list[Constraint]]:
    """The variable of an argument, what its symbols are, and where it ranges."""
    lo, hi = arg.domain.lo, arg.domain.hi
    if arg.kind == "each":
        return arg.name, {}, [ge(sym(arg.name), lo), lt(sym(arg.name), hi)]
    name = f"{arg.name}@"
    v = sym(name)
    if arg.size is None:
        return name, {f"{arg.name}.start": v, f"{arg.name}.stop": v + 1}, [ge(v, lo), lt(v, hi)]
    start = lo + arg.size * v
    stop = minimum(start + arg.size, hi)
    return name, {f"{arg.name}.start": start, f"{arg.name}.stop": stop}, [ge(v, 0), lt(start, hi)]


@dataclass
class Reading:
    """Touches of the operations of one region."""

    region: Region
    env: dict[str, Expr] = field(default_factory=dict[str, Expr])
    instance: list[str] = field(default_factory=list[str])
    bounds: list[Constraint] = field(default_factory=list[Constraint])
    makers: dict[str, Op] = field(default_factory=dict[str, Op])
    count: int = 0
    free: list[str] = field(default_factory=list[str])
    where: list[Constraint] = field(default_factory=list[Constraint])
    exact: bool = True

    def __post_init__(self) -> None:
        for arg in self.region.args:
            name, env, bounds = argument_variable(arg)
            self.env |= env
            self.instance.append(name)
            self.bounds += bounds

    def touches(self, ops: Sequence[Op]) -> Iterator[Touch]:
        """Those of some operations of the region's body, nested ones too."""
        yield from self._walk(ops, [], [])

    def _walk(self, ops: Sequence[Op], free: list[str], where: list[Constraint]) -> Iterator[Touch]:
        for op in ops:
            for value in op.results:
                self.makers[value.name] = op
            if isinstance(op, Load | Store | Extract | Insert):
                yield self._touch(op, free, where)
            inner_free, inner_where = list(free), list(where)
            if isinstance(op, Region):
                for arg in op.args:
                    name, env, bounds = argument_variable(arg)
                    self.env |= env
                    inner_free.append(name)
                    inner_where += [c.substitute(self.env) for c in bounds]
            for block in op.blocks:
                yield from self._walk(block.ops, inner_free, inner_where)

    def _touch(self, op: Load | Store | Extract | Insert, free: list[str], where: list[Constraint]) -> Touch:
        self.free, self.where, self.exact = list(free), list(where), True
        dims = op.tensor.dims if isinstance(op, Load | Store) else tuple(a.dim for a in op.source.type.axes)
        name = op.tensor.name if isinstance(op, Load | Store) else op.source.name
        at: dict[Dim, Expr] = {}
        index = tuple(self._axis(sub, dim, at) for sub, dim in zip(op.subs, dims, strict=True))
        writes = isinstance(op, Store | Insert)
        atomic = op.effect if isinstance(op, Store) and op.effect != "set" else None
        return Touch(
            op,
            name,
            writes,
            atomic,
            index,
            tuple(self.instance),
            tuple(self.free),
            tuple((*(c.substitute(self.env) for c in self.bounds), *self.where)),
            self.exact,
        )

    def _axis(self, axis: AxisSub, dim: Dim, at: dict[Dim, Expr]) -> Expr:
        if isinstance(axis, tuple):
            total = Expr(())
            for sub, factor in zip(axis, dim.factors, strict=True):
                total = total * factor.extent + self._sub(sub, factor, at)
            return total
        return self._sub(axis, dim, at)

    def _sub(self, sub: Sub, dim: Dim, at: dict[Dim, Expr]) -> Expr:
        if sub.part is not None:
            return self._coordinate(sub.part.dim, sub.part.lo, sub.part.hi, at)
        if sub.index is not None:
            found = self._known(sub.index.substitute(self.env))
        else:
            assert sub.tile is not None
            found = self._element(sub.tile, at)
        return found if found is not None else self._anything(dim)

    def _coordinate(self, dim: Dim, lo: Expr, hi: Expr, at: dict[Dim, Expr]) -> Expr:
        if dim not in at:
            name = self._fresh()
            bounds = (ge(sym(name), lo.substitute(self.env)), lt(sym(name), hi.substitute(self.env)))
            self.where += [c for c in bounds if self._known(c.expr) is not None]
            at[dim] = sym(name)
        return at[dim]

    def _anything(self, dim: Dim) -> Expr:
        self.exact = False
        name = self._fresh()
        self.where += [ge(sym(name), 0), lt(sym(name), dim.extent)]
        return sym(name)

    def _fresh(self) -> str:
        self.count += 1
        name = f"x{self.count}@"
        self.free.append(name)
        return name

    def _known(self, e: Expr) -> Expr | None:
        """An expression without run-time values."""
        return None if any(n.startswith("%") for n in e.functions) else e

    def _element(self, tile: Value, at: dict[Dim, Expr]) -> Expr | None:
        """The element of an integer tile at the coordinates of an access, where it is index arithmetic."""
        op = self.makers.get(tile.name)
        match op:
            case Coords(part=part):
                return self._coordinate(part.dim, part.lo, part.hi, at)
            case Index(expr=expr):
                return self._known(expr.substitute(self.env))
            case Full(number=int(number)):
                return Expr(()) + number
            case Cast(source=source) if (
                source.type.dtype.is_int and op.result.type.dtype.bits >= source.type.dtype.bits
            ):
                return self._element(source, at)
            case Elementwise(fn=fn, args=args):
                parts = [self._element(a, at) for a in args]
                known = [p for p in parts if p is not None]
                return arithmetic(fn, known) if len(known) == len(args) else None
            case _:
                return None


def arithmetic(fn: str, args: Sequence[Expr]) -> Expr | None:
    """A function of index expressions, where it is index arithmetic."""
    match fn, tuple(args):
        case "add", (a, b):
            return a + b
        case "sub", (a, b):
            return a - b
        case "mul", (a, b):
            return a * b
        case "neg", (a,):
            return -a
        case "minimum", (a, b):
            return minimum(a, b)
        case "maximum", (a, b):
            return maximum(a, b)
        case _:
            return None


def meeting(
    first: Touch, second: Touch, apart: Sequence[Constraints], facts: Facts
) -> tuple[dict[str, int], bool] | None:
    """A case in which the two touch one element while one of `apart` holds of their instances, and whether it is sure.

    `first` and `second` have variables of their own.
    """
    same = [eq(a, b) for a, b in zip(first.index, second.index, strict=True)]
    names = tuple(dict.fromkeys((*first.instance, *first.free, *second.instance, *second.free)))
    own = frozenset(names)
    for condition in apart:
        every = (*first.where, *second.where, *same, *condition)
        kept = tuple(c for c in every if _holdable(c.expr, own))
        try:
            found = Tuples.of(IndexMap(names, (Expr(()),), kept), facts)
            if not found.is_empty:
                sure = len(kept) == len(every) and first.exact and second.exact
                return found.sample() or {}, sure
        except (Inexpressible, SetError):
            return {}, False
    return None


def _holdable(e: Expr, own: frozenset[str]) -> bool:
    """Whether isl can hold an expression with these variables."""
    return all(len(m) <= 1 and all(_fits(a, own) for a in m) or not _symbols(m) & own for m, _ in e.terms)


def _fits(atom: Atom, own: frozenset[str]) -> bool:
    match atom:
        case Floor(num, den) if (den.constant or 0) > 0:
            return _holdable(num, own)
        case Min(args) | Max(args):
            return all(_holdable(a, own) for a in args)
        case Floor() | Fn():
            return not _symbols((atom,)) & own
        case _:
            return True


def _symbols(monomial: tuple[Atom, ...]) -> frozenset[str]:
    return Expr(((monomial, 1),)).symbols


def extents_known(program: Program) -> Facts:
    """What is known of the extents of every call: none is negative, and what the program requires holds."""
    symbols = sorted({s for d in program.dims for s in d.extent.symbols})
    lets = [eq(sym(name), e) for name, e in program.lets.items()]
    return Facts([*(ge(sym(s), 0) for s in symbols), *lets, *program.requires])


def stored_in(ops: Sequence[Op]) -> set[str]:
    """Names of the tensors that operations store to, nested ones too."""
    block = Block(list(ops))
    return {op.tensor.name for op in block.walk() if isinstance(op, Store)}
