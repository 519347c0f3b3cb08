"""Functions of the language on Python numbers give what they give on tiles."""

from __future__ import annotations

import math

import numpy as np
import pytest

import treadle.lang.api as td
from treadle.evaluate.interpreter import evaluate
from treadle.lang import numbers

M = td.dims("M")
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 3.5, 1000.0, -1000.0, 1e30, math.inf, -math.inf, math.nan]


@td.kernel
def both(X: td.Tensor[M, td.f64], Y: td.Out[M, td.f64], Z: td.Out[M, td.f64], *, fn, value):
    Y[M] = fn(X[M]).to(td.f64)
    Z[M] = td.full(M, value=fn(value), dtype=td.f64)


@pytest.mark.parametrize("name", sorted(numbers.FUNCTIONS))
def test_numbers_are_tiles_of_one_value(name: str) -> None:
    for value in SPECIAL:
        program = both.capture({}, {"fn": getattr(td, name), "value": value})
        arrays = {"X": np.full(1, value), "Y": np.zeros(1), "Z": np.zeros(1)}
        evaluate(program, arrays, extents={"M": 1})
        assert np.allclose(arrays["Y"], arrays["Z"], rtol=1e-14, atol=0, equal_nan=True), (name, value, arrays)


def test_two_numbers() -> None:
    assert math.isnan(numbers.maximum(1.0, math.nan)) and math.isnan(numbers.minimum(math.nan, 1.0))
    assert numbers.maximum(2, 3) == 3 and numbers.minimum(2, 3.5) == 2
    assert numbers.power(2, 10) == 1024 and numbers.power(2, -1) == 0.5 and numbers.power(2.0, 10000) == math.inf
    assert math.isnan(numbers.power(-8.0, 1 / 3)) and numbers.power(10**40, 10**40) == math.inf


def test_integers_beyond_every_float() -> None:
    assert numbers.FUNCTIONS["exp"](10**400) == math.inf and numbers.FUNCTIONS["tanh"](-(10**400)) == -1
    assert numbers.FUNCTIONS["isinf"](10**400) is False and numbers.FUNCTIONS["floor"](10**400) == 10**400
