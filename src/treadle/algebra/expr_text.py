"""Reading index expressions and constraints back from the text that `Expr.__str__` and `Constraint.__str__` print.

The grammar, loosest first: `+ -`, `* // %`, unary minus, atoms: integers, names, `min(...)`, `max(...)`, functions
`name(...)`, parentheses. Names may begin with `%`, `$` or `@` and may have dots; the modulo sign needs a space behind
it, as printing leaves one.
"""

from __future__ import annotations

from treadle.algebra.expr import Constraint, Expr, Fn, const, eq, floordiv, ge, gt, le, lt, maximum, minimum, of, sym
from treadle.base.text import Tokens

SIGILS = "%$@"


def parse_expr(text: str) -> Expr:
    """The expression that `text` says.

    *Ensures*: `parse_expr(str(e)) == e`.

    *Errors*: `text/syntax`.
    """
    tokens = expr_tokens(text)
    result = read_expr(tokens)
    tokens.end()
    return result


def parse_constraint(text: str) -> Constraint:
    """The constraint that `text` says; `>=`, `<=`, `>`, `<` and `==` are read. *Ensures*: inverse of `str`.

    *Errors*: `text/syntax`.
    """
    tokens = expr_tokens(text)
    result = read_constraint(tokens)
    tokens.end()
    return result


def expr_tokens(text: str) -> Tokens:
    """`text` as tokens in which `%x`, `$0` and `m.start` are names."""
    return Tokens(text, sigils=SIGILS, dotted=True, doing="reading an index expression")


def read_constraint(tokens: Tokens) -> Constraint:
    """A constraint from the front of `tokens`."""
    left = read_expr(tokens)
    for sign, make in (("==", eq), (">=", ge), ("<=", le), (">", gt), ("<", lt)):
        if tokens.accept(sign):
            return make(left, read_expr(tokens))
    raise tokens.error("one of ==, >=, <=, >, <")


def read_expr(tokens: Tokens) -> Expr:
    """An expression from the front of `tokens`, which must have been split with `SIGILS`."""
    total = _product(tokens)
    while True:
        if tokens.accept("+"):
            total = total + _product(tokens)
        elif tokens.accept("-"):
            total = total - _product(tokens)
        else:
            return total


def _product(tokens: Tokens) -> Expr:
    result = _signed(tokens)
    while True:
        if tokens.accept("*"):
            result = result * _signed(tokens)
        elif tokens.at("//") or tokens.at("%"):
            whole = tokens.next().text == "//"
            den = _signed(tokens)
            number = den.constant
            if number is not None and number <= 0:
                raise tokens.error("a positive divisor", found=f"the divisor {number}")
            result = floordiv(result, den) if whole else result % den
        else:
            return result


def _signed(tokens: Tokens) -> Expr:
    if tokens.accept("-"):
        return -_signed(tokens)
    if tokens.accept("("):
        inner = read_expr(tokens)
        tokens.expect(")")
        return inner
    if tokens.peek().kind == "int":
        return const(tokens.integer())
    name = tokens.name("an index expression")
    if not tokens.accept("("):
        return sym(name)
    args: list[Expr] = []
    while not tokens.accept(")"):
        args.append(read_expr(tokens))
        if not tokens.at(")"):
            tokens.expect(",")
    if name in ("min", "max"):
        if not args:
            raise tokens.error(f"an argument of {name}")
        return minimum(*args) if name == "min" else maximum(*args)
    return of(Fn(name, tuple(args)))
