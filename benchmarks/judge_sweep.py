"""Whether the judge verifies what the planner plans: every kernel of the library, for random shapes and views.

    python benchmarks/judge_sweep.py OUT.json [TARGET ...] [--cases 50] [--seed 0] [--jobs 1] [--seconds N] [--again]
        [--only NAME ...] [--dtype bf16]

A name is that of a chapter or of a kernel (`norms`, `norms.groupnorm`). A case draws extents (0, 1, odd, large) and
how each argument lies (contiguous, transposed, strided, broadcast or backwards: no axis of step one; offset: badly
aligned). The cheapest plan of each family that admits the program is realised and judged; texts that were judged are
not judged again, for many cases differ in nothing that a guard or a plan says. What is not `verified` is a rejection
that should not be; a crash is listed beside them. Seconds are processor time of one judgement.

`--seconds` ends a run early, between two cases; what was done is in OUT.json, and the next run goes on from there,
kernel by kernel, in random order. `--dtype` takes another dtype for the arguments that are f32 by default, and leaves
kernels without such arguments out. Each row says at which versions of the judge's rules it was judged; `--again` does
anew what an older version judged.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import multiprocessing
import pkgutil
import platform
import random
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from treadle import lib
from treadle.base.errors import LimitError, TreadleError
from treadle.checker.verdict import VERSION
from treadle.driver.build import judged as judged_as_called
from treadle.driver.calibration import machine_of
from treadle.driver.candidates import candidate_of, families
from treadle.driver.kernel import Kernel
from treadle.driver.targets import NAMES, features_of
from treadle.dtype.formats import DType, f32, named
from treadle.ir.core import Program
from treadle.ir.expand import expand
from treadle.lang.errors import NeedsExtent
from treadle.machine.text import print_machine
from treadle.plan.facts import CallFacts
from treadle.plan.pins import NoPlan
from treadle.planner.enumerate import choose

EXTENTS = (0, 1, 2, 3, 7, 16, 31, 64, 100, 129, 512, 1000, 4096)
STAGED = ({}, {"top": 2}, {"k": 3}, {"bins": 5}, {"experts": 4, "top": 2}, {"size": 2}, {"width": 3}, {"groups": 2})
"""Values for staged parameters without a default: the first set with which a kernel is captured."""


def kernels() -> Iterator[tuple[str, Kernel]]:
    """The library's kernels by name."""
    for module in pkgutil.iter_modules(lib.__path__):
        found = importlib.import_module(f"treadle.lib.{module.name}")
        for name, value in vars(found).items():
            if isinstance(value, Kernel) and value.definition.fn.__module__ == found.__name__:
                yield f"{module.name}.{name}", value


def captured(
    kernel: Kernel, dtypes: Mapping[str, DType] | None = None, specialised: Mapping[str, int] | None = None
) -> Program | None:
    """The program for given dtypes of parameters, or the default ones, and extents that are numbers."""
    for staged in STAGED:
        extents = dict(specialised or {})
        while True:
            try:
                return kernel.definition.capture(dict(dtypes or {}), dict(staged), extents=extents)
            except NeedsExtent as error:
                if error.name in extents:
                    break
                extents[error.name] = 4
            except TreadleError:
                break
    return None


def drawn(program: Program, target: str, r: random.Random) -> CallFacts:
    """The facts of a random call."""
    symbols = sorted({s for d in program.dims for s in d.extent.symbols})
    unit: set[tuple[str, int]] = set()
    aligned: dict[str, int] = {}
    for tensor in program.tensors:
        rank = len(tensor.dims)
        kind = r.choice(("contiguous", "contiguous", "transposed", "strided", "offset"))
        if rank and kind in ("contiguous", "offset"):
            unit.add((tensor.name, rank - 1))
        if rank and kind == "transposed":
            unit.add((tensor.name, r.randrange(rank)))
        aligned[tensor.name] = r.choice((64, 16, 4)) if kind != "offset" else 1
    return CallFacts(
        target,
        extents={s: r.choice(EXTENTS) for s in symbols},
        unit=frozenset(unit),
        aligned=aligned,
        features=features_of(target),
        workers=r.choice((1, 2)) if target.startswith("cpu") else 1,
    )


Row = dict[str, Any]
"""What was said about one kernel: how many cases were drawn (`done`), their plans, the digests of the texts that were
judged, what was not verified, the seconds, and the judge's versions."""


def with_dtype(kernel: Kernel, dtype: str) -> Program | None:
    """The program with `dtype` in the place of f32, "": the default one; None where no argument is f32."""
    program = captured(kernel)
    if program is None or not dtype:
        return program
    floats = {t.name: named(dtype) for t in program.tensors if t.dtype == f32}
    return captured(kernel, floats) if floats else None


def sweep(kernel: Kernel, target: str, cases: int, seed: int, row: Row, end: float, dtype: str = "") -> Row | None:
    """The row, gone on with until `end`."""
    program = with_dtype(kernel, dtype)
    if program is None:
        return None
    meant = expand(program)
    known = families(target)
    r = random.Random(f"{seed} {program.name} {target}")
    calls = [drawn(meant, target, r) for _ in range(cases)]
    row = {k: list(v) if isinstance(v, list) else v for k, v in row.items()}
    row["judge"] = sorted({*row["judge"], VERSION})
    judged = set(row["texts"])
    while row["done"] < cases and time.monotonic() < end:
        facts = calls[row["done"]]
        row["done"] += 1
        try:
            choice = choose(meant, facts, known)
        except NoPlan:
            row["no plan"] += 1
            continue
        for one in (choice.best, *choice.others):
            family = next(f for f in known if f.name == one.plan.family)
            try:
                machine = family.build(meant, facts, one.plan.point, one.plan.guard)
            except LimitError:
                continue
            row["plans"] += 1
            text = hashlib.sha256(print_machine(machine).encode()).hexdigest()[:12]
            if text in judged:
                continue
            judged.add(text)
            row["texts"].append(text)
            start = time.process_time()
            verdict = judged_as_called(program, candidate_of(one.plan, meant, facts), machine)
            row["seconds"].append(round(time.process_time() - start, 4))
            if verdict.status != "verified":
                row["not verified"].append(f"{one.plan.line()}: {verdict}")
    return row


FRESH: Row = {"done": 0, "plans": 0, "texts": [], "no plan": 0, "not verified": [], "seconds": [], "judge": []}


def one_kernel(task: tuple[str, str, int, int, Row, float, str]) -> tuple[str, Row | None]:
    """`sweep` of a kernel by name. What is no answer is one, too: it is listed as what was not verified."""
    name, target, cases, seed, row, end, dtype = task
    if time.monotonic() > end:
        return name, row
    try:
        return name, sweep(dict(kernels())[name], target, cases, seed, row, end, dtype)
    except Exception as error:
        crash = f"crash: {type(error).__name__}: {error}"
        return name, {**row, "not verified": [*row["not verified"], crash], "done": cases, "judge": [VERSION]}


def summary(rows: dict[str, Row], cases: int) -> dict[str, Any]:
    """Counts over all kernels of a target."""
    took = [s for row in rows.values() for s in row["seconds"]]
    slow = sorted(rows, key=lambda n: -max(rows[n]["seconds"], default=0))[:8]
    return {
        "kernels": len(rows),
        "kernels with all cases": sum(row["done"] >= cases for row in rows.values()),
        "cases": sum(row["done"] for row in rows.values()),
        "plans": sum(row["plans"] for row in rows.values()),
        "texts": sum(len(row["texts"]) for row in rows.values()),
        "not verified": sum(len(row["not verified"]) for row in rows.values()),
        "judge": sorted({v for row in rows.values() for v in row["judge"]}),
        "median seconds": round(statistics.median(took), 4) if took else None,
        "longest seconds": {n: max(rows[n]["seconds"], default=0) for n in slow},
    }


def keep(file: Path, table: dict[str, Any]) -> None:
    """Writes what is known, whole even if the run is broken off here."""
    beside = file.with_suffix(".new")
    beside.write_text(json.dumps(table, indent=1) + "\n")
    beside.replace(file)


def main(argv: list[str]) -> int:
    """Prints what is not verified, and the table; writes everything to a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("targets", nargs="*", default=list(NAMES))
    parser.add_argument("--cases", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--dtype", default="")
    options = parser.parse_args(argv)
    end = time.monotonic() + options.seconds
    table: dict[str, Any] = {"method": __doc__, "machine": machine_of("cpu"), "python": platform.python_version()}
    table |= {"cases": options.cases, "seed": options.seed}
    if options.dtype:
        table["dtype"] = options.dtype
    if options.out.exists():
        table = json.loads(options.out.read_text())
        asked = (options.cases, options.seed, options.dtype)
        if (table["cases"], table["seed"], table.get("dtype", "")) != asked:
            parser.error(f"{options.out} has other cases")
    wrong = 0
    names = [n for n, _ in kernels() if not options.only or n in options.only or n.split(".")[0] in options.only]
    random.Random(options.seed).shuffle(names)
    for target in options.targets:
        rows: dict[str, Row] = table.get(target, {}).get("kernels", {})
        if options.again:
            rows = {n: row for n, row in rows.items() if row["judge"] == [VERSION]}
        left = [n for n in names if n not in rows or rows[n]["done"] < options.cases]
        tasks = [(n, target, options.cases, options.seed, rows.get(n, FRESH), end, options.dtype) for n in left]
        with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
            for name, row in pool.imap_unordered(one_kernel, tasks):
                if row is None or not row["done"]:
                    continue
                for answer in row["not verified"][len(rows.get(name, FRESH)["not verified"]) :]:
                    print(f"{name}: {answer}", flush=True)
                rows[name] = row
                table[target] = {"summary": summary(rows, options.cases), "kernels": rows}
                keep(options.out, table)
        table[target] = {"summary": summary(rows, options.cases), "kernels": rows}
        wrong += table[target]["summary"]["not verified"]
        print(target, json.dumps(table[target]["summary"]), flush=True)
        keep(options.out, table)
        if time.monotonic() > end:
            break
    return min(1, wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
