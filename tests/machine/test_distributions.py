"""Distributions as placements and in bits, against the digits themselves, thread by thread."""

from __future__ import annotations

import random

import pytest

from treadle.algebra.layouts import LayoutUndefined
from treadle.dtype.formats import f32
from treadle.machine.distributions import bits, placement
from treadle.machine.form import Frag, Mode
from treadle.view.spread import Owner, owners


def fragment(dice: random.Random, lanes: int, warps: int) -> Frag:
    """Two axes, digits of any order; what is left of lanes and warps replicates, said or not."""
    left = {"lane": lanes, "warp": warps, "slot": 16}
    modes: list[Mode] = []
    shape = [1, 1]
    for _ in range(dice.randint(1, 6)):
        who, axis = dice.choice(("slot", "lane", "warp")), dice.choice((0, 1, 1, None))
        size = dice.choice((2, 2, 4))
        if size > left[who] or (axis is None and who == "slot"):
            continue
        left[who] //= size
        modes.append(Mode(who, size, axis, 0 if axis is None else shape[axis]))
        if axis is not None:
            shape[axis] *= size
    return Frag("f", f32, (shape[0], shape[1]), tuple(modes))


def test_random_distributions() -> None:
    dice = random.Random(5)
    for _ in range(150):
        lanes, warps = dice.choice((8, 32)), dice.choice((1, 2, 4))
        frag = fragment(dice, lanes, warps)
        if not frag.dist:
            continue
        layout, where = bits(frag, lanes, warps), placement(frag)
        counted = {who: 1 for who in ("slot", "lane", "warp")}
        for m in frag.dist:
            counted[m.who] *= m.size
        by_element = owners(frag)
        for x in range(frag.shape[0] * frag.shape[1]):
            coords = divmod(x, frag.shape[1])
            mine = {p for p in where.places(x)}
            # the digits' owners leave replicas out: they are the places in which every replica is the first
            said = {Owner(dict(p).get("warp", 0), dict(p).get("lane", 0), dict(p).get("slot", 0)) for p in mine}
            assert set(by_element[coords]) == said
        for slot in range(counted["slot"]):
            for lane in range(lanes):
                for warp in range(warps):
                    x = layout(slot=slot, lane=lane, warp=warp)["element"]
                    owner = Owner(warp % counted["warp"], lane % counted["lane"], slot)
                    assert owner in by_element[divmod(x, frag.shape[1])]


def test_fragments_without_digits_are_held_whole() -> None:
    layout = bits(Frag("f", f32, (2, 4)), 32, 2)
    assert all(layout(slot=s, lane=21, warp=1)["element"] == s for s in range(8))


@pytest.mark.parametrize(
    "dist",
    [
        (Mode("slot", 4, 0, 2),),
        (Mode("slot", 4, 0, 1), Mode("lane", 2, 0, 2)),
        (Mode("slot", 3, 0, 1),),
        (Mode("lane", 64, 0, 1),),
    ],
)
def test_refusals(dist: tuple[Mode, ...]) -> None:
    size = max(m.size * m.stride for m in dist)
    with pytest.raises(LayoutUndefined):
        bits(Frag("f", f32, (size,), dist), 32, 1)
