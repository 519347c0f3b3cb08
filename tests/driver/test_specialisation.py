"""What a kernel is specialised for: dtypes, staged values, extents that Python needs; and what shares a plan."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.driver import kernels as k

import treadle as td
from treadle.driver.kernel import Kernel

M = td.dims("M")
X = np.arange(7, dtype=np.float32)


def square(x: Any) -> Any:
    return x * x


def test_staged_functions() -> None:
    for _ in range(2):
        assert (k.staged(X) == X).all()
        assert (k.staged(X, f=square) == X * X).all()
        assert (k.staged(X, f=td.sqrt) == np.sqrt(X)).all()
        assert (k.staged(X, f=lambda x: x + 1) == X + 1).all()


def test_staged_numbers_of_equal_value_are_different() -> None:
    x = np.arange(5, dtype=np.int32)
    for _ in range(2):
        assert k.staged(x, by=2).dtype == np.int32
        assert k.staged(x, by=2.0).dtype == np.float32
        assert k.staged(x, by=1).dtype == np.int32
        assert (k.staged(X, by=-1.0) == -X).all()


def test_staged_zeros_keep_their_sign() -> None:
    for _ in range(2):
        assert not np.signbit(k.staged(X, by=0.0)).any()
        assert np.signbit(k.staged(X, by=-0.0)).all()


def test_lists_count_by_what_they_hold() -> None:
    held = [2.0]
    for by in (2.0, 3.0, 4.0):
        held[0] = by
        assert (k.listed(X, by=held) == by * X).all()
        assert (k.listed(X, by=[by + 1]) == (by + 1) * X).all()


def test_an_output_given_or_left_out_shares_its_plan() -> None:
    @td.kernel
    def triple(X: td.Tensor[M], Y: td.Out[M] = None):
        for m in td.parallel(M):
            Y[m] = X[m] * 3

    triple(X)
    triple(X, Y=k.double(X))
    triple(X.copy())
    assert len(triple.variants) == 1


def made(by: float) -> Kernel:
    @td.kernel
    def scaled(X: td.Tensor[M], Y: td.Out[M] = None):
        for m in td.parallel(M):
            Y[m] = X[m] * by

    return scaled


def test_closures_are_their_own() -> None:
    two, three = made(2.0), made(3.0)
    for _ in range(2):
        assert (two(X) == 2 * X).all() and (three(X) == 3 * X).all()


def test_an_extent_that_python_needs() -> None:
    for n in (3, 1, 4, 3, 0):
        x = np.arange(2 * n, dtype=np.float32).reshape(2, n)
        assert (k.unrolled(x) == (x * np.arange(1, n + 1)).sum(1)).all()
    for m in (2, 9):  # the other dimension stays symbolic
        k.unrolled(np.ones((m, 3), np.float32))
    texts = {k.unrolled.program(np.ones((m, 3), np.float32)) for m in (2, 9)}
    assert len(texts) == 1


def test_a_static_dimension() -> None:
    for n in (3, 17, 3):
        assert (k.static(np.ones((4, n), np.float32)) == n).all()
    program = k.static.program(np.ones((4, 17), np.float32))
    assert {str(d.extent) for d in program.dims} == {"M", "17"}


SOURCE = """
import numpy as np
import treadle as td
from helper import step

M = td.dims("M")

@td.kernel
def apply(X: td.Tensor[M], Y: td.Out[M] = None):
    for m in td.parallel(M):
        Y[m] = step(X[m])

print(apply(np.zeros(3, np.float32))[0])
"""


@pytest.mark.parametrize("change", ["function", "captured"])
def test_a_called_function_that_changes_on_disk(tmp_path: Path, change: str) -> None:
    """The cache is shared by both processes; the answer is that of the function as it is now."""
    (tmp_path / "main.py").write_text(SOURCE)
    before, after = {
        "function": ("def step(x): return x + 1\n", "def step(x): return x + 2\n"),
        "captured": ("BY = 1\ndef step(x): return x + BY\n", "BY = 2\ndef step(x): return x + BY\n"),
    }[change]
    answers: list[float] = []
    for text in (before, after, before):
        (tmp_path / "helper.py").write_text(text)
        got = subprocess.run(
            [sys.executable, "-B", "main.py"], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout
        answers.append(float(got))
    assert answers == [1.0, 2.0, 1.0]


def test_functions_made_for_each_call_leave_little_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.driver.kernel._KEPT", 8)
    kernel = td.kernel(k.staged.definition.fn)
    for i in range(20):
        assert (kernel(X, f=lambda x: x + x) == 2 * X).all(), i
    assert len(kernel.variants) == 1
    kept = (kernel._special, kernel._ready)
    assert all(len(held) <= 9 for held in kept)
