"""Conversions between distributions, simulated: every element arrives, each lane gives one value a round."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.algebra.distributions import distribution, pair, table, threads

from treadle.algebra.bits import BitLayout, Space, unpack
from treadle.algebra.conversions import Conversion, Shuffles, convert
from treadle.algebra.layouts import LayoutUndefined
from treadle.algebra.staging import stage


def shuffled(shuffles: Shuffles, held: np.ndarray, slots: int) -> np.ndarray:
    """Runs the rounds as a thread does: gives a register, takes that of one lane, puts it into one. -1: nothing."""
    warps, lanes, _ = held.shape
    lane = np.arange(lanes)
    gives, takes, puts = (table(x) for x in (shuffles.gives, shuffles.takes, shuffles.puts))
    among = np.zeros(lanes, dtype=bool)
    among[np.unique(table(BitLayout((("k", len(shuffles.takers)),), (("lane", 5),), shuffles.takers)))] = True
    found = np.full((warps, lanes, 1 << slots), -1)
    for warp in range(warps):
        for k in range(shuffles.count):
            one = shuffles.round(k, warp)
            given = held[warp, lane, one.give ^ gives]
            mine = lane[among[lane ^ one.shift]]
            at = mine ^ one.shift
            slot = one.put ^ puts[at]
            assert (found[warp, mine, slot] == -1).all(), "a register is filled twice"
            found[warp, mine, slot] = given[one.source ^ takes[at]]
    return found


def check(source: BitLayout, destination: BitLayout) -> Conversion:
    """Converts, and simulates what came out; the way is the one that the definition says."""
    found = convert(source, destination)
    have, want = threads(source), threads(destination)
    assert (table(source)[table(found.holder)] == table(destination)).all()
    names = {have[:, :, s].tobytes() for s in range(have.shape[2])}
    renamed = all(want[:, :, s].tobytes() in names for s in range(want.shape[2]))
    holds = np.zeros((len(have), have.max() + 1), dtype=bool)
    for warp, mine in enumerate(have):
        holds[warp, mine.ravel()] = True
    kept = all(holds[warp][mine.ravel()].all() for warp, mine in enumerate(want))
    assert found.way == ("rename" if renamed else "shuffle" if kept else "shared")
    if found.shuffles is not None:
        filled = list(table(BitLayout((("k", len(found.shuffles.filled)),), (("slot", 6),), found.shuffles.filled)))
        got = shuffled(found.shuffles, have, dict(destination.ins)["slot"])
        assert (got[:, :, filled] == want[:, :, filled]).all()
        assert {want[:, :, s].tobytes() for s in filled} == {want[:, :, s].tobytes() for s in range(want.shape[2])}
        still = [k for k in range(found.shuffles.count) if found.shuffles.stays(k)]
        assert found.rounds == found.shuffles.count - len(still)
    return found


def most_in_a_lane(have: np.ndarray, want: np.ndarray) -> int:
    """What no rounds undercut, whoever holds what: the different elements that a lane wants, and those that are wanted
    of lanes that hold the same, dealt to them evenly."""
    gets = len(np.unique(want[0, 0]))
    wanted = np.unique(want[0])
    gives = 0
    alike: dict[bytes, int] = {}
    for mine in have[0]:
        key = np.unique(mine).tobytes()
        alike[key] = alike.get(key, 0) + 1
    for key, lanes in alike.items():
        gives = max(gives, -(-len(np.intersect1d(np.frombuffer(key, dtype=want.dtype), wanted)) // lanes))
    return max(gets, gives)


def test_ten_thousand_pairs() -> None:
    """32 lanes, 1 to 8 warps, 1 to 64 registers of 1 to 8 bytes, with replicas."""
    dice = random.Random(3)
    ways: dict[str, int] = {}
    for n in range(10_000):
        a, b, bytes = pair(dice)
        found = check(a, b)
        way = found.way
        ways[way] = ways.get(way, 0) + 1
        if way == "shuffle" and not n % 4:
            assert found.rounds <= most_in_a_lane(threads(a), threads(b))
        if way == "shared":
            place = table(stage(a, b, bytes).place)
            memory = np.full(len(place), -1)
            memory[place[threads(a).ravel()]] = threads(a).ravel()
            assert (memory[place[threads(b)]] == threads(b)).all()
    assert min(ways.get(way, 0) for way in ("rename", "shuffle", "shared")) > 500, ways


def test_few_lanes() -> None:
    """Small warps, where replicas meet in every way."""
    dice = random.Random(4)
    ways: dict[str, int] = {}
    tried = 0
    while tried < 400:
        lanes, warps = dice.randint(0, 3), dice.randint(0, 2)
        bits = dice.randint(0, lanes + warps + 3)
        a = distribution(dice, dice.randint(0, 4), lanes, warps, bits)
        b = distribution(dice, dice.randint(0, 4), lanes, warps, bits)
        if a is None or b is None:
            continue
        tried += 1
        found = convert(a, b)
        ways[found.way] = ways.get(found.way, 0) + 1
        assert (table(a)[table(found.holder)] == table(b)).all()
        if found.shuffles is not None:
            for warp in range(1 << warps):
                for k in range(found.shuffles.count):
                    given: dict[int, int] = {}
                    moved = list(found.shuffles.moved(k, warp))
                    assert not found.shuffles.stays(k) or all(lane == giver for lane, _, giver, _ in moved)
                    for _, _, giver, slot in moved:
                        assert given.setdefault(giver, slot) == slot, "a lane gives two values in one round"
    assert min(ways.get(way, 0) for way in ("rename", "shuffle", "shared")) > 10, ways


OUT: Space = (("element", 7),)
FOUR_A_LANE = BitLayout((("slot", 2), ("lane", 5), ("warp", 0)), OUT, tuple(1 << i for i in range(7)))
ONE_A_LANE = BitLayout((("slot", 2), ("lane", 5), ("warp", 0)), OUT, tuple(1 << i for i in (5, 6, 0, 1, 2, 3, 4)))


def test_four_a_lane_to_one_a_lane_takes_four_rounds() -> None:
    """Element by element it would take sixteen: four slots, each of which lies in four source slots."""
    found = check(FOUR_A_LANE, ONE_A_LANE)
    assert found.way == "shuffle" and found.rounds == 4
    assert found.shuffles is not None and len(found.shuffles.gives.kernel()) == 3  # registers rotated by two lane bits


def test_a_lane_that_gives_more_than_others_get_takes_more_rounds() -> None:
    """Each warp holds all of 64 elements, eight in each of eight lanes (four copies of the lanes); a warp wants the
    eight of one lane, one in each of eight lanes: what four lanes hold alike, each of them gives two of."""
    ins = (("slot", 3), ("lane", 5), ("warp", 3))
    source = BitLayout(ins, (("element", 6),), (1, 2, 4, 8, 16, 32, 0, 0, 0, 0, 0))
    wanted = BitLayout((("slot", 0), *ins[1:]), (("element", 6),), (1, 2, 4, 0, 0, 8, 16, 32))
    found = check(source, wanted)
    assert found.way == "shuffle" and found.rounds == 2 == most_in_a_lane(threads(source), threads(wanted))


def test_same_registers_under_other_names() -> None:
    swapped = BitLayout(FOUR_A_LANE.ins, OUT, (2, 1, *FOUR_A_LANE.images[2:]))
    found = check(FOUR_A_LANE, swapped)
    assert found.way == "rename" and found.rounds == 0


def test_replicas_are_taken_from_the_same_thread() -> None:
    copies = BitLayout((("slot", 1), ("lane", 2), ("warp", 1)), (("element", 2),), (0, 1, 2, 0))
    assert convert(copies, copies).way == "rename"
    fewer = BitLayout((("slot", 0), ("lane", 2), ("warp", 1)), (("element", 2),), (1, 2, 0))
    assert convert(copies, fewer).way == "rename"


def test_registers_that_hang_on_the_lane_take_no_shuffle() -> None:
    """Two registers, exchanged in every second lane: selects alone."""
    ins, outs = (("slot", 1), ("lane", 5), ("warp", 0)), (("element", 6),)
    plain = BitLayout(ins, outs, (1, 2, 4, 8, 16, 32))
    found = check(plain, BitLayout(ins, outs, (1, 2 ^ 1, 4, 8, 16, 32)))
    assert found.way == "shuffle" and found.rounds == 0


def test_other_warps_go_through_memory() -> None:
    a = BitLayout((("slot", 1), ("lane", 1), ("warp", 1)), (("element", 3),), (1, 2, 4))
    b = BitLayout((("slot", 1), ("lane", 1), ("warp", 1)), (("element", 3),), (4, 2, 1))
    assert convert(a, b).way == "shared"


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
