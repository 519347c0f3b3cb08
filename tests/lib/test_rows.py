"""Softmax and its kin: derived bounds, masks, rows that keep nothing, gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.lib import rounding as r
from tests.lib.rounding import Num
from tests.lib.ways import BF16, F32, clean, random, reals, run, whole

from treadle.lib import rows


def softmax(x: Any) -> Num:
    x = r.num(x)
    e = r.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


@pytest.mark.parametrize(("m", "n", "dtype"), [(5, 13, F32), (1, 1, F32), (3, 70, BF16), (0, 5, F32), (4, 0, F32)])
def test_softmax(m: int, n: int, dtype: Any) -> None:
    g = random()
    x, d = reals(g, m, n, dtype=dtype, scale=3), whole(g, m, n)
    want = softmax(x)
    y = run(rows.softmax, x, want=want, compiled=True)
    v = r.num(y)
    run(rows.softmax_backward, y, d, want=v * (d - (v * d).sum(1, keepdims=True)))
    z = r.num(x) - r.num(x).max(1, keepdims=True)
    z = z - r.log(r.exp(z).sum(1, keepdims=True))
    got = run(rows.log_softmax, x[:, ::-1], want=z[:, ::-1])
    run(rows.log_softmax_backward, got, d, want=d - r.exp(got) * r.num(d).sum(1, keepdims=True))


def test_masked_softmax() -> None:
    x, keep = reals(random(1), 6, 17), random(2).random((6, 17)) < 0.5
    keep[3] = False
    x[~keep] = np.nan
    seen = np.where(keep, r.up(x), -np.inf)
    seen[3] = 0
    e = r.where(keep, r.exp(r.num(seen) - seen.max(1, keepdims=True)), 0)
    want = r.where(keep, e / r.maximum(e.sum(1, keepdims=True), 1e-30), 0)
    run(rows.masked_softmax, x, keep, want=want)
    clean(rows.masked_softmax, x, keep)


def test_large_scores_do_not_overflow() -> None:
    run(rows.softmax, np.array([[1e38, 1e38], [-3e38, -3e38]], np.float32), want=np.full((2, 2), 0.5))
