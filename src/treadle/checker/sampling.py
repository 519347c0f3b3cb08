"""Terms at one valuation: whether two that no rule equates really differ, so that a rejection can stand on a case.

Free inputs and elements without a pointwise definition get pseudo-random values by name and place; equal places have
equal values. Functions without a rule here are pseudo-random functions of their arguments.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping

from treadle.algebra.expr import Constraint, Expr
from treadle.checker.scopes import View
from treadle.checker.source import Source
from treadle.checker.terms import App, Cell, Elem, Idx, Num, Part, Term


class _Unknown(Exception):
    """A value that the valuation does not determine; never leaves this file."""


def differ(a: Term, b: Term, case: Mapping[str, int], source: Source, view: View) -> bool:
    """Whether the terms have different values at the valuation, for some inputs; False also where that is not known."""
    return any(_differ(a, b, _Valuation(case, source, view, seed)) for seed in range(4))


def _differ(a: Term, b: Term, at: _Valuation) -> bool:
    try:
        x, y = at.value(a), at.value(b)
    except (_Unknown, ArithmeticError, ValueError):
        return False
    if math.isnan(x) or math.isnan(y):
        return math.isnan(x) != math.isnan(y)
    return x != y and (math.isinf(x) or math.isinf(y) or abs(x - y) > 1e-9 * max(abs(x), abs(y)))


class _Valuation:
    """Sizes, variables and slots from `case`; inputs from `seed`."""

    def __init__(self, case: Mapping[str, int], source: Source, view: View, seed: int) -> None:
        self.case, self.source, self.view, self.seed = case, source, view, seed

    def random(self, *key: object) -> float:
        """Between 0.5 and 1.5, the same for the same key."""
        digest = hashlib.blake2b(repr((self.seed, key)).encode(), digest_size=7).digest()
        return 0.5 + int.from_bytes(digest, "big") / 2**56

    def int(self, e: Expr) -> int:
        """An index expression's value."""
        if e.functions:
            raise _Unknown
        return int(e.evaluate({s: self.case.get(s, 0) for s in e.symbols}))

    def place(self, term: Elem | Part | Cell) -> tuple[object, ...]:
        """Which element it is."""
        if isinstance(term, Cell):
            return (term.tensor, *map(self.int, term.index))
        return (term.value, *map(self.int, term.coords), *(self.int(e) for _, e in term.inst))

    def value(self, term: Term, depth: int = 0) -> float:
        """*Errors*: `_Unknown`."""
        match term:
            case Num(value, _):
                return float(value)
            case Idx(expr):
                return float(self.int(expr))
            case Cell():
                return self.random(*self.place(term))
            case Part():
                return self.random(*self.place(term), str(term.over))
            case Elem() if depth < 40:
                for conds, inner in self.source.unfold(term, self.view) or ():
                    if all(self.holds(c) for c in conds):
                        return self.value(inner, depth + 1)
                return self.random(*self.place(term))
            case App() if depth < 40:
                return self.application(term, depth)
            case _:
                raise _Unknown

    def application(self, term: App, depth: int) -> float:
        """A function of its arguments' values; of floats, a comparison is any function."""
        values = [self.value(a, depth + 1) for a in term.args]
        if term.fn in _COMPARE and all(isinstance(a, Idx | Num) for a in term.args):
            return 1.5 if _COMPARE[term.fn](*values) else 0.5
        if term.fn == "where":
            return values[1] if values[0] > 1 else values[2]
        if term.fn in _EXACT:
            return _EXACT[term.fn](values)
        if term.fn.startswith("cast"):
            return values[0] * (1 + 1e-3 * self.random(term.fn, term.dtype.name))
        return self.random(term.fn, term.dtype.name, *values)

    def holds(self, c: Constraint) -> bool:
        """Whether a condition holds."""
        value = self.int(c.expr)
        return value == 0 if c.equality else value >= 0


_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}
_EXACT: dict[str, Callable[[list[float]], float]] = {
    "add": lambda v: v[0] + v[1],
    "sub": lambda v: v[0] - v[1],
    "mul": lambda v: v[0] * v[1],
    "div": lambda v: v[0] / v[1],
    "neg": lambda v: -v[0],
    "abs": lambda v: abs(v[0]),
    "maximum": max,
    "minimum": min,
    "exp": lambda v: math.exp(v[0]),
    "sqrt": lambda v: math.sqrt(v[0]),
}
