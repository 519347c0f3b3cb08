"""Atomic updates of memory: a read, a merge and a write of each element, which nobody can come between."""

from __future__ import annotations

import numpy as np

from treadle.machine.vocabulary import EFFECTS
from treadle.simulate import arithmetic
from treadle.simulate.clocks import Strand
from treadle.simulate.memory import ATOMIC, DEFINED, Array, Index, View
from treadle.simulate.world import World


def update(
    world: World, view: View, index: Index, given: tuple[Array, Array], effect: str, strand: Strand, line: int
) -> Array:
    """Merges values (`given`: they and their states) into elements one by one; what the elements held before."""
    values, states = given
    view.check_bounds(index, line)
    if effect not in EFFECTS or effect == "set":
        raise world.findings.fatal("form", line, f"no effect {effect}")
    found = np.zeros(len(values), view.array.dtype)
    for i in range(len(values)):
        at = tuple(c[i : i + 1] for c in index)
        old = np.atleast_1d(view.array[at] if at else view.array.reshape(1).copy())
        found[i : i + 1] = old
        if (view.states(at) != DEFINED).any():
            world.findings.add("unwritten", line, f"{effect} to an element of {view.name} that holds no value")
        new = arithmetic.merge(effect, view.dtype, old, values[i : i + 1], "propagate")
        view.write(at, new, states[i : i + 1], strand, line, ATOMIC)
    return found
