"""Variants on a GPU: from a verified plan to a cubin, and from a call's argument block to launches.

The launches of a call (grids, arguments, tensor maps) are computed from the same emission that the cubin was compiled
from: a record keeps machine text and cubin, and the emission is repeated when the record is loaded.
"""

from __future__ import annotations

import weakref
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from treadle.driver.arguments import Call as Arguments
from treadle.driver.packed import element_shapes
from treadle.driver.pipeline import Timeline
from treadle.driver.record import Record
from treadle.ir.extents import told_extents
from treadle.machine.form import MachineProgram
from treadle.machine.parse import parse_machine
from treadle.runtime.arrays import ArrayView, numpy_dtype, view
from treadle.runtime.cuda import CudaLaunch, CudaModule, load_cubin
from treadle.runtime.driver import current, current_stream, device, driver, ok, ordinal_of
from treadle.runtime.launch import Block
from treadle.runtime.signature import ScalarParam, Signature, TensorParam
from treadle.targets.cuda.emit import Call, EmittedCuda, emit, prepare, workspace_bytes
from treadle.toolchain.nvrtc import compile_cuda


def assemble(machine: MachineProgram, timeline: Timeline) -> tuple[str, bytes, dict[str, Any]]:
    """Text, cubin, and what the compiler said of it. *Errors*: `cuda/no-nvrtc` and others of the toolchain."""
    with timeline.stage("emit"):
        emitted = emit(machine)
    with timeline.stage("assemble"):
        compiled = compile_cuda(emitted.source, arch=emitted.arch, name=machine.program.name)
    resources = {k.name: k for k in compiled.kernels}
    spilled = {n: r.spill_stores + r.spill_loads for n, r in resources.items() if r.spill_stores + r.spill_loads}
    late = [f"{n} spills {size} bytes" for n, size in spilled.items()]
    late += [f"{m.code}: {m.text}" for m in compiled.messages if m.code]
    return (
        emitted.source,
        compiled.cubin,
        {
            "late": late,
            "compiler": compiled.compiler,
            "arch": emitted.arch,
            "registers": {n: r.registers for n, r in resources.items()},
            "spills": spilled,
            "messages": [f"{m.code}: {m.text}" for m in compiled.messages],
        },
    )


class CudaKernel:
    """A loaded plan on the GPU of its arguments. `run` launches on the stream current there."""

    def __init__(self, record: Record, signature: Signature) -> None:
        self.machine = parse_machine(record.machine)
        self.emitted: EmittedCuda = emit(self.machine)
        self.signature = signature
        self.cubin = record.code
        self.name = self.machine.program.name
        self._modules: dict[int, CudaModule] = {}
        self._workspace: dict[tuple[int, int], DeviceMemory] = {}

    def run(self, block: Block) -> None:
        """Launches for one argument block. *Errors*: `cuda/*`, `emit/cuda-extent`."""
        ordinal = self.ordinal(block)
        need = self.workspace(block)
        room = None
        if need:
            # Launches on one stream come one after the other and may share; a larger room frees the old one, which
            # waits for the device.
            key = ordinal, current_stream(ordinal)
            room = self._workspace.get(key)
            if room is None or room.size < need:
                room = self._workspace[key] = DeviceMemory(ordinal, need, self.name)
        for launch in self.launches(block, room):
            launch()

    def workspace(self, block: Block) -> int:
        """Bytes that a block's launches need beside its arguments."""
        return workspace_bytes(self.emitted, self._call(block, 0))

    def launches(self, block: Block, room: DeviceMemory | None) -> list[CudaLaunch]:
        """The launches of a block, in order, each ready to be repeated while `room` and the arrays are kept alive."""
        module = self._module(self.ordinal(block))
        call = self._call(block, 0 if room is None else room.address)
        found: list[CudaLaunch] = []
        for ready in prepare(self.emitted, call):
            cluster = ready.geometry.cluster[0]
            function = module.function(ready.kernel, shared=ready.geometry.shared, cluster=cluster)
            found.append(CudaLaunch(function, ready.geometry, ready.arguments))
        return found

    def ordinal(self, block: Block) -> int:
        """The number of the device on which a block's arrays lie."""
        for argument, param in zip(block.arguments, self.signature.params):
            if isinstance(param, TensorParam):
                return ordinal_of(view(argument, name=param.name).device)
        return 0

    def _module(self, ordinal: int) -> CudaModule:
        if ordinal not in self._modules:
            self._modules[ordinal] = load_cubin(self.cubin, self.emitted.arch, device(ordinal), name=self.name)
        return self._modules[ordinal]

    def _call(self, block: Block, workspace: int) -> Call:
        """The words of a block by name."""
        pointers: dict[str, int] = {}
        strides: dict[str, list[int]] = {}
        shapes: dict[str, tuple[int, ...]] = {}
        scalars: dict[str, tuple[int, int | None]] = {}
        words = block.words
        for param, at in zip(self.signature.params, self.signature.offsets):
            if isinstance(param, ScalarParam):
                whole = param.dtype[0] in "iub" and param.dtype != "bf16"
                scalars[param.name] = (words[at], words[at] if whole else None)
            else:
                pointers[param.name] = words[at] % (1 << 64)
                shapes[param.name] = tuple(words[at + 1 : at + 1 + param.rank])
                strides[param.name] = list(words[at + 1 + param.rank : at + 1 + 2 * param.rank])
        extents = told_extents(self.machine.program, element_shapes(self.machine.program, shapes))
        return Call(extents, pointers, strides, scalars, workspace)


class DeviceMemory:
    """Memory of a device that goes back, after the device has finished what it has to do, when nobody keeps it."""

    def __init__(self, ordinal: int, size: int, name: str) -> None:
        self.size = size
        doing = f"allocating {size} bytes of workspace for {name}"
        with current(device(ordinal)):
            self.address = int(ok(driver().cuMemAlloc(size), doing))
        weakref.finalize(self, _give_back, ordinal, self.address).atexit = False


def _give_back(ordinal: int, address: int) -> None:
    with current(device(ordinal)):
        driver().cuCtxSynchronize()
        driver().cuMemFree(address)


@contextmanager
def images(views: Mapping[str, ArrayView]) -> Generator[dict[str, Any]]:
    """Arrays of a device as NumPy arrays over copies; at the end the copies that hold a writable array go back.

    Arrays whose addresses meet share one copy, so that what is written through one is seen through the other.
    """
    spans: list[list[int]] = []
    for low, high in sorted(v.span for v in views.values()):
        if spans and low < spans[-1][1]:
            spans[-1][1] = max(spans[-1][1], high)
        elif high > low:
            spans.append([low, high])
    copies = [(low, np.empty(high - low, np.uint8)) for low, high in spans]
    ordinal = next((ordinal_of(v.device) for v in views.values()), 0)
    cu, doing = driver(), "copying arrays from the device and back"
    with current(device(ordinal)):
        ok(cu.cuStreamSynchronize(cu.CUstream(current_stream(ordinal))), doing)
        for low, copy in copies:
            ok(cu.cuMemcpyDtoH(copy.ctypes.data, low, copy.size), doing)
    yield {name: _image(v, copies) for name, v in views.items()}
    with current(device(ordinal)):
        for low, copy in copies:
            if any(v.writable and low <= v.span[0] < low + copy.size for v in views.values()):
                ok(cu.cuMemcpyHtoD(low, copy.ctypes.data, copy.size), doing)


def _image(seen: ArrayView, copies: list[tuple[int, Any]]) -> Any:
    dtype = numpy_dtype(seen.dtype)
    if seen.size == 0:
        return np.empty(seen.shape, dtype)
    low, copy = next((low, copy) for low, copy in copies if low <= seen.span[0] < low + copy.size)
    made: Any = np.ndarray(
        seen.shape, dtype, copy.data, seen.ptr - low, tuple(s * dtype.itemsize for s in seen.strides)
    )
    made.flags.writeable = seen.writable
    return made


class CudaCopies:
    """A call whose inputs `names` are copied on their device before each launch, on the stream that is current then.

    `rooms` keeps memory of earlier calls: launches on one stream come one after the other and may share it.
    """

    def __init__(self, call: Arguments, names: Sequence[str], rooms: dict[tuple[int, int, str], DeviceMemory]) -> None:
        self._moves: list[tuple[int, int, int]] = []
        self._ordinal = ordinal_of(call.device)
        stream = current_stream(self._ordinal)
        views, arrays = dict(call.views), dict(call.arrays)
        for name in names:
            old = call.views[name]
            low, high = old.span
            # The copy lies as the original does, gaps included: what was aligned is.
            need, within = high - low + 2 * _LINE, low % _LINE
            key = self._ordinal, stream, name
            room = rooms.get(key)
            if room is None or room.size < need:
                room = rooms[key] = DeviceMemory(self._ordinal, need, f"a copy of {name}")
            first = -(-room.address // _LINE) * _LINE + within
            arrays[name] = views[name] = replace(old, ptr=first + old.ptr - low, writable=True, owner=room)
            if high > low:
                self._moves.append((first, low, high - low))
        self.call = replace(call, views=views, arrays=arrays)

    def refresh(self) -> None:
        """Takes the values that the inputs have now."""
        cu, doing = driver(), "copying inputs that lie on an output"
        with current(device(self._ordinal)):
            stream = cu.CUstream(current_stream(self._ordinal))
            for to, at, size in self._moves:
                ok(cu.cuMemcpyDtoDAsync(to, at, size, stream), doing)


_LINE = 256


class CudaBound:
    """A call made ready: its launches, repeated in order on the stream that is current then.

    Keeps arrays, workspace and code alive. Repeat it on one stream at a time when it has a workspace.
    """

    def __init__(self, kernel: CudaKernel, block: Block, outs: Any) -> None:
        need = kernel.workspace(block)
        self._room = DeviceMemory(kernel.ordinal(block), need, kernel.name) if need else None
        self._block = block
        self.launches = kernel.launches(block, self._room)
        self.outs = outs

    def __call__(self) -> Any:
        """Launches; returns the Outs."""
        for launch in self.launches:
            launch()
        return self.outs

    launch = __call__
