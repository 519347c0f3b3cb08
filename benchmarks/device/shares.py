"""Products whose depth is shared out to workgroups in one launch: stretches of all tiles, or of those left over.

`python benchmarks/device/shares.py OUT.json [CASE...]`: kernels are called as a user does, with the planner held to one
setting of `parts` each; they plan, are judged and compiled there. *Method*: each plan first on small integers, exactly
(bit by bit after rounding), ten runs of it; then times by events, interleaved with the peer, the L2 overwritten before
each sample, random data, medians of 40. `ours`: what the planner takes by itself; `whole`: a task a tile.
"""

from __future__ import annotations

import pathlib
import sys
from functools import partial
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(pathlib.Path(__file__).parent)]

import torch
from room import DEVICE, described, exactly, interleaved, median, part_by_part, ran_as, where_and_how

import treadle as td
from treadle import lib
from treadle.plan.family import Axis, Setting
from treadle.targets.cuda import shared_streams
from treadle.targets.cuda.shared_streams import SharedStreams

CASES: dict[str, tuple[tuple[int, int, int], tuple[Setting, ...]]] = {
    "512x512x8192": ((512, 512, 8192), (1, 8, 4, "4 shared", "2 shared", "8 together", "4 together")),
    "256x256x16384": ((256, 256, 16384), (1, 8, "16 shared", "8 shared", "8 together", "4 together")),
    "64x1024x8192": ((64, 1024, 8192), (1, 4, "8 shared", "4 shared", "8 together", "4 together")),
    "64x1024x16384": ((64, 1024, 16384), (1, 8, "8 shared", "4 shared", "8 together")),
    "batched 4x(128,128,8192)": ((128, 128, 8192), (1, 8, "8 shared", "4 shared", "8 together")),
    "512x512x2048": ((512, 512, 2048), (1, "4 shared", "2 shared", "4 together", "2 together")),
    "2048x2304x8192": ((2048, 2304, 8192), (1, "8 of those left", "4 of those left")),
    "2048x2304x16384": ((2048, 2304, 16384), (1, "8 of those left", "4 of those left")),
    "4096x4352x8192": ((4096, 4352, 8192), (1, "8 of those left", "4 of those left")),
    "4096x4352x4096": ((4096, 4352, 4096), (1, "8 of those left", "4 of those left")),
}
EDGES: tuple[tuple[tuple[int, int, int], Setting], ...] = (
    ((136, 72, 648), "4 shared"),
    ((500, 520, 8200), "4 shared"),
    ((9, 1000, 4104), "8 shared"),
    ((500, 520, 8200), "8 together"),
    ((136, 72, 648), "4 together"),
    ((2001, 2304, 4104), "4 of those left"),
    ((4100, 4360, 4104), "8 of those left"),
)
FREE, DOUBT = SharedStreams.own_axes, shared_streams.UNTIMED


def forced(setting: Setting | None) -> None:
    """Holds the planner to one setting of `parts`; None: lets it choose."""

    def axes(self: SharedStreams, shape: Any) -> Any:
        return [Axis("parts", (setting,)) if a.name == "parts" else a for a in FREE(self, shape)]

    shared_streams._axes.clear()
    shared_streams.UNTIMED = DOUBT if setting is None else 0.25
    SharedStreams.own_axes = FREE if setting is None else axes  # an experiment


def arguments(size: tuple[int, int, int], batched: bool, integers: bool) -> tuple[Any, tuple[Any, ...], Any, Any, Any]:
    """A kernel of its own, its arguments, both operands, the output."""
    m, n, k = size
    batch = (4,) if batched else ()
    make = (
        (lambda *s: torch.randint(-2, 3, s, device=DEVICE)) if integers else (lambda *s: torch.randn(*s, device=DEVICE))
    )
    x, w = make(*batch, m, k).bfloat16(), make(*batch, k, n).bfloat16()
    y = torch.empty(*batch, m, n, dtype=torch.bfloat16, device=DEVICE)
    kernel = td.kernel((lib.batched_matmul if batched else lib.linear).definition.fn)
    return kernel, (x, w, y) if batched else (x, w, None, y), x, w, y


def tried(size: tuple[int, int, int], batched: bool, setting: Setting | None) -> tuple[Any, dict[str, Any]]:
    """A kernel under one setting, and whether its values are exact, ten times."""
    forced(setting)
    kernel, args, x, w, y = arguments(size, batched, integers=True)
    wanted = (x.double() @ w.double()).to(y.dtype)
    wrong = 0
    for _ in range(10):
        y.fill_(float("nan"))
        kernel(*args)
        wrong += not torch.equal(y, wanted)
    found = {**described(ran_as(kernel, args, {})), **exactly(wanted)(y), "wrong_runs": wrong}
    forced(None)
    return kernel, found


def run(case: str, rows: list[dict[str, Any]], flush: torch.Tensor) -> None:
    """Every setting of one case: checked, then timed together."""
    size, settings = CASES[case]
    batched = case.startswith("batched")
    calls: dict[str, Any] = {}
    about: dict[str, dict[str, Any]] = {}
    _, given, x, w, _ = arguments(size, batched, integers=False)
    for setting in (None, *settings):
        name = "ours" if setting is None else "whole" if setting == 1 else f"parts {setting}"
        try:
            kernel, about[name] = tried(size, batched, setting)
        except td.TreadleError as refused:
            rows.append({"case": case, "call": name, "refused": str(refused)})
            print(case, name, "refused", refused.found, flush=True)
            forced(None)
            continue
        if about[name]["wrong_runs"]:
            print(case, name, "WRONG", about[name], flush=True)
        calls[name] = kernel.bind(*given)
    z = torch.empty(*x.shape[:-1], w.shape[-1], dtype=x.dtype, device=DEVICE)
    calls["peer"] = lambda: torch.matmul(x, w, out=z)
    samples = interleaved(calls, 40, flush)
    peer = median(samples["peer"])
    for name, values in samples.items():
        us = median(values)
        more = about.get(name, {})
        rows.append({"case": case, "call": name, "us": us, "ratio": peer / us, "samples_us": values, **more})
        plan = more.get("plan", "").partition(": ")[2]
        print(case, name, round(us, 1), round(peer / us, 3), more.get("wrong_runs", ""), plan, flush=True)


def edges(rows: list[dict[str, Any]]) -> None:
    """Sizes that no block divides, values only."""
    for size, setting in EDGES:
        _, found = tried(size, False, setting)
        rows.append({"case": f"edges {size}", "call": str(setting), **found})
        print("edges", size, setting, found["wrong_runs"], found["plan"].partition(": ")[2], flush=True)


def main(out: str, wanted: list[str]) -> None:
    """The cases that are asked for, or all."""
    rows: list[dict[str, Any]] = []
    torch.manual_seed(1)
    flush = torch.empty(512 << 20, dtype=torch.uint8, device=DEVICE)
    parts = {"edges": partial(edges, rows), **{case: partial(run, case, rows, flush) for case in CASES}}
    part_by_part(out, {**where_and_how(__doc__), "rows": rows}, parts, wanted)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
