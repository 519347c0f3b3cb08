"""Tiles at run time: an array, where each axis starts, and which elements have been written."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.algebra.dims import Dim

Array = NDArray[Any]


@dataclass
class Tile:
    """Elements of a value: `data` over the ranges `lo[i] <= c < lo[i] + data.shape[i]` along `dims`.

    `known` marks elements that have a value (None: all of them); an element of `td.empty` has none until it is written.
    `covered` has, for what an instance of `parallel` assembled, the number of the operation (`Machine.mark`), else 0.
    """

    data: Array
    dims: tuple[Dim, ...]
    lo: tuple[int, ...]
    known: NDArray[np.bool_] | None = None
    covered: NDArray[np.int64] | None = None

    def aligned(self, dims: tuple[Dim, ...]) -> Array:
        """The data with axes in the order of `dims`, absent ones of length 1. Requires: no other axes."""
        return spread(self.data, self.dims, dims)

    def element(self, *coords: Any) -> Any:
        """The element at global coordinates, which may be arrays. Scalars come as Python integers."""
        at = tuple(np.asarray(c) - lo for c, lo in zip(coords, self.lo, strict=True))
        value = self.data[at]
        return int(value) if np.ndim(value) == 0 else np.asarray(value).astype(np.int64)


def spread(data: Array, have: tuple[Hashable, ...], want: tuple[Hashable, ...]) -> Array:
    """`data` with axes along `have` re-ordered as in `want`, with length-1 axes where `have` lacks a dimension."""
    if have == want:
        return data
    order = [have.index(d) for d in want if d in have]
    moved = data.transpose(order) if data.ndim else data
    shape = iter(moved.shape)
    return moved.reshape(tuple(next(shape) if d in have else 1 for d in want))
