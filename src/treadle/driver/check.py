"""Judging a machine text: the way of `treadle check`, which needs neither planner nor emitters nor simulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from treadle.base.errors import UserError
from treadle.checker import check
from treadle.checker.verdict import Verdict
from treadle.ir.core import Program
from treadle.ir.printer import print_program
from treadle.machine.form import MachineProgram
from treadle.machine.parse import parse_machine
from treadle.machine.text import statement_lines
from treadle.machine.verify import verify


class SourceDiffers(UserError):
    """A machine text whose embedded program is not what its source captures to."""

    code = "machine/source-differs"


@dataclass(frozen=True)
class Judged:
    """A verdict on a text. `source` says whether the embedded program was compared with a source file; `line` is the
    line of the text that the verdict speaks of, if any."""

    machine: MachineProgram
    verdict: Verdict
    source: str
    line: int | None

    def as_json(self) -> dict[str, Any]:
        """The verdict's fields, as `--json` prints them."""
        v = self.verdict
        return {
            "status": v.status,
            "judgement": v.judgement,
            "line": self.line,
            "reason": v.reason,
            "counterexample": v.counterexample,
            "missing": v.missing,
            "seconds": v.seconds,
            "source": self.source,
            "target": self.machine.target,
            "permissions": list(v.permissions),
            "partner": self._partner(),
        }

    def _partner(self) -> dict[str, Any] | None:
        """The other statement of an offending pair: its line in the text and what it says."""
        other = self.verdict.partner
        if other is None:
            return None
        return {"statement": other.statement, "line": line_of(self.machine, other.statement), "text": other.text}


def judge_text(text: str, file: str, source: Program | Callable[[Program], Program] | None = None) -> Judged:
    """The verdict on a machine text; with `source`, its embedded program must be that one (or what a function makes of
    it: the source captured for the same specialised dimensions).

    *Errors*: `machine/syntax`, `machine/form`, `machine/source-differs`.
    """
    machine = parse_machine(text, file)
    verify(machine)
    if callable(source):
        source = source(machine.captured or machine.program)
    if source is not None:
        same_program(machine.captured or machine.program, source, file)
    verdict = check(machine)
    return Judged(machine, verdict, "embedded" if source is None else "recaptured", line_of(machine, verdict.statement))


def same_program(embedded: Program, source: Program, file: str) -> None:
    """Nothing if two programs print alike. *Errors*: `machine/source-differs`."""
    have, want = print_program(embedded), print_program(source)
    if have != want:
        raise SourceDiffers(
            doing=f"comparing {file} with its source",
            found=first_difference(have, want),
            expected="the program that the source captures to",
            hint="print the machine text again with treadle plan --machine",
        )


def line_of(machine: MachineProgram, wanted: int | None) -> int | None:
    """The line of the printed text on which the statement of that number stands."""
    if wanted is None:
        return None
    lines: Mapping[int, int] = statement_lines(machine)
    for number, statement in enumerate(machine.statements()):
        if number == wanted:
            return lines.get(id(statement))
    return None


def first_difference(a: str, b: str) -> str:
    """The first line in which two program texts differ."""
    for number, (x, y) in enumerate(zip(a.splitlines(), b.splitlines()), 1):
        if x != y:
            return f"line {number} of the embedded program: {x.strip()!r} instead of {y.strip()!r}"
    return "programs of different length"


def judge_file(path: Path, source: Program | Callable[[Program], Program] | None = None) -> Judged:
    """`judge_text` of a file."""
    return judge_text(path.read_text(encoding="utf-8"), str(path), source)
