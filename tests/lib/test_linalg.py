"""Factorisations: put together again within bounds that grow with the size, pivots, and what is singular."""

from __future__ import annotations

import numpy as np
import pytest
from tests.lib.rounding import Num, U
from tests.lib.ways import clean, random, reals, run, whole

from treadle.lib import linalg as lib


def near(want: np.ndarray, got: np.ndarray, scale: np.ndarray | float, n: int) -> None:
    """Backward stable: off by n + 4 roundings of the magnitudes that were added (Higham, chapters 8 to 10)."""
    assert (np.abs(got - want) <= 4 * (n + 4) * U * scale).all()


@pytest.mark.parametrize("n", [1, 7, 20])
def test_cholesky(n: int) -> None:
    x = whole(random(), n, n + 3)
    a = x @ x.T + np.eye(n, dtype=np.float32)
    lower = np.linalg.cholesky(a.astype(float))
    found = run(lib.cholesky, a, want=Num(lower, np.full(lower.shape, 1e-3)))
    near(a, found.astype(float) @ found.T.astype(float), np.abs(found) @ np.abs(found).T, n)
    assert (np.triu(found, 1) == 0).all()
    run(lib.cholesky, np.array([[-1.0]], np.float32), want=np.array([[np.nan]]))


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("unit", [True, False])
def test_triangles(lower: bool, unit: bool) -> None:
    """Integers, and powers of two on the diagonal: exact. The other triangle is NaN."""
    g = random(1)
    full = whole(g, 6, 6, most=1)
    np.fill_diagonal(full, 1 if unit else 2.0 ** g.integers(-1, 2, 6))
    t = np.tril(full) if lower else np.triu(full)
    x = whole(g, 6, 4)
    a = np.where(t == 0, np.where(np.tril(np.ones((6, 6))) if lower else np.triu(np.ones((6, 6))), 0, np.nan), t)
    if unit:
        np.fill_diagonal(a, 9)
    run(lib.triangular_solve, safe(a), t @ x, lower=lower, unit=unit, want=x)


def safe(a: np.ndarray) -> np.ndarray:
    """The other triangle holds large numbers: it must not count."""
    return np.where(np.isnan(a), 1e6, a).astype(np.float32)


@pytest.mark.parametrize("n", [1, 8])
def test_lu(n: int) -> None:
    a = reals(random(2), n, n)
    if n > 1:
        a[0, 0] = 0
    factors, order = lib.lu.reference(a)
    lower, upper = np.tril(factors, -1) + np.eye(n), np.triu(factors)
    near(a[order], lower @ upper, np.abs(lower) @ np.abs(upper), n)
    assert sorted(order) == list(range(n)) and np.abs(np.tril(factors, -1)).max(initial=0) <= 1
    found = run(lib.lu, a, want=(Num(factors.astype(float), np.full((n, n), 1e-4)), order))
    b = whole(random(3), n, 2)
    y = lib.triangular_solve.reference(found[0], b[order], unit=True)
    x = lib.triangular_solve.reference(found[0], y, lower=False)
    assert np.abs(a.astype(float) @ x - b).max() < 1e-3
    clean(lib.lu, a)


def test_qr() -> None:
    a = reals(random(4), 9, 5)
    q, r = lib.qr.reference(a)
    run(lib.qr, a, want=(Num(q.astype(float), np.full(q.shape, 1e-5)), Num(r.astype(float), np.full(r.shape, 1e-4))))
    near(a, q.astype(float) @ r, np.abs(q) @ np.abs(r), 9)
    assert np.abs(q.T @ q - np.eye(5)).max() < 1e-5 and (np.diag(r) > 0).all() and (np.tril(r, -1) == 0).all()
