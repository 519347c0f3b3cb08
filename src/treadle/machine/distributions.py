"""Distributions of fragments in the words of the algebra: as placements, whose inverse is set-valued, and in bits."""

from __future__ import annotations

from math import prod

from treadle.algebra.bits import BitLayout
from treadle.algebra.crossings import bits_of_placement
from treadle.algebra.layouts import LayoutUndefined
from treadle.algebra.placements import Digit, Placement
from treadle.machine.form import Frag, Mode

HOLDERS = ("slot", "lane", "warp")


def placement(frag: Frag) -> Placement:
    """Where the elements of a fragment are, over slots, lanes and warps.

    *Ensures*: the places of an element (row-major) are the (slot, lane, warp) whose digits say its coordinates, threads
    that no digit counts aside. *Errors*: `layout/undefined` where digits do not count each coordinate once."""
    if not frag.dist:
        return Placement(tuple((n, prod(frag.shape[i + 1 :]), "slot") for i, n in enumerate(frag.shape)))
    radix: dict[str, int] = dict.fromkeys([*HOLDERS, "replica"], 1)
    digits: list[tuple[Mode, int]] = []
    for mode in frag.dist:
        digits.append((mode, radix[mode.who]))
        radix[mode.who] *= mode.size
    shard: list[Digit] = []
    for axis, extent in enumerate(frag.shape):
        mine = sorted(((m, r) for m, r in digits if m.axis == axis and m.size > 1), key=lambda d: -d[0].stride)
        left = extent
        for mode, step in mine:
            if left != mode.size * mode.stride:
                raise _undefined(frag, f"{mode.size} steps of {mode.stride} in {left} along axis {axis}")
            shard.append((mode.size, step, mode.who))
            left = mode.stride
        if left != 1:
            raise _undefined(frag, f"no digit for {left} along axis {axis}")
    replicas = tuple((m.size, r, m.who) for m, r in digits if m.axis is None and m.size > 1)
    return Placement(tuple(shard), replicas)


def bits(frag: Frag, lanes: int, warps: int) -> BitLayout:
    """slot, lane, warp -> element (row-major), for a fragment that `lanes * warps` threads hold; threads that no digit
    counts are replicas.

    *Ensures*: element x is at (slot, lane, warp) exactly when its placement says so of some thread whose number agrees
    in the digits that it counts. *Errors*: `layout/undefined` as `placement`, and for sizes that are no powers of
    two."""
    found = placement(frag)
    have = {who: prod(e for e, _, a in found.shard + found.replicas if a == who) for who in HOLDERS}
    there = {"slot": have["slot"], "lane": lanes, "warp": warps}
    if any(n & (n - 1) or n < have[who] for who, n in there.items()):
        raise _undefined(frag, f"{there} of which digits count {have}")
    spare = tuple((there[who] // n, n, who) for who, n in have.items() if there[who] > n)
    whole = Placement(found.shard, found.replicas + spare)
    return bits_of_placement(whole, {who: n.bit_length() - 1 for who, n in there.items()})


def _undefined(frag: Frag, found: str) -> LayoutUndefined:
    return LayoutUndefined(
        doing=f"reading the distribution of {frag.name}",
        found=found,
        expected="digits that count each coordinate once",
        hint="give every axis digits whose strides are products of the smaller ones",
    )
