"""By which steps a plan came about: those of a schedule on the captured program, those that its family takes to the
program that it realises, and those on the plan itself.

It prints, is saved and replays as its parts do. A reference to an operation of the captured program goes through the
steps on programs, as long as nothing else rewrites the program between them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from treadle.ir.printer import print_program
from treadle.plan.record import ProgramRecord, read_history
from treadle.plan.steps import FORMAT, Saved, Step
from treadle.rules.derivation import Derivation
from treadle.rules.replanning import Replanning


@dataclass(frozen=True)
class History(Saved):
    """`schedule` begins with the captured program, and may have no steps; `family` with what its last one expands to,
    None where that is what is realised."""

    schedule: Derivation
    family: Derivation | None
    decisions: Replanning

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps, in their order."""
        return tuple(step for part in (self.schedule, self.family, self.decisions) if part for step in part.steps)

    def forward(self, path: str) -> str | None:
        """The path in the last program of the operation that had `path` in the first one; None where it is gone, or
        where expansion has rewritten the program between a schedule's steps and the family's."""
        now = self.schedule.forward(path)
        if self.family is None:
            return now
        kept = print_program(self.schedule.program) == print_program(self.family.start)
        return self.family.forward(now) if kept and now is not None else None

    def to_json(self) -> str:
        """The saved form. *Ensures*: `History.from_json(h.to_json()).to_json() == h.to_json()`."""
        data = {
            "format": list(FORMAT),
            "schedule": json.loads(self.schedule.to_json()),
            "family": None if self.family is None else json.loads(self.family.to_json()),
            "decisions": json.loads(self.decisions.to_json()),
        }
        return json.dumps(data, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> History:
        """The history that was saved; nothing is replayed. *Errors*: `rules/unreadable`."""
        found = read_history(text)
        plans = found.decisions
        family = None if found.family is None else _derivation(found.family)
        taken = tuple(zip(plans.steps, plans.plans[1:], strict=True))
        return cls(_derivation(found.schedule), family, Replanning(plans.plans[0], taken, plans.texts))

    def replay(self) -> History:
        """Every step done again; machine texts are as they were (`driver.rewriting.replayed` realises them again).

        *Ensures*: the same programs and plans. *Errors*: `rules/replay` at the first that differs.
        """
        for part in (self.schedule, self.family, self.decisions):
            if part is not None:
                part.replay()
        return self

    def __str__(self) -> str:
        told = (("by the schedule", self.schedule), ("by the family", self.family), ("on the plan", self.decisions))
        lines = [f"{step} ({who})" for who, part in told if part is not None for step in part.steps]
        return "\n".join(f"{i}. {line}" for i, line in enumerate(lines, 1))


def _derivation(found: ProgramRecord) -> Derivation:
    return Derivation(found.programs[0], tuple(zip(found.steps, found.programs[1:], strict=True)))
