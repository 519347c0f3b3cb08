"""sin and cos.

x = n pi/2 + r with |r| <= pi/4. Up to 2^15, r is x - n (p1 + p2 + p3) by three fused steps, of which the first is
exact. Beyond, the product of x's 24-bit mantissa with the bits of 2/pi that matter modulo 4 is formed in integers:
96 bits of 2/pi give 72 bits of quadrant and fraction, and no f32 is nearer than 2^-30 to a multiple of pi/2.

Source: Payne and Hanek's reduction; minimax fits (Lawson's iteration), coefficients rounded one after another.
"""

from __future__ import annotations

from treadle.math.ops import Ops, V, hexes, polynomial

_LIMIT = 2.0**15
_TWO_OVER_PI = float.fromhex("0x1.45f306p-1")
_P1, _P2, _P3 = hexes("0x1.921fb6p+0", "-0x1.777a5cp-25", "-0x1.ee59dap-50")
_BITS = (0x0028BE60, 0xDB939105, 0x4A7F09D5, 0xF47D4D37, 0x7036D8A5, 0x664F10E4, 0x107F9458)
"""Ten zeros and the first 214 bits of 2/pi."""
_SIN = hexes("-0x1.555556p-3", "0x1.111174p-7", "-0x1.a05944p-13", "0x1.7c2430p-19")
"""(sin(r) / r - 1) / r^2 in r^2; error 2^-32.5."""
_COS = hexes("0x1.55554ap-5", "-0x1.6c0c24p-10", "0x1.99e620p-16")
"""(cos(r) - 1 + r^2 / 2) / r^4 in r^2; error 2^-32.9."""


def _near(b: Ops[V], x: V) -> tuple[V, V]:
    """(r, n). Requires: |x| <= 2^15."""
    n = b.round_even(b.mul(x, b.const_f32(_TWO_OVER_PI)))
    r = b.fma(n, b.const_f32(-_P1), x)
    r = b.fma(n, b.const_f32(-_P2), r)
    r = b.fma(n, b.const_f32(-_P3), r)
    return r, b.float_to_int(n)


def _window(b: Ops[V], start: V) -> tuple[V, V, V]:
    """96 bits of `_BITS` from bit `start` on. Requires: 0 <= start < 128."""
    index = b.lshr(start, b.const_i32(5))
    shift = b.and_(start, b.const_i32(31))
    back = b.isub(b.const_i32(31), shift)
    words: list[V] = []
    for i in range(4):
        word = b.const_i32(_BITS[i])
        for step in range(1, 4):
            word = b.select(b.ieq(index, b.const_i32(step)), b.const_i32(_BITS[i + step]), word)
        words.append(word)

    def joined(high: V, low: V) -> V:
        # In two shifts, since a shift by 32 is none.
        return b.or_(b.shl(high, shift), b.lshr(b.lshr(low, b.const_i32(1)), back))

    return joined(words[0], words[1]), joined(words[1], words[2]), joined(words[2], words[3])


def _product(b: Ops[V], mantissa: V, a: tuple[V, V, V]) -> tuple[V, V]:
    """The upper 64 of the lower 96 bits of mantissa * a."""
    low = b.imul(mantissa, a[1])
    below = b.umulhi(mantissa, a[2])
    middle = b.iadd(low, below)
    carry = b.or_(b.and_(low, below), b.and_(b.or_(low, below), b.xor(middle, b.const_i32(-1))))
    high = b.iadd(b.imul(mantissa, a[0]), b.umulhi(mantissa, a[1]))
    return b.iadd(high, b.lshr(carry, b.const_i32(31))), middle


def _far(b: Ops[V], x: V) -> tuple[V, V]:
    """(r, n modulo 4) of |x|, for any finite x beyond 2^15."""
    bits = b.as_int(b.abs(x))
    mantissa = b.or_(b.and_(bits, b.const_i32(0x7FFFFF)), b.const_i32(0x800000))
    # |x| = mantissa * 2^(field - 150). Bits of 2/pi above 2^(152 - field) make multiples of 4.
    start = b.isub(b.lshr(bits, b.const_i32(23)), b.const_i32(142))
    high, middle = _product(b, mantissa, _window(b, b.and_(start, b.const_i32(127))))
    n = b.lshr(high, b.const_i32(30))
    two, thirty = b.const_i32(2), b.const_i32(30)
    high = b.or_(b.shl(high, two), b.lshr(middle, thirty))
    middle = b.shl(middle, two)
    # As a signed number the fraction is in [-1/2, 1/2); a negative one belongs to the next quadrant.
    n = b.iadd(n, b.lshr(high, b.const_i32(31)))
    sign = b.ashr(high, b.const_i32(31))
    high, middle = b.xor(high, sign), b.xor(middle, sign)
    top = b.mul(b.int_to_float(b.lshr(high, b.const_i32(16))), b.const_f32(2.0**-16))
    next_ = b.mul(b.int_to_float(b.and_(high, b.const_i32(0xFFFF))), b.const_f32(2.0**-32))
    last = b.mul(b.int_to_float(b.lshr(middle, b.const_i32(8))), b.const_f32(2.0**-56))
    fraction = b.add(top, next_)
    rest = b.add(b.sub(next_, b.sub(fraction, top)), last)
    r = b.fma(fraction, b.const_f32(_P1), b.fma(fraction, b.const_f32(_P2), b.mul(rest, b.const_f32(_P1))))
    return b.as_float(b.xor(b.as_int(r), b.and_(sign, b.const_i32(0x80000000)))), n


def _in_quadrant(b: Ops[V], r: V, n: V) -> V:
    """sin(r + n pi/2)."""
    square = b.mul(r, r)
    sine = b.fma(b.mul(r, square), polynomial(b, square, _SIN), r)
    tail = b.fma(b.mul(square, square), polynomial(b, square, _COS), b.mul(b.const_f32(-0.5), square))
    cosine = b.add(b.const_f32(1.0), tail)
    odd = b.ieq(b.and_(n, b.const_i32(1)), b.const_i32(1))
    turned = b.shl(b.and_(n, b.const_i32(2)), b.const_i32(30))
    return b.as_float(b.xor(b.as_int(b.select(odd, cosine, sine)), turned))


def _with_specials(b: Ops[V], x: V, result: V) -> V:
    """NaN of infinities and NaN."""
    return b.select(b.lt(b.abs(x), b.const_f32(float("inf"))), result, b.const_f32(float("nan")))


def sin(b: Ops[V], x: V) -> V:
    """sin(x), for every finite x."""
    size = b.abs(x)

    def far() -> V:
        r, n = _far(b, x)
        sign = b.and_(b.as_int(x), b.const_i32(0x80000000))
        return b.as_float(b.xor(b.as_int(_in_quadrant(b, r, n)), sign))  # sin is odd

    near = _in_quadrant(b, *_near(b, b.min(b.max(x, b.const_f32(-_LIMIT)), b.const_f32(_LIMIT))))
    # -0 and subnormals: r * r vanishes and r stays, but r = -0 + 0 would not.
    result = b.rare(b.gt(size, b.const_f32(_LIMIT)), far, b.select(b.lt(size, b.const_f32(2.0**-13)), x, near))
    return _with_specials(b, x, result)


def cos(b: Ops[V], x: V) -> V:
    """cos(x), for every finite x."""
    size = b.abs(x)
    one = b.const_i32(1)

    def far() -> V:
        r, n = _far(b, x)
        return _in_quadrant(b, r, b.iadd(n, one))

    r, n = _near(b, b.min(size, b.const_f32(_LIMIT)))
    result = b.rare(b.gt(size, b.const_f32(_LIMIT)), far, _in_quadrant(b, r, b.iadd(n, one)))
    return _with_specials(b, x, result)
