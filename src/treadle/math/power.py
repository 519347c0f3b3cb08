"""pow.

x^y = 2^(y log2 |x|), with log2 and the product held as pairs high + low: half an ulp is an error of 2^-25 in the
exponent, which goes up to 128, so that log2 is needed to 32 bits. The logarithm of the reduced argument m is
2 artanh(s) with s = (m - 1) / (m + 1); s^2 is below 0.03, and only s and s^3 / 3 need pairs.

Source: the series of artanh, a minimax fit (Lawson's iteration) for what follows s^3 / 3; sums after Dekker.
"""

from __future__ import annotations

from treadle.math.exponential import exp2_of_pair
from treadle.math.logarithm import reduced
from treadle.math.ops import Ops, V, hexes
from treadle.math.pairs import artanh, exponent, log2_of, signed_power

_TWO_LOG2_E = hexes("0x1.715476p+1", "0x1.4ae0c0p-25")
"""2 / ln 2 as a pair."""
_THIRD = hexes("0x1.555556p-2", "-0x1.555556p-27")
_P = hexes("0x1.999a00p-3", "0x1.245280p-3", "0x1.dfa114p-4")
"""(artanh(s) - s - s^3 / 3) / s^5 in s^2; error relative to artanh(s) 2^-36.8."""


def _log2(b: Ops[V], x: V) -> tuple[V, V]:
    """log2 of x > 0 as a normalised pair; of 0 and inf the infinities."""
    e, m = reduced(b, x)
    const = b.const_f32
    half = artanh(b, const, b.sub(m, const(1.0)), (const(_THIRD[0]), const(_THIRD[1])), [const(c) for c in _P])
    return log2_of(b, const, x, e, half, (const(_TWO_LOG2_E[0]), const(_TWO_LOG2_E[1])))


def pow(b: Ops[V], x: V, y: V) -> V:
    """x^y, by a logarithm of two words."""
    bounded, low = exponent(b, b.const_f32, y, _log2(b, b.abs(x)), 2.0**40, (-151.0, 129.0))
    return signed_power(b, b.const_f32, x, y, exp2_of_pair(b, bounded, low), b.const_i32(0x80000000))
