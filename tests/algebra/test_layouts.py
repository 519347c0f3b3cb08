"""Integer layouts: every operation against its pointwise equation, by brute force; undefined cases are refused."""

from __future__ import annotations

from itertools import islice, product
from math import prod

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from treadle.algebra.layouts import (
    Layout,
    LayoutUndefined,
    Swizzle,
    blocked,
    coalesce,
    common_vector,
    complement,
    compose,
    divide,
    leaves,
    left_inverse,
    multiply,
    raked,
    right_inverse,
    row_major,
)

extents = st.integers(1, 6)
strides = st.integers(0, 12)
flat_layouts = st.lists(st.tuples(extents, strides), min_size=1, max_size=3).map(
    lambda modes: Layout(tuple(s for s, _ in modes), tuple(d for _, d in modes))
)


@st.composite
def nested_layouts(draw: st.DrawFn) -> Layout:
    """Layouts two levels deep."""
    parts = draw(st.lists(flat_layouts, min_size=1, max_size=3))
    assume(prod(p.size for p in parts) <= 500)
    return Layout(tuple(p.shape for p in parts), tuple(p.stride for p in parts))


@st.composite
def compact_layouts(draw: st.DrawFn) -> Layout:
    """Permuted dense layouts, perhaps with gaps between modes."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    order = draw(st.permutations(range(len(sizes))))
    gaps = draw(st.lists(st.integers(1, 3), min_size=len(sizes), max_size=len(sizes)))
    steps, step = [0] * len(sizes), 1
    for i in order:
        step *= gaps[i]
        steps[i] = step
        step *= sizes[i]
    return Layout(tuple(sizes), tuple(steps))


def naive(layout: Layout, i: int) -> int:
    """The value at an integer, from the natural coordinates enumerated leftmost fastest."""
    shape, stride = leaves(layout.shape), leaves(layout.stride)
    point = next(islice(product(*(range(s) for s in reversed(shape))), i, None))
    return sum(c * d for c, d in zip(reversed(point), stride, strict=True))


@given(nested_layouts())
def test_value(layout: Layout) -> None:
    assert [layout(i) for i in range(layout.size)] == [naive(layout, i) for i in range(layout.size)]
    assert layout.cosize == 1 + max(layout.values())


def test_value_at_every_level() -> None:
    layout = Layout((4, (2, 3)), (2, (1, 8)))
    assert layout((3, (1, 2))) == layout((3, 5)) == layout(23) == 6 + 1 + 16
    for wrong in ((1, 2, 3), (1, (1, 1, 1)), 24, -1):
        with pytest.raises(LayoutUndefined):
            layout(wrong)


@given(nested_layouts())
def test_coalesce(layout: Layout) -> None:
    short = coalesce(layout)
    assert list(short.values()) == list(layout.values())
    assert all(d2 != s1 * d1 for (s1, d1), (_, d2) in zip(short.modes, short.modes[1:], strict=False))
    assert all(s > 1 for s, _ in short.modes) or short == Layout(1, 0)


@given(flat_layouts, nested_layouts())
def test_compose_is_right_or_refused(a: Layout, b: Layout) -> None:
    try:
        found = compose(a, b)
    except LayoutUndefined:
        return
    assert [found(i) for i in range(b.size)] == [a(b(i)) for i in range(b.size)]
    assert len(found.shape) == len(b.shape)


@given(compact_layouts(), st.data())
def test_compose_is_defined_on_divisions(a: Layout, data: st.DataObject) -> None:
    """A stride that is a product of leading extents, and an extent that fits: never refused."""
    cut = data.draw(st.integers(0, len(a.modes) - 1))
    sizes = [s for s, _ in a.modes]
    step, rest = prod(sizes[:cut]), prod(sizes[cut:])
    found = compose(a, Layout(rest, step))
    assert [found(i) for i in range(rest)] == [a(step * i) for i in range(rest)]


@pytest.mark.parametrize(
    "a, b, want",
    [
        (Layout((6, 2), (8, 2)), Layout((4, 3), (3, 1)), "((2,2),3):((24,2),8)"),
        (Layout((10, 2), (16, 4)), Layout((5, 4), (1, 5)), "(5,(2,2)):(16,(80,4))"),
    ],
)
def test_published_compositions(a: Layout, b: Layout, want: str) -> None:
    assert str(compose(a, b)) == want


@pytest.mark.parametrize(
    "a, b",
    [
        (Layout((4, 6, 8), (2, 3, 5)), Layout(6, 3)),  # no layout has the values 0, 6, 7, 8, 9, 15
        (Layout((6, 2), (1, 7)), Layout((3, 2), (2, 3))),  # modes that carry: the last point would be 7 for 8
        (Layout(4, 1), Layout(8, 1)),  # leaves the domain
    ],
)
def test_compositions_that_no_layout_has_are_refused(a: Layout, b: Layout) -> None:
    with pytest.raises(LayoutUndefined):
        compose(a, b)


@given(compact_layouts(), st.integers(1, 200))
def test_complement(layout: Layout, total: int) -> None:
    rest = complement(layout, total)
    sums = [i + j for i in layout.values() for j in rest.values()]
    assert len(set(sums)) == len(sums)
    assert set(range(total)) <= set(sums)
    assert list(rest.values()) == sorted(rest.values())


def test_complement_of_overlapping_modes_is_refused() -> None:
    assert str(complement(Layout((2, 2), (1, 6)), 24)) == "(3,2):(2,12)"
    with pytest.raises(LayoutUndefined):
        complement(Layout((4, 4), (1, 2)), 32)


@given(compact_layouts(), st.integers(1, 6), st.integers(1, 6))
def test_divide_is_right_or_refused(a: Layout, extent: int, stride: int) -> None:
    tiler = Layout(extent, stride)
    try:
        found = divide(a, tiler)
    except LayoutUndefined:
        return
    rest = complement(tiler, a.size)
    assert all(found((i, j)) == a(tiler(i) + rest(j)) for i in range(tiler.size) for j in range(rest.size))


@given(compact_layouts(), compact_layouts())
def test_multiply_gives_disjoint_copies(block: Layout, tiler: Layout) -> None:
    try:
        found = multiply(block, tiler)
    except LayoutUndefined:
        return
    first = [found((i, 0)) for i in range(block.size)]
    assert first == list(block.values())
    copies = [[found((i, j)) for i in range(block.size)] for j in range(tiler.size)]
    assert all(x - y == copy[0] for copy in copies for x, y in zip(copy, first, strict=True))
    assert len({x for copy in copies for x in copy}) == block.size * tiler.size


@st.composite
def equal_ranks(draw: st.DrawFn) -> tuple[Layout, Layout]:
    """A block and a tiler of as many modes; some of one mode are not in a tuple, some strides are 0."""
    rank = draw(st.integers(1, 3))
    steps = draw(st.permutations((0, 1, 2, 3, 4, 6, 8, 12, 24)))
    made: list[Layout] = []
    for part in range(2):
        sizes = draw(st.lists(st.integers(1, 4), min_size=rank, max_size=rank))
        if draw(st.booleans()):
            strides = steps[part * rank : part * rank + rank]
        else:
            strides = [prod(sizes[:i]) for i in draw(st.permutations(range(rank)))]
        bare = rank == 1 and draw(st.booleans())
        made.append(Layout(sizes[0], strides[0]) if bare else Layout(tuple(sizes), tuple(strides)))
    return made[0], made[1]


@given(equal_ranks())
def test_blocked_and_raked_products_are_their_definition(pair: tuple[Layout, Layout]) -> None:
    block, tiler = pair
    try:
        copies = complement(block, block.size * tiler.cosize)
        inside, between = blocked(block, tiler), raked(block, tiler)
    except LayoutUndefined:
        return
    modes = range(block.rank)
    assert inside.rank == between.rank == block.rank and inside.size == between.size == block.size * tiler.size
    for b in product(*(range(block[i].size) for i in modes)):
        for t in product(*(range(tiler[i].size) for i in modes)):
            at = sum(block[i](b[i]) for i in modes) + copies(sum(tiler[i](t[i]) for i in modes))
            assert inside(tuple(b[i] + t[i] * block[i].size for i in modes)) == at
            assert between(tuple(t[i] + b[i] * tiler[i].size for i in modes)) == at


def test_a_single_mode_that_comes_out_as_several_stays_whole() -> None:
    assert blocked(Layout(2, 2), Layout(6, 1)) == Layout(((2, (2, 3)),), ((2, (1, 4)),))
    assert raked(Layout(2, 2), Layout(6, 1)) == Layout((((2, 3), 2),), (((1, 4), 2),))


def test_products_of_unlike_ranks_are_refused() -> None:
    for operation in (blocked, raked):
        with pytest.raises(LayoutUndefined):
            operation(Layout((2, 2), (1, 2)), Layout((2,), (1,)))


def test_published_divisions_and_products() -> None:
    assert str(divide(Layout((4, 2, 3), (2, 1, 8)), Layout(4, 2))) == "((2,2),(2,3)):((4,1),(2,8))"
    assert str(multiply(Layout((2, 2), (2, 1)), Layout(6, 1))) == "((2,2),6):((2,1),4)"
    block, tiler = Layout((2, 5), (5, 1)), Layout((3, 4), (1, 3))
    assert str(blocked(block, tiler)) == "((2,3),(5,4)):((5,10),(1,30))"
    assert str(raked(block, tiler)) == "((3,2),(4,5)):((10,5),(30,1))"


@given(compact_layouts())
def test_inverses(layout: Layout) -> None:
    inverse = right_inverse(layout)
    assert all(layout(inverse(i)) == i for i in range(inverse.size))
    dense = next(i for i in range(layout.cosize + 1) if i not in set(layout.values()))
    assert inverse.size <= dense  # it cannot reach past the first value that is missing
    if dense == layout.size:
        assert inverse.size == layout.size
    back = left_inverse(layout)
    assert all(back(layout(i)) == i for i in range(layout.size))


def test_left_inverse_of_a_repeating_layout_is_refused() -> None:
    with pytest.raises(LayoutUndefined):
        left_inverse(Layout((2, 2), (1, 0)))


def longest(layout: Layout) -> int:
    """How far a count gets whose digits are modes of the layout, cut short or whole, in any order."""

    def reach(stride: int, left: tuple[tuple[int, int], ...]) -> int:
        found = [stride]
        for i, (extent, d) in enumerate(left):
            if d == stride:
                found += [reach(stride * n, left[:i] + left[i + 1 :]) for n in range(2, extent + 1)]
        return max(found)

    return reach(1, layout.modes)


@given(flat_layouts)
def test_right_inverses_are_as_long_as_can_be(layout: Layout) -> None:
    inverse = right_inverse(layout)
    assert all(layout(inverse(i)) == i for i in range(inverse.size))
    assert inverse.size == longest(layout)


def test_a_mode_is_cut_short_where_another_goes_on() -> None:
    assert right_inverse(Layout((5, 6), (1, 3))) == Layout((3, 6), (1, 5))


@given(flat_layouts, flat_layouts)
def test_common_vector(a: Layout, b: Layout) -> None:
    v = common_vector(a, b)
    same = [x for x, y in zip(a.values(), b.values(), strict=False) if x == y]
    assert all(i in same for i in range(v)) and v not in same


def test_a_common_vector_ends_where_the_coordinates_differ() -> None:
    assert common_vector(Layout((4, 3, 1), (1, 4, 1)), Layout((3, 4), (1, 1))) == 3


def vector_width(a: Layout, b: Layout, most: int) -> int:
    """The largest power of two of elements that both have side by side, from places that it divides."""
    width = most
    while common_vector(a, b) % width or any(d % width for x in (a, b) for s, d in x.modes if s > 1 and d != 1):
        width //= 2
    return width


@pytest.mark.parametrize("pitch, kept, width", [(128, 32, 2), (64, 40, 2), (30, 30, 2), (31, 32, 1), (128, 33, 1)])
def test_a_copy_of_61_rows_of_30_in_vectors_with_a_predicate(pitch: int, kept: int, width: int) -> None:
    """A 61 x 30 corner of a matrix goes to a buffer by 128 threads that are made for 64 x 32: the width follows from
    both layouts, and coordinates below (30, 61) are the predicate, which no vector of that width straddles."""
    source, target = Layout((30, 61), (1, pitch)), Layout((30, 61), (1, kept))
    assert common_vector(source, target) == (30 if (pitch, kept) != (30, 30) else 30 * 61)
    assert vector_width(source, target, 8) == width
    # (column, row) of the 64 x 32 tile: vectors across, eight rows or four at once, the rest in rounds
    across, down = 32 // width, 128 * width // 32
    deal = Layout((across * down, (width, 64 // down)), (width, (1, 32 * down)))
    assert sorted(deal.values()) == list(range(64 * 32))
    memory = {source((c, r)): (c, r) for c in range(30) for r in range(61)}
    written: dict[int, tuple[int, int]] = {}
    for thread in range(128):
        for turn in range(64 // down):
            points = [deal((thread, (v, turn))) for v in range(width)]
            at = [(x % 32, x // 32) for x in points]
            inside = {c < 30 and r < 61 for c, r in at}
            assert len(inside) == 1
            if not inside.pop():
                continue
            first, to = source(at[0]), target(at[0])
            assert first % width == to % width == 0
            for v in range(width):
                assert to + v not in written
                written[to + v] = memory[first + v]
    assert written == {target((c, r)): (c, r) for c in range(30) for r in range(61)}


@given(
    st.lists(st.tuples(extents, st.integers(-6, 6)), min_size=1, max_size=3),
    st.lists(st.tuples(extents, st.integers(-6, 6)), min_size=1, max_size=2),
)
def test_modes_that_count_down_are_refused_or_right(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    outer, inner = (Layout(tuple(s for s, _ in m), tuple(d for _, d in m)) for m in (a, b))
    down = any(d < 0 for s, d in b if s > 1)
    try:
        found = compose(outer, inner)
    except LayoutUndefined:
        pass
    else:
        assert not down and [found(i) for i in range(inner.size)] == [outer(inner(i)) for i in range(inner.size)]
    if down:
        for operation in (
            lambda: complement(inner, 64),
            lambda: divide(row_major(8, 8), inner),
            lambda: multiply(inner, Layout(4, 1)),
            lambda: left_inverse(inner),
        ):
            with pytest.raises(LayoutUndefined):
                operation()


@given(st.integers(0, 3), st.integers(0, 4), st.integers(-4, 4))
def test_swizzle(bits: int, base: int, shift: int) -> None:
    if abs(shift) < bits:
        with pytest.raises(LayoutUndefined):
            Swizzle(bits, base, shift)
        return
    swizzle = Swizzle(bits, base, shift)
    block = 1 << (base + bits + abs(shift))
    assert sorted(map(swizzle, range(block))) == list(range(block))
    assert all(swizzle(swizzle(x)) == x for x in range(block))
    for x in range(block):
        bit_by_bit = 0
        for p in range(block.bit_length()):
            taken = 0 <= p - base - max(-shift, 0) < bits
            bit_by_bit |= (x >> p & 1 ^ (x >> (p + shift) & 1 if taken else 0)) << p
        assert swizzle(x) == bit_by_bit


def test_published_swizzle() -> None:
    swizzle = Swizzle(3, 4, 3)
    assert [swizzle(x) for x in (128, 256, 896, 144, 1024)] == [144, 288, 1008, 128, 1024]


def test_tensor_core_accumulators_are_layouts_of_threads_and_values() -> None:
    """(thread, value) -> position in a column-major tile, of the 16x8 accumulator of a subgroup and of the 64x128 one
    of four subgroups: each element once, and the inverse finds its holder."""
    small = Layout(((4, 8), (2, 2)), ((32, 1), (16, 8)))
    large = Layout(((4, 8, 4), (2, 2, 16)), ((128, 1, 16), (64, 8, 512)))
    for tile, rows, columns in ((small, 16, 8), (large, 64, 128)):
        assert sorted(tile.values()) == list(range(rows * columns))
        inverse = right_inverse(tile)
        assert inverse.size == rows * columns and all(tile(inverse(i)) == i for i in range(rows * columns))


def test_row_major() -> None:
    assert str(row_major(3, 4, 5)) == "(3,4,5):(20,5,1)"


@pytest.mark.parametrize("shape, stride", [((2, 3), (1,)), ((2, (3,)), (1, 2)), ((0,), (1,))])
def test_malformed(shape: tuple[int, ...], stride: tuple[int, ...]) -> None:
    with pytest.raises(LayoutUndefined):
        Layout(shape, stride)
