"""A call's arguments for another process: the same bytes, layouts and places within a page, and none of the memory.

Arguments on a GPU go through the file as others do, and to the same device in the other process.
"""

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
from treadle.runtime.driver import current, device, driver, ok, ordinal_of
from treadle.runtime.streams import current_stream, order_of

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
        if size and seen.device == "cpu":
            file.write((ctypes.c_char * size).from_address(low))
        elif size:
            _write_from_device(file, seen, low, size)
        strides = tuple(s * step for s in seen.strides)
        placed.append(Placed(name, seen.dtype, seen.shape, strides, start, size, max(0, seen.ptr - low), low % PAGE))
        start += size
    file.flush()
    return file, placed


_CHUNK = 64 << 20


def _write_from_device(file: IO[bytes], seen: ArrayView, low: int, size: int) -> None:
    """The bytes of an array of a GPU, some at a time."""
    cu, ordinal, doing = driver(), ordinal_of(seen.device), "copying an argument for trials"
    room = np.empty(min(size, _CHUNK), np.uint8)
    with current(device(ordinal)):
        ok(cu.cuStreamSynchronize(cu.CUstream(current_stream(ordinal, order_of([seen]).library))), doing)
        for at in range(0, size, _CHUNK):
            part = min(_CHUNK, size - at)
            ok(cu.cuMemcpyDtoH(room.ctypes.data, low + at, part), doing)
            file.write(room[:part].data)


class DeviceCopies:
    """Private copies on a GPU of the arrays of a file, which may be made new. They live as long as the process."""

    def __init__(self, descriptor: int, placed: Sequence[Placed], place: str) -> None:
        self._placed = {p.name: p for p in placed}
        self._ordinal = ordinal_of(place)
        self._at: dict[str, int] = {}
        self.arrays: dict[str, ArrayView] = {}
        size = os.fstat(descriptor).st_size
        self._file = mmap.mmap(descriptor, size, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED) if size else None
        with current(device(self._ordinal)):
            for p in placed:
                room = int(ok(driver().cuMemAlloc(p.size + PAGE), f"allocating a copy of {p.name}"))
                at = self._at[p.name] = room + (p.phase - room) % PAGE
                step = numpy_dtype(p.dtype).itemsize
                strides = tuple(s // step for s in p.strides)
                self.arrays[p.name] = ArrayView(at + p.first, p.shape, strides, p.dtype, place, True, None)
        self.refresh()

    def refresh(self, names: Sequence[str] | None = None) -> None:
        """Gives arrays (all of them) the bytes that they had."""
        doing = "making copies of arguments new"
        with current(device(self._ordinal)):
            ok(driver().cuCtxSynchronize(), doing)
            for name in self._placed if names is None else names:
                p = self._placed[name]
                if self._file is not None and p.size:
                    bytes_of = np.frombuffer(self._file, np.uint8, p.size, p.start)
                    ok(driver().cuMemcpyHtoD(self._at[name], bytes_of.ctypes.data, p.size), doing)
            ok(driver().cuCtxSynchronize(), doing)


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
