"""Rows by index: embedding, bags, gathers, scatters and gradients; integers, repeated and skipped indices, no index."""

from __future__ import annotations

import numpy as np
import pytest
from tests.lib.ways import BF16, clean, random, run, whole

import treadle as td
from treadle.lib import embeddings as lib

IDS = np.array([3, 0, 3, 6, 3], np.int32)


def test_embedding() -> None:
    table = whole(random(), 7, 5, dtype=BF16)
    y = run(lib.embedding, IDS, table, want=table[IDS])
    assert y.dtype == BF16
    skipped = np.array([3, -1, 6], np.int32)
    run(lib.embedding, skipped, table, skip=-1, want=table[skipped] * np.array([[1], [0], [1]]))
    run(lib.embedding, IDS[:0], table, want=np.zeros((0, 5)))
    clean(lib.embedding, skipped, table, skip=-1)
    assert lib.embedding.sanitize(np.array([7], np.int32), table)


@pytest.mark.parametrize("order", [td.unordered, td.ordered])
def test_gradient(order: str) -> None:
    d = whole(random(1), 5, 13)
    want = np.zeros((7, 13))
    np.add.at(want, IDS, d)
    out = np.full((7, 13), np.nan, np.float32)
    run(lib.embedding_backward, IDS, d, out, order=order, want=want)
    want[3] = 0
    run(lib.embedding_backward, IDS, d, out, skip=3, order=order, want=want)


def test_bags() -> None:
    table, start = whole(random(2), 7, 5), np.array([0, 0, 4, 5], np.int32)
    sums = np.stack([table[IDS[a:b]].sum(0) for a, b in zip(start, start[1:])])
    run(lib.embedding_bag, IDS, start, table, want=sums)
    run(lib.embedding_bag, IDS, start, table, mean=True, want=sums / np.array([[1], [4], [1]]))


def test_gathers_and_scatters() -> None:
    g = random(3)
    x, at = whole(g, 7, 5), np.array([4, 1, 0], np.int32)
    run(lib.gather_rows, x, at, want=x[at])
    columns = g.integers(0, 5, (7, 3)).astype(np.int32)
    run(lib.gather_elements, x, columns, want=np.take_along_axis(x, columns, 1))
    want = np.full((7, 5), 9.0)
    want[at] = x[:3]
    run(lib.scatter_rows, x[:3], at, np.full((7, 5), 9, np.float32), want=want)
    for way in (lib.scatter_add_rows, lib.scatter_add_rows.reference):
        y = np.ones((7, 5), np.float32)
        way(x[:5], IDS, y)
        want = np.ones((7, 5))
        np.add.at(want, IDS, x[:5])
        np.testing.assert_array_equal(y, want)
    assert lib.scatter_rows.sanitize(x[:2], np.array([1, 1], np.int32), np.zeros((7, 5), np.float32))
