"""The parameters of a compiled kernel in order, and where each one's words lie in the argument block.

The layout is fixed (`cpu.py` states it): it depends on ranks alone, so all variants of a kernel share it.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from treadle.runtime.arrays import ArrayView, check_output, numpy_dtype, view
from treadle.runtime.errors import ArgumentCount, DtypeMismatch, RankMismatch

TAIL_WORDS = 3
"""Workspace pointer, number of workers, address of the pool's `run`."""


@dataclass(frozen=True, slots=True)
class TensorParam:
    """An array parameter; `out` for one that the kernel writes."""

    name: str
    dtype: str
    rank: int
    out: bool = False

    @property
    def words(self) -> int:
        """Pointer, extents, strides."""
        return 1 + 2 * self.rank


@dataclass(frozen=True, slots=True)
class ScalarParam:
    """A number passed by value."""

    name: str
    dtype: str

    @property
    def words(self) -> int:
        """One, whatever the dtype."""
        return 1


Param = TensorParam | ScalarParam


@dataclass(frozen=True, slots=True)
class Signature:
    """Parameters in call order. `offsets[i]` is the first word of parameter `i`; `tail` that of the closing words."""

    params: tuple[Param, ...]
    offsets: tuple[int, ...] = field(init=False)
    tail: int = field(init=False)

    def __post_init__(self) -> None:
        offsets: list[int] = []
        at = 0
        for param in self.params:
            offsets.append(at)
            at += param.words
        object.__setattr__(self, "offsets", tuple(offsets))
        object.__setattr__(self, "tail", at)

    @property
    def words(self) -> int:
        """Length of the argument block in 64-bit words."""
        return self.tail + TAIL_WORDS

    @property
    def outs(self) -> tuple[int, ...]:
        """The numbers of the parameters that are written."""
        return tuple(i for i, param in enumerate(self.params) if isinstance(param, TensorParam) and param.out)

    def offset(self, name: str) -> int:
        """The first word of the parameter called `name`. Errors: KeyError."""
        for param, at in zip(self.params, self.offsets):
            if param.name == name:
                return at
        raise KeyError(name)

    def check_count(self, count: int) -> None:
        """Have as many arguments as parameters. Errors: array/count."""
        if count != len(self.params):
            raise ArgumentCount(
                doing="reading the arguments of a call",
                found=f"{count} given",
                expected=f"{len(self.params)}: " + ", ".join(param.name for param in self.params),
                hint="pass the missing ones, or drop the surplus",
            )


def tensor_view(argument: Any, param: TensorParam) -> ArrayView:
    """The argument of `param`, checked.

    Errors: those of `arrays.view` and `arrays.check_output`; array/dtype, array/rank.
    """
    seen = view(argument, name=param.name)
    if seen.dtype != param.dtype:
        raise DtypeMismatch(
            doing=f"reading {param.name}",
            found=f"an array of {seen.dtype}",
            expected=f"an array of {param.dtype}",
            hint="call the kernel itself, which makes a variant for these dtypes, or convert the array",
        )
    if len(seen.shape) != param.rank:
        raise RankMismatch(
            doing=f"reading {param.name}",
            found=f"shape {seen.shape}",
            expected=f"{param.rank} axes",
            hint="reshape it before the call",
        )
    return check_output(seen, name=param.name) if param.out else seen


_INT_BITS = {f"{sign}{bits}": (sign, bits) for sign in "iu" for bits in (8, 16, 32, 64)}
_F32, _F64 = struct.Struct("<f"), struct.Struct("<d")
_U32, _I64 = struct.Struct("<I"), struct.Struct("<q")


def scalar_word(value: Any, param: ScalarParam) -> int:
    """The word of a number, as a signed 64-bit integer: its bit pattern in the low bits, zeros or the sign above.

    Errors: array/dtype for what is no number of the dtype.
    """
    dtype = param.dtype
    if isinstance(value, (np.generic, np.ndarray)):
        value = _plain(value)
    if dtype == "bool" and isinstance(value, (bool, int)):
        return int(bool(value))
    if dtype in _INT_BITS and isinstance(value, int):
        sign, bits = _INT_BITS[dtype]
        low, high = (-(1 << (bits - 1)), 1 << (bits - 1)) if sign == "i" else (0, 1 << bits)
        if low <= value < high:
            return value if value < 1 << 63 else value - (1 << 64)
    elif dtype not in _INT_BITS and dtype != "bool" and isinstance(value, (float, int)):
        return _float_word(float(value), dtype)
    raise DtypeMismatch(
        doing=f"reading {param.name}",
        found=f"{value!r} of type {type(value).__name__}",
        expected=f"a number that is an {dtype}" if dtype[0] in "iu" else f"a number for {dtype}",
        hint="convert it before the call",
    )


def _plain(value: Any) -> Any:
    """The Python number of a NumPy scalar or of an array of rank 0; a larger array as it is."""
    return value.item() if value.ndim == 0 else value


def _float_word(value: float, dtype: str) -> int:
    if dtype == "f64":
        return _I64.unpack(_F64.pack(value))[0]
    if dtype == "f32":
        try:
            return _U32.unpack(_F32.pack(value))[0]
        except OverflowError:
            return _U32.unpack(_F32.pack(math.copysign(math.inf, value)))[0]
    from_numpy = np.array(value).astype(numpy_dtype(dtype))
    return int(from_numpy.view(f"u{from_numpy.itemsize}")[()])
