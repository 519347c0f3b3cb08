"""What a point of a family is predicted to cost: a vector of times, and how they combine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CostVector:
    """Predicted seconds of one call, by what they are spent on.

    `compute`: arithmetic at the atom's rate; `cache`, `memory`: traffic below and beyond the last private cache;
    `packing`: copies of operands; `launch`: fork and join, waking workers. Arithmetic overlaps with memory traffic,
    packing and launching do not.
    """

    compute: float = 0.0
    cache: float = 0.0
    memory: float = 0.0
    packing: float = 0.0
    launch: float = 0.0

    @property
    def total(self) -> float:
        """Predicted seconds of the whole call."""
        return max(self.compute + self.cache, self.memory) + self.packing + self.launch

    @property
    def bottleneck(self) -> str:
        """The largest part."""
        parts = {
            "compute": self.compute,
            "cache": self.cache,
            "memory": self.memory,
            "packing": self.packing,
            "launch": self.launch,
        }
        return max(parts, key=lambda name: parts[name])

    def __str__(self) -> str:
        names = ("compute", "cache", "memory", "packing", "launch")
        parts = [f"{name} {getattr(self, name) * 1e6:.3g}" for name in names if getattr(self, name) > 0]
        return f"{self.total * 1e6:.3g} us ({', '.join(parts) or 'nothing to do'})"
