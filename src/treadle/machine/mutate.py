"""Mutants of a machine program: lines deleted, swapped, doubled, every number moved by one, words exchanged.

Each mutant says what was changed and at which line of the original's printed text. The checker must reject it, or
accept it and it must be right under the simulator. Witness clauses are left as they are (they then lie), or dropped
everywhere with `without_claims`; mutants of kind "claim" and "ledger" drop one witness or one line of the ledger and
change nothing that is executed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from treadle.algebra.expr import Expr, sym
from treadle.ir.guard import Guard
from treadle.machine.form import (
    Advance,
    Body,
    Claim,
    Control,
    Copy,
    Fold,
    If,
    Kernel,
    Let,
    Loop,
    MachineProgram,
    Mma,
    Role,
    Stmt,
    Store,
    Sync,
    Tasks,
    Version,
)
from treadle.machine.perturb import offsets, other_fields, other_values
from treadle.machine.text import statement_lines

Item = Stmt | Control


@dataclass(frozen=True)
class Mutant:
    """`kind` groups mutants for tables: delete, swap, double, permute, number, mask, fill, word, role, resource,
    host, guard, claim, ledger."""

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
    for i, entry in enumerate(program.numerics):
        rest = program.numerics[:i] + program.numerics[i + 1 :]
        yield "ledger", 3 + i, f"{entry} dropped", replace(program, numerics=rest)
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
        for text, new in offsets(expr):
            yield "host", first + i, f"let {name}: {text}", put(lets={**host.lets, name: new})
    for field in ("workspace", "maps", "counters", "launches"):
        items: list[Any] = getattr(host, field)
        for i, item in enumerate(items):
            for text, new in other_fields(item, skip=("name", "tensor", "kernel", "place", "dtype", "promotion")):
                changed = [*items[:i], new, *items[i + 1 :]]
                yield "host", lines.get(id(item), 0), text, put(**{field: changed})
        for i, item in enumerate(items):
            yield "host", lines.get(id(item), 0), f"{field} entry dropped", put(**{field: items[:i] + items[i + 1 :]})


# ---- kernels and roles


def _kernel(kernel: Kernel, lines: Mapping[int, int]) -> Iterator[tuple[str, int, str, Kernel]]:
    for field in ("buffers", "frags", "barriers"):
        items: list[Any] = getattr(kernel, field)
        for i, item in enumerate(items):
            for text, new in other_fields(item, skip=("name", "place", "dtype")):
                changed = [*items[:i], new, *items[i + 1 :]]
                yield "resource", lines.get(id(item), 0), f"{item.name}: {text}", replace(kernel, **{field: changed})
    roles = kernel.roles
    for i, role in enumerate(roles):

        def put(changed: Role, i: int = i) -> Kernel:
            return replace(kernel, roles=[*roles[:i], changed, *roles[i + 1 :]])

        for text, new in other_fields(role, skip=("name", "body", "index", "counters")):
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
        kind = "claim" if isinstance(item, Version) else "delete"
        yield kind, line, "deleted", body[:i] + body[i + 1 :]
        for text, new in _unwitnessed(item):
            yield "claim", line, text, [*body[:i], new, *body[i + 1 :]]
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


def _unwitnessed(item: Item) -> Iterator[tuple[str, Item]]:
    """The item without one of its witness clauses."""
    if isinstance(item, Stmt) and not isinstance(item, Version) and item.claim is not None:
        yield "claim dropped", replace(item, claim=None)
    if isinstance(item, Loop):
        for i, invariant in enumerate(item.invariants):
            rest = item.invariants[:i] + item.invariants[i + 1 :]
            yield f"invariant of {invariant.holder} dropped", replace(item, invariants=rest)
    if isinstance(item, Loop | Tasks):
        for i, enter in enumerate(item.enters):
            yield f"enters {enter.region} dropped", replace(item, enters=item.enters[:i] + item.enters[i + 1 :])


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
        for kind, text, new in other_values(name, value):
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
    invariants = tuple(
        replace(
            i,
            claim=_substituted(i.claim, {loop.var: old}),
            within=tuple(c.substitute({loop.var: old}) for c in i.within),
        )
        for i in loop.invariants
    )
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
