"""Expansions around instructions that are nearly right: within the class on a model that is as wrong as the measured
hardware, and right at the special points on any."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from tests.math.near import NearNumpyOps
from tests.math.test_accuracy import LONG, exactly, near_and_far, ulps
from tests.math.test_special_values import ALONE, POINTS

from treadle.math.table import FUNCTIONS, NoExpansion, by_hardware

HARDWARE = sorted(n for n, f in FUNCTIONS.items() if f.hardware)
OFF = 2.0**-25
"""The model's error, a quarter of an ulp to a half beside the rounding: what most results of the instructions are off;
their largest errors are measured on the device, where the bounds of the table are from."""


@pytest.mark.parametrize("name", HARDWARE)
def test_within_the_class(name: str) -> None:
    row = by_hardware(name, "sm_90a")
    if name == "erf":
        x = near_and_far(-4.2, 4.2, np.random.default_rng(5))[::8]
        want = exactly(mpmath.erf, x)
    else:
        reference, arguments = LONG[name]
        x = arguments(np.random.default_rng(5))
        with np.errstate(all="ignore"):
            want = reference(x.astype(np.longdouble))
    with np.errstate(all="ignore"):
        got = np.asarray(row.expand(NearNumpyOps(OFF), x), np.float32)
    worst = float(ulps(got, want).max())
    assert 0.5 <= worst <= 2.0
    assert row.ulp <= 2.0


@pytest.mark.parametrize("off", [0.0, 2.0**-22])
@pytest.mark.parametrize("name", HARDWARE)
def test_special_points(name: str, off: float) -> None:
    x = np.array(POINTS, np.float32)
    with np.errstate(all="ignore"):
        want = ALONE[name](x.astype(np.float64)).astype(np.float32)
        got = np.asarray(by_hardware(name, "sm_90a").expand(NearNumpyOps(off), x), np.float32)
    special = np.isnan(want) | np.isinf(want) | (want == 0)
    assert np.array_equal(got[special], want[special], equal_nan=True)
    zero = want == 0
    assert np.array_equal(np.signbit(got[zero]), np.signbit(want[zero]))
    rest = ~special & (np.abs(want) > 2.0**-120)
    assert np.allclose(got[rest], want[rest], rtol=1e-6, atol=0)


def test_only_where_it_was_measured() -> None:
    with pytest.raises(NoExpansion, match="sm_80"):
        by_hardware("exp", "sm_80")
    with pytest.raises(NoExpansion, match="log"):
        by_hardware("log", "sm_90a")
