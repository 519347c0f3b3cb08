"""Stencils in time, dynamic programming, factorisations, solves and transforms against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from tests.lang.kinds import grids as k
from tests.lang.kinds.ways import RNG, UNIT, Array, agrees, framed, ints, reals


@pytest.mark.parametrize(("shape", "steps"), [((1, 1), 1), ((4, 5), 0), ((5, 6), 3)])
def test_heat(shape: tuple[int, int], steps: int) -> None:
    x = ints(*shape)
    want = x.copy()
    for _ in range(steps):
        new = want.copy()
        around = want[:-2, 1:-1] + want[2:, 1:-1] + want[1:-1, :-2] + want[1:-1, 2:]
        new[1:-1, 1:-1] = want[1:-1, 1:-1] + np.float32(0.25) * (around - 4 * want[1:-1, 1:-1])
        want = new
    agrees(k.heat, framed(x), wants=want, steps=steps, called=steps == 3)  # quarters of integers: exact


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_between_tensors(steps: int) -> None:
    a = ints(7)
    b = a.copy()
    for _ in range(steps):
        c = b + np.concatenate([[0], b[:-1]])
        b = c - np.concatenate([c[1:], [0]])
    arguments = (a, np.zeros_like(a), np.zeros_like(a), steps)
    for run in (k.heat_between_tensors.reference, k.heat_between_tensors):
        got = np.zeros_like(a)
        run(framed(a), got, np.zeros_like(a), steps)
        np.testing.assert_array_equal(got, b)
    assert not k.heat_between_tensors.sanitize(*arguments)


def test_wave() -> None:
    x = ints(9)
    now, before = x.astype(np.float64), x.astype(np.float64)
    for _ in range(4):
        left, right = np.concatenate([[0], now[:-1]]), np.concatenate([now[1:], [0]])
        now, before = 2 * now - before + 0.5 * (left - 2 * now + right), now
    agrees(k.wave, framed(x), wants=now, called=False)  # halves of integers: exact


def edit(a: Array, b: Array) -> int:
    d = np.zeros((len(a) + 1, len(b) + 1), int)
    d[:, 0], d[0] = np.arange(len(a) + 1), np.arange(len(b) + 1)
    for i, j in np.ndindex(len(a), len(b)):
        d[i + 1, j + 1] = min(d[i, j + 1] + 1, d[i + 1, j] + 1, d[i, j] + (a[i] != b[j]))
    return int(d[-1, -1])


@pytest.mark.parametrize(("m", "n"), [(0, 0), (1, 1), (0, 4), (5, 3), (6, 7)])
def test_edit_distance(m: int, n: int) -> None:
    a, b = ints(m, low=0, high=3, dtype=np.int32), ints(n, low=0, high=3, dtype=np.int32)
    agrees(k.edit_distance, framed(a), framed(b), wants=np.int32(edit(a, b)), called=m == 6)


@pytest.mark.parametrize(("m", "n"), [(1, 1), (5, 3), (4, 7)])
def test_longest_common(m: int, n: int) -> None:
    a, b = ints(m, low=0, high=3, dtype=np.int32), ints(n, low=0, high=3, dtype=np.int32)
    want = np.zeros((m + 1, n + 1), np.int32)
    for i, j in np.ndindex(m, n):
        want[i + 1, j + 1] = max(want[i, j] + (a[i] == b[j]), want[i, j + 1], want[i + 1, j])
    agrees(k.longest_common, wants=want, copied=lambda: (a, b, np.full((m + 1, n + 1), -9, np.int32)), called=m == 4)


def dominant(n: int) -> Array:
    """A matrix that needs no pivots."""
    return (reals(n, n) + n * np.eye(n)).astype(np.float32)


def solve_bound(a: Array, x: Array) -> Array:
    """*Source*: Higham, Accuracy and Stability of Numerical Algorithms, theorem 8.5: (A + D) x = b with |D| at most
    n + 1 units of |A|, in whatever order; doubled for the blocks' own products and what is of second order."""
    wide = np.abs(a.astype(np.float64))
    return 2 * (len(a) + 1) * UNIT * np.abs(np.linalg.inv(a.astype(np.float64))) @ wide @ np.abs(x)


@pytest.mark.parametrize("n", [1, 4, 9])
def test_triangular_solves(n: int) -> None:
    a, b = dominant(n), reals(n, 2)
    hidden = np.where(np.tril(np.ones((n, n), bool)), a, 0)
    called = n == 9
    for kernel in (k.lower_solve, k.lower_solve_blocked):
        want = np.linalg.solve(np.tril(a).astype(np.float64), b)
        agrees(kernel, hidden, framed(b), wants=want, bound=solve_bound(np.tril(a), want), called=called)
    want = np.linalg.solve(np.triu(a).astype(np.float64), b)
    agrees(k.upper_solve, np.triu(a), framed(b), wants=want, bound=solve_bound(np.triu(a), want), called=False)


@pytest.mark.parametrize("n", [1, 2, 7])
def test_cholesky(n: int) -> None:
    half = reals(n, n)
    a = (half @ half.T + n * np.eye(n)).astype(np.float32)
    want = np.linalg.cholesky(a.astype(np.float64))
    # Higham, theorem 10.3: L L' = A + D with |D| at most n + 1 units of |L||L'|; L moves by L low(inv(L) D inv(L')),
    # with half of the diagonal. Doubled for what is of second order.
    inverse, sizes = np.abs(np.linalg.inv(want)), np.abs(want)
    moved = np.tril(inverse @ (sizes @ sizes.T) @ inverse.T)
    agrees(k.cholesky, framed(a), wants=want, bound=2 * (n + 1) * UNIT * (sizes @ moved), called=n == 7)


@pytest.mark.parametrize("n", [1, 3, 8])
def test_lu(n: int) -> None:
    a = dominant(n)
    want = a.astype(np.float64)
    for p in range(n):
        want[p + 1 :, p] /= want[p, p]
        want[p + 1 :, p + 1 :] -= np.outer(want[p + 1 :, p], want[p, p + 1 :])
    # Higham, theorem 9.3: L U = A + D with |D| at most n units of |L||U|; L moves by L low(inv(L) D inv(U)), strictly
    # below, and U by the rest times U. Doubled for what is of second order.
    low, high = np.tril(want, -1) + np.eye(n), np.triu(want)
    inside = np.abs(np.linalg.inv(low)) @ (np.abs(low) @ np.abs(high)) @ np.abs(np.linalg.inv(high))
    bound = 2 * n * UNIT * (np.abs(low) @ np.tril(inside, -1) + np.triu(inside) @ np.abs(high))
    for kernel in (k.lu, k.lu_blocked):
        agrees(kernel, framed(a), wants=want, bound=bound, called=n == 8)


@pytest.mark.parametrize("n", [1, 2, 8, 16])
def test_fft(n: int) -> None:
    x = RNG.normal(size=n) + 1j * RNG.normal(size=n)
    re, im = x.real.astype(np.float32), x.imag.astype(np.float32)
    want = np.fft.fft(x)
    # Angles below 2 pi are off by two roundings (13 units), sines by 2 ulp more (4 units), inputs by one. A stage adds
    # a complex product (sqrt 2 of 17 units, and 6 for its own operations), and no element exceeds the sum of all.
    whole = np.abs(x).sum()
    bound = (1 + np.log2(n) * (17 * np.sqrt(2) + 6)) * UNIT * whole
    agrees(k.fft, framed(re), framed(im), wants=(want.real, want.imag), bound=bound, called=n == 8)
    back = np.fft.ifft(x) * n
    agrees(k.fft, re, im, wants=(back.real, back.imag), bound=bound, called=False, inverse=True)
    if n > 1:  # three roundings of angles; a sum of n products of two terms each
        bound = (n + 19 + 4 + 4) * UNIT * (np.abs(re) + np.abs(im)).sum()
        agrees(k.dft, re, im, wants=(want.real, want.imag), bound=bound, called=False)
