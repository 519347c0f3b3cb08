"""Losses: of labels (cross-entropy) and of elements, with the gradients behind them.

A loss of elements is a function of a prediction and a target, with its slope; `loss`, `mean_loss` and `loss_backward`
apply them.
"""

from __future__ import annotations

import treadle as td
from treadle import f32, i32
from treadle.lib.precision import computing, wide

T, V, K = td.dims("T V K")
M, N = td.dims("M N")


def squared_error(p, t):
    """`(p - t)^2`."""
    d = p - t
    return d * d


def squared_error_slope(p, t):
    """`2 (p - t)`."""
    return 2.0 * (p - t)


def absolute_error(p, t):
    """`|p - t|`."""
    return td.abs(p - t)


def absolute_error_slope(p, t):
    """The sign of `p - t`, 0 where they are equal."""
    return td.where(p > t, 1.0, 0.0) - td.where(p < t, 1.0, 0.0)


def huber(p, t, delta=1.0):
    """`d^2 / 2` where `|d| <= delta`, else `delta (|d| - delta / 2)`, with `d = p - t`. *Source*: Huber, 1964."""
    a = td.abs(p - t)
    return td.where(a <= delta, 0.5 * a * a, delta * (a - 0.5 * delta))


def huber_slope(p, t, delta=1.0):
    """`p - t`, clamped to `-delta .. delta`."""
    return td.minimum(td.maximum(p - t, -delta), delta)


def bce_with_logits(p, t):
    """`max(p, 0) - p t + log(1 + exp(-|p|))`: binary cross-entropy of the probability `sigmoid(p)`, without
    overflow."""
    return td.maximum(p, 0) - p * t + td.log1p(td.exp(-td.abs(p)))


def bce_with_logits_slope(p, t):
    """`sigmoid(p) - t`."""
    return td.sigmoid(p) - t


def kl_divergence(p, t):
    """`exp(t) (t - p)` of logarithms of probabilities, and 0 where `t` is -inf: its sum over a row is KL(t || p)."""
    return td.where(t == -float("inf"), 0.0, td.exp(t) * (t - p))


def kl_divergence_slope(p, t):
    """`-exp(t)`."""
    return -td.exp(t)


def hinge(p, t):
    """`max(0, 1 - p t)` for targets of -1 and 1."""
    return td.maximum(1.0 - p * t, 0)


def hinge_slope(p, t):
    """`-t` where `p t < 1`, else 0."""
    return td.where(p * t < 1.0, -t, 0.0)


@td.kernel
def loss(P: td.Tensor[M, N], target: td.Tensor[M, N], L: td.Out[M, N] = None, *, of=squared_error):
    """`L = of(P, target)`, element by element. *Shapes*: P, target, L [M, N]."""
    for m, n in td.parallel(M, N):
        L[m, n] = of(wide(P[m, n]), wide(target[m, n]))


@td.kernel
def mean_loss(P: td.Tensor[M, N], target: td.Tensor[M, N], L: td.Out[()] = None, *, of=squared_error):
    """The mean of `of(P, target)` over all elements; NaN where there is none. *Shapes*: P, target [M, N]; L is a
    scalar."""
    total = td.full(value=0, dtype=computing(P.dtype, target.dtype))
    for m in td.reduce(M):
        total = total + of(wide(P[m, N]), wide(target[m, N])).sum()
    L[()] = total / (M.extent * N.extent)


@td.kernel
def loss_backward(
    P: td.Tensor[M, N],
    target: td.Tensor[M, N],
    dP: td.Out[M, N] = None,
    *,
    slope=squared_error_slope,
    scale=1.0,
):
    """`dP = slope(P, target) scale`; behind `mean_loss`, scale is 1 over the number of elements. *Shapes*: all [M,
    N].
    """
    for m, n in td.parallel(M, N):
        dP[m, n] = slope(wide(P[m, n]), wide(target[m, n])) * scale


@td.kernel
def cross_entropy(
    X: td.Tensor[T, V],
    label: td.Tensor[T, i32],
    L: td.Out[T] = None,
    lse: td.Out[T] = None,
    *,
    smoothing=0.0,
    ignore=-100,
):
    """`L[t] = lse[t] - (1 - smoothing) X[t, label[t]] - smoothing mean(X[t, :])`, `lse = log(sum(exp(X[t, :])))`.

    A token whose label is `ignore` costs 0; another label that is no column gives NaN. Gives (L, lse); lse is what
    `cross_entropy_backward` wants. *Shapes*: X [T, V]; label, L, lse [T].
    *Source*: label smoothing: Szegedy et al., "Rethinking the Inception Architecture", 2016, section 7.
    """
    for t in td.parallel(T):
        x, y = wide(X[t, V]), label[t]
        top = x.max(V)
        z = top + td.log(td.exp(x - top).sum(V))
        hit = wide(X.at(t, y, fill=float("nan")))
        cost = z - hit if smoothing == 0 else z - (1 - smoothing) * hit - smoothing * x.mean(V)
        L[t] = td.where(y == ignore, 0.0, cost)
        lse[t] = z


@td.kernel
def cross_entropy_backward(
    X: td.Tensor[T, V],
    label: td.Tensor[T, i32],
    lse: td.Tensor[T],
    dL: td.Tensor[T],
    dX: td.Out[T, V] = None,
    *,
    smoothing=0.0,
    ignore=-100,
):
    """`dX[t, v] = dL[t] (exp(X[t, v] - lse[t]) - (1 - smoothing) [v = label[t]] - smoothing / V)`; 0 of ignored tokens.

    *Shapes*: X, dX [T, V], dX may be X itself; label, lse, dL [T].
    """
    for t, v in td.parallel(T, V):
        y = label[t]
        p = td.exp(wide(X[t, v]) - wide(lse[t]))
        target = td.where(v == y, 1.0 - smoothing, 0.0) + smoothing / V.extent
        dX[t, v] = td.where(y == ignore, 0.0, wide(dL[t]) * (p - target))


@td.kernel
def linear_cross_entropy(
    X: td.Tensor[T, K],
    W: td.Tensor[K, V],
    label: td.Tensor[T, i32],
    L: td.Out[T] = None,
    lse: td.Out[T] = None,
    *,
    ignore=-100,
):
    """`cross_entropy(X W, label)` without the logits in memory: blocks of the vocabulary pass in a pipeline.

    *Shapes*: X [T, K], W [K, V]; label, L, lse [T]. Gives (L, lse).
    *Source*: Wijmans et al., "Cut Your Losses in Large-Vocabulary Language Models", 2024, section 4.
    """
    for t in td.parallel(T):
        x, y = X[t, K], label[t]
        top, total, hit = td.full(t, value=-float("inf")), td.zeros(t), td.full(t, value=float("nan"))
        for v in td.pipeline(V):
            z = td.dot(x, W[K, v], over=K, dtype=f32)
            new = td.maximum(top, z.max(v))
            total = total * td.exp(top - new) + td.exp(z - new).sum(v)
            found = (v == y).any(v)
            hit = td.where(found, td.where(v == y, z, 0.0).sum(v), hit)
            top = new
        z = top + td.log(total)
        L[t] = td.where(y == ignore, 0.0, z - hit)
        lse[t] = z
