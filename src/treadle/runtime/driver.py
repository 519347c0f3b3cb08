"""The CUDA driver: this room's one seam to it, devices, contexts and streams.

The bindings come with the extra `treadle[cuda]`, the driver with the machine. Nothing here is touched until a call
needs a GPU. Kernels run in each device's primary context, which torch and CuPy use too.
"""

from __future__ import annotations

import functools
import importlib
import sys
from dataclasses import dataclass
from typing import Any

from treadle.runtime.errors import CudaFailed, DeviceMissing, DriverMissing


@functools.cache
def driver() -> Any:
    """The bindings' driver module, initialised.

    Errors: cuda/no-driver, cuda/no-device. A failure is not remembered: the next call tries again.
    """
    doing = "starting the CUDA driver"
    try:
        module = importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        raise DriverMissing(
            doing=doing,
            found=f"the Python package cuda-bindings cannot be imported: {error}",
            expected="cuda-bindings 13.0",
            hint="pip install 'treadle[cuda]'; in a checkout of the repository: ./dev setup cuda",
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
    return module


def _no_device(found: str) -> DeviceMissing:
    return DeviceMissing(
        doing="looking for a CUDA device",
        found=found,
        expected="at least one NVIDIA GPU that this process may use",
        hint="check nvidia-smi and CUDA_VISIBLE_DEVICES",
    )


def ok(result: tuple[Any, ...], doing: str) -> Any:
    """What a driver call returned, without its status: nothing, one value, or a tuple. Errors: cuda/failed."""
    status, *rest = result
    if int(status) != 0:
        raise CudaFailed(
            doing=doing,
            found=str(getattr(status, "name", status)),
            expected="CUDA_SUCCESS",
            hint="an earlier launch may have failed: rerun with CUDA_LAUNCH_BLOCKING=1, or kernel.sanitize",
            pass_name="runtime.cuda",
        )
    return rest[0] if len(rest) == 1 else tuple(rest) or None


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
    except (DriverMissing, DeviceMissing):
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


def current_stream(ordinal: int) -> int:
    """The handle of the stream that the caller's framework works on: torch's or CuPy's, if loaded; else the default.

    The frameworks are looked up among the loaded modules: arrays of a framework exist only when it is loaded.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        # The raw handle, where torch tells it: an object of a stream costs more than a launch.
        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        return int(raw(ordinal) if raw is not None else torch.cuda.current_stream(ordinal).cuda_stream)
    cupy = sys.modules.get("cupy")
    if cupy is not None:
        with cupy.cuda.Device(ordinal):
            return int(cupy.cuda.get_current_stream().ptr)
    return 0
