"""The mutation study: every mutant of a machine text is rejected, or accepted and right under many schedules.

An accepted mutant that a schedule shows wrong is a hole in the judge. One that is never wrong is listed with what it
says of the text (`meaning`). Mutants that execute the same statements share their schedules: what is only evidence
(claims, versions, what a loop enters, the ledger) executes nothing.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from rich.progress import track

from treadle.base.errors import TreadleError
from treadle.checker import check
from treadle.checker.verdict import VERSION
from treadle.driver.locate import numbers
from treadle.driver.mutation_trials import SPECIAL_VALUES, Trial, excluded_trials, trials_of
from treadle.driver.trial import close_enough
from treadle.machine.form import MachineProgram, Sync
from treadle.machine.mutate import Mutant, mutants, without_claims
from treadle.machine.parse import parse_machine
from treadle.machine.text import print_machine, statement_lines
from treadle.machine.verify import verify
from treadle.simulate.findings import WrongArguments
from treadle.simulate.run import record, run_schedules

T = TypeVar("T")
R = TypeVar("R")

ALL = 100
"""Schedules of each shape where nothing can be replayed (atomic updates): each is simulated whole."""

PART = 50
"""Replays that are one piece of work."""

ORDERS = frozenset(("swap", "permute", "double", "word", "delete"))
"""Kinds of mutants that change what is executed when, by whom or how often, and no bound, number or place."""


@dataclass
class Accepted:
    """A mutant that the judge accepted: how many schedules it ran, in how many shapes, whether those of another text
    that executes the same, and what its being right says (`meaning`)."""

    line: int
    kind: str
    description: str
    meaning: str
    schedules: int
    shapes: int
    shared: bool

    def __str__(self) -> str:
        return f"line {self.line}: {self.kind}: {self.description} ({self.meaning})"


@dataclass
class Study:
    """Counts by kind of mutant and outcome; `accepted` and `holes` list the mutants themselves."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    accepted: list[Accepted] = field(default_factory=list[Accepted])
    holes: list[str] = field(default_factory=list[str])

    @property
    def total(self) -> int:
        """How many mutants were judged."""
        return sum(self.counts.values())

    def outcomes(self) -> Counter[str]:
        """Counts by outcome."""
        by = Counter[str]()
        for (_, outcome), count in self.counts.items():
            by[outcome] += count
        return by

    def meanings(self) -> Counter[str]:
        """How many accepted mutants mean what."""
        return Counter(a.meaning for a in self.accepted)

    def as_json(self) -> dict[str, Any]:
        """The study as data."""
        table = [{"kind": k, "outcome": o, "count": n} for (k, o), n in sorted(self.counts.items())]
        accepted = [asdict(a) for a in self.accepted]
        return {
            "total": self.total,
            "outcomes": dict(sorted(self.outcomes().items())),
            "meanings": dict(sorted(self.meanings().items())),
            "table": table,
            "accepted": accepted,
            "holes": self.holes,
        }

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


def meaning(program: MachineProgram, mutant: Mutant) -> str:
    """What it says of the text that this mutant of it is right.

    - "same execution": only evidence differs;
    - "needless synchronisation": a synchronisation can go, or ask for less;
    - "speed-only": the same work in another order, by others, or more of it (a wait that waits for more, too);
    - "slack": room in a bound, a place, a mask, a fill, a fact of the guard, the name of a barrier.
    """
    if executed(mutant.program) == executed(program):
        return "same execution"
    lines = statement_lines(program)
    item = next((s for s in program.statements() if lines.get(id(s)) == mutant.line), None)
    if isinstance(item, Sync):
        if mutant.kind == "delete" or (mutant.kind == "word" and mutant.description.startswith("kind")):
            return "needless synchronisation"
        if mutant.kind == "number":
            name = mutant.description.split(": ")[1]
            if name == "id":
                return "slack"
            waits_for_more = name in ("depth", "read") and "- 1" in mutant.description
            return "speed-only" if waits_for_more else "needless synchronisation"
    if mutant.kind == "word" and mutant.description.startswith("nan"):
        return "slack"
    if mutant.kind == "host" and mutant.description.startswith(("grid", "cooperative")):
        return "speed-only"
    return "speed-only" if mutant.kind in ORDERS else "slack"


def executed(program: MachineProgram) -> str:
    """The text of what is executed, and for which arguments: everything but evidence."""
    return print_machine(replace(without_claims(program), numerics=()))


def study(
    program: MachineProgram,
    shapes: Sequence[dict[str, int]],
    schedules: int,
    sample: int | None,
    seed: int,
    *,
    show: bool,
    jobs: int = 1,
    journal: Path | None = None,
) -> Study:
    """Judges the mutants of a verified program; survivors run `schedules` schedules, spread over the shapes.

    `jobs` processes share the work. What has been judged and run is kept in `journal`, from which a study that was
    broken off goes on; under other rules of the judge, with what was run alone.
    """
    found = chosen(program, sample, seed)
    known = Journal(journal, f"{print_machine(program)} {shapes} {seed}")
    names = [f"judge {VERSION} {_digest(print_machine(m.program))}" for m in found]
    status = known.ask(names, lambda i: judged(found[i]), jobs, _title(show, "judge"))
    alive = [i for i, name in enumerate(names) if status[name] == "verified"]
    trials = trials_of(program, shapes, seed)
    texts = {i: executed(found[i].program) for i in alive}
    first = {text: i for i, text in reversed(texts.items())}
    order = sorted(first.values())
    runs = [f"run {_digest(texts[i])}" for i in order]

    def own(i: int) -> list[Trial]:
        fact = _dropped(program, found[i])
        return [*(excluded_trials(program, fact, shapes, seed) if fact else []), *trials]

    ran = known.ask(runs, lambda k: asdict(survivor(found[order[k]], own(order[k]), seed)), jobs, _title(show, "run"))
    # Programs whose threads do the same to one another have the same schedules: one of them stands for all.
    where: dict[str, tuple[int, int]] = {
        sign: (order[k], at) for k, name in reversed(list(enumerate(runs))) for at, sign in ran[name]["signatures"]
    }

    def replay(sign: str, seeds: range) -> Any:
        i, at = where[sign]
        return replayed(found[i], own(i)[at], seeds)

    each = max(1, -(-schedules // max(1, sum(1 for t in trials if not t.what))))
    again = _replays(known, list(where), replay, each, seed, jobs, _title(show, "replay"))
    result = Study()
    for i, mutant in enumerate(found):
        if i not in texts:
            result.counts[mutant.kind, status[names[i]]] += 1
            continue
        run = Survival(**ran[f"run {_digest(texts[i])}"])
        replays = [r for _, sign in run.signatures for r in again[sign]]
        _tell(result, program, mutant, run, replays, alike=first[texts[i]] != i)
    return result


def _replays(
    known: Journal,
    signs: Sequence[str],
    replay: Callable[[str, range], Any],
    each: int,
    seed: int,
    jobs: int,
    title: str,
) -> dict[str, list[Any]]:
    """What `replay` says of `each` schedules of everything that threads do to one another, in parts."""
    parts = [(sign, range(at, min(at + PART, each))) for sign in signs for at in range(0, each, PART)]
    names = [f"replay {sign} {part.start}-{part.stop}" for sign, part in parts]

    def one(k: int) -> Any:
        sign, part = parts[k]
        return replay(sign, range(seed + part.start, seed + part.stop))

    answers = known.ask(names, one, jobs, title)
    found: dict[str, list[Any]] = {sign: [] for sign in signs}
    for (sign, _), name in zip(parts, names, strict=True):
        found[sign].append(answers[name])
    return found


def _tell(
    result: Study, program: MachineProgram, mutant: Mutant, run: Survival, replays: Sequence[Any], *, alike: bool
) -> None:
    """Adds a mutant that the judge accepts; `alike`: another one with the same text was run in its place."""
    problem = run.problem or next((r["problem"] for r in replays if r["problem"]), "")
    outcome = "HOLE" if problem else "accepted, never wrong" if run.shapes else "accepted, not run"
    result.counts[mutant.kind, outcome] += 1
    if problem:
        result.holes.append(f"{mutant}: {problem}")
        return
    count = run.whole + sum(r["runs"] for r in replays)
    means = meaning(program, mutant)
    result.accepted.append(Accepted(mutant.line, mutant.kind, mutant.description, means, count, run.shapes, alike))


def _title(show: bool, text: str) -> str:
    return text if show else ""


def _dropped(program: MachineProgram, mutant: Mutant) -> Any:
    """The fact of the guard that the mutant lacks, if that is what was changed."""
    if mutant.kind != "guard":
        return None
    left = list(map(str, mutant.program.guard.facts))
    return next((f for f in program.guard.facts if str(f) not in left), None)


@dataclass
class Survival:
    """What whole runs of an accepted mutant gave: `problem` where one was wrong, how many shapes and schedules were
    run, and for each trial whose other schedules can be replayed its number and its signature."""

    problem: str = ""
    shapes: int = 0
    whole: int = 0
    signatures: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])


def survivor(mutant: Mutant, trials: Sequence[Trial], seed: int) -> Survival:
    """A whole run of an accepted mutant on each trial; `ALL` of them where values depend on the order."""
    result = Survival()
    for at, trial in enumerate(trials):
        try:
            run, again = record(mutant.program, trial.args, seed=seed)
        except WrongArguments:
            continue  # the mutant's guard excludes these arguments: it need not be right for them
        result.shapes += 1
        more = ALL - 1 if again is None and run.clean else 0
        runs = run_schedules(mutant.program, trial.args, more, seed + 1, expected=trial.want, same=close_enough)
        result.whole += 1 + runs.runs
        wrong = [n for n, want in trial.want.items() if not close_enough(run.outputs[n], want)]
        problems = [*map(str, run.findings), *(f"{n} differs from what was expected" for n in wrong)]
        problems += [what for _, what in runs.failures]
        if problems:
            where = ", ".join(f"{k} = {v}" for k, v in trial.dims.items())
            result.problem = f"{problems[0]} at {where} {trial.what}".rstrip()
            break
        if again is not None and trial.what != SPECIAL_VALUES:
            result.signatures.append((at, again.signature()))
    return result


def replayed(mutant: Mutant, trial: Trial, seeds: Sequence[int]) -> dict[str, Any]:
    """Replays of a mutant that a whole run found right: how many were clean; the problem of the first that was not."""
    _, again = record(mutant.program, trial.args, seed=seeds[0])
    for number in seeds:
        found = None if again is None else again.run(number)
        if found is None or found:
            what = str(found[0]) if found else "a read sees other writes than in the first schedule"
            return {"runs": number - seeds[0], "problem": f"schedule {number}: {what}"}
    return {"runs": len(seeds), "problem": ""}


def judged(mutant: Mutant) -> str:
    """Verified, or how the mutant was refused: by its form, rejected, or unknown."""
    try:
        verify(mutant.program)
    except TreadleError:
        return "bad form"
    return check(mutant.program).status


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]


class Journal:
    """Answers by name, one a line of a file, kept as they come."""

    def __init__(self, path: Path | None, about: str) -> None:
        self.path = path
        self.about = _digest(about)
        self.known: dict[str, Any] = {}
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                about_line, name, value = json.loads(line)
                if about_line == self.about:
                    self.known[name] = value

    def ask(self, names: Sequence[str], work: Callable[[int], Any], jobs: int, show: str) -> dict[str, Any]:
        """An answer for each name: known ones, the others by `work` of their number, in `jobs` processes."""
        open_numbers = [i for i, name in enumerate(names) if name not in self.known]
        answers = _spread(work, open_numbers, jobs)
        for i, value in _shown(zip(open_numbers, answers, strict=True), len(open_numbers), show):
            self.known[names[i]] = value
            if self.path is not None:
                with self.path.open("a") as file:
                    file.write(json.dumps([self.about, names[i], value]) + "\n")
        return {name: self.known[name] for name in names}


_work: Callable[[int], Any] | None = None


def _call(number: int) -> Any:
    assert _work is not None
    return _work(number)


def _spread(work: Callable[[int], R], numbers_of: Sequence[int], jobs: int) -> Iterator[R]:
    """`work` of each number, in order. Processes are forked: what `work` closes over need not travel."""
    global _work
    if jobs <= 1 or len(numbers_of) < 2:
        yield from map(work, numbers_of)
        return
    _work = work
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from pool.imap(_call, numbers_of)
    _work = None


def _shown(found: Iterator[T], total: int, show: str) -> Iterator[T]:
    if show and sys.stderr.isatty():
        yield from track(found, description=show, total=total)
    else:
        yield from found


def report(file: Path, dims: Sequence[str], schedules: int, sample: int | None, seed: int, as_json: bool) -> int:
    """Runs the study on a file and prints it. Exit status 0 without holes, 1 with some."""
    program = parse_machine(file.read_text(encoding="utf-8"), str(file))
    result = study(program, [numbers(dims)], schedules, sample, seed, show=not as_json)
    print(json.dumps(result.as_json(), indent=1) if as_json else result.text())
    return 1 if result.holes else 0
