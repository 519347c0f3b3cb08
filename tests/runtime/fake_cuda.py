"""A CUDA driver that does nothing and notes everything: streams, captures, memory, launches, failures on demand."""

from __future__ import annotations

import ctypes
import itertools
import sys
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from treadle.runtime import device_memory, driver


class Status(int):
    """A status with a name, as the bindings have."""

    CUDA_SUCCESS: Status
    CUDA_ERROR_NO_DEVICE: Status

    @property
    def name(self) -> str:
        return {0: "CUDA_SUCCESS", 2: "CUDA_ERROR_OUT_OF_MEMORY", 200: "CUDA_ERROR_INVALID_IMAGE"}.get(self, f"E{self}")


Status.CUDA_SUCCESS, Status.CUDA_ERROR_NO_DEVICE = Status(0), Status(100)


class Names:
    """Any attribute is its own name."""

    def __getattr__(self, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class Open:
    """An object with whatever attributes it is given."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = Open()
        setattr(self, name, made)
        return made


class Library:
    """Functions of a fake driver that return a status."""

    def __init__(self, fake: FakeDriver) -> None:
        self._fake = fake

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            return int(getattr(self._fake, name)(*arguments)[0])

        return call


class Failed(Exception):
    """A call fails, with that status."""


ATTRIBUTES = {
    "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR": 9,
    "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR": 0,
    "CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT": 132,
    "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448,
    "CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK": 1024,
}


class Config(Open):
    """A launch configuration, found again by its address."""

    known: dict[int, Config] = {}
    numbers = itertools.count(1)

    def __init__(self) -> None:
        self.__dict__["number"] = next(Config.numbers)
        Config.known[self.number] = self

    def getPtr(self) -> int:
        return self.number


class Encoded:
    """A tensor map, by its address."""

    def __init__(self, address: int) -> None:
        self._address = address

    def getPtr(self) -> int:
        return self._address


class FakeDriver:
    """Bindings and library in one. `cuMemAlloc` gives memory of this machine, which copies move.

    `log` has what was enqueued: (what, stream, ...); `fail[name]` is a list of statuses that the next calls of a
    function return; `captured` has the open captures by stream.
    """

    CUDA_VERSION = 13000
    CUlaunchConfig, CUmemPoolProps, CUlaunchAttribute, CUlaunchAttributeValue = Config, Open, Open, Open
    CUstream = cuuint64_t = cuuint32_t = int

    def __init__(self, devices: int = 1) -> None:
        self.devices = devices
        self.log: list[tuple[Any, ...]] = []
        self.fail: dict[str, list[int]] = {}
        self.calls: Counter[str] = Counter()
        self.captured: dict[int, list[tuple[Any, ...]]] = {}
        self.modes = ["global"]
        self.contexts: list[int] = []
        self.held: dict[int, int] = {}
        self.free: list[tuple[int, int]] = []
        self.rooms: list[tuple[int, int, Any]] = []
        self.maps: list[Any] = []
        self._numbers = itertools.count(1)
        self._address = 1 << 32

    CUresult = Status

    def __getattr__(self, name: str) -> Any:
        if name.startswith("CU"):
            return Names()
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments: Any) -> tuple[Any, ...]:
            self.calls[name] += 1
            if self.fail.get(name):
                return (Status(self.fail[name].pop(0)),)
            try:
                result = getattr(self, f"do_{name}", lambda *_: None)(*arguments)
            except Failed as failed:
                return (Status(failed.args[0]),)
            rest = result if isinstance(result, tuple) else () if result is None else (result,)
            return (Status(0), *rest)

        return call

    @property
    def library(self) -> Any:
        """The same functions as the library has them: they return their status."""
        return Library(self)

    def enqueue(self, what: str, stream: int, *more: Any) -> None:
        self.captured.get(stream, self.log).append((what, stream, *more))

    # ---- devices and contexts

    def do_cuDriverGetVersion(self) -> int:
        return 13000

    def do_cuDeviceGetCount(self) -> int:
        return self.devices

    def do_cuDeviceGet(self, ordinal: int) -> int:
        return ordinal

    def do_cuDeviceGetName(self, *_: Any) -> bytes:
        return b"a made-up Hopper GPU\0"

    def do_cuDeviceGetAttribute(self, attribute: str, handle: int) -> int:
        return ATTRIBUTES[attribute]

    def do_cuDeviceTotalMem(self, handle: int) -> int:
        return 1 << 37

    def do_cuDevicePrimaryCtxRetain(self, handle: int) -> int:
        return 100 + handle

    def do_cuCtxPushCurrent(self, context: int) -> None:
        self.contexts.append(context)

    def do_cuCtxPopCurrent(self) -> int:
        return self.contexts.pop()

    def do_cuCtxGetCurrent(self, at: int) -> None:
        ctypes.c_void_p.from_address(at).value = self.contexts[-1] if self.contexts else None

    def do_cuCtxSynchronize(self) -> None:
        assert not self.captured, "a wait for the whole device breaks every capture"

    # ---- code

    def do_cuModuleLoadData(self, cubin: bytes) -> int:
        assert not self.captured or self.modes[-1].endswith("RELAXED"), "code is loaded beside a capture"
        return next(self._numbers)

    def do_cuModuleGetFunction(self, module: int, name: bytes) -> int:
        return next(self._numbers)

    def do_cuFuncGetAttribute(self, *_: Any) -> int:
        return 0

    def do_cuLaunchKernelEx(self, config: int, function: int, arguments: int, extra: int) -> None:
        made = Config.known[config]
        if made.hStream < 3:
            if not self.contexts:  # the default stream is of the current context
                raise Failed(201)
        first = ctypes.c_void_p.from_address(arguments).value
        self.enqueue("launch", made.hStream, function, ctypes.c_uint64.from_address(first).value if first else None)

    def do_cuTensorMapEncodeTiled(self, *_: Any) -> Any:
        room = ctypes.create_string_buffer(128)
        self.maps = [*self.maps, room]
        return Encoded(ctypes.addressof(room))

    def do_cuThreadExchangeStreamCaptureMode(self, mode: str) -> str:
        self.modes.append(mode)
        return self.modes[-2]

    # ---- streams and graphs

    def do_cuStreamCreate(self, flags: Any) -> int:
        return 1000 + next(self._numbers)

    def do_cuStreamSynchronize(self, stream: int) -> None:
        assert stream not in self.captured, "a captured stream is waited for"
        self.log.append(("wait", stream))

    def do_cuStreamIsCapturing(self, stream: int, at: int) -> None:
        ctypes.c_int.from_address(at).value = int(stream in self.captured)

    def do_cuStreamBeginCapture(self, stream: int, mode: str) -> None:
        self.captured[stream] = []

    def do_cuStreamEndCapture(self, stream: int) -> Any:
        return tuple([self.captured.pop(stream)])

    def do_cuGraphInstantiate(self, graph: Any, flags: int) -> int:
        number = next(self._numbers)
        self.__dict__.setdefault("graphs", {})[number] = graph
        return number

    def do_cuGraphLaunch(self, graph: int, stream: int) -> None:
        for what, _, *more in self.graphs[graph]:
            self.enqueue(what, stream, *more)

    def do_cuEventCreate(self, flags: Any) -> int:
        return next(self._numbers)

    def do_cuEventRecord(self, event: int, stream: int) -> None:
        self.enqueue("record", stream, event)

    def do_cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> None:
        self.enqueue("follow", stream, event)

    # ---- memory

    def do_cuMemPoolCreate(self, properties: Any) -> int:
        return next(self._numbers)

    def do_cuMemAllocFromPoolAsync(self, at: int, size: int, pool: int, stream: int) -> None:
        known = next((a for s, a in self.free if s == size and stream not in self.captured), None)
        if known is not None:
            self.free.remove((size, known))
        else:
            known = self._address
            self._address += -(-size // 512) * 512
        self.held[known] = size
        ctypes.c_uint64.from_address(at).value = known
        self.enqueue("take", stream, known)

    def do_cuMemFreeAsync(self, address: int, stream: int) -> None:
        size = self.held.pop(address)
        if stream not in self.captured:
            self.free.append((size, address))
        self.enqueue("give", stream, address)

    def do_cuMemcpyDtoDAsync(self, to: int, at: int, size: int, stream: int) -> None:
        self.enqueue("copy", stream, to, at, size)

    def do_cuMemAlloc(self, size: int) -> int:
        assert not self.captured, "memory is allocated beside a capture"
        room = ctypes.create_string_buffer(size)
        self.rooms.append((ctypes.addressof(room), size, room))
        return ctypes.addressof(room)

    def _inside(self, at: int, size: int) -> bool:
        return any(low <= at and at + size <= low + length for low, length, _ in self.rooms)

    def do_cuMemcpyDtoH(self, to: int, at: int, size: int) -> None:
        assert not self.captured, "a copy to the host breaks a capture"
        if self._inside(at, size):
            ctypes.memmove(to, at, size)

    def do_cuMemcpyHtoD(self, to: int, at: int, size: int) -> None:
        assert self._inside(to, size), "only memory that was allocated may be written"
        ctypes.memmove(to, at, size)


CACHED = (driver.driver, driver.device, driver.entry, device_memory._pool)


@contextmanager
def installed(fake: FakeDriver) -> Generator[FakeDriver]:
    """Inside, `fake` is the CUDA driver, and no library that works on GPUs is loaded."""
    for one in CACHED:
        one.cache_clear()
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name in ("torch", "cupy"):
                patch.delitem(sys.modules, name, raising=False)
            patch.setattr(driver, "_bindings", lambda: fake)
            patch.setattr(driver, "_library", lambda: fake.library)
            yield fake
    finally:
        for one in CACHED:
            one.cache_clear()
