"""Allocating the outputs that a call leaves out: on the arguments' device, by the library that the arguments are of."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from treadle.driver.errors import ArgumentMissing
from treadle.runtime.arrays import numpy_dtype
from treadle.runtime.driver import ordinal_of
from treadle.runtime.memory import empty

_TORCH = {
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "bf16": "bfloat16",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "bool": "bool",
    "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "f8e8m0": "float8_e8m0fnu",
}


def fresh(kernel: str, name: str, shape: tuple[int, ...], dtype: str, device: str, arguments: Iterable[Any]) -> Any:
    """An output that the call left out.

    In this machine's memory a NumPy array; on a GPU a tensor of torch or an array of CuPy, as the arguments are.
    *Errors*: `call/arguments` for arguments of another library.
    """
    if device == "cpu":
        return empty(shape, dtype)
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    for argument in arguments:
        if torch is not None and isinstance(argument, torch.Tensor) and dtype in _TORCH:
            return torch.empty(shape, dtype=getattr(torch, _TORCH[dtype]), device=argument.device)
        if cupy is not None and isinstance(argument, cupy.ndarray):
            with cupy.cuda.Device(ordinal_of(device)):
                return cupy.empty(shape, numpy_dtype(dtype))
    raise ArgumentMissing(
        doing=f"calling {kernel}",
        found=f"no {name}, on {device}",
        expected="arguments of torch or CuPy, whose arrays of that dtype treadle can allocate, or the output itself",
        hint=f"pass {name}=...",
    )
