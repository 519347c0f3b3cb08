"""A cubin read back: which machine instructions each kernel really contains.

The disassembler comes with the extra `treadle[cuda]` and runs as a process of its own. Counting is by opcode, the word
before the first dot: `HGMMA.64x128x16.F32.BF16` counts as `HGMMA`.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from treadle.toolchain.errors import DisassemblerFailed, DisassemblerMissing

_KERNEL = re.compile(r"^\.text\.([\w$.]+):")
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[T\d]+\s+)?([A-Z][A-Z0-9_]*)((?:\.[\w]+)*)")


@dataclass(frozen=True, slots=True)
class Disassembly:
    """Text and counts. `opcodes[kernel]` counts by opcode, `spelled[kernel]` by the full name with its suffixes."""

    text: str
    opcodes: dict[str, Counter[str]]
    spelled: dict[str, Counter[str]]

    def count(self, kernel: str, opcode: str) -> int:
        """How often `opcode` stands in `kernel`; `"LDG.E.128"` counts names that begin with it at a dot.

        Errors: KeyError for a kernel that the cubin lacks.
        """
        if "." not in opcode:
            return self.opcodes[kernel][opcode]
        names = self.spelled[kernel]
        return sum(n for name, n in names.items() if name == opcode or name.startswith(opcode + "."))


def find_disassembler() -> Path:
    """The path of nvdisasm: among the installed packages of this Python, else on PATH.

    Errors: toolchain/disassembler-missing.
    """
    spec = importlib.util.find_spec("nvidia")
    for root in spec.submodule_search_locations or () if spec is not None else ():
        for candidate in sorted(Path(root).glob("*/bin/nvdisasm*")):
            if candidate.is_file():
                return candidate
    found = shutil.which("nvdisasm")
    if found is not None:
        return Path(found)
    raise DisassemblerMissing(
        doing="looking for the CUDA disassembler",
        found="no nvdisasm among this Python's packages, nor on PATH",
        expected="the package nvidia-cuda-nvdisasm",
        hint="in a checkout of the repository: ./dev setup cuda, or pip install '.[cuda]'",
    )


def disassemble(cubin: bytes, *, timeout: float = 60.0) -> Disassembly:
    """The machine instructions of `cubin`.

    Units: `timeout` in seconds. Errors: toolchain/disassembler-missing, toolchain/disassembler-failed.
    """
    tool = find_disassembler()
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        try:
            done = subprocess.run(
                [str(tool), "-c", file.name], capture_output=True, text=True, timeout=timeout, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _failure(f"{type(error).__name__}: {error}") from error
    if done.returncode != 0:
        words = done.stderr.replace(file.name, "the cubin").strip()
        raise _failure(f"exit status {done.returncode}\n{words}".strip())
    return parse_disassembly(done.stdout)


def parse_disassembly(text: str) -> Disassembly:
    """Counts by kernel from nvdisasm's text."""
    opcodes: dict[str, Counter[str]] = {}
    spelled: dict[str, Counter[str]] = {}
    current: str | None = None
    for line in text.splitlines():
        section = _KERNEL.match(line)
        if section is not None:
            current = str(section[1])
            opcodes[current], spelled[current] = Counter(), Counter()
            continue
        instruction = _INSTRUCTION.match(line) if current is not None else None
        if current is not None and instruction is not None:
            opcodes[current][instruction[1]] += 1
            spelled[current][instruction[1] + instruction[2]] += 1
    return Disassembly(text, opcodes, spelled)


def _failure(found: str) -> DisassemblerFailed:
    return DisassemblerFailed(
        doing="disassembling a cubin",
        found=found,
        expected="a cubin that nvdisasm reads",
        hint="check that nvidia-cuda-nvdisasm is of the CUDA version that made the cubin, or newer",
    )
