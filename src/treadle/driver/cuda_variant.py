"""Variants on a GPU: from a verified plan to a cubin, and from a call's argument block to launches.

The launches of a call (grids, arguments, tensor maps) are computed from the same emission that the cubin was compiled
from: a record keeps machine text and cubin, and the emission is repeated when the record is loaded.
"""

from __future__ import annotations

from typing import Any

from treadle.driver.pipeline import Timeline
from treadle.driver.record import Record
from treadle.ir.extents import extent_sources
from treadle.machine.form import MachineProgram
from treadle.machine.parse import parse_machine
from treadle.runtime.arrays import view
from treadle.runtime.cuda import CudaLaunch, CudaModule, load_cubin
from treadle.runtime.driver import current, device, driver, ok, ordinal_of
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
    return (
        emitted.source,
        compiled.cubin,
        {
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
        self._workspace: dict[int, tuple[int, int]] = {}

    def run(self, block: Block) -> None:
        """Launches for one argument block. *Errors*: `cuda/*`, `emit/cuda-extent`."""
        for launch in self.launches(block):
            launch()

    def launches(self, block: Block) -> list[CudaLaunch]:
        """The launches of a block, in order, each ready to be repeated."""
        ordinal = self._ordinal(block)
        module = self._module(ordinal)
        call = self._call(block, 0)
        need = workspace_bytes(self.emitted, call)
        if need:
            call = self._call(block, self._room(ordinal, need))
        found: list[CudaLaunch] = []
        for ready in prepare(self.emitted, call):
            cluster = ready.geometry.cluster[0]
            function = module.function(ready.kernel, shared=ready.geometry.shared, cluster=cluster)
            found.append(CudaLaunch(function, ready.geometry, ready.arguments, keeps=block.arguments))
        return found

    def _ordinal(self, block: Block) -> int:
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
        extents = block_extents(self.machine, shapes)
        return Call(extents, pointers, strides, scalars, workspace)

    def _room(self, ordinal: int, size: int) -> int:
        """Device memory for the workspace, kept and grown."""
        address, have = self._workspace.get(ordinal, (0, 0))
        if have >= size:
            return address
        doing = f"allocating {size} bytes of workspace for {self.name}"
        with current(device(ordinal)):
            if address:
                ok(driver().cuMemFree(address), doing)
            address = int(ok(driver().cuMemAlloc(size), doing))
        self._workspace[ordinal] = (address, size)
        return address


def block_extents(machine: MachineProgram, shapes: dict[str, tuple[int, ...]]) -> dict[str, int]:
    """Extents of a call by symbol, from the shapes in its block."""
    program = machine.program
    found: dict[str, int] = {}
    for source in extent_sources(program, [t for t in program.tensors if t.name in shapes]):
        if source.tensor is None:
            assert source.expr is not None
            found[source.symbol] = int(source.expr.evaluate(found))
        else:
            divisor = max(1, int(source.divisor.evaluate(found)))
            found[source.symbol] = shapes[source.tensor][source.axis] // divisor
    return found


class CudaBound:
    """A call made ready: its launches, repeated in order."""

    def __init__(self, launches: list[CudaLaunch], outs: Any) -> None:
        self.launches = launches
        self.outs = outs

    def __call__(self) -> Any:
        """Launches; returns the Outs."""
        for launch in self.launches:
            launch()
        return self.outs
