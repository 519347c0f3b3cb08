"""Kernels under a schedule: every captured program is rewritten, and each step is validated before anything is planned.

A schedule is a function from a derivation to a longer one. It sees the program that was captured for the call's dtypes
and staged values, so it can do different things for different ones. Calls whose arguments overlap where the derivation
needs them apart run the kernel as it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from treadle.base.errors import UserError
from treadle.checker.derivation import validate_derivation
from treadle.checker.derivation_plans import validate_plan
from treadle.driver.arguments import Call
from treadle.driver.build import restore
from treadle.driver.candidates import families, saved_facts
from treadle.driver.errors import PlanUnverified
from treadle.driver.kernel import Kernel
from treadle.driver.plan import Plan
from treadle.driver.specialisation import Specialisation
from treadle.ir.core import Program
from treadle.ir.expand import expand
from treadle.ir.printer import print_program
from treadle.lang.definition import Definition
from treadle.plan.family import Setting
from treadle.plan.plan import Plan as Decisions
from treadle.plan.steps import Step
from treadle.rules.derivation import Derivation
from treadle.rules.plans import AxisUnknown
from treadle.rules.refusals import ReplayDiffers
from treadle.rules.replanning import apply_to

Schedule = Callable[[Derivation], Derivation]


class StepUnverified(UserError):
    """A step that the checker does not verify: the rewritten kernel is not planned."""

    code = "rules/unverified"


class Rewritten(Definition):
    """A definition whose programs go through a schedule. `derivations` has the way of each, by the program's text."""

    schedule: Schedule
    derivations: dict[str, Derivation]

    @classmethod
    def of(cls, definition: Definition, schedule: Schedule) -> Rewritten:
        """The definition under a schedule."""
        made = cls.__new__(cls)
        made.__dict__.update(definition.__dict__)
        made.__treadle_definition__ = made
        made.schedule, made.derivations = schedule, {}
        made.as_written = definition
        return made

    as_written: Definition

    def under(self, numerics: Any) -> Rewritten:
        """The same with another numerical contract."""
        return Rewritten.of(self.as_written.under(numerics), self.schedule)

    def capture(self, *args: Any, **named: Any) -> Program:
        """The program after the schedule. *Errors*: those of capture and the rules; `rules/unverified`."""
        derivation = derive(self.as_written.capture(*args, **named), self.schedule)
        self.derivations[print_program(derivation.program)] = derivation
        return derivation.program


def derive(program: Program, schedule: Schedule) -> Derivation:
    """What a schedule makes of a program, every step validated. *Errors*: `rules/unverified`, those of the rules."""
    found = schedule(Derivation(program))
    for number, verdict in enumerate(validate_derivation(found.programs, found.steps), 1):
        if verdict.status != "verified":
            raise StepUnverified(
                doing=f"validating step {number}, {found.steps[number - 1]}, of {program.name}",
                found=str(verdict),
                expected="verified",
                hint="leave the step out; if it is right, the checker lacks a rule for it",
                span=program.span,
            )
    return found


class RewrittenKernel(Kernel):
    """A kernel under a schedule; `as_written` is the kernel it was made of."""

    def __init__(self, kernel: Kernel, schedule: Schedule) -> None:
        super().__init__(Rewritten.of(kernel.definition, schedule), variants=kernel.limit)
        self.as_written = kernel
        self.schedule = schedule

    def __reduce__(self) -> Any:
        """A pickle is the kernel's name and the schedule, which must have one too."""
        return rewrite, (self.as_written, self.schedule)

    def under(self, numerics: Any) -> RewrittenKernel:
        """The kernel with another numerical contract, under the same schedule."""
        found = self._under.get(numerics) if isinstance(numerics, Hashable) else None
        if not isinstance(found, RewrittenKernel):
            found = self._under[numerics] = RewrittenKernel(self.as_written.under(numerics), self.schedule)
        return found

    def derivation_of(self, text: str) -> Derivation | None:
        """The steps that led to the program of that text; None where it has not been captured."""
        definition = self.definition
        assert isinstance(definition, Rewritten)
        return definition.derivations.get(text)

    def derivation(self, *args: Any, **staged: Any) -> Derivation:
        """The derivation for these arguments (arrays or `td.like`)."""
        asked = self._asked(staged)
        special, _ = asked.prepare(args, staged, allocate=False)
        definition = asked.definition
        assert isinstance(definition, Rewritten)
        return definition.derivations[special.text]

    def prepare(
        self, args: tuple[Any, ...], staged: dict[str, Any], *, allocate: bool = True, kind: str | None = None
    ) -> tuple[Specialisation, Call]:
        """As for any kernel; the program as written where arguments overlap that the steps need apart."""
        special, call = super().prepare(args, staged, allocate=allocate, kind=kind)
        definition = self.definition
        assert isinstance(definition, Rewritten)
        pairs = definition.derivations[special.text].disjoint
        if pairs and allocate:
            facts = special.facts(call)
            if not all(facts.apart(a, b) for a, b in pairs if a in facts.arrays and b in facts.arrays):
                return self.as_written.prepare(args, staged, allocate=allocate, kind=kind)
        return special, call


def rewrite(kernel: Kernel, schedule: Schedule) -> RewrittenKernel:
    """The kernel under a schedule: a kernel of its own, whose programs are those that the schedule makes.

    *Ensures*: it computes what `kernel` does, up to the regrouping that order policies grant.
    *Errors*: when it is first used: `rules/*` of a step that is refused, `rules/unverified`.
    """
    return RewrittenKernel(kernel, schedule)


def redecide(plan: Plan, kind: str, **settings: Setting) -> tuple[Plan, Step]:
    """A plan with other decisions of one kind ("bind", "distribute", "retime", "refine"), realised and judged again.

    *Errors*: `rules/axis`, those of realisation, `plan/unverified`.
    """
    step = Step(kind, dict(settings))
    return redone(plan, step), step


def redone(plan: Plan, step: Step) -> Plan:
    """A plan after a step on it ("guard" too), realised, validated and judged again.

    *Errors*: `rules/axis`, `rules/unreadable`, those of realisation, `plan/unverified`.
    """
    decisions, _ = apply_to(plan.decisions, step)
    _known(decisions, plan.captured, {n: v for n, v in step.args.items() if isinstance(v, int | str)})
    built = restore(decisions, plan.captured)
    verdict = validate_plan(plan.program, step, built.machine)
    if verdict.status != "verified":
        raise PlanUnverified(
            doing=f"applying {step} to {plan.decisions.line()}",
            found=str(verdict),
            expected="verified",
            hint="keep the plan",
        )
    return plan.with_decisions(built, step)


def replayed(plan: Plan) -> Plan:
    """The plan again by its own steps: its first decisions realised, and each step taken from there.

    *Ensures*: the same machine text. *Errors*: those of `redone`; `rules/replay` where a text differs.
    """
    way = plan.derivation.replay().decisions
    now = plan.began(restore(way.start, plan.captured))
    for number, step in enumerate(way.steps, 1):
        now = redone(now, step)
        if now.machine() != way.texts[number]:
            raise ReplayDiffers(
                doing=f"replaying step {number}, {step}, of {way.start.line()}",
                found="another machine text than the recorded one",
                expected="the same text",
                hint="it was recorded by another version, or edited",
            )
    return now


def _known(decisions: Decisions, program: Program, settings: Mapping[str, Setting]) -> None:
    """Names among the settings are values of the family's axes. *Errors*: `rules/axis`."""
    facts = saved_facts(decisions)
    for family in families(decisions.target):
        for axis in family.axes(expand(program), facts) if family.name == decisions.family else ():
            value = settings.get(axis.name)
            if isinstance(value, str) and value not in axis.values:
                raise AxisUnknown(
                    doing=f"changing {axis.name} in {decisions.line()}",
                    found=value,
                    expected=f"one of {', '.join(map(str, axis.values))}",
                    hint="another target has other names",
                )
