"""What a judgement costs: every kernel of the library, its default plan on every target.

    python benchmarks/judge_cost.py OUT.json [TARGET ...] [--seconds N] [--only NAME ...]

The default plan is the one that a call with contiguous, aligned, large arguments gets, for
the default dtypes and, on GPUs, for bf16 in the place of f32 (what contractions take whole is 64 there). Its judgement,
steps of its derivation included, is made `REPEATS` times; the least processor time counts, as the machine may be busy.
Prints a Markdown table; `--seconds` ends a run early, and the next one goes on from OUT.json. Exit status 1 where the
median is above 0.5 s or a judgement above 2 s.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from judge_sweep import captured, kernels

from treadle.base.errors import TreadleError
from treadle.checker.verdict import VERSION
from treadle.driver.build import choose, judged
from treadle.driver.calibration import machine_of
from treadle.driver.candidates import candidates
from treadle.driver.describe import described_facts
from treadle.driver.kernel import Kernel
from treadle.driver.targets import NAMES
from treadle.driver.tiles import wanted_dims
from treadle.dtype.formats import bf16, f32
from treadle.ir.expand import expand

REPEATS = 3
CALLS = {"large": 1024}
"""The extent of every dimension, by the name of the call."""
SIDE = 64
"""The extent of what contractions take whole, on GPUs."""
MEDIAN, WORST = 0.5, 2.0
HEAD = "| target | default plans | kernels | median s | longest | second | third |\n|---|---|---|---|---|---|---|"


def measured(kernel: Kernel, target: str, dtype: str, size: int) -> dict[str, Any] | None:
    """The plan's line, the seconds of its judgement and those of choosing it (`planned`); None where there is no such
    program."""
    first = captured(kernel)
    dtypes = {} if first is None else {t.name: bf16 for t in first.tensors if t.dtype == f32}
    program = captured(kernel, dtypes) if dtype == "bf16" else first
    if program is None or (dtype == "bf16" and not dtypes):
        return None
    extents = dict.fromkeys((s for d in program.dims for s in sorted(d.extent.symbols) if s not in program.lets), size)
    if target.startswith("cuda"):
        sides = {n: SIDE for n in wanted_dims(program, dict.fromkeys(extents, SIDE))}
        program = captured(kernel, dtypes if dtype == "bf16" else None, sides) or program
        extents |= sides
    facts, meant = described_facts(program, extents), expand(program)
    try:
        start = time.process_time()
        next(candidates(meant, target, facts, (), []))
        planned = time.process_time() - start
        built = choose(program, target, facts, ())
    except TreadleError as error:
        return {"error": f"{error.code}"}
    took: list[float] = []
    for _ in range(REPEATS):
        start = time.process_time()
        verdict = judged(program, built.candidate, built.machine)
        took.append(time.process_time() - start)
        assert verdict.status == "verified", str(verdict)
        if took[0] < MEDIAN / 10:
            break
    return {
        "plan": built.candidate.plan.line(),
        "seconds": round(min(took), 4),
        "planned": round(planned, 4),
        "judge": VERSION,
    }


def table(rows: dict[str, dict[str, Any]], targets: list[str]) -> tuple[str, bool]:
    """The Markdown table, and whether all costs are within their bounds."""
    lines, told, good = [HEAD], list[str](), True
    for target in targets:
        took = {k: r["seconds"] for k, r in rows.items() if k.startswith(f"{target} ") and "seconds" in r}
        if not took:
            continue
        median = statistics.median(took.values())
        slow = sorted(took, key=took.__getitem__, reverse=True)[:3]
        good = good and median <= MEDIAN and took[slow[0]] <= WORST
        longest = " | ".join(f"{k.removeprefix(target).strip()} {took[k]:.2f}" for k in slow)
        named = len({k.split(" ")[1] for k in took})
        lines.append(f"| {target} | {len(took)} | {named} | {median:.3f} | {longest} |")
        planned = sorted(r["planned"] for k, r in rows.items() if k in took and "planned" in r)
        if planned:
            text = f"{statistics.median(planned):.3f} s in the middle, {planned[-1]:.2f} at most"
            told.append(f"{target}: planning of {len(planned)} took {text}")
    return "\n".join([*lines, "", *told]), good


def main(argv: list[str]) -> int:
    """Measures what OUT.json does not have, writes it, and prints the table of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("targets", nargs="*", default=list(NAMES))
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args(argv)
    end = time.monotonic() + options.seconds
    data: dict[str, Any] = {"method": __doc__, "machine": machine_of("cpu"), "python": platform.python_version()}
    data |= {"repeats": REPEATS, "calls": CALLS, "rows": {}}
    if options.out.exists():
        data = json.loads(options.out.read_text())
    rows = data["rows"]
    left = 0
    for name, kernel in kernels():
        if options.only and name not in options.only and name.split(".")[0] not in options.only:
            continue
        for target in options.targets:
            for dtype in ("default", "bf16") if target.startswith("cuda") else ("default",):
                for call, size in CALLS.items():
                    key = f"{target} {name} {dtype} {call}"
                    if key in rows:
                        continue
                    if time.monotonic() > end:
                        left += 1
                        continue
                    found = measured(kernel, target, dtype, size)
                    rows[key] = {"none": True} if found is None else found
    options.out.write_text(json.dumps(data, indent=1) + "\n")
    text, good = table(rows, options.targets)
    print(text)
    print(f"{left} judgements left")
    for key, row in rows.items():
        if "error" in row:
            print(f"no plan: {key}: {row['error']}")
    return int(not good)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
