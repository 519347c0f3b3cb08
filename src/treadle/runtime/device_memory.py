"""Workspace on a GPU, for one call at a time: taken and given back in the order of a stream.

A block belongs to its call from `take` to `give` on one stream, so calls on several streams, in several threads and in
captured graphs never share one: the driver hands a block to another stream only when this one has passed the end. In a
capture, both become nodes of the graph, which then owns its memory. The pool keeps `KEPT` bytes for the next call.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from treadle.runtime.driver import check, current, device, driver, entry, ok
from treadle.runtime.errors import DeviceOutOfMemory
from treadle.runtime.streams import relaxed

KEPT = 512 << 20
"""Bytes that stay with the pool of a device when nobody uses them."""

_OUT_OF_MEMORY = 2


@functools.cache
def _pool(ordinal: int) -> tuple[int, Any]:
    """The pool of a device, as an address and as the bindings have it. *Errors*: `cuda/failed` where the device has
    none (some virtual GPUs)."""
    cu, doing = driver(), "making a pool of device memory"
    properties = cu.CUmemPoolProps()
    properties.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = ordinal
    with current(device(ordinal)), relaxed():
        pool = ok(cu.cuMemPoolCreate(properties), doing)
        kind = cu.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        ok(cu.cuMemPoolSetAttribute(pool, kind, cu.cuuint64_t(KEPT)), doing)
    return int(pool), pool


def take(ordinal: int, size: int, stream: int, what: str) -> int:
    """The address of `size` bytes, for what is enqueued on `stream` until `give`. Aligned to 256 bytes.

    *Errors*: `cuda/out-of-memory`, `cuda/capture`, `cuda/failed`.
    """
    address = ctypes.c_uint64(0)
    with entered(ordinal, stream):
        status = _allocate(ordinal, size, stream, address)
        if status == _OUT_OF_MEMORY:
            release(ordinal)
            status = _allocate(ordinal, size, stream, address)
    if status == _OUT_OF_MEMORY:
        raise DeviceOutOfMemory(
            doing=f"taking memory for {what}",
            found=f"{size:,} bytes were refused by {device(ordinal).name}",
            expected="memory of the device",
            hint="free arrays; of torch's cache: torch.cuda.empty_cache()",
        )
    check(status, f"taking {size:,} bytes of device memory for {what}")
    return address.value


def _allocate(ordinal: int, size: int, stream: int, address: ctypes.c_uint64) -> int:
    return entry("cuMemAllocFromPoolAsync")(ctypes.addressof(address), size, _pool(ordinal)[0], stream)


def give(ordinal: int, address: int, stream: int) -> None:
    """Gives a block back, once `stream` has come so far. *Errors*: `cuda/failed`."""
    with entered(ordinal, stream):
        check(entry("cuMemFreeAsync")(address, stream), "giving device memory back")


def clear(ordinal: int, address: int, size: int, stream: int) -> None:
    """Writes zeros over a block, in the order of a stream. *Errors*: `cuda/failed`."""
    with entered(ordinal, stream):
        check(entry("cuMemsetD8Async")(address, 0, size, stream), "clearing device memory")


@contextmanager
def taken(ordinal: int, size: int, stream: int, what: str) -> Generator[int]:
    """A block for what is enqueued inside. *Errors*: those of `take`."""
    address = take(ordinal, size, stream, what)
    try:
        yield address
    except BaseException:
        entry("cuMemFreeAsync")(address, stream)  # what was raised matters more than a second failure
        raise
    give(ordinal, address, stream)


def release(ordinal: int) -> None:
    """Gives what the pool keeps back to the device."""
    ok(driver().cuMemPoolTrimTo(_pool(ordinal)[1], 0), "giving kept memory back to the device")


class entered:
    """A context manager: what is enqueued on `stream` finds its device. A stream of its own carries its context, the
    default one is of the context that is current."""

    __slots__ = ("_around", "_ordinal")

    def __init__(self, ordinal: int, stream: int) -> None:
        self._ordinal = ordinal
        self._around = None if stream > 2 or is_current(int(device(ordinal).context)) else current(device(ordinal))

    def __enter__(self) -> None:
        if self._around is not None:
            self._around.__enter__()

    def __exit__(self, *_: object) -> None:
        if self._around is not None:
            self._around.__exit__()


def is_current(context: int) -> bool:
    """Whether a context is the calling thread's current one."""
    found = ctypes.c_void_p(0)
    return entry("cuCtxGetCurrent")(ctypes.addressof(found)) == 0 and found.value == context
