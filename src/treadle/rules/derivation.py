"""A derivation: a program, the steps taken from it, and the program after each.

It prints, is saved as JSON with the same bytes every time, replays, and takes references to operations forward.
Whether it is right is not its own affair: the checker validates each step from the programs before and after it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from treadle.ir.core import Op, Program
from treadle.ir.paths import op_at, paths
from treadle.ir.printer import print_program
from treadle.plan.steps import FORMAT, Saved, Step, read_record
from treadle.rules.copies import dematerialise, distribute, recompute
from treadle.rules.draft import named
from treadle.rules.enclosing import enclose
from treadle.rules.folds import apart, factor, products, regroup
from treadle.rules.layouts import relayout
from treadle.rules.nests import fuse, permute, reindex, serialise, split
from treadle.rules.refusals import NameUnknown, OperationGone, ReplayDiffers, StepUnreadable
from treadle.rules.scans import gather
from treadle.rules.scopes import fuse_scopes, move, specialise, split_scopes
from treadle.rules.tiles import materialise

Rule = Callable[..., tuple[Program, Step]]

RULES: Mapping[str, Rule] = {
    "reindex": reindex,
    "split": split,
    "fuse": fuse,
    "permute": permute,
    "serialise": serialise,
    "move": move,
    "distribute": distribute,
    "dematerialise": dematerialise,
    "recompute": recompute,
    "materialise": materialise,
    "relayout": relayout,
    "factor": factor,
    "regroup": regroup,
    "products": products,
    "gather": gather,
    "apart": apart,
    "fuse_scopes": fuse_scopes,
    "split_scopes": split_scopes,
    "specialise": specialise,
    "enclose": enclose,
}
"""The rules that change a program, by the kind of their steps."""


def apply(program: Program, step: Step) -> tuple[Program, Step]:
    """A recorded step done again. *Errors*: `rules/unreadable` for an unknown kind, and those of the rule."""
    rule = RULES.get(step.kind)
    if rule is None:
        raise StepUnreadable(
            doing=f"applying {step}",
            found=f"a step of the kind {step.kind}",
            expected=f"one of {', '.join(RULES)}",
            hint="a plan's steps are applied to plans",
        )
    try:
        return rule(program, **dict(step.args))
    except TypeError as error:
        raise StepUnreadable(
            doing=f"applying {step}", found=str(error), expected="the arguments of the rule", hint="look at the step"
        ) from error


@dataclass(frozen=True)
class Derivation(Saved):
    """`start`, and the steps from it with the program after each. Immutable: `then` gives a longer one."""

    start: Program
    taken: tuple[tuple[Step, Program], ...] = ()

    @property
    def program(self) -> Program:
        """The last program."""
        return self.taken[-1][1] if self.taken else self.start

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps alone."""
        return tuple(step for step, _ in self.taken)

    @property
    def programs(self) -> tuple[Program, ...]:
        """The programs: one more than steps."""
        return (self.start, *(program for _, program in self.taken))

    @property
    def disjoint(self) -> tuple[tuple[str, str], ...]:
        """Pairs of tensors that must share no element for the steps to be right."""
        found: set[tuple[str, str]] = set()
        for step in self.steps:
            for pair in cast("list[list[str]]", step.args.get("disjoint", [])):
                found.add((pair[0], pair[1]))
        return tuple(sorted(found))

    def then(self, what: Step | Rule | Callable[..., Derivation], *args: Any, **named: Any) -> Derivation:
        """The derivation with one step more (a rule with its arguments, or a recorded step), or with those of a
        schedule: a function that takes a derivation and gives one.

        *Errors*: those of the rule; this derivation stays as it is.
        """
        if isinstance(what, Step):
            program, step = apply(self.program, what)
        elif what in RULES.values():
            program, step = cast(Rule, what)(self.program, *args, **named)
        else:
            return cast("Callable[..., Derivation]", what)(self, *args, **named)
        return replace(self, taken=(*self.taken, (step, program)))

    # ---- references

    def path(self, op: Op) -> str:
        """The path of an operation of the last program. *Errors*: `rules/name`."""
        found = next((path for path, one in paths(self.program) if one is op), None)
        if found is None:
            raise NameUnknown(
                doing=f"looking for {named(op)}",
                found="an operation of another program",
                expected="one of the last",
                hint="take it from derivation.program",
            )
        return found

    def forward(self, path: str, since: int = 0) -> str | None:
        """Where the operation is now that had a path after `since` steps; None if a step removed it."""
        now: str | None = path
        for step in self.steps[since:]:
            now = None if now is None else step.moved(now)
        return now

    def at(self, path: str, since: int = 0) -> Op:
        """The operation now that had a path after `since` steps. *Errors*: `rules/gone`, `rules/name`."""
        now = self.forward(path, since)
        found = None if now is None else op_at(self.program, now)
        if found is None:
            gone = next((i for i in range(since, len(self.steps)) if self._lost(path, since, i)), None)
            raise OperationGone(
                doing=f"following {path} of {self.start.name}",
                found="no operation there" if gone is None else f"step {gone + 1}, {self.steps[gone]}, removed it",
                expected="an operation that all steps kept",
                hint="take the reference after that step",
            )
        return found

    def _lost(self, path: str, since: int, until: int) -> bool:
        return replace(self, taken=self.taken[: until + 1]).forward(path, since) is None

    # ---- as data

    def to_json(self) -> str:
        """The saved form: the first program, and each step with the program after it.

        *Ensures*: `Derivation.from_json(d.to_json()).to_json() == d.to_json()`.
        """
        steps = [{**step.data(), "program": print_program(program)} for step, program in self.taken]
        data = {"format": list(FORMAT), "program": print_program(self.start), "steps": steps}
        return json.dumps(data, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Derivation:
        """The derivation that was saved; nothing is replayed. *Errors*: `rules/unreadable`."""
        programs, steps = read_record(text)
        return cls(programs[0], tuple(zip(steps, programs[1:], strict=True)))

    def replay(self) -> Derivation:
        """Every step done again. *Ensures*: the same programs. *Errors*: `rules/replay` at the first that differs."""
        again = Derivation(self.start)
        for number, (step, program) in enumerate(self.taken, 1):
            again = again.then(step)
            if again.steps[-1] != step or print_program(again.program) != print_program(program):
                raise ReplayDiffers(
                    doing=f"replaying step {number}, {step}, of {self.start.name}",
                    found="another program than the recorded one",
                    expected="the same text",
                    hint="it was recorded by another version, or edited",
                )
        return again

    def __str__(self) -> str:
        lines = [f"{self.start.name}, {len(self.taken)} steps"]
        lines += [f"  {i}. {step}" for i, step in enumerate(self.steps, 1)]
        return "\n".join(lines)
