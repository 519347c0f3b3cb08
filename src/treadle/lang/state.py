"""The capture that is going on, if any: what makes operators and functions of the language find their program."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

from treadle.base.source import Span, user_position
from treadle.lang.errors import OutsideKernel

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
