"""isl's notation: index expressions and constraints as its text, and the names of its parameters read back.

Exactly represented: affine terms, floors by positive numbers, minima and maxima. Any other term over parameters becomes
a parameter of its own (`opaque`, named by its text); over a set's own dimensions it is `Inexpressible`. Nothing here
imports isl: `algebra.sets` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from treadle.algebra.expr import Atom, Constraint, Expr, Floor, Fn, Max, Min, Monomial, Sym, of, sym


class Inexpressible(Exception):
    """A term over a set's own dimensions that isl cannot hold. Callers answer `unknown`; it never leaves the judge."""


# ---- names: isl identifiers are v0, v1, ...; opaque terms are named by their text

_idents: dict[str, str] = {}
_names: list[str] = []
_terms: dict[str, Expr] = {}


def ident(name: str) -> str:
    """isl's identifier for a name."""
    found = _idents.get(name)
    if found is None:
        found = _idents[name] = f"v{len(_names)}"
        _names.append(name)
    return found


def name_of(identifier: str) -> str:
    """The name (a symbol's, or the text of an opaque term) that an identifier stands for."""
    return _names[int(identifier[1:])]


def term_of(identifier: str) -> Expr:
    """The expression that an identifier stands for."""
    name = name_of(identifier)
    return _terms.get(name) or sym(name)


class Text:
    """isl text of expressions; collects parameters as it goes. `own` are the names of set dimensions, `known` symbols
    with their values: products with them are no products. `unsplit`: minima and maxima are parameters too, bounded
    by their arguments (`bounds`), so that no text has cases; one valuation of them is true."""

    def __init__(self, own: Iterable[str] = (), known: Mapping[str, int] | None = None, unsplit: bool = False) -> None:
        self.own = frozenset(own)
        self.known = known or {}
        self.params: dict[str, None] = {}
        self.unsplit = unsplit
        self.bounds: dict[str, None] = {}

    def _opaque(self, whole: Expr, symbols: frozenset[str]) -> str:
        if symbols & self.own:
            raise Inexpressible(str(whole))
        name = f"<{whole}>"
        _terms[name] = whole
        found = ident(name)
        self.params[found] = None
        return found

    def atom(self, atom: Atom) -> str:
        """An atom."""
        match atom:
            case Sym(name):
                found = ident(name)
                if name not in self.own:
                    self.params[found] = None
                return found
            case Floor(num, den):
                d = den.substitute(self.known).constant
                if d is None or d <= 0:
                    return self._opaque(of(atom), num.symbols | den.symbols)
                return f"floor(({self.expr(num)})/{d})"
            case Min(args) | Max(args):
                word = "min" if isinstance(atom, Min) else "max"
                texts = [self.expr(a) for a in args]
                if self.unsplit:
                    found = self._opaque(of(atom), frozenset(s for a in args for s in a.symbols))
                    beyond = "<=" if isinstance(atom, Min) else ">="
                    self.bounds |= dict.fromkeys(f"{found} {beyond} {text}" for text in texts)
                    return found
                out = texts[0]
                for text in texts[1:]:
                    out = f"{word}({out},{text})"
                return out
            case Fn(_, args):
                symbols = frozenset(s for a in args for s in a.symbols)
                return self._opaque(of(atom), symbols)
            case _:
                raise AssertionError(atom)

    def monomial(self, monomial: Monomial) -> str:
        """A product."""
        if len(monomial) == 1:
            return self.atom(monomial[0])
        whole = Expr(((monomial, 1),))
        plain = whole.substitute(self.known)
        if plain != whole:
            return f"({self.expr(plain)})"
        return self._opaque(whole, whole.symbols)

    def expr(self, e: Expr) -> str:
        """An expression."""
        if not e.terms:
            return "0"
        parts: list[str] = []
        for monomial, c in e.terms:
            if not monomial:
                parts.append(str(c))
            else:
                text = self.monomial(monomial)
                parts.append(text if c == 1 else f"{c}*{text}" if text.startswith("v") else f"{c}*({text})")
        return " + ".join(parts)

    def constraints(self, cs: Iterable[Constraint]) -> str:
        """A conjunction."""
        parts = cs if self.unsplit else convex(cs)
        out = [f"{self.expr(c.expr)} {'=' if c.equality else '>='} 0" for c in parts]
        return " and ".join(out) or "true"

    def head(self) -> str:
        """The list of parameters met so far."""
        return f"[{', '.join(self.params)}] -> "


def convex(cs: Iterable[Constraint]) -> Iterator[Constraint]:
    """The same conjunction, with minima and maxima replaced by cases that are conjunctions wherever that is exact.

    `e + c*min(a, b) >= 0` with `c > 0` is `e + c*a >= 0 and e + c*b >= 0`; likewise `c < 0` with a maximum.
    """
    for c in cs:
        if c.equality:
            yield c
            continue
        stack = [c.expr]
        while stack:
            e = stack.pop()
            for monomial, k in e.terms:
                atom = monomial[0] if len(monomial) == 1 else None
                if (isinstance(atom, Min) and k > 0) or (isinstance(atom, Max) and k < 0):
                    rest = e - k * Expr(((monomial, 1),))
                    stack += [rest + k * a for a in atom.args]
                    break
            else:
                yield Constraint(e)


def negation(c: Constraint) -> tuple[Constraint, ...]:
    """Constraints of which at least one holds exactly where `c` does not."""
    if c.equality:
        return (Constraint(c.expr - 1), Constraint(-c.expr - 1))
    return (Constraint(-c.expr - 1),)


def complements(cs: Sequence[Constraint]) -> Iterator[tuple[Constraint, ...]]:
    """Disjoint conjunctions that together hold exactly where the conjunction `cs` does not."""
    for i, c in enumerate(cs):
        for n in negation(c):
            yield (*cs[:i], n)
