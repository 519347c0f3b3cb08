"""The kernels of a BERT-style sentence encoder, over packed sequences.

`T` counts the tokens of all sentences together; sentence `b` owns the tokens `start[b] <= t < start[b + 1]`. Nothing is
padded: attention and pooling range over a sentence's own tokens.
"""

import treadle as td
from treadle import f32, i32

T, E, V, P = td.dims("T E V P")  # tokens, hidden size, vocabulary, positions
N, K = td.dims("N K")  # outputs and inputs of a linear layer
B1 = td.dims("B1")  # sentences and one more
H, C = td.dims("H C")  # heads, channels of a head
HC = td.product(H, C)
T2 = T.alias("T2")  # tokens as keys
B = td.dims("B")
B2 = B.alias("B2")


@td.kernel
def embed(
    ids: td.Tensor[T, i32],
    positions: td.Tensor[T, i32],
    words: td.Tensor[V, E],
    places: td.Tensor[P, E],
    kind: td.Tensor[E],
    Y: td.Out[T, E, f32],
):
    """Word, position and segment embedding, summed."""
    for t, e in td.parallel(T, E):
        word = words[td.in_range(ids[t], V), e]
        place = places[td.in_range(positions[t], P), e]
        Y[t, e] = word + place + kind[e]


@td.kernel
def layernorm(X: td.Tensor[T, E], scale: td.Tensor[E], shift: td.Tensor[E], Y: td.Out[T, E], *, eps=1e-12):
    """Each row with mean 0 and variance 1, scaled and shifted."""
    for t in td.parallel(T):
        x = X[t, E]
        d = x - x.mean(E)
        Y[t, E] = d * td.rsqrt((d * d).mean(E) + eps) * scale[E] + shift[E]


@td.kernel
def add_layernorm(
    X: td.Tensor[T, E],
    R: td.Tensor[T, E],
    scale: td.Tensor[E],
    shift: td.Tensor[E],
    Y: td.Out[T, E],
    *,
    eps=1e-12,
):
    """layernorm(X + R)."""
    for t in td.parallel(T):
        x = X[t, E] + R[t, E]
        d = x - x.mean(E)
        Y[t, E] = d * td.rsqrt((d * d).mean(E) + eps) * scale[E] + shift[E]


@td.kernel
def linear(X: td.Tensor[T, K], W: td.Tensor[N, K], bias: td.Tensor[N], Y: td.Out[T, N], *, act=None):
    """act(X W^T + bias)."""
    for t, n in td.parallel(T, N):
        acc = td.zeros(t, n)
        for k in td.reduce(K):
            acc = td.mma(X[t, k], W[n, k], acc)
        acc = acc + bias[n]
        if act is not None:
            acc = act(acc)
        Y[t, n] = acc


@td.kernel
def attention(
    Q: td.Tensor[T, HC],
    KX: td.Tensor[T, HC],
    VX: td.Tensor[T, HC],
    start: td.Tensor[B1, i32],
    Y: td.Out[T, HC, f32],
    *,
    heads,
):
    """softmax(Q K^T / sqrt(C)) V of each head over the tokens of each sentence."""
    td.let(H, heads)
    for b, h in td.parallel(B1[: B1.extent - 1].each, H.each):
        lo, hi = start[b], start[b + 1]
        for t in td.parallel(T[lo:hi]):
            q = Q[t, h, C]
            m, s, acc = td.full(t, value=-float("inf")), td.zeros(t), td.zeros(t, C)
            for k in td.pipeline(T2[lo:hi]):
                x = td.dot(q, KX[k, h, C], over=C) * C.extent**-0.5
                top = td.maximum(m, x.max(k))
                p, r = td.exp(x - top), td.exp(m - top)
                s = s * r + p.sum(k)
                acc = td.mma(p, VX[k, h, C], acc * r)
                m = top
            Y[t, h, C] = acc / s


@td.kernel
def pool(X: td.Tensor[T, E], start: td.Tensor[B1, i32], Y: td.Out[B, E, f32]):
    """The mean of each sentence's tokens."""
    td.let(B, B1.extent - 1)
    for b, e in td.parallel(B.each, E):
        lo, hi = start[b], start[b + 1]
        total = td.zeros(e)
        for t in td.reduce(T[lo:hi]):
            total = total + X[t, e].sum(t)
        Y[b, e] = total / td.maximum(hi - lo, 1)


@td.kernel
def normalise(X: td.Tensor[B, E], Y: td.Out[B, E]):
    """Rows of length 1."""
    for b in td.parallel(B):
        x = X[b, E]
        Y[b, E] = x / td.maximum(td.sqrt((x * x).sum(E)), 1e-12)


@td.kernel
def similarity(X: td.Tensor[B, E], Y: td.Out[B, B2, f32]):
    """Inner products of all pairs of rows."""
    for i, j in td.parallel(B, B2):
        acc = td.zeros(i, j)
        for e in td.reduce(E):
            acc = td.mma(X[i, e], X[j, e], acc)
        Y[i, j] = acc
