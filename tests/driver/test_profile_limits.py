"""What a profile takes as the least work of a call."""

from __future__ import annotations

import pytest

from treadle.driver.kernel import Kernel
from treadle.driver.profile import flops_of
from treadle.dtype.formats import f32
from treadle.lib.attention import attention, varlen_attention


@pytest.mark.parametrize(("kernel", "flops"), [(attention, 2 * 2 * 3**5), (varlen_attention, 0)])
def test_products_over_ranges_that_a_run_tells_count_nothing(kernel: Kernel, flops: int) -> None:
    """Two contractions over batch, heads, queries, keys and width; nobody knows how many where lengths are loaded."""
    program = kernel.definition.capture({}, {})
    assert flops_of(program, {s: 3 for d in program.dims for s in d.extent.symbols}) == (flops, f32)
