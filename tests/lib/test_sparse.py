"""Segments, compressed rows and histograms: integers exactly; empty segments, repeated columns, indices out of
range.
"""

from __future__ import annotations

import numpy as np
from tests.lib.rounding import Num, U, up
from tests.lib.ways import BF16, clean, random, reals, run, whole

from treadle.lib import sparse as lib

START = np.array([0, 0, 6, 7, 17, 17], np.int32)


def test_segments() -> None:
    x = whole(random(), 17, 5)
    parts = [x[a:b] for a, b in zip(START, START[1:])]
    run(lib.segment_sum, x, START, want=np.stack([p.sum(0) for p in parts]))
    counts = np.maximum(np.diff(START), 1)[:, None]
    means = np.stack([p.astype(float).sum(0) for p in parts]) / counts
    run(lib.segment_sum, x, START, mean=True, want=Num(means, U * np.abs(means)))
    run(lib.segment_max, x, START, want=np.stack([p.max(0, initial=-np.inf) for p in parts]))
    clean(lib.segment_sum, x, START)


def test_segment_softmax() -> None:
    """At most 10 rescaled steps: as attention, 7 and 8 u a step, and once more for the quotient."""
    x = reals(random(1), 17, 5, dtype=BF16)
    want = np.zeros((17, 5))
    for a, b in zip(START, START[1:]):
        if a < b:
            e = np.exp(up(x[a:b]) - up(x[a:b]).max(0))
            want[a:b] = e / e.sum(0)
    run(lib.segment_softmax, x, START, want=Num(want, 100 * U * want))


def csr(a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    start = np.concatenate([[0], (a != 0).sum(1).cumsum()]).astype(np.int32)
    return start, np.nonzero(a)[1].astype(np.int32), a[a != 0]


def test_compressed_rows() -> None:
    g = random(2)
    a = whole(g, 7, 9) * (g.random((7, 9)) < 0.4).astype(np.float32)
    a[3] = 0
    start, column, value = csr(a)
    x = whole(g, 9, 5)
    run(lib.csr_matvec, start, column, value, x[:, 0], want=a @ x[:, 0])
    run(lib.csr_matmul, start, column, value, x, want=a @ x)
    left, right = whole(g, 7, 6), whole(g, 9, 6)
    run(lib.csr_scores, start, column, left, right, want=(left @ right.T)[a != 0])
    clean(lib.csr_matvec, start, column, value, x[:, 0])
    bad = column.copy()
    bad[0] = 9
    assert lib.csr_matvec.sanitize(start, bad, value, x[:, 0])
    empty = np.zeros(4, np.int32), column[:0], value[:0]
    run(lib.csr_matvec, *empty, x[:, 0], want=np.zeros(3))


def test_bincount() -> None:
    at = random(3).integers(-2, 10, 300).astype(np.int32)
    want = np.bincount(at[(at >= 0) & (at < 8)], minlength=8)
    run(lib.bincount, at, np.ones(8, np.int32), want=want)
    run(lib.bincount, at[:0], np.ones(8, np.int32), want=np.zeros(8, int))
    run(lib.bincount, np.full(50, 3, np.int32), np.ones(8, np.int32), want=np.eye(8, dtype=int)[3] * 50)


def test_histogram() -> None:
    x = (random(4).integers(-40, 41, 200) / 32).astype(np.float32)  # edges of eighths are exact
    x[:3] = [1.0, np.nan, -1.0]
    want, _ = np.histogram(x[np.isfinite(x)], 16, (-1, 1))
    run(lib.histogram, x, np.ones(16, np.int32), low=-1.0, high=1.0, want=want)
