"""Index expressions as machine text prints them.

Apart from the reader: the checker names statements by their lines, and needs no parser for that.
"""

from __future__ import annotations

from treadle.algebra.expr import Atom, Expr, Floor, Fn, Max, Min, Sym, of


def show(expr: Expr) -> str:
    """The expression as text that reads back equal: like `str`, but `n // 2` and `(n // 2 + 1) % 2` as one writes."""
    parts: list[tuple[int, str, bool]] = []
    rest = expr
    for monomial, c in expr.terms:
        atom = monomial[0] if len(monomial) == 1 else None
        number = atom.den.constant if isinstance(atom, Floor) else None
        if isinstance(atom, Floor) and number is not None and c % number == 0:
            # -c/d copies of `num - d * (num // d)` are in the sum where taking them away leaves fewer terms.
            times = -(c // number)
            left = rest - (atom.num - of(atom) * number) * times
            if len(left.terms) < len(rest.terms):
                rest = left
                parts.append((times, f"{_factor(atom.num)} % {number}", True))
    whole = sorted(rest.terms, key=lambda term: term[0] == ())
    parts = [(c, *_monomial(monomial)) for monomial, c in whole if monomial] + parts
    parts += [(c, "", False) for monomial, c in whole if not monomial]
    text = ""
    for c, body, loose in parts:
        size = abs(c)
        body = str(size) if not body else body if size == 1 else f"{size}*({body})" if loose else f"{size}*{body}"
        text = (f"-{body}" if c < 0 else body) if not text else f"{text} {'-' if c < 0 else '+'} {body}"
    return text or "0"


def _monomial(monomial: tuple[Atom, ...]) -> tuple[str, bool]:
    """The text of a product, and whether a factor before it needs parentheses around it."""
    if len(monomial) == 1 and isinstance(monomial[0], Floor):
        return f"{_factor(monomial[0].num)} // {_factor(monomial[0].den)}", True
    return "*".join(_factor(of(atom)) for atom in monomial), False


def _factor(expr: Expr) -> str:
    """The text of an operand of `*`, `//` or `%`."""
    if expr.constant is not None:
        return str(expr) if expr.constant >= 0 else f"({expr})"
    only = expr.terms[0] if len(expr.terms) == 1 and expr.terms[0][1] == 1 else None
    if only is None or len(only[0]) != 1 or isinstance(only[0][0], Floor):
        return f"({show(expr)})"
    match only[0][0]:
        case Sym(name):
            return name
        case Min(args):
            return f"min({', '.join(map(show, args))})"
        case Max(args):
            return f"max({', '.join(map(show, args))})"
        case Fn(name, args):
            return f"{name}({', '.join(map(show, args))})"
        case _:
            raise AssertionError(expr)
