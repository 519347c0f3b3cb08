"""What a user holds of a plan: why it was chosen, the machine program, the verdict, the text; running and saving it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treadle.base.source import user_position
from treadle.checker import check as judge
from treadle.checker.verdict import Verdict
from treadle.driver.arguments import Call
from treadle.driver.build import Built, assemble, choose, restore, source_of
from treadle.driver.candidates import Searching
from treadle.driver.checks import conclude, give_flags
from treadle.driver.errors import GuardBroken, TargetAbsent
from treadle.driver.facts import first_broken
from treadle.driver.pins import checked_pins
from treadle.driver.places import LEGEND, placed_names
from treadle.driver.record import Record
from treadle.driver.show import plan_page
from treadle.driver.specialisation import Specialisation
from treadle.driver.targets import arrays_elsewhere, host_target, level_runs, place_of, resolve
from treadle.driver.variants import Variant
from treadle.driver.variants import load as load_variant
from treadle.ir.core import Program
from treadle.ir.guard import Guard
from treadle.ir.parser import parse_program
from treadle.ir.printer import print_program
from treadle.lang.errors import BadArgument
from treadle.machine.form import MachineProgram
from treadle.machine.text import print_machine
from treadle.plan.pins import NoPlan, Pin
from treadle.plan.plan import Plan as Decisions
from treadle.plan.plan import PlanUnreadable
from treadle.plan.steps import Step
from treadle.rules.derivation import Derivation
from treadle.rules.history import History
from treadle.rules.replanning import Replanning

if TYPE_CHECKING:
    from treadle.driver.kernel import Kernel

_MARK = "\n--- program\n"


class Plan:
    """A verified plan: calling it runs it on arguments that meet its guard.

    `decisions` are what is saved; `guard` the facts under which it holds.
    """

    def __init__(
        self,
        built: Built,
        kernel: Kernel | None = None,
        special: Specialisation | None = None,
        way: Replanning | None = None,
    ) -> None:
        self._built = built
        self._way = way
        self._kernel = kernel
        self._special = special
        self._record: Record | None = None
        self._variant: Variant | None = None
        self._text = print_program(self.captured)

    def __repr__(self) -> str:
        return f"<plan {self.decisions.line()}: {self._built.verdict.status}>"

    def with_decisions(self, built: Built, step: Step) -> Plan:
        """Other decisions for the same kernel, one step further, realised and judged."""
        way = self.derivation.decisions.then(step, print_machine(built.machine))
        return Plan(built, self._kernel, self._special, way)

    def began(self, built: Built) -> Plan:
        """Decisions for the same kernel from which steps may be taken, realised and judged."""
        return Plan(built, self._kernel, self._special)

    @property
    def derivation(self) -> History:
        """By which steps the plan came about: those of the kernel's schedule, those of the family that realises it, and
        those on the decisions since they were planned, with the machine texts. It prints, saves and replays; `treadle
        check` judges what was saved."""
        schedule = None if self._kernel is None else self._kernel.derivation_of(self._text)
        schedule = schedule or Derivation(self.captured)
        way = self._way or Replanning(self.decisions, texts=(self.machine(),))
        return History(schedule, self._built.candidate.derive(), way)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of `derivation`."""
        return self.derivation.steps

    @property
    def captured(self) -> Program:
        """The captured program, which the machine program is of or was derived from."""
        return self._built.captured

    @property
    def decisions(self) -> Decisions:
        """Family and point."""
        return self._built.candidate.plan

    @property
    def guard(self) -> Guard:
        """The facts of a call under which the plan holds."""
        return self._built.machine.guard

    @property
    def program(self) -> MachineProgram:
        """The machine program."""
        return self._built.machine

    def explain(self) -> str:
        """Why this plan: its cost and bottleneck, the alternatives, what refused them, what was tried and not taken;
        for which extents, and by which steps it came about; where the names of the source ended up; when it holds."""
        built = self._built
        choice = built.candidate.choice
        if choice is None:
            lines = [self.decisions.line(), *(f"  {note}" for note in built.notes)]
        else:  # why a family refused is among the notes and in the choice
            refusals = {f"{gone.family}: {'; '.join(gone.reasons)}" for gone in choice.rejected}
            lines = [choice.explain(self.decisions, [note for note in built.notes if note not in refusals])]
        sizes = ", ".join(f"{name} = {extent}" for name, extent in built.extents.items())
        lines += [f"  planned for {sizes}"] if sizes else []
        steps = str(self.derivation).splitlines()
        lines += ["  steps:", *(f"    {line}" for line in steps)] if steps else []
        lines.append(f"  judged: {built.verdict}")
        lines += [f"  names of the source ({LEGEND}):", *(f"    {line}" for line in placed_names(built.machine))]
        lines += ["  holds when:", *(f"    {line}" for line in str(self.guard).splitlines())]
        took = ", ".join(f"{name} {seconds * 1e3:.1f} ms" for name, seconds in built.timeline.seconds.items())
        lines.append(f"  took: {took}")
        return "\n".join(lines)

    def machine(self) -> str:
        """The machine text that was judged."""
        return print_machine(self._built.machine)

    def check(self) -> Verdict:
        """The independent checker's verdict, judged anew."""
        return judge(self._built.machine)

    def source_program(self) -> str:
        """The captured program as text."""
        return self._text

    def source(self) -> str:
        """The emitted text: LLVM IR or CUDA C++."""
        return source_of(self._built) if self._record is None else self._record.source

    @property
    def record(self) -> Record:
        """The compiled form; compiled on first use."""
        if self._record is None:
            self._record = assemble(self._built)
        return self._record

    def page(self, extents: Mapping[str, int] | None = None) -> str:
        """The picture of the plan as one HTML page that needs nothing else; `extents` for pictures of a run, where
        those that it was planned for are not wanted."""
        steps = str(self.derivation).splitlines()
        return plan_page(self._built, {**self._built.extents, **(extents or {})}, steps)

    def show(self, path: str | Path) -> None:
        """Writes the picture of the plan: nest, distributions, memory, events, timeline, verdict, alternatives, text.

        *Errors*: `capture/argument` for what is no path, or one that cannot be written.
        """
        _write(path, self.page(), "showing a plan")

    def save(self, path: str | Path) -> None:
        """Writes the decisions and the program they are for. Equal plans give equal bytes.

        *Errors*: `capture/argument` for what is no path, or one that cannot be written.
        """
        _write(path, self.decisions.to_json() + _MARK + self._text, "saving a plan")

    def __call__(self, *args: Any, **staged: Any) -> Any:
        """Runs the plan; returns the Outs.

        *Errors*: `plan/guard` when a fact of the guard does not hold; `plan/target-absent` on another machine.
        """
        special, call = self._called(args, staged)
        give_flags(special.expanded, call)
        broken = first_broken(self.guard, special.facts(call))
        if broken is not None:
            raise GuardBroken(
                doing=f"running a plan of {special.program.name}",
                found=f"arguments for which this does not hold: {broken}",
                expected="every fact of the plan's guard: " + "; ".join(str(self.guard).splitlines()),
                hint="call the kernel itself, which plans for the arguments",
                span=special.program.span,
            )
        if self._variant is None:
            _runs_here(self.decisions.target)
            self._variant = load_variant(self.record, special.signature)
        self._variant.kernel.run(special.packer.pack(special.arguments(call)))
        conclude(special.expanded, call)
        return call.outs

    def _called(self, args: tuple[Any, ...], staged: dict[str, Any]) -> tuple[Specialisation, Call]:
        if self._kernel is None:
            raise TargetAbsent(
                doing="running a plan",
                found="a plan that was loaded without its kernel",
                expected="td.load(path, kernel)",
                hint="pass the kernel when loading, to run the plan",
            )
        special, call = self._kernel.prepare(args, staged)
        if call.device.partition(":")[0] != self.decisions.target.partition(":")[0]:
            raise arrays_elsewhere(self.decisions.program, self.decisions.target, call.device)
        if special.text != self._text:
            raise GuardBroken(
                doing=f"running a plan of {special.program.name}",
                found="arguments of other dtypes, other staged values, or other optional arguments",
                expected="those that the plan was made for",
                hint="call the kernel itself, which plans for the arguments",
                span=special.program.span,
            )
        return special, call


def _runs_here(target: str) -> None:
    if target != host_target() and target.startswith("cpu"):
        host = host_target().partition(":")[2]
        if not level_runs(target.partition(":")[2], host):
            raise TargetAbsent(
                doing=f"running a plan for {target}",
                found=f"a machine of level {host}",
                expected=target,
                hint="plan for this machine: leave target= out",
            )


def plan_call(
    kernel: Kernel,
    special: Specialisation,
    call: Call,
    target: str | None,
    where: Pin | Sequence[Pin],
    search: str = "enumerate",
    budget: float | None = None,
) -> Plan:
    """The plan for a call, on the arguments' device unless a target is named; `where` is a pin or several.

    *Errors*: `plan/none`, also where an output overlaps another argument; `plan/*` for a pin that cannot be met, or a
    search that did not end.
    """
    name = resolve(target) if target is not None else place_of(call.device).target
    facts = special.facts(call)
    outs = [t.name for t in special.expanded.tensors if t.out and t.name in facts.arrays]
    shared = [(out, n) for out in outs for n in sorted(facts.arrays) if n != out and not facts.apart(out, n)]
    if shared:
        raise NoPlan(
            doing=f"planning {special.program.name} for {name}",
            found=f"the output {shared[0][0]} overlaps {shared[0][1]}",
            expected="outputs that share no element with another argument",
            hint="plan for separate arrays; a call with these runs in the reference interpreter",
            span=special.program.span,
        )
    built = choose(special.program, name, facts, checked_pins(special.program, where), how=Searching(search, budget))
    return Plan(built, kernel, special)


def _as_path(path: Any, doing: str) -> Path:
    try:
        return Path(path)
    except TypeError as error:
        raise BadArgument(
            doing=doing,
            found=f"{type(path).__name__} as the path",
            expected="a path: text or a pathlib.Path",
            hint='the file comes first: td.load("a.plan", kernel), plan.save("a.plan")',
            span=user_position(),
        ) from error


def _write(path: Any, text: str, doing: str) -> None:
    try:
        _as_path(path, doing).write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadArgument(
            doing=doing,
            found=f"{path}: {error.strerror or error}",
            expected="a file in a folder that exists and may be written",
            hint="look at the path, or make the folder",
            span=user_position(),
        ) from error


def load(path: str | Path, kernel: Kernel | None = None) -> Plan:
    """The plan saved at `path`, realised and judged again. With `kernel` it can run.

    *Errors*: `plan/unreadable`; `capture/argument` for what is no path or no kernel.
    """
    known: Any = kernel
    if known is not None and not hasattr(known, "__treadle_definition__"):
        raise BadArgument(
            doing=f"loading {path}",
            found=f"{type(known).__name__} as the kernel",
            expected="the kernel that the plan is for, or nothing",
            hint="load the plan with its kernel, td.load(path, kernel), and call what that gives with the arrays",
            span=user_position(),
        )
    try:
        text = _as_path(path, "loading a plan").read_text(errors="replace")
    except OSError as error:
        raise PlanUnreadable(
            doing=f"loading {path}",
            found=f"{error.strerror or error}",
            expected="a file written by Plan.save",
            hint="look at the path",
        ) from error
    decisions, mark, program = text.partition(_MARK)
    if not mark:
        raise PlanUnreadable(
            doing=f"loading {path}",
            found="no program behind the decisions",
            expected="a file written by Plan.save",
            hint="plan the kernel again and save it",
        )
    saved = parse_program(program, str(path))
    if kernel is not None and kernel.definition.name != saved.name:
        raise PlanUnreadable(
            doing=f"loading {path}",
            found=f"a plan of {saved.name}",
            expected=f"a plan of {kernel.definition.name}, the kernel that was passed with it",
            hint=f"pass the kernel {saved.name}, or load the plan of {kernel.definition.name}",
        )
    return Plan(restore(Decisions.from_json(decisions), saved), kernel)
