"""How large the index expressions of a program can become: whether 64 bits hold them.

Index scalars are mathematical integers, and machines have 64 bits for them. `beyond` lists the expressions that extents
and coordinates within their ranges can drive outside; with the numbers of a call, those that this call does. Ranges are
intervals, so that an expression may be listed that stays inside; one that is not listed does stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from treadle.algebra.expr import QUOTIENT, REMAINDER, Atom, Expr, Floor, Fn, Max, Min, Sym
from treadle.base.source import Span
from treadle.dtype.formats import DType
from treadle.ir.core import Block, Op, Program, Region
from treadle.ir.rewrite import expressions

Range = tuple[int, int]
LIMIT = (1 << 63) - 1
EXTENT: Range = (0, (1 << 31) - 1)
"""What guards say of every extent, and therefore of coordinates and bounds of blocks."""


@dataclass(frozen=True)
class Beyond:
    """An expression that may leave 64 bits, the value it may reach, and the position of its operation."""

    expr: Expr
    reaches: int
    span: Span | None

    @property
    def text(self) -> str:
        """The expression in the words of the user."""
        return re.sub(r"%([\w.]+)\(\)", r"\1", str(self.expr))


def reach(expr: Expr, symbols: Mapping[str, Range], functions: Callable[[str], Range]) -> tuple[Range, int]:
    """The range of an expression, and the largest magnitude of a sum of its terms, in whatever order, inside too."""
    meter = _Meter(symbols, functions)
    return meter.range(expr), meter.peak


class _Meter:
    """Ranges of one expression and of what is inside; `peak` is the largest magnitude on the way."""

    def __init__(self, symbols: Mapping[str, Range], functions: Callable[[str], Range]) -> None:
        self.symbols = symbols
        self.functions = functions
        self.peak = 0

    def range(self, expr: Expr) -> Range:
        low = high = 0
        total = 0
        for monomial, coefficient in expr.terms:
            lo = hi = coefficient
            self.peak = max(self.peak, abs(coefficient))
            for atom in monomial:
                a, b = self.atom(atom)
                ends = (lo * a, lo * b, hi * a, hi * b)
                lo, hi = min(ends), max(ends)
            low, high = low + lo, high + hi
            total += max(abs(lo), abs(hi))
        self.peak = max(self.peak, total)
        return low, high

    def atom(self, atom: Atom) -> Range:
        match atom:
            case Sym(name):
                return self.symbols.get(name, EXTENT)
            case Floor(num, den):
                (a, b), (c, d) = self.range(num), self.range(den)
                c, d = max(1, c), max(1, d)
                return min(a // c, a // d), max(b // c, b // d)
            case Min(args):
                ranges = [self.range(a) for a in args]
                return min(a for a, _ in ranges), min(b for _, b in ranges)
            case Max(args):
                ranges = [self.range(a) for a in args]
                return max(a for a, _ in ranges), max(b for _, b in ranges)
            case Fn(name, args):
                ranges = [self.range(a) for a in args]
                if name in (QUOTIENT, REMAINDER):
                    size = max(abs(n) for n in ranges[0 if name == QUOTIENT else 1])
                    return -size, size
                return self.functions(name)
            case _:
                raise AssertionError(atom)


def dtype_range(dtype: DType, promised: bool) -> Range:
    """The range of an integer value. 64-bit ones enter arithmetic of indices only under a promise to be coordinates."""
    if dtype.is_bool:
        return 0, 1
    if promised and dtype.bits >= 64:
        return -EXTENT[1], EXTENT[1]
    return int(dtype.finite_min), int(dtype.finite_max)


def beyond(
    program: Program, extents: Mapping[str, int] | None = None, scalars: Mapping[str, int | float | bool] | None = None
) -> list[Beyond]:
    """The index expressions that may leave 64 bits: for extents that guards allow, or for those of a call.

    *Ensures*: an expression that is not listed evaluates within 64 bits, sums of its terms in any order too.
    """
    return list(_Walk(program, extents, scalars or {}).all())


class _Walk:
    """The expressions of a program, with the ranges of the symbols in sight."""

    def __init__(
        self, program: Program, extents: Mapping[str, int] | None, scalars: Mapping[str, int | float | bool]
    ) -> None:
        self.program = program
        names = {s for d in program.dims for s in d.extent.symbols}
        self.symbols: dict[str, Range] = {n: EXTENT for n in names}
        if extents is not None:
            self.symbols |= {n: (int(v), int(v)) for n, v in extents.items()}
        self.values: dict[str, Range] = {}
        for parameter in program.scalars:
            dtype = parameter.value.type.dtype
            number = scalars.get(parameter.name)
            if dtype.is_int or dtype.is_bool:
                exact = None if number is None else (int(number), int(number))
                self.values[parameter.value.name] = exact or dtype_range(dtype, promised=False)

    def all(self) -> Iterator[Beyond]:
        program = self.program
        for name, expr in program.lets.items():
            yield from self.one(expr, program.span)
            self.symbols.setdefault(name, EXTENT)
        for fact in program.requires:
            yield from self.one(fact.expr, program.span)
        inner = {a.domain.dim for op in program.body.walk() if isinstance(op, Region) for a in op.args}
        for dim in program.dims:
            if dim not in inner:  # those of regions over a number stand with the region
                yield from self.one(dim.extent, program.span)
        yield from self.block(program.body)

    def block(self, block: Block) -> Iterator[Beyond]:
        for op in block.ops:
            for expr in expressions(op):
                yield from self.one(expr, op.span)
            for value in (*op.results, *op.parameters):
                dtype = value.type.dtype
                if dtype.is_int or dtype.is_bool:
                    self.values[value.name] = dtype_range(dtype, promised=True)
            if isinstance(op, Region):
                self.arguments(op)
            for inner in op.blocks:
                yield from self.block(inner)

    def arguments(self, op: Region) -> None:
        """The ranges of a region's coordinates and bounds."""
        for arg in op.args:
            (lo, _), _ = self.measure(arg.domain.lo)
            (_, hi), _ = self.measure(arg.domain.hi)
            top = max(lo, hi)
            self.symbols[arg.name] = (lo, max(lo, top - 1))
            self.symbols[f"{arg.name}.start"] = self.symbols[f"{arg.name}.stop"] = (lo, top)

    def measure(self, expr: Expr) -> tuple[Range, int]:
        return reach(expr, self.symbols, lambda name: self.values.get(name, (-EXTENT[1], EXTENT[1])))

    def one(self, expr: Expr, span: Span | None) -> Iterator[Beyond]:
        if not expr.symbols and not expr.functions and abs(expr.constant or 0) <= LIMIT:
            return
        peak = self.measure(expr)[1]
        # A lone loaded value is itself, whatever it is.
        if peak > LIMIT and not _lone(expr):
            yield Beyond(expr, peak, span)


def _lone(expr: Expr) -> bool:
    """Whether the expression is one integer value, without arithmetic."""
    return len(expr.terms) == 1 and expr.terms[0][1] == 1 and [type(a) for a in expr.terms[0][0]] == [Fn]


def too_large(expr: Expr) -> int | None:
    """A number in the expression, at any depth, that 64 bits do not hold."""
    for monomial, coefficient in expr.terms:
        if abs(coefficient) > LIMIT:
            return coefficient
        for atom in monomial:
            inner = (atom.num, atom.den) if isinstance(atom, Floor) else () if isinstance(atom, Sym) else atom.args
            for one in inner:
                number = too_large(one)
                if number is not None:
                    return number
    return None


def large_numbers(program: Program) -> list[Beyond]:
    """The expressions of a program that mention a number which 64 bits do not hold."""
    found: list[Beyond] = []

    def look(expr: Expr, span: Span | None) -> None:
        number = too_large(expr)
        if number is not None:
            found.append(Beyond(expr, number, span))

    for expr in (*program.lets.values(), *(f.expr for f in program.requires), *(d.extent for d in program.dims)):
        look(expr, program.span)
    ops: list[Op] = list(program.body.walk())
    for op in ops:
        for expr in expressions(op):
            look(expr, op.span)
    return found
