"""Few long rows: folds by many workgroups a row, beside the same kernel with one executor a row, and torch.

`python benchmarks/device/long_rows.py OUT.json [CASE...]`: kernels are called as a user does; they plan, are judged and
compiled there. *Method*: sums and maxima of small integers exactly, ten runs; softmax and layernorm within 1e-5 and
0.03 (bf16) of f64; then times by events, interleaved with the peer, the L2 overwritten before each sample, medians of
30. `ours`: what the planner takes; `one executor`: the same search without stretches; `copy`: of as many bytes as are
read once and written once.
"""

from __future__ import annotations

import pathlib
import sys
from functools import partial
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(pathlib.Path(__file__).parent)]

import torch
from room import DEVICE, described, interleaved, median, part_by_part, ran_as, where_and_how

import treadle as td
from treadle import lib
from treadle.targets.cuda.long_rows import LongRows

M, N = td.dims("M N")


@td.kernel
def largest(X: td.Tensor[M, N], Y: td.Out[M]):
    for m in td.parallel(M):
        Y[m] = X[m, N].max(N)


SIZES = ((1, 1 << 20), (8, 1 << 20), (32, 1 << 20), (132, 1 << 20), (1, 1 << 24), (2, 1 << 18), (3, 1_000_004))
KINDS = ("sum", "max", "softmax", "layernorm")
CASES = tuple(f"{kind} {rows}x{columns}" for kind in KINDS for rows, columns in SIZES)
FREE = LongRows.shares


def made(kind: str, rows: int, columns: int) -> tuple[Any, tuple[Any, ...], Any, Any, float]:
    """A kernel of its own, its arguments, torch's call, what is right in f64, how far off it may be."""
    if kind in ("sum", "max"):
        x = torch.randint(-2, 3, (rows, columns), device=DEVICE).float()
        y, z = torch.full((rows,), float("nan"), device=DEVICE), torch.empty(rows, device=DEVICE)
        kernel = lib.rows_sum if kind == "sum" else largest
        peer = partial(torch.sum if kind == "sum" else torch.amax, x, 1, out=z)
        right = x.double().sum(1) if kind == "sum" else x.double().amax(1)
        return td.kernel(kernel.definition.fn), (x, y), peer, right, 0.0
    if kind == "softmax":
        x = torch.randn(rows, columns, device=DEVICE)
        y = torch.full_like(x, float("nan"))
        peer = partial(torch.softmax, x, 1)
        return td.kernel(lib.softmax.definition.fn), (x, y), peer, torch.softmax(x.double(), 1), 1e-5
    x = torch.randn(rows, columns, device=DEVICE).bfloat16()
    scale, shift = (torch.randn(columns, device=DEVICE).bfloat16() for _ in range(2))
    y = torch.full_like(x, float("nan"))
    peer = partial(torch.nn.functional.layer_norm, x, (columns,), scale, shift)
    right = torch.nn.functional.layer_norm(x.double(), (columns,), scale.double(), shift.double())
    return td.kernel(lib.layernorm.definition.fn), (x, scale, shift, y), peer, right, 0.03


def off(y: torch.Tensor, right: torch.Tensor, kind: str) -> float:
    """How far off the worst element is: of softmax for its size."""
    gap = (y.double() - right).abs()
    gap = gap / right if kind == "softmax" else gap / right.abs().clamp(min=1.0)
    return float(gap.nan_to_num(nan=float("inf")).max())


def run(case: str, rows: list[dict[str, Any]], flush: torch.Tensor) -> None:
    """One case, with stretches and without."""
    kind, _, size = case.partition(" ")
    m, n = map(int, size.split("x"))
    calls: dict[str, Any] = {}
    about: dict[str, dict[str, Any]] = {}
    for name in ("ours", "one executor"):
        LongRows.shares = FREE if name == "ours" else (lambda self, shape: (1,))  # an experiment
        kernel, args, peer, right, limit = made(kind, m, n)
        wrong = 0
        for _ in range(10 if name == "ours" else 1):
            args[-1].fill_(float("nan"))
            kernel(*args)
            wrong += not off(args[-1], right, kind) <= limit
        about[name] = {**described(ran_as(kernel, args, {})), "off": off(args[-1], right, kind), "wrong_runs": wrong}
        calls[name] = kernel.bind(*args)
        calls["peer"] = peer
    LongRows.shares = FREE
    x = made(kind, m, n)[1][0]
    calls["copy"] = partial(torch.empty_like(x).copy_, x)
    samples = interleaved(calls, 30, flush)
    for name, values in samples.items():
        us, more = median(values), about.get(name, {})
        ratio = median(samples["peer"]) / us
        rows.append({"case": case, "call": name, "us": us, "ratio": ratio, "samples_us": values, **more})
        plan = more.get("plan", "").partition(": ")[2]
        print(
            case, name, round(us, 1), round(ratio, 3), more.get("wrong_runs", ""), more.get("off", ""), plan, flush=True
        )


def main(out: str, wanted: list[str]) -> None:
    """The cases that are asked for, or all."""
    rows: list[dict[str, Any]] = []
    torch.manual_seed(1)
    flush = torch.empty(512 << 20, dtype=torch.uint8, device=DEVICE)
    parts = {case: partial(run, case, rows, flush) for case in CASES}
    part_by_part(out, {**where_and_how(__doc__), "rows": rows}, parts, wanted)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
