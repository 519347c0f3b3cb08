"""What the emitter refuses, with its exact words."""

from __future__ import annotations

import pytest
from syrupy.assertion import SnapshotAssertion
from tests.targets.cuda_emit.kit import small, text

from treadle.machine.parse import parse_machine
from treadle.targets.cuda.emit import Call, emit, prepare
from treadle.targets.cuda.emit.errors import CudaEmitIllFormed, CudaEmitUnsupported, CudaExtentTooLarge

ROW = "  frag x f32[128] dist (slot 4 axis 0 stride 1, lane 32 axis 0 stride 4)\n"
UNSUPPORTED: dict[str, tuple[str, str]] = {
    "tasks of workers": ("tasks (t < M) over workers {\n}", ""),
    "another thread's element": ("y = copy x[$0 + 4]", ROW + ROW.replace("frag x", "frag y")),
    "a fold over warps": (
        "s = fold add z axes (0)",
        "  frag s f32[]\n  frag z f32[4] dist (lane 32 axis - stride 0, warp 4 axis 0 stride 1)\n",
    ),
    "a loop that chooses registers": (
        "loop j = 0 .. N step 1 {\n  s = copy z[j]\n}",
        "  frag s f32[]\n  frag z f32[4]\n",
    ),
    "an operand without swizzle": (
        "acc = mma wgmma.m64n64k16.bf16 A[$0, $2], A[$1, $2] onto acc contract (16)",
        "  buffer A bf16[64, 64] shared align 1024 @ 0\n"
        "  frag acc f32[64, 64] dist (slot 2 axis 1 stride 1, slot 2 axis 0 stride 8, slot 8 axis 1 stride 8, "
        "lane 4 axis 1 stride 2, lane 8 axis 0 stride 1, warp 4 axis 0 stride 16)\n",
    ),
    "a way by other slots of what is loaded": (
        "z = load Y[0, max(0, min(z(3 - $0), 7))]",
        "  frag z i32[4]\n",
    ),
    "too much shared memory": ("z = copy 0.0", "  frag z f32[1]\n  buffer A f32[60000] shared align 16\n"),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_forms_without_text(name: str, snapshot: SnapshotAssertion) -> None:
    body, declarations = UNSUPPORTED[name]
    with pytest.raises(CudaEmitUnsupported) as caught:
        emit(parse_machine(small(body, declarations)))
    assert str(caught.value) == snapshot


def test_hopper_is_needed(snapshot: SnapshotAssertion) -> None:
    body, declarations = "sync wgmma.fence", ""
    with pytest.raises(CudaEmitUnsupported) as caught:
        emit(parse_machine(small(body, declarations, target="cuda:sm_80")))
    assert str(caught.value) == snapshot


def test_programs_that_verification_should_have_refused(snapshot: SnapshotAssertion) -> None:
    with pytest.raises(CudaEmitIllFormed) as caught:
        emit(parse_machine(small("z = copy 1.0\nstore Y[0, unknown] = z", "  frag z f32[]\n")))
    assert str(caught.value) == snapshot


def test_extents_beyond_the_index_arithmetic(snapshot: SnapshotAssertion) -> None:
    emitted = emit(text("k2_product"))
    strides = {"X": (1 << 31, 1), "W": (8, 1), "Y": (8, 1)}
    with pytest.raises(CudaExtentTooLarge) as caught:
        prepare(emitted, Call({"M": 1, "N": 8, "K": 1 << 31}, dict.fromkeys(strides, 0), strides, {}))
    assert str(caught.value) == snapshot
