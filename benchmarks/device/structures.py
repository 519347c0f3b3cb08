"""Structures of kernels on a Hopper GPU: convolutions, windows of keys, warps that copy for themselves, chains.

`python benchmarks/device/structures.py OUT.json [PART ...]` (none: all), with TREADLE_CACHE=off:
kernels are called as a user does; they plan, are judged and compiled there. *Method*: integer-exact values where sums
are exact, else a float64 oracle of the same rounding's size; times by events, interleaved with the peer, the L2
overwritten before each sample, random data, medians, raw samples kept.
"""

from __future__ import annotations

import importlib
import json
import pathlib
import sys
import traceback
from collections.abc import Callable
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(pathlib.Path(__file__).parent)]

import torch
from room import DEVICE, described, interleaved, median, ran_as, where_and_how

import treadle as td
from treadle import lib
from treadle.plan.family import Axis
from treadle.targets.cuda.blocks import Blocks
from treadle.targets.cuda.streams import Streams

BF = torch.bfloat16
Rows = list[dict[str, Any]]


def fresh(kernel: Any) -> Any:
    """The kernel anew, so that its plan is for this call."""
    return td.kernel(kernel.definition.fn)


def timed(
    rows: Rows, case: str, calls: dict[str, Any], flush: torch.Tensor, about: dict[str, Any], work: float
) -> None:
    """Medians of calls beside the peer; `work` in operations."""
    samples = interleaved(calls, 30, flush)
    peer = median(samples["peer"]) if "peer" in samples else None
    for name, values in samples.items():
        us = median(values)
        row = {"case": case, "call": name, "us": us, "tflops": work / us / 1e6, "samples_us": values}
        row["ratio"] = None if peer is None else peer / us
        rows.append(row | (about if name == "ours" else {}))
        print(case, name, round(us, 1), row["ratio"] and round(row["ratio"], 3), about.get("plan"), flush=True)


def conv(rows: Rows, flush: torch.Tensor) -> None:
    """Convolutions with channels last against cuDNN."""
    for b, size, channels, out, taps in ((32, 56, 256, 256, 3), (32, 28, 512, 512, 3), (32, 64, 128, 128, 3)):
        case = f"conv2d nhwc {taps}x{taps} {b}x{size}x{size}x{channels}->{out}"
        kernel, pad = fresh(lib.conv2d_nhwc), taps // 2
        y = torch.full((b, size, size, out), float("nan"), dtype=BF, device=DEVICE)
        x = torch.randint(-2, 3, (b, size, size, channels), device=DEVICE).to(BF)
        w = torch.randint(-1, 2, (taps, taps, channels, out), device=DEVICE).to(BF)
        kernel(x, w, None, y, pad=pad)
        like = x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
        want = torch.nn.functional.conv2d(like[0].float(), like[1].float(), padding=pad).permute(0, 2, 3, 1)
        about = described(ran_as(kernel, (x, w, None, y), {"pad": pad})) | {"wrong": int((y != want.to(BF)).sum())}
        print(case, "wrong", about["wrong"], about["plan"], flush=True)
        x.copy_(torch.randn(x.shape, device=DEVICE))
        w.copy_(torch.randn(w.shape, device=DEVICE))
        like = x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
        torch.backends.cudnn.benchmark = True
        peer = lambda like=like, pad=pad: torch.nn.functional.conv2d(*like, padding=pad)
        calls = {"ours": kernel.bind(x, w, None, y, pad=pad), "peer": peer}
        timed(rows, case, calls, flush, about, 2.0 * b * size * size * channels * out * taps * taps)


SPREAD: tuple[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, int]], ...] = (
    ("conv2d", (32, 256, 56, 56), (256, 256, 3, 3), {"pad": 1}),
    ("conv2d", (32, 256, 56, 56), (256, 256, 3, 3), {"pad": 1, "stride": 2}),
    ("conv2d", (32, 256, 28, 28), (256, 256, 1, 1), {"stride": 2}),
    ("conv2d_nhwc", (32, 56, 56, 256), (3, 3, 256, 512), {"pad": 1, "stride": 2}),
    ("conv2d_nhwc", (32, 56, 56, 256), (3, 3, 256, 256), {"pad": 2, "dilation": 2}),
    ("conv1d", (32, 256, 4096), (256, 256, 5), {"pad": 2}),
    ("conv1d", (32, 256, 4097), (256, 256, 4), {"pad": 1, "stride": 2}),
    ("conv2d", (32, 256, 28, 28), (512, 256, 3, 3), {"pad": 1}),
    ("conv_transposed2d", (32, 256, 28, 28), (256, 128, 4, 4), {"pad": 1, "stride": 2}),
)
"""Kernel, shapes of image and weights, settings: convolutions whose windows or weights are made by a launch before."""


def spread(rows: Rows, flush: torch.Tensor) -> None:
    """Convolutions with channels first, along one axis, strided: exactly, then beside cuDNN."""
    torch.backends.cudnn.benchmark = True
    for name, image, taps, settings in SPREAD:
        case = f"{name} {'x'.join(map(str, image))} by {'x'.join(map(str, taps))} {settings}"
        kernel = fresh(getattr(lib, name))
        x = torch.randint(-2, 3, image, device=DEVICE).to(BF)
        w = torch.randint(-1, 2, taps, device=DEVICE).to(BF)
        last = name == "conv2d_nhwc"
        conv_of = getattr(torch.nn.functional, {"conv_transposed2d": "conv_transpose2d"}.get(name, name[:6]))
        words = {{"pad": "padding"}.get(word, word): n for word, n in settings.items()}

        def peer(dtype: torch.dtype, x=x, w=w, last=last, conv_of=conv_of, words=words) -> torch.Tensor:
            if not last:
                return conv_of(x.to(dtype), w.to(dtype), **words)
            like = x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
            return conv_of(like[0].to(dtype), like[1].to(dtype), **words)

        want = peer(torch.float32)
        want = want.permute(0, 2, 3, 1) if last else want
        y = torch.full(want.shape, float("nan"), dtype=BF, device=DEVICE)
        kernel(x, w, None, y, **settings)
        about = described(ran_as(kernel, (x, w, None, y), settings)) | {"wrong": int((y != want.to(BF)).sum())}
        print(case, "wrong", about["wrong"], about["plan"], flush=True)
        x.copy_(torch.randn(x.shape, device=DEVICE))
        w.copy_(torch.randn(w.shape, device=DEVICE))
        calls = {"ours": kernel.bind(x, w, None, y, **settings), "peer": lambda peer=peer: peer(BF)}
        flops = 2.0 * (x if name == "conv_transposed2d" else y).numel() * w.numel() / w.shape[-1 if last else 0]
        timed(rows, case, calls, flush, about, flops)


def window(rows: Rows, flush: torch.Tensor) -> None:
    """Attention whose queries see a window of keys, against torch's compiled flex attention where it is there."""
    for heads, groups, length, depth, near in ((16, 4, 8192, 128, 1024), (16, 4, 8192, 64, 512)):
        case = f"window attention h{heads} kv{groups} s{length} d{depth} w{near}"
        kernel = fresh(lib.grouped_attention)
        q, y = (torch.randn(2, heads, length, depth, device=DEVICE).to(BF) for _ in range(2))
        k, v = (torch.randn(2, groups, length, depth, device=DEVICE).to(BF) for _ in range(2))
        lse = torch.empty(2, heads, length, device=DEVICE)
        staged = {"causal": True, "window": near}
        kernel(q, k, v, None, y, lse, **staged)
        rank = torch.arange(length, device=DEVICE)
        mask = (rank[:, None] >= rank[None]) & (rank[:, None] - rank[None] < near)
        peer = lambda q=q, k=k, v=v, m=mask: torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=m, enable_gqa=True
        )
        off = float((y[:1].double() - peer()[:1].double()).norm() / y[:1].double().norm())
        about = described(ran_as(kernel, (q, k, v, None, y, lse), staged)) | {"off": off}
        print(case, "off", off, about["plan"], flush=True)
        calls = {"ours": kernel.bind(q, k, v, None, y, lse, **staged), "peer": peer}
        timed(rows, case, calls, flush, about, 4.0 * 2 * heads * length * near * depth)


def packed(rows: Rows, flush: torch.Tensor) -> None:
    """Attention over packed sequences, keys of no sequence poisoned, against torch's of such sequences."""
    for heads, groups, depth, most in ((16, 16, 128, 4096), (16, 4, 64, 1500)):
        torch.manual_seed(depth)
        lengths = torch.randint(1, most, (12,)).tolist()
        ends = torch.tensor([5, *lengths]).cumsum(0).to(torch.int32).to(DEVICE)
        total, case = int(ends[-1]) + 9, f"packed attention h{heads} kv{groups} d{depth} lengths {lengths}"
        kernel = fresh(lib.varlen_attention)
        q, k, v = (torch.randn(total, n, depth, device=DEVICE).to(BF) for n in (heads, groups, groups))
        y = torch.full_like(q, float("nan"))
        for one in (q, k, v):
            one[:5], one[-9:] = float("nan"), float("nan")
        kernel(q, k, v, ends, ends, y)
        at, worst = ends.tolist(), 0.0
        for i, j in zip(at, at[1:]):
            mine = [x[i:j].transpose(0, 1).float() for x in (q, k, v)]
            want = torch.nn.functional.scaled_dot_product_attention(*mine, enable_gqa=True).transpose(0, 1)
            worst = max(worst, float((y[i:j].float() - want).norm() / want.norm()))
        beside = bool(y[:5].isnan().all() and y[-9:].isnan().all())
        about = described(ran_as(kernel, (q, k, v, ends, ends, y), {})) | {"off": worst, "beside_untouched": beside}
        print(case, "off", worst, beside, about["plan"], flush=True)
        calls = {"ours": kernel.bind(q, k, v, ends, ends, y)}
        first = (ends[1:] - ends[0]).contiguous()
        first = torch.cat([torch.zeros(1, dtype=torch.int32, device=DEVICE), first])
        if groups == heads:
            mine = [x[5:-9].contiguous() for x in (q, k, v)]
            longest = max(lengths)
            try:
                packed_peer = importlib.import_module("torch.nn.attention.varlen").varlen_attn
                packed_peer(*mine, first, first, longest, longest)
                calls["peer"] = lambda f=packed_peer, m=mine, c=first, n=longest: f(*m, c, c, n, n)
            except Exception as error:
                rows.append({"case": case, "call": "peer", "error": f"{type(error).__name__}: {error}"[:300]})
                print(rows[-1]["error"], flush=True)
        work = sum(4.0 * heads * depth * n * n for n in lengths)
        parts = [[x[i:j].transpose(0, 1).unsqueeze(0) for x in (q, k, v)] for i, j in zip(at, at[1:])]
        calls["one by one"] = lambda p=parts: [
            torch.nn.functional.scaled_dot_product_attention(*x, enable_gqa=True) for x in p
        ]
        timed(rows, case, calls, flush, about, work)


def warps(rows: Rows, flush: torch.Tensor) -> None:
    """Products by warps that copy for themselves: the plan where engines are left out."""
    admits = Streams.admits
    Streams.admits = lambda self, program, facts: ["left out"]  # for these calls
    try:
        for m, n, k in ((2048, 2048, 2048), (4096, 4096, 4096), (1000, 1000, 1000)):
            kernel, case = fresh(lib.linear), f"warps {m}x{n}x{k}"
            x, w = (torch.randint(-3, 4, s, device=DEVICE).to(BF) for s in ((m, k), (k, n)))
            y, z = (torch.empty(m, n, dtype=BF, device=DEVICE) for _ in range(2))
            kernel(x, w, None, y)
            wrong = int((y != (x.double() @ w.double()).to(BF)).sum())
            about = described(ran_as(kernel, (x, w, None, y), {})) | {"wrong": wrong}
            print(case, "wrong", wrong, about["plan"], flush=True)
            x.copy_(torch.randn(m, k, device=DEVICE))
            w.copy_(torch.randn(k, n, device=DEVICE))
            calls = {"ours": kernel.bind(x, w, None, y), "peer": lambda x=x, w=w, z=z: torch.mm(x, w, out=z)}
            timed(rows, case, calls, flush, about, 2.0 * m * n * k)
    finally:
        Streams.admits = admits  # as it was


def chained(rows: Rows, flush: torch.Tensor) -> None:
    """Plans of several launches, each launch dependent on the one before and not."""
    rooms = [importlib.import_module(f"treadle.realise.{name}") for name in ("threads", "roles")]
    linked = rooms[0].chained
    for m, n, k in ((4095, 4097, 4093), (1023, 1025, 1027)):
        x, w = (torch.randint(-3, 4, s, device=DEVICE).to(BF) for s in ((m, k), (k, n)))
        z = torch.empty(m, n, dtype=BF, device=DEVICE)
        calls: dict[str, Callable[[], Any]] = {"peer": lambda x=x, w=w, z=z: torch.mm(x, w, out=z)}
        about: dict[str, Any] = {}
        for name, way in (("ours", linked), ("apart", lambda machine: machine)):
            for room in rooms:
                room.chained = way
            kernel, y = fresh(lib.linear), torch.empty(m, n, dtype=BF, device=DEVICE)
            kernel(x, w, None, y)
            wrong = int((y != (x.double() @ w.double()).to(BF)).sum())
            about |= described(ran_as(kernel, (x, w, None, y), {})) if name == "ours" else {}
            print("chained", name, "wrong", wrong, flush=True)
            about[f"wrong {name}"] = wrong
            calls[name] = kernel.bind(x, w, None, y)
        for room in rooms:
            room.chained = linked
        timed(rows, f"chained {m}x{n}x{k}", calls, flush, about, 2.0 * m * n * k)


EXACT = [
    {"rows": rows, "columns": columns, "step": step, "versions": versions, "raster": "panels"}
    for rows, columns, step, versions in (
        (128, 128, 16, 1),
        (128, 128, 32, 2),
        (128, 256, 16, 2),
        (128, 256, 32, 2),
        (64, 64, 16, 2),
    )
]
"""Points of the family `blocks`."""


def exact(rows: Rows, flush: torch.Tensor) -> None:
    """Products of f32 without a permission, by multiply-add, beside cuBLAS."""
    axes = Blocks.axes
    torch.backends.cuda.matmul.allow_tf32 = False
    for m, n, k in ((4096, 4096, 4096), (1024, 1024, 1024)):
        x, w = (torch.randint(-3, 4, s, device=DEVICE).float() for s in ((m, k), (k, n)))
        y, z = (torch.empty(m, n, device=DEVICE) for _ in range(2))
        calls: dict[str, Any] = {"peer": lambda x=x, w=w, z=z: torch.mm(x, w, out=z)}
        about: dict[str, Any] = {}
        for point in [None, *EXACT]:
            if point is not None:
                Blocks.axes = lambda self, program, facts, point=point: [  # one point
                    Axis(a.name, (point.get(a.name, a.values[0]),)) for a in axes(self, program, facts)
                ]
            kernel, name = fresh(lib.linear), "ours" if point is None else str(point)
            kernel(x, w, None, y.fill_(-1))
            found = described(ran_as(kernel, (x, w, None, y), {}))
            wrong = int((y != x @ w).sum())
            about |= found if point is None else {}
            rows.append({"case": f"exact {m}x{n}x{k}", "point": point, "wrong": wrong, "registers": found["registers"]})
            print(name, "wrong", wrong, found["plan"], found["registers"], flush=True)
            calls[name] = kernel.bind(x, w, None, y)
        Blocks.axes = axes  # as it was
        x.copy_(torch.randn(m, k, device=DEVICE))
        w.copy_(torch.randn(k, n, device=DEVICE))
        timed(rows, f"exact {m}x{n}x{k}", calls, flush, about, 2.0 * m * n * k)


def gate(rows: Rows, flush: torch.Tensor) -> None:
    """Two products and a gate in one kernel, beside products, sigmoid and product of torch."""
    m, k, n = 4096, 4096, 11008
    x, a, b = (torch.randn(*s, device=DEVICE).to(BF) / 8 for s in ((m, k), (k, n), (k, n)))
    y, u, v = (torch.empty(m, n, dtype=BF, device=DEVICE) for _ in range(3))
    kernel = fresh(lib.gated_linear)
    kernel(x, a, b, y)

    def peer() -> torch.Tensor:
        torch.mm(x, a, out=u)
        torch.mm(x, b, out=v)
        return torch.nn.functional.silu(u).mul_(v)

    want = torch.nn.functional.silu(x.float() @ a.float()) * (x.float() @ b.float())
    about = described(ran_as(kernel, (x, a, b, y), {})) | {"off": float((y - want).norm() / want.norm())}
    print("gate off", about["off"], about["plan"], flush=True)
    calls = {
        "ours": kernel.bind(x, a, b, y),
        "peer": peer,
        "products": lambda: (torch.mm(x, a, out=u), torch.mm(x, b, out=v)),
    }
    timed(rows, "gate and up 4096x4096x11008", calls, flush, about, 4.0 * m * n * k)


def scans(rows: Rows, flush: torch.Tensor) -> None:
    """Running sums of rows beside torch."""
    for dtype in (torch.float32, BF):
        for m, n in ((4096, 4096), (16384, 1024)):
            x, y = (torch.randint(-2, 3, (m, n), device=DEVICE).to(dtype) for _ in range(2))
            kernel = fresh(lib.cumsum)
            kernel(x, y)
            wrong = int((y.float() != x.double().cumsum(1).to(dtype).float()).sum())
            about = described(ran_as(kernel, (x, y), {})) | {"wrong": wrong}
            print("cumsum", dtype, m, n, "wrong", wrong, about["plan"], flush=True)
            z = torch.empty_like(x)
            peer = lambda x=x, z=z: torch.cumsum(x, 1, dtype=x.dtype, out=z)
            calls = {"ours": kernel.bind(x, y), "peer": peer, "copy": lambda x=x, z=z: z.copy_(x)}
            timed(rows, f"cumsum {dtype} {m}x{n}", calls, flush, about, float(m * n))


PARTS = {
    "exact": exact,
    "gate": gate,
    "scans": scans,
    "conv": conv,
    "spread": spread,
    "window": window,
    "packed": packed,
    "warps": warps,
    "chained": chained,
}


def main(out: str, what: list[str]) -> None:
    """The parts that are asked for."""
    rows: Rows = []
    report = {**where_and_how(__doc__), "rows": rows}
    flush = torch.empty(512 << 20, dtype=torch.uint8, device=DEVICE)
    for name, part in PARTS.items():
        if name in (what or PARTS):
            try:
                part(rows, flush)
            except Exception as error:
                traceback.print_exc()
                rows.append({"case": name, "error": f"{type(error).__name__}: {error}"[:1500]})
            pathlib.Path(out).write_text(json.dumps(report))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    main(sys.argv[1], sys.argv[2:])
