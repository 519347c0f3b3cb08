"""Arguments as the runtime sees them: where the elements lie, of what type, on which device.

`view` reads NumPy arrays, then whatever speaks DLPack, CUDA's array interface or the buffer protocol. Strides are in
elements, may be negative or 0, and extents may be 0. What no kernel could use is refused here, with the argument's
name; what a particular kernel needs is its guard's matter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from treadle.dtype.formats import ALL, BY_NAME
from treadle.runtime import dlpack
from treadle.runtime.dlpack import library_of
from treadle.runtime.errors import (
    DtypeUnsupported,
    Misaligned,
    MixedDevices,
    NotAnArray,
    OutputOverlapsItself,
    ReadOnly,
    StrideUneven,
)

Overlap = Literal["disjoint", "identical", "overlapping"]

# 4-bit formats are passed as packed u8; NumPy's arrays of them have one byte an element.
_NAMES: dict[np.dtype[Any], str] = {dtype.numpy: dtype.name for dtype in ALL if not dtype.packed}
_BYTES: dict[str, int] = {dtype.name: dtype.itemsize for dtype in ALL if not dtype.packed}
_PACKED = {str(dtype.numpy) for dtype in ALL if dtype.packed}
_ENUMERATED = 1 << 20


@dataclass(frozen=True, slots=True)
class ArrayView:
    """One array argument. `owner` keeps the memory alive.

    Units: `strides` in elements, `ptr` an address on `device`. Ensures: ptr is a multiple of the element size.
    """

    ptr: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: str
    writable: bool
    owner: Any = field(repr=False, compare=False)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return _BYTES[self.dtype]

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def span(self) -> tuple[int, int]:
        """The addresses `[low, high)` within which all elements lie; equal for an empty array."""
        if 0 in self.shape:
            return self.ptr, self.ptr
        low = high = self.ptr
        for extent, stride in zip(self.shape, self.strides):
            reach = (extent - 1) * stride * self.itemsize
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high + self.itemsize

    @property
    def alignment(self) -> int:
        """The largest power of two, up to 4096, that divides `ptr`."""
        return min(self.ptr & -self.ptr, 4096) if self.ptr else 4096


def view(array: Any, *, name: str = "argument") -> ArrayView:
    """What `array` is, as far as a kernel is concerned.

    Errors: array/not-an-array, array/dtype-unsupported, array/misaligned, array/stride.
    """
    if isinstance(array, ArrayView):
        return array
    if isinstance(array, np.ndarray):
        return _numpy_view(array, array, name)  # pyright: ignore[reportUnknownArgumentType]  # of any element type
    if hasattr(array, "__dlpack__"):
        return _dlpack_view(array, name)
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        return _cuda_interface_view(array, interface, name)
    try:
        buffer = memoryview(array)
    except TypeError:
        raise _not_an_array(array, name) from None
    return _numpy_view(np.asarray(buffer), array, name)


def _numpy_view(array: np.ndarray[Any, Any], owner: Any, name: str) -> ArrayView:
    dtype = _NAMES.get(array.dtype)
    if dtype is None:
        raise _unsupported(name, str(array.dtype), array.dtype.newbyteorder("=") in _NAMES)
    # (A plain array is none, and `np.ma` is a module that NumPy loads when it is first named.)
    if array.__class__ is not np.ndarray and isinstance(array, np.ma.MaskedArray):
        raise NotAnArray(
            doing=f"reading {name}",
            found="a masked array",
            expected="an array whose every element counts",
            hint="pass array.filled(value)",
        )
    address = array.__array_interface__["data"][0]
    strides = _element_strides(array.shape, array.strides, array.itemsize, name)
    return _aligned(ArrayView(address, array.shape, strides, dtype, "cpu", bool(array.flags.writeable), owner), name)


def _dlpack_view(array: Any, name: str) -> ArrayView:
    try:
        capsule = dlpack.export(array)
        seen = dlpack.read(capsule)
    except (BufferError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise NotAnArray(
            doing=f"reading {name} through DLPack",
            found=f"{type(error).__name__}: {error}",
            expected="an array that exports its memory",
            hint="pass a plain array on the device: for torch, tensor.detach()",
        ) from error
    if seen.dtype is None:
        raise _unsupported(name, seen.dtype_text, False)
    writable = seen.writable and library_of(array) != "jax"  # JAX's arrays never change, and do not say so
    seen_view = ArrayView(seen.address, seen.shape, seen.strides, seen.dtype, seen.device, writable, (array, capsule))
    return _aligned(seen_view, name)


def _cuda_interface_view(array: Any, interface: dict[str, Any], name: str) -> ArrayView:
    kind = np.dtype(interface["typestr"])
    dtype = _NAMES.get(kind)
    if dtype is None:
        raise _unsupported(name, str(kind), False)
    shape = tuple(int(extent) for extent in interface["shape"])
    address, read_only = interface["data"]
    strides = interface.get("strides")
    if strides is None:
        in_elements = dlpack.contiguous(shape)
    else:
        in_elements = _element_strides(shape, tuple(strides), kind.itemsize, name)
    device = f"cuda:{_ordinal(array)}"
    return _aligned(ArrayView(address or 0, shape, in_elements, dtype, device, not read_only, array), name)


def _ordinal(array: Any) -> int:
    """The number of the device, which the interface itself does not tell."""
    device = getattr(array, "device", None)
    for attribute in ("id", "index", "device_id"):
        number = getattr(device, attribute, None)
        if isinstance(number, int):
            return number
    return 0


def _element_strides(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, name: str) -> tuple[int, ...]:
    """Strides in elements. An axis with at most one element is never stepped along: any stride of it will do."""
    result: list[int] = []
    for axis, (extent, stride) in enumerate(zip(shape, strides)):
        quotient, rest = divmod(stride, itemsize)
        if rest and extent > 1:
            raise StrideUneven(
                doing=f"reading {name}",
                found=f"a stride of {stride} bytes along axis {axis}",
                expected=f"a multiple of the element size, {itemsize} bytes",
                hint="pass a copy: numpy.ascontiguousarray",
            )
        result.append(quotient)
    return tuple(result)


def _aligned(seen: ArrayView, name: str) -> ArrayView:
    if seen.ptr % seen.itemsize and seen.size:
        raise Misaligned(
            doing=f"reading {name}",
            found=f"an address that is {seen.ptr % seen.itemsize} beyond a multiple of the element size",
            expected=f"a multiple of {seen.itemsize} bytes",
            hint="pass a copy: numpy.ascontiguousarray",
        )
    return seen


def _unsupported(name: str, found: str, other_order: bool) -> DtypeUnsupported:
    pack = "pack two to a byte along the last axis: q = x.view(np.uint8) & 15; q[..., 0::2] | q[..., 1::2] << 4"
    return DtypeUnsupported(
        doing=f"reading {name}",
        found=f"elements of type {found}" + (", in the other byte order" if other_order else ""),
        expected="one of " + ", ".join(sorted(_BYTES)) + "; 4-bit formats packed in u8",
        hint=pack if found in _PACKED else "convert it before the call: array.astype",
    )


def _not_an_array(array: Any, name: str) -> NotAnArray:
    return NotAnArray(
        doing=f"reading {name}",
        found=f"an object of type {type(array).__name__}",
        expected="a NumPy array, or an object with __dlpack__, __cuda_array_interface__ or a buffer",
        hint="pass numpy.asarray(...) of it",
    )


def check_output(seen: ArrayView, *, name: str = "output") -> ArrayView:
    """`seen`, if a kernel may write it: writable, and no two positions are one element.

    Errors: array/read-only, array/output-overlap.
    """
    if not seen.writable:
        raise ReadOnly(
            doing=f"checking the output {name}",
            found="an array that is read-only",
            expected="one that may be written",
            hint="pass a copy, or numpy.empty of the same shape",
        )
    if not is_injective(seen.shape, seen.strides):
        raise OutputOverlapsItself(
            doing=f"checking the output {name}",
            found=f"shape {seen.shape} with strides {seen.strides}, in elements: two positions are one element",
            expected="an element of its own for every position",
            hint="pass an array of its own and assign from it afterwards",
        )
    return seen


def is_injective(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether different positions are different elements. Exact up to a million positions, beyond that never wrongly
    True."""
    axes = sorted((abs(stride), extent) for extent, stride in zip(shape, strides) if extent != 1)
    if any(extent == 0 for _, extent in axes):
        return True
    reach, nested = 0, True
    for stride, extent in axes:
        nested = nested and stride > reach
        reach += stride * (extent - 1)
    if nested:
        return True
    if any(stride == 0 for stride, _ in axes) or math.prod(extent for _, extent in axes) > _ENUMERATED:
        return False
    offsets = np.zeros(1, np.int64)
    for stride, extent in axes:
        offsets = (offsets[:, None] + stride * np.arange(extent, dtype=np.int64)).reshape(-1)
    return len(np.unique(offsets)) == len(offsets)


def same_device(views: Iterable[tuple[str, ArrayView]]) -> str:
    """The device of all `(name, view)`; `"cpu"` when there are none. Errors: array/devices."""
    by_device: dict[str, list[str]] = {}
    for name, seen in views:
        by_device.setdefault(seen.device, []).append(name)
    if len(by_device) > 1:
        raise MixedDevices(
            doing="reading the arguments of a call",
            found="; ".join(f"{', '.join(names)} on {device}" for device, names in by_device.items()),
            expected="all arrays on one device",
            hint="move them before the call",
        )
    return next(iter(by_device), "cpu")


def overlaps(a: ArrayView, b: ArrayView) -> Overlap:
    """How the elements of two arrays lie to one another.

    `identical`: the same elements at the same positions. `disjoint` is always true; `overlapping` may be said of
    strided arrays that interleave in a way this does not see.
    """
    if a.device != b.device or a.size == 0 or b.size == 0:
        return "disjoint"
    a_low, a_high = a.span
    b_low, b_high = b.span
    if a_high <= b_low or b_high <= a_low:
        return "disjoint"
    if a.ptr == b.ptr and a.dtype == b.dtype and a.shape == b.shape and _same_steps(a, b):
        return "identical"
    return "disjoint" if _interleaved(a, b) else "overlapping"


def _same_steps(a: ArrayView, b: ArrayView) -> bool:
    return all(x == y for extent, x, y in zip(a.shape, a.strides, b.strides) if extent > 1)


def _interleaved(a: ArrayView, b: ArrayView) -> bool:
    """Whether some pitch separates the two: modulo it, one lies in an arc that the other does not touch.

    Axes whose stride is a multiple of the pitch vanish modulo it; the others span an arc. Columns of one matrix
    (pitch of a row) and every other element (pitch of two elements) are told apart so.
    """
    steps = {abs(s) * v.itemsize for v in (a, b) for e, s in zip(v.shape, v.strides) if e > 1 and s}
    steps |= {math.gcd(x, y) for x in steps for y in steps}
    for pitch in steps:
        arcs = [_arc(v, pitch) for v in (a, b)]
        (a_start, a_length), (b_start, b_length) = arcs
        if a_length + b_length <= pitch:
            gap = (b_start - a_start) % pitch
            if gap >= a_length and gap + b_length <= pitch:
                return True
    return False


def _arc(v: ArrayView, pitch: int) -> tuple[int, int]:
    start, length = v.ptr, v.itemsize
    for extent, stride in zip(v.shape, v.strides):
        step = stride * v.itemsize
        if extent > 1 and step % pitch:
            start += min(step * (extent - 1), 0)
            length += abs(step) * (extent - 1)
    return start, length


def itemsize_of(dtype: str) -> int:
    """Bytes of an element of the dtype called `dtype`, as passed in arrays."""
    return _BYTES[dtype]


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """NumPy's dtype of the dtype called `dtype`."""
    return BY_NAME[dtype].numpy
