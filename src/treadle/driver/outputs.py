"""Allocating the outputs that a call leaves out: on the arguments' device, by the library that the arguments are of.

Such an output has no values: a kernel that reads it before it stores into it is refused.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from treadle.driver.errors import ArgumentMissing
from treadle.ir.core import Block, If, Program
from treadle.ir.ops.access import Load, Store
from treadle.runtime.arrays import numpy_dtype
from treadle.runtime.dlpack import library_of
from treadle.runtime.errors import DeviceOutOfMemory
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


def read_first(program: Program) -> frozenset[str]:
    """Outs whose first access, in the order of the text and outside branches, needs what they held before the call."""
    seen: dict[str, bool] = {}
    _accesses(program.body, seen)
    return frozenset(t.name for t in program.tensors if t.out and seen.get(t.name))


def _accesses(block: Block, seen: dict[str, bool]) -> None:
    """Tensor -> whether its first access reads; a branch, and a load with a fill, may be of later instances only."""
    for op in block.ops:
        if isinstance(op, Load | Store):
            reads = op.fill is None if isinstance(op, Load) else op.effect != "set"
            seen.setdefault(op.tensor.name, reads)
        for inner in op.blocks:
            if isinstance(op, If):
                seen |= {s.tensor.name: False for s in inner.walk() if isinstance(s, Load | Store)} | seen
            else:
                _accesses(inner, seen)


def refuse_read(program: Program, name: str) -> ArgumentMissing:
    """The refusal to allocate an output whose old elements the kernel reads."""
    access = next(op for op in program.body.walk() if isinstance(op, Load | Store) and op.tensor.name == name)
    return ArgumentMissing(
        doing=f"calling {program.name}",
        found=f"no {name}, whose elements are read before any is stored: an output left out has no values yet",
        expected=f"an array for {name}, or a store into it first",
        hint=f"pass {name}=..., for example numpy.zeros of its shape",
        span=access.span or program.span,
    )


def fresh(kernel: str, name: str, shape: tuple[int, ...], dtype: str, device: str, arguments: Iterable[Any]) -> Any:
    """An output that the call left out.

    In this machine's memory a NumPy array; on a GPU an array of torch, CuPy or JAX, as the first argument of one is.
    *Errors*: `call/arguments` for arguments of another library; `cuda/out-of-memory`.
    """
    if device == "cpu":
        return empty(shape, dtype)
    for argument in arguments:
        make = _MAKERS.get(library_of(argument))
        if make is None or (dtype not in _TORCH and make is _torch):
            continue
        try:
            return make(shape, dtype, argument)
        except Exception as error:
            if "OutOfMemory" not in type(error).__name__ and "RESOURCE_EXHAUSTED" not in str(error):
                raise
            raise DeviceOutOfMemory(
                doing=f"allocating the output {name} of {kernel}",
                found=f"{dtype} of shape {shape} was refused: {str(error).splitlines()[0]}",
                expected="memory of the device",
                hint=f"free arrays, or pass {name}=... to have one array used again",
            ) from error
    raise ArgumentMissing(
        doing=f"calling {kernel}",
        found=f"no {name}, on {device}",
        expected="arguments of torch, CuPy or JAX, which have arrays of that dtype, or the output itself",
        hint=f"pass {name}=...",
    )


def _torch(shape: tuple[int, ...], dtype: str, like: Any) -> Any:
    torch = sys.modules["torch"]
    return torch.empty(shape, dtype=getattr(torch, _TORCH[dtype]), device=like.device)


def _cupy(shape: tuple[int, ...], dtype: str, like: Any) -> Any:
    cupy = sys.modules["cupy"]
    with like.device:
        return cupy.empty(shape, numpy_dtype(dtype))


def _jax(shape: tuple[int, ...], dtype: str, like: Any) -> Any:
    """A new array, ready, that nobody else refers to: what is written into it before it is returned is its value."""
    return sys.modules["jax"].numpy.empty(shape, numpy_dtype(dtype), device=like.sharding).block_until_ready()


_MAKERS: dict[str, Callable[[tuple[int, ...], str, Any], Any]] = {"torch": _torch, "cupy": _cupy, "jax": _jax}
