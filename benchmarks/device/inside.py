"""Regions inside tasks of rows on a Hopper GPU: what lanes go along, beside torch.

`python benchmarks/device/inside.py OUT.json`: values first, then times. *Method*: medians of events, calls in random
order, 512 MiB overwritten before each, raw samples kept.
"""

from __future__ import annotations

import json
import pathlib
import statistics
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT), str(pathlib.Path(__file__).parent)]

import room
import torch

import treadle as td
from treadle import f32, lib

B, B1, M, N, K = td.dims("B B1 M N K")


@td.kernel
def scaled(S: td.Tensor[M], X: td.Tensor[M, N], Y: td.Out[M, N] = None):
    """An outer instance that owns a number."""
    for i in td.parallel(M.each):
        s = S[i]
        for j in td.parallel(N):
            Y[i, j] = s * X[i, j]


@td.kernel
def segments(X: td.Tensor[N, K], ends: td.Tensor[B1, td.i32], Y: td.Out[B, K] = None):
    """Sums of rows between ends that a run tells, a nest of two regions."""
    td.require(B.extent + 1 == B1.extent)
    for b in td.parallel(B.each):
        for k in td.parallel(K):
            acc = td.zeros(k, dtype=f32)
            for n in td.reduce(N[ends[b] : ends[b + 1]]):
                acc = acc + X[n, k].sum(n)
            Y[b, k] = acc


def cases() -> list[tuple[str, Any, tuple[Any, ...], Any, Any]]:
    """Name, kernel, arguments with the output last, peer, what is wanted."""
    found: list[tuple[str, Any, tuple[Any, ...], Any, Any]] = []
    x, s = torch.randn(4096, 4096, device="cuda"), torch.randn(4096, device="cuda")
    y = torch.empty_like(x)
    found.append(("scaled 4096x4096", scaled, (s, x, y), lambda: torch.mul(x, s[:, None], out=y), x * s[:, None]))
    counts = torch.randint(0, 201, (1000,), device="cuda")
    ends = torch.cat([torch.zeros(1, device="cuda", dtype=torch.long), counts.cumsum(0)])
    rows = torch.randn(int(ends[-1]), 512, device="cuda")
    sums = torch.empty(1000, 512, device="cuda")
    owner = torch.repeat_interleave(torch.arange(1000, device="cuda"), counts)
    want = torch.zeros(1000, 512, device="cuda", dtype=torch.float64).index_add_(0, owner, rows.double())
    peer = lambda: torch.segment_reduce(rows, "sum", lengths=counts)
    found.append(("segments 1000 of 0 to 200 x 512", segments, (rows, ends.to(torch.int32), sums), peer, want))
    for each in (8, 32, 200):
        m = 100_000
        lengths = torch.randint(0, 2 * each + 1, (m,), device="cuda")
        start = torch.cat([torch.zeros(1, device="cuda", dtype=torch.long), lengths.cumsum(0)])
        nonzero = int(start[-1])
        column = torch.randint(0, m, (nonzero,), device="cuda")
        value, v, out = (torch.randn(n, device="cuda") for n in (nonzero, m, m))
        matrix = torch.sparse_csr_tensor(start, column, value, (m, m))
        wide = torch.sparse_csr_tensor(start, column, value.double(), (m, m)) @ v.double()
        args = (start.to(torch.int32), column.to(torch.int32), value, v, out)
        found.append(
            (f"csr_matvec 100000, 0 to {2 * each} a row", lib.csr_matvec, args, lambda a=matrix, v=v: a @ v, wide)
        )
    return found


def main(out: str) -> None:
    """Values, then times."""
    flush = torch.empty(512 << 20, dtype=torch.uint8, device="cuda")
    report: dict[str, Any] = {**room.where_and_how(__doc__), "cases": []}
    for name, kernel, args, peer, want in cases():
        kernel(*args)
        off = float((args[-1].double() - want.double()).norm() / want.double().norm())
        plan = str(kernel.plan(*args))
        samples = room.interleaved({"ours": kernel.bind(*args), "peer": peer}, 30, flush)
        ours, theirs = (statistics.median(samples[k]) for k in ("ours", "peer"))
        row = {"case": name, "plan": plan, "relative_2norm": off, "ours_us": ours, "peer_us": theirs}
        report["cases"].append(row | {"ratio": theirs / ours, "samples_us": samples})
        print(row, round(theirs / ours, 3), flush=True)
        pathlib.Path(out).write_text(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1])
