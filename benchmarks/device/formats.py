"""Operand formats on a Hopper GPU, programs that only the universal plan takes, and small and thin products.

`python benchmarks/device/formats.py OUT.json [check] [time] [points]`: kernels are called as a user does; they plan,
are judged and compiled there. *Method*: integer-exact values; times by events, interleaved with the peer, the L2
overwritten before each sample, random data, medians. `points` times points of the streams
family beside one another (with TREADLE_CACHE=off, or all of them are the first).
"""

from __future__ import annotations

import pathlib
import sys
import warnings
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(pathlib.Path(__file__).parent)]

import numpy as np
import torch
from formats_kernels import (
    across,
    changed,
    counted,
    flipped,
    in_order,
    narrowed,
    product,
    rounded,
    shifted,
    through,
)
from room import (
    DEVICE,
    Checks,
    described,
    exactly,
    inside,
    interleaved,
    median,
    part_by_part,
    ran_as,
    synchronize,
    where_and_how,
)

import treadle as td
from treadle import lib
from treadle.plan.family import Axis
from treadle.runtime.arrays import ArrayView, view
from treadle.targets.cuda.streams import Streams

FORMATS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "bf16": ("bf16", "bf16", "f32", {}),
    "f16": ("f16", "f16", "f32", {}),
    "tf32": ("f32", "f32", "f32", {"tf32": True}),
    "i8": ("i8", "i8", "i32", {}),
    "u8 i8": ("u8", "i8", "i32", {}),
    "fp8": ("f8e4m3", "f8e4m3", "f32", {"fp8_accumulate": "hardware"}),
    "both fp8": ("f8e4m3", "f8e5m2", "f32", {"fp8_accumulate": "hardware"}),
}
TORCH = {
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "f32": torch.float32,
    "i8": torch.int8,
    "u8": torch.uint8,
    "i32": torch.int32,
    "f8e4m3": torch.float8_e4m3fn,
    "f8e5m2": torch.float8_e5m2,
    "f8e8m0": torch.uint8,
}


def seen(tensor: torch.Tensor, dtype: str) -> Any:
    """A tensor as an argument; formats that torch does not export as views of their bytes."""
    if not dtype.startswith("f8"):
        return tensor
    raw = view(tensor.view(torch.uint8))
    return ArrayView(raw.ptr, raw.shape, raw.strides, dtype, raw.device, True, (raw.owner, tensor))


def matrices(name: str, m: int, n: int, k: int, most: int = 3) -> tuple[Any, Any, Any, torch.Tensor, torch.Tensor]:
    """Arguments X [m, k] and W [n, k] of small integers, the output, and the exact values of both."""
    left, right, acc, _ = FORMATS[name]
    low = [0 if f == "u8" else -most for f in (left, right)]
    x, w = (torch.randint(lo, most + 1, s, device=DEVICE).float() for lo, s in zip(low, ((m, k), (n, k))))
    y = torch.empty(m, n, dtype=TORCH[acc], device=DEVICE)
    return seen(x.to(TORCH[left]), left), seen(w.to(TORCH[right]), right), y, x, w


def check_formats(checks: Checks) -> None:
    """Every format, whole blocks and ragged ones."""
    for name, (_, _, acc, permissions) in FORMATS.items():
        numerics = td.Numerics(**permissions)
        for m, n, k in ((256, 256, 256), (4096, 4096, 4096), (264, 136, 528), (1, 8, 16), (127, 1000, 4000)):
            x, w, y, exact_x, exact_w = matrices(name, m, n, k)
            want = (exact_x.double() @ exact_w.double().T).to(y.dtype)
            kernel = product.under(numerics)
            if not y.dtype.is_floating_point:
                kernel(x, w, y.fill_(-77), acc=td.i32)
                about = described(ran_as(kernel, (x, w, y), {"acc": td.i32}))
                row = {"case": f"format/{name}/{m}x{n}x{k}", **about, **exactly(want)(y)}
                checks.rows.append(row)
                print(row["case"], row["right"], row["plan"], flush=True)
                continue
            checks.call(f"format/{name}/{m}x{n}x{k}", kernel, (x, w), y, exactly(want), repeats=2, acc=getattr(td, acc))


def check_across(rows: list[dict[str, Any]]) -> None:
    """Operands of 8 and 32 bits that the tensor cores cannot turn."""
    for name in ("tf32", "i8", "fp8"):
        left, right, acc, permissions = FORMATS[name]
        for m, n, k in ((256, 384, 512), (100, 333, 77), (2048, 2048, 2048)):
            x, _, y, exact_x, _ = matrices(name, m, n, k)
            w = torch.randint(-3, 4, (k, n), device=DEVICE).float()
            kernel, staged = across.under(td.Numerics(**permissions)), {"acc": getattr(td, acc)}
            args = x, seen(w.to(TORCH[right]), right), y
            kernel(*args, **staged)
            want = (exact_x.double() @ w.double()).to(y.dtype)
            rows.append(
                {"case": f"across/{name}/{m}x{n}x{k}", **described(ran_as(kernel, args, staged)), **exactly(want)(y)}
            )
            print(rows[-1]["case"], rows[-1]["right"], rows[-1]["plan"], flush=True)


def blocks(m: int, n: int, k: int) -> tuple[tuple[Any, ...], torch.Tensor, torch.Tensor]:
    """Arguments of a product of fp8 with scales (powers of two) of blocks of 128, its output, the exact values."""
    x, w = (torch.randint(-3, 4, s, device=DEVICE).float() for s in ((m, k), (n, k)))
    a, b = (2.0 ** torch.randint(-2, 3, s, device=DEVICE).float() for s in ((m, k // 128), (n // 128, k // 128)))
    wide = a.repeat_interleave(128, 1), b.repeat_interleave(128, 0).repeat_interleave(128, 1)
    want = ((x * wide[0]).double() @ (w * wide[1]).double().T).float()
    y = torch.empty(m, n, device=DEVICE)
    fp8 = torch.float8_e4m3fn
    return (seen(x.to(fp8), "f8e4m3"), seen(w.to(fp8), "f8e4m3"), a, b, y), y, want


def check_blocks(rows: list[dict[str, Any]]) -> None:
    """Scales of blocks along the depth."""
    kernel = lib.fp8_block_matmul.under(td.Numerics(fp8_accumulate="hardware"))
    for m, n, k in ((128, 128, 128), (1000, 384, 640), (4096, 4096, 4096)):
        args, y, want = blocks(m, n, k)
        kernel(*args)
        rows.append({"case": f"blocks/{m}x{n}x{k}", **described(ran_as(kernel, args, {})), **exactly(want)(y)})
        print(rows[-1]["case"], rows[-1]["right"], rows[-1]["plan"], flush=True)


def check_universal(rows: list[dict[str, Any]]) -> None:
    """Programs of the universal plan: the device's arrays against the same kernel on the CPU's interpreter."""
    rng = np.random.default_rng(3)
    f32 = lambda *s: rng.integers(-9, 10, s).astype(np.float32)
    wide = rng.standard_normal(4000) * 10.0 ** rng.integers(-12, 12, 4000)
    numbers = np.concatenate([wide, [np.nan, np.inf, -np.inf, 0.0, -0.0]]).astype(np.float32)
    normal = lambda *s: rng.standard_normal(s).astype(np.float32)
    u8 = lambda *s: rng.integers(0, 256, s, dtype=np.uint8)
    zeros = np.zeros
    weights = u8(16, 32), f32(16, 4), f32(16, 4)
    labels = rng.integers(0, 5, 500).astype(np.int32)
    cases: list[tuple[str, Any, list[Any], list[Any], dict[str, Any]]] = [
        ("to fp8, scaled", lib.quantise_fp8, [f32(8, 64)], [zeros((8, 64), td.f8e4m3.numpy), zeros(8, "f")], {}),
        ("to four bits", narrowed, [np.abs(f32(7, 33)) + 3], [np.full((7, 17), 0xEE, np.uint8)], {}),
        ("a changed element", changed, [f32(5, 6), 2], [zeros(5, "f"), zeros(5, "f")], {}),
        ("replaced in place", shifted, [f32(100)], [zeros(100, "f")], {}),
        ("collisions in order", in_order, [normal(500, 3), labels], [zeros((5, 3), "f")], {}),
        ("sorted", lib.argsort, [f32(5, 300)], [zeros((5, 300), np.int64)], {}),
        ("counted", counted, [rng.random((9, 70)) < 0.5], [zeros(9, np.int32), zeros(9, np.bool_)], {}),
        ("int4 weights", lib.int4_matmul, [f32(8, 64), *weights], [zeros((8, 16), "f")], {"group": 16}),
        ("rounded twice", rounded, [normal(65, 70), normal(70, 40)], [zeros((65, 40), "f")], {}),
    ]
    for to in (td.f8e4m3, td.f8e5m2, td.f8e8m0):
        outs = [zeros(numbers.size, to.numpy), zeros(numbers.size, to.numpy), zeros(numbers.size, "f")]
        cases.append((f"through {to}", through, [numbers], outs, {"to": to}))
    for name, kernel, given, outs, staged in cases:
        row: dict[str, Any] = {"case": name}
        rows.append(row)
        try:
            want = [o.copy() for o in outs]
            if kernel is rounded:
                want[0] = in_steps(*given)
            else:
                kernel.reference(*given, *want, **staged)
            there = [on_device(a) for a in (*given, *outs)]
            kernel(*[a for a, _ in there], **staged)
            synchronize()
            got = [back(t, o) for (_, t), o in zip(there[len(given) :], outs)]
            row |= described(ran_as(kernel, tuple(a for a, _ in there), staged))
            row["right"] = all(same(g, w) for g, w in zip(got, want))
        except Exception as error:
            row |= {"right": False, "error": f"{type(error).__name__}: {error}"[:1500]}
        print(name, {k: row.get(k) for k in ("right", "plan", "error")}, flush=True)
    row = {"case": "an output on its input"}
    rows.append(row)
    codes = torch.arange(256, dtype=torch.uint8, device=DEVICE)
    flipped(codes, codes)
    row["right"] = bool((codes == 255 - torch.arange(256, device=DEVICE)).all())
    x = torch.arange(1000.0, device=DEVICE)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        shifted(x[:-1], x[1:])
    row["right"] &= x[5:].tolist() == [float(i - 4) for i in range(5, 1000)] or "moved otherwise"
    print("overlap", row, x[:8].tolist(), flush=True)


def in_steps(x: Any, w: Any) -> Any:
    """A product whose steps along the depth are rounded twice, in order."""
    total = np.zeros((x.shape[0], w.shape[1]), np.float32)
    for k in range(x.shape[1]):
        total = total + x[:, k, None] * w[k]
    return total


def on_device(value: Any) -> tuple[Any, Any]:
    """A NumPy array on the device as an argument, and the tensor that holds it; numbers as they are."""
    if not isinstance(value, np.ndarray):
        return value, None
    name = {d.numpy: d.name for d in (td.f8e4m3, td.f8e5m2, td.f8e8m0)}.get(value.dtype)
    if name is None:
        tensor = torch.from_numpy(value.copy()).to(DEVICE)
        return tensor, tensor
    tensor = torch.from_numpy(value.view(np.uint8).copy()).to(DEVICE)
    raw = view(tensor)
    return ArrayView(raw.ptr, raw.shape, raw.strides, name, raw.device, True, (raw.owner, tensor)), tensor


def back(tensor: torch.Tensor, like: Any) -> Any:
    """The values of the tensor as an array like another."""
    return tensor.cpu().numpy().view(like.dtype)


def same(a: Any, b: Any) -> bool:
    """Equal bits, any NaN for any other."""
    fine = a.view(np.uint8) == b.view(np.uint8) if a.dtype.itemsize == 1 else a == b
    return bool((fine | (np.isnan(a.astype(np.float32)) & np.isnan(b.astype(np.float32)))).all())


# ---- times


def peers(name: str, x: torch.Tensor, w: torch.Tensor) -> Any:
    """The best of torch for a format."""
    left = FORMATS[name][0]
    if name in ("bf16", "f16", "tf32"):
        torch.backends.cuda.matmul.allow_tf32 = True
        a, b = x.to(TORCH[left]), w.to(TORCH[left])
        out = torch.empty(x.shape[0], w.shape[0], dtype=TORCH[left], device=DEVICE)
        return lambda: torch.mm(a, b.T, out=out)
    if name == "i8":
        a, b = x.to(torch.int8), w.to(torch.int8)
        return lambda: torch._int_mm(a, b.T)
    if name == "fp8":
        a, b = x.to(torch.float8_e4m3fn), w.to(torch.float8_e4m3fn)
        one = torch.ones((), device=DEVICE)
        return lambda: torch._scaled_mm(a, b.T, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    return None


def time_formats(rows: list[dict[str, Any]], flush: torch.Tensor) -> None:
    """Products of 4096 cubed, the output in the peer's format."""
    for name in ("bf16", "f16", "tf32", "i8", "fp8"):
        left, right, acc, permissions = FORMATS[name]
        size = 4096
        x, w = (torch.randn(size, size, device=DEVICE) * (30 if name == "i8" else 1) for _ in range(2))
        out = {"tf32": "f32", "i8": "i32", "fp8": "bf16"}.get(name, left)
        y = torch.empty(size, size, dtype=TORCH[out], device=DEVICE)
        args = seen(x.to(TORCH[left]), left), seen(w.to(TORCH[right]), right), y
        kernel, staged = product.under(td.Numerics(**permissions)), {"acc": getattr(td, acc)}
        call = kernel.bind(*args, **staged)
        timed(
            rows,
            f"{name} {size}",
            {"ours": call, "peer": peers(name, x, w)},
            flush,
            described(ran_as(kernel, args, staged)),
        )


def check_ragged(checks: Checks) -> None:
    """Rows that no engine can copy: of odd lengths, with odd offsets, one operand of both or both."""
    for m, n, k in ((4095, 4097, 4093), (129, 257, 65), (1, 3, 5), (1000, 24, 4099), (64, 4099, 4096)):
        for odd in ((True, True), (True, False), (False, True)):
            x, w = (torch.randint(-3, 4, s, device=DEVICE).bfloat16() for s in ((m, k), (k, n)))
            y = inside(torch.empty(m, n, dtype=torch.bfloat16, device=DEVICE), odd=True)
            want = (x.double() @ w.double()).bfloat16()
            given = inside(x, odd=odd[0]), inside(w, odd=odd[1]), None
            checks.call(f"ragged/{m}x{n}x{k}/{odd}", lib.linear, given, y, exactly(want), repeats=2)


def time_ragged(rows: list[dict[str, Any]], flush: torch.Tensor) -> None:
    """A product of odd sides, whole call against cuBLAS."""
    for m, n, k in ((4095, 4097, 4093), (2047, 2049, 2051)):
        x, w = (torch.randn(*s, device=DEVICE).bfloat16() for s in ((m, k), (k, n)))
        y, z = (torch.empty(m, n, dtype=torch.bfloat16, device=DEVICE) for _ in range(2))
        about = described(ran_as(lib.linear, (x, w, None, y), {}))
        call = lib.linear.bind(x, w, None, y)
        timed(
            rows,
            f"ragged {m}x{n}x{k}",
            {"ours": call, "peer": lambda x=x, w=w, z=z: torch.mm(x, w, out=z)},
            flush,
            about,
        )


def time_small(rows: list[dict[str, Any]], flush: torch.Tensor) -> None:
    """Thin and small products, and batches of small ones; each kernel anew, so that its plan is for that call."""
    for m, n, k in ((16, 8192, 8192), (64, 8192, 8192), (1, 8192, 8192), (512, 512, 512), (1024, 1024, 1024)):
        x, w = (torch.randn(*s, device=DEVICE).bfloat16() for s in ((m, k), (k, n)))
        y, z = (torch.empty(m, n, dtype=torch.bfloat16, device=DEVICE) for _ in range(2))
        kernel = td.kernel(lib.linear.definition.fn)
        about = described(ran_as(kernel, (x, w, None, y), {}))
        peer = lambda x=x, w=w, z=z: torch.mm(x, w, out=z)
        calls = {"ours": kernel.bind(x, w, None, y), "peer": peer}
        timed(rows, f"product {m}x{n}x{k}", calls, flush, about)
    x, w = (torch.randn(32, 512, 64, device=DEVICE).bfloat16(), torch.randn(32, 64, 512, device=DEVICE).bfloat16())
    y, z = (torch.empty(32, 512, 512, dtype=torch.bfloat16, device=DEVICE) for _ in range(2))
    about = described(ran_as(lib.batched_matmul, (x, w, y), {}))
    calls = {"ours": lib.batched_matmul.bind(x, w, y), "peer": lambda: torch.bmm(x, w, out=z)}
    timed(rows, "batched 32x(512,512,64)", calls, flush, about)
    kernel = lib.fp8_block_matmul.under(td.Numerics(fp8_accumulate="hardware"))
    args, _, _ = blocks(4096, 4096, 4096)
    timed(rows, "fp8 scaled blocks 4096", {"ours": kernel.bind(*args)}, flush, described(ran_as(kernel, args, {})))
    for name in ("i8", "fp8"):
        left, right, acc, permissions = FORMATS[name]
        a, b = (torch.randint(-3, 4, (4096, 4096), device=DEVICE).float() for _ in range(2))
        y = torch.empty(4096, 4096, dtype=TORCH[acc], device=DEVICE)
        args = seen(a.to(TORCH[left]), left), seen(b.to(TORCH[right]), right), y
        kernel, staged = across.under(td.Numerics(**permissions)), {"acc": getattr(td, acc)}
        about = described(ran_as(kernel, args, staged))
        timed(rows, f"{name} across 4096", {"ours": kernel.bind(*args, **staged)}, flush, about)


Choice = tuple[int, int, int, int, int, bool]
POINTS: dict[str, tuple[tuple[int, int, int], list[Choice]]] = {
    "thin 1": ((1, 8192, 8192), [(1, 64, 256, 3, 0, False), (1, 8, 256, 4, 0, True), (1, 8, 128, 8, 0, True)]),
    "thin 16": (
        (16, 8192, 8192),
        [
            *((1, 64, step, versions, 0, False) for step, versions in ((64, 8), (128, 6), (256, 3))),
            *((1, 16, step, versions, 0, True) for step, versions in ((64, 8), (128, 8), (256, 4))),
            *((2, columns, step, versions, 0, True) for columns, step, versions in ((16, 128, 4), (8, 256, 3))),
        ],
    ),
    "thin 64": (
        (64, 8192, 8192),
        [
            *((1, 64, step, versions, 0, False) for step, versions in ((64, 8), (128, 6), (256, 3))),
            *((1, 64, step, versions, 0, True) for step, versions in ((64, 8), (128, 6), (256, 3))),
        ],
    ),
    "512": (
        (512, 512, 512),
        [
            *((1, 64, step, versions, 0, False) for step, versions in ((64, 8), (128, 4), (256, 3))),
            *((n, columns, step, 2, 0, True) for n, columns, step in ((2, 32, 256), (1, 64, 256))),
        ],
    ),
    "1024": (
        (1024, 1024, 1024),
        [
            *((2, 64, step, versions, 0, False) for step, versions in ((128, 4), (256, 2))),
            *((1, 128, step, versions, 0, False) for step, versions in ((64, 8), (128, 4), (256, 2))),
            (1, 128, 128, 4, 1, False),
        ],
    ),
}
"""Of the streams family: consumers, columns, step, versions, flight, turned."""
NAMES = ("consumers", "columns", "step", "versions", "flight", "turned")


def time_points(rows: list[dict[str, Any]], flush: torch.Tensor) -> None:
    """Points of the streams family beside the peer."""
    axes = Streams.axes
    for case, ((m, n, k), points) in POINTS.items():
        x, w = (torch.randn(*s, device=DEVICE).bfloat16() for s in ((m, k), (k, n)))
        y = torch.empty(m, n, dtype=torch.bfloat16, device=DEVICE)
        z = torch.empty_like(y)
        calls: dict[str, Any] = {"peer": lambda x=x, w=w, z=z: torch.mm(x, w, out=z)}
        for choice in points:
            point = dict(zip(NAMES, choice))
            whole = {"turns": False, "raster": "panels", "staged": not point["turned"]} | point
            Streams.axes = lambda self, program, facts, whole=whole: [  # one point
                Axis(a.name, (whole[a.name],)) for a in axes(self, program, facts)
            ]
            kernel = td.kernel(lib.linear.definition.fn)
            try:
                calls[str(point)] = kernel.bind(x, w, None, y)
                kernel(x, w, None, y)
                wrong = int(((y.float() - torch.mm(x.float(), w.float())).abs() > 0.02 * k**0.5).sum())
                plan = described(ran_as(kernel, (x, w, None, y), {}))["plan"]
                rows.append({"case": case, "point": point, "plan": plan, "wrong": wrong})
            except Exception as error:
                print(case, point, f"{type(error).__name__}: {error}"[:300], flush=True)
        Streams.axes = axes  # as it was
        timed(rows, case, calls, flush, {})


def timed(
    rows: list[dict[str, Any]], case: str, calls: dict[str, Any], flush: torch.Tensor, about: dict[str, Any]
) -> None:
    """Medians of calls beside the peer."""
    known = {name: call for name, call in calls.items() if call is not None}
    samples = interleaved(known, 60, flush)
    peer = median(samples["peer"]) if "peer" in samples else None
    for name, values in samples.items():
        us = median(values)
        row = {"case": case, "call": name, "us": us, "ratio": None if peer is None else peer / us, "samples_us": values}
        rows.append(row | (about if name == "ours" else {}))
        print(
            case,
            name,
            round(us, 1),
            None if peer is None else round(peer / us, 3),
            about.get("plan", "") if name == "ours" else "",
            flush=True,
        )


def main(out: str, what: list[str]) -> None:
    report = where_and_how(__doc__)
    torch.manual_seed(1)
    flush = torch.empty(512 << 20, dtype=torch.uint8, device=DEVICE)
    parts: list[tuple[str, Any]] = []
    if "check" in what:
        checks = Checks()
        report["formats"], report["universal"] = checks.rows, []
        parts += [("ragged", lambda: check_ragged(checks)), ("across", lambda: check_across(checks.rows))]
        parts += [("blocks", lambda: check_blocks(checks.rows))]
        parts += [
            ("formats", lambda: check_formats(checks)),
            ("universal", lambda: check_universal(report["universal"])),
        ]
    if "time" in what:
        report["times"] = []
        parts += [("ragged times", lambda: time_ragged(report["times"], flush))]
        parts += [
            ("times", lambda: time_formats(report["times"], flush)),
            ("small", lambda: time_small(report["times"], flush)),
        ]
    if "points" in what:
        report["points"] = []
        parts += [("points", lambda: time_points(report["points"], flush))]
    part_by_part(out, report, dict(parts))
    wrong = [r["case"] for key in ("formats", "universal") for r in report.get(key, []) if not r.get("right")]
    print("wrong:", wrong)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:] or ["check", "time"])
