"""What `repeatable="run"` and `"batch"` cost: library kernels under each beside the default, and whether bits agree.

    python benchmarks/repeatable.py OUT.json [--rounds N] [--build]

Bits are compared from run to run, on one worker and on two, and (under "batch") of a row alone with the same row in a
batch. Prices are times under the contract over times without it, measured in turn on two workers. Units: microseconds.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import treadle as td
from treadle import lib
from treadle.driver.calibration import machine_of
from treadle.runtime.pool import set_workers
from treadle.runtime.timing import interleaved

QUIET = ("method", "machine", "samples_us")
"""What rows say that is not printed."""
Array = np.ndarray
Arguments = Callable[[int, np.random.Generator], list[Array]]


def numbers(rng: np.random.Generator, *shape: int) -> Array:
    """f32 from the normal distribution."""
    return rng.standard_normal(shape).astype(np.float32)


def product(rows: int, rng: np.random.Generator) -> list[Array]:
    """Rows of a linear layer."""
    return [numbers(rng, rows, 1024), numbers(rng, 1024, 1024) / 32, numbers(rng, 1024)]


CASES: dict[str, tuple[Any, int, Arguments]] = {
    "linear 1024 x 1024 x 1024": (lib.linear, 1024, product),
    "linear 16 x 1024 x 1024": (lib.linear, 16, product),
    "softmax 4096 x 1024": (lib.softmax, 4096, lambda rows, rng: [numbers(rng, rows, 1024)]),
    "layernorm 4096 x 1024": (
        lib.layernorm,
        4096,
        lambda rows, rng: [numbers(rng, rows, 1024), numbers(rng, 1024), numbers(rng, 1024)],
    ),
    "row sums 512 x 32768": (lib.rows_sum, 512, lambda rows, rng: [numbers(rng, rows, 32768)]),
}


def first(outs: Any) -> Array:
    """The first Out."""
    return outs[0] if isinstance(outs, tuple) else outs


def same_bits(kernel: Any, args: list[Array]) -> tuple[bool, bool, bool]:
    """Whether bits agree from run to run, from two workers to one, and of five rows alone with those in the batch."""
    whole = first(kernel(*args)).copy()
    runs = all(np.array_equal(whole, first(kernel(*args))) for _ in range(3))
    set_workers(1)
    workers = np.array_equal(whole, first(kernel(*args)))
    set_workers(2)
    some = all(
        np.array_equal(whole[i : i + n], first(kernel(args[0][i : i + n].copy(), *args[1:])))
        for i, n in ((0, 1), (3, 1), (5, 2), (0, 7), (9, 5))
    )
    return runs, workers, some


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--build", action="store_true", help="plan and compare, time nothing")
    given = parser.parse_args()
    set_workers(2)
    rows: list[dict[str, Any]] = []
    for name, (kernel, count, make) in CASES.items():
        args = make(count, np.random.default_rng(0))
        contracts = {word: kernel.under(td.Numerics(repeatable=word)) for word in ("run", "batch")}
        bits = {word: same_bits(each, args) for word, each in contracts.items()}
        row: dict[str, Any] = {"case": name, **{f"{w}_bits_run_workers_batch": b for w, b in bits.items()}}
        wrong = [w for w, (runs, workers, batch) in bits.items() if not (runs and workers and (batch or w == "run"))]
        if not given.build:
            sides = {"default": kernel.bind(*args), **{w: each.bind(*args) for w, each in contracts.items()}}
            timings = interleaved(sides, rounds=given.rounds, settled=True)
            timed = {w: t.median * 1e6 for w, t in timings.items()}
            row |= {"method": __doc__, "machine": machine_of("cpu")}
            row["samples_us"] = {w: [s * 1e6 for s in t.samples] for w, t in timings.items()}
            row |= {f"{w}_us": us for w, us in timed.items()}
            row |= {f"{w}_price": timed[w] / timed["default"] for w in contracts}
        rows.append(row)
        print(json.dumps({k: v for k, v in row.items() if k not in QUIET}), flush=True)
        if wrong:
            print(f"{name}: bits differ under {', '.join(wrong)}")
            return 1
    if not given.build:
        given.out.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
