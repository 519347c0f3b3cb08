"""What single decisions are worth on a Hopper GPU, and whether the cost model knew: plans with one decision taken away.

`python benchmarks/device/ablations.py OUT.json` plans, judges, compiles and runs there. *Method*: results against the
whole plan's; medians of events, calls in random order, 512 MiB overwritten before each, raw samples kept. `loss`: time
over that of the whole plan; `predicted`: the same by the model; `sign`: whether both say slower, faster or no matter
(within 1 %).
"""

from __future__ import annotations

import importlib
import json
import pathlib
import statistics
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "benchmarks" / "build" / "ablations"
sys.path[:0] = [str(ROOT / "src"), str(ROOT), str(pathlib.Path(__file__).parent)]

SMALL = 0.01
"""Differences below it are none."""
CHANGES: dict[str, dict[str, dict[str, Any]]] = {
    "product": {
        "no overlap of copies": {"versions": 2, "flight": 0},
        "no overlap of stores": {"staged": False},
        "no raster": {"raster": "row"},
        "small blocks": {"columns": 64},
        "multicast along rows": {"cluster": "rows"},
        "multicast along columns": {"cluster": "columns"},
    },
    "chain": {
        "no turns": {"turns": False},
        "no order of tasks": {"raster": "row"},
        "no overlap of stores": {"staged": False},
        "small blocks": {"step": 64},
    },
}
SEARCHES = ("place-early", "greedy-atoms")


def cases() -> list[tuple[str, str, Any, dict[str, int]]]:
    """Kind, name, program, extents."""
    td = importlib.import_module("treadle")
    linear = importlib.import_module("treadle.lib.linear").linear
    attention = importlib.import_module("treadle.lib.attention").attention
    found: list[tuple[str, str, Any, dict[str, int]]] = []
    for size in (2048, 4096):
        given = [td.like(td.bf16, size, size, align=256) for _ in range(2)]
        out = td.like(td.bf16, size, size, align=256)
        plan = linear.plan(*given, None, out, target="cuda:sm_90a")
        found.append(("product", f"product {size}", plan.program.program, dict.fromkeys("MNK", size)))
    for depth, causal in ((128, False), (128, True), (64, True)):
        given = [td.like(td.bf16, 4, 16, 4096, depth, align=256) for _ in range(4)]
        plan = attention.plan(*given, causal=causal, target="cuda:sm_90a")
        name = f"chain d{depth}{' causal' if causal else ''}"
        found.append(("chain", name, plan.program.program, {"B": 4, "H": 16, "Sq": 4096, "Sk": 4096, "D": depth}))
    return found


def points(kind: str, program: Any, facts: Any, family: Any) -> dict[str, Any]:
    """The whole plan's point, and those that lack a decision."""
    choose = importlib.import_module("treadle.planner.enumerate").choose
    whole = dict(choose(program, facts, [family]).plan.point)
    found = {"whole": whole}
    for name, change in CHANGES[kind].items():
        point = whole | change
        if point != whole and family.cost(program, facts, point).total < float("inf"):
            found[name] = point
    for search in SEARCHES:
        found[search] = dict(choose(program, facts, [family], ablate=search).plan.point)
    return found


def main(out: str) -> None:
    """Everything."""
    torch, emit_check = importlib.import_module("torch"), importlib.import_module("emit_check")
    room, emit_make = importlib.import_module("room"), importlib.import_module("emit_make")
    check = importlib.import_module("treadle.checker").check
    family = importlib.import_module("treadle.targets.cuda.streams").Streams()
    BUILD.mkdir(parents=True, exist_ok=True)
    emit_make.BUILD = emit_check.BUILD = BUILD
    report: dict[str, Any] = {**room.where_and_how(__doc__), "cases": []}
    flush = torch.empty(512 << 20, dtype=torch.uint8, device="cuda")
    for number, (kind, case, program, extents) in enumerate(cases()):
        facts = emit_make.contiguous(program, "cuda:sm_90a", extents)
        arrays: dict[str, Any] = {}
        for tensor in program.tensors:
            shape = [int(d.extent.evaluate(extents)) for d in tensor.dims]
            made = torch.empty(shape, device="cuda") if tensor.out else torch.randn(shape, device="cuda")
            arrays[tensor.name] = made.to(torch.bfloat16)
        calls: dict[str, Any] = {}
        about: dict[str, dict[str, Any]] = {}
        for place, (name, point) in enumerate(points(kind, program, facts, family).items()):
            machine = family.build(program, facts, point, family.guard(program, facts, point))
            key = f"ablation{number}_{place}"
            emit_make.compiled(key, emit_make.print_machine(machine))
            calls[name] = emit_check.Loaded(key).bind(extents, arrays)
            about[name] = {"point": point, "verdict": check(machine).status}
            about[name]["model_us"] = family.cost(program, facts, point).total * 1e6
        result = next(t.name for t in program.tensors if t.out)
        calls["whole"]()
        want = arrays[result].double()
        for name, call in calls.items():
            arrays[result].fill_(float("nan"))
            call()
            about[name]["off"] = float((arrays[result].double() - want).norm() / want.norm())
        samples = room.interleaved(calls, 20, flush)
        best = statistics.median(samples["whole"])
        for name, values in samples.items():
            us = statistics.median(values)
            loss, model = us / best - 1, about[name]["model_us"] / about["whole"]["model_us"] - 1
            sides = [0 if abs(x) < SMALL else 1 if x > 0 else -1 for x in (loss, model)]
            row = {"case": case, "without": name, "us": us, "loss": loss, "predicted": model}
            row |= {"sign": sides[0] == sides[1], **about[name], "samples_us": values}
            report["cases"].append(row)
            print(case, "|", name, round(us, 1), f"{loss:+.3f} {model:+.3f}", row["sign"], row["off"], flush=True)
        pathlib.Path(out).write_text(json.dumps(report))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(sys.argv[1])
