"""One new query against a long store of keys on a Hopper GPU: values, then the share of the memory's copy rate.

`python benchmarks/device/decode.py OUT.json`, with TREADLE_CACHE=off: the kernel is called as a user does; it plans, is
judged and compiled there. *Method*: against float64 where lengths end anywhere, keys and values NaN beyond them; then
times by events, interleaved with torch's SDPA (`enable_gqa`) and a copy of as many bytes in all, the L2 overwritten
before each sample, random data, medians, raw samples kept. `share`: bytes of keys and values that are read, over what a
copy moves in that time.
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(pathlib.Path(__file__).parent)]

import torch
from room import DEVICE, described, interleaved, median, ran_as, where_and_how

import treadle as td
from treadle import lib
from treadle.plan.family import Axis
from treadle.targets.cuda.streams import Streams

BF = torch.bfloat16
POINTS: tuple[dict[str, Any], ...] = (
    {},
    {"resident": 1},
    {"resident": 2, "held": 1},
    {"raster": "drawn"},
)
"""Settings of the family beside the planner's choice."""
CASES = ((8, 8192, 128), (64, 8192, 128), (64, 8192, 64))
"""Sequences, keys of each, depth."""
SPLIT: tuple[dict[str, Any], ...] = ({}, {"resident": 2, "raster": "drawn"})
"""The same of calls over stretches of the keys."""


@contextmanager
def only(point: dict[str, Any]) -> Generator[None]:
    """The family's axes with these settings alone."""
    axes = Streams.axes

    def fewer(self: Streams, program: Any, facts: Any) -> list[Axis]:
        return [Axis(a.name, (point[a.name],)) if a.name in point else a for a in axes(self, program, facts)]

    Streams.axes = fewer  # for these calls
    try:
        yield
    finally:
        Streams.axes = axes  # as it was


def oracle(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, length: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs and logarithms of sums, in float64."""
    batch, heads, depth = q.shape
    y = torch.zeros(batch, heads, v.shape[-1], dtype=torch.float64, device=q.device)
    lse = torch.full((batch, heads), -float("inf"), dtype=torch.float64, device=q.device)
    for b in range(batch):
        n = int(length[b])
        if n:
            shared = heads // k.shape[1]
            keys = k[b, :, :n].double().repeat_interleave(shared, 0)
            values = v[b, :, :n].double().repeat_interleave(shared, 0)
            s = torch.einsum("hd,hnd->hn", q[b].double(), keys) * depth**-0.5
            lse[b] = torch.logsumexp(s, 1)
            y[b] = torch.einsum("hn,hnd->hd", torch.softmax(s, 1), values)
    return y, lse


def fresh() -> Any:
    """The kernel anew, so that its plan is for this call."""
    return td.kernel(numerics=lib.decode_attention.definition.numerics)(lib.decode_attention.definition.fn)


def checked(rows: list[dict[str, Any]]) -> None:
    """Lengths that end anywhere, nothing of use beyond them."""
    for batch, heads, groups, keys, depth in ((5, 32, 8, 1000, 128), (3, 12, 4, 257, 64), (2, 64, 1, 300, 128)):
        kernel = fresh()
        q = torch.randn(batch, heads, depth, device=DEVICE).to(BF)
        k, v = (torch.randn(batch, groups, keys, depth, device=DEVICE).to(BF) for _ in range(2))
        length = torch.tensor([keys, 1, 129, 0, keys - 1][:batch], dtype=torch.int32, device=DEVICE)
        for b in range(batch):
            k[b, :, int(length[b]) :] = float("nan")
            v[b, :, int(length[b]) :] = float("nan")
        y = torch.full((batch, heads, depth), float("nan"), dtype=BF, device=DEVICE)
        lse = torch.full((batch, heads), float("nan"), device=DEVICE)
        worst = 0.0
        want, sums = oracle(q, k, v, length)
        for _ in range(20):
            y.fill_(float("nan"))
            kernel(q, k, v, length, y, lse)
            worst = max(worst, float((y.double() - want).abs().max().nan_to_num(1e9)))
        same = bool((lse.isinf() == sums.isinf()).all())
        known = ~sums.isinf()
        off = float((lse[known].double() - sums[known]).abs().max())
        about = described(ran_as(kernel, (q, k, v, length, y, lse), {}))
        row = {"check": f"b{batch} h{heads} kv{groups} s{keys} d{depth}", "worst": worst, "lse_off": off} | about
        row["right"] = worst < 2e-2 and off < 1e-4 and same
        rows.append(row)
        print(row["check"], row["right"], worst, off, about["plan"], flush=True)


def split(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    length: torch.Tensor,
    splits: int,
    name: str,
    abouts: dict[str, Any],
) -> Callable[[], None]:
    """The same in stretches of keys by one call, merged by another."""
    batch, heads, depth = q.shape
    some = torch.empty(splits, batch, heads, depth, device=DEVICE)
    sums = torch.empty(splits, batch, heads, device=DEVICE)
    y, lse = torch.full_like(q, float("nan")), torch.empty(batch, heads, device=DEVICE)
    parts = td.kernel(numerics=lib.split_decode.definition.numerics)(lib.split_decode.definition.fn)
    first = parts.bind(q, k, v, length, some, sums, splits=splits)
    last = lib.merge_attention.bind(some, sums, y, lse)
    about = described(ran_as(parts, (q, k, v, length, some, sums), {"splits": splits}))

    def both() -> None:
        first()
        last()

    both()
    want, _ = oracle(q, k, v, length)
    about["worst"] = float((y.double() - want).abs().max().nan_to_num(1e9))
    abouts[name] = about
    return both


def timed(rows: list[dict[str, Any]], case: tuple[int, int, int], flush: torch.Tensor) -> None:
    """The share of a copy."""
    batch, keys, depth = case
    heads, groups = 32, 8
    q = torch.randn(batch, heads, depth, device=DEVICE).to(BF)
    k, v = (torch.randn(batch, groups, keys, depth, device=DEVICE).to(BF) for _ in range(2))
    length = torch.full((batch,), keys, dtype=torch.int32, device=DEVICE)
    y = torch.empty(batch, heads, depth, dtype=BF, device=DEVICE)
    lse = torch.empty(batch, heads, device=DEVICE)
    calls: dict[str, Any] = {}
    abouts: dict[str, Any] = {}
    for point in POINTS:
        name = "ours" if not point else " ".join(f"{a}={b}" for a, b in point.items())
        with only(point):
            kernel = fresh()
            bound = kernel.bind(q, k, v, length, y, lse)
            about = described(ran_as(kernel, (q, k, v, length, y, lse), {}))
            if not point or "universal" not in about["plan"]:
                calls[name], abouts[name] = bound, about
    for splits in (2, 4) if batch < 64 or depth > 64 else ():
        for point in SPLIT:
            name = f"split in {splits}, merged {' '.join(f'{a}={b}' for a, b in point.items())}"
            with only(point):
                calls[name] = split(q, k, v, length, splits, name, abouts)
    peer = lambda q=q, k=k, v=v: torch.nn.functional.scaled_dot_product_attention(q[:, :, None], k, v, enable_gqa=True)
    calls["torch"] = peer
    size = 2 * k.numel() * 2
    here, there = (torch.empty(size // 4, dtype=BF, device=DEVICE) for _ in range(2))
    calls["copy"] = lambda a=there, b=here: a.copy_(b)
    samples = interleaved(calls, 20, flush)
    copy = median(samples["copy"])
    for name, values in samples.items():
        us = median(values)
        row = {"case": f"decode b{batch} h{heads} kv{groups} s{keys} d{depth}", "call": name, "us": us}
        row |= {"share": copy / us, "GB/s": size / us / 1e3, "samples_us": values} | abouts.get(name, {})
        row["ratio"] = median(samples["torch"]) / us
        rows.append(row)
        print(
            row["case"],
            name,
            round(us, 1),
            "share",
            round(copy / us, 3),
            round(row["GB/s"]),
            row.get("plan", "")[-120:],
            flush=True,
        )


def main(out: str) -> None:
    """Runs and writes, after each case."""
    torch.manual_seed(3)
    rows: list[dict[str, Any]] = []
    found = where_and_how(__doc__)
    flush = torch.empty(512 * 2**20, dtype=torch.uint8, device=DEVICE)
    for case in (None, *CASES):
        if case is None:
            checked(rows)
        else:
            timed(rows, case, flush)
        pathlib.Path(out).write_text(json.dumps(found | {"rows": rows}))


if __name__ == "__main__":
    main(sys.argv[1])
