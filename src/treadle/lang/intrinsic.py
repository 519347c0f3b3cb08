"""`td.intrinsic`: an operation of the user's own, with the contract that its emission must keep.

The contract's first part is the meaning: a function in the language, which the interpreter runs, the judge reads, and
every target computes that has no emission of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from treadle.lang.errors import BadArgument
from treadle.lang.state import context, maybe_context

EFFECTS = ("none",)
CONVERGENCE = ("none", "subgroup", "workgroup")
CLASSES = ("exact", "2ulp", "storage", "fast")


class Intrinsic:
    """What `td.intrinsic` makes: called in a kernel, it computes its pattern."""

    def __init__(
        self, pattern: Callable[..., Any], effects: str, convergence: str, numerics: str, emit: Mapping[str, str]
    ) -> None:
        self.pattern = pattern
        self.effects = effects
        self.convergence = convergence
        self.numerics = numerics
        self.emit = dict(emit)

    @property
    def name(self) -> str:
        """The name of its pattern."""
        return getattr(self.pattern, "__name__", "intrinsic")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return context().call(self.pattern, list(args), kwargs)

    def __repr__(self) -> str:
        return f"td.intrinsic({self.name})"


def intrinsic(
    pattern: Callable[..., Any],
    effects: str = "none",
    convergence: str = "none",
    numerics: str = "exact",
    emit: Mapping[str, str] | None = None,
) -> Intrinsic:
    """An operation of the user's own: `pattern` says what it computes, the rest what an emission of it must keep.

    `effects` "none": it reads its operands and nothing else. `convergence`: who must arrive together. `numerics`: how
    far from the pattern a result may be. `emit`: text by target (`{"cuda:sm_90a": ...}`); a target without one
    computes the pattern.

    *Errors*: `capture/argument` for a contract that cannot be stated this way.
    """
    ctx = maybe_context()
    texts = dict(emit or {})
    wrong: str | None = None
    if not callable(pattern) or inspect.isclass(pattern):
        wrong = f"the pattern {pattern!r}, which is no function"
    elif effects not in EFFECTS:
        wrong = f"effects={effects!r}, where only none can be stated"
    elif convergence not in CONVERGENCE:
        wrong = f"convergence={convergence!r}"
    elif numerics not in CLASSES:
        wrong = f"numerics={numerics!r}"
    if wrong is not None:
        raise BadArgument(
            doing="declaring td.intrinsic",
            found=wrong,
            expected=f"a function, effects none, convergence {', '.join(CONVERGENCE)}, numerics {', '.join(CLASSES)}",
            hint='write td.intrinsic(pattern, effects="none", convergence="none", numerics="exact", emit={})',
            span=None if ctx is None else ctx.span,
        )
    return Intrinsic(pattern, effects, convergence, numerics, texts)
