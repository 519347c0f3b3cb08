"""Reciprocals and reciprocal square roots, by the correctly rounded division and root that every target has."""

from __future__ import annotations

from treadle.math.ops import Ops, V
from treadle.math.wide_ops import WideOps


def sqrt(b: Ops[V] | WideOps[V], x: V) -> V:
    """The square root, rounded once."""
    return b.sqrt(x)


def rsqrt(b: Ops[V], x: V) -> V:
    """1 / sqrt(x): of 0 and -0 the infinity of that sign, of negative numbers NaN."""
    return b.div(b.const_f32(1.0), b.sqrt(x))


def reciprocal(b: Ops[V], x: V) -> V:
    """1 / x, rounded once."""
    return b.div(b.const_f32(1.0), x)


def rsqrt_wide(b: WideOps[V], x: V) -> V:
    """1 / sqrt(x) in f64."""
    return b.div(b.const_f64(1.0), b.sqrt(x))
