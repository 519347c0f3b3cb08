"""300 shapes that no plan was made for: products and rows, drawn at random, beside the best installed peer.

    python benchmarks/unseen_shapes.py OUT.jsonl [--threads N] [--group PATTERN] [--from I] [--count N] [--build]

Groups: `linear` f32 and bf16 (extents log-uniform, 1 to 2048, a third of them multiples of 16), `softmax`, `layernorm`
and `rmsnorm` f32 and bf16 (rows 1 to 4096, columns 16 to 16384). One kernel serves all the shapes of its group by at
most 8 variants, each verified; `--build` plans and runs ours only, and tells how many: a later run times what is then
in the cache. Results are checked against float64 before they are timed, and timed in turn with the peers.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from treadle.bench.case import Case
from treadle.bench.cases import softmax_case
from treadle.bench.operators import linear_case, row_cases
from treadle.bench.suite import run_case
from treadle.dtype.formats import DType, bf16, f32
from treadle.runtime.pool import set_workers

SEED = 20261130
PEERS = ["torch", "numpy", "jax", "onnxruntime"]


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


def build(case: Case) -> str:
    """Plans, compiles and runs ours once; the verdict."""
    inputs = case.make(np.random.default_rng(0))
    case.bind(inputs, case.room())()
    return str(case.kernel.variants[-1].verdict["status"])


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--group", default="", help="a regular expression")
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--count", type=int, default=10**9)
    parser.add_argument("--build", action="store_true")
    given = parser.parse_args()
    set_workers(given.threads)
    chosen = [(i, g, c) for i, (g, c) in enumerate(shapes()) if re.search(given.group, g)]
    used: dict[str, set[str]] = {}
    with given.out.open("a") as file:
        for number, group, case in chosen[given.first : given.first + given.count]:
            if given.build:
                status = build(case)
                print(f"{number} {case.name} {status} {len(case.kernel.variants)}", flush=True)
            else:
                rows = list(run_case(case, PEERS, 5))
                best = min((r for r in rows if r.ratio is not None), key=lambda r: r.ratio or 0.0)
                used.setdefault(group, set()).add(best.plan)
                variants = len(case.kernel.variants)
                row = {"number": number, "group": group, "variants": variants, **json.loads(best.as_json())}
                file.write(json.dumps(row) + "\n")
                file.flush()
                print(f"{number} {case.name:<34} {best.ratio:.2f} {best.peer} {best.verdict} {variants}", flush=True)
    return 0


def summary(paths: list[Path]) -> str:
    """Geometric means and least ratios of the groups, variants, and the ten slowest shapes."""
    rows = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    lines: list[str] = []
    for group in sorted({r["group"] for r in rows}):
        ratios = [r["ratio"] for r in rows if r["group"] == group]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        variants = max(r["variants"] for r in rows if r["group"] == group)
        wrong = sum(r["verdict"] != "verified" for r in rows if r["group"] == group)
        lines.append(
            f"{group:<16}{len(ratios):>4} shapes, geomean {mean:.2f}, least {min(ratios):.2f}, "
            f"{sum(x < 0.8 for x in ratios)} below 0.8, at most {variants} variants, {wrong} not verified"
        )
    for r in sorted(rows, key=lambda r: r["ratio"])[:10]:
        lines.append(f"  {r['ratio']:.2f} {r['case']} beside {r['peer']}: {r['ours_us']:.1f} us; {r['plan']}")
    return "\n".join(lines)


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] == "summary":
        print(summary([Path(p) for p in sys.argv[2:]]))
        sys.exit(0)
    sys.exit(main())
