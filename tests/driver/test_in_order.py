"""Calls whose arguments lie on one another in any way: what the statements do one after another, by a verified plan.

Views are drawn at random from one array: shifted, strided, backwards, transposed, the same. A parallel region reads
what was there before it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import treadle as td
from treadle.driver.kernel import Kernel

Array = NDArray[np.float32]
M, N = td.dims("M N")


@td.kernel
def halving(X: td.Tensor[M, N], Y: td.Out[M, N]):
    h = td.zeros(N)
    for m in td.serial(M.each):
        h = h * 2 + X[m, N]
        Y[m, N] = h


@td.kernel
def recurrence(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m in td.serial(M.each):
        Y[m, N] = X[m, N] + Y.at(m - 1, N, fill=0)


@td.kernel
def steps(X: td.Tensor[M, N], C: td.Tensor[M], Y: td.Out[M, N]):
    for m in td.serial(M.each):
        for n in td.parallel(N):
            if C[m] > 0:
                Y[m, n] = X[m, n] * 2
            else:
                Y[m, n] = X[m, n] + 1


@td.kernel
def phases(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m in td.parallel(M):
        Y[m, N] = X[m, N] * 2
    for m in td.parallel(M):
        Y[m, N] = Y[m, N] - X[m, N]


@td.kernel
def again(X: td.Tensor[M, N], Y: td.Out[M, N]):
    for m in td.parallel(M.each):
        Y[m, N] = X[m, N] + 1
        Y[m, N] = Y[m, N] * X[m, N]


def halve(x: Array, c: Array, y: Array) -> None:
    h = np.zeros(x.shape[1], np.float32)
    for m in range(len(x)):
        h = h * 2 + x[m]
        y[m] = h


def recur(x: Array, c: Array, y: Array) -> None:
    for m in range(len(x)):
        y[m] = x[m] + (y[m - 1] if m else 0)


def step(x: Array, c: Array, y: Array) -> None:
    for m in range(len(x)):
        y[m] = x[m] * 2 if c[m] > 0 else x[m] + 1


def phase(x: Array, c: Array, y: Array) -> None:
    y[...] = x * 2
    y[...] = y - x


def once_more(x: Array, c: Array, y: Array) -> None:
    for m in range(len(x)):
        y[m] = x[m] + 1
        y[m] = y[m] * x[m]


PAIRS: dict[str, tuple[Kernel, Callable[[Array, Array, Array], None]]] = {
    "halving": (halving, halve),
    "recurrence": (recurrence, recur),
    "steps": (steps, step),
    "phases": (phases, phase),
    "again": (again, once_more),
}
Layout = tuple[int, int, int, bool]
layouts = st.tuples(st.integers(0, 12), st.integers(1, 7), st.integers(1, 3), st.booleans())


def view(held: Array, layout: Layout) -> Array:
    """A view of 4 x 3 elements: offset, steps of rows and columns, backwards."""
    offset, row, column, back = layout
    found = np.lib.stride_tricks.as_strided(held[offset:], (4, 3), (4 * row, 4 * column))
    return found[::-1] if back else found


def distinct(layout: Layout) -> bool:
    _, row, column, _ = layout
    return len({m * row + n * column for m in range(4) for n in range(3)}) == 12


@pytest.mark.parametrize("name", PAIRS)
@settings(max_examples=25, deadline=None)
@example((0, 3, 1, False), (0, 3, 1, False))
@example((0, 3, 1, False), (1, 3, 1, False))
@example((3, 3, 1, False), (0, 3, 1, False))
@example((0, 3, 1, False), (0, 3, 1, True))
@example((0, 3, 1, False), (0, 1, 4, False))
@given(layouts, layouts)
def test_every_overlap_is_run_in_order(name: str, first: Layout, second: Layout) -> None:
    assume(distinct(second))
    kernel, naive = PAIRS[name]
    start = np.random.default_rng(7).integers(-3, 4, 40).astype(np.float32)
    held, wanted, c = start.copy(), start.copy(), np.array([1, 0, 0, 1], np.float32)
    naive(view(wanted, first), c, view(wanted, second))
    between: tuple[Any, ...] = (c,) if kernel is steps else ()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        kernel(view(held, first), *between, view(held, second))
        np.testing.assert_array_equal(held, wanted)
        launch = kernel.bind(view(held, first), *between, view(held, second))
        held[:] = start
        launch()
    np.testing.assert_array_equal(held, wanted)


def test_what_runs_such_calls_is_verified() -> None:
    held = np.ones(40, np.float32)
    kernel = td.kernel(phases.definition.fn)
    kernel(view(held, (0, 3, 1, False)), view(held, (1, 3, 1, False)))
    (variant,) = kernel.variants
    assert variant.verdict["status"] == "verified" and "disjoint" not in str(variant.guard)
