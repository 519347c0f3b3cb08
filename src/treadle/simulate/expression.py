"""Index expressions as compiled Python functions of an environment: the simulator evaluates each many times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from treadle.algebra.expr import Atom, Constraint, Expr, Floor, Fn, Max, Min, Sym

Env = Mapping[str, Any]
Functions = Mapping[str, Callable[..., Any]]
Compiled = Callable[[Env, Functions], Any]

_compiled: dict[Expr, Compiled] = {}


def evaluate(expr: Expr, env: Env, functions: Functions) -> Any:
    """The value of `expr`: an integer, or an array where the environment has arrays. Errors: KeyError,
    ZeroDivisionError."""
    known = _compiled.get(expr)
    if known is None:
        if len(_compiled) > 100_000:
            _compiled.clear()
        known = _compiled[expr] = _compile(expr)
    if not expr.functions:
        return known(env, functions)
    value = known(env, {name: _exact(functions[name]) for name in expr.functions})
    if _is_exact(value):
        least, most = np.iinfo(np.int64).min, np.iinfo(np.int64).max
        return np.minimum(np.maximum(value, least), most).astype(np.int64)
    return value


def _is_exact(value: Any) -> bool:
    return not isinstance(value, int) and value.dtype.kind == "O"


def _exact(element: Callable[..., Any]) -> Callable[..., Any]:
    """Elements as Python's integers where arithmetic of 64 bits might not hold what comes of them."""

    def exact(*coords: Any) -> Any:
        value = element(*coords)
        if isinstance(value, int) or not value.size or max(-int(value.min()), int(value.max())) < _FAR:
            return value
        return value.astype(object)

    return exact


_FAR = 1 << 31


def holds(constraint: Constraint, env: Env, functions: Functions) -> Any:
    """Whether the constraint holds: a bool, or an array of them."""
    value = evaluate(constraint.expr, env, functions)
    return value == 0 if constraint.equality else value >= 0


def _compile(expr: Expr) -> Compiled:
    # The text is made from the expression's own atoms with every name as a string literal: nothing of a user's text
    # runs.
    source = f"lambda E, F: {_text(expr)}"
    return eval(source, {"least": _least, "greatest": _greatest, "quotient": _quotient, "__builtins__": {}})


def _text(expr: Expr) -> str:
    terms = ["*".join([str(c), *map(_atom, monomial)]) for monomial, c in expr.terms]
    return f"({'+'.join(terms) or '0'})"


def _atom(atom: Atom) -> str:
    match atom:
        case Sym(name):
            return f"E[{name!r}]"
        case Floor(num, den):
            return f"quotient({_text(num)}, {_text(den)})"
        case Min(args):
            return f"least({', '.join(map(_text, args))})"
        case Max(args):
            return f"greatest({', '.join(map(_text, args))})"
        case Fn(name, args):
            return f"F[{name!r}]({', '.join(map(_text, args))})"


def _quotient(num: Any, den: Any) -> Any:
    if isinstance(den, int):
        return num // den
    if bool(np.any(np.asarray(den) == 0)):
        raise ZeroDivisionError("an index expression divides by zero")
    return num // den


def _least(*values: Any) -> Any:
    return min(values) if all(isinstance(v, int) for v in values) else _over(np.minimum, values)


def _greatest(*values: Any) -> Any:
    return max(values) if all(isinstance(v, int) for v in values) else _over(np.maximum, values)


def _over(pick: Any, values: tuple[Any, ...]) -> Any:
    result = values[0]
    for value in values[1:]:
        result = pick(result, value)
    return result
