"""Searches for places: skipped where nothing is found, right wherever something is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.targets.cpu_emit.kit import HOST_LEVELS, Compiled, S, program

from treadle.algebra.expr import const, lt, sym
from treadle.dtype.formats import bool_, f32, i64
from treadle.ir.guard import Unit
from treadle.machine.form import Body, Compute, Fold, Frag, FragRef, If, Load, Loop, MemRef, Store
from treadle.targets.cpu.emit.searches import searches

NONE = i64.finite_max
LANES = 24  # a whole vector and a part of one


def frags() -> list[Frag]:
    shapes = {"x": f32, "hit": bool_, "at": i64, "sel": i64, "kept": i64, "acc": i64}
    return [Frag(name, dtype, (LANES,)) for name, dtype in shapes.items()] + [Frag("low", i64, ())]


def body(other: float | int = NONE, monoid: str = "min", extra: tuple[Any, ...] = ()) -> Body:
    """The first place of a number greater than 1."""
    i, inside = sym("i"), (lt(sym("i") + S[0], sym("N")),)
    step: list[Any] = [
        Load(dst="x", src=MemRef("X", (i + S[0],)), where=inside, fill=0.0),
        Compute(dst="hit", fn="gt", args=(FragRef("x"), 1.0)),
        Compute(dst="at", fn="index", expr=i + S[0]),
        Compute(dst="sel", fn="where", args=(FragRef("hit"), FragRef("at"), other)),
        Compute(dst="kept", fn="copy", args=(FragRef("sel"),), where=inside, fill=other),
        Fold(dst="acc", monoid=monoid, src=FragRef("kept"), acc=FragRef("acc")),
        *extra,
    ]
    return [
        Compute(dst="acc", fn="copy", args=(NONE,)),
        Loop(var="i", lo=const(0), hi=sym("N"), step=const(LANES), body=step),
        Fold(dst="low", monoid="min", src=FragRef("acc"), axes=(0,)),
        Store(dst=MemRef("Y", (const(0),)), src=FragRef("low")),
    ]


@pytest.mark.parametrize("level", HOST_LEVELS)
def test_the_first_place_wherever_it_is(level: str) -> None:
    tensors = [("X", f32, ["N"]), ("Y", i64, [1])]
    run = Compiled(program(tensors, body(), frags(), level=level, facts=[Unit("X", 0)]))
    y = np.zeros(1, np.int64)
    for n in (0, 1, 23, 24, 25, 72, 100):
        for places in ([], *[[p, n - 1] for p in range(n)], list(range(n))):
            x = np.full(n, np.nan, np.float32)
            x[places] = 2
            run(X=x, Y=y)
            assert y[0] == (places[0] if places else NONE), (n, places)


def found(made: Body) -> list[int]:
    return sorted(searches(made, {f.name: f for f in frags()}).values())


def test_only_what_changes_nothing_is_skipped() -> None:
    assert found(body()) == [2]
    assert found([If(then=body(), orelse=[])]) == [2]
    assert found(body(other=7)) == [], "folding 7 changes a minimum"
    assert found(body(monoid="max")) == [], "the greatest number is no identity of a maximum"
    read = Compute(dst="hit", fn="lt", args=(FragRef("kept"), 3))
    assert found(body(extra=(read,))) == [], "the selection has another reader"
