"""Texts whose workgroups count, draw tickets or reach one another's memory, on the device: sums of rows, exactly.

`python benchmarks/device/members.py make` compiles (no GPU needed) to benchmarks/build/members;
`python benchmarks/device/members.py run OUT.json` runs there. Inputs are small integers, so a lost, doubled or early
part shows in any of the repeated launches.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "benchmarks" / "build" / "members"
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from tests.checker.counter_text import OWNER, RINGS, counted
from tests.checker.peer_text import READ, WRITE

from treadle.machine.parse import parse_machine
from treadle.targets.cuda.emit import Call, cleared_bytes, emit, prepare, workspace_bytes

ARCH = {"arch": "sm_90a"}
STAY, DRAWN = ({"over": over, "launch": "grid 264 threads 32"} for over in ("persistent", "tickets"))
TEXTS = {
    "last of a grid": counted(**ARCH),
    "last of workgroups that stay": counted(**STAY, **ARCH),
    "last of tickets": counted(**DRAWN, **ARCH),
    "owner of tickets": counted(OWNER, **DRAWN, **ARCH),
    "owner in a cooperative launch": counted(
        OWNER, over="persistent", launch="grid 264 threads 32 cooperative", **ARCH
    ),
    "consumers of a ring": RINGS.replace("grid 2 threads", "grid 264 threads"),
    "consumers of a ring, by tickets": RINGS.replace("persistent", "tickets").replace("grid 2 thr", "grid 264 thr"),
    "parts read in other workgroups": READ.replace("min(M, 2)", "min(M, 132)"),
    "parts left in other workgroups": WRITE.replace("min(M, 2)", "min(M, 132)"),
}
SIZES = ((1, 4), (3, 64), (700, 3000), (5000, 64))
REPEATS = 50


def make() -> None:
    """The cubins, of texts that are verified."""
    compile_cuda = importlib.import_module("treadle.toolchain.nvrtc").compile_cuda
    check = importlib.import_module("treadle.checker").check
    BUILD.mkdir(parents=True, exist_ok=True)
    for name, text in TEXTS.items():
        machine = parse_machine(text)
        assert check(machine).status == "verified", name
        emitted = emit(machine)
        done = compile_cuda(emitted.source, arch=emitted.arch, name="sums")
        (BUILD / f"{name}.cubin").write_bytes(done.cubin)
        print(name, [(k.registers, k.spill_stores) for k in done.kernels])


def tried(name: str, text: str, m: int, n: int, torch: Any) -> dict[str, Any]:
    """Wrong rows over all launches."""
    cuda = importlib.import_module("treadle.runtime.cuda")
    device = importlib.import_module("treadle.runtime.driver").device
    emitted = emit(parse_machine(text))
    module = cuda.load_cubin((BUILD / f"{name}.cubin").read_bytes(), emitted.arch, device(0), name="sums")
    x = torch.randint(-4, 5, (m, n), device="cuda").float()
    y = torch.empty(m, device="cuda")
    want = x.sum(1)
    call = Call({"M": m, "N": n}, {"X": x.data_ptr(), "Y": y.data_ptr()}, {"X": (n, 1), "Y": (1,)}, {})
    need, cleared = workspace_bytes(emitted, call), cleared_bytes(emitted, call)
    room = torch.full((max(16, need),), 0x7F, dtype=torch.uint8, device="cuda")
    call = Call(call.extents, call.pointers, call.strides, {}, room.data_ptr())
    launches: list[Any] = []
    for p in prepare(emitted, call):
        function = module.function(p.kernel, shared=p.geometry.shared, cluster=p.geometry.cluster[0])
        launches.append(cuda.CudaLaunch(function, p.geometry, p.arguments))
    wrong, begun = 0, time.perf_counter()
    for _ in range(REPEATS):
        y.fill_(float("nan"))
        room.fill_(0x7F)
        if cleared:
            room[need - cleared : need].zero_()
        torch.cuda.synchronize()
        for launch in launches:
            launch()
        torch.cuda.synchronize()
        wrong += int((y != want).sum())
    return {"wrong": wrong, "rows": m * REPEATS, "seconds": round(time.perf_counter() - begun, 3)}


def run(path: Path) -> None:
    """Every text at every size."""
    torch = importlib.import_module("torch")
    torch.zeros(1, device="cuda")
    report: dict[str, Any] = {"device": torch.cuda.get_device_name(0), "method": __doc__, "texts": {}}
    for name, text in TEXTS.items():
        for m, n in SIZES:
            if "other workgroups" in name and n > 64:
                continue
            report["texts"].setdefault(name, {})[f"{m}x{n}"] = tried(name, text, m, n, torch)
        print(name, report["texts"][name], flush=True)
        path.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["make"]:
        make()
    elif len(sys.argv) == 3 and sys.argv[1] == "run":
        run(Path(sys.argv[2]))
    else:
        raise SystemExit(__doc__)
