"""The spine on a CPU with AMX: right first, then times beside torch with as many threads.

`python benchmarks/device/amx_spine.py OUT.json [THREADS]`. *Method*: integer-exact where sums are exact, else a bound
against float64; operands inside NaN; times interleaved on the host's clock, inputs aligned to 64 bytes, medians.
"""

from __future__ import annotations

import json
import os
import pathlib
import platform
import sys
import traceback
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(pathlib.Path(__file__).parent)]
THREADS = int(sys.argv[2]) if len(sys.argv) > 2 else 2
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])

import ml_dtypes
import numpy as np
import torch
from spine_kernels import same

import treadle as td
from treadle.lib.attention import attention
from treadle.lib.linear import gated_linear, linear
from treadle.runtime.host import host_features
from treadle.runtime.memory import empty
from treadle.runtime.timing import interleaved

torch.set_num_threads(THREADS)
BF = ml_dtypes.bfloat16
RNG = np.random.default_rng(0)


def inside(values: Any) -> Any:
    """A view into a larger array of NaN."""
    base = np.full((*values.shape[:-2], values.shape[-2] + 4, values.shape[-1] + 64), np.nan, BF)
    view = base[..., 2 : values.shape[-2] + 2, 32 : values.shape[-1] + 32]
    view[...] = values
    return view


def frame_untouched(view: Any) -> bool:
    view[...] = np.nan
    return bool(np.isnan(view.base.astype(np.float32)).all())


def integers(*shape: int, most: int = 4) -> Any:
    return RNG.integers(-most, most + 1, shape).astype(BF)


def aligned(values: Any) -> Any:
    """A copy at a multiple of 64 bytes."""
    made = empty(values.shape, "bf16")
    made[...] = values
    return made


def tensor(array: Any) -> Any:
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)


def plan_of(kernel: Any) -> dict[str, Any]:
    last = kernel.variants[-1]
    return {"plan": last.plan, "verdict": last.verdict["status"]}


def checks() -> list[dict[str, Any]]:
    """Integer-exact products, the gated kernel, attention within a bound."""
    rows: list[dict[str, Any]] = []

    def record(case: str, right: bool, kernel: Any, **more: Any) -> None:
        rows.append({"case": case, "right": bool(right), **plan_of(kernel), **more})
        print(rows[-1], flush=True)

    for m, n, k in ((257, 513, 1031), (64, 64, 64), (1, 17, 5), (300, 1000, 511), (1024, 1024, 1024)):
        x, w, b = integers(m, k), integers(k, n), integers(n, most=9)
        want = (x.astype(np.float64) @ w.astype(np.float64) + b.astype(np.float64)).astype(np.float32).astype(BF)
        y = inside(np.zeros((m, n), BF))
        linear(inside(x), inside(w), b, y)
        right = np.array_equal(y.astype(np.float32), want.astype(np.float32))
        record(f"linear/bf16/{m}x{n}x{k}", right and frame_untouched(y), linear)
    m, n, k = 257, 513, 1031
    x, g, u = integers(m, k, most=1), integers(k, n, most=1), integers(k, n, most=1)
    a, b = x.astype(np.float64) @ g.astype(np.float64), x.astype(np.float64) @ u.astype(np.float64)
    y = inside(np.zeros((m, n), BF))
    gated_linear(inside(x), inside(g), inside(u), y, act=same)
    want = (a * b).astype(np.float32).astype(BF)
    record("gated-exact/bf16/257x513x1031", np.array_equal(y.astype(np.float32), want.astype(np.float32)), gated_linear)
    gated_linear(inside(x), inside(g), inside(u), y)
    want = a / (1 + np.exp(-a)) * b
    error = np.abs(y.astype(np.float64) - want)
    bound = np.abs(want) * 2.0**-8 + 1e-6 * np.abs(a * b) + 1e-6
    record("gated-silu/bf16/257x513x1031", (error <= bound).all() and frame_untouched(y), gated_linear)
    for d in (64, 128):
        for causal in (False, True):
            q, kk, v = (RNG.standard_normal((2, 3, s, d)).astype(BF) for s in (100, 333, 333))
            y = inside(np.zeros((2, 3, 100, d), BF))
            attention(inside(q), inside(kk), inside(v), y, causal=causal)
            qd, kd, vd = (t.astype(np.float64) for t in (q, kk, v))
            s = qd @ np.swapaxes(kd, -1, -2) * d**-0.5
            if causal:
                s = np.where(np.tril(np.ones((100, 333)), 233) > 0, s, -np.inf)
            p = np.exp(s - s.max(-1, keepdims=True))
            p /= p.sum(-1, keepdims=True)
            want = p @ vd
            error = np.abs(y.astype(np.float64) - want)
            bound = (p @ np.abs(vd)) * 2.0**-7 + np.abs(want) * 2.0**-8 + 1e-30
            worst = float((error / bound).max())
            name = f"attention{'-causal' if causal else ''}/bf16/b2-h3-s100-333-d{d}"
            record(name, worst <= 1 and frame_untouched(y), attention, worst_of_bound=worst)
    return rows


def times() -> list[dict[str, Any]]:
    """Beside torch."""
    rows: list[dict[str, Any]] = []

    def record(case: str, sides: dict[str, Any], kernel: Any) -> None:
        took = interleaved(sides, rounds=20, settled=True)
        ours, peer = took["ours"].median, took["torch"].median
        rows.append(
            {
                "case": case,
                "ours_us": ours * 1e6,
                "peer_us": peer * 1e6,
                "ratio": peer / ours,
                "threads": THREADS,
                **plan_of(kernel),
                "samples_us": {k: [s * 1e6 for s in v.samples] for k, v in took.items()},
            }
        )
        print({k: v for k, v in rows[-1].items() if k != "samples_us"}, flush=True)

    for size in (512, 1024, 2048):
        x, w = (aligned(RNG.standard_normal((size, size)).astype(BF)) for _ in range(2))
        b = aligned(RNG.standard_normal(size).astype(BF))
        y, z, t = (empty((size, size), "bf16") for _ in range(3))
        ours = linear.bind(x, w, b, y, act=td.gelu)
        tx, tw, tb, tz, tt = (tensor(v) for v in (x, w, b, z, t))

        def peer(tx: Any = tx, tw: Any = tw, tb: Any = tb, tz: Any = tz, tt: Any = tt) -> None:
            torch.addmm(tb, tx, tw, out=tz)
            torch.ops.aten.gelu.out(tz, out=tt)

        record(f"linear-bias-gelu/bf16/{size}", {"ours": ours, "torch": peer}, linear)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    for d, causal in ((64, False), (128, False), (128, True)):
        q, k, v = (aligned(RNG.standard_normal((1, 8, 1024, d)).astype(BF)) for _ in range(3))
        y = empty(q.shape, "bf16")
        ours = attention.bind(q, k, v, y, causal=causal)
        given = [tensor(a) for a in (q, k, v)]
        name = f"attention{'-causal' if causal else ''}/bf16/b1-h8-s1024-d{d}"
        record(name, {"ours": ours, "torch": lambda g=given, c=causal: sdpa(*g, is_causal=c)}, attention)
    m, n, k = 257, 513, 1031
    x, g, u = (aligned(RNG.standard_normal(s).astype(BF)) for s in ((m, k), (k, n), (k, n)))
    y = empty((m, n), "bf16")
    tx, tg, tu = (tensor(a) for a in (x, g, u))

    def gated() -> Any:
        return torch.nn.functional.silu(torch.mm(tx, tg)) * torch.mm(tx, tu)

    record("gated/bf16/257x513x1031", {"ours": gated_linear.bind(x, g, u, y), "torch": gated}, gated_linear)
    return rows


def main(out: str) -> None:
    cpu = next((ln.split(":")[1].strip() for ln in open("/proc/cpuinfo") if ln.startswith("model name")), "")
    report: dict[str, Any] = {
        "experiment": "spine, AMX",
        "cpu": cpu or platform.processor(),
        "features": sorted(f for f in host_features() if f.startswith(("amx", "avx512"))),
        "threads": THREADS,
        "torch": torch.__version__,
        "method": __doc__,
    }
    for name, part in (("checks", checks), ("times", times)):
        try:
            report[name] = part()
        except Exception:
            report[name] = [{"case": name, "right": False, "error": traceback.format_exc()[-2000:]}]
            print(traceback.format_exc()[-2000:], flush=True)
        pathlib.Path(out).write_text(json.dumps(report, default=str))


if __name__ == "__main__":
    main(sys.argv[1])
