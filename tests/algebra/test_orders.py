"""Orders applied and inverted: chains, tiles, anti-diagonals, bricks; a wrong inverse is found out."""

from __future__ import annotations

import random

import pytest

from treadle.algebra.expr import const, sym
from treadle.algebra.layouts import LayoutUndefined
from treadle.algebra.orders import (
    LIMIT,
    General,
    Grouped,
    Nested,
    Order,
    Permuted,
    antidiagonal,
    flatten,
    tiled,
    unflatten,
)
from treadle.algebra.sets import Facts
from treadle.algebra.tasks import points


def check(order: Order) -> None:
    """A bijection, both ways round."""
    positions = [order.apply(p) for p in points(order.extents)]
    assert sorted(positions) == list(range(order.size))
    assert all(order.inverse(x) == p for p, x in zip(points(order.extents), positions, strict=True))


def test_random_chains() -> None:
    dice = random.Random(1)
    for _ in range(60):
        rank = dice.randint(1, 4)
        extents = tuple(dice.choice((1, 2, 3, 4, 8)) for _ in range(rank))
        chain: list[Order] = []
        for _ in range(dice.randint(0, 3)):
            turned = list(extents)
            dice.shuffle(turned)
            first, rest = tuple(turned[:1]), tuple(turned[1:])
            parts: list[Order] = [Permuted(first, (0,))]
            if rest:
                parts.append(Permuted(rest, tuple(dice.sample(range(len(rest)), len(rest)))))
            chain.append(Nested(tuple(parts)))
        check(Grouped(extents, tuple(chain)))


def test_nested_orders_count_part_by_part() -> None:
    order = Nested((Permuted((2,), (0,)), Permuted((3, 4), (1, 0))))
    assert order.extents == (2, 3, 4) and order.apply((1, 2, 3)) == 12 + 3 * 3 + 2
    check(order)


def test_tiles_of_tiles() -> None:
    order = tiled([(2, 3), (4, 2)])
    assert order.extents == (8, 6)
    assert order.apply((0, 0)) == 0 and order.apply((0, 1)) == 1 and order.apply((1, 0)) == 2
    assert order.apply((0, 2)) == 8 and order.apply((4, 0)) == 24
    check(order)
    check(tiled([(2, 2, 2), (8, 8, 8)]))  # bricks of a stencil in three dimensions
    check(tiled([(2, 3), (4, 2)], order=(1, 0, 3, 2)))


@pytest.mark.parametrize("rows, columns", [(16, 16), (17, 23), (1, 5), (5, 1)])
def test_antidiagonals(rows: int, columns: int) -> None:
    order = antidiagonal(rows, columns)
    check(order)
    diagonals = [sum(order.inverse(x)) for x in range(order.size)]
    assert diagonals == sorted(diagonals)
    # neighbours of a diagonal, which may be computed at once, lie side by side: positions differ by one
    assert all(
        order.apply((i + 1, j - 1)) == order.apply((i, j)) + 1 for i in range(rows - 1) for j in range(1, columns)
    )


def test_a_wrong_inverse_is_found() -> None:
    right = General((4, 4), lambda p: p[0] * 4 + p[1], lambda x: (x // 4, x % 4))
    check(right)
    for forwards, backwards in (
        (lambda p: p[0] * 4 + p[1], lambda x: (x % 4, x // 4)),
        (lambda p: p[0] * 4 + p[1] // 2, lambda x: (x // 4, x % 4)),
        (lambda p: p[0] * 4 + p[1] + 1, lambda x: (x // 4, x % 4)),
    ):
        with pytest.raises(LayoutUndefined):
            General((4, 4), forwards, backwards)
    with pytest.raises(LayoutUndefined, match="taking"):
        General((LIMIT + 1,), lambda p: p[0], lambda x: (x,))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Permuted((2, 3), (0, 0)),
        lambda: Grouped((4, 4), (Permuted((3, 5), (0, 1)),)),
        lambda: tiled([(2, 2), (2,)]),
        lambda: tiled([(2, 2)], order=(0, 0)),
    ],
)
def test_refusals(make) -> None:
    with pytest.raises(LayoutUndefined):
        make()


def test_quotient_and_remainder_are_the_index_again() -> None:
    """`(x // n) * n + x % n` is x for every n; a flat position of a tiled grid has no division that facts can spare."""
    x, n, m = sym("x"), sym("N"), sym("M")
    assert (x // n) * n + x % n == x
    extents = (4, 8)
    assert all(flatten(unflatten(i, extents), extents) == i for i in range(32))
    facts = Facts([])
    inside = facts.also()
    assert not inside.equal((x + 1) // 4, x // 4)
    # with the fact that a row has whole tiles the division goes, without it it stays
    assert ((4 * m * const(1)) // 4) == m and "//" in str((m + x) // 4)
