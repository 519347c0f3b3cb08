"""Products whose tiles do not fill the machine, in parts along the depth, beside the same kernel whole and torch; tasks
that workgroups draw as tickets beside tasks dealt out beforehand: long rows, causal chains.

`python benchmarks/device/split.py OUT.json [CASE...]`: kernels are called as a user does; they plan, are judged and
compiled there. *Method*: each plan first on small integers, exactly; times by events, interleaved with the peer, the L2
overwritten before each sample, random data, medians of 40. `whole`: the same search without parts; `N parts`: only
points of so many.
"""

from __future__ import annotations

import pathlib
import sys
from functools import partial
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(pathlib.Path(__file__).parent)]

import torch
from room import DEVICE, described, exactly, interleaved, median, part_by_part, ran_as, where_and_how

import treadle as td
from treadle import lib
from treadle.plan.family import Axis
from treadle.targets.cuda.parted import PartedStreams
from treadle.targets.cuda.rows import Rows

CASES: dict[str, tuple[tuple[int, int, int], str, tuple[int, ...]]] = {
    "512x512x8192": ((512, 512, 8192), "bf16", (4, 16)),
    "256x256x16384": ((256, 256, 16384), "bf16", (8, 33)),
    "16x8192x8192": ((16, 8192, 8192), "bf16", (2,)),
    "64x8192x8192": ((64, 8192, 8192), "bf16", (2,)),
    "16x1024x8192": ((16, 1024, 8192), "bf16", (4, 16)),
    "64x1024x8192": ((64, 1024, 8192), "bf16", (4, 16)),
    "1x8192x8192": ((1, 8192, 8192), "bf16", (2,)),
    "1x1792x5120 f16": ((1, 1792, 5120), "f16", (4, 9)),
    "16x1792x5120 f16": ((16, 1792, 5120), "f16", (4, 9)),
    "batched 4x(128,128,8192)": ((128, 128, 8192), "bf16", (8,)),
    "1024x1024x1024": ((1024, 1024, 1024), "bf16", (2,)),
    "512x512x512": ((512, 512, 512), "bf16", (2,)),
}
TYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
FREE = PartedStreams.counts


def forced(parts: int) -> None:
    """Makes the planner look at so many parts only; 0: at what it likes."""
    PartedStreams.counts = FREE if parts == 0 else (lambda self, shape: (parts,))  # an experiment


def arguments(case: str, integers: bool) -> tuple[Any, tuple[Any, ...], torch.Tensor, torch.Tensor, torch.Tensor]:
    """A kernel of its own, its arguments, both operands, the output."""
    (m, n, k), dtype, _ = CASES[case]
    batch = (4,) if case.startswith("batched") else ()
    make = (
        (lambda *s: torch.randint(-2, 3, s, device=DEVICE)) if integers else (lambda *s: torch.randn(*s, device=DEVICE))
    )
    x, w = make(*batch, m, k).to(TYPES[dtype]), make(*batch, k, n).to(TYPES[dtype])
    y = torch.empty(*batch, m, n, dtype=TYPES[dtype], device=DEVICE)
    kernel = td.kernel((lib.batched_matmul if batch else lib.linear).definition.fn)
    return kernel, (x, w, y) if batch else (x, w, None, y), x, w, y


def run(case: str, rows: list[dict[str, Any]], flush: torch.Tensor) -> None:
    """Every choice of one case: checked, then timed together."""
    calls: dict[str, Any] = {}
    about: dict[str, dict[str, Any]] = {}
    for parts in (0, 1, *CASES[case][2]):
        name = {0: "ours", 1: "whole"}.get(parts, f"{parts} parts")
        forced(parts)
        kernel, args, x, w, y = arguments(case, integers=True)
        y.fill_(float("nan"))
        kernel(*args)
        about[name] = {**described(ran_as(kernel, args, {})), **exactly((x.double() @ w.double()).to(y.dtype))(y)}
        if not about[name]["right"]:
            print(case, name, "WRONG", about[name], flush=True)
        _, given, *_ = arguments(case, integers=False)
        calls[name] = kernel.bind(*given)
    forced(0)
    _, _, x, w, _ = arguments(case, integers=False)
    z = torch.empty(*x.shape[:-1], w.shape[-1], dtype=x.dtype, device=DEVICE)
    calls["peer"] = lambda: torch.matmul(x, w, out=z)
    samples = interleaved(calls, 40, flush)
    peer = median(samples["peer"])
    for name, values in samples.items():
        us = median(values)
        rows.append(
            {"case": case, "call": name, "us": us, "ratio": peer / us, "samples_us": values, **about.get(name, {})}
        )
        plan = about.get(name, {}).get("plan", "").partition(": ")[2]
        print(case, name, round(us, 1), round(peer / us, 3), about.get(name, {}).get("right", ""), plan, flush=True)


def long_rows(rows: list[dict[str, Any]], flush: torch.Tensor) -> None:
    """Long rows: with tickets and without, beside a copy of the same arrays."""
    for columns, dtype in ((32768, torch.bfloat16), (16384, torch.bfloat16), (16384, torch.float32)):
        x = torch.randn(4096, columns, device=DEVICE).to(dtype)
        y, z = torch.empty_like(x), torch.empty_like(x)
        case = f"softmax {dtype} 4096x{columns}"
        compare(rows, case, Rows, "tickets", (False, True), lib.softmax, (x, y), flush, partial(z.copy_, x))


def causal(rows: list[dict[str, Any]], flush: torch.Tensor) -> None:
    """Causal chains, heavy ones first: dealt in turns, or drawn."""
    for depth in (64, 128):
        q, k, v = (torch.randn(4, 16, 4096, depth, device=DEVICE).bfloat16() for _ in range(3))
        o = torch.empty_like(q)
        kernel = lib.attention.under(td.Numerics(functions="fast"))
        peer = partial(torch.nn.functional.scaled_dot_product_attention, q, k, v, is_causal=True)
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
            compare(
                rows,
                f"causal d{depth}",
                PartedStreams,
                "raster",
                ("heavy first", "drawn"),
                kernel,
                (q, k, v, o),
                flush,
                peer,
                causal=True,
            )


M, N, K = td.dims("M N K")


@td.kernel
def ranged(lo: td.Scalar[td.i64], hi: td.Scalar[td.i64], X: td.Tensor[M, N], Y: td.Out[M], Z: td.Out[N]):
    for m in td.parallel(M):
        acc = td.zeros(m)
        for n in td.reduce(N[lo:hi]):
            acc = acc + X[m, n].sum(N)
        Y[m] = acc
    for n in td.parallel(N):
        Z[n] = 0.0
    for n in td.parallel(N[lo:hi]):
        Z[n] = 1.0


@td.kernel
def of_rows(X: td.Tensor[M, K], W: td.Tensor[K, N], Y: td.Out[M, N]):
    for m, n in td.parallel(M, N):
        x = X[m, K].to(td.f32)
        y = (x - x.max(K) + x.min(K)).to(td.bf16)
        Y[m, n] = td.dot(y, W[K, n], over=K)


def without_range(x: torch.Tensor) -> torch.Tensor:
    """The operand of `of_rows`."""
    return (x.float() - x.amax(1, True).float() + x.amin(1, True).float()).bfloat16()


def made_first(rows: list[dict[str, Any]], flush: torch.Tensor) -> None:
    """A product whose operand is computed from whole rows, beside torch doing one after the other."""
    for m, n, k in ((4096, 4096, 4096), (1000, 1032, 520)):
        x, w = (torch.randint(-2, 3, s, device=DEVICE).bfloat16() for s in ((m, k), (k, n)))
        y, z = (torch.empty(m, n, dtype=torch.bfloat16, device=DEVICE) for _ in range(2))
        of_rows(x, w, y.fill_(float("nan")))
        about = {
            **described(ran_as(of_rows, (x, w, y), {})),
            **exactly((without_range(x).double() @ w.double()).bfloat16())(y),
        }
        peer = lambda x=x, w=w, z=z: torch.mm(without_range(x), w, out=z)
        samples = interleaved({"ours": of_rows.bind(x, w, y), "peer": peer}, 30, flush)
        for name, found in samples.items():
            us, ratio = median(found), median(samples["peer"]) / median(found)
            row = {"case": f"of rows {m}x{n}x{k}", "call": name, "us": us, "ratio": ratio, "samples_us": found}
            rows.append({**row, **(about if name == "ours" else {})})
            print(row["case"], name, round(us, 1), round(ratio, 3), about["right"], about["plan"], flush=True)


def bounds(rows: list[dict[str, Any]], flush: torch.Tensor) -> None:
    """Bounds that a call brings, up to the ends of 64 bits."""
    del flush
    ends = (-(1 << 63), -(1 << 63) + 1, -3, 0, 5, 69, 70, 71, (1 << 62) + 1, (1 << 63) - 16, (1 << 63) - 1)
    x = torch.arange(350.0, device=DEVICE).reshape(5, 70)
    y, z = torch.empty(5, device=DEVICE), torch.empty(70, device=DEVICE)
    wrong: list[tuple[int, int]] = []
    refused = 0
    for lo in ends:
        for hi in ends:
            try:
                ranged(lo, hi, x, y.fill_(-1), z.fill_(-1))
            except td.TreadleError:
                refused += 1
                continue
            inside = torch.tensor([float(lo <= n < hi) for n in range(70)], device=DEVICE)
            if not (torch.equal(z, inside) and torch.equal(y, (x * inside).sum(1))):
                wrong.append((lo, hi))
    rows.append({"case": "bounds", "tried": len(ends) ** 2, "refused": refused, "wrong": wrong})
    print("bounds", rows[-1], flush=True)


def compare(
    rows: list[dict[str, Any]],
    case: str,
    family: Any,
    axis: str,
    values: tuple[Any, ...],
    kernel: Any,
    args: tuple[Any, ...],
    flush: torch.Tensor,
    peer: Any,
    **staged: Any,
) -> None:
    """One kernel under each value of an axis, its results compared bit by bit, and its peer."""
    calls: dict[str, Any] = {"peer": peer}
    about: dict[str, Any] = {}
    free, first = family.axes, None
    for value in values:
        family.axes = lambda self, program, facts, value=value: [  # an experiment
            Axis(axis, (value,)) if a.name == axis else a for a in free(self, program, facts)
        ]
        one = td.kernel(kernel.definition.fn).under(kernel.definition.numerics)
        out = args[-1].fill_(float("nan"))
        one(*args, **staged)
        first = out.clone() if first is None else first
        name = f"{axis} {value}"
        about[name] = {**described(ran_as(one, args, staged)), "right": bool(torch.equal(out, first))}
        calls[name] = one.bind(*args, **staged)
    family.axes = free
    samples = interleaved(calls, 30, flush)
    for name, found in samples.items():
        us = median(found)
        ratio = median(samples["peer"]) / us
        rows.append({"case": case, "call": name, "us": us, "ratio": ratio, "samples_us": found, **about.get(name, {})})
        print(
            case,
            name,
            round(us, 1),
            round(ratio, 3),
            about.get(name, {}).get("right", ""),
            about.get(name, {}).get("plan", "").partition(": ")[2],
            flush=True,
        )


def main(out: str, wanted: list[str]) -> None:
    """The cases that are asked for, or all."""
    rows: list[dict[str, Any]] = []
    torch.manual_seed(1)
    flush = torch.empty(512 << 20, dtype=torch.uint8, device=DEVICE)
    beside = {"rows": long_rows, "causal": causal, "bounds": bounds, "of rows": made_first}
    parts = {case: partial(run, case, rows, flush) for case in CASES}
    parts |= {case: partial(part, rows, flush) for case, part in beside.items()}
    part_by_part(out, {**where_and_how(__doc__), "rows": rows}, parts, wanted)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
