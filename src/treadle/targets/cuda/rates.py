"""What the CUDA cost model believes of a GPU: how many multiprocessors (a fact), and coefficients: what a unit takes.

*Units*: per second, bytes, seconds. *Source*: measurements on one H200 (docs/decisions/0001-hand-experiments.md and the
facts behind it); the sm_80 row scales them by the published counts. Hand terms (cycles that a handover takes, say)
stand beside the formulas that use them. Only ratios between candidates matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from math import inf

from treadle.hardware.targets import TARGETS, Target
from treadle.plan.coefficients import Coefficients, Term
from treadle.plan.facts import CallFacts

TERMS = (
    Term("simple", "simple instructions, in cycles of a multiprocessor"),
    Term("product", "16-bit products in the tensor cores, in cycles of a multiprocessor"),
    Term("memory", "bytes from memory"),
    Term("cache", "bytes from the second cache"),
    Term("launch", "launches"),
    Term("latency", "waits for the first data of a row"),
    Term("exchange", "exchanges between the warps of a row"),
)
"""What calibration fits. The clock is taken as it is: cycles and it cannot be told apart."""

FOLLOWS = 2.6e-6
"""Seconds that a launch takes which begins while the one before it ends: until its first data have come (measured on
products in 2 to 33 parts, benchmarks/results/2026-11-30-split.json)."""


@dataclass(frozen=True)
class Rates:
    """One GPU. `clock`: cycles a second; `lanes`: simple instructions a cycle and multiprocessor; `products`: 16-bit
    products a cycle and multiprocessor in the tensor cores; `memory`, `cache`: bytes a second; `engines`: whether it
    has copy engines that a phased barrier waits for."""

    processors: int
    clock: float
    lanes: float
    products: float
    memory: float
    cache: float
    launch: float = 2.5e-6
    latency: float = 1.0e-6
    exchange: float = 0.15e-6
    engines: bool = False


SM_90A = Rates(132, 1.75e9, 116.0, 2048.0, 4.3e12, 6.5e12, engines=True)
SM_80 = Rates(108, 1.41e9, 116.0, 1024.0, 1.4e12, 3.5e12)


def rates(facts: CallFacts) -> Rates:
    """The row for a call's target; a feature `processors=N` tells another count of multiprocessors."""
    row = SM_90A if facts.target.endswith("sm_90a") else SM_80
    for feature in facts.features:
        if feature.startswith("processors="):
            row = replace(row, processors=int(feature[11:]))
    return measured(row, facts.coefficients) if facts.coefficients else row


PER_UNIT = {"simple": "lanes", "product": "products", "memory": "memory", "cache": "cache"}
"""Terms that `Rates` has as units a second, or a cycle, by their names there."""


def measured(row: Rates, units: Mapping[str, float]) -> Rates:
    """A row with other coefficients; what they leave out stays."""
    changed = {f.name: getattr(row, f.name) for f in fields(row)}
    for term, one in units.items():
        if term in PER_UNIT:
            changed[PER_UNIT[term]] = 1.0 / one if one > 0 else inf
        elif term in changed:
            changed[term] = one
    return Rates(**changed)


def coefficients(facts: CallFacts) -> Coefficients:
    """The coefficients of `rates(facts)`. *Ensures*: `measured(rates(facts), coefficients(facts)) == rates(facts)`."""
    row = rates(facts)
    per_unit = {term: 1.0 / float(getattr(row, name)) for term, name in PER_UNIT.items()}
    rest = {"launch": row.launch, "latency": row.latency, "exchange": row.exchange}
    return Coefficients({**per_unit, **rest}, "measured" if facts.coefficients else "hand")


def target(facts: CallFacts) -> Target:
    """The capacities of a call's target."""
    return TARGETS[facts.target]
