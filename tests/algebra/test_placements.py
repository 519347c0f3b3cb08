"""Placements: one form for one map, and every operation against its equation, over a thousand random ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from math import prod

import pytest

from treadle.algebra.layouts import LayoutUndefined
from treadle.algebra.placements import Digit, Place, Placement

AXES = ("lane", "warp", "m")
Said = tuple[frozenset[Place], ...]


def random_digits(dice: random.Random, most: int, extent: int) -> tuple[Digit, ...]:
    """Digits of small extents; strides may be 0 and count down."""
    return tuple(
        (dice.randint(1, extent), dice.choice((-2, -1, 0, 0, 1, 1, 2, 2, 3, 4, 4, 6, 8)), dice.choice(AXES))
        for _ in range(dice.randint(0, most))
    )


def random_placement(dice: random.Random, most: int = 3, extent: int = 4) -> Placement:
    offset = {axis: dice.randint(-1, 3) for axis in AXES if dice.random() < 0.3}
    return Placement(random_digits(dice, most, extent), random_digits(dice, 2, 3), offset)


def a_thousand(seed: int) -> Iterator[tuple[random.Random, Placement]]:
    dice = random.Random(seed)
    for _ in range(1000):
        yield dice, random_placement(dice)


def bare(places: frozenset[Place]) -> frozenset[Place]:
    """Places without the axes at which they are 0."""
    return frozenset(tuple((axis, n) for axis, n in place if n) for place in places)


def said(p: Placement) -> Said:
    """The map, element by element."""
    return tuple(bare(p.places(x)) for x in range(p.size))


def added(a: frozenset[Place], b: frozenset[Place], scale: Callable[[str], int] = lambda _: 1) -> frozenset[Place]:
    """All sums of a place, scaled, and another."""
    found: set[Place] = set()
    for p in a:
        for q in b:
            x, y = dict(p), dict(q)
            sums = {axis: x.get(axis, 0) * scale(axis) + y.get(axis, 0) for axis in {**x, **y}}
            found.add(tuple(sorted((axis, n) for axis, n in sums.items() if n)))
    return frozenset(found)


def test_published_placement() -> None:
    p = Placement(((8, 4, "lane"), (2, 1, "warp"), (4, 1, "lane"), (2, 1, "m")), ((2, 4, "warp"),), {"warp": 5})
    assert {tuple(n for _, n in place) for place in p.places(3 * 16 + 13)} == {(14, 1, 6), (14, 1, 10)}


def test_inverse_is_set_valued_and_exact() -> None:
    for _, p in a_thousand(1):
        holders = p.holders()
        assert all(x in holders[place] for x in range(p.size) for place in p.places(x))
        assert sum(map(len, holders.values())) == sum(len(p.places(x)) for x in range(p.size))


def test_one_canonical_form_for_one_map() -> None:
    forms: dict[Said, Placement] = {}
    clashes = repeated = 0
    dice = random.Random(2)
    for k in range(4000):
        # small ones meet often, in many spellings
        p = random_placement(dice, 2, 3) if k % 4 else random_placement(dice)
        short, meaning = p.canonical(), said(p)
        assert said(short) == meaning and short.canonical() == short
        repeated += meaning in forms
        clashes += forms.setdefault(meaning, short) != short
    assert clashes == 0 and repeated > 300 and len({str(p) for p in forms.values()}) == len(forms)


@pytest.mark.parametrize(
    "one, other",
    [
        (Placement(((2, 0, "lane"), (3, 1, "m"))), Placement(((2, 0, "warp"), (3, 1, "m")))),
        (Placement(((2, 0, "lane"), (3, 0, "warp"))), Placement(((6, 0, "m"),))),
        (Placement((), ((2, 1, "m"), (3, 2, "m"))), Placement((), ((3, 1, "m"), (2, 3, "m")))),
        (Placement((), ((4, 1, "m"), (2, 2, "m"))), Placement((), ((6, 1, "m"),))),
        (Placement((), ((3, -2, "m"),), {"m": 4}), Placement((), ((3, 2, "m"),))),
    ],
)
def test_spellings_of_one_map(one: Placement, other: Placement) -> None:
    assert one != other and said(one) == said(other) and one.same(other)


def test_copies_that_overlap_whatever_the_spelling() -> None:
    """Eleven coordinates, which no progressions without a common sum make."""
    p = Placement((), ((4, 2, "m"), (3, 3, "m")))
    assert len(p.places(0)) == 11 and said(p.canonical()) == said(p)


def factors(n: int, dice: random.Random) -> tuple[int, ...]:
    """Extents that multiply to n, some of them 1."""
    found: list[int] = []
    while n > 1 or len(found) < 2:
        e = dice.choice([d for d in range(1, n + 1) if n % d == 0])
        found.append(e)
        n //= e
    return tuple(found)


def test_direct_sums_and_tiles() -> None:
    for dice, outer in a_thousand(3):
        inner = random_placement(dice, 2, 3)
        both, tiles = outer.direct_sum(inner), outer.tiled(inner)
        assert both.size == tiles.size == outer.size * inner.size
        x, y = said(outer), said(inner)
        for i, p in enumerate(x):
            j = dice.randrange(inner.size)
            assert bare(both.places(i * inner.size + j)) == added(p, y[j])
            assert bare(tiles.places(i * inner.size + j)) == added(p, y[j], inner.span)


def test_direct_sums_and_tiles_of_grids() -> None:
    """In two and three dimensions, each point of the grid; what is refused has a dimension that ends inside a digit."""
    defined = refused = 0
    for dice, outer in a_thousand(8):
        inner = random_placement(dice, 2, 3)
        extents, sizes = factors(outer.size, dice), factors(inner.size, dice)
        rank = max(len(extents), len(sizes))
        extents, sizes = (extents + (1,) * (rank - len(extents)), (1,) * (rank - len(sizes)) + sizes)
        try:
            both, tiles = outer.direct_sum(inner, extents, sizes), outer.tiled(inner, extents, sizes)
        except LayoutUndefined:
            with pytest.raises(LayoutUndefined):
                outer.group(extents) + inner.group(sizes)
            refused += 1
            continue
        defined += 1
        grid = tuple(e * s for e, s in zip(extents, sizes, strict=True))
        assert both.size == tiles.size == prod(grid)
        x, y = said(outer), said(inner)
        for at in (0, both.size - 1, *(dice.randrange(both.size) for _ in range(12))):
            i, j, scale, rest = 0, 0, [1, 1], at
            for e, s in reversed(list(zip(extents, sizes, strict=True))):
                rest, p = divmod(rest, e * s)
                i, j = i + p // s * scale[0], j + p % s * scale[1]
                scale = [scale[0] * e, scale[1] * s]
            assert bare(both.places(at)) == added(x[i], y[j])
            assert bare(tiles.places(at)) == added(x[i], y[j], inner.span)
        assert inner.is_tile_of(tiles, grid, sizes) and tiles.quotient(inner, grid, sizes).same(outer)
    assert defined > 500 and refused > 20


def test_a_tile_of_a_grid_that_is_none_of_the_row() -> None:
    """Eight by eight, four by four tiles, a lane each: no tile of the row of 64, where elements of lanes alternate."""
    lanes, values = Placement(((2, 2, "lane"), (2, 1, "lane"))), Placement(((16, 1, "m"),))
    whole = lanes.tiled(values, (2, 2), (4, 4))
    assert whole.same(Placement(((2, 2, "lane"), (4, 4, "m"), (2, 1, "lane"), (4, 1, "m"))))
    assert values.is_tile_of(whole, (8, 8), (4, 4)) and not values.is_tile_of(whole)
    assert not values.is_tile_of(whole, (8, 8), (2, 8))
    for extents, sizes in (((8, 8), (16,)), ((8, 8), (3, 4)), ((4, 8), (4, 4))):
        assert not values.is_tile_of(whole, extents, sizes)
    with pytest.raises(LayoutUndefined):
        lanes.tiled(values, (2, 2), (16,))


def shift(p: Placement, index: int) -> dict[str, int]:
    """By axis: the least coordinate of an element; copies aside, how far its digits move it."""
    places = [dict(place) for place in p.places(index)]
    return {axis: min(place.get(axis, 0) for place in places) for axis in p.axes}


def splits(p: Placement, low: int) -> bool:
    """Whether each element's move is that of its block of `low` and that inside the block, both counted by digits."""
    moves = [{a: n - shift(p, 0)[a] for a, n in shift(p, x).items()} for x in range(p.size)]
    return all(moves[x] == {a: n + moves[x % low][a] for a, n in moves[x - x % low].items()} for x in range(p.size))


def test_groups() -> None:
    refused = 0
    for dice, p in a_thousand(4):
        extents = factors(p.size, dice)
        try:
            groups = p.group(extents)
        except LayoutUndefined:
            refused += 1
            lows = [prod(extents[k:]) for k in range(1, len(extents))]
            digits = [len(digits_of(p, low)) for low in lows]
            assert not all(splits(p, low) for low in lows) or not all(digits)
            continue
        assert tuple(prod(e for e, _, _ in group) for group in groups) == extents
        assert said(Placement(sum(groups, ()), p.replicas, p.offset)) == said(p)
    assert 20 < refused < 500


def digits_of(p: Placement, low: int) -> list[Placement]:
    """Placements of the first `low` elements of p and of every `low`-th, where slices say them."""
    try:
        return [
            p.slice((p.size // low, low), (0, 0), (1, low)),
            p.slice((p.size // low, low), (0, 0), (p.size // low, 1)),
        ]
    except LayoutUndefined:
        return []


def maps_of_two_digits() -> set[Said]:
    """The maps of placements of one or two digits, up to nine elements, without copies and offset."""
    digits = [(e, d, axis) for e in (2, 3) for d in range(-8, 9) for axis in AXES if d or axis == "m"]
    ones = {said(Placement((a,))) for a in digits}
    return ones | {said(Placement((a, b))) for a in digits for b in digits}


def test_slices() -> None:
    defined = refused = 0
    sayable = maps_of_two_digits()
    for dice, p in a_thousand(5):
        extents = factors(p.size, dice)
        start = tuple(dice.randrange(e) for e in extents)
        sizes = tuple(dice.randint(1, e - a) for e, a in zip(extents, start, strict=True))
        want: list[frozenset[Place]] = []
        for k in range(prod(sizes)):
            index, scale, rest = 0, 1, k
            for extent, first, n in reversed(list(zip(extents, start, sizes, strict=True))):
                index += (first + rest % n) * scale
                rest //= n
                scale *= extent
            want.append(bare(p.places(index)))
        try:
            part = p.slice(extents, start, sizes)
        except LayoutUndefined:
            refused += len(want) <= 9
            least = [dict(min(places)) for places in want] if not p.replicas else []
            moves = [{a: m.get(a, 0) - least[0].get(a, 0) for a in {**m, **least[0]}} for m in least]
            plain = tuple(frozenset({tuple(sorted((a, n) for a, n in m.items() if n))}) for m in moves)
            assert plain not in sayable
            continue
        defined += 1
        assert said(part) == tuple(want)
    assert defined > 500 and refused > 20


def test_quotients_undo_tiles() -> None:
    for dice, outer in a_thousand(6):
        inner = random_placement(dice, 2, 3)
        whole = outer.tiled(inner)
        assert inner.is_tile_of(whole) and whole.quotient(inner).tiled(inner).same(whole)
        assert whole.quotient(inner).same(outer)


def test_a_tile_is_one_of_what_it_tiles_only() -> None:
    """All small placements along one axis, against all products of two of them."""
    small = [
        Placement(((a, d, "m"),), ((b, e, "m"),), {"m": first})
        for a in (1, 2, 3)
        for d in (0, 1, 2)
        for b in (1, 2)
        for e in (1, 3)
        for first in (0, 1)
    ]
    dice = random.Random(7)
    yes = 0
    for inner in dice.sample(small, 12):
        tiled = {said(outer.tiled(inner)) for outer in small}
        for _ in range(60):
            whole = dice.choice(small).tiled(dice.choice(small)) if dice.random() < 0.5 else dice.choice(small)
            if not inner.is_tile_of(whole):
                assert said(whole) not in tiled
                continue
            yes += 1
            assert said(whole.quotient(inner).tiled(inner)) == said(whole)
    assert yes > 30


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Placement(((0, 1, "m"),)),
        lambda: Placement(((6, 1, "m"),)).group((2, 2)),
        lambda: Placement(((6, 1, "m"),)).slice((6,), (4,), (3,)),
        lambda: Placement(((6, 1, "m"),)).slice((2, 3), (0,), (1,)),
        lambda: Placement(((2, 7, "m"), (3, 1, "m"))).slice((6,), (1,), (3,)),
        lambda: Placement(((6, 1, "m"),)).quotient(Placement(((4, 1, "m"),))),
        lambda: Placement(((6, 1, "m"),)).places(6),
    ],
)
def test_refusals(wrong: Callable[[], object]) -> None:
    with pytest.raises(LayoutUndefined):
        wrong()
