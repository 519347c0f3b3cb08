"""What `td.Numerics` says that this version cannot do, and what a program must not do under it.

A permission that no plan would ever spend is refused: an author who grants it should learn that it changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.base.errors import LimitError, UserError
from treadle.base.source import Span
from treadle.ir.core import Program
from treadle.ir.ops.access import Store

if TYPE_CHECKING:
    from treadle.lang.specs import Numerics


class NoSuchArithmetic(LimitError):
    """A permission of `td.Numerics` that no plan of this version would spend."""

    code = "numerics/not-built"


class NotRepeatable(UserError):
    """Colliding writes whose result depends on which comes first, in a kernel that demands repeatable bits."""

    code = "numerics/repeatable"


def known(numerics: Numerics, span: Span | None) -> None:
    """*Errors*: `numerics/not-built` for a permission that nothing would use."""
    if numerics.subnormals == "flush":
        raise NoSuchArithmetic(
            doing="reading td.Numerics",
            found="subnormals='flush'",
            expected="subnormal numbers kept: no plan of this version does otherwise",
            hint="leave subnormals= out: the results are those of the default",
            span=span,
        )


def require_repeatable(program: Program) -> None:
    """*Errors*: `numerics/repeatable` for float sums in the order in which instances happen to arrive."""
    demanded = program.numerics.get("repeatable")
    if demanded is None:
        return
    for op in program.body.walk():
        if isinstance(op, Store) and op.effect == "add" and op.order == "unordered" and op.tensor.dtype.is_float:
            raise NotRepeatable(
                doing=f"capturing {program.name} with repeatable={demanded!r}",
                found=f"add_at of {op.tensor.name}, which is {op.tensor.dtype}, in any order",
                expected="sums whose order is fixed, or integers",
                hint=f"write {op.tensor.name}.add_at(..., order=td.fold_left), or add up integers",
                span=op.span or program.span,
            )
