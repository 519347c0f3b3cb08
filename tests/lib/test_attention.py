"""The attention family against a float64 oracle, with bounds from rounding of scores, weights and rescaling.

Scores of integers times 1/2 (D = 4) are exact, as are maxima; a weight is off by 4 u, and each of at most K steps
rescales by a factor off by 4 u and rounds: numerator and denominator are off by (7 K + 8) u of their magnitudes. bf16
weights add u_b.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.lib import rounding as r
from tests.lib.rounding import Num
from tests.lib.ways import BF16, F32, clean, compare, random, run, whole

from treadle.lib import decode
from treadle.lib.attention import attention, attention_backward, grouped_attention, varlen_attention


def oracle(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    window: int | None = None,
    slope: Any = None,
    softcap: float | None = None,
    bf16: bool = False,
) -> tuple[Num, Num]:
    """Y and lse of [heads, tokens, D] with as many key heads, after `grouped_attention`."""
    q, k, v = r.up(q), r.up(k), r.up(v)
    score, n = np.einsum("hqd,hkd->hqk", q, k) * q.shape[-1] ** -0.5, k.shape[1]
    at, key = np.arange(q.shape[1])[:, None] + n - q.shape[1], np.arange(n)[None]
    off = np.zeros_like(score)
    if softcap is not None:
        score = softcap * np.tanh(score / softcap)
        off = 7 * r.U * np.abs(score)
    if slope is not None:
        score = score - slope[:, None, None] * np.abs(at - key)
    seen = np.ones(score.shape, bool)
    if causal:
        seen &= at >= key
    if window is not None:
        seen &= np.abs(at - key) < window
    score = np.where(seen, score, -np.inf)
    with np.errstate(all="ignore"):
        top = score.max(2, initial=-np.inf)
        p = np.where(seen, np.exp(score - np.where(np.isinf(top), 0, top)[..., None]), 0)
        total = p.sum(2)
        weight = p / np.where(total > 0, total, 1)[..., None]
        lse = np.log(total) + np.where(np.isinf(top), -np.inf, top)
    relative = (7 * n + 8) * r.U + off.max(2, initial=0)
    y = Num(np.einsum("hqk,hkd->hqd", weight, v), np.einsum("hqk,hkd->hqd", weight, np.abs(v)))
    y = Num(y.value, y.off * (2 * relative[..., None] + (r.U_BF16 if bf16 else 0)))
    return y, Num(lse, np.where(np.isinf(lse), 0, relative + 6 * r.U * (np.abs(lse) + 1)))


def heads(g: np.random.Generator, b: int, hq: int, kv: int, sq: int, sk: int, dtype: Any = F32) -> tuple[Any, ...]:
    return (
        whole(g, b, hq, sq, 4, most=2, dtype=dtype),
        whole(g, b, kv, sk, 4, most=2, dtype=dtype),
        whole(g, b, kv, sk, 4, dtype=dtype),
    )


def together(parts: list[tuple[Num, Num]]) -> tuple[Num, Num]:
    return tuple(Num(np.stack([p[i].value for p in parts]), np.stack([p[i].off for p in parts])) for i in (0, 1))


def grouped(q: Any, k: Any, v: Any, **kw: Any) -> tuple[Num, Num]:
    n = q.shape[1] // k.shape[1]
    return together([oracle(a, np.repeat(b, n, 0), np.repeat(c, n, 0), **kw) for a, b, c in zip(q, k, v)])


VARIANTS = {
    "full": {},
    "causal": {"causal": True},
    "window": {"window": 3},
    "causal window": {"causal": True, "window": 4},
    "softcap": {"softcap": 2.0},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_grouped_attention(name: str) -> None:
    q, k, v = heads(random(), 2, 4, 2, 9, 13)
    kw = VARIANTS[name]
    run(grouped_attention, q, k, v, want=grouped(q, k, v, **kw), compiled=name == "causal window", **kw)


def test_alibi_and_more_queries_than_keys() -> None:
    q, k, v = heads(random(1), 1, 4, 1, 9, 5)
    slope = np.array([0.5, 0.25, 0.125, 0.0625], np.float32)
    kw = {"slope": slope, "causal": True}
    y, lse = run(grouped_attention, q, k, v, slope, causal=True, want=grouped(q, k, v, **kw))
    assert (y[:, :, :4] == 0).all() and np.isneginf(lse[:, :, :4]).all()
    clean(grouped_attention, q, k, v, slope, causal=True)


def test_bf16_and_the_first_kernel() -> None:
    q, k, v = heads(random(2), 1, 2, 2, 40, 40, BF16)
    want = grouped(q, k, v, causal=True, bf16=True)
    run(grouped_attention, q, k, v, causal=True, want=want)
    run(attention, q, k, v, causal=True, want=want[0])


def test_packed_sequences() -> None:
    g = random(3)
    q, k, v = whole(g, 12, 4, 4, most=2), whole(g, 15, 2, 4, most=2), whole(g, 15, 2, 4)
    qs, ks = np.array([0, 5, 5, 12], np.int32), np.array([0, 4, 8, 15], np.int32)
    for causal in (True, False):
        value, off = np.zeros((12, 4, 4)), np.zeros((12, 4, 4))
        for a, b, c, d in zip(qs, qs[1:], ks, ks[1:]):
            part, _ = oracle(
                q[a:b].swapaxes(0, 1),
                np.repeat(k[c:d].swapaxes(0, 1), 2, 0),
                np.repeat(v[c:d].swapaxes(0, 1), 2, 0),
                causal=causal,
            )
            value[a:b], off[a:b] = part.value.swapaxes(0, 1), part.off.swapaxes(0, 1)
        run(varlen_attention, q, k, v, qs, ks, causal=causal, want=Num(value, off))


def gradients(q: Any, k: Any, v: Any, d: Any, **kw: Any) -> tuple[Num, ...]:
    """dQ, dK, dV in float64, and bounds: relative errors of P, dY V^T and delta, times the magnitudes they enter
    with.
    """
    q, k, v, d = r.up(q), r.up(k), r.up(v), r.up(d)
    n, scale = k.shape[1], q.shape[-1] ** -0.5
    (y, _), at = oracle(q, k, v, **kw), np.arange(q.shape[1])[:, None] + n - q.shape[1]
    seen = np.ones((q.shape[1], n), bool) & ((at >= np.arange(n)) if kw.get("causal") else True)
    if kw.get("window"):
        seen &= np.abs(at - np.arange(n)) < kw["window"]
    s = np.where(seen, np.einsum("hqd,hkd->hqk", q, k) * scale, -np.inf)
    top = s.max(2, keepdims=True)
    p = np.where(seen, np.exp(s - np.where(np.isinf(top), 0, top)), 0)
    p = p / np.maximum(p.sum(2, keepdims=True), 1e-300)
    dp, delta = np.einsum("hqd,hkd->hqk", d, v), np.einsum("hqd,hqd->hq", d, y.value)[..., None]
    ds = p * (dp - delta) * scale
    slack = (
        (20 * n + 64) * r.U * p * (np.einsum("hqd,hkd->hqk", np.abs(d), np.abs(v)) + 20 * np.abs(d).sum(2)[..., None])
    )
    dq = Num(np.einsum("hqk,hkd->hqd", ds, k), np.einsum("hqk,hkd->hqd", slack, np.abs(k)))
    dk = Num(np.einsum("hqk,hqd->hkd", ds, q), np.einsum("hqk,hqd->hkd", slack, np.abs(q)))
    weights = (20 * n + 64) * r.U * np.einsum("hqk,hqd->hkd", p, np.abs(d))
    return dq, dk, Num(np.einsum("hqk,hqd->hkd", p, d), weights)


@pytest.mark.parametrize("kw", [{}, {"causal": True}, {"causal": True, "window": 3}], ids=str)
def test_backward(kw: dict[str, Any]) -> None:
    g = random(4)
    q, k, v = heads(g, 1, 4, 2, 7, 11)
    d = whole(g, 1, 4, 7, 4)
    y, lse = grouped_attention.reference(q, k, v, **kw)
    dq, dk, dv = gradients(q[0], np.repeat(k[0], 2, 0), np.repeat(v[0], 2, 0), d[0], **kw)
    pairs = [Num(t.value.reshape(2, 2, 11, 4).sum(1), t.off.reshape(2, 2, 11, 4).sum(1)) for t in (dk, dv)]
    wants = tuple(Num(t.value[None], t.off[None]) for t in (dq, *pairs))
    run(attention_backward, q, k, v, y, lse, d, want=wants, compiled=kw == {"causal": True}, **kw)


def stored(seed: int) -> tuple[Any, ...]:
    g = random(seed)
    q, k, v = whole(g, 3, 4, 4, most=2), whole(g, 3, 2, 13, 4, most=2), whole(g, 3, 2, 13, 6)
    return q, k, v, np.array([13, 0, 5], np.int32)


def decoded(q: Any, k: Any, v: Any, length: Any) -> tuple[Num, Num]:
    parts = []
    for b, n in enumerate(length):
        y, lse = oracle(q[b][:, None], np.repeat(k[b, :, :n], 2, 0), np.repeat(v[b, :, :n], 2, 0))
        parts.append((y[:, 0], lse[:, 0]))
    return together(parts)


def test_decode_split_and_merged() -> None:
    q, k, v, length = stored(5)
    wants = decoded(q, k, v, length)
    run(decode.decode_attention, q, k, v, length, want=wants)
    y, lse = decode.split_decode(q, k, v, length, splits=4)
    other = decode.split_decode.reference(q, k, v, length, splits=4)
    compare(y, Num(other[0].astype(float), 100 * r.U * (np.abs(other[0]) + 3)))
    merged = tuple(Num(w.value, 2 * w.off) for w in wants)
    run(decode.merge_attention, y, lse, want=merged)
    clean(decode.split_decode, q, k, v, length)


def test_pages() -> None:
    q, k, v, length = stored(6)
    table = np.array([[3, 1, 0, 7], [-5, 99, 99, 99], [2, 4, 99, 99]], np.int32)
    pages_k, pages_v = np.full((9, 4, 2, 4), np.nan, np.float32), np.full((9, 4, 2, 6), np.nan, np.float32)
    for b, n in enumerate(length):
        for t in range(n):
            pages_k[table[b, t // 4], t % 4], pages_v[table[b, t // 4], t % 4] = k[b, :, t], v[b, :, t]
    run(decode.paged_attention, q, pages_k, pages_v, table, length, want=decoded(q, k, v, length))
    table[1, 0] = 5
    clean(decode.paged_attention, q, pages_k, pages_v, table, length)
    new_k, new_v = whole(random(7), 3, 2, 4), whole(random(8), 3, 2, 6)
    before = pages_k.copy()
    decode.append_pages(new_k, new_v, table, length, pages_k, pages_v)
    for b, (page, slot) in enumerate([(7, 1), (5, 0), (4, 1)]):
        compare(pages_k[page, slot], new_k[b])
        compare(pages_v[page, slot], new_v[b])
        before[page, slot] = new_k[b]
    compare(pages_k, before)
