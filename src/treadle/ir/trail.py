"""Where the operations of a program come from, statement by statement: what a debugger needs and nothing else reads.

A `Trail` says which statements of the user's functions were captured before each operation, in the order in which they
run, and what the names of the function held then. It is kept beside a program, not in it: it is never printed,
compared, embedded or planned from, and a program that was parsed has none.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from treadle.ir.core import Block, Op, Program


@dataclass(eq=False)
class Call:
    """One call of a function of the user's: the kernel itself, or a function that was inlined into it."""

    name: str
    file: str
    line: int
    """Where its `def` stands."""
    globals: dict[str, Any]
    caller: Call | None
    lines: set[int] = field(default_factory=set[int])
    """The lines of its statements that were captured."""
    last: int = 0
    """The line of the statement that was captured last."""

    @property
    def chain(self) -> tuple[Call, ...]:
        """The calls from the kernel down to this one."""
        return (self,) if self.caller is None else (*self.caller.chain, self)


@dataclass(frozen=True)
class Step:
    """A statement about to run. Leaves of `names` are values, tensors, parts and index expressions of the program;
    anything else is a Python object. `stop` says that the user wrote `breakpoint()` there."""

    call: Call
    line: int
    names: Mapping[str, Any]
    stop: bool = False


@dataclass
class Trail:
    """Steps by what comes after them: an operation, or the end of a block."""

    before: dict[Op, list[Step]] = field(default_factory=dict[Op, list[Step]])
    at_end: dict[Block, list[Step]] = field(default_factory=dict[Block, list[Step]])
    mapped: Callable[[Any, Callable[[Any, Any], Any]], Any] = lambda x, change: change((), x)
    """Changes the leaves of what a name holds, lists and dataclasses entered."""

    def steps(self) -> list[Step]:
        """All of them, in no particular order."""
        return [s for table in (self.before, self.at_end) for found in table.values() for s in found]

    @property
    def stops(self) -> bool:
        """Whether the user wrote `breakpoint()` somewhere."""
        return any(s.stop for s in self.steps())


_trails: weakref.WeakKeyDictionary[Program, Trail] = weakref.WeakKeyDictionary()


def keep_trail(program: Program, trail: Trail) -> None:
    """Keeps a trail for as long as its program lives."""
    _trails[program] = trail


def trail_of(program: Program) -> Trail | None:
    """The trail of a program that was captured in this process."""
    return _trails.get(program)
