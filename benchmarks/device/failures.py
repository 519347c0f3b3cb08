"""What goes wrong on a GPU, for real: the code of the error, the arguments afterwards, the device afterwards.

`python benchmarks/device/failures.py OUT.json [PART ...]`. No memory for an output, a workspace, a copy; damaged and
foreign code in the cache; no device; a kernel that faults and one that never ends, each in a process of its own;
tuning, also with a watchdog that ends every trial. After each case an ordinary call must be right.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(pathlib.Path(__file__).parent)]

import torch
from host import Row, Rows, scaled
from room import inside, where_and_how

import treadle as td
from treadle.driver.cuda_variant import CudaKernel
from treadle.driver.tuning import tune_call
from treadle.lib.linear import linear
from treadle.lib.rows import softmax
from treadle.runtime.device_memory import release
from treadle.toolchain.nvrtc import compile_cuda

BF = torch.bfloat16

CHILD = """
import sys, time
import numpy as np
from treadle.base.errors import TreadleError
from treadle.runtime.cuda import CudaLaunch, Geometry, Pointer, load_cubin
from treadle.runtime.driver import current, device, driver, ok
from treadle.toolchain.nvrtc import compile_cuda
TEXT = '''
extern "C" __global__ void wild(float* y) { y[threadIdx.x] = 1.0f; }
extern "C" __global__ void endless(volatile int* y) { while (*y == 0) {} }
'''
try:
    on = device(0)
    module = load_cubin(compile_cuda(TEXT, arch="sm_90a", name="bad").cubin, "sm_90a", on)
    with current(on):
        room = int(ok(driver().cuMemAlloc(4096), "allocating"))
        ok(driver().cuMemsetD8(room, 0, 4096), "clearing")
        name, at = ("wild", 64) if sys.argv[1] == "fault" else ("endless", room)
        launch = CudaLaunch(module.function(name), Geometry((1, 1, 1), (32, 1, 1)), [Pointer(at)])
        for turn in range(2):
            try:
                launch(0)
                print("launched", flush=True)
                ok(driver().cuStreamSynchronize(driver().CUstream(0)), "waiting for the stream")
            except TreadleError as error:
                print("code", error.code, flush=True)
except TreadleError as error:
    print("code", error.code, flush=True)
"""


def usable() -> bool:
    """Whether an ordinary call is right."""
    x = torch.randn(128, 1000, device="cuda")
    return bool(((softmax(x) - torch.softmax(x, 1)).abs() <= 1e-6).all())


def code_of(run: Callable[[], Any]) -> str:
    """The code of the error that a call ends in."""
    try:
        run()
    except td.TreadleError as error:
        print(str(error), flush=True)
        return error.code
    return "none"


def filled(left: int) -> torch.Tensor:
    """Memory that leaves so many bytes of the device."""
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    free, _ = torch.cuda.mem_get_info()
    return torch.empty(max(free - left, 1), dtype=torch.uint8, device="cuda")


def memory(rows: Rows) -> None:
    """Nothing is launched, and arguments are as they were, when there is no memory."""

    def output() -> Row:
        x = torch.ones(1 << 16, 4096, device="cuda")
        full = filled(200 << 20)
        code = code_of(lambda: scaled(x))
        del full
        torch.cuda.empty_cache()
        return {"right": code == "cuda/out-of-memory" and bool((x == 1).all()) and usable(), "code": code}

    def workspace() -> Row:
        x = inside(torch.ones(16383, 16385, device="cuda").to(BF), odd=True)
        w = inside(torch.ones(16385, 64, device="cuda").to(BF), odd=True)
        y = torch.full((16383, 64), -7.0, device="cuda").to(BF)
        linear(x, w, None, y)
        first = y.clone()
        y.fill_(-7.0)
        torch.cuda.synchronize()
        release(0)  # what the pool kept would be enough
        full = filled(64 << 20)
        code = code_of(lambda: linear(x, w, None, y))
        del full
        torch.cuda.empty_cache()
        kept = bool((y == -7).all())
        linear(x, w, None, y)
        right = code == "cuda/out-of-memory" and kept
        return {"right": right and torch.equal(y, first) and usable(), "code": code, "kept": kept}

    def copy() -> Row:
        whole = torch.ones((1 << 16) + 1, 4096, device="cuda")
        full = filled(200 << 20)
        code = code_of(lambda: scaled(whole[:-1], whole[1:]))
        del full
        torch.cuda.empty_cache()
        same = bool((whole == 1).all())
        return {"right": code == "cuda/out-of-memory" and same and usable(), "code": code}

    for one in (output, copy, workspace):
        rows.check(f"no memory: {one.__name__}", one)


def child(*arguments: str, limit: float = 60.0, **around: str) -> tuple[str, float]:
    """What a process prints, and the seconds that ending it took where it had to be ended."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **around}
    started = subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
    )
    try:
        return started.communicate(timeout=limit)[0], 0.0
    except subprocess.TimeoutExpired:
        began = time.perf_counter()
        started.kill()
        return started.communicate()[0], time.perf_counter() - began


def code(rows: Rows) -> None:
    """Cached code that is damaged or of another architecture."""
    once = (
        "import sys, torch; from treadle.lib.rows import softmax; x = torch.randn(64, 999, device='cuda'); "
        "print('right', bool(((softmax(x) - torch.softmax(x, 1)).abs() <= 1e-6).all()))"
    )

    def damaged() -> Row:
        with tempfile.TemporaryDirectory() as folder:
            said = [child("-c", once, TREADLE_CACHE=folder)[0]]
            files = [p for p in pathlib.Path(folder).rglob("*") if p.is_file() and p.stat().st_size > 2000]
            for path in files:
                data = bytearray(path.read_bytes())
                for at in range(0, len(data), 97):
                    data[at] ^= 0x5A
                path.chmod(0o644)
                path.write_bytes(bytes(data))
            said.append(child("-c", once, TREADLE_CACHE=folder)[0])
        return {
            "right": all("right True" in s for s in said) and bool(files),
            "files": len(files),
            "said": said[1][-300:],
        }

    def foreign() -> bool:
        x = torch.randn(64, 999, device="cuda")
        y = torch.empty_like(x)
        softmax(x, y)
        special, call = softmax.prepare((x, y), {})
        record = special._variant(call, special._block(call)).record
        other = compile_cuda('extern "C" __global__ void k() {}', arch="sm_80", name="other").cubin
        for cubin in (other, b"no code at all"):
            kernel = CudaKernel(record, special.signature)
            kernel.cubin = cubin
            y.fill_(float("nan"))
            kernel.run(special._block(call))
            if not bool(((y - torch.softmax(x, 1)).abs() <= 1e-6).all()):
                return False
        return usable()

    def nobody() -> Row:
        said, _ = child("-c", CHILD, "fault", CUDA_VISIBLE_DEVICES="")
        return {"right": "code cuda/no-device" in said, "said": said[-300:]}

    for one in (damaged, foreign, nobody):
        rows.check(f"code: {one.__name__}", one)


def kernels(rows: Rows) -> None:
    """A kernel that faults, and one that never ends: their processes are lost, the device is not."""

    def fault() -> Row:
        said, _ = child("-c", CHILD, "fault")
        return {"right": said.count("code cuda/fault") == 2 and usable(), "said": said[-300:]}

    def endless() -> Row:
        said, seconds = child("-c", CHILD, "endless", limit=12.0)
        good = said.startswith("launched") and usable()
        return {"right": good, "seconds_to_end_it": round(seconds, 2), "said": said[-200:]}

    for one in (fault, endless):
        rows.check(f"kernels: {one.__name__}", one)


def tuning(rows: Rows) -> None:
    """The measured search, and its watchdog."""

    def search() -> Row:
        x = torch.randn(4096, 8192, device="cuda").to(BF)
        y = torch.full_like(x, 3.0)
        before = x.clone()
        began = time.perf_counter()
        tuned = softmax.tune(x, y, budget=15)
        seconds = time.perf_counter() - began
        untouched = torch.equal(x, before) and bool((y == 3.0).all())
        softmax(x, y)
        right = bool(((y.float() - torch.softmax(x.float(), 1)).abs() <= 1e-3).all()) and untouched
        said = str(tuned).splitlines()
        return {"right": right, "seconds": round(seconds, 1), "trials": len(tuned.trials), "said": said[:12]}

    def watchdog() -> Row:
        x = torch.randn(512, 4096, device="cuda")
        y = torch.full_like(x, 3.0)
        special, call = td.kernel(softmax.definition.fn).prepare((x, y), {})
        tuned = tune_call(special, call, budget=8, limits={"running": 1e-4})
        reasons = {t.skipped for t in tuned.trials}
        right = bool(reasons) and all(r is not None and "while running" in r for r in reasons)
        return {"right": right and bool((y == 3.0).all()) and usable(), "reasons": sorted(map(str, reasons))}

    for one in (search, watchdog):
        rows.check(f"tune: {one.__name__}", one)


def main(out: str, names: list[str]) -> None:
    torch.manual_seed(3)
    rows = Rows()
    report: Row = {
        "experiment": "failures",
        **where_and_how(__doc__),
    }
    report["checks"] = rows.rows
    for part in (code, kernels, tuning, memory):
        if names and part.__name__ not in names:
            continue
        part(rows)
        pathlib.Path(out).write_text(json.dumps(report))
    wrong = [r for r in rows.rows if not r["right"]]
    print(f"{len(rows.rows)} checks, {len(wrong)} wrong")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
