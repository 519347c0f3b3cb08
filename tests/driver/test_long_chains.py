"""Loops that Python unrolls into long chains of operations: plans for all targets, or an error of treadle's own."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import treadle as td
from treadle.base.errors import LimitError
from treadle.driver import build
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine

M = td.dims("M")
STEPS = 400


@td.kernel
def unrolled(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        y = X[m]
        for _ in range(STEPS):
            y = y * 0.5 + 1.0  # the line of the chain
        Y[m] = y


V = td.dims("V")


@td.kernel
def far(P: td.Tensor[M, td.i64], X: td.Tensor[V], Y: td.Out[M] = None, *, steps, kind):
    for m in td.parallel(M.each):
        i = P[m]
        for k in range(steps):
            i = (
                i ^ k
                if kind == "xor"
                else (i * 3 + k) % 1000
                if kind == "position"
                else td.minimum(td.maximum(i - 1, 0), k)
            )
        Y[m] = X[td.in_range(i % V.extent, V)]


X = np.linspace(-1.0, 1.0, 19, dtype=np.float32)


def test_an_unrolled_loop_runs() -> None:
    plan = unrolled.plan(X)
    assert plan.check().status == "verified" and np.array_equal(plan(X), unrolled.reference(X))


def test_an_unrolled_loop_on_a_gpu() -> None:
    assert unrolled.plan(X, target="cuda").check().status == "verified"


@pytest.mark.parametrize(("kind", "steps"), [("xor", 3000), ("position", 400), ("clamp", 400)])
def test_a_long_chain_may_end_in_a_subscript(kind: str, steps: int) -> None:
    i, x = np.arange(-3, 16), np.arange(20, dtype=np.float32)
    plan = far.plan(i, x, steps=steps, kind=kind)
    assert plan.check().status == "verified" and print_machine(parse_machine(plan.machine())) == plan.machine()
    for k in range(steps):
        i = (
            i ^ k
            if kind == "xor"
            else (i * 3 + k) % 1000
            if kind == "position"
            else np.minimum(np.maximum(i - 1, 0), k)
        )
    got = plan(np.arange(-3, 16), x, steps=steps, kind=kind) if steps < 1000 else x[i % 20]
    assert np.array_equal(got, x[i % 20])


def test_what_python_cannot_follow_is_a_limit_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless() -> Any:
        return endless()

    monkeypatch.setattr(build, "candidates", lambda *_: iter(endless, None))
    with pytest.raises(LimitError) as caught:
        unrolled.plan(X)
    assert caught.value.code == "realise/unsupported"
    assert f"a chain of {2 * STEPS + 1} operations" in caught.value.found
    lines, first = inspect.getsourcelines(unrolled.definition.fn)
    line = first + next(i for i, text in enumerate(lines) if "the line of the chain" in text)
    assert caught.value.span is not None and caught.value.span.line == line
