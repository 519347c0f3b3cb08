"""The scalar formats. A `DType` is plain data: what a format can hold, and the NumPy dtype that holds it one by one.

4-bit formats are stored two to a byte, low bits first, along the last axis of a tensor (`packing.py`); computing in
NumPy uses one byte per element.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import ml_dtypes
import numpy as np

from treadle.base.errors import UserError

Kind = Literal["bool", "int", "uint", "float"]
Bits = int


class UnknownDType(UserError):
    """A name or NumPy dtype that is no dtype of the language."""

    code = "dtype/unknown"


@dataclass(frozen=True, slots=True)
class DType:
    """A scalar format. Floats have `exponent` and `mantissa` bits (without the hidden one) and an exponent `bias`;
    `has_inf`, `has_nan`, `has_zero` and `signed` tell which special values there are."""

    name: str
    kind: Kind
    bits: Bits
    numpy: np.dtype[Any] = field(compare=False, repr=False)
    exponent: Bits = 0
    mantissa: Bits = 0
    bias: int = 0
    has_inf: bool = False
    has_nan: bool = False
    has_zero: bool = True
    signed: bool = False
    top_reserved: int = 0
    """How many of the largest mantissa codes at the largest exponent encode no finite number."""

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_int(self) -> bool:
        """Signed and unsigned integers; bool is not one."""
        return self.kind in ("int", "uint")

    @property
    def is_bool(self) -> bool:
        return self.kind == "bool"

    @property
    def has_arithmetic(self) -> bool:
        """Whether elementwise operations exist; fp8 and 4-bit formats have `mma` and `.to` only."""
        return self.bits >= 16 or (self.bits == 8 and not self.is_float) or self.is_bool

    @property
    def packed(self) -> bool:
        """Whether several elements share a byte in memory."""
        return self.bits < 8

    @property
    def itemsize(self) -> int:
        """Bytes of an element that is not packed. Requires: not `packed`."""
        assert not self.packed, f"{self.name} has no whole number of bytes"
        return self.bits // 8

    @property
    def min_exponent(self) -> int:
        """Of the smallest normal number, which is `2 ** min_exponent`."""
        return 1 - self.bias if self.has_zero else -self.bias

    @property
    def finite_max(self) -> float | int:
        """The largest finite value, exactly."""
        if self.is_bool:
            return 1
        if self.kind == "uint":
            return (1 << self.bits) - 1
        if self.kind == "int":
            return (1 << (self.bits - 1)) - 1
        codes = (1 << self.exponent) - 1
        # An exponent whose codes all encode no finite number is none that a finite number has.
        whole = self.top_reserved >= 1 << self.mantissa
        top = codes - 1 if whole else codes
        significand = (1 << self.mantissa) + (1 << self.mantissa) - 1 - (0 if whole else self.top_reserved)
        return float(significand) * 2.0 ** (top - self.bias - self.mantissa)

    @property
    def finite_min(self) -> float | int:
        """The smallest finite value: of integers the lowest, of floats the negated largest, 0 of unsigned ones."""
        if self.kind == "int":
            return -(1 << (self.bits - 1))
        return -self.finite_max if self.is_float and self.signed else 0

    @property
    def smallest(self) -> float:
        """The smallest positive number of a float format, subnormals included."""
        return 2.0 ** (self.min_exponent - self.mantissa)


def _integer(name: str, bits: int, numpy: Any) -> DType:
    signed = name.startswith("i")
    return DType(name, "int" if signed else "uint", bits, np.dtype(numpy), signed=signed)


def _ieee(name: str, exponent: int, mantissa: int, numpy: Any) -> DType:
    return DType(
        name,
        "float",
        1 + exponent + mantissa,
        np.dtype(numpy),
        exponent,
        mantissa,
        (1 << (exponent - 1)) - 1,
        has_inf=True,
        has_nan=True,
        signed=True,
        top_reserved=1 << mantissa,
    )


bool_ = DType("bool", "bool", 8, np.dtype(np.bool_))
i4 = _integer("i4", 4, ml_dtypes.int4)
i8 = _integer("i8", 8, np.int8)
i16 = _integer("i16", 16, np.int16)
i32 = _integer("i32", 32, np.int32)
i64 = _integer("i64", 64, np.int64)
u4 = _integer("u4", 4, ml_dtypes.uint4)
u8 = _integer("u8", 8, np.uint8)
u16 = _integer("u16", 16, np.uint16)
u32 = _integer("u32", 32, np.uint32)
u64 = _integer("u64", 64, np.uint64)
f16 = _ieee("f16", 5, 10, np.float16)
bf16 = _ieee("bf16", 8, 7, ml_dtypes.bfloat16)
f32 = _ieee("f32", 8, 23, np.float32)
f64 = _ieee("f64", 11, 52, np.float64)
f8e5m2 = _ieee("f8e5m2", 5, 2, ml_dtypes.float8_e5m2)
f8e4m3 = DType(
    "f8e4m3", "float", 8, np.dtype(ml_dtypes.float8_e4m3fn), 4, 3, 7, has_nan=True, signed=True, top_reserved=1
)
"""e4m3fn: no infinities, one NaN per sign."""
f8e8m0 = DType(
    "f8e8m0", "float", 8, np.dtype(ml_dtypes.float8_e8m0fnu), 8, 0, 127, has_nan=True, has_zero=False, top_reserved=1
)
"""Powers of two from 2^-127 to 2^127 and NaN; no sign, no zero."""
f4e2m1 = DType("f4e2m1", "float", 4, np.dtype(ml_dtypes.float4_e2m1fn), 2, 1, 1, signed=True)
"""0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives; no infinities, no NaN."""

ALL: tuple[DType, ...] = (
    *(bool_, i4, i8, i16, i32, i64, u4, u8, u16, u32, u64),
    *(f16, bf16, f32, f64, f8e4m3, f8e5m2, f8e8m0, f4e2m1),
)
BY_NAME: dict[str, DType] = {d.name: d for d in ALL}
_BY_NUMPY: dict[np.dtype[Any], DType] = {d.numpy: d for d in ALL}


def named(name: str) -> DType:
    """The dtype called `name`. Errors: `dtype/unknown`."""
    found = BY_NAME.get(name)
    if found is None:
        raise UnknownDType(
            doing="looking up a dtype",
            found=f"the name {name!r}",
            expected=f"one of {', '.join(BY_NAME)}",
            hint="use one of the listed names",
        )
    return found


def from_numpy(numpy: Any) -> DType:
    """The dtype of arrays with NumPy dtype `numpy`, in native byte order. Errors: `dtype/unknown`."""
    wanted = np.dtype(numpy)
    found = _BY_NUMPY.get(wanted)
    if found is None:
        raise UnknownDType(
            doing="reading the dtype of an array",
            found=f"the NumPy dtype {wanted}",
            expected=f"one of {', '.join(str(d.numpy) for d in ALL)}",
            hint="convert the array with .astype before the call",
        )
    return found
