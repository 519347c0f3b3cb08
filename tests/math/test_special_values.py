"""Infinities, NaN, zeros with their signs, subnormals and overflow, as NumPy has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

from treadle.math.numpy_ops import apply
from treadle.math.table import FUNCTIONS, NoExpansion, expansion

Array = NDArray[Any]
INF, NAN = float("inf"), float("nan")
POINTS = [0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 1e-45, -1e-45, 1e-40, 3.4e38, -3.4e38, 2.0**-126, 104.0, -104.0]
ALONE: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "log": np.log,
    "log2": np.log2,
    "log1p": np.log1p,
    "erf": lambda x: np.array([NAN if v != v else float(mpmath.erf(v)) if v else v for v in x.tolist()]),
    "normal_cdf": lambda x: np.array([NAN if v != v else float(mpmath.ncdf(v)) for v in x.tolist()]),
    "sin": lambda x: np.array([NAN if v - v != 0 else float(mpmath.sin(v)) if v else v for v in x.tolist()]),
    "cos": lambda x: np.array([NAN if v - v != 0 else float(mpmath.cos(v)) for v in x.tolist()]),
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
}


def test_every_function_is_tried() -> None:
    assert set(FUNCTIONS) == {*ALONE, "pow"}


@pytest.mark.parametrize("target", ["", "cpu"])
@pytest.mark.parametrize("name", ALONE)
def test_special_points(name: str, target: str) -> None:
    x = np.array(POINTS, np.float32)
    with np.errstate(all="ignore"):
        want = ALONE[name](x.astype(np.float64)).astype(np.float32)
    got = apply(expansion(name, target=target).expand, x)
    for value, g, w in zip(x.tolist(), got.tolist(), want.tolist()):
        special = w != w or w in (INF, -INF) or w == 0 or abs(w) < 1e-38
        if special:
            assert np.array_equal(g, w, equal_nan=True) and np.signbit(g) == np.signbit(w) or w != w and g != g, (
                value,
                g,
                w,
            )
        else:
            assert abs(g - w) <= 3e-7 * abs(w), (value, g, w)


@pytest.mark.parametrize("name", ["exp", "exp2", "sigmoid", "log", "log2"])
def test_fast_keeps_the_limits(name: str) -> None:
    x = np.array([INF, -INF, NAN, 0.0, 3e38, -3e38], np.float32)
    with np.errstate(all="ignore"):
        want = ALONE[name](x.astype(np.float64)).astype(np.float32)
    got = apply(expansion(name, "fast").expand, x)
    assert np.allclose(got, want, rtol=1e-6, atol=0, equal_nan=True)


def test_exp_at_its_edges() -> None:
    x = np.array([88.72283, 88.72284, -87.33654, -103.27893, -103.97208, -103.97209], np.float32)
    with np.errstate(all="ignore"):
        want = np.exp(x.astype(np.longdouble)).astype(np.float32)
    assert apply(expansion("exp").expand, x).tolist() == want.tolist()
    assert np.isinf(want[1]) and float(want[4]) == 2.0**-149 and want[5] == 0


def test_pow_special_cases() -> None:
    v = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, INF, -INF, NAN, 1e-45, -1e-45, 3e38, -3e38]
    v += [1e10, -1e10, 1.5, 16777215.0, -16777215.0, 1 - 2.0**-24, 1 + 2.0**-23]
    x, y = np.meshgrid(np.array(v, np.float32), np.array(v, np.float32))
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.longdouble), y.astype(np.longdouble)).astype(np.float32)
    got = apply(expansion("pow").expand, x, y)
    plain = np.isfinite(want) & (np.abs(want) >= 2.0**-126)
    assert np.all(np.abs(got[plain] - want[plain]) <= 1.2e-7 * np.abs(want[plain]))
    assert np.array_equal(got[~plain], want[~plain], equal_nan=True)
    number = ~np.isnan(want)
    assert np.array_equal(np.signbit(got[number]), np.signbit(want[number]))


def test_unknown_functions_and_classes() -> None:
    with pytest.raises(NoExpansion, match="no expansion"):
        expansion("gamma")
    with pytest.raises(NoExpansion, match="2ulp or fast"):
        expansion("exp", "exact")
