"""log, log2, log1p and pow in f64, in the steps of `logarithm` and `power`.

log(1 + f) = f - (f^2 / 2 - s (f^2 / 2 + R)) with s = f / (2 + f) and R = s^2 (2/3 + 2/5 s^2 + ...): the series of
artanh(s), rearranged so that the exact f is the leading term.

Source: the polynomials are Chebyshev interpolants, computed with 60 digits and rounded to f64.
"""

from __future__ import annotations

from treadle.math.ops import hexes
from treadle.math.pairs import artanh, exponent, log2_of, signed_power
from treadle.math.wide_exponential import LN2_HI, LN2_LO, exp2_of_pair
from treadle.math.wide_ops import V, WideOps, polynomial

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
    return b.fma(s, b.fma(square, polynomial(b, square, _R), half), b.neg(half))


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
    """ln(x) in f64."""
    e, m = _reduced(b, x)
    return _with_poles(b, x, _log_of(b, e, b.sub(m, b.const_f64(1.0))), 0.0)


def log2(b: WideOps[V], x: V) -> V:
    """log2(x) in f64."""
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


def _log2_pair(b: WideOps[V], x: V) -> tuple[V, V]:
    """log2 of x > 0 as a normalised pair; of 0 and inf the infinities."""
    e, m = _reduced(b, x)
    const = b.const_f64
    half = artanh(b, const, b.sub(m, const(1.0)), (const(_THIRD[0]), const(_THIRD[1])), [const(c) for c in _P])
    return log2_of(b, const, x, e, half, (const(_TWO_LOG2_E[0]), const(_TWO_LOG2_E[1])))


def pow(b: WideOps[V], x: V, y: V) -> V:
    """x^y in f64, by a logarithm of two words."""
    bounded, low = exponent(b, b.const_f64, y, _log2_pair(b, b.abs(x)), 2.0**70, (-1077.0, 1025.0))
    return signed_power(b, b.const_f64, x, y, exp2_of_pair(b, bounded, low), b.const_i64(1 << 63))
