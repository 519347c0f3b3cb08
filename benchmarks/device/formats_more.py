"""Operands made in registers on a Hopper GPU: four-bit and eight-bit weights, fused prologues, scales along the depth.

`python benchmarks/device/formats_more.py OUT.json [SECONDS]`. *Method*: integer-exact values (scales are powers of two)
on ragged and whole blocks, then times by events, interleaved with the peer, the L2 overwritten before each sample,
random data, medians; no case begins after SECONDS. Peers: torch's operator for the formats where it has one, else its
product of bf16 operands of that shape (marked so).
"""

from __future__ import annotations

import json
import pathlib
import sys
import time
import traceback
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(pathlib.Path(__file__).parent)]

import torch
from formats import seen
from formats_kernels import rectified, scaled_weights
from room import DEVICE, described, exactly, interleaved, median, ran_as, where_and_how

import treadle as td
from treadle import lib
from treadle.runtime.arrays import ArrayView, view

HARDWARE = td.Numerics(fp8_accumulate="hardware")
GROUP = 128


def integers(*shape: int, most: int = 3) -> torch.Tensor:
    """Small integers."""
    return torch.randint(-most, most + 1, shape, device=DEVICE).float()


def powers(*shape: int) -> torch.Tensor:
    """Powers of two."""
    return 2.0 ** torch.randint(-2, 3, shape, device=DEVICE).float()


def halves(w: torch.Tensor) -> torch.Tensor:
    """Integers of four bits two a byte, low bits first."""
    code = w.to(torch.int32) & 15
    return (code[:, 0::2] | code[:, 1::2] << 4).to(torch.uint8)


def exponents(scale: torch.Tensor) -> Any:
    """Powers of two as f8e8m0."""
    codes = (torch.log2(scale).round() + 127).to(torch.uint8)
    raw = view(codes)
    return ArrayView(raw.ptr, raw.shape, raw.strides, "f8e8m0", raw.device, True, (raw.owner, codes))


def case(name: str, m: int, n: int, k: int) -> tuple[Any, tuple[Any, ...], dict[str, Any], torch.Tensor, torch.Tensor]:
    """Kernel, arguments, staged values, output and exact result."""
    x = integers(m, k)
    y = torch.empty(m, n, dtype=torch.bfloat16, device=DEVICE)
    fp8 = torch.float8_e4m3fn
    match name:
        case "relu(X) W":
            w = integers(k, n)
            return rectified, (x.bfloat16(), w.bfloat16(), y), {}, y, x.clamp(min=0).double() @ w.double()
        case "i8 weights":
            w, s = integers(n, k, most=9), powers(n)
            given = (x.bfloat16(), w.to(torch.int8), s, y)
            return scaled_weights, given, {}, y, x.double() @ (w * s[:, None]).double().T
        case "fp8 weights":
            w, s = integers(n, k), powers(n)
            given = (x.bfloat16(), seen(w.to(fp8), "f8e4m3"), s, y)
            return scaled_weights, given, {}, y, x.double() @ (w * s[:, None]).double().T
        case "i4 weights":
            w, s = torch.randint(-8, 8, (n, k), device=DEVICE).float(), powers(n, k // GROUP)
            want = x.double() @ (w * s.repeat_interleave(GROUP, 1)).double().T
            return lib.int4_matmul, (x.bfloat16(), halves(w), s, None, y), {"group": GROUP}, y, want
        case "fp8 rows":
            w, a, b = integers(n, k), powers(m), powers(n)
            given = (seen(x.to(fp8), "f8e4m3"), seen(w.to(fp8).T, "f8e4m3"), a, b, y)
            want = (x * a[:, None]).double() @ (w * b[:, None]).double().T
            return lib.fp8_matmul.under(HARDWARE), given, {}, y, want
        case _:
            w, a, b = integers(n, k), powers(m, k // 32), powers(n, k // 32)
            given = (seen(x.to(fp8), "f8e4m3"), seen(w.to(fp8), "f8e4m3"), exponents(a), exponents(b), y)
            want = (x * a.repeat_interleave(32, 1)).double() @ (w * b.repeat_interleave(32, 1)).double().T
            return lib.mxfp8_matmul.under(HARDWARE), given, {}, y, want


def peer(name: str, m: int, n: int, k: int) -> tuple[str, Any]:
    """The peer's name and call."""
    x, w = (torch.randn(*s, device=DEVICE).bfloat16() for s in ((m, k), (n, k)))
    out = torch.empty(m, n, dtype=torch.bfloat16, device=DEVICE)
    if name == "relu(X) W":
        return "torch.mm(torch.relu(x), w)", lambda: torch.mm(torch.relu(x), w.T, out=out)
    if name == "fp8 rows":
        a, b = x.to(torch.float8_e4m3fn), w.to(torch.float8_e4m3fn)
        rows, columns = torch.ones(m, 1, device=DEVICE), torch.ones(1, n, device=DEVICE)
        return "torch._scaled_mm by rows", lambda: torch._scaled_mm(
            a, b.T, scale_a=rows, scale_b=columns, out_dtype=torch.bfloat16
        )
    if name == "i4 weights" and m <= 64:
        try:
            code = torch.randint(0, 255, (n, k // 2), device=DEVICE, dtype=torch.uint8)
            packed = torch._convert_weight_to_int4pack(code, 8)
            scales = torch.ones(k // GROUP, n, 2, device=DEVICE, dtype=torch.bfloat16)
            torch._weight_int4pack_mm(x, packed, GROUP, scales)
            return "torch._weight_int4pack_mm", lambda: torch._weight_int4pack_mm(x, packed, GROUP, scales)
        except Exception as error:
            print("no int4pack:", str(error)[:200], flush=True)
    return "torch.mm of bf16", lambda: torch.mm(x, w.T, out=out)


NAMES = ("relu(X) W", "i4 weights", "i8 weights", "fp8 rows", "mxfp8", "fp8 weights")
TIMED = (
    ("i4 weights", 4096, 4096, 4096),
    ("i4 weights", 16, 8192, 8192),
    ("relu(X) W", 4096, 4096, 4096),
    ("mxfp8", 4096, 4096, 4096),
    ("fp8 rows", 4096, 4096, 4096),
    ("i8 weights", 4096, 4096, 4096),
    ("i8 weights", 16, 8192, 8192),
    ("i4 weights", 64, 8192, 8192),
    ("fp8 weights", 4096, 4096, 4096),
)


def main(out: str, seconds: float) -> None:
    began = time.time()
    torch.manual_seed(1)
    report: dict[str, Any] = {
        **where_and_how(__doc__),
        "checks": [],
        "times": [],
    }
    flush = torch.empty(512 << 20 if DEVICE == "cuda" else 8, dtype=torch.uint8, device=DEVICE)
    todo: list[tuple[str, tuple[str, int, int, int]]] = [("check", (n, 264, 136, 640)) for n in NAMES]
    todo += [("time", t) for t in TIMED]
    for what, (name, m, n, k) in todo:
        if time.time() - began > seconds:
            report.setdefault("left", []).append([what, name, m, n, k])
            continue
        row: dict[str, Any] = {"case": f"{name} {m}x{n}x{k}"}
        report["checks" if what == "check" else "times"].append(row)
        try:
            kernel, args, staged, y, want = case(name, m, n, k)
            kernel(*args, **staged)
            row |= described(ran_as(kernel, args, staged)) | exactly(want.to(y.dtype))(y)
            if what == "time":
                against, other = peer(name, m, n, k)
                samples = interleaved({"ours": kernel.bind(*args, **staged), "peer": other}, 40, flush)
                ours, theirs = median(samples["ours"]), median(samples["peer"])
                row |= {"peer": against, "us": ours, "peer_us": theirs, "ratio": theirs / ours, "samples_us": samples}
        except Exception as error:
            row |= {"right": False, "error": f"{type(error).__name__}: {error}"[:1500]}
            print(traceback.format_exc()[-1500:], flush=True)
        told = {key: row.get(key) for key in ("case", "right", "us", "peer_us", "ratio", "peer", "plan")}
        print(round(time.time() - began, 1), told, flush=True)
        pathlib.Path(out).write_text(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 600.0)
