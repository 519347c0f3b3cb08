"""Loops of Python run at capture, and are unrolled. One that does not end would never become a kernel.

What a capture may take is bounded by the operations that it has made and by the turns of its loops together; beyond
either, the loop that has turned most often is named.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from treadle.base.source import Span
from treadle.ir.builder import Builder
from treadle.lang.errors import EndlessLoop

MOST_OPERATIONS = 100_000
MOST_TURNS = 500_000


@dataclass(eq=False)
class Loop:
    """A loop that runs at capture: where it stands, and how often it has turned."""

    function: str
    span: Span | None
    turns: int = 0


class Loops:
    """The loops of one capture that are running, outermost first."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.running: list[Loop] = []
        self.turns = 0

    @contextmanager
    def loop(self, function: str) -> Generator[Loop]:
        """A loop at the position that is being captured."""
        found = Loop(function, self.builder.span)
        self.running.append(found)
        try:
            yield found
        finally:
            self.running.remove(found)

    def turn(self, loop: Loop) -> None:
        """The body runs once more. *Errors*: `capture/endless`."""
        loop.turns += 1
        self.turns += 1
        if self.turns <= MOST_TURNS and self.builder.emitted <= MOST_OPERATIONS:
            return
        longest = max(self.running, key=lambda x: x.turns)
        made = self.builder.emitted > MOST_OPERATIONS
        raise EndlessLoop(
            doing=f"running a loop of {longest.function} at capture",
            found=f"{self.builder.emitted:,} operations after {longest.turns:,} turns, and no end",
            expected=f"at most {MOST_OPERATIONS:,} operations"
            if made
            else f"at most {MOST_TURNS:,} turns of all loops",
            hint="a loop of Python is unrolled at capture; write td.serial(n) for one that runs when the kernel does",
            span=longest.span,
        )
