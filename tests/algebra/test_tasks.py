"""Task mappings against enumeration."""

from __future__ import annotations

import random
from collections import Counter
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.algebra.layouts import LayoutUndefined
from treadle.algebra.tasks import TaskMapping, points, repeat, spatial

factors = st.tuples(st.sampled_from((spatial, repeat)), st.integers(1, 3), st.integers(1, 3)).map(
    lambda f: f[0](f[1], f[2])
)
mappings = st.lists(factors, min_size=1, max_size=3).map(lambda fs: prod_of(fs)).filter(lambda f: prod(f.extents) <= 12)


def prod_of(parts: list[TaskMapping]) -> TaskMapping:
    out = parts[0]
    for part in parts[1:]:
        out = out * part
    return out


def defined(f: TaskMapping, g: TaskMapping, worker: int) -> list[tuple[int, ...]]:
    """The product's definition, point by point."""
    return [
        tuple(a * d + b for a, d, b in zip(t, g.extents, u, strict=True))
        for t in f(worker // g.workers)
        for u in g(worker % g.workers)
    ]


@given(mappings, mappings)
def test_product_is_its_definition(f: TaskMapping, g: TaskMapping) -> None:
    both = f * g
    assert both.workers == f.workers * g.workers
    assert all(both(w) == defined(f, g, w) for w in range(both.workers))


@given(mappings, mappings, mappings)
def test_product_is_associative(f: TaskMapping, g: TaskMapping, h: TaskMapping) -> None:
    left, right = (f * g) * h, f * (g * h)
    assert left.workers == right.workers and left.extents == right.extents
    assert all(left(w) == right(w) for w in range(left.workers))


@given(mappings)
def test_every_point_once(f: TaskMapping) -> None:
    assert Counter(p for w in range(f.workers) for p in f(w)) == Counter(points(f.extents))


def random_mapping(dice: random.Random, rank: int) -> TaskMapping:
    """One atom or two, at most six points."""
    while True:
        atoms = [dice.choice((spatial, repeat))(*(dice.choice((1, 2, 3)) for _ in range(rank))) for _ in range(2)]
        found = atoms[0] * atoms[1] if dice.random() < 0.3 else atoms[0]
        if prod(found.extents) <= 6:
            return found


def test_a_thousand_products_of_three() -> None:
    """Of one, two or three dimensions: both bracketings point by point, each point once, as defined."""
    dice = random.Random(11)
    for _ in range(1000):
        rank = dice.randint(1, 3)
        parts = [random_mapping(dice, rank) for _ in range(3)]
        f, g, h = parts
        left, right = (f * g) * h, f * (g * h)
        assert left.workers == right.workers and left.extents == right.extents
        done = [left(w) for w in range(left.workers)]
        assert done == [right(w) for w in range(right.workers)]
        assert done == [defined(f * g, h, w) for w in range(left.workers)]
        assert Counter(p for mine in done for p in mine) == Counter(points(left.extents))
        alone = spatial(*[1] * rank)
        assert all((f * alone)(w) == (alone * f)(w) == f(w) for w in range(f.workers))


def test_published_mapping() -> None:
    f = (spatial(2, 2) * repeat(3, 1)) * spatial(4, 8)
    assert (f.workers, f.extents) == (128, (24, 16))
    assert f(37) == [(0, 13), (4, 13), (8, 13)] and f(127) == [(15, 15), (19, 15), (23, 15)]
    assert (repeat(3, 1) * spatial(2, 2) * spatial(4, 8))(37) == [(0, 13), (8, 13), (16, 13)]
    assert (repeat(4, 1) * spatial(16, 8))(9) == [(1, 1), (17, 1), (33, 1), (49, 1)]


@pytest.mark.parametrize("wrong", [lambda: spatial(2) * spatial(2, 2), lambda: spatial(2)(2), lambda: repeat(0)])
def test_refusals(wrong: object) -> None:
    with pytest.raises(LayoutUndefined):
        wrong()
