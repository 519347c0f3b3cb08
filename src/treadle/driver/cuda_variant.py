"""Variants on a GPU: from a verified plan to a cubin, and from a call's argument block to launches.

The launches of a call (grids, arguments, tensor maps) are computed from the same emission that the cubin was compiled
from: a record keeps machine text and cubin, and the emission is repeated when the record is loaded. Workspace is taken
for each call in the order of its stream: calls on several streams, and captured ones, share none.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

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
from treadle.runtime.device_memory import clear, give, take, taken
from treadle.runtime.driver import current, device, driver, ok, ordinal_of
from treadle.runtime.errors import ModuleUnusable
from treadle.runtime.launch import Block, called_with
from treadle.runtime.signature import ScalarParam, Signature, TensorParam
from treadle.runtime.streams import current_stream, kept, order_of, ordered, refuse_capture
from treadle.targets.cuda.emit import Call, EmittedCuda, cleared_bytes, emit, prepare, workspace_bytes
from treadle.toolchain.nvrtc import CompiledCubin, compile_cuda


def compiled(machine: MachineProgram, timeline: Timeline | None = None) -> tuple[EmittedCuda, CompiledCubin]:
    """The text of a plan and its cubin. *Errors*: `cuda/no-nvrtc` and others of the toolchain.

    Of launches that do not ask for company on a multiprocessor the assembler makes room for some, and may spill for it:
    they are assembled again, for one workgroup a multiprocessor.
    """
    timeline = timeline or Timeline()
    for sole in (False, True):
        with timeline.stage("emit"):
            emitted = emit(machine, sole=sole)
        with timeline.stage("assemble"):
            made = compile_cuda(emitted.source, arch=emitted.arch, name=machine.program.name)
        if sole or not any(k.spill_stores + k.spill_loads for k in made.kernels):
            break
        if all(launch.resident for launch in machine.host.launches):
            break  # each asks for as many as there are
    return emitted, made


def assemble(machine: MachineProgram, timeline: Timeline) -> tuple[str, bytes, dict[str, Any]]:
    """Text, cubin, and what the compiler said of it. *Errors*: `cuda/no-nvrtc` and others of the toolchain."""
    emitted, made = compiled(machine, timeline)
    resources = {k.name: k for k in made.kernels}
    spilled = {n: r.spill_stores + r.spill_loads for n, r in resources.items() if r.spill_stores + r.spill_loads}
    late = [f"{n} spills {size} bytes" for n, size in spilled.items()]
    late += [f"{m.code}: {m.text}" for m in made.messages if m.code]
    return (
        emitted.source,
        made.cubin,
        {
            "late": late,
            "compiler": made.compiler,
            "arch": emitted.arch,
            "registers": {n: r.registers for n, r in resources.items()},
            "spills": spilled,
            "messages": [f"{m.code}: {m.text}" for m in made.messages],
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

    def run(self, block: Block) -> None:
        """Launches for one argument block. *Errors*: `cuda/*`, `emit/cuda-extent`."""
        CudaCall(self, block)()
        kept(block)

    def ready(self, block: Block) -> CudaCall:
        """A block's launches, ready to be repeated; they keep no arrays alive."""
        return CudaCall(self, block)

    def workspace(self, call: Call) -> int:
        """Bytes that a call's launches need beside its arguments."""
        return workspace_bytes(self.emitted, call)

    def cleared(self, call: Call) -> int:
        """Bytes at the end of the workspace that are zero when the first launch begins."""
        return cleared_bytes(self.emitted, call)

    def launches(self, call: Call, ordinal: int) -> list[CudaLaunch]:
        """The launches of a call on a device, in order, each ready to be repeated while the arrays and the workspace
        are there."""
        module = self._module(ordinal)
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
            on, arch = device(ordinal), self.emitted.arch
            try:
                module = load_cubin(self.cubin, arch, on, name=self.name)
            except ModuleUnusable:
                # Kept from another time, driver or toolkit, or damaged: what it was made of is at hand.
                self.cubin = compiled(self.machine)[1].cubin
                module = load_cubin(self.cubin, arch, on, name=self.name)
            self._modules[ordinal] = module
        return self._modules[ordinal]

    def words(self, block: Block) -> Call:
        """The words of a block by name, without a workspace."""
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
        return Call(extents, pointers, strides, scalars)


class CudaCall:
    """What a call does on a stream: its launches in order, repeated. `order` says how that stream is found.

    Keeps code alive, and no arrays. May run on several streams and in several threads at once: each run has a workspace
    of its own.
    """

    def __init__(self, kernel: CudaKernel, block: Block) -> None:
        self.ordinal = kernel.ordinal(block)
        self.order = order_of(a for a, p in zip(block.arguments, kernel.signature.params) if isinstance(p, TensorParam))
        self._kernel, self._words = kernel, kernel.words(block)
        self._need, self._cleared = kernel.workspace(self._words), kernel.cleared(self._words)
        # By the address of the workspace: the pool mostly gives the one of the last call.
        self._launches: dict[int, list[CudaLaunch]] = {}
        self._plain = None if self._need else kernel.launches(self._words, self.ordinal)

    def __call__(self) -> None:
        """Launches on the stream that is current. *Errors*: `cuda/*`, `emit/cuda-extent`."""
        order = self.order
        if order.plain:
            self.enqueue(current_stream(self.ordinal, order.library))
            return
        with ordered(self.ordinal, order) as stream:
            self.enqueue(stream)

    def enqueue(self, stream: int) -> None:
        """Launches on a stream."""
        if self._plain is not None:
            for launch in self._plain:
                launch.enqueue(stream)
            return
        with taken(self.ordinal, self._need, stream, self._kernel.name) as address:
            launches = self._launches.get(address)
            if launches is None:
                if len(self._launches) >= _ADDRESSES:
                    self._launches = {}
                launches = self._kernel.launches(replace(self._words, workspace=address), self.ordinal)
                self._launches[address] = launches
            if self._cleared:
                clear(self.ordinal, address + self._need - self._cleared, self._cleared, stream)
            for launch in launches:
                launch.enqueue(stream)


_ADDRESSES = 16
"""Workspaces whose launches a call keeps."""


_RUN_BEFORE = "call it outside the capture: it reads and writes arrays on the host"


def refuse_recorded(call: Arguments, doing: str) -> None:
    """*Errors*: `cuda/capture` for a call whose results are read on the host after each launch, inside a capture."""
    ordinal = ordinal_of(call.device)
    stream = current_stream(ordinal, order_of(call.arrays.values()).library)
    refuse_capture(ordinal, stream, doing, "its results are read after every launch", _RUN_BEFORE)


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
    order = order_of(views.values())
    stream = current_stream(ordinal, order.library)
    refuse_capture(ordinal, stream, doing, "the reference interpreter runs here", _RUN_BEFORE)
    with current(device(ordinal)):
        for one in dict.fromkeys((stream, *(current_stream(ordinal, other) for other in order.others))):
            ok(cu.cuStreamSynchronize(cu.CUstream(one)), doing)
        for low, copy in copies:
            ok(cu.cuMemcpyDtoH(copy.ctypes.data, low, copy.size), doing)
    yield {name: _image(v, copies) for name, v in views.items()}
    with current(device(ordinal)):
        for low, copy in copies:
            if any(v.writable and low <= v.span[0] < low + copy.size for v in views.values()):
                ok(cu.cuMemcpyHtoD(low, copy.ctypes.data, copy.size), doing)
        ok(cu.cuStreamSynchronize(cu.CUstream(0)), doing)  # a copy from pageable memory returns before it has arrived


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
    """A call whose inputs `names` are copied on their device before its launches, in memory of its own.

    `call` may be run once `refresh` has enqueued the copies; `close` gives the memory back in the order of the stream.
    """

    def __init__(self, call: Arguments, names: Sequence[str]) -> None:
        self._moves: list[tuple[int, int, int]] = []
        self._ordinal = ordinal_of(call.device)
        self._order = replace(order_of(call.arrays.values()), wait=False)
        self._stream = current_stream(self._ordinal, self._order.library)
        self._taken: list[int] = []
        views, arrays = dict(call.views), dict(call.arrays)
        for name in names:
            old = call.views[name]
            low, high = old.span
            # The copy lies as the original does, gaps included: what was aligned is.
            within = low % _LINE
            room = take(self._ordinal, high - low + 2 * _LINE, self._stream, f"a copy of {name}")
            self._taken.append(room)
            first = -(-room // _LINE) * _LINE + within
            # The original goes along: its library tells the stream.
            arrays[name] = views[name] = replace(old, ptr=first + old.ptr - low, writable=True)
            if high > low:
                self._moves.append((first, low, high - low))
        self.call = replace(call, views=views, arrays=arrays)

    @property
    def addresses(self) -> tuple[int, ...]:
        """Where the copies are."""
        return tuple(self._taken)

    def refresh(self) -> None:
        """Takes the values that the inputs have now."""
        cu, doing = driver(), "copying inputs that lie on an output"
        with ordered(self._ordinal, self._order) as stream, current(device(self._ordinal)):
            for to, at, size in self._moves:
                ok(cu.cuMemcpyDtoDAsync(to, at, size, cu.CUstream(stream)), doing)

    def close(self) -> None:
        """Gives the memory back. *Requires*: the call has been enqueued, or never will be."""
        rooms, self._taken = self._taken, []
        for room in rooms:
            give(self._ordinal, room, self._stream)


_LINE = 256


class Binding(Protocol):
    """What makes a call ready: a specialisation."""

    def bind(self, call: Arguments) -> Any: ...


class CudaCopying:
    """A call made ready that copies inputs before its launches, each time into memory of that time."""

    def __init__(self, special: Binding, call: Arguments, names: Sequence[str]) -> None:
        self._special, self._call, self._names = special, call, names
        self._ready: dict[tuple[int, ...], Any] = {}
        self.outs = call.outs

    def __call__(self, *given: Any) -> Any:
        """Copies, launches, returns the Outs. *Errors*: `call/bound`."""
        if given:
            raise called_with(self, given)
        copies = CudaCopies(self._call, self._names)
        try:
            ready = self._ready.get(copies.addresses)
            if ready is None:
                if len(self._ready) >= _ADDRESSES:
                    self._ready = {}
                ready = self._ready[copies.addresses] = self._special.bind(copies.call)
            copies.refresh()
            ready()
        finally:
            copies.close()
        return self.outs

    launch = __call__


class CudaBound:
    """A call made ready: its launches, repeated in order on the stream that is current then.

    Keeps arrays and code alive. It may run on several streams, and be captured: each run has a workspace of its own.
    """

    def __init__(self, kernel: CudaKernel, block: Block, outs: Any) -> None:
        self.call = CudaCall(kernel, block)
        self.outs = outs
        self._block = block

    def __call__(self, *given: Any) -> Any:
        """Launches; returns the Outs. *Errors*: `call/bound`."""
        if given:
            raise called_with(self, given)
        self.call()
        kept(self._block)
        return self.outs

    launch = __call__
