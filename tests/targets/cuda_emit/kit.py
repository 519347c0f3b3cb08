"""Texts of this folder, and compiled programs with what is in their binaries. Skips where the compiler is missing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.marks import assembler

from treadle.machine.form import MachineProgram
from treadle.machine.parse import parse_machine
from treadle.targets.cuda.emit import EmittedCuda, emit
from treadle.toolchain.nvrtc import CompiledCubin, compile_cuda
from treadle.toolchain.sass import Disassembly, disassemble

TEXTS = Path(__file__).parent / "texts"


@dataclass(frozen=True)
class Built:
    """An emitted program, its cubin, and its machine instructions."""

    emitted: EmittedCuda
    cubin: CompiledCubin
    sass: Disassembly

    def count(self, opcode: str) -> int:
        """How often an opcode stands in all kernels."""
        return sum(self.sass.count(name, opcode) for name in self.sass.opcodes)


def cubin(program: MachineProgram, name: str = "test") -> CompiledCubin:
    """The program's cubin; skips where nothing compiles it."""
    assembler()
    emitted = emit(program)
    return compile_cuda(emitted.source, arch=emitted.arch, name=name)


@cache
def text(name: str) -> MachineProgram:
    """A machine program of this folder."""
    return parse_machine((TEXTS / f"{name}.tdm").read_text())


def built(program: MachineProgram, name: str = "test") -> Built:
    """The program compiled for its target; skips where nothing compiles or disassembles it."""
    assembler()
    emitted = emit(program)
    cubin = compile_cuda(emitted.source, arch=emitted.arch, name=name)
    return Built(emitted, cubin, disassemble(cubin.cubin))


def small(
    body: str, declarations: str = "", *, threads: int = 128, target: str = "cuda:sm_90a", grid: str = "1"
) -> str:
    """A machine text of one role and one launch around a body; tensors X, Y: f32[M, N] and I: i32[N]."""
    return f"""tdm 1
target {target}
program {{
  program around
    dim M
    dim N
    tensor X: f32[M, N]
    tensor I: i32[N]
    tensor Y: f32[M, N] out
    body
      region R0 parallel (m in M)
        %x: f32[m, N] = load X[m, N]
        store Y[m, N] = %x
}}
guard {{
  1 <= M
  1 <= N
  unit(X, 1)
  unit(Y, 1)
  N % 4 == 0
  pitch(X, 0) % 4 == 0
  pitch(Y, 0) % 4 == 0
  align(X) >= 16
  align(Y) >= 16
  disjoint(X, Y)
}}
host {{
  launch main grid {grid} threads {threads}
}}
kernel main {{
{declarations.rstrip()}
  role worker agents 1 threads {threads} {{
{body.rstrip()}
  }}
}}
"""
