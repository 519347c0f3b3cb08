"""Random distributions, and what they say thread by thread as arrays."""

from __future__ import annotations

import random

import numpy as np

from treadle.algebra.bits import BitLayout


def distribution(dice: random.Random, slots: int, lanes: int, warps: int, bits: int) -> BitLayout | None:
    """Element bits dealt to slots, lanes and warps at random; what is left over replicates."""
    count = slots + lanes + warps
    if count < bits:
        return None
    images = [1 << i for i in range(bits)] + [0] * (count - bits)
    dice.shuffle(images)
    return BitLayout((("slot", slots), ("lane", lanes), ("warp", warps)), (("element", bits),), tuple(images))


def pair(dice: random.Random) -> tuple[BitLayout, BitLayout, int]:
    """Two distributions of a tile over the same 32 lanes and 1 to 8 warps, with 1 to 64 registers, and the bytes of an
    element. Half of the second ones move few bits of the first, so that all ways come up; some xor bits."""
    warps = dice.randint(0, 3)
    bits = dice.randint(2, 9)
    first, second = (distribution(dice, dice.randint(max(0, bits - 5 - warps), 6), 5, warps, bits) for _ in range(2))
    assert first is not None and second is not None
    if dice.random() < 0.5:
        images = list(first.images)
        for _ in range(dice.randint(0, 3)):
            i, k = (dice.randrange(len(images) - warps) for _ in range(2))
            images[i], images[k] = images[k], images[i]
            if dice.random() < 0.2 and i != k:
                images[i] ^= images[k]
        second = BitLayout(first.ins, first.outs, tuple(images))
    return first, second, dice.choice((1, 2, 4, 8))


def mixed(dice: random.Random, layout: BitLayout) -> BitLayout:
    """Another distribution, in which bits of slots, lanes and warps are sums of others, or the same ones twice."""
    images = list(layout.images)
    for _ in range(dice.randint(1, 8)):
        i, k = dice.sample(range(len(images)), 2)
        images[i] ^= images[k]
    return BitLayout(layout.ins, layout.outs, tuple(images))


def table(layout: BitLayout) -> np.ndarray:
    """All values of a layout."""
    found = np.zeros(1, dtype=np.int64)
    for image in layout.images:
        found = np.concatenate([found, found ^ image])
    return found


def threads(layout: BitLayout) -> np.ndarray:
    """What each (warp, lane, slot) holds."""
    sizes = dict(layout.ins)
    return table(layout).reshape(1 << sizes["warp"], 1 << sizes["lane"], 1 << sizes["slot"])
