"""How good predictions are: candidates of held-out cases, all or a sample, measured beside the planner's choice.

*Regret* is by how much the chosen plan is slower than the fastest of those measured; *rank* is Spearman's correlation
of predicted and measured times over them. A plan's time is its least sample, for what others do on the machine only
ever adds to it; raw samples are kept in the rows. Plans that are the same code are measured once.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from treadle.bench.fit import rank_correlation
from treadle.bench.held_out import Array, HeldOut
from treadle.bench.subject import Refused, Run, Subject, sample
from treadle.driver.calibration import machine_of
from treadle.plan.plan import Plan
from treadle.runtime.timing import Timing, interleaved

SLOW = 4.0
"""A plan whose first calls take so many times the fastest one's is not measured further: it has lost."""

Timer = Callable[[Mapping[str, Run], int], Mapping[str, Timing]]
"""Times sides in turn, for so many rounds."""


@dataclass(frozen=True)
class Point:
    """A plan that was measured. Units: microseconds."""

    family: str
    point: dict[str, Any]
    predicted_us: float
    bottleneck: str
    samples_us: tuple[float, ...]

    @property
    def least(self) -> float:
        """The least sample."""
        return min(self.samples_us)


@dataclass(frozen=True)
class Row:
    """One case. `declared`: points that can run; `measured`: those that did, fastest prediction first; `same`: how many
    more were the same code; `refused`: why others of the sample did not run; `chosen`: the place of the planner's own
    among those measured."""

    case: str
    family: str
    dtype: str
    target: str
    machine: str
    coefficients: str
    workers: int
    declared: int
    measured: tuple[Point, ...]
    same: int
    refused: tuple[str, ...]
    chosen: int
    regret: float
    rank: float

    def as_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    def line(self) -> str:
        """One line of a table."""
        best = min(self.measured, key=lambda p: p.least)
        mine = self.measured[self.chosen]
        changed = " ".join(f"{n}={v}" for n, v in best.point.items() if v != mine.point.get(n))
        return (
            f"{self.case:<38}{mine.least:>10.1f}{best.least:>10.1f}{self.regret:>8.1%}{self.rank:>7.2f}"
            f"{len(self.measured):>4}/{self.declared:<5} {'' if best is mine else f'{best.family} {changed}'}"
        )


def on_cpu(sides: Mapping[str, Run], rounds: int) -> Mapping[str, Timing]:
    """Times on the host's clock."""
    return interleaved(sides, rounds=rounds, warmup=2, sample_seconds=1e-3)


def prepared(case: HeldOut, array: Array, most: int) -> tuple[Subject, list[Plan], dict[str, Run], list[str], int]:
    """A case with the sample of its plans, compiled: subject, plans, runs by plan, refusals, how many are declared."""
    subject = Subject(case.kernel, case.arguments(array), case.staged)
    plans = subject.plans()
    runs: dict[str, Run] = {}
    refused: list[str] = []
    known: set[str] = set()
    for plan in sample(plans, most):
        made = subject.make(plan)
        if isinstance(made, Refused):
            refused.append(f"{plan.line()}: {made.reason}")
        elif made.digest not in known:
            known.add(made.digest)
            runs[plan.line()] = made.run
    return subject, [p for p in plans if p.line() in runs], runs, refused, len(plans)


def regret_of(case: HeldOut, array: Array, most: int, rounds: int, timer: Timer = on_cpu) -> Row:
    """One case measured. `most`: plans at most; the rest of the declared points is not looked at."""
    subject, plans, runs, refused, declared = prepared(case, array, most)
    first = {line: _first(run) for line, run in runs.items()}
    most_seconds = SLOW * min(first.values())
    taken = plans[0].line()
    timed = timer({n: run for n, run in runs.items() if first[n] <= most_seconds or n == taken}, rounds)
    points = [
        Point(
            plan.family,
            dict(plan.point),
            cost.total * 1e6,
            cost.bottleneck,
            tuple(s * 1e6 for s in (timed[plan.line()].samples if plan.line() in timed else (first[plan.line()],))),
        )
        for plan in plans
        if (cost := subject.cost(plan))
    ]
    times = [p.least for p in points]
    return Row(
        case=case.name,
        family=case.family,
        dtype=case.dtype.name,
        target=subject.target,
        machine=machine_of(subject.target.partition(":")[0]),
        coefficients="measured" if subject.facts.coefficients else "hand",
        workers=subject.facts.workers,
        declared=declared,
        measured=tuple(points),
        same=len(sample(subject.plans(), most)) - len(points) - len(refused),
        refused=tuple(refused),
        chosen=0,
        regret=times[0] / min(times) - 1.0,
        rank=rank_correlation([p.predicted_us for p in points], times),
    )


def _first(run: Run) -> float:
    """The least of three calls, the first of which is not counted."""
    taken: list[float] = []
    for _ in range(4):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return min(taken[1:])


def summary(rows: Sequence[Row]) -> list[str]:
    """Mean regret and rank by operator family, and of all families together."""
    lines = [f"{'family':<20}{'cases':>6}{'mean regret':>13}{'worst':>8}{'mean rank':>11}"]
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.family, []).append(row)
    for name, group in [*groups.items(), ("all", list(rows))]:
        regrets = [r.regret for r in group]
        ranks = statistics.mean(r.rank for r in group)
        lines.append(f"{name:<20}{len(group):>6}{statistics.mean(regrets):>13.1%}{max(regrets):>8.1%}{ranks:>11.2f}")
    return lines


def again(row: Row, cost: Callable[[Point], float]) -> Row:
    """What a row would say under another model of costs: the choice it would make of the plans that were measured, its
    regret and rank. For fitting, never for reporting."""
    predicted = [cost(p) * 1e6 for p in row.measured]
    times = [p.least for p in row.measured]
    chosen = min(range(len(predicted)), key=lambda n: predicted[n])
    points = tuple(replace(p, predicted_us=c) for p, c in zip(row.measured, predicted, strict=True))
    return replace(
        row,
        measured=points,
        chosen=chosen,
        regret=times[chosen] / min(times) - 1.0,
        rank=rank_correlation(predicted, times),
    )
