"""Attention of one new query against a long store of keys: contiguous, paged, split along the keys and merged.

A split gives partial results with the logarithms of their sums of weights (`lse`), and partial results merge exactly,
in any number: `Y = sum Y_s exp(lse_s - lse)`, `lse = log(sum exp(lse_s))`. Exponentials are of accuracy class
`fast`: the weights are rounded to the format of V before they are used.
"""

from __future__ import annotations

import treadle as td
from treadle import f32, i32
from treadle.lib.precision import wide

B, H, KV, R, D, Sk, S = td.dims("B H KV R D Sk S")
HQ = td.product(KV, R)
P, PS, PB, L = td.dims("P PS PB L")
DV = td.dims("DV")


def step(state, score, value, over):
    """The online softmax: running maximum, sum of weights and weighted values, after the scores of one more block."""
    top, total, acc = state
    new = td.maximum(top, score.max(over))
    safe = td.where(new == -float("inf"), 0.0, new)
    p, c = td.exp(score - safe), td.exp(top - safe)
    return new, total * c + p.sum(over), td.mma(p.to(value.dtype), value, acc * c)


def finish(state):
    """The weighted mean and the logarithm of the sum of weights; 0 and -inf where no key was seen."""
    top, total, acc = state
    return td.where(total > 0, acc / total, 0.0), top + td.log(total)


@td.kernel(numerics=td.Numerics(functions="fast"))
def decode_attention(
    q: td.Tensor[B, HQ, D],
    K: td.Tensor[B, KV, Sk, D],
    V: td.Tensor[B, KV, Sk, DV],
    length: td.Tensor[B, i32],
    y: td.Out[B, HQ, DV] = None,
    lse: td.Out[B, HQ, f32] = None,
    *,
    scale=None,
):
    """`y[b, h]`: attention of the query to the first `length[b]` keys; 0 and lse -inf where there is none. Gives (y,
    lse).

    *Shapes*: q [B, HQ, D]; K [B, KV, Sk, D], V [B, KV, Sk, DV], KV divides HQ; length [B] up to Sk; y [B, HQ, DV], lse
    [B, HQ].
    """
    for b, g in td.parallel(B.each, KV.each):
        x = q[b, g, R, D]
        state = td.full(R, value=-float("inf")), td.zeros(R), td.zeros(R, DV)
        for k in td.pipeline(Sk[: length[b]]):
            s = td.dot(x, K[b, g, k, D], over=D, dtype=f32) * (D.extent**-0.5 if scale is None else scale)
            state = step(state, s, V[b, g, k, DV], k)
        y[b, g, R, DV], lse[b, g, R] = finish(state)


@td.kernel(numerics=td.Numerics(functions="fast"))
def paged_attention(
    q: td.Tensor[B, HQ, D],
    K: td.Tensor[P, PS, KV, D],
    V: td.Tensor[P, PS, KV, DV],
    table: td.Tensor[B, PB, i32],
    length: td.Tensor[B, i32],
    y: td.Out[B, HQ, DV] = None,
    lse: td.Out[B, HQ, f32] = None,
    *,
    scale=None,
):
    """As `decode_attention`, the keys in pages: key k of sequence b lies on page `table[b, k // PS]`, at `k % PS`.

    Only entries of the table that hold keys are read. Gives (y, lse). *Shapes*: q [B, HQ, D]; K [pages, PS, KV, D], V
    [pages, PS, KV, DV]; table [B, PB]; length [B] up to PB PS; y [B, HQ, DV], lse [B, HQ]. *Source*: Kwon et al.,
    "Efficient Memory Management for Large Language Model Serving with PagedAttention", 2023, section 4.1.
    """
    for b, g in td.parallel(B.each, KV.each):
        x = q[b, g, R, D]
        state = td.full(R, value=-float("inf")), td.zeros(R), td.zeros(R, DV)
        n = length[b]
        for j in td.pipeline(PB[: (n + PS.extent - 1) // PS.extent].each):
            page = td.in_range(table[b, j], P)
            s = td.dot(x, K[page, PS, g, D], over=D, dtype=f32) * (D.extent**-0.5 if scale is None else scale)
            s = td.where(j * PS.extent + PS < n, s, -float("inf"))
            value = td.where(j * PS.extent + PS < n, V[page, PS, g, DV], 0)
            state = step(state, s, value, PS)
        y[b, g, R, DV], lse[b, g, R] = finish(state)


@td.kernel(numerics=td.Numerics(functions="fast"))
def split_decode(
    q: td.Tensor[B, HQ, D],
    K: td.Tensor[B, KV, Sk, D],
    V: td.Tensor[B, KV, Sk, DV],
    length: td.Tensor[B, i32],
    y: td.Out[S, B, HQ, DV, f32] = None,
    lse: td.Out[S, B, HQ, f32] = None,
    *,
    splits=4,
    scale=None,
):
    """`decode_attention` over each of `splits` stretches of the keys, for `merge_attention`. Gives (y, lse).

    *Shapes*: as `decode_attention`, y [splits, B, HQ, DV], lse [splits, B, HQ]; a stretch without keys gives 0 and
    -inf. *Source*: Dao et al., "Flash-Decoding for long-context inference", 2023.
    """
    td.let(S, splits)
    for s, b, g in td.parallel(S.each, B.each, KV.each):
        x, n = q[b, g, R, D], length[b]
        size = (n + splits - 1) // splits
        state = td.full(R, value=-float("inf")), td.zeros(R), td.zeros(R, DV)
        for k in td.pipeline(Sk[s * size : td.minimum((s + 1) * size, n)]):
            score = td.dot(x, K[b, g, k, D], over=D, dtype=f32) * (D.extent**-0.5 if scale is None else scale)
            state = step(state, score, V[b, g, k, DV], k)
        y[s, b, g, R, DV], lse[s, b, g, R] = finish(state)


@td.kernel
def merge_attention(
    Y: td.Tensor[S, B, H, DV],
    lse: td.Tensor[S, B, H],
    y: td.Out[B, H, DV] = None,
    total: td.Out[B, H] = None,
):
    """Partial attention merged: the weighted mean of Y and the logarithm of all weights; 0 and -inf of no key. Gives
    both.

    *Shapes*: Y [S, B, H, DV], lse [S, B, H]; y [B, H, DV], total [B, H].
    """
    for b, h in td.parallel(B.each, H.each):
        z = wide(lse[S, b, h])
        top = z.max(S)
        safe = td.where(top == -float("inf"), 0.0, top)
        w = td.exp(z - safe)
        weight = w.sum(S)
        y[b, h, DV] = td.where(weight > 0, (w * wide(Y[S, b, h, DV])).sum(S) / weight, 0.0)
        total[b, h] = top + td.log(weight)


@td.kernel
def append_pages(
    k: td.Tensor[B, KV, D],
    v: td.Tensor[B, KV, DV],
    table: td.Tensor[B, PB, i32],
    length: td.Tensor[B, i32],
    K: td.Out[P, PS, KV, D],
    V: td.Out[P, PS, KV, DV],
):
    """Puts the key and value of each sequence behind its first `length[b]` ones, in its pages; nothing else is written.

    *Shapes*: k [B, KV, D], v [B, KV, DV]; table [B, PB]; length [B] below PB PS; K [pages, PS, KV, D], V [pages, PS,
    KV, DV].
    """
    for b in td.parallel(B.each):
        n = length[b]
        page = td.in_range(table[b, td.in_range(n // PS.extent, PB)], P)
        K[page, td.in_range(n % PS.extent, PS), KV, D] = k[b, KV, D]
        V[page, td.in_range(n % PS.extent, PS), KV, DV] = v[b, KV, DV]
