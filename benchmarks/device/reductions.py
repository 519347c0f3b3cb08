"""Row reductions of the library on a Hopper GPU, beside torch: `python benchmarks/device/reductions.py OUT.json`.

*Method*: values against float64; medians of 30 calls, events, interleaved, 512 MiB overwritten before each.
"""

from __future__ import annotations

import json
import pathlib
import sys
from functools import partial
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(pathlib.Path(__file__).parent)]

import torch
from room import described, interleaved, median, ran_as, where_and_how

from treadle.lib import reductions

PEERS = {"rows_sum": torch.sum, "rows_mean": torch.mean, "rows_logsumexp": torch.logsumexp}
SHAPES = ((4096, 4096), (4096, 1024), (32768, 512), (8192, 8192))


def main(out: str) -> None:
    report: dict[str, Any] = {**where_and_how(__doc__), "cases": []}
    flush = torch.empty(512 << 20, dtype=torch.uint8, device="cuda")
    for dtype in (torch.float32, torch.bfloat16):
        for rows, columns in SHAPES:
            x = torch.randn(rows, columns, device="cuda").to(dtype)
            for name, peer in PEERS.items():
                kernel, want = getattr(reductions, name), peer(x.double(), 1)
                y = kernel(x)
                error = float(((y.double() - want).abs() / (want.abs() + 1)).max())
                samples = interleaved({"ours": kernel.bind(x, y), "torch": partial(peer, x, 1)}, 30, flush)
                ours, torchs = median(samples["ours"]), median(samples["torch"])
                case = f"{name}/{'bf16' if dtype is torch.bfloat16 else 'f32'}/{rows}x{columns}"
                row = {"case": case, "error": error, "ours_us": ours, "torch_us": torchs, "ratio": torchs / ours}
                print({k: round(v, 8) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
                row |= {"samples_us": samples, "plan": described(ran_as(kernel, (x, y), {}))["plan"]}
                report["cases"].append(row)
    pathlib.Path(out).write_text(json.dumps(report, default=str))


if __name__ == "__main__":
    main(sys.argv[1])
