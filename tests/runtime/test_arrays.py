"""Arguments read through every protocol, what is refused, and how two arrays lie to one another."""

from __future__ import annotations

import array
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.runtime.arrays import ArrayView, check_output, is_injective, overlaps, same_device, view
from treadle.runtime.errors import (
    DtypeUnsupported,
    Misaligned,
    MixedDevices,
    NotAnArray,
    OutputOverlapsItself,
    ReadOnly,
    StrideUneven,
)


class Exporter:
    """An array that speaks DLPack and nothing else."""

    def __init__(self, inner: np.ndarray[Any, Any], old: bool = False) -> None:
        self.inner, self.old = inner, old

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.inner.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        if self.old and options:
            raise TypeError("an exporter from before DLPack 1.0")
        return self.inner.__dlpack__(**options)


class OnDevice:
    """An array that speaks CUDA's array interface."""

    def __init__(self, ordinal: int, **fields: Any) -> None:
        self.device = type("Device", (), {"id": ordinal})()
        self.__cuda_array_interface__ = {"version": 3, "strides": None, **fields}


@pytest.mark.parametrize(
    ("numpy_dtype", "name"),
    [
        (np.bool_, "bool"),
        (np.int8, "i8"),
        (np.uint64, "u64"),
        (np.float16, "f16"),
        (ml_dtypes.bfloat16, "bf16"),
        (np.float32, "f32"),
        (np.float64, "f64"),
        (ml_dtypes.float8_e4m3fn, "f8e4m3"),
        (ml_dtypes.float8_e5m2, "f8e5m2"),
        (ml_dtypes.float8_e8m0fnu, "f8e8m0"),
    ],
)
def test_dtypes(numpy_dtype: Any, name: str) -> None:
    seen = view(np.zeros((2, 3), numpy_dtype))
    assert (seen.dtype, seen.shape, seen.strides, seen.device) == (name, (2, 3), (3, 1), "cpu")


def test_numpy_views() -> None:
    base = np.zeros((4, 6), np.float32)
    seen = view(base[::-1, 1::2])
    assert seen.ptr == base.ctypes.data + 3 * 24 + 4
    assert (seen.shape, seen.strides, seen.writable) == ((4, 3), (-6, 2), True)
    assert seen.span == (base.ctypes.data + 4, base.ctypes.data + 4 * 24)
    assert view(base[:0]).span == (base.ctypes.data, base.ctypes.data)
    assert view(np.broadcast_to(base[0], (5, 6))).strides == (0, 1)
    assert view(np.float32(1).reshape(())).shape == ()
    assert view(seen) is seen


@pytest.mark.parametrize("old", [False, True])
def test_dlpack(old: bool) -> None:
    base = np.arange(24, dtype=np.float32).reshape(4, 6)[::2, ::-1]
    seen, direct = view(Exporter(base, old)), view(base)
    assert (seen.ptr, seen.shape, seen.strides, seen.dtype) == (direct.ptr, direct.shape, direct.strides, "f32")
    assert seen.device == "cpu" and seen.writable
    assert view(Exporter(np.zeros((0, 3), np.int16), old)).shape == (0, 3)


def test_dlpack_tells_read_only() -> None:
    base = np.zeros(3, np.float32)
    base.flags.writeable = False
    assert not view(Exporter(base)).writable


def test_dlpack_refusals_carry_the_reason() -> None:
    class Refuses:
        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

        def __dlpack__(self, **options: Any) -> Any:
            raise BufferError("requires gradient")

    with pytest.raises(NotAnArray, match="requires gradient"):
        view(Refuses())


def test_cuda_array_interface() -> None:
    seen = view(OnDevice(1, shape=(2, 3), typestr="<f4", data=(4096, True)))
    assert (seen.ptr, seen.strides, seen.device, seen.writable) == (4096, (3, 1), "cuda:1", False)
    strided = view(OnDevice(0, shape=(2, 3), typestr="<f2", data=(4096, False), strides=(64, -2)))
    assert strided.strides == (32, -1) and strided.writable
    with pytest.raises(MixedDevices) as caught:
        same_device([("x", seen), ("y", strided), ("z", view(np.zeros(1)))])
    assert "x on cuda:1" in caught.value.found and "z on cpu" in caught.value.found
    assert same_device([("x", seen)]) == "cuda:1" and same_device([]) == "cpu"


def test_buffers() -> None:
    seen = view(array.array("d", [1, 2, 3]))
    assert (seen.dtype, seen.shape, seen.writable) == ("f64", (3,), True)
    assert not view(b"abc").writable


@pytest.mark.parametrize("wrong", [[1.0, 2.0], 3.0, None, "text", np.float32(1)])
def test_what_is_no_array(wrong: Any) -> None:
    if isinstance(wrong, np.generic):
        assert view(np.asarray(wrong)).shape == ()
        return
    with pytest.raises((NotAnArray, DtypeUnsupported)):
        view(wrong, name="x")


@pytest.mark.parametrize("name", ["int4", "uint4", "float4_e2m1fn"])
def test_arrays_of_4_bits_are_packed_as_the_error_says(name: str) -> None:
    """What the hint says makes of one byte an element two elements a byte, low bits first."""
    x = np.arange(16, dtype=np.uint8).reshape(2, 8).view(getattr(ml_dtypes, name))
    with pytest.raises(DtypeUnsupported, match="4-bit") as caught:
        view(x)
    first, then = caught.value.hint.partition(": ")[2].split("; ")
    space = {"np": np, "x": x}
    exec(first, space)
    packed = eval(then, space)
    assert packed.dtype == np.uint8 and packed.tolist() == [
        [n + 1 << 4 | n for n in range(b, b + 8, 2)] for b in (0, 8)
    ]


def test_refused_arrays() -> None:
    with pytest.raises(DtypeUnsupported, match="byte order"):
        view(np.zeros(3, ">f4"))
    with pytest.raises(DtypeUnsupported):
        view(np.zeros(3, np.complex64))
    with pytest.raises(NotAnArray, match="masked"):
        view(np.ma.masked_array([1.0, 2.0], [True, False]))
    record = np.zeros(4, np.dtype([("a", np.int8), ("b", np.float32)]))
    with pytest.raises((StrideUneven, Misaligned)):
        view(record["b"], name="x")
    aligned = np.zeros(4, np.dtype({"names": ["b"], "formats": [np.float32], "itemsize": 6}))["b"]
    with pytest.raises(StrideUneven) as caught:
        view(aligned, name="x")
    assert "6 bytes along axis 0" in caught.value.found
    with pytest.raises(Misaligned):
        view(np.ndarray(2, np.float32, bytearray(9), 1))


def test_outputs() -> None:
    assert check_output(view(np.zeros((3, 4))[:, ::-1])).writable
    with pytest.raises(ReadOnly):
        check_output(view(b"abc"), name="y")
    room = np.zeros(12, np.float32)
    for shape, strides in (((3, 4), (0, 4)), ((3, 4), (8, 4)), ((2, 2, 2), (4, 4, 16))):
        with pytest.raises(OutputOverlapsItself):
            check_output(view(np.lib.stride_tricks.as_strided(room, shape, strides)))
    check_output(view(np.lib.stride_tricks.as_strided(room, (1, 4), (0, 4))))
    check_output(view(np.lib.stride_tricks.as_strided(room, (0, 4), (0, 0))))


shapes = st.lists(st.tuples(st.integers(0, 4), st.integers(-7, 7)), max_size=3)


@given(shapes)
@settings(max_examples=200, deadline=None)
def test_injective_means_no_two_positions_coincide(axes: list[tuple[int, int]]) -> None:
    shape, strides = tuple(e for e, _ in axes), tuple(s for _, s in axes)
    offsets = [sum(i * s for i, s in zip(at, strides)) for at in product(*map(range, shape))]
    assert is_injective(shape, strides) == (len(set(offsets)) == len(offsets))


def elements(v: ArrayView) -> set[int]:
    return {
        v.ptr + byte + v.itemsize * sum(i * s for i, s in zip(at, v.strides))
        for at in product(*map(range, v.shape))
        for byte in range(v.itemsize)
    }


@given(shapes, st.integers(0, 40), shapes, st.integers(0, 40), st.sampled_from(["i8", "i16", "f32"]))
@settings(max_examples=400, deadline=None)
def test_disjoint_is_never_wrong(
    a: list[tuple[int, int]], at: int, b: list[tuple[int, int]], bt: int, dtype: str
) -> None:
    first, second = (
        ArrayView(4096 + 4 * start, tuple(e for e, _ in axes), tuple(s for _, s in axes), kind, "cpu", True, None)
        for axes, start, kind in ((a, at, "f32"), (b, bt, dtype))
    )
    said, common = overlaps(first, second), elements(first) & elements(second)
    assert said == overlaps(second, first)
    if said == "disjoint":
        assert not common
    if said == "identical":
        assert elements(first) == elements(second)
    if not common and not (first.span[0] < second.span[1] and second.span[0] < first.span[1]):
        assert said == "disjoint"


def test_overlap_of_usual_views() -> None:
    x = np.zeros((8, 12), np.float32)
    cases = [
        (x, x, "identical"),
        (x, x[:], "identical"),
        (x, x.T, "overlapping"),
        (x, x[1:], "overlapping"),
        (x[:4], x[4:], "disjoint"),
        (x[:, :6], x[:, 6:], "disjoint"),
        (x[:, :7], x[:, 6:], "overlapping"),
        (x[:, ::2], x[:, 1::2], "disjoint"),
        (x[::2], x[1::2], "disjoint"),
        (x[::2, ::-1], x[1::2], "disjoint"),
        (x.view(np.int32), x, "overlapping"),
        (x[:0], x, "disjoint"),
        (x, np.zeros((8, 12), np.float32), "disjoint"),
    ]
    for a, b, expected in cases:
        assert overlaps(view(a), view(b)) == expected
    other = ArrayView(view(x).ptr, (8, 12), (12, 1), "f32", "cuda:0", True, None)
    assert overlaps(view(x), other) == "disjoint"
