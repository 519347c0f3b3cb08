"""Non-negative least squares, and what ranks two lists alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Model = Callable[[Mapping[str, float]], float]
"""Predicted seconds under coefficients."""


def nnls(a: Any, b: Any, steps: int = 0) -> Any:
    """The x >= 0 for which |a x - b| is least. *Ensures*: the gradient is 0 where x > 0, and not negative elsewhere.

    *Source*: Lawson and Hanson, Solving Least Squares Problems, chapter 23.
    """
    a, b = np.asarray(a, float), np.asarray(b, float)
    count = a.shape[1]
    x = np.zeros(count)
    free = np.zeros(count, bool)
    small = 1e-12 * max(1.0, float(np.abs(a.T @ b).max(initial=0.0)))
    for _ in range(steps or 10 * count + 10):
        slope = a.T @ (b - a @ x)
        slope[free] = -np.inf
        if count == 0 or free.all() or slope.max() <= small:
            break
        free[int(np.argmax(slope))] = True
        while True:
            trial = np.zeros(count)
            trial[free] = np.linalg.lstsq(a[:, free], b, rcond=None)[0]
            bad = free & (trial <= 0)
            if not bad.any():
                x = trial
                break
            share = float(np.min(x[bad] / np.maximum(x[bad] - trial[bad], 1e-300)))
            x = x + share * (trial - x)
            free &= x > 1e-14 * max(1.0, float(x.max(initial=0.0)))
            x[~free] = 0.0
    return x


def fitted(
    models: Sequence[Model],
    measured: Sequence[float],
    start: Mapping[str, float],
    *,
    keep: float = 0.05,
    rounds: int = 12,
) -> dict[str, float]:
    """Coefficients under which predictions come near to what was measured, relative to it.

    A model is linear as long as what it waits for stays the same: it is linearised where it stands, solved by `nnls`,
    and again, half of each step at first. `keep` is the weight of staying near `start`, which decides what no
    measurement tells.
    """
    names = list(start)
    scale = np.array([max(start[n], 1e-30) for n in names])
    x = np.ones(len(names))
    for turn in range(rounds):
        rows: list[Any] = []
        wanted: list[float] = []
        for model, seconds in zip(models, measured, strict=True):
            here = model(_named(names, x * scale))
            slope = np.array([(model(_named(names, _moved(x, i) * scale)) - here) / 1e-4 for i in range(len(names))])
            rows.append(slope / seconds)
            wanted.append((seconds - here + float(slope @ x)) / seconds)
        a = np.vstack([*rows, keep * np.eye(len(names))])
        b = np.concatenate([wanted, np.full(len(names), keep)])
        step = 0.5 if turn < rounds // 2 else 1.0
        x = (1.0 - step) * x + step * nnls(a, b)
    return _named(names, x * scale)


def _moved(x: Any, place: int) -> Any:
    moved = x.copy()
    moved[place] += 1e-4
    return moved


def _named(names: Sequence[str], values: Any) -> dict[str, float]:
    return {n: float(v) for n, v in zip(names, values, strict=True)}


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's: 1 where both are in one order, -1 where they are in opposite ones, 0 where one is constant."""
    a, b = _ranks(first), _ranks(second)
    a, b = a - a.mean(), b - b.mean()
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size else 0.0


def _ranks(values: Sequence[float]) -> Any:
    found = np.asarray(values, float)
    _, inverse, counts = np.unique(found, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return ((last - counts) + (last - 1))[inverse] / 2.0
