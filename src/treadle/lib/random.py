"""Random numbers and what is made of them: fills, choices, permutations, dropout.

A number is a function of the seed and its coordinates (Philox 4x32-10), the same on every target; a mask is made
again, not kept.
"""

from __future__ import annotations

import treadle as td
from treadle import i64
from treadle.lib.precision import wide

M, N = td.dims("M N")


@td.kernel
def uniform(seed: td.Scalar[i64], Y: td.Out[M, N], *, low=0.0, high=1.0):
    """Fills Y with numbers of `low .. high`. *Shapes*: Y [M, N]. *Source*: Salmon et al., "Parallel Random Numbers",
    2011.
    """
    for m, n in td.parallel(M, N):
        Y[m, n] = td.uniform(seed, m, n) * (high - low) + low


@td.kernel
def normal(seed: td.Scalar[i64], Y: td.Out[M, N], *, mean=0.0, deviation=1.0):
    """Fills Y with normally distributed numbers. *Shapes*: Y [M, N]. *Source*: Box and Muller, 1958."""
    for m, n in td.parallel(M, N):
        Y[m, n] = td.normal(seed, m, n) * deviation + mean


@td.kernel
def integers(seed: td.Scalar[i64], Y: td.Out[M, N], *, low=0, high):
    """Fills Y with integers `low <= y < high`: the upper half of a 32-bit number times the range, off uniform by range
    / 2^32.

    *Shapes*: Y [M, N]. *Source*: Lemire, "Fast Random Integer Generation in an Interval", 2018, section 2.
    """
    for m, n in td.parallel(M, N):
        Y[m, n] = ((td.bits(seed, m, n).to(td.u64) * (high - low)) >> 32).to(i64) + low


@td.kernel
def bernoulli(seed: td.Scalar[i64], P: td.Tensor[M, N], Y: td.Out[M, N, td.bool_] = None):
    """True with probability P. *Shapes*: P, Y [M, N]."""
    for m, n in td.parallel(M, N):
        Y[m, n] = td.uniform(seed, m, n) < wide(P[m, n])


@td.kernel
def sample_rows(seed: td.Scalar[i64], logits: td.Tensor[M, N], Y: td.Out[M, i64] = None, *, temperature=1.0):
    """A column of each row with probability softmax(logits / temperature), by the largest of logits with Gumbel noise.

    *Shapes*: logits [M, N], Y [M]. *Source*: Maddison et al., "A* Sampling", 2014, section 2 (the Gumbel-max trick).
    """
    for m in td.parallel(M):
        u = 1.0 - td.uniform(seed, m, N)
        noise = -td.log(td.maximum(-td.log(u), 1e-37))
        Y[m] = (wide(logits[m, N]) * (1.0 / temperature) + noise).argmax(N)


@td.kernel
def permutation(seed: td.Scalar[i64], Y: td.Out[M, N, i64]):
    """Fills each row of Y with a random order of 0 .. N - 1: the order of random 32-bit numbers. *Shapes*: Y [M, N]."""
    for m in td.parallel(M):
        Y[m, N] = td.argsort(td.bits(seed, m, N), N)


@td.kernel
def dropout(X: td.Tensor[M, N], seed: td.Scalar[i64], Y: td.Out[M, N] = None, *, p=0.5):
    """`Y = X / (1 - p)` with probability 1 - p, else 0. The gradient is the same map of dY with the same seed.

    *Shapes*: X, Y [M, N]; Y may be X itself. *Requires*: `0 <= p < 1`. *Source*: Srivastava et al., 2014, section 10.
    """
    for m, n in td.parallel(M, N):
        Y[m, n] = td.where(td.uniform(seed, m, n) >= p, wide(X[m, n]) * (1.0 / (1.0 - p)), 0.0)


@td.kernel
def dropout_backward(dY: td.Tensor[M, N], seed: td.Scalar[i64], dX: td.Out[M, N] = None, *, p=0.5):
    """The gradient behind `dropout` with that seed: nothing is kept between them. *Shapes*: dY, dX [M, N]."""
    for m, n in td.parallel(M, N):
        dX[m, n] = td.where(td.uniform(seed, m, n) >= p, wide(dY[m, n]) * (1.0 / (1.0 - p)), 0.0)


@td.kernel
def dropout_add(X: td.Tensor[M, N], R: td.Tensor[M, N], seed: td.Scalar[i64], Y: td.Out[M, N] = None, *, p=0.5):
    """`Y = dropout(X) + R`, in one pass. *Shapes*: X, R, Y [M, N]."""
    for m, n in td.parallel(M, N):
        x = td.where(td.uniform(seed, m, n) >= p, wide(X[m, n]) * (1.0 / (1.0 - p)), 0.0)
        Y[m, n] = x + wide(R[m, n])
