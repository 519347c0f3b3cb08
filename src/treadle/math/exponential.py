"""exp, exp2, expm1, sigmoid and tanh.

exp(x) = 2^n * exp(r) with n = round(x / ln 2) and r = x - n ln 2 in two steps, the first exact. exp(r) is 1 + t with
t = r + r^2 q(r); adding the 1 last keeps the polynomial's rounding small beside it. 2^n is applied in two factors, of
which the first is exact, so that results are rounded once even where they are subnormal, and overflow becomes infinity.

Source: the polynomials are minimax fits (Lawson's iteration), their coefficients rounded to f32 one after another.
"""

from __future__ import annotations

from treadle.math.ops import Ops, V, hexes, polynomial

LOG2_E, LN2_HI, LN2_LO = hexes("0x1.715476p+0", "0x1.62e4p-1", "0x1.7f7d1cp-20")
_Q = hexes("0x1p-1", "0x1.555490p-3", "0x1.5554cep-5", "0x1.123ac4p-7", "0x1.6d6aaap-10")
"""(exp(r) - 1 - r) / r^2 for |r| <= ln 2 / 2; error of exp(r) 2^-28.2."""
_Q_FAST = hexes("0x1.fffdc2p-2", "0x1.555440p-3", "0x1.573ba8p-5", "0x1.126982p-7")
"""The same; error 2^-23.3."""
_EXP2 = hexes("0x1.62e430p-1", "0x1.ebfbe0p-3", "0x1.c6af7ap-5", "0x1.3b2a28p-7", "0x1.5f0968p-10", "0x1.4447bap-13")
"""(2^r - 1) / r for |r| <= 1/2; error of 2^r 2^-28.3."""
_EXP2_FAST = hexes("0x1.62e432p-1", "0x1.ebf9b8p-3", "0x1.c6addcp-5", "0x1.3cebccp-7", "0x1.5f9f0ep-10")
"""The same; error 2^-23.3."""


def reduced_exp(b: Ops[V], x: V, low: V | None = None) -> tuple[V, V]:
    """(t, n) with exp(x + low) = (1 + t) * 2^n; n is an integral float. Requires: |x| < 2^15, |low| tiny beside 1."""
    n = b.round_even(b.mul(x, b.const_f32(LOG2_E)))
    high = b.fma(n, b.const_f32(-LN2_HI), x)  # exact
    if low is None:
        r = b.fma(n, b.const_f32(-LN2_LO), high)
    else:
        r = b.add(high, b.fma(n, b.const_f32(-LN2_LO), low))
    return b.fma(polynomial(b, r, _Q), b.mul(r, r), r), n


def power_of_two(b: Ops[V], n: V) -> V:
    """2^n for an integer n. Requires: -126 <= n <= 127."""
    return b.as_float(b.shl(b.iadd(n, b.const_i32(127)), b.const_i32(23)))


def scaled(b: Ops[V], x: V, n: V) -> V:
    """x * 2^n for an integral float n, rounded once. Requires: 1/2 <= |x| <= 2 or x is 0, |n| <= 250."""
    whole = b.float_to_int(n)
    first = b.ashr(whole, b.const_i32(1))
    return b.mul(b.mul(x, power_of_two(b, first)), power_of_two(b, b.isub(whole, first)))


def exp(b: Ops[V], x: V) -> V:
    """e^x, by exponent and polynomial; subnormal results are rounded once."""
    # exp(-105) is below half the smallest subnormal, exp(89) beyond the largest number.
    bounded = b.max(b.min(x, b.const_f32(89.0)), b.const_f32(-105.0))
    t, n = reduced_exp(b, bounded)
    return b.select(b.is_nan(x), x, scaled(b, b.add(b.const_f32(1.0), t), n))


def exp_fast(b: Ops[V], x: V) -> V:
    """One factor of 2^n: results below 2^-126 become zero or half of what they should be, and above 2^127 infinity."""
    bounded = b.max(b.min(x, b.const_f32(89.0)), b.const_f32(-88.0))
    n = b.round_even(b.mul(bounded, b.const_f32(LOG2_E)))
    r = b.fma(n, b.const_f32(-LN2_HI), bounded)
    r = b.fma(n, b.const_f32(-LN2_LO), r)
    p = b.add(b.const_f32(1.0), b.fma(polynomial(b, r, _Q_FAST), b.mul(r, r), r))
    return b.select(b.is_nan(x), x, _scaled_fast(b, p, n))


def _scaled_fast(b: Ops[V], p: V, n: V) -> V:
    """p * 2^n; n = -127 gives the exponent field 0, a factor of zero, and n = 128 gives infinity."""
    return b.mul(p, b.as_float(b.shl(b.iadd(b.float_to_int(n), b.const_i32(127)), b.const_i32(23))))


def exp2(b: Ops[V], x: V) -> V:
    """2^x, whose reduction is exact."""
    bounded = b.max(b.min(x, b.const_f32(129.0)), b.const_f32(-151.0))
    n = b.round_even(bounded)
    r = b.sub(bounded, n)  # exact
    p = b.fma(polynomial(b, r, _EXP2), r, b.const_f32(1.0))
    return b.select(b.is_nan(x), x, scaled(b, p, n))


def exp2_of_pair(b: Ops[V], high: V, low: V) -> V:
    """2^(high + low). Requires: -151 <= high <= 129, |low| at most an ulp of high."""
    n = b.round_even(high)
    r = b.add(b.sub(high, n), low)
    return scaled(b, b.fma(polynomial(b, r, _EXP2), r, b.const_f32(1.0)), n)


def exp2_fast(b: Ops[V], x: V) -> V:
    """2^x by one factor, as `exp_fast`."""
    bounded = b.max(b.min(x, b.const_f32(128.0)), b.const_f32(-127.0))
    n = b.round_even(bounded)
    r = b.sub(bounded, n)
    p = b.fma(polynomial(b, r, _EXP2_FAST), r, b.const_f32(1.0))
    return b.select(b.is_nan(x), x, _scaled_fast(b, p, n))


def expm1(b: Ops[V], x: V) -> V:
    """e^x - 1, which keeps the digits near zero."""
    # Below -18 the result is -1 in f32.
    bounded = b.max(b.min(x, b.const_f32(89.0)), b.const_f32(-18.0))
    t, n = reduced_exp(b, bounded)
    # Half of it, since 2^128 is no f32: 2^(n-1) t + (2^(n-1) - 1/2).
    half = power_of_two(b, b.isub(b.float_to_int(n), b.const_i32(1)))
    result = b.fma(half, t, b.sub(half, b.const_f32(0.5)))
    result = b.add(result, result)
    # x itself is right to half an ulp below 2^-24, and keeps -0, subnormals and NaN.
    itself = b.select(b.is_nan(x), x, result)
    return b.select(b.lt(b.abs(x), b.const_f32(2.0**-24)), x, itself)


def sigmoid(b: Ops[V], x: V) -> V:
    """1 / (1 + exp(-x)), from exp(-|x|), so that small results keep their digits."""
    return _sigmoid(b, x, exp(b, b.neg(b.abs(x))))


def sigmoid_fast(b: Ops[V], x: V) -> V:
    """1 / (1 + exp(-x)) by `exp_fast`."""
    return _sigmoid(b, x, exp_fast(b, b.neg(b.abs(x))))


def _sigmoid(b: Ops[V], x: V, e: V) -> V:
    """For negative x: e / (1 + e), else 1 / (1 + e), both as c - c (e / (1 + e)) with c = e or 1: so the rounding
    of the quotient counts little where c is small beside 1 or e is."""
    one = b.const_f32(1.0)
    c = b.select(b.lt(x, b.const_f32(0.0)), e, one)
    return b.fma(b.neg(c), b.div(e, b.add(one, e)), c)


def tanh(b: Ops[V], x: V) -> V:
    """h / (1 + h) with h = (exp(2 |x|) - 1) / 2, which keeps the digits near zero."""
    size = b.min(b.abs(x), b.const_f32(10.0))  # tanh(9.02) is 1 in f32
    t, n = reduced_exp(b, b.add(size, size))
    half = power_of_two(b, b.isub(b.float_to_int(n), b.const_i32(1)))
    h = b.fma(half, t, b.sub(half, b.const_f32(0.5)))
    # As c - c (c / (1 + h)) with c = h or 1, for the reason given in _sigmoid.
    one = b.const_f32(1.0)
    c = b.min(h, one)
    result = b.fma(b.neg(c), b.div(c, b.add(one, h)), c)
    result = b.copysign(b.select(b.is_nan(x), x, result), x)
    # x - x^3 / 3 rounds to x below 2^-12.5; this keeps subnormals and -0.
    return b.select(b.lt(b.abs(x), b.const_f32(2.0**-13)), x, result)
