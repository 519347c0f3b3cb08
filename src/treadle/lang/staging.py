"""Staged values as parts of keys: two values that a program could tell apart have different stand-ins."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from treadle.lang.errors import BadArgument
from treadle.lang.objects import class_of
from treadle.lang.state import span_here

MOST_BYTES = 1 << 26
"""Of one staged array."""


def freeze(value: Any) -> Any:
    """A hashable stand-in: 1, 1.0 and True differ, as do 0.0 and -0.0; lists and arrays count by what they hold.

    *Errors*: `capture/argument` for an array that is too large to be part of a program.

    What can be neither hashed nor looked into counts by identity, and is kept, so that nothing else gets its identity.
    """
    kind = class_of(value)
    if kind is float or kind is complex:
        return kind, repr(value)
    if isinstance(value, (list, tuple)):
        return kind, tuple(freeze(v) for v in cast("list[Any]", value))
    if isinstance(value, dict):
        return kind, tuple((freeze(k), freeze(v)) for k, v in cast("dict[Any, Any]", value).items())
    if isinstance(value, np.ndarray):
        held = cast("NDArray[Any]", value)
        if held.nbytes > MOST_BYTES:
            raise BadArgument(
                doing="reading a staged value",
                found=f"an array of {held.nbytes} bytes",
                expected=f"at most {MOST_BYTES} bytes: what it holds becomes part of the program",
                hint="pass it as a tensor parameter",
                span=span_here(),
            )
        return kind, held.dtype.str, held.shape, held.tobytes()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return kind, tuple(freeze(getattr(value, f.name)) for f in dataclasses.fields(value))
    try:
        hash(value)
    except TypeError:
        return kind, Identity(value)
    return kind, value


class Identity:
    """A value that is equal to itself only."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)
