"""Cases that compare and choose: sorting, the greatest of each row, maxima of windows; and products with 4-bit weights.

Selections are exact. Of sorts the case's output are the sorted elements; the places are written, too, into `a["at"]`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle.bench.case import Arrays, Case, aligned
from treadle.bench.operators import UNIT, Bind, Wide
from treadle.dtype.formats import bf16, f32
from treadle.lib.pooling import max_pool2d
from treadle.lib.quantised import int4_matmul
from treadle.lib.sorting import sort, topk
from treadle.runtime.memory import empty

GROUP = 128
GREATEST = 8


def selecting_cases() -> Iterator[Case]:
    """The cases of `treadle bench cpu` of this file."""
    yield sort_case(1, 100_000)
    yield sort_case(4096, 256)
    yield topk_case(4096, 1024)
    yield pool_case(8, 64, 112)
    for m in (1, 16, 256):
        yield int4_case(m, 2048, 2048)


def _rows(family: str, rows: int, columns: int, kept: int, kernel: Any, bind: Bind, oracle: Wide) -> Case:
    def make(rng: np.random.Generator) -> Arrays:
        return {"x": aligned(rng.standard_normal((rows, columns)), f32), "at": empty((rows, kept), "i64")}

    return Case(
        family=family,
        dtype=f32,
        shape=(rows, columns),
        label=f"{rows}x{columns}",
        flops=rows * columns * math.log2(columns),
        bytes=rows * (4.0 * columns + 12.0 * kept),
        output=(rows, kept),
        make=make,
        bind=bind,
        oracle=oracle,
        tolerance=lambda a, want: np.zeros(want.shape),
        kernel=kernel,
    )


def sort_case(rows: int, columns: int) -> Case:
    """Each row in order, with the columns its elements come from, stable."""
    return _rows(
        "sort",
        rows,
        columns,
        columns,
        sort,
        lambda a, out: sort.bind(a["x"], out, a["at"]),
        lambda a: np.sort(a["x"].astype(np.float64), 1),
    )


def topk_case(rows: int, columns: int) -> Case:
    """The greatest of each row, the greatest first, and their columns."""
    return _rows(
        "topk",
        rows,
        columns,
        GREATEST,
        topk,
        lambda a, out: topk.bind(a["x"], out, a["at"], k=GREATEST),
        lambda a: -np.sort(-a["x"].astype(np.float64), 1)[:, :GREATEST],
    )


def pool_case(batch: int, channels: int, side: int) -> Case:
    """Maxima of windows of three, every other one, with their places, as after the first convolution of a ResNet."""
    out = (side + 1) // 2

    def oracle(a: Arrays) -> Any:
        x = np.pad(a["x"].astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
        return windows[:, :, :out, :out].max((-1, -2))

    return Case(
        family="max_pool2d",
        dtype=f32,
        shape=(batch, channels, side, 3),
        label=f"b{batch}-c{channels}-{side}x{side}-k3-s2",
        flops=9.0 * batch * channels * out * out,
        bytes=batch * channels * (4.0 * side * side + 8.0 * out * out),
        output=(batch, channels, out, out),
        make=lambda rng: {
            "x": aligned(rng.standard_normal((batch, channels, side, side)), f32),
            "at": empty((batch, channels, out, out), "i32"),
        },
        bind=lambda a, out: max_pool2d.bind(a["x"], out, a["at"], window=3, stride=2, pad=1),
        oracle=oracle,
        tolerance=lambda a, want: np.zeros(want.shape),
        kernel=max_pool2d,
    )


def int4_case(m: int, n: int, k: int) -> Case:
    """bf16 rows and 4-bit weights, two a byte, a scale a group of 128 along the depth; the result in f32."""

    def make(rng: np.random.Generator) -> Arrays:
        return {
            "x": aligned(rng.standard_normal((m, k)), bf16),
            "w": rng.integers(0, 256, (n, k // 2)).astype(np.uint8),
            "scale": aligned((rng.random((n, k // GROUP)) + 0.5) / 32, bf16),
        }

    def wide(a: Arrays) -> Any:
        low, high = a["w"] & 15, a["w"] >> 4
        numbers = np.stack((low, high), -1).reshape(n, k).astype(np.float64)
        numbers -= 16.0 * (numbers > 7)
        return numbers * np.repeat(a["scale"].astype(np.float64), GROUP, 1)

    def tolerance(a: Arrays, want: Any) -> Any:
        sizes = np.abs(a["x"].astype(np.float64)) @ np.abs(wide(a)).T
        # A peer rounds its result, or a weight with its scale, to bf16.
        return (k + 3) * UNIT * sizes + 2.0**-8 * sizes / math.sqrt(k) + 2.0**-8 * np.abs(want) + 1e-6

    return Case(
        family="int4_linear",
        dtype=bf16,
        shape=(m, n, k),
        label=f"{m}x{n}x{k}",
        flops=2.0 * m * n * k,
        bytes=2.0 * m * k + n * k / 2 + 2.0 * n * k / GROUP + 4.0 * m * n,
        output=(m, n),
        make=make,
        bind=lambda a, out: int4_matmul.bind(a["x"], a["w"], a["scale"], None, out, group=GROUP),
        oracle=lambda a: a["x"].astype(np.float64) @ wide(a).T,
        tolerance=tolerance,
        kernel=int4_matmul,
        result=f32,
    )
