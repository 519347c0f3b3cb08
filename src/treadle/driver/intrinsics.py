"""Operations of the user's own on a target: it needs a text of the author's for each."""

from __future__ import annotations

from treadle.base.errors import LimitError
from treadle.ir.core import Program


class IntrinsicAbsent(LimitError):
    """A `td.intrinsic` for which its author gives no text for the target."""

    code = "limit/intrinsic"


def require_texts(program: Program, target: str) -> None:
    """*Errors*: `limit/intrinsic` where an operation of the user's own has no text for the target."""
    for meaning in program.intrinsics:
        if meaning.text(target) is None:
            raise IntrinsicAbsent(
                doing=f"planning {program.name} for {target}",
                found=f"td.intrinsic({meaning.symbol}) with texts for {', '.join(sorted(meaning.emit))}",
                expected=f"a text for {target}, or for {target.partition(':')[0]}",
                hint="give one in emit=, or leave emit= out: then every target computes the pattern",
                span=program.span,
            )
