"""Scans of rows on a Hopper GPU, beside torch: `python benchmarks/device/scans.py OUT.json [exact] [time] [points]`.

Plans are made beforehand, by processes side by side, as a call would make them (`points`: with settings of the family
told). *Method*: `exact`: integers in every format, equal to a scan in 64 bits, results poisoned before; `time` and
`points`: values against float64 first, then medians of 25 calls by events, interleaved with torch, with
Triton's scan (the fastest of some shapes) and with a copy, 512 MiB overwritten before each, random data, raw samples
kept.
"""

from __future__ import annotations

import json
import multiprocessing
import pathlib
import sys
import time
from functools import partial
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(pathlib.Path(__file__).parent)]

import torch
import triton
import triton.language as tl
from room import interleaved, median, where_and_how

import treadle as td
from treadle import lib
from treadle.driver.cuda_variant import CudaBound
from treadle.driver.variants import load
from treadle.plan.family import Axis
from treadle.targets.cuda.rows import Rows

Job = tuple[str, str, int, int, dict[str, Any], dict[str, Any] | None]
"""Kernel, dtype, rows, columns, staged arguments, settings of the family."""

LENGTHS = ((1, 1), (1, 31), (3, 33), (5, 4095), (2, 4097), (300, 4096), (1, 1000003), (7, 131072))
KINDS: list[tuple[str, str, dict[str, Any]]] = [
    ("cumsum", "f32", {}),
    ("cumsum", "bf16", {"exclusive": True}),
    ("cumsum", "i32", {"reverse": True}),
    ("cumsum", "i64", {"exclusive": True, "reverse": True}),
    ("cummax", "f32", {"reverse": True}),
    ("cummin", "bf16", {}),
    ("segmented_cumsum", "f32", {}),
]
TIMED = (
    (4096, 4096),
    (4096, 1024),
    (4096, 8192),
    (4096, 32768),
    (256, 65536),
    (64, 1 << 20),
    (16384, 1000),
    (8, 1 << 20),
    (1, 1 << 24),
)
PLAIN: dict[str, Any] = {"exact": False, "slots": 0, "stages": 0, "close": False, "next": False, "stretches": 1}
FEW = [{"warps": w, "held": False, "stretches": n} for w in (4, 8) for n in (9, 17, 34)]
POINTS: dict[tuple[int, int], list[dict[str, Any]]] = {
    (4096, 4096): [{"warps": 4, "held": True, "exact": True}, {"warps": 8, "held": True}],
    (64, 1 << 20): [*FEW, {"warps": 16, "held": False, "next": True}],
    (8, 1 << 20): [{"warps": w, "held": False, "stretches": n} for w in (4, 8) for n in (33, 66, 132)],
    (1, 1 << 24): [{"warps": w, "held": False, "stretches": n} for w in (4, 8) for n in (264, 528, 1024)],
}
"""Settings that runs before this one compared: benchmarks/results/2026-11-30-scans.json."""


@triton.jit
def triton_held(x, y, columns, block: tl.constexpr):
    """Running sums of a row that one program holds."""
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, block)
    values = tl.load(x + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    tl.store(y + row * columns + at, tl.cumsum(values, 0), mask=at < columns)


@triton.jit
def triton_swept(x, y, columns, block: tl.constexpr):
    """Running sums of a row, a block after the other."""
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, block)
    total = 0.0
    for begin in range(0, columns, block):
        here = begin + at
        values = tl.load(x + row * columns + here, mask=here < columns, other=0.0).to(tl.float32)
        tl.store(y + row * columns + here, tl.cumsum(values, 0) + total, mask=here < columns)
        total += tl.sum(values, 0)


def triton_peers(x: Any, y: Any) -> dict[str, Any]:
    """Calls of Triton's scan: rows held where they fit, else swept in blocks."""
    m, n = x.shape
    found: dict[str, Any] = {}
    held = n <= 32768
    for warps in (4, 8, 16) if held else (8, 16, 32):
        block = 1 << (n - 1).bit_length() if held else 512 * warps
        kernel = triton_held if held else triton_swept
        found[f"triton {warps}"] = partial(kernel[(m,)], x, y, n, block=block, num_warps=warps)
        try:
            found[f"triton {warps}"]()
        except Exception as error:
            print("triton", warps, m, n, str(error)[:200], flush=True)
            del found[f"triton {warps}"]
    return found


def like(job: Job) -> list[Any]:
    """The arguments of a job as descriptions."""
    kernel, dtype, m, n, _, _ = job
    x = td.like(getattr(td, dtype), m, n)
    return [x, td.like(td.bool_, m, n), x] if kernel == "segmented_cumsum" else [x, x]


def planned(job: Job) -> tuple[Any, dict[str, Any]]:
    """A plan's record and what is said of it."""
    name, _, _, _, staged, point = job
    axes = Rows.axes
    if point is not None:
        told = {**PLAIN, **point}
        Rows.axes = lambda self, program, facts: [Axis(k, (v,)) for k, v in told.items()]
    began = time.perf_counter()
    try:
        kernel = td.kernel(getattr(lib, name).definition.fn)
        plan = kernel.plan(*like(job), target="cuda:sm_90a", **staged)
        about = {"plan": plan.explain().splitlines()[0], "verdict": plan.check().status}
        return plan.record, about | {"seconds": round(time.perf_counter() - began, 2)}
    except Exception as error:
        return None, {"error": f"{type(error).__name__}: {error}"[:800]}
    finally:
        Rows.axes = axes


def jobs(what: list[str]) -> list[tuple[str, Job]]:
    """All that is asked for."""
    found: list[tuple[str, Job]] = []
    if "exact" in what:
        found += [("exact", (k, d, m, n, s, None)) for k, d, s in KINDS for m, n in LENGTHS]
    if "time" in what:
        found += [("time", ("cumsum", d, m, n, {}, None)) for m, n in TIMED for d in ("f32", "bf16")]
    if "points" in what:
        both = [(m, n, p) for (m, n), ps in POINTS.items() for p in ps]
        found += [("points", ("cumsum", d, m, n, {}, p)) for m, n, p in both for d in ("f32", "bf16")]
    return found


def main(out: str, what: list[str]) -> None:
    """Plans, then the device."""
    began = time.perf_counter()
    todo = jobs(what or ["exact", "time", "points"])
    with multiprocessing.Pool(min(14, multiprocessing.cpu_count())) as pool:
        made = pool.map(planned, [job for _, job in todo], chunksize=1)
    print("planned", len(made), "in", round(time.perf_counter() - began, 1), "s", flush=True)
    wrong = [(job, about) for (_, job), (record, about) in zip(todo, made, strict=True) if record is None]
    print(*wrong, sep="\n", flush=True)
    run(out, todo, made)


def run(out: str, todo: list[tuple[str, Job]], made: list[tuple[Any, dict[str, Any]]]) -> None:
    """Values and times."""
    torch.manual_seed(1)
    rows: list[dict[str, Any]] = []
    report: dict[str, Any] = {**where_and_how(__doc__), "rows": rows}
    flush = torch.empty(512 << 20, dtype=torch.uint8, device="cuda")
    names = {"f32": torch.float32, "bf16": torch.bfloat16, "i32": torch.int32, "i64": torch.int64}
    groups: dict[tuple[str, int, int], list[tuple[str, Any]]] = {}
    for (part, job), (record, about) in zip(todo, made, strict=True):
        kernel, dtype, m, n, staged, point = job
        row: dict[str, Any] = {"part": part, "case": f"{kernel}/{dtype}/{m}x{n}", "staged": staged, "point": point}
        rows.append(row | about)
        row = rows[-1]
        if record is None:
            continue
        x = torch.randint(-3, 4, (m, n), device="cuda")
        marks = torch.rand(m, n, device="cuda") < 0.01
        x = x * (torch.rand(m, n, device="cuda") < 0.02) if dtype == "bf16" else x
        given = [x.to(names[dtype]), *([marks] if kernel == "segmented_cumsum" else [])]
        y = torch.full((m, n), 77, dtype=names[dtype], device="cuda")
        try:
            bound = bind(record, kernel, [*given, y], staged)
            bound()
            want = oracle(kernel, x, marks, staged)
            inside = want.abs() <= (256 if dtype == "bf16" else 1 << 24)
            row["wrong"] = int(((y.long() != want) & inside).sum())
            row["asked"] = int(inside.sum())
            if part != "exact":
                groups.setdefault((dtype, m, n), []).append((str(point or "default"), (bound, given[0], row)))
        except Exception as error:
            row["error"] = f"{type(error).__name__}: {error}"[:800]
        if part == "exact" and (row.get("wrong") or "error" in row):
            print("WRONG", row, flush=True)
    exact = [r for r in rows if r["part"] == "exact"]
    print("exact", len(exact), "wrong", sum(bool(r.get("wrong", 1)) for r in exact), flush=True)
    for (dtype, m, n), ours in groups.items():
        timed(dtype, m, n, ours, flush, names[dtype])
        pathlib.Path(out).write_text(json.dumps(report))
    pathlib.Path(out).write_text(json.dumps(report))


def bind(record: Any, name: str, args: list[Any], staged: dict[str, Any]) -> Any:
    """A call bound to a plan."""
    kernel = td.kernel(getattr(lib, name).definition.fn)
    special, call = kernel.prepare(tuple(args), dict(staged))
    variant = load(record, special.signature)
    return CudaBound(variant.kernel, special._block(call), call.outs)


def oracle(kernel: str, x: Any, marks: Any, staged: dict[str, Any]) -> Any:
    """The scan in 64 bits."""
    back, without = staged.get("reverse", False), staged.get("exclusive", False)
    x = x.flip(1) if back else x
    if kernel == "cummax":
        found = x.cummax(1).values
    elif kernel == "cummin":
        found = x.cummin(1).values
    elif kernel == "segmented_cumsum":
        places = torch.arange(x.shape[1], device=x.device).expand_as(x)
        first = torch.where(marks, places, -1).cummax(1).values
        total = torch.nn.functional.pad(x.cumsum(1), (1, 0))
        found = total[:, 1:] - total.gather(1, first.clamp(min=0))
    else:
        found = x.cumsum(1)
    found = found - x if without else found
    return found.flip(1) if back else found


def timed(dtype: str, m: int, n: int, ours: list[Any], flush: Any, kind: Any) -> None:
    """Medians of all plans of a shape beside the peer and a copy."""
    x = torch.randn(m, n, device="cuda").to(kind)
    z = torch.empty_like(x)
    calls: dict[str, Any] = {
        "torch": lambda: torch.cumsum(x, 1, dtype=x.dtype, out=z),
        "copy": lambda: z.copy_(x),
    }
    calls |= triton_peers(x, z)
    for name, (bound, given, _) in ours:
        given.copy_(x)
        calls[name] = bound
    samples = interleaved(calls, 25, flush)
    moved = 2 * m * n * x.element_size()
    peer = median(samples["torch"])
    fastest = min((median(v), k) for k, v in samples.items() if k.startswith("triton"))
    for name, (_, _, row) in ours:
        us = median(samples[name])
        row |= {"us": us, "torch_us": peer, "copy_us": median(samples["copy"]), "ratio": peer / us}
        row |= {"gbs": moved / us / 1e3, "samples_us": samples[name], "torch_samples_us": samples["torch"]}
        row |= {"of_copy": row["copy_us"] / us, "triton_us": fastest[0], "triton": fastest[1]}
        row |= {"to_triton": fastest[0] / us, "triton_samples_us": samples[fastest[1]]}
        said = (round(us, 1), "torch", round(peer, 1), "triton", round(fastest[0], 1), "copy", round(row["copy_us"], 1))
        print(row["case"], name, *said, "wrong", row["wrong"], row["plan"][-70:], flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    main(sys.argv[1], sys.argv[2:])
