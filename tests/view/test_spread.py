"""Who holds an element: against the simulator, which counts in arrays, and against the instruction's own formula."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.view.plans import NAMES, machine

from treadle.dtype.formats import f32
from treadle.machine.form import Frag, Mode
from treadle.simulate.fragments import holders
from treadle.view.facts import slots
from treadle.view.spread import Owner, owners, places, replicas

FRAGS = [f for name in NAMES for k in machine(name).kernels for f in k.frags if f.dist and f.shape]


@pytest.mark.parametrize("frag", {(f.shape, f.dist): f for f in FRAGS}.values(), ids=lambda f: f.name)
def test_warps_hold_what_the_simulator_says(frag):
    held = owners(frag)
    warps = math.prod(m.size for m in frag.dist if m.who == "warp")
    masks = holders(frag.shape, frag.dist, warps)
    for coords in [tuple(0 for _ in frag.shape), *list(held)[:: max(1, len(held) // 200)]]:
        assert {o.warp for o in held[coords]} == {w for w in range(warps) if masks[w][coords]}
    assert len(held) == math.prod(frag.shape)
    assert {len(have) for have in held.values()} == {replicas(frag)}
    assert max(o.slot for have in held.values() for o in have) + 1 == slots(frag)


def test_an_accumulator_lies_as_the_instruction_says():
    frag = next(f for f in FRAGS if f.shape == (64, 64) and any(m.who == "warp" for m in f.dist))
    held = owners(next(f for f in FRAGS if f.name.startswith("acc") and f.shape[0] == 64))
    assert frag is not None
    for (row, column), (owner,) in held.items():
        # PTX ISA, wgmma: row = 16 warp + lane / 4 (+ 8), columns 2 (lane % 4) and the next, eight apart.
        assert (owner.warp, owner.lane) == (row // 16, row % 8 * 4 + column % 8 // 2)
        assert owner.slot == column % 2 + row % 16 // 8 * 2 + column // 8 * 4


@given(st.lists(st.tuples(st.sampled_from(["slot", "lane", "warp"]), st.integers(1, 4)), min_size=1, max_size=5))
def test_digits_enumerate_each_place_once(sizes):
    stride, modes = 1, []
    for who, size in sizes:
        modes.append(Mode(who, size, 0, stride))
        stride *= size
    found = list(places(modes, 1))
    assert len({o for o, _ in found}) == len(found) == stride
    assert sorted(c for _, (c,) in found) == list(range(stride))
    assert found[0] == (Owner(0, 0, 0), (0,))
    assert owners(Frag("x", f32, (stride,), tuple(modes))) == {c: [o] for o, c in found}
