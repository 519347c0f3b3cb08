"""Sorting: stability, NaN last, ties, both directions, searches at the ends, compaction of none and all."""

from __future__ import annotations

import numpy as np
import pytest
from tests.lib.ways import BF16, clean, random, run, whole

from treadle.lib import sorting as lib


def ordered(x: np.ndarray, descending: bool) -> np.ndarray:
    """The columns in order, NaN last, stable in both directions."""
    key = np.where(np.isnan(x.astype(float)), np.inf, -x.astype(float) if descending else x.astype(float))
    return np.lexsort((np.broadcast_to(np.arange(x.shape[1]), x.shape), np.isnan(x.astype(float)), key), axis=1)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int32])
def test_sort(descending: bool, dtype: object) -> None:
    x = whole(random(), 4, 19, dtype=dtype, most=5)
    if dtype != np.int32:
        x[1, 3] = x[1, 11] = np.nan
        x[2, 5], x[2, 6] = np.inf, -np.inf
    at = ordered(x, descending)
    wants = np.take_along_axis(x, at, 1), at
    run(lib.sort, x, descending=descending, want=wants)
    run(lib.argsort, x[:, ::-1], descending=descending, want=ordered(x[:, ::-1], descending), compiled=False)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_few(n: int) -> None:
    x = whole(random(1), 3, n)
    run(lib.sort, x, want=(np.sort(x, 1), np.argsort(x, 1, kind="stable")))


def test_greatest() -> None:
    x = whole(random(2), 5, 17, most=4)
    x[0, 3] = np.nan
    at = ordered(x, True)[:, :4]
    run(lib.topk, x, k=4, want=(np.take_along_axis(x, at, 1), at))
    clean(lib.topk, x, k=17)
    with pytest.raises(Exception, match="call/") as caught:
        lib.topk(x, k=18)
    assert getattr(caught.value, "code", "").startswith("call/")


@pytest.mark.parametrize("n", [1, 8, 9])
def test_medians_and_ranks(n: int) -> None:
    x = whole(random(3), 5, n)
    run(lib.rows_median, x, want=np.median(x, 1), compiled=False)
    at = np.argsort(np.argsort(x, 1, kind="stable"), 1)
    run(lib.ranks, x, want=at, compiled=False)


@pytest.mark.parametrize("right", [False, True])
def test_search(right: bool) -> None:
    x = np.array([-2, -1, -1, -1, 0, 3, 3, 7], np.float32)
    v = np.array([-9, -2, -1, 0, 1, 3, 7, 9], np.float32)
    side = "right" if right else "left"
    run(lib.searchsorted, x, v, right=right, want=np.searchsorted(x, v, side))
    run(lib.searchsorted, x[:0], v, right=right, want=np.zeros(8, int))


@pytest.mark.parametrize("kept", ["some", "none", "all"])
def test_compaction(kept: str) -> None:
    g = random(4)
    x = whole(g, 40)
    keep = {"some": g.random(40) < 0.5, "none": np.zeros(40, bool), "all": np.ones(40, bool)}[kept]
    want = np.concatenate([x[keep], np.zeros((~keep).sum())])
    run(lib.compact, x, keep, want=(want, keep.sum()))
    clean(lib.compact, x, keep)


def test_unique() -> None:
    x = np.sort(whole(random(5), 40, most=6))
    found = np.unique(x)
    run(lib.unique_sorted, x, want=(np.concatenate([found, np.zeros(40 - len(found))]), len(found)))
    run(lib.unique_sorted, x[:0], want=(x[:0], 0))
