"""Making a variant: plans, best first, until one is realised, verified, emitted and assembled.

A plan whose machine program the judge does not verify never runs. It is noted, and the next plan is tried; the
universal plan comes last.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from treadle.base.errors import InternalError, LimitError, TreadleError
from treadle.checker import check
from treadle.checker.derivation import validate_derivation
from treadle.checker.verdict import Verdict
from treadle.driver import cuda_variant
from treadle.driver.candidates import BY_DEFAULT, UNIVERSAL, Candidate, Searching, candidates, families, saved_candidate
from treadle.driver.errors import PlanUnverified, UniversalUnknown, UniversalUnverified
from treadle.driver.facts import CallFacts
from treadle.driver.intrinsics import refused_texts, require_texts
from treadle.driver.pipeline import Timeline
from treadle.driver.record import Record
from treadle.driver.targets import features_of
from treadle.ir.core import Op, Program
from treadle.ir.expand import expand
from treadle.ir.guard import Disjoint
from treadle.ir.printer import print_program
from treadle.ir.verifier import verify
from treadle.machine.form import MachineProgram
from treadle.machine.text import print_machine
from treadle.plan.pins import NoPlan, Pin
from treadle.plan.plan import Plan, PlanUnreadable, guard_out
from treadle.planner.enumerate import Choice
from treadle.realise.choices import LoweringBroken, NotLowered
from treadle.runtime.cache import content_key
from treadle.runtime.making import making
from treadle.targets.cpu.emit.program import emit as emit_cpu
from treadle.toolchain.llvm import compile_ir

T = TypeVar("T")


@dataclass
class Built:
    """A chosen plan on its way: machine program, verdict, and what was tried before it."""

    candidate: Candidate
    machine: MachineProgram
    verdict: Verdict
    notes: list[str] = field(default_factory=list[str])
    timeline: Timeline = field(default_factory=Timeline)
    extents: Mapping[str, int] = field(default_factory=dict[str, int])  # those that it was planned for
    program: Program | None = None  # as captured, where the plan is of a program derived from it
    unverified: int = 0  # cheaper plans that the judge did not verify

    @property
    def captured(self) -> Program:
        """The program that the plan is for."""
        return self.program or self.machine.captured or self.machine.program


class Tried:
    """What was tried and not taken. A family whose further point is refused for the same reason has no other turn."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.by_judge = 0
        self._reasons: dict[str, set[str]] = {}
        self._done: set[str] = set()

    def refused(self, plan: Plan, why: str, reason: str | None = None) -> None:
        """Notes why; `reason` is the part of it that would be the same for another point."""
        self.notes.append(f"{plan.line()}: {why}")
        known = self._reasons.setdefault(plan.family, set())
        if (reason or why) in known:
            self._done.add(plan.family)
        known.add(reason or why)

    def unverified(self, plan: Plan, verdict: Verdict) -> None:
        """Notes a plan that was realised, and not verified."""
        self.by_judge += 1
        self.refused(plan, str(verdict), f"{verdict.status} {verdict.judgement} {verdict.reason}")

    def enough(self, plan: Plan) -> bool:
        """Whether other points of the plan's family need not be tried."""
        return plan.family in self._done


def choose(
    program: Program,
    target: str,
    facts: CallFacts,
    pins: Sequence[Pin] = (),
    *,
    family: str | None = None,
    without: Sequence[Plan] = (),
    ablate: str | None = None,
    how: Searching = BY_DEFAULT,
    choice: Choice | None = None,
) -> Built:
    """The best plan that the judge verifies; with `family`, only plans of that one are tried; none in `without`. With
    `ablate`, the search knows less (`planner.ablation`). `choice`: the planner's answer for this call, where it was
    asked before.

    *Errors*: `plan/none`, `plan/universal-unverified`, `plan/universal-unknown`, `plan/*` for a pin that cannot be met
    or a search that did not end.
    """
    require_texts(program, target)
    if family is not None and family not in (known := [f.name for f in families(target)]):
        raise NoPlan(
            doing=f"planning {program.name} for {target}",
            found=f"the family {family}",
            expected=f"one of {', '.join(known)}",
            hint="leave the family out for the best plan of all",
        )
    timeline = Timeline()
    with timeline.stage("verify"):
        verify(program, pass_name="capture")
    with timeline.stage("expand"):
        whole = expand(program)
    tried = Tried()
    refusals: list[str] = []
    with timeline.stage("plan"):
        found = candidates(whole, target, facts, pins, refusals, without, ablate, how, choice)
    for candidate in _timed(whole, found, timeline):
        if tried.enough(candidate.plan) or (family is not None and candidate.plan.family != family):
            continue
        try:
            with timeline.stage("realise"):
                machine = _shallow(whole, candidate.build)
            with timeline.stage("judge"):
                verdict = judged(program, candidate, machine)
        except LimitError as error:
            tried.refused(candidate.plan, error.found)
            continue
        except LoweringBroken as error:
            if candidate.universal:
                raise
            # The user's program has other plans; the note says that this one is a bug of ours.
            tried.refused(candidate.plan, f"{error.code}: {error.found}")
            continue
        if verdict.status == "verified":
            notes = [*refusals, *tried.notes]
            return Built(candidate, machine, verdict, notes, timeline, facts.extents, program, tried.by_judge)
        tried.unverified(candidate.plan, verdict)
        if candidate.universal:
            raise _unverified(program, target, machine, verdict)
    raise NoPlan(
        doing=f"planning {program.name} for {target}",
        found="; ".join([*refusals, *tried.notes]) or "no family",
        expected="a family that admits the program, or the universal plan",
        hint="look at kernel.plan(...).explain(), or use kernel.reference",
        span=program.span,
    )


def _shallow(program: Program, work: Callable[[], T]) -> T:
    """What `work` gives. *Errors*: `realise/unsupported` where a chain of operations is deeper than Python's stack."""
    try:
        return work()
    except RecursionError:
        pass
    chain: dict[str, int] = {}
    deepest: Op | None = None
    top = 0
    for op in program.body.walk():
        length = 1 + max((chain.get(v.name, 0) for v in op.operands), default=0)
        chain.update((v.name, length) for v in op.results)
        if op.results and length > top:
            deepest, top = op, length
    raise NotLowered(
        doing=f"realising {program.name}",
        found=f"a chain of {top} operations, each of which needs the one before",
        expected=f"one that fits Python's recursion limit of {sys.getrecursionlimit()}",
        hint="keep the value in a region's state (td.serial) instead of unrolling the loop, or raise the limit",
        span=None if deepest is None else deepest.span,
    )


def _timed(program: Program, found: Iterator[Candidate], timeline: Timeline) -> Iterator[Candidate]:
    """The candidates; drawing each counts as planning."""
    while True:
        with timeline.stage("plan"):
            candidate = _shallow(program, lambda: next(found, None))
        if candidate is None:
            return
        yield candidate


def _unverified(program: Program, target: str, machine: MachineProgram, verdict: Verdict) -> TreadleError:
    kind = UniversalUnverified if verdict.status == "rejected" else UniversalUnknown
    return kind(
        doing=f"judging the universal plan of {program.name} for {target}",
        found=str(verdict),
        expected="verified",
        pass_name="judge",
        before=print_machine(machine),
    )


def restore(plan: Plan, program: Program) -> Built:
    """A saved plan, realised and judged again. *Errors*: `plan/none`, `plan/unreadable`, `plan/unverified`."""
    timeline = Timeline()
    with timeline.stage("verify"):
        verify(program, pass_name="load")
    with timeline.stage("expand"):
        candidate = saved_candidate(plan, expand(program))
    with timeline.stage("realise"):
        machine = _rebuilt(candidate)
    with timeline.stage("judge"):
        verdict = judged(program, candidate, machine)
    if verdict.status != "verified":
        raise PlanUnverified(
            doing=f"judging a saved plan of {program.name}",
            found=str(verdict),
            expected="verified",
            hint="plan the kernel again",
            span=program.span,
        )
    return Built(candidate, machine, verdict, [], timeline, program=program)


def judged(program: Program, candidate: Candidate, machine: MachineProgram) -> Verdict:
    """The verdict on a machine program of the captured program, which its text embeds; where its family rewrote that
    first, on each step from the expanded program and then on a machine program of what they lead to.

    *Errors*: `realise/broken` where the steps do not begin or end where they should, or hold under other facts.
    """
    way = candidate.derive()
    if way is None:
        if machine.program is not program:
            machine.captured = program
        return check(machine)
    for verdict in validate_derivation(way.programs, way.steps):
        if verdict.status != "verified":
            return verdict
    apart = {frozenset((f.first, f.second)) for f in machine.guard.facts if isinstance(f, Disjoint)}
    if print_program(way.start) != print_program(expand(program)):
        raise _astray(candidate, "steps that begin at another program than the captured one, expanded", way.start)
    if print_program(way.program) != print_program(machine.program):
        raise _astray(candidate, "a machine program of another program than the steps lead to", machine.program)
    if not apart.issuperset(frozenset(pair) for pair in way.disjoint):
        raise _astray(candidate, "steps that need arrays apart of which the guard says nothing", way.program)
    return check(machine)


def _astray(candidate: Candidate, found: str, program: Program) -> LoweringBroken:
    return LoweringBroken(
        doing=f"realising {candidate.plan.line()}",
        found=found,
        expected="steps from the captured program to the one that is realised, under the guard",
        pass_name="realise",
        before=print_program(program),
    )


def _rebuilt(candidate: Candidate) -> MachineProgram:
    """The machine program of a saved point, which may have been edited into one that its family does not know."""
    try:
        return candidate.build()
    except (KeyError, ValueError, TypeError, AttributeError, IndexError, ZeroDivisionError) as error:
        raise PlanUnreadable(
            doing=f"realising {candidate.plan.line()}",
            found=f"{type(error).__name__}: {error}",
            expected=f"a point of the family {candidate.plan.family}",
            hint="plan the kernel again and save it",
        ) from error


def digest_of(built: Built) -> str:
    """What makes two plans the same code, before it is compiled."""
    return content_key("variant", built.machine.target, print_machine(built.machine))


def assemble(built: Built) -> Record:
    """The record of a verified plan: text, object, and what its loader needs.

    *Errors*: those of the toolchain; `plan/intrinsic-text` for a text of the author's that the compiler refuses.
    """
    machine = built.machine
    kind = machine.target.partition(":")[0]
    maker = {"cpu": _assemble_cpu, "cuda": _assemble_cuda}[kind]
    text = print_machine(machine)
    try:
        source, code, extra = maker(built)
    except InternalError as error:
        raise refused_texts(machine.program, machine.target, error) from error
    meta = {
        "target": machine.target,
        "plan": built.candidate.plan.line(),
        "family": built.candidate.plan.family,
        "decisions": built.candidate.plan.to_json(),
        "program": print_program(built.captured),
        "verdict": asdict(built.verdict),
        "guard": guard_out(machine.guard),
        "notes": built.notes,
        "seconds": dict(built.timeline.seconds),
        "unverified": built.unverified,
        "late": [],
        **extra,
    }
    return Record(text, source, code, meta)


LATE = 4
"""How many plans may be rejected after compilation before the rest of the families is left aside."""


def make(
    program: Program,
    target: str,
    facts: CallFacts,
    *,
    family: str | None = None,
    known: Mapping[str, Record] | None = None,
    choice: Choice | None = None,
) -> Record:
    """The record of the best plan that is verified, and that its compiler makes of what the plan says.

    A plan that its target cannot say, or whose cubin spills or serialises, gives way to the next in predicted time. Of
    those that only came out worse, the first is taken after all when no other is near it.
    *Errors*: as `choose`, and those of the toolchain.
    """
    late: list[Plan] = []
    notes: list[str] = []
    first: tuple[Plan, Record] | None = None
    while True:
        built = choose(program, target, facts, family=family, without=late, choice=None if late else choice)
        plan = built.candidate.plan
        if first is not None and (len(late) > LATE or _time(plan) > 2 * _time(first[0])):
            record = first[1]
            return replace(record, meta={**record.meta, "notes": notes, "late_rejections": len(late)})
        digest = digest_of(built)
        if known and digest in known:
            return known[digest]
        try:
            record = assemble(built)
        except LimitError as error:
            if built.candidate.universal:
                raise
            why = [error.found]
            family = UNIVERSAL if len(late) >= LATE else family
        else:
            why = record.meta["late"]
            if not why or built.candidate.universal:
                meta = {**record.meta, "notes": [*record.meta["notes"], *notes], "late_rejections": len(late)}
                return replace(record, meta=meta)
            first = first or (plan, record)
        notes.append(f"{plan.line()}: {'; '.join(why)}")
        late.append(plan)


def _time(plan: Plan) -> float:
    return plan.cost.total if plan.cost is not None else 0.0


def source_of(built: Built) -> str:
    """The emitted text, not compiled."""
    machine = built.machine
    if machine.target.startswith("cuda"):
        return cuda_variant.emit(machine).source
    return emit_cpu(machine, features_of(machine.target)).text


def _assemble_cuda(built: Built) -> tuple[str, bytes, dict[str, Any]]:
    return cuda_variant.assemble(built.machine, built.timeline)


def _assemble_cpu(built: Built) -> tuple[str, bytes, dict[str, Any]]:
    machine, timeline = built.machine, built.timeline
    with timeline.stage("emit"):
        emitted = emit_cpu(machine, features_of(machine.target))
    with timeline.stage("assemble"), making():
        compiled = compile_ir(emitted.text, cpu_features=emitted.features, name=machine.program.name)
    return (
        emitted.text,
        compiled.object,
        {
            "entry": emitted.entry,
            "workspace": emitted.workspace_function,
            "tensors": list(emitted.tensors),
            "scalars": list(emitted.scalars),
            "features": sorted(emitted.features),
            "parallel": emitted.parallel,
        },
    )
