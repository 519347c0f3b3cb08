"""Attention: full and causal; with grouped heads, windows and biases; over packed sequences; backward."""

from __future__ import annotations

import treadle as td
from treadle import f32, i32

B, H, Sq, Sk, D = td.dims("B H Sq Sk D")


@td.kernel(numerics=td.Numerics(functions="fast"))
def attention(
    Q: td.Tensor[B, H, Sq, D],
    K: td.Tensor[B, H, Sk, D],
    V: td.Tensor[B, H, Sk, D],
    Y: td.Out[B, H, Sq, D] = None,
    *,
    causal=False,
):
    """`Y = softmax(Q K^T / sqrt(D)) V` of each head, keys in a pipeline, f32 state.

    Exponentials are of accuracy class `fast`: the weights are rounded to the format of V before they are used.
    With `causal`, query q sees keys 0 .. q + Sk - Sq: the last query sees every key. A query without a key gives NaN.

    *Shapes*: Q, Y [B, H, Sq, D]; K, V [B, H, Sk, D]. *Source*: the online softmax (Milakov and Gimelshein, 2018).
    """
    shift = Sk.extent - Sq.extent
    for b, h, q in td.parallel(B.each, H.each, Sq):
        x = Q[b, h, q, D]
        m, total, acc = td.full(q, value=-float("inf")), td.zeros(q), td.zeros(q, D)
        for k in td.pipeline(Sk[: q.stop + shift] if causal else Sk):
            s = td.dot(x, K[b, h, k, D], over=D, dtype=f32)
            if causal:
                s = td.where(q + shift >= k, s, -float("inf"))
            scale = D.extent**-0.5
            top = td.maximum(m, s.max(k) * scale)
            p, c = td.exp(s * scale - top), td.exp(m - top)
            total = total * c + p.sum(k)
            acc = td.mma(p.to(V.dtype), V[b, h, k, D], acc * c)
            m = top
        Y[b, h, q, D] = acc / total


# ---- with grouped heads, windows, biases

KV, R = td.dims("KV R")
HQ = td.product(KV, R)
T, U, B1 = td.dims("T U B1")


def seen(q, k, shift, causal, window):
    """Which keys `k` the queries `q` see: none behind themselves, none more than `window - 1` before."""
    at = q + shift
    if not causal and window is None:
        return None
    if window is None:
        return at >= k
    near = at - k < window
    return near & (at >= k) if causal else near & (k - at < window)


def online(x, keys, load, see, bias, axes):
    """One query block against the blocks of `keys`: the running maximum, the sum of weights, the weighted sum of
    values.

    `load(k)` gives keys and values of a block, `bias(s, k)` changes scores, `see(k)` masks them; all are inlined.
    """
    top, total, acc = td.full(*axes, value=-float("inf")), td.zeros(*axes), td.zeros(*axes, D)
    for k in td.pipeline(keys):
        key, value = load(k)
        s = bias(td.dot(x, key, over=D, dtype=f32), k)
        mask = see(k)
        if mask is not None:
            s = td.where(mask, s, -float("inf"))
        new = td.maximum(top, s.max(k))
        safe = td.where(new == -float("inf"), 0.0, new)
        p, c = td.exp(s - safe), td.exp(top - safe)
        total = total * c + p.sum(k)
        acc = td.mma(p.to(value.dtype), value, acc * c)
        top = new
    return top, total, acc


@td.kernel
def grouped_attention(
    Q: td.Tensor[B, HQ, Sq, D],
    K: td.Tensor[B, KV, Sk, D],
    V: td.Tensor[B, KV, Sk, D],
    slope: td.Tensor[HQ] = None,
    Y: td.Out[B, HQ, Sq, D] = None,
    lse: td.Out[B, HQ, Sq, f32] = None,
    *,
    causal=False,
    window=None,
    softcap=None,
    scale=None,
):
    """Attention where HQ / KV query heads share a key head, with the logarithm of each query's sum of weights.

    Query q stands at key position q + Sk - Sq. `causal`: it sees no later key; `window=w`: none w or more away.
    `slope` (ALiBi) takes `slope[h] |distance|` from the score; `softcap=c` makes it `c tanh(score / c)`; `scale`
    defaults to 1/sqrt(D). A query that sees no key gives 0 and lse -inf. Gives (Y, lse). *Shapes*: Q, Y [B, HQ, Sq,
    D]; K, V [B, KV, Sk, D], KV divides HQ; slope [HQ] or None; lse [B, HQ, Sq]. *Source*: Ainslie et al., "GQA", 2023;
    Press et al., "Train Short, Test Long" (ALiBi), 2021, section 3; Beltagy et al., "Longformer", 2020, section 3.1
    (window).
    """
    shift = Sk.extent - Sq.extent
    for b, g, r, q in td.parallel(B.each, KV.each, R.each, Sq):

        def bias(s, k):
            s = s * (D.extent**-0.5 if scale is None else scale)
            if softcap is not None:
                s = softcap * td.tanh(s / softcap)
            if slope is not None:
                s = s - slope[g, r].to(f32) * td.abs(q + shift - k).to(f32)
            return s

        # Whole blocks of keys, where the mask hides the rest: engines bring keys by blocks and zeros behind the last.
        whole = 128 if window is None or window >= 256 else 64
        lo = 0 if window is None else (q.start + shift - (window - 1)) // whole * whole
        hi = Sk.extent
        if causal:
            hi = (q.stop + shift + whole - 1) // whole * whole
        elif window is not None:
            hi = (q.stop + shift + window + whole - 2) // whole * whole
        top, total, acc = online(
            Q[b, g, r, q, D],
            Sk[lo:hi],
            lambda k: (K[b, g, k, D], V[b, g, k, D]),
            lambda k: seen(q, k, shift, causal, window),
            bias,
            (q,),
        )
        Y[b, g, r, q, D] = td.where(total > 0, acc / total, 0.0)
        lse[b, g, r, q] = top + td.log(total)


@td.kernel
def varlen_attention(
    Q: td.Tensor[T, HQ, D],
    K: td.Tensor[U, KV, D],
    V: td.Tensor[U, KV, D],
    q_start: td.Tensor[B1, i32],
    k_start: td.Tensor[B1, i32],
    Y: td.Out[T, HQ, D] = None,
    *,
    causal=False,
):
    """Attention over packed sequences: the queries `q_start[b] <= t < q_start[b + 1]` see the keys between k_start's.

    With `causal`, the last query of a sequence stands at its last key. Queries outside all sequences are not written;
    one that sees no key gives 0. *Shapes*: Q, Y [T, HQ, D]; K, V [U, KV, D], KV divides HQ; q_start, k_start
    [sequences + 1], ascending. *Source*: Dao, "FlashAttention-2", 2023, the variable-length interface.
    """
    for b, g, r in td.parallel(B1[: B1.extent - 1].each, KV.each, R.each):
        lo, hi = k_start[b], k_start[b + 1]
        shift = hi - q_start[b + 1]
        for t in td.parallel(T[q_start[b] : q_start[b + 1]]):
            _, total, acc = online(
                Q[t, g, r, D],
                U[lo : td.minimum(hi, t.stop + shift)] if causal else U[lo:hi],
                lambda k: (K[k, g, D], V[k, g, D]),
                lambda k: (t + shift >= k) if causal else None,
                lambda s, k: s * D.extent**-0.5,
                (t,),
            )
            Y[t, g, r, D] = td.where(total > 0, acc / total, 0.0)


# ---- backward


@td.kernel
def attention_backward(
    Q: td.Tensor[B, HQ, Sq, D],
    K: td.Tensor[B, KV, Sk, D],
    V: td.Tensor[B, KV, Sk, D],
    Y: td.Tensor[B, HQ, Sq, D],
    lse: td.Tensor[B, HQ, Sq],
    dY: td.Tensor[B, HQ, Sq, D],
    dQ: td.Out[B, HQ, Sq, D] = None,
    dK: td.Out[B, KV, Sk, D] = None,
    dV: td.Out[B, KV, Sk, D] = None,
    *,
    causal=False,
    window=None,
    scale=None,
):
    """The gradients behind `grouped_attention` (without slope and softcap), from its Y and lse; scores are computed
    again.

    With `P = exp(S - lse)` and `delta = sum(dY Y)`: `dV = P^T dY`, `dS = P (dY V^T - delta) scale`, `dQ = dS K`,
    `dK = dS^T Q`, summed over the query heads of a key head. Gives (dQ, dK, dV). *Shapes*: Q, Y, dY, dQ [B, HQ, Sq,
    D]; K, V, dK, dV [B, KV, Sk, D]; lse [B, HQ, Sq]. *Source*: Dao, "FlashAttention-2", 2023, section 3.1.2, as two
    passes without atomics.
    """
    factor = D.extent**-0.5 if scale is None else scale
    shift = Sk.extent - Sq.extent
    delta = td.empty(B, KV, R, Sq, dtype=f32)
    for b, g, r, q in td.parallel(B.each, KV.each, R.each, Sq):
        delta[b, g, r, q] = (Y[b, g, r, q, D].to(f32) * dY[b, g, r, q, D].to(f32)).sum(D)

    def weights(b, g, r, q, k):
        s = td.dot(Q[b, g, r, q, D], K[b, g, k, D], over=D, dtype=f32) * factor
        mask = seen(q, k, shift, causal, window)
        z = lse[b, g, r, q]
        p = td.exp(s - td.where(z == -float("inf"), 0.0, z))
        p = p if mask is None else td.where(mask, p, 0.0)
        d = td.dot(dY[b, g, r, q, D], V[b, g, k, D], over=D, dtype=f32)
        return p, p * (d - delta[b, g, r, q]) * factor

    for b, g, r, q in td.parallel(B.each, KV.each, R.each, Sq):
        acc = td.zeros(q, D)
        for k in td.reduce(Sk[: q.stop + shift] if causal else Sk):
            _, ds = weights(b, g, r, q, k)
            acc = td.mma(ds.to(K.dtype), K[b, g, k, D], acc)
        dQ[b, g, r, q, D] = acc
    for b, g, k in td.parallel(B.each, KV.each, Sk):
        key, value = td.zeros(k, D), td.zeros(k, D)
        for r, q in td.reduce(R.each, Sq[k.start - shift :] if causal else Sq):
            p, ds = weights(b, g, r, q, k)
            value = td.mma(p.to(dY.dtype), dY[b, g, r, q, D], value)
            key = td.mma(ds.to(Q.dtype), Q[b, g, r, q, D], key)
        dK[b, g, k, D] = key
        dV[b, g, k, D] = value
