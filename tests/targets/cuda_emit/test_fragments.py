"""Distributions: slots and thread parts against a plain enumeration; references resolve within a thread or not at
all."""

from __future__ import annotations

import pytest
from tests.targets.cuda_emit.kit import text

from treadle.algebra.expr import const, sym
from treadle.dtype.formats import bf16, f32
from treadle.machine.form import Frag, Mode
from treadle.targets.cuda.emit.errors import CudaEmitUnsupported
from treadle.targets.cuda.emit.fragments import layout, matrix_axes, part_text, spare_text


def accumulator(columns: int) -> Frag:
    modes = (
        Mode("slot", 2, 1, 1), Mode("slot", 2, 0, 8), Mode("slot", columns // 8, 1, 8),
        Mode("lane", 4, 1, 2), Mode("lane", 8, 0, 1), Mode("warp", 4, 0, 16),
    )  # fmt: skip
    return Frag("acc", f32, (64, columns), modes)


def bits(lane: int, warp: int) -> dict[str, int]:
    found = {f"@lane{i}": lane >> i & 1 for i in range(5)}
    return found | {f"@warp{i}": warp >> i & 1 for i in range(3)}


def test_accumulators_lie_as_the_tensor_core_has_them() -> None:
    made = layout(accumulator(64), 32, 4)
    for lane, warp in ((0, 0), (5, 1), (31, 3)):
        for i in range(32):
            row, column = (int(c.evaluate(bits(lane, warp))) for c in made.coords(i))
            assert row == 16 * warp + lane // 4 + 8 * (i >> 1 & 1)
            assert column == 8 * (i >> 2) + 2 * (lane & 3) + (i & 1)
    assert matrix_axes(made) == (0, 1)
    assert not made.spare and not made.short


def test_every_element_is_held_once() -> None:
    made = layout(accumulator(16), 32, 4)
    seen = {
        tuple(int(c.evaluate(bits(lane, warp))) for c in made.coords(i))
        for lane in range(32)
        for warp in range(4)
        for i in range(made.count)
    }
    assert len(seen) == 64 * 16 == 128 * made.count


def test_the_text_of_a_thread_part_has_its_value() -> None:
    made = layout(accumulator(16), 32, 4)
    for lane, warp in ((0, 0), (13, 2), (31, 3)):
        for part in made.parts:
            code = part_text(part)
            assert eval(code, {"lane": lane, "warp": warp}) == part.evaluate(bits(lane, warp)), code


def test_references_stay_in_their_thread() -> None:
    made = layout(accumulator(64), 32, 4)
    row, column = made.coords(7)
    assert made.find((row, column)) == 7
    assert made.find((row, column + 8)) == 11
    assert made.find((row + 1, column)) is None
    assert made.find((row, column + sym("@lane2"))) is None


def test_replicas_are_told_apart() -> None:
    frag = Frag("top", f32, (64,), (Mode("slot", 2, 0, 8), Mode("lane", 4, None, 0), Mode("lane", 8, 0, 1)))
    made = layout(frag, 32, 4)
    assert spare_text(made.spare) == "(lane & 3) == 0 && (warp & 3) == 0"
    whole = layout(Frag("x", f32, (3,)), 32, 1)
    assert (whole.count, spare_text(whole.spare)) == (3, "(lane & 31) == 0")
    assert spare_text(layout(Frag("x", f32, (3,)), 1, 1).spare) is None


def test_slots_beyond_the_shape_are_known() -> None:
    frag = Frag("x", f32, (100,), (Mode("slot", 4, 0, 32), Mode("lane", 32, 0, 1)))
    assert layout(frag, 32, 1).short == (0,)


def test_halves_share_registers() -> None:
    made = layout(Frag("p", bf16, (4,)), 1, 1)
    assert (made.registers, made.element_type) == (2, "u32")
    assert layout(Frag("p", bf16, (3,)), 1, 1).element_type == "u16"


def test_what_has_no_text_is_refused() -> None:
    with pytest.raises(CudaEmitUnsupported):
        layout(Frag("x", f32, (6,), (Mode("lane", 3, 0, 2), Mode("slot", 2, 0, 1))), 32, 1)
    with pytest.raises(CudaEmitUnsupported):
        layout(Frag("x", f32, (4,), (Mode("replica", 4, None, 0), Mode("slot", 4, 0, 1))), 32, 1)


def test_coordinates_of_the_hand_text_resolve() -> None:
    frags = {f.name: f for f in text("k2_gemm").kernels[0].frags}
    acc, pre = (layout(frags[n], 32, 4) for n in ("acc", "pre"))
    for slot in range(pre.count):
        row, column = pre.coords(slot)
        assert acc.find((row, column + const(128))) == slot + 64
