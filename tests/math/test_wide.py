"""The expansions in f64: their error on samples and at hard places, special values, and class `exact` of f32."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from treadle.math.numpy_wide import NumpyWideOps, apply_wide
from treadle.math.table import FUNCTIONS, NoExpansion, wide_expansion

Array = NDArray[Any]
N = 700
INF, NAN = float("inf"), float("nan")
POINTS = [0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 5e-324, -5e-324, 1e-310, 1.7e308, -1.7e308, 2.0**-1022, 750.0, -750.0]
WIDE = sorted(n for n, f in FUNCTIONS.items() if f.wide)


def even(low: float, high: float, rng: np.random.Generator) -> Array:
    """Evenly from low to high, and evenly in the exponent down to the smallest numbers."""
    steps = np.exp2(rng.uniform(-1074, np.log2(max(abs(low), abs(high))), N))
    return np.concatenate([rng.uniform(low, high, 2 * N), steps[steps <= high], -steps[-steps >= low]])


def positive(rng: np.random.Generator) -> Array:
    return np.concatenate([np.exp2(rng.uniform(-1074, 1024, N)), rng.uniform(0.3, 3, 2 * N)])


def angles(rng: np.random.Generator) -> Array:
    """Small, large, next to multiples of pi/2, and the f64 that is nearest to one of all."""
    far = np.exp2(rng.uniform(20, 1024, N))
    turns = np.rint(far / (np.pi / 2)) * (np.pi / 2)
    hard = np.array([6381956970095103.0 * 2.0**797, 2.0**20, np.nextafter(2.0**20, INF)])
    return np.concatenate([even(-100, 100, rng), rng.uniform(-1e6, 1e6, N), far, -far, turns[turns < 1e308], hard])


TRIED: dict[str, tuple[Callable[..., Any], Callable[[np.random.Generator], Array]]] = {
    "exp": (mpmath.exp, lambda g: even(-747, 712, g)),
    "exp2": (lambda v: mpmath.power(2, v), lambda g: even(-1078, 1026, g)),
    "expm1": (mpmath.expm1, lambda g: even(-50, 712, g)),
    "tanh": (mpmath.tanh, lambda g: np.concatenate([even(-2, 2, g), even(-23, 23, g)])),
    "log": (mpmath.log, positive),
    "log2": (lambda v: mpmath.log(v, 2), positive),
    "log1p": (mpmath.log1p, lambda g: np.concatenate([even(-0.9999, 3, g), positive(g)])),
    "erf": (mpmath.erf, lambda g: np.concatenate([even(-1, 1, g), even(-6.1, 6.1, g)])),
    "sin": (mpmath.sin, angles),
    "cos": (mpmath.cos, angles),
    "sqrt": (mpmath.sqrt, positive),
    "rsqrt": (lambda v: 1 / mpmath.sqrt(v), positive),
}


def error(got: Array, exact: list[Any]) -> Array:
    """In ulp of the exact result; what rounds to infinity must be it."""
    found: list[float] = []
    top = mpmath.mpf(float(np.finfo(np.float64).max))
    for g, w in zip(got.tolist(), exact, strict=True):
        if abs(w) > top:
            found.append(0.0 if np.isinf(g) or abs(g) == float(top) else 1e9)
            continue
        exponent = int(mpmath.frexp(w)[1]) - 1 if w else -1074
        found.append(float(abs(mpmath.mpf(g) - w) / mpmath.mpf(2) ** max(exponent - 52, -1074)))
    return np.array(found)


def test_every_expansion_is_tried() -> None:
    assert {*TRIED, "pow"} == set(WIDE)


@pytest.mark.parametrize("name", TRIED)
def test_against_mpmath(name: str) -> None:
    function, arguments = TRIED[name]
    x = arguments(np.random.default_rng(7))
    with mpmath.workdps(400 if name in ("sin", "cos") else 60):
        off = error(apply_wide(wide_expansion(name).expand, x), [function(mpmath.mpf(v)) for v in x.tolist()])
    worst = int(off.argmax())
    assert wide_expansion(name).ulp / 2 <= off[worst] <= wide_expansion(name).ulp, x[worst]


def test_pow() -> None:
    rng = np.random.default_rng(7)
    near = 1 + rng.choice([-1, 1], N) * np.exp2(rng.uniform(-53, -2, N))
    x = np.concatenate([np.exp2(rng.uniform(-1074, 1024, N)), rng.uniform(0.4, 2.5, N), near])
    x = x[x != 1]
    y = rng.uniform(-1078, 1025, len(x)) / np.log2(x)
    y[::7] = rng.integers(-9, 9, len(y[::7]))
    with mpmath.workdps(80):
        want = [mpmath.power(mpmath.mpf(a), mpmath.mpf(b)) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
        off = error(apply_wide(wide_expansion("pow").expand, x, y), want)
    assert wide_expansion("pow").ulp / 2 <= off.max() <= wide_expansion("pow").ulp, x[off.argmax()]


@pytest.mark.parametrize("name", [n for n in TRIED if n not in ("erf", "rsqrt")])
def test_special_points(name: str) -> None:
    x = np.array(POINTS)
    with np.errstate(all="ignore"):
        want = getattr(np, name)(x)
    assert_special(apply_wide(wide_expansion(name).expand, x), want)


def test_special_points_of_erf_and_rsqrt() -> None:
    x = np.array(POINTS)
    want = np.array([NAN if v != v else float(mpmath.erf(v)) if v else v for v in POINTS])
    assert_special(apply_wide(wide_expansion("erf").expand, x), want)
    with np.errstate(all="ignore"):
        assert_special(apply_wide(wide_expansion("rsqrt").expand, x), 1 / np.sqrt(x))


def test_special_pairs_of_pow() -> None:
    v = [*POINTS, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 1e10, -1e10, 1.5, 9007199254740991.0, -9007199254740991.0]
    x, y = np.meshgrid(np.array([*v, 1 - 2.0**-53, 1 + 2.0**-52]), np.array([*v, 1 - 2.0**-53, 1 + 2.0**-52]))
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.longdouble), y.astype(np.longdouble)).astype(np.float64)
    assert_special(apply_wide(wide_expansion("pow").expand, x, y), want)


def assert_special(got: Array, want: Array) -> None:
    """Infinities, NaN, zeros and their signs alike; other numbers within two ulp."""
    with np.errstate(all="ignore"):
        close = (got == want) | (np.isnan(got) & np.isnan(want)) | (np.abs(got - want) <= 2 * np.spacing(np.abs(want)))
    close &= (want != 0) | (np.signbit(got) == np.signbit(want))
    assert close.all(), (got[~close], want[~close])


f64 = st.floats(allow_nan=False, allow_infinity=False)


@given(f64, f64, f64)
def test_fma_rounds_once(a: float, b: float, c: float) -> None:
    with np.errstate(all="ignore"):
        got = float(NumpyWideOps().fma(np.float64(a), np.float64(b), np.float64(c)))
        exact = Fraction(a) * Fraction(b) + Fraction(c)
        try:
            assert got == float(exact)
        except OverflowError:
            assert got == (INF if exact > 0 else -INF)
        if not exact:
            assert np.signbit(got) == np.signbit(np.float64(a) * np.float64(b) + np.float64(c))


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_umulhi(a: int, b: int) -> None:
    o = NumpyWideOps()
    with np.errstate(all="ignore"):
        assert int(o.umulhi(o.const_i64(a), o.const_i64(b))) & (2**64 - 1) == a * b >> 64


def test_no_expansion_in_f64() -> None:
    with pytest.raises(NoExpansion, match="in f64"):
        wide_expansion("normal_cdf")
