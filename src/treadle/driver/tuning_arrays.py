"""A call's arguments for another process: the same bytes, layouts and places within a page, and none of the memory."""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from treadle.runtime.arrays import ArrayView, numpy_dtype

PAGE = 4096
"""Copies begin at the same place within a page: which cache sets and which aligned accesses they give is the same."""


@dataclass(frozen=True)
class Placed:
    """An array as it lies: bytes `start` to `start + size` of the file are what lies from its lowest element to its
    highest. Units: `first` (its first element, from the lowest), `strides` and `phase` (of the lowest) in bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: int
    size: int
    first: int
    phase: int


def write_arguments(views: Mapping[str, ArrayView]) -> tuple[IO[bytes], list[Placed]]:
    """A file without a name that holds the bytes of the arrays, and where each is."""
    file: IO[bytes] = tempfile.TemporaryFile()  # its owner closes it
    placed: list[Placed] = []
    start = 0
    for name, seen in views.items():
        low, high = seen.span
        size = high - low
        step = numpy_dtype(seen.dtype).itemsize
        if size:
            file.write((ctypes.c_char * size).from_address(low))
        strides = tuple(s * step for s in seen.strides)
        placed.append(Placed(name, seen.dtype, seen.shape, strides, start, size, max(0, seen.ptr - low), low % PAGE))
        start += size
    file.flush()
    return file, placed


class Copies:
    """Private copies of the arrays of a file, which may be made new."""

    def __init__(self, descriptor: int, placed: Sequence[Placed]) -> None:
        self._raw: dict[str, NDArray[np.uint8]] = {}
        self._placed = {p.name: p for p in placed}
        self.arrays: dict[str, NDArray[Any]] = {}
        size = os.fstat(descriptor).st_size
        self._file = mmap.mmap(descriptor, size, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED) if size else None
        for p in placed:
            whole = np.empty(p.size + PAGE, np.uint8)
            offset = (p.phase - whole.ctypes.data) % PAGE
            raw = self._raw[p.name] = whole[offset : offset + p.size]
            dtype = numpy_dtype(p.dtype)
            if p.size:
                self.arrays[p.name] = np.ndarray(p.shape, dtype, raw.data, p.first, p.strides)
            else:
                self.arrays[p.name] = np.empty(p.shape, dtype)
        self.refresh()

    def refresh(self, names: Sequence[str] | None = None) -> None:
        """Gives arrays (all of them) the bytes that they had."""
        for name in self._placed if names is None else names:
            p = self._placed[name]
            if self._file is not None and p.size:
                self._raw[name][:] = np.frombuffer(self._file, np.uint8, p.size, p.start)
