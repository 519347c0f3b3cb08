"""Mutants of the machine programs of every kernel of the library: none may be accepted and wrong.

    python benchmarks/library_mutants.py OUT.json [TARGET ...] [--only NAME ...] [--jobs N] [--seconds N] [--sample N]
        [--texts PATTERN]

For each kernel and target the cheapest plan of each family that admits it is built for large arguments. Every mutant of
these texts (or `--sample` drawn ones each) is judged; one that the judge accepts and that executes something else runs
whole on arguments of a few small shapes, and again under other schedules. `--seconds` ends the study early; what was
done is in OUT.json, and the next run goes on from there. A *hole* is an accepted mutant that a schedule shows wrong.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import platform
import random
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

import numpy as np
from judge_sweep import captured, keep, kernels

from treadle.base.errors import LimitError, TreadleError
from treadle.checker import check
from treadle.checker.verdict import VERSION
from treadle.driver.calibration import machine_of
from treadle.driver.candidates import families
from treadle.driver.kernel import Kernel
from treadle.driver.mutation import executed, judged, survivor
from treadle.driver.mutation_trials import Trial, trials_of
from treadle.driver.samples import default_extents
from treadle.driver.targets import features_of
from treadle.driver.trial import close_enough
from treadle.dtype.formats import bf16, f32
from treadle.ir.core import Program
from treadle.ir.expand import expand
from treadle.machine.form import MachineProgram
from treadle.machine.mutate import Mutant, mutants
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine
from treadle.plan.facts import CallFacts
from treadle.plan.pins import NoPlan
from treadle.planner.enumerate import choose
from treadle.simulate.run import run_schedules

PART = 40
"""Mutants that are one piece of work."""
PROCESSORS = "processors=2"
"""A GPU of two multiprocessors: a persistent workgroup has several tiles, and a ring goes round more often than it has
slots."""
TRIALS = 6
"""Of shapes and contents, at least, where so many are admitted."""
SCHEDULES = 20
"""Schedules of each shape under which an accepted mutant runs, two whole, the others replayed."""
PATIENCE = 1.5
"""Seconds for one run of all trials."""
TOO_LONG = 8.0
"""Seconds of processor time after which one shape is given up: reference, trials and a run of the program itself. A few
kernels (factorisations, convolutions, sorts) take minutes at the larger shapes; they are tried at the smaller ones."""
STUDIED = 240.0
"""Seconds of processor time for all schedules of one accepted mutant; one that needs more counts as not run."""
LARGE = 256
"""Extents for which plans are made: large beside blocks, and small enough to be simulated where a guard fixes them."""


def facts_of(program: Program, target: str) -> CallFacts:
    """Facts of a call with large, contiguous, aligned arrays."""
    symbols = sorted({s for d in program.dims for s in d.extent.symbols} - set(program.lets))
    unit = frozenset((t.name, len(t.dims) - 1) for t in program.tensors if t.dims)
    return CallFacts(
        target,
        extents=dict.fromkeys(symbols, LARGE),
        unit=unit,
        aligned={t.name: 64 for t in program.tensors},
        features=features_of(target) | ({PROCESSORS} if target.startswith("cuda") else frozenset()),
        disjoint=True,
        workers=2 if target.startswith("cpu") else 1,
    )


def programs(kernel: Kernel, target: str) -> list[tuple[str, Program]]:
    """A kernel's program for default dtypes and, as tensor cores take no f32, on GPUs for bf16 in its place, too; on a
    CPU with tiles for bf16 alone (f32 has the plans of cpu:avx512)."""
    first = captured(kernel)
    if first is None:
        return []
    single = {t.name: bf16 for t in first.tensors if t.dtype == f32}
    tiles = target == "cpu:amx"
    second = captured(kernel, single) if single and (tiles or target.startswith("cuda")) else None
    return [*([] if tiles and single else [("", first)]), *([(" bf16", second)] if second is not None else [])]


def texts(task: tuple[str, str]) -> list[tuple[str, str, str, int]]:
    """(label, target, machine text, number of mutants) of the cheapest plan of each family that admits a kernel; of
    a second program only those families that the first did not have."""
    name, target = task
    known = families(target)
    seen: set[str] = set()
    found: list[tuple[str, str, str, int]] = []
    for suffix, program in programs(dict(kernels())[name], target):
        meant = expand(program)
        facts = facts_of(meant, target)
        try:
            choice = choose(meant, facts, known)
        except NoPlan:
            continue
        for one in (choice.best, *choice.others):
            if one.plan.family in seen:
                continue
            family = next(f for f in known if f.name == one.plan.family)
            try:
                machine = family.build(meant, facts, one.plan.point, one.plan.guard)
            except LimitError:
                continue
            if check(machine).status == "verified":
                seen.add(one.plan.family)
                size = sum(1 for _ in mutants(machine))
                found.append((f"{name}{suffix} {one.plan.family}", target, print_machine(machine), size))
    return found


def shapes_of(program: Program) -> list[dict[str, int]]:
    """Small extents, those with least work first: few, primes, one symbol beyond common blocks, and multiples that a
    guard may ask for, of all symbols or of the last ones only."""
    every = (s for d in program.dims for s in sorted(d.extent.symbols))
    symbols = [s for s in dict.fromkeys(every) if s not in program.lets]
    few = {s: (3, 2, 5, 4)[i % 4] for i, s in enumerate(symbols)}
    long = [{**few, s: 67 if len(symbols) > 2 else 131} for s in symbols[-2:]]
    whole = [{s: (32, 16, 64, 48)[i % 4] for i, s in enumerate(symbols)}, dict.fromkeys(symbols, 128)]
    last = [{**few, **{s: one[s] for s in symbols[-n:]}} for one in whole for n in (1, 2, 3)]
    fixed = [{**rest, s: LARGE} for s in reversed(symbols[-3:]) for rest in (few, whole[0])]
    every_one = [few, *long, *last, *whole, {s: default_extents(program, {})[s] for s in symbols}, *fixed]
    once = {tuple(sorted(one.items())): one for one in every_one}
    return sorted(once.values(), key=lambda one: math.prod(one.values()))


class TooLong(Exception):
    """A piece of work has taken its processor time."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Ends the work inside with `TooLong` after so much processor time."""

    def over(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def usable(program: MachineProgram, seed: int) -> list[Trial]:
    """A few trials that the program itself gets right (a small shape may break what a kernel asks for), as many as
    can be simulated in `PATIENCE`; at least one, if any is."""
    found: list[Trial] = []
    spent = 0.0
    for dims in shapes_of(program.program):
        try:
            with at_most(TOO_LONG):
                for trial in trials_of(program, [dims], seed):
                    start = time.process_time()
                    right = not survivor(Mutant("", 0, "", program), [trial], seed).problem
                    took = time.process_time() - start
                    if right and (not found or spent + took < PATIENCE):
                        found.append(trial)
                        spent += took
        except TooLong:
            if found:
                break  # the shapes behind have more work
        except (TreadleError, ValueError, IndexError, ZeroDivisionError):
            continue  # the source program itself refuses arguments of this shape
        if len(found) >= TRIALS or spent > PATIENCE / 2:
            break
    return found


def tried(mutant: Mutant, trials: list[Trial], seed: int) -> tuple[str, int]:
    """What some schedule shows wrong of an accepted mutant ("": nothing), and how many there were."""
    problem, runs = survivor(mutant, trials, seed).problem, 0
    for trial in trials:
        if problem:
            break
        more = run_schedules(
            mutant.program, trial.args, SCHEDULES, seed + 1, expected=trial.want, same=close_enough, whole=1
        )
        runs += 1 + more.runs
        problem = more.failures[0][1] if more.failures else ""
    return problem, runs


def examine(task: tuple[str, str, str, int, int, int | None, int]) -> dict[str, Any]:
    """What became of one part of a text's mutants."""
    label, target, text, part, parts, sample, seed = task
    start = time.process_time()
    program = parse_machine(text, label)
    found = list(mutants(program))
    if sample is not None and sample < len(found):
        picks = np.random.default_rng(seed).permutation(len(found))[:sample]
        found = [found[int(i)] for i in np.sort(picks)]
    found = found[part::parts]
    counts: Counter[str] = Counter()
    holes: list[str] = []
    own = executed(program)
    trials: list[Trial] | None = None
    done: dict[str, str] = {own: ""}
    runs = 0
    for mutant in found:
        status = judged(mutant)
        if status != "verified":
            counts[status] += 1
            continue
        what = executed(mutant.program)
        if what not in done:
            trials = usable(program, seed) if trials is None else trials
            try:
                with at_most(STUDIED):
                    done[what], ran = tried(mutant, trials, seed)
            except TooLong:
                counts["not run"] += 1
                continue
            runs += ran
        counts["hole" if done[what] else "same execution" if what == own else "right" if trials else "not run"] += 1
        if done[what]:
            holes.append(f"{mutant.line}: {mutant.kind}: {mutant.description}: {done[what]}")
    return {
        "text": label,
        "target": target,
        "part": f"{part}/{parts}",
        "counts": dict(counts),
        "runs": runs,
        "shapes": len(trials or ()),
        "holes": holes,
        "seconds": round(time.process_time() - start, 1),
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts over all parts, by target."""
    table: dict[str, Any] = {}
    for target in sorted({r["target"] for r in rows}):
        mine = [r for r in rows if r["target"] == target]
        counts: Counter[str] = Counter()
        for r in mine:
            counts.update(r["counts"])
        table[target] = {
            "texts": len({r["text"] for r in mine}),
            "mutants": sum(counts.values()),
            "schedules": sum(r["runs"] for r in mine),
            **dict(sorted(counts.items())),
        }
    return table


def main(argv: list[str]) -> int:
    """Prints the summary and each hole; writes everything to a file. Exit status 1 with holes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("targets", nargs="*", default=["cpu:avx512", "cuda:sm_90a"])
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--sample", type=int)
    parser.add_argument("--texts", default="", help="a regular expression for 'NAME FAMILY on TARGET'")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    end = time.monotonic() + options.seconds
    about = {"python": platform.python_version(), "judge": VERSION, "sample": options.sample, "seed": options.seed}
    measured, rows = {"method": __doc__, "machine": machine_of("cpu")}, list[dict[str, Any]]()
    if options.out.exists():
        known = json.loads(options.out.read_text())
        if known["about"] != about:
            parser.error(f"{options.out} is of another study: {known['about']}")
        rows = known["parts"]
    names = [n for n, _ in kernels() if not options.only or n in options.only or n.split(".")[0] in options.only]
    left = 0
    with multiprocessing.get_context("fork").Pool(options.jobs, maxtasksperchild=20) as pool:
        tasks = parts_to_do(pool, names, options, {(r["text"], r["target"], r["part"]) for r in rows})
        for left in examined(pool, tasks, options.jobs, end, rows):
            keep(options.out, {**measured, "about": about, "left": left, "summary": summary(rows), "parts": rows})
        pool.terminate()
    table = summary(rows)
    print(json.dumps(table, indent=1))
    print(f"{left} parts left")
    return int(any(r["holes"] for r in rows))


def parts_to_do(
    pool: Pool, names: list[str], options: argparse.Namespace, done: set[tuple[str, str, str]]
) -> list[tuple[Any, ...]]:
    """The parts of every text that are not done yet, in random order: a study that ends early is a sample of all."""
    asked = [(n, t) for n in names for t in options.targets]
    found = [t for some in pool.imap_unordered(texts, asked) for t in some]
    tasks: list[tuple[Any, ...]] = []
    for label, target, text, size in sorted(found):
        if not re.search(options.texts, f"{label} on {target}"):
            continue
        parts = max(1, -(-min(size, options.sample or size) // PART))
        tasks += [
            (label, target, text, i, parts, options.sample, options.seed)
            for i in range(parts)
            if (label, target, f"{i}/{parts}") not in done
        ]
    random.Random(options.seed).shuffle(tasks)
    print(f"{len(found)} texts, {len(tasks)} parts to do", file=sys.stderr, flush=True)
    return tasks


def examined(
    pool: Pool, tasks: list[tuple[Any, ...]], jobs: int, end: float, rows: list[dict[str, Any]]
) -> Iterator[int]:
    """Adds a row for each part, one at a time for each process; says how many are left, every ten seconds and when the
    time is over."""
    waiting = iter(tasks)
    running = []
    before, said = len(rows), time.monotonic()
    while True:
        while len(running) < jobs and time.monotonic() < end and (task := next(waiting, None)) is not None:
            running.append(pool.apply_async(examine, (task,)))
        if not running:
            break
        ready = [r for r in running if r.ready()]
        running = [r for r in running if r not in ready]
        for r in ready:
            row = r.get()
            rows.append(row)
            for hole in row["holes"]:
                print(f"HOLE {row['text']} on {row['target']}: {hole}", flush=True)
        if time.monotonic() > end + 60:
            break
        if time.monotonic() > said + 10:
            yield len(tasks) - (len(rows) - before)
            said = time.monotonic()
        time.sleep(0.02)
    yield len(tasks) - (len(rows) - before)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
