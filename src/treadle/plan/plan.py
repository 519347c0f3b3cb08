"""A plan: the decisions for one program, small, readable, saved as JSON with the same bytes every time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from treadle.algebra.expr_text import parse_constraint, parse_expr
from treadle.base.errors import UserError
from treadle.ir.guard import Absent, Aligned, Bound, Disjoint, Divisible, Fact, Guard, Injective, Pitch, Same, Unit
from treadle.plan.cost import CostVector
from treadle.plan.family import Setting

FORMAT = (1, 1)
"""Version of the saved form: a newer minor one loads, a newer major one does not."""


class PlanUnreadable(UserError):
    """A saved plan that cannot be read."""

    code = "plan/unreadable"


@dataclass(frozen=True)
class Plan:
    """Decisions: the family, its point, the guard under which it holds. `workers`, `features` belong to the target.

    `extents`, `unit` and `aligned` are what was known of the call that it was made for (`plan.facts`): families decide
    by them what no point says, such as how often a loop is cut.
    """

    program: str
    target: str
    family: str
    point: Mapping[str, Setting]
    guard: Guard
    workers: int = 1
    features: frozenset[str] = frozenset()
    extents: Mapping[str, int] = field(default_factory=dict[str, int])
    unit: frozenset[tuple[str, int]] = frozenset()
    aligned: Mapping[str, int] = field(default_factory=dict[str, int])
    cost: CostVector | None = field(default=None, compare=False)

    def line(self) -> str:
        """The decisions in one line."""
        settings = " ".join(f"{name}={value}" for name, value in self.point.items())
        return f"{self.program} on {self.target}: {self.family} {settings}".rstrip()

    def __str__(self) -> str:
        return self.line()

    def to_json(self) -> str:
        """The saved form.

        *Ensures*: `Plan.from_json(p.to_json()) == p`, and equal plans have equal text.
        """
        data = {
            "format": list(FORMAT),
            "program": self.program,
            "target": self.target,
            "family": self.family,
            "point": dict(self.point),
            "workers": self.workers,
            "features": sorted(self.features),
            "guard": guard_out(self.guard),
            "extents": dict(sorted(self.extents.items())),
            "unit": sorted(map(list, self.unit)),
            "aligned": dict(sorted(self.aligned.items())),
        }
        return json.dumps(data, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """The plan that was saved. *Errors*: `plan/unreadable`."""
        try:
            data = cast(dict[str, Any], json.loads(text))
            if data["format"][0] != FORMAT[0]:
                raise _unreadable(f"format {'.'.join(map(str, data['format']))}")
            return cls(
                program=str(data["program"]),
                target=str(data["target"]),
                family=str(data["family"]),
                point=dict(data["point"]),
                guard=guard_in(data["guard"]),
                workers=int(data["workers"]),
                features=frozenset(map(str, data["features"])),
                extents={str(n): int(e) for n, e in data.get("extents", {}).items()},  # not in format 1.0
                unit=frozenset((str(t), int(axis)) for t, axis in data.get("unit", [])),
                aligned={str(t): int(n) for t, n in data.get("aligned", {}).items()},
            )
        except PlanUnreadable:
            raise
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            RecursionError,
            TypeError,
            ValueError,
            UserError,
        ) as error:
            raise _unreadable(str(error).splitlines()[0]) from error


def _unreadable(found: str) -> PlanUnreadable:
    return PlanUnreadable(
        doing="loading a plan",
        found=found,
        expected=f"a plan saved by this version, format {FORMAT[0]}.x",
        hint="plan the kernel again and save it",
    )


def guard_out(guard: Guard) -> list[list[str | int]]:
    """A guard as JSON data."""
    return [_fact_out(f) for f in guard.facts]


def guard_in(data: list[list[Any]]) -> Guard:
    """The guard of `guard_out`. *Ensures*: `guard_in(guard_out(g)) == g`. *Errors*: `ValueError` for other data."""
    return Guard(tuple(_fact_in(f) for f in data))


def _fact_out(fact: Fact) -> list[str | int]:
    match fact:
        case Divisible(expr, by):
            return ["divisible", str(expr), by]
        case Bound(constraint):
            return ["bound", str(constraint)]
        case Aligned(tensor, size):
            return ["align", tensor, size]
        case Pitch(tensor, axis, by):
            return ["pitch", tensor, axis, by]
        case Unit(tensor, axis):
            return ["unit", tensor, axis]
        case Disjoint(first, second):
            return ["disjoint", first, second]
        case Same(first, second):
            return ["same", first, second]
        case Injective(tensor):
            return ["injective", tensor]
        case Absent(tensor):
            return ["absent", tensor]


def _fact_in(words: list[Any]) -> Fact:
    match words:
        case ["divisible", str(expr), int(by)]:
            return Divisible(parse_expr(expr), by)
        case ["bound", str(text)]:
            return Bound(parse_constraint(text))
        case ["align", str(tensor), int(size)]:
            return Aligned(tensor, size)
        case ["pitch", str(tensor), int(axis), int(by)]:
            return Pitch(tensor, axis, by)
        case ["unit", str(tensor), int(axis)]:
            return Unit(tensor, axis)
        case ["disjoint", str(first), str(second)]:
            return Disjoint(first, second)
        case ["same", str(first), str(second)]:
            return Same(first, second)
        case ["injective", str(tensor)]:
            return Injective(tensor)
        case ["absent", str(tensor)]:
            return Absent(tensor)
        case _:
            raise ValueError(f"a fact {words}")
