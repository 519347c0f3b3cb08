"""Memory that kernels write: aligned outputs, and workspace that is kept and used again.

The first touch of a page costs more than most kernels do with it. Blocks from 256 KiB on are therefore private
mappings, advised to be huge pages, that go to a free list when their last user is gone; the list is bounded.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import weakref
from typing import Any

import numpy as np

from treadle.runtime.arrays import numpy_dtype
from treadle.runtime.errors import OutOfMemory

ALIGNMENT = 64
"""Bytes to which every block is aligned."""

_HUGE = 2 << 20
_MAPPED_FROM = 256 << 10
_KEPT_BYTES = 512 << 20


class Workspace:
    """A block of at least `size` bytes at `address`, 64-byte aligned (2 MiB when it is larger); contents arbitrary."""

    __slots__ = ("__weakref__", "address", "buffer", "size")

    def __init__(self, buffer: Any, address: int, size: int) -> None:
        self.buffer = buffer
        self.address = address
        self.size = size


class _Keeper:
    """Blocks that nobody uses, by size."""

    def __init__(self) -> None:
        # A finalizer that gives a block back may run while this thread holds the lock.
        self.lock = threading.RLock()
        self.blocks: dict[int, list[Workspace]] = {}
        self.bytes = 0

    def take(self, size: int) -> Workspace | None:
        with self.lock:
            row = self.blocks.get(size)
            if not row:
                return None
            self.bytes -= size
            return row.pop()

    def give(self, block: Workspace) -> None:
        with self.lock:
            if self.bytes + block.size <= _KEPT_BYTES:
                self.bytes += block.size
                self.blocks.setdefault(block.size, []).append(block)

    def clear(self) -> None:
        with self.lock:
            self.blocks.clear()
            self.bytes = 0


_keeper = _Keeper()


def _new_lock() -> None:
    _keeper.lock = threading.RLock()


os.register_at_fork(after_in_child=_new_lock)


def size_class(size: int) -> int:
    """The size that is really taken for `size` bytes: of eight steps per power of two, so that blocks fit again."""
    size = max(size, ALIGNMENT)
    step = max(1 << max(size.bit_length() - 4, 0), ALIGNMENT)
    return -(-size // step) * step


def take_workspace(size: int) -> Workspace:
    """A block for `size` bytes. Give it back with `give_workspace`, or leave it to the garbage collector.

    Errors: runtime/out-of-memory.
    """
    actual = size_class(size)
    return _keeper.take(actual) or _new_block(actual)


def give_workspace(block: Workspace) -> None:
    """Have `block` used again. Requires: nobody uses it from here on."""
    _keeper.give(block)


def release_kept() -> None:
    """Give all unused blocks back to the system."""
    _keeper.clear()


def _new_block(size: int) -> Workspace:
    try:
        return _allocate(size)
    except (MemoryError, OSError, OverflowError) as error:
        raise OutOfMemory(
            doing="allocating memory for an output or a workspace",
            found=f"{size:,} bytes were refused: {error}",
            expected="memory of the system",
            hint="free what is not needed; or pass smaller arrays, or fewer workers: treadle.set_workers",
        ) from error


def _allocate(size: int) -> Workspace:
    if size < _MAPPED_FROM:
        buffer = np.empty(size + ALIGNMENT, np.uint8)
        address = int(buffer.__array_interface__["data"][0])
        return Workspace(buffer, -(-address // ALIGNMENT) * ALIGNMENT, size)
    huge = size >= _HUGE
    # Shared mappings, Python's default, get no huge pages.
    mapping = mmap.mmap(-1, size + (_HUGE if huge else 0), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if huge and hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            mapping.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            pass  # a kernel without huge pages
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
    return Workspace(mapping, -(-address // _HUGE) * _HUGE if huge else address, size)


def empty(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """A new row-major array, uninitialised, its first element 64-byte aligned.

    Errors: runtime/out-of-memory.
    """
    kind = numpy_dtype(dtype)
    count = 1
    for extent in shape:
        count *= extent
    block = take_workspace(count * kind.itemsize)
    raw: Any = (ctypes.c_char * block.size).from_address(block.address)
    # The array's views keep `raw` alive; when it goes, the block is free. Nothing else refers to it.
    weakref.finalize(raw, _keeper.give, block).atexit = False
    return np.frombuffer(raw, dtype=kind, count=count).reshape(shape)
