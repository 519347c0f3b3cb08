"""What a run found wrong, and the end of a run that cannot go on."""

from __future__ import annotations

from dataclasses import dataclass, field

from treadle.base.errors import UserError


class WrongArguments(UserError):
    """Arguments that do not fit the program or its guard."""

    code = "simulate/arguments"


@dataclass(frozen=True)
class Finding:
    """`code` is the kind of mistake, `line` that of the statement in the printed text, `other` the line it conflicts
    with.

    Codes: race, bounds, unwritten, undefined, not-held, in-flight, protocol, fence, deadlock, resource, form, endless.
    """

    code: str
    line: int
    message: str
    other: int | None = None

    def __str__(self) -> str:
        also = "" if self.other is None else f" (with line {self.other})"
        return f"line {self.line}: {self.code}: {self.message}{also}"


class Stop(Exception):
    """Ends the run: what follows would have no meaning. The finding has been recorded."""


@dataclass
class Findings:
    """Collects findings, each pair of lines once a code."""

    found: list[Finding] = field(default_factory=list[Finding])
    seen: set[tuple[str, int, int | None]] = field(default_factory=set[tuple[str, int, int | None]])
    limit: int = 64

    def add(self, code: str, line: int, message: str, other: int | None = None) -> None:
        """Records a finding, unless one of this code and these lines stands already."""
        key = (code, line, other)
        if key in self.seen:
            return
        self.seen.add(key)
        self.found.append(Finding(code, line, message, other))
        if len(self.found) >= self.limit:
            raise Stop

    def fatal(self, code: str, line: int, message: str) -> Stop:
        """The exception to raise after a mistake that leaves nothing to go on with."""
        self.add(code, line, message)
        return Stop()
