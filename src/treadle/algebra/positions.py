"""Positions in symbols: quotients that facts decide, and how many integer operations what is left takes.

An order of `algebra.orders` applied to index expressions gives its position with a quotient and a remainder for each
digit. Where facts say that a digit is one, its quotient is known; where they say that a division is exact, its
multiples are. What they do not say stays a division.

*Source*: simplification by ranges as in LEGO (arXiv 2505.08091).
"""

from __future__ import annotations

from collections import Counter

from treadle.algebra.expr import Atom, Expr, Floor, Fn, Max, Min, Sym, const, ge, lt, of
from treadle.algebra.maps import multiples
from treadle.algebra.sets import Facts


def settled(e: Expr, facts: Facts) -> Expr:
    """The expression without the quotients that the facts decide, and with `a` for `b * (a // b)` where `b`, a number,
    divides `a` by the facts.

    *Ensures*: equal to `e` under every valuation of the facts."""

    def change(atom: Atom) -> Expr | None:
        if not isinstance(atom, Floor):
            return None
        num, den = settled(atom.num, facts), settled(atom.den, facts)
        whole = multiples(num, den)
        rest = num - whole * den
        if facts.implies(ge(rest, 0)) and facts.implies(lt(rest, den)):
            return whole
        return whole + rest // den

    found = e.rewrite(change)
    for atom in dict.fromkeys(found.atoms()):
        b = atom.den.constant if isinstance(atom, Floor) else None
        if isinstance(atom, Floor) and b is not None and facts.equal(atom.num, of(atom) * b):
            found = _multiplied(found, atom, b)
    return found


def _multiplied(e: Expr, quotient: Floor, b: int) -> Expr:
    """With the number that is divided in place of `b` times the quotient."""
    total = const(0)
    for monomial, k in e.terms:
        rest = list(monomial)
        if quotient in rest and k % b == 0:
            rest.remove(quotient)
            total = total + Expr(((tuple(rest), k // b),)) * quotient.num
        else:
            total = total + Expr(((monomial, k),))
    return total


def factored(e: Expr) -> tuple[str, int]:
    """The expression as text, the symbol of most terms drawn out again and again, and how many operations that takes.

    *Ensures*: the text, as Python, has the value of `e`. Each quotient, product, sum, minimum of two counts one."""
    counts = Counter(atom for monomial, _ in e.terms for atom in dict.fromkeys(monomial))
    atom = max(counts, key=lambda a: (counts[a], str(a)), default=None)
    if atom is None or counts[atom] < 2:
        parts = [_term(monomial, k) for monomial, k in e.terms]
        if not parts:
            return "0", 0
        return " + ".join(t for t, _ in parts), sum(n for _, n in parts) + len(parts) - 1
    inside, rest = const(0), const(0)
    for monomial, k in e.terms:
        left = list(monomial)
        if atom in left:
            left.remove(atom)
            inside = inside + Expr(((tuple(left), k),))
        else:
            rest = rest + Expr(((monomial, k),))
    (outer, a), (text, n), (tail, m) = _factor(atom), factored(inside), factored(rest)
    if not rest.terms:
        return f"{outer} * ({text})", a + n + 1
    return f"{outer} * ({text}) + {tail}", a + n + m + 2


def _term(monomial: tuple[Atom, ...], k: int) -> tuple[str, int]:
    parts = [_factor(atom) for atom in monomial]
    if k != 1 or not parts:
        parts.insert(0, (f"({k})" if k < 0 else str(k), 0))
    return " * ".join(t for t, _ in parts), sum(n for _, n in parts) + len(parts) - 1


def _factor(atom: Atom) -> tuple[str, int]:
    match atom:
        case Sym(name):
            return name, 0
        case Floor(num, den):
            (a, n), (b, m) = factored(num), factored(den)
            return f"(({a}) // ({b}))", n + m + 1
        case Min(args) | Max(args):
            parts = [factored(a) for a in args]
            name = "min" if isinstance(atom, Min) else "max"
            return f"{name}({', '.join(t for t, _ in parts)})", sum(n for _, n in parts) + len(parts) - 1
        case Fn(name, args):
            parts = [factored(a) for a in args]
            return f"{name}({', '.join(t for t, _ in parts)})", sum(n for _, n in parts)
