"""Validation of steps on plans: the plan after it is judged again, for the program of the plan before it."""

from __future__ import annotations

from treadle.checker.judge import check
from treadle.checker.verdict import Verdict
from treadle.ir.printer import print_program
from treadle.machine.form import MachineProgram
from treadle.plan.steps import PLAN_KINDS, Step


def validate_plan(before: MachineProgram, step: Step, after: MachineProgram) -> Verdict:
    """The verdict on a step between the machine programs of two plans.

    *Ensures*: `verified` only if the second one is right for the program of the first.
    """
    if step.kind not in PLAN_KINDS:
        return Verdict(
            "unknown", "step", reason=f"steps of the kind {step.kind} are none of plans", missing="a validator"
        )
    programs = [print_program(m.captured or m.program) for m in (before, after)]
    if programs[0] != programs[1] or before.target != after.target:
        return Verdict("rejected", "step", reason="the two plans are not of one program and target")
    return check(after)
