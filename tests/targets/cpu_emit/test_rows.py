"""A row softmax by hand: vectors with tails, a scalar version, every kind of stride."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.targets.cpu_emit.kit import HOST_LEVELS, Compiled, Guarded, S, program

from treadle.algebra.expr import ceildiv, const, lt, sym
from treadle.dtype.formats import f32
from treadle.ir.guard import Fact, Unit
from treadle.machine.form import (
    Body,
    Compute,
    Fold,
    Frag,
    FragRef,
    Load,
    Loop,
    MachineProgram,
    MemRef,
    Store,
    Tasks,
)

NEGATIVE = float("-inf")


def softmax(level: str, lanes: int, facts: tuple[Fact, ...] = (), tags: tuple[str, ...] = ()) -> MachineProgram:
    """Rows over workers; three passes over a row: maximum, sum of exponentials, scaled."""
    m, i, n = sym("m"), sym("i"), sym("N")
    inside = (lt(i + S[0], n),)

    def load(at: str, fill: float) -> Load:
        return Load(dst="x", src=MemRef("X", (m, sym(at) + S[0])), where=(lt(sym(at) + S[0], n),), fill=fill)

    def loop(var: str, *body: Any) -> Loop:
        return Loop(var=var, lo=const(0), hi=n, step=const(lanes), body=list(body))

    shifted = [
        Compute(dst="d", fn="sub", args=(FragRef("x"), FragRef("top", ()))),
        Compute(dst="e", fn="exp", args=(FragRef("d"),)),
    ]
    body: Body = [
        Compute(dst="vm", fn="copy", args=(NEGATIVE,)),
        Compute(dst="vs", fn="copy", args=(0.0,)),
        loop("i0", load("i0", NEGATIVE), Fold(dst="vm", monoid="max", src=FragRef("x"), acc=FragRef("vm"))),
        Fold(dst="top", monoid="max", src=FragRef("vm"), axes=(0,)),
        loop("i1", load("i1", NEGATIVE), *shifted, Fold(dst="vs", monoid="add", src=FragRef("e"), acc=FragRef("vs"))),
        Fold(dst="sum", monoid="add", src=FragRef("vs"), axes=(0,)),
        loop(
            "i",
            load("i", NEGATIVE),
            *shifted,
            Compute(dst="y", fn="div", args=(FragRef("e"), FragRef("sum", ()))),
            Store(dst=MemRef("Y", (m, i + S[0])), src=FragRef("y"), where=inside, tags=tags),
        ),
    ]
    tasks = Tasks(vars=("m",), counts=(sym("M"),), over="workers", body=body)
    frags = [Frag(n, f32, (lanes,)) for n in ("x", "vm", "vs", "d", "e", "y")]
    frags += [Frag(n, f32, ()) for n in ("top", "sum")]
    return program([("X", f32, "MN"), ("Y", f32, "MN")], [tasks], frags, level=level, facts=facts)


def oracle(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    wide = x.astype(np.float64)
    e = np.exp(wide - wide.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def bound(x: np.ndarray[Any, Any], want: np.ndarray[Any, Any], lanes: int) -> np.ndarray[Any, Any]:
    """The differences are rounded, which exp turns into relative errors of |d| half ulps, in the sum too; then 1 ulp of
    each exp, one of the division, and n / lanes + log2(lanes) additions."""
    d = np.abs(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    halves = d + (want * d).sum(axis=1, keepdims=True) + 2 * (2 + 1) + x.shape[1] / lanes + 6
    return halves * 2.0**-24 * want + 2.0**-140


UNIT = (Unit("X", 1), Unit("Y", 1))


@pytest.mark.parametrize("level", HOST_LEVELS)
@pytest.mark.parametrize(("lanes", "facts"), [(16, UNIT), (16, ()), (1, ()), (12, UNIT), (40, UNIT)])
def test_row_lengths_at_the_edge_of_memory(level: str, lanes: int, facts: tuple[Fact, ...]) -> None:
    run = Compiled(softmax(level, lanes, facts))
    rng = np.random.default_rng(1)
    for n in (1, 3, 16, 31, 32, 1000):
        guard = Guarded()
        for at_end in (True, False):
            x = guard.array(rng.standard_normal((3, n)).astype(np.float32) * 10, at_end=at_end)
            y = guard.array(np.full((3, n), np.nan, np.float32), at_end=at_end)
            run(X=x, Y=y)
            want = oracle(x)
            assert (np.abs(y - want) <= bound(x, want, lanes)).all()


@pytest.mark.parametrize("tags", [(), ("stream",)])
def test_two_workers_give_the_same_bits(tags: tuple[str, ...]) -> None:
    run = Compiled(softmax(HOST_LEVELS[-1], 16, UNIT, tags))
    x = np.random.default_rng(2).standard_normal((37, 133)).astype(np.float32)
    one, two = np.empty_like(x), np.empty_like(x)
    run(X=x, Y=one)
    run(X=x, Y=two, workers=2)
    assert (one == two).all()
    assert np.allclose(one, oracle(x), rtol=1e-5)


def test_strides_of_the_call() -> None:
    run = Compiled(softmax(HOST_LEVELS[-1], 16))
    rng = np.random.default_rng(3)
    base = rng.standard_normal((80, 90)).astype(np.float32)
    shapes = {
        "transposed": base.T[:20, :37],
        "every other": base[::2, 1::2],
        "backwards": base[::-1, ::-1],
        "one row": np.broadcast_to(base[:1, :37], (5, 37)),
        "one column": np.broadcast_to(base[:7, :1], (7, 37)),
        "empty": base[:0, :5],
    }
    for name, x in shapes.items():
        out = np.full((x.shape[0] * 2, x.shape[1] * 3), np.nan, np.float32)
        y = out[::2, ::3]
        run(X=x, Y=y)
        assert np.allclose(y, oracle(x) if x.size else y, rtol=1e-5), name
        rest = np.ones(out.shape, bool)
        rest[::2, ::3] = False
        assert np.isnan(out[rest]).all(), name


def test_neighbours_with_nan_are_not_read_into_results() -> None:
    run = Compiled(softmax(HOST_LEVELS[-1], 16, UNIT))
    wide = np.full((4, 64), np.nan, np.float32)
    wide[:, 16:45] = np.random.default_rng(4).standard_normal((4, 29))
    y = np.zeros((4, 29), np.float32)
    run(X=wide[:, 16:45], Y=y)
    assert np.allclose(y, oracle(wide[:, 16:45]), rtol=1e-5)


def test_streaming_is_in_the_code() -> None:
    run = Compiled(softmax("avx512", 16, UNIT, ("stream",)), asm=True) if "avx512" in HOST_LEVELS else None
    if run is not None:
        assert "vmovntps" in run.asm and "sfence" in run.asm


def test_tasks_beyond_the_counts_do_not_exist() -> None:
    run = Compiled(softmax(HOST_LEVELS[-1], 16, UNIT))
    assert ceildiv(sym("M"), 1) == sym("M")
    y = np.full((2, 8), 7.0, np.float32)
    run(X=np.zeros((0, 8), np.float32), Y=y[:0], workers=2)
    assert (y == 7.0).all()
