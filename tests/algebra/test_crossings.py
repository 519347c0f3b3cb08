"""Crossings between fragments say the same map at every point, or are refused."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.algebra.bits import BitLayout, pack
from treadle.algebra.crossings import (
    bits_of_layout,
    bits_of_placement,
    layout_of_bits,
    layout_of_placement,
    layout_of_tasks,
    placement_of_bits,
    placement_of_layout,
)
from treadle.algebra.layouts import Layout, LayoutUndefined, coalesce
from treadle.algebra.placements import Placement
from treadle.algebra.tasks import TaskMapping, repeat, spatial

MODES = st.lists(
    st.tuples(st.sampled_from([1, 2, 4, 3]), st.sampled_from([0, 1, 2, 4, 8, 16, 3])), min_size=1, max_size=4
)


@given(MODES)
def test_integer_layouts_and_bits(modes: list[tuple[int, int]]) -> None:
    layout = Layout(tuple(e for e, _ in modes), tuple(d for _, d in modes))
    try:
        bits = bits_of_layout(layout)
    except LayoutUndefined:  # an extent that is no power of two, or a sum that carries
        images = [d << k for e, d in modes for k in range(e.bit_length() - 1)]
        assert any(e & (e - 1) for e, _ in modes) or any(a & b for i, a in enumerate(images) for b in images[:i])
        return
    assert [bits.apply(i) for i in range(layout.size)] == list(layout.values())
    assert list(layout_of_bits(bits).values()) == list(layout.values())


def test_swizzles_have_no_strides() -> None:
    swizzled = BitLayout((("offset", 4),), (("element", 4),), (1, 2, 5, 10))
    with pytest.raises(LayoutUndefined, match="bits"):
        layout_of_bits(swizzled)
    with pytest.raises(LayoutUndefined, match="carries"):
        bits_of_layout(Layout((4, 2), (1, 2)))
    with pytest.raises(LayoutUndefined):
        placement_of_bits(swizzled)


def test_placements_and_bits() -> None:
    dice = random.Random(2)
    for _ in range(200):
        lanes, slots, warps, bits = dice.randint(1, 3), dice.randint(1, 3), dice.randint(0, 2), dice.randint(0, 5)
        count = lanes + slots + warps
        if count < bits:
            continue
        images = [1 << i for i in range(bits)] + [0] * (count - bits)
        dice.shuffle(images)
        ins = (("slot", slots), ("lane", lanes), ("warp", warps))
        distribution = BitLayout(ins, (("element", bits),), tuple(images))
        placement = placement_of_bits(distribution)
        there: dict[int, set[tuple[tuple[str, int], ...]]] = {}
        for slot in range(1 << slots):
            for lane in range(1 << lanes):
                for warp in range(1 << warps):
                    place = {"slot": slot, "lane": lane, "warp": warp}
                    used = tuple(sorted((k, v) for k, v in place.items() if k in placement.axes))
                    there.setdefault(distribution.apply(pack(ins, place)), set()).add(used)
        assert all(placement.places(x) == frozenset(there[x]) for x in range(1 << bits))
        again = bits_of_placement(placement, dict(ins)) if set(placement.axes) == {k for k, n in ins if n} else None
        assert again is None or again.images == distribution.images


def test_placements_that_have_no_bits() -> None:
    wrong = [
        Placement(((4, 1, "lane"),), (), {"lane": 1}),
        Placement(((3, 1, "lane"),)),
        Placement(((2, 1, "lane"),), ((2, 1, "lane"),)),
        Placement(((2, 2, "lane"),)),
    ]
    for placement in wrong:
        with pytest.raises(LayoutUndefined):
            bits_of_placement(placement, {"lane": 2})


@given(MODES)
def test_integer_layouts_and_placements(modes: list[tuple[int, int]]) -> None:
    layout = Layout(tuple(e for e, _ in modes), tuple(d for _, d in modes))
    placement = placement_of_layout(layout, "m")
    assert all(placement.places(i) == {(("m", layout(i)),)} for i in range(layout.size))
    assert list(layout_of_placement(placement).values()) == list(layout.values())
    assert coalesce(layout_of_placement(placement.canonical())) == coalesce(layout)


def test_placements_that_have_no_strides() -> None:
    for placement in (
        Placement(((2, 1, "lane"), (2, 1, "warp"))),
        Placement(((2, 1, "lane"),), ((2, 2, "lane"),)),
        Placement(((2, 1, "lane"),), (), {"lane": 3}),
    ):
        with pytest.raises(LayoutUndefined):
            layout_of_placement(placement)


def test_task_mappings_are_layouts_of_workers_and_tasks() -> None:
    dice = random.Random(4)
    for _ in range(100):
        mapping: TaskMapping | None = None
        for _ in range(dice.randint(1, 4)):
            extents = tuple(dice.randint(1, 3) for _ in range(2))
            one = (spatial if dice.random() < 0.5 else repeat)(*extents)
            mapping = one if mapping is None else mapping * one
        assert mapping is not None
        layout, grid = layout_of_tasks(mapping), mapping.extents
        tasks = layout[0].size
        for worker in range(mapping.workers):
            have = [layout(k + tasks * worker) for k in range(tasks)]
            assert have == [i * grid[1] + j for i, j in mapping(worker)]
        assert sorted(layout.values()) == list(range(grid[0] * grid[1]))
