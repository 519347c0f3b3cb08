"""How fast this machine's memory can be read: loops that read and do nothing else, beside sums that must read as much.

    python benchmarks/read_limit.py OUT.json [--threads 2] [--mebibytes 64] [--rounds 40]

Each loop reads all bytes once, by the native pool's workers, and keeps their bitwise or. They differ in what could
matter: how many streams a worker reads at once, how far ahead it asks and for which cache, how much a task has, pages
of 2 MiB, where the array begins. All sides take turns, in another order each round; the fastest loop is the limit of
what reads that array.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import mmap
import statistics
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from treadle.driver.calibration import machine_of
from treadle.driver.targets import features_of, host_target
from treadle.lib.reductions import rows_sum, total
from treadle.runtime.cpu import load_object
from treadle.runtime.pool import pool, set_workers
from treadle.toolchain.llvm import compile_ir

VECTORS = 4
WIDE = '"prefer-vector-width"="512" "min-legal-vector-width"="512"'


def read_loop(streams: int, ahead: int, level: int) -> str:
    """LLVM IR of `read(block)`: base, bytes of a task, tasks, workers, the pool's run, where results go. A task reads
    `streams` equal stretches at once, `VECTORS` vectors of each, and asks for what is `ahead` bytes further."""
    ids = [(s, v) for s in range(streams) for v in range(VECTORS)]
    phis = "\n".join(f"  %a{s}_{v} = phi <16 x i32> [ zeroinitializer, %start ], [ %b{s}_{v}, %loop ]" for s, v in ids)
    steps: list[str] = []
    for s in range(streams):
        steps.append(f"  %o{s} = mul i64 %stretch, {s}\n  %q{s} = add i64 %o{s}, %i")
        steps.append(f"  %p{s} = getelementptr i8, ptr %from, i64 %q{s}")
        for v in range(VECTORS):
            steps.append(f"  %r{s}_{v} = getelementptr i8, ptr %p{s}, i64 {64 * v}")
            if ahead:
                steps.append(f"  %f{s}_{v} = getelementptr i8, ptr %p{s}, i64 {64 * v + ahead}")
                steps.append(f"  call void @llvm.prefetch.p0(ptr %f{s}_{v}, i32 0, i32 {level}, i32 1)")
            steps.append(f"  %x{s}_{v} = load <16 x i32>, ptr %r{s}_{v}, align 4")
            steps.append(f"  %b{s}_{v} = or <16 x i32> %a{s}_{v}, %x{s}_{v}")
    joins, last = [], "%b0_0"
    for s, v in ids[1:]:
        joins.append(f"  %j{s}_{v} = or <16 x i32> {last}, %b{s}_{v}")
        last = f"%j{s}_{v}"
    text = "\n"
    return f"""
define void @task(ptr %frame, i64 %task, i64 %worker) nounwind {WIDE} {{
start:
  %base = load ptr, ptr %frame
  %w1 = getelementptr i64, ptr %frame, i64 1
  %bytes = load i64, ptr %w1
  %w5 = getelementptr i64, ptr %frame, i64 5
  %sink = load ptr, ptr %w5
  %at = mul i64 %task, %bytes
  %from = getelementptr i8, ptr %base, i64 %at
  %stretch = udiv i64 %bytes, {streams}
  br label %loop
loop:
  %i = phi i64 [ 0, %start ], [ %n, %loop ]
{phis}
{text.join(steps)}
  %n = add i64 %i, {64 * VECTORS}
  %more = icmp slt i64 %n, %stretch
  br i1 %more, label %loop, label %end
end:
{text.join(joins)}
  %place = getelementptr <16 x i32>, ptr %sink, i64 %task
  store <16 x i32> {last}, ptr %place, align 64
  ret void
}}
define i32 @read(ptr %block) nounwind {{
  %w2 = getelementptr i64, ptr %block, i64 2
  %tasks = load i64, ptr %w2
  %w3 = getelementptr i64, ptr %block, i64 3
  %workers = load i64, ptr %w3
  %w4 = getelementptr i64, ptr %block, i64 4
  %run = load ptr, ptr %w4
  call void %run(ptr @task, ptr %block, i64 %tasks, i64 %workers)
  ret i32 0
}}
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
"""


def array(size: int, huge: bool, offset: int) -> tuple[np.ndarray, object]:
    """Ones, in a private mapping, on pages of 2 MiB where asked for and given."""
    held = mmap.mmap(-1, size + (4 << 20), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    held.madvise(mmap.MADV_HUGEPAGE if huge else mmap.MADV_NOHUGEPAGE)
    start = -ctypes.addressof(ctypes.c_char.from_buffer(held)) % (2 << 20) + offset
    made = np.frombuffer(held, np.float32, size // 4, start)
    made[:] = 1
    return made, held


def reader(values: np.ndarray, streams: int, ahead: int, level: int, task: int, workers: int) -> Callable[[], Any]:
    """A call that reads the array."""
    features = features_of(host_target())
    code = compile_ir(read_loop(streams, ahead, level), cpu_features=features, name="read").object
    entry = load_object(code, ["read"], name="read", features=features).function("read")
    tasks = values.nbytes // task
    sink = np.zeros(16 * tasks + 16, np.uint32)
    first = sink.ctypes.data + -sink.ctypes.data % 64
    block = np.array([values.ctypes.data, task, tasks, workers, pool().run_address, first], np.int64)

    def call() -> Any:
        entry(block.ctypes.data)
        return sink

    call()
    assert np.count_nonzero(sink == np.float32(1).view(np.uint32)) == 16 * tasks, "not all of it was read"
    return call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--mebibytes", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=40)
    args = parser.parse_args()
    size, workers = args.mebibytes << 20, args.threads
    set_workers(workers)
    arrays = {"pages of 4 KiB": array(size, False, 0), "pages of 2 MiB": array(size, True, 0)}
    arrays["pages of 2 MiB, 16 bytes on"] = array(size, True, 16)
    sides: dict[str, Callable[[], Any]] = {}
    for name, (values, _) in arrays.items():
        for streams in (1, 2, 4, 8):
            sides[f"read, {streams} streams, {name}"] = reader(values, streams, 0, 0, 256 << 10, workers)
    values = arrays["pages of 2 MiB"][0]
    for task in (16 << 10, 4 << 20):
        sides[f"read, 1 stream, tasks of {task >> 10} KiB"] = reader(values, 1, 0, 0, task, workers)
    for ahead in (512, 1024, 2048, 4096, 8192):
        for level, cache in ((3, "the first cache"), (2, "the second cache"), (0, "no cache")):
            name = f"read, 1 stream, {ahead} bytes ahead for {cache}"
            sides[name] = reader(values, 1, ahead, level, 256 << 10, workers)
    rows, every = np.empty(size >> 14, np.float32), np.empty((), np.float32)
    for name, (values, _) in arrays.items():
        table = values.reshape(-1, 4096)
        sides[f"treadle, sums of rows, {name}"] = rows_sum.bind(table, rows)
        sides[f"treadle, sum of all, {name}"] = total.bind(table, every)
    if find_spec("torch") is not None:
        torch = import_module("torch")
        torch.set_num_threads(workers)
        table, out = torch.from_numpy(arrays["pages of 2 MiB"][0].reshape(-1, 4096)), torch.from_numpy(rows)
        sides["torch, sums of rows"] = lambda: torch.sum(table, 1, out=out)
        sides["torch, sum of all"] = lambda: torch.sum(table)
    taken: dict[str, list[float]] = {name: [] for name in sides}
    order, shuffled = list(sides.items()), np.random.default_rng(0)
    for _ in range(args.rounds):
        # What a side leaves in the last cache is not always for the same one.
        for at in shuffled.permutation(len(order)):
            name, call = order[at]
            if name.startswith("torch"):
                time.sleep(0.004)
            call()
            start = time.perf_counter()
            call()
            taken[name].append((time.perf_counter() - start) * 1e6)
    method = "sides in turn, shuffled each round; each called once untimed before; microseconds"
    result = {"machine": machine_of("cpu"), "method": method, "bytes": size, "threads": workers, "sides": taken}
    for name, times in sorted(taken.items(), key=lambda t: min(t[1])):
        least, middle = min(times), statistics.median(times)
        print(f"{least:8.0f} us least  {middle:8.0f} us median  {size / least / 1e3:6.1f} GB/s  {name}")
    with open(args.out, "w") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main()
