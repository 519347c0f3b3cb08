"""What the distinguishing programs show: plans judged, simulated and assembled; wrong twins refused; ablations priced.

Each program of this folder is a `Program` of parts that its file fills in; `report` prints them. Nothing here knows
any of the programs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from treadle.base.errors import TreadleError
from treadle.checker import check
from treadle.driver.build import choose
from treadle.driver.describe import described_facts
from treadle.driver.plan import Plan
from treadle.driver.trial import try_machine
from treadle.ir.core import Program as Source
from treadle.machine.parse import parse_machine
from treadle.planner.ablation import ablated
from treadle.toolchain.errors import NvrtcMissing


@dataclass(frozen=True)
class Case:
    """A program for a target: `sizes` to plan for, `tiny` ones to simulate."""

    label: str
    source: Callable[[], Source]
    target: str
    sizes: Mapping[str, int]
    tiny: Mapping[str, int]
    schedules: int = 4

    def plan(self, ablate: str | None = None) -> Plan:
        """The plan that the judge verified."""
        source = self.source()
        return Plan(choose(source, self.target, described_facts(source, self.sizes), ablate=ablate))

    def seconds(self, ablate: str | None = None) -> float:
        """What the plan is predicted to take; under `no-interface`, all scopes together."""
        parts = ablated(self.source(), ablate)
        built = [choose(p, self.target, described_facts(p, self.sizes), ablate=ablate) for p in parts]
        return sum(b.candidate.plan.cost.total for b in built if b.candidate.plan.cost is not None)


@dataclass(frozen=True)
class Wrong:
    """A wrong twin of a plan's machine text: what matches `pattern` replaced; `reason` is in the judge's answer."""

    label: str
    pattern: str
    by: str | Callable[[re.Match[str]], str]
    reason: str = ""

    def text(self, right: str) -> str:
        """The wrong text."""
        changed, count = re.subn(self.pattern, self.by, right, count=1)
        assert count == 1, f"{self.label}: nothing matches {self.pattern}"
        return changed


@dataclass(frozen=True)
class Program:
    """A distinguishing program. `refused`: steps and calls that must be refused with a code; `right`: checks of values
    against the oracle, on this machine's CPU; `whole`: the case whose plan knows what an ablated case does not, where
    that is another one."""

    title: str
    cases: Sequence[Case]
    right: Callable[[], None]
    wrong: Mapping[str, Sequence[Wrong]] = field(default_factory=dict[str, Sequence[Wrong]])
    refused: Mapping[str, tuple[str, Callable[[], Any]]] = field(default_factory=dict[str, Any])
    ablations: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    whole: Mapping[str, str] = field(default_factory=dict[str, str])
    shows: Callable[[], Sequence[str]] = lambda: ()

    def case(self, label: str) -> Case:
        """The case of a label."""
        return next(c for c in self.cases if c.label == label)

    def ablated(self, label: str, ablation: str) -> tuple[float, float]:
        """Predicted seconds of the plan that knows everything, and of the ablated one."""
        return self.case(self.whole.get(label, label)).seconds(), self.case(label).seconds(ablation)


def judged(plan: Plan) -> str:
    """The verdict on the plan's own text, read back."""
    return check(parse_machine(plan.machine(), "plan")).status


def simulated(case: Case, plan: Plan) -> bool:
    """Whether all schedules on tiny arguments give what the program means."""
    return try_machine(plan.machine(), case.label, case.tiny, 0, case.schedules).clean


def assembled(plan: Plan) -> str:
    """Bytes of the object, or why there is none."""
    try:
        record = plan.record
    except NvrtcMissing:
        return "no compiler for the target here"
    return f"{len(record.code)} bytes"


def refusal(what: Callable[[], Any]) -> str:
    """The code with which something is refused, or "accepted"."""
    try:
        what()
    except TreadleError as error:
        return error.code
    return "accepted"


def integers(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Any:
    """Small integers, whose sums are exact."""
    return np.random.default_rng(seed + sum(shape)).integers(-3, 4, shape).astype(dtype)


def report(program: Program) -> None:
    """Prints everything that a program shows."""
    print(program.title)
    program.right()
    print("  values: equal to the oracle")
    for line in program.shows():
        print(f"  {line}")
    for case in program.cases:
        plan = case.plan()
        print(f"  {case.label}: {plan.decisions.line()}")
        clean = "clean" if simulated(case, plan) else "WRONG"
        print(f"    {judged(plan)}; {case.schedules} schedules {clean}; assembled: {assembled(plan)}")
        for wrong in program.wrong.get(case.label, ()):
            verdict = check(parse_machine(wrong.text(plan.machine()), "wrong"))
            print(f"    {wrong.label}: {verdict.status} ({verdict.judgement}: {verdict.reason})")
        for ablation in program.ablations.get(case.label, ()):
            whole, less = program.ablated(case.label, ablation)
            print(f"    --ablate {ablation}: {less * 1e6:.4g} us instead of {whole * 1e6:.4g} predicted")
    for label, (code, what) in program.refused.items():
        print(f"  {label}: refused, {refusal(what)} (expected {code})")
