"""Plain Python objects met in captured code, read without knowing their types."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np


def listed(x: Any) -> list[Any]:
    """The elements of a tuple or list; anything else alone."""
    return list(cast("list[Any]", x)) if isinstance(x, (tuple, list)) else [x]


def table(x: Any) -> dict[Any, Any]:
    """A dictionary, as one of anything to anything."""
    return x


def ends(x: Any) -> tuple[Any, Any, Any] | None:
    """Start, stop and step of a slice; `None` for anything else."""
    if not isinstance(x, slice):
        return None
    piece = cast("slice[Any]", x)
    return piece.start, piece.stop, piece.step


def class_of(x: Any) -> Any:
    """The class of an object."""
    return cast("Any", type(x))


def python_operator(name: str) -> Callable[..., Any]:
    """An operator of Python by its name in `operator`."""
    return getattr(operator, name)


def plain_number(x: Any) -> Any:
    """A NumPy scalar as the Python number it holds; anything else as it is."""
    return cast("np.generic[Any]", x).item() if isinstance(x, np.generic) else x


def is_word(x: Any, words: Sequence[str]) -> bool:
    """Whether something that a user passed is one of the words."""
    return isinstance(x, str) and x in words


def is_identifier(x: Any) -> bool:
    """Whether something that a user passed can be a name."""
    return isinstance(x, str) and x.isidentifier()


def words_of(x: Any) -> list[str]:
    """The words of a text that spaces or commas separate; none of anything else."""
    return x.replace(",", " ").split() if isinstance(x, str) else []
