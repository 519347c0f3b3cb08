"""The cases of the suites; here linear layers, softmax and attention, the others in `operators.py`.

Names read `family/dtype/shape`. A case makes its inputs, runs ours into a caller-owned output, and says how much work
and traffic it is; peers (`peers.py`) run the same case by name.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

import treadle as td
from treadle.bench.case import Arrays, Case, aligned, erf
from treadle.bench.operators import operator_cases
from treadle.bench.selecting import selecting_cases
from treadle.dtype.formats import DType, bf16, f32
from treadle.lib.attention import attention
from treadle.lib.linear import linear
from treadle.lib.rows import softmax


def cpu_cases() -> Iterator[Case]:
    """The cases of `treadle bench cpu`."""
    for dtype in (f32, bf16):
        for n in (256, 512, 1024, 2048):
            yield linear_case(dtype, n, n, n)
        yield linear_case(dtype, 1000, 1003, 997)
        for columns in (256, 1000, 1024, 4096, 4099, 32768):
            yield softmax_case(dtype, 4096 if columns <= 8192 else 512, columns)
        for causal in (False, True):
            for depth in (64, 128):
                yield attention_case(dtype, 1, 8, 1024, depth, causal)
    yield from operator_cases()
    yield from selecting_cases()


def linear_case(dtype: DType, m: int, n: int, k: int) -> Case:
    """Linear + bias + gelu, the output in the inputs' dtype."""

    def make(rng: np.random.Generator) -> Arrays:
        x, w = rng.standard_normal((m, k)), rng.standard_normal((k, n)) / math.sqrt(k)
        return {"x": aligned(x, dtype), "w": aligned(w, dtype), "bias": aligned(rng.standard_normal(n), dtype)}

    def oracle(a: Arrays) -> Any:
        z = a["x"].astype(np.float64) @ a["w"].astype(np.float64) + a["bias"].astype(np.float64)
        return 0.5 * z * (1 + erf(z / math.sqrt(2)))

    def tolerance(a: Arrays, want: Any) -> Any:
        # |error of z| <= (k + 3) u sum |x||w|; gelu's slope is below 1.13; then one rounding to the output's dtype.
        sizes = np.abs(a["x"].astype(np.float64)) @ np.abs(a["w"].astype(np.float64))
        return 1.13 * (k + 3) * 2.0**-24 * (sizes + 8) + np.abs(want) * 2.0 ** -(dtype.mantissa + 1) + 1e-6

    size = dtype.itemsize
    return Case(
        family="linear_gelu",
        dtype=dtype,
        shape=(m, n, k),
        label=f"{m}x{n}x{k}",
        flops=2.0 * m * n * k,
        bytes=float(size * (m * k + k * n + m * n)),
        output=(m, n),
        make=make,
        bind=lambda a, out: linear.bind(a["x"], a["w"], a["bias"], out, act=td.gelu),
        oracle=oracle,
        tolerance=tolerance,
        kernel=linear,
    )


def softmax_case(dtype: DType, rows: int, columns: int) -> Case:
    """Softmax along rows, the output in the input's dtype."""

    def oracle(a: Arrays) -> Any:
        x = a["x"].astype(np.float64)
        e = np.exp(x - x.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    return Case(
        family="softmax",
        dtype=dtype,
        shape=(rows, columns),
        label=f"{rows}x{columns}",
        flops=5.0 * rows * columns,
        bytes=2.0 * dtype.itemsize * rows * columns,
        output=(rows, columns),
        make=lambda rng: {"x": aligned(3 * rng.standard_normal((rows, columns)), dtype)},
        bind=lambda a, out: softmax.bind(a["x"], out),
        oracle=oracle,
        # exp within 2 ulp of a shifted argument off by half an ulp of its size (below 64); the sum's terms add up.
        tolerance=lambda a, want: np.abs(want) * (2.0 ** -(dtype.mantissa + 1) + 2.0**-17) + 1e-12,
        kernel=softmax,
    )


def attention_case(dtype: DType, batch: int, heads: int, length: int, depth: int, causal: bool) -> Case:
    """Attention forward, keys as many as queries."""
    shape = (batch, heads, length, depth)

    def make(rng: np.random.Generator) -> Arrays:
        return {name: aligned(rng.standard_normal(shape), dtype) for name in ("q", "k", "v")}

    def oracle(a: Arrays) -> Any:
        q, k, v = (a[n].astype(np.float64) for n in ("q", "k", "v"))
        s = q @ k.swapaxes(-1, -2) / math.sqrt(depth)
        if causal:
            s = np.where(np.tri(length, dtype=bool), s, -np.inf)
        p = np.exp(s - s.max(-1, keepdims=True))
        return p / p.sum(-1, keepdims=True) @ v

    def tolerance(a: Arrays, want: Any) -> Any:
        # p is rounded to the inputs' dtype, the result once more; values are of size sum p |v| <= max |v|.
        unit = 2.0 ** -(dtype.mantissa + 1)
        return 2.0 * unit * np.abs(a["v"].astype(np.float64)).max() + 1e-5

    name = "attention-causal" if causal else "attention"
    share = 0.5 if causal else 1.0
    return Case(
        family=name,
        dtype=dtype,
        shape=shape,
        label=f"b{batch}-h{heads}-s{length}-d{depth}",
        flops=4.0 * batch * heads * length * length * depth * share,
        bytes=4.0 * dtype.itemsize * math.prod(shape),
        output=shape,
        make=make,
        bind=lambda a, out: attention.bind(a["q"], a["k"], a["v"], out, causal=causal),
        oracle=oracle,
        tolerance=tolerance,
        kernel=attention,
    )
