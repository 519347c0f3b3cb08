"""log, log2, log1p and pow in f64, in the steps of `logarithm` and `power`.

log(1 + f) = f - (f^2 / 2 - s (f^2 / 2 + R)) with s = f / (2 + f) and R = s^2 (2/3 + 2/5 s^2 + ...): the series of
artanh(s), rearranged so that the exact f is the leading term.

Source: the polynomials are Chebyshev interpolants, computed with 60 digits and rounded to f64.
"""

from __future__ import annotations

from treadle.math.ops import hexes
from treadle.math.wide_exponential import LN2_HI, LN2_LO, exp2_of_pair
from treadle.math.wide_ops import V, WideOps, horner

_R = hexes(
    *("0x1.5555555555555p-1", "0x1.9999999999998p-2", "0x1.249249249296bp-2", "0x1.c71c71c649fdep-3"),
    *("0x1.745d17d4c787ap-3", "0x1.3b137ac255568p-3", "0x1.111d3a8293d5bp-3", "0x1.debb7d0c26307p-4"),
    *("0x1.e6ce4a6f738fdp-4",),
)
"""(log((1 + s) / (1 - s)) - 2 s) / s^3 in s^2; error relative to the logarithm 2^-60.7."""
_P = hexes(
    *("0x1.999999999999ap-3", "0x1.2492492492492p-3", "0x1.c71c71c71c705p-4", "0x1.745d1745d3fa5p-4"),
    *("0x1.3b13b138e8d2fp-4", "0x1.111112228cadfp-4", "0x1.e1e13e068c613p-5", "0x1.af46b846b4663p-5"),
    *("0x1.82ba3ba37f57ep-5", "0x1.9888900ab2246p-5"),
)
"""(artanh(s) - s - s^3 / 3) / s^5 in s^2; error relative to artanh(s) 2^-66.5."""
_LOG2_E, _LOG2_E_LOW = hexes("0x1.71547652b82fep+0", "0x1.777d0ffda0d24p-56")
_TWO_LOG2_E = hexes("0x1.71547652b82fep+1", "0x1.777d0ffda0d24p-55")
_THIRD = hexes("0x1.5555555555555p-2", "0x1.5555555555555p-56")
_SQRT_HALF_BITS = 0x3FE6A09E667F3BCD


def _reduced(b: WideOps[V], x: V) -> tuple[V, V]:
    """(e, m) with x = m * 2^e, m in [sqrt 1/2, sqrt 2). Requires: x positive and finite, else both mean nothing."""
    tiny = b.lt(x, b.const_f64(2.0**-1022))
    normal = b.select(tiny, b.mul(x, b.const_f64(2.0**54)), x)
    above = b.isub(b.as_int(normal), b.const_i64(_SQRT_HALF_BITS))
    e = b.int_to_float(b.ashr(above, b.const_i64(52)))
    e = b.sub(e, b.select(tiny, b.const_f64(54.0), b.const_f64(0.0)))
    m = b.as_float(b.iadd(b.and_(above, b.const_i64((1 << 52) - 1)), b.const_i64(_SQRT_HALF_BITS)))
    return e, m


def _tail(b: WideOps[V], f: V) -> V:
    """log(1 + f) - f."""
    s = b.div(f, b.add(b.const_f64(2.0), f))
    square = b.mul(s, s)
    half = b.mul(b.mul(f, f), b.const_f64(0.5))
    return b.fma(s, b.fma(square, horner(b, square, _R), half), b.neg(half))


def _with_poles(b: WideOps[V], x: V, result: V, pole: float) -> V:
    """`result`, but -inf at the pole, NaN below it, and x itself where that is inf or NaN."""
    result = b.select(b.lt(x, b.const_f64(float("inf"))), result, x)
    result = b.select(b.eq(x, b.const_f64(pole)), b.const_f64(float("-inf")), result)
    return b.select(b.lt(x, b.const_f64(pole)), b.const_f64(float("nan")), result)


def _log_of(b: WideOps[V], e: V, f: V) -> V:
    """e ln 2 + log(1 + f)."""
    large = b.mul(e, b.const_f64(LN2_HI))  # exact: 11 bits times 42
    high = b.add(large, f)
    low = b.sub(f, b.sub(high, large))  # exact: |large| >= |f|, or large is 0
    rest = b.fma(e, b.const_f64(LN2_LO), _tail(b, f))
    return b.add(high, b.add(low, rest))


def log(b: WideOps[V], x: V) -> V:
    e, m = _reduced(b, x)
    return _with_poles(b, x, _log_of(b, e, b.sub(m, b.const_f64(1.0))), 0.0)


def log2(b: WideOps[V], x: V) -> V:
    e, m = _reduced(b, x)
    f = b.sub(m, b.const_f64(1.0))
    scale = b.const_f64(_LOG2_E)
    product = b.mul(f, scale)
    below = b.fma(f, b.const_f64(_LOG2_E_LOW), b.fma(f, scale, b.neg(product)))
    high = b.add(e, product)
    low = b.sub(product, b.sub(high, e))
    rest = b.fma(_tail(b, f), scale, below)
    return _with_poles(b, x, b.add(high, b.add(low, rest)), 0.0)


def log1p(b: WideOps[V], x: V) -> V:
    """log u for u = 1 + x, with what the addition lost put back into f."""
    one = b.const_f64(1.0)
    u = b.add(one, x)
    part = b.sub(u, one)
    lost = b.add(b.sub(one, b.sub(u, part)), b.sub(x, part))
    e, m = _reduced(b, u)
    # lost * 2^-e; beyond 2^60 it is nothing beside f, and 2^-e is about to leave the normal numbers.
    exponent = b.isub(b.const_i64(1023), b.float_to_int(b.min(e, b.const_f64(1000.0))))
    lost = b.mul(lost, b.as_float(b.shl(exponent, b.const_i64(52))))
    f = b.sub(m, one)
    f = b.add(f, b.select(b.lt(x, b.const_f64(2.0**60)), lost, b.const_f64(0.0)))
    result = _with_poles(b, x, _log_of(b, e, f), -1.0)
    return b.select(b.lt(b.abs(x), b.const_f64(2.0**-54)), x, result)


# ---- pow


def _times_constant(b: WideOps[V], high: V, low: V, constant: tuple[float, ...]) -> tuple[V, V]:
    c, c_low = b.const_f64(constant[0]), b.const_f64(constant[1])
    product = b.mul(high, c)
    return product, b.fma(high, c_low, b.fma(low, c, b.fma(high, c, b.neg(product))))


def _sum(b: WideOps[V], large: V, high: V, low: V) -> tuple[V, V]:
    """large + high + low as a pair. Requires: |large| >= |high|, or large is 0."""
    total = b.add(large, high)
    return total, b.add(b.sub(high, b.sub(total, large)), low)


def _artanh(b: WideOps[V], f: V) -> tuple[V, V]:
    """artanh(f / (f + 2)) as a pair."""
    two = b.const_f64(2.0)
    below = b.add(f, two)
    below_low = b.sub(f, b.sub(below, two))
    inverse = b.div(b.const_f64(1.0), below)
    s = b.mul(f, inverse)
    s_low = b.mul(b.fma(b.neg(s), below_low, b.fma(b.neg(s), below, f)), inverse)
    square = b.mul(s, s)
    square_low = b.fma(b.add(s, s), s_low, b.fma(s, s, b.neg(square)))
    cube = b.mul(square, s)
    cube_low = b.fma(square, s_low, b.fma(square_low, s, b.fma(square, s, b.neg(cube))))
    third, third_low = _times_constant(b, cube, cube_low, _THIRD)
    tail = b.mul(b.mul(cube, square), horner(b, square, _P))
    return _sum(b, s, third, b.add(b.add(tail, third_low), s_low))


def _log2_pair(b: WideOps[V], x: V) -> tuple[V, V]:
    """log2 of x > 0 as a normalised pair; of 0 and inf the infinities."""
    e, m = _reduced(b, x)
    high, low = _artanh(b, b.sub(m, b.const_f64(1.0)))
    high, low = _times_constant(b, high, low, _TWO_LOG2_E)
    high, low = _sum(b, e, high, low)
    high, low = _sum(b, high, low, b.const_f64(0.0))
    infinite = b.const_f64(float("inf"))
    high = b.select(b.eq(x, infinite), infinite, high)
    return b.select(b.eq(x, b.const_f64(0.0)), b.neg(infinite), high), low


def pow(b: WideOps[V], x: V, y: V) -> V:
    zero, one = b.const_f64(0.0), b.const_f64(1.0)
    size = b.abs(x)
    high, low = _log2_pair(b, size)
    # A larger y gives 0, 1 or inf with any x already; bounded, the pair's product stays finite.
    limit = b.const_f64(2.0**70)
    times = b.max(b.min(y, limit), b.neg(limit))
    exponent = b.mul(times, high)
    exponent_low = b.fma(times, low, b.fma(times, high, b.neg(exponent)))
    bounded = b.max(b.min(exponent, b.const_f64(1025.0)), b.const_f64(-1077.0))
    result = exp2_of_pair(b, bounded, b.select(b.eq(bounded, exponent), exponent_low, zero))
    # The sign, and where there is no number.
    half = b.mul(y, b.const_f64(0.5))
    odd_or_broken = b.ne(b.round_even(half), half)
    broken = b.ne(b.round_even(y), y)
    sign = b.and_(b.as_int(x), b.const_i64(1 << 63))
    negative = b.as_float(b.xor(b.as_int(result), sign))
    result = b.select(odd_or_broken, b.select(broken, result, negative), result)
    nan = b.const_f64(float("nan"))
    # -inf is left out: it has no sign under a broken power.
    below = b.select(b.lt(x, zero), b.select(b.lt(size, b.const_f64(float("inf"))), nan, result), result)
    result = b.select(broken, below, result)
    result = b.select(b.is_nan(x), nan, b.select(b.is_nan(y), nan, result))
    return b.select(b.eq(y, zero), one, b.select(b.eq(x, one), one, result))
