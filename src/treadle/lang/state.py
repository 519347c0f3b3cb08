"""The capture that is going on, if any: what makes operators and functions of the language find their program."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from treadle.base.source import Span, user_position
from treadle.lang.errors import BadArgument, OutsideKernel
from treadle.lang.objects import plain_number

if TYPE_CHECKING:
    from treadle.lang.context import Context

current: ContextVar[Context | None] = ContextVar("treadle_capture", default=None)


def maybe_context() -> Context | None:
    """The capture of this thread or task, or `None`."""
    return current.get()


def span_here() -> Span | None:
    """The user's position: that of the capture, or of the call of treadle where nothing is captured."""
    ctx = current.get()
    return user_position() if ctx is None else ctx.span


def staged_flag(doing: str, name: str, value: Any) -> bool:
    """A staged truth value that a user passed. *Errors*: `capture/argument`."""
    flag = plain_number(value)
    if isinstance(flag, bool):
        return flag
    raise BadArgument(
        doing=doing,
        found=f"{name} of type {type(value).__name__}",
        expected=f"{name}=True or {name}=False, known when the kernel is captured",
        hint=f"leave {name}= out for the default",
        span=span_here(),
    )


def context() -> Context:
    """The capture of this thread or task. *Errors*: `capture/outside`."""
    found = current.get()
    if found is None:
        raise OutsideKernel(
            doing="using the language",
            found="no kernel is being captured",
            expected="a use inside a function decorated with td.kernel",
            hint="move the expression into a kernel",
            span=user_position(),
        )
    return found
