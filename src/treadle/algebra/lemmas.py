"""Lemmas: consequences of facts about products and quotients of symbols, which isl does not know.

isl takes a product of symbols, or a quotient by one, for a symbol of its own (`algebra.isl_text`). What these lemmas
say of such terms is linear in them, so that isl can use it. Each is proved by a line of arithmetic, and tested by brute
force.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from functools import lru_cache

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
    eq,
    ge,
    lt,
    of,
)
from treadle.algebra.maps import multiples

_LEMMAS, _TERMS, _DEGREE = 160, 5, 4
"""How many consequences one question is given, of facts of how many terms, and of how many factors."""


def product_lemmas(c: Constraint | None, facts: Sequence[Constraint]) -> Iterator[Constraint]:
    """Consequences of facts about the products of symbols in `c`, and in facts about the symbols of `c` (None: in all
    facts): where `p >= 0` and `e >= 0` are facts, so is `p*e >= 0`; where `e == 0` is one, so is `x*e == 0`. What a
    fact about a minimum says of each of its arguments is a fact, too.

    They decide mixed-radix positions: `0 <= h < H` and `0 <= d < D` give `0 <= D*h + d < H*D`, and of more digits one
    factor after another.

    *Ensures*: each holds wherever the facts hold.
    """
    facts = [*facts, *(w for f in facts for w in _sides(f))]
    positive = {a for f in facts if (a := _not_negative(f)) is not None}
    wanted: dict[Monomial, None] = {}
    for e in [f.expr for f in facts if c is None or f.expr.symbols & c.expr.symbols] + ([c.expr] if c else []):
        for monomial in _products(e):
            _want(monomial, positive, wanted)
    known = {m for f in facts for m in _products(f.expr)} | wanted.keys()
    steps = [(m, f) for m in wanted for f in dict.fromkeys(m)]
    pool = [f for f in facts if len(f.expr.terms) <= _TERMS]
    done: set[Constraint] = set(pool)
    count = 0
    for monomial, factor in sorted(steps, key=lambda s: len(s[0])):
        rest = _without(monomial, factor)
        for fact in list(pool):
            if not (factor in positive or fact.equality) or not any(m == rest for m, _ in fact.expr.terms):
                continue
            if max(len(m) for m, _ in fact.expr.terms) >= _DEGREE:
                continue
            lemma = Constraint(fact.expr * of(factor), fact.equality)
            new = sum(len(m) >= 2 and m not in known for m, _ in lemma.expr.terms)
            if lemma in done or new > fact.equality:  # of a product that nothing else is known of, nothing follows
                continue
            done.add(lemma)
            pool.append(lemma)
            yield lemma
            count += 1
            if count >= _LEMMAS:
                return


def _sides(fact: Constraint) -> Iterator[Constraint]:
    """What `e + k*min(a, b) >= 0`, k positive, says of `a` and of `b`; the same of a maximum with a negative factor."""
    if fact.equality:
        return
    for monomial, k in fact.expr.terms:
        if len(monomial) == 1 and isinstance(atom := monomial[0], Min | Max) and (k > 0) == isinstance(atom, Min):
            for arg in atom.args:
                weaker = Constraint(fact.expr - of(atom) * k + arg * k)
                yield weaker
                yield from _sides(weaker)


def _want(monomial: Monomial, positive: Set[Atom], wanted: dict[Monomial, None]) -> None:
    """A product to know of, and those inside it by which it is reached."""
    if len(monomial) < 2 or len(monomial) > _DEGREE or monomial in wanted:
        return
    wanted[monomial] = None
    for factor in dict.fromkeys(monomial):
        if factor in positive:
            _want(_without(monomial, factor), positive, wanted)


def _without(monomial: Monomial, factor: Atom) -> Monomial:
    rest = list(monomial)
    rest.remove(factor)
    return tuple(rest)


def _products(e: Expr) -> Iterator[Monomial]:
    """The products of symbols in an expression, those inside minima and maxima too."""
    for monomial, _ in e.terms:
        if len(monomial) >= 2:
            yield monomial
        for atom in monomial:
            if isinstance(atom, Min | Max):
                for arg in atom.args:
                    yield from _products(arg)


def _not_negative(fact: Constraint) -> Atom | None:
    """The symbol that a fact alone shows not to be negative."""
    symbols = [(m, k) for m, k in fact.expr.terms if m]
    if len(symbols) == 1 and len(symbols[0][0]) == 1 and symbols[0][1] > 0 and fact.expr.offset <= 0:
        return symbols[0][0][0]
    return None


def divided(atom: Atom) -> tuple[Expr, Expr] | None:
    """Dividend and divisor of a quotient or remainder by what is no number."""
    match atom:
        case Fn(name, (a, b)) if name in (QUOTIENT, REMAINDER):
            return a, b
        case Floor(a, b) if b.constant is None:
            return a, b
        case _:
            return None


def divisions(exprs: Iterable[Expr]) -> list[Atom]:
    """The quotients and remainders by symbols in expressions, each once; what stands inside another one before it."""
    return list(dict.fromkeys(atom for e in exprs for atom in _divisions(e)))


@lru_cache(maxsize=1 << 14)
def _divisions(e: Expr) -> tuple[Atom, ...]:
    return tuple(atom for atom in reversed(list(e.atoms())) if divided(atom) is not None)


def division_lemmas(
    atom: Atom, facts: Sequence[Constraint], proves: Callable[[Constraint], bool]
) -> Iterator[Constraint]:
    """What is known of a quotient or remainder by a symbol, where `proves` says that the divisor `b` is positive.

    `0 <= a % b < b`. For `q = a // b`: `q == e` if `b*e <= a < b*e + b`, where `a` or a fact about it shows such an
    `e` (a digit of a position in a mixed radix); else `b*q <= a < b*q + b`; `0 <= q <= a` if `a >= 0`; `q < e` if
    `a < b*e`, and `q >= e` if `a >= b*e`.

    *Ensures*: each holds wherever the facts hold and what `proves` affirms is so.
    """
    parts = divided(atom)
    if parts is None or not _positive(parts[1], proves):
        return
    (a, b), q = parts, of(atom)
    if isinstance(atom, Fn) and atom.name == REMAINDER:
        yield ge(q, 0)
        yield lt(q, b)
        return
    for e in _digits(a, b, facts):
        rest = a - b * e
        if proves(ge(rest, 0)) and proves(lt(rest, b)):
            yield eq(q, e)
            yield eq(b * q, b * e)
            return
    yield ge(a, b * q)
    yield lt(a, b * q + b)
    if proves(ge(a, 0)):
        yield ge(q, 0)
        yield ge(a, q)
    for e in _cofactors(b, facts):
        if proves(lt(a, b * e)):
            yield lt(q, e)
        elif proves(ge(a, b * e)):
            yield ge(q, e)


def _positive(b: Expr, proves: Callable[[Constraint], bool]) -> bool:
    """Whether a divisor is positive: a product is where each of its factors is."""
    if proves(ge(b, 1)):
        return True
    factors = b.terms[0][0] if len(b.terms) == 1 and b.terms[0][1] > 0 else ()
    return len(factors) > 1 and all(proves(ge(of(f), 1)) for f in dict.fromkeys(factors))


def _digits(a: Expr, b: Expr, facts: Sequence[Constraint]) -> list[Expr]:
    """What `a // b` may be: the multiples of `b` in `a`, or in what a fact compares `a` with."""
    found: dict[Expr, None] = {}
    for e in (a, *(Expr((term,)) for term in a.terms)):
        found[multiples(e, b)] = None
    symbols = [m for m, _ in a.terms if m]
    for f in facts:
        terms = {m for m, _ in f.expr.terms if m}
        if all(m in terms for m in symbols):
            for t in (a - f.expr, a + f.expr):
                if not any(m in symbols for m, _ in t.terms):
                    found[multiples(t, b)] = None
    found.pop(Expr(()), None)
    return [*found][:8]


def _cofactors(b: Expr, facts: Sequence[Constraint]) -> list[Expr]:
    """What products in facts are besides `b`, that are no quotients."""
    found: dict[Expr, None] = {}
    for f in facts:
        for monomial, _ in f.expr.terms:
            e = multiples(Expr(((monomial, 1),)), b)
            if e.constant is None and not divisions((e,)):
                found[e] = None
    return [*found][:8]
