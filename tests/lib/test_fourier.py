"""Transforms: against NumPy, and back; integers exactly where all is sums."""

from __future__ import annotations

import numpy as np
import pytest
from tests.lib.rounding import Num, U
from tests.lib.ways import clean, random, run, whole

from treadle.lib import fourier as lib


@pytest.mark.parametrize("n", [1, 2, 16, 64])
def test_fft(n: int) -> None:
    """Each of log2 n stages adds a few roundings of the sums of magnitudes (Higham, theorem 24.2)."""
    g = random()
    x, y = whole(g, 3, n), whole(g, 3, n)
    off = np.full((3, n), 12 * (n.bit_length()) * U) * (np.abs(x) + np.abs(y)).sum(1, keepdims=True)
    for inverse in (False, True):
        w = (np.fft.ifft if inverse else np.fft.fft)(x + 1j * y.astype(float))
        wants = tuple(Num(v, off / (n if inverse else 1)) for v in (w.real, w.imag))
        run(lib.fft, x, y, inverse=inverse, want=wants, compiled=n == 16 and not inverse)
    w = np.fft.fft(x.astype(float))
    run(lib.fft, x, want=(Num(w.real, off), Num(w.imag, off)))


def test_hadamard() -> None:
    x = whole(random(1), 5, 8)
    h = np.array([[(-1) ** bin(i & j).count("1") for j in range(8)] for i in range(8)])
    run(lib.hadamard, x, want=x @ h)
    clean(lib.hadamard, x)


def test_only_powers_of_two() -> None:
    with pytest.raises(Exception, match="power of two"):
        lib.hadamard.reference(np.ones((2, 6), np.float32))
