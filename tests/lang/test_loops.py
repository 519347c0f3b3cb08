"""Loops of Python at capture: those that end are unrolled, those that go on are an error that names them."""

from __future__ import annotations

import itertools
import re

import pytest
from syrupy.assertion import SnapshotAssertion

import treadle.lang.api as td
from treadle.base.source import shown_path, source_line
from treadle.dtype.formats import f32
from treadle.lang import loops
from treadle.lang.errors import EndlessLoop

M, N = td.dims("M N")


@pytest.fixture
def low(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "MOST_OPERATIONS", 400)
    monkeypatch.setattr(loops, "MOST_TURNS", 2000)


def forgotten(X: td.Tensor[M], Y: td.Out[M]):
    t = X[M]
    i = 0
    while i < 10:  # endless
        t = t * 2
    Y[M] = t


def forgotten_and_empty(X: td.Tensor[M], Y: td.Out[M]):
    i = 0
    while i < 10:  # endless
        i = i - 1
    Y[M] = X[M]


def counted_to_a_billion(X: td.Tensor[M], Y: td.Out[M]):
    for m in td.parallel(M):
        s = td.zeros(m, dtype=f32)
        for i in range(10**9):  # endless
            for _ in range(3):
                s = s + X[m] * i
        Y[m] = s


def without_any_end(X: td.Tensor[M], Y: td.Out[M]):
    for i in itertools.count():  # endless
        Y[M] = X[M] + i


def in_a_comprehension(X: td.Tensor[M], Y: td.Out[M]):
    Y[M] = X[M] + sum([i % 3 for i in range(10**9)])  # endless


def called(x):
    while True:  # endless
        x = x + 1.0
    return x


def in_a_function(X: td.Tensor[M], Y: td.Out[M]):
    for _ in range(2):
        Y[M] = called(X[M])


@pytest.mark.parametrize(
    "fn",
    [forgotten, forgotten_and_empty, counted_to_a_billion, without_any_end, in_a_comprehension, in_a_function],
    ids=lambda fn: fn.__name__,
)
def test_an_endless_loop_is_named(fn, low: None, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(EndlessLoop, match=r"turns, and no end") as caught:
        td.kernel(fn).capture()
    span = caught.value.span
    assert span is not None and "# endless" in (source_line(span.file, span.line) or ""), str(caught.value)
    text = str(caught.value).replace(shown_path(__file__), "FILE")
    assert re.sub(r"(?m)(?<=FILE:)\d+|^ +\d+(?= \| )", "LINE", text) == snapshot


def test_what_a_trial_of_a_region_made_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies of regions are captured until what they carry is settled: three nested ones up to eight times."""

    def nested(X: td.Tensor[M, N], Y: td.Out[M]):
        a, b, c = 0, 0, 0
        for n in td.serial(N.each):
            for _ in td.serial(2):
                for _ in td.serial(2):
                    for i in range(20):
                        a, b, c = a + X[M, n] * i, a + b, b + c
        Y[M] = a + c

    monkeypatch.setattr(loops, "MOST_OPERATIONS", 130)
    program = td.kernel(nested).capture()
    assert 100 < sum(1 for _ in program.body.walk()) <= 130


def test_long_loops_that_end() -> None:
    def long(X: td.Tensor[M], Y: td.Out[M]):
        table = [i * i % 7 for i in range(3000)]
        t = X[M]
        for i in range(700):
            t = t + table[i]
        Y[M] = t

    program = td.kernel(long).capture()
    adds = [op for op in program.body.walk() if getattr(op, "fn", "") == "add"]
    assert len(adds) == 700
