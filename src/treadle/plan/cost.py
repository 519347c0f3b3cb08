"""What a point of a family is predicted to cost: a vector of times, and how they combine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, isinf

PARTS = ("compute", "cache", "memory", "packing", "launch", "wait")
"""What time is spent on."""


@dataclass(frozen=True)
class CostVector:
    """Predicted seconds of one call, by what they are spent on.

    `compute`: arithmetic at the atom's rate; `cache`, `memory`: traffic below and beyond the last private cache;
    `packing`: copies of operands; `launch`: fork and join, waking workers; `wait`: what one scope does not overlap
    with the next. Arithmetic overlaps with memory traffic, packing and launching do not.
    """

    compute: float = 0.0
    cache: float = 0.0
    memory: float = 0.0
    packing: float = 0.0
    launch: float = 0.0
    wait: float = 0.0

    @property
    def total(self) -> float:
        """Predicted seconds of the whole call."""
        return max(self.compute + self.cache, self.memory) + self.packing + self.launch + self.wait

    @property
    def parts(self) -> dict[str, float]:
        """Seconds by what they are spent on."""
        return {name: float(getattr(self, name)) for name in PARTS}

    @property
    def bottleneck(self) -> str:
        """The largest part."""
        return max(PARTS, key=lambda name: self.parts[name])

    def then(self, other: CostVector) -> CostVector:
        """One scope after another, which begins when the first has ended.

        *Ensures*: its total is the sum of the totals, up to rounding.
        """
        if isinf(self.total) or isinf(other.total):
            return CostVector(compute=inf)
        joined = CostVector(
            self.compute + other.compute,
            self.cache + other.cache,
            self.memory + other.memory,
            self.packing + other.packing,
            self.launch + other.launch,
            self.wait + other.wait,
        )
        idle = max(0.0, self.total + other.total - joined.total)
        return replace(joined, wait=joined.wait + idle)

    def __str__(self) -> str:
        parts = [f"{name} {seconds * 1e6:.3g}" for name, seconds in self.parts.items() if seconds > 0]
        return f"{self.total * 1e6:.3g} us ({', '.join(parts) or 'nothing to do'})"
