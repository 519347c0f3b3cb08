"""The kernels that the differential tests run in every way there is.

Two planned variants each, then the universal plan: it must be right for whatever the others do not cover.
"""

from __future__ import annotations

import treadle as td
from treadle import f32, i32

M, N, K, B, T, V, D, A, C, H = td.dims("M N K B T V D A C H")
Sq, Sk = td.dims("Sq Sk")
B1 = td.dims("B1")
HC = td.product(H, C)


@td.kernel(variants=2)
def affine(X: td.Tensor[M, N], G: td.Tensor[N], s: td.Scalar[f32], Y: td.Out[M, N] = None):
    """Elementwise, with a vector and a scalar broadcast."""
    for m, n in td.parallel(M, N):
        Y[m, n] = td.maximum(X[m, n] * s + G[n], 0)


@td.kernel(variants=2)
def integers(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    """Elementwise on integers: floor division, remainder, shifts, comparison."""
    for m, n in td.parallel(M, N):
        x = X[m, n]
        Y[m, n] = td.where(x % 3 == 1, x // 2, x * 5 - (x & 6))


@td.kernel(variants=2)
def softmax(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    for m in td.parallel(M):
        x = X[m, N].to(f32)
        e = td.exp(x - x.max(N))
        Y[m, N] = e / e.sum(N)


@td.kernel(variants=2)
def layernorm(X: td.Tensor[M, N], G: td.Tensor[N], S: td.Tensor[N], Y: td.Out[M, N] = None, *, eps=1e-5):
    for m in td.parallel(M):
        x = X[m, N]
        d = x - x.mean(N)
        Y[m, N] = d * td.rsqrt((d * d).mean(N) + eps) * G[N] + S[N]


@td.kernel(variants=2)
def linear(X: td.Tensor[M, K], W: td.Tensor[K, N], bias: td.Tensor[N] = None, Y: td.Out[M, N, f32] = None, *, act=None):
    for m, n in td.parallel(M, N):
        acc = td.zeros(m, n)
        for k in td.reduce(K):
            acc = td.mma(X[m, k], W[k, n], acc)
        if bias is not None:
            acc = acc + bias[n]
        if act is not None:
            acc = act(acc)
        Y[m, n] = acc


@td.kernel(variants=2)
def batched(X: td.Tensor[B, M, K], W: td.Tensor[B, K, N], Y: td.Out[B, M, N] = None):
    for b, m, n in td.parallel(B.each, M, N):
        Y[b, m, n] = td.dot(X[b, m, K], W[b, K, n], over=K, dtype=f32)


@td.kernel(variants=2)
def gated(X: td.Tensor[M, K], G: td.Tensor[K, N], U: td.Tensor[K, N], Y: td.Out[M, N] = None, *, act=None):
    """Two contractions that share a factor."""
    for m, n in td.parallel(M, N):
        g, u = td.zeros(m, n), td.zeros(m, n)
        for k in td.reduce(K):
            x = X[m, k]
            g = td.mma(x, G[k, n], g)
            u = td.mma(x, U[k, n], u)
        Y[m, n] = (g if act is None else act(g)) * u


@td.kernel(variants=2)
def attention(
    Q: td.Tensor[B, Sq, D],
    KX: td.Tensor[B, Sk, D],
    VX: td.Tensor[B, Sk, D],
    length: td.Tensor[B, i32] = None,
    Y: td.Out[B, Sq, D, f32] = None,
    *,
    causal=False,
    scale=0.25,
):
    """Keys in a pipeline, up to the query or to a length that a tensor holds."""
    for b, q in td.parallel(B.each, Sq):
        x = Q[b, q, D]
        m, s, acc = td.full(q, value=-float("inf")), td.zeros(q), td.zeros(q, D)
        for k in td.pipeline(Sk[: q.stop] if causal else Sk if length is None else Sk[: length[b]]):
            score = td.dot(x, KX[b, k, D], over=D, dtype=f32) * scale
            if causal:
                score = td.where(q >= k, score, -float("inf"))
            top = td.maximum(m, score.max(k))
            p, r = td.exp(score - top), td.exp(m - top)
            s = s * r + p.sum(k)
            acc = td.mma(p.to(VX.dtype), VX[b, k, D], acc * r)
            m = top
        Y[b, q, D] = acc / s


@td.kernel(variants=2)
def embed(ids: td.Tensor[T, i32], E: td.Tensor[V, D], P: td.Tensor[T, D], Y: td.Out[T, D] = None):
    for t, d in td.parallel(T, D):
        Y[t, d] = E[td.in_range(ids[t], V), d] + P[t, d]


@td.kernel(variants=2)
def segments(X: td.Tensor[T, D], start: td.Tensor[B1, i32], Y: td.Out[B, D] = None):
    """Sums over ranges that a tensor holds."""
    td.let(B, B1.extent - 1)
    for b, d in td.parallel(B.each, D):
        s = td.zeros(d)
        for t in td.reduce(T[start[b] : start[b + 1]]):
            s = s + X[t, d].sum(t)
        Y[b, d] = s


@td.kernel(variants=2)
def two_phases(X: td.Tensor[M, N], Y: td.Out[N, M] = None):
    """An outer tile, written by rows and read by columns."""
    t = td.empty(M, N, dtype=f32)
    for m in td.parallel(M):
        x = X[m, N]
        t[m, N] = x - x.sum(N)
    for n in td.parallel(N):
        c = t[M, n]
        Y[n, M] = c + c.max(M)


@td.kernel(variants=2)
def branch(X: td.Tensor[M, N], F: td.Tensor[M, i32], Y: td.Out[M, N] = None):
    for m in td.parallel(M.each):
        x = X[m, N]
        if F[m] > 0:
            r = x + x.sum(N)
        else:
            r = -x
        Y[m, N] = r


@td.kernel(variants=2)
def recurrence(X: td.Tensor[T, D], G: td.Tensor[D], Y: td.Out[T, D] = None):
    for d in td.parallel(D):
        g = G[d]
        h = td.zeros(d)
        for t in td.serial(T.each):
            h = h * g + X[t, d]
            Y[t, d] = h


@td.kernel(variants=2)
def running(X: td.Tensor[M, T], Y: td.Out[M, T] = None):
    """A running sum in a pipeline."""
    for m in td.parallel(M):
        s = td.zeros(m)
        for t in td.pipeline(T.each):
            s = s + X[m, t]
            Y[m, t] = s


@td.kernel(variants=2)
def stencil(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    for y, x in td.parallel(M, N):
        Y[y, x] = X.at(y - 1, x, fill=0) + X.at(y + 1, x, fill=0) + X.at(y, x - 2, fill=0) - 4 * X[y, x]


@td.kernel(variants=2)
def transpose(X: td.Tensor[M, N], Y: td.Out[N, M] = None):
    for m, n in td.parallel(M, N):
        Y[n, m] = X[m, n]


@td.kernel(variants=2)
def columns(X: td.Tensor[M, N], Y: td.Out[N] = None, Z: td.Out[N] = None):
    for n in td.parallel(N):
        x = X[M, n]
        Y[n] = x.sum(M)
        Z[n] = x.max(M)


@td.kernel(variants=2)
def pool(X: td.Tensor[M, A, C], Y: td.Out[M] = None):
    for m in td.parallel(M):
        Y[m] = X[m, A, C].sum(A, C)


@td.kernel(variants=2)
def outer(X: td.Tensor[M], W: td.Tensor[N], Y: td.Out[M, N] = None):
    for m, n in td.parallel(M, N):
        Y[m, n] = X[m] * W[n]


@td.kernel(variants=2)
def heads(X: td.Tensor[T, HC], Y: td.Out[H, T, C] = None, *, count):
    """A product axis taken apart."""
    td.let(H, count)
    for h, t in td.parallel(H.each, T):
        Y[h, t, C] = X[t, h, C]


@td.kernel(variants=2)
def totals(X: td.Tensor[M, N], S: td.Out[()] = None, *, order=td.unordered):
    s = td.full(value=0.0)
    for m in td.reduce(M, order=order):
        s = s + X[m, N].sum(N).sum(m)
    S[()] = s
