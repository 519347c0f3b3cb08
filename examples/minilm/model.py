"""The encoder: weights from the package, kernels in order. No arithmetic happens here."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kernels
import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

import treadle as td

Array = np.ndarray


@dataclass
class Packed:
    """Sentences as one row of tokens: `start[b] <= t < start[b + 1]` are those of sentence b."""

    ids: Array
    positions: Array
    start: Array
    tokens: list[list[str]] = field(default_factory=list)


@dataclass
class Encoder:
    """Weights and sizes of one BERT-style encoder; `call(kernel, *args, **staged)` runs a kernel."""

    weights: dict[str, Array]
    tokenizer: Tokenizer
    layers: int
    heads: int
    eps: float
    longest: int

    @classmethod
    def load(cls, folder: Path) -> Encoder:
        """Reads `config.json`, `model.safetensors` and `tokenizer.json` of a model folder."""
        config = json.loads((folder / "config.json").read_text())
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        tokenizer.no_padding()
        tokenizer.enable_truncation(max_length=config["max_position_embeddings"])
        return cls(
            weights=load_file(folder / "model.safetensors"),
            tokenizer=tokenizer,
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            eps=config["layer_norm_eps"],
            longest=config["max_position_embeddings"],
        )

    def pack(self, sentences: list[str]) -> Packed:
        """Token numbers of all sentences in a row."""
        encoded = self.tokenizer.encode_batch(sentences)
        lengths = [len(e.ids) for e in encoded]
        return Packed(
            ids=np.concatenate([e.ids for e in encoded]).astype(np.int32),
            positions=np.concatenate([np.arange(n) for n in lengths]).astype(np.int32),
            start=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
            tokens=[e.tokens for e in encoded],
        )

    def embed(self, packed: Packed, call: Callable[..., Any], progress: Callable[[str], None]) -> Array:
        """One unit vector a sentence: [sentences, hidden size], f32."""
        w = self.weights
        x = call(
            kernels.embed,
            packed.ids,
            packed.positions,
            w["embeddings.word_embeddings.weight"],
            w["embeddings.position_embeddings.weight"],
            w["embeddings.token_type_embeddings.weight"][0],
        )
        name = "embeddings.LayerNorm"
        x = call(kernels.layernorm, x, w[f"{name}.weight"], w[f"{name}.bias"], eps=self.eps)
        for layer in range(self.layers):
            progress(f"layer {layer + 1} of {self.layers}")
            x = self._layer(f"encoder.layer.{layer}", x, packed.start, call)
        progress("pooling")
        return call(kernels.normalise, call(kernels.pool, x, packed.start))

    def _layer(self, name: str, x: Array, start: Array, call: Callable[..., Any]) -> Array:
        def linear(part: str, rows: Array, **staged: Any) -> Array:
            weight, bias = self.weights[f"{name}.{part}.weight"], self.weights[f"{name}.{part}.bias"]
            return call(kernels.linear, rows, weight, bias, **staged)

        def norm(part: str, rows: Array, residual: Array) -> Array:
            scale, shift = self.weights[f"{name}.{part}.weight"], self.weights[f"{name}.{part}.bias"]
            return call(kernels.add_layernorm, rows, residual, scale, shift, eps=self.eps)

        q, k, v = (linear(f"attention.self.{part}", x) for part in ("query", "key", "value"))
        mixed = call(kernels.attention, q, k, v, start, heads=self.heads)
        x = norm("attention.output.LayerNorm", linear("attention.output.dense", mixed), x)
        wide = linear("intermediate.dense", x, act=td.gelu)
        return norm("output.LayerNorm", linear("output.dense", wide), x)
