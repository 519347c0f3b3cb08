"""Random points of the CUDA families over random region graphs: built, judged, simulated, assembled.

`python benchmarks/device/points.py OUT.json [--family NAME ...] [--count 300] [--seed 0] [--shard 0/1] [--jobs 1]
[--seconds S] [--again]`; no GPU is needed. A draw is a seed: shard i of n takes every n-th; `--jobs` processes share
them, and no draw begins after `--seconds`. Rows that OUT.json has already are kept and not drawn again (`--again`:
those that were wrong are). Each row says what was wrong: a point that is not built or not verified, a finding of the
simulator or another value than the interpreter's, a spill, a stack frame or a message.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import pathlib
import sys
import time
from random import Random
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from tests.targets.cuda.cuda_kit import clean, tried
from tests.targets.cuda.graphs import GRAPHS, draw

from treadle.base.errors import TreadleError
from treadle.checker import check
from treadle.targets.cuda.families import families


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


FAMILIES = {family.name: family for family in families()}


def row_of(draw: tuple[str, int, float]) -> dict[str, Any] | None:
    """One draw in a process of its own; None when the time is over."""
    name, seed, until = draw
    return tried_point(FAMILIES[name], seed) if time.time() < until else None


def main() -> None:
    """Draws of a shard, one row each."""
    read = argparse.ArgumentParser(description=__doc__)
    read.add_argument("out")
    read.add_argument("--family", action="append")
    read.add_argument("--count", type=int, default=300)
    read.add_argument("--seed", type=int, default=0)
    read.add_argument("--shard", default="0/1")
    read.add_argument("--again", action="store_true")
    read.add_argument("--jobs", type=int, default=1)
    read.add_argument("--seconds", type=float, default=1e9)
    asked = read.parse_args()
    until = time.time() + asked.seconds
    mine, shards = map(int, asked.shard.split("/"))
    names = [n for n in FAMILIES if n in (asked.family or GRAPHS)]
    rows = kept(pathlib.Path(asked.out), asked.again)
    have = {(r["family"], r["seed"]) for r in rows}
    draws = [(n, s, until) for s in range(asked.seed + mine, asked.seed + asked.count, shards) for n in names]
    draws = [d for d in draws if d[:2] not in have]
    drawn = 0
    with multiprocessing.Pool(asked.jobs) as pool:
        for row in pool.imap_unordered(row_of, draws):
            if row is not None:
                rows.append(row)
                drawn += 1
            if row is not None and row["wrong"]:
                print(row, flush=True)
    for name in names:
        same = [r for r in rows if r["family"] == name]
        print(name, len(same), "points,", sum(bool(r["wrong"]) for r in same), "wrong", flush=True)
    rows.sort(key=lambda r: (r["family"], r["seed"]))
    pathlib.Path(asked.out).write_text(json.dumps({"method": __doc__, "left": len(draws) - drawn, "rows": rows}))


def kept(path: pathlib.Path, again: bool) -> list[dict[str, Any]]:
    """The rows of an earlier run, without those that were wrong where they are drawn again."""
    rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"] if path.exists() else []
    return [r for r in rows if not (again and r["wrong"])]


if __name__ == "__main__":
    main()
