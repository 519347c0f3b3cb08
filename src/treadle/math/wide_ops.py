"""The primitives of the expansions in f64. An emitter that supplies them gets the functions of f64, and those of f32 in
class `exact`, which are computed in f64 and rounded once.
"""

from __future__ import annotations

from typing import Protocol

from treadle.math.ops import AnyOps, V, horner


class WideOps(AnyOps[V], Protocol[V]):
    """Floats of f64, integers of 64 bits."""

    def const_f64(self, value: float) -> V: ...

    def const_i64(self, value: int) -> V:
        """An integer given by its value or by its 64 bits: -2^63 to 2^64 - 1."""
        ...


def polynomial(b: WideOps[V], x: V, coefficients: tuple[float, ...]) -> V:
    """Horner's scheme; `coefficients` begin with the constant. Requires: at least one."""
    return horner(b, x, [b.const_f64(c) for c in coefficients])
