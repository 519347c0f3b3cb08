"""Reading index expressions and conjunctions inside a line of machine text.

Expressions themselves are `algebra.expr_text`'s; here are the tokens of a machine line, whose errors are
`machine/syntax`, and chains of comparisons: `n0 <= k < n0 + 64, 0 <= m`.
"""

from __future__ import annotations

from treadle.algebra.expr import Constraint, eq, ge, gt, le, lt
from treadle.algebra.expr_text import SIGILS, read_expr
from treadle.base.text import SyntaxMistake, Tokens

__all__ = ["MachineSyntax", "MachineTokens", "read_constraints", "read_expr"]


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
