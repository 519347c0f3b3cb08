"""Steps of optimisers, in place: parameters as rows of a matrix (a vector is passed as `w[None]`), state in f32.

Each reads the gradient once and writes parameter and state once. Rates change from step to step: they are scalars, not
staged.
"""

from __future__ import annotations

import treadle as td
from treadle import f32
from treadle.lib.precision import wide

M, N = td.dims("M N")


@td.kernel
def sgd(
    W: td.Out[M, N],
    grad: td.Tensor[M, N],
    velocity: td.Out[M, N],
    rate: td.Scalar[f32],
    *,
    momentum=0.9,
    decay=0.0,
    nesterov=False,
):
    """`v = momentum v + g`, `W -= rate v` with `g = grad + decay W`; nesterov steps by `g + momentum v` instead.

    *Shapes*: W, grad, velocity [M, N]; W and velocity are updated in place. *Source*: Sutskever et al., 2013, section
    2.
    """
    for m, n in td.parallel(M, N):
        w = wide(W[m, n])
        g = wide(grad[m, n])
        g = g + decay * w if decay else g
        v = momentum * wide(velocity[m, n]) + g
        velocity[m, n] = v
        W[m, n] = w - rate * (g + momentum * v if nesterov else v)


@td.kernel
def adamw(
    W: td.Out[M, N],
    grad: td.Tensor[M, N],
    first: td.Out[M, N],
    second: td.Out[M, N],
    rate: td.Scalar[f32],
    bias1: td.Scalar[f32],
    bias2: td.Scalar[f32],
    *,
    beta1=0.9,
    beta2=0.999,
    eps=1e-8,
    decay=0.01,
):
    """`first = beta1 first + (1 - beta1) g`, `second = beta2 second + (1 - beta2) g^2`,
    `W = W (1 - rate decay) - rate (first / bias1) / (sqrt(second / bias2) + eps)`; at step t `bias1 = 1 - beta1^t`,
    `bias2 = 1 - beta2^t`.

    *Shapes*: W, grad, first, second [M, N]; W, first and second are updated in place.
    *Source*: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2017, algorithm 2.
    """
    for m, n in td.parallel(M, N):
        g = wide(grad[m, n])
        a = beta1 * wide(first[m, n]) + (1 - beta1) * g
        b = beta2 * wide(second[m, n]) + (1 - beta2) * g * g
        first[m, n] = a
        second[m, n] = b
        w = wide(W[m, n])
        W[m, n] = w - rate * decay * w - rate * (a / bias1) / (td.sqrt(b / bias2) + eps)


@td.kernel
def lion(
    W: td.Out[M, N],
    grad: td.Tensor[M, N],
    first: td.Out[M, N],
    rate: td.Scalar[f32],
    *,
    beta1=0.9,
    beta2=0.99,
    decay=0.0,
):
    """`W -= rate (sign(beta1 first + (1 - beta1) g) + decay W)`, `first = beta2 first + (1 - beta2) g`.

    *Shapes*: W, grad, first [M, N]; W and first are updated in place. *Source*: Chen et al., "Symbolic Discovery of
    Optimization Algorithms", 2023, program 1.
    """
    for m, n in td.parallel(M, N):
        g, a, w = wide(grad[m, n]), wide(first[m, n]), wide(W[m, n])
        u = beta1 * a + (1 - beta1) * g
        sign = td.where(u > 0, 1.0, 0.0) - td.where(u < 0, 1.0, 0.0)
        W[m, n] = w - rate * (sign + decay * w)
        first[m, n] = beta2 * a + (1 - beta2) * g


@td.kernel
def squared_length(X: td.Tensor[M, N], Y: td.Out[()] = None):
    """The sum of squares of all elements in f32: for clipping gradients. *Shapes*: X [M, N], Y a scalar."""
    s = td.full(value=0.0)
    for m in td.reduce(M):
        x = X[m, N].to(f32)
        s = s + (x * x).sum()
    Y[()] = s
