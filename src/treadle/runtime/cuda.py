"""Cubins onto a device, and launches.

`load_cubin` gives a module; its `function` a kernel that is ready to launch, with its dynamic shared memory set.
`CudaLaunch` is a call made ready once: by-value arguments laid out, launch configuration filled; running it again is
one driver call on the stream that is current then. All on the arguments' own device. Several threads may run one
launch at once, on several streams: nothing that it holds is changed by running it.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from treadle.runtime.device_memory import entered
from treadle.runtime.driver import Device, current, driver, entry, failure, ok
from treadle.runtime.errors import DeviceMissing, LaunchInvalid
from treadle.runtime.streams import current_stream, kept, relaxed
from treadle.runtime.tensor_map import BYTES as TENSOR_MAP_BYTES
from treadle.runtime.tensor_map import TensorMapSpec

Extents = tuple[int, int, int]
_MAX_GRID = ((1 << 31) - 1, 65535, 65535)
_MAX_BLOCK = (1024, 1024, 64)
_DEFAULT_SHARED = 48 << 10


@dataclass(frozen=True, slots=True)
class Geometry:
    """The shape of a launch. Units: `grid` in workgroups, `block` in lanes, `cluster` in workgroups, `shared` in
    bytes of dynamic shared memory. `dependent`: it may begin before the launch before it has ended."""

    grid: Extents
    block: Extents
    cluster: Extents = (1, 1, 1)
    shared: int = 0
    cooperative: bool = False
    dependent: bool = False

    def problems(self, max_threads: int = 1024, shared_bytes: int = 227 << 10) -> list[str]:
        """The rules that this geometry breaks, as text. A grid of no workgroups breaks none: nothing is launched."""
        found: list[str] = []
        for axis, (extent, most) in enumerate(zip(self.grid, _MAX_GRID)):
            if not 0 <= extent <= most:
                found.append(f"grid extent {extent} of axis {axis}: not in 0..{most}")
        for axis, (extent, most) in enumerate(zip(self.block, _MAX_BLOCK)):
            if not 1 <= extent <= most:
                found.append(f"block extent {extent} of axis {axis}: not in 1..{most}")
        if math.prod(self.block) > max_threads:
            found.append(f"{math.prod(self.block)} lanes a workgroup: more than {max_threads}")
        for axis, (blocks, extent) in enumerate(zip(self.grid, self.cluster)):
            if extent < 1 or blocks % extent:
                found.append(f"cluster extent {extent} of axis {axis}: does not divide the grid's {blocks}")
        if math.prod(self.cluster) > 16:
            found.append(f"{math.prod(self.cluster)} workgroups a cluster: more than 16")
        if not 0 <= self.shared <= shared_bytes:
            found.append(f"{self.shared} bytes of shared memory: more than the {shared_bytes} of the device")
        return found

    def check(self, on: Device) -> None:
        """Hold the geometry against the device. Errors: cuda/launch."""
        found = self.problems(on.max_threads, on.shared_bytes)
        if found:
            raise LaunchInvalid(
                doing=f"launching on {on.name}",
                found="\n".join(found),
                expected="a launch that the device can take; the plan's guard should have seen to it",
                pass_name="runtime.cuda",
                before=repr(self),
            )


@dataclass(frozen=True, slots=True)
class Pointer:
    """A kernel argument: an address on the device."""

    address: int


@dataclass(frozen=True, slots=True)
class Scalar:
    """A kernel argument: a number of `size` bytes, given by its bit pattern."""

    bits: int
    size: int


CudaArgument = Pointer | Scalar | TensorMapSpec


class ArgumentBlock:
    """Arguments laid out for a launch: each at its alignment in one buffer, and the array of their addresses.

    Ensures: `pointers[i]` is the address of argument `i`; tensor maps lie at multiples of 64 bytes.
    """

    def __init__(self, arguments: Sequence[CudaArgument]) -> None:
        encoded = [_encode(argument) for argument in arguments]
        self.offsets: list[int] = []
        size = 0
        for data, alignment in encoded:
            size = -(-size // alignment) * alignment
            self.offsets.append(size)
            size += len(data)
        self._buffer = (ctypes.c_char * (size + 64))()
        start = ctypes.addressof(self._buffer)
        self.base = -(-start // 64) * 64
        for (data, _), offset in zip(encoded, self.offsets):
            ctypes.memmove(self.base + offset, data, len(data))
        addresses = [self.base + offset for offset in self.offsets]
        self._pointers = (ctypes.c_void_p * max(len(addresses), 1))(*addresses)
        self.address = ctypes.addressof(self._pointers)

    @property
    def pointers(self) -> list[int]:
        """The addresses of the arguments."""
        return [int(self._pointers[i] or 0) for i in range(len(self.offsets))]


def _encode(argument: CudaArgument) -> tuple[bytes, int]:
    """Bytes and alignment of one argument."""
    if isinstance(argument, Pointer):
        return argument.address.to_bytes(8, "little"), 8
    if isinstance(argument, Scalar):
        return (argument.bits & ((1 << (8 * argument.size)) - 1)).to_bytes(argument.size, "little"), argument.size
    data = argument.encode()
    assert len(data) == TENSOR_MAP_BYTES
    return data, 64


class CudaModule:
    """A cubin loaded on one device."""

    def __init__(self, cubin: bytes, on: Device, name: str) -> None:
        self.device = on
        self.name = name
        self._cubin = cubin
        self._functions: dict[tuple[str, int, int], CudaFunction] = {}
        with current(on), relaxed():
            self._handle = ok(driver().cuModuleLoadData(cubin), f"loading the cubin of {name}")

    def function(self, kernel: str, *, shared: int = 0, cluster: int = 1) -> CudaFunction:
        """The kernel called `kernel`, allowed `shared` bytes of dynamic shared memory and `cluster` workgroups.

        Errors: cuda/failed, cuda/launch.
        """
        key = kernel, shared, cluster
        found = self._functions.get(key)
        if found is None:
            found = self._functions[key] = CudaFunction(self, kernel, shared, cluster)
        return found

    @property
    def handle(self) -> Any:
        """The driver's handle."""
        return self._handle


class CudaFunction:
    """A kernel on a device."""

    def __init__(self, module: CudaModule, kernel: str, shared: int, cluster: int) -> None:
        cu, self.module, self.name, self.shared = driver(), module, kernel, shared
        doing = f"preparing the kernel {kernel} of {module.name}"
        kind = cu.CUfunction_attribute
        with current(module.device), relaxed():
            self.handle = ok(cu.cuModuleGetFunction(module.handle, kernel.encode()), doing)
            self.registers = int(ok(cu.cuFuncGetAttribute(kind.CU_FUNC_ATTRIBUTE_NUM_REGS, self.handle), doing))
            self.static_shared = int(
                ok(cu.cuFuncGetAttribute(kind.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, self.handle), doing)
            )
            self._check_shared(doing)
            if shared + self.static_shared > _DEFAULT_SHARED:
                attribute = kind.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                ok(cu.cuFuncSetAttribute(self.handle, attribute, shared), doing)
            if cluster > 8:
                attribute = kind.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
                ok(cu.cuFuncSetAttribute(self.handle, attribute, 1), doing)

    def _check_shared(self, doing: str) -> None:
        most = self.module.device.shared_bytes
        if self.shared + self.static_shared > most:
            raise LaunchInvalid(
                doing=doing,
                found=f"{self.shared} bytes of dynamic and {self.static_shared} of static shared memory",
                expected=f"at most {most} bytes together on {self.module.device.name}",
                pass_name="runtime.cuda",
            )

    def resident(self, lanes: int) -> int:
        """How many workgroups of `lanes` lanes fit on the device at once: the bound of a cooperative grid."""
        with current(self.module.device) as on:
            each = ok(
                driver().cuOccupancyMaxActiveBlocksPerMultiprocessor(self.handle, lanes, self.shared),
                f"asking how many workgroups of {self.name} fit",
            )
        return int(each) * on.multiprocessors


def load_cubin(cubin: bytes, arch: str, on: Device, *, name: str = "kernel") -> CudaModule:
    """The cubin on device `on`.

    Errors: cuda/no-device when the device does not run code for `arch`; cuda/failed.
    """
    if not on.runs(arch):
        raise DeviceMissing(
            doing=f"loading the cubin of {name}",
            found=f"{on.name}, which is {on.arch}",
            expected=f"a device that runs code for {arch}",
            hint="plan for the device at hand: leave target out",
        )
    return CudaModule(cubin, on, name)


class CudaLaunch:
    """A kernel bound to its arguments. Calling it launches once more, on the stream current then or the given one,
    and returns the Outs. Keeps code and arguments alive; the arrays themselves are in `keeps`.
    """

    def __init__(
        self,
        function: CudaFunction,
        geometry: Geometry,
        arguments: Sequence[CudaArgument],
        outs: Any = None,
        keeps: Any = None,
    ) -> None:
        on = function.module.device
        geometry.check(on)
        self.function, self.geometry, self.outs, self.keeps = function, geometry, outs, keeps
        self.arguments = ArgumentBlock(arguments)
        self._empty = 0 in geometry.grid
        self._ordinal = on.ordinal
        self._launch, self._function = entry("cuLaunchKernelEx"), int(function.handle)
        self._configs: dict[int, tuple[int, Any]] = {}

    def _configuration(self, stream: int) -> tuple[int, Any]:
        """The address of a configuration for a stream, and the configuration."""
        cu, geometry = driver(), self.geometry
        config = cu.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = geometry.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = geometry.block
        config.sharedMemBytes = geometry.shared
        config.hStream = cu.CUstream(stream)
        attributes: list[Any] = []
        if math.prod(geometry.cluster) > 1:
            attributes.append(_attribute(cu, "CLUSTER_DIMENSION"))
            value = cu.CUlaunchAttributeValue()
            value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = geometry.cluster
            attributes[-1].value = value
        if geometry.cooperative:
            attributes.append(_attribute(cu, "COOPERATIVE"))
            value = cu.CUlaunchAttributeValue()
            value.cooperative = 1
            attributes[-1].value = value
        if geometry.dependent:
            attributes.append(_attribute(cu, "PROGRAMMATIC_STREAM_SERIALIZATION"))
            value = cu.CUlaunchAttributeValue()
            value.programmaticStreamSerializationAllowed = 1
            attributes[-1].value = value
        if attributes:
            config.attrs = attributes
            config.numAttrs = len(attributes)
        if len(self._configs) >= _STREAMS:
            self._configs = {}  # a thread that launches by an old one still holds it
        made = self._configs[stream] = int(config.getPtr()), config
        return made

    def __call__(self, stream: int | None = None) -> Any:
        """Launch; returns the Outs, which are ready when the stream has come so far.

        Errors: cuda/failed, cuda/fault, cuda/capture.
        """
        if stream is None:
            stream = current_stream(self._ordinal)
        if not self._empty:
            self.enqueue(stream)
        return self.outs

    def enqueue(self, stream: int) -> None:
        """Launch on a stream; nothing for an empty grid."""
        if self._empty:
            return
        config = self._configs.get(stream) or self._configuration(stream)
        status = self._launch(config[0], self._function, self.arguments.address, 0)
        if status in _OTHER_CONTEXT and stream <= 2:
            # A stream of its own carries its context, a default one is of the context that is current: mostly ours.
            with entered(self._ordinal, stream):
                status = self._launch(config[0], self._function, self.arguments.address, 0)
        if status:
            raise failure(status, f"launching {self.function.name}")
        kept(self)

    launch = __call__


_OTHER_CONTEXT = (201, 400)
"""Statuses of a launch while another context is current, or none."""

_STREAMS = 64
"""Configurations that a launch keeps, one a stream."""


def _attribute(cu: Any, which: str) -> Any:
    attribute = cu.CUlaunchAttribute()
    attribute.id = getattr(cu.CUlaunchAttributeID, f"CU_LAUNCH_ATTRIBUTE_{which}")
    return attribute
