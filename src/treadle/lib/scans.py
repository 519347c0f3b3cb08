"""Scans: prefix sums, products and extrema; segmented ones; linear recurrences and state-space layers.

A scan along the last axis visits elements from the first; `reverse=True` from the last; `exclusive=True` leaves the
element itself out.
"""

from __future__ import annotations

import treadle as td
from treadle import f32
from treadle.lib.precision import computing, wide

M, N = td.dims("M N")
B, T, D, H, P = td.dims("B T D H P")
S = td.dims("S")
T2 = T.alias("T2")


@td.kernel
def cumsum(X: td.Tensor[M, N], Y: td.Out[M, N] = None, *, exclusive=False, reverse=False):
    """Running sums of each row, in the dtype of `rows_sum`. *Shapes*: X, Y [M, N]."""
    for m in td.parallel(M):
        Y[m, N] = td.scan(X[m, N], N, td.Add, exclusive=exclusive, reverse=reverse)


@td.kernel
def cumprod(X: td.Tensor[M, N], Y: td.Out[M, N] = None, *, exclusive=False, reverse=False):
    """Running products of each row. *Shapes*: X, Y [M, N]."""
    for m in td.parallel(M):
        Y[m, N] = td.scan(X[m, N], N, td.Mul, exclusive=exclusive, reverse=reverse)


@td.kernel
def cummax(X: td.Tensor[M, N], Y: td.Out[M, N] = None, *, reverse=False):
    """Running maxima of each row; NaN from the first NaN on. *Shapes*: X, Y [M, N]."""
    for m in td.parallel(M):
        Y[m, N] = td.scan(X[m, N], N, td.Max, reverse=reverse)


@td.kernel
def cummin(X: td.Tensor[M, N], Y: td.Out[M, N] = None, *, reverse=False):
    """Running minima of each row; NaN from the first NaN on. *Shapes*: X, Y [M, N]."""
    for m in td.parallel(M):
        Y[m, N] = td.scan(X[m, N], N, td.Min, reverse=reverse)


def _log_sum(a, b):
    """Two logarithms of sums, `(top, total)` each: the sum is `total exp(top)`."""
    top = td.maximum(a[0], b[0])
    safe = td.where(td.isinf(top), 0.0, top)
    return top, a[1] * td.exp(a[0] - safe) + b[1] * td.exp(b[0] - safe)


LogSum = td.Monoid((-float("inf"), 0.0), _log_sum, lift=lambda x: (x, 1.0), commutative=True)


@td.kernel
def logcumsumexp(X: td.Tensor[M, N], Y: td.Out[M, N] = None, *, reverse=False):
    """`Y[m, n] = log(sum of exp(X[m, :n + 1]))`, without overflow. *Shapes*: X, Y [M, N]."""
    for m in td.parallel(M):
        top, total = td.scan(wide(X[m, N]), N, LogSum, reverse=reverse)
        Y[m, N] = top + td.log(total)


def _restart(a, b):
    """Sums that begin anew at a mark: `(mark, sum)` each."""
    return a[0] | b[0], td.where(b[0], b[1], a[1] + b[1])


Segmented = td.Monoid((False, 0), _restart)


@td.kernel
def segmented_cumsum(X: td.Tensor[M, N], first: td.Tensor[M, N, td.bool_], Y: td.Out[M, N] = None):
    """Running sums of each row that begin anew where `first` is True. *Shapes*: X, first, Y [M, N].

    *Source*: Blelloch, "Prefix Sums and Their Applications", 1990, section 1.5.
    """
    for m in td.parallel(M):
        _, total = td.scan((first[m, N], wide(X[m, N])), N, Segmented)
        Y[m, N] = total


def _compose(a, b):
    """Two affine maps `h -> a h + b`, the left one first."""
    return a[0] * b[0], a[1] * b[0] + b[1]


Affine = td.Monoid((1.0, 0.0), _compose)


@td.kernel
def linear_recurrence(
    A: td.Tensor[B, T, D],
    X: td.Tensor[B, T, D],
    start: td.Tensor[B, D] = None,
    Y: td.Out[B, T, D] = None,
):
    """`h = A[b, t] h + X[b, t]`, every h kept in Y; h begins as `start`, or 0.

    *Shapes*: A, X, Y [B, T, D]; start [B, D] or None.
    *Source*: Martin and Cundy, "Parallelizing Linear Recurrent Neural Nets Over Sequence Length", 2017, section 2.2.
    """
    for b, d in td.parallel(B.each, D):
        factor, h = td.scan((wide(A[b, T, d]), wide(X[b, T, d])), T, Affine)
        Y[b, T, d] = h if start is None else h + factor * wide(start[b, d])


@td.kernel
def linear_recurrence_backward(
    A: td.Tensor[B, T, D],
    Y: td.Tensor[B, T, D],
    dY: td.Tensor[B, T, D],
    start: td.Tensor[B, D] = None,
    dA: td.Out[B, T, D] = None,
    dX: td.Out[B, T, D] = None,
):
    """The gradients behind `linear_recurrence`: `g = dY[t] + A[t + 1] g` backwards, `dX[t] = g`, `dA[t] = g Y[t - 1]`.

    Gives (dA, dX). *Shapes*: A, Y, dY, dA, dX [B, T, D]; start [B, D] or None, which stands for Y[-1].
    """
    for b, d in td.parallel(B.each, D):
        g = td.zeros(d, dtype=computing(A.dtype, dY.dtype))
        for t in td.serial(T.reversed.each):
            g = wide(A.at(b, t + 1, d, fill=0)) * g + wide(dY[b, t, d])
            before = wide(Y.at(b, t - 1, d, fill=0))
            if start is not None:
                before = td.where(t == 0, wide(start[b, d]), before)
            dX[b, t, d] = g
            dA[b, t, d] = g * before


@td.kernel
def state_space(
    X: td.Tensor[B, T, H, P],
    decay: td.Tensor[B, T, H],
    write: td.Tensor[B, T, S],
    read: td.Tensor[B, T, S],
    Y: td.Out[B, T, H, P] = None,
    *,
    chunk=64,
):
    """A state-space layer: `h = exp(decay[t]) h + write[t] X[t]^T`, `Y[t] = read[t] h`, a state [S, P] for each head.

    In chunks: inside one, products of reads and writes weighted by the decay between them; from one to the next, the
    state. decay is at most 0. *Shapes*: X, Y [B, T, H, P]; decay [B, T, H]; write, read [B, T, S]. *Source*: Dao and
    Gu, "Transformers are SSMs" (Mamba-2), 2024, section 6.
    """
    for b, h in td.parallel(B.each, H.each):
        state = td.zeros(S, P)
        for t in td.serial(T.by(chunk)):
            u = T2[t.start : t.stop]
            total = td.scan(decay[b, t, h].to(f32), T, td.Add)
            until = td.scan(decay[b, u, h].to(f32), T2, td.Add)
            last = decay[b, t, h].to(f32).sum(t)
            between = td.where(t >= u, td.exp(td.where(t >= u, total - until, 0.0)), 0.0)
            weight = td.dot(read[b, t, S], write[b, u, S], over=S, dtype=f32) * between
            inside = td.dot(weight, X[b, u, h, P].to(f32), over=u, dtype=f32)
            before = td.dot(read[b, t, S].to(f32), state, over=S, dtype=f32) * td.exp(total)
            Y[b, t, h, P] = inside + before
            grown = write[b, t, S].to(f32) * td.exp(last - total)
            state = state * td.exp(last) + td.dot(grown, X[b, t, h, P].to(f32), over=t, dtype=f32)
