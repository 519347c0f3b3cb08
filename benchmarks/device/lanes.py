"""Rows over lanes and the attention plan on a Hopper GPU: every point of the plans, values first, then times.

`python benchmarks/device/lanes.py make` plans and compiles (no GPU needed) to benchmarks/build/lanes;
`python benchmarks/device/lanes.py run OUT.json` runs there, beside copies and cuDNN. *Method*: medians of
events, calls in random order, 512 MiB overwritten before each; values against float64 within a derived bound.
"""

from __future__ import annotations

import importlib
import itertools
import json
import pathlib
import re
import sys
from functools import partial
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "benchmarks" / "build" / "lanes"
sys.path[:0] = [str(ROOT / "src"), str(ROOT), str(pathlib.Path(__file__).parent)]

ROWS = 4096
COLUMNS = (1024, 4096, 8192, 32768)
KINDS = {"bf16": "softmax_bf16", "f32": "softmax"}
WARPS = (1, 4, 8, 16, 32)
ATTENTION = (False, True)


def make() -> None:
    """Texts and cubins."""
    td, emit_make = importlib.import_module("treadle"), importlib.import_module("emit_make")
    attention = importlib.import_module("treadle.lib.attention").attention
    print_machine, contiguous, Rows = emit_make.print_machine, emit_make.contiguous, emit_make.Rows
    compiled, sample = emit_make.compiled, emit_make.sample
    BUILD.mkdir(parents=True, exist_ok=True)
    for old in BUILD.iterdir():
        old.unlink()
    emit_make.BUILD = BUILD
    family, manifest = Rows(), []
    for (kind, name), columns in itertools.product(KINDS.items(), COLUMNS):
        source = sample(name)
        facts = contiguous(source, "cuda:sm_90a", {"M": ROWS, "N": columns})
        for warps in (w for w in WARPS if 8 <= columns // (32 * w) <= 64):
            point = {"warps": warps, "held": True}
            machine = family.build(source, facts, point, family.guard(source, facts, point))
            key = f"{kind}_{columns}_{warps}"
            compiled(key, print_machine(machine))
            manifest.append([key, kind, columns])
            print(key, flush=True)
    for causal in ATTENTION:
        given = [td.like(td.bf16, 4, 16, 4096, 128, align=256) for _ in range(4)]
        text = attention.plan(*given, causal=causal, target="cuda:sm_90a").machine()
        key = f"attention_{'causal' if causal else 'full'}"
        compiled(key, text)
        compiled(f"{key}_plain", re.sub(r'(?m)^.*"functions:.*$\n', "", text))
        compiled(f"{key}_approx", re.sub(r"(= exp \w+(\[[^\]]*\])?)", r"\1 tags (approx)", text))
        print(key, flush=True)
    (BUILD / "manifest.json").write_text(json.dumps(manifest))


def check_rows(torch: Any, loaded: Any, kind: str, columns: int) -> dict[str, Any]:
    """The softmax of some awkward rows, against float64."""
    dtype = torch.bfloat16 if kind == "bf16" else torch.float32
    found: dict[str, Any] = {"worst_of_bound": 0.0, "nan_wrong": 0}
    for n in (columns, columns - 8 * (columns // 64)):
        x = (torch.randn(64, n, device="cuda") * 3).to(dtype)
        x[1] = 2.5
        x[2, 3:] = -float("inf")
        x[3] = -float("inf")
        x[4, 5] = float("inf")
        x[5, 7] = float("nan")
        x[6] = -80.0
        x[6, 1] = 0.0
        x[7] *= 30
        x[8, ::2] = -1e30
        y = torch.full_like(x, float("nan"))
        loaded.bind({"M": 64, "N": n}, {"X": x, "Y": y})()
        torch.cuda.synchronize()
        want = torch.softmax(x.double(), 1)
        top = x.double().amax(1, keepdim=True)
        reach = torch.nan_to_num((x.double() - top).abs(), nan=0.0, posinf=0.0)
        eps = 2.0**-8 if kind == "bf16" else 2.0**-24
        bound = want * (2.0**-24 * (2 * reach + n.bit_length() + 16) + eps) + 2.0**-126
        known = ~want.isnan()
        error = ((y.double() - want).abs() / bound)[known]
        found["worst_of_bound"] = max(found["worst_of_bound"], float(error.max()))
        found["nan_wrong"] += int((y.isnan() != want.isnan()).sum())
    return found


def run(out: str) -> None:
    """Values, then times."""
    torch, emit_check = importlib.import_module("torch"), importlib.import_module("emit_check")
    Loaded, interleaved, room = emit_check.Loaded, emit_check.interleaved, importlib.import_module("room")
    SDPBackend, sdpa_kernel = emit_check.SDPBackend, emit_check.sdpa_kernel
    emit_check.BUILD = BUILD
    report: dict[str, Any] = {**room.where_and_how(__doc__), "rows": {}, "attention": {}}
    flush = torch.empty(512 << 20, dtype=torch.uint8, device="cuda")
    big = torch.empty(2, 1 << 30, dtype=torch.uint8, device="cuda")
    report["copy_1GiB_us"] = interleaved({"copy": partial(big[1].copy_, big[0])}, 10, flush)["copy"]
    manifest = json.loads((BUILD / "manifest.json").read_text())
    try:
        for kind, columns in itertools.product(KINDS, COLUMNS):
            dtype = torch.bfloat16 if kind == "bf16" else torch.float32
            x = torch.randn(ROWS, columns, device="cuda").to(dtype)
            y, z = torch.empty_like(x), torch.empty_like(x)
            calls: dict[str, Any] = {"copy": lambda z=z, x=x: z.copy_(x)}
            checks: dict[str, Any] = {}
            for key in (k for k, t, n in manifest if (t, n) == (kind, columns)):
                one = Loaded(key)
                checks[key] = check_rows(torch, one, kind, columns)
                calls[key] = one.bind({"M": ROWS, "N": columns}, {"X": x, "Y": y})
            times = interleaved(calls, 25, flush)
            share = {k: round(times["copy"] / v, 3) for k, v in times.items()}
            report["rows"][f"{kind}_{columns}"] = {"us": times, "share_of_copy": share, "checks": checks}
            print(kind, columns, round(times["copy"], 1), sorted(share.items(), key=lambda i: -i[1])[:9], flush=True)
            bad = {k: c for k, c in checks.items() if c["nan_wrong"] or c["worst_of_bound"] > 1}
            print("  wrong:", bad, flush=True)
        for causal in ATTENTION:
            q, k, v = (torch.randn(4, 16, 4096, 128, device="cuda").to(torch.bfloat16) for _ in range(3))
            y = torch.empty_like(q)
            name = f"attention_{'causal' if causal else 'full'}"

            def peer(q: Any = q, k: Any = k, v: Any = v, causal: bool = causal) -> Any:
                with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

            with sdpa_kernel(SDPBackend.MATH):
                want = torch.nn.functional.scaled_dot_product_attention(
                    q[:1, :2].double(), k[:1, :2].double(), v[:1, :2].double(), is_causal=causal
                )
            calls, errors = {"cudnn": peer}, {}
            for key in (name, f"{name}_plain", f"{name}_approx"):
                go = Loaded(key).bind({"B": 4, "H": 16, "Sq": 4096, "Sk": 4096}, {"Q": q, "K": k, "V": v, "Y": y})
                go()
                torch.cuda.synchronize()
                errors[key] = float((y[:1, :2].double() - want).norm() / want.norm())
                calls[key] = go
            times = interleaved(calls, 12, flush)
            report["attention"][name] = {"us": times, "relative_2norm": errors}
            print(name, times, {k: round(times["cudnn"] / t, 3) for k, t in times.items()}, errors, flush=True)
    finally:
        pathlib.Path(out).write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    if sys.argv[1:] == ["make"]:
        make()
    elif len(sys.argv) == 3 and sys.argv[1] == "run":
        run(sys.argv[2])
    else:
        raise SystemExit(__doc__)
