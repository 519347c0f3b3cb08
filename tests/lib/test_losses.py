"""Losses: labels ignored and out of range, smoothing, elementwise losses with slopes, the fused vocabulary loss."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from tests.lib import rounding as r
from tests.lib.rounding import Num
from tests.lib.ways import BF16, clean, compare, random, reals, run, whole

from treadle.lib import losses as lib


def huber(p: Any, t: Any) -> Num:
    a = r.absolute(r.num(p) - t)
    return r.where(a.value <= 1, 0.5 * a * a, a - 0.5)


def kl(p: Any, t: Any) -> Num:
    with np.errstate(invalid="ignore"):
        return r.where(r.up(t) == -np.inf, 0, r.exp(t) * (r.num(np.where(r.up(t) == -np.inf, 0, t)) - p))


ORACLES = {
    "squared_error": lambda p, t: (r.num(p) - t) * (r.num(p) - t),
    "squared_error_slope": lambda p, t: 2.0 * (r.num(p) - t),
    "absolute_error": lambda p, t: r.absolute(r.num(p) - t),
    "absolute_error_slope": lambda p, t: np.sign(r.up(p) - r.up(t)),
    "huber": huber,
    "huber_slope": lambda p, t: r.minimum(r.maximum(r.num(p) - t, -1), 1),
    "bce_with_logits": lambda p, t: r.maximum(p, 0) - r.num(p) * t + r.log1p(r.exp(-r.absolute(p))),
    "bce_with_logits_slope": lambda p, t: r.sigmoid(p) - t,
    "kl_divergence": kl,
    "kl_divergence_slope": lambda p, t: -r.exp(t),
    "hinge": lambda p, t: r.maximum(1.0 - r.num(p) * t, 0),
    "hinge_slope": lambda p, t: r.where(r.up(p) * r.up(t) < 1, -r.up(t), 0),
}


def test_every_function_has_an_oracle() -> None:
    public = {n for n, f in vars(lib).items() if inspect.isfunction(f) and f.__module__ == lib.__name__}
    assert public == set(ORACLES)


@pytest.mark.parametrize("name", ORACLES)
def test_losses_of_elements(name: str) -> None:
    g, of = random(), getattr(lib, name)
    p, t = reals(g, 5, 13, scale=2), reals(g, 5, 13)
    t[0, :3] = p[0, :3]
    if name.startswith("kl"):
        t[1, 1] = -np.inf
    want = ORACLES[name](p, t)
    if name.endswith("slope"):
        run(lib.loss_backward, p, t, slope=of, scale=0.5, want=r.num(want) * 0.5)
    else:
        run(lib.loss, p, t, of=of, want=want)
        total = r.num(want).sum()
        run(lib.mean_loss, p, t, of=of, want=total / 65.0)


def test_the_mean_of_nothing_is_nan() -> None:
    assert np.isnan(lib.mean_loss(np.ones((0, 3), np.float32), np.ones((0, 3), np.float32))[()])


def cross_entropy(x: Any, label: Any, smoothing: float) -> tuple[Num, Num]:
    v = r.num(x)
    top = v.max(1)
    z = top + r.log(r.exp(v - top[:, None]).sum(1))
    hit = v[np.arange(len(label)), np.clip(label, 0, x.shape[1] - 1)]
    cost = z - hit
    if smoothing:
        cost = z - r.inexact(1 - smoothing) * hit - r.inexact(smoothing) * v.mean(1)
    return r.where(label == -100, 0, cost), z


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_cross_entropy(smoothing: float, dtype: Any) -> None:
    g = random(1)
    x, d = reals(g, 6, 29, dtype=dtype, scale=3), reals(g, 6)
    label = np.array([3, 0, -100, 28, 5, 5], np.int32)
    cost, z = cross_entropy(x, label, smoothing)
    _, lse = run(lib.cross_entropy, x, label, smoothing=smoothing, want=(cost, z))
    target = r.where(label[:, None] == np.arange(29), r.inexact(1 - smoothing), 0) + r.inexact(smoothing / 29)
    p = r.exp(r.num(x) - lse[:, None])
    want = r.where(label[:, None] == -100, 0, r.num(d)[:, None] * (p - target))
    run(lib.cross_entropy_backward, x, label, lse, d, smoothing=smoothing, want=want)


def test_labels_that_are_no_column() -> None:
    x, label = reals(random(2), 3, 5), np.array([5, -1, -100], np.int32)
    cost, _ = lib.cross_entropy(x, label)
    assert np.isnan(cost[:2]).all() and cost[2] == 0
    assert lib.cross_entropy(x, np.full(3, 2, np.int32), ignore=2)[0].tolist() == [0, 0, 0]
    clean(lib.cross_entropy, x, label)


@pytest.mark.parametrize("vocabulary", [1, 37, 300])
def test_linear_cross_entropy(vocabulary: int) -> None:
    """Integer logits are exact; each of at most V steps rescales the sum by a factor off by 4 u, and rounds."""
    g = random(3)
    x, w = whole(g, 5, 8, most=1), whole(g, 8, vocabulary, most=1)
    label = np.array([0, vocabulary - 1, -100, vocabulary // 2, vocabulary], np.int32)
    logits = r.up(x) @ r.up(w)
    top = logits.max(1)
    total = np.exp(logits - top[:, None]).sum(1)
    z = r.num(top) + r.log(Num(total, 6 * vocabulary * r.U * total))
    hit = logits[np.arange(5), np.clip(label, 0, vocabulary - 1)]
    cost = r.where(label == -100, 0, z - hit)
    cost = Num(np.where(label == vocabulary, np.nan, cost.value), cost.off)
    run(lib.linear_cross_entropy, x, w, label, want=(cost, z))


def test_ignored_tokens_have_no_gradient() -> None:
    x, label = reals(random(4), 2, 5), np.array([-100, 1], np.int32)
    _, lse = lib.cross_entropy(x, label)
    d = lib.cross_entropy_backward(x, label, lse, np.ones(2, np.float32), x)
    assert d is x or d.base is x
    compare(x[0], np.zeros(5))
