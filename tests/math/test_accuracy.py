"""The error of every expansion on some 2^17 arguments: at most what its row states, and no less than half of that."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

from treadle.math.numpy_ops import apply
from treadle.math.table import FUNCTIONS, expansion

Long = NDArray[np.longdouble]
N = 1 << 15
TOP = np.longdouble(float(np.finfo(np.float32).max)) * (1 + np.longdouble(2.0) ** -25)


def near_and_far(low: float, high: float, rng: np.random.Generator) -> NDArray[np.float32]:
    """Evenly from low to high, and evenly in the exponent down to the smallest numbers."""
    even = rng.uniform(low, high, 2 * N)
    steps = np.exp2(rng.uniform(-149, np.log2(max(abs(low), abs(high))), N))
    return np.concatenate([even, steps[steps <= high], -steps[-steps >= low]]).astype(np.float32)


def positive(rng: np.random.Generator) -> NDArray[np.float32]:
    return np.concatenate([np.exp2(rng.uniform(-149, 128, N)), rng.uniform(0.3, 3, 2 * N)]).astype(np.float32)


def exactly(function: Callable[[mpmath.mpf], mpmath.mpf], x: NDArray[np.float32]) -> Long:
    """By mpmath, as a long double made of two doubles."""
    out = np.empty(len(x), np.longdouble)
    with mpmath.workdps(60):
        for i, v in enumerate(x.tolist()):
            value = function(mpmath.mpf(v))
            out[i] = np.longdouble(float(value)) + np.longdouble(float(value - mpmath.mpf(float(value))))
    return out


def ulps(got: NDArray[np.float32], want: Long) -> NDArray[np.float64]:
    """Distance in ulp of the exact result; what rounds to infinity must be it."""
    exponent = np.floor(np.log2(np.maximum(np.abs(want), np.longdouble(2.0) ** -200)))
    ulp = np.exp2(np.maximum(exponent - 23, -149))
    with np.errstate(all="ignore"):
        error = np.where(np.abs(want) < TOP, np.abs(got.astype(np.longdouble) - want) / ulp, 1e9)
        error = np.where((np.abs(want) >= TOP) & np.isinf(got) & (np.sign(got) == np.sign(want)), 0, error)
    return np.where(np.isnan(error), 1e9, error).astype(np.float64)


LONG: dict[str, tuple[Callable[[Long], Long], Callable[[np.random.Generator], NDArray[np.float32]]]] = {
    "exp": (np.exp, lambda g: near_and_far(-106, 90, g)),
    "exp2": (np.exp2, lambda g: near_and_far(-152, 129, g)),
    "expm1": (np.expm1, lambda g: near_and_far(-20, 90, g)),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), lambda g: near_and_far(-105, 20, g)),
    "tanh": (np.tanh, lambda g: np.concatenate([near_and_far(-2, 2, g), near_and_far(-11, 11, g)])),
    "log": (np.log, positive),
    "log2": (np.log2, positive),
    "log1p": (np.log1p, lambda g: np.concatenate([near_and_far(-0.9999, 3, g), positive(g)])),
    "sin": (np.sin, lambda g: near_and_far(-100, 100, g)),
    "cos": (np.cos, lambda g: near_and_far(-100, 100, g)),
    "sqrt": (np.sqrt, positive),
    "rsqrt": (lambda x: 1 / np.sqrt(x), positive),
    "reciprocal": (lambda x: 1 / x, positive),
}
NORMAL_ONLY = {("exp", "fast"), ("exp2", "fast"), ("sigmoid", "fast")}


@pytest.mark.parametrize("accuracy", ["2ulp", "fast"])
@pytest.mark.parametrize("name", LONG)
def test_against_long_double(name: str, accuracy: str) -> None:
    reference, arguments = LONG[name]
    row = FUNCTIONS[name].classes[accuracy]
    x = arguments(np.random.default_rng(7))
    with np.errstate(all="ignore"):
        want = reference(x.astype(np.longdouble))
    if (name, accuracy) in NORMAL_ONLY:
        assert row.note
        keep = (want > 2.0**-125) & (want < 2.0**127)
        x, want = x[keep], want[keep]
    check(ulps(apply(row.expand, x), want), x, row.ulp)


@pytest.mark.parametrize("target", ["", "cpu"])
def test_erf(target: str) -> None:
    x = near_and_far(-1, 1, np.random.default_rng(7))[: N // 4]
    x = np.concatenate([x, near_and_far(-4.2, 4.2, np.random.default_rng(8))[: N // 4]])
    row = expansion("erf", target=target)
    check(ulps(apply(row.expand, x), exactly(mpmath.erf, x)), x, row.ulp)


def test_normal_cdf_keeps_its_relative_accuracy() -> None:
    x = near_and_far(-14.6, 6, np.random.default_rng(7))[: N // 4]
    x = np.concatenate([x, np.linspace(-10.5, -9.5, N // 16, dtype=np.float32)])
    row = FUNCTIONS["normal_cdf"].classes["2ulp"]
    check(ulps(apply(row.expand, x), exactly(mpmath.ncdf, x)), x, row.ulp)


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_large_angles(name: str) -> None:
    rng = np.random.default_rng(7)
    x = np.exp2(rng.uniform(14.9, 128, N // 8)).astype(np.float32)
    # Numbers near multiples of pi/2, the nearest of all f32 among them.
    hard = [16367173.0 * 2.0**72, 13176795.0, 12966398.0 * 2.0**3, 33792.0, 32768.0, 32769.5]
    turns = (np.rint(x.astype(np.float64) / (np.pi / 2)) * (np.pi / 2)).astype(np.float32)
    x = np.concatenate([x, -x, turns[turns < 3e38], np.array(hard, np.float32)])
    row = FUNCTIONS[name].classes["2ulp"]
    check(ulps(apply(row.expand, x), exactly(getattr(mpmath, name), x)), x, row.ulp)


def test_pow() -> None:
    rng = np.random.default_rng(7)
    x = np.concatenate(
        [
            np.exp2(rng.uniform(-149, 128, N)),
            rng.uniform(0.4, 2.5, N),
            1 + rng.choice([-1, 1], N) * np.exp2(rng.uniform(-24, -2, N)),
        ]
    ).astype(np.float32)
    x = x[x != 1]
    y = (rng.uniform(-152, 129, len(x)) / np.log2(x.astype(np.float64))).astype(np.float32)
    y[::7] = rng.integers(-9, 9, len(y[::7]))
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
    row = FUNCTIONS["pow"].classes["2ulp"]
    check(ulps(apply(row.expand, x, y), want), x, row.ulp)


def check(error: NDArray[np.float64], x: NDArray[np.float32], bound: float) -> None:
    worst = int(error.argmax())
    assert error[worst] <= bound, f"{error[worst]:.3f} ulp at {x[worst]!r}"
    # A bound far above what is seen would be no statement about the expansion.
    assert error[worst] >= bound / 2
