"""What a call costs on the host: bound and generic calls of a kernel on 4 x 16 elements, fork and join of two workers.

    python benchmarks/host_cpu.py OUT.json

Each number is the least of 200 samples of some hundred calls, and the median beside it. The native code by itself (the
entry called through ctypes on a ready block) is subtracted from calls; a job of two empty tasks on one worker from the
same job on two. Units: microseconds.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import treadle as td
from treadle.runtime import pool
from treadle.runtime.native import load_native

M, N = td.dims("M N")
EMPTY = "define void @nothing(ptr %arg, i64 %task, i64 %worker) {\n  ret void\n}\n"
SAMPLES, CALLS = 200, 300


@td.kernel
def scaled(X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    """Twice X."""
    for m in td.parallel(M):
        Y[m, N] = X[m, N] * 2


def samples(run: Callable[[], Any]) -> list[float]:
    """Microseconds a call."""
    found: list[float] = []
    for _ in range(SAMPLES):
        start = time.perf_counter()
        for _ in range(CALLS):
            run()
        found.append((time.perf_counter() - start) / CALLS * 1e6)
    return found


def main() -> int:
    x, y = np.ones((4, 16), np.float32), np.empty((4, 16), np.float32)
    scaled(x, y)
    launch = scaled.bind(x, y)
    entry, address = launch.kernel.entry, launch.block.address
    loaded = load_native("nothing", EMPTY, ["nothing"])
    job, workers = loaded.addresses["nothing"], pool.pool()
    sides: dict[str, Callable[[], Any]] = {
        "entry": lambda: entry(address),
        "bound": launch,
        "generic": lambda: scaled(x, y),
        "generic, output left out": lambda: scaled(x),
        "job on one worker": lambda: workers.run(job, 0, 2, 1, static=True),
        "job on two workers": lambda: workers.run(job, 0, 2, 2, static=True),
    }
    timed = {name: samples(run) for name, run in sides.items()}
    told = {name: {"least": min(t), "median": statistics.median(t)} for name, t in timed.items()}

    def over(name: str, base: str) -> dict[str, float]:
        return {k: told[name][k] - told[base][k] for k in ("least", "median")}

    rows = {
        "bound call over the kernel": over("bound", "entry"),
        "generic call over the kernel": over("generic", "entry"),
        "generic call that allocates over the kernel": over("generic, output left out", "entry"),
        "fork and join of two workers": over("job on two workers", "job on one worker"),
        "samples": told,
    }
    print(json.dumps(rows, indent=1))
    Path(sys.argv[1]).write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
