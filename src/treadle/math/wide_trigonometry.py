"""sin and cos in f64, in the steps of `trigonometry`: three fused steps up to 2^20; beyond, the product of the
significand with the bits of 2/pi that matter modulo 4, of which 192 leave 137 below the point: no f64 is nearer than
2^-62 to a multiple of pi/2.

Source: Payne and Hanek's reduction; the polynomials are Chebyshev interpolants, computed with 60 digits.
"""

from __future__ import annotations

from treadle.math.ops import hexes
from treadle.math.wide_ops import V, WideOps, polynomial

_LIMIT = 2.0**20
_TWO_OVER_PI = float.fromhex("0x1.45f306dc9c883p-1")
_P1, _P2, _P3 = hexes("0x1.921fb54442d18p+0", "0x1.1a62633145c07p-54", "-0x1.f1976b7ed8fbcp-110")
_BITS = (
    *(0x0000000000000000, 0xA2F9836E4E441529, 0xFC2757D1F534DDC0, 0xDB6295993C439041, 0xFE5163ABDEBBC561),
    *(0xB7246E3A424DD2E0, 0x06492EEA09D1921C, 0xFE1DEB1CB129A73E, 0xE88235F52EBB4484, 0xE99C7026B45F7E41),
    *(0x3991D639835339F4, 0x9C845F8BBDF9283B, 0x1FF897FFDE05980F, 0xEF2F118B5A0A6D1F, 0x6D367ECF27CB09B7),
    *(0x4F463F669E5FEA2D, 0x7527BAC7EBE5F17B, 0x3D0739F78A5292EA, 0x6BFB5FB11F8D5D08, 0x56033046FC7B6BAB),
)
"""64 zeros and the first 1216 bits of 2/pi."""
_SIN = hexes(
    *("-0x1.5555555555555p-3", "0x1.1111111111110p-7", "-0x1.a01a01a019937p-13", "0x1.71de3a54607a5p-19"),
    *("-0x1.ae64541295cdfp-26", "0x1.61217ee5cca1bp-33", "-0x1.ab17bdcbd3414p-41"),
)
"""(sin(r) / r - 1) / r^2 in r^2; error 2^-57.3."""
_COS = hexes(
    *("0x1.5555555555555p-5", "-0x1.6c16c16c16c16p-10", "0x1.a01a01a019d0ap-16", "-0x1.27e4fb7712ca2p-22"),
    *("0x1.1eed8deb82809p-29", "-0x1.9394b9eb4d56dp-37", "0x1.ab78473be59d7p-45"),
)
"""(cos(r) - 1 + r^2 / 2) / r^4 in r^2; error 2^-60."""


def _near(b: WideOps[V], x: V) -> tuple[V, V]:
    """(r, n). Requires: |x| <= 2^20."""
    n = b.round_even(b.mul(x, b.const_f64(_TWO_OVER_PI)))
    r = b.fma(n, b.const_f64(-_P1), x)  # exact
    r = b.fma(n, b.const_f64(-_P2), r)
    return b.fma(n, b.const_f64(-_P3), r), b.float_to_int(n)


def _window(b: WideOps[V], start: V) -> tuple[V, V, V]:
    """192 bits of `_BITS` from bit `start` on. Requires: 0 <= start < 1088."""
    index = b.lshr(start, b.const_i64(6))
    shift = b.and_(start, b.const_i64(63))
    back = b.isub(b.const_i64(63), shift)
    at = [b.ieq(index, b.const_i64(step)) for step in range(1, 17)]
    words: list[V] = []
    for i in range(4):
        word = b.const_i64(_BITS[i])
        for step, here in enumerate(at, 1):
            word = b.select(here, b.const_i64(_BITS[i + step]), word)
        words.append(word)

    def joined(high: V, low: V) -> V:
        # In two shifts, since a shift by 64 is none.
        return b.or_(b.shl(high, shift), b.lshr(b.lshr(low, b.const_i64(1)), back))

    return joined(words[0], words[1]), joined(words[1], words[2]), joined(words[2], words[3])


def _product(b: WideOps[V], significand: V, a: tuple[V, V, V]) -> tuple[V, V]:
    """The upper 128 of the lower 192 bits of significand * a."""
    low = b.imul(significand, a[1])
    below = b.umulhi(significand, a[2])
    middle = b.iadd(low, below)
    carry = b.or_(b.and_(low, below), b.and_(b.or_(low, below), b.xor(middle, b.const_i64(-1))))
    high = b.iadd(b.imul(significand, a[0]), b.umulhi(significand, a[1]))
    return b.iadd(high, b.lshr(carry, b.const_i64(63))), middle


def _far(b: WideOps[V], x: V) -> tuple[V, V]:
    """(r, n modulo 4) of |x|, for any finite x beyond 2^20."""
    bits = b.as_int(b.abs(x))
    significand = b.or_(b.and_(bits, b.const_i64((1 << 52) - 1)), b.const_i64(1 << 52))
    # |x| = significand * 2^(field - 1075). Bits of 2/pi above 2^(1077 - field) make multiples of 4.
    start = b.isub(b.lshr(bits, b.const_i64(52)), b.const_i64(1077 - 64))
    # A small x, infinities and NaN come here too, for nothing: their window is any.
    inside = b.and_(b.isub(b.const_i64(0), b.lshr(b.xor(start, b.const_i64(-1)), b.const_i64(63))), start)
    high, middle = _product(b, significand, _window(b, inside))
    n = b.lshr(high, b.const_i64(62))
    two, rest_bits = b.const_i64(2), b.const_i64(62)
    high = b.or_(b.shl(high, two), b.lshr(middle, rest_bits))
    middle = b.shl(middle, two)
    # As a signed number the fraction is in [-1/2, 1/2); a negative one belongs to the next quadrant.
    n = b.iadd(n, b.lshr(high, b.const_i64(63)))
    sign = b.ashr(high, b.const_i64(63))
    high, middle = b.xor(high, sign), b.xor(middle, sign)
    top = b.mul(b.int_to_float(b.lshr(high, b.const_i64(32))), b.const_f64(2.0**-32))
    next_ = b.mul(b.int_to_float(b.and_(high, b.const_i64(0xFFFFFFFF))), b.const_f64(2.0**-64))
    last = b.mul(b.int_to_float(b.lshr(middle, b.const_i64(11))), b.const_f64(2.0**-117))
    fraction = b.add(top, next_)
    rest = b.add(b.sub(next_, b.sub(fraction, top)), last)
    r = b.fma(fraction, b.const_f64(_P1), b.fma(fraction, b.const_f64(_P2), b.mul(rest, b.const_f64(_P1))))
    return b.as_float(b.xor(b.as_int(r), b.and_(sign, b.const_i64(1 << 63)))), n


def _in_quadrant(b: WideOps[V], r: V, n: V) -> V:
    """sin(r + n pi/2)."""
    square = b.mul(r, r)
    sine = b.fma(b.mul(r, square), polynomial(b, square, _SIN), r)
    half = b.mul(b.const_f64(0.5), square)
    # 1 - half loses at most half an ulp, which is exactly known.
    one = b.const_f64(1.0)
    whole = b.sub(one, half)
    lost = b.sub(b.sub(one, whole), half)
    cosine = b.add(whole, b.fma(b.mul(square, square), polynomial(b, square, _COS), lost))
    odd = b.ieq(b.and_(n, b.const_i64(1)), b.const_i64(1))
    turned = b.shl(b.and_(n, b.const_i64(2)), b.const_i64(62))
    return b.as_float(b.xor(b.as_int(b.select(odd, cosine, sine)), turned))


def _with_specials(b: WideOps[V], x: V, result: V) -> V:
    """NaN of infinities and NaN."""
    return b.select(b.lt(b.abs(x), b.const_f64(float("inf"))), result, b.const_f64(float("nan")))


def sin(b: WideOps[V], x: V) -> V:
    """sin(x) in f64."""
    size = b.abs(x)

    def far() -> V:
        r, n = _far(b, x)
        sign = b.and_(b.as_int(x), b.const_i64(1 << 63))
        return b.as_float(b.xor(b.as_int(_in_quadrant(b, r, n)), sign))  # sin is odd

    near = _in_quadrant(b, *_near(b, b.min(b.max(x, b.const_f64(-_LIMIT)), b.const_f64(_LIMIT))))
    small = b.select(b.lt(size, b.const_f64(2.0**-27)), x, near)
    return _with_specials(b, x, b.rare(b.gt(size, b.const_f64(_LIMIT)), far, small))


def cos(b: WideOps[V], x: V) -> V:
    """cos(x) in f64."""
    size = b.abs(x)
    one = b.const_i64(1)

    def far() -> V:
        r, n = _far(b, x)
        return _in_quadrant(b, r, b.iadd(n, one))

    r, n = _near(b, b.min(size, b.const_f64(_LIMIT)))
    result = b.rare(b.gt(size, b.const_f64(_LIMIT)), far, _in_quadrant(b, r, b.iadd(n, one)))
    return _with_specials(b, x, result)
