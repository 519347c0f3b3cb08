"""The CUDA driver: this room's one seam to it, devices and contexts ([streams](streams.py) have a file of their own).

The bindings come with the extra `treadle[cuda]`, the driver with the machine. Nothing here is touched until a call
needs a GPU. Kernels run in each device's primary context, which torch and CuPy use too.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from treadle.runtime.errors import (
    CaptureRefused,
    CudaFailed,
    CudaFault,
    DeviceMissing,
    DeviceOutOfMemory,
    DriverMissing,
    DriverTooOld,
    ModuleUnusable,
)


@functools.cache
def driver() -> Any:
    """The bindings' driver module, initialised.

    Errors: cuda/no-driver, cuda/no-device. A failure is not remembered: the next call tries again.
    """
    doing = "starting the CUDA driver"
    try:
        module = _bindings()
    except ImportError as error:
        raise DriverMissing(
            doing=doing,
            found=f"the Python package cuda-bindings cannot be imported: {error}",
            expected="cuda-bindings 13.0",
            hint="in a checkout of the repository: ./dev setup cuda, or pip install '.[cuda]'",
        ) from error
    try:
        (status,) = module.cuInit(0)
    except RuntimeError as error:
        raise DriverMissing(
            doing=doing,
            found=f"the bindings are installed, the driver's library is not: {error}",
            expected="an NVIDIA driver (libcuda.so.1)",
            hint="run on a machine with an NVIDIA GPU, or plan without one: target='cuda:sm_90a'",
        ) from error
    if status == module.CUresult.CUDA_ERROR_NO_DEVICE:
        raise _no_device("CUDA_ERROR_NO_DEVICE")
    if status != module.CUresult.CUDA_SUCCESS:
        raise DriverMissing(
            doing=doing,
            found=f"the driver's library is there and does not start: {status.name}",
            expected="CUDA_SUCCESS",
            hint="check the driver with nvidia-smi",
        )
    _check_version(module, doing)
    return module


def _bindings() -> Any:
    return importlib.import_module("cuda.bindings.driver")


def _check_version(module: Any, doing: str) -> None:
    """A driver of an earlier major version than the toolkit's loads none of its cubins."""
    (status, have), want = module.cuDriverGetVersion(), int(module.CUDA_VERSION)
    if int(status) == 0 and have // 1000 < want // 1000:
        raise DriverTooOld(
            doing=doing,
            found=f"a driver for CUDA {have // 1000}.{have % 1000 // 10}",
            expected=f"a driver for CUDA {want // 1000}.0 or later, as cuda-bindings is",
            hint="update the NVIDIA driver (nvidia-smi shows its version), or plan for the CPU",
        )


@functools.cache
def entry(name: str) -> Callable[..., int]:
    """The driver's function `name` itself, taking addresses and integers and returning a status.

    For what every call does: the bindings' wrappers cost as much as the launch. *Errors*: `cuda/no-driver`, ....
    """
    driver()
    found = getattr(_library(), name)
    found.argtypes, found.restype = _ENTRIES[name], ctypes.c_int
    return found


_P, _N = ctypes.c_void_p, ctypes.c_size_t
_ENTRIES: dict[str, list[Any]] = {
    "cuLaunchKernelEx": [_P, _P, _P, _P],
    "cuCtxGetCurrent": [_P],
    "cuMemAllocFromPoolAsync": [_P, _N, _P, _P],
    "cuMemFreeAsync": [_P, _P],
    "cuMemsetD8Async": [_P, ctypes.c_ubyte, _N, _P],
    "cuGraphLaunch": [_P, _P],
    "cuStreamIsCapturing": [_P, _P],
}


def _library() -> Any:
    """The driver's library, which the bindings have loaded."""
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")


def _no_device(found: str) -> DeviceMissing:
    return DeviceMissing(
        doing="looking for a CUDA device",
        found=found,
        expected="at least one NVIDIA GPU that this process may use",
        hint="check nvidia-smi and CUDA_VISIBLE_DEVICES",
    )


_UNUSABLE = (200, 209, 218, 221, 222, 223)
"""Statuses of code that is damaged, or for another device or driver."""

_FAULTS = (700, 702, 709, 710, 714, 715, 716, 717, 718, 719)
"""Statuses after which every call in the context fails."""

_CAPTURES = range(900, 909)
"""Statuses of stream capture."""


def ok(result: tuple[Any, ...], doing: str) -> Any:
    """What a driver call returned, without its status: nothing, one value, or a tuple.

    *Errors*: `cuda/failed`, `cuda/fault`, `cuda/out-of-memory`, `cuda/module`, `cuda/capture`.
    """
    status, *rest = result
    if int(status) != 0:
        raise failure(int(status), doing, str(getattr(status, "name", status)))
    return rest[0] if len(rest) == 1 else tuple(rest) or None


def failure(status: int, doing: str, name: str = "") -> Exception:
    """The error for a status that a driver call returned."""
    found = name or _status_name(status)
    if status == 2:
        return DeviceOutOfMemory(
            doing=doing,
            found=found,
            expected="free memory on the device",
            hint="free arrays; of torch's cache: torch.cuda.empty_cache()",
        )
    if status in _CAPTURES:
        return CaptureRefused(
            doing=doing,
            found=found,
            expected="a stream capture that nothing has broken off",
            hint="call the kernel once before the capture, and let nothing wait for the device inside it",
        )
    kind: type[CudaFailed | CudaFault | ModuleUnusable] = CudaFailed
    hint = "an earlier launch may have failed: rerun with CUDA_LAUNCH_BLOCKING=1, or kernel.sanitize"
    if status in _UNUSABLE:
        kind, hint = ModuleUnusable, "clear the cache: treadle cache clear; check that the driver is that of nvidia-smi"
    elif status in _FAULTS:
        kind = CudaFault
        hint = "start a new process: this one's context is lost. Find the launch with CUDA_LAUNCH_BLOCKING=1"
    return kind(doing=doing, found=found, expected="CUDA_SUCCESS", hint=hint, pass_name="runtime.cuda")


def _status_name(status: int) -> str:
    try:
        return str(driver().CUresult(status).name)
    except (ValueError, AttributeError, TypeError):
        return f"status {status}"


def check(status: int, doing: str) -> None:
    """`ok` for a function of `entry`, which returns a number."""
    if status:
        raise failure(status, doing)


@dataclass(frozen=True, slots=True)
class Device:
    """A CUDA device and its limits. Units: bytes, and counts per device or workgroup."""

    ordinal: int
    name: str
    capability: tuple[int, int]
    multiprocessors: int
    shared_bytes: int
    """The most dynamic and static shared memory that one workgroup can ask for."""
    global_bytes: int
    max_threads: int
    context: Any

    @property
    def arch(self) -> str:
        """`sm_90`, without the letter of architecture-specific code."""
        return f"sm_{self.capability[0]}{self.capability[1]}"

    def runs(self, arch: str) -> bool:
        """Whether a cubin for `arch` runs here. Those with a letter run on their very capability only."""
        digits = arch.removeprefix("sm_")
        major, minor = int(digits.rstrip("af")[:-1]), int(digits.rstrip("af")[-1])
        exact = digits != digits.rstrip("af")
        if exact:
            return self.capability == (major, minor)
        return self.capability[0] == major and self.capability[1] >= minor


@functools.cache
def device(ordinal: int = 0) -> Device:
    """Device `ordinal`, its primary context retained for the life of the process.

    Errors: cuda/no-driver, cuda/no-device, cuda/failed.
    """
    cu = driver()
    count = int(ok(cu.cuDeviceGetCount(), "counting CUDA devices"))
    if not 0 <= ordinal < count:
        raise _no_device(f"no device {ordinal}; there are {count}")
    doing = f"reading CUDA device {ordinal}"
    handle = ok(cu.cuDeviceGet(ordinal), doing)
    kind = cu.CUdevice_attribute

    def read(attribute: Any) -> int:
        return int(ok(cu.cuDeviceGetAttribute(attribute, handle), doing))

    name: bytes = ok(cu.cuDeviceGetName(128, handle), doing)
    return Device(
        ordinal=ordinal,
        name=name.split(b"\0", 1)[0].decode(),
        capability=(
            read(kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            read(kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        ),
        multiprocessors=read(kind.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
        shared_bytes=read(kind.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
        global_bytes=int(ok(cu.cuDeviceTotalMem(handle), doing)),
        max_threads=read(kind.CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
        context=ok(cu.cuDevicePrimaryCtxRetain(handle), doing),
    )


def devices() -> tuple[Device, ...]:
    """All devices; empty where there is no driver or no device."""
    try:
        count = int(ok(driver().cuDeviceGetCount(), "counting CUDA devices"))
    except (DriverMissing, DriverTooOld, DeviceMissing):
        return ()
    return tuple(device(ordinal) for ordinal in range(count))


def ordinal_of(place: str) -> int:
    """The number in `"cuda:1"`; 0 for `"cuda"`."""
    _, _, number = place.partition(":")
    return int(number) if number else 0


class current:
    """A context manager: the calling thread's current context is `on`'s within it."""

    __slots__ = ("_cu", "_on")

    def __init__(self, on: Device) -> None:
        self._cu = driver()
        self._on = on

    def __enter__(self) -> Device:
        ok(self._cu.cuCtxPushCurrent(self._on.context), f"entering CUDA device {self._on.ordinal}")
        return self._on

    def __exit__(self, *_: object) -> None:
        ok(self._cu.cuCtxPopCurrent(), f"leaving CUDA device {self._on.ordinal}")
