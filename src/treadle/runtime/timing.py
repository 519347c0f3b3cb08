"""Timing that can be compared: several calls in turn, in one process, medians.

What runs at one moment on a shared machine is not what runs at the next; so sides are interleaved, in an order that
changes from round to round, and each side's spread is told beside its median.
"""

from __future__ import annotations

import random
import statistics
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from treadle.runtime.driver import current, device, driver, ok
from treadle.runtime.streams import current_stream


@dataclass(frozen=True, slots=True)
class Timing:
    """Samples of one side, in order of time. Units: seconds per call."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle sample."""
        return statistics.median(self.samples)

    @property
    def spread(self) -> float:
        """Distance of the quartiles over the median; 0 for fewer than four samples."""
        if len(self.samples) < 4 or self.median == 0:
            return 0.0
        low, _, high = statistics.quantiles(self.samples, n=4)
        return (high - low) / self.median


Side = Callable[[], Any]


def interleaved(
    sides: Mapping[str, Side],
    *,
    rounds: int = 20,
    warmup: int = 3,
    calls: Mapping[str, int] | int | None = None,
    sample_seconds: float = 1e-3,
    settled: bool = False,
    seed: int = 0,
) -> dict[str, Timing]:
    """The time of each side on the host's clock.

    A sample is the mean of `calls` calls in a row; with None as many as fill `sample_seconds`. `settled`: before each
    sample this process waits until its threads are idle (`settle`), and then calls the side untimed for `WAKING`
    seconds: its own threads are awake and where they belong, nobody else's are.
    Units: `sample_seconds` in seconds.
    """
    for side in sides.values():
        for _ in range(warmup):
            side()
    counts = _counts(sides, calls, sample_seconds)
    samples: dict[str, list[float]] = {name: [] for name in sides}
    order, shuffle = list(sides), random.Random(seed)
    for _ in range(rounds):
        shuffle.shuffle(order)
        for name in order:
            if settled:
                settle()
                _wake(sides[name])
            samples[name].append(_per_call(sides[name], counts[name]))
    return {name: Timing(tuple(row)) for name, row in samples.items()}


SLICE = 0.01
"""Seconds for which no thread of the process may have run to be called idle: more than two of the system's ticks, at
which the time of a running thread is counted."""


def settle(most: float = 0.3) -> float:
    """Sleeps until no thread of this process runs, for at most `most` seconds; returns the seconds slept.

    Libraries' worker threads spin for their next piece of work, 4 to 50 ms after a call: what is called next
    would share its cores with them.
    """
    start = time.perf_counter()
    while time.perf_counter() - start < most:
        before = time.process_time()
        time.sleep(SLICE)
        if time.process_time() - before < 0.1 * SLICE:
            break
    return time.perf_counter() - start


WAKING = 0.005
"""Seconds for which a side is called before it is timed; a scheduler needs them to spread woken threads over cores."""


def _wake(side: Side) -> None:
    start = time.perf_counter()
    side()
    while time.perf_counter() - start < WAKING:
        side()


def _counts(sides: Mapping[str, Side], calls: Mapping[str, int] | int | None, seconds: float) -> dict[str, int]:
    if isinstance(calls, int):
        return {name: max(1, calls) for name in sides}
    if calls is not None:
        return {name: max(1, calls[name]) for name in sides}
    return {name: max(1, int(seconds / max(_per_call(side, 1), 1e-9))) for name, side in sides.items()}


def _per_call(side: Side, calls: int) -> float:
    clock = time.perf_counter
    start = clock()
    for _ in range(calls):
        side()
    return (clock() - start) / calls


def interleaved_on_device(
    sides: Mapping[str, Side],
    *,
    ordinal: int = 0,
    stream: int | None = None,
    rounds: int = 20,
    warmup: int = 3,
    before: Side | None = None,
    seed: int = 0,
) -> dict[str, Timing]:
    """The time of each side on a CUDA device, by events around one call each.

    Each side must launch on `stream` (None: the stream current at the call). `before` is run, untimed, before every
    sample: to flush a cache, say.
    Errors: cuda/no-driver, cuda/no-device, cuda/failed.
    """
    cu, on = driver(), device(ordinal)
    doing = "timing on a CUDA device"
    samples: dict[str, list[float]] = {name: [] for name in sides}
    order, shuffle = list(sides), random.Random(seed)
    with current(on):
        handle = cu.CUstream(current_stream(ordinal) if stream is None else stream)
        first, last = (ok(cu.cuEventCreate(0), doing) for _ in range(2))
        try:
            for side in sides.values():
                for _ in range(warmup):
                    side()
            ok(cu.cuStreamSynchronize(handle), doing)
            for _ in range(rounds):
                shuffle.shuffle(order)
                for name in order:
                    if before is not None:
                        before()
                    ok(cu.cuEventRecord(first, handle), doing)
                    sides[name]()
                    ok(cu.cuEventRecord(last, handle), doing)
                    ok(cu.cuEventSynchronize(last), doing)
                    samples[name].append(float(ok(cu.cuEventElapsedTime(first, last), doing)) * 1e-3)
        finally:
            for event in (first, last):
                cu.cuEventDestroy(event)
    return {name: Timing(tuple(row)) for name, row in samples.items()}


def flushing(ordinal: int = 0) -> Side:
    """What overwrites the L2 cache of a device, on the stream that is current: for `before` of `interleaved_on_device`.

    *Errors*: `cuda/out-of-memory` and others of the driver.
    """
    cu, on, doing = driver(), device(ordinal), "overwriting the L2 cache"
    with current(on):
        kind = cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE
        size = max(4 * int(ok(cu.cuDeviceGetAttribute(kind, ok(cu.cuDeviceGet(ordinal), doing)), doing)), 1 << 20)
        room = int(ok(cu.cuMemAlloc(size), doing))

    def flush() -> None:
        with current(on):
            ok(cu.cuMemsetD8Async(room, 0, size, cu.CUstream(current_stream(ordinal))), doing)

    weakref.finalize(flush, _free, ordinal, room).atexit = False
    return flush


def _free(ordinal: int, room: int) -> None:
    with current(device(ordinal)):
        driver().cuMemFree(room)
