"""The three things that a predicted time is made of, kept apart.

*Counts* are facts: what a point does, in units of each term (vector instructions of a kind, bytes at a level, forks,
tasks), with no machine in them. *Coefficients* are seconds a unit: written by hand for a target, or fitted on a machine
by `treadle calibrate`; never negative. *Hand terms* are what a family believes beside both, dimensionless, with a
reason (`targets/*/rates.py`). A family computes with coefficients; its counts are what multiplies each of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from treadle.ir.core import Program
from treadle.plan.cost import PARTS, CostVector
from treadle.plan.facts import CallFacts
from treadle.plan.family import Family, Point


@dataclass(frozen=True)
class Term:
    """What is counted, and in which unit."""

    name: str
    unit: str


@dataclass(frozen=True)
class Coefficients:
    """Seconds a unit by term, and where they are from: `hand`, or the machine on which they were fitted."""

    seconds: Mapping[str, float]
    origin: str = "hand"

    def __post_init__(self) -> None:
        assert all(s >= 0.0 for s in self.seconds.values()), "a coefficient is never negative"


@dataclass(frozen=True)
class Counts:
    """Units of each term, by the part of the time that they make up."""

    parts: Mapping[str, Mapping[str, float]] = field(default_factory=dict[str, Mapping[str, float]])

    def priced(self, coefficients: Coefficients) -> CostVector:
        """The predicted time. *Ensures*: it is what the family says under these coefficients."""
        seconds = coefficients.seconds
        return CostVector(
            **{part: sum(units * seconds[name] for name, units in terms.items()) for part, terms in self.parts.items()}
        )

    def of(self, term: str) -> float:
        """Units of a term in all parts together."""
        return sum(terms.get(term, 0.0) for terms in self.parts.values())


def counts(
    family: Family[Any], program: Program, facts: CallFacts, point: Point, terms: Sequence[Term]
) -> Counts | None:
    """What a point does: the family's own formula, asked with one second a unit of one term and none of the others.

    *Requires*: each part of the family's cost is a sum of terms. None for a point that exceeds a resource.
    """
    parts: dict[str, dict[str, float]] = {name: {} for name in PARTS}
    for term in terms:
        alone = {other.name: float(other.name == term.name) for other in terms}
        cost = family.cost(program, replace(facts, coefficients=alone), point)
        for name, units in cost.parts.items():
            if units == float("inf"):
                return None
            if units:
                parts[name][term.name] = units
    return Counts({name: found for name, found in parts.items() if found})
