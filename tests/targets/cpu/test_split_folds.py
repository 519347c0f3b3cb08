"""Folds of a whole program in parts for the workers: taken, validated, right at every size, saved and loaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import treadle as td
from treadle.lib.reductions import columns_sum, total

M, N = td.dims("M N")


@td.kernel
def extremes(X: td.Tensor[M, N, td.i32], low: td.Out[()], high: td.Out[N]):
    least, most = td.full(value=7, dtype=td.i32), td.full(N, value=-3, dtype=td.i32)
    for m in td.reduce(M):
        least = td.minimum(least, X[m, N].min(N).min(m))
        most = td.maximum(most, X[m, N].max(m))
    low[()] = least
    high[N] = most


def whole(rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng(rows + columns).integers(-9, 10, (rows, columns)).astype(np.float32)


@pytest.mark.parametrize("shape", [(0, 5), (1, 1), (63, 64), (64, 65), (65, 1), (130, 0), (1000, 33)])
def test_parts_of_a_fold_give_the_fold(shape: tuple[int, int]) -> None:
    x = whole(*shape)
    assert total(x) == x.sum()
    assert np.array_equal(columns_sum(x), x.sum(0))
    low, high = np.zeros((), np.int32), np.zeros(shape[1], np.int32)
    extremes(x.astype(np.int32), low, high)
    assert low == min(7, int(x.min(initial=7))) and np.array_equal(high, np.maximum(x.max(0, initial=-3), -3))


def test_the_plan_says_so_and_is_verified(tmp_path: Path) -> None:
    x = whole(1000, 128)
    out = np.zeros((), np.float32)
    plan = total.plan(x, out)
    assert plan.decisions.family == "vector sweep" and plan.check().status == "verified", plan.explain()
    assert "over workers" in plan.machine()
    plan.save(tmp_path / "plan.json")
    again = td.load(tmp_path / "plan.json", total)
    again(x, out)
    assert again.decisions.point == plan.decisions.point and out == x.sum()


def test_a_chain_is_not_split() -> None:
    x, out = whole(500, 64), np.zeros((), np.float32)
    plan = total.plan(x, out, order=td.fold_left)
    assert plan.decisions.family == "universal" and "exact chain" in plan.explain()
    assert total(x, order=td.fold_left) == x.sum()
