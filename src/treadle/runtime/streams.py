"""Which stream a call runs on, what it waits for there, and whether that stream is being captured.

A call runs on the stream that is current in the library of its arrays: torch's, or CuPy's. Where arrays of both meet,
the first one's, and the others' stream is ordered before and after by events. Arrays whose library tells no stream
(JAX) were ready when they were read, and their calls are over when they return; so are all calls whose streams nobody
can tell. Inside `recording`, all calls of the thread run on the stream that is recorded.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from treadle.runtime.arrays import ArrayView
from treadle.runtime.dlpack import library_of
from treadle.runtime.driver import check, current, device, driver, entry, ok
from treadle.runtime.errors import CaptureRefused

LEGACY, PER_THREAD = 1, 2
"""Handles of the default streams, as CUDA and the array protocols number them."""


class _Recorded(threading.local):
    """The recording of this thread."""

    stream: int | None = None
    keep: Callable[[Any], None] | None = None


_recorded = _Recorded()


def current_stream(ordinal: int, library: str = "") -> int:
    """The handle of the stream that `library` works on: torch's or CuPy's; without one, of the library that is loaded;
    else the default, 0. Inside `recording`, the recorded one.

    The frameworks are looked up among the loaded modules: arrays of a framework exist only when it is loaded.
    """
    if _recorded.stream is not None:
        return _recorded.stream
    if library != "cupy":
        torch = sys.modules.get("torch")
        if torch is not None:
            if torch is not _torch.module:
                _torch.learn(torch)
            if _torch.raw is not None:
                return _torch.raw(ordinal)
            if torch.cuda.is_initialized():
                return int(torch.cuda.current_stream(ordinal).cuda_stream)
    if library != "torch":
        cupy = sys.modules.get("cupy")
        if cupy is not None:
            return int(cupy.cuda.get_current_stream(ordinal).ptr)
    return 0


class _Torch:
    """What tells torch's current stream by its handle, once torch has started CUDA: an object of a stream, and the
    question whether it has started, cost more than a launch."""

    module: Any = None
    raw: Callable[[int], int] | None = None

    def learn(self, torch: Any) -> None:
        """Looks whether torch has started."""
        if torch.cuda.is_initialized():
            self.module, self.raw = torch, getattr(torch._C, "_cuda_getCurrentRawStream", None)
        else:
            self.raw = None

    def forget(self) -> None:
        """In the child of a fork, where torch has not."""
        self.module = self.raw = None


_torch = _Torch()
os.register_at_fork(after_in_child=_torch.forget)


@dataclass(frozen=True, slots=True)
class Order:
    """How a call on some arrays is ordered. `library` tells the stream it runs on; `others` are libraries, and `before`
    streams, that it is ordered with; `wait`: the call is over when it returns, because somebody's stream is unknown."""

    library: str = ""
    others: tuple[str, ...] = ()
    before: tuple[int, ...] = ()
    wait: bool = False

    @property
    def plain(self) -> bool:
        """Whether there is nothing to order."""
        return not (self.others or self.before or self.wait)


_TELLING = ("torch", "cupy")
"""Libraries that tell which stream they work on."""


def order_of(arrays: Iterable[Any]) -> Order:
    """The order of a call on these arrays. Numbers and arrays of treadle's own are passed over."""
    found: dict[str, None] = {}
    before: list[int] = []
    for array in arrays:
        owner: Any = array.owner if isinstance(array, ArrayView) else array
        if isinstance(owner, tuple):
            owner = cast("tuple[Any, ...]", owner)[0]  # with its capsule
        name = library_of(owner)
        if name in _TELLING:
            found[name] = None
        elif hasattr(owner, "__dlpack__"):
            # Its memory is ready when the default stream has come so far (`dlpack.export`); JAX's is ready.
            found["?"] = None
            before += [LEGACY] if name != "jax" and LEGACY not in before else []
        elif (interface := getattr(owner, "__cuda_array_interface__", None)) is not None:
            stream = interface.get("stream")
            before += [int(stream)] if stream is not None and int(stream) not in before else []
    telling = [name for name in found if name in _TELLING]
    return Order(telling[0] if telling else "", tuple(telling[1:]), tuple(before), "?" in found)


class ordered:
    """A context manager in which a call is enqueued: gives its stream, which waits for the streams of other libraries
    first; those wait for it afterwards, or the host does. *Errors*: `cuda/failed`, `cuda/capture`."""

    def __init__(self, ordinal: int, order: Order) -> None:
        self._ordinal, self._order = ordinal, order
        self.stream = current_stream(ordinal, order.library)
        self._others = [
            s
            for s in dict.fromkeys((*(current_stream(ordinal, o) for o in order.others), *order.before))
            if _alike(s) != _alike(self.stream)
        ]

    def __enter__(self) -> int:
        for other in self._others:
            follow(self._ordinal, self.stream, other)
        return self.stream

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            return
        for other in self._others:
            follow(self._ordinal, other, self.stream)
        if self._order.wait and not capturing(self._ordinal, self.stream):
            cu = driver()
            with current(device(self._ordinal)):
                ok(cu.cuStreamSynchronize(cu.CUstream(self.stream)), "waiting for a call to end")


def _alike(stream: int) -> int:
    return 0 if stream == LEGACY else stream


def follow(ordinal: int, later: int, earlier: int) -> None:
    """What is enqueued on `later` from here on comes after what is enqueued on `earlier` so far."""
    cu, doing = driver(), "ordering two streams"
    with current(device(ordinal)):
        event = ok(cu.cuEventCreate(cu.CUevent_flags.CU_EVENT_DISABLE_TIMING), doing)
        try:
            ok(cu.cuEventRecord(event, cu.CUstream(earlier)), doing)
            ok(cu.cuStreamWaitEvent(cu.CUstream(later), event, 0), doing)
        finally:
            cu.cuEventDestroy(event)  # goes when the device has passed it


def capturing(ordinal: int, stream: int) -> bool:
    """Whether a stream is being captured into a graph."""
    if stream in (0, LEGACY):
        return False  # the default stream cannot be
    state = ctypes.c_int(0)
    check(entry("cuStreamIsCapturing")(stream, ctypes.addressof(state)), "asking whether a stream is captured")
    return state.value != 0


def refuse_capture(ordinal: int, stream: int, doing: str, why: str, hint: str) -> None:
    """*Errors*: `cuda/capture` where the stream is being captured."""
    if capturing(ordinal, stream):
        raise CaptureRefused(doing=doing, found=f"a stream that is being captured; {why}", expected="none", hint=hint)


@contextmanager
def relaxed() -> Generator[None]:
    """Inside, this thread may load modules while some stream is captured: nothing that it does here is recorded."""
    cu = driver()
    before = ok(cu.cuThreadExchangeStreamCaptureMode(cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED), _RELAXING)
    try:
        yield
    finally:
        ok(cu.cuThreadExchangeStreamCaptureMode(before), _RELAXING)


_RELAXING = "loading code beside a capture"


@contextmanager
def recording(stream: int, keep: Callable[[Any], None]) -> Generator[None]:
    """Inside, all calls of this thread run on `stream`; `keep` is given what their launches need."""
    if _recorded.stream is not None:
        raise CaptureRefused(
            doing="recording a graph",
            found="another recording of this thread",
            expected="one at a time",
            hint="end the other one first",
        )
    _recorded.stream, _recorded.keep = stream, keep
    try:
        yield
    finally:
        _recorded.stream = _recorded.keep = None


def kept(needed: Any) -> None:
    """Tells the recording of this thread, if there is one, what a launch needs to be repeated."""
    if _recorded.keep is not None:
        _recorded.keep(needed)
