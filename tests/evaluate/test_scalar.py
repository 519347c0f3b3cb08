"""The meaning of functions of one dtype against exact arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from treadle.dtype.convert import round_to
from treadle.dtype.formats import DType, bf16, f16
from treadle.evaluate import scalar


@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
@pytest.mark.parametrize("fn, exact", [("add", np.add), ("mul", np.multiply), ("div", np.divide)])
def test_half_operations_round_once(dtype: DType, fn: str, exact: np.ufunc) -> None:
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 1 << 16, (2, 1 << 14), dtype=np.uint16)
    a, b = codes[0].view(dtype.numpy), codes[1].view(dtype.numpy)
    with np.errstate(all="ignore"):
        # An f32 result of two such operands has enough bits that rounding again is rounding the exact result.
        want = round_to(exact(a.astype(np.float64), b.astype(np.float64)), dtype).astype(dtype.numpy)
        got = scalar.apply(fn, dtype, a, b)
    nan = np.isnan(want.astype(np.float32))
    assert got.dtype == dtype.numpy and (np.isnan(got.astype(np.float32)) == nan).all()
    assert (got.view(np.uint16)[~nan] == want.view(np.uint16)[~nan]).all()
