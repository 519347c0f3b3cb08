"""Activations: values and slopes within derived bounds, special values, gates and their gradients."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.lib import rounding as r
from tests.lib.rounding import Num
from tests.lib.ways import BF16, clean, compare, random, reals, run, whole

import treadle as td
from treadle.lib import activations as lib


def gelu_tanh_inner(x: Any) -> Num:
    x = r.num(x)
    return r.inexact(lib.ROOT_2_OVER_PI) * (x + r.inexact(0.044715) * (x * x * x))


def erf(x: Any) -> Num:
    values = np.vectorize(math.erf, otypes=[float])
    return r.function(values, lambda v: 2 / math.sqrt(math.pi) * np.exp(-v * v), x)


def silu_slope(x: Any) -> Num:
    s = r.sigmoid(x)
    return s * (1.0 + r.num(x) * (1.0 - s))


def gelu_slope(x: Any) -> Num:
    x = r.num(x)
    density = r.exp(-0.5 * (x * x)) * r.inexact(1 / lib.ROOT_2_PI)
    return 0.5 * (1.0 + erf(x * r.inexact(lib.ROOT_HALF))) + x * density


def gelu_tanh_slope(x: Any) -> Num:
    x, t = r.num(x), r.tanh(gelu_tanh_inner(x))
    inner = r.inexact(lib.ROOT_2_OVER_PI) * (1.0 + r.inexact(3 * 0.044715) * (x * x))
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner


def elu(x: Any, alpha: Any = 1.0) -> Num:
    return r.where(r.up(x) > 0, x, alpha * r.expm1(r.minimum(x, 0)))


def clamp(x: Any, low: float, high: float) -> Num:
    return r.minimum(r.maximum(x, low), high)


def hard_sigmoid(x: Any) -> Num:
    return clamp(r.num(x) * r.inexact(1 / 6) + 0.5, 0, 1)


ORACLES: dict[str, Callable[[Any], Any]] = {
    "gelu_tanh": lambda x: 0.5 * r.num(x) * (1.0 + r.tanh(gelu_tanh_inner(x))),
    "gelu_quick": lambda x: r.num(x) * r.sigmoid(r.inexact(1.702) * x),
    "relu6": lambda x: np.clip(r.up(x), 0, 6),
    "relu_squared": lambda x: r.maximum(x, 0) * r.maximum(x, 0),
    "leaky_relu": lambda x: r.where(r.up(x) > 0, x, r.num(x) * r.inexact(0.01)),
    "elu": elu,
    "celu": elu,
    "selu": lambda x: r.inexact(1.0507009873554805) * elu(x, r.inexact(1.6732632423543772)),
    "mish": lambda x: r.num(x) * r.tanh(r.softplus(x)),
    "hard_sigmoid": hard_sigmoid,
    "hard_swish": lambda x: r.num(x) * hard_sigmoid(x),
    "hard_tanh": lambda x: np.clip(r.up(x), -1, 1),
    "softsign": lambda x: r.num(x) / (1.0 + r.absolute(x)),
    "log_sigmoid": lambda x: -r.softplus(-r.num(x)),
    "tanh_shrink": lambda x: r.num(x) - r.tanh(x),
    "soft_shrink": lambda x: r.num(x) - clamp(x, -0.5, 0.5),
    "hard_shrink": lambda x: np.where(np.abs(r.up(x)) <= 0.5, 0, r.up(x)),
    "relu_slope": lambda x: (r.up(x) > 0) * 1.0,
    "sigmoid_slope": lambda x: r.sigmoid(x) * (1.0 - r.sigmoid(x)),
    "tanh_slope": lambda x: 1.0 - r.tanh(x) * r.tanh(x),
    "silu_slope": silu_slope,
    "gelu_slope": gelu_slope,
    "gelu_tanh_slope": gelu_tanh_slope,
    "softplus_slope": r.sigmoid,
}
SLOPES = {
    td.relu: lib.relu_slope,
    td.sigmoid: lib.sigmoid_slope,
    td.tanh: lib.tanh_slope,
    td.silu: lib.silu_slope,
    td.gelu: lib.gelu_slope,
    lib.gelu_tanh: lib.gelu_tanh_slope,
    td.softplus: lib.softplus_slope,
}


def points() -> np.ndarray:
    x = reals(random(), 5, 13, scale=3)
    x[0, :6] = [0.0, -0.0, 0.5, -0.5, 6.0, -3.0]
    return x


def test_every_function_has_an_oracle() -> None:
    public = {n for n, f in vars(lib).items() if inspect.isfunction(f) and f.__module__ == lib.__name__}
    assert public == set(ORACLES)


@pytest.mark.parametrize("name", ORACLES)
def test_values(name: str) -> None:
    x = points()
    run(lib.activation, x, act=getattr(lib, name), want=ORACLES[name](x))


@pytest.mark.parametrize("name", [n for n in ORACLES if not n.endswith("slope")])
def test_special_values(name: str) -> None:
    """NaN stays, nothing overflows on the way: the limits at the infinities are the function's."""
    x = np.array([[np.nan, 100.0, -100.0, 3e38]], np.float32)
    y = lib.activation.reference(x, act=getattr(lib, name))
    assert np.isnan(y[0, 0]) and not np.isnan(y[0, 1:]).any()
    with np.errstate(all="ignore"):
        compare(y[:, 1:3], ORACLES[name](x[:, 1:3]), name)


def test_slopes_are_those_of_their_functions() -> None:
    """Against a central difference in f64: off by h^2/6 of a third derivative (below 2) and 2^-50/h."""
    x, h = random(1).uniform(-4, 4, (3, 7)), 1e-4
    x = np.where(np.abs(x) < 0.01, 0.5, x)
    for act, slope in SLOPES.items():
        ahead, behind = (lib.activation.reference(x + d, act=act) for d in (h, -h))
        got = lib.activation.reference(x, act=slope)
        np.testing.assert_allclose(got, (ahead - behind) / (2 * h), rtol=0, atol=1e-7, err_msg=str(act))


def test_dtypes_strides_and_extents() -> None:
    x = points()
    y = run(
        lib.activation,
        x.astype(BF16)[::-1, ::2],
        act=lib.mish,
        compiled=True,
        want=ORACLES["mish"](x.astype(BF16)[::-1, ::2]),
    )
    assert y.dtype == np.float32
    run(lib.activation, x[:0], act=lib.mish, want=np.zeros((0, 13)))
    out = np.zeros((5, 13), BF16)
    run(lib.activation, x, out, act=lib.mish, want=r.num(ORACLES["mish"](x)).stored(r.U_BF16))
    narrow = lib.activation.reference(x.astype(np.float64), act=lib.mish)
    assert narrow.dtype == np.float64 and np.abs(narrow - ORACLES["mish"](x).value).max() < 1e-14


def test_in_place_and_backward() -> None:
    x, d = points(), whole(random(2), 5, 13)
    run(lib.activation_backward, x, d, slope=lib.gelu_slope, want=r.num(d) * gelu_slope(x))
    lib.activation_backward(x, d, d, slope=lib.relu_slope)
    compare(d, whole(random(2), 5, 13) * (x > 0))


@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_gates(dtype: Any) -> None:
    both = reals(random(3), 7, 38).astype(dtype)
    g, u, d = both[:, :19], both[:, 19:], whole(random(4), 7, 19, dtype=dtype)
    sig = r.num(g) / (1.0 + r.exp(-r.num(g)))
    run(lib.gated, g, u, want=sig * u)
    clean(lib.gated, g, u)
    run(lib.gated_backward, g, u, d, want=(r.num(d) * u * silu_slope(g), r.num(d) * sig))
    exact = whole(random(5), 7, 19, dtype=dtype)
    run(lib.gated, exact, u, act=td.relu, want=r.num(np.maximum(r.up(exact), 0)) * u)
