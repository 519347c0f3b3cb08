"""The MiniLM encoder end to end beside torch and onnxruntime, with the same weights and the same sentences.

    python benchmarks/minilm.py OUT.jsonl [--threads N] [--rounds N] [--build] [--drawn] [--batch PATTERN]

It needs the packages of the demo (`./dev demo`) and those of the extra `bench`; `--drawn` draws weights of the same
shapes at random, where the package with the trained ones is not at hand. Ours runs over packed tokens as
`examples/minilm` does. The peers run as their users write encoders: sentences padded to the longest one, a mask added
to the scores, torch with scaled_dot_product_attention under inference mode, onnxruntime on a graph of standard
operations with all its optimisations. Batches are one short sentence, 16 of mixed lengths, and 8 of 128 tokens. Vectors
are compared with a float64 evaluation before anything is timed. Units: milliseconds a batch.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "minilm"))

import oracle
from demo import BOUND, weights_folder
from model import Encoder, Packed
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from treadle.bench.onnx_peers import load as load_onnx
from treadle.bench.onnx_peers import session_of
from treadle.bench.peers import PEERS, everywhere
from treadle.bench.suite import METHOD, alone
from treadle.driver.calibration import machine_of
from treadle.runtime.pool import set_workers

Array = np.ndarray
BATCHES = {
    "one sentence of 12": [12],
    "16 of 8 to 64": [8, 64, 12, 40, 16, 9, 33, 24, 50, 11, 20, 28, 14, 60, 18, 36],
    "8 of 128": [128] * 8,
}
LAYER = "encoder.layer"


def drawn(rng: np.random.Generator) -> Encoder:
    """An encoder of MiniLM-L6's shapes with weights of a network before training."""
    width, wide, layers = 384, 1536, 6
    weights: dict[str, Array] = {}

    def table(name: str, rows: int, columns: int) -> None:
        weights[f"{name}.weight"] = (rng.standard_normal((rows, columns)) / math.sqrt(columns)).astype(np.float32)

    def linear(name: str, outputs: int, inputs: int) -> None:
        table(name, outputs, inputs)
        weights[f"{name}.bias"] = (0.02 * rng.standard_normal(outputs)).astype(np.float32)

    def norm(name: str) -> None:
        weights[f"{name}.weight"], weights[f"{name}.bias"] = np.ones(width, np.float32), np.zeros(width, np.float32)

    for name, rows in (("word", 30522), ("position", 512), ("token_type", 2)):
        table(f"embeddings.{name}_embeddings", rows, width)
    norm("embeddings.LayerNorm")
    for name in (f"{LAYER}.{number}" for number in range(layers)):
        for part in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            linear(f"{name}.{part}", width, width)
        linear(f"{name}.intermediate.dense", wide, width)
        linear(f"{name}.output.dense", width, wide)
        norm(f"{name}.attention.output.LayerNorm")
        norm(f"{name}.output.LayerNorm")
    return Encoder(weights, Tokenizer(WordLevel({}, "")), layers, 12, 1e-12, 512)


def packed(encoder: Encoder, lengths: list[int], rng: np.random.Generator) -> Packed:
    """Sentences of these lengths from the vocabulary."""
    words = len(encoder.weights["embeddings.word_embeddings.weight"])
    return Packed(
        ids=rng.integers(1000, words, sum(lengths)).astype(np.int32),
        positions=np.concatenate([np.arange(n) for n in lengths]).astype(np.int32),
        start=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
    )


def padded(batch: Packed) -> tuple[Array, Array]:
    """Token numbers [sentences, longest], zeros behind, and which of them are there."""
    lengths = np.diff(batch.start)
    there = np.arange(lengths.max()) < lengths[:, None]
    ids = np.zeros(there.shape, np.int64)
    ids[there] = batch.ids
    return ids, there


def ours(encoder: Encoder, batch: Packed) -> Callable[[], Array]:
    """As the demo calls it."""

    def call(kernel: Any, *args: Any, **staged: Any) -> Any:
        return kernel(*args, **staged)

    return lambda: encoder.embed(batch, call, lambda text: None)


def torch_encoder(torch: Any, encoder: Encoder, batch: Packed) -> Callable[[], Array]:
    """Eager torch, functional."""
    nn, w = torch.nn.functional, {n: torch.from_numpy(v) for n, v in encoder.weights.items() if v.dtype == np.float32}
    ids, there = (torch.from_numpy(a) for a in padded(batch))
    bias = torch.where(there, 0.0, -math.inf)[:, None, None]
    rows, length = ids.shape
    width = w["embeddings.word_embeddings.weight"].shape[1]

    def linear(name: str, x: Any) -> Any:
        return nn.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    def norm(name: str, x: Any) -> Any:
        return nn.layer_norm(x, (width,), w[f"{name}.weight"], w[f"{name}.bias"], encoder.eps)

    def heads(x: Any) -> Any:
        return x.view(rows, length, encoder.heads, -1).transpose(1, 2)

    def run() -> Array:
        with torch.inference_mode():
            x = nn.embedding(ids, w["embeddings.word_embeddings.weight"])
            x = x + w["embeddings.position_embeddings.weight"][:length]
            x = norm("embeddings.LayerNorm", x + w["embeddings.token_type_embeddings.weight"][0])
            for layer in range(encoder.layers):
                name = f"{LAYER}.{layer}"
                q, k, v = (heads(linear(f"{name}.attention.self.{p}", x)) for p in ("query", "key", "value"))
                mixed = nn.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).reshape(x.shape)
                x = norm(f"{name}.attention.output.LayerNorm", linear(f"{name}.attention.output.dense", mixed) + x)
                wide = nn.gelu(linear(f"{name}.intermediate.dense", x))
                x = norm(f"{name}.output.LayerNorm", linear(f"{name}.output.dense", wide) + x)
            mean = (x * there[..., None]).sum(1) / there.sum(1, keepdim=True)
            return nn.normalize(mean).numpy()

    return run


class Onnx:
    """Writes the graph, node by node."""

    def __init__(self, libraries: Any, encoder: Encoder) -> None:
        self.libraries, self.encoder = libraries, encoder
        self.nodes: list[Any] = []
        self.constants: dict[str, Array] = {}

    def node(self, op: str, *args: str, **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(self.libraries.onnx.helper.make_node(op, list(args), [name], **attributes))
        return name

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def weight(self, name: str) -> str:
        self.constants[name] = self.encoder.weights[name]
        return name

    def linear(self, name: str, x: str) -> str:
        turned = self.constant(np.ascontiguousarray(self.encoder.weights[f"{name}.weight"].T))
        return self.node("Add", self.node("MatMul", x, turned), self.weight(f"{name}.bias"))

    def norm(self, name: str, x: str) -> str:
        scale, shift = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.node("LayerNormalization", x, scale, shift, axis=-1, epsilon=self.encoder.eps)

    def heads(self, x: str, order: list[int]) -> str:
        split = self.constant(np.array([0, 0, self.encoder.heads, -1]))
        return self.node("Transpose", self.node("Reshape", x, split), perm=order)

    def graph(self, width: int) -> None:
        """All layers; the last node is the vectors."""
        x = self.node("Gather", self.weight("embeddings.word_embeddings.weight"), "ids")
        x = self.node("Add", x, "places")
        x = self.norm("embeddings.LayerNorm", x)
        scale = self.constant(np.float32((width // self.encoder.heads) ** -0.5))
        join = self.constant(np.array([0, 0, width]))
        for layer in range(self.encoder.layers):
            name = f"{LAYER}.{layer}"
            q, v = (self.heads(self.linear(f"{name}.attention.self.{p}", x), [0, 2, 1, 3]) for p in ("query", "value"))
            k = self.heads(self.linear(f"{name}.attention.self.key", x), [0, 2, 3, 1])
            scores = self.node("Add", self.node("Mul", self.node("MatMul", q, k), scale), "bias")
            mixed = self.node("MatMul", self.node("Softmax", scores, axis=-1), v)
            mixed = self.node("Reshape", self.node("Transpose", mixed, perm=[0, 2, 1, 3]), join)
            out = self.linear(f"{name}.attention.output.dense", mixed)
            x = self.norm(f"{name}.attention.output.LayerNorm", self.node("Add", out, x))
            wide = self.node("Gelu", self.linear(f"{name}.intermediate.dense", x))
            x = self.norm(f"{name}.output.LayerNorm", self.node("Add", self.linear(f"{name}.output.dense", wide), x))
        total = self.node("MatMul", "shares", x)  # [sentences, 1, tokens] of ones over their number
        flat = self.node("Squeeze", total, self.constant(np.array([1])))
        self.node("LpNormalization", flat, axis=-1, p=2)


def onnx_encoder(libraries: Any, encoder: Encoder, batch: Packed) -> Callable[[], Array]:
    """The graph in a session, inputs and output bound once."""
    ids, there = padded(batch)
    w = encoder.weights
    places = (
        w["embeddings.position_embeddings.weight"][: ids.shape[1]] + w["embeddings.token_type_embeddings.weight"][0]
    )
    given = {
        "ids": ids,
        "places": places,
        "bias": np.where(there, 0, -np.inf).astype(np.float32)[:, None, None],
        "shares": (there / there.sum(1, keepdims=True)).astype(np.float32)[:, None],
    }
    width = places.shape[1]
    made = Onnx(libraries, encoder)
    made.graph(width)
    helper, to_tensor = libraries.onnx.helper, libraries.onnx.numpy_helper.from_array
    out = np.empty((len(ids), width), np.float32)

    def info(name: str, array: Array) -> Any:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

    last = made.nodes[-1].output[0]
    inputs, constants = [info(n, a) for n, a in given.items()], [to_tensor(v, n) for n, v in made.constants.items()]
    graph = helper.make_graph(made.nodes, "encoder", inputs, [info(last, out)], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    session = session_of(libraries, model.SerializeToString())
    binding = session.io_binding()
    for name, array in given.items():
        binding.bind_cpu_input(name, np.ascontiguousarray(array))
    binding.bind_output(last, "cpu", 0, out.dtype, out.shape, out.ctypes.data)

    def run() -> Array:
        session.run_with_iobinding(binding)
        return out

    return run


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--drawn", action="store_true", help="weights drawn at random")
    parser.add_argument("--batch", default="", help="batches whose name has this regular expression in it")
    parser.add_argument("--build", action="store_true", help="plan and compare, time nothing")
    given = parser.parse_args()
    set_workers(given.threads)
    encoder = drawn(np.random.default_rng(0)) if given.drawn else Encoder.load(weights_folder())
    # Ours starts its workers first, as in the suite: torch binds the thread that loads it to one core.
    encoder.embed(packed(encoder, [12], np.random.default_rng(0)), lambda k, *a, **s: k(*a, **s), lambda text: None)
    libraries, torch = load_onnx(given.threads), PEERS["torch"][1](given.threads)
    for label, lengths in ((n, lengths) for n, lengths in BATCHES.items() if re.search(given.batch, n)):
        batch = packed(encoder, lengths, np.random.default_rng(0))
        sides: dict[str, Callable[[], Array]] = {"ours": ours(encoder, batch)}
        if torch is not None:
            sides["torch"] = torch_encoder(torch, encoder, batch)
        if libraries is not None:
            with everywhere("onnxruntime"):
                sides["onnxruntime"] = onnx_encoder(libraries, encoder, batch)
        want = oracle.embed(encoder, batch)
        for name, side in sides.items():
            off = float(np.abs(side() - want).max())
            print(f"{label}: {name} is off by {off:.1e}", flush=True)
            if not off <= BOUND:
                return 1
        if given.build:
            continue
        for name in list(sides)[1:]:
            timed, others = alone({"ours": sides["ours"], "peer": sides[name]}, given.rounds)
            mine, theirs = timed["ours"].median * 1e3, timed["peer"].median * 1e3
            spreads = {"ours_spread": timed["ours"].spread, "peer_spread": timed["peer"].spread}
            row = {"batch": label, "tokens": sum(lengths), "threads": given.threads, "peer": name, "others": others}
            row |= {"weights": "drawn" if given.drawn else "trained"}
            row |= {"machine": machine_of("cpu"), "method": METHOD}
            row |= {f"{side}_samples_ms": [1e3 * s for s in timed[side].samples] for side in timed}
            row |= {"ours_ms": mine, "peer_ms": theirs, "ratio": theirs / mine, **spreads}
            with given.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(
                f"{label:<20} {name:<12} ours {mine:.2f} ms, peer {theirs:.2f} ms, ratio {theirs / mine:.2f}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
