"""Wrong twins: a right machine program changed at one statement."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from treadle.machine import form as f

Change = Callable[[f.MachineProgram], None]


def bodies(body: f.Body) -> Iterator[f.Body]:
    yield body
    for stmt in body:
        if isinstance(stmt, f.Loop | f.Tasks):
            yield from bodies(stmt.body)
        elif isinstance(stmt, f.If):
            yield from bodies(stmt.then)
            yield from bodies(stmt.orelse)


def all_bodies(program: f.MachineProgram) -> Iterator[f.Body]:
    for kernel in program.kernels:
        for role in kernel.roles:
            yield from bodies(role.body)


def find(program: f.MachineProgram, kind: type[Any], name: str) -> Any:
    """The statement of that kind whose destination, source (a store to memory), variable, buffer or kind is `name`."""

    def named(s: Any) -> bool:
        dst = getattr(s, "dst", None)
        names = {
            getattr(s, "var", None),
            getattr(s, "buffer", None),
            getattr(s, "kind", None),
            getattr(s, "name", None),
        }
        names |= {dst.name if isinstance(dst, f.MemRef) else dst, *(getattr(s, "vars", ()) or ())}
        return name in names

    return next(s for s in program.statements() if type(s) is kind and named(s))


def change(kind: type[Any], name: str, nth: int = 0, **fields: Any) -> Change:
    """Fields of a statement replaced; a callable gets the old value."""

    def apply(program: f.MachineProgram) -> None:
        stmt = find_nth(program, kind, name, nth)
        for key, value in fields.items():
            old = getattr(stmt, key)
            setattr(stmt, key, value(old) if callable(value) else value)

    return apply


def find_nth(program: f.MachineProgram, kind: type[Any], name: str, nth: int) -> Any:
    found = []
    for s in program.statements():
        probe = f.MachineProgram(program.target, program.program, program.guard, f.Host(), [])
        probe.kernels = [f.Kernel("k", [f.Role("r", 1, 1, [shallow(s)])])]
        try:
            find(probe, kind, name)
        except StopIteration:
            continue
        found.append(s)
    return found[nth]


def shallow(stmt: Any) -> Any:
    """The statement without what is inside it."""
    if isinstance(stmt, f.Loop | f.Tasks):
        return dataclasses.replace(stmt, body=[])
    if isinstance(stmt, f.If):
        return dataclasses.replace(stmt, then=[], orelse=[])
    return stmt


def delete(kind: type[Any], name: str, nth: int = 0) -> Change:
    def apply(program: f.MachineProgram) -> None:
        stmt = find_nth(program, kind, name, nth)
        for body in all_bodies(program):
            body[:] = [s for s in body if s is not stmt]

    return apply


def repeat(kind: type[Any], name: str, nth: int = 0) -> Change:
    def apply(program: f.MachineProgram) -> None:
        stmt = find_nth(program, kind, name, nth)
        for body in all_bodies(program):
            for i, s in enumerate(body):
                if s is stmt:
                    body.insert(i, copy.deepcopy(stmt))
                    return

    return apply


def swap(kind: type[Any], name: str, nth: int = 0) -> Change:
    """The statement and the one after it change places."""

    def apply(program: f.MachineProgram) -> None:
        stmt = find_nth(program, kind, name, nth)
        for body in all_bodies(program):
            for i, s in enumerate(body):
                if s is stmt:
                    body[i], body[i + 1] = body[i + 1], body[i]
                    return

    return apply


def claims(**fields: Any) -> Callable[[Any], Any]:
    """A claim with fields changed."""
    return lambda old: dataclasses.replace(
        old, **{k: v(getattr(old, k)) if callable(v) else v for k, v in fields.items()}
    )
