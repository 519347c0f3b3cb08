"""pow.

x^y = 2^(y log2 |x|), with log2 and the product held as pairs high + low: half an ulp is an error of 2^-25 in the
exponent, which goes up to 128, so that log2 is needed to 32 bits. The logarithm of the reduced argument m is
2 artanh(s) with s = (m - 1) / (m + 1); s^2 is below 0.03, and only s and s^3 / 3 need pairs.

Source: the series of artanh, a minimax fit (Lawson's iteration) for what follows s^3 / 3; sums after Dekker.
"""

from __future__ import annotations

from treadle.math.exponential import exp2_of_pair
from treadle.math.logarithm import reduced
from treadle.math.ops import Ops, V, hexes, polynomial

_TWO_LOG2_E = hexes("0x1.715476p+1", "0x1.4ae0c0p-25")
"""2 / ln 2 as a pair."""
_THIRD = hexes("0x1.555556p-2", "-0x1.555556p-27")
_P = hexes("0x1.999a00p-3", "0x1.245280p-3", "0x1.dfa114p-4")
"""(artanh(s) - s - s^3 / 3) / s^5 in s^2; error relative to artanh(s) 2^-36.8."""


def _times_constant(b: Ops[V], high: V, low: V, constant: tuple[float, ...]) -> tuple[V, V]:
    c, c_low = b.const_f32(constant[0]), b.const_f32(constant[1])
    product = b.mul(high, c)
    rest = b.fma(high, c_low, b.fma(low, c, b.fma(high, c, b.neg(product))))
    return product, rest


def _sum(b: Ops[V], large: V, high: V, low: V) -> tuple[V, V]:
    """large + high + low as a pair. Requires: |large| >= |high|, or large is 0."""
    total = b.add(large, high)
    return total, b.add(b.sub(high, b.sub(total, large)), low)


def _artanh(b: Ops[V], f: V) -> tuple[V, V]:
    """artanh(f / (f + 2)) as a pair."""
    two = b.const_f32(2.0)
    below = b.add(f, two)
    below_low = b.sub(f, b.sub(below, two))
    inverse = b.div(b.const_f32(1.0), below)
    s = b.mul(f, inverse)
    s_low = b.mul(b.fma(b.neg(s), below_low, b.fma(b.neg(s), below, f)), inverse)
    square = b.mul(s, s)
    square_low = b.fma(b.add(s, s), s_low, b.fma(s, s, b.neg(square)))
    cube = b.mul(square, s)
    cube_low = b.fma(square, s_low, b.fma(square_low, s, b.fma(square, s, b.neg(cube))))
    third, third_low = _times_constant(b, cube, cube_low, _THIRD)
    tail = b.mul(b.mul(cube, square), polynomial(b, square, _P))
    return _sum(b, s, third, b.add(b.add(tail, third_low), s_low))


def _log2(b: Ops[V], x: V) -> tuple[V, V]:
    """log2 of x > 0 as a normalised pair; of 0 and inf the infinities."""
    e, m = reduced(b, x)
    high, low = _artanh(b, b.sub(m, b.const_f32(1.0)))
    high, low = _times_constant(b, high, low, _TWO_LOG2_E)
    high, low = _sum(b, e, high, low)
    high, low = _sum(b, high, low, b.const_f32(0.0))
    infinite = b.const_f32(float("inf"))
    high = b.select(b.eq(x, infinite), infinite, high)
    return b.select(b.eq(x, b.const_f32(0.0)), b.neg(infinite), high), low


def pow(b: Ops[V], x: V, y: V) -> V:
    zero, one = b.const_f32(0.0), b.const_f32(1.0)
    size = b.abs(x)
    high, low = _log2(b, size)
    # A larger y gives 0, 1 or inf with any x already; bounded, the pair's product stays finite.
    limit = b.const_f32(2.0**40)
    times = b.max(b.min(y, limit), b.neg(limit))
    exponent = b.mul(times, high)
    exponent_low = b.fma(times, low, b.fma(times, high, b.neg(exponent)))
    bounded = b.max(b.min(exponent, b.const_f32(129.0)), b.const_f32(-151.0))
    result = exp2_of_pair(b, bounded, b.select(b.eq(bounded, exponent), exponent_low, zero))
    # The sign, and where there is no number.
    half = b.mul(y, b.const_f32(0.5))
    odd_or_broken = b.ne(b.round_even(half), half)
    broken = b.ne(b.round_even(y), y)
    sign = b.and_(b.as_int(x), b.const_i32(0x80000000))
    negative = b.as_float(b.xor(b.as_int(result), sign))
    result = b.select(odd_or_broken, b.select(broken, result, negative), result)
    nan = b.const_f32(float("nan"))
    # -inf is left out: it has no sign under a broken power.
    below = b.select(b.lt(x, zero), b.select(b.lt(size, b.const_f32(float("inf"))), nan, result), result)
    result = b.select(broken, below, result)
    result = b.select(b.is_nan(x), nan, b.select(b.is_nan(y), nan, result))
    return b.select(b.eq(y, zero), one, b.select(b.eq(x, one), one, result))
