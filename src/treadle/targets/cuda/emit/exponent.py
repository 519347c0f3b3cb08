"""Approximate exponentials with the multiply-add that makes their argument.

The hardware has 2^t. Of `exp(a c - m)` with a number c, the factor log2 e goes into c and, once for each different m,
into m: one multiply-add and one instruction an element, where the argument in full would take two more. That rounds
otherwise than the argument by itself, by about (|a c| + |m|) 2^-23 of the result, which accuracy class `fast` grants.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from treadle.dtype.formats import f32
from treadle.machine.form import Body, Compute, Control, Frag, FragRef, Stmt, nested, walk
from treadle.targets.cuda.emit.mentions import fragments_named

LOG2_E = 1.4426950408889634


@dataclass(frozen=True)
class Scaled:
    """An exponential and the statement that makes its argument: `factor * number +- term`."""

    factor: FragRef
    number: float
    term: FragRef
    minus: bool


def absorbed(
    body: Body, frags: dict[str, Frag], approximate: Callable[[Compute], bool]
) -> tuple[dict[int, Scaled], frozenset[int]]:
    """By `id` of an exponential's statement, what it is an exponential of; `id`s of the statements that this replaces.

    Only arguments that nothing else reads, made in the same body, of operands that nothing changes in between.
    """
    mentions: dict[str, int] = {}
    for stmt in walk(body):
        if isinstance(stmt, Stmt):
            for name in fragments_named(stmt):
                mentions[name] = mentions.get(name, 0) + 1
    found: dict[int, Scaled] = {}
    gone: set[int] = set()
    for block in nested(body):
        for last, stmt in enumerate(block):
            if not isinstance(stmt, Compute) or not _plain(stmt, frags) or stmt.fn != "exp" or not approximate(stmt):
                continue
            arg = stmt.args[0]
            if not isinstance(arg, FragRef) or arg.coords is not None or mentions.get(arg.name) != 2:
                continue
            first = next((i for i, s in enumerate(block[:last]) if getattr(s, "dst", None) == arg.name), None)
            made = None if first is None else block[first]
            if first is None or not isinstance(made, Compute) or not _alike(frags[arg.name], frags[stmt.dst]):
                continue
            scaled = _argument(made, frags)
            if scaled is not None and not _changed(block[first + 1 : last], {scaled.factor.name, scaled.term.name}):
                found[id(stmt)] = scaled
                gone.add(id(made))
    return found, frozenset(gone)


def _plain(stmt: Compute, frags: dict[str, Frag]) -> bool:
    return not stmt.where and stmt.dst in frags and frags[stmt.dst].dtype == f32


def _alike(a: Frag, b: Frag) -> bool:
    return (a.shape, a.dist, a.dtype) == (b.shape, b.dist, b.dtype)


def _argument(stmt: Compute, frags: dict[str, Frag]) -> Scaled | None:
    if stmt.fn not in ("fma", "fms") or not _plain(stmt, frags):
        return None
    a, b, term = stmt.args
    factor, number = (a, b) if isinstance(a, FragRef) else (b, a)
    if not isinstance(factor, FragRef) or not isinstance(number, int | float) or not isinstance(term, FragRef):
        return None
    if any(r.name not in frags or frags[r.name].dtype != f32 for r in (factor, term)):
        return None
    scaled = float(np.float32(float(number) * LOG2_E))
    return Scaled(factor, scaled, term, stmt.fn == "fms") if np.isfinite(scaled) else None


def _changed(block: list[Stmt | Control], names: set[str]) -> bool:
    return any(getattr(s, "dst", None) in names for s in walk(block))
