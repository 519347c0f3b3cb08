"""Other values for the fields of machine statements: numbers moved by one, masks dropped, words exchanged."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from treadle.algebra.expr import Constraint, Expr, Floor, Max, Min, as_expr, const, floordiv, maximum, minimum
from treadle.machine.form import FragRef, Last, MemRef

T = TypeVar("T")


def other_values(name: str, value: Any) -> Iterator[tuple[str, str, Any]]:
    """Other values of a field, with the kind of mutant that each makes."""
    if name == "fill":
        yield from (("fill", f"{value} becomes {new}", new) for new in _other_fills(value))
    elif name in ("where", "conds"):
        yield from _masks(value)
    elif name in _WORDS:
        yield from (("word", f"{value} becomes {new}", new) for new in _WORDS[name](value))
    elif name == "args" and value and isinstance(value[0], tuple):
        for i, (arg, expr) in enumerate(value):
            for text, new in _exprs(expr):
                yield "number", f"{arg}: {text}", (*value[:i], (arg, new), *value[i + 1 :])
    else:
        yield from (("number", text, new) for text, new in other_numbers(value))


def other_numbers(value: Any) -> Iterator[tuple[str, Any]]:
    """Every number inside a value moved by one."""
    match value:
        case bool() | str() | None:
            return
        case int():
            yield "+1", value + 1
            yield "-1", value - 1
        case float():
            yield "+1", value + 1.0
        case Expr():
            yield from _exprs(value)
        case MemRef(_, index, version, rank):
            for text, new in other_numbers(index):
                yield text, replace(value, index=new)
            if rank is not None:
                yield f"its own {value.name}", replace(value, rank=None)
            if isinstance(rank, Expr):
                for text, new in _exprs(rank):
                    yield f"rank {text}", replace(value, rank=new)
            if version is not None:
                for text, new in _exprs(version):
                    yield f"version {text}", replace(value, version=new)
        case Last():
            yield from other_fields(value, ())
        case FragRef(_, coords):
            for text, new in other_numbers(coords):
                yield text, replace(value, coords=new)
        case tuple():
            parts = cast("tuple[Any, ...]", value)
            for i, part in enumerate(parts):
                for text, new in other_numbers(part):
                    yield f"{i}: {text}", (*parts[:i], new, *parts[i + 1 :])
        case _:
            return


def other_fields(value: T, skip: Sequence[str]) -> Iterator[tuple[str, T]]:
    """Numbers and flags in the fields of a declaration."""
    fields: Any = value
    for field in dataclasses.fields(fields):
        if field.name in skip:
            continue
        old: Any = getattr(value, field.name)
        if isinstance(old, bool):
            yield f"{field.name} becomes {not old}", replace(fields, **{field.name: not old})
        elif field.name == "dist":
            for i, mode in enumerate(old):
                other = replace(mode, stride=mode.stride + 1)
                yield f"stride of digit {i}: +1", replace(fields, dist=(*old[:i], other, *old[i + 1 :]))
        elif field.name == "swizzle":
            other_swizzle = 0 if old else 128
            yield f"swizzle becomes {other_swizzle}", replace(fields, swizzle=other_swizzle)
        else:
            for text, new in other_numbers(old):
                yield f"{field.name} {text}", replace(fields, **{field.name: new})


def offsets(expr: Expr) -> Iterator[tuple[str, Expr]]:
    """The expression one more and one less, each with its text."""
    yield f"{expr} + 1", expr + 1
    yield f"{expr} - 1", expr - 1


def _exprs(expr: Expr) -> Iterator[tuple[str, Expr]]:
    """The expression moved by one, each coefficient moved by one, each number inside a floor, min or max."""
    yield from offsets(expr)
    for monomial, _ in expr.terms:
        if monomial:
            term = Expr(((monomial, 1),))
            yield f"{expr}: one more {term}", expr + term
            yield f"{expr}: one less {term}", expr - term
    for atom in dict.fromkeys(a for m, _ in expr.terms for a in m):
        for text, new in _atoms(atom):
            changed = expr.rewrite(lambda a, old=atom, new=new: new if a == old else None)
            if changed != expr:
                yield text, changed


def _atoms(atom: Any) -> Iterator[tuple[str, Expr]]:
    match atom:
        case Floor(num, den):
            for text, new in offsets(num):
                yield text, floordiv(new, den)
            number = den.constant
            if number is not None:
                for other in (number - 1, number + 1):
                    if other >= 1:
                        yield f"({num}) // {other}", floordiv(num, const(other))
        case Min(args) | Max(args):
            build = minimum if isinstance(atom, Min) else maximum
            for i, arg in enumerate(args):
                for text, new in offsets(arg):
                    yield text, as_expr(build(*args[:i], new, *args[i + 1 :]))
                if len(args) > 1:
                    yield f"{arg} left out of {atom}", as_expr(build(*args[:i], *args[i + 1 :]))
            other = maximum if isinstance(atom, Min) else minimum
            yield f"{atom} the other way", as_expr(other(*args))
        case _:
            return


def _masks(facts: tuple[Constraint, ...]) -> Iterator[tuple[str, str, tuple[Constraint, ...]]]:
    for i, fact in enumerate(facts):
        rest = (facts[:i], facts[i + 1 :])
        yield "mask", f"{fact} dropped", rest[0] + rest[1]
        for step in (1, -1):
            moved = Constraint(fact.expr + step, fact.equality)
            yield "mask", f"{fact} moved by {step}", (*rest[0], moved, *rest[1])


def _other_fills(fill: Any) -> list[Any]:
    if fill == "undef":
        return [0.0]
    if isinstance(fill, bool):
        return [not fill]
    if isinstance(fill, int):
        return ["undef", fill + 1]
    return [
        "undef",
        1.0 if fill != 1.0 else 2.0,
        float("nan"),
        *([0.0] if fill in (float("inf"), float("-inf")) else []),
    ]


_MONOIDS = {"add": ["max", "mul"], "mul": ["add"], "max": ["min", "add"], "min": ["max"], "and": ["or"], "or": ["and"]}
_FUNCTIONS = {
    "add": ["sub"],
    "sub": ["add"],
    "mul": ["div"],
    "div": ["mul"],
    "maximum": ["minimum"],
    "minimum": ["maximum"],
    "exp": ["exp2"],
    "exp2": ["exp"],
    "lt": ["le"],
    "le": ["lt"],
    "gt": ["ge"],
    "ge": ["gt"],
    "and": ["or"],
    "or": ["and"],
}
_POOLS = {
    "grid": ["persistent"],
    "persistent": ["grid", "tickets"],
    "tickets": ["persistent", "grid"],
    "clusters": ["persistent"],
    "threads": ["warps"],
    "warps": ["threads"],
}
_KINDS = {
    "barrier.sync": ["barrier.arrive"],
    "barrier.arrive": ["barrier.sync"],
    "cluster.arrive": ["cluster.wait"],
    "counter.add": ["fence.gpu"],
    "cluster.wait": ["cluster.arrive"],
    "grid.sync": ["cluster.wait"],
    "grid.wait": ["grid.release"],
    "grid.release": ["grid.wait"],
}


def _rasters(raster: tuple[str | int, ...]) -> list[tuple[str | int, ...]]:
    if raster[0] in ("group", "slow"):
        return [("row", *raster[2:]), (raster[0], int(raster[1]) + 1, *raster[2:])]
    return [("group", 2, *raster[1:])]


def _others(table: Mapping[str, list[str]]) -> Callable[[Any], list[Any]]:
    return lambda word: list(table.get(word, []))


def _among(*words: str) -> Callable[[Any], list[Any]]:
    return lambda word: [w for w in words if w != word]


_WORDS: dict[str, Callable[[Any], list[Any]]] = {
    "monoid": _others(_MONOIDS),
    "fn": _others(_FUNCTIONS),
    "by": _among("", "warp", "elect"),
    "effect": _among("set", "add"),
    "nan": _among("propagate", "ignore"),
    "over": _others(_POOLS),
    "raster": _rasters,
    "kind": _others(_KINDS),
}
