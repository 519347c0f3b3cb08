"""Attention: the forward pass, full and causal."""

from __future__ import annotations

import treadle as td
from treadle import f32

B, H, Sq, Sk, D = td.dims("B H Sq Sk D")


@td.kernel
def attention(
    Q: td.Tensor[B, H, Sq, D],
    K: td.Tensor[B, H, Sk, D],
    V: td.Tensor[B, H, Sk, D],
    Y: td.Out[B, H, Sq, D] = None,
    *,
    causal=False,
):
    """`Y = softmax(Q K^T / sqrt(D)) V` of each head, keys in a pipeline, f32 state.

    With `causal`, query q sees keys 0 .. q + Sk - Sq: the last query sees every key. A query without a key gives NaN.

    *Shapes*: Q, Y [B, H, Sq, D]; K, V [B, H, Sk, D]. *Source*: the online softmax (Milakov and Gimelshein, 2018).
    """
    shift = Sk.extent - Sq.extent
    for b, h, q in td.parallel(B.each, H.each, Sq):
        x = Q[b, h, q, D]
        m, total, acc = td.full(q, value=-float("inf")), td.zeros(q), td.zeros(q, D)
        for k in td.pipeline(Sk[: q.stop + shift] if causal else Sk):
            s = td.dot(x, K[b, h, k, D], over=D, dtype=f32) * D.extent**-0.5
            if causal:
                s = td.where(q + shift >= k, s, -float("inf"))
            top = td.maximum(m, s.max(k))
            p, c = td.exp(s - top), td.exp(m - top)
            total = total * c + p.sum(k)
            acc = td.mma(p.to(V.dtype), V[b, h, k, D], acc * c)
            m = top
        Y[b, h, q, D] = acc / total
