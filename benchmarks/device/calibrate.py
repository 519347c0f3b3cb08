"""The cost model on a GPU: its coefficients fitted by probes, then ranks and regret on held-out shapes and operators.

`python benchmarks/device/calibrate.py OUT.json [--seconds 240] [--plans 12] [--case PATTERN]`: the code of `treadle
calibrate` and `treadle bench regret` (`treadle.bench`), with arrays of torch and times by events. *Method*: every plan
is planned, judged and compiled as a call's, several processes at a time; sides in turn, the L2 overwritten before each
sample, random data, the least sample of each. Rows are written as they are measured, by the coefficients by hand; what
the fitted ones would have chosen of the same plans is told beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(pathlib.Path(__file__).parent)]

import torch
from room import DEVICE, interleaved, where_and_how

from treadle.bench.calibrate import calibrate, cuda_probes
from treadle.bench.held_out import cases
from treadle.bench.regret import Point, Row, again, prepared, regret_of, summary
from treadle.bench.subject import Run, Subject
from treadle.dtype.formats import DType
from treadle.plan.facts import CallFacts
from treadle.runtime.timing import Timing
from treadle.targets.cuda.rates import coefficients

FORMATS = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
FLUSH: list[torch.Tensor] = []


def array(shape: Sequence[int], dtype: DType) -> torch.Tensor:
    """A random tensor on the device."""
    return torch.randn(tuple(shape), device=DEVICE).to(FORMATS[dtype.name])


def by_events(sides: Mapping[str, Run], rounds: int) -> Mapping[str, Timing]:
    """Times on the device."""
    found = interleaved(sides, rounds, FLUSH[0])
    return {name: Timing(tuple(us * 1e-6 for us in samples)) for name, samples in found.items()}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--plans", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--case", default="")
    parser.add_argument("--build", metavar="NAME", help="compile the sample of a case into the cache, and no more")
    parser.add_argument("--processes", type=int, default=8)
    given = parser.parse_args(argv)
    began = time.monotonic()
    chosen = [c for c in cases("cuda") if re.search(given.case, c.name)]
    if given.build is not None:
        prepared(next(c for c in chosen if c.name == given.build), array, given.plans)
        return
    os.environ.setdefault("TREADLE_CACHE", tempfile.mkdtemp())
    with ThreadPoolExecutor(given.processes) as pool:
        command = [sys.executable, __file__, given.out, "--plans", str(given.plans), "--build"]
        list(pool.map(lambda c: subprocess.run([*command, c.name], check=False), chosen))
    print(f"compiled after {time.monotonic() - began:.0f} s", flush=True)
    FLUSH.append(torch.empty(512 << 20, dtype=torch.uint8, device=DEVICE))
    target = "cuda:sm_90a"
    by_hand = coefficients(CallFacts(target)).seconds
    report: dict[str, Any] = where_and_how(__doc__)
    fit = calibrate(target, by_hand, list(cuda_probes()), array, by_events)
    report["calibration"] = asdict(fit)
    for name, units in fit.seconds.items():
        print(f"{name:<10}{by_hand[name]:>12.4g}{units:>12.4g}", flush=True)
    print(f"probes off by {fit.error(True):.2f}, before {fit.error(False):.2f}; left out: {fit.left_out}", flush=True)
    rows: list[Row] = []
    fitted: list[Row] = []
    report["skipped"] = []
    for case in chosen:
        if time.monotonic() - began > given.seconds:
            report["skipped"].append(case.name)
            continue
        try:
            row = regret_of(case, array, given.plans, given.rounds, by_events)
        except Exception as error:
            report["skipped"].append(f"{case.name}: {type(error).__name__}: {error}"[:500])
            continue
        rows.append(row)
        fitted.append(under(row, Subject(case.kernel, case.arguments(array), case.staged), fit.seconds))
        print(row.line(), f"fitted: {fitted[-1].regret:.1%} {fitted[-1].rank:.2f}", flush=True)
        report["rows"] = [asdict(r) for r in rows]
        report["under_fitted"] = [{"case": r.case, "regret": r.regret, "rank": r.rank} for r in fitted]
        pathlib.Path(given.out).write_text(json.dumps(report))
    print("\n".join(["by hand:", *summary(rows), "fitted:", *summary(fitted)]))
    print("skipped:", report["skipped"])
    report["seconds"] = time.monotonic() - began
    pathlib.Path(given.out).write_text(json.dumps(report))


def under(row: Row, subject: Subject, seconds: Mapping[str, float]) -> Row:
    """The row as other coefficients would have it, of the plans that were measured."""
    plans = {(p.family, json.dumps(dict(p.point), sort_keys=True)): p for p in subject.plans()}

    def cost(point: Point) -> float:
        return subject.cost(plans[point.family, json.dumps(point.point, sort_keys=True)], seconds).total

    return again(row, cost)


if __name__ == "__main__":
    main()
