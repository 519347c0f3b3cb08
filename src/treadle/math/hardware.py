"""exp and its kin around an instruction that is nearly right: shorter than the expansions without one, as accurate.

A GPU approximates 2^a and 1/a in one instruction, to an ulp or two, in an interval. What else the accuracy class wants
stands around it: arguments are reduced so that their rounding does not count, subnormal results are made by one
rounding, infinities and NaN go through. The instructions' bits are the hardware's own, so no other machine repeats
these results bit for bit: a plan that uses them says so in its ledger, and the bounds in `table` are measurements over
every f32, not proofs (benchmarks/results/2026-11-29-cuda-functions.json).

Source: the rounding by an added 1.5 * 2^23 is folklore; that a saturating multiply-add clamps the exponent at no cost
is an observation on what the hardware offers.
"""

from __future__ import annotations

from typing import Protocol

from treadle.math import exponential
from treadle.math.error_function import LARGE as ERF_LARGE
from treadle.math.error_function import SMALL, SPLIT
from treadle.math.ops import Ops, V, hexes, polynomial


class NearOps(Ops[V], Protocol[V]):
    """The primitives, and the instructions whose last bits are the hardware's."""

    def exp2_near(self, a: V) -> V:
        """Near 2^a; subnormal arguments and results count as zero. Infinities and NaN as 2^a has them."""
        ...

    def reciprocal_near(self, a: V) -> V:
        """Near 1 / a for 2^-126 <= |a| <= 2^126; of infinity 0, of NaN NaN."""
        ...

    def fma_unit(self, a: V, b: V, c: V) -> V:
        """a * b + c, rounded once, then clamped to [0, 1]; of NaN 0."""
        ...


_LOG2_E, _LOG2_E_LOW = hexes("0x1.715476p+0", "0x1.4ae0cp-26")
_SPAN = 253.0
"""From the least exponent of normal numbers, -126, to the largest."""
_BINADES, _NATURAL, _LEAST = hexes("0x1.03091cp-8", "0x1.75b598p-8", "0x1.fdf9eep-2")
"""1 / 253; log2(e) / 253; 126 / 253."""
_SHIFT = 12582912.0
"""1.5 * 2^23, to which adding an integer adds it to the bits."""
_LIFT = 2.0**-25
"""Added to the argument of 2^r: results are too small by up to 2.06 ulp, too large by up to 1.39 without."""
_TANH_SPLIT = 0.625
_TANH = hexes("-0x1.555532p-2", "0x1.1106f6p-3", "-0x1.b835a4p-5", "0x1.51f8cep-6", "-0x1.750ce2p-8")
"""(tanh(x) / x - 1) / x^2 in x^2 below the split; error of tanh 2^-27.7."""


def _split(b: NearOps[V], x: V, slope: float) -> tuple[V, V]:
    """(-n, 2^n) for the integer n next to 253 * slope * x, between -126 and 127; n as a float."""
    share = b.fma_unit(x, b.const_f32(slope), b.const_f32(_LEAST))
    # The bits of `moved` are those of the shift plus n + 127; shifted left, the exponent field is left of them.
    moved = b.fma(share, b.const_f32(_SPAN), b.const_f32(_SHIFT + 1.0))
    minus_n = b.sub(b.const_f32(_SHIFT + 127.0), moved)
    return minus_n, b.as_float(b.shl(b.as_int(moved), b.const_i32(23)))


def exp(b: NearOps[V], x: V) -> V:
    """e^x around the instruction."""
    minus_n, power = _split(b, x, _NATURAL)
    r = b.fma(x, b.const_f32(_LOG2_E), minus_n)
    r = b.add(r, b.fma(x, b.const_f32(_LOG2_E_LOW), b.const_f32(_LIFT)))
    return b.mul(b.exp2_near(r), power)


def exp2(b: NearOps[V], x: V) -> V:
    """2^x around the instruction."""
    minus_n, power = _split(b, x, _BINADES)
    r = b.add(b.add(x, minus_n), b.const_f32(_LIFT))
    return b.mul(b.exp2_near(r), power)


def sigmoid(b: NearOps[V], x: V) -> V:
    """As `exponential.sigmoid`, whose small results need its exponential; the quotient is corrected by its residual."""
    one = b.const_f32(1.0)
    e = exponential.exp(b, b.neg(b.abs(x)))
    below = b.add(one, e)
    inverse = b.reciprocal_near(below)
    quotient = b.mul(e, inverse)
    quotient = b.fma(b.fma(b.neg(below), quotient, e), inverse, quotient)
    c = b.select(b.lt(x, b.const_f32(0.0)), e, one)
    return b.fma(b.neg(c), quotient, c)


def tanh(b: NearOps[V], x: V) -> V:
    """1 - 2 / (exp(2 |x|) + 1), or a polynomial where that would lose digits."""
    one, size = b.const_f32(1.0), b.abs(x)
    below = b.add(b.exp2_near(b.mul(size, b.const_f32(2 * _LOG2_E))), one)
    large = b.fma(b.const_f32(-2.0), b.reciprocal_near(below), one)
    square = b.mul(x, x)
    small = b.fma(b.mul(polynomial(b, square, _TANH), square), x, x)
    return b.copysign(b.select(b.lt(size, b.const_f32(_TANH_SPLIT)), small, large), x)


def erf(b: NearOps[V], x: V) -> V:
    """As `error_function.erf`. NaN goes through the polynomial of small arguments."""
    size = b.min(b.abs(x), b.const_f32(4.0))
    large = b.exp2_near(b.mul(polynomial(b, size, ERF_LARGE), b.const_f32(-_LOG2_E)))
    large = b.copysign(b.sub(b.const_f32(1.0), large), x)
    small = b.fma(polynomial(b, b.mul(x, x), SMALL), x, x)
    return b.select(b.ge(b.abs(x), b.const_f32(SPLIT)), large, small)
