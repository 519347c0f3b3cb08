"""Numbers with the rounding errors that f32 arithmetic may have made: oracles that derive their own bounds.

A `Num` holds float64 values and, element by element, a first-order bound on how far a computation in f32 may be from
them: running error analysis (Higham, Accuracy and Stability of Numerical Algorithms, section 3.3). Operations add `U`
of their result to what their operands bring; functions of the class "2ulp" add 4 U; a sum of n terms in any order adds
(n - 1) U of the sum of magnitudes. `SLACK` covers products of errors. Fused multiply-adds only make errors smaller.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
U, U_BF16, U_F16, TINY, SLACK = 2.0**-24, 2.0**-8, 2.0**-11, 2.0**-126, 1.05


def up(x: Any) -> Array:
    return np.asarray(x).astype(np.float64)


@dataclass(frozen=True)
class Num:
    """Values, and how far the computed ones may be off."""

    value: Array
    off: Array

    __array_ufunc__ = None  # an array on the left leaves the operation to this class

    @property
    def bound(self) -> Array:
        return SLACK * self.off + TINY

    def _rounded(self, units: float = 1.0) -> Num:
        return Num(self.value, self.off + units * U * np.abs(self.value))

    def __neg__(self) -> Num:
        return Num(-self.value, self.off)

    def __add__(self, other: Any) -> Num:
        o = num(other)
        return Num(self.value + o.value, self.off + o.off)._rounded()

    __radd__ = __add__

    def __sub__(self, other: Any) -> Num:
        return self + -num(other)

    def __rsub__(self, other: Any) -> Num:
        return num(other) - self

    def __mul__(self, other: Any) -> Num:
        o = num(other)
        with np.errstate(invalid="ignore"):
            return Num(self.value * o.value, np.abs(self.value) * o.off + np.abs(o.value) * self.off)._rounded()

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Num:
        o = num(other)
        with np.errstate(all="ignore"):
            v = self.value / o.value
            return Num(v, (self.off + np.abs(v) * o.off) / np.abs(o.value))._rounded()

    def __rtruediv__(self, other: Any) -> Num:
        return num(other) / self

    def __getitem__(self, key: Any) -> Num:
        return Num(self.value[key], np.broadcast_to(self.off, self.value.shape)[key])

    def reshape(self, *shape: int) -> Num:
        return Num(self.value.reshape(*shape), np.broadcast_to(self.off, self.value.shape).reshape(*shape))

    def sum(self, axis: Any = None, keepdims: bool = False) -> Num:
        value = self.value.sum(axis, keepdims=keepdims)
        n = self.value.size / max(value.size, 1)
        off = np.broadcast_to(self.off, self.value.shape).sum(axis, keepdims=keepdims)
        return Num(value, off + max(n - 1, 0) * U * np.abs(self.value).sum(axis, keepdims=keepdims))

    def mean(self, axis: Any = None, keepdims: bool = False) -> Num:
        total = self.sum(axis, keepdims)
        return total / (self.value.size / max(total.value.size, 1))

    def max(self, axis: Any = None, keepdims: bool = False) -> Num:
        off = np.broadcast_to(self.off, self.value.shape).max(axis, keepdims=keepdims, initial=0.0)
        return Num(self.value.max(axis, keepdims=keepdims, initial=-np.inf), off)

    def stored(self, unit: float) -> Num:
        """Rounded once more, to a format with this unit."""
        return Num(self.value, self.off + unit * np.abs(self.value))


def num(x: Any) -> Num:
    """A number that is exact."""
    if isinstance(x, Num):
        return x
    value = up(x)
    return Num(value, np.zeros(value.shape))


def inexact(x: float) -> Num:
    """A constant that f32 holds rounded."""
    return num(x)._rounded()


def function(f: Callable[[Array], Any], slope: Callable[[Array], Any], x: Any, units: float = 4.0) -> Num:
    """A function of the class "2ulp"."""
    n = num(x)
    with np.errstate(all="ignore"):
        return Num(np.asarray(f(n.value)), np.nan_to_num(np.abs(slope(n.value)) * n.off))._rounded(units)


def exp(x: Any) -> Num:
    return function(np.exp, np.exp, x)


def log(x: Any) -> Num:
    return function(np.log, lambda v: 1 / v, x)


def log1p(x: Any) -> Num:
    return function(np.log1p, lambda v: 1 / (1 + v), x)


def expm1(x: Any) -> Num:
    return function(np.expm1, np.exp, x)


def tanh(x: Any) -> Num:
    return function(np.tanh, lambda v: 1 / np.cosh(v) ** 2, x)


def sqrt(x: Any) -> Num:
    return function(np.sqrt, lambda v: 0.5 / np.sqrt(v), x)


def rsqrt(x: Any) -> Num:
    return function(lambda v: 1 / np.sqrt(v), lambda v: 0.5 * v**-1.5, x)


def sin(x: Any) -> Num:
    return function(np.sin, np.cos, x)


def cos(x: Any) -> Num:
    return function(np.cos, np.sin, x)


def sigmoid(x: Any) -> Num:
    return 1.0 / (1.0 + exp(-num(x)))


def absolute(x: Any) -> Num:
    n = num(x)
    return Num(np.abs(n.value), n.off)


def maximum(a: Any, b: Any) -> Num:
    x, y = num(a), num(b)
    return Num(np.maximum(x.value, y.value), np.maximum(x.off, y.off))


def minimum(a: Any, b: Any) -> Num:
    return -maximum(-num(a), -num(b))


def where(c: Any, a: Any, b: Any) -> Num:
    x, y = num(a), num(b)
    return Num(np.where(c, x.value, y.value), np.where(c, x.off, y.off))


def softplus(x: Any) -> Num:
    return maximum(x, 0) + log1p(exp(-absolute(x)))


def contract(spec: str, a: Any, b: Any) -> Num:
    """`np.einsum` of two operands: n products and their sum, in any order."""
    x, y = num(a), num(b)
    left, right = spec.split("->")[0].split(",")
    kept = spec.split("->")[1]
    sizes = dict(zip(left, x.value.shape, strict=True)) | dict(zip(right, y.value.shape, strict=True))
    n = np.prod([sizes[c] for c in {*left, *right} - set(kept)], dtype=float)
    ax, ay = np.abs(x.value), np.abs(y.value)
    off = np.einsum(spec, np.broadcast_to(x.off, ax.shape), ay) + np.einsum(spec, ax, np.broadcast_to(y.off, ay.shape))
    return Num(np.einsum(spec, x.value, y.value), off + n * U * np.einsum(spec, ax, ay))
