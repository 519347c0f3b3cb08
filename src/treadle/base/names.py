"""Fresh names: the wanted word where it is free, else the word with the smallest free number behind it."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NUMBERED = re.compile(r"^(.*?)_(\d+)$")


class Names:
    """Hands out names that have not been handed out before; the same requests give the same names."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken: set[str] = set(taken)
        self._next: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._taken

    def fresh(self, want: str = "v") -> str:
        """A free name that reads like `want`: `acc`, then `acc_1`, `acc_2`."""
        if want not in self._taken:
            self._taken.add(want)
            return want
        numbered = _NUMBERED.match(want)
        stem = numbered.group(1) if numbered else want
        number = self._next.get(stem, 1)
        while f"{stem}_{number}" in self._taken:
            number += 1
        self._next[stem] = number + 1
        name = f"{stem}_{number}"
        self._taken.add(name)
        return name

    def fork(self) -> Names:
        """An independent copy: names taken here are taken there, later ones are not."""
        other = Names(self._taken)
        other._next = dict(self._next)
        return other


def identifier(text: str, default: str = "v") -> str:
    """`text` made a valid ASCII identifier of C, LLVM and Python alike; `default` where nothing is left of it."""
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")
    if not name:
        return default
    return f"_{name}" if name[0].isdigit() else name
