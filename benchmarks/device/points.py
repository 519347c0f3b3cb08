"""Random points of the CUDA families over random region graphs: built, judged, simulated, assembled.

`python benchmarks/device/points.py OUT.json [--family NAME ...] [--count 300] [--seed 0] [--shard 0/1]`; no GPU is
needed. A draw is a seed: shard i of n takes every n-th. Each row says what was wrong: a point that is not built or not
verified, a finding of the simulator or another value than the interpreter's, a spill, a stack frame or a message.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import time
from random import Random
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from tests.targets.cuda.cuda_kit import clean, tried  # noqa: E402  (after the path is set)
from tests.targets.cuda.graphs import GRAPHS, draw  # noqa: E402

from treadle.base.errors import TreadleError  # noqa: E402
from treadle.checker import check  # noqa: E402
from treadle.targets.cuda.families import families  # noqa: E402


def tried_point(family: Any, seed: int) -> dict[str, Any]:
    """One draw and everything that is asked of it."""
    began = time.perf_counter()
    drawn, facts, point = draw(family, Random(seed))
    row: dict[str, Any] = {"family": family.name, "seed": seed, "graph": drawn.program.name, "sizes": drawn.sizes}
    row |= {"point": dict(point), "wrong": ""}
    step = "build"
    try:
        machine = family.build(drawn.program, facts, point, family.guard(drawn.program, facts, point))
        step = "judge"
        verdict = check(machine)
        assert verdict.status == "verified", str(verdict)
        step = "simulate"
        tried(machine, drawn.program, drawn.sizes)
        step = "assemble"
        clean(machine)
    except (AssertionError, TreadleError) as error:
        row["wrong"] = f"{step}: {str(error)[:400]}"
    return row | {"seconds": round(time.perf_counter() - began, 2)}


def main() -> None:
    """Draws of a shard, one row each."""
    read = argparse.ArgumentParser(description=__doc__)
    read.add_argument("out")
    read.add_argument("--family", action="append")
    read.add_argument("--count", type=int, default=300)
    read.add_argument("--seed", type=int, default=0)
    read.add_argument("--shard", default="0/1")
    asked = read.parse_args()
    mine, shards = map(int, asked.shard.split("/"))
    rows: list[dict[str, Any]] = []
    for family in families():
        if family.name not in (asked.family or GRAPHS):
            continue
        for seed in range(asked.seed + mine, asked.seed + asked.count, shards):
            rows.append(tried_point(family, seed))
            if rows[-1]["wrong"]:
                print(rows[-1], flush=True)
        same = [r for r in rows if r["family"] == family.name]
        print(family.name, len(same), "points,", sum(bool(r["wrong"]) for r in same), "wrong", flush=True)
        pathlib.Path(asked.out).write_text(json.dumps({"method": __doc__, "rows": rows}))


if __name__ == "__main__":
    main()
