"""Judging saved steps: those of a derivation of programs, those on a plan, and the whole history of one.

As all of `treadle check` it needs neither the rules that made them nor planner nor families. What a family makes of a
plan's decisions it cannot know: steps on plans are judged by the machine texts that were saved with them, each of which
must be one of its plan as far as texts show plans, and right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from treadle.base.errors import TreadleError
from treadle.checker import check
from treadle.checker.derivation import validate_derivation
from treadle.checker.derivation_plans import decided_in, validate_decisions, validate_plan
from treadle.checker.verdict import Verdict
from treadle.driver.check import Judged
from treadle.ir.core import Program
from treadle.ir.expand import expand
from treadle.ir.guard import Disjoint, Guard
from treadle.ir.printer import print_program
from treadle.machine.form import MachineProgram
from treadle.machine.parse import parse_machine
from treadle.machine.verify import verify
from treadle.plan.record import History, PlanRecord, ProgramRecord, form_of, read_history, read_plans
from treadle.plan.steps import Step, read_record


@dataclass(frozen=True)
class Derived:
    """Verdicts on saved steps. `first` and `last`: the programs that they lead from and to, None where the steps are
    on a plan without machine texts. `about`: what each verdict is on, a step or what else was judged."""

    first: Program | None
    last: Program | None
    about: tuple[Step | str, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def pairs(self) -> list[tuple[Step | str, Verdict]]:
        """What was judged, each with its verdict."""
        return list(zip(self.about, self.verdicts, strict=True))

    @property
    def worst(self) -> Verdict | None:
        """The first verdict that is not verified, None where all are."""
        return next((v for v in self.verdicts if v.status != "verified"), None)

    def holds_for(self, judged: Judged) -> Judged:
        """The verdict on a text of the last program, as one on the first: `unknown` where the guard of the text lacks
        a fact under which the steps hold."""
        missing = _unstated(self.verdicts, judged.machine.guard)
        if judged.verdict.status != "verified" or not missing:
            return judged
        return replace(judged, verdict=_needs(missing))


def judge_derivation(text: str) -> Derived:
    """The verdicts on what was saved of a `Derivation`, a `Replanning` or a `History`. *Errors*: `rules/unreadable`."""
    match form_of(text):
        case "program":
            programs, steps = read_record(text)
            verdicts = validate_derivation(programs, steps)
            return Derived(programs[0], programs[-1], tuple(steps), tuple(verdicts))
        case "plans":
            record = read_plans(text)
            return _plans(record, [_text(one) for one in record.texts])
        case _:
            return _history(read_history(text))


def _plans(record: PlanRecord, read: Sequence[MachineProgram | Verdict]) -> Derived:
    """The first plan's text, then each step; `read`: the record's texts."""
    about = ("the first plan", *record.steps)
    wrong = [validate_decisions(a, s, b) for a, s, b in zip(record.plans, record.steps, record.plans[1:])]
    machines = [m for m in read if isinstance(m, MachineProgram)]
    told = None if len(machines) < len(record.plans) else machines
    opening = read[0] if read and isinstance(read[0], Verdict) else _first(record, told)
    verdicts = [opening]
    for number, (step, why) in enumerate(zip(record.steps, wrong), 1):
        broken = read[number] if read else None
        if why:
            verdicts.append(Verdict("rejected", "step", reason=why))
        elif isinstance(broken, Verdict):
            verdicts.append(broken)
        elif told is None:
            verdicts.append(_untold())
        else:
            verdicts.append(_step(record, told, step, number))
    programs = [m.captured or m.program for m in machines]
    return Derived(programs[0] if programs else None, programs[-1] if programs else None, about, tuple(verdicts))


def _first(record: PlanRecord, machines: Sequence[MachineProgram] | None) -> Verdict:
    if machines is None:
        return _untold()
    why = decided_in(record.plans[0], machines[0])
    return Verdict("rejected", "step", reason=why) if why else check(machines[0])


def _step(record: PlanRecord, machines: Sequence[MachineProgram], step: Step, number: int) -> Verdict:
    why = decided_in(record.plans[number], machines[number])
    if why:
        return Verdict("rejected", "step", reason=why)
    return validate_plan(machines[number - 1], step, machines[number])


def _untold() -> Verdict:
    return Verdict(
        "unknown", "step", reason="what a family makes of decisions is not known here", missing="machine texts of plans"
    )


def _text(text: str) -> MachineProgram | Verdict:
    """A saved machine text, or why it is none."""
    try:
        machine = parse_machine(text, "the derivation")
        verify(machine)
    except TreadleError as error:
        return Verdict("rejected", "step", reason=f"a machine text that is none: {error.found}")
    return machine


def _history(history: History) -> Derived:
    """Steps on programs, then on plans, and whether each part goes on where the one before ended."""
    about: list[Step | str] = []
    verdicts: list[Verdict] = []
    for part in (history.schedule, history.family):
        if part is not None:
            about += part.steps
            verdicts += validate_derivation(part.programs, part.steps)
    on_programs = tuple(verdicts)
    read = [_text(one) for one in history.decisions.texts]
    plans = _plans(history.decisions, read)
    about += plans.about
    verdicts += plans.verdicts
    for machine in (m for m in read if isinstance(m, MachineProgram)):
        why = _apart(history.schedule, history.family, machine)
        missing = _unstated(on_programs, machine.guard)
        if why or missing:
            about.append("the steps together")
            verdicts.append(Verdict("rejected", "step", reason=why) if why else _needs(missing))
            break
    return Derived(history.schedule.programs[0], plans.last, tuple(about), tuple(verdicts))


def _apart(schedule: ProgramRecord, family: ProgramRecord | None, machine: MachineProgram) -> str:
    """Why the parts of a history are not one way to a machine program."""
    captured = schedule.programs[-1]
    if family is None:
        same = _alike(captured, machine.captured or machine.program)
        return "" if same else "the machine text is not of the program that the schedule ends with"
    if machine.captured is not None or not _alike(family.programs[-1], machine.program):
        return "the machine text is not of the program that the family's steps end with"
    same = _alike(expand(captured), family.programs[0])
    return "" if same else "the family's steps do not begin with the program that the schedule ends with, expanded"


def _alike(a: Program, b: Program) -> bool:
    return print_program(a) == print_program(b)


def _unstated(verdicts: Sequence[Verdict], guard: Guard) -> str:
    """A fact under which steps hold, and which a guard does not have."""
    apart = [f for f in guard.facts if isinstance(f, Disjoint)]
    stated = {str(one) for f in apart for one in (f, Disjoint(f.second, f.first))}
    facts = (fact for v in verdicts for fact in v.permissions if fact.startswith("disjoint("))
    return next((fact for fact in facts if fact not in stated), "")


def _needs(fact: str) -> Verdict:
    reason = "the steps keep what the source means only for arguments that are apart"
    return Verdict("unknown", "step", reason=reason, missing=f"{fact} in the guard")
