"""Reductions: integers exactly, NaN policies, empty rows, orders, strided and bf16 inputs."""

from __future__ import annotations

import numpy as np
import pytest
from tests.lib import rounding as r
from tests.lib.ways import BF16, clean, random, reals, run, whole

import treadle as td
from treadle.lib import reductions as lib

INF = np.inf


@pytest.mark.parametrize("order", [td.unordered, td.ordered, td.fold_left, td.fold_right])
def test_sums(order: str) -> None:
    x = whole(random(), 5, 37)
    run(lib.rows_sum, x, order=order, want=x.sum(1), compiled=order != td.ordered)
    run(lib.total, x, order=order, want=x.sum(), compiled=order == td.ordered)
    run(lib.rows_prod, x[:, :9], order=order, want=x[:, :9].prod(1))


def test_dtypes_of_sums() -> None:
    x = whole(random(1), 6, 300, most=100, dtype=np.int8)
    assert run(lib.rows_sum, x, want=x.sum(1, dtype=int)).dtype == np.int32
    b = whole(random(2), 6, 300, dtype=BF16)
    assert run(lib.rows_sum, b[:, ::-2], want=b[:, ::-2].astype(float).sum(1)).dtype == np.float32
    run(lib.columns_sum, b.T, want=b.astype(float).sum(1))


def test_means_and_variances() -> None:
    x = reals(random(3), 5, 13)
    n = r.num(x)
    run(lib.rows_mean, x, want=n.mean(1))
    d = n - n.mean(1, keepdims=True)
    run(lib.rows_var, x, ddof=1, want=(d * d).sum(1) / 12.0)
    assert np.isnan(lib.rows_mean(x[:, :0])).all()


@pytest.mark.parametrize("p", [1, 2, 3, INF])
def test_norms(p: float) -> None:
    x = whole(random(4), 5, 13)
    exact = np.linalg.norm(r.up(x), ord=p, axis=1)
    off = {1: 0, INF: 0, 2: 4, 3: 24}[p] * r.U * exact
    run(lib.rows_norm, x, p=p, want=r.Num(exact, off))


def test_extrema() -> None:
    x = whole(random(5), 6, 29)
    run(lib.rows_max, x, want=(x.max(1), x.argmax(1)))
    run(lib.rows_min, x, want=(x.min(1), x.argmin(1)))
    x[1, 7] = x[1, 9] = np.nan
    x[2] = np.nan
    run(lib.rows_max, x, want=(x.max(1), x.argmax(1)))
    top, at = lib.rows_max.reference(x[:2], nan="ignore")
    assert top[1] == np.nanmax(x[1]) and at[1] == np.nanargmax(x[1]) and at[0] == x[0].argmax()
    clean(lib.rows_max, x)


def test_any_and_all() -> None:
    x = np.array([[0, 0, 0], [0, 2, 0], [1, 2, 3]], np.int32)
    run(lib.rows_any, x, want=x.any(1))
    run(lib.rows_all, x, want=x.all(1))
    run(lib.rows_all, x[:, :0], want=np.ones(3, bool))


def test_logsumexp() -> None:
    x = reals(random(6), 5, 13, scale=3)
    n = r.num(x)
    top = n.max(1)
    run(lib.rows_logsumexp, x, want=top + r.log(r.exp(n - top[:, None]).sum(1)))
    x = np.array([[-INF, -INF], [INF, 0], [np.nan, 0], [1e38, -1e38]], np.float32)
    run(lib.rows_logsumexp, x, want=np.array([-INF, INF, np.nan, np.float32(1e38)]))
