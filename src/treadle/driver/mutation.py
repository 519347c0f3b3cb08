"""The mutation study: every mutant of a machine text is rejected, or accepted and right under many schedules.

An accepted mutant that a schedule shows wrong is a hole in the judge. One that is never wrong is listed with what it
says of the text: synchronisation that nothing needs, slack, or something that matters for speed only.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from treadle.base.errors import TreadleError
from treadle.checker import check
from treadle.driver.locate import known_dims, numbers
from treadle.driver.samples import arguments, default_extents
from treadle.driver.trial import close_enough, expected
from treadle.machine.form import MachineProgram
from treadle.machine.mutate import Mutant, mutants
from treadle.machine.parse import parse_machine
from treadle.machine.verify import verify
from treadle.simulate.run import run_schedules


@dataclass
class Study:
    """Counts by kind of mutant and outcome; `accepted` and `holes` list the mutants themselves."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    accepted: list[str] = field(default_factory=list[str])
    holes: list[str] = field(default_factory=list[str])

    @property
    def total(self) -> int:
        """How many mutants were judged."""
        return sum(self.counts.values())

    def add(self, mutant: Mutant, outcome: str, what: str = "") -> None:
        """Counts a mutant; accepted ones are listed."""
        self.counts[(mutant.kind, outcome)] += 1
        if outcome == "accepted, never wrong":
            self.accepted.append(str(mutant))
        if outcome == "HOLE":
            self.holes.append(f"{mutant}: {what}")

    def as_json(self) -> dict[str, Any]:
        """The study as data."""
        table = [{"kind": k, "outcome": o, "count": n} for (k, o), n in sorted(self.counts.items())]
        return {"total": self.total, "table": table, "accepted": self.accepted, "holes": self.holes}

    def text(self) -> str:
        """A table for a terminal."""
        outcomes = sorted({o for _, o in self.counts})
        kinds = sorted({k for k, _ in self.counts})
        lines = [f"{'kind':<12}" + "".join(f"{o:>24}" for o in outcomes)]
        lines += [f"{k:<12}" + "".join(f"{self.counts[(k, o)]:>24}" for o in outcomes) for k in kinds]
        lines.append(f"{self.total} mutants")
        lines += ["accepted and never wrong:", *(f"  {a}" for a in self.accepted)] if self.accepted else []
        lines += ["HOLES (accepted, and wrong):", *(f"  {h}" for h in self.holes)] if self.holes else []
        return "\n".join(lines)


def chosen(program: MachineProgram, sample: int | None, seed: int) -> Sequence[Mutant]:
    """All mutants, or `sample` of them drawn with a seed."""
    found = list(mutants(program))
    if sample is None or sample >= len(found):
        return found
    picks = np.random.default_rng(seed).permutation(len(found))[:sample]
    return [found[int(i)] for i in np.sort(picks)]


@dataclass
class Trial:
    """Arguments of one shape, and what the program must store for them."""

    args: dict[str, Any]
    want: dict[str, Any]


def trials_of(program: MachineProgram, shapes: Sequence[dict[str, int]], seed: int) -> list[Trial]:
    """Random arguments for each shape. One shape cannot tell all bounds apart: take some below and above a block."""
    found: list[Trial] = []
    for dims in shapes:
        known_dims(program.program, dims)
        extents = default_extents(program.program, dims)
        arrays, scalars = arguments(program.program, extents, seed)
        found.append(Trial({**arrays, **scalars}, expected(program, arrays, scalars, extents)))
    return found


def study(
    program: MachineProgram,
    shapes: Sequence[dict[str, int]],
    schedules: int,
    sample: int | None,
    seed: int,
    *,
    show: bool,
) -> Study:
    """Judges the mutants of a verified program; survivors run `schedules` schedules, spread over the shapes."""
    result = Study()
    trials = trials_of(program, shapes, seed)
    each = max(1, schedules // len(trials))
    for mutant in _shown(chosen(program, sample, seed), show):
        status = _judged(mutant)
        if status != "verified":
            result.add(mutant, status)
        else:
            result.add(mutant, *_survivor(mutant, trials, each, seed))
    return result


def _survivor(mutant: Mutant, trials: Sequence[Trial], each: int, seed: int) -> tuple[str, str]:
    """What the simulator says of an accepted mutant: never wrong, wrong (a hole), or that no shape could run it."""
    ran = 0
    for trial in trials:
        try:
            runs = run_schedules(mutant.program, trial.args, each, seed, expected=trial.want, same=close_enough)
        except TreadleError:
            continue  # the mutant's guard excludes these arguments: it need not be right for them
        ran += 1
        if not runs.right:
            return "HOLE", runs.failures[0][1]
    return ("accepted, never wrong" if ran else "accepted, not run"), ""


def _shown(found: Sequence[Mutant], show: bool) -> Iterator[Mutant]:
    if show and sys.stderr.isatty():
        yield from track(found, description="mutants")
    else:
        yield from found


def _judged(mutant: Mutant) -> str:
    """Verified, or how the mutant was refused: by its form, rejected, or unknown."""
    try:
        verify(mutant.program)
    except TreadleError:
        return "bad form"
    return check(mutant.program).status


def report(file: Path, dims: Sequence[str], schedules: int, sample: int | None, seed: int, as_json: bool) -> int:
    """Runs the study on a file and prints it. Exit status 0 without holes, 1 with some."""
    program = parse_machine(file.read_text(), str(file))
    result = study(program, [numbers(dims)], schedules, sample, seed, show=not as_json)
    print(json.dumps(result.as_json(), indent=1) if as_json else result.text())
    return 1 if result.holes else 0
