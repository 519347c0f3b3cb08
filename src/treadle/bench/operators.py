"""Cases beside those of `cases.py`: work on rows, reductions, scans, one query against many keys, convolutions, skinny
and transposed products, 8-bit integers.

*Source* of the bounds: a sum of n terms in any order is within n u of the sum of their sizes (u = 2^-24), what is
computed from it carries that on, and the result is rounded once to its dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

import treadle as td
from treadle.bench.case import Arrays, Case, aligned, erf
from treadle.dtype.formats import DType, bf16, f32, i8, i64
from treadle.lib.activations import gated
from treadle.lib.convolution import conv2d, depthwise_conv2d
from treadle.lib.decode import decode_attention
from treadle.lib.linear import linear
from treadle.lib.losses import cross_entropy
from treadle.lib.norms import add_layernorm, layernorm, rmsnorm
from treadle.lib.quantised import int8_matmul
from treadle.lib.reductions import rows_max, rows_sum, total
from treadle.lib.rotary import rope
from treadle.lib.scans import cumsum
from treadle.runtime.memory import empty

UNIT = 2.0**-24
M, N = td.dims("M N")
Shapes = Mapping[str, tuple[int, ...]]
Wide = Callable[[Arrays], Any]
Bind = Callable[[Arrays, Any], Callable[[], Any]]


@td.kernel
def bias_gelu_residual(X: td.Tensor[M, N], bias: td.Tensor[N], R: td.Tensor[M, N], Y: td.Out[M, N]):  # pyright: ignore[reportInvalidTypeForm]  # dimensions are values
    """`Y = gelu(X + bias) + R`, computed in f32."""
    for m, n in td.parallel(M, N):
        Y[m, n] = td.gelu(X[m, n].to(td.f32) + bias[n].to(td.f32)) + R[m, n].to(td.f32)


def operator_cases() -> Iterator[Case]:
    """The cases of `treadle bench cpu` beside those of `cases.py`."""
    for dtype in (f32, bf16):
        for rows, columns in ((4096, 1024), (4096, 4096)):
            yield from row_cases(dtype, rows, columns)
        yield rope_case(dtype, 2048, 16, 128)
        yield decode_case(dtype, 4, 32, 8, 4096, 128)
        for m in (1, 4, 16):
            yield linear_case(dtype, m, 2048, 2048)
        yield linear_case(dtype, 1024, 1024, 1024, turned=True)
    yield from reduction_cases(4096, 4096)
    yield conv_case(8, 64, 64, 56, 3)
    yield conv_case(8, 256, 64, 56, 1)
    yield conv_case(8, 128, 1, 56, 3)
    yield int8_case(1024, 1024, 1024)


def normal(dtype: DType, shapes: Shapes) -> Callable[[np.random.Generator], Arrays]:
    """Inputs of these shapes from the normal distribution."""
    return lambda rng: {name: aligned(rng.standard_normal(shape), dtype) for name, shape in shapes.items()}


def rounded(dtype: DType, terms: int, size: Callable[[Arrays, Any], Any] | None = None) -> Callable[[Arrays, Any], Any]:
    """The bound of a result of that dtype: `terms` units of f32 of its `size` (1 + |result|), and one rounding."""

    def bound(a: Arrays, want: Any) -> Any:
        sizes = 1 + np.abs(want) if size is None else size(a, want)
        return terms * UNIT * sizes + np.abs(want) * 2.0 ** -(dtype.mantissa + 1) + 1e-6

    return bound


def f64(array: Any) -> Any:
    """In float64."""
    return array.astype(np.float64)


def standardised(x: Any, eps: float) -> Any:
    """Rows minus their mean over their deviation."""
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d * d).mean(-1, keepdims=True) + eps)


def row_cases(dtype: DType, rows: int, columns: int) -> Iterator[Case]:
    """Norms, a norm of a sum, cross-entropy, elementwise chains: [rows, columns]."""
    whole, label = (rows, columns), f"{rows}x{columns}"
    size = float(dtype.itemsize * rows * columns)

    def case(family: str, shapes: Shapes, kernel: Any, bind: Bind, oracle: Wide, moved: float, terms: int) -> Case:
        return Case(
            family=family,
            dtype=dtype,
            shape=whole,
            label=label,
            flops=8.0 * rows * columns,
            bytes=moved * size,
            output=whole,
            make=normal(dtype, shapes),
            bind=bind,
            oracle=oracle,
            tolerance=rounded(dtype, terms),
            kernel=kernel,
        )

    row = {"x": whole, "scale": (columns,), "shift": (columns,)}
    yield case(
        "layernorm",
        row,
        layernorm,
        lambda a, out: layernorm.bind(a["x"], a["scale"], a["shift"], out),
        lambda a: standardised(f64(a["x"]), 1e-5) * f64(a["scale"]) + f64(a["shift"]),
        2.0,
        4 * columns,
    )
    yield case(
        "rmsnorm",
        {"x": whole, "scale": (columns,)},
        rmsnorm,
        lambda a, out: rmsnorm.bind(a["x"], a["scale"], out),
        lambda a: (x := f64(a["x"])) / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * f64(a["scale"]),
        2.0,
        2 * columns,
    )

    def with_sum(rng: np.random.Generator) -> Arrays:
        return {**normal(dtype, {**row, "residual": whole})(rng), "sum": empty(whole, dtype.name)}

    made = case(
        "add_layernorm",
        row,
        add_layernorm,
        lambda a, out: add_layernorm.bind(a["x"], a["residual"], a["scale"], a["shift"], out, a["sum"]),
        lambda a: standardised(f64(a["x"]) + f64(a["residual"]), 1e-5) * f64(a["scale"]) + f64(a["shift"]),
        4.0,
        4 * columns,
    )
    # A peer may round the sum to 16 bits before it standardises it.
    slack = 16.0 * 2.0 ** -(dtype.mantissa + 1)
    yield made.altered(make=with_sum, tolerance=lambda a, want: slack * (1 + np.abs(want)) + 4 * columns * UNIT)
    yield case(
        "bias_gelu_residual",
        {"x": whole, "bias": (columns,), "residual": whole},
        bias_gelu_residual,
        lambda a, out: bias_gelu_residual.bind(a["x"], a["bias"], a["residual"], out),
        lambda a: 0.5 * (z := f64(a["x"]) + f64(a["bias"])) * (1 + erf(z / math.sqrt(2))) + f64(a["residual"]),
        3.0,
        16,
    ).altered(tolerance=lambda a, want: slack * (1 + np.abs(want)) + 1e-6)
    yield case(
        "swiglu",
        {"gate": whole, "up": whole},
        gated,
        lambda a, out: gated.bind(a["gate"], a["up"], out, act=td.silu),
        lambda a: (g := f64(a["gate"])) / (1 + np.exp(-g)) * f64(a["up"]),
        3.0,
        16,
    ).altered(tolerance=lambda a, want: slack * (1 + np.abs(want)) + 1e-6)
    yield cross_entropy_case(dtype, rows, columns)


def cross_entropy_case(dtype: DType, rows: int, columns: int) -> Case:
    """The loss of each row against a label, in f32."""

    def make(rng: np.random.Generator) -> Arrays:
        label = rng.integers(0, columns, rows)
        return {
            "x": aligned(rng.standard_normal((rows, columns)), dtype),
            "label": label.astype(np.int32),
            "lse": empty((rows,), "f32"),
        }

    def oracle(a: Arrays) -> Any:
        x = f64(a["x"])
        return np.log(np.exp(x).sum(1)) - x[np.arange(rows), a["label"]]

    return Case(
        family="cross_entropy",
        dtype=dtype,
        shape=(rows, columns),
        label=f"{rows}x{columns}",
        flops=4.0 * rows * columns,
        bytes=float(dtype.itemsize * rows * columns),
        output=(rows,),
        make=make,
        bind=lambda a, out: cross_entropy.bind(a["x"], a["label"], out, a["lse"]),
        oracle=oracle,
        # A peer gives the loss in the dtype of its input.
        tolerance=lambda a, want: columns * UNIT + 2.0 ** -(dtype.mantissa - 3) + 1e-5,
        kernel=cross_entropy,
        result=f32,
    )


def rope_case(dtype: DType, tokens: int, heads: int, depth: int) -> Case:
    """Rotary embedding of [tokens, heads, depth], pairs as halves."""
    shape, half = (tokens, heads, depth), depth // 2

    def make(rng: np.random.Generator) -> Arrays:
        angle = np.arange(tokens)[:, None] * 10000.0 ** (-np.arange(half) / half)
        made = {"x": rng.standard_normal(shape), "cosine": np.cos(angle), "sine": np.sin(angle)}
        return {name: aligned(value, dtype) for name, value in made.items()}

    def oracle(a: Arrays) -> Any:
        x, c, s = f64(a["x"]), f64(a["cosine"])[:, None], f64(a["sine"])[:, None]
        u, v = x[..., :half], x[..., half:]
        return np.concatenate((u * c - v * s, u * s + v * c), -1)

    return Case(
        family="rope",
        dtype=dtype,
        shape=shape,
        label=f"{tokens}x{heads}x{depth}",
        flops=3.0 * math.prod(shape),
        bytes=2.0 * dtype.itemsize * math.prod(shape),
        output=shape,
        make=make,
        bind=lambda a, out: rope.bind(a["x"], a["cosine"], a["sine"], out),
        oracle=oracle,
        # A peer rounds each product.
        tolerance=lambda a, want: 2.0 ** -(dtype.mantissa - 1) * (2 + np.abs(want)),
        kernel=rope,
    )


def decode_case(dtype: DType, batch: int, heads: int, groups: int, length: int, depth: int) -> Case:
    """One query of each of `heads` against `length` keys of each of `groups`."""
    keys = (batch, groups, length, depth)

    def make(rng: np.random.Generator) -> Arrays:
        made = normal(dtype, {"q": (batch, heads, depth), "k": keys, "v": keys})(rng)
        return {**made, "length": np.full(batch, length, np.int32), "lse": empty((batch, heads), "f32")}

    def oracle(a: Arrays) -> Any:
        q = f64(a["q"]).reshape(batch, groups, heads // groups, depth)
        s = q @ f64(a["k"]).swapaxes(-1, -2) / math.sqrt(depth)
        p = np.exp(s - s.max(-1, keepdims=True))
        return (p / p.sum(-1, keepdims=True) @ f64(a["v"])).reshape(batch, heads, depth)

    return Case(
        family="decode_attention",
        dtype=dtype,
        shape=(batch, heads, groups, length, depth),
        label=f"b{batch}-h{heads}-kv{groups}-s{length}-d{depth}",
        flops=4.0 * batch * heads * length * depth,
        bytes=2.0 * dtype.itemsize * math.prod(keys),
        output=(batch, heads, depth),
        make=make,
        bind=lambda a, out: decode_attention.bind(a["q"], a["k"], a["v"], a["length"], out, a["lse"]),
        oracle=oracle,
        tolerance=lambda a, want: 2.0 * 2.0 ** -(dtype.mantissa + 1) * np.abs(f64(a["v"])).max() + 1e-5,
        kernel=decode_attention,
    )


def linear_case(dtype: DType, m: int, n: int, k: int, *, turned: bool = False) -> Case:
    """Linear + bias; `turned`: the weight lies transposed in memory."""

    def make(rng: np.random.Generator) -> Arrays:
        w = rng.standard_normal((n, k) if turned else (k, n)) / math.sqrt(k)
        made = {"x": rng.standard_normal((m, k)), "w": w, "bias": rng.standard_normal(n)}
        found = {name: aligned(value, dtype) for name, value in made.items()}
        return {**found, "w": found["w"].T} if turned else found

    size = dtype.itemsize
    return Case(
        family="linear-turned" if turned else "linear",
        dtype=dtype,
        shape=(m, n, k),
        label=f"{m}x{n}x{k}",
        flops=2.0 * m * n * k,
        bytes=float(size * (m * k + k * n + m * n)),
        output=(m, n),
        make=make,
        bind=lambda a, out: linear.bind(a["x"], a["w"], a["bias"], out),
        oracle=lambda a: f64(a["x"]) @ f64(a["w"]) + f64(a["bias"]),
        tolerance=rounded(dtype, k, lambda a, _: 1 + np.abs(f64(a["x"])) @ np.abs(f64(a["w"]))),
        kernel=linear,
    )


def reduction_cases(rows: int, columns: int) -> Iterator[Case]:
    """Sums of rows and of all, maxima with their places, running sums; f32."""
    whole = (rows, columns)

    def case(family: str, output: tuple[int, ...], bind: Bind, oracle: Wide, kernel: Any, terms: int) -> Case:
        return Case(
            family=family,
            dtype=f32,
            shape=whole,
            label=f"{rows}x{columns}",
            flops=1.0 * rows * columns,
            bytes=4.0 * (rows * columns + math.prod(output)),
            output=output,
            make=normal(f32, {"x": whole}),
            bind=bind,
            oracle=oracle,
            tolerance=lambda a, want: terms * UNIT * np.abs(f64(a["x"])).sum(-1).max() + 1e-6,
            kernel=kernel,
        )

    yield case(
        "rows_sum", (rows,), lambda a, out: rows_sum.bind(a["x"], out), lambda a: f64(a["x"]).sum(1), rows_sum, columns
    )
    yield case("total", (), lambda a, out: total.bind(a["x"], out), lambda a: f64(a["x"]).sum(), total, rows * columns)
    yield case(
        "cumsum", whole, lambda a, out: cumsum.bind(a["x"], out), lambda a: f64(a["x"]).cumsum(1), cumsum, columns
    )
    found = case(
        "argmax",
        (rows,),
        lambda a, out: rows_max.bind(a["x"], a["top"], out),
        lambda a: np.argmax(a["x"], 1).astype(np.float64),
        rows_max,
        0,
    )
    make = found.make
    yield found.altered(
        make=lambda rng: {**make(rng), "top": empty((rows,), "f32")},
        tolerance=lambda a, want: np.zeros(rows),
        result=i64,
    )


def conv_case(batch: int, channels: int, group: int, side: int, taps: int) -> Case:
    """Square images, as many channels out as in (64 for one tap), the edges filled; `group` channels in of each out."""
    depthwise = group == 1
    out = channels if depthwise or taps > 1 else 64
    inside = 1 if depthwise else channels
    pad = taps // 2

    def make(rng: np.random.Generator) -> Arrays:
        weight = rng.standard_normal((out, inside, taps, taps)) / math.sqrt(inside * taps * taps)
        image = rng.standard_normal((batch, channels, side, side))
        return {"x": aligned(image, f32), "w": aligned(weight, f32), "bias": aligned(rng.standard_normal(out), f32)}

    def oracle(a: Arrays) -> Any:
        x = np.pad(f64(a["x"]), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
        y = np.zeros((batch, out, side, side)) + f64(a["bias"])[:, None, None]
        for r in range(taps):
            for s in range(taps):
                window, w = x[:, :, r : r + side, s : s + side], f64(a["w"])[:, :, r, s]
                y += window * w[:, 0, None, None] if depthwise else np.einsum("bchv,oc->bohv", window, w, optimize=True)
        return y

    def bind(a: Arrays, out: Any) -> Callable[[], Any]:
        if depthwise:
            return depthwise_conv2d.bind(a["x"], a["w"][:, 0], a["bias"], out, pad=pad)
        return conv2d.bind(a["x"], a["w"], a["bias"], out, pad=pad)

    work = 2.0 * batch * out * inside * taps * taps * side * side
    return Case(
        family="depthwise_conv2d" if depthwise else "conv2d",
        dtype=f32,
        shape=(batch, channels, side, taps),
        label=f"b{batch}-c{channels}-o{out}-{side}x{side}-k{taps}",
        flops=work,
        bytes=4.0 * batch * side * side * (channels + out),
        output=(batch, out, side, side),
        make=make,
        bind=bind,
        oracle=oracle,
        # A peer may transform the image (Winograd): its sums are of other terms, ten times as large.
        tolerance=lambda a, want: 20 * inside * taps * taps * UNIT * (1 + np.abs(want)) + 1e-4,
        kernel=depthwise_conv2d if depthwise else conv2d,
    )


def int8_case(m: int, n: int, k: int) -> Case:
    """8-bit integers, a scale a row and a column, the result in f32."""

    def make(rng: np.random.Generator) -> Arrays:
        return {
            "x": rng.integers(-127, 128, (m, k)).astype(np.int8),
            "w": rng.integers(-127, 128, (k, n)).astype(np.int8),
            "x_scale": aligned(rng.random(m) + 0.5, f32),
            "w_scale": aligned(rng.random(n) + 0.5, f32),
        }

    def oracle(a: Arrays) -> Any:
        return f64(a["x"]) @ f64(a["w"]) * f64(a["x_scale"])[:, None] * f64(a["w_scale"])

    return Case(
        family="int8_linear",
        dtype=i8,
        shape=(m, n, k),
        label=f"{m}x{n}x{k}",
        flops=2.0 * m * n * k,
        bytes=float(m * k + k * n + 4 * m * n),
        output=(m, n),
        make=make,
        bind=lambda a, out: int8_matmul.bind(a["x"], a["w"], a["x_scale"], a["w_scale"], Y=out),
        oracle=oracle,
        tolerance=lambda a, want: 4 * UNIT * np.abs(want) + 1e-3,
        kernel=int8_matmul,
        result=f32,
    )
