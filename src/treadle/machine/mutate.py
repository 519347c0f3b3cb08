"""Mutants of a machine program: lines deleted, swapped, doubled, every number moved by one, words exchanged.

Each mutant says what was changed and at which line of the original's printed text. The checker must reject it, or
accept it and it must be right under the simulator. Witness clauses are left as they are (they then lie), or dropped
everywhere with `without_claims`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from treadle.algebra.expr import Constraint, Expr, Floor, Max, Min, as_expr, const, floordiv, maximum, minimum, sym
from treadle.ir.guard import Guard
from treadle.machine.form import (
    Advance,
    Body,
    Claim,
    Control,
    Copy,
    Fold,
    FragRef,
    If,
    Kernel,
    Let,
    Loop,
    MachineProgram,
    MemRef,
    Mma,
    Role,
    Stmt,
    Store,
    Sync,
    Tasks,
    Version,
)
from treadle.machine.text import statement_lines

Item = Stmt | Control
T = TypeVar("T")


@dataclass(frozen=True)
class Mutant:
    """`kind` groups mutants for tables: delete, swap, double, permute, number, mask, fill, word, role, resource,
    host, guard."""

    kind: str
    line: int
    description: str
    program: MachineProgram

    def __str__(self) -> str:
        return f"line {self.line}: {self.kind}: {self.description}"


def mutants(program: MachineProgram, *, claims: bool = True) -> Iterator[Mutant]:
    """All mutants, in order of lines within each part. Without `claims`, none of them carries a witness clause."""
    lines = statement_lines(program)
    for kind, line, text, changed in _all(program, lines):
        if program.target.startswith("cpu") and text.startswith("by: "):
            continue  # one thread an agent: every grain is the same
        yield Mutant(kind, line, text, changed if claims else without_claims(changed))


def without_claims(program: MachineProgram) -> MachineProgram:
    """The program without witness clauses, invariants and versions: what is executed stays the same."""

    def strip(body: Body) -> Body:
        kept: Body = []
        for item in body:
            match item:
                case Version():
                    continue
                case Loop():
                    kept.append(replace(item, invariants=(), enters=(), body=strip(item.body)))
                case Tasks():
                    kept.append(replace(item, enters=(), body=strip(item.body)))
                case If():
                    kept.append(replace(item, then=strip(item.then), orelse=strip(item.orelse)))
                case Stmt():
                    kept.append(replace(item, claim=None))
                case _:
                    kept.append(item)
        return kept

    kernels = [replace(k, roles=[replace(r, body=strip(r.body)) for r in k.roles]) for k in program.kernels]
    return replace(program, kernels=kernels)


Change = tuple[str, int, str, MachineProgram]


def _all(program: MachineProgram, lines: Mapping[int, int]) -> Iterator[Change]:
    yield from _guard(program, lines)
    yield from _host(program, lines)
    for at, kernel in enumerate(program.kernels):

        def put(changed: Kernel, at: int = at) -> MachineProgram:
            return replace(program, kernels=[*program.kernels[:at], changed, *program.kernels[at + 1 :]])

        for kind, line, text, changed in _kernel(kernel, lines):
            yield kind, line, text, put(changed)


# ---- guard and host


def _guard(program: MachineProgram, lines: Mapping[int, int]) -> Iterator[Change]:
    facts = program.guard.facts
    for i, fact in enumerate(facts):
        rest = replace(program, guard=Guard(facts[:i] + facts[i + 1 :]))
        yield "guard", lines.get(id(fact), 0), f"fact {fact} dropped", rest


def _host(program: MachineProgram, lines: Mapping[int, int]) -> Iterator[Change]:
    host = program.host

    def put(**changes: Any) -> MachineProgram:
        return replace(program, host=replace(host, **changes))

    first = lines.get(id(host.lets), 0)
    for i, (name, expr) in enumerate(host.lets.items()):
        for text, new in _offsets(expr):
            yield "host", first + i, f"let {name}: {text}", put(lets={**host.lets, name: new})
    for field in ("workspace", "maps", "launches"):
        items: list[Any] = getattr(host, field)
        for i, item in enumerate(items):
            for text, new in _fields(item, skip=("name", "tensor", "kernel", "place", "dtype", "promotion")):
                changed = [*items[:i], new, *items[i + 1 :]]
                yield "host", lines.get(id(item), 0), text, put(**{field: changed})
        for i, item in enumerate(items):
            yield "host", lines.get(id(item), 0), f"{field} entry dropped", put(**{field: items[:i] + items[i + 1 :]})


# ---- kernels and roles


def _kernel(kernel: Kernel, lines: Mapping[int, int]) -> Iterator[tuple[str, int, str, Kernel]]:
    for field in ("buffers", "frags", "barriers"):
        items: list[Any] = getattr(kernel, field)
        for i, item in enumerate(items):
            for text, new in _fields(item, skip=("name", "place", "dtype")):
                changed = [*items[:i], new, *items[i + 1 :]]
                yield "resource", lines.get(id(item), 0), f"{item.name}: {text}", replace(kernel, **{field: changed})
    roles = kernel.roles
    for i, role in enumerate(roles):

        def put(changed: Role, i: int = i) -> Kernel:
            return replace(kernel, roles=[*roles[:i], changed, *roles[i + 1 :]])

        for text, new in _fields(role, skip=("name", "body", "index", "counters")):
            yield "role", lines.get(id(role), 0), text, put(new)
        for j in range(i + 1, len(roles)):
            swapped = list(roles)
            swapped[i] = replace(roles[i], body=roles[j].body)
            swapped[j] = replace(roles[j], body=roles[i].body)
            text = f"the bodies of {roles[i].name} and {roles[j].name} exchanged"
            yield "role", lines.get(id(role), 0), text, replace(kernel, roles=swapped)
        for kind, line, text, body in _body(role.body, lines):
            yield kind, line, text, put(replace(role, body=body))


def _body(body: Body, lines: Mapping[int, int]) -> Iterator[tuple[str, int, str, Body]]:
    """Mutants of the statements of a body, and of the bodies inside."""
    for i, item in enumerate(body):
        line = lines.get(id(item), 0)
        if not isinstance(item, Version):
            yield "delete", line, "deleted", body[:i] + body[i + 1 :]
        if isinstance(item, Fold | Mma | Store | Copy | Sync | Advance):
            yield "double", line, "executed twice", [*body[: i + 1], replace(item), *body[i + 1 :]]
        if i + 1 < len(body) and not isinstance(item, Version) and not isinstance(body[i + 1], Version):
            changed = [*body[:i], body[i + 1], item, *body[i + 2 :]]
            yield "swap", line, f"exchanged with line {lines.get(id(body[i + 1]), 0)}", changed
        for kind, text, new in _item(item):
            yield kind, line, text, [*body[:i], *new, *body[i + 1 :]]
        for name in ("body", "then", "orelse"):
            inner = getattr(item, name, None)
            if inner:
                for kind, inner_line, text, changed in _body(inner, lines):
                    yield kind, inner_line, text, [*body[:i], replace(item, **{name: changed}), *body[i + 1 :]]


def _item(item: Item) -> Iterator[tuple[str, str, list[Item]]]:
    """Mutants of one statement or of the head of a control."""
    if isinstance(item, If):
        yield "mask", "condition taken as true", list(item.then)
        yield "mask", "condition taken as false", list(item.orelse)
    if isinstance(item, Version):
        return
    if isinstance(item, Loop):
        yield "permute", "iterations in reverse order", [_backwards(item)]
    for field in dataclasses.fields(item):
        name = field.name
        if name in _UNTOUCHED or (name == "fill" and not getattr(item, "where", ())):
            continue
        value: Any = getattr(item, name)
        for kind, text, new in _values(name, value):
            yield kind, f"{name}: {text}" if text else name, [replace(item, **{name: new})]


def _backwards(loop: Loop) -> Loop:
    """The loop with its iterations reversed: a new variable runs forward, the old one is named from it."""
    forward = f"{loop.var}_forward"
    last = loop.lo + (loop.hi - loop.lo - 1) // loop.step * loop.step
    old = last - (sym(forward) - loop.lo)
    enters = tuple(
        replace(e, binds=tuple((n, tuple(b.substitute({loop.var: old}) for b in bounds)) for n, bounds in e.binds))
        for e in loop.enters
    )
    invariants = tuple(replace(i, claim=_substituted(i.claim, {loop.var: old})) for i in loop.invariants)
    body: Body = [Let(name=loop.var, expr=old), *loop.body]
    return replace(loop, var=forward, enters=enters, invariants=invariants, body=body)


def _substituted(claim: Claim, env: Mapping[str, Expr]) -> Claim:
    return replace(
        claim,
        coords=tuple(c.substitute(env) for c in claim.coords),
        where=tuple(f.substitute(env) for f in claim.where),
        over=None if claim.over is None else tuple(f.substitute(env) for f in claim.over),
        instance=tuple((n, e.substitute(env)) for n, e in claim.instance),
    )


_UNTOUCHED = frozenset(
    ("claim", "origin", "tags", "enters", "invariants", "body", "then", "orelse", "unroll", "source", "var", "vars")
)
"""Fields that are evidence, names, hints or bodies."""


# ---- values of fields


def _values(name: str, value: Any) -> Iterator[tuple[str, str, Any]]:
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
        yield from (("number", text, new) for text, new in _numbers(value))


def _numbers(value: Any) -> Iterator[tuple[str, Any]]:
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
        case MemRef(_, index, version):
            for text, new in _numbers(index):
                yield text, replace(value, index=new)
            if version is not None:
                for text, new in _exprs(version):
                    yield f"version {text}", replace(value, version=new)
        case FragRef(_, coords):
            for text, new in _numbers(coords):
                yield text, replace(value, coords=new)
        case tuple():
            parts = cast("tuple[Any, ...]", value)
            for i, part in enumerate(parts):
                for text, new in _numbers(part):
                    yield f"{i}: {text}", (*parts[:i], new, *parts[i + 1 :])
        case _:
            return


def _fields(value: T, skip: Sequence[str]) -> Iterator[tuple[str, T]]:
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
            for text, new in _numbers(old):
                yield f"{field.name} {text}", replace(fields, **{field.name: new})


def _offsets(expr: Expr) -> Iterator[tuple[str, Expr]]:
    yield f"{expr} + 1", expr + 1
    yield f"{expr} - 1", expr - 1


def _exprs(expr: Expr) -> Iterator[tuple[str, Expr]]:
    """The expression moved by one, each coefficient moved by one, each number inside a floor, min or max."""
    yield from _offsets(expr)
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
            for text, new in _offsets(num):
                yield text, floordiv(new, den)
            number = den.constant
            if number is not None:
                for other in (number - 1, number + 1):
                    if other >= 1:
                        yield f"({num}) // {other}", floordiv(num, const(other))
        case Min(args) | Max(args):
            build = minimum if isinstance(atom, Min) else maximum
            for i, arg in enumerate(args):
                for text, new in _offsets(arg):
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
_POOLS = {"grid": ["persistent"], "persistent": ["grid"], "threads": ["warps"], "warps": ["threads"]}
_KINDS = {"barrier.sync": ["barrier.arrive"], "barrier.arrive": ["barrier.sync"]}


def _rasters(raster: tuple[str | int, ...]) -> list[tuple[str | int, ...]]:
    if raster[0] == "group":
        return [("row", *raster[2:]), ("group", int(raster[1]) + 1, *raster[2:])]
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
