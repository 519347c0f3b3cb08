"""Programs whose storage is an order: the slow and the fast form differ in that order only, compute the same, and what
the fast one is for (neighbours side by side, few bricks, whole blocks) is counted."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction
from itertools import product

import pytest

from treadle.algebra.orders import Order, Permuted, antidiagonal, tiled
from treadle.algebra.tasks import Point, points

BANKS = 32


class Stored:
    """An array behind an order, which keeps the positions that were used since `turn`."""

    def __init__(self, order: Order) -> None:
        self.order, self.cells = order, [Fraction(0)] * order.size
        self.used: set[int] = set()

    def __getitem__(self, point: Point) -> Fraction:
        self.used.add(self.order.apply(point))
        return self.cells[self.order.apply(point)]

    def __setitem__(self, point: Point, value: Fraction | int) -> None:
        self.used.add(self.order.apply(point))
        self.cells[self.order.apply(point)] = Fraction(value)

    def turn(self) -> set[int]:
        """The positions used, and a new list."""
        used, self.used = self.used, set()
        return used

    def plain(self) -> list[Fraction]:
        """The array, row-major."""
        return [self.cells[self.order.apply(p)] for p in points(self.order.extents)]


def rows(*extents: int) -> Order:
    return Permuted(extents, tuple(range(len(extents))))


def alignment(order: Order, a: str, b: str) -> tuple[list[Fraction], int]:
    """Scores of aligning two strings, diagonal by diagonal; the most words that one writes to a bank."""
    score = Stored(order)
    height, width = order.extents
    worst = 0
    for d in range(height + width - 1):
        written: list[int] = []
        for i in range(max(0, d - width + 1), min(d, height - 1) + 1):
            j = d - i
            if i and j:
                match = score[i - 1, j - 1] + (1 if a[i - 1] == b[j - 1] else -1)
                score[i, j] = max(match, score[i - 1, j] - 2, score[i, j - 1] - 2)
            else:
                score[i, j] = -2 * d
            written.append(order.apply((i, j)))
        worst = max(worst, *(sum(1 for at in written if at % BANKS == bank) for bank in range(BANKS)))
    return score.plain(), worst


def aligned(a: str, b: str) -> list[Fraction]:
    """The same scores, row by row."""
    table = [[-2 * j for j in range(len(b) + 1)]]
    for i, x in enumerate(a, 1):
        line = [-2 * i]
        for j, y in enumerate(b, 1):
            line.append(max(table[-1][j - 1] + (1 if x == y else -1), table[-1][j] - 2, line[-1] - 2))
        table.append(line)
    return [Fraction(x) for line in table for x in line]


@pytest.mark.parametrize("height, width, conflicts", [(16, 16, 1), (17, 23, 1), (33, 33, 2)])
def test_alignment_on_antidiagonals_meets_no_bank_twice(height: int, width: int, conflicts: int) -> None:
    """A diagonal of at most 32 cells lies on as many banks; rows of 33 put a whole diagonal on one bank."""
    dice = random.Random(3)
    a, b = ("".join(dice.choice("ACGT") for _ in range(n - 1)) for n in (height, width))
    slow, fast = alignment(rows(height, width), a, b), alignment(antidiagonal(height, width), a, b)
    assert slow[0] == fast[0] == aligned(a, b)
    assert fast[1] == conflicts and slow[1] >= fast[1]
    if height == 33:
        assert slow[1] == BANKS + 1


def stencil(order: Order, radius: int) -> tuple[list[Fraction], int]:
    """Sums along the axes around the points of an 8x8x8 corner-to-corner block; the blocks of 64 positions it reads."""
    source, target = Stored(order), Stored(order)
    for k, p in enumerate(points(order.extents)):
        source[p] = k * k % 101
    source.turn()
    block = list(product(range(8, 16), repeat=3))
    for p in block:
        total = source[p]
        for axis, step in product(range(3), range(-radius, radius + 1)):
            total += source[tuple(x + step * (i == axis) for i, x in enumerate(p))] if step else 0
        target[p] = total
    return target.plain(), len({at // 64 for at in source.turn()})


@pytest.mark.parametrize("radius", [1, 2, 3, 4])
def test_stencils_read_fewer_pieces_of_bricks(radius: int) -> None:
    """A block of 8x8x8 and what is around it, out of 24x24x24 points."""
    bricks = tiled([(3, 3, 3), (8, 8, 8)])
    slow, fast = stencil(rows(24, 24, 24), radius), stencil(bricks, radius)
    assert slow[0] == fast[0] and fast[1] < slow[1]
    at = {p: k * k % 101 for k, p in enumerate(product(range(24), repeat=3))}
    around = [(i, s) for i in range(3) for s in range(-radius, radius + 1) if s]
    for p in product(range(8, 16), repeat=3):
        want = at[p] + sum(at[tuple(x + s * (i == k) for k, x in enumerate(p))] for i, s in around)
        assert fast[0][(p[0] * 24 + p[1]) * 24 + p[2]] == want


def factorised(order: Order, entries: Callable[[int, int], int], block: int) -> tuple[list[Fraction], int]:
    """L and U in place, block by block; the largest stretch of memory that an update of one block writes."""
    a = Stored(order)
    n = order.extents[0]
    for i, j in points((n, n)):
        a[i, j] = entries(i, j)
    stretch = 0
    for first in range(0, n, block):
        last = first + block
        for k in range(first, last):
            for i in range(k + 1, n):
                a[i, k] = a[i, k] / a[k, k]
                for j in range(k + 1, last):
                    a[i, j] = a[i, j] - a[i, k] * a[k, j]
        for j in range(last, n):
            for i in range(first, last):
                for k in range(first, i):
                    a[i, j] = a[i, j] - a[i, k] * a[k, j]
        for top, left in product(range(last, n, block), repeat=2):
            written: set[int] = set()
            for i, j in product(range(top, top + block), range(left, left + block)):
                a[i, j] = a[i, j] - sum(a[i, k] * a[k, j] for k in range(first, last))
                written.add(order.apply((i, j)))
            stretch = max(stretch, max(written) - min(written) + 1)
    return a.plain(), stretch


def test_blocks_of_a_factorisation_lie_in_one_piece() -> None:
    def entries(i: int, j: int) -> int:
        return 20 if i == j else (i * 7 + j * 3) % 5

    n, block = 12, 4
    slow, fast = factorised(rows(n, n), entries, block), factorised(tiled([(3, 3), (4, 4)]), entries, block)
    assert slow[0] == fast[0] and (slow[1], fast[1]) == (3 * n + block, block * block)
    for i, j in points((n, n)):
        lower = [fast[0][i * n + k] if k < i else Fraction(k == i) for k in range(n)]
        assert sum(lower[k] * fast[0][k * n + j] for k in range(j + 1)) == entries(i, j)
