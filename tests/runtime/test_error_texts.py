"""The exact texts of this room's errors; every code of the room has one."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from syrupy.assertion import SnapshotAssertion

from treadle.base.errors import TreadleError
from treadle.runtime import arrays, cpu, driver, errors, host, launch, memory, native, pool
from treadle.runtime.arrays import ArrayView
from treadle.runtime.cuda import Geometry
from treadle.runtime.driver import Device
from treadle.runtime.signature import ScalarParam, Signature, TensorParam, scalar_word, tensor_view
from treadle.runtime.tensor_map import TensorMapSpec

Patch = pytest.MonkeyPatch
GPU = Device(0, "a Hopper GPU", (9, 0), 132, 232448, 1 << 37, 1024, None)
X = TensorParam("x", "f32", 2)


def as_strided(strides: tuple[int, int]) -> Any:
    return np.lib.stride_tricks.as_strided(np.zeros(64, np.float32), (3, 4), strides)


def platform(patch: Patch) -> None:
    patch.setattr(host.platform, "system", lambda: "Plan9")
    patch.setattr(host.platform, "machine", lambda: "mips")
    host.pool_system()


def no_native_code(patch: Patch) -> None:
    patch.setattr(native, "_compiler", [])
    native.load_native("treadle_pool", "; a text never compiled", ["f"])


def workers(patch: Patch) -> None:
    pool.set_workers(0)


def object_unusable(patch: Patch) -> None:
    cpu.load_object(b"MZ\x90\x00", ["linear"], name="linear")


def symbol_missing(patch: Patch) -> None:
    loaded: Any = types.SimpleNamespace(name="linear", addresses={}, function=lambda *_: None)
    launch.CpuKernel(loaded, "linear", Signature((X,)), workspace="linear_workspace", parallel=False)


def bound(patch: Patch) -> None:
    # Whose line it is differs with where this file lies; tests/driver looks at that.
    patch.setattr(launch, "user_position", lambda: None)
    loaded: Any = types.SimpleNamespace(name="linear", addresses={"linear": 0}, function=lambda *_: lambda _: 0)
    signature = Signature((X,))
    kernel = launch.CpuKernel(loaded, "linear", signature, parallel=False)
    made: Any = launch.bind(kernel, launch.Packer(signature), (np.zeros((3, 4), np.float32),))
    made(1.0)


def host_features(patch: Patch) -> None:
    cpu.load_object(b"", ["linear"], name="linear", features=["avx1024"])


def tiles_refused(patch: Patch) -> None:
    patch.setattr(host, "amx_permission", lambda: False)
    host.require_tiles("loading the compiled linear")


def out_of_memory(patch: Patch) -> None:
    def refuse(size: int) -> Any:
        raise MemoryError("cannot allocate")

    patch.setattr(memory, "_allocate", refuse)
    memory.take_workspace(3 << 40)


def check_failed(patch: Patch) -> None:
    loaded: Any = types.SimpleNamespace(name="linear", addresses={}, function=lambda *_: None)
    raise launch.CpuKernel(loaded, "linear", Signature((X,)), parallel=False, checks={1: "K must be even"}).failure(1)


def count(patch: Patch) -> None:
    Signature((X, ScalarParam("s", "f32"))).check_count(1)


def not_an_array(patch: Patch) -> None:
    arrays.view([1.0], name="x")


def dtype_unsupported(patch: Patch) -> None:
    arrays.view(np.zeros(3, np.complex64), name="x")


def dtype(patch: Patch) -> None:
    scalar_word(2.5, ScalarParam("n", "i32"))


def rank(patch: Patch) -> None:
    tensor_view(np.zeros(3, np.float32), X)


def misaligned(patch: Patch) -> None:
    arrays._aligned(ArrayView(4097, (3,), (1,), "f32", "cpu", True, None), "x")


def stride(patch: Patch) -> None:
    arrays.view(np.zeros(4, np.dtype({"names": ["b"], "formats": [np.float32], "itemsize": 6}))["b"], name="x")


def read_only(patch: Patch) -> None:
    arrays.check_output(arrays.view(np.broadcast_to(np.float32(0), (2,))), name="y")


def output_overlap(patch: Patch) -> None:
    arrays.check_output(arrays.view(as_strided((4, 4))), name="y")


def mixed_devices(patch: Patch) -> None:
    here = arrays.view(np.zeros(3, np.float32))
    arrays.same_device([("x", here), ("w", dataclasses.replace(here, device="cuda:1"))])


def no_driver(patch: Patch) -> None:
    def absent(name: str) -> Any:
        raise ImportError("No module named 'cuda'")

    driver.driver.cache_clear()
    patch.setattr(driver.importlib, "import_module", absent)
    driver.driver()


def no_device(patch: Patch) -> None:
    raise driver._no_device("no device 3; there are 1")


def driver_old(patch: Patch) -> None:
    driver._check_version(types.SimpleNamespace(cuDriverGetVersion=lambda: (0, 12040), CUDA_VERSION=13000), "starting")


def cuda_failed(patch: Patch) -> None:
    driver.ok((Status(1),), "launching linear")


def fault(patch: Patch) -> None:
    driver.ok((Status(700),), "launching linear")


def no_device_memory(patch: Patch) -> None:
    driver.ok((Status(2),), "taking 4,096 bytes of device memory for linear")


def module_unusable(patch: Patch) -> None:
    driver.ok((Status(200),), "loading the cubin of linear")


def capture(patch: Patch) -> None:
    driver.ok((Status(900),), "launching linear")


class Status(int):
    @property
    def name(self) -> str:
        return STATUSES[self]


STATUSES = {
    1: "CUDA_ERROR_INVALID_VALUE",
    2: "CUDA_ERROR_OUT_OF_MEMORY",
    200: "CUDA_ERROR_INVALID_IMAGE",
    700: "CUDA_ERROR_ILLEGAL_ADDRESS",
    900: "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
}


def tensor_map(patch: Patch) -> None:
    TensorMapSpec("bf16", 4104, (64, 64), (128,), (128, 64), (1, 1), "none", "128B", "128B", "zero").check()


def cuda_launch(patch: Patch) -> None:
    Geometry((3, 1, 1), (2048, 1, 1), cluster=(2, 1, 1)).check(GPU)


CASES: dict[str, Callable[[Patch], None]] = {
    "runtime/platform": platform,
    "runtime/no-native-code": no_native_code,
    "runtime/workers": workers,
    "call/bound": bound,
    "runtime/object-unusable": object_unusable,
    "runtime/symbol-missing": symbol_missing,
    "runtime/host-features": host_features,
    "runtime/tiles-refused": tiles_refused,
    "runtime/out-of-memory": out_of_memory,
    "runtime/check-failed": check_failed,
    "array/count": count,
    "array/not-an-array": not_an_array,
    "array/dtype-unsupported": dtype_unsupported,
    "array/dtype": dtype,
    "array/rank": rank,
    "array/misaligned": misaligned,
    "array/stride": stride,
    "array/read-only": read_only,
    "array/output-overlap": output_overlap,
    "array/devices": mixed_devices,
    "cuda/no-driver": no_driver,
    "cuda/no-device": no_device,
    "cuda/driver-old": driver_old,
    "cuda/failed": cuda_failed,
    "cuda/fault": fault,
    "cuda/out-of-memory": no_device_memory,
    "cuda/module": module_unusable,
    "cuda/capture": capture,
    "cuda/tensor-map": tensor_map,
    "cuda/launch": cuda_launch,
}


@pytest.mark.parametrize("code", list(CASES))
def test_text(code: str, monkeypatch: Patch, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(TreadleError) as caught:
        CASES[code](monkeypatch)
    assert caught.value.code == code
    assert str(caught.value) == snapshot


def test_every_code_has_a_text() -> None:
    classes = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, TreadleError)]
    assert {value.code for value in classes if value.__module__ == errors.__name__} == set(CASES)
