"""Searches that look at some points: a beam over the axes, and annealing. Neither proves anything by itself.

A space that is no larger than what a search would look at is walked whole instead, which proves its optimum.
"""

from __future__ import annotations

import math
import random

from treadle.planner.space import Index, Space

WIDTH = 8
"""Partial points that a beam keeps."""

STEPS = 600
"""Steps of an annealing."""

HOT, COLD = 0.5, 0.005
"""What annealing takes for a small difference, as a part of the time: at its first step, at its last."""


def walk_all(space: Space) -> None:
    """Prices every point, until the clock ends."""
    for index in space.indices():
        if space.over():
            return
        space.price(index)


def beam(space: Space, width: int = WIDTH) -> None:
    """Decides one axis after the other, those of most settings first, with the others at their preferred setting; the
    `width` best partial points are kept."""
    if space.size <= max(1, width * sum(len(a.values) for a in space.axes)):
        walk_all(space)
        return
    order = sorted(range(len(space.axes)), key=lambda n: -len(space.axes[n].values))
    kept: list[Index] = [(0,) * len(space.axes)]
    for axis in order:
        # Partial points that differ on an axis to come are the same point so far.
        grown = {_with(index, axis, i) for index in kept for i in range(len(space.axes[axis].values))}
        priced: list[tuple[float, Index]] = []
        for index in sorted(grown):
            if space.over():
                return
            priced.append((space.price(index), index))
        kept = [index for _, index in sorted(priced)[:width]]


def anneal(space: Space, steps: int = STEPS, seed: int = 0) -> None:
    """Changes one axis at a time; worse points are taken as long as it is hot. *Ensures*: one seed, one answer."""
    if space.size <= steps:
        walk_all(space)
        return
    chance = random.Random(seed)
    free = [n for n, a in enumerate(space.axes) if len(a.values) > 1]
    here: Index = (0,) * len(space.axes)
    price = space.price(here)
    for step in range(steps):
        if space.over():
            return
        axis = chance.choice(free)
        others = [i for i in range(len(space.axes[axis].values)) if i != here[axis]]
        there = _with(here, axis, chance.choice(others))
        new = space.price(there)
        heat = HOT * (COLD / HOT) ** (step / steps)
        # Where nothing can run yet every step is as good as another.
        worse = math.log(new / price) if 0.0 < price < math.inf and 0.0 < new < math.inf else 0.0
        if new <= price or (new < math.inf and chance.random() < math.exp(-worse / heat)):
            here, price = there, new


def _with(index: Index, axis: int, place: int) -> Index:
    return (*index[:axis], place, *index[axis + 1 :])
