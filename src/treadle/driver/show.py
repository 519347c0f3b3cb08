"""The page of a plan or of a machine text: gathers what `view` draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from treadle.base.source import source_line
from treadle.driver.build import Built
from treadle.driver.check import Judged, judge_file
from treadle.driver.places import placed_names
from treadle.ir.core import Program
from treadle.plan.plan import Plan
from treadle.planner.enumerate import Choice
from treadle.view.page import page
from treadle.view.sheet import Alternative, Listing, Opinion, Sheet

AROUND = 400
"""Lines of a kernel's source that are shown at most."""


def plan_page(built: Built, extents: Mapping[str, int] | None = None, steps: Sequence[str] = ()) -> str:
    """The page of a chosen plan. `extents`: representative ones, for pictures of a run; `steps`: how it came about."""
    machine, verdict = built.machine, built.verdict
    judged = Judged(machine, verdict, "", None)
    return page(
        Sheet(
            machine,
            _opinion(judged),
            listing(machine.captured or machine.program),
            built.candidate.plan.line(),
            alternatives(built.candidate.plan, built.candidate.choice, built.notes),
            dict(extents or {}),
            tuple(placed_names(machine)),
            dict(built.timeline.seconds),
            tuple(steps),
        )
    )


def text_page(path: Path, dims: Mapping[str, int]) -> str:
    """The page of a machine text, judged here. *Errors*: `machine/syntax`, `machine/form`."""
    judged = judge_file(path)
    machine = judged.machine
    return page(Sheet(machine, _opinion(judged), extents=dict(dims), names=tuple(placed_names(machine))))


def _opinion(judged: Judged) -> Opinion:
    verdict: Any = judged.verdict
    source = {"embedded": "the program that the text embeds", "recaptured": "captured again"}.get(judged.source, "")
    return Opinion(
        verdict.status,
        verdict.judgement,
        judged.line,
        verdict.reason,
        verdict.counterexample,
        verdict.missing,
        verdict.seconds,
        tuple(verdict.permissions),
        source,
        "" if verdict.partner is None else str(verdict.partner),
    )


def listing(program: Program) -> Listing | None:
    """The lines of the source that the program's operations come from, where the file can be read."""
    spans = [op.span for op in program.body.walk() if op.span is not None]
    spans += [program.span] if program.span is not None else []
    if not spans:
        return None
    file = program.span.file if program.span is not None else spans[0].file
    lines = [n for s in spans if s.file == file for n in (s.line, s.last_line)]
    first, last = min(lines), min(max(lines), min(lines) + AROUND)
    texts = [source_line(file, n) for n in range(first, last + 1)]
    if any(t is None for t in texts):
        return None
    return Listing(Path(file).name, first, tuple(t or "" for t in texts))


def alternatives(plan: Plan, choice: Choice | None, notes: list[str]) -> tuple[Alternative, ...]:
    """The plan taken and everything else that the planner looked at, the cheapest first, refusals last."""
    if choice is None:
        return (Alternative(plan.family, "taken", plan.line(), plan.cost, reasons=tuple(notes)),)
    known = (choice.best, *choice.others)
    same = [c for c in known if c.plan.line() == plan.line()] or [c for c in known if c.plan.family == plan.family]
    found: list[Alternative] = []
    for one in known:
        here = one in same[:1]
        why = tuple(n[len(one.plan.line()) + 2 :] for n in notes if n.startswith(f"{one.plan.line()}: "))
        state = "taken" if here else "not taken" if why else "dearer"
        found.append(Alternative(one.plan.family, state, one.plan.line(), one.cost, one.searched, why))
    found.sort(key=lambda a: (a.state != "taken", a.cost.total if a.cost is not None else 0.0))
    found += [Alternative(gone.family, "refused", reasons=gone.reasons) for gone in choice.rejected]
    return tuple(found)
