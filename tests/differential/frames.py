"""Arrays as views into poisoned memory: what lies beside them must be neither read into a result nor written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def poison(dtype: np.dtype[Any]) -> Any:
    """NaN, or the value that is out of range for any index."""
    if dtype.kind == "b":
        return True
    return np.iinfo(dtype).max if dtype.kind in "iu" else np.nan


def _all(*parts: slice | int) -> Callable[[Array], Array]:
    return lambda base: base[(*parts, ...)]


def _plain(shape: tuple[int, ...]) -> tuple[tuple[int, ...], Callable[[Array], Array]]:
    """Contiguous, between two stretches of poison, one element off any alignment."""
    size = int(np.prod(shape, dtype=int))
    return (size + 66,), lambda base: base[33 : 33 + size].reshape(shape)


def _pitched(shape: tuple[int, ...]) -> tuple[tuple[int, ...], Callable[[Array], Array]]:
    """Rows with poison before and behind each."""
    return tuple(n + 3 for n in shape), _all(*(slice(1, 1 + n) for n in shape))


def _strided(shape: tuple[int, ...]) -> tuple[tuple[int, ...], Callable[[Array], Array]]:
    """Every second element along every axis."""
    return tuple(2 * n + 1 for n in shape), _all(*(slice(1, 1 + 2 * n, 2) for n in shape))


def _transposed(shape: tuple[int, ...]) -> tuple[tuple[int, ...], Callable[[Array], Array]]:
    """The last axis varies slowest."""
    return tuple(n + 2 for n in shape[::-1]), lambda base: _pitched_part(base, shape[::-1]).T


def _pitched_part(base: Array, shape: tuple[int, ...]) -> Array:
    return base[(*(slice(1, 1 + n) for n in shape), ...)]


def _negative(shape: tuple[int, ...]) -> tuple[tuple[int, ...], Callable[[Array], Array]]:
    """Backwards along every axis."""
    back = (slice(None, None, -1),) * len(shape)
    return tuple(n + 2 for n in shape), lambda base: _pitched_part(base, shape)[(*back, ...)]


LAYOUTS = {
    "plain": _plain,
    "pitched": _pitched,
    "strided": _strided,
    "transposed": _transposed,
    "negative": _negative,
}


@dataclass
class Framed:
    """A view with its surroundings. `array` is what is passed."""

    base: Array
    cut: Callable[[Array], Array]
    array: Array = field(init=False)
    before: Array = field(init=False)

    def __post_init__(self) -> None:
        self.array = self.cut(self.base)
        self.before = self.base.copy()

    def keep(self) -> None:
        """Takes the present content as what must stay."""
        self.before = self.base.copy()

    def unchanged(self, *, written: bool) -> bool:
        """Whether memory is as before, but for the view's own elements if it was `written`."""
        now = self.before.copy()
        if written:
            self.cut(now)[...] = self.array
        return now.tobytes() == self.base.tobytes()


def framed(content: Array, layout: str) -> Framed:
    """`content` in poisoned memory. "broadcast": the first slice along the first axis, repeated with stride 0."""
    if layout == "broadcast" and content.ndim and content.shape[0]:
        inner = framed(content[0], "pitched")
        shape = content.shape
        cut = inner.cut
        return Framed(inner.base, lambda base: np.broadcast_to(cut(base), shape))
    shape, cut = LAYOUTS.get(layout, _plain)(content.shape)
    made = Framed(np.full(shape, poison(content.dtype), content.dtype), cut)
    made.array[...] = content
    made.keep()
    return made
