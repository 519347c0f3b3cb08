"""Whether the judge verifies what the planner plans: every kernel of the library, for random shapes and views.

`python benchmarks/judge_sweep.py OUT.json [TARGET ...] [--cases 50] [--seed 0] [--jobs 1]
[--only NAME ...]`, where a name is
that of a chapter or of a kernel (`norms`, `norms.groupnorm`); rows that OUT.json has already are kept. A case draws
extents (0, 1, odd, large) and how each argument lies (contiguous, transposed, strided, broadcast or backwards: no axis
of step one; offset: badly aligned). The cheapest plan of each family that admits the program is realised and judged;
texts that were judged are not judged again, for many cases differ in nothing that a guard or a plan says. What is not
`verified` is a rejection that should not be. Seconds are processor time of one judgement.
"""

from __future__ import annotations

import argparse
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
from treadle.driver.build import judged as judged_as_called
from treadle.driver.candidates import candidate_of, families
from treadle.driver.kernel import Kernel
from treadle.driver.targets import features_of
from treadle.dtype.formats import DType
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


def captured(kernel: Kernel, dtypes: Mapping[str, DType] | None = None) -> Program | None:
    """The program for given dtypes of parameters, or the default ones."""
    for staged in STAGED:
        extents: dict[str, int] = {}
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


def sweep(kernel: Kernel, target: str, cases: int, seed: int) -> dict[str, Any] | None:
    """What the judge said about one kernel."""
    program = captured(kernel)
    if program is None:
        return None
    meant = expand(program)
    r = random.Random(f"{seed} {program.name} {target}")
    judged: dict[str, str] = {}
    seconds: list[float] = []
    plans = unplanned = 0
    for _ in range(cases):
        facts = drawn(meant, target, r)
        known = families(target)
        try:
            choice = choose(meant, facts, known)
        except NoPlan:
            unplanned += 1
            continue
        for one in (choice.best, *choice.others):
            family = next(f for f in known if f.name == one.plan.family)
            try:
                machine = family.build(meant, facts, one.plan.point, one.plan.guard)
            except LimitError:
                continue
            plans += 1
            text = print_machine(machine)
            if text in judged:
                continue
            start = time.process_time()
            verdict = judged_as_called(program, candidate_of(one.plan, meant, facts), machine)
            seconds.append(time.process_time() - start)
            judged[text] = "verified" if verdict.status == "verified" else f"{one.plan.line()}: {verdict}"
    bad = sorted({answer for answer in judged.values() if answer != "verified"})
    return {
        "cases": cases,
        "plans": plans,
        "texts": len(judged),
        "no plan": unplanned,
        "not verified": bad,
        "seconds": [round(s, 4) for s in seconds],
    }


def one_kernel(task: tuple[str, str, int, int]) -> tuple[str, dict[str, Any] | None]:
    """`sweep` of a kernel by name."""
    name, target, cases, seed = task
    return name, sweep(dict(kernels())[name], target, cases, seed)


def main(argv: list[str]) -> int:
    """Prints what is not verified, and the table; writes everything to a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("targets", nargs="*", default=["cpu:avx512", "cuda:sm_90a"])
    parser.add_argument("--cases", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args(argv)
    table: dict[str, Any] = {"python": platform.python_version(), "cases": options.cases, "seed": options.seed}
    if options.only and options.out.exists():
        table = json.loads(options.out.read_text())
        if (table["cases"], table["seed"]) != (options.cases, options.seed):
            parser.error(f"{options.out} has other cases")
    wrong = 0
    for target in options.targets:
        rows: dict[str, Any] = table.get(target, {}).get("kernels", {})
        names = [n for n, _ in kernels() if not options.only or n in options.only or n.split(".")[0] in options.only]
        tasks = [(name, target, options.cases, options.seed) for name in names]
        with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
            for name, row in pool.imap_unordered(one_kernel, tasks):
                if row is None:
                    continue
                rows[name] = row
                wrong += len(row["not verified"])
                for answer in row["not verified"]:
                    print(f"{name}: {answer}", flush=True)
        took = [s for row in rows.values() for s in row["seconds"]]
        slow = sorted(rows, key=lambda n: -max(rows[n]["seconds"], default=0))[:8]
        summary = {
            "kernels": len(rows),
            "plans": sum(row["plans"] for row in rows.values()),
            "texts": sum(row["texts"] for row in rows.values()),
            "not verified": sum(len(row["not verified"]) for row in rows.values()),
            "median seconds": round(statistics.median(took), 4),
            "longest seconds": {n: max(rows[n]["seconds"]) for n in slow},
        }
        print(target, json.dumps(summary), flush=True)
        table[target] = {"summary": summary, "kernels": rows}
        options.out.write_text(json.dumps(table, indent=1) + "\n")
    return min(1, wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
