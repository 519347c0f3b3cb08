"""Operands of instructions that contract groups of short formats: read in place where lanes are neighbours, turned by
whole lines where the contracted dimension is."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.marks import processor

from treadle.lib.linear import linear
from treadle.lib.quantised import int8_matmul

pytestmark = processor("avx512", "avx512_bf16", "avx512_vnni")
SHAPES = [(1, 70, 131), (7, 67, 33), (16, 64, 1), (3, 5, 0), (130, 65, 70)]


def framed(a: np.ndarray, around: float) -> np.ndarray:
    """A view of a larger array whose other elements would spoil every sum."""
    whole = np.full((a.shape[0] + 3, a.shape[1] + 5), around).astype(a.dtype)
    whole[1 : a.shape[0] + 1, 2 : a.shape[1] + 2] = a
    return whole[1 : a.shape[0] + 1, 2 : a.shape[1] + 2]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_pairs_and_fours_are_exact_at_the_edges(shape: tuple[int, int, int], turned: bool) -> None:
    m, n, k = shape
    rng = np.random.default_rng(m + n + k)
    x, w = rng.integers(-4, 5, (m, k)), rng.integers(-4, 5, (k, n))
    sides = [framed(a.astype(ml_dtypes.bfloat16), np.nan) for a in (x, w.T if turned else w)]
    y = np.zeros((m, n), np.float32)
    linear(sides[0], sides[1].T if turned else sides[1], None, y)
    assert np.array_equal(y, (x @ w).astype(np.float32))
    x, w = rng.integers(-128, 128, (m, k)), rng.integers(-128, 128, (k, n))
    sides = [framed(a.astype(np.int8), 77) for a in (x, w.T if turned else w)]
    int8_matmul(sides[0], sides[1].T if turned else sides[1], np.ones(m, np.float32), np.ones(n, np.float32), None, y)
    assert np.array_equal(y, (x @ w).astype(np.float32))


def test_few_rows_use_a_weight_of_pairs_where_it_lies() -> None:
    x, w, y = (np.zeros(s, ml_dtypes.bfloat16) for s in ((16, 2048), (2048, 2048), (16, 2048)))
    plan = linear.plan(x, w, None, y)
    point = plan.decisions.point
    assert (point["atom"], point["packed"]) == ("dpbf16", False) and plan.check().status == "verified"
    assert "gather" not in plan.source()


def test_a_weight_along_the_depth_is_turned_by_lines() -> None:
    """Each line of the source is read once, and nothing is gathered or scattered."""
    x, w, y = (np.zeros((1024, 1024), ml_dtypes.bfloat16) for _ in range(3))
    plan = linear.plan(x, w.T, None, y)
    assert plan.decisions.point["atom"] == "dpbf16" and plan.check().status == "verified"
    assert "gather" not in plan.source() and "scatter" not in plan.source()
