"""The loop that a processor's peak is measured by compiles for every level that plans are made for."""

from __future__ import annotations

import pytest

from treadle.bench.limits import LANES, loop_text, products_of
from treadle.dtype.formats import DType, bf16, f32, i8
from treadle.toolchain.features import LEVELS, is_arm
from treadle.toolchain.llvm import compile_ir

BESIDE = {"avx512": {"avx512_bf16", "avx512_vnni"}, "amx": {"avx512_bf16", "avx512_vnni"}}
"""Features beside those of a level that are given here."""


@pytest.mark.parametrize(
    ("dtype", "level", "many", "names"),
    [
        *((f32, level, 1, ("fmla", "vfmadd213ps", "vfmadd231ps")) for level in LEVELS),
        *((bf16, level, 2, ("vdpbf16ps",)) for level in BESIDE),
        *((i8, level, 4, ("vpdpbusd",)) for level in BESIDE),
        *((i8, level, 4, ("sdot",)) for level in ("neon_dot", "sve")),
        *((i8, level, 1, ("fmla", "vfmadd213ps", "vfmadd231ps")) for level in ("avx2", "neon")),
    ],
)
def test_the_loop_assembles(dtype: DType, level: str, many: int, names: tuple[str, ...]) -> None:
    """Each product of its text is an instruction, and operations are counted a product of an element."""
    text, features, work = loop_text(level, products_of(dtype, LEVELS[level] | BESIDE.get(level, set[str]())))
    triple = "aarch64-unknown-linux-gnu" if is_arm(features) else "x86_64-unknown-linux-gnu"
    made = compile_ir(text, cpu_features=features, name="peak", triple=triple, want_asm=True)
    products = [line for line in (made.asm or "").splitlines() if line.split()[:1] in [[name] for name in names]]
    # The compiler may unroll whole iterations.
    assert products and len(products) * 2 * many * LANES[level] % work == 0
    assert work == 2 * many * LANES[level] * (12 if level == "avx2" else 24)
