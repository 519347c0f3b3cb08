"""The same encoder in NumPy float64: what the kernels are compared with."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_erf = np.vectorize(math.erf, otypes=[np.float64])


def embed(encoder: Any, packed: Any) -> np.ndarray:
    """One unit vector a sentence, computed sentence by sentence in float64."""
    weights = {name: np.asarray(value, np.float64) for name, value in encoder.weights.items() if value.ndim}
    rows = []
    for lo, hi in zip(packed.start, packed.start[1:], strict=False):
        x = _sentence(weights, encoder, packed.ids[lo:hi], packed.positions[lo:hi])
        mean = x.mean(0)
        rows.append(mean / np.linalg.norm(mean))
    return np.array(rows)


def _sentence(w: dict[str, np.ndarray], encoder: Any, ids: np.ndarray, positions: np.ndarray) -> np.ndarray:
    x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][positions]
    x = _norm(x + w["embeddings.token_type_embeddings.weight"][0], w, "embeddings.LayerNorm", encoder.eps)
    for layer in range(encoder.layers):
        name = f"encoder.layer.{layer}"
        q, k, v = (_linear(x, w, f"{name}.attention.self.{p}") for p in ("query", "key", "value"))
        mixed = _attention(*(a.reshape(len(ids), encoder.heads, -1) for a in (q, k, v)))
        x = x + _linear(mixed, w, f"{name}.attention.output.dense")
        x = _norm(x, w, f"{name}.attention.output.LayerNorm", encoder.eps)
        wide = _linear(x, w, f"{name}.intermediate.dense")
        wide = 0.5 * wide * (1 + _erf(wide / math.sqrt(2)))
        x = _norm(_linear(wide, w, f"{name}.output.dense") + x, w, f"{name}.output.LayerNorm", encoder.eps)
    return x


def _linear(x: np.ndarray, w: dict[str, np.ndarray], name: str) -> np.ndarray:
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def _norm(x: np.ndarray, w: dict[str, np.ndarray], name: str, eps: float) -> np.ndarray:
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d * d).mean(-1, keepdims=True) + eps) * w[f"{name}.weight"] + w[f"{name}.bias"]


def _attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    scores = np.einsum("qhc,khc->hqk", q, k) / math.sqrt(q.shape[-1])
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    return np.einsum("hqk,khc->qhc", p, v).reshape(len(q), -1)
