"""Shapes and operators that no coefficient or hand term was fitted on: what predictions are held against."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from treadle.dtype.formats import DType, bf16, f32
from treadle.lib.attention import attention
from treadle.lib.linear import linear
from treadle.lib.norms import layernorm, rmsnorm
from treadle.lib.rows import softmax
from treadle.runtime.memory import empty

Array = Callable[[Sequence[int], DType], Any]
"""Makes a random array where the kernel is to run."""


@dataclass(frozen=True)
class HeldOut:
    """A kernel on a shape. `arguments` takes a maker of random arrays."""

    family: str
    dtype: DType
    label: str
    kernel: Any = field(repr=False)
    arguments: Callable[[Array], Sequence[Any]] = field(repr=False)
    staged: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)

    @property
    def name(self) -> str:
        """`family/dtype/shape`."""
        return f"{self.family}/{self.dtype.name}/{self.label}"


def on_host(rng: np.random.Generator) -> Array:
    """Random arrays in this machine's memory, 64-byte aligned."""

    def made(shape: Sequence[int], dtype: DType) -> Any:
        array = empty(tuple(shape), dtype.name)
        array[...] = rng.standard_normal(tuple(shape)).astype(dtype.numpy)
        return array

    return made


def cases(kind: str) -> Iterator[HeldOut]:
    """The cases for a kind of target (`cpu`, `cuda`): larger ones on a GPU."""
    big = 1 if kind == "cpu" else 4
    for dtype in (f32, bf16):
        for m, n, k in ((384, 640, 512), (96, 1536, 768), (700, 300, 900), (1200, 1200, 160)):
            yield product(dtype, big * m, big * n, big * k)
        for rows, columns in ((2000, 700), (300, 20000), (64, 1500)):
            yield HeldOut("softmax", dtype, f"{big * rows}x{columns}", softmax, _rows(big * rows, columns, dtype))
        yield HeldOut("layernorm", dtype, f"{big * 1500}x1280", layernorm, _normed(big * 1500, 1280, dtype, 2))
        yield HeldOut("rmsnorm", dtype, f"{big * 900}x3000", rmsnorm, _normed(big * 900, 3000, dtype, 1))
        for causal in (False, True):
            yield chain(dtype, big, 3, 600, 64, causal)


def product(dtype: DType, m: int, n: int, k: int) -> HeldOut:
    """Linear + bias, no activation."""

    def arguments(array: Array) -> Sequence[Any]:
        return [array((m, k), dtype), array((k, n), dtype), array((n,), dtype), array((m, n), dtype)]

    return HeldOut("linear", dtype, f"{m}x{n}x{k}", linear, arguments)


def chain(dtype: DType, batch: int, heads: int, length: int, depth: int, causal: bool) -> HeldOut:
    """Attention forward."""
    shape = (batch, heads, length, depth)

    def arguments(array: Array) -> Sequence[Any]:
        return [array(shape, dtype) for _ in range(4)]

    name = "attention-causal" if causal else "attention"
    label = f"b{batch}-h{heads}-s{length}-d{depth}"
    return HeldOut(name, dtype, label, attention, arguments, {"causal": causal})


def _rows(rows: int, columns: int, dtype: DType) -> Callable[[Array], Sequence[Any]]:
    return lambda array: [array((rows, columns), dtype), array((rows, columns), dtype)]


def _normed(rows: int, columns: int, dtype: DType, weights: int) -> Callable[[Array], Sequence[Any]]:
    def arguments(array: Array) -> Sequence[Any]:
        scales = [array((columns,), dtype) for _ in range(weights)]
        return [array((rows, columns), dtype), *scales, array((rows, columns), dtype)]

    return arguments
