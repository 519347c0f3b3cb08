"""Reductions of rows and of whole arrays on a Hopper GPU, beside torch: `python benchmarks/device/reductions.py OUT`.

*Method*: values against float64; medians of 30 calls, events, interleaved, 512 MiB overwritten before each.
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(pathlib.Path(__file__).parent)]

import torch
from room import described, interleaved, median, ran_as, where_and_how

from treadle.lib import reductions

PEERS = {"rows_sum": torch.sum, "rows_mean": torch.mean, "rows_logsumexp": torch.logsumexp}
SHAPES = ((4096, 4096), (4096, 1024), (32768, 512), (8192, 8192))
WHOLE = ("total", "columns_sum")
"""Folds that a whole program waits for."""

TALL = ((4096, 4096), (65536, 1024), (1_000_000, 16), (8, 1 << 20), (1, 1 << 24))


def cases() -> Iterator[tuple[str, int, int, Callable[..., torch.Tensor]]]:
    """Kernel, rows, columns, and torch's function of an array."""
    for rows, columns in SHAPES:
        yield from ((name, rows, columns, partial(over_columns, peer)) for name, peer in PEERS.items())
    for rows, columns in TALL:
        yield "total", rows, columns, torch.sum
        yield "columns_sum", rows, columns, partial(torch.sum, dim=0)


def over_columns(peer: Callable[..., torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """Along rows."""
    return peer(x, 1)


def exact(name: str, rows: int, columns: int) -> bool:
    """Whether sums of small integers are what they are."""
    x = torch.randint(-3, 4, (rows, columns), device="cuda").float()
    want = x.double().sum() if name == "total" else x.double().sum(0)
    return bool((getattr(reductions, name)(x).double() == want).all())


def main(out: str) -> None:
    report: dict[str, Any] = {**where_and_how(__doc__), "cases": []}
    flush = torch.empty(512 << 20, dtype=torch.uint8, device="cuda")
    for dtype in (torch.float32, torch.bfloat16):
        for name, rows, columns, peer in cases():
            x = torch.randn(rows, columns, device="cuda").to(dtype)
            kernel, want = getattr(reductions, name), peer(x.double())
            y = kernel(x)
            # Of sums of millions of numbers of both signs little is left: beside the sum of their magnitudes.
            scale = peer(x.double().abs()) if name in WHOLE else want.abs() + 1
            error = float(((y.double() - want).abs() / scale).max())
            samples = interleaved({"ours": kernel.bind(x, y), "torch": partial(peer, x)}, 30, flush)
            ours, torchs = median(samples["ours"]), median(samples["torch"])
            case = f"{name}/{'bf16' if dtype is torch.bfloat16 else 'f32'}/{rows}x{columns}"
            row = {"case": case, "error": error, "ours_us": ours, "torch_us": torchs, "ratio": torchs / ours}
            if name in WHOLE:
                row["exact"] = exact(name, rows, columns)
            print({k: round(v, 8) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
            row |= {"samples_us": samples, "plan": described(ran_as(kernel, (x, y), {}))["plan"]}
            report["cases"].append(row)
    pathlib.Path(out).write_text(json.dumps(report, default=str))


if __name__ == "__main__":
    main(sys.argv[1])
