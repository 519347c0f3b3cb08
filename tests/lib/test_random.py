"""Random numbers: the same called and interpreted, parts of a whole, moments within six deviations, masks made
again.
"""

from __future__ import annotations

import numpy as np
from tests.lib.ways import clean, run, whole
from tests.lib.ways import random as numbers

from treadle.lib import random as lib

N = 4000


def both(kernel: object, *args: object, out: np.ndarray, **kw: object) -> np.ndarray:
    """What a call fills `out` with; the interpreter's numbers are near it."""
    kernel(*args, out, **kw)
    found = out.copy()
    kernel.reference(*args, out, **kw)
    np.testing.assert_allclose(found, out, rtol=1e-5, atol=1e-6)
    return found


def test_uniform() -> None:
    u = both(lib.uniform, 7, out=np.empty((2, N), np.float32))
    assert u.min() >= 0 and u.max() < 1
    assert abs(u.mean() - 0.5) < 6 * np.sqrt(1 / 12 / u.size) and abs(u.var() - 1 / 12) < 6 * np.sqrt(1 / 180 / u.size)
    part = np.empty((1, 100), np.float32)
    lib.uniform(7, part)
    np.testing.assert_array_equal(part[0], u[0, :100])
    lib.uniform(8, part)
    assert (part[0] != u[0, :100]).mean() > 0.99
    lib.uniform.reference(7, part, low=-2.0, high=2.0)
    np.testing.assert_array_equal(part[0], u[0, :100] * 4 - 2)


def test_normal() -> None:
    z = both(lib.normal, 7, out=np.empty((2, N), np.float32))
    assert abs(z.mean()) < 6 / np.sqrt(z.size) and abs(z.var() - 1) < 6 * np.sqrt(2 / z.size)
    assert abs((np.abs(z) < 1).mean() - 0.6827) < 6 * np.sqrt(0.22 / z.size)


def test_integers() -> None:
    k = both(lib.integers, 3, out=np.empty((2, N), np.int64), low=-2, high=5)
    counts = np.bincount(k.ravel() + 2, minlength=7)
    assert len(counts) == 7 and (np.abs(counts - k.size / 7) < 6 * np.sqrt(k.size * 6 / 49)).all()


def test_bernoulli_and_choices() -> None:
    p = np.tile(np.array([[0.0, 0.25, 1.0]], np.float32), (N, 1))
    share = lib.bernoulli.reference(5, p).mean(0)
    assert share[0] == 0 and share[2] == 1 and abs(share[1] - 0.25) < 6 * np.sqrt(0.19 / N)
    logits = np.log(np.tile(np.array([[0.1, 0.2, 0.7]], np.float32), (N, 1)))
    chosen = lib.sample_rows.reference(5, logits)
    shares = np.bincount(chosen, minlength=3) / N
    assert (np.abs(shares - [0.1, 0.2, 0.7]) < 6 * np.sqrt(0.25 / N)).all()
    hot = lib.sample_rows.reference(5, logits[:500], temperature=0.01)
    assert (hot == 2).mean() > 0.95


def test_permutations() -> None:
    order = np.empty((3, 50), np.int64)
    lib.permutation.reference(9, order)
    assert (np.sort(order, 1) == np.arange(50)).all() and (order[0] != order[1]).any()


def test_dropout() -> None:
    x, ones = whole(numbers(), 3, 400), np.ones((3, 400), np.float32)
    y = lib.dropout(x, 11, p=0.25)
    mask = lib.dropout_backward.reference(ones, 11, p=0.25)
    assert set(np.unique(mask)) == {np.float32(0), np.float32(1 / 0.75)} and abs(
        (mask == 0).mean() - 0.25
    ) < 6 * np.sqrt(0.19 / mask.size)
    np.testing.assert_array_equal(y, x * mask)
    np.testing.assert_array_equal(lib.dropout.reference(x, 11, p=0.25), y)
    run(lib.dropout_add, x, ones, 11, p=0.5, want=lib.dropout.reference(x, 11, p=0.5) + 1)
    np.testing.assert_array_equal(lib.dropout.reference(x, 11, p=0.0), x)
    clean(lib.dropout, x[:, :5], 11)
