"""Why no point of a family runs: what the point that comes nearest takes of which resource, part by part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from treadle.plan.family import Accounted, Need, Point
from treadle.plan.pins import VersionsPin
from treadle.planner.space import Space

SHARED = "shared memory"
"""The resource whose shortage has a code of its own."""


@dataclass(frozen=True)
class Shortage:
    """A point, and the needs that exceed what there is."""

    point: Point
    needs: tuple[Need, ...]

    @property
    def shared(self) -> bool:
        """Whether shared memory is among them."""
        return any(n.resource == SHARED for n in self.needs)

    def __str__(self) -> str:
        settings = " ".join(f"{name}={value}" for name, value in self.point.items())
        return f"{settings} takes {'; '.join(map(str, self.needs))}"


def shortage(space: Space) -> Shortage | None:
    """The point nearest to what the target has, of those that meet all pins but those of versions, which are counted
    as asked for. None where the family does not account for its points, no pin leaves one, or needs are not why."""
    family = space.family
    if not isinstance(family, Accounted):
        return None
    pins = [p for p in space.pins if not isinstance(p, VersionsPin)]
    nearest: tuple[float, Shortage] | None = None
    for index in space.indices():
        point = space.point(index)
        if pins and family.refuses(space.program, space.facts, point, pins):
            continue
        needs = family.needs(space.program, space.facts, point, space.pins)
        excess = _excess(needs)
        if needs and (nearest is None or excess < nearest[0]):
            nearest = excess, Shortage(point, tuple(n for n in needs if n.total > n.limit))
    return nearest[1] if nearest is not None and nearest[1].needs else None


def _excess(needs: Sequence[Need]) -> float:
    """How often the scarcest resource would be needed, then all of them: what a smaller point has less of."""
    shares = [n.total / n.limit for n in needs]
    return max(shares, default=0.0) + 1e-3 * sum(shares)
