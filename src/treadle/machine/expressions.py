"""Index expressions and conjunctions inside a line of machine text.

Expressions themselves are `algebra.expr_text`'s; here are the tokens of a machine line, whose errors are
`machine/syntax`, and chains of comparisons: `n0 <= k < n0 + 64, 0 <= m`.
"""

from __future__ import annotations

from treadle.algebra.expr import Atom, Constraint, Expr, Floor, Fn, Max, Min, Sym, eq, ge, gt, le, lt, of
from treadle.algebra.expr_text import SIGILS, read_expr
from treadle.base.text import SyntaxMistake, Tokens

__all__ = ["MachineSyntax", "MachineTokens", "read_constraints", "read_expr", "show"]


class MachineSyntax(SyntaxMistake):
    """Machine text that does not read."""

    code = "machine/syntax"


class MachineTokens(Tokens):
    """The tokens of one line of machine text; its errors are `machine/syntax`."""

    def __init__(self, text: str, file: str, line: int, col: int = 0) -> None:
        super().__init__(text, file, line, col, sigils=SIGILS, doing="reading machine text")

    def error(self, expected: str, *, found: str | None = None, hint: str | None = None) -> MachineSyntax:
        plain = super().error(expected, found=found, hint=hint)
        return MachineSyntax(
            doing=plain.doing,
            found=f"{plain.found} in line {self.peek().span.line}",
            expected=plain.expected,
            hint=hint or "compare the line with docs/machine_format.md, or print the program again",
            span=plain.span,
        )


_RELATIONS = {"<=": le, "<": lt, ">=": ge, ">": gt, "==": eq}


def read_constraints(tokens: Tokens) -> tuple[Constraint, ...]:
    """A conjunction: chains of comparisons separated by commas."""
    facts: list[Constraint] = []
    while True:
        facts.extend(_chain(tokens))
        if not tokens.accept(","):
            return tuple(facts)


def _chain(tokens: Tokens) -> list[Constraint]:
    facts: list[Constraint] = []
    left = read_expr(tokens)
    while tokens.peek().kind == "punct" and tokens.peek().text in _RELATIONS:
        relation = _RELATIONS[tokens.next().text]
        right = read_expr(tokens)
        facts.append(relation(left, right))
        left = right
    if not facts:
        raise tokens.error("a comparison: <=, <, >=, > or ==")
    return facts


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
