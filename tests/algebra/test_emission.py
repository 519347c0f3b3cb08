"""Costs of conversions: conflicts counted bank by bank, every element moved, the page up to date."""

from __future__ import annotations

import random

from tests.algebra.conversion_table import CASES, FILE, page
from tests.algebra.test_conversions import distribution

from treadle.algebra.bits import BitLayout, width
from treadle.algebra.conversions import stage
from treadle.algebra.emission import WIDEST, bank_rows, emission, memory_layout, reach, staged, vectors


def test_the_page_is_up_to_date() -> None:
    assert FILE.read_text() == page()


def test_the_field_s_table() -> None:
    found = {name: emission(a, b, bytes) for name, (a, b, bytes, _) in CASES.items()}
    small = found["2 a lane to 1, 64 elements, 4 bytes"]
    assert (small.way, small.shuffles, small.selects) == ("shuffle", 2, 4)
    assert found["4 a lane to 1, 128 elements, 4 bytes"].shuffles == 4  # 16 element by element
    assert found["accumulator to the left operand, 2 bytes"].instructions == 0
    for name, (a, b, bytes, _) in CASES.items():
        if found[name].way != "rename":
            through = staged(a, b, bytes)
            assert (through.write_conflicts, through.read_conflicts) == (1, 1), name
            assert through.shared == bytes << width(a.outs)


def test_memory_layouts_are_one_to_one_and_no_worse_than_what_a_search_finds() -> None:
    dice = random.Random(9)
    tried = better = 0
    while tried < 60:
        warps, bits = dice.randint(0, 1), dice.randint(6, 9)
        a = distribution(dice, dice.randint(1, 4), 5, warps, bits)
        b = distribution(dice, dice.randint(1, 4), 5, warps, bits)
        if a is None or b is None:
            continue
        tried += 1
        bytes = dice.choice((1, 2, 4, 8))
        for vector in vectors(a, b, bytes):
            memory = memory_layout(a, b, bytes, vector)
            assert memory.injective and memory.surjective
            for side in (a, b):
                own = reach(side, vector)
                assert set(own) <= set(vector) and bytes << len(own) <= WIDEST
                assert set(own) <= {x for x in side.images[: dict(side.ins)["slot"]] if x}
        found, searched = staged(a, b, bytes), stage(a, b, bytes)
        plain = [1 << (_rank(side, "slot")) for side in (a, b)]
        rows = found.stores * found.write_conflicts + found.loads * found.read_conflicts
        one_by_one = plain[0] * searched.write_conflicts + plain[1] * searched.read_conflicts
        better += rows < one_by_one
        assert rows <= one_by_one, (a, b, bytes)
    assert better > 20


def _rank(side: BitLayout, label: str) -> int:
    count = dict(side.ins)[label]
    return BitLayout(((label, count),), side.outs, side.images[:count]).rank


def test_conflicts_are_what_the_lanes_and_segments_share() -> None:
    """32x32 words in order: rows in one access, a column meets one bank 32 times; with segments apart, neither does."""
    outs = (("column", 5), ("row", 5))
    ins = (("slot", 5), ("lane", 5), ("warp", 0))
    rows = BitLayout(ins, outs, tuple(1 << i for i in (5, 6, 7, 8, 9, 0, 1, 2, 3, 4)))
    columns = BitLayout(ins, outs, tuple(1 << i for i in range(10)))
    plain = BitLayout((("offset", 10),), outs, tuple(1 << i for i in range(10)))
    assert (bank_rows(plain, rows, [], 4), bank_rows(plain, columns, [], 4)) == (1, 32)
    found = staged(rows, columns, 4)
    assert (found.write_conflicts, found.read_conflicts) == (1, 1)
