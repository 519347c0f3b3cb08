"""What torch's users write, eagerly, for the cases of `operators.py`: one line where torch has one.

Functions without `out=` allocate their result; it is copied to the case's output by `finish`, which is not timed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from treadle.bench.case import Arrays, Finished, Run
from treadle.dtype.formats import bf16


def tensor(torch: Any, array: Any) -> Any:
    """A torch tensor on the same memory; torch does not know ml_dtypes' bfloat16."""
    if array.dtype == bf16.numpy:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


Tensors = dict[str, Any]
Make = Callable[[Any, Tensors, Any], Run]


def allocating(write: Callable[[Any, Tensors], Callable[[], Any]]) -> Make:
    """A peer whose result is a new tensor."""

    def make(torch: Any, a: Tensors, out: Any) -> Run:
        result: list[Any] = [None]
        each = write(torch, a)

        def run() -> None:
            with torch.no_grad():
                result[0] = each()

        return Finished(run, lambda: out.copy_(result[0].reshape(out.shape)))

    return make


def _layernorm(torch: Any, a: Tensors) -> Callable[[], Any]:
    norm, width = torch.nn.functional.layer_norm, a["x"].shape[-1:]
    return lambda: norm(a["x"], width, a["scale"], a["shift"], 1e-5)


def _add_layernorm(torch: Any, a: Tensors) -> Callable[[], Any]:
    norm, width = torch.nn.functional.layer_norm, a["x"].shape[-1:]

    def each() -> Any:
        a["sum"] = a["x"] + a["residual"]
        return norm(a["sum"], width, a["scale"], a["shift"], 1e-5)

    return each


def _rmsnorm(torch: Any, a: Tensors) -> Callable[[], Any]:
    norm, width = torch.nn.functional.rms_norm, a["x"].shape[-1:]
    return lambda: norm(a["x"], width, a["scale"], 1e-6)


def _cross_entropy(torch: Any, a: Tensors) -> Callable[[], Any]:
    label, loss = a["label"].long(), torch.nn.functional.cross_entropy
    return lambda: loss(a["x"], label, reduction="none")


def _rope(torch: Any, a: Tensors) -> Callable[[], Any]:
    def each() -> Any:
        u, v = a["x"].chunk(2, -1)
        c, s = a["cosine"][:, None], a["sine"][:, None]
        return torch.cat((u * c - v * s, u * s + v * c), -1)

    return each


def _decode(torch: Any, a: Tensors) -> Callable[[], Any]:
    attend = torch.nn.functional.scaled_dot_product_attention
    return lambda: attend(a["q"][:, :, None], a["k"], a["v"], enable_gqa=True)


def _conv(groups: bool) -> Callable[[Any, Tensors], Callable[[], Any]]:
    def write(torch: Any, a: Tensors) -> Callable[[], Any]:
        conv, pad = torch.nn.functional.conv2d, a["w"].shape[-1] // 2
        return lambda: conv(a["x"], a["w"], a["bias"], padding=pad, groups=a["x"].shape[1] if groups else 1)

    return write


def _int8(torch: Any, a: Tensors) -> Callable[[], Any]:
    return lambda: torch._int_mm(a["x"], a["w"]).float() * a["x_scale"][:, None] * a["w_scale"]


def _linear(torch: Any, a: Tensors, out: Any) -> Run:
    return lambda: torch.addmm(a["bias"], a["x"], a["w"], out=out)


def _argmax(torch: Any, a: Tensors, out: Any) -> Run:
    return lambda: torch.max(a["x"], -1, out=(a["top"], out))


def _pool(torch: Any, a: Tensors) -> Callable[[], Any]:
    pool = torch.nn.functional.max_pool2d

    def each() -> Any:
        found, a["at"] = pool(a["x"], 3, 2, 1, return_indices=True)
        return found

    return each


def _int4(torch: Any, a: Tensors) -> Callable[[], Any]:
    """Weights packed ahead, as torch wants them: 0 to 15 minus 8, a scale and a shift a group, in bf16."""
    low, high = a["w"] & 15, a["w"] >> 4
    numbers = torch.stack((low, high), -1).reshape(len(a["w"]), -1).to(torch.int32)
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu((numbers + 8) % 16, 1)
    scale = a["scale"].T.contiguous()
    both, group = torch.stack((scale, torch.zeros_like(scale)), -1), numbers.shape[1] // scale.shape[0]
    return lambda: torch.ops.aten._weight_int4pack_mm_for_cpu(a["x"], packed, group, both)


def _softmax(torch: Any, a: Tensors) -> Callable[[], Any]:
    return lambda: torch.softmax(a["x"], -1)


def _linear_gelu(torch: Any, a: Tensors) -> Callable[[], Any]:
    return lambda: torch.nn.functional.gelu(torch.addmm(a["bias"], a["x"], a["w"]))


def _blur(torch: Any, a: Tensors) -> Callable[[], Any]:
    """Two convolutions of one channel."""
    conv, x, taps = torch.nn.functional.conv2d, a["x"][None, None], a["taps"]
    reach = len(taps) // 2
    across, down = taps[None, None, None], taps[None, None, :, None]
    return lambda: conv(conv(x, across, padding=(0, reach)), down, padding=(reach, 0))


def _harris(torch: Any, a: Tensors) -> Callable[[], Any]:
    """Convolutions with Sobel's masks, means over 3 x 3."""
    nn, x = torch.nn.functional, a["x"][None, None]
    mask = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]]) / 8
    masks = torch.stack((mask, mask.T))[:, None]

    def each() -> Any:
        dx, dy = nn.conv2d(x, masks, padding=1)[0]
        products = torch.stack((dx * dx, dx * dy, dy * dy))[None]
        xx, xy, yy = nn.avg_pool2d(products, 3, 1, padding=1)[0] * 9
        return xx * yy - xy * xy - 0.04 * (xx + yy) ** 2

    return each


OPERATORS: dict[str, Make] = {
    "blur": allocating(_blur),
    "harris": allocating(_harris),
    "layernorm": allocating(_layernorm),
    "add_layernorm": allocating(_add_layernorm),
    "rmsnorm": allocating(_rmsnorm),
    "cross_entropy": allocating(_cross_entropy),
    "bias_gelu_residual": allocating(
        lambda torch, a: lambda: torch.nn.functional.gelu(a["x"] + a["bias"]) + a["residual"]
    ),
    "swiglu": allocating(lambda torch, a: lambda: torch.nn.functional.silu(a["gate"]) * a["up"]),
    "rope": allocating(_rope),
    "decode_attention": allocating(_decode),
    "conv2d": allocating(_conv(False)),
    "depthwise_conv2d": allocating(_conv(True)),
    "int8_linear": allocating(_int8),
    "total": allocating(lambda torch, a: lambda: torch.sum(a["x"])),
    "linear": _linear,
    "linear-turned": _linear,
    "argmax": _argmax,
    "sort": lambda torch, a, out: lambda: torch.sort(a["x"], dim=-1, stable=True, out=(out, a["at"])),
    "topk": lambda torch, a, out: lambda: torch.topk(a["x"], out.shape[-1], out=(out, a["at"])),
    "max_pool2d": allocating(_pool),
    "int4_linear": allocating(_int4),
    "rows_sum": lambda torch, a, out: lambda: torch.sum(a["x"], -1, out=out),
    "cumsum": lambda torch, a, out: lambda: torch.cumsum(a["x"], -1, out=out),
}


def peer(torch: Any, family: str, arrays: Arrays, out: Any) -> Run:
    """A family of `OPERATORS` on these inputs, into that output."""
    return OPERATORS[family](torch, {name: tensor(torch, value) for name, value in arrays.items()}, tensor(torch, out))


WRITTEN: dict[str, Callable[[Any, Tensors], Callable[[], Any]]] = {
    "linear_gelu": _linear_gelu,
    "softmax": _softmax,
    "layernorm": _layernorm,
    "rmsnorm": _rmsnorm,
    "cross_entropy": _cross_entropy,
    "swiglu": lambda torch, a: lambda: torch.nn.functional.silu(a["gate"]) * a["up"],
    "bias_gelu_residual": lambda torch, a: lambda: torch.nn.functional.gelu(a["x"] + a["bias"]) + a["residual"],
    "rope": _rope,
    "rows_sum": lambda torch, a: lambda: torch.sum(a["x"], -1),
    "total": lambda torch, a: lambda: torch.sum(a["x"]),
    "cumsum": lambda torch, a: lambda: torch.cumsum(a["x"], -1),
    "argmax": lambda torch, a: lambda: torch.argmax(a["x"], -1),
    "harris": _harris,
}
COMPILED = frozenset(WRITTEN)
"""Families that are also timed under `torch.compile`: those that it can fuse."""


def compiled_peer(torch: Any, family: str, arrays: Arrays, out: Any) -> Run:
    """A family under `torch.compile` for these shapes; it needs a C++ compiler."""

    def write(torch: Any, a: Tensors) -> Callable[[], Any]:
        return torch.compile(WRITTEN[family](torch, a), dynamic=False)

    return allocating(write)(torch, {name: tensor(torch, value) for name, value in arrays.items()}, tensor(torch, out))
