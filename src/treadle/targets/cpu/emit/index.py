"""Index expressions as instructions: scalar i64 values, and vectors of i64 along one fragment axis.

A *point* is a place in a statement's coordinate space where one vector is computed: the numbers of all coordinates
`$0, $1, ...`, of which one, the lane axis, runs through `lanes` consecutive values from there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from treadle.algebra.expr import ZERO, Atom, Constraint, Expr, Floor, Fn, Max, Min, Sym, const, of
from treadle.targets.cpu.emit.errors import ill_formed
from treadle.targets.cpu.emit.lanes import Lanes, Vec
from treadle.targets.cpu.emit.text import Function, Int


@dataclass(frozen=True)
class Point:
    """Coordinates, and the axis whose coordinate runs over `lanes` values (None: a single element)."""

    at: tuple[int, ...]
    axis: int | None = None
    lanes: int | None = None

    def lane(self, lane: int) -> Point:
        """The single element at a lane."""
        if self.axis is None:
            return self
        at = list(self.at)
        at[self.axis] += lane
        return Point(tuple(at))

    def extended(self, more: tuple[int, ...]) -> Point:
        """With further coordinates behind."""
        return replace(self, at=self.at + more)


@dataclass(frozen=True)
class Split:
    """`expr = rest + sum over i of factors[i] * $i`, without `$` in `rest` and `factors`."""

    rest: Expr
    factors: tuple[Expr, ...]

    def steps(self) -> tuple[int, ...] | None:
        """The factors as numbers, if all are."""
        numbers = [f.constant for f in self.factors]
        return tuple(n for n in numbers if n is not None) if None not in numbers else None


def coordinate(index: int) -> str:
    """The name of coordinate number `index`."""
    return f"${index}"


@lru_cache(maxsize=4096)
def split(expr: Expr, rank: int) -> Split | None:
    """`expr` taken apart by the first `rank` coordinates; None where it is not affine in them."""
    return split_by(expr, tuple(coordinate(i) for i in range(rank)))


@lru_cache(maxsize=4096)
def split_by(expr: Expr, names: tuple[str, ...]) -> Split | None:
    """`expr` taken apart by the symbols `names`; None where it is not affine in them."""
    wanted = set(names)
    if not expr.symbols & wanted:
        return Split(expr, (ZERO,) * len(names))
    rest = ZERO
    factors = dict.fromkeys(names, ZERO)
    for monomial, c in expr.terms:
        mine = [a for a in monomial if isinstance(a, Sym) and a.name in wanted]
        others = [a for a in monomial if not (isinstance(a, Sym) and a.name in wanted)]
        if len(mine) > 1 or any(of(a).symbols & wanted for a in others):
            return None
        product = const(c)
        for atom in others:
            product = product * of(atom)
        if mine:
            factors[mine[0].name] = factors[mine[0].name] + product
        else:
            rest = rest + product
    return Split(rest, tuple(factors[n] for n in names))


def conjuncts(constraints: tuple[Constraint, ...]) -> list[Constraint]:
    """The conjunction with `min(a, b) + e >= 0` written as two, `e - max(a, b) >= 0` too; equal ones once."""
    found: dict[Constraint, None] = {}
    todo = list(reversed(constraints))
    while todo:
        c = todo.pop()
        parts = None if c.equality else _extremum(c.expr)
        if parts is None:
            found[c] = None
        else:
            todo.extend(Constraint(p) for p in reversed(parts))
    return list(found)


def _extremum(expr: Expr) -> list[Expr] | None:
    for monomial, c in expr.terms:
        if len(monomial) == 1 and (
            (isinstance(monomial[0], Min) and c > 0) or (isinstance(monomial[0], Max) and c < 0)
        ):
            without = expr - of(monomial[0]) * c
            return [without + arg * c for arg in monomial[0].args]
    return None


def corner(constraint: Constraint, shape: tuple[int, ...]) -> Expr | None:
    """The least value of the inequality's expression over a fragment's coordinates, free of them.

    None where it is not affine in them with numbers as factors, or where an equation depends on them.
    """
    parts = split(constraint.expr, len(shape))
    steps = None if parts is None else parts.steps()
    if parts is None or steps is None:
        return None
    if constraint.equality:
        return None
    return parts.rest + sum(min(0, s * (n - 1)) for s, n in zip(steps, shape))


@dataclass(frozen=True)
class Counter:
    """A symbol that changes: its value is in memory."""

    pointer: str


Known = Int | Expr | Counter
"""What a symbol stands for."""

ElementReader = Callable[[str, tuple[Expr, ...], Point], Vec]


class IndexWriter:
    """Values of index expressions in one function, under the symbols known at the current place."""

    def __init__(self, fn: Function, lanes: Lanes, symbols: dict[str, Known], read: ElementReader) -> None:
        self.fn = fn
        self.lanes = lanes
        self.symbols = symbols
        self._read = read

    # ---- one value

    def value(self, expr: Expr, point: Point | None = None, held: bool = False) -> Int:
        """The value at the point's first lane. Requires: without a point, no `$` occurs.

        `held`: where 64 bits do not hold it, the nearest number that they hold.
        """
        known = expr.constant
        if known is not None:
            return known
        total: Int = 0
        late: list[tuple[Int, int]] = []
        for monomial, c in expr.terms:
            product: Int = 1
            for atom in monomial:
                product = self.fn.mul(product, self._atom(atom, point, held))
            if held and any(isinstance(atom, Fn) for atom in monomial):
                late.append((product, c))  # may be any number; sums of extents and loop variables do not overflow
            else:
                total = self.fn.add(total, self.fn.mul(product, c))
        for product, c in late:
            if c < 0:
                total = self.fn.sub_held(total, self.fn.mul(product, -c))
            else:
                total = self.fn.add_held(total, self.fn.mul(product, c))
        return total

    def _atom(self, atom: Atom, point: Point | None, held: bool = False) -> Int:
        match atom:
            case Sym(name):
                return self._symbol(name, point)
            case Floor(num, den):
                return self.fn.floordiv(self.value(num, point, held), self.value(den, point, held))
            case Min(args):
                return self._fold(self.fn.smin, args, point)
            case Max(args):
                return self._fold(self.fn.smax, args, point)
            case Fn(name, args):
                element = self._read(name, args, (point or Point(())).lane(0))
                return self._as_index(element).text
            case _:
                raise AssertionError(atom)

    def _fold(self, step: Callable[[Int, Int], Int], args: tuple[Expr, ...], point: Point | None) -> Int:
        """Arguments are held: `min(n() - t + 15, 256)` is right also where n() is the largest number of its dtype."""
        total = self.value(args[0], point, held=True)
        for arg in args[1:]:
            total = step(total, self.value(arg, point, held=True))
        return total

    def _symbol(self, name: str, point: Point | None) -> Int:
        if name.startswith("$"):
            number = int(name[1:])
            if point is None or number >= len(point.at):
                raise ill_formed(f"the coordinate {name}", "coordinates of the statement's fragment only")
            return point.at[number]
        found = self.symbols.get(name)
        if found is None:
            raise ill_formed(f"the symbol {name}", "an extent, let, loop variable or counter in scope")
        if isinstance(found, Counter):
            return self.fn.value(f"load i64, ptr {found.pointer}")
        return self.value(found) if isinstance(found, Expr) else found

    def _as_index(self, value: Vec) -> Vec:
        bits = 1 if value.dtype.is_bool else value.dtype.bits
        if bits == 64:
            return value
        wide = "i64" if value.lanes is None else f"<{value.lanes} x i64>"
        how = "sext" if value.dtype.kind == "int" else "zext"
        return replace(value, text=self.fn.value(f"{how} {value.type} {value.text} to {wide}"))

    # ---- a vector of values

    def vector(self, expr: Expr, point: Point, held: bool = False) -> str:
        """The `<lanes x i64>` along the point's lane axis; `held` as in `value`."""
        assert point.axis is not None and point.lanes is not None
        name = coordinate(point.axis)
        n = point.lanes
        if name not in expr.symbols:
            return self.lanes.splat_int(self.value(expr, point, held), n)
        parts = split_by(expr, (name,))
        if parts is not None:
            return self._line(parts, point, n, held)
        total: str | None = None
        late: list[tuple[str, bool]] = []
        for monomial, c in expr.terms:
            loaded = held and any(isinstance(atom, Fn) for atom in monomial)
            product = self.lanes.splat_int(abs(c) if loaded else c, n)
            for i, atom in enumerate(monomial):
                factor = self._atom_vector(atom, point)
                product = factor if i == 0 and loaded and abs(c) == 1 else self.two("mul", product, factor, n)
            if loaded:
                late.append((product, c > 0))  # may be any number; sums of extents and loop variables do not overflow
            else:
                total = product if total is None else self.two("add", total, product, n)
        for product, plus in late:
            if total is None and plus:
                total = product
            else:
                before = self.lanes.splat_int(0, n) if total is None else total
                total = self.two("add" if plus else "sub", before, product, n, held)
        assert total is not None
        return total

    def _line(self, parts: Split, point: Point, n: int, held: bool = False) -> str:
        held = held and bool(parts.rest.functions)
        step = self.value(parts.factors[0], point)
        assert point.axis is not None
        base, there = self.value(parts.rest, point, held), self.fn.mul(step, point.at[point.axis])
        first = self.fn.add_held(base, there) if held else self.fn.add(base, there)
        if isinstance(step, int) and isinstance(first, int):
            return self.lanes.iota(first, n, step=step)
        if isinstance(step, int):
            offsets = self.lanes.iota(0, n, step=step)
        else:
            offsets = self.two("mul", self.lanes.iota(0, n), self.lanes.splat_int(step, n), n)
        return self.two("add", self.lanes.splat_int(first, n), offsets, n, held)

    def two(self, how: str, a: str, b: str, n: int, held: bool = False) -> str:
        """An operation on two vectors; `held`: of a sum or difference, the nearest numbers that 64 bits hold."""
        kind = f"<{n} x i64>"
        if held:
            return self.fn.call(kind, f"llvm.s{how}.sat.v{n}i64", [(kind, a), (kind, b)])
        return self.fn.value(f"{how} {kind} {a}, {b}")

    def _atom_vector(self, atom: Atom, point: Point) -> str:
        n = point.lanes or 1
        match atom:
            case Floor(num, den):
                return self._floor_vector(self.vector(num, point), den, point)
            case Min(args) | Max(args):
                name = f"llvm.{'smin' if isinstance(atom, Min) else 'smax'}.v{n}i64"
                kind = f"<{n} x i64>"
                total = self.vector(args[0], point, held=True)
                for arg in args[1:]:
                    total = self.fn.call(kind, name, [(kind, total), (kind, self.vector(arg, point, held=True))])
                return total
            case Fn(name, args):
                element = self._read(name, args, point)
                return self._as_index(self.lanes.splat(element, n)).text
            case _:
                return self.vector(of(atom), point)

    def _floor_vector(self, num: str, den: Expr, point: Point) -> str:
        n = point.lanes or 1
        known = den.constant
        if known is not None and known & (known - 1) == 0:
            return self.two("ashr", num, self.lanes.splat_int(known.bit_length() - 1, n), n)
        kind = f"<{n} x i64>"
        least = self.lanes.splat_int(1, n)
        divisor = self.fn.call(kind, f"llvm.smax.v{n}i64", [(kind, self.vector(den, point)), (kind, least)])
        quotient = self.two("sdiv", num, divisor, n)
        rest = self.two("sub", num, self.two("mul", quotient, divisor, n), n)
        return self.two("add", quotient, self.two("ashr", rest, self.lanes.splat_int(63, n), n), n)
