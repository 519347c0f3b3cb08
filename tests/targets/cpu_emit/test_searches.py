"""Searches for places: skipped where nothing is found, right wherever something is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.targets.cpu_emit.kit import HOST_LEVELS, Compiled, S, program

from treadle.algebra.expr import const, lt, sym
from treadle.dtype.formats import bool_, f32, i64
from treadle.ir.guard import Unit
from treadle.machine.form import Body, Compute, Fold, Frag, FragRef, If, Load, Loop, MemRef, Store, walk
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


def alike(late: bool = False) -> Body:
    """The first place of a number that is Z's, or NaN as that is; `late`: the number is read again after it was
    compared."""
    made = body()
    loop = made[1]
    assert isinstance(loop, Loop)
    wanted = Load(dst="z", src=MemRef("Z", (const(0),)))
    conditions: list[Any] = [
        Compute(dst="same", fn="eq", args=(FragRef("x"), FragRef("z", ()))),
        Compute(dst="none", fn="isnan", args=(FragRef("x"),)),
        Compute(dst="both", fn="and", args=(FragRef("none"), FragRef("known", ()))),
        Compute(dst="hit", fn="or", args=(FragRef("same"), FragRef("both"))),
    ]
    loop.body[1:2] = [*conditions, wanted] if late else conditions
    return [*([] if late else [wanted]), Compute(dst="known", fn="isnan", args=(FragRef("z"),)), *made]


MORE = [
    Frag("z", f32, ()),
    Frag("known", bool_, ()),
    *(Frag(n, bool_, (LANES,)) for n in ("same", "none", "both")),
]


@pytest.mark.parametrize("level", HOST_LEVELS)
def test_numbers_that_are_equal_or_both_nan(level: str) -> None:
    tensors = [("X", f32, ["N"]), ("Z", f32, [1]), ("Y", i64, [1])]
    run = Compiled(program(tensors, alike(), [*frags(), *MORE], level=level, facts=[Unit("X", 0)]))
    y = np.zeros(1, np.int64)
    for n in (1, 23, 25, 72):
        for wanted, others in ((2.0, 1.0), (2.0, np.nan), (np.nan, 1.0), (np.inf, np.nan), (np.nan, np.inf)):
            for place in (None, *range(n)):
                x = np.full(n, others, np.float32)
                if place is not None:
                    x[[place, n - 1]] = wanted
                run(X=x, Z=np.array([wanted], np.float32), Y=y)
                assert y[0] == (NONE if place is None else place), (n, wanted, others, place)


def test_the_short_comparison_is_of_numbers_as_they_were_compared() -> None:
    known = {f.name: f for f in (*frags(), *MORE)}
    assert [s.pair for s in searches(alike(), known).values()] == [(FragRef("x"), FragRef("z", ()))]
    assert [s.pair for s in searches(alike(late=True), known).values()] == [None]
    assert [s.pair for s in searches(body(), known).values()] == [None]
    # Other slots may be NaN than those that are compared.
    turned = (const(LANES - 1) - S[0],)
    for name, at in (("none", 0), ("both", 0), ("hit", 1), ("sel", 0)):
        made = alike()
        (stmt,) = (s for s in walk(made) if isinstance(s, Compute) and s.dst == name)
        read = stmt.args[at]
        assert isinstance(read, FragRef)
        stmt.args = tuple(replace(a, coords=turned) if a is read else a for a in stmt.args)
        assert [s.pair for s in searches(made, known).values()] == [None], name


def found(made: Body) -> list[int]:
    return sorted(s.size for s in searches(made, {f.name: f for f in frags()}).values())


def test_only_what_changes_nothing_is_skipped() -> None:
    assert found(body()) == [2]
    assert found([If(then=body(), orelse=[])]) == [2]
    assert found(body(other=7)) == [], "folding 7 changes a minimum"
    assert found(body(monoid="max")) == [], "the greatest number is no identity of a maximum"
    read = Compute(dst="hit", fn="lt", args=(FragRef("kept"), 3))
    assert found(body(extra=(read,))) == [], "the selection has another reader"
