"""Index expressions as C++ text, 32 bits wide where ranges prove that it is enough, else 64.

Every symbol has an interval, a divisor and a text. The interval of each partial result decides the width of the
arithmetic that makes it; the divisor tells which accesses are aligned. `x - d * floor(x / d)` is written as a
remainder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import gcd

from treadle.algebra.expr import (
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
    floordiv,
    of,
)
from treadle.targets.cuda.emit.errors import ill_formed

INT_MAX = (1 << 31) - 1
FAR = 1 << 62
"""Beyond every extent; sums and products of these stay what they are: unbounded, for our purpose."""


@dataclass(frozen=True)
class Known:
    """Text of an integer, its interval, a divisor (0: of the number 0), and whether the text is 64 bits wide."""

    text: str
    lo: int
    hi: int
    by: int = 1
    wide: bool = False

    @property
    def small(self) -> bool:
        """Whether 32 bits hold it."""
        return -INT_MAX <= self.lo and self.hi <= INT_MAX

    @property
    def number(self) -> int | None:
        """The value, when there is only one."""
        return self.lo if self.lo == self.hi else None

    def narrow(self) -> str:
        """The text as 32 bits."""
        return f"(int)({self.text})" if self.wide else self.text


def literal(value: int) -> Known:
    """A number."""
    wide = not -INT_MAX <= value <= INT_MAX
    return Known(f"{value}ll" if wide else f"({value})" if value < 0 else str(value), value, value, abs(value), wide)


def symbol(text: str, lo: int, hi: int, by: int = 1) -> Known:
    """A variable whose C++ type follows from its interval, by `declared`."""
    known = Known(text, lo, hi, by)
    return replace(known, wide=not known.small)


@dataclass
class Symbols:
    """What symbols stand for. `values`: expressions put in their place first (unrolled variables, region arguments)."""

    known: dict[str, Known] = field(default_factory=dict[str, Known])
    values: dict[str, Expr] = field(default_factory=dict[str, Expr])
    element: Callable[[Fn], Known] | None = None
    cache: dict[Expr, Expr] = field(default_factory=dict[Expr, Expr])
    """Decisions already made; names are unique in a kernel, so they hold in every scope."""

    def child(self) -> Symbols:
        """A scope inside this one."""
        return Symbols(dict(self.known), dict(self.values), self.element, self.cache)

    # ---- expressions

    def resolve(self, expr: Expr) -> Expr:
        """`expr` with values in place, and floors that intervals decide as numbers."""
        return self.decided(self.replaced(expr))

    def replaced(self, expr: Expr) -> Expr:
        """`expr` with values in place."""
        while expr.symbols & self.values.keys():
            expr = expr.substitute(self.values)
        return expr

    def decided(self, expr: Expr) -> Expr:
        """Floors, minima and maxima that intervals decide, replaced."""
        if all(isinstance(a, Sym) for m, _ in expr.terms for a in m):
            return expr
        found = self.cache.get(expr)
        if found is None:
            found = self.cache[expr] = expr.rewrite(self._decide)
        return found

    def _decide(self, atom: Atom) -> Expr | None:
        if isinstance(atom, Floor):
            value = floordiv(self.decided(atom.num), self.decided(atom.den))
            for monomial, c in value.terms:
                inner = monomial[0] if len(monomial) == 1 and c == 1 else None
                d = inner.den.constant if isinstance(inner, Floor) else None
                if isinstance(inner, Floor) and d is not None:
                    known = self.render(inner.num)
                    if known.lo // d == known.hi // d:
                        return value - of(inner) + known.lo // d
            return value
        if isinstance(atom, Min | Max) and len(atom.args) == 2:
            a, b = (self.decided(e) for e in atom.args)
            gap = self.render(a - b)
            if gap.lo >= 0:
                return b if isinstance(atom, Min) else a
            if gap.hi <= 0:
                return a if isinstance(atom, Min) else b
        return None

    def text(self, expr: Expr) -> Known:
        """The expression as C++."""
        return self.render(self.resolve(expr))

    def render(self, expr: Expr, held: bool = False) -> Known:
        """As `text`, of a resolved expression; `held`: of a sum with an element that may be any number, and that 64
        bits do not hold, the nearest number that they hold. Sums of extents and loop variables do not overflow."""
        value = expr.constant
        if value is not None:
            return literal(value)
        terms = dict(expr.terms)
        parts: list[Known] = []
        while found := self._remainder(terms):
            parts.append(found)
        any_number: list[tuple[Known, int]] = []
        for monomial, c in sorted(terms.items(), key=lambda t: (t[0] == (), t[1] < 0)):
            if held and any(isinstance(a, Fn) for a in monomial):
                product = self._term(monomial, 1, held)
                if product.lo <= -FAR or product.hi >= FAR:
                    any_number.append((product, c))
                    continue
            parts.append(self._term(monomial, c, held))
        if any_number:
            return _held(any_number, self._total(parts) if parts else None)
        return self._nearer(expr, self._total(parts)) if parts else literal(0)

    def _nearer(self, expr: Expr, total: Known) -> Known:
        """A sum with a nearer interval, where one of its minima or maxima and the rest are not free of one another:
        `n - m + min(m, x)` is `n` at most."""
        if total.small:
            return total
        lo, hi = total.lo, total.hi
        for monomial, c in expr.terms:
            atom = monomial[0] if len(monomial) == 1 else None
            if not isinstance(atom, Min | Max) or len(expr.terms) == 1:
                continue
            others = [self.render(expr + (arg - of(atom)) * c) for arg in atom.args]
            if isinstance(atom, Min) == (c > 0):
                hi = min(hi, *(o.hi for o in others))
            else:
                lo = max(lo, *(o.lo for o in others))
        return replace(total, lo=lo, hi=hi)

    def _total(self, parts: list[Known]) -> Known:
        parts.sort(key=lambda p: p.text.startswith("-") or p.number is not None)
        total = parts[0]
        for part in parts[1:]:
            total = _sum(total, part)
        return total if len(parts) == 1 else replace(total, text=f"({total.text})")

    def _remainder(self, terms: dict[Monomial, int]) -> Known | None:
        """Takes `c * (x mod d)` out of the terms, where there is one."""
        for monomial, k in terms.items():
            if len(monomial) != 1 or not isinstance(monomial[0], Floor):
                continue
            num, den = monomial[0].num, monomial[0].den.constant
            if den is None or k % den or not num.terms:
                continue
            c = -(k // den)
            if any(m != () and terms.get(m) != c * n for m, n in num.terms):
                continue
            del terms[monomial]
            for m, n in num.terms:
                left = terms.get(m, 0) - c * n
                if left:
                    terms[m] = left
                else:
                    terms.pop(m, None)
            return _times(literal(c), self._mod(self.render(num), den))
        return None

    def _mod(self, x: Known, d: int) -> Known:
        by = gcd(x.by, d)
        if d & (d - 1) == 0:
            return Known(f"({x.text} & {d - 1})", 0, d - by if x.by else 0, by, x.wide)
        if x.lo >= 0:
            return Known(f"({_unsigned(x)} % {d}u)" if x.small else f"({x.text} % {d})", 0, d - by, by, x.wide)
        return Known(f"floor_mod({x.text}, {_sized(d, x)})", 0, d - by, by, x.wide)

    def _term(self, monomial: Monomial, c: int, held: bool = False) -> Known:
        total: Known | None = None if c != 1 or not monomial else self._atom(monomial[0], held)
        if total is None:
            total = literal(c)
            rest = monomial
        else:
            rest = monomial[1:]
        for atom in rest:
            total = _times(total, self._atom(atom, held))
        return total

    def _atom(self, atom: Atom, held: bool = False) -> Known:
        match atom:
            case Sym(name):
                known = self.known.get(name)
                if known is None:
                    raise ill_formed(
                        f"the symbol {name}, which has no value here", "a variable, let, extent or counter"
                    )
                return known
            case Floor(num, den):
                return self._floor(self.render(num, held), self.render(den, held))
            case Min(args) | Max(args):
                # Held: the least of `n() - t + 15` and 256 is right also where n() is the largest number of its dtype.
                verb = "least" if isinstance(atom, Min) else "most"
                total = self.render(args[0], held=True)
                for arg in args[1:]:
                    total = _extremum(verb, total, self.render(arg, held=True))
                return total
            case Fn():
                if self.element is None:
                    raise ill_formed(f"{atom} where no fragment exists", "extents only")
                return self.element(atom)
            case _:
                raise AssertionError(atom)

    def _floor(self, num: Known, den: Known) -> Known:
        d = den.number
        if d is None:
            low, high = max(1, den.lo), max(1, den.hi)
            corners = [num.lo // low, num.lo // high, num.hi // low, num.hi // high]
            lo, hi = min(corners), max(corners)
            wide = num.wide or den.wide
            below = f"({den.text})" if " " in den.text else den.text
            text = f"({num.text} / {below})" if num.lo >= 0 else f"floor_div({_both(num, den)})"
            return Known(text, lo, hi, 1, wide)
        lo, hi = num.lo // d, num.hi // d
        by = num.by // d if num.by and num.by % d == 0 else 1
        if d & (d - 1) == 0:
            return Known(f"({num.text} >> {d.bit_length() - 1})", lo, hi, by, num.wide)
        if num.lo >= 0:
            text = f"(int)({_unsigned(num)} / {d}u)" if num.small else f"({num.text} / {d})"
            return Known(text, lo, hi, by, num.wide and not num.small)
        return Known(f"floor_div({num.text}, {_sized(d, num)})", lo, hi, by, num.wide)

    # ---- conditions

    def condition(self, fact: Constraint) -> str | None:
        """A C++ condition, without outer parentheses; None where it always holds."""
        expr = self.resolve(fact.expr)
        value = self.render(expr)
        sides = compared(replace(fact, expr=expr))
        if sides is not None and not value.small:  # of any two numbers: their difference may be none that 64 bits hold
            return f"{self.render(of(sides[0])).text} {sides[1]} {self.render(of(sides[2])).text}"
        if fact.equality:
            return None if value.number == 0 else f"{value.text} == 0"
        if value.lo >= 0:
            return None
        if value.hi < 0:
            return "false"
        by = self.render(expr - expr.offset).by
        if by > 1:
            # Neighbours that cannot differ have the same text.
            expr = expr - expr.offset % by + (by - 1)
            value = self.render(expr)
        positive = Expr(tuple((m, c) for m, c in expr.terms if c > 0))
        negative = -Expr(tuple((m, c) for m, c in expr.terms if c < 0))
        if self._mixed(expr):
            return f"{self.render(expr, held=True).text} >= 0"
        left, right = self.render(negative, held=True), self.render(positive, held=True)
        return f"{left.text} <= {right.text}"

    def _mixed(self, expr: Expr) -> bool:
        """Whether splitting by sign would tear a remainder apart."""
        return any(isinstance(a, Floor) for m, _ in expr.terms for a in m)


def declared(known: Known) -> str:
    """The C++ type for a variable with this interval."""
    return "int" if known.small else "i64"


def _unsigned(x: Known) -> str:
    return f"(u32)({x.text})"


def _sized(d: int, like: Known) -> str:
    return f"(i64){d}" if like.wide else str(d)


def _both(a: Known, b: Known) -> str:
    if a.wide == b.wide:
        return f"{a.text}, {b.text}"
    return f"(i64){a.text}, (i64){b.text}"


def _extremum(verb: str, a: Known, b: Known) -> Known:
    pick = min if verb == "least" else max
    return Known(f"{verb}({_both(a, b)})", pick(a.lo, b.lo), pick(a.hi, b.hi), gcd(a.by, b.by), a.wide or b.wide)


def _clamp(value: int) -> int:
    return max(-FAR, min(FAR, value))


def _sum(a: Known, b: Known) -> Known:
    lo, hi = _clamp(a.lo + b.lo), _clamp(a.hi + b.hi)
    small = -INT_MAX <= lo and hi <= INT_MAX
    left = a.text
    if not small and not (a.wide or b.wide):
        left = f"(i64){left}"
    wide = a.wide or b.wide or not small
    right = f" - {b.text[1:]}" if b.text.startswith("-") else f" + {b.text}"
    if b.number is not None and b.number < 0:
        right = f" - {-b.number}{'ll' if b.wide else ''}"
    return Known(f"{left}{right}", lo, hi, gcd(a.by, b.by), wide)


def _held(terms: list[tuple[Known, int]], rest: Known | None) -> Known:
    """Multiples of numbers of which nothing is known, positive and negative ones in turn so that they cancel before
    they are held, and the `rest`."""
    plus, minus = ([t for t in terms if (t[1] > 0) == way] for way in (True, False))
    ordered = [t for i in range(len(terms)) for t in (*plus[i : i + 1], *minus[i : i + 1])]
    total: Known | None = None
    for product, c in ordered:
        text = product.text if abs(c) == 1 else f"held_times({product.text}, {abs(c)}ll)"
        corners = sorted(_clamp(abs(c) * x) for x in (product.lo, product.hi))
        one = Known(text, corners[0], corners[1], product.by * abs(c), True)
        total = _joined(total, one, c > 0)
    assert total is not None
    return total if rest is None else _joined(total, rest, True)


def _joined(a: Known | None, b: Known, plus: bool) -> Known:
    if a is None and plus:
        return b
    a = literal(0) if a is None else a
    ends = (a.lo + b.lo, a.hi + b.hi) if plus else (a.lo - b.hi, a.hi - b.lo)
    text = f"{'held_add' if plus else 'held_sub'}({a.text}, {b.text})"
    return Known(text, _clamp(ends[0]), _clamp(ends[1]), 1, True)


def _times(a: Known, b: Known) -> Known:
    corners = [_clamp(x * y) for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    lo, hi = min(corners), max(corners)
    if a.number == 1:
        return replace(b, lo=lo, hi=hi)
    small = -INT_MAX <= lo and hi <= INT_MAX
    left = a.text
    if not small and not (a.wide or b.wide):
        left = f"(i64){left}"
    wide = a.wide or b.wide or not small
    if a.number == -1:
        return Known(f"-{b.text}" if not wide or b.wide else f"-(i64){b.text}", lo, hi, b.by, wide)
    return Known(f"{left} * {b.text}", lo, hi, a.by * b.by, wide)


def substituted(facts: tuple[Constraint, ...], env: Mapping[str, Expr]) -> tuple[Constraint, ...]:
    """Constraints with symbols replaced."""
    return tuple(f.substitute(env) for f in facts)
