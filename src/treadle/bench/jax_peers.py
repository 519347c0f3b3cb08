"""What JAX's users write for the cases, under `jax.jit`. Results are new arrays, as JAX has it: waited for in the timed
part, copied to the case's output once, untimed.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

from treadle.bench.case import Arrays, Finished, Run

Write = Callable[[Any, Any], Callable[..., Any]]


def load(threads: int) -> Any:
    """JAX on so many threads, or None where it is not installed. One thread must be asked for before it starts."""
    flags = os.environ.get("XLA_FLAGS", "")
    if threads == 1 and "xla_cpu_multi_thread_eigen" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1".strip()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    try:
        return importlib.import_module("jax")
    except ImportError:
        return None


def peer(jax: Any, family: str, arrays: Arrays, out: Any) -> Run:
    """A family of `JAX` on these inputs."""
    names, write = JAX[family]
    compiled = jax.jit(write(jax, jax.numpy))
    given = [jax.device_put(arrays[name]) for name in names]
    result: list[Any] = [None]

    def run() -> None:
        result[0] = compiled(*given)
        result[0].block_until_ready()

    def finish() -> None:
        out[...] = importlib.import_module("numpy").asarray(result[0]).astype(out.dtype)

    return Finished(run, finish)


def _linear(act: bool) -> Write:
    def write(jax: Any, np: Any) -> Callable[..., Any]:
        def linear(x: Any, w: Any, bias: Any) -> Any:
            y = np.matmul(x, w, preferred_element_type=np.float32) + bias.astype(np.float32)
            return (jax.nn.gelu(y, approximate=False) if act else y).astype(x.dtype)

        return linear

    return write


def _attention(causal: bool) -> Write:
    def write(jax: Any, np: Any) -> Callable[..., Any]:
        def attention(q: Any, k: Any, v: Any) -> Any:
            turned = [np.swapaxes(t, 1, 2) for t in (q, k, v)]  # JAX's order is batch, length, heads, depth
            return np.swapaxes(jax.nn.dot_product_attention(*turned, is_causal=causal), 1, 2)

        return attention

    return write


def _decode(jax: Any, np: Any) -> Callable[..., Any]:
    def decode(q: Any, k: Any, v: Any) -> Any:
        keys, values = (np.swapaxes(t, 1, 2) for t in (k, v))
        return jax.nn.dot_product_attention(q[:, None], keys, values)[:, 0]

    return decode


def _layernorm(jax: Any, np: Any) -> Callable[..., Any]:
    def layernorm(x: Any, scale: Any, shift: Any) -> Any:
        wide = x.astype(np.float32)
        y = jax.nn.standardize(wide, axis=-1, epsilon=1e-5) * scale.astype(np.float32) + shift.astype(np.float32)
        return y.astype(x.dtype)

    return layernorm


def _add_layernorm(jax: Any, np: Any) -> Callable[..., Any]:
    norm = _layernorm(jax, np)

    def add_layernorm(x: Any, residual: Any, scale: Any, shift: Any) -> Any:
        return norm(x + residual, scale, shift)

    return add_layernorm


def _rmsnorm(jax: Any, np: Any) -> Callable[..., Any]:
    def rmsnorm(x: Any, scale: Any) -> Any:
        wide = x.astype(np.float32)
        size = jax.lax.rsqrt(np.mean(wide * wide, -1, keepdims=True) + 1e-6)
        return (wide * size * scale.astype(np.float32)).astype(x.dtype)

    return rmsnorm


def _cross_entropy(jax: Any, np: Any) -> Callable[..., Any]:
    def loss(x: Any, label: Any) -> Any:
        logs = jax.nn.log_softmax(x.astype(np.float32))
        return -np.take_along_axis(logs, label[:, None], axis=-1)[:, 0]

    return loss


def _rope(jax: Any, np: Any) -> Callable[..., Any]:
    def rope(x: Any, cosine: Any, sine: Any) -> Any:
        u, v = np.split(x, 2, -1)
        c, s = cosine[:, None], sine[:, None]
        return np.concatenate((u * c - v * s, u * s + v * c), -1)

    return rope


def _conv(depthwise: bool) -> Write:
    def write(jax: Any, np: Any) -> Callable[..., Any]:
        def conv(x: Any, w: Any, bias: Any) -> Any:
            pad, groups = w.shape[-1] // 2, x.shape[1] if depthwise else 1
            y = jax.lax.conv_general_dilated(x, w, (1, 1), [(pad, pad)] * 2, feature_group_count=groups)
            return y + bias[:, None, None]

        return conv

    return write


def _int8(jax: Any, np: Any) -> Callable[..., Any]:
    def int8(x: Any, w: Any, x_scale: Any, w_scale: Any) -> Any:
        exact = np.matmul(x, w, preferred_element_type=np.int32)
        return exact.astype(np.float32) * x_scale[:, None] * w_scale

    return int8


def _blur(jax: Any, np: Any) -> Callable[..., Any]:
    def blur(x: Any, taps: Any) -> Any:
        image, reach = x[None, None], taps.shape[0] // 2
        conv = jax.lax.conv_general_dilated
        across = conv(image, taps[None, None, None], (1, 1), [(0, 0), (reach, reach)])
        return conv(across, taps[None, None, :, None], (1, 1), [(reach, reach), (0, 0)])[0, 0]

    return blur


def _harris(jax: Any, np: Any) -> Callable[..., Any]:
    def moved(t: Any, i: int, j: int) -> Any:
        rows, columns = t.shape
        return np.pad(t, 1)[1 + i : 1 + i + rows, 1 + j : 1 + j + columns]

    def box(t: Any) -> Any:
        return sum(moved(t, i, j) for i in (-1, 0, 1) for j in (-1, 0, 1))

    def harris(x: Any) -> Any:
        def at(i: int, j: int) -> Any:
            return moved(x, i, j)

        dx = (at(-1, 1) + 2 * at(0, 1) + at(1, 1) - at(-1, -1) - 2 * at(0, -1) - at(1, -1)) * 0.125
        dy = (at(1, -1) + 2 * at(1, 0) + at(1, 1) - at(-1, -1) - 2 * at(-1, 0) - at(-1, 1)) * 0.125
        xx, xy, yy = box(dx * dx), box(dx * dy), box(dy * dy)
        return xx * yy - xy * xy - 0.04 * (xx + yy) ** 2

    return harris


def _gelu_residual(jax: Any, np: Any) -> Callable[..., Any]:
    def gelu_residual(x: Any, bias: Any, residual: Any) -> Any:
        return jax.nn.gelu(x + bias, approximate=False) + residual

    return gelu_residual


def _softmax(jax: Any, np: Any) -> Callable[..., Any]:
    def softmax(x: Any) -> Any:
        return jax.nn.softmax(x.astype(np.float32)).astype(x.dtype)

    return softmax


def _swiglu(jax: Any, np: Any) -> Callable[..., Any]:
    def swiglu(gate: Any, up: Any) -> Any:
        return jax.nn.silu(gate) * up

    return swiglu


def _along(name: str, *, whole: bool = False) -> Write:
    """A function of `jax.numpy` along rows."""

    def write(jax: Any, np: Any) -> Callable[..., Any]:
        def each(x: Any) -> Any:
            return getattr(np, name)(x, None if whole else -1)

        return each

    return write


JAX: dict[str, tuple[tuple[str, ...], Write]] = {
    "linear_gelu": (("x", "w", "bias"), _linear(True)),
    "linear": (("x", "w", "bias"), _linear(False)),
    "linear-turned": (("x", "w", "bias"), _linear(False)),
    "softmax": (("x",), _softmax),
    "attention": (("q", "k", "v"), _attention(False)),
    "attention-causal": (("q", "k", "v"), _attention(True)),
    "decode_attention": (("q", "k", "v"), _decode),
    "layernorm": (("x", "scale", "shift"), _layernorm),
    "add_layernorm": (("x", "residual", "scale", "shift"), _add_layernorm),
    "rmsnorm": (("x", "scale"), _rmsnorm),
    "cross_entropy": (("x", "label"), _cross_entropy),
    "bias_gelu_residual": (("x", "bias", "residual"), _gelu_residual),
    "swiglu": (("gate", "up"), _swiglu),
    "rope": (("x", "cosine", "sine"), _rope),
    "conv2d": (("x", "w", "bias"), _conv(False)),
    "depthwise_conv2d": (("x", "w", "bias"), _conv(True)),
    "int8_linear": (("x", "w", "x_scale", "w_scale"), _int8),
    "rows_sum": (("x",), _along("sum")),
    "total": (("x",), _along("sum", whole=True)),
    "cumsum": (("x",), _along("cumsum")),
    "argmax": (("x",), _along("argmax")),
    "blur": (("x", "taps"), _blur),
    "harris": (("x",), _harris),
}
"""Family -> the inputs that it takes, and what makes the function that is compiled."""
