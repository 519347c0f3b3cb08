"""Verdicts, and how a rule says no: `Refused` (with a counterexample) or `Unsure` (with the missing fact)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NoReturn

from treadle.algebra.expr import Constraint
from treadle.algebra.sets import Facts, is_opaque

Status = Literal["verified", "rejected", "unknown"]
VERSION = 92
"""Raised whenever a rule changes: part of the key of a recorded verdict."""


@dataclass(frozen=True)
class Partner:
    """The other statement of an offending pair: its number, as `Verdict.statement`, and what it says. The pair may be
    one statement with itself: of another iteration, or of other threads."""

    statement: int
    text: str

    def __str__(self) -> str:
        return f"statement {self.statement}: {self.text}"


@dataclass(frozen=True)
class Verdict:
    """What the judge says of a machine program, for all sizes that its guard admits.

    `judgement` is the rule family ("J1" .. "J7") and `statement` the number (in `MachineProgram.statements()` order) of
    the statement where it failed; `line` its source line, if recorded. `counterexample` is a valuation of
    dimensions, loop
    variables, tasks and slot coordinates (`$0`) for a rejection; `missing` the fact without which nothing can be said;
    `partner` the other access, where two accesses together are the fault.
    """

    status: Status
    judgement: str | None = None
    statement: int | None = None
    line: int | None = None
    reason: str = ""
    counterexample: dict[str, int] | None = None
    missing: str | None = None
    seconds: float = 0.0
    permissions: tuple[str, ...] = ()
    partner: Partner | None = None

    def __str__(self) -> str:
        if self.status == "verified":
            return f"verified in {self.seconds:.3f} s"
        where = "" if self.statement is None else f" at statement {self.statement}"
        text = f"{self.status}: {self.judgement}{where}: {self.reason}"
        if self.counterexample:
            text += "\n  for instance " + ", ".join(f"{k} = {v}" for k, v in sorted(self.counterexample.items()))
        if self.missing:
            text += f"\n  missing: {self.missing}"
        if self.partner:
            own = self.partner.statement == self.statement
            text += "\n  against itself, executed elsewhere or again" if own else f"\n  against {self.partner}"
        return text


class Finding(Exception):
    """A rule's no. It ends the judgement and never leaves the room. `partner` is the statement of the other access, or
    the name of the memory that the other one stores to; `at` the statement that fails, where it is not the one at hand.
    """

    status: Status = "unknown"

    def __init__(
        self,
        judgement: str,
        reason: str,
        counterexample: Mapping[str, int] | None = None,
        missing: str | None = None,
        partner: object = None,
        at: object = None,
    ) -> None:
        super().__init__(reason)
        self.judgement = judgement
        self.reason = reason
        self.counterexample = None if counterexample is None else dict(counterexample)
        self.missing = missing
        self.partner = partner
        self.at = at


class Refused(Finding):
    """The program is wrong: here is a case."""

    status = "rejected"


class Unsure(Finding):
    """Nothing can be said: this is missing."""

    status = "unknown"


def require(facts: Facts, fact: Constraint, judgement: str, reason: str) -> None:
    """Nothing if the facts imply `fact`; otherwise a refusal with a valuation, or doubt where it may be spurious."""
    if not facts.implies(fact):
        refuse(facts, fact, judgement, reason)


def refuse(facts: Facts, fact: Constraint, judgement: str, reason: str) -> NoReturn:
    """Raises the finding for a `fact` that does not follow."""
    case = facts.against(fact)
    if case is None or is_opaque(case):
        raise Unsure(judgement, reason, missing=f"{fact}")
    raise Refused(judgement, reason, case, missing=f"{fact}")


@dataclass
class Spent:
    """Numerical permissions that the judged program uses."""

    names: set[str] = field(default_factory=set[str])
