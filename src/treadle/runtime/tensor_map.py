"""Tensor maps: what the copy engine must know of an array, every field stated.

A `TensorMapSpec` is plain data. `check` holds it against the hardware's rules, so that a map that the driver would
refuse (it says only `invalid value`) is an error that names the rule; `encode` gives the 128 bytes that a kernel takes
by value. Dimensions are innermost first; the innermost has stride one.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Literal

from treadle.runtime.arrays import itemsize_of
from treadle.runtime.driver import driver, ok
from treadle.runtime.errors import TensorMapInvalid

BYTES = 128
"""Size of an encoded map."""

Interleave = Literal["none", "16B", "32B"]
Swizzle = Literal["none", "32B", "64B", "128B"]
Promotion = Literal["none", "64B", "128B", "256B"]
Fill = Literal["zero", "nan"]

# The engine copies bits: formats it has no name for go by their width.
_ENGINE_TYPES = {
    "bool": "UINT8",
    "i8": "UINT8",
    "u8": "UINT8",
    "f8e4m3": "UINT8",
    "f8e5m2": "UINT8",
    "f8e8m0": "UINT8",
    "i16": "UINT16",
    "u16": "UINT16",
    "i32": "INT32",
    "u32": "UINT32",
    "i64": "INT64",
    "u64": "UINT64",
    "f16": "FLOAT16",
    "bf16": "BFLOAT16",
    "f32": "FLOAT32",
    "f64": "FLOAT64",
}
_SWIZZLE_BYTES = {"32B": 32, "64B": 64, "128B": 128}
_INTERLEAVES = {"none": "NONE", "16B": "16B", "32B": "32B"}
_SWIZZLES = {"none": "NONE", "32B": "32B", "64B": "64B", "128B": "128B"}
_PROMOTIONS = {"none": "NONE", "64B": "L2_64B", "128B": "L2_128B", "256B": "L2_256B"}
_FILLS = {"zero": "NONE", "nan": "NAN_REQUEST_ZERO_FMA"}


@dataclass(frozen=True, slots=True)
class TensorMapSpec:
    """A tiled tensor map.

    Shapes: `extents`, `box`, `element_strides` have one entry per dimension, innermost first; `pitches` one less, for
    dimensions 1 and up. Units: `address` and `pitches` in bytes, the others in elements.
    """

    dtype: str
    address: int
    extents: tuple[int, ...]
    pitches: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: Interleave
    swizzle: Swizzle
    promotion: Promotion
    fill: Fill

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.extents)

    @property
    def box_bytes(self) -> int:
        """Bytes of one full box in shared memory: what a transfer adds to its barrier, ragged or not."""
        count = itemsize_of(self.dtype)
        for extent, step in zip(self.box, self.element_strides):
            count *= -(-extent // step)
        return count

    def problems(self) -> list[str]:
        """The hardware's rules that this map breaks, as text; empty when it may be encoded."""
        if self.dtype not in _ENGINE_TYPES:
            return [f"dtype {self.dtype}: the copy engine has no such type"]
        found = self._shape_problems()
        if found:
            return found
        item, grain = itemsize_of(self.dtype), 32 if self.interleave == "32B" else 16
        inner = self.box[0] * item
        if self.address % grain:
            found.append(f"address {self.address:#x}: not a multiple of {grain} bytes")
        for axis, extent in enumerate(self.extents):
            if not 1 <= extent <= 1 << 32:
                found.append(f"extent {extent} of dimension {axis}: not in 1..2^32")
        for axis, pitch in enumerate(self.pitches, 1):
            if pitch % grain or not 0 <= pitch < 1 << 40:
                found.append(f"pitch {pitch} bytes of dimension {axis}: not a multiple of {grain} in 0..2^40")
        for axis, extent in enumerate(self.box):
            if not 1 <= extent <= 256:
                found.append(f"box {extent} of dimension {axis}: not in 1..256")
        for axis, step in enumerate(self.element_strides):
            if not 1 <= step <= 8:
                found.append(f"element stride {step} of dimension {axis}: not in 1..8")
        if self.interleave == "none" and inner % 16:
            found.append(f"inner box of {inner} bytes: not a multiple of 16")
        if self.interleave == "none" and self.swizzle != "none" and inner > _SWIZZLE_BYTES[self.swizzle]:
            found.append(f"inner box of {inner} bytes: larger than the swizzle of {self.swizzle}")
        if self.interleave == "32B" and self.swizzle != "32B":
            found.append(f"interleave 32B with swizzle {self.swizzle}: needs swizzle 32B")
        if self.interleave != "none" and self.rank < 3:
            found.append(f"rank {self.rank} with interleave {self.interleave}: needs at least 3")
        if self.fill == "nan" and not self.dtype.startswith(("f", "bf")):
            found.append(f"fill with NaN for {self.dtype}: not a float")
        return found

    def _shape_problems(self) -> list[str]:
        if not 1 <= self.rank <= 5:
            return [f"rank {self.rank}: not in 1..5"]
        lengths = (len(self.pitches) + 1, len(self.box), len(self.element_strides))
        if any(length != self.rank for length in lengths):
            return [
                f"{self.rank} extents with {len(self.pitches)} pitches, {len(self.box)} box extents, "
                f"{len(self.element_strides)} element strides: not of one rank"
            ]
        return []

    def check(self) -> None:
        """Hold the map against the hardware's rules. Errors: cuda/tensor-map."""
        found = self.problems()
        if found:
            raise TensorMapInvalid(
                doing="making a tensor map",
                found="\n".join(found),
                expected="a map that the copy engine can take; the plan's guard should have seen to it",
                pass_name="runtime.tensor_map",
                before=repr(self),
            )

    def encode(self) -> bytes:
        """The map as the kernel takes it. Errors: cuda/tensor-map, cuda/no-driver, cuda/no-device, cuda/failed."""
        self.check()
        cu = driver()
        kind = getattr(cu.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_ENGINE_TYPES[self.dtype]}")
        encoded = ok(
            cu.cuTensorMapEncodeTiled(
                kind,
                self.rank,
                self.address,
                [cu.cuuint64_t(extent) for extent in self.extents],
                [cu.cuuint64_t(pitch) for pitch in self.pitches],
                [cu.cuuint32_t(extent) for extent in self.box],
                [cu.cuuint32_t(step) for step in self.element_strides],
                getattr(cu.CUtensorMapInterleave, f"CU_TENSOR_MAP_INTERLEAVE_{_INTERLEAVES[self.interleave]}"),
                getattr(cu.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{_SWIZZLES[self.swizzle]}"),
                getattr(cu.CUtensorMapL2promotion, f"CU_TENSOR_MAP_L2_PROMOTION_{_PROMOTIONS[self.promotion]}"),
                getattr(cu.CUtensorMapFloatOOBfill, f"CU_TENSOR_MAP_FLOAT_OOB_FILL_{_FILLS[self.fill]}"),
            ),
            "encoding a tensor map",
        )
        return ctypes.string_at(int(encoded.getPtr()), BYTES)
