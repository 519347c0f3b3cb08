"""Functions of 16-bit numbers as compiled code computes them, on every number there is: the right one of two
neighbours, but for arguments whose result lies within a thousandth of the middle between these."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
from treadle import bf16, f16
from treadle.dtype.formats import DType

N = td.dims("N")
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "tanh": np.tanh,
    "log": np.log,
    "log2": np.log2,
    "log1p": np.log1p,
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "sin": lambda x: np.sin(np.where(np.isinf(x), np.nan, x)),
    "cos": lambda x: np.cos(np.where(np.isinf(x), np.nan, x)),
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}


@td.kernel
def each(X: td.Tensor[N], Y: td.Out[N], *, fn):
    """fn of every element."""
    for n in td.parallel(N):
        Y[n] = fn(X[n])


def off(got: Any, want: Any, d: DType) -> Any:
    """Distance in units of the last place of the results; beyond the greatest number, of infinity."""
    top = float(d.finite_max)
    exponent = np.floor(np.log2(np.clip(np.abs(want), 2.0**d.min_exponent, top)))
    unit = np.exp2(exponent - d.mantissa)
    # One step beyond the greatest number stands for infinity, as rounding has it.
    beyond = top + 2.0 ** (math.floor(math.log2(top)) - d.mantissa)
    near = np.where(np.isinf(got), np.sign(got) * beyond, got)
    return np.abs(near - np.clip(want, -beyond, beyond)) / unit


@pytest.mark.parametrize("d", [f16, bf16], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_number(name: str, d: DType) -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(d.numpy)
    y = np.zeros_like(x)
    each(x, y, fn=getattr(td, name))
    with np.errstate(all="ignore"):
        want = FUNCTIONS[name](x.astype(np.float64))
    got = y.astype(np.float64)
    assert (np.isnan(got) == np.isnan(want)).all(), x[np.isnan(got) != np.isnan(want)][:8]
    there = ~np.isnan(want)
    errors = off(got[there], want[there], d)
    assert errors.max() <= 0.501, (x[there][errors.argmax()], got[there][errors.argmax()], errors.max())
