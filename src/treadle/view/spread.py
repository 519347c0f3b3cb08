"""Where the elements of a fragment are: which warp, lane and slot holds an element, and which elements a thread has."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from treadle.machine.form import Frag, Mode

WARP = 32


@dataclass(frozen=True)
class Owner:
    """A holder of an element. Digits of replicas are left out: an element with replicas has several owners."""

    warp: int
    lane: int
    slot: int

    @property
    def thread(self) -> int:
        """The thread of the agent."""
        return self.warp * WARP + self.lane


def places(modes: Sequence[Mode], rank: int) -> Iterator[tuple[Owner, tuple[int, ...]]]:
    """Every combination of digits: who it is, and the element that it holds.

    *Ensures*: a digit of a kind counts in units of all less significant digits of its kind; the coordinate along an
    axis is the sum of digit times stride over the axis's digits.
    """
    sizes = [m.size for m in modes]
    for number in range(math.prod(sizes)):
        numbers = {"slot": 0, "lane": 0, "warp": 0, "replica": 0}
        radix = dict.fromkeys(numbers, 1)
        coords = [0] * rank
        for mode in modes:
            number, digit = divmod(number, mode.size)
            numbers[mode.who] += digit * radix[mode.who]
            radix[mode.who] *= mode.size
            if mode.axis is not None:
                coords[mode.axis] += digit * mode.stride
        yield Owner(numbers["warp"], numbers["lane"], numbers["slot"]), tuple(coords)


def owners(frag: Frag) -> dict[tuple[int, ...], list[Owner]]:
    """Element -> all that hold it, for a fragment with a distribution; elements outside the shape are left out."""
    found: dict[tuple[int, ...], list[Owner]] = {}
    for owner, coords in places(frag.dist, len(frag.shape)):
        if all(c < n for c, n in zip(coords, frag.shape)):
            held = found.setdefault(coords, [])
            if owner not in held:
                held.append(owner)
    return found


def replicas(frag: Frag) -> int:
    """How many threads hold each element."""
    return math.prod(m.size for m in frag.dist if m.axis is None and m.who in ("lane", "warp"))


def threads(frag: Frag) -> tuple[int, int]:
    """Warps and lanes over which the fragment is spread."""
    return _count(frag, "warp"), _count(frag, "lane")


def _count(frag: Frag, who: str) -> int:
    return math.prod(m.size for m in frag.dist if m.who == who)


def digit_text(mode: Mode) -> str:
    """A digit in words."""
    where = "replicas" if mode.axis is None else f"axis {mode.axis} by {mode.stride}"
    return f"{mode.who} {mode.size}: {where}"
