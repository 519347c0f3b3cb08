"""The loop that a processor's peak is measured by compiles for every level that plans are made for."""

from __future__ import annotations

import pytest

from treadle.bench.limits import LANES, loop_text
from treadle.toolchain.features import LEVELS, is_arm
from treadle.toolchain.llvm import compile_ir


@pytest.mark.parametrize("level", LEVELS)
def test_the_loop_assembles(level: str) -> None:
    text, features, work = loop_text(level)
    triple = "aarch64-unknown-linux-gnu" if is_arm(features) else "x86_64-unknown-linux-gnu"
    made = compile_ir(text, cpu_features=features, name="peak", triple=triple, want_asm=True)
    products = [
        line
        for line in (made.asm or "").splitlines()
        if line.split()[:1] in (["fmla"], ["vfmadd213ps"], ["vfmadd231ps"])
    ]
    # The compiler may unroll whole iterations.
    assert products and len(products) * 2 * LANES[level] % work == 0
