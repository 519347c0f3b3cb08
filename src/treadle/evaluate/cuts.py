"""How blocks of open size are cut, and in which order independent instances run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np

T = TypeVar("T")


class Cuts(Protocol):
    """Decides what a program's meaning must not depend on."""

    def sizes(self, name: str, extent: int) -> Sequence[int]:
        """Positive sizes of the consecutive blocks of an open argument; they add up to `extent`."""
        ...

    def shuffled(self, items: list[T]) -> list[T]:
        """The order in which independent instances run."""
        ...

    def groups(self, count: int) -> Sequence[int]:
        """Positive sizes of the groups in which `count` instances of a `reduce`, or states of a fold, are folded."""
        ...


class Even:
    """Blocks of one size (the last one shorter), instances in order."""

    def __init__(self, size: int) -> None:
        self.size = size

    def sizes(self, name: str, extent: int) -> Sequence[int]:
        full, rest = divmod(extent, self.size)
        return [self.size] * full + ([rest] if rest else [])

    def shuffled(self, items: list[T]) -> list[T]:
        return items

    def groups(self, count: int) -> Sequence[int]:
        return [count]


class Random:
    """Blocks of random sizes, a few to an argument, instances in random order; the same for the same seed."""

    def __init__(self, seed: int, most: int = 6) -> None:
        self.random = np.random.default_rng(seed)
        self.most = most

    def sizes(self, name: str, extent: int) -> Sequence[int]:
        return self._cut(extent, least=1)

    def _cut(self, extent: int, least: int) -> list[int]:
        blocks = int(self.random.integers(min(least, extent), min(self.most, extent) + 1))
        points: list[int] = sorted(self.random.permutation(extent - 1)[: blocks - 1].tolist())
        edges = [0, *(p + 1 for p in points), extent]
        return [b - a for a, b in zip(edges, edges[1:], strict=False)]

    def groups(self, count: int) -> Sequence[int]:
        # At least two, where there are two: one group alone regroups nothing.
        return self._cut(count, least=2) if count else []

    def shuffled(self, items: list[T]) -> list[T]:
        return [items[i] for i in self.random.permutation(len(items))]
