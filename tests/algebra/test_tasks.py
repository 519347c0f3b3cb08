"""Task mappings and placements against enumeration."""

from __future__ import annotations

from collections import Counter
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.algebra.layouts import LayoutUndefined
from treadle.algebra.tasks import Placement, TaskMapping, points, repeat, spatial

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


digits = st.tuples(st.integers(1, 4), st.integers(0, 6), st.sampled_from(("lane", "warp", "m")))
placements = st.builds(
    Placement,
    st.lists(digits, min_size=1, max_size=3).map(tuple),
    st.lists(digits, max_size=2).map(tuple),
    st.dictionaries(st.sampled_from(("lane", "warp")), st.integers(0, 5), max_size=2),
)


def test_published_placement() -> None:
    p = Placement(((8, 4, "lane"), (2, 1, "warp"), (4, 1, "lane"), (2, 1, "m")), ((2, 4, "warp"),), {"warp": 5})
    assert {tuple(n for _, n in place) for place in p.places(3 * 16 + 13)} == {(14, 1, 6), (14, 1, 10)}


@given(placements)
def test_inverse_is_set_valued_and_exact(p: Placement) -> None:
    holders = p.holders()
    assert all(x in holders[place] for x in range(p.size) for place in p.places(x))
    assert sum(map(len, holders.values())) == sum(len(p.places(x)) for x in range(p.size))


def bare(place: tuple[tuple[str, int], ...]) -> dict[str, int]:
    """A place without the axes at which it is 0."""
    return {axis: n for axis, n in place if n}


@given(placements)
def test_canonical(p: Placement) -> None:
    short = p.canonical()
    assert short.size == p.size or prod(e for e, _, _ in short.shard) == p.size
    for x in range(p.size):
        assert sorted(map(bare, short.places(x)), key=str) == sorted(map(bare, p.places(x)), key=str)
    assert short.canonical() == short


@given(placements, placements)
def test_tiled(outer: Placement, inner: Placement) -> None:
    both = outer.tiled(inner)
    assert both.size == outer.size * inner.size
    for i in range(outer.size):
        for j in range(inner.size):
            want = {
                tuple(sorted((a, n) for a, n in added(outer, inner, dict(p), dict(q)).items() if n))
                for p in outer.places(i)
                for q in inner.places(j)
            }
            assert {tuple(sorted(bare(p).items())) for p in both.places(i * inner.size + j)} == want


def added(outer: Placement, inner: Placement, p: dict[str, int], q: dict[str, int]) -> dict[str, int]:
    """A place of the outer tile, scaled by the inner span, and a place of the inner tile."""
    return {a: p.get(a, 0) * inner.span(a) + q.get(a, 0) for a in {*p, *q}}
