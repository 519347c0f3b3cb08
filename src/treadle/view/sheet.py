"""What a page is drawn from, as data: a machine program, its source, a verdict, the planner's alternatives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from treadle.machine.form import MachineProgram
from treadle.plan.cost import CostVector


@dataclass(frozen=True)
class Listing:
    """Lines of a source file; the first of them has the number `first`."""

    file: str
    first: int
    lines: tuple[str, ...]

    @property
    def last(self) -> int:
        """The number of the last line."""
        return self.first + len(self.lines) - 1


@dataclass(frozen=True)
class Opinion:
    """A verdict. `line` is one of the machine text; `source` says what the embedded program was compared with."""

    status: str
    judgement: str | None = None
    line: int | None = None
    reason: str | None = None
    counterexample: Mapping[str, int] | None = None
    missing: str | None = None
    seconds: float | None = None
    permissions: tuple[str, ...] = ()
    source: str = ""
    partner: str = ""  # the other statement of an offending pair


State = Literal["taken", "dearer", "not taken", "refused"]


@dataclass(frozen=True)
class Alternative:
    """A plan that the planner looked at, or a family that it did not admit, with the reasons."""

    family: str
    state: State
    line: str = ""
    cost: CostVector | None = None
    searched: int | None = None
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sheet:
    """All that a page shows. `extents` are representative ones; dimensions without one get a default.

    `seconds`: by stage, what making the plan took; `steps`: by which steps it came about.
    """

    machine: MachineProgram
    opinion: Opinion
    listing: Listing | None = None
    plan: str = ""
    alternatives: tuple[Alternative, ...] = ()
    extents: Mapping[str, int] = field(default_factory=dict[str, int])
    names: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    steps: tuple[str, ...] = ()
