"""Scopes planned apart and put together: all points of a product of scopes, without looking at the product.

A scope's settings are joined with those of the scopes before it where both agree on the axes that both see. Of the
partial plans that later scopes cannot tell apart (the same settings on every axis that a later scope sees: one
interface) those go that another one undercuts in time and in everything that is held; partial plans of different
interfaces are never compared. So what is pruned is in no optimum, and the result is the optimum of the product.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from treadle.plan.cost import CostVector
from treadle.plan.family import Composed, Scope, Share
from treadle.planner.space import Space

Settings = tuple[tuple[str, int], ...]
"""Axes with the place of their setting, by name."""


@dataclass(frozen=True)
class Partial:
    """Decisions for the scopes so far."""

    settings: Mapping[str, int]
    cost: CostVector
    holds: Mapping[str, float]

    def undercuts(self, other: Partial) -> bool:
        """Whether it is at least as good in everything. *Requires*: both have one interface."""
        names = self.holds.keys() | other.holds.keys()
        less = all(self.holds.get(n, 0.0) <= other.holds.get(n, 0.0) for n in names)
        return less and self.cost.total <= other.cost.total


def rows(space: Space, scope: Scope) -> Iterator[tuple[Settings, Share]]:
    """What a scope adds, for every setting of its axes: the preferred first, none of infinite cost. Ends early when
    the clock does."""
    family = space.family
    assert isinstance(family, Composed)
    mine = [a for a in space.axes if a.name in scope.own or a.name in scope.seen]
    for places in product(*(range(len(a.values)) for a in mine)):
        if space.over():
            return
        space.asked += 1
        point = {a.name: a.values[i] for a, i in zip(mine, places, strict=True)}
        share = family.share(space.program, space.facts, scope, point)
        if not math.isinf(share.cost.total):
            yield tuple(zip((a.name for a in mine), places, strict=True)), share


def compose(space: Space, scopes: Sequence[Scope]) -> None:
    """Prices the best points that scopes make together, and notes that nothing undercuts the first of them; with a
    clock that ends before, nothing is noted."""
    family = space.family
    assert isinstance(family, Composed)
    limits = family.limits(space.program, space.facts)
    front: list[Partial] = [Partial({}, CostVector(), {})]
    for number, scope in enumerate(scopes):
        later = {axis for after in scopes[number + 1 :] for axis in after.seen}
        grown: dict[Settings, list[Partial]] = {}
        for settings, share in rows(space, scope):
            for before in front:
                if any(before.settings.get(name, place) != place for name, place in settings):
                    continue
                made = joined(before, dict(settings), share)
                if any(made.holds.get(name, 0.0) > most for name, most in limits.items()):
                    continue
                interface = tuple(sorted((n, p) for n, p in made.settings.items() if n in later))
                keep(grown.setdefault(interface, []), made)
        if space.over():
            return
        front = [partial for group in grown.values() for partial in group]
    for partial in sorted(front, key=lambda p: p.cost.total):
        space.price(tuple(partial.settings[a.name] for a in space.axes))
    space.whole()


def joined(before: Partial, settings: Mapping[str, int], share: Share) -> Partial:
    """A scope behind others."""
    names = before.holds.keys() | share.holds.keys()
    holds = {n: before.holds.get(n, 0.0) + share.holds.get(n, 0.0) for n in names}
    return Partial({**before.settings, **settings}, before.cost.then(share.cost), holds)


def keep(group: list[Partial], made: Partial) -> None:
    """Adds a partial plan to those of its interface, unless one of them undercuts it; those that it undercuts go."""
    if any(other.undercuts(made) for other in group):
        return
    group[:] = [other for other in group if not made.undercuts(other)]
    group.append(made)
