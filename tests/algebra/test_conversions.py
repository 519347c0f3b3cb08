"""Conversions between distributions, simulated: every element arrives, each lane gives one value a round."""

from __future__ import annotations

import random

import pytest

from treadle.algebra.bits import BitLayout, Space, pack, unpack
from treadle.algebra.conversions import Conversion, bank_conflicts, convert, stage
from treadle.algebra.layouts import LayoutUndefined


def distribution(dice: random.Random, slots: int, lanes: int, warps: int, bits: int) -> BitLayout | None:
    """Element bits dealt to slots, lanes and warps at random; what is left over replicates."""
    count = slots + lanes + warps
    if count < bits:
        return None
    images = [1 << i for i in range(bits)] + [0] * (count - bits)
    dice.shuffle(images)
    return BitLayout((("slot", slots), ("lane", lanes), ("warp", warps)), (("element", bits),), tuple(images))


def simulate(conversion: Conversion, source: BitLayout) -> dict[tuple[int, int, int], int]:
    """What each destination (slot, lane, warp) holds afterwards, by the rules of its way."""
    sizes: dict[str, int] = dict(conversion.holder.ins)
    held: dict[tuple[int, int, int], int] = {}
    for warp in range(1 << sizes["warp"]):
        if conversion.way == "shuffle":
            assert conversion.turn is not None
            for k in range(1 << sizes["slot"]):
                given: dict[int, int] = {}
                for lane, (giver, slot) in enumerate(conversion.round(k, warp)):
                    assert given.setdefault(giver, slot) == slot, "a lane gives two values in one round"
                    mine = k ^ conversion.turn(lane=lane)["slot"]
                    element = source.apply(pack(source.ins, {"slot": slot, "lane": giver, "warp": warp}))
                    held[mine, lane, warp] = element
            continue
        for lane in range(1 << sizes["lane"]):
            for slot in range(1 << sizes["slot"]):
                at = conversion.holder(slot=slot, lane=lane, warp=warp)
                if conversion.way == "rename":
                    assert (at["lane"], at["warp"]) == (lane, warp)
                    assert at["slot"] == conversion.holder(slot=slot)["slot"], "a name hangs on the thread"
                held[slot, lane, warp] = source.apply(pack(source.ins, at))
    return held


def check(source: BitLayout, destination: BitLayout) -> Conversion:
    found = convert(source, destination)
    for (slot, lane, warp), element in simulate(found, source).items():
        assert element == destination.apply(pack(destination.ins, {"slot": slot, "lane": lane, "warp": warp}))
    return found


def test_random_pairs() -> None:
    dice = random.Random(3)
    ways: dict[str, int] = {}
    tried = 0
    while tried < 400:
        lanes, warps = dice.randint(0, 4), dice.randint(0, 2)
        bits = dice.randint(0, lanes + warps + 3)
        a = distribution(dice, dice.randint(0, 4), lanes, warps, bits)
        b = distribution(dice, dice.randint(0, 4), lanes, warps, bits)
        if a is None or b is None:
            continue
        tried += 1
        way = check(a, b).way
        ways[way] = ways.get(way, 0) + 1
    assert min(ways.get(way, 0) for way in ("rename", "shuffle", "shared")) > 10, ways


OUT: Space = (("element", 7),)
FOUR_A_LANE = BitLayout((("slot", 2), ("lane", 5), ("warp", 0)), OUT, tuple(1 << i for i in range(7)))
ONE_A_LANE = BitLayout((("slot", 2), ("lane", 5), ("warp", 0)), OUT, tuple(1 << i for i in (5, 6, 0, 1, 2, 3, 4)))


def test_four_a_lane_to_one_a_lane_takes_four_rounds() -> None:
    """Element by element it would take sixteen: four slots, each of which lies in four source slots."""
    found = check(FOUR_A_LANE, ONE_A_LANE)
    assert found.way == "shuffle" and found.rounds == 4


def test_same_registers_under_other_names() -> None:
    swapped = BitLayout(FOUR_A_LANE.ins, OUT, (2, 1, *FOUR_A_LANE.images[2:]))
    found = check(FOUR_A_LANE, swapped)
    assert found.way == "rename" and found.rounds == 0


def test_replicas_are_taken_from_the_same_thread() -> None:
    copies = BitLayout((("slot", 1), ("lane", 2), ("warp", 1)), (("element", 2),), (0, 1, 2, 0))
    assert check(copies, copies).way == "rename"
    fewer = BitLayout((("slot", 0), ("lane", 2), ("warp", 1)), (("element", 2),), (1, 2, 0))
    assert check(copies, fewer).way == "rename"


def test_other_warps_go_through_memory() -> None:
    a = BitLayout((("slot", 1), ("lane", 1), ("warp", 1)), (("element", 3),), (1, 2, 4))
    b = BitLayout((("slot", 1), ("lane", 1), ("warp", 1)), (("element", 3),), (4, 2, 1))
    assert check(a, b).way == "shared"


def test_transposed_tiles_are_staged_without_conflicts() -> None:
    """32x32 words of 4 bytes, written by rows and read by columns: 32 ways in order, none after shifting."""
    outs: Space = (("column", 5), ("row", 5))
    ins: Space = (("slot", 5), ("lane", 5), ("warp", 0))
    rows = BitLayout(ins, outs, tuple(1 << i for i in (5, 6, 7, 8, 9, 0, 1, 2, 3, 4)))
    columns = BitLayout(ins, outs, tuple(1 << i for i in range(10)))
    plain = BitLayout((("offset", 10),), outs, tuple(1 << i for i in range(10)))
    assert (bank_conflicts(plain, rows, 4), bank_conflicts(plain, columns, 4)) == (1, 32)
    found = stage(rows, columns, 4)
    assert found.layout.injective and found.total == 2
    assert found.write_conflicts == bank_conflicts(found.layout, rows, 4)


def test_staging_is_never_worse_than_the_plain_order() -> None:
    dice = random.Random(5)
    for _ in range(25):
        a, b = distribution(dice, 2, 5, 0, 7), distribution(dice, 2, 5, 0, 7)
        assert a is not None and b is not None
        bytes = dice.choice((1, 2, 4, 8))
        plain = BitLayout((("offset", 7),), a.outs, tuple(1 << i for i in range(7)))
        found = stage(a, b, bytes)
        assert found.total <= bank_conflicts(plain, a, bytes) + bank_conflicts(plain, b, bytes)
        assert sorted(found.layout.apply(x) for x in range(128)) == list(range(128))


@pytest.mark.parametrize(
    "a, b",
    [
        (FOUR_A_LANE, BitLayout((("slot", 2), ("lane", 4), ("warp", 1)), OUT, FOUR_A_LANE.images)),
        (BitLayout(FOUR_A_LANE.ins, OUT, (1, 1, *FOUR_A_LANE.images[2:])), FOUR_A_LANE),
        (FOUR_A_LANE, FOUR_A_LANE.ordered(["lane", "slot", "warp"], ["element"])),
    ],
)
def test_refusals(a: BitLayout, b: BitLayout) -> None:
    with pytest.raises(LayoutUndefined):
        convert(a, b)


def test_labels_of_a_holder() -> None:
    found = convert(FOUR_A_LANE, ONE_A_LANE)
    assert unpack(found.holder.ins, 0) == {"slot": 0, "lane": 0, "warp": 0}
