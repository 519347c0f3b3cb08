"""The hand-written machine texts that ran right on the device: they assemble clean, with the instructions they
state."""

from __future__ import annotations

import pytest
from tests.targets.cuda_emit.kit import built, text

from treadle.runtime.tensor_map import TensorMapSpec
from treadle.targets.cuda.emit import Call, prepare, workspace_bytes

STATED = {
    "k2_product": {"HGMMA": 4, "UTMALDG": 5, "UTMASTG": 4, "STSM": 16},
    "k2_gemm": {"HGMMA": 4, "UTMALDG": 5, "UTMASTG": 4, "STSM": 16},
    "k3_plain": {"HGMMA": 16, "UTMALDG": 6, "UTMASTG": 0, "STSM": 0},
    "k3_plain_fused": {"HGMMA": 16, "UTMALDG": 6, "UTMASTG": 0, "STSM": 0},
    "k3_ahead": {"HGMMA": 32, "UTMALDG": 6, "UTMASTG": 0, "STSM": 0},
    "k3_ahead_fused": {"HGMMA": 32, "UTMALDG": 6, "UTMASTG": 0, "STSM": 0},
}


@pytest.mark.parametrize("name", STATED)
def test_it_assembles_clean_with_its_own_instructions(name: str) -> None:
    made = built(text(name), name)
    assert made.cubin.messages == ()
    (resources,) = made.cubin.kernels
    assert (resources.stack, resources.spill_stores, resources.spill_loads) == (0, 0, 0)
    assert resources.registers == 168  # three warpgroups enter with it; setmaxnreg moves on from there
    (launch,) = made.emitted.launches
    for opcode, count in STATED[name].items():
        assert launch.counts[opcode] == count
        assert made.count(opcode) == count
    assert made.count("LDL") == made.count("STL") == 0
    assert made.count("USETMAXREG") == 2


def test_a_group_has_one_fence_and_its_waits() -> None:
    made = built(text("k2_product"))
    assert made.count("WARPGROUP.ARRIVE") == 1
    assert made.count("WARPGROUP.DEPBAR") == 2


def test_a_launch_has_every_argument() -> None:
    emitted = built(text("k2_product")).emitted
    strides = {"X": (152, 1), "W": (536, 1), "Y": (536, 1)}
    call = Call({"M": 257, "N": 520, "K": 136}, {n: 1 << 20 for n in strides}, strides, {})
    (launch,) = prepare(emitted, call)
    assert launch.kernel == "k_k2"
    assert launch.geometry.grid == (9, 1, 1)
    assert launch.geometry.problems() == []
    maps = [a for a in launch.arguments if isinstance(a, TensorMapSpec)]
    assert [m.problems() for m in maps] == [[], [], []]
    assert (maps[0].extents, maps[0].pitches, maps[0].box) == ((136, 257), (304,), (64, 128))
    assert workspace_bytes(emitted, call) == 0


def test_nothing_is_launched_for_empty_outputs() -> None:
    emitted = built(text("k2_product")).emitted
    strides = {"X": (152, 1), "W": (536, 1), "Y": (536, 1)}
    assert prepare(emitted, Call({"M": 0, "N": 520, "K": 136}, dict.fromkeys(strides, 0), strides, {})) == []
