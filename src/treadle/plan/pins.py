"""Pins: constraints that an author puts on the planner's choices, by source names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from treadle.base.errors import LimitError


@dataclass(frozen=True)
class TilePin:
    """`td.tile(m=128, n=256)`: block sizes by the name of a region argument (or `region.argument`)."""

    sizes: Mapping[str, int]

    def __str__(self) -> str:
        return f"tile({', '.join(f'{k}={v}' for k, v in self.sizes.items())})"


@dataclass(frozen=True)
class PlacePin:
    """`td.place("acc", "register")`: where a value lives."""

    value: str
    place: str

    def __str__(self) -> str:
        return f"place({self.value}, {self.place})"


@dataclass(frozen=True)
class AtomPin:
    """`td.atom("acc", "amx")`: the instruction that contracts into a value."""

    value: str
    atom: str

    def __str__(self) -> str:
        return f"atom({self.value}, {self.atom})"


@dataclass(frozen=True)
class VersionsPin:
    """`td.versions("X", 4)`: how many copies of a tensor's blocks are in flight."""

    tensor: str
    count: int

    def __str__(self) -> str:
        return f"versions({self.tensor}, {self.count})"


Pin = TilePin | PlacePin | AtomPin | VersionsPin


def tile(**sizes: int) -> TilePin:
    """Block sizes by the name of a region's argument."""
    return TilePin(dict(sizes))


def place(value: str, where: str) -> PlacePin:
    """A value's memory: "register", "local", "shared", "workspace"."""
    return PlacePin(value, where)


def atom(value: str, name: str) -> AtomPin:
    """The instruction that contracts into a value."""
    return AtomPin(value, name)


def versions(tensor: str, count: int) -> VersionsPin:
    """Copies of a tensor's blocks in flight."""
    return VersionsPin(tensor, count)


class PinRefused(LimitError):
    """A constraint that no family can meet."""

    code = "plan/pin-refused"


class SharedExceeded(LimitError):
    """Whatever meets the constraints needs more shared memory than the target has."""

    code = "plan/shared-exceeded"


class NoPlan(LimitError):
    """No family admits the program under these facts."""

    code = "plan/none"


_NUMBER = re.compile(r"\d+(?=, not (\d+)$)")
_SHOWN = 12


def in_short(reasons: Sequence[str]) -> list[str]:
    """Reasons that differ only in a number before the wanted one (`..., not 64`) as one: all the numbers, of many the
    nearest."""
    numbers: dict[str, list[int]] = {}
    for reason in reasons:
        found = _NUMBER.search(reason)
        key = reason if found is None else f"{reason[: found.start()]}{{}}{reason[found.end() :]}"
        numbers.setdefault(key, []).extend([] if found is None else [int(found[0])])
    out: list[str] = []
    for key, tried in numbers.items():
        if not tried:
            out.append(key)
            continue
        wanted = int(key.rpartition(" ")[2])
        near = sorted(dict.fromkeys(tried), key=lambda n: (abs(n - wanted), n))
        more = len(near) - _SHOWN
        names = [*map(str, sorted(near[:_SHOWN])), *([f"{more} other sizes"] if more > 0 else [])]
        text = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
        out.append(key.format(text))
    return out
