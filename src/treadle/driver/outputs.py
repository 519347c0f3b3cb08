"""Allocating the outputs that a call leaves out: on the arguments' device, by the library that the arguments are of.

Such an output has no values: a kernel that reads it before it stores into it is refused.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from treadle.driver.errors import ArgumentMissing
from treadle.ir.core import Block, If, Program
from treadle.ir.ops.access import Load, Store
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
