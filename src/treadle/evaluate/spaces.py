"""Which arguments share memory: arrays of one memory get one space, whose places they address by strides."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Index = tuple[Any, ...]


@dataclass(frozen=True)
class View:
    """How a tensor lies in its space: the place of its first element, strides, places an element takes (`width`)."""

    space: int
    offset: int
    strides: tuple[int, ...]
    width: int = 1

    def places(self, index: Index) -> NDArray[np.int64]:
        """The places of elements, one row an element (the index arrays broadcast together)."""
        first = np.asarray(self.offset, np.int64)
        for i, stride in zip(index, self.strides, strict=True):
            first = first + np.asarray(i, np.int64) * stride
        return first[..., None] + np.arange(self.width)


@dataclass(frozen=True)
class Spaces:
    """The views by tensor name, and how many places each space has."""

    views: dict[str, View]
    sizes: list[int]


def copied(arrays: Mapping[str, Array], stored: set[str]) -> tuple[dict[str, Array], Spaces]:
    """The arrays, those in memory that is stored to copied: which share memory, and how, stays the same."""
    result: dict[str, Array] = {}
    views: dict[str, View] = {}
    sizes: list[int] = []
    for names in _groups(arrays):
        group = {n: arrays[n] for n in names}
        if len(names) == 1 and not _overlaps_itself(arrays[names[0]]):
            (name,) = names
            array = arrays[name].copy() if name in stored else arrays[name]
            result[name] = array
            views[name] = View(len(sizes), 0, _row_major(array.shape))
            sizes.append(max(1, array.size))
            continue
        low, high = _bounds(group)
        memory = np.empty(high - low, np.uint8)
        memory[:] = np.ctypeslib.as_array((ctypes.c_uint8 * (high - low)).from_address(low))
        unit = math.gcd(*(n for a in group.values() for n in (a.itemsize, *a.strides, _address(a) - low)))
        for name, array in group.items():
            at = _address(array) - low
            result[name] = np.ndarray(array.shape, array.dtype, memory.data, at, array.strides)
            strides = tuple(s // unit for s in array.strides)
            views[name] = View(len(sizes), at // unit, strides, max(1, array.itemsize // unit))
        sizes.append((high - low) // unit + 1)
    return result, Spaces(views, sizes)


def separate(shapes: Mapping[str, tuple[int, ...]]) -> Spaces:
    """Tensors that share no memory."""
    views = {name: View(i, 0, _row_major(shape)) for i, (name, shape) in enumerate(shapes.items())}
    return Spaces(views, [max(1, math.prod(shape)) for shape in shapes.values()])


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(1, extent)
    return tuple(reversed(strides))


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def _overlaps_itself(array: Array) -> bool:
    """Whether two indices may be one element: a stride of 0 along an axis of several elements."""
    return any(s == 0 and n > 1 for s, n in zip(array.strides, array.shape, strict=True))


def _bounds(group: Mapping[str, Array]) -> tuple[int, int]:
    ends = [np.lib.array_utils.byte_bounds(a) for a in group.values()]
    return min(lo for lo, _ in ends), max(hi for _, hi in ends)


def _groups(arrays: Mapping[str, Array]) -> list[list[str]]:
    """Names of arrays by shared memory."""
    groups: list[list[str]] = []
    for name, array in arrays.items():
        near = [g for g in groups if array.size and any(np.may_share_memory(array, arrays[n]) for n in g)]
        groups = [g for g in groups if g not in near] + [[*(n for g in near for n in g), name]]
    return groups
