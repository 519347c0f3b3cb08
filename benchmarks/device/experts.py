"""A layer of experts on a Hopper GPU: ragged products of groups, and the whole layer beside torch's.

`python benchmarks/device/experts.py OUT.json [PART ...]` (none: all), with TREADLE_CACHE=off: kernels are called as a
user does; they plan, are judged and compiled there. *Method*: products of small integers with groups of any length,
none too, and what lies beside the groups poisoned, exactly; the layer against float64 of some of its tokens; times by
events, interleaved with the peer, the L2 overwritten before each sample, random data, medians, raw samples kept.
"""

from __future__ import annotations

import json
import pathlib
import sys
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(pathlib.Path(__file__).parent)]

import torch
from room import DEVICE, clock, described, interleaved, median, ran_as

import treadle as td
from treadle.lib import moe
from treadle.plan.family import Axis
from treadle.targets.cuda.parted import PartedStreams

BF = torch.bfloat16
TOKENS, EXPERTS, TOP, WIDE, HIDDEN = 8192, 64, 8, 2048, 1024
Rows = list[dict[str, Any]]
POINTS: tuple[dict[str, Any], ...] = (
    {"raster": "row", "shares": 8},
    {"raster": "row", "shares": 16},
    {"raster": "drawn", "shares": 8},
    {"raster": "drawn", "shares": 4},
)
"""Settings of the family beside the planner's choice."""


def plain(x: Any) -> Any:
    """No activation."""
    return x


@contextmanager
def only(point: dict[str, Any]) -> Generator[None]:
    """The family's axes with these settings alone."""
    axes = PartedStreams.axes

    def fewer(self: PartedStreams, program: Any, facts: Any) -> list[Axis]:
        return [Axis(a.name, (point[a.name],)) if a.name in point else a for a in axes(self, program, facts)]

    PartedStreams.axes = fewer  # for these calls
    try:
        yield
    finally:
        PartedStreams.axes = axes  # as it was


def fresh(kernel: Any) -> Any:
    """The kernel anew, so that its plan is for this call."""
    return td.kernel(kernel.definition.fn)


def whole(*shape: int, most: int = 1, dtype: torch.dtype = BF) -> torch.Tensor:
    """Small integers."""
    return torch.randint(-most, most + 1, shape, device=DEVICE).to(dtype)


def groups(rows: int, experts: int, kind: str) -> torch.Tensor:
    """Where groups begin, and where the last one ends."""
    if kind == "even":
        cuts = torch.arange(1, experts) * rows // experts
    elif kind == "one":
        cuts = torch.full((experts - 1,), rows * 3 // 4)
    else:
        cuts = torch.randint(0, rows + 1, (experts - 1,)).sort().values
    ends = rows if kind != "beside" else rows - 77
    cuts = cuts.clamp(5 if kind == "beside" else 0, ends)
    first = torch.tensor([5 if kind == "beside" else 0])
    return torch.cat([first, cuts, torch.tensor([ends])]).to(torch.int32).to(DEVICE)


def checks(rows: Rows) -> None:
    """Products of groups against the products one by one, exactly."""
    sizes = ((8192, 16, 1024, 512), (4000, 7, 256, 192), (515, 9, 192, 264), (64, 64, 512, 256))
    down, up = fresh(moe.experts_down), fresh(moe.experts_up)
    for c, e, k, n in sizes:
        for kind in ("even", "one", "beside", "random") if c > 100 else ("random",):
            torch.manual_seed(c)
            start = groups(c, e, kind)
            order = torch.randperm(c, device=DEVICE).to(torch.int32)
            at = start.tolist()
            x, w = whole(c, k), whole(e, k, n)
            inside = torch.zeros(c, dtype=torch.bool, device=DEVICE)
            y = torch.full((c, n), 77.0, dtype=BF, device=DEVICE)
            want = y.clone()
            for i in range(e):
                want[order[at[i] : at[i + 1]].long()] = (x[at[i] : at[i + 1]].float() @ w[i].float()).to(BF)
                inside[at[i] : at[i + 1]] = True
            down(x, w, order, start, y)
            about = described(ran_as(down, (x, w, order, start, y), {}))
            add(rows, f"down {c}x{k}x{n} e{e} {kind}", y, want, about)
            if c % 4 or kind == "even":
                continue
            tokens, top = c // 4, 4
            x, u = whole(tokens, k), whole(e, k, n)
            y = torch.full((c, n), 77.0, dtype=BF, device=DEVICE)
            want = y.clone()
            for i in range(e):
                mine = x[order[at[i] : at[i + 1]].long() // top].float()
                want[at[i] : at[i + 1]] = ((mine @ w[i].float()) * (mine @ u[i].float())).to(BF)
            order[~inside] = 10**9
            staged = {"top": top, "act": plain}
            up(x, w, u, order, start, y, **staged)
            about = described(ran_as(up, (x, w, u, order, start, y), staged))
            add(rows, f"up {c}x{k}x{n} e{e} {kind}", y, want, about)


def add(rows: Rows, case: str, got: torch.Tensor, want: torch.Tensor, about: dict[str, Any]) -> None:
    """A row for a checked call."""
    wrong = int((got != want).sum())
    rows.append({"case": case, "wrong": wrong, "right": wrong == 0, **about})
    print(case, "wrong", wrong, about.get("plan"), about.get("verdict"), flush=True)


def peer_layer(
    x: torch.Tensor, router: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor, product: Any
) -> torch.Tensor:
    """The layer as users of torch write it: choices sorted by expert, a product of groups, rows added up again."""
    weight, expert = torch.topk((x @ router).float().softmax(-1), TOP)
    weight = weight / weight.sum(-1, keepdim=True)
    order = expert.reshape(-1).argsort(stable=True)
    ends = torch.bincount(expert.reshape(-1), minlength=EXPERTS).cumsum(0).to(torch.int32)
    mine = x[order // TOP]
    hidden = torch.nn.functional.silu(product(mine, gate, ends)) * product(mine, up, ends)
    back = torch.empty(x.shape[0] * TOP, x.shape[1], dtype=BF, device=x.device)
    back[order] = product(hidden, down, ends)
    return (back.view(x.shape[0], TOP, -1) * weight.unsqueeze(-1).to(BF)).sum(1)


def one_by_one(a: torch.Tensor, w: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Products of groups, a product each."""
    at = [0, *ends.tolist()]
    return torch.cat([a[i:j] @ w[e] for e, (i, j) in enumerate(zip(at, at[1:]))])


def grouped(a: torch.Tensor, w: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Products of groups by torch's kernel for them."""
    return torch._grouped_mm(a, w, offs=ends)


def layer(rows: Rows, flush: torch.Tensor) -> None:
    """The whole layer and its parts."""
    torch.manual_seed(3)
    x = torch.randn(TOKENS, WIDE, device=DEVICE).to(BF)
    router = (torch.randn(WIDE, EXPERTS, device=DEVICE) / WIDE**0.5).to(BF)
    gate, up = ((torch.randn(EXPERTS, WIDE, HIDDEN, device=DEVICE) / WIDE**0.5).to(BF) for _ in range(2))
    down = (torch.randn(EXPERTS, HIDDEN, WIDE, device=DEVICE) / HIDDEN**0.5).to(BF)
    choices = TOKENS * TOP
    empty: Callable[..., torch.Tensor] = lambda *s, dtype=BF: torch.empty(*s, dtype=dtype, device=DEVICE)
    logits, expert, weight = empty(TOKENS, EXPERTS, dtype=torch.float32), empty(TOKENS, TOP, dtype=torch.int32), None
    weight = empty(TOKENS, TOP, dtype=torch.float32)
    order, start = empty(choices, dtype=torch.int32), empty(EXPERTS + 1, dtype=torch.int32)
    hidden, back, z = empty(choices, HIDDEN), empty(choices, WIDE), empty(TOKENS, WIDE)
    steps: list[tuple[str, Any, tuple[Any, ...], dict[str, Any]]] = [
        ("router", moe_logits, (x, router, logits), {}),
        ("route", moe.route, (logits, expert, weight), {"top": TOP}),
        ("group", moe.group_by_expert, (expert.view(-1), order, start), {"experts": EXPERTS}),
        ("up", moe.experts_up, (x, gate, up, order, start, hidden), {"top": TOP}),
        ("down", moe.experts_down, (hidden, down, order, start, back), {}),
        ("combine", moe.combine, (back, weight, z), {}),
    ]
    bound: dict[str, Any] = {}
    for name, kernel, args, staged in steps:
        made = fresh(kernel)
        made(*args, **staged)
        about = described(ran_as(made, args, staged))
        bound[name] = made.bind(*args, **staged)
        rows.append({"case": f"layer, {name}", **about})
        print(name, about.get("plan"), about.get("verdict"), about.get("registers"), flush=True)
    torch.cuda.synchronize()
    right = bool((torch.bincount(expert.view(-1).long(), minlength=EXPERTS).cumsum(0) == start[1:].long()).all())
    sorted_by = expert.view(-1).long().argsort(stable=True)
    print("grouped right", right, bool((sorted_by == order.long()).all()), flush=True)
    some = torch.arange(0, TOKENS, 97, device=DEVICE)
    want = oracle(x[some], router, gate, up, down)
    known = {"ours": z[some]}

    def ours() -> None:
        for call in bound.values():
            call()

    calls: dict[str, Any] = {"ours": ours}
    column = [w.transpose(1, 2).contiguous().transpose(1, 2) for w in (gate, up, down)]
    for name, weights, product in (
        ("grouped", (gate, up, down), grouped),
        ("grouped, weights by columns", column, grouped),
        ("one by one", (gate, up, down), one_by_one),
    ):
        call = lambda w=weights, p=product: peer_layer(x, router, *w, p)
        try:
            known[name] = call()[some]
            calls[name] = call
        except Exception as error:
            rows.append({"case": f"layer, peer {name}", "error": f"{type(error).__name__}: {error}"[:300]})
            print(name, rows[-1]["error"], flush=True)
    for name, got in known.items():
        off = float((got.double() - want).norm() / want.norm())
        rows.append({"case": f"layer, {name}", "relative_2norm": off})
        print(name, "relative", off, flush=True)
    timed(rows, "layer", calls, flush)
    timed(rows, "parts", bound, flush, 10)
    for name, kernel, args, staged in (steps[3], steps[4]):
        others: dict[str, Any] = {}
        for point in POINTS:
            with only(point):
                made = fresh(kernel)
                made(*args, **staged)
                others[f"{point} {ran_as(made, args, staged).plan}"] = made.bind(*args, **staged)
        timed(rows, f"points of {name}", others, flush, 10)
    ends = start[1:].contiguous()
    mine = x[order.long() // TOP]
    alone = {
        f"grouped product {n}": lambda a=a, w=w: grouped(a, w, ends)
        for n, a, w in (("up", mine, gate), ("down", hidden, down))
    }
    alone |= {
        f"{k}, by columns": lambda a=a, w=w: grouped(a, w, ends)
        for k, a, w in (("up", mine, column[0]), ("down", hidden, column[2]))
    }
    alone["gather"] = lambda: x[order.long() // TOP]
    timed(rows, "parts of torch", alone, flush, 10)


def oracle(
    x: torch.Tensor, router: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor
) -> torch.Tensor:
    """The layer of some tokens in float64, by its definition."""
    weight, expert = torch.topk((x.float() @ router.float()).double().softmax(-1), TOP)
    weight = weight / weight.sum(-1, keepdim=True)
    found = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
    for t in range(x.shape[0]):
        for w, e in zip(weight[t], expert[t].tolist()):
            one = x[t].double()
            act = torch.nn.functional.silu(one @ gate[e].double()) * (one @ up[e].double())
            found[t] += w * (act @ down[e].double())
    return found


T, K, E = td.dims("T K E")


@td.kernel
def moe_logits(X: td.Tensor[T, K], router: td.Tensor[K, E], logits: td.Out[T, E, td.f32] = None):
    """What experts are chosen by."""
    for t, e in td.parallel(T, E):
        acc = td.zeros(t, e)
        for k in td.reduce(K):
            acc = td.mma(X[t, k], router[k, e], acc)
        logits[t, e] = acc


def timed(rows: Rows, case: str, calls: dict[str, Any], flush: torch.Tensor, rounds: int = 20) -> None:
    """Medians of calls beside one another."""
    samples = interleaved(calls, rounds, flush)
    ours = median(samples["ours"]) if "ours" in samples else None
    for name, values in samples.items():
        us = median(values)
        rows.append(
            {"case": case, "call": name, "us": us, "ratio": None if ours is None else us / ours, "samples_us": values}
        )
        print(case, name, round(us, 1), rows[-1]["ratio"] and round(rows[-1]["ratio"], 3), flush=True)


def main(out: str, *parts: str) -> None:
    """All parts, or those named."""
    rows: Rows = []
    flush = torch.empty(512 * 2**20, dtype=torch.int8, device=DEVICE)
    for name, part in (("checks", lambda: checks(rows)), ("layer", lambda: layer(rows, flush))):
        if parts and name not in parts:
            continue
        try:
            part()
        except Exception:
            rows.append({"case": name, "error": traceback.format_exc()[-1500:]})
            print(rows[-1]["error"], flush=True)
    about = {
        "device": clock(),
        "torch": torch.__version__,
        "method": " ".join((__doc__ or "").split("*Method*: ")[1].split()),
    }
    pathlib.Path(out).write_text(json.dumps({**about, "rows": rows}, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
