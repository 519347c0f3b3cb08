"""erf in f64, in the steps of `error_function`: x + x p(x^2) below 0.84, and 1 - exp(-g(|x|)) above.

Source: p is a Chebyshev interpolant; g a minimax fit weighted by 1 - erf (Lawson's iteration), both with 50 digits or
more, rounded to f64.
"""

from __future__ import annotations

from treadle.math.ops import hexes
from treadle.math.wide_exponential import power_of_two, reduced_exp
from treadle.math.wide_ops import V, WideOps, polynomial

_SPLIT = 215 / 256
_SMALL = hexes(
    *("0x1.06eba8214db69p-3", "-0x1.812746b0379e7p-2", "0x1.ce2f21a042bddp-4", "-0x1.b82ce31288933p-6"),
    *("0x1.565bcd0e61bd4p-8", "-0x1.c02db3fda86c7p-11", "0x1.f9a32678c9272p-14", "-0x1.f4d24b741e457p-17"),
    *("0x1.b9e54a1e4c27bp-20", "-0x1.5f5c96a60915bp-23", "0x1.facd31159a7efp-27", "-0x1.441add5ffc6f2p-30"),
    *("0x1.2ba033f78a42dp-34",),
)
"""erf(x) / x - 1 in x^2; error relative to erf 2^-56.2."""
_LARGE = hexes(
    *("0x1.d97fbf27aa2a1p+0", "0x1.51c9b0006c23dp+1", "0x1.afabc11a28f39p-1", "0x1.5477f09ca8b22p-5"),
    *("-0x1.48c9d40c076c9p-7", "0x1.033f6996a7fd6p-9", "-0x1.f1b4bc0250993p-13", "-0x1.b8be6a46e1785p-16"),
    *("0x1.c75a89083c71fp-16", "-0x1.415f349b592f5p-17", "0x1.0f03ae288f108p-19", "-0x1.bbe9cf7264d49p-24"),
    *("-0x1.0fe5be3b08823p-23", "0x1.24b169ca7991fp-24", "-0x1.72ccc96bd0b38p-26", "0x1.502d0040c77a1p-28"),
    *("-0x1.bb554aa352673p-31", "0x1.965ec52409955p-34", "-0x1.cf5ae1ce1f37cp-38", "0x1.edf40b38e0108p-43"),
)
"""-log(1 - erf(a)) in a - 1, for a from 0.84 to 6; error of erf 2^-58.2."""


def erf(b: WideOps[V], x: V) -> V:
    """erf(x) in f64."""
    one = b.const_f64(1.0)
    # erf(5.93) is 1 in f64; below 0.84 the polynomial of large arguments is not wanted.
    size = b.max(b.min(b.abs(x), b.const_f64(6.0)), b.const_f64(0.5))
    t, n = reduced_exp(b, b.neg(polynomial(b, b.sub(size, one), _LARGE)))
    power = power_of_two(b, b.float_to_int(n))
    large = b.sub(one, b.fma(power, t, power))
    small = b.fma(polynomial(b, b.mul(x, x), _SMALL), x, x)
    result = b.select(b.lt(b.abs(x), b.const_f64(_SPLIT)), small, b.copysign(large, x))
    return b.select(b.is_nan(x), x, result)
