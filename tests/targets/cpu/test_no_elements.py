"""Contractions without rows, columns or terms are planned as any others are."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from treadle.lib import linear


@pytest.mark.parametrize(("m", "n", "k"), [(0, 4, 5), (4, 0, 5), (4, 5, 0), (0, 0, 0)])
def test_linear(m: int, n: int, k: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        found = linear(np.ones((m, k), np.float32), np.ones((k, n), np.float32))
    np.testing.assert_array_equal(found, np.zeros((m, n), np.float32))
