"""What the ablations of the distinguishing programs cost when they run: pairs of kernels in turn on this machine's CPU.

`python -m benchmarks.distinguishing [OUT.json]` prints medians and least times; one worker.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from examples.distinguishing import folds, ring, siblings

import treadle as td
from treadle.driver.calibration import machine_of
from treadle.driver.rewriting import rewrite
from treadle.driver.targets import host_target
from treadle.runtime.timing import interleaved


def numbers(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def sides() -> dict[str, dict[str, Callable[[], Any]]]:
    """Comparisons by name: the first side knows everything."""
    x = numbers(2048, 2048)
    g, u, rows = numbers(512, 512), numbers(512, 512), numbers(512, 512)
    zipped, joined = rewrite(siblings.pointwise, siblings.zipped), rewrite(ring.apart, ring.together)
    return {
        "3 siblings 2048^2 f32, scopes apart": {"zipped": zipped.bind(x), "apart": siblings.pointwise.bind(x)},
        "4 sum 2048^2 f32, the order kept": {"unordered": folds.total.bind(x), "fold_left": folds.chain.bind(x)},
        "5 two products 512^3 f32, scopes apart": {
            "one nest": joined.bind(rows, g, u),
            "apart": ring.apart.bind(rows, g, u),
        },
    }


def main(out: str | None) -> None:
    td.set_workers(1)
    found: dict[str, Any] = {"method": __doc__, "machine": machine_of("cpu"), "target": host_target(), "workers": 1}
    for name, pair in sides().items():
        timings = interleaved(pair, rounds=40, settled=False)
        found[name] = {side: list(t.samples) for side, t in timings.items()}
        first, second = timings.values()
        shown = ", ".join(
            f"{side} {t.median * 1e6:.1f} us (least {min(t.samples) * 1e6:.1f})" for side, t in timings.items()
        )
        least = min(second.samples) / min(first.samples)
        print(f"{name}: {shown}; {second.median / first.median:.2f} of medians, {least:.2f} of the least")
    if out is not None:
        Path(out).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
