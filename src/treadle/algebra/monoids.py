"""Built-in monoids: identity, the elementwise function that merges, and which laws hold exactly for a dtype.

A law that does not hold exactly (the order of a floating-point sum) may be granted by a program's order policy; that is
a permission, not a fact of this table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from treadle.dtype.formats import DType


@dataclass(frozen=True)
class BuiltinMonoid:
    """`merge` is a name of the IR's elementwise table. All built-in ones commute."""

    name: str
    merge: str
    idempotent: bool = False

    def identity(self, dtype: DType) -> float | int | bool:
        """The number e with `merge(e, x) == x` bit for bit, for every x: -0.0 for a float sum."""
        match self.name:
            case "add":
                return -0.0 if dtype.is_float else 0
            case "mul":
                return 1.0 if dtype.is_float else 1
            case "max" | "min":
                return _extreme(dtype, self.name == "max")
            case "and":
                return True if dtype.is_bool else (dtype.finite_max if dtype.kind == "uint" else -1)
            case _:
                return False if dtype.is_bool else 0

    def is_identity(self, number: float | int | bool, dtype: DType) -> bool:
        """Whether merging `number` changes no value. *Ensures*: `merge(number, x) == x` for all x of the dtype."""
        wanted = self.identity(dtype)
        return number == wanted and math.copysign(1.0, float(number)) == math.copysign(1.0, float(wanted))

    def starts_empty(self, number: float | int | bool, dtype: DType) -> bool:
        """Whether `number` may stand for a fold of nothing: the identity, or +0.0 for a float sum."""
        return self.is_identity(number, dtype) or (self.name == "add" and dtype.is_float and number == 0.0)

    def exact(self, dtype: DType) -> bool:
        """Whether regrouping and permuting never change a result: all but float sums and products."""
        return self.name not in ("add", "mul") or not dtype.is_float


def _extreme(dtype: DType, lowest: bool) -> float | int | bool:
    """Below (above) every value: an infinity where the format has one, else its end of the range."""
    if dtype.is_bool:
        return not lowest
    if dtype.is_float and dtype.has_inf:
        return -math.inf if lowest else math.inf
    return dtype.finite_min if lowest else dtype.finite_max


MONOIDS: dict[str, BuiltinMonoid] = {
    "add": BuiltinMonoid("add", "add"),
    "mul": BuiltinMonoid("mul", "mul"),
    "max": BuiltinMonoid("max", "maximum", idempotent=True),
    "min": BuiltinMonoid("min", "minimum", idempotent=True),
    "and": BuiltinMonoid("and", "and", idempotent=True),
    "or": BuiltinMonoid("or", "or", idempotent=True),
    "xor": BuiltinMonoid("xor", "xor"),
}
"""By the name that `Reduce.monoid` and the machine's `Fold.monoid` use."""

BY_MERGE: dict[str, BuiltinMonoid] = {m.merge: m for m in MONOIDS.values()}
"""By the elementwise function that merges two states."""
