"""The primitives from which the expansions are made. An emitter that supplies them gets every function of this room.

Floats and integers have one width: 32 bits in `Ops`, 64 in `wide_ops.WideOps`. Integers wrap. Each operation is IEEE:
one rounding, to nearest even; subnormals are kept; division by zero gives an infinity. An emitter must not contract,
reassociate or assume that NaN and infinities are absent, and needs `fma` with one rounding: the error bounds stand on
these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

V = TypeVar("V")
"""A value of an emitter: a float, an integer or a mask. One type for the three, as emitters have it."""


class AnyOps(Protocol[V]):
    """What an emitter supplies whatever the width."""

    def add(self, a: V, b: V) -> V: ...
    def sub(self, a: V, b: V) -> V: ...
    def mul(self, a: V, b: V) -> V: ...
    def div(self, a: V, b: V) -> V: ...
    def sqrt(self, a: V) -> V: ...

    def fma(self, a: V, b: V, c: V) -> V:
        """a * b + c, rounded once."""
        ...

    def neg(self, a: V) -> V:
        """The sign bit turned, of NaN and zero too."""
        ...

    def abs(self, a: V) -> V:
        """The sign bit cleared."""
        ...

    def copysign(self, a: V, sign: V) -> V:
        """The magnitude of `a` with the sign bit of `sign`."""
        ...

    def max(self, a: V, b: V) -> V:
        """The larger. With a NaN operand either operand may come; of zeros either zero may come."""
        ...

    def min(self, a: V, b: V) -> V:
        """The smaller, with the freedoms of `max`."""
        ...

    def round_even(self, a: V) -> V:
        """The nearest integer as a float, ties to the even one."""
        ...

    def float_to_int(self, a: V) -> V:
        """Truncates. Of NaN and of values that the width does not hold, any integer may come."""
        ...

    def int_to_float(self, a: V) -> V:
        """Of a signed integer, rounded to nearest even."""
        ...

    def as_int(self, a: V) -> V:
        """The bits of a float."""
        ...

    def as_float(self, a: V) -> V:
        """The float with these bits."""
        ...

    def iadd(self, a: V, b: V) -> V: ...
    def isub(self, a: V, b: V) -> V: ...
    def imul(self, a: V, b: V) -> V: ...

    def umulhi(self, a: V, b: V) -> V:
        """The upper half of the product of the operands as unsigned numbers."""
        ...

    def and_(self, a: V, b: V) -> V: ...
    def or_(self, a: V, b: V) -> V: ...
    def xor(self, a: V, b: V) -> V: ...

    def shl(self, a: V, count: V) -> V:
        """Requires here and below: 0 <= count < width."""
        ...

    def lshr(self, a: V, count: V) -> V:
        """Zeros come in."""
        ...

    def ashr(self, a: V, count: V) -> V:
        """The sign comes in."""
        ...

    def lt(self, a: V, b: V) -> V:
        """A mask. Comparisons with NaN are false, `ne` is true; -0 equals 0."""
        ...

    def le(self, a: V, b: V) -> V: ...
    def gt(self, a: V, b: V) -> V: ...
    def ge(self, a: V, b: V) -> V: ...
    def eq(self, a: V, b: V) -> V: ...
    def ne(self, a: V, b: V) -> V: ...

    def is_nan(self, a: V) -> V: ...

    def ieq(self, a: V, b: V) -> V:
        """A mask, of integers."""
        ...

    def ilt(self, a: V, b: V) -> V:
        """A mask, of signed integers."""
        ...

    def select(self, mask: V, a: V, b: V) -> V:
        """`a` where the mask is true, else `b`; both floats or both integers."""
        ...

    def rare(self, mask: V, slow: Callable[[], V], fast: V) -> V:
        """`select(mask, slow(), fast)`, where `mask` is seldom true: an emitter may skip `slow` if it is nowhere."""
        ...


class Ops(AnyOps[V], Protocol[V]):
    """Floats of f32, integers of 32 bits."""

    def const_f32(self, value: float) -> V:
        """A float that f32 holds exactly."""
        ...

    def const_i32(self, value: int) -> V:
        """An integer given by its value or by its 32 bits: -2^31 to 2^32 - 1."""
        ...


class PickOps(Ops[V], Protocol[V]):
    """With a permutation of registers, as vector units have it."""

    def pick(self, index: V, values: tuple[float, ...]) -> V:
        """`values[index mod 16]`. Requires: 16 values that f32 holds exactly."""
        ...


def polynomial(b: Ops[V], x: V, coefficients: tuple[float, ...]) -> V:
    """Horner's scheme; `coefficients` begin with the constant. Requires: at least one."""
    return horner(b, x, [b.const_f32(c) for c in coefficients])


def horner(b: AnyOps[V], x: V, coefficients: Sequence[V]) -> V:
    """The polynomial; `coefficients` begin with the constant. Requires: at least one."""
    *rest, total = coefficients
    for c in reversed(rest):
        total = b.fma(total, x, c)
    return total


def hexes(*texts: str) -> tuple[float, ...]:
    """Coefficients written in hexadecimal, so that each is an f32 at sight."""
    return tuple(float.fromhex(t) for t in texts)
