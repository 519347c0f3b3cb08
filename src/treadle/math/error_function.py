"""erf and the distribution function of the normal law.

erf(x) is x + x p(x^2) below 0.84, and 1 - exp(-g(|x|)) above, where 1 hides most of the error of the exponential. Where
registers can be permuted it is a polynomial of degree 5 in each of 16 pieces, whose coefficients are picked from
registers: half the instructions.

normal_cdf(x) = (1 + erf(x / sqrt 2)) / 2, but with the relative accuracy that this formula loses for negative x: for
a = |x| it is exp(-a^2 / 2) s / (a + 2), with the square's rounding error kept and s a polynomial in
u = (a - 2) / (a + 2). So x * normal_cdf(x) is right to 3 ulp for x > -12.9 (below, normal_cdf is subnormal), while
x * (1 + erf(x / sqrt 2)) / 2 has an absolute error of some 2^-24 |x|: not one right digit below x = -5.5.

Source: minimax fits (Lawson's iteration), coefficients rounded to f32 one after another. The correction of
the quotient follows the usual residual step: q' = q + (residual of q) / (a + 2).
"""

from __future__ import annotations

from treadle.math.exponential import power_of_two, reduced_exp, scaled
from treadle.math.ops import Ops, PickOps, V, hexes, horner, polynomial

_STEP = 61 / 16
"""Pieces are 16/61 wide, so that erf(15 / _STEP) is 1 in f32."""
_PIECES = (
    hexes(
        *("0x0p+0", "0x1.28432ap-2", "0x1.156c4p-1", "0x1.77eb24p-1"),
        *("0x1.b968fp-1", "0x1.df6ad2p-1", "0x1.f2ab2cp-1", "0x1.fb2de6p-1"),
        *("0x1.fe7684p-1", "0x1.ff9196p-1", "0x1.ffe4c6p-1", "0x1.fffa1cp-1"),
        *("0x1.fffee2p-1", "0x1.ffffdp-1", "0x1.fffffap-1", "0x1p+0"),
    ),
    hexes(
        *("0x1.13d9dep-5", "0x1.1aebf6p-2", "0x1.cc51d8p-3", "0x1.465606p-3"),
        *("0x1.93387cp-4", "0x1.b22c4p-5", "0x1.97674ap-6", "0x1.4d2448p-7"),
        *("0x1.dacb58p-9", "0x1.26d866p-10", "0x1.3f1eecp-12", "0x1.2cfe88p-14"),
        *("0x1.eecde8p-17", "0x1.626c18p-19", "0x1.ba777ep-22", "0x1.5fd314p-19"),
    ),
    hexes(
        *("0x0p+0", "-0x1.376d04p-6", "-0x1.fab64ap-6", "-0x1.0d68ccp-5"),
        *("-0x1.bbdb72p-6", "-0x1.2ab8ep-6", "-0x1.505624p-7", "-0x1.40e53ep-8"),
        *("-0x1.053e74p-9", "-0x1.6d5a36p-11", "-0x1.b841dcp-13", "-0x1.ce1576p-15"),
        *("-0x1.a4d1ep-17", "-0x1.0f20acp-19", "-0x1.53c468p-20", "0x1.55cfbap-15"),
    ),
    hexes(
        *("-0x1.bcd08ep-8", "-0x1.661f84p-8", "-0x1.2fcc7ap-9", "0x1.c8d0d8p-11"),
        *("0x1.638a66p-9", "0x1.84b28ep-9", "0x1.2780fep-9", "0x1.5ef78ep-10"),
        *("0x1.53fea4p-11", "0x1.1265f2p-12", "0x1.758396p-14", "0x1.b01016p-16"),
        *("0x1.aaee8p-18", "0x1.69b1aap-20", "0x1.076ffep-22", "0x1.de08fp-13"),
    ),
    hexes(
        *("0x0p+0", "0x1.445c06p-11", "0x1.c5913ep-11", "0x1.592866p-11"),
        *("0x1.04f02ep-12", "-0x1.68fee6p-14", "-0x1.e1c4ecp-13", "-0x1.b531dep-13"),
        *("-0x1.1b921ap-13", "-0x1.0acc4cp-14", "-0x1.8fbae4p-16", "-0x1.716b28p-18"),
        *("-0x1.ee79d8p-21", "-0x1.016068p-19", "0x1.c0ce1cp-19", "0x1.10b194p-11"),
    ),
    hexes(
        *("0x1.23ff2cp-13", "0x1.92802p-14", "0x1.6f82bp-20", "-0x1.331e8ap-14"),
        *("-0x1.5b757p-14", "-0x1.954c5ap-15", "-0x1.282bp-17", "0x1.a956d2p-17"),
        *("0x1.085e4ap-16", "0x1.677096p-17", "0x1.6336cap-18", "0x1.144572p-19"),
        *("0x1.5deb44p-21", "0x1.6fbab6p-23", "0x1.445fdp-25", "0x1.b3e732p-12"),
    ),
)
"""_PIECES[k][n]: the coefficient of d^k for erf((n + d) / _STEP), |d| <= 1/2; for n = 0 of erf(x) - x.
Error relative to erf 2^-24.5."""
(_END,) = hexes("0x1.f79b48p+1")
"""15 / _STEP, rounded."""
_SHIFT = 1.5 * 2.0**23
"""Added, it rounds to an integer, which the lowest bits of the sum are."""

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
    """erf(x)."""
    size = b.min(b.abs(x), b.const_f32(4.0))  # erf(3.93) is 1 in f32
    t, n = reduced_exp(b, b.neg(polynomial(b, size, LARGE)))
    power = power_of_two(b, b.float_to_int(n))
    large = b.sub(b.const_f32(1.0), b.fma(power, t, power))
    small = b.fma(polynomial(b, b.mul(x, x), SMALL), x, x)
    result = b.select(b.lt(b.abs(x), b.const_f32(SPLIT)), small, b.copysign(large, x))
    return b.select(b.is_nan(x), x, result)


def erf_by_pieces(b: PickOps[V], x: V) -> V:
    """erf for targets that pick from registers."""
    step, shift, end = b.const_f32(_STEP), b.const_f32(_SHIFT), b.const_f32(_END)
    size = b.abs(x)
    bounded = b.select(b.gt(size, end), end, size)  # NaN stays
    whole = b.fma(bounded, step, shift)
    piece = b.as_int(whole)
    d = b.fma(bounded, step, b.neg(b.sub(whole, shift)))
    base, *rest = (b.pick(piece, values) for values in _PIECES)
    # The largest term is added last: x itself where x is small.
    base = b.select(b.eq(whole, shift), size, base)
    return b.copysign(b.fma(horner(b, d, rest), d, base), x)


def normal_cdf(b: Ops[V], x: V) -> V:
    """(1 + erf(x / sqrt 2)) / 2, which keeps the digits of small results."""
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
