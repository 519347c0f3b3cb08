"""Calls that are taken at once because one like them came before: what they return depends on their own arguments."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
from treadle.driver.ready import Ready
from treadle.runtime.pool import workers
from treadle.runtime.taking import MOST, Known, can_take

M, N = td.dims("M N")
added = 1.0


@td.kernel
def tell(X: td.Tensor[M, N], Y: td.Out[M, N], *, kind=0):
    """X plus a number that says what type `kind` has."""
    number = 1 if isinstance(kind, bool) else 2 if isinstance(kind, float) else 3 if kind is None else 4
    for m in td.parallel(M):
        Y[m, N] = X[m, N] + number


@td.kernel
def shifted(X: td.Tensor[N], Y: td.Out[N]):
    """Each element with its right neighbour, the last one alone."""
    for n in td.parallel(N.each):
        Y[n] = X[td.minimum(n + 1, N.extent - 1)] * 2


@td.kernel
def global_added(X: td.Tensor[N], Y: td.Out[N]):
    """X plus a global."""
    Y[N] = X[N] + added


@td.kernel
def twice(X: td.Tensor[M, N], Y: td.Out[M, N], Z: td.Out[M]):
    """2 X, and the sums of X's rows."""
    for m in td.parallel(M):
        x = X[m, N]
        Y[m, N] = x * 2
        Z[m] = x.sum(N)


@td.kernel
def two_more(X: td.Tensor[N], Y: td.Out[N] = None):
    """X plus 2."""
    Y[N] = X[N] + 2


def warm(kernel: Any, *args: Any, **staged: Any) -> Any:
    for _ in range(3):
        found = kernel(*args, **staged)
    return found


def test_staged_values_of_other_types() -> None:
    x = np.zeros((3, 5), np.float32)
    for kind, number in ((True, 1), (1.0, 2), (None, 3), (1, 4), (-0.0, 2), (0, 4), (False, 1), (0.0, 2)):
        assert (warm(tell, x, kind=kind) == number).all()
    assert (tell(x, kind=1) == 4).all() and (tell(x, kind=1.0) == 2).all() and (tell(x) == 4).all()


def test_other_dtypes_shapes_and_layouts() -> None:
    rng = np.random.default_rng(0)
    for _ in range(2):
        for dtype in (np.float32, np.float64):
            for shape in [(n, 7) for n in range(1, MOST + 4)]:
                x = rng.standard_normal(shape).astype(dtype)
                for given in (x, x[::-1], np.asfortranarray(x), x[:, 1:]):
                    y, z = warm(twice, given)
                    assert y.dtype == given.dtype and y.shape == given.shape
                    np.testing.assert_array_equal(y, given * 2)
                    np.testing.assert_allclose(z, given.sum(1), rtol=1e-4, atol=1e-5)


def test_outputs_are_new_and_aligned() -> None:
    x = np.ones((4, 6), np.float32)
    warm(twice, x)
    made = [twice(x) for _ in range(20)]
    assert all(a.ctypes.data % 64 == 0 for pair in made for a in pair)
    for number, (y, z) in enumerate(made):
        y[...], z[...] = number, -number
    assert all((y == n).all() and (z == -n).all() for n, (y, z) in enumerate(made))


def test_an_output_that_lies_on_an_input() -> None:
    x, y = np.arange(9, dtype=np.float32), np.empty(9, np.float32)
    want = np.append(x[1:], x[-1:]) * 2
    warm(shifted, x, y)
    assert (y == want).all()
    assert (shifted(x, x) == want).all()


def test_a_global_that_changes() -> None:
    global added
    x = np.zeros(4, np.float32)
    added = 1.0
    assert (warm(global_added, x) == 1).all()
    added = 2.0
    assert (global_added(x) == 2).all() and (warm(global_added, x) == 2).all()


def test_another_number_of_workers(with_workers: Callable[[int], int]) -> None:
    x = np.ones((64, 33), np.float32)
    for count in (1, workers(), 1):
        with_workers(count)
        y, z = warm(twice, x)
        assert (y == 2).all() and (z == 33).all()


def test_layouts_stay_known_while_workers_and_dtypes_alternate(
    monkeypatch: pytest.MonkeyPatch, with_workers: Callable[[int], int]
) -> None:
    assert can_take()
    xs = [np.arange(7, dtype=dtype) for dtype in (np.float32, np.float64)]
    missed: list[Any] = []
    run, before = Ready.run, workers()

    def counted(self: Ready, args: tuple[Any, ...]) -> Any:
        missed.append(args)
        return run(self, args)

    for x in xs:
        for count in (1, before):
            with_workers(count)
            warm(two_more, x)
    monkeypatch.setattr(Ready, "run", counted)
    monkeypatch.setattr(Known, "add", None)  # nothing is added that is there
    for x in [*xs, *xs] * MOST:
        for count in (1, before, 1, before):
            with_workers(count)
            assert (two_more(x) == x + 2).all()
    assert len(missed) == 4 * MOST  # once for each change of the dtype


def test_several_threads_have_blocks_of_their_own() -> None:
    rng = np.random.default_rng(1)
    xs = [rng.standard_normal((40, 100 + n)).astype(np.float32) for n in range(4)]
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(200):
            y, _ = twice(xs[number])
            if not (y == xs[number] * 2).all():
                wrong.append(number)

    for x in xs:
        warm(twice, x)
    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
