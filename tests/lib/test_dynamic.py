"""Dynamic programming on integers, exactly, against the tables that one would write."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.lib.ways import clean, random, run, whole

from treadle.lib import dynamic as lib


def distance(a: np.ndarray, b: np.ndarray) -> int:
    d = np.zeros((len(a) + 1, len(b) + 1), int)
    d[:, 0], d[0] = range(len(a) + 1), range(len(b) + 1)
    for i, j in itertools.product(range(1, len(a) + 1), range(1, len(b) + 1)):
        d[i, j] = min(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + (a[i - 1] != b[j - 1]))
    return d[-1, -1]


@pytest.mark.parametrize(("m", "n"), [(9, 12), (12, 5), (0, 4), (4, 0), (0, 0), (1, 1)])
def test_edit_distance(m: int, n: int) -> None:
    g = random(m + n)
    a, b = g.integers(0, 3, m).astype(np.int32), g.integers(0, 3, n).astype(np.int32)
    run(lib.edit_distance, a, b, want=distance(a, b))


def test_viterbi() -> None:
    g = random(1)
    start, step, emit = whole(g, 4), whole(g, 4, 4), whole(g, 6, 4)

    def score(p: tuple[int, ...]) -> float:
        return start[p[0]] + emit[0, p[0]] + sum(step[p[i - 1], p[i]] + emit[i, p[i]] for i in range(1, 6))

    path, best = lib.viterbi.reference(start, step, emit)
    assert best == max(map(score, itertools.product(range(4), repeat=6))) == score(tuple(path))
    run(lib.viterbi, start, step, emit, want=(path, best))
    run(lib.viterbi, start, step, emit[:1], want=(np.array([np.argmax(start + emit[0])]), (start + emit[0]).max()))
    clean(lib.viterbi, start, step, emit)


def test_shortest_paths() -> None:
    g = random(2)
    a = np.where(g.random((7, 7)) < 0.4, g.integers(1, 9, (7, 7)), np.inf).astype(np.float32)
    want = np.where(np.eye(7) == 1, np.minimum(a, 0), a)
    for k in range(7):
        want = np.minimum(want, want[:, k : k + 1] + want[k])
    run(lib.shortest_paths, a, want=want)
