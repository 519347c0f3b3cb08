"""log, log2 and log1p.

x = m * 2^e with m in [sqrt 1/2, sqrt 2); log m = f - f^2/2 + f^3 p(f) with f = m - 1 exact. The large terms e ln 2 and
f are added with their rounding error kept, which brings the result near half an ulp.

Source: p is a minimax fit (Lawson's iteration), its coefficients rounded to f32 one after another.
"""

from __future__ import annotations

from treadle.math.exponential import LN2_HI, LN2_LO
from treadle.math.ops import Ops, V, hexes, polynomial

_P = hexes(
    *("0x1.555548p-2", "-0x1.000006p-2", "0x1.99a476p-3", "-0x1.555c46p-3", "0x1.233ba8p-3"),
    *("-0x1.fc2886p-4", "0x1.e6bf3ap-4", "-0x1.de02bep-4", "0x1.147610p-4"),
)
"""(log(1 + f) - f + f^2 / 2) / f^3; error relative to log(1 + f) 2^-30.3."""
_P_FAST = hexes(
    *("0x1.5556d8p-2", "-0x1.000380p-2", "0x1.98d824p-3", "-0x1.5382a6p-3", "0x1.3172fep-3", "-0x1.242fb6p-3"),
    "0x1.645ddcp-4",
)
"""The same; error 2^-24.9."""
_LOG2_E_HI, _LOG2_E_LO = hexes("0x1.715476p+0", "0x1.4ae0c0p-26")
_SQRT_HALF_BITS = 0x3F3504F3


def reduced(b: Ops[V], x: V) -> tuple[V, V]:
    """(e, m) with x = m * 2^e, e an integral float. Requires: x is positive and finite, else both mean nothing."""
    tiny = b.lt(x, b.const_f32(2.0**-126))
    normal = b.select(tiny, b.mul(x, b.const_f32(2.0**24)), x)
    above = b.isub(b.as_int(normal), b.const_i32(_SQRT_HALF_BITS))
    e = b.int_to_float(b.ashr(above, b.const_i32(23)))
    e = b.sub(e, b.select(tiny, b.const_f32(24.0), b.const_f32(0.0)))
    m = b.as_float(b.iadd(b.and_(above, b.const_i32(0x7FFFFF)), b.const_i32(_SQRT_HALF_BITS)))
    return e, m


def _tail(b: Ops[V], f: V, p: tuple[float, ...]) -> V:
    """log(1 + f) - f."""
    square = b.mul(f, f)
    return b.fma(b.mul(f, square), polynomial(b, f, p), b.mul(b.const_f32(-0.5), square))


def _with_poles(b: Ops[V], x: V, result: V, pole: float) -> V:
    """`result`, but -inf at the pole, NaN below it, and x itself where that is inf or NaN."""
    result = b.select(b.lt(x, b.const_f32(float("inf"))), result, x)
    result = b.select(b.eq(x, b.const_f32(pole)), b.const_f32(float("-inf")), result)
    return b.select(b.lt(x, b.const_f32(pole)), b.const_f32(float("nan")), result)


def _log_of(b: Ops[V], e: V, f: V) -> V:
    """e ln 2 + log(1 + f)."""
    large = b.mul(e, b.const_f32(LN2_HI))  # exact: 8 bits times 15
    high = b.add(large, f)
    low = b.sub(f, b.sub(high, large))  # exact: |large| >= |f|, or large is 0
    rest = b.fma(e, b.const_f32(LN2_LO), _tail(b, f, _P))
    return b.add(high, b.add(low, rest))


def log(b: Ops[V], x: V) -> V:
    """ln(x), by exponent and polynomial."""
    e, m = reduced(b, x)
    return _with_poles(b, x, _log_of(b, e, b.sub(m, b.const_f32(1.0))), 0.0)


def log_fast(b: Ops[V], x: V) -> V:
    """ln(x) by a shorter polynomial."""
    e, m = reduced(b, x)
    f = b.sub(m, b.const_f32(1.0))
    result = b.fma(e, b.const_f32(LN2_HI), b.fma(e, b.const_f32(LN2_LO), b.add(f, _tail(b, f, _P_FAST))))
    return _with_poles(b, x, result, 0.0)


def log2(b: Ops[V], x: V) -> V:
    """log2(x), by exponent and polynomial."""
    e, m = reduced(b, x)
    f = b.sub(m, b.const_f32(1.0))
    scale = b.const_f32(_LOG2_E_HI)
    product = b.mul(f, scale)
    below = b.fma(f, b.const_f32(_LOG2_E_LO), b.fma(f, scale, b.neg(product)))
    high = b.add(e, product)
    low = b.sub(product, b.sub(high, e))
    rest = b.fma(_tail(b, f, _P), scale, below)
    return _with_poles(b, x, b.add(high, b.add(low, rest)), 0.0)


def log2_fast(b: Ops[V], x: V) -> V:
    """log2(x) by a shorter polynomial."""
    e, m = reduced(b, x)
    f = b.sub(m, b.const_f32(1.0))
    result = b.fma(b.add(f, _tail(b, f, _P_FAST)), b.const_f32(_LOG2_E_HI), e)
    return _with_poles(b, x, result, 0.0)


def log1p(b: Ops[V], x: V) -> V:
    """log u for u = 1 + x, with what the addition lost put back into f."""
    one = b.const_f32(1.0)
    u = b.add(one, x)
    part = b.sub(u, one)
    lost = b.add(b.sub(one, b.sub(u, part)), b.sub(x, part))
    e, m = reduced(b, u)
    # lost * 2^-e; beyond 2^30 it is nothing beside f, and 2^-e is about to leave the normal numbers.
    exponent = b.isub(b.const_i32(127), b.float_to_int(b.min(e, b.const_f32(100.0))))
    lost = b.mul(lost, b.as_float(b.shl(exponent, b.const_i32(23))))
    f = b.sub(m, one)
    f = b.add(f, b.select(b.lt(x, b.const_f32(2.0**30)), lost, b.const_f32(0.0)))
    result = _with_poles(b, x, _log_of(b, e, f), -1.0)
    return b.select(b.lt(b.abs(x), b.const_f32(2.0**-24)), x, result)
