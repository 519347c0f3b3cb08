"""J4: index arithmetic of statements that mentions elements of integer fragments stays within 64 bits.

Index expressions are mathematical integers, machines have 64 bits for them. Extents and coordinates are small (the
trust boundary), elements of narrow dtypes too; an element of 64 bits may be any number. With one, arithmetic is what it
means only where it is bounded (by conditions before it), where nothing can be added to it on the way (it
stands alone, or the result is an index: those are right modulo 2^64), or where machines are asked for the order of
numbers that they hold: a condition, or an argument of a minimum, in which one such element is compared with what is
bounded, or two with one another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from treadle.algebra.expr import (
    QUOTIENT,
    REMAINDER,
    Atom,
    Constraint,
    Expr,
    Floor,
    Fn,
    Max,
    Min,
    Monomial,
    Sym,
    compared,
    ge,
    le,
    of,
)
from treadle.algebra.sets import Facts
from treadle.checker.state import Place
from treadle.checker.verdict import Unsure
from treadle.dtype.formats import DType
from treadle.ir.ranges import EXTENT, LIMIT, Range
from treadle.machine.form import Claim, Compute, Copy, FragRef, If, Let, Load, Loop, MemRef, Store, Tasks

SMALL = 1 << 61
"""More than any index arithmetic without elements reaches, and so little that some of it may be added to it."""
BOUNDED = 1 << 40
"""More than any extent: what stays within these is bounded."""
WORD: Range = (-LIMIT - 1, LIMIT)
"""What 64 bits hold."""


@dataclass
class Widths:
    """Ranges of the index arithmetic of one statement. `symbols`: those of lets and loops whose range was loaded."""

    place: Place
    facts: Facts
    symbols: Mapping[str, Range]

    # ---- what an expression is for

    def value(self, e: Expr) -> Range:
        """An expression whose value is used. *Errors*: unsure where 64 bits may not hold it, or what is inside."""
        lone = len(e.terms) == 1 and e.terms[0][1] == 1 and len(e.terms[0][0]) == 1
        if lone:
            return self._atom(e.terms[0][0][0])
        low, high = self._sum(e)
        if low < WORD[0] or high > WORD[1]:
            raise Unsure("J4", f"64 bits may not hold {e}", missing="bounds of what is loaded")
        return low, high

    def index(self, e: Expr) -> None:
        """An expression that is proved to be an index: its sums may wrap, what stands inside may not."""
        for monomial, _ in e.terms:
            for atom in monomial:
                if isinstance(atom, Fn) and atom.name not in (QUOTIENT, REMAINDER):
                    for a in atom.args:
                        self.index(a)
                else:
                    self._atom(atom)

    def held(self, e: Expr, whole: bool = False) -> Range:
        """An expression of which the nearest number that 64 bits hold is enough, or (not `whole`) one on its side of
        zero."""
        loaded = [(m, c) for m, c in e.terms if any(self._loaded(a) for a in m)]
        if len(loaded) == 1 and _lone(*loaded[0]) and isinstance(loaded[0][0][0], Fn):
            self.index(e)
            if not whole:
                return WORD  # or narrower: one number at most is added to what may be any
            low, high = self._sum(e)  # a minimum is computed with: what bounds the number bounds that
            return max(WORD[0], low), min(WORD[1], high)
        low, high = self._sum(e)
        wide = self._wide(e)
        if (low >= WORD[0] and high <= WORD[1]) or len(wide) != 1 or not _lone(*wide[0]):
            return self.value(e)
        rest = e - Expr((wide[0],))
        low, high = self._sum(rest)
        if max(-low, high) > 2 * SMALL or (whole and rest.functions):
            raise Unsure("J4", f"64 bits may not hold {e}", missing="bounds of what is loaded")
        return max(WORD[0], low + WORD[0]), min(WORD[1], high + WORD[1])

    def condition(self, c: Constraint) -> None:
        """A condition: also two elements may be compared, and of a least number all must be large enough."""
        parts = None if c.equality else _extremum(c.expr)
        if parts is not None:
            for part in parts:
                self.condition(ge(part, 0))
        elif compared(c) is None:
            self.held(c.expr)
        else:
            self.index(c.expr)

    # ---- ranges

    def _wide(self, e: Expr) -> list[tuple[Monomial, int]]:
        return [(m, c) for m, c in e.terms if any(isinstance(a, Fn) and self._atom(a) == WORD for a in m)]

    def _sum(self, e: Expr) -> Range:
        """The range of a sum."""
        ranges = list(self._terms(e))
        return sum(lo for lo, _ in ranges), sum(hi for _, hi in ranges)

    def _terms(self, e: Expr) -> Iterator[Range]:
        terms = dict(e.terms)
        for monomial, k in e.terms:  # c * (x mod d) is written c * x - c * d * (x // d)
            atom = monomial[0] if len(monomial) == 1 else None
            d = atom.den.constant if isinstance(atom, Floor) else None
            if not isinstance(atom, Floor) or d is None or k % d or monomial not in terms:
                continue
            c = -(k // d)
            if all(m == () or terms.get(m) == c * n for m, n in atom.num.terms):
                self.value(atom.num)
                del terms[monomial]
                for m, n in atom.num.terms:
                    terms[m] = terms.get(m, 0) - c * n
                yield min(0, c * (d - 1)), max(0, c * (d - 1))
        free = [0, 0]
        for monomial, c in terms.items():
            lo = hi = c
            for atom in monomial:
                a, b = self._atom(atom)
                ends = (lo * a, lo * b, hi * a, hi * b)
                lo, hi = min(ends), max(ends)
            if any(self._loaded(a) for a in monomial):
                yield lo, hi
            else:
                free = [free[0] + lo, free[1] + hi]
        yield max(free[0], -SMALL), min(free[1], SMALL)

    def _loaded(self, atom: Atom) -> bool:
        e = of(atom)
        return bool(e.functions) or any(s in self.symbols for s in e.symbols)

    def _atom(self, atom: Atom) -> Range:
        match atom:
            case Sym(name):
                found = self.symbols.get(name, EXTENT)
                if -SMALL <= found[0] and found[1] <= SMALL:
                    return found
                told = self._bounds(of(atom))
                return max(found[0], told[0]), min(found[1], told[1])
            case Floor(num, den):
                (a, b), (c, d) = self.value(num), self.value(den)
                c, d = max(1, c), max(1, d)
                return min(a // c, a // d), max(b // c, b // d)
            case Min(args) | Max(args):
                pick = min if isinstance(atom, Min) else max
                ranges = [self.held(a, whole=True) for a in args]
                return pick(a for a, _ in ranges), pick(b for _, b in ranges)
            case Fn(name, args):
                if name in (QUOTIENT, REMAINDER):
                    ranges = [self.value(a) for a in args]
                    size = max(abs(n) for n in ranges[0 if name == QUOTIENT else 1])
                    return -size, size
                for a in args:
                    self.index(a)
                dtype = self._dtype(name)
                if dtype is None or dtype.is_bool:
                    return 0, 1
                narrow = dtype.is_int and dtype.bits < 64
                return (int(dtype.finite_min), int(dtype.finite_max)) if narrow else self._bounds(of(atom))
            case _:
                raise AssertionError(atom)

    def _dtype(self, name: str) -> DType | None:
        frag, scalar = self.place.frags.get(name), self.place.source.scalars.get(name)
        return frag.dtype if frag is not None else None if scalar is None else scalar.type.dtype

    def _bounds(self, e: Expr) -> Range:
        """Those of an element, or a symbol, that the facts tell; any word where they tell none."""
        known = self.place.expr(e, self.facts)
        if not known.functions and not any(s in self.symbols for s in known.symbols):
            return -SMALL, SMALL  # index arithmetic
        extents = {d.extent for t in self.place.source.program.tensors for d in t.dims}
        facts = self.facts.also(*(le(n, EXTENT[1]) for n in extents))
        low = -BOUNDED if facts.implies(ge(known, -BOUNDED)) else WORD[0]
        high = BOUNDED if facts.implies(le(known, BOUNDED)) else WORD[1]
        return low, high


def _extremum(e: Expr) -> list[Expr] | None:
    """The sums with one argument of a minimum each (or of a maximum that is taken off) in the place of it."""
    for monomial, c in e.terms:
        atom = monomial[0] if len(monomial) == 1 else None
        if isinstance(atom, Min if c > 0 else Max):
            return [e + (arg - of(atom)) * c for arg in atom.args]
    return None


def _lone(monomial: Monomial, c: int) -> bool:
    return len(monomial) == 1 and abs(c) == 1


def check_widths(place: Place, stmt: object, symbols: dict[str, Range]) -> None:
    """One statement or control; adds the range of what it names to `symbols`. *Errors*: unsure, J4."""
    scalars = place.source.scalars.keys()  # what is computed of these alone calls test (`bounds/index-size`)
    if not any(e.functions - scalars or (symbols and e.symbols & symbols.keys()) for e in _expressions(stmt)):
        return
    shape = next((place.frags[n].shape for n in _shaped(stmt) if n in place.frags), ())
    widths = Widths(place, place.slots(shape), symbols)
    for c in _conditions(stmt):
        if c.expr.functions or c.expr.symbols & symbols.keys():
            widths.condition(c)
        widths.facts = widths.facts.also(*place.constraints((c,), widths.facts))
    match stmt:
        case Loop():
            ranges = [widths.held(e) for e in (stmt.lo, stmt.hi)]
            widths.value(stmt.step)
            symbols[stmt.var] = ranges[0][0], max(ranges[0][0], ranges[1][1] - 1)
        case Tasks():
            for count in stmt.counts:
                widths.held(count)
        case Let():
            symbols[stmt.name] = widths.value(stmt.expr)
        case Compute() if stmt.expr is not None:
            if isinstance(stmt.claim, Claim) and not stmt.claim.where and not stmt.where:
                widths.index(stmt.expr)  # it is the source's, which calls test (bounds/index-size)
            else:
                widths.value(stmt.expr)
        case _:
            pass
    for e in _indices(stmt):
        widths.index(e)


def _conditions(stmt: object) -> tuple[Constraint, ...]:
    if isinstance(stmt, Load | Store | Compute | Copy):
        return stmt.where
    return stmt.conds if isinstance(stmt, If) else ()


def _shaped(stmt: object) -> Iterator[str]:
    """The fragment whose slots a statement's coordinates are."""
    if isinstance(stmt, Store):
        yield stmt.src.name
    yield from (n for n in (getattr(stmt, "dst", None),) if isinstance(n, str))


def _expressions(stmt: object) -> Iterator[Expr]:
    yield from (c.expr for c in _conditions(stmt))
    yield from _indices(stmt)
    match stmt:
        case Loop():
            yield from (stmt.lo, stmt.hi, stmt.step)
        case Tasks():
            yield from stmt.counts
        case Let():
            yield stmt.expr
        case Compute() if stmt.expr is not None:
            yield stmt.expr
        case _:
            pass


def _indices(stmt: object) -> Iterator[Expr]:
    refs = [getattr(stmt, n, None) for n in ("src", "dst", "a", "b", "acc", "mask", "object", "signal")]
    for ref in (*refs, *getattr(stmt, "args", ())):
        if isinstance(ref, MemRef):
            yield from ref.index
            if ref.version is not None:
                yield ref.version
        elif isinstance(ref, FragRef):
            yield from ref.coords or ()
