"""What each function is, exactly and nearly, and the arguments it is tried on.

`near` is in long double (64 bits; erf and the normal distribution in f64): far more exact than f32, and fast. It sifts
the samples; what is reported is `exact`, by mpmath, at the worst of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Exact = Callable[..., Any]
Draw = Callable[[np.random.Generator, int], Array]
Long = np.longdouble


@dataclass(frozen=True)
class Tried:
    """A function of f32 arguments: `draw` gives them for f32, `draw_wide` for f64."""

    exact: Exact
    near: Callable[..., Array]
    draw: Draw
    draw_wide: Draw
    digits: int = 60


def each(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """A function of one float, element by element."""
    lifted = np.vectorize(function, otypes=[np.float64])
    return lambda x: lifted(x.astype(np.float64)).astype(Long)


def span(low: float, high: float, least: int = -149) -> Draw:
    """Two thirds evenly from low to high, the rest evenly in the exponent and of either sign where that is inside."""

    def draw(random: np.random.Generator, count: int) -> Array:
        even = random.uniform(low, high, count - count // 3)
        steps = np.exp2(random.uniform(least, np.log2(max(abs(low), abs(high))), count // 3))
        steps *= np.where(random.random(len(steps)) < 0.5, -1, 1)
        steps = np.where((steps < low) | (steps > high), -steps, steps)
        return np.concatenate([even, np.clip(steps, low, high)])

    return draw


def positive(least: int = -149, most: int = 128) -> Draw:
    """Half evenly in the exponent, half around 1."""

    def draw(random: np.random.Generator, count: int) -> Array:
        wide = np.exp2(random.uniform(least, most, count - count // 2))
        return np.concatenate([wide, random.uniform(0.3, 3, count // 2)])

    return draw


def angles(limit: float, most: int) -> Draw:
    """To `limit` evenly; evenly in the exponent beyond; and what is next to a multiple of pi/2."""

    def draw(random: np.random.Generator, count: int) -> Array:
        third = count // 3
        far = np.exp2(random.uniform(-20, most, third))
        turns = np.rint(random.uniform(0, limit, third)) * (np.pi / 2)
        return np.concatenate([random.uniform(-limit, limit, count - 2 * third), far, turns])

    return draw


def join(*draws: Draw) -> Draw:
    """Equal parts."""

    def draw(random: np.random.Generator, count: int) -> Array:
        part = count // len(draws)
        sizes = [part] * (len(draws) - 1) + [count - part * (len(draws) - 1)]
        return np.concatenate([d(random, n) for d, n in zip(draws, sizes, strict=True)])

    return draw


def powers(least: int, most: int) -> Draw:
    """Pairs (x, y), an axis apart: x over all exponents and beside 1, y so that the power is a number."""

    def draw(random: np.random.Generator, count: int) -> Array:
        third = count // 3
        beside = 1 + random.choice([-1, 1], third) * np.exp2(random.uniform(-23 if most < 200 else -52, -2, third))
        x = np.concatenate(
            [np.exp2(random.uniform(least, most, count - 2 * third)), random.uniform(0.4, 2.5, third), beside]
        )
        x = np.where(x == 1, 1.25, x)
        logarithm = np.log2(x)
        y = random.uniform(least, most, count) / np.where(logarithm == 0, 1, logarithm)
        y[::7] = random.integers(-9, 9, len(y[::7]))
        return np.stack([x, y])

    return draw


def _logistic(v: Any) -> Any:
    return 1 / (1 + mpmath.exp(-v))


FUNCTIONS: dict[str, Tried] = {
    "exp": Tried(mpmath.exp, np.exp, span(-105, 89), span(-746, 710, -1074)),
    "exp2": Tried(lambda v: mpmath.power(2, v), np.exp2, span(-151, 128), span(-1077, 1024, -1074)),
    "expm1": Tried(mpmath.expm1, np.expm1, span(-20, 89), span(-50, 710, -1074)),
    "tanh": Tried(
        mpmath.tanh, np.tanh, join(span(-2, 2), span(-11, 11)), join(span(-2, 2, -1074), span(-23, 23, -1074))
    ),
    "log": Tried(mpmath.log, np.log, positive(), positive(-1074, 1024)),
    "log2": Tried(lambda v: mpmath.log(v, 2), np.log2, positive(), positive(-1074, 1024)),
    "log1p": Tried(
        mpmath.log1p,
        np.log1p,
        join(span(-0.9999, 3), positive()),
        join(span(-0.9999, 3, -1074), positive(-1074, 1024)),
    ),
    "erf": Tried(
        mpmath.erf, each(math.erf), join(span(-1, 1), span(-4.2, 4.2)), join(span(-1, 1, -1074), span(-6.1, 6.1, -1074))
    ),
    "sin": Tried(mpmath.sin, np.sin, angles(1e3, 127), angles(1e5, 1023), 400),
    "cos": Tried(mpmath.cos, np.cos, angles(1e3, 127), angles(1e5, 1023), 400),
    "sqrt": Tried(mpmath.sqrt, np.sqrt, positive(), positive(-1074, 1024)),
    "rsqrt": Tried(lambda v: 1 / mpmath.sqrt(v), lambda x: 1 / np.sqrt(x), positive(), positive(-1074, 1024)),
    "pow": Tried(mpmath.power, np.power, powers(-149, 128), powers(-1074, 1024)),
    "sigmoid": Tried(_logistic, lambda x: 1 / (1 + np.exp(-x)), span(-104, 20), span(-740, 40, -1074)),
    "normal_cdf": Tried(
        mpmath.ncdf, each(lambda v: 0.5 * math.erfc(-v / math.sqrt(2))), span(-14.1, 6), span(-38, 9, -1074)
    ),
    "reciprocal": Tried(lambda v: 1 / v, lambda x: 1 / x, positive(-127, 127), positive(-1022, 1022)),
}
NORMAL_ONLY = {("exp", "fast"), ("exp2", "fast"), ("sigmoid", "fast")}
"""What flushes subnormal results is measured on the others (its row in `treadle.math.table` says so)."""
