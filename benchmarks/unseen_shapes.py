"""300 shapes that no plan was made for: products and rows, drawn at random, beside the best installed peer.

    python benchmarks/unseen_shapes.py OUT.jsonl [--threads N] [--group PATTERN] [--seconds 80] [--again] [--build]
    python benchmarks/unseen_shapes.py summary OUT.jsonl ...

Groups: `linear` f32 and bf16 (extents log-uniform, 1 to 2048, a third of them multiples of 16), `softmax`, `layernorm`
and `rmsnorm` f32 and bf16 (rows 1 to 4096, columns 16 to 16384). One kernel serves all the shapes of its group by at
most 8 variants, each verified. A run ends after `--seconds` and the next one goes on where it ended: it first plans the
shapes before, as one process that met them all would have; `--again` takes those that were disturbed. `--build` plans
and runs ours only, and tells how many variants there are.

Results are checked against float64, then each side is called in turn, many times, and its least time counts: what else
runs on a machine only ever adds. A row during which others took more than a tenth of the machine is `disturbed`; the
summary takes the least of all runs of a shape, side by side.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from treadle.bench.case import Case
from treadle.bench.cases import softmax_case
from treadle.bench.operators import linear_case, row_cases
from treadle.bench.others import Others
from treadle.bench.peers import everywhere, peers_of
from treadle.driver.calibration import machine_of
from treadle.dtype.formats import DType, bf16, f32
from treadle.runtime.pool import set_workers

SEED = 20261130
PEERS = ["torch", "numpy", "jax", "onnxruntime"]
METHOD = "checked against float64; sides called in turn, the first calls untimed; least of the samples of each side"
CROWDED = 0.1
"""The share of the machine that others may take."""
ROUNDS = (5, 40)
"""Calls of each side, at least and at most."""
LONG = 0.4
"""Seconds after which a shape has been timed enough."""

Side = Callable[[], Any]


class Blank:
    """Stands for a generator of random numbers where values do not matter."""

    def standard_normal(self, shape: Any) -> Any:
        return np.zeros(shape)

    random = standard_normal

    def integers(self, low: int, high: int, shape: Any) -> Any:
        return np.full(shape, low)


def extent(rng: np.random.Generator, least: int, most: int) -> int:
    """Log-uniform; every third one a multiple of 16."""
    n = round(math.exp(rng.uniform(math.log(least), math.log(most))))
    return max(16, n // 16 * 16) if rng.integers(3) == 0 and n >= 16 else n


def rows_case(dtype: DType, family: str, rows: int, columns: int) -> Case:
    """The case of a family of `row_cases`."""
    return next(c for c in row_cases(dtype, rows, columns) if c.family == family)


def shapes() -> Iterator[tuple[str, Case]]:
    """All cases with their groups: of each dtype 50 products, 40 softmaxes, 30 norms of each kind."""
    rng = np.random.default_rng(SEED)
    for dtype in (f32, bf16):
        for _ in range(50):
            m, n, k = (extent(rng, 1, 2048) for _ in range(3))
            yield f"linear/{dtype.name}", linear_case(dtype, m, n, k)
        for family, count in (("softmax", 40), ("layernorm", 30), ("rmsnorm", 30)):
            for _ in range(count):
                rows, columns = extent(rng, 1, 4096), extent(rng, 16, 16384)
                while rows * columns > 1 << 24:
                    rows = max(1, rows // 2)
                case = softmax_case(dtype, rows, columns)
                yield f"{family}/{dtype.name}", case if family == "softmax" else rows_case(dtype, family, rows, columns)


def build(case: Case, rng: Any, run: bool) -> str:
    """Plans and compiles ours, and runs it once if asked; the verdict."""
    inputs = case.make(rng)
    bound = case.bind(inputs, case.room())
    if run:
        bound()
    return str(case.kernel.variants[-1].verdict["status"])


def right(case: Case, side: Side, out: Any, want: Any, bound: Any) -> None:
    """*Errors*: `SystemExit` where a side does not compute the case."""
    out[...] = np.nan
    side()
    if hasattr(side, "finish"):
        side.finish()  # of a peer that returns its result
    if not bool((np.abs(out.astype(np.float64) - want) <= bound).all()):
        raise SystemExit(f"{case.name}: wrong values")


def timed(sides: dict[str, Side]) -> dict[str, list[float]]:
    """Microseconds of single calls, in turn."""
    samples: dict[str, list[float]] = {name: [] for name in sides}
    begun = time.perf_counter()
    for number in range(ROUNDS[1] + 2):
        for name, side in sides.items():
            side()  # its threads are awake, its data is where its own calls leave it
            start = time.perf_counter()
            side()
            took = time.perf_counter() - start
            if number > 1:
                samples[name].append(round(1e6 * took, 2))
        if number > ROUNDS[0] + 1 and time.perf_counter() - begun > LONG:
            break
    return samples


def measure(case: Case, threads: int, wanted: list[str]) -> dict[str, Any]:
    """One row: raw samples of ours, and of each peer with ours beside it."""
    inputs = case.make(np.random.default_rng(0))
    want = case.oracle(inputs)
    bound = case.tolerance(inputs, want)
    out = case.room()
    ours = case.bind(inputs, out)
    right(case, ours, out, want, bound)
    launch: Any = ours
    variant = next(v for v in case.kernel.variants if v.kernel is launch.kernel)
    row: dict[str, Any] = {"case": case.name, "verdict": variant.verdict["status"], "plan": variant.plan}
    row |= {"variants": len(case.kernel.variants), "threads": threads, "ours_us": [], "peers_us": {}, "others": 0.0}
    for name, make in peers_of(case, wanted, threads).items():
        theirs = case.room()
        with everywhere(name):
            side = make(inputs, theirs)
            right(case, side, theirs, want, 2 * bound)
        with Others() as others:
            found = timed({"ours": ours, name: side})
        row["ours_us"] += found["ours"]
        row["peers_us"][name] = found[name]
        row["others"] = max(row["others"], round(others.share or 0.0, 3))
    return row | {"disturbed": row["others"] > CROWDED, "machine": machine_of("cpu"), "method": METHOD}


def rows_of(paths: list[Path]) -> list[dict[str, Any]]:
    """The rows of files that exist."""
    return [json.loads(line) for path in paths if path.exists() for line in path.read_text().splitlines()]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--group", default="", help="a regular expression")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--seconds", type=float, default=80.0)
    parser.add_argument("--again", action="store_true", help="shapes that were disturbed in every run so far")
    parser.add_argument("--build", action="store_true")
    given = parser.parse_args()
    set_workers(given.threads)
    begun = time.perf_counter()
    known = rows_of([given.out])
    calm = {r["number"] for r in known if not (given.again and r["disturbed"])}
    before: list[Case] = []
    group_now = ""
    for number, (group, case) in enumerate(shapes()):
        if not re.search(given.group, group):
            continue
        if group != group_now:
            before, group_now = [], group
        if given.build:
            print(f"{number} {case.name} {build(case, Blank(), True)} {len(case.kernel.variants)}", flush=True)
        elif number in calm:
            before.append(case)
        else:
            for earlier in before:
                build(earlier, Blank(), False)
            before = []
            row = {"number": number, "group": group, **measure(case, given.threads, given.peers.split(","))}
            with given.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            ratio, peer = best_of([row])
            others = f"{row['others']:.0%}"
            print(f"{number} {case.name:<34} {ratio:.2f} {peer:<12}{others:>5} {row['verdict']}", flush=True)
        if time.perf_counter() - begun > given.seconds:
            break
    return 0


def best_of(rows: list[dict[str, Any]]) -> tuple[float, str]:
    """Least time of the fastest peer over ours, of the runs of one shape."""
    least: dict[str, float] = {}
    for row in rows:
        for name, samples in row["peers_us"].items():
            least[name] = min(least.get(name, math.inf), *samples)
    peer = min(least, key=lambda n: least[n])
    return least[peer] / min(s for row in rows for s in row["ours_us"]), peer


def summary(paths: list[Path]) -> str:
    """Geometric means and least ratios of the groups, variants, and the ten slowest shapes."""
    shapes_: dict[int, list[dict[str, Any]]] = {}
    for row in rows_of(paths):
        shapes_.setdefault(row["number"], []).append(row)
    lines: list[str] = []
    ratios = {number: best_of(rows) for number, rows in shapes_.items()}
    for group in sorted({rows[0]["group"] for rows in shapes_.values()}):
        mine = {n: rows for n, rows in shapes_.items() if rows[0]["group"] == group}
        found = [ratios[n][0] for n in mine]
        mean = math.exp(sum(map(math.log, found)) / len(found))
        variants = max(r["variants"] for rows in mine.values() for r in rows)
        wrong = sum(rows[-1]["verdict"] != "verified" for rows in mine.values())
        disturbed = sum(all(r["disturbed"] for r in rows) for rows in mine.values())
        lines.append(
            f"{group:<16}{len(found):>4} shapes, geomean {mean:.2f}, least {min(found):.2f}, "
            f"{sum(x < 0.8 for x in found)} below 0.8, at most {variants} variants, {wrong} not verified, "
            f"{disturbed} disturbed"
        )
    for n in sorted(ratios, key=lambda n: ratios[n][0])[:10]:
        row = shapes_[n][-1]
        ours = min(s for r in shapes_[n] for s in r["ours_us"])
        mark = ", disturbed" if all(r["disturbed"] for r in shapes_[n]) else ""
        lines.append(f"  {ratios[n][0]:.2f} {row['case']} beside {ratios[n][1]}: {ours:.1f} us{mark}; {row['plan']}")
    return "\n".join(lines)


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] == "summary":
        print(summary([Path(p) for p in sys.argv[2:]]))
        sys.exit(0)
    sys.exit(main())
