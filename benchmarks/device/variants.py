"""Points of the CUDA families beside each other on a Hopper GPU: chains of contractions, and rows.

`python benchmarks/device/variants.py make [chain] [rows]` plans, judges and compiles (no GPU needed) to
benchmarks/build/variants; `python benchmarks/device/variants.py run OUT.json` runs there, beside cuDNN and copies.
*Method*: values against the peer's first; medians of events, calls in random order, 512 MiB overwritten before each,
raw samples kept.
"""

from __future__ import annotations

import importlib
import json
import pathlib
import statistics
import sys
from functools import partial
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "benchmarks" / "build" / "variants"
sys.path[:0] = [str(ROOT / "src"), str(ROOT), str(pathlib.Path(__file__).parent)]

HEADS = (4, 16, 4096)
"""Batches, heads, queries and keys."""
CHAINS: list[tuple[int, bool, dict[str, Any]]] = [
    (depth, causal, {"consumers": 2, "step": 128, "turns": turns, "versions": versions, "staged": False})
    for depth in (128, 64)
    for causal in (False, True)
    for turns in (False, True)
    for versions in (2, 3)
]
CHAINS += [(64, False, {"consumers": 3, "step": 128, "turns": False, "versions": 4, "staged": False})]
ROWS: list[tuple[str, str, int, dict[str, Any]]] = [
    ("softmax", "bf16", n, {"warps": w, "exact": exact})
    for n in (1024, 4096, 8192, 16384, 32768)
    for w in (1, 4, 8, 16)
    for exact in (False, True)
]
"""Kernel, element, columns, point; slots and stages are those of the rings that engines fill and empty."""
ROWS += [("layernorm", "bf16", n, {"warps": w}) for n in (1024, 4096, 8192, 16384, 32768) for w in (1, 4, 8, 16)]
RINGS: dict[int, tuple[tuple[int, int, int], ...]] = {
    1024: ((4, 2, 1), (4, 3, 2)),
    4096: ((4, 2, 1), (4, 2, 2), (8, 2, 1), (4, 2, 0)),
    8192: ((4, 2, 1), (8, 2, 1), (8, 2, 2), (8, 3, 1), (8, 2, 0), (16, 2, 1)),
    16384: ((8, 2, 1), (8, 2, 2), (16, 2, 1), (16, 2, 2), (16, 3, 1), (16, 2, 0)),
    32768: ((16, 2, 1), (16, 1, 1), (16, 1, 2), (16, 2, 0), (16, 3, 0)),
}
"""Columns -> warps, slots, stages."""
ROWS += [
    (kernel, "bf16", n, {"warps": w, "slots": slots, "stages": stages, "exact": exact})
    for kernel in ("softmax", "layernorm")
    for n, ways in RINGS.items()
    for w, slots, stages in ways
    for exact in (True, False)
    if exact or (w, slots, stages) == ways[0]
]
ROWS += [
    (kernel, element, n, {"warps": w, "close": True})
    for kernel in ("softmax", "layernorm")
    for element in ("bf16", "f32")
    for n, w in ((4096, 4), (4096, 8), (8192, 4), (8192, 8), (16384, 8), (16384, 16))
]
ROWS += [
    ("softmax", "f32", n, {"warps": w, "slots": slots, "stages": stages})
    for n, w, slots, stages in (
        *((n, w, 0, 0) for n in (8192, 16384, 32768) for w in (4, 8, 16)),
        (8192, 8, 2, 1),
        (16384, 16, 2, 1),
        (16384, 16, 1, 2),
        (32768, 16, 1, 0),
    )
]


def make(what: list[str]) -> None:
    """Texts and cubins of every point that the target has room for."""
    td, emit_make = importlib.import_module("treadle"), importlib.import_module("emit_make")
    kernels = {
        "chain": importlib.import_module("treadle.lib.attention").attention,
        "softmax": importlib.import_module("treadle.lib.rows").softmax,
        "layernorm": importlib.import_module("treadle.lib.norms").layernorm,
    }
    check = importlib.import_module("treadle.checker").check
    streams = importlib.import_module("treadle.targets.cuda.streams").Streams()
    rows = importlib.import_module("treadle.targets.cuda.rows").Rows()
    BUILD.mkdir(parents=True, exist_ok=True)
    for old in BUILD.iterdir():
        old.unlink()
    emit_make.BUILD = BUILD
    manifest: dict[str, list[Any]] = {"chain": [], "rows": []}

    def put(kind: str, key: str, facts: tuple[Any, Any, Any], family: Any, point: dict[str, Any], about: Any) -> None:
        """One point, if the cost model lets it in."""
        program, known, _ = facts
        if family.cost(program, known, point).total == float("inf"):
            return
        machine = family.build(program, known, point, family.guard(program, known, point))
        verdict = check(machine).status
        emit_make.compiled(key, emit_make.print_machine(machine))
        manifest[kind].append([key, point, verdict, *about])
        print(key, point, verdict, flush=True)

    b, h, s = HEADS
    for number, (depth, causal, changes) in enumerate(CHAINS if "chain" in what else ()):
        given = [td.like(td.bf16, b, h, s, depth, align=256) for _ in range(4)]
        plan = kernels["chain"].plan(*given, causal=causal, target="cuda:sm_90a")
        program = plan.program.program
        known = emit_make.contiguous(program, "cuda:sm_90a", {"B": b, "H": h, "Sq": s, "Sk": s})
        point = dict(plan.decisions.point) | changes
        put("chain", f"chain{number}", (program, known, plan), streams, point, (depth, causal))
    plain = {"held": True, "exact": True, "slots": 0, "stages": 0, "close": False}
    for number, (kernel, element, n, changes) in enumerate(ROWS if "rows" in what else ()):
        dtype = {"bf16": td.bf16, "f32": td.f32}[element]
        x, y = (td.like(dtype, 4096, n, align=256) for _ in range(2))
        more = [td.like(dtype, n, align=256) for _ in range(2)] if kernel == "layernorm" else []
        plan = kernels[kernel].plan(x, *more, y, target="cuda:sm_90a")
        program = plan.program.program
        known = emit_make.contiguous(program, "cuda:sm_90a", {"M": 4096, "N": n})
        put("rows", f"rows{number}", (program, known, plan), rows, plain | changes, (kernel, element, n))
    (BUILD / "manifest.json").write_text(json.dumps(manifest))


def run(out: str) -> None:
    """Values, then times."""
    torch, emit_check = importlib.import_module("torch"), importlib.import_module("emit_check")
    room = importlib.import_module("room")
    emit_check.BUILD = BUILD
    manifest = json.loads((BUILD / "manifest.json").read_text())
    report: dict[str, Any] = {**room.where_and_how(__doc__), "cases": []}
    flush = torch.empty(512 << 20, dtype=torch.uint8, device="cuda")

    def measure(case: str, calls: dict[str, Any], about: dict[str, Any], rounds: int) -> None:
        samples = room.interleaved(calls, rounds, flush)
        peer = statistics.median(samples["peer"])
        for key, values in samples.items():
            row = {"case": case, "us": statistics.median(values), "samples_us": values, **about.get(key, {})}
            report["cases"].append(row | {"ratio": peer / row["us"]})
            print(case, round(row["us"], 1), round(peer / row["us"], 3), about.get(key, "peer"), flush=True)
        pathlib.Path(out).write_text(json.dumps(report))

    b, h, s = HEADS
    for depth, causal in sorted({(d, c) for _, _, _, d, c in manifest["chain"]}):
        q, k, v = (torch.randn(b, h, s, depth, device="cuda").to(torch.bfloat16) for _ in range(3))
        y = torch.empty_like(q)
        sdpa = partial(torch.nn.functional.scaled_dot_product_attention, q, k, v, is_causal=causal)
        with emit_check.sdpa_kernel(emit_check.SDPBackend.CUDNN_ATTENTION):
            want, calls, about = sdpa(), {"peer": sdpa}, {}
            for key, point, verdict, *kind in manifest["chain"]:
                if kind == [depth, causal]:
                    go = emit_check.Loaded(key).bind(
                        {"B": b, "H": h, "Sq": s, "Sk": s}, {"Q": q, "K": k, "V": v, "Y": y}
                    )
                    go()
                    error = float((y.double() - want.double()).norm() / want.double().norm())
                    calls[key], about[key] = go, {"point": point, "verdict": verdict, "relative_2norm": error}
            measure(f"chain d{depth}{' causal' if causal else ''}", calls, about, 12)
    for kernel, element, n in sorted({(k, e, n) for _, _, _, k, e, n in manifest["rows"]}):
        dtype = {"bf16": torch.bfloat16, "f32": torch.float32}[element]
        x = torch.randn(4096, n, device="cuda").to(dtype)
        y, z = torch.empty_like(x), torch.empty_like(x)
        scale, shift = (torch.randn(n, device="cuda").to(dtype) for _ in range(2))
        arrays = {"X": x, "Y": y} | ({"scale": scale, "shift": shift} if kernel == "layernorm" else {})
        if kernel == "softmax":
            want = torch.softmax(x.double(), 1)
            size = want
        else:
            want = torch.nn.functional.layer_norm(x.double(), (n,), scale.double(), shift.double())
            size = want.abs() + (want - shift.double()).abs()
        calls, about = {"peer": partial(z.copy_, x)}, {}
        for key, point, verdict, *kind in manifest["rows"]:
            if kind == [kernel, element, n]:
                calls[key] = emit_check.Loaded(key).bind({"M": 4096, "N": n}, arrays)
                y.fill_(float("nan"))
                calls[key]()
                error = float(((y.double() - want).abs() / (size + 1e-30)).max())
                about[key] = {"point": point, "verdict": verdict, "largest_relative": error}
        measure(f"{kernel} {element} {n}", calls, about, 40)


if __name__ == "__main__":
    if sys.argv[1:2] == ["make"]:
        make(sys.argv[2:] or ["chain", "rows"])
    elif len(sys.argv) == 3 and sys.argv[1] == "run":
        run(sys.argv[2])
    else:
        raise SystemExit(__doc__)
