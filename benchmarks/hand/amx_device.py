"""Check and time build/amx.o against torch on one core of a machine with AMX.

`python amx_device.py OUT.json`
"""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

import torch

BUILD = pathlib.Path(__file__).parent / "build"
NEEDED = {"avx512f", "avx512bw", "avx512vl", "avx512dq", "amx_tile", "amx_bf16"}
TILE = 1024
SCRATCH = 16 * 32 * TILE
VARIANTS = ("flat", "blocked", "blocked_prefetch")


def prepare() -> ctypes.CDLL:
    """The linked object, on one pinned core, with the system's permission for tile data."""
    flags = set(re.findall(r"^flags\s*:(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)[0].split())
    if missing := NEEDED - flags:
        raise SystemExit(f"this processor lacks {sorted(missing)}")
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[len(cores) // 2]})
    torch.set_num_threads(1)
    if ctypes.CDLL(None).syscall(158, 0x1023, 18):  # arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA)
        raise SystemExit("the system refuses AMX tile data")
    subprocess.run(["gcc", "-shared", "-o", str(BUILD / "amx.so"), str(BUILD / "amx.o")], check=True)
    return ctypes.CDLL(str(BUILD / "amx.so"))


def calls(native: ctypes.CDLL, a, b, c, variant: str):
    """Two callables: packing and product, product alone."""
    layout = variant.split("_")[0]
    pack_a, pack_b = getattr(native, f"pack_a_{layout}"), getattr(native, f"pack_b_{layout}")
    product = getattr(native, f"multiply_{variant}")
    pack_a.restype = pack_b.restype = product.restype = None
    (m, k), n = a.shape, b.shape[1]
    mt, nt, kt = -(-m // 32) * 2, -(-n // 32) * 2, -(-k // 32)
    pa, pb, scratch = (torch.zeros(size, dtype=torch.uint8) for size in (mt * kt * TILE, nt * kt * TILE, SCRATCH))
    if any(x.data_ptr() % 64 for x in (pa, pb, scratch)):
        raise SystemExit("packed buffers are not aligned")

    def p(x):
        return ctypes.c_void_p(x.data_ptr())

    i = ctypes.c_int64
    first = (p(a), i(a.stride(0) * 2), p(pa), i(m), i(k), i(mt), i(kt))
    second = (p(b), i(b.stride(0) * 2), p(pb), i(n), i(k), i(nt), i(kt))
    third = (p(pa), p(pb), p(scratch), p(c), i(c.stride(0) * 4), i(m), i(n), i(mt), i(nt), i(kt))

    def packed() -> None:
        product(*third)

    def whole() -> None:
        pack_a(*first)
        pack_b(*second)
        product(*third)

    packed.keep = whole.keep = (pa, pb, scratch, a, b, c)
    return whole, packed


def surrounded(rows: int, columns: int, fill, dtype):
    """A view whose neighbours are NaN, and the room around it."""
    room = torch.full((rows + 2, columns + 64), float("nan"), dtype=dtype)
    view = room[1 : rows + 1, 32 : columns + 32]
    view.copy_(fill)
    return view, room


def check(native: ctypes.CDLL, m: int, n: int, k: int, kind: str, variant: str) -> dict:
    def draw(*shape):
        return torch.randint(-4, 5, shape) if kind == "integers" else torch.randn(*shape)

    a, _ = surrounded(m, k, draw(m, k), torch.bfloat16)
    b, _ = surrounded(k, n, draw(k, n), torch.bfloat16)
    c, room = surrounded(m, n, torch.full((m, n), float("nan")), torch.float32)
    calls(native, a, b, c, variant)[0]()
    want = a.double() @ b.double()
    error = (c.double() - want).abs()
    bound = (a.double().abs() @ b.double().abs()) * (k + 2) * 2.0**-23 + 1e-30
    around = room.clone()
    around[1 : m + 1, 32 : n + 32] = float("nan")
    return {
        "case": variant,
        "shape": [m, n, k],
        "inputs": kind,
        "wrong": int((c != want.float()).sum()) if kind == "integers" else None,
        "worst_of_bound": float((error / bound).max()),
        "nan": int(c.isnan().sum()),
        "neighbours_untouched": bool(around.isnan().all()),
    }


def peak(native: ctypes.CDLL, steps: int = 100_000) -> float:
    """GFLOP/s of tile products from registers."""
    started = time.perf_counter()
    native.peak(ctypes.c_int64(steps))
    return steps * 4 * 16 * 16 * 32 * 2 / (time.perf_counter() - started) / 1e9


def measure(native: ctypes.CDLL, m: int, n: int, k: int, rounds: int) -> tuple[dict, list[float]]:
    a, b = torch.randn(m, k).bfloat16(), torch.randn(k, n).bfloat16()
    sides = {}
    for variant in VARIANTS:
        sides[f"{variant}/whole"], sides[f"{variant}/packed"] = calls(native, a, b, torch.zeros(m, n), variant)
    y = torch.zeros(m, n, dtype=torch.bfloat16)
    sides["torch"] = lambda: torch.mm(a, b, out=y)
    samples: dict[str, list[float]] = {name: [] for name in sides}
    peaks = []
    for call in sides.values():
        call()
        call()
    for _ in range(rounds):
        peaks.append(peak(native))
        for name, call in sides.items():
            started = time.perf_counter()
            call()
            samples[name].append((time.perf_counter() - started) * 1e6)
    return samples, peaks


def main() -> None:
    native = prepare()
    torch.manual_seed(3)
    report: dict = {
        "experiment": "amx",
        "torch": torch.__version__,
        "processor": re.findall(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text())[0],
        "method": "one pinned core, torch at 1 thread with bf16 output, 64-byte aligned contiguous inputs, "
        "sides in turn, peak loop before each round, perf_counter",
        "checks": [],
        "times_us": {},
        "peak_gflops": {},
    }
    for m, n, k in [(1, 1, 1), (17, 33, 65), (64, 64, 64), (257, 520, 136), (1000, 1003, 997), (512, 512, 2048)]:
        for kind in ("integers", "normal"):
            for variant in VARIANTS:
                report["checks"].append(check(native, m, n, k, kind, variant))
                print(report["checks"][-1], flush=True)
    shapes = [
        (256, 256, 256, 150),
        (512, 512, 512, 60),
        (1024, 1024, 1024, 25),
        (2048, 2048, 2048, 9),
        (1000, 1003, 997, 25),
    ]
    for m, n, k, rounds in shapes:
        label = f"{m}x{n}x{k}"
        samples, peaks = measure(native, m, n, k, rounds)
        report["times_us"][label], report["peak_gflops"][label] = samples, peaks
        top, peer = statistics.median(peaks), statistics.median(samples["torch"])
        for name, values in samples.items():
            middle = statistics.median(values)
            rate = 2 * m * n * k / middle / 1e3
            print(
                f"{label:15s} {name:26s} {middle:9.1f} us {rate:6.0f} GFLOP/s {rate / top:6.1%} of {top:.0f}"
                f"  x {peer / middle:.2f}",
                flush=True,
            )
    pathlib.Path(sys.argv[1]).write_text(json.dumps(report))


if __name__ == "__main__":
    main()
