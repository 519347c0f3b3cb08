"""exp, exp2, expm1 and tanh in f64, in the steps of `exponential`.

Source: the polynomials are Chebyshev interpolants, computed with 60 digits and rounded to f64.
"""

from __future__ import annotations

from treadle.math.ops import hexes
from treadle.math.wide_ops import V, WideOps, polynomial

_LOG2_E, LN2_HI, LN2_LO = hexes("0x1.71547652b82fep+0", "0x1.62e42fefa38p-1", "0x1.ef35793c7673p-45")
_Q = hexes(
    *("0x1.0000000000000p-1", "0x1.5555555555555p-3", "0x1.5555555555557p-5", "0x1.1111111111111p-7"),
    *("0x1.6c16c16c15a48p-10", "0x1.a01a01a01969bp-13", "0x1.a01a01a9f72adp-16", "0x1.71de3a5aaefb9p-19"),
    *("0x1.27e4d3f50d87fp-22", "0x1.ae642c5c1fa33p-26", "0x1.1f7f6aa421dd8p-29", "0x1.61bff1c64f494p-33"),
)
"""(exp(r) - 1 - r) / r^2 for |r| <= ln 2 / 2; error of exp(r) 2^-60.6."""
_EXP2 = hexes(
    *("0x1.62e42fefa39efp-1", "0x1.ebfbdff82c58fp-3", "0x1.c6b08d704a0c0p-5", "0x1.3b2ab6fba4e77p-7"),
    *("0x1.5d87fe78a6734p-10", "0x1.430912f86c788p-13", "0x1.ffcbfc5889053p-17", "0x1.62c0223a5bce5p-20"),
    *("0x1.b5253d44f5213p-24", "0x1.e4cf5160c0ed8p-28", "0x1.e8ca833b580a5p-32", "0x1.c3bd35f371af5p-36"),
    *("0x1.822742e95e26bp-40", "0x1.31d267d8c0d7ep-44"),
)
"""(2^r - 1) / r for |r| <= 1/2; error of 2^r 2^-55.5, that of ln 2 in f64."""


def reduced_exp(b: WideOps[V], x: V) -> tuple[V, V]:
    """(t, n) with exp(x) = (1 + t) * 2^n; n is an integral float. Requires: |x| < 2^18."""
    n = b.round_even(b.mul(x, b.const_f64(_LOG2_E)))
    r = b.fma(n, b.const_f64(-LN2_HI), x)  # exact
    r = b.fma(n, b.const_f64(-LN2_LO), r)
    return b.fma(polynomial(b, r, _Q), b.mul(r, r), r), n


def power_of_two(b: WideOps[V], n: V) -> V:
    """2^n for an integer n. Requires: -1022 <= n <= 1023."""
    return b.as_float(b.shl(b.iadd(n, b.const_i64(1023)), b.const_i64(52)))


def scaled(b: WideOps[V], x: V, n: V) -> V:
    """x * 2^n for an integral float n, rounded once. Requires: 1/2 <= |x| <= 2 or x is 0, |n| <= 2000."""
    whole = b.float_to_int(n)
    first = b.ashr(whole, b.const_i64(1))
    return b.mul(b.mul(x, power_of_two(b, first)), power_of_two(b, b.isub(whole, first)))


def exp(b: WideOps[V], x: V) -> V:
    """e^x in f64."""
    # exp(-746) is below half the smallest subnormal, exp(710) beyond the largest number.
    bounded = b.max(b.min(x, b.const_f64(710.0)), b.const_f64(-746.0))
    t, n = reduced_exp(b, bounded)
    return b.select(b.is_nan(x), x, scaled(b, b.add(b.const_f64(1.0), t), n))


def exp2(b: WideOps[V], x: V) -> V:
    """2^x in f64."""
    bounded = b.max(b.min(x, b.const_f64(1025.0)), b.const_f64(-1077.0))
    return b.select(b.is_nan(x), x, exp2_of_pair(b, bounded, b.const_f64(0.0)))


def exp2_of_pair(b: WideOps[V], high: V, low: V) -> V:
    """2^(high + low). Requires: -1077 <= high <= 1025, |low| at most an ulp of high."""
    n = b.round_even(high)
    r = b.add(b.sub(high, n), low)
    return scaled(b, b.fma(polynomial(b, r, _EXP2), r, b.const_f64(1.0)), n)


def expm1(b: WideOps[V], x: V) -> V:
    """e^x - 1 in f64, which keeps the digits near zero."""
    # Below -40 the result is -1 in f64.
    bounded = b.max(b.min(x, b.const_f64(710.0)), b.const_f64(-40.0))
    t, n = reduced_exp(b, bounded)
    # Half of it, since 2^1024 is no f64: 2^(n-1) t + (2^(n-1) - 1/2).
    half = power_of_two(b, b.isub(b.float_to_int(n), b.const_i64(1)))
    result = b.fma(half, t, b.sub(half, b.const_f64(0.5)))
    result = b.add(result, result)
    itself = b.select(b.is_nan(x), x, result)
    return b.select(b.lt(b.abs(x), b.const_f64(2.0**-54)), x, itself)


def tanh(b: WideOps[V], x: V) -> V:
    """tanh(x) in f64, as in `exponential`."""
    size = b.min(b.abs(x), b.const_f64(22.0))  # tanh(19.1) is 1 in f64
    t, n = reduced_exp(b, b.add(size, size))
    half = power_of_two(b, b.isub(b.float_to_int(n), b.const_i64(1)))
    h = b.fma(half, t, b.sub(half, b.const_f64(0.5)))
    one = b.const_f64(1.0)
    c = b.min(h, one)
    result = b.fma(b.neg(c), b.div(c, b.add(one, h)), c)
    result = b.copysign(b.select(b.is_nan(x), x, result), x)
    # x - x^3 / 3 rounds to x below 2^-26.5.
    return b.select(b.lt(b.abs(x), b.const_f64(2.0**-27)), x, result)
