"""What a call costs on the host: bound and generic calls of a kernel on 4 x 16 elements, fork and join of two workers.

    python benchmarks/host_cpu.py OUT.json

Each number is the least of 200 samples of some hundred calls, and the median beside it. The native code by itself (the
entry called through ctypes on a ready block) is subtracted from calls. A job is of two tasks that wait for one another,
so that both workers take part. Units: microseconds.
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
from treadle.driver.calibration import machine_of
from treadle.runtime import pool
from treadle.runtime.native import load_native

M, N = td.dims("M N")
MEET = """define void @meet(ptr %arg, i64 %task, i64 %worker) {
entry:
  %old = atomicrmw add ptr %arg, i64 1 seq_cst
  %even = and i64 %old, -2
  %want = add i64 %even, 2
  br label %spin
spin:
  %n = phi i64 [ 0, %entry ], [ %next, %spin ]
  %next = add i64 %n, 1
  %seen = load atomic i64, ptr %arg seq_cst, align 8
  %met = icmp sge i64 %seen, %want
  %late = icmp sgt i64 %n, 20000
  %end = or i1 %met, %late
  br i1 %end, label %done, label %spin
done:
  ret void
}
"""
"""A task that waits for its pair, not for ever: a caller would do both of two empty ones before the other is there."""
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
    job, workers = load_native("meet", MEET, ["meet"]).addresses["meet"], pool.pool()
    room = np.zeros(64, np.int64)
    told_to = room.ctypes.data
    sides: dict[str, Callable[[], Any]] = {
        "entry": lambda: entry(address),
        "bound": launch,
        "generic": lambda: scaled(x, y),
        "generic, output left out": lambda: scaled(x),
        "job on two workers": lambda: workers.run(job, told_to, 2, 2),
    }
    timed = {name: samples(run) for name, run in sides.items()}
    told = {name: {"least": min(t), "median": statistics.median(t)} for name, t in timed.items()}

    def over(name: str, base: str) -> dict[str, float]:
        return {k: told[name][k] - told[base][k] for k in ("least", "median")}

    rows = {
        "method": __doc__,
        "machine": machine_of("cpu"),
        "bound call over the kernel": over("bound", "entry"),
        "generic call over the kernel": over("generic", "entry"),
        "generic call that allocates over the kernel": over("generic, output left out", "entry"),
        "fork, meeting and join of two workers, called from Python": told["job on two workers"],
        "each": told,
        "samples": timed,
    }
    print(json.dumps({**rows, "samples": "in the file"}, indent=1))
    Path(sys.argv[1]).write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
