"""What a search proved: the optimum, how far from it at most, or nothing but that somebody has looked.

All three are about the *predicted* time over the *declared* points: how far predictions are from a clock is regret,
another number (`treadle bench regret`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Certificate:
    """`cost`: predicted seconds of the point found; `bound`: no declared point is predicted to take less; `declared`:
    how many points there are; `priced`: how many costs were asked for; `covered`: the points that something is proved
    of, because they were priced, or composed of parts that were.

    *Units*: seconds. *Ensures*: `bound <= cost`, and `covered <= declared`.
    """

    cost: float
    bound: float
    declared: int
    priced: int
    covered: int
    search: str = "enumerate"

    @property
    def kind(self) -> str:
        """`optimum`, `bound` (a gap is proved) or `incumbent` (nothing is)."""
        if self.covered == self.declared or self.cost <= self.bound:
            return "optimum"
        return "bound" if self.bound > 0.0 else "incumbent"

    @property
    def gap(self) -> float:
        """The part of the cost by which an optimum could be cheaper: 0 for one, 1 where nothing is known."""
        return 0.0 if self.kind == "optimum" or self.cost == 0.0 else 1.0 - self.bound / self.cost

    @property
    def share(self) -> float:
        """The part of the declared points that something is proved of."""
        return self.covered / self.declared if self.declared else 1.0

    def __str__(self) -> str:
        looked = f"{self.priced} priced, {self.share:.3g} of the space"
        if self.kind == "optimum":
            return f"optimum of {_points(self.declared)} ({self.search}, {self.priced} priced)"
        if self.kind == "bound":
            return f"at most {self.gap:.1%} above the optimum of {_points(self.declared)} ({self.search}, {looked})"
        return f"incumbent: nothing is proved of the rest of {_points(self.declared)} ({self.search}, {looked})"


def together(parts: Sequence[Certificate]) -> Certificate:
    """The certificate of the best of several spaces that share no point.

    *Ensures*: it is an optimum when all of them are.
    """
    best = min(parts, key=lambda c: c.cost)
    bound = min(c.cost if c.kind == "optimum" else c.bound for c in parts)
    covered = sum(c.covered for c in parts)
    return Certificate(
        best.cost,
        min(bound, best.cost),
        sum(c.declared for c in parts),
        sum(c.priced for c in parts),
        covered,
        best.search,
    )


def nothing(declared: int, priced: int, covered: int, bound: float, search: str) -> Certificate:
    """The certificate of a space in which no point was found that can run: `inf` is its cost."""
    return Certificate(math.inf, math.inf if covered == declared else bound, declared, priced, covered, search)


def _points(count: int) -> str:
    return "1 declared point" if count == 1 else f"{count:,} declared points"
