"""What kernels capture to: the printed program of each is a snapshot."""

# ruff: noqa: B007, E741 (loops over blocks without a name; I is a dimension)
from __future__ import annotations

import dataclasses

import pytest

import treadle.lang.api as td
from treadle.dtype.formats import bf16, f16, f32, i32, i64
from treadle.ir.parser import parse_program
from treadle.ir.printer import print_program
from treadle.ir.verifier import verify

M, N, K, T, V, D = td.dims("M N K T V D")
B, H, S, Sq, Sk, E = td.dims("B H S Sq Sk E")
E1, B1 = td.dims("E1 B1")
M2, M3 = M.alias("M2 M3")
T2 = T.alias("T2")
G, R = td.dims("G R")
GR = td.product(G, R)
inf = float("inf")


@td.kernel
def softmax(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    for m in td.parallel(M):
        x = X[m, N].to(f32)
        e = td.exp(x - x.max(N))
        Y[m, N] = e / e.sum(N)


@td.kernel
def linear_gelu(
    X: td.Tensor[M, K], W: td.Tensor[K, N], bias: td.Tensor[N] = None, Y: td.Out[M, N] = None, *, act=td.gelu
):
    for m, n in td.parallel(M, N):
        acc = td.zeros(m, n, dtype=f32)
        for k in td.reduce(K):
            acc = td.mma(X[m, k], W[k, n], acc)
        if bias is not None:
            acc = acc + bias[n]
        Y[m, n] = act(acc)


@td.kernel
def flash(
    Q: td.Tensor[B, H, Sq, D],
    Kt: td.Tensor[B, H, Sk, D],
    Vt: td.Tensor[B, H, Sk, D],
    O: td.Out[B, H, Sq, D] = None,
    *,
    causal=False,
):
    for b, h, q in td.parallel(B.each, H.each, Sq):
        x = Q[b, h, q, D]
        m, l, acc = td.full(q, value=-inf), td.zeros(q), td.zeros(q, D)
        keys = Sk[: q.stop] if causal else Sk
        for k in td.pipeline(keys):
            s = td.dot(x, Kt[b, h, k, D], over=D) * D.extent**-0.5
            if causal:
                s = td.where(q >= k, s, -inf)
            top = td.maximum(m, s.max(k))
            p, c = td.exp(s - top), td.exp(m - top)
            l = l * c + p.sum(k)
            acc = td.mma(p.to(Vt.dtype), Vt[b, h, k, D], acc * c)
            m = top
        O[b, h, q, D] = acc / l


@td.kernel
def swiglu(X: td.Tensor[M, K], Wg: td.Tensor[K, N], Wu: td.Tensor[K, N], Y: td.Out[M, N] = None):
    for m, n in td.parallel(M, N):
        g, u = td.zeros(m, n), td.zeros(m, n)
        for k in td.reduce(K):
            x = X[m, k]
            g = td.mma(x, Wg[k, n], g)
            u = td.mma(x, Wu[k, n], u)
        Y[m, n] = td.silu(g) * u


@td.kernel
def gather(W: td.Tensor[V, D], ids: td.Tensor[T, i32], Y: td.Out[T, D] = None):
    for t, d in td.parallel(T, D):
        Y[t, d] = W[td.in_range(ids[t], V), d]


@td.kernel
def ragged_sum(X: td.Tensor[T, D], off: td.Tensor[E1, i32], Y: td.Out[E, D] = None):
    td.let(E1, E.extent + 1)
    for e, d in td.parallel(E.each, D):
        s = td.zeros(d)
        for t in td.reduce(T[off[e] : off[e + 1]]):
            s = s + X[t, d].sum(t)
        Y[e, d] = s


@td.kernel
def two_steps(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    scaled = td.empty(M, N)
    total = td.empty(M)
    for m, n in td.parallel(M, N):
        scaled[m, n] = X[m, n] * 2
    for m in td.parallel(M):
        total[m] = scaled[m, N].sum(N)
    for m, n in td.parallel(M, N):
        Y[m, n] = scaled[m, n] / total[m]


@td.kernel
def layernorm(X: td.Tensor[M, N], w: td.Tensor[N], b: td.Tensor[N], Y: td.Out[M, N] = None, *, eps=1e-5):
    for m in td.parallel(M):
        x = X[m, N]
        Y[m, N] = (x - x.mean(N)) * td.rsqrt(x.var(N) + eps) * w[N] + b[N]


@td.kernel
def ragged_heads(
    X: td.Tensor[T, GR], Kt: td.Tensor[T, GR], Vt: td.Tensor[T, GR], off: td.Tensor[B1, i32], Y: td.Out[T, GR] = None
):
    for b, g in td.parallel(B1[: B1.extent - 1].each, G.each):
        lo, hi = off[b], off[b + 1]
        for q in td.parallel(T[lo:hi]):
            x = X[q, g, R]
            m, l, acc = td.full(q, value=-inf), td.zeros(q), td.zeros(q, R)
            for k in td.pipeline(T2[lo:hi]):
                s = td.dot(x, Kt[k, g, R], over=R) * R.extent**-0.5
                top = td.maximum(m, s.max(k))
                p, c = td.exp(s - top), td.exp(m - top)
                l, acc, m = l * c + p.sum(k), td.mma(p, Vt[k, g, R], acc * c), top
            Y[q, (g, R)] = acc / l


@td.kernel
def pooled(X: td.Tensor[T, D], off: td.Tensor[B1, i32], Y: td.Out[B, D] = None):
    td.let(B1, B.extent + 1)
    for b in td.parallel(B.each):
        lo, hi = off[b], off[b + 1]
        s = td.zeros(D)
        for t in td.reduce(T[lo:hi]):
            s = s + X[t, D].sum(t)
        mean = s / (hi - lo)
        Y[b, D] = mean / td.sqrt((mean * mean).sum(D))


@td.kernel
def branches(X: td.Tensor[M, N], n: td.Scalar[i64], Y: td.Out[M, N] = None):
    td.require(N.extent >= 1)
    for m in td.parallel(M.each):
        x = X[m, N]
        scale = 1.0
        if m < n and X[m, 0] > 0:
            scale = X[m, 0] * 2
        elif not (0 <= m - n < 4):
            scale = 3
        Y[m, N] = x * scale if m % 2 == 0 else x


@dataclasses.dataclass
class Moments:
    """Two sums that travel together."""

    first: td.Tile
    second: td.Tile


def add_row(state: Moments, row: td.Tile) -> Moments:
    return Moments(state.first + row, state.second + row * row)


@td.kernel
def moments(X: td.Tensor[M, N], A: td.Out[N] = None, C: td.Out[N] = None):
    state = Moments(0.0, td.zeros(N))
    for m in td.serial(M.each.reversed):
        state = add_row(state, X[m, N])
    A[N] = state.first
    C[N] = state.second


@td.kernel
def recurrence(X: td.Tensor[M, N], limit: td.Scalar[i32], Y: td.Out[N] = None, Steps: td.Out[()] = None):
    pair = (td.zeros(N), td.full(N, value=1.0))
    count, done = 0, False
    for i in td.serial(limit):
        if not done:
            pair = (pair[1], pair[0] + pair[1])
            count += 1
            done = pair[1].max() > 100
    Y[N] = pair[0]
    Steps[()] = count


@td.kernel
def blocks(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    for m in td.parallel(M.by(64)):
        for mm in td.parallel(m):
            for n in td.pipeline(N.by(32).reversed):
                td.stage("load")
                x = X[mm, n]
                td.stage("store")
                Y[mm, n] = x + m.index * m.extent + (n.start - n.stop)


@td.kernel
def half(X: td.Tensor[M], Z: td.Tensor[M], Y: td.Out[M] = None, L: td.Out[M] = None):
    for m in td.parallel(M):
        x = X[m]
        Y[m] = td.sigmoid(x) * 0.1 + td.exp(x) / Z[m]
        L[m] = td.where(x > Z[m], x, -x)


@td.kernel
def inner(A: td.Tensor[M, K], C: td.Tensor[K, N], P: td.Out[M, N] = None, *, scale=1.0):
    for m, n in td.parallel(M, N):
        acc = td.zeros(m, n)
        for k in td.reduce(K):
            acc = td.mma(A[m, k], C[k, n], acc)
        P[m, n] = acc * scale


X1, X2, X3 = td.dims("X1 X2 X3")


@td.kernel
def outer(A: td.Tensor[X1, X2], C: td.Tensor[X2, X3], Y: td.Out[X1, X3] = None):
    for a in td.parallel(X1):
        tile = A[a, X2]
        Y[a, X3] = inner(tile, C, scale=0.5) + 1


@td.kernel
def window(X: td.Tensor[S, D], Y: td.Out[S, D] = None, *, width=3):
    td.require(D.extent % 8 == 0)
    for s, d in td.parallel(S, D):
        total = td.zeros(s, d)
        for i in range(-width, width + 1):
            total = total + X.at(s + i, d, fill=0)
        Y[s, d] = total


@td.kernel
def histogram(ids: td.Tensor[T, i32], Count: td.Out[V, i32] = None, Top: td.Out[()] = None):
    Count[V] = 0
    for t in td.parallel(T):
        Count.add_at(td.in_range(ids[t], V), 1, where=ids[t] != 0)
    for v in td.parallel(V):
        td.print("counts", Count[v], where=v < 4)
    td.check((Count[V] >= 0).all(), "counts wrapped")
    Top[()] = Count[V].argmax()


@td.kernel
def square(A: td.Tensor[M, K], C: td.Out[M, M2] = None):
    for i in td.parallel(M):
        for j in td.parallel(M2[: i.stop]):
            C.set_at(i, j, A[i, K] @ A[j, K], where=i >= j)


PROGRAMS = {
    "softmax f32": (softmax, {}, {}),
    "softmax bf16": (softmax, {"X": bf16}, {}),
    "linear_gelu f32": (linear_gelu, {}, {}),
    "linear_gelu bf16 with bias": (linear_gelu, {"X": bf16, "W": bf16, "bias": f32, "Y": bf16}, {}),
    "linear without activation": (linear_gelu, {"X": i32, "W": i32}, {"act": lambda x: x}),
    "flash": (flash, {"Q": bf16, "Kt": bf16, "Vt": bf16, "O": bf16}, {}),
    "flash causal": (flash, {"Q": bf16, "Kt": bf16, "Vt": bf16}, {"causal": True}),
    "swiglu": (swiglu, {}, {}),
    "gather": (gather, {}, {}),
    "ragged_sum": (ragged_sum, {}, {}),
    "two_steps": (two_steps, {}, {}),
    "layernorm": (layernorm, {"X": bf16}, {}),
    "ragged_heads": (ragged_heads, {}, {}),
    "pooled": (pooled, {}, {}),
    "branches": (branches, {}, {}),
    "moments": (moments, {}, {}),
    "recurrence": (recurrence, {}, {}),
    "blocks": (blocks, {}, {}),
    "half": (half, {"X": bf16, "Z": f16}, {}),
    "outer": (outer, {}, {}),
    "window": (window, {}, {"width": 1}),
    "histogram": (histogram, {}, {}),
    "square": (square, {}, {}),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name, snapshot):
    definition, dtypes, staged = PROGRAMS[name]
    if name == "linear without activation":
        with pytest.raises(Exception, match="dtype/narrowing"):
            definition.capture(dtypes, staged)
        dtypes = {}
    program = definition.capture(dtypes, staged)
    text = print_program(program)
    assert text == snapshot
    again = parse_program(text)
    verify(again)
    assert print_program(again) == text
