"""The CUDA emitter on a Hopper GPU: hand texts, universal and row plans, every operation; values first, then times.

`python benchmarks/device/emit_check.py OUT.json` runs what `emit_make.py` wrote to benchmarks/device/build, beside
torch.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import random
import statistics
import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(__file__).parent / "build"
sys.path[:0] = [str(ROOT / "src")]

from treadle.dtype.formats import BY_NAME
from treadle.machine.parse import parse_machine
from treadle.runtime.cuda import CudaLaunch, load_cubin
from treadle.runtime.driver import device
from treadle.targets.cuda.emit import Call, EmittedCuda, cleared_bytes, emit, prepare, workspace_bytes


class Loaded:
    """A program on the device."""

    def __init__(self, name: str) -> None:

        self.name = name
        self.program = parse_machine((BUILD / f"{name}.tdm").read_text())
        self.emitted: EmittedCuda = emit(self.program)
        digest = hashlib.sha256(self.emitted.source.encode()).hexdigest()
        if digest != (BUILD / f"{name}.sha").read_text():
            raise SystemExit(f"{name}: the text emitted here is not what the cubin was made from")
        self.module = load_cubin((BUILD / f"{name}.cubin").read_bytes(), self.emitted.arch, device(0), name=name)

    def bind(self, extents: dict[str, int], tensors: dict[str, Any]) -> Any:
        """A callable that launches everything once."""
        return self.launch(extents, tensors, {n: tuple(t.stride()) for n, t in tensors.items()})

    def launch(self, extents: dict[str, int], tensors: dict[str, Any], strides: dict[str, tuple[int, ...]]) -> Any:
        """As `bind`, strides given."""
        pointers = {n: int(t.data_ptr()) for n, t in tensors.items()}
        call = Call(extents, pointers, strides, {})
        room = torch.empty(max(16, workspace_bytes(self.emitted, call)), dtype=torch.uint8, device="cuda")
        call = Call(extents, pointers, strides, {}, int(room.data_ptr()))
        launches = [
            CudaLaunch(self.module.function(p.kernel, shared=p.geometry.shared), p.geometry, p.arguments, keeps=room)
            for p in prepare(self.emitted, call)
        ]

        end, cleared = workspace_bytes(self.emitted, call), cleared_bytes(self.emitted, call)
        counters = room[end - cleared : end]

        def go() -> None:
            if cleared:
                counters.zero_()
            for launch in launches:
                launch()

        return go


def tensor_of(array: np.ndarray) -> Any:
    """An array on the device; NaN and known bytes around it are not needed here."""
    plain = np.ascontiguousarray(array)
    if plain.dtype == np.uint16:
        return torch.from_numpy(plain.view(np.int16)).cuda().view(torch.bfloat16)
    return torch.from_numpy(plain).cuda()


def back(tensor: Any) -> np.ndarray:
    """A tensor's values; bf16 as bits."""
    return (
        tensor.view(torch.int16).cpu().numpy().view(np.uint16)
        if tensor.dtype == torch.bfloat16
        else tensor.cpu().numpy()
    )


def wide(array: np.ndarray, like: Any) -> np.ndarray:
    """As f64; bits as the bf16 they are."""
    return (array.view(ml_dtypes.bfloat16) if like.dtype == torch.bfloat16 else array).astype(np.float64)


def small_programs(manifest: dict[str, Any], report: dict[str, Any]) -> None:
    """Universal and row plans on small arguments, against the interpreter and, bit for bit, the simulator."""
    rows = report["small"] = []
    for key, number, extents in manifest["small"]:
        saved = np.load(BUILD / f"{key}.{number}.npz")
        tensors = {n.removeprefix("in."): tensor_of(saved[n]) for n in saved.files if n.startswith("in.")}
        Loaded(key).bind(extents, tensors)()
        torch.cuda.synchronize()
        worst, same = 0.0, True
        for name in (n.removeprefix("want.") for n in saved.files if n.startswith("want.")):
            got = back(tensors[name])
            a, b = wide(got, tensors[name]), wide(saved[f"want.{name}"], tensors[name])
            unit = 2.0**-7 if tensors[name].dtype == torch.bfloat16 else 1e-4
            gap = np.where(np.isnan(a) & np.isnan(b), 0.0, np.abs(a - b)) / (unit * np.maximum(1.0, np.abs(b)))
            worst = max(worst, float(np.max(gap, initial=0.0)))
            if f"same.{name}" in saved.files:
                same &= bool(np.array_equal(a, wide(saved[f"same.{name}"], tensors[name]), equal_nan=True))
        rows.append({"plan": key, "extents": extents, "worst_of_bound": worst, "equals_simulator": same})
        print(rows[-1], flush=True)


def all_operations(manifest: dict[str, Any], report: dict[str, Any]) -> None:
    """Elementwise operations and conversions bit for bit; NaN equals NaN, of equal zeros either (maximum, minimum)."""
    rows = report["operations"] = {}
    for key, outs in manifest["ops"]:
        saved = np.load(BUILD / f"{key}.npz")
        name = key.removeprefix("ops_")
        buffers = {n: torch.from_numpy(saved[f"in.{n}"].copy()).cuda() for n in ("A", "B")}
        buffers |= {y: torch.full((len(saved[f"want.{y}"]),), 0xAB, dtype=torch.uint8, device="cuda") for y in outs}
        count = len(saved["in.A"]) // BY_NAME[name].numpy.itemsize
        Loaded(key).launch({"N": count}, buffers, {n: (1,) for n in buffers})()
        torch.cuda.synchronize()
        wrong: dict[str, Any] = {}
        for y, out in outs.items():
            kind = BY_NAME[out].numpy
            got, want = buffers[y].cpu().numpy().view(kind), saved[f"want.{y}"].view(kind)
            same = got.view(np.uint8).reshape(count, -1) == want.view(np.uint8).reshape(count, -1)
            fine = same.all(axis=1)
            if BY_NAME[out].is_float:
                a, b = got.astype(np.float64), want.astype(np.float64)
                fine |= np.isnan(a) & np.isnan(b)
                if y in ("Y_maximum", "Y_minimum"):
                    fine |= (a == 0) & (b == 0)
            if not fine.all():
                at = int(np.flatnonzero(~fine)[0])
                inputs = [saved[f"in.{n}"].view(BY_NAME[name].numpy)[at] for n in "AB"]
                wrong[y] = [int((~fine).sum()), [str(x) for x in (*inputs, got[at], want[at])]]
        rows[name] = {"outputs": len(outs), "elements": count, "wrong": wrong}
        print(name, rows[name], flush=True)


def inside(rows: int, columns: int, fill: Any, pad: int = 8) -> Any:
    """A view whose neighbours on every side are NaN."""
    room = torch.full((rows + 4, columns + 2 * pad), float("nan"), dtype=torch.bfloat16, device="cuda")
    view = room[2 : rows + 2, pad : columns + pad]
    view.copy_(fill)
    return view


def untouched(view: Any) -> bool:
    """Whether the neighbours of a view are still NaN."""
    room = view._base.clone()
    rows, columns = view.shape
    room[2 : rows + 2, 8 : columns + 8] = float("nan")
    return bool(room.isnan().all())


def products(report: dict[str, Any]) -> dict[str, Loaded]:
    """K2: integer-exact without the activation, within the derived bound with it."""
    torch.manual_seed(1)
    loaded = {n: Loaded(n) for n in ("k2_product", "k2_gemm")}
    checks = report["k2"] = []
    for m, n, k in ((257, 520, 136), (128, 256, 64), (1, 8, 8), (129, 264, 72), (300, 1000, 4096), (4096, 4096, 4096)):
        x = inside(m, k, torch.randint(-4, 5, (m, k), device="cuda"))
        w = inside(k, n, torch.randint(-4, 5, (k, n), device="cuda"))
        want = (x.double() @ w.double()).float().to(torch.bfloat16)
        y = inside(m, n, torch.full((m, n), float("nan"), device="cuda"))
        go = loaded["k2_product"].bind({"M": m, "N": n, "K": k}, {"X": x, "W": w, "Y": y})
        go()
        torch.cuda.synchronize()
        first, differ = y.clone(), 0
        for _ in range(20):
            y.fill_(float("nan"))
            go()
            differ += int(not torch.equal(y, first))
        row = {"case": "product", "shape": [m, n, k], "wrong": int((first != want).sum()), "runs_that_differ": differ}
        checks.append(row | {"neighbours_untouched": untouched(y)})
        print(checks[-1], flush=True)
    for m, n, k in ((257, 520, 136), (300, 1000, 4096), (2048, 2048, 2048)):
        x = inside(m, k, torch.randn(m, k, device="cuda"))
        w = inside(k, n, torch.randn(k, n, device="cuda") / k**0.5)
        bias = torch.randn(n, device="cuda").to(torch.bfloat16)
        before = x.double() @ w.double() + bias.double()
        want = 0.5 * before * (1.0 + torch.erf(before * 0.5**0.5))
        slack = (x.double().abs() @ w.double().abs() + bias.double().abs()) * 1.13 * (k + 2) * 2.0**-23
        y = inside(m, n, torch.full((m, n), float("nan"), device="cuda"))
        loaded["k2_gemm"].bind({"M": m, "N": n, "K": k}, {"X": x, "W": w, "bias": bias, "Y": y})()
        torch.cuda.synchronize()
        # One rounding to bf16, the f32 accumulation, and the function itself (2e-7 of |x|).
        bound = want.abs() * 2.0**-8 + slack + 4e-7 * before.abs() + 1e-30
        error = (y.double() - want).abs()
        row = {
            "case": "gelu",
            "shape": [m, n, k],
            "worst_of_bound": float((error / bound).max()),
            "nan": int(y.isnan().sum()),
        }
        checks.append(row | {"neighbours_untouched": untouched(y)})
        print(checks[-1], flush=True)
    return loaded


def attention_reference(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """In f64."""
    s = q.double() @ k.double().transpose(1, 2) * (0.12751743 * 0.6931471805599453)
    if causal:
        s = s.masked_fill(torch.ones_like(s[0], dtype=torch.bool).triu(1), float("-inf"))
    return torch.softmax(s, -1) @ v.double()


def attentions(report: dict[str, Any]) -> dict[str, Loaded]:
    """K3 against f64; cuDNN's own distance beside it."""
    names = json.loads((BUILD / "manifest.json").read_text())["hand"]
    loaded = {n: Loaded(n) for n in names if n.startswith("k3")}
    checks = report["k3"] = []
    torch.manual_seed(2)
    for g, q_rows, s_rows in ((3, 200, 333), (2, 128, 128), (1, 1, 5), (4, 1024, 1024)):
        for name, one in loaded.items():
            causal = "ahead" in name
            rows = q_rows if not causal else min(q_rows, s_rows)
            q, k, v = (torch.randn(g, n, 128, device="cuda").to(torch.bfloat16) for n in (rows, s_rows, s_rows))
            o = torch.full_like(q, float("nan"))
            go = one.bind({"G": g, "Q": rows, "S": s_rows}, {"q": q, "k": k, "v": v, "o": o})
            go()
            torch.cuda.synchronize()
            want = attention_reference(q, k, v, causal)
            first, differ = o.clone(), 0
            for _ in range(20):
                o.fill_(float("nan"))
                go()
                differ += int(not torch.equal(o, first))
            with sdpa_kernel(SDPBackend.MATH):
                peer = torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=causal)[0]
            row = {
                "case": name,
                "shape": [g, rows, s_rows],
                "relative_2norm": float((first.double() - want).norm() / want.norm()),
                "torch_relative_2norm": float((peer.double() - want).norm() / want.norm()),
                "largest_error": float((first.double() - want).abs().max()),
                "nan": int(first.isnan().sum()),
                "runs_that_differ": differ,
            }
            checks.append(row)
            print(row, flush=True)
    return loaded


def interleaved(calls: dict[str, Any], rounds: int, flush: Any) -> dict[str, float]:
    """Medians in microseconds, calls in random order, caches overwritten before each."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    order, shuffle = list(calls), random.Random(7)
    for _ in range(rounds):
        shuffle.shuffle(order)
        events = []
        for name in order:
            flush.zero_()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            calls[name]()
            end.record()
            events.append((name, start, end))
        torch.cuda.synchronize()
        for name, start, end in events:
            samples[name].append(start.elapsed_time(end) * 1000)
    return {name: statistics.median(values) for name, values in samples.items()}


def times(report: dict[str, Any], k2: dict[str, Loaded], k3: dict[str, Loaded], manifest: dict[str, Any]) -> None:
    """Against cuBLAS, cuDNN and copies."""
    flush = torch.empty(512 << 20, dtype=torch.uint8, device="cuda")
    found = report["times_us"] = {}
    for size in (2048, 4096):
        x = torch.randn(size, size, device="cuda").to(torch.bfloat16)
        w = (torch.randn(size, size, device="cuda") / size**0.5).to(torch.bfloat16)
        bias = torch.randn(size, device="cuda").to(torch.bfloat16)
        outs = [torch.empty(size, size, dtype=torch.bfloat16, device="cuda") for _ in range(3)]
        extents = {"M": size, "N": size, "K": size}
        found[f"k2 {size}"] = interleaved(
            {
                "product": k2["k2_product"].bind(extents, {"X": x, "W": w, "Y": outs[0]}),
                "gelu": k2["k2_gemm"].bind(extents, {"X": x, "W": w, "bias": bias, "Y": outs[1]}),
                "torch.mm": lambda x=x, w=w, y=outs[2]: torch.mm(x, w, out=y),
            },
            60,
            flush,
        )
        print(size, found[f"k2 {size}"], flush=True)
    g, s = 64, 4096
    q, k, v = (torch.randn(g, s, 128, device="cuda").to(torch.bfloat16) for _ in range(3))
    o = torch.empty_like(q)
    extents = {"G": g, "Q": s, "S": s}
    calls = {n: one.bind(extents, {"q": q, "k": k, "v": v, "o": o}) for n, one in k3.items()}
    heads = [t.view(4, 16, s, 128) for t in (q, k, v)]

    def peer(causal: bool) -> Any:
        def go() -> None:
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=causal)

        return go

    found["k3 d128 b4 h16 s4096"] = interleaved(calls | {"cudnn": peer(False), "cudnn causal": peer(True)}, 20, flush)
    print(found["k3 d128 b4 h16 s4096"], flush=True)
    for key, name, extents in manifest["rows"]:
        dtype = torch.bfloat16 if "bf16" in name else torch.float32
        x = torch.randn(extents["M"], extents["N"], device="cuda").to(dtype)
        y, z = torch.empty_like(x), torch.empty_like(x)
        tensors = {"X": x, "Y": y}
        if name == "layernorm":
            tensors |= {n: torch.randn(extents["N"], device="cuda") for n in ("G", "B")}
        go = Loaded(key).bind(extents, tensors)
        go()
        torch.cuda.synchronize()
        row = interleaved({"ours": go, "copy": lambda z=z, x=x: z.copy_(x)}, 40, flush)
        if name.startswith("softmax"):
            row["largest_error"] = float((y.double() - torch.softmax(x.double(), -1)).abs().max())
        found[key] = row
        print(key, row, flush=True)


def run(out: str) -> None:
    """Everything, results to a file even when a part fails."""
    torch.zeros(1, device="cuda")
    manifest = json.loads((BUILD / "manifest.json").read_text())
    query = "clocks.sm,power.draw,driver_version,name"
    clock = subprocess.run(
        ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True
    ).stdout.strip()
    report: dict[str, Any] = {
        "experiment": "cuda emitter",
        "device": torch.cuda.get_device_name(),
        "clock": clock,
        "torch": torch.__version__,
        "method": "medians of CUDA events around each call, 512 MiB overwritten before each, order shuffled each round",
    }
    try:
        k2, k3 = products(report), attentions(report)
        times(report, k2, k3, manifest)
        all_operations(manifest, report)
        small_programs(manifest, report)
    finally:
        pathlib.Path(out).write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    run(sys.argv[1])
