"""`kernel.tune(...)`: a measured search among the planner's own points, for one class of calls.

Every plan is realised and judged before it runs; it runs in another process on copies of the arguments. The best one
becomes the variant of the call's class, here and, through the cache, in later processes. It is a plan like any other:
it prints, saves, loads, and gives the same bits wherever it is the plan.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

from treadle.driver.arguments import Call
from treadle.driver.build import Built, choose, judged
from treadle.driver.candidates import candidate_of, families, plan_facts
from treadle.driver.checks import give_flags
from treadle.driver.errors import TuningUnsupported
from treadle.driver.plan import Plan
from treadle.driver.specialisation import Specialisation
from treadle.driver.targets import place_of
from treadle.driver.tuning_arrays import write_arguments
from treadle.driver.tuning_process import Progress, Trier
from treadle.driver.tuning_space import proposals, space
from treadle.driver.tuning_trial import Measured, Refused, Task
from treadle.ir.ops.debug import Print
from treadle.plan.facts import CallFacts
from treadle.plan.plan import Plan as Decisions
from treadle.planner.enumerate import Candidate as PlannedPoint
from treadle.planner.enumerate import Choice
from treadle.runtime.pool import workers

WORTH = 0.98
"""A plan replaces the best one when it takes at most this share of its time: less is the clock's noise."""


INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Trial:
    """A plan that was tried: what it took, how many times the best one's time that was, or why it was skipped.

    On a machine that does other things too, `seconds` of different moments do not compare; `ratio` is of measurements
    in turn, with what was the best plan then, and `share` is that times the best one's share of the planner's own."""

    plan: Decisions
    seconds: float | None
    ratio: float | None
    skipped: str | None = None
    share: float | None = None

    def line(self, own: Decisions) -> str:
        """One line for a table: what the plan has that the planner's own has not."""
        other = self.plan.family != own.family
        settings = [f"{k}={v}" for k, v in self.plan.point.items() if other or own.point.get(k) != v]
        told = " ".join([self.plan.family, *settings] if other else settings) or "the planner's own"
        if self.seconds is None or self.share is None:
            return f"{'skipped':>7}{'':>15}  {told}: {self.skipped}"
        return f"{self.share:>7.2f}{self.seconds * 1e6:>15.1f}  {told}"


@dataclass(frozen=True, repr=False)
class Tuned:
    """What a search found.

    `plan` is the best plan, to run, show, save; `better` says whether it is another than the planner's own, `share`
    which share of that one's time it takes, measured in turn at the end. `points` is how many there were to try;
    `stopped` why not all were tried.
    """

    plan: Plan
    default: Decisions
    better: bool
    seconds: float
    share: float
    trials: tuple[Trial, ...]
    points: int = 0
    stopped: str = ""

    @property
    def skipped(self) -> tuple[Trial, ...]:
        """Plans that were refused, died, or were too slow to measure."""
        return tuple(t for t in self.trials if t.skipped is not None)

    def __str__(self) -> str:
        """The best plan, its time, and all trials in their order, as shares of the time of the planner's own plan."""
        measured = [t for t in self.trials if t.skipped is None]
        what = "found" if self.better else "the planner's own plan is the best of those tried"
        head = f"{self.plan.decisions.line()}: {what}"
        measured_line = f"  {self.seconds * 1e6:.1f} us a call, {self.share:.3f} of the planner's own"
        time_line = "  not measured" if math.isnan(self.seconds) else measured_line
        count = f"  {len(self.trials)} of {self.points} points tried, {len(self.skipped)} skipped"
        lines = [head, time_line, f"{count}; {self.stopped}" if self.stopped else count]
        table = [f"  {'share':>7}{'us when tried':>15}  what differs from the planner's own"]
        return "\n".join([*lines, *table, *(f"  {t.line(self.default)}" for t in (*measured, *self.skipped))])

    def __repr__(self) -> str:
        return f"<tuned {self.plan.decisions.line()}: {self.share:.3f} of the planner's own, {len(self.trials)} trials>"


def tune_call(
    special: Specialisation,
    call: Call,
    *,
    kernel: Any = None,
    budget: float = 60.0,
    progress: Progress | None = None,
    limits: dict[str, float] | None = None,
) -> Tuned:
    """The best plan found for a call within `budget` seconds, adopted for its class of calls. An interrupt (Ctrl-C)
    ends the search and keeps the best so far.

    *Units*: seconds. *Errors*: `tune/unsupported`; those of planning where there is no plan at all.
    """
    _supported(special, call)
    begin = time.monotonic()
    give_flags(special.expanded, call)
    target = place_of(call.device).target
    facts = plan_facts(special.expanded, target, special.facts(call))
    built = choose(special.program, target, special.facts(call))
    all_plans = space(special.expanded, facts, families(target)).plans
    file, placed = write_arguments({n: v for n, v in call.views.items()})
    task = Task(special.text, facts, workers(), file.fileno(), tuple(placed), dict(call.scalars), call.device)
    trier = Trier(task, limits)
    search = _Search(trier, built.candidate.plan, begin, budget, progress or (lambda share, text: None))
    try:
        search.run(all_plans)
        search.confirm()
    finally:
        trier.stop()
        file.close()
    best = search.best or built.candidate.plan
    plan = Plan(_built(special, best, facts, built, search), kernel, special)
    record = plan.record
    meta = {"tuned": {"seconds": search.seconds, "share": search.share, "trials": len(search.trials)}}
    special.adopt(replace(record, meta={**record.meta, **meta}), call)
    better = best.line() != built.candidate.plan.line()
    trials = tuple(search.trials)
    default = built.candidate.plan
    return Tuned(plan, default, better, search.seconds, search.share, trials, len(all_plans), search.why)


def _built(special: Specialisation, best: Decisions, facts: CallFacts, default: Built, search: _Search) -> Built:
    """The best plan, realised from the program that has its source positions, and judged once more."""
    if best.line() == default.candidate.plan.line():
        return default
    notes = [
        f"tuned: takes {search.share:.3f} of the time of the planner's own choice, {default.candidate.plan.line()}"
    ]
    choice = default.candidate.choice
    if choice is not None and best.cost is not None:
        choice = Choice(
            PlannedPoint(best, best.cost, len(search.trials)), [choice.best, *choice.others], choice.rejected
        )
    candidate = candidate_of(best, special.expanded, facts, choice)
    machine = candidate.build()
    verdict = judged(special.program, candidate, machine)
    return Built(candidate, machine, verdict, notes, extents=facts.extents, program=special.program)


class _Search:
    """The search: which plan next, which one is best, when to stop."""

    def __init__(self, trier: Trier, default: Decisions, begin: float, budget: float, progress: Progress) -> None:
        self.trier = trier
        self.default = default
        self.begin = begin
        self.budget = budget
        self.progress = progress
        self.best: Decisions | None = None
        self.seconds = math.nan
        self.share = 1.0
        self.trials: list[Trial] = []
        self.why = ""

    def run(self, plans: tuple[Decisions, ...]) -> None:
        """Tries the planner's own plan, then the others."""
        others = [p for p in plans if p.line() != self.default.line()]
        until = self.begin + self.budget
        try:
            # The planner's own plan is measured whatever the budget: shares are of its time.
            self.take(self.default, self.trier.ask(self.default))
            for plan in proposals(others, lambda: self.best):
                if time.monotonic() >= until:
                    self.why = f"the budget of {self.budget:g} s is spent"
                    return
                answer = self.trier.ask(plan, until)
                if answer is None:
                    self.why = f"the budget of {self.budget:g} s is spent"
                    return
                self.take(plan, answer)
        except KeyboardInterrupt:
            self.why = INTERRUPTED

    def confirm(self) -> None:
        """The planner's own plan beside the best one once more: the better of the two is what was found. Who
        interrupted the search does not want to wait for that."""
        if self.best is None or self.best.line() == self.default.line() or self.why == INTERRUPTED:
            return
        try:
            answer = self.trier.ask(self.default)
        except KeyboardInterrupt:
            self.why = INTERRUPTED
            return
        if isinstance(answer, Measured):
            if answer.ratio <= 1:
                self.best, self.seconds, self.share = self.default, answer.seconds, 1.0
            else:
                self.share = 1 / answer.ratio

    def take(self, plan: Decisions, answer: Measured | Refused | None) -> None:
        """Notes a trial; a better plan becomes the one to beat."""
        if isinstance(answer, Measured):
            self.trials.append(Trial(plan, answer.seconds, answer.ratio, share=self.share * answer.ratio))
            if self.best is None or (answer.ratio < WORTH and self.again(plan)):
                self.best, self.seconds, self.share = plan, answer.seconds, self.share * answer.ratio
                self.trier.adopt(plan, answer.seconds)
        elif answer is not None:
            self.trials.append(Trial(plan, None, None, answer.reason))
        skipped = sum(t.skipped is not None for t in self.trials)
        best = "nothing measured" if math.isnan(self.seconds) else f"best {self.seconds * 1e6:.1f} us"
        told = f"{best}, {len(self.trials)} tried"
        spent = (time.monotonic() - self.begin) / self.budget if self.budget else 1.0
        self.progress(min(1.0, spent), told + (f", {skipped} skipped" if skipped else ""))

    def again(self, plan: Decisions) -> bool:
        """Whether a second measurement says so too: noise seldom strikes the same side twice."""
        answer = self.trier.ask(plan)
        return isinstance(answer, Measured) and answer.ratio < WORTH


def _supported(special: Specialisation, call: Call) -> None:
    """*Errors*: `tune/unsupported`."""
    facts = special.facts(call)
    names = sorted(facts.arrays)
    stored = [t.name for t in special.expanded.tensors if t.out and t.name in facts.arrays]
    shared = next(((o, n) for o in stored for n in names if n != o and not facts.apart(o, n)), None)
    if special.program.numerics.get("repeatable") is not None:
        found, hint = "numerics that demand the same bits for other calls", "leave repeatable= out, or pin a plan"
    elif any(isinstance(op, Print) for op in special.program.body.walk()):
        found, hint = "a kernel with td.print, which would tell of every trial", "take td.print out"
    elif shared is not None:
        found, hint = f"the output {shared[0]} overlaps {shared[1]}", "tune with separate arrays"
    else:
        return
    raise TuningUnsupported(
        doing=f"tuning {special.program.name}",
        found=found,
        expected="a call with separate outputs, whose plan may depend on what was measured",
        hint=hint,
        span=special.program.span,
    )
