"""Points of chained contractions beside one another: consumers, turns, orders of uneven tasks, tiles on their way.

`python benchmarks/device/chains.py OUT.json [PART ...]` with TREADLE_CACHE=off; parts are causal, full, long, ends,
exact, small (none: all). `ends`: the same rows with fewer and fewer keys: what a task takes beside its iterations.
*Method*: kernels are called as a user does, their axes limited to a point, and compared with the peer (cuDNN, cuBLAS)
or exactly; times by events, interleaved, the L2 overwritten before each sample, random data, medians, raw samples kept.
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Callable
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(pathlib.Path(__file__).parent)]

import torch
from room import DEVICE, described, interleaved, median, ran_as, where_and_how

import treadle as td
from treadle import lib
from treadle.plan.family import Axis
from treadle.targets.cuda.blocks import Blocks
from treadle.targets.cuda.streams import Streams

Rows = list[dict[str, Any]]
Points = list[dict[str, Any]]
BF = torch.bfloat16
THREE = {"consumers": 3, "step": 128, "turns": False, "held": 2}
TURNS = {"consumers": 2, "step": 128, "turns": True}
UNEVEN: Points = [
    {},
    {**THREE, "raster": "heavy first 16"},
    {**TURNS, "raster": "heavy first all", "held": 1},
    {**TURNS, "raster": "drawn 8", "held": 2},
    {**TURNS, "raster": "drawn 16", "held": 1},
    {**TURNS, "raster": "drawn 8", "held": 1, "ahead": True},
]
"""Points for tasks that take longer and longer: whether a point is drawn, takes turns, is a step ahead, and so on."""


class Limited:
    """A family whose axes have the values of a point only."""

    def __init__(self, family: Any, point: dict[str, Any]) -> None:
        self.family, self.axes, self.point = family, family.axes, point

    def __enter__(self) -> None:
        axes, point = self.axes, self.point

        def limited(own: Any, program: Any, facts: Any) -> list[Axis]:
            return [Axis(a.name, (point[a.name],)) if a.name in point else a for a in axes(own, program, facts)]

        self.family.axes = limited

    def __exit__(self, *_: object) -> None:
        self.family.axes = self.axes


def timed(rows: Rows, case: str, calls: dict[str, Callable[[], Any]], about: dict[str, Any], rounds: int) -> None:
    """Medians of calls beside the peer's."""
    flush = torch.empty(512 << 20, dtype=torch.uint8, device=DEVICE)
    samples = interleaved(calls, rounds, flush)
    for name, values in samples.items():
        us, ratio = median(values), median(samples["peer"]) / median(values)
        rows.append({"case": case, "call": name, "us": us, "ratio": ratio, "samples_us": values, **about.get(name, {})})
        print(case, name, round(us, 1), round(ratio, 3), flush=True)


def chain(
    rows: Rows, shape: tuple[int, int, int, int], causal: bool, points: Points, rounds: int = 16, keys: int = 0
) -> None:
    """Attention forward at points of `streams`; with another number of keys than rows, if one is given."""
    b, h, s, d = shape
    q = [torch.randn((b, h, n, d), device=DEVICE).to(BF) for n in (s, keys or s, keys or s)]
    sdpa = torch.nn.functional.scaled_dot_product_attention
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
        want = sdpa(*q, is_causal=causal).double()
        calls: dict[str, Callable[[], Any]] = {"peer": lambda: sdpa(*q, is_causal=causal)}
        about: dict[str, Any] = {}
        for point in points:
            name, y = str(point) if point else "ours", torch.full_like(q[0], float("nan"))
            kernel = td.kernel(lib.attention.definition.fn, numerics=td.Numerics(functions="fast"))
            with Limited(Streams, point):
                kernel(*q, y, causal=causal)
                about[name] = described(ran_as(kernel, (*q, y), {"causal": causal}))
                calls[name] = kernel.bind(*q, y, causal=causal)
            about[name]["off"] = float((y.double() - want).norm() / want.norm())
            print(name, about[name]["plan"], about[name]["off"], flush=True)
        case = f"attention{'-causal' if causal else ''}/bf16/b{b}-h{h}-s{s}{f'-k{keys}' if keys else ''}-d{d}"
        timed(rows, case, calls, about, rounds)


def product(rows: Rows, family: Any, size: int, dtype: torch.dtype, points: Points, rounds: int) -> None:
    """Square products at points of a family."""
    torch.backends.cuda.matmul.allow_tf32 = False
    x, w = (torch.randint(-3, 4, (size, size), device=DEVICE).to(dtype) for _ in range(2))
    z, want = torch.empty_like(x), (x.double() @ w.double()).to(dtype)
    calls: dict[str, Callable[[], Any]] = {"peer": lambda: torch.mm(x, w, out=z)}
    about: dict[str, Any] = {}
    for point in points:
        name, kernel, y = str(point) if point else "ours", td.kernel(lib.linear.definition.fn), torch.full_like(x, -1)
        with Limited(family, point):
            kernel(x, w, None, y)
            about[name] = described(ran_as(kernel, (x, w, None, y), {})) | {"wrong": int((y != want).sum())}
            calls[name] = kernel.bind(x, w, None, y)
        print(name, about[name]["plan"], "wrong", about[name]["wrong"], flush=True)
    x.copy_(torch.randn(size, size, device=DEVICE))
    w.copy_(torch.randn(size, size, device=DEVICE))
    timed(rows, f"product/{str(dtype).removeprefix('torch.')}/{size}", calls, about, rounds)


def causal(rows: Rows) -> None:
    chain(rows, (4, 16, 4096, 64), True, UNEVEN)
    wide: Points = [{}, {"raster": "heavy first"}, {"raster": "drawn 16"}, {"raster": "drawn 8", "held": 2}]
    wide += [{"ahead": True, "raster": f"drawn {n}"} for n in (8, 16)]
    chain(rows, (4, 16, 4096, 128), True, wide)


def full(rows: Rows) -> None:
    chain(rows, (4, 16, 4096, 64), False, [{}, {**TURNS, "held": 2}, {**TURNS, "ahead": True}])
    chain(rows, (4, 16, 4096, 128), False, [{}, {"held": 2}, {"ahead": True}, {"ahead": True, "versions": 3}])


def long(rows: Rows) -> None:
    few = [UNEVEN[i] for i in (0, 3, 4)]
    chain(rows, (1, 16, 16384, 64), True, few, 8)


def ends(rows: Rows) -> None:
    for keys in (128, 512, 1024, 2048, 4096):
        chain(rows, (4, 16, 4096, 64), False, [{}, {**TURNS, "held": 2}], 8, keys)


def exact(rows: Rows) -> None:
    halves = {"columns": 128, "step": 16, "threads": 128}
    product(rows, Blocks, 4096, torch.float32, [{}, {"step": 16}, {"columns": 128, "step": 16}, halves], 12)
    product(rows, Blocks, 1024, torch.float32, [{}, {"rows": 64, "columns": 64}], 30)


def small(rows: Rows) -> None:
    one = {"consumers": 1, "turned": False}
    few: Points = [
        {},
        {**one, "columns": 64, "step": 128, "flight": 1},
        {**one, "columns": 64, "step": 128, "flight": 0},
    ]
    few += [{**one, "columns": 64, "step": 256, "versions": 2}, {"columns": 32, "step": 128, "turned": True}]
    product(rows, Streams, 512, BF, [*few, {"columns": 32, "step": 256, "turned": True}], 60)
    wide: Points = [{"columns": 128, "step": step, "flight": flight} for step in (64, 128) for flight in (0, 1)]
    wide += [{"columns": 256, "step": 64}, {"columns": 64, "step": 128}, {"columns": 64, "step": 128, "consumers": 2}]
    product(rows, Streams, 1024, BF, [{}, *({**one, **point} for point in wide)], 60)


PARTS: dict[str, Callable[[Rows], None]] = {
    "causal": causal,
    "full": full,
    "long": long,
    "ends": ends,
    "exact": exact,
    "small": small,
}


def main(out: str, what: list[str]) -> None:
    """The parts that are asked for."""
    rows: Rows = []
    report = {**where_and_how(__doc__), "rows": rows}
    for name, part in PARTS.items():
        if name in (what or PARTS):
            part(rows)
            pathlib.Path(out).write_text(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
