"""Numbers held as pairs high + low, and what functions of either width do with them.

`const` makes a constant of the width at hand. Source: sums and products after Dekker; the series of artanh.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from treadle.math.ops import AnyOps, V, horner

Const = Callable[[float], V]
Pair = tuple[V, V]


def scaled(b: AnyOps[V], high: V, low: V, factor: Pair[V]) -> Pair[V]:
    """The pair times a constant pair."""
    c, c_low = factor
    product = b.mul(high, c)
    return product, b.fma(high, c_low, b.fma(low, c, b.fma(high, c, b.neg(product))))


def added(b: AnyOps[V], large: V, high: V, low: V) -> Pair[V]:
    """large + high + low. Requires: |large| >= |high|, or large is 0."""
    total = b.add(large, high)
    return total, b.add(b.sub(high, b.sub(total, large)), low)


def artanh(b: AnyOps[V], const: Const[V], f: V, third: Pair[V], tail: Sequence[V]) -> Pair[V]:
    """artanh(s) for s = f / (f + 2); `tail` is the polynomial (artanh(s) - s - s^3 / 3) / s^5 in s^2."""
    two = const(2.0)
    below = b.add(f, two)
    below_low = b.sub(f, b.sub(below, two))
    inverse = b.div(const(1.0), below)
    s = b.mul(f, inverse)
    s_low = b.mul(b.fma(b.neg(s), below_low, b.fma(b.neg(s), below, f)), inverse)
    square = b.mul(s, s)
    square_low = b.fma(b.add(s, s), s_low, b.fma(s, s, b.neg(square)))
    cube = b.mul(square, s)
    cube_low = b.fma(square, s_low, b.fma(square_low, s, b.fma(square, s, b.neg(cube))))
    part, part_low = scaled(b, cube, cube_low, third)
    rest = b.mul(b.mul(cube, square), horner(b, square, tail))
    return added(b, s, part, b.add(b.add(rest, part_low), s_low))


def log2_of(b: AnyOps[V], const: Const[V], x: V, e: V, half: Pair[V], twice: Pair[V]) -> Pair[V]:
    """log2 of x = m 2^e > 0, normalised; of 0 and inf the infinities. `half` is artanh((m - 1) / (m + 1)), `twice`
    2 log2(e)."""
    high, low = scaled(b, *half, twice)
    high, low = added(b, e, high, low)
    high, low = added(b, high, low, const(0.0))
    infinite = const(float("inf"))
    high = b.select(b.eq(x, infinite), infinite, high)
    return b.select(b.eq(x, const(0.0)), b.neg(infinite), high), low


def exponent(b: AnyOps[V], const: Const[V], y: V, log2: Pair[V], limit: float, bounds: tuple[float, float]) -> Pair[V]:
    """y log2 |x|, between `bounds`.

    A y beyond `limit` gives 0, 1 or inf with any x already; bounded, the product of the pair stays finite.
    """
    high, low = log2
    times = b.max(b.min(y, const(limit)), b.neg(const(limit)))
    product = b.mul(times, high)
    product_low = b.fma(times, low, b.fma(times, high, b.neg(product)))
    bounded = b.max(b.min(product, const(bounds[1])), const(bounds[0]))
    return bounded, b.select(b.eq(bounded, product), product_low, const(0.0))


def signed_power(b: AnyOps[V], const: Const[V], x: V, y: V, power: V, sign_bit: V) -> V:
    """x^y from |x|^y: the sign, and where there is no number."""
    half = b.mul(y, const(0.5))
    odd_or_broken = b.ne(b.round_even(half), half)
    broken = b.ne(b.round_even(y), y)
    negative = b.as_float(b.xor(b.as_int(power), b.and_(b.as_int(x), sign_bit)))
    result = b.select(odd_or_broken, b.select(broken, power, negative), power)
    nan, one, zero = const(float("nan")), const(1.0), const(0.0)
    # -inf is left out: it has no sign under a broken power.
    below = b.select(b.lt(x, zero), b.select(b.lt(b.abs(x), const(float("inf"))), nan, result), result)
    result = b.select(broken, below, result)
    result = b.select(b.is_nan(x), nan, b.select(b.is_nan(y), nan, result))
    return b.select(b.eq(y, zero), one, b.select(b.eq(x, one), one, result))
