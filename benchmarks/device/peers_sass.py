"""Instruction counts of our code and theirs, from the archive that peers.py leaves. Needs no GPU.

`python benchmarks/device/peers_sass.py CUBINS.tar.gz OUT.json`. *Method*: every cubin is disassembled (nvdisasm) and
its instructions counted as they stand, by what they do; PTX by its own opcodes. Code is not weighted by how often it
runs, so counts compare kernels of one kind, not times.
"""

from __future__ import annotations

import json
import pathlib
import re
import sys
import tarfile
from collections import Counter
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src"))

from treadle.toolchain.sass import disassemble

KINDS = {
    "tensor core": r"(HGMMA|QGMMA|IGMMA|HMMA|IMMA)$",
    "engine copy": r"(UTMALDG|UTMASTG|UBLKCP|LDGSTS)$",
    "global load": r"LDG$",
    "global store": r"STG$",
    "shared": r"(LDS|STS|LDSM|STSM|ATOMS)$",
    "local (spill)": r"(LDL|STL)$",
    "barrier": r"(BAR|SYNCS|WARPSYNC|WARPGROUP|DEPBAR|FENCE|MEMBAR)$",
    "special function": r"MUFU$",
    "float": r"(F|HF|H|D)(ADD|MUL|FMA|SETP|MNMX|SEL)2?$",
    "convert": r"(F2F|F2FP|F2I|I2F|PRMT)",
    "integer": r"(U?IMAD|U?IADD3?|U?LEA|U?LOP3|U?SHF|U?ISETP|SEL|VIADD|IABS|VIMNMX|R2UR|U?MOV)$",
    "branch": r"(BRA|BRX|EXIT|CALL|RET|BSSY|BSYNC|WARPSYNC|PLOP3)$",
}


def kinds(opcodes: Counter[str]) -> dict[str, int]:
    """Counts by what instructions do."""
    found: Counter[str] = Counter()
    for opcode, count in opcodes.items():
        found[next((k for k, pattern in KINDS.items() if re.match(pattern, opcode)), "other")] += count
    return dict(found)


def of_cubin(data: bytes) -> list[dict[str, Any]]:
    """A row for each kernel."""
    seen = disassemble(data)
    rows: list[dict[str, Any]] = []
    for kernel, opcodes in seen.opcodes.items():
        row = {"kernel": kernel, "instructions": opcodes.total(), "kinds": kinds(opcodes)}
        row["wide loads"] = seen.count(kernel, "LDG.E.128")
        rows.append({**row, "opcodes": dict(opcodes.most_common(12))})
    return rows


def of_ptx(text: str) -> dict[str, Any]:
    """Counts of PTX by opcode."""
    found: Counter[str] = Counter(re.findall(r"^\s+(?:@!?%\w+\s+)?([a-z][a-z0-9_]*(?:\.[a-z_]+)?)", text, re.MULTILINE))
    return {"instructions": found.total(), "opcodes": dict(found.most_common(12))}


def main(archive: str, out: str) -> None:
    rows: list[dict[str, Any]] = []
    with tarfile.open(archive) as file:
        for member in sorted(file.getmembers(), key=lambda m: m.name):
            data = file.extractfile(member)
            assert data is not None
            side, name = member.name.split("/", 1)
            if name.endswith(".ptx"):
                rows.append({"side": side, "file": name, "form": "ptx", **of_ptx(data.read().decode())})
                continue
            for row in of_cubin(data.read()):
                rows.append({"side": side, "file": name, "form": "sass", **row})
                print(f"{side:8} {name[:56]:56} {row['kernel'][:24]:24} {row['instructions']:6} {row['kinds']}")
    pathlib.Path(out).write_text(json.dumps({"experiment": "instruction counts", "method": __doc__, "rows": rows}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
