"""Matrix products on integers, exactly: transposed, batched with stride 0, ragged groups, split contraction, no
element.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.lib.ways import BF16, F32, F64, I32, clean, random, run, whole

from treadle.lib import products as lib
from treadle.lib.linear import gated_linear, linear


@pytest.mark.parametrize("dtype", [F32, BF16, F64, np.dtype(np.int8)])
def test_matmul(dtype: Any) -> None:
    g = random()
    a, b, c = whole(g, 17, 33, dtype=dtype), whole(g, 33, 23, dtype=dtype), whole(g, 17, 23, dtype=dtype)
    product = a.astype(float) @ b.astype(float)
    y = run(lib.matmul, a, b, want=product, compiled=True)
    assert y.dtype == {F64: F64, np.dtype(np.int8): I32}.get(dtype, F32)
    run(lib.matmul, b.T, a.T, want=product.T)
    run(lib.matmul, a, b, c, alpha=2, beta=-3, want=2 * product - 3.0 * c.astype(float))


@pytest.mark.parametrize(("m", "n", "k"), [(0, 3, 4), (3, 0, 4), (3, 4, 0), (1, 1, 1)])
def test_few_elements(m: int, n: int, k: int) -> None:
    g = random(1)
    a, b = whole(g, m, k), whole(g, k, n)
    run(lib.matmul, a, b, want=a @ b, compiled=k == 0)
    run(lib.batched_matmul, a[None], b[None], want=(a @ b)[None])


def test_batched_with_a_shared_matrix() -> None:
    g = random(2)
    x, w = whole(g, 3, 5, 9), whole(g, 9, 6)
    run(lib.batched_matmul, x, np.broadcast_to(w, (3, 9, 6)), want=x @ w)
    assert lib.batched_matmul(x[:0], np.broadcast_to(w, (0, 9, 6))).shape == (0, 5, 6)


def test_vectors() -> None:
    g = random(3)
    a, x = whole(g, 13, 70), whole(g, 70)
    run(lib.matvec, a, x, want=a @ x)
    run(lib.matvec, a.T, a[:, 0], want=a.T @ a[:, 0])
    run(lib.outer, x[:5], x[:9], want=np.outer(x[:5], x[:9]))
    run(lib.gram, a, want=a @ a.T)


@pytest.mark.parametrize("sizes", [(0, 5, 0, 12, 3), (1, 0, 0), (0,)])
def test_ragged_groups(sizes: tuple[int, ...]) -> None:
    g = random(4)
    start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    x, w = whole(g, start[-1], 7), whole(g, len(sizes), 7, 9)
    want = np.concatenate([x[a:b] @ m for a, b, m in zip(start, start[1:], w)]) if start[-1] else np.zeros((0, 9))
    run(lib.grouped_matmul, x, w, start, want=want)
    clean(lib.grouped_matmul, x, w, start)


def test_rows_of_no_group_stay() -> None:
    y = np.full((4, 2), 9, np.float32)
    lib.grouped_matmul(np.ones((4, 3), np.float32), np.ones((1, 3, 2), np.float32), np.array([1, 3], np.int32), y)
    assert y.tolist() == [[9, 9], [3, 3], [3, 3], [9, 9]]


@pytest.mark.parametrize("splits", [1, 4, 50])
def test_split_contraction(splits: int) -> None:
    g = random(5)
    a, b = whole(g, 3, 41), whole(g, 41, 5)
    run(lib.split_matmul, a, b, splits=splits, want=a @ b)


def test_gradients_are_products() -> None:
    g = random(6)
    a, b, d = whole(g, 5, 6), whole(g, 6, 7), whole(g, 5, 7)
    run(lib.matmul, d, b.T, want=d @ b.T)
    run(lib.matmul, a.T, d, want=a.T @ d)


def test_nan_stays_in_its_row_and_column() -> None:
    g = random(7)
    a, b = whole(g, 9, 20), whole(g, 20, 18)
    a[4, 3] = np.nan
    y = lib.matmul(a, b)
    assert np.isnan(y[4]).all() and not np.isnan(np.delete(y, 4, 0)).any()


def test_linear_layers() -> None:
    g = random(8)
    x, w, u, b = whole(g, 5, 12), whole(g, 12, 7), whole(g, 12, 7), whole(g, 7)
    run(linear, x, w, b, want=x @ w + b)
    run(gated_linear, x, w, u, act=relu_of, want=np.maximum(x @ w, 0) * (x @ u))


def relu_of(x: Any) -> Any:
    return x * (x > 0).to(x.dtype)
