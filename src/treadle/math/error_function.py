"""erf and the distribution function of the normal law.

erf(x) is x + x p(x^2) below 0.84, and 1 - exp(-g(|x|)) above, where 1 hides most of the error of the exponential.

normal_cdf(x) = (1 + erf(x / sqrt 2)) / 2, but with the relative accuracy that this formula loses for negative x: for
a = |x| it is exp(-a^2 / 2) s / (a + 2), with the square's rounding error kept and s a polynomial in
u = (a - 2) / (a + 2). So x * normal_cdf(x) is right to 3 ulp for x > -12.9 (below, normal_cdf is subnormal), while
x * (1 + erf(x / sqrt 2)) / 2 has an absolute error of some 2^-24 |x|: not one right digit below x = -5.5.

Source: minimax fits (Lawson's iteration), coefficients rounded to f32 one after another. The correction of
the quotient follows the usual residual step: q' = q + (residual of q) / (a + 2).
"""

from __future__ import annotations

from treadle.math.exponential import power_of_two, reduced_exp, scaled
from treadle.math.ops import Ops, V, hexes, polynomial

SPLIT = 215 / 256
SMALL = hexes(
    *("0x1.06eba8p-3", "-0x1.812728p-2", "0x1.ce25fep-4", "-0x1.b741e6p-6", "0x1.4bd3a6p-8", "-0x1.4ec18ap-11"),
)
"""erf(x) / x - 1 in x^2; error relative to erf 2^-27.3."""
LARGE = hexes(
    *("0x1.89df7ap-14", "0x1.20cba2p+0", "0x1.45db1cp-1", "0x1.ac7204p-4", "-0x1.7191fap-6", "0x1.99f432p-9"),
    "-0x1.ad532cp-13",
)
"""-log(1 - erf(a)) for a from 0.84 to 4; error of erf 2^-28.8."""
_S_HI, _S_LO = hexes("0x1.5845dcp-1", "0x1.5a54aap-26")
_S = hexes(
    *("-0x1.535bb2p-2", "0x1.d7d0f6p-6", "0x1.2cce56p-5", "-0x1.ecb694p-12", "-0x1.b9667cp-8", "-0x1.ff692ep-10"),
    *("0x1.b1092cp-11", "0x1.b5f78ap-11", "0x1.102956p-13", "-0x1.377ef2p-13", "-0x1.0ca89cp-14"),
)
"""With _S_HI + _S_LO as constant: normal_cdf(-a) exp(a^2 / 2) (a + 2) in u = (a - 2) / (a + 2); error 2^-28.0."""


def erf(b: Ops[V], x: V) -> V:
    size = b.min(b.abs(x), b.const_f32(4.0))  # erf(3.93) is 1 in f32
    t, n = reduced_exp(b, b.neg(polynomial(b, size, LARGE)))
    power = power_of_two(b, b.float_to_int(n))
    large = b.sub(b.const_f32(1.0), b.fma(power, t, power))
    small = b.fma(polynomial(b, b.mul(x, x), SMALL), x, x)
    result = b.select(b.lt(b.abs(x), b.const_f32(SPLIT)), small, b.copysign(large, x))
    return b.select(b.is_nan(x), x, result)


def normal_cdf(b: Ops[V], x: V) -> V:
    a = b.min(b.abs(x), b.const_f32(14.5))  # normal_cdf(-14.2) is below half the smallest subnormal
    one, two = b.const_f32(1.0), b.const_f32(2.0)
    below = b.add(a, two)
    below_low = b.sub(a, b.sub(below, two))
    inverse = b.div(one, below)
    inverse_low = b.mul(inverse, b.fma(b.neg(inverse), below_low, b.fma(b.neg(inverse), below, one)))
    # u = 2 a / (a + 2) - 1 or 1 - 4 / (a + 2), whichever adds the smaller number to what is exact, as a pair.
    left = b.lt(a, two)
    factor = b.select(left, b.add(a, a), b.const_f32(-4.0))
    whole = b.select(left, b.const_f32(-1.0), one)
    part = b.mul(factor, inverse)
    u = b.add(whole, part)
    u_low = b.fma(factor, inverse, b.neg(part))
    u_low = b.add(b.sub(part, b.sub(u, whole)), b.fma(factor, inverse_low, u_low))
    # The slope of s is near its first coefficient all over.
    s = b.fma(polynomial(b, u, _S), u, b.fma(u_low, b.const_f32(_S[0]), b.const_f32(_S_LO)))
    half = b.mul(a, b.const_f32(-0.5))
    square = b.mul(half, a)
    t, n = reduced_exp(b, square, b.fma(half, a, b.neg(square)))
    # (_S_HI + s) (1 + t), the largest term added last and what that loses kept.
    high = b.const_f32(_S_HI)
    rest = b.fma(t, b.add(high, s), s)
    product = b.add(high, rest)
    lost = b.sub(rest, b.sub(product, high))
    # Divided by a + 2; the residual of the first quotient takes up the loss.
    quotient = b.mul(product, inverse)
    residual = b.add(b.fma(b.neg(quotient), below_low, b.fma(b.neg(quotient), below, product)), lost)
    quotient = b.fma(residual, inverse, quotient)
    # Between 1/42 and 1/2; brought to the range that scaled wants.
    tail = scaled(b, b.mul(quotient, b.const_f32(32.0)), b.sub(n, b.const_f32(5.0)))
    result = b.select(b.lt(x, b.const_f32(0.0)), tail, b.sub(one, tail))
    return b.select(b.is_nan(x), x, result)
