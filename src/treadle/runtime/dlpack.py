"""DLPack capsules read in place: address, shape, strides, dtype, device.

The capsule is not consumed: whoever keeps it keeps the memory, and its own destructor gives it back.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

CPU, CUDA, CUDA_HOST, ROCM, ROCM_HOST, CUDA_MANAGED = 1, 2, 3, 10, 11, 13
_DEVICE_NAMES = {CPU: "cpu", CUDA: "cuda", CUDA_HOST: "cpu", CUDA_MANAGED: "cuda", ROCM_HOST: "cpu", ROCM: "rocm"}

# (type code, bits) of DLPack -> dtype name. Several lanes are no scalar format.
_DTYPES = {
    **{(0, bits): f"i{bits}" for bits in (8, 16, 32, 64)},
    **{(1, bits): f"u{bits}" for bits in (8, 16, 32, 64)},
    **{(2, bits): f"f{bits}" for bits in (16, 32, 64)},
    (4, 16): "bf16",
    (6, 8): "bool",
    (10, 8): "f8e4m3",
    (12, 8): "f8e5m2",
    (14, 8): "f8e8m0",
}
_READ_ONLY = 1


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("index", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_pointer_of: Callable[[Any, bytes], int] = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_is_valid: Callable[[Any, bytes], int] = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)


@dataclass(frozen=True, slots=True)
class Described:
    """What a capsule says. `dtype` is None for an element type without a name here, then told by `dtype_text`."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str | None
    dtype_text: str
    device: str
    writable: bool


def export(array: Any) -> Any:
    """The capsule that `array.__dlpack__` gives.

    On a GPU without any wait where the library tells its stream: a launch is ordered by that. Others make the default
    stream wait, or, if they can be waited for (JAX), are waited for here.
    Errors: BufferError, TypeError or whatever the exporter raises.
    """
    device_type, _ = array.__dlpack_device__()
    stream: dict[str, int] = {}
    if int(device_type) in (CUDA, CUDA_MANAGED):
        ready = getattr(array, "block_until_ready", None)
        if ready is not None:
            ready()
        else:
            stream = {"stream": -1 if library_of(array) in ("torch", "cupy") else 1}
    try:
        return array.__dlpack__(max_version=(1, 1), **stream)
    except TypeError:
        # An exporter from before DLPack 1.0.
        return array.__dlpack__(**stream)


_LIBRARIES = ("torch", "cupy", "jax", "jaxlib")


@functools.lru_cache(1024)
def _library(kind: type[object]) -> str:
    roots = [base.__module__.partition(".")[0] for base in kind.__mro__]
    return next((name for name in _LIBRARIES if name in roots), "").removesuffix("lib")


def library_of(array: Any) -> str:
    """The library that an array is of, where it matters: torch, cupy, jax, or nothing."""
    return _library(cast("type[object]", type(array)))


def read(capsule: Any) -> Described:
    """What `capsule` describes, strides in elements. Errors: TypeError for anything but an unused capsule."""
    if _is_valid(capsule, b"dltensor_versioned"):
        managed = _Versioned.from_address(_pointer_of(capsule, b"dltensor_versioned"))
        tensor, writable = managed.tensor, not managed.flags & _READ_ONLY
    elif _is_valid(capsule, b"dltensor"):
        tensor, writable = _Tensor.from_address(_pointer_of(capsule, b"dltensor")), True
    else:
        raise TypeError("not an unused DLPack capsule")
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    strides = tuple(tensor.strides[axis] for axis in range(tensor.ndim)) if tensor.strides else contiguous(shape)
    kind = tensor.dtype
    name = _DTYPES.get((kind.code, kind.bits)) if kind.lanes == 1 else None
    place = _DEVICE_NAMES.get(tensor.device.type, f"dlpack{tensor.device.type}")
    return Described(
        address=(tensor.data or 0) + tensor.byte_offset,
        shape=shape,
        strides=strides,
        dtype=name,
        dtype_text=f"type code {kind.code}, {kind.bits} bits, {kind.lanes} lanes",
        device="cpu" if place == "cpu" else f"{place}:{tensor.device.index}",
        writable=writable,
    )


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))
