"""Scans and recurrences: by monoids, by carried states, in chunks."""

# ruff: noqa: E741 (I is a dimension)
from __future__ import annotations

import dataclasses

import treadle as td
from treadle import f32, i64

B, T, D, NS = td.dims("B T D NS")
T2 = T.alias("T2")
I = td.dims("I", 3)
J, Km = I.alias("J Km")
inf = float("inf")


@td.kernel
def running_sum(X: td.Tensor[B, T], Y: td.Out[B, T] = None, *, exclusive=False, reverse=False):
    for b in td.parallel(B):
        Y[b, T] = td.scan(X[b, T], T, td.Add, exclusive=exclusive, reverse=reverse)


@td.kernel
def running_max(X: td.Tensor[B, T], Y: td.Out[B, T] = None):
    for b in td.parallel(B):
        Y[b, T] = td.scan(X[b, T], T, td.Max)


def restart(a, b):
    """Sums that begin anew at flags."""
    return a[0] | b[0], td.where(b[0], b[1], a[1] + b[1])


SEGMENTED = td.Monoid((False, 0.0), restart)


@td.kernel
def segmented_sum(X: td.Tensor[B, T], first: td.Tensor[B, T, td.bool_], Y: td.Out[B, T] = None):
    for b in td.parallel(B):
        Y[b, T] = td.scan((first[b, T], X[b, T]), T, SEGMENTED)[1]


@dataclasses.dataclass
class Affine:
    """h -> a * h + b."""

    a: td.Tile
    b: td.Tile


def then(f, g):
    return Affine(f.a * g.a, f.b * g.a + g.b)


MAPS = td.Monoid(lambda: Affine(1.0, 0.0), then)


@td.kernel
def linear_recurrence(A: td.Tensor[B, T, D], X: td.Tensor[B, T, D], Y: td.Out[B, T, D] = None):
    """h[t] = A[t] * h[t - 1] + X[t]"""
    for b, d in td.parallel(B, D):
        Y[b, T, d] = td.scan(Affine(A[b, T, d], X[b, T, d]), T, MAPS).b


@td.kernel
def linear_recurrence_carried(A: td.Tensor[B, T, D], X: td.Tensor[B, T, D], Y: td.Out[B, T, D] = None):
    for b, d in td.parallel(B, D):
        h = td.zeros(b, d)
        for t in td.serial(T.each):
            h = A[b, t, d] * h + X[b, t, d]
            Y[b, t, d] = h


@td.kernel
def linear_recurrence_reduced(A: td.Tensor[B, T], X: td.Tensor[B, T], Y: td.Out[B] = None):
    """Only the last state, by a fold whose parts may be merged."""
    for b in td.parallel(B):
        s = Affine(td.full(b, value=1.0), td.zeros(b))
        for t in td.reduce(T.each, order=td.ordered):
            s = MAPS(s, Affine(A[b, t], X[b, t]))
        Y[b] = s.b


@td.kernel
def state_space(
    X: td.Tensor[B, T],
    a: td.Tensor[NS],
    Bm: td.Tensor[B, T, NS],
    Cm: td.Tensor[B, T, NS],
    Y: td.Out[B, T] = None,
    *,
    chunk=4,
):
    """h = a * h + B x, y = C h, a chunk at a time: inside it by a masked product, between them by the carried state."""
    for b in td.parallel(B.each):
        h = td.zeros(NS)
        for t in td.serial(T.by(chunk)):
            u = T2[t.start : t.stop]
            far = td.where(t >= u, (t - u).to(f32), 0.0)  # over t, u
            decay = td.where(t >= u, a[NS] ** far, 0.0)
            own = (Cm[b, t, NS] * Bm[b, u, NS] * decay * X[b, u]).sum(NS, u)
            since = (t - t.start + 1).to(f32)
            Y[b, t] = own + (Cm[b, t, NS] * h * a[NS] ** since).sum(NS)
            left = (t.stop - 1 - t).to(f32)
            h = h * a[NS] ** t.extent.to(f32) + (Bm[b, t, NS] * X[b, t] * a[NS] ** left).sum(t)


def matmul(p, q):
    """The product of two matrices over (I, J)."""
    return td.dot(p[I, Km], q[Km, J], over=Km)


MATRICES = td.Monoid(lambda: td.where(I == J, 1.0, 0.0), matmul)


@td.kernel
def matrix_product(A: td.Tensor[B, T, I, J], Y: td.Out[B, I, J] = None):
    for b in td.parallel(B.each):
        Y[b, I, J] = td.fold(A[b, T, I, J], T, MATRICES)


@td.kernel
def matrix_prefixes(A: td.Tensor[B, T, I, J], Y: td.Out[B, T, I, J] = None):
    for b in td.parallel(B.each):
        Y[b, T, I, J] = td.scan(A[b, T, I, J], T, MATRICES)


@td.kernel
def moving_average(X: td.Tensor[B, T], Y: td.Out[B, T] = None, *, alpha=0.5):
    for b in td.parallel(B):
        s = X.at(b, 0, fill=0.0)
        for t in td.serial(T.each):
            s = s + alpha * (X[b, t] - s)
            Y[b, t] = s


@td.kernel
def running_argmax(X: td.Tensor[B, T], Y: td.Out[B, T, i64] = None):
    """The place of the greatest element so far, the first of equals."""
    for b in td.parallel(B):
        best = td.scan((X[b, T], T.coords), T, FIRST_MAX)
        Y[b, T] = best[1]


def later_if_greater(p, q):
    more = q[0] > p[0]
    return td.where(more, q[0], p[0]), td.where(more, q[1], p[1])


FIRST_MAX = td.Monoid((-inf, 0), later_if_greater)
