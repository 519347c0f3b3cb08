"""The CUDA half as far as it goes without a GPU: missing pieces named, specs checked, arguments laid out."""

from __future__ import annotations

import ctypes
import dataclasses
import types
from collections.abc import Iterator
from typing import Any

import pytest

from treadle.runtime import driver, streams, tensor_map, timing
from treadle.runtime.cuda import ArgumentBlock, Geometry, Pointer, Scalar
from treadle.runtime.driver import Device
from treadle.runtime.errors import (
    CudaFailed,
    DeviceMissing,
    DriverMissing,
    DriverTooOld,
    LaunchInvalid,
    TensorMapInvalid,
)
from treadle.runtime.tensor_map import TensorMapSpec

GOOD = TensorMapSpec(
    dtype="bf16",
    address=1 << 20,
    extents=(4093, 1000),
    pitches=(8192,),
    box=(64, 128),
    element_strides=(1, 1),
    interleave="none",
    swizzle="128B",
    promotion="256B",
    fill="zero",
)
H200 = Device(0, "a Hopper GPU", (9, 0), 132, 232448, 1 << 37, 1024, None)


@pytest.fixture
def bindings(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """`bindings(module or error)` stands in for the optional import."""
    driver.driver.cache_clear()
    driver.device.cache_clear()

    def put(what: Any) -> None:
        def load(name: str) -> Any:
            assert name == "cuda.bindings.driver"
            if isinstance(what, Exception):
                raise what
            return what

        monkeypatch.setattr(driver.importlib, "import_module", load)

    yield put
    driver.driver.cache_clear()
    driver.device.cache_clear()


class Status(int):
    @property
    def name(self) -> str:
        return {0: "CUDA_SUCCESS", 100: "CUDA_ERROR_NO_DEVICE", 3: "CUDA_ERROR_NOT_INITIALIZED"}[self]


def fake(init: Any, count: int = 0, version: int = 13010) -> Any:
    def cuInit(flags: int) -> Any:
        if isinstance(init, Exception):
            raise init
        return (Status(init),)

    results = types.SimpleNamespace(CUDA_SUCCESS=Status(0), CUDA_ERROR_NO_DEVICE=Status(100))
    return types.SimpleNamespace(
        cuInit=cuInit,
        CUresult=results,
        CUDA_VERSION=13000,
        cuDriverGetVersion=lambda: (Status(0), version),
        cuDeviceGetCount=lambda: (Status(0), count),
    )


@pytest.mark.parametrize(
    ("what", "error", "words"),
    [
        (ImportError("No module named 'cuda'"), DriverMissing, "cuda-bindings"),
        (fake(RuntimeError("Failed to dlopen libcuda.so.1")), DriverMissing, "libcuda.so.1"),
        (fake(3), DriverMissing, "CUDA_ERROR_NOT_INITIALIZED"),
        (fake(100), DeviceMissing, "CUDA_ERROR_NO_DEVICE"),
        (fake(0, count=0), DeviceMissing, "no device 0; there are 0"),
        (fake(0, count=1, version=12080), DriverTooOld, "a driver for CUDA 12.8"),
    ],
)
def test_what_is_missing_is_named(bindings: Any, what: Any, error: type[Exception], words: str) -> None:
    bindings(what)
    with pytest.raises(error) as caught:
        driver.device(0)
    assert words in str(caught.value)
    assert str(caught.value).startswith(caught.value.code) and type(caught.value) is error
    assert driver.devices() == ()


def test_encoding_and_timing_without_a_driver(bindings: Any) -> None:
    bindings(ImportError("No module named 'cuda'"))
    with pytest.raises(DriverMissing):
        GOOD.encode()
    with pytest.raises(DriverMissing):
        timing.interleaved_on_device({"a": lambda: None})


def test_failed_driver_calls_are_errors() -> None:
    assert driver.ok((Status(0),), "x") is None
    assert driver.ok((Status(0), 5), "x") == 5
    assert driver.ok((Status(0), 5, 6), "x") == (5, 6)
    with pytest.raises(CudaFailed, match="CUDA_ERROR_NOT_INITIALIZED"):
        driver.ok((Status(3),), "x")


def test_every_field_of_a_map_reaches_the_driver(bindings: Any) -> None:
    calls: list[tuple[Any, ...]] = []
    storage = (ctypes.c_char * 128)(*[b"m"] * 128)

    def encode(*arguments: Any) -> Any:
        calls.append(arguments)
        return Status(0), types.SimpleNamespace(getPtr=lambda: ctypes.addressof(storage))

    class Names:
        def __getattr__(self, name: str) -> str:
            return name

    module = fake(0)
    module.cuTensorMapEncodeTiled, module.cuuint64_t, module.cuuint32_t = encode, int, int
    for kind in ("DataType", "Interleave", "Swizzle", "L2promotion", "FloatOOBfill"):
        setattr(module, f"CUtensorMap{kind}", Names())
    bindings(module)
    assert GOOD.encode() == b"m" * 128
    assert calls == [
        (
            "CU_TENSOR_MAP_DATA_TYPE_BFLOAT16",
            2,
            1 << 20,
            [4093, 1000],
            [8192],
            [64, 128],
            [1, 1],
            "CU_TENSOR_MAP_INTERLEAVE_NONE",
            "CU_TENSOR_MAP_SWIZZLE_128B",
            "CU_TENSOR_MAP_L2_PROMOTION_L2_256B",
            "CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE",
        )
    ]


def test_names_of_the_driver_exist() -> None:
    cu = pytest.importorskip("cuda.bindings.driver", reason="needs the extra treadle[cuda]")
    for table, kind, prefix in (
        (tensor_map._ENGINE_TYPES, cu.CUtensorMapDataType, "CU_TENSOR_MAP_DATA_TYPE_"),
        (tensor_map._INTERLEAVES, cu.CUtensorMapInterleave, "CU_TENSOR_MAP_INTERLEAVE_"),
        (tensor_map._SWIZZLES, cu.CUtensorMapSwizzle, "CU_TENSOR_MAP_SWIZZLE_"),
        (tensor_map._PROMOTIONS, cu.CUtensorMapL2promotion, "CU_TENSOR_MAP_L2_PROMOTION_"),
        (tensor_map._FILLS, cu.CUtensorMapFloatOOBfill, "CU_TENSOR_MAP_FLOAT_OOB_FILL_"),
    ):
        assert all(hasattr(kind, prefix + name) for name in table.values())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dtype": "i4"}, "no such type"),
        ({"address": 8}, "multiple of 16"),
        ({"extents": (0, 1000)}, "extent 0"),
        ({"pitches": (8190,)}, "pitch 8190"),
        ({"pitches": (-8192,)}, "pitch -8192"),
        ({"pitches": ()}, "not of one rank"),
        ({"box": (64, 257)}, "box 257"),
        ({"box": (128, 128)}, "larger than the swizzle"),
        ({"box": (4, 128), "swizzle": "none"}, "inner box of 8 bytes"),
        ({"element_strides": (1, 9)}, "element stride 9"),
        ({"interleave": "32B"}, "needs swizzle 32B"),
        ({"interleave": "16B"}, "needs at least 3"),
        ({"extents": (1,) * 6}, "rank 6"),
        ({"dtype": "i32", "box": (32, 1), "fill": "nan"}, "not a float"),
    ],
)
def test_rules_of_tensor_maps(change: dict[str, Any], words: str) -> None:
    wrong = dataclasses.replace(GOOD, **change)
    with pytest.raises(TensorMapInvalid) as caught:
        wrong.check()
    assert words in caught.value.found


def test_good_map() -> None:
    assert GOOD.problems() == [] and GOOD.rank == 2 and GOOD.box_bytes == 64 * 128 * 2


def test_arguments_lie_at_their_alignment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TensorMapSpec, "encode", lambda self: bytes(range(128)))
    block = ArgumentBlock([Scalar(7, 4), Pointer(0x1234), Scalar(-1, 2), GOOD, Scalar(0x3F800000, 4)])
    assert block.offsets == [0, 8, 16, 64, 192]
    assert block.base % 64 == 0 and block.pointers == [block.base + offset for offset in block.offsets]
    read = [ctypes.string_at(at, size) for at, size in zip(block.pointers, (4, 8, 2, 128, 4))]
    assert read[0] == (7).to_bytes(4, "little") and read[1] == (0x1234).to_bytes(8, "little")
    assert read[2] == b"\xff\xff" and read[3] == bytes(range(128)) and read[4] == b"\x00\x00\x80\x3f"
    table = (ctypes.c_void_p * 5).from_address(block.address)
    assert list(table) == block.pointers
    assert ArgumentBlock([]).pointers == []


@pytest.mark.parametrize(
    ("geometry", "words"),
    [
        (Geometry((1, 70000, 1), (128, 1, 1)), "grid extent 70000"),
        (Geometry((1, 1, 1), (0, 1, 1)), "block extent 0"),
        (Geometry((1, 1, 1), (1024, 2, 1)), "2048 lanes"),
        (Geometry((3, 1, 1), (128, 1, 1), cluster=(2, 1, 1)), "does not divide"),
        (Geometry((32, 1, 1), (128, 1, 1), cluster=(32, 1, 1)), "32 workgroups a cluster"),
        (Geometry((1, 1, 1), (128, 1, 1), shared=232449), "232449 bytes"),
    ],
)
def test_rules_of_launches(geometry: Geometry, words: str) -> None:
    with pytest.raises(LaunchInvalid) as caught:
        geometry.check(H200)
    assert words in caught.value.found


def test_good_launches() -> None:
    Geometry((132, 1, 1), (384, 1, 1), cluster=(2, 1, 1), shared=232448).check(H200)
    Geometry((0, 1, 1), (128, 1, 1)).check(H200)


@pytest.mark.parametrize(
    ("arch", "fits"), [("sm_90a", True), ("sm_90", True), ("sm_80", False), ("sm_100a", False), ("sm_89", False)]
)
def test_which_cubins_run(arch: str, fits: bool) -> None:
    assert H200.runs(arch) == fits
    assert H200.arch == "sm_90"


def test_minor_versions_run_later_ones() -> None:
    ada = dataclasses.replace(H200, capability=(8, 9))
    assert ada.runs("sm_80") and ada.runs("sm_89") and not ada.runs("sm_90") and not ada.runs("sm_86a")


def test_device_numbers() -> None:
    assert [driver.ordinal_of(name) for name in ("cuda", "cuda:0", "cuda:3")] == [0, 0, 3]


def test_streams_without_a_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch", "cupy"):
        monkeypatch.delitem(streams.sys.modules, name, raising=False)
    assert streams.current_stream(0) == 0
